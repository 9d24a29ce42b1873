//! Control files of a read-write workspace: bound, pinned, or held by an empty stub for as long as the run lasts; what
//! slipped in all the same is put aside at the end.

use std::path::Path;

use backends::native::Protect;
use policy::report::Seen;
use policy::value::{Grant, Policy, Tier, WorkspaceMode};
use policy::{ClauseId, Violation};

use super::home::Home;
use super::record::Recorded;
use crate::fault::{Fault, show_path};
use crate::protect::{self, ProtectPlan};
use crate::state::{Cross, Dir};
use crate::ui::Failure;

/// What the backend is told, and what is looked at again in the end.
#[derive(Debug, Default)]
pub(super) struct Guard {
    pub(super) protect: Vec<Protect>,
    pub(super) show: Vec<Grant>,
    pub(super) show_writable: Vec<Grant>,
    pub(super) plan: Option<ProtectPlan>,
}

impl Guard {
    /// Looks through the workspace and makes the stubs, journalled first.
    pub(super) fn make(policy: &Policy, tier: Tier, home: &mut Home) -> Result<Self, Failure> {
        let mut guard = Self::default();
        let (Some(path), Tier::Container) = (&policy.workspace.path, tier) else { return Ok(guard) };
        if policy.workspace.mode == WorkspaceMode::None {
            return Ok(guard);
        }
        let root = path.canonicalize().map_err(|e| unreadable(path, &e.to_string()))?;
        let below = Dir::open(&root).map_err(|e| unreadable(&root, &e.to_string()))?;
        let plan = protect::plan(&root, &below, protect::list()).map_err(|e| unreadable(&root, &e.to_string()))?;
        guard.git(&plan, policy.workspace.mode);
        if policy.workspace.mode != WorkspaceMode::Rw || !policy.fs.protect {
            return Ok(guard);
        }
        guard.protect.extend(plan.pins.iter().cloned().map(Protect::Pinned));
        guard.protect.extend(plan.binds.iter().map(|bind| Protect::ReadOnly(bind.path.clone())));
        for stub in &plan.stubs {
            if home.make_stub(&below, &root, &stub.path, stub.kind == protect::Shape::Dir)? {
                guard.protect.push(Protect::ReadOnly(stub.path.clone()));
            }
        }
        guard.plan = Some(plan);
        Ok(guard)
    }

    /// A git folder that lies elsewhere: objects, refs, logs, index and the worktree's own folder, never config or hooks.
    fn git(&mut self, plan: &ProtectPlan, mode: WorkspaceMode) {
        let Some(git) = &plan.git else { return };
        let grant = |path: &Path| Grant { from: path.to_owned(), to: path.to_owned(), dangerous: false };
        self.show.extend(git.read.iter().map(|path| grant(path)));
        let rest = git.write.iter().map(|path| grant(path));
        if mode == WorkspaceMode::Rw { self.show_writable.extend(rest) } else { self.show.extend(rest) }
    }
}

/// After the run: stubs go, and what slipped in is moved into the changes of the run.
pub(super) fn check(
    plan: Option<ProtectPlan>,
    home: &mut Home,
    recorded: &Recorded,
) -> Result<Vec<Violation>, Failure> {
    home.remove_stubs();
    let Some(plan) = plan else { return Ok(Vec::new()) };
    let below = Dir::open(&plan.root).map_err(|e| unreadable(&plan.root, &e.to_string()))?;
    let changes = recorded.state.changes()?;
    let name = format!("{}-aside", recorded.id);
    changes.make(&name, rustix::fs::Mode::RWXU).map_err(|e| unreadable(&plan.root, &e.to_string()))?;
    let aside = changes.enter(&name, Cross::No).map_err(|e| unreadable(&plan.root, &e.to_string()))?;
    let slipped =
        protect::check(&plan, &below, &aside, protect::list()).map_err(|e| unreadable(&plan.root, &e.to_string()))?;
    if slipped.iter().all(|one| one.moved_to.is_none()) {
        // Empty: nothing was put aside.
        if changes.remove_tree(&name).is_err() {}
    }
    Ok(slipped.iter().map(violation).collect())
}

fn violation(slipped: &protect::Slipped) -> Violation {
    let where_to = match (&slipped.moved_to, &slipped.why) {
        (Some(place), _) => format!("it was put aside as {place}"),
        (None, Some(why)) => format!("it was left: {why}"),
        (None, None) => "it was left".to_owned(),
    };
    Violation {
        id: "fs.protect/slipped".to_owned(),
        clause: ClauseId::FsProtect,
        what: format!("{} {}", show_path(&slipped.path), slipped.what),
        why: format!("control files of a workspace are protected; {where_to}"),
        instead: "leave control files alone, or ask for `fs.protect = false`".to_owned(),
        count: 1,
        seen: Seen::Kernel,
    }
}

fn unreadable(path: &Path, why: &str) -> Failure {
    Failure::own(Fault {
        id: "run/workspace",
        what: format!("`{}` cannot be looked through", show_path(path)),
        place: "the workspace".to_owned(),
        why: why.to_lowercase(),
        fix: "check its owner and mode".to_owned(),
    })
}
