//! What the supervisor itself holds of a plan: its watches, and the record that each of its controls is in place.
//!
//! Both are made from the plan's controls. The loop that supervises has nothing else to go by, so that a control which is
//! not here is neither enforced nor said to be.

use std::time::Duration;

use policy::control::{CgroupLimit, Control, Machine, Resource, Watch};
use policy::report::Limit;
use policy::value::{Over, Threat, Threshold};
use policy::{Bytes, Millis, Plan};

/// The watches of a plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Watches {
    pub(super) wall: Option<Millis>,
    pub(super) cpu_time: Option<(Millis, bool)>,
    pub(super) memory: Option<Bytes>,
    pub(super) locks: Option<u64>,
    pub(super) waiting: Option<Bytes>,
    pub(super) pids: Option<u32>,
    pub(super) disk: Option<Bytes>,
    pub(super) files: Option<u64>,
    pub(super) tmp: Option<Bytes>,
    pub(super) output: Option<(Bytes, Over)>,
    pub(super) warn: Option<Threshold>,
    pub(super) kill: Option<Threshold>,
    pub(super) protected: bool,
    /// A copy of the workspace lies in the folder of the run.
    pub(super) copied: bool,
    /// So much processor time a program that SIGXCPU ended has used, where the limit was what sent it: `limits.cpu_time`, by whomever
    /// it is held.
    pub(super) cpu_limit: Option<Duration>,
    /// `limits.memory`, by whomever it is held: for what is said of an end.
    pub(super) memory_limit: Option<Bytes>,
    /// The payload is an interpreter of ours.
    pub(super) interpreted: bool,
    /// A live sandbox: one program out of memory is not its end.
    pub(super) live: bool,
    /// The program may be hostile, and hide what it uses (`threat`).
    pub(super) hostile: bool,
    /// The largest file that there can be: what a descriptor that cannot be looked at counts for.
    pub(super) file_size: Option<Bytes>,
    /// Files of the host can be written: nobody can say how much of them is the run's.
    pub(super) writes_to_host: bool,
}

impl Watches {
    /// Those that the plan has, without `but`.
    pub(super) fn of(plan: &Plan, but: &[Control]) -> Self {
        let mut all = Self {
            hostile: plan.policy.threat != Threat::Mistakes,
            writes_to_host: plan.policy.writes_to_host(),
            ..Self::default()
        };
        plan.controls().filter(|control| !but.contains(control)).for_each(|control| all.take(control));
        all
    }

    fn take(&mut self, control: &Control) {
        if let Control::Watch(watch) = control {
            self.watch(watch);
        } else if let Control::Cgroup { limit: CgroupLimit::Memory(bytes), version: _ } = control {
            // Around a machine the group has room for the emulator too.
            self.memory_limit.get_or_insert(Bytes(*bytes));
        } else if let Control::Machine(Machine::Memory(bytes)) = control {
            self.memory_limit = Some(Bytes(*bytes));
        } else if let Control::Rlimit { resource: Resource::Cpu, value } = control {
            // Whole seconds, and one more.
            self.cpu_limit.get_or_insert(Duration::from_secs(value.saturating_sub(1)));
        } else if let Control::Rlimit { resource: Resource::FileSize, value } = control {
            self.file_size = Some(Bytes(*value));
        } else if let Control::Copy { from: _, at: _, size: None } = control {
            self.copied = true;
        } else if let Control::Interpreter(_) = control {
            self.interpreted = true;
        }
    }

