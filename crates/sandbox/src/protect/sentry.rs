//! What is made while a `rw` run lasts: a control file that was not there is put aside as soon as it is seen.
//!
//! The kernel tells of every name that appears in a folder (inotify), and each folder of the workspace is watched, new ones
//! as they come; so nothing of ours has to stand in the workspace. A link among the control files, which no mount can hold, is made again
//! as soon as it is gone. A thread of its own does it: it does not wait for the
//! streams of the run. When the kernel's queue was too short, everything is looked through.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::io::{Errno, Result};

use super::check::{LINKED_AGAIN, Slipped, UNSEEN, link_again, put_aside, told};
use super::gitdir::{REPOSITORY, is_git, is_repository};
use super::list::List;
use super::plan::{ProtectPlan, link_target};
use crate::state::{Cross, Dir, Watched, own_link};

/// Between two looks at least: what a program makes in between is taken together.
const LEAST_PAUSE: Duration = Duration::from_millis(2);
/// And at most, whatever a look took: the overshoot that the plan names.
const MAX_PAUSE: Duration = Duration::from_millis(50);
/// How many folders are looked into before names that appeared are looked at again.
const AT_ONCE: usize = 200;
/// A look may cost a tenth of one core.
const PAUSE_PER_LOOK: u32 = 10;

/// So many control files are put aside while a run lasts: each stands until it is seen, and whoever makes one again and again
/// would have it there most of the time.
const MAX_TAKEN: usize = 32;
/// And files of so many bytes in all: the folder for them lies on the host's disk.
const MAX_TAKEN_BYTES: u64 = 64 << 20;

/// Watches a workspace until it is stopped.
#[derive(Debug)]
pub struct Sentry {
    /// What it saw comes out here, with what it saw it by.
    seen: Receiver<WatchState>,
    /// Closed to stop it.
    stop: Option<OwnedFd>,
    failed: Arc<Mutex<Option<Errno>>>,
    pestered: Arc<AtomicBool>,
}

