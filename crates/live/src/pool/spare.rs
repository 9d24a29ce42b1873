//! One sandbox that is ready: its supervisor waits for the word, and ends when nobody can say it any more.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use sandbox::Environment;
use sys::spawn::Child;

use super::proof::{Files, Proof};
use crate::create::{CreateReply, Created, Order, Parked, Refusal, Request, SupervisorProcess, Taking};
use crate::error::LiveError;

/// What the kernel holds for one beside its processes' own memory: namespaces, groups, mounts. An estimate, bytes.
const KERNEL: u64 = 512 << 10;
const PAGE: u64 = 4096;
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
    /// What it held when it was ready, bytes; a Python in it had not imported then.
    pub(super) memory: u64,
}

impl Spare {
    /// Makes one ready; in words why not.
    pub(super) fn make(request: &Request, program: &Path, environment: &Environment) -> Result<Self, String> {
        let since = Instant::now();
        let told = |error: LiveError| error.to_string();
        let read = || {
            let none = "what is asked for cannot be made ready any more";
            Proof::now(request, environment).ok_or_else(|| none.to_owned())
        };
        let before = read()?;
        let mut started = SupervisorProcess::new(program, environment).map_err(told)?;
        let said = started.say(&Order::Park(request.clone()));
        let parked = match started.answer().map_err(told)? {
            CreateReply::Parked(parked) => parked,
            CreateReply::Refused(refusal) => {
                reap(&started.leave());
                return Err(refusal.text.lines().next().unwrap_or_default().to_owned());
            }
            CreateReply::Created(_) => {
                reap(&started.leave());
                return Err(format!("it did not wait to be taken ({said:?})"));
            }
        };
        // The guest, the agent and the broker of its network descend from it.
        let processes = sys::proc::tree(started.child.pid).unwrap_or_default();
        let memory = processes.into_iter().map(private).fold(KERNEL, u64::saturating_add);
        let spare = Self { started, parked, files: before.files.clone(), since, memory };
        // What lay behind it while it was made is what was there before and is there after.
        let after = read().ok().filter(|after| after.is_of(&spare) && before.is_of(&spare));
        if after.is_none() {
            spare.bury();
            return Err("its policy, or a file of the host behind it, changed while it was made ready".to_owned());
        }
        Ok(spare)
    }

    /// Lets it go as what is said.
    pub(super) fn take(mut self, taking: Taking) -> Result<Result<Created, Refusal>, LiveError> {
        if let Err(error) = self.started.say(&Order::Take(taking)) {
            self.bury();
            return Err(LiveError::Start { why: error.to_string() });
        }
        self.started.created()
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

/// Memory that a process shares with no other, bytes; 0 where it cannot be told.
fn private(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let mut pages = text.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok());
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    resident.saturating_sub(shared).saturating_mul(PAGE)
}
