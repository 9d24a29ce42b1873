//! Control files of a read-write workspace: bound, pinned, or held by an empty stub for as long as the run lasts; what
//! slipped in all the same is put aside at the end.

use std::path::{Component, Path, PathBuf};

use backends::native::{GitPart, Protect};
use policy::report::Seen;
use policy::value::{Grant, Policy, Tier, WorkspaceMode};
use policy::{ClauseId, Violation};

use super::home::Home;
use super::record::Recorded;
use crate::fault::{Fault, show_path, show_text};
use crate::protect::{self, Hold, ProtectPlan};
use crate::state::{Cross, Dir};
use crate::ui::Failure;

/// What the backend is told, and what is looked at again in the end.
#[derive(Debug, Default)]
pub(super) struct Guard {
    pub(super) protect: Vec<Protect>,
    pub(super) show: Vec<Grant>,
    pub(super) git: Vec<GitPart>,
    pub(super) placeholders: Vec<PathBuf>,
    pub(super) protected: Option<Protected>,
}

/// The control files of a read-write workspace: how they are protected, and what holds them.
#[derive(Debug)]
pub(super) struct Protected {
    plan: ProtectPlan,
    hold: Hold,
}

impl Protected {
    /// Somebody outside took a mount away; in words.
    pub(super) fn lost(&self) -> Option<String> {
        let path = self.hold.lost()?;
        Some(format!(
            "the control file {} was replaced from outside, which takes away what made it read-only inside; the run was ended, \
             and what stands there now is not trusted",
            show_path(&path)
        ))
    }
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
        guard.git(&plan, &root, policy, home);
        if let Some(problem) = &plan.git_problem {
            home.tell(format!(
                "git does not work inside: `.git` leads to {}, and {}",
                show_text(&problem.leads_to),
                problem.why
            ));
        }
        if policy.workspace.mode != WorkspaceMode::Rw || !policy.fs.protect {
            return Ok(guard);
        }
        guard.protect.extend(plan.pins.iter().cloned().map(Protect::Pinned));
        guard.protect.extend(plan.binds.iter().map(|bind| Protect::ReadOnly(bind.path.clone())));
        for nested in &plan.nested {
            home.tell(format!(
                "the repository in {} is not protected: it is nested in the workspace",
                show_path(nested)
            ));
        }
        for linked in &plan.linked {
            home.tell(format!(
                "{} has other names that were not all found: such a name can be written",
                show_path(linked)
            ));
        }
        let mut stubs = Vec::new();
        for stub in &plan.stubs {
            if home.make_stub(&below, &root, &stub.path, stub.kind == protect::Shape::Dir)? {
                guard.protect.push(Protect::ReadOnly(stub.path.clone()));
                guard.placeholders.push(stub.path.clone());
                stubs.push(stub.path.clone());
            }
        }
        guard.lock_elsewhere(&plan, home)?;
        let hold = Hold::take(&plan, below, &stubs).map_err(|e| unreadable(&root, &e.to_string()))?;
        guard.protected = Some(Protected { plan, hold });
        Ok(guard)
    }

    /// The configuration of a git folder that lies elsewhere and can be written, as a submodule's: git outside finds it
    /// locked, as it does in a workspace of its own.
    fn lock_elsewhere(&mut self, plan: &ProtectPlan, home: &mut Home) -> Result<(), Failure> {
        let theirs = |git: &&protect::GitElsewhere| git.read.contains(&git.git_dir.join("config"));
        let Some(git) = plan.git.as_ref().filter(theirs) else { return Ok(()) };
        let elsewhere = Dir::open(&git.git_dir).map_err(|e| unreadable(&git.git_dir, &e.to_string()))?;
        let lock = Path::new("config.lock");
        if home.make_stub(&elsewhere, &git.git_dir, lock, false)? {
            self.git.push(GitPart::ReadOnly(git.git_dir.join(lock)));
        }
        Ok(())
    }

    /// A git folder that lies elsewhere. Read-write: all of it to read, and what git writes to write, but never config or
    /// hooks. With a layer or a copy all of it can be written, and nothing of that reaches the host.
    fn git(&mut self, plan: &ProtectPlan, root: &Path, policy: &Policy, home: &mut Home) {
        let Some(git) = &plan.git else { return };
        if matches!(policy.workspace.mode, WorkspaceMode::Overlay | WorkspaceMode::Copy) {
            let place = show_path(&git.common_dir);
            home.tell(format!(
                "git's folder lies elsewhere ({place}): a commit made inside ends with the run; commit after `fumehood apply`, or use `-w PATH:rw`"
            ));
        }
        self.links(git, root, policy);
        match policy.workspace.mode {
            WorkspaceMode::Rw => {
                // Of a folder shared with other worktrees git needs more than it may have: locks (`packed-refs.lock`,
                // `gc.pid`) lie beside what steers it. They lie in a layer; what counts is the host's own, and
                // `packed-refs` cannot be replaced in the layer, since git would then remove what it believes packed.
                let shared = git.common_dir != git.git_dir;
                let whole = git.common_dir.clone();
                self.git.push(if shared { GitPart::Layered(whole) } else { GitPart::ReadOnly(whole) });
                let packed = git.common_dir.join("packed-refs");
                if shared && !git.read.contains(&packed) {
                    self.git.push(GitPart::Held(packed));
                }
                self.git.extend(git.write.iter().cloned().map(GitPart::Writable));
                self.git.extend(git.read.iter().cloned().map(GitPart::ReadOnly));
            }
            WorkspaceMode::Overlay | WorkspaceMode::Copy => self.git.push(GitPart::Layered(git.common_dir.clone())),
            WorkspaceMode::Ro | WorkspaceMode::None => self.git.push(GitPart::ReadOnly(git.common_dir.clone())),
        }
    }

    /// Where the workspace is seen under another path, git's pointers still lead somewhere: the one in the workspace, if
    /// it is relative, and the one in git's folder that leads back. There stand links.
    fn links(&mut self, git: &protect::GitElsewhere, root: &Path, policy: &Policy) {
        let Some(at) = policy.workspace.at.as_deref().filter(|at| *at != root) else { return };
        let granted = |path: &Path| {
            policy.fs.read.iter().chain(&policy.fs.write).any(|grant| path.starts_with(&grant.to))
                || path.starts_with(at)
        };
        let mut link = |at: PathBuf, to: &Path| {
            if free(&at) && !granted(&at) && !at.starts_with(&git.common_dir) && at != to {
                self.git.push(GitPart::Link { at, to: to.to_owned() });
            }
        };
        if git.pointer.is_relative() {
            link(spelled(&at.join(&git.pointer)), &git.git_dir);
        }
        link(root.to_owned(), at);
    }
}

