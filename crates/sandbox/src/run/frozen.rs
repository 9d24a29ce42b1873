//! What is done with the files of a sandbox while everything inside stands still: its changes are kept, taken to the host, or
//! become a snapshot. All that is read is of one moment then. A machine stops what is inside by itself.

use std::path::Path;
use std::sync::mpsc::Sender;

use backends::Running;
use policy::control::Emulator;
use policy::report::WorkspaceReport;
use policy::value::{NetMode, Tier, WorkspaceMode};
use policy::{Plan, Policy};

use super::record::Recorded;
use super::trees::bounds;
use super::workspace::{Layer, told};
use crate::changes::{Applied, Request, Until};
use crate::error::Error;
use crate::fault::Fault;
use crate::snapshot::{OfOthers, Packing, Writer};
use crate::state::Dir;

/// To whom the answer goes.
pub(super) type Reply<T> = Sender<Result<T, Error>>;

/// What somebody asked for.
#[derive(Debug)]
pub(super) enum Task {
    /// Keep the changes so far under the id of the run.
    Changes(Reply<WorkspaceReport>),
    /// Take some of them to the host.
    Apply(Request, Reply<Applied>),
    /// Fill a snapshot.
    Snapshot(Box<Writer>, Reply<Box<Writer>>),
}

impl Task {
    /// It cannot be done: not everything inside can be stopped.
    pub(super) fn refuse(self, why: &str) {
        self.answer(not_frozen(why));
    }

    // Who asked may be gone.
    fn answer(self, error: Error) {
        match self {
            Self::Changes(reply) => drop(reply.send(Err(error))),
            Self::Apply(_, reply) => drop(reply.send(Err(error))),
            Self::Snapshot(_, reply) => drop(reply.send(Err(error))),
        }
    }
}

/// Does what was asked, while nothing moves. What a machine is is asked of itself.
pub(super) type WhileFrozen<'a> = &'a mut dyn FnMut(Task, &Until, &mut dyn Running);

/// The files of a sandbox, from outside.
pub(super) struct Files<'a> {
    pub(super) layer: Option<&'a mut Layer>,
    /// `/tmp` of a container.
    pub(super) tmp: Option<&'a Dir>,
    /// The folder in which the process tier writes.
    pub(super) folder: Option<&'a Path>,
    pub(super) recorded: &'a Recorded,
    pub(super) plan: &'a Plan,
}

impl Files<'_> {
    pub(super) fn serve(&mut self, task: Task, until: &Until, running: &mut dyn Running) {
        // Who asked may be gone.
        match task {
            Task::Changes(reply) => drop(reply.send(self.changes(until))),
            Task::Apply(request, reply) => drop(reply.send(self.apply(&request, until))),
            Task::Snapshot(writer, reply) => drop(reply.send(self.snapshot(writer, until, running))),
        }
    }

    fn changes(&mut self, until: &Until) -> Result<WorkspaceReport, Error> {
        let policy = &self.plan.policy;
        let layer = self.layer.as_deref().ok_or_else(|| no_layer(policy))?;
        layer.read(self.recorded, self.plan, until).map(|manifest| told(&manifest))
    }

    fn apply(&mut self, request: &Request, until: &Until) -> Result<Applied, Error> {
        let policy = &self.plan.policy;
        let layer = self.layer.as_deref_mut().ok_or_else(|| no_layer(policy))?;
        layer.apply(self.recorded, self.plan, request, until)
    }

    fn snapshot(
        &mut self,
        mut writer: Box<Writer>,
        until: &Until,
        running: &mut dyn Running,
    ) -> Result<Box<Writer>, Error> {
        let policy = &self.plan.policy;
        could_keep(self.plan)?;
        writer.of(self.plan, until.clone());
        if self.plan.tier == Tier::Vm {
            // All that it wrote lies in its memory.
            writer.memory(running)?;
            return Ok(writer);
        }
        match (&self.layer, policy.workspace.mode) {
            (Some(layer), _) => writer.changes(&layer.read(self.recorded, self.plan, until)?)?,
            // The host's own folder, which a new sandbox sees as well.
            (None, WorkspaceMode::None | WorkspaceMode::Ro) => {}
            (None, WorkspaceMode::Rw | WorkspaceMode::Overlay | WorkspaceMode::Copy) => return Err(no_layer(policy)),
        }
        let (bounds, until) = (bounds(self.plan), until.clone());
        if let Some(tmp) = self.tmp {
            // A runtime makes what it mounts on in the tree that it serves, as root; nothing inside can be anybody else's.
            let others = if self.plan.backend == "native" { OfOthers::Packed } else { OfOthers::MountPoint };
            writer.tmp(tmp, &Packing { but: &[], others, bounds, until })?;
        } else if let Some(folder) = self.folder {
            let folder = Dir::open(folder).map_err(crate::snapshot::SnapshotError::from)?;
            // The copy of the workspace and what is ours lie in it too.
            writer
                .tmp(&folder, &Packing { but: &["workspace", "fumehood"], others: OfOthers::LeftOut, bounds, until })?;
        }
        Ok(writer)
    }
}

