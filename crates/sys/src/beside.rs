//! Two threads that work at the same time, on processors of their own.
//!
//! A new thread, and one that is woken, should be put where nothing runs. In a virtual machine the kernel often does not:
//! a processor that idles there counts as taken away by the host (`vcpu_is_preempted`), so it is passed over, and both
//! threads take turns on one processor while another one sleeps. On two processors this was a fifth of a start. So for as
//! long as both have work the two are kept apart by their masks (`sched_setaffinity(2)`).
//!
//! *Promises*: the masks are those of before once both have said that they are done with it; nothing that they start
//! afterwards inherits a narrower one. What the second one starts before that is beside the first one too, until it is
//! let go ([`Apart::release`]).
//!
//! *Does not promise*: that they are apart. Where only one processor is allowed, or the kernel refuses, they run as ever.

use std::cell::Cell;
use std::marker::PhantomData;
use std::os::unix::thread::JoinHandleExt as _;
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::error::{Error, Named as _, Result};

/// What the thread that was started has of it.
#[derive(Debug)]
pub struct Beside {
    all: Option<CpuSet>,
}

impl Beside {
    /// Lets this thread, and what it starts, run on every processor that was allowed before. It is not moved by that.
    ///
    /// # Errors
    /// The allowed processors have become others meanwhile, and the kernel refused the old ones.
    pub fn end(self) -> Result<()> {
        everywhere(self.all)
    }
}

/// A thread that stays on the processor where it is. To be dropped by that thread: from then on it, and what it starts,
/// may run on every processor that was allowed before.
#[derive(Debug)]
#[must_use = "the thread stays on one processor until this is dropped"]
pub struct Here {
    /// `None`: it was not kept here.
    all: Option<CpuSet>,
    /// A mask is a thread's own: this stays with the thread that it is about.
    _own: PhantomData<*const ()>,
}

impl Here {
    /// Otherwise whoever wakes it from another processor would draw it there.
    fn stay(here: usize, all: Option<CpuSet>) -> Self {
        if all.is_some() {
            BEFORE.set(all);
            let mut ours = CpuSet::new();
            ours.set(here);
            sched_setaffinity(None, &ours).unwrap_or_default();
        }
        Self { all, _own: PhantomData }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        BEFORE.set(None);
        drop(everywhere(self.all.take()));
    }
}

thread_local! {
    /// The mask that this thread had before it was kept where it is.
    static BEFORE: Cell<Option<CpuSet>> = const { Cell::new(None) };
}

/// The processors that whoever started us lets us use, in rising order; `None` where the kernel does not say, as for more
/// than 1024 of them. That this thread stays where it is for now changes nothing of it.
#[must_use]
pub fn given() -> Option<Vec<u32>> {
    let all = BEFORE.get().or_else(|| sched_getaffinity(None).ok())?;
    let listed = (0..CpuSet::MAX_CPU).filter(|number| all.is_set(*number));
    Some(listed.filter_map(|number| u32::try_from(number).ok()).collect())
}

/// What the thread that started the other one has of it, until it drops this.
#[derive(Debug)]
#[must_use = "the thread stays on one processor until this is dropped"]
pub struct Apart {
    here: Here,
    /// Where the other thread may run.
    theirs: CpuSet,
}

impl Apart {
    /// Lets a process of one thread that the other thread started run on every processor that was allowed before. It is
    /// not moved by that. One whose mask somebody else has set meanwhile (its control group, for one) keeps that.
    ///
    /// # Errors
    /// It is gone, or the kernel refused the old mask.
    pub fn release(&self, process: i32) -> Result<()> {
        let (Some(all), Some(pid)) = (self.here.all, rustix::process::Pid::from_raw(process)) else { return Ok(()) };
        let now = sched_getaffinity(Some(pid)).named("sched_getaffinity", || process.to_string())?;
        if now != self.theirs {
            return Ok(());
        }
        sched_setaffinity(Some(pid), &all).named("sched_setaffinity", || process.to_string())
    }
}

/// An error where the allowed processors have become others meanwhile.
fn everywhere(all: Option<CpuSet>) -> Result<()> {
    all.map_or(Ok(()), |all| sched_setaffinity(None, &all).named("sched_setaffinity", String::new))
}