/// A path as the kernel walks it where nothing on it is a link: above the root there is the root.
fn spelled(path: &Path) -> PathBuf {
    let mut found = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => {
                found.pop();
            }
            Component::Normal(name) => found.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    found
}

/// Whether a name may be made there: not within what is ours or the host's.
fn free(path: &Path) -> bool {
    let taken = [
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        "/lib32",
        "/lib64",
        "/libx32",
        "/etc",
        "/dev",
        "/proc",
        "/sys",
        "/run",
        "/home/user",
    ];
    path.components().count() > 1 && !taken.iter().any(|name| path.starts_with(name))
}

/// After the run: stubs go, and what slipped in is moved into the changes of the run.
pub(super) fn check(
    protected: Option<Protected>,
    home: &mut Home,
    recorded: &Recorded,
) -> Result<Vec<Violation>, Failure> {
    home.remove_stubs();
    let Some(Protected { plan, hold }) = protected else { return Ok(Vec::new()) };
    let below = Dir::open(&plan.root).map_err(|e| unreadable(&plan.root, &e.to_string()))?;
    let changes = recorded.state.changes()?;
    let name = format!("{}-aside", recorded.id);
    changes.make(&name, rustix::fs::Mode::RWXU).map_err(|e| unreadable(&plan.root, &e.to_string()))?;
    let aside = changes.enter(&name, Cross::No).map_err(|e| unreadable(&plan.root, &e.to_string()))?;
    let slipped = protect::check(&plan, &hold, &below, &aside, protect::list())
        .map_err(|e| unreadable(&plan.root, &e.to_string()))?;
    if slipped.iter().all(|one| one.moved_to.is_none()) {
        // Empty: nothing was put aside.
        if changes.remove_tree(&name).is_err() {}
    }
    Ok(slipped.iter().map(violation).collect())
}

fn violation(slipped: &protect::Slipped) -> Violation {
    let where_to = match (&slipped.moved_to, &slipped.why) {
        (Some(place), None) => format!("it was put aside as {place}"),
        (Some(place), Some(why)) => format!("it was put aside as {place}; {why}"),
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
    let mistyped = path.as_os_str().as_encoded_bytes().contains(&b':');
    let fix = if mistyped {
        "check the path; what follows `:` is ro, rw, overlay or copy"
    } else if path.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
        "name a directory"
    } else {
        "check the path, its owner and mode"
    };
    Failure::Faults {
        code: 126,
        faults: vec![Fault {
            id: "run/workspace",
            what: format!("{} cannot be looked through", show_path(path)),
            place: "the workspace".to_owned(),
            why: why.to_lowercase(),
            fix: fix.to_owned(),
        }],
    }
}