    fn watch(&mut self, watch: &Watch) {
        match watch {
            Watch::Wall(limit) => self.wall = Some(*limit),
            Watch::CpuTime { limit, counted } => {
                self.cpu_time = Some((*limit, *counted));
                self.cpu_limit = Some(Duration::from_millis(limit.0));
            }
            Watch::Memory(limit) => {
                self.memory = Some(*limit);
                self.memory_limit = Some(*limit);
            }
            Watch::Locks(most) => self.locks = Some(*most),
            Watch::Waiting(most) => self.waiting = Some(*most),
            Watch::Pids(limit) => self.pids = Some(*limit),
            Watch::Disk(limit) => self.disk = Some(*limit),
            Watch::Files(limit) => self.files = Some(*limit),
            Watch::Tmp(limit) => self.tmp = Some(*limit),
            Watch::Output { limit, over } => self.output = Some((*limit, *over)),
            Watch::Warn(usage) => self.warn = Some(*usage),
            Watch::Kill(usage) => self.kill = Some(*usage),
            Watch::Protected => self.protected = true,
        }
    }

    /// Whether something is held by looking again and again.
    pub(super) const fn samples(&self) -> bool {
        self.cpu_time.is_some()
            || self.memory.is_some()
            || self.pids.is_some()
            || self.warn.is_some()
            || self.kill.is_some()
    }

    /// The limit that is held by looking into processes, if any is.
    pub(super) fn by_looking(&self) -> Option<Limit> {
        let memory = self.memory.map(|_| Limit::Memory);
        memory.or_else(|| self.folder().then_some(Limit::Disk)).or_else(|| self.pids.map(|_| Limit::Pids))
    }

    /// Whether a folder of the run is looked through.
    pub(super) const fn folder(&self) -> bool {
        self.disk.is_some() || self.files.is_some() || self.tmp.is_some()
    }

    /// The controls that are in place by this. `folder`: there is a folder of the run; `protected`: something holds the
    /// control files.
    fn armed(&self, folder: bool, protected: bool) -> Vec<Watch> {
        let in_folder = [self.disk.map(Watch::Disk), self.files.map(Watch::Files), self.tmp.map(Watch::Tmp)];
        let all = [
            self.wall.map(Watch::Wall),
            self.cpu_time.map(|(limit, counted)| Watch::CpuTime { limit, counted }),
            self.memory.map(Watch::Memory),
            self.locks.map(Watch::Locks),
            self.waiting.map(Watch::Waiting),
            self.pids.map(Watch::Pids),
            self.output.map(|(limit, over)| Watch::Output { limit, over }),
            self.warn.map(Watch::Warn),
            self.kill.map(Watch::Kill),
            (self.protected && protected).then_some(Watch::Protected),
        ];
        all.into_iter().chain(in_folder.into_iter().filter(|_| folder)).flatten().collect()
    }
}

/// The controls that the supervisor holds, one by one as it sets them up.
#[derive(Debug)]
pub(super) struct Armed {
    controls: Vec<Control>,
    /// Tests of the proof alone: these are left out.
    but: Vec<Control>,
}

impl Armed {
    /// None yet.
    pub(super) const fn none(but: Vec<Control>) -> Self {
        Self { controls: Vec::new(), but }
    }

    /// Sets up each control of a plan that `which` picks, if there is one: `set_up` is called for it, and it counts only
    /// when that worked.
    pub(super) fn each<E>(
        &mut self,
        plan: &Plan,
        which: impl Fn(&Control) -> bool,
        mut set_up: impl FnMut(&Control) -> Result<(), E>,
    ) -> Result<(), E> {
        for control in plan.controls().filter(|control| which(control)) {
            if !self.but.contains(control) && !self.controls.contains(control) {
                set_up(control)?;
                self.controls.push(control.clone());
            }
        }
        Ok(())
    }

    /// As [`Armed::each`], for what is there already.
    pub(super) fn there(&mut self, plan: &Plan, which: impl Fn(&Control) -> bool) {
        let done = self.each(plan, which, |_| Ok::<(), std::convert::Infallible>(()));
        match done {
            Ok(()) => {}
        }
    }

    /// The watches, which the loop is made with.
    pub(super) fn watches(&mut self, watches: &Watches, folder: bool, protected: bool) {
        self.controls.extend(watches.armed(folder, protected).into_iter().map(Control::Watch));
    }

    /// All of them.
    pub(super) fn controls(&self) -> &[Control] {
        &self.controls
    }
}