/// Runs `work` on a thread of its own with `stack` bytes of stack, on another processor than this thread's.
///
/// # Errors
/// The kernel refused the thread.
pub fn start(stack: usize, work: impl FnOnce(Beside) + Send + 'static) -> Result<Apart> {
    let here = sched_getcpu();
    let all = sched_getaffinity(None).ok().filter(|all| here < CpuSet::MAX_CPU && all.is_set(here) && all.count() > 1);
    let thread = std::thread::Builder::new().stack_size(stack).spawn(move || {
        // It may only have begun by taking this processor away from whom it should work beside.
        if all.is_some() && sched_getcpu() == here {
            std::thread::park();
        }
        work(Beside { all });
    });
    let thread = thread.map_err(|error| Error::new("clone", "a thread", errno(&error)))?;
    let Some(all) = all else { return Ok(Apart { here: Here::stay(here, None), theirs: CpuSet::new() }) };
    let mut theirs = all;
    theirs.unset(here);
    // The other thread goes first: moved before it runs, it costs nobody a stop.
    let moved = keep_to(&thread, &theirs);
    let stays = Here::stay(here, Some(all).filter(|_| moved));
    thread.thread().unpark();
    Ok(Apart { here: stays, theirs })
}

/// Lets threads that have nothing left but to end do that beside this one instead of after it: from here on they run on
/// other processors, and this one where it is. A process of one thread is meant by its number.
pub fn let_end(threads: &[i32]) -> Here {
    let here = sched_getcpu();
    // All of them, not until the first.
    let moved = here < CpuSet::MAX_CPU && threads.iter().filter(|thread| away(**thread, here)).count() > 0;
    Here::stay(here, sched_getaffinity(None).ok().filter(|all| moved && all.is_set(here)))
}

/// Refused or too late: then it ends where it is.
fn away(thread: i32, here: usize) -> bool {
    let Some(thread) = rustix::process::Pid::from_raw(thread) else { return false };
    // Its own mask: it may be narrower than ours.
    let Ok(mut others) = sched_getaffinity(Some(thread)) else { return false };
    others.unset(here);
    others.count() > 0 && sched_setaffinity(Some(thread), &others).is_ok()
}

/// The number of the calling thread, for [`let_end`].
#[must_use]
pub fn this_thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

fn errno(error: &std::io::Error) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(error).unwrap_or(rustix::io::Errno::AGAIN)
}