/// Whether a snapshot can be made of what is planned.
pub(super) fn could_keep(plan: &Plan) -> Result<(), Error> {
    let policy = &plan.policy;
    match (plan.tier, policy.workspace.mode) {
        (Tier::Vm, _) if plan.backend == Emulator::Firecracker.backend() => Err(no_snapshot(
            "`backend`",
            "Firecracker takes no orders here once it runs, of which one would be to write its memory",
        )),
        (Tier::Vm, WorkspaceMode::None) if matches!(policy.net.mode, NetMode::None | NetMode::Loopback) => Ok(()),
        (Tier::Vm, WorkspaceMode::None) => {
            Err(no_snapshot("`net.mode`", "what leads out of it is the broker of this one, and its copy has another"))
        }
        (Tier::Vm, _) => {
            Err(no_snapshot("`workspace.mode`", "a disk with its workspace is attached to it, which its copy has not"))
        }
        (_, WorkspaceMode::Rw) => Err(no_layer(policy)),
        (_, WorkspaceMode::None | WorkspaceMode::Ro | WorkspaceMode::Overlay | WorkspaceMode::Copy) => Ok(()),
    }
}

/// Files that may change while they are read are of no moment.
pub(super) fn not_frozen(why: &str) -> Error {
    Error::refused(Fault {
        id: "run/not-frozen",
        what: "the files of a sandbox that goes on cannot be read at one moment".to_owned(),
        place: "its control group".to_owned(),
        why: why.to_owned(),
        fix: "let it have a control group with a freezer (`fumehood doctor` says how); or end it: what it changed is kept \
              then"
            .to_owned(),
    })
}

fn no_snapshot(place: &str, why: &str) -> Error {
    Error::refused(Fault {
        id: "live/vm-snapshot",
        what: "no snapshot of this machine can be made".to_owned(),
        place: place.to_owned(),
        why: why.to_owned(),
        fix: "create it without what is named (`fumehood cp` brings files in and out; machines by QEMU can), or use `--tier container`".to_owned(),
    })
}

fn no_layer(policy: &Policy) -> Error {
    let mode = policy.workspace.mode;
    let why = match mode {
        WorkspaceMode::Rw => "it writes to the host's own folder: what it changes is there at once",
        WorkspaceMode::None => "it has no workspace",
        WorkspaceMode::Ro => "it may not change its workspace",
        WorkspaceMode::Overlay | WorkspaceMode::Copy => "its layer could not be reached from outside",
    };
    Error::refused(Fault {
        id: "run/no-changes",
        what: "there are no changes of this sandbox that are kept aside".to_owned(),
        place: format!("workspace.mode = \"{}\"", mode.as_str()),
        why: why.to_owned(),
        fix: "create it with a workspace of mode `overlay` or `copy` (`-w PATH:overlay`)".to_owned(),
    })
}
