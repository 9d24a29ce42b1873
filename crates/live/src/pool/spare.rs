//! One sandbox that is ready: its supervisor waits for the word, and ends when nobody can say it any more.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use policy::value::Tier;
use sandbox::Environment;
use sys::proc::Process;
use sys::spawn::Child;

use super::proof::{Files, Proof};
use crate::create::{CreateReply, Created, Order, Parked, Refusal, Request, SupervisorProcess, Taking};
use crate::error::LiveError;

/// What the kernel holds for one beside its processes' own memory: namespaces, groups, mounts. An estimate, bytes.
const KERNEL: u64 = 512 << 10;
const PAGE: u64 = 4096;
/// Folders of a container that are memory.
const IN_MEMORY: [&str; 3] = ["/tmp", "/dev/shm", "/run"];
/// How long one may take to be made ready.
const MAKING: Duration = Duration::from_secs(60);
/// How long one that is ready may take to be somebody's; one that is stopped never is.
const TAKING: Duration = Duration::from_secs(5);
/// Its memory is looked at again after this time, and each time twice as late.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const LAST_LOOK: Duration = Duration::from_secs(30);
/// One that was told to end has done so by then, or is killed.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A sandbox that is ready.
#[derive(Debug)]
pub(super) struct Spare {
    started: SupervisorProcess,
    pub(super) parked: Parked,
    /// The files of the host behind it.
    pub(super) files: Files,
    /// When it was begun.
    pub(super) since: Instant,
    /// What it held when somebody looked last, bytes.
    pub(super) memory: u64,
    /// Nobody takes it any more: a file behind it was another one then.
    pub(super) is_stale: bool,
    /// When that was.
    looked: Instant,
}

/// Why none could be made ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotMade {
    /// What is asked for is refused, whoever starts it.
    Refused(String),
    /// Something hinders the pool.
    Hindered(String),
}

impl Spare {
    /// Makes one ready.
    pub(super) fn make(request: &Request, program: &Path, environment: &Environment) -> Result<Self, NotMade> {
        let since = Instant::now();
        let told = |error: LiveError| NotMade::Hindered(format!("{error}: {}", error.fault().why));
        let read = || {
            let none = "it is refused, or a file that it names is gone or not as it was";
            Proof::now(request, environment).ok_or_else(|| NotMade::Refused(none.to_owned()))
        };
        let before = read()?;
        let mut started = SupervisorProcess::new(program, environment).map_err(told)?;
        let said = started.say(&Order::Park(request.clone()), Some(MAKING));
        let parked = match started.answer(Some(MAKING)).map_err(told)? {
            CreateReply::Parked(parked) => parked,
            CreateReply::Refused(refusal) => {
                reap(&started.leave());
                let why = refusal.text.lines().next().unwrap_or_default().to_owned();
                return Err(if refusal.is_ours() { NotMade::Hindered(why) } else { NotMade::Refused(why) });
            }
            CreateReply::Created(_) | CreateReply::Begins => {
                reap(&started.leave());
                return Err(NotMade::Hindered(format!("it did not wait to be taken ({said:?})")));
            }
        };
        let (files, looked) = (before.files.clone(), Instant::now());
        let mut spare = Self { started, parked, files, since, memory: 0, is_stale: false, looked };
        spare.memory = spare.to_look_at().memory();
        // What lay behind it while it was made is what was there before and is there after.
        let after = read().ok().filter(|after| after.is_of(&spare) && before.is_of(&spare));
        if after.is_none() {
            spare.bury();
            let why = "its policy, or a file of the host behind it, changed while it was made ready";
            return Err(NotMade::Hindered(why.to_owned()));
        }
        Ok(spare)
    }

    /// Lets it go as what is said.
    pub(super) fn take(mut self, taking: Taking) -> Result<Result<Created, Refusal>, LiveError> {
        if let Err(error) = self.started.say(&Order::Take(taking), Some(TAKING)) {
            self.bury();
            return Err(LiveError::Start { why: error.to_string() });
        }
        self.started.created(Some(TAKING))
    }

