//! A payload that runs: its streams, its usage, its end.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use guest::frames::{FromGuest, ToGuest};

use super::control::Control;
use super::start::GuestProcess;
use crate::StartError;
use crate::backend::{self, Exhausted, Killer, Sample, Streams};
use crate::label::Label;

/// A payload that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) held: GuestProcess,
    /// Frames to and from the guest.
    pub(crate) control: Control,
    pub(crate) streams: Streams,
    pub(crate) label: Option<Label>,
}

impl Running {
    fn pidfd(&self) -> BorrowedFd<'_> {
        self.held.child.pidfd.as_fd()
    }

    fn with_survey(&self, counted: &sys::cgroup::Usage, known: bool) -> Sample {
        let tree = if known {
            super::survey::Survey::default()
        } else {
            super::survey::tree(self.held.guest, &self.held.scope)
        };
        let sample = sample(counted, &tree, self.held.by.own_tasks());
        if self.held.own_kernel { Sample { pids: 0, pids_peak: 0, uncounted_pids: true, ..sample } } else { sample }
    }

    /// What waits in sockets and is charged to nobody; more than anybody could look through is more than there may be.
    fn waiting(&self) -> u64 {
        if !self.held.scope.uncharged {
            return 0;
        }
        let found = sys::proc::Process::open(self.held.guest).and_then(|guest| guest.uncharged_socket_bytes());
        found.unwrap_or_else(|error| if error.is_gone() { 0 } else { u64::MAX })
    }
}

impl backend::Running for Running {
    fn pid(&self) -> i32 {
        self.held.guest
    }

    fn take_streams(&mut self) -> Streams {
        std::mem::take(&mut self.streams)
    }

    fn frames(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    fn read_frames(&mut self) -> Result<(), StartError> {
        self.control.read()
    }

    fn next_frame(&mut self) -> Option<FromGuest> {
        self.control.take()
    }

    fn closed(&self) -> bool {
        self.control.closed()
    }

    fn check_label(&self, payload: i32) -> Result<(), String> {
        self.label.as_ref().map_or(Ok(()), |label| label.check(self.pid(), self.pidfd(), payload))
    }

    fn signal(&self, number: u8) -> Result<(), StartError> {
        self.control.send(ToGuest::Signal(number))
    }

    /// The group's kill is atomic where the kernel has it; the guest's own death takes its pid namespace (container) or, by
    /// its closing control socket and its parent-death signal, its tree with it.
    fn kill(&self) {
        let asked = self.control.send(ToGuest::Kill);
        let grouped = self.held.group.as_ref().map(|group| group.kill(std::time::Duration::from_secs(2)));
        drop((asked, grouped));
    }

    fn killer(&self) -> Result<Killer, StartError> {
        let another = self.control.as_fd().try_clone_to_owned();
        another.map(Killer::new).map_err(|error| StartError::system("keeping the control socket", error))
    }

    fn kill_guest(&self) {
        let signalled = sys::pidfd::send_signal(&self.held.child.pidfd, 9);
        drop(signalled);
    }

    fn freeze(&mut self, frozen: bool) -> Result<(), String> {
        let none = || "nothing can be frozen here: this user has no control group with a freezer".to_owned();
        let group = self.held.group.as_ref().filter(|group| group.can_freeze()).ok_or_else(none)?;
        group.freeze(frozen, std::time::Duration::from_secs(5)).map_err(|error| error.to_string())
    }

    /// Where there is no pid namespace, the guest's death takes nobody along.
    fn end_left(&self) -> Result<(), String> {
        self.held.marked.as_ref().map_or(Ok(()), |run| super::mark::end_marked(run).map(drop))
    }

    /// From the control groups, else from the processes of the tree.
    fn sample(&self) -> Sample {
        let counted = self.held.group.as_ref().and_then(|group| group.usage().ok()).unwrap_or_default();
        let known = counted.memory.is_some() && counted.pids.is_some() && counted.cpu_user_us.is_some();
        Sample { waiting: self.waiting(), ..self.with_survey(&counted, known && !self.held.scope.files) }
    }

    fn last_sample(&self) -> Sample {
        let counted = self.held.group.as_ref().and_then(|group| group.used().ok()).unwrap_or_default();
        let memory = counted.memory.or(counted.memory_peak).is_some();
        let pids = counted.pids.or(counted.pids_peak).is_some();
        let sample = self.with_survey(&counted, memory && pids && counted.cpu_user_us.is_some());
        // Whoever looks now sees the guest alone, which says nothing of what there was.
        Sample { memory_peak: counted.memory_peak.unwrap_or(0), ..sample }
    }

    fn locks(&self, most: u64) -> Result<u64, StartError> {
        let unreadable = |error: sys::error::Error| StartError::system("counting locks", error);
        // Nobody else has many, most of the time: then nobody is asked whose they are.
        let all = sys::proc::locks(most, |_| true).map_err(unreadable)?;
        if all <= most {
            return Ok(all);
        }
        let ours: std::collections::BTreeSet<i32> =
            sys::proc::tree(self.pid()).map_err(unreadable)?.into_iter().collect();
        sys::proc::locks(most, |pid| ours.contains(&pid)).map_err(unreadable)
    }

    fn written_bytes(&self) -> Option<u64> {
        self.held.watched.used()
    }

    fn full_places(&self) -> Vec<Exhausted> {
        self.held.watched.full()
    }

    fn ran_us(&self) -> Option<u64> {
        self.held.group.as_ref()?.ran_us().ok()?
    }

    fn memory_by_survey(&self) -> bool {
        !self.held.memory_limited
    }

    fn bring_back(&mut self, _within: Option<Duration>) -> Result<Option<(File, Vec<String>)>, String> {
        Ok(None)
    }

    fn begin_end(&mut self) {
        self.held.begin_end();
    }

    fn end(mut self: Box<Self>) {
        self.held.end();
    }
}

/// `own`: how many processes of the group are ours, the guest and a runtime.
fn sample(counted: &sys::cgroup::Usage, tree: &super::survey::Survey, own: u64) -> Sample {
    let memory = counted.memory.unwrap_or(tree.memory);
    let pids = counted.pids.unwrap_or(tree.pids).saturating_sub(own);
    Sample {
        user_us: counted.cpu_user_us.unwrap_or(tree.user_us),
        system_us: counted.cpu_system_us.unwrap_or(tree.system_us),
        ran_us: counted.cpu_us,
        memory,
        memory_peak: counted.memory_peak.unwrap_or(memory),
        pids,
        pids_peak: counted.pids_peak.map_or(pids, |n| n.saturating_sub(own)),
        io_read: counted.io_read,
        io_written: counted.io_written,
        oom_kills: counted.oom_kills.unwrap_or(0),
        sockets_full: counted.sockets_full,
        waiting: 0,
        uncounted_pids: false,
        pids_refused: counted.pids_refused.unwrap_or(0),
        unlinked: tree.unlinked,
        unseen: tree.unseen,
        aside: tree.aside,
    }
}