impl Sentry {
    /// Watches every folder of the plan; what appears is moved into `aside`.
    ///
    /// # Errors
    /// ENOSPC: the user may watch no more folders (`fs.inotify.max_user_watches`). What the kernel answers.
    pub fn start(plan: &ProtectPlan, below: Dir, aside: Dir, list: &'static List) -> Result<Self> {
        let known = plan.binds.iter().map(|bind| bind.path.clone()).chain(plan.layers.iter().cloned()).collect();
        let links = plan.links.iter().map(|link| (link.clone(), link_target(&below, link))).collect();
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let failed = Arc::new(Mutex::new(None));
        let mut eye = WatchState {
            queue: Some(queue),
            aside,
            list,
            known,
            links,
            ways: plan.ways.clone(),
            before: plan.before.keys().cloned().collect(),
            git_links: plan.git_links.clone(),
            standing: plan.standing_links(&below),
            below,
            running: false,
            until: None,
            folders: BTreeMap::new(),
            watched: BTreeSet::new(),
            pending: BTreeSet::new(),
            slipped: Vec::new(),
            bytes: 0,
        };
        for folder in &plan.folders {
            match eye.watch(folder) {
                Ok(_) => {}
                Err(errno) if eye.is_passed_over(folder, errno) => {}
                Err(errno) => return Err(errno),
            }
        }
        eye.running = true;
        let (end, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let told = Arc::clone(&failed);
        let pestered = Arc::new(AtomicBool::new(false));
        let too_many = Arc::clone(&pestered);
        let (hand_out, seen) = std::sync::mpsc::sync_channel(1);
        let work = move || {
            if let Err(errno) = eye.run(&end, &too_many) {
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(errno);
                // The run is ended for it.
                eye.wait(&end);
            }
            let queue = eye.blind();
            // Whoever dropped the sentry wants nothing of it.
            hand_out.send(eye).unwrap_or_default();
            // The kernel takes 8 ms for it (measured on 6.18): nobody waits.
            drop(queue);
        };
        let thread = std::thread::Builder::new().name("control-files".to_owned()).spawn(work);
        thread.map_err(|error| crate::state::errno_of(&error))?;
        Ok(Self { seen, stop: Some(stop), failed, pestered })
    }

    /// Control files were made again and again: it goes on putting them aside, and the run is to be ended.
    #[must_use]
    pub fn is_pestered(&self) -> bool {
        self.pestered.load(Ordering::Relaxed)
    }

    /// Why it sees nothing any more.
    #[must_use]
    pub fn failed(&self) -> Option<Errno> {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches no more: everything inside is being ended, and what it makes until then is seen by the last look.
    pub fn ending(&mut self) {
        self.stop = None;
    }

    /// Looks a last time, at everything, and says what was put aside. Nobody may be left who could make anything.
    ///
    /// # Errors
    /// The watch is gone, and with it what it put aside.
    pub fn stop(mut self) -> Result<Vec<Slipped>> {
        self.ending();
        let mut eye = self.seen.recv().or(Err(Errno::CANCELED))?;
        eye.sweep();
        Ok(eye.slipped)
    }
}

/// The look that a watch of a killed supervisor did not come to: puts aside what is a control file now and was none then, if
/// it was born until then (seconds of real time).
///
/// # Errors
/// What the kernel answers when there is no queue to be had.
pub fn late(watched: &Watched, below: Dir, aside: Dir, until: i64) -> Result<Vec<Slipped>> {
    let mut eye = WatchState {
        queue: None,
        below,
        aside,
        list: super::list::list(),
        known: watched.held.iter().map(|path| path.0.clone()).collect(),
        links: BTreeMap::new(),
        ways: BTreeSet::new(),
        before: watched.before.iter().map(|path| path.0.clone()).collect(),
        git_links: watched.git_links.iter().map(|(path, led)| (path.0.clone(), led.0.clone())).collect(),
        standing: BTreeMap::new(),
        running: false,
        until: Some(until),
        folders: BTreeMap::new(),
        watched: BTreeSet::new(),
        pending: BTreeSet::new(),
        slipped: Vec::new(),
        bytes: 0,
    };
    eye.sweep();
    Ok(eye.slipped)
}

/// What it sees with.
#[derive(Debug)]
struct WatchState {
    queue: Option<OwnedFd>,
    below: Dir,
    aside: Dir,
    list: &'static List,
    /// Held by mounts.
    known: BTreeSet<PathBuf>,
    /// Links on the way from a control file to what it says, and where each led.
    links: BTreeMap<PathBuf, Option<PathBuf>>,
    /// Above names that control files lead to: no link at the start.
    ways: BTreeSet<PathBuf>,
    /// What was there at the start at the top.
    before: BTreeSet<PathBuf>,
    /// What was called `.git` and was a link, and where each led.
    git_links: BTreeMap<PathBuf, PathBuf>,
    /// Links among all of these that were there at the start: each is made again when it is gone.
    standing: BTreeMap<PathBuf, PathBuf>,
    /// The payload may run: at the start nothing is changed.
    running: bool,
    /// What was born later is somebody else's work: seconds.
    until: Option<i64>,
    /// By number of the watch.
    folders: BTreeMap<i32, PathBuf>,
    /// The same, by path.
    watched: BTreeSet<PathBuf>,
    /// Folders that are still to be looked into.
    pending: BTreeSet<PathBuf>,
    slipped: Vec<Slipped>,
    /// Of the files that were put aside.
    bytes: u64,
}

impl WatchState {
    fn run(&mut self, end: &OwnedFd, pestered: &AtomicBool) -> Result<()> {
        loop {
            let queue = self.queue.as_ref().ok_or(Errno::BADF)?;
            let mut wanted = [PollFd::new(queue, PollFlags::IN), PollFd::new(end, PollFlags::IN)];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            match poll(&mut wanted, (!self.pending.is_empty()).then_some(&at_once)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
            let stopped = wanted.get(1).is_some_and(|end| !end.revents().is_empty());
            let began = Instant::now();
            if stopped {
                return Ok(());
            }
            self.look()?;
            self.enter_some()?;
            if self.slipped.len() >= MAX_TAKEN || self.bytes > MAX_TAKEN_BYTES {
                pestered.store(true, Ordering::Relaxed);
            }
            if !self.pending.is_empty() {
                continue;
            }
            let pause = (began.elapsed() * PAUSE_PER_LOOK).clamp(LEAST_PAUSE, MAX_PAUSE);
            let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(pause.subsec_nanos()) };
            match poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&pause)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Everything that the queue holds.
    fn look(&mut self) -> Result<()> {
        let mut seen = Vec::new();
        let mut room = [MaybeUninit::uninit(); 1 << 14];
        let mut reader = inotify::Reader::new(self.queue.as_ref().ok_or(Errno::BADF)?, &mut room);
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
                    seen.push((event.wd(), event.events(), name));
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        // What came and went a thousand times is looked at once.
        let (mut appeared, mut gone) = (BTreeSet::new(), BTreeSet::new());
        for (number, events, name) in seen {
            if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                appeared.insert((PathBuf::new(), true));
                gone.extend(self.standing.keys().cloned());
            } else if events.contains(ReadFlags::IGNORED) {
                if let Some(path) = self.folders.remove(&number) {
                    self.watched.remove(&path);
                }
            } else if let Some((path, name)) = self.folders.get(&number).zip(name) {
                // Of rights only those of folders matter that are not watched yet: a folder that is closed later, the top too,
                // still tells of every name. Otherwise what we open and close again would be looked at for ever.
                let watched = || self.watched.contains(&path.join(&name));
                if events.contains(ReadFlags::ATTRIB) && (!events.contains(ReadFlags::ISDIR) || watched()) {
                    continue;
                }
                if events.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
                    gone.insert(path.join(name));
                    continue;
                }
                appeared.insert((path.join(name), events.contains(ReadFlags::ISDIR)));
            }
        }
        appeared.into_iter().try_for_each(|(path, folder)| self.judge(path, folder))?;
        gone.iter().for_each(|path| self.link_again(path));
        Ok(())
    }

    /// A link that was there at the start and is gone.
    fn link_again(&mut self, path: &Path) {
        let Some(target) = self.standing.get(path).filter(|_| !self.there(path)) else { return };
        let Ok(Some((parent, name))) = super::plan::parent_of(&self.below, path) else { return };
        // Where it cannot be made, the last look says why.
        if link_again(target.as_os_str().as_bytes(), &parent, &name).is_ok() {
            self.slipped.push(told(path, LINKED_AGAIN, None));
        }
    }

    /// Whether a link is what it was.
    fn stands(&self, path: &Path) -> bool {
        let target = self.standing.get(path);
        target.is_some() && link_target(&self.below, path).as_ref() == target
    }

    /// A name that appeared.
    fn judge(&mut self, path: PathBuf, folder: bool) -> Result<()> {
        if self.known.contains(&path) || self.stands(&path) {
            return Ok(());
        }
        let name = path.file_name().unwrap_or_default();
        let is_ours = is_git(&path) || self.list.at_top(&path, folder).is_some();
        if is_ours || self.links.contains_key(&path) || self.leads_astray(&path) {
            self.take(&path);
            return Ok(());
        }
        // A folder becomes one of git's when the last of these comes.
        if REPOSITORY.iter().any(|part| name == *part)
            && let Some(above) = path.parent()
        {
            match self.dir(above).and_then(|dir| dir.names()) {
                Ok(names) => self.repository(above, names.iter().map(OsString::as_os_str)),
                Err(errno) if self.is_passed_over(above, errno) => {}
                Err(errno) => return Err(errno),
            }
        }
        if folder {
            self.pending.insert(path);
        }
        Ok(())
    }

    /// Gives its queue out, with nothing watched any more: so the kernel begins to take it down.
    fn blind(&mut self) -> Option<OwnedFd> {
        let queue = self.queue.take()?;
        for number in std::mem::take(&mut self.folders).into_keys() {
            // A folder that is gone is watched no more.
            inotify::remove_watch(&queue, number).unwrap_or_default();
        }
        Some(queue)
    }

    fn take(&mut self, path: &Path) {
        if self.until.is_some_and(|until| self.born(path).is_some_and(|born| born > until)) {
            return;
        }
        let slipped = put_aside(&self.below, path, &self.aside, "appeared");
        // What went away by itself is nothing to tell of.
        let moved = slipped.moved_to.as_deref();
        let kept = moved.and_then(|name| self.aside.stat(name).ok()?).filter(|stat| is_file(stat.st_mode));
        self.bytes = self.bytes.saturating_add(kept.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0)));
        if slipped.moved_to.is_some() || self.there(path) {
            self.slipped.push(slipped);
        }
        if self.running {
            self.link_again(path);
        }
    }

    /// Without its `HEAD` a folder is none of git's.
    fn repository<'a>(&mut self, folder: &Path, names: impl IntoIterator<Item = &'a OsStr>) {
        if is_repository(names) && !self.known.iter().any(|known| folder.starts_with(known)) {
            self.take(&folder.join("HEAD"));
        }
    }

    fn born(&self, path: &Path) -> Option<i64> {
        let (parent, name) = super::plan::parent_of(&self.below, path).ok()??;
        let found = rustix::fs::statx(&parent, Path::new(&name), AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME).ok()?;
        let told = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        told.then_some(found.stx_btime.tv_sec)
    }

    fn there(&self, path: &Path) -> bool {
        let kind = super::plan::kind_of(&self.below, path);
        // What cannot be looked at is not gone.
        kind.is_ok_and(|kind| kind.is_some()) || matches!(kind, Err(Errno::ACCESS | Errno::BUSY))
    }

    fn dir(&self, path: &Path) -> Result<Dir> {
        // Whoever closed a folder has the right to open it again: so have we.
        self.below.look_into(path, Cross::Yes)
    }

    /// Until nobody is left who could make anything.
    fn wait(&self, end: &OwnedFd) {
        while poll(&mut [PollFd::new(end, PollFlags::IN)], None) == Err(Errno::INTR) {}
    }

    /// Judges everything that is there.
    fn sweep(&mut self) {
        let mut queue = vec![PathBuf::new()];
        while let Some(path) = queue.pop() {
            match self.dir(&path).and_then(|dir| dir.kinds()) {
                Ok(names) => queue.extend(self.children(&path, names)),
                Err(errno) if self.is_passed_over(&path, errno) => {}
                Err(errno) => self.slipped.push(told(&path, UNSEEN, Some(errno.to_string()))),
            }
        }
    }

    /// Judges what is in a folder; the folders that are to be looked into.
    fn children(&mut self, path: &Path, names: Vec<(OsString, FileType)>) -> Vec<PathBuf> {
        self.repository(path, names.iter().map(|(name, _)| name.as_os_str()));
        let mut folders = Vec::new();
        for (name, kind) in names {
            let found = path.join(&name);
            let held = self.known.contains(&found);
            if !held && self.is_new(&found, kind == FileType::Directory) {
                self.take(&found);
            } else if !held && kind == FileType::Directory {
                folders.push(found);
            }
        }
        folders
    }

    /// Whether it is a control file that was not there at the start: links and the like are not held by mounts.
    fn is_new(&self, path: &Path, folder: bool) -> bool {
        if is_git(path) {
            let led = self.git_links.get(path);
            return led.is_none() || link_target(&self.below, path).as_ref() != led;
        }
        if let Some(led) = self.links.get(path) {
            // Where a link led to nothing, anything is new.
            return led.is_none() || link_target(&self.below, path) != *led;
        }
        let listed = || self.list.at_top(path, folder).is_some() || self.leads_astray(path);
        !self.before.contains(path) && listed() || self.ways.contains(path) && link_target(&self.below, path).is_some()
    }

    /// Whether it is a link where a folder is on the way to a control file, or to what one says.
    fn leads_astray(&self, path: &Path) -> bool {
        (self.ways.contains(path) || self.list.is_above(path)) && link_target(&self.below, path).is_some()
    }

    /// Watches some of the folders that are to be looked into, and judges what is there already: names that appear
    /// meanwhile do not wait for all of them.
    fn enter_some(&mut self) -> Result<()> {
        for _ in 0..AT_ONCE {
            let Some(path) = self.pending.pop_first() else { return Ok(()) };
            let names = match self.watch(&path).and_then(|dir| dir.kinds()) {
                Ok(names) => names,
                Err(errno) if self.is_passed_over(&path, errno) => continue,
                Err(errno) => return Err(errno),
            };
            let folders = self.children(&path, names);
            self.pending.extend(folders);
        }
        Ok(())
    }

    fn watch(&mut self, path: &Path) -> Result<Dir> {
        let dir = self.dir(path)?;
        let wanted = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        let has_links = self.standing.keys().any(|link| link.parent() == Some(path));
        let wanted = if has_links { wanted | WatchFlags::DELETE | WatchFlags::MOVED_FROM } else { wanted };
        let by_descriptor = own_link(&dir);
        let number = inotify::add_watch(self.queue.as_ref().ok_or(Errno::BADF)?, by_descriptor, wanted)?;
        if let Some(before) = self.folders.insert(number, path.to_owned()) {
            self.watched.remove(&before);
        }
        self.watched.insert(path.to_owned());
        Ok(dir)
    }

    /// A folder that went away, or whose path is longer than the kernel takes: whatever is moved from there to where it can be
    /// used comes by a folder that is watched. Or one in which the run can make nothing: somebody else closed it, or its file
    /// system is read-only.
    fn is_passed_over(&self, folder: &Path, errno: Errno) -> bool {
        let closed = || matches!(self.below.may_make_in(folder), Ok(false) | Err(Errno::ACCESS));
        let gone = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::NAMETOOLONG, Errno::ROFS].contains(&errno);
        gone || errno == Errno::ACCESS && closed()
    }
}

fn is_file(mode: u32) -> bool {
    FileType::from_raw_mode(mode) == FileType::RegularFile
}