    /// Its supervisor, by its number here.
    pub(super) const fn pid(&self) -> i32 {
        self.started.child.pid
    }

    /// Whether its memory is to be looked at again.
    pub(super) fn is_due(&self, at: Instant) -> bool {
        let age = self.looked.saturating_duration_since(self.since);
        at.saturating_duration_since(self.looked) >= age.clamp(FIRST_LOOK, LAST_LOOK)
    }

    /// What somebody needs to look at it without it.
    pub(super) fn to_look_at(&self) -> SpareLook {
        let container = self.parked.tier == Tier::Container.as_str();
        SpareLook { pid: self.pid(), guest: container.then_some(self.parked.guest), files: self.files.clone() }
    }

    /// So much it holds now.
    pub(super) const fn weighed(&mut self, (memory, is_stale): (u64, bool), at: Instant) {
        (self.memory, self.is_stale, self.looked) = (memory, is_stale, at);
    }

    /// Whether its memory was looked at after it was ready: a Python in it imports meanwhile.
    pub(super) fn is_settled(&self) -> bool {
        self.looked.saturating_duration_since(self.since) >= FIRST_LOOK
    }

    /// Whether its supervisor has ended by itself.
    pub(super) fn has_ended(&self) -> bool {
        let interest = sys::channel::Interest { fd: self.started.child.pidfd.as_fd(), write: false };
        sys::channel::wait(&[interest], Some(Duration::ZERO)).is_ok_and(|ready| ready.contains(&true))
    }

    /// It is told that nobody needs it.
    pub(super) fn leave(self) -> Child {
        self.started.leave()
    }

    /// Ends it.
    pub(super) fn bury(self) {
        reap(&self.leave());
    }
}

/// Waits for the end of one that was told, so that nothing of it is left.
pub(super) fn reap(child: &Child) {
    let interest = sys::channel::Interest { fd: child.pidfd.as_fd(), write: false };
    let ended = sys::channel::wait(&[interest], Some(END_TIMEOUT));
    if !ended.is_ok_and(|ready| ready.contains(&true)) {
        drop(sys::pidfd::send_signal(&child.pidfd, 9));
    }
    drop(sys::pidfd::wait(&child.pidfd));
}

/// One that is ready, for whoever looks at it while others take and make some.
#[derive(Debug)]
pub(super) struct SpareLook {
    /// Its supervisor.
    pub(super) pid: i32,
    /// Its guest, where that has a root of its own.
    guest: Option<i32>,
    files: Files,
}

impl SpareLook {
    /// What it holds: the guest, the agent, its programs and the broker of its network descend from the supervisor; and what lies in
    /// the folders that are memory, of which a Python that waits may have filled some.
    pub(super) fn memory(&self) -> u64 {
        let processes = sys::proc::tree(self.pid).unwrap_or_default();
        let guest = self.guest.and_then(|guest| Process::open(guest).ok());
        let at = |place: &&str| guest.as_ref()?.used_bytes_at(place).ok();
        let folders: BTreeMap<u64, u64> = IN_MEMORY.iter().filter_map(at).collect();
        processes.into_iter().map(held).chain(folders.into_values()).fold(KERNEL, u64::saturating_add)
    }

    /// Whether what it was made of is another now: it would not be taken, and only keeps what was read then.
    pub(super) fn is_stale(&self) -> bool {
        !self.files.are_still_there()
    }
}

/// Memory of a process, bytes: of what n processes share a n-th. Where that may not be seen, what it shares with no other.
fn held(pid: i32) -> u64 {
    Process::open(pid).and_then(|process| process.proportional_bytes()).unwrap_or_else(|_| private(pid))
}

/// Memory that a process shares with no other, bytes; 0 where it cannot be told.
fn private(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let mut pages = text.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok());
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    resident.saturating_sub(shared).saturating_mul(PAGE)
}