/// Whether the kernel takes the mask.
fn keep_to(thread: &JoinHandle<()>, theirs: &CpuSet) -> bool {
    // SAFETY: the handle is there, so its thread was not detached and its number is valid until it is joined; the set is
    // read, and lives across the call.
    let result = unsafe {
        libc::pthread_setaffinity_np(thread.as_pthread_t(), size_of::<CpuSet>(), std::ptr::from_ref(theirs).cast())
    };
    result == 0
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn mask() -> CpuSet {
        sched_getaffinity(None).unwrap()
    }

    /// What the two threads saw, on one that is allowed `allowed`: (where the first one is, where the other one is), and
    /// the masks of both when it is over.
    fn run(allowed: CpuSet) -> ((usize, usize), [CpuSet; 2]) {
        let case = std::thread::spawn(move || {
            sched_setaffinity(None, &allowed).unwrap();
            let ((say, said), (to, told)) = (channel(), channel());
            let apart = start(1 << 16, move |beside| {
                say.send(sched_getcpu()).unwrap();
                told.recv().unwrap();
                beside.end().unwrap();
                say.send(usize::from(mask() == allowed)).unwrap();
            });
            let apart = apart.unwrap();
            let there = said.recv().unwrap();
            let here = sched_getcpu();
            to.send(()).unwrap();
            let back = said.recv().unwrap() == 1;
            drop(apart);
            ((here, there), [mask(), if back { allowed } else { CpuSet::new() }])
        });
        case.join().unwrap()
    }

    #[test]
    fn both_run_on_processors_of_their_own_and_have_their_old_masks_afterwards() {
        let allowed = mask();
        if allowed.count() < 2 {
            println!("skipped: one processor");
            return;
        }
        for _ in 0..20 {
            let ((here, there), after) = run(allowed);
            assert_ne!(here, there);
            assert_eq!(after, [allowed; 2]);
        }
    }

    #[test]
    fn where_one_processor_is_allowed_both_share_it() {
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        let ((here, there), after) = run(one);
        assert_eq!(here, there);
        assert_eq!(after, [one; 2]);
    }

    /// A process that the other thread started, with a mask that `change` may have touched; its mask before and after its
    /// release.
    fn released(change: impl FnOnce(rustix::process::Pid)) -> [CpuSet; 2] {
        let ((say, said), (to, told)) = (channel(), channel::<()>());
        let apart = start(1 << 16, move |beside| {
            #[expect(clippy::disallowed_methods, reason = "a program of the host, which need not be confined")]
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            say.send(child.id()).unwrap();
            told.recv().unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            beside.end().unwrap();
        });
        let apart = apart.unwrap();
        let child = i32::try_from(said.recv().unwrap()).unwrap();
        let pid = rustix::process::Pid::from_raw(child).unwrap();
        change(pid);
        let before = sched_getaffinity(Some(pid)).unwrap();
        apart.release(child).unwrap();
        let after = sched_getaffinity(Some(pid)).unwrap();
        to.send(()).unwrap();
        [before, after]
    }

    #[test]
    fn what_the_other_thread_starts_is_beside_this_one_until_it_is_released() {
        let allowed = mask();
        if allowed.count() < 2 {
            println!("skipped: one processor");
            return;
        }
        let [before, after] = released(|_pid| ());
        assert_eq!(before.count(), allowed.count() - 1);
        assert_eq!(after, allowed);
    }

    #[test]
    fn a_mask_that_somebody_else_set_meanwhile_stays() {
        let allowed = mask();
        if allowed.count() < 2 {
            println!("skipped: one processor");
            return;
        }
        // All of them: no mask of ours while the two are apart.
        let [before, after] = released(|pid| sched_setaffinity(Some(pid), &allowed).unwrap());
        assert_eq!([before, after], [allowed; 2]);
        let mut here = CpuSet::new();
        let [before, after] = released(|pid| {
            here.set(sched_getcpu());
            sched_setaffinity(Some(pid), &here).unwrap();
        });
        assert_eq!([before, after], [here; 2]);
    }

    #[test]
    fn what_ends_is_kept_off_this_processor_and_this_thread_stays_on_it_until_then() {
        let before = mask();
        let (say, said) = channel();
        let (to, told) = channel::<()>();
        let other = std::thread::spawn(move || {
            say.send(this_thread()).unwrap();
            told.recv().unwrap_err();
        });
        let number = said.recv().unwrap();
        let thread = rustix::process::Pid::from_raw(number).unwrap();
        let ending = let_end(&[number]);
        let here = sched_getcpu();
        if before.count() < 2 {
            assert_eq!([sched_getaffinity(Some(thread)).unwrap(), mask()], [before; 2]);
        } else {
            let (mut others, mut ours) = (before, CpuSet::new());
            others.unset(here);
            ours.set(here);
            assert_eq!([sched_getaffinity(Some(thread)).unwrap(), mask()], [others, ours]);
        }
        drop(ending);
        assert_eq!(mask(), before);
        drop(to);
        other.join().unwrap();
        // Gone, or never there: nobody is kept on a processor for that.
        drop(let_end(&[i32::MAX, 0]));
        let none = let_end(&[i32::MAX]);
        assert_eq!(mask(), before);
        drop(none);
    }

    #[test]
    fn what_was_given_is_known_while_a_thread_stays_where_it_is() {
        let listed = |mask: CpuSet| -> Vec<u32> { (0..1024).filter(|number| mask.is_set(*number as usize)).collect() };
        let before = mask();
        assert_eq!(given(), Some(listed(before)));
        let apart = start(1 << 16, drop).unwrap();
        assert_eq!(given(), Some(listed(before)), "a thread that is kept on one processor");
        drop(apart);
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        sched_setaffinity(None, &one).unwrap();
        assert_eq!(given(), Some(listed(one)));
    }

    #[test]
    fn one_that_is_dropped_gives_the_old_mask_back() {
        let before = mask();
        drop(start(1 << 16, drop).unwrap());
        assert_eq!(mask(), before);
    }
}
