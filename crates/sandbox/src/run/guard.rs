//! Control files of a read-write workspace: bound or pinned for as long as the run lasts, git's folders in layers; what is
//! made meanwhile is put aside.

use std::path::{Component, Path, PathBuf};

use backends::{GitPart, Protect};
use policy::report::DetectedBy;
use policy::value::{Grant, TOOLS, Tier};
use policy::{ClauseId, Plan, Violation};

use super::git_layers::GitLayers;
use super::host_resources::HostResources;
use super::others_files;
use super::record::Recorded;
use super::trees::{Trees, WorkspaceView, is_overlaid};
use crate::changes::ASIDE;
use crate::error::Error;
use crate::fault::{Fault, show_path, show_text};
use crate::protect::{self, Hold, ProtectPlan, Sentry};
use crate::state::{Cross, Dir, Resource, beat};

/// What the backend is told, and what is looked at again in the end.
#[derive(Debug, Default)]
pub(super) struct Guard {
    pub(super) protect: Vec<Protect>,
    pub(super) show: Vec<Grant>,
    pub(super) git: Vec<GitPart>,
    pub(super) protected: Option<Protected>,
    pub(super) layers: Option<GitLayers>,
}

/// Folders of git's that get a layer; more are read-only.
const MAX_LAYERS: usize = 12;

/// How many control files that slipped in are told one by one.
const MAX_TOLD: usize = 100;

/// The control files of what can be written on the host: a read-write workspace, and folders that are granted.
#[derive(Debug, Default)]
pub(super) struct Protected {
    trees: Vec<Tree>,
    /// Says for as long as they are looked at that the run lives.
    pulse: Option<std::fs::File>,
}

/// One tree: how its control files are protected, and what holds them.
#[derive(Debug)]
struct Tree {
    plan: ProtectPlan,
    /// As it was found: its name may be another folder's by the end.
    below: Dir,
    hold: Hold,
    sentry: Option<Sentry>,
    /// A grant, in which there was none at the start.
    granted: bool,
}

impl Protected {
    /// From here on what appears is put aside; before the payload runs.
    pub(super) fn watch(&mut self, recorded: &Recorded) -> Result<(), Error> {
        self.trees.iter_mut().try_for_each(|tree| tree.watch(recorded))
    }

    /// Somebody outside took a mount away, nobody sees what is made, or too much is made; in words.
    pub(super) fn lost(&self) -> Option<String> {
        self.pulse.iter().for_each(beat);
        self.trees.iter().find_map(|tree| tree.lost().or_else(|| tree.pestered()))
    }

    /// Nobody can say who wrote what stands in a tree.
    pub(super) fn is_untrusted(&self) -> bool {
        self.trees.iter().any(|tree| tree.lost().is_some())
    }

    /// Everything inside is told to die: from here on nothing is watched, and [`check`] looks at everything when it is dead.
    pub(super) fn ending(&mut self) {
        self.trees.iter_mut().filter_map(|tree| tree.sentry.as_mut()).for_each(Sentry::ending);
    }

    /// Unix sockets of a tree that was walked for its control files, and the folders of git's in which nobody looked.
    pub(super) fn sockets(&self, root: &Path) -> Option<(&[PathBuf], &[PathBuf])> {
        let tree = self.trees.iter().find(|tree| tree.plan.root == root)?;
        Some((tree.plan.sockets.as_deref()?, &tree.plan.layers))
    }

    /// One more tree, of which the journal knows: what a killed supervisor did not put aside is found by a later start.
    fn add(&mut self, tree: Tree, resources: &mut HostResources) -> Result<(), Error> {
        let watched = tree.plan.watched(&tree.below).map_err(|e| unreadable(&tree.plan.root, &e.to_string()))?;
        resources.note(&Resource::Watched(watched))?;
        if self.pulse.is_none() {
            self.pulse = resources.pulse();
        }
        self.trees.push(tree);
        Ok(())
    }
}

impl Tree {
    fn of(plan: ProtectPlan, below: Dir, granted: bool) -> Result<Self, Error> {
        if plan.too_many {
            return Err(unwatched(&plan.root, rustix::io::Errno::NOSPC));
        }
        if plan.unlooked {
            return Err(unlooked(&plan.root));
        }
        let held = below.enter(".", Cross::Yes).and_then(|again| Hold::take(&plan, again));
        let hold = held.map_err(|e| unreadable(&plan.root, &e.to_string()))?;
        Ok(Self { plan, below, hold, sentry: None, granted })
    }

    fn watch(&mut self, recorded: &Recorded) -> Result<(), Error> {
        let root = &self.plan.root;
        let below = self.below.enter(".", Cross::Yes).map_err(|e| unreadable(root, &e.to_string()))?;
        let sentry = Sentry::start(&self.plan, below, aside(recorded, root)?, protect::list());
        self.sentry = Some(sentry.map_err(|errno| unwatched(root, errno))?);
        Ok(())
    }

    fn pestered(&self) -> Option<String> {
        self.sentry.as_ref().filter(|sentry| sentry.is_pestered())?;
        let root = show_path(&self.plan.root);
        Some(format!(
            "control files were made in {root} again and again, and each stands until it is seen; the run was ended"
        ))
    }

    fn lost(&self) -> Option<String> {
        if let Some(errno) = self.sentry.as_ref().and_then(Sentry::failed) {
            return Some(format!(
                "new control files in {} are not seen any more ({errno}); the run was ended",
                show_path(&self.plan.root)
            ));
        }
        let path = self.hold.lost()?;
        Some(format!(
            "the control file {} was replaced from outside, which takes away what made it read-only inside; the run was ended, \
             and what stands there now is not trusted",
            show_path(&path)
        ))
    }
}

impl Guard {
    /// Looks through the workspace. Makes nothing.
    pub(super) fn make(plan: &Plan, resources: &mut HostResources) -> Result<Self, Error> {
        let (mut guard, trees) = (Self::default(), Trees::of(plan));
        overlapping(&trees)?;
        guard.grants((plan, &trees), resources)?;
        leads_into_a_grant(&trees)?;
        let (Some((Grant { from: path, .. }, view)), Tier::Container) = (&trees.workspace, plan.tier) else {
            return Ok(guard);
        };
        let root = path.canonicalize().map_err(|e| unreadable(path, &e.to_string()))?;
        let below = Dir::open(&root).map_err(|e| unreadable(&root, &e.to_string()))?;
        match protect::elsewhere(&root, &below) {
            Ok(None) => {}
            Ok(Some(git)) => guard.repository(&git, &root, &trees, resources)?,
            Err(problem) => resources.tell(format!(
                "git does not work inside: `.git` leads to {}, and {}",
                show_text(&problem.leads_to),
                problem.why
            )),
        }
        let words = others_files::told(&below).filter(|_| is_overlaid(plan));
        words.into_iter().for_each(|words| resources.tell(words));
        if *view != WorkspaceView::Written || !trees.mounted {
            return Ok(guard);
        }
        let plan = look_through(&root, &below, plan)?;
        if let Some(path) =
            plan.within_git.as_ref().or_else(|| protect::steers(protect::list(), &root).then_some(&root))
        {
            return Err(of_git(path));
        }
        if let Some(there) = &plan.unheld {
            return Err(unheld(&root, there));
        }
        guard.protect.extend(plan.pins.iter().cloned().map(Protect::Pinned));
        guard.protect.extend(plan.binds.iter().map(|bind| Protect::ReadOnly(bind.path.clone())));
        guard.layers(&plan, resources)?;
        if let Some(folder) = protect::within(&root, &below) {
            resources
                .tell(format!("git's folder {} is not called `.git`, and can only be read inside", show_path(&folder)));
        }
        for linked in &plan.linked {
            resources.tell(format!(
                "{} has other names that were not all found: such a name can be written",
                show_path(linked)
            ));
        }
        guard.protected.get_or_insert_default().add(Tree::of(plan, below, false)?, resources)?;
        Ok(guard)
    }

    /// Folders that are granted for writing. One in which control files are, or that is a folder of theirs, is refused: nothing in it
    /// is mounted on its own.
    /// In another one those that are made are put aside, as in a workspace. Who spells a grant `dangerous-write` has all of
    /// it, and is told.
    fn grants(&mut self, (plan, trees): (&Plan, &Trees), resources: &mut HostResources) -> Result<(), Error> {
        for grant in trees.write.iter().filter(|grant| grant.dangerous) {
            resources.tell(format!(
                "control files in {} can be written: it is granted by `dangerous-write`",
                show_path(&grant.from)
            ));
        }
        for grant in trees.tame() {
            let protected = self.protected.get_or_insert_default();
            // What is missing is refused by whoever shows it; a file is named by whoever grants it.
            let Ok(root) = grant.from.canonicalize() else { continue };
            if let Some(there) = protect::documents(&root, &plan.policy.documents.0).first() {
                return Err(holds_control_files(&root, there));
            }
            if !root.is_dir() {
                continue;
            }
            if let Some(there) = within_control_files(&root, trees) {
                return Err(of_control_files(&root, &there));
            }
            let below = Dir::open(&root).map_err(|e| unreadable(&root, &e.to_string()))?;
            let mut found = look_through(&root, &below, plan)?;
            // In a grant nothing is mounted on itself.
            found.pins.clear();
            let there = found.within_git.iter().map(PathBuf::as_path).chain(found.control_files()).next();
            if let Some(there) = there {
                return Err(holds_control_files(&root, there));
            }
            protected.add(Tree::of(found, below, true)?, resources)?;
        }
        Ok(())
    }

    /// Git's folders in the workspace. Where git's folder lies elsewhere, that one has the layer.
    fn layers(&mut self, plan: &ProtectPlan, resources: &mut HostResources) -> Result<(), Error> {
        let most = if self.layers.is_some() { 0 } else { MAX_LAYERS };
        let (layered, read_only) = plan.layers.split_at_checked(most).unwrap_or((&plan.layers, &[]));
        for path in read_only {
            resources.tell(format!("git's folder {} can only be read inside", show_path(path)));
            self.protect.push(Protect::ReadOnly(path.clone()));
        }
        let numbered = (0..).zip(layered.iter().cloned());
        self.protect.extend(numbered.map(|(slot, path)| Protect::Layered(path, slot)));
        if !layered.is_empty() {
            self.layers = Some(GitLayers::new(plan.root.clone(), layered.to_vec(), None)?);
        }
        Ok(())
    }

    /// A git folder that lies elsewhere: in a layer, of which a read-write workspace takes over what is harmless.
    fn repository(
        &mut self,
        git: &protect::GitElsewhere,
        root: &Path,
        trees: &Trees,
        resources: &mut HostResources,
    ) -> Result<(), Error> {
        let (place, common) = (show_path(&git.common_dir), git.common_dir.clone());
        self.links(git, root, trees);
        let Some((_, view)) = &trees.workspace else { return Ok(()) };
        match view {
            WorkspaceView::Written => match protect::split(&git.common_dir) {
                Some((folder, below)) => {
                    let outer = folder.parent().unwrap_or(Path::new("/")).to_owned();
                    let name = folder.file_name().map(PathBuf::from).unwrap_or_default();
                    // Of a folder that is shared only what this worktree's own git writes.
                    let own = git.git_dir.strip_prefix(&git.common_dir).ok().filter(|own| !own.as_os_str().is_empty());
                    let own = own.map(Path::to_owned);
                    self.layers = Some(GitLayers::new(outer, vec![name.join(below)], own)?);
                    self.git.push(GitPart::Layered(common, Some(0)));
                }
                None => {
                    resources.tell(format!(
                        "git's folder lies elsewhere ({place}), is not called `.git`, and can only be read"
                    ));
                    self.git.push(GitPart::ReadOnly(common));
                }
            },
            WorkspaceView::Layered => {
                resources.tell(format!(
                    "git's folder lies elsewhere ({place}): a commit made inside ends with the run; commit after `fumehood apply`, or use `-w PATH:rw`"
                ));
                self.git.push(GitPart::Layered(common, None));
            }
            WorkspaceView::Read => self.git.push(GitPart::ReadOnly(common)),
        }
        Ok(())
    }

    /// Where the workspace is seen under another path, git's pointers still lead somewhere: the one in the workspace, if
    /// it is relative, and the one in git's folder that leads back. There stand links.
    fn links(&mut self, git: &protect::GitElsewhere, root: &Path, trees: &Trees) {
        // What is shown by its own name is so by whatever name was given.
        let moved = trees.workspace.as_ref().filter(|(grant, _)| grant.to != grant.from);
        let Some(at) = moved.map(|(grant, _)| grant.to.as_path()).filter(|at| *at != root) else { return };
        let granted = |path: &Path| trees.grants().any(|grant| path.starts_with(&grant.to)) || path.starts_with(at);
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
    let ours = ["/etc", "/dev", "/proc", "/sys", "/run", "/home/user"];
    path.components().count() > 1 && !TOOLS.iter().chain(&ours).any(|name| path.starts_with(name))
}

/// Where what slipped in is moved: a folder in the changes of the run.
fn aside(recorded: &Recorded, root: &Path) -> Result<Dir, Error> {
    let changes = recorded.state.changes()?;
    let name = aside_name(recorded);
    let made = changes.make(&name, rustix::fs::Mode::RWXU).and_then(|_new| changes.enter(&name, Cross::No));
    made.map_err(|e| unreadable(root, &e.to_string()))
}

fn aside_name(recorded: &Recorded) -> String {
    format!("{}{ASIDE}", recorded.id)
}

/// After the run: what slipped in is told, and moved away if it stands still.
pub(super) fn check(protected: Option<Protected>, recorded: &Recorded) -> Result<Vec<Violation>, Error> {
    let mut slipped = Vec::new();
    for tree in protected.into_iter().flat_map(|protected| protected.trees) {
        slipped.extend(tree.check(recorded)?);
    }
    let more = slipped.len().saturating_sub(MAX_TOLD);
    let mut told: Vec<Violation> = slipped.iter().take(MAX_TOLD).map(violation).collect();
    if let Some(last) = told.last_mut().filter(|_| more > 0) {
        last.what = format!("{}, and so did {more} more", last.what);
        last.count = u64::try_from(more).unwrap_or(u64::MAX).saturating_add(1);
    }
    Ok(told)
}

impl Tree {
    fn check(self, recorded: &Recorded) -> Result<Vec<protect::Slipped>, Error> {
        let Self { plan, below, hold, sentry, granted } = self;
        let mut slipped = sentry
            .map(Sentry::stop)
            .transpose()
            .map_err(|errno| unreadable(&plan.root, &errno.to_string()))?
            .unwrap_or_default();
        let aside = aside(recorded, &plan.root)?;
        match protect::check(&plan, &hold, &below, &aside, protect::list()) {
            Ok(found) => slipped.extend(found),
            // What was seen until then is told all the same.
            Err(errno) => slipped.push(protect::Slipped {
                path: PathBuf::from("."),
                what: "could not be looked through at the end",
                moved_to: None,
                why: Some(errno.to_string()),
            }),
        }
        if granted {
            slipped.iter_mut().for_each(|one| one.path = plan.root.join(&one.path));
        }
        let folder = crate::changes::aside_folder(&recorded.state, &recorded.id);
        for name in slipped.iter_mut().filter_map(|one| one.moved_to.as_mut()) {
            if aside.kind(&name).is_ok_and(|kind| kind.is_some()) {
                *name = folder.join(&name).to_string_lossy().into_owned();
            }
        }
        if aside.names().is_ok_and(|names| names.is_empty()) {
            // One that stays is empty, and goes after 14 days.
            recorded.state.changes()?.remove_tree(aside_name(recorded)).unwrap_or_default();
        }
        Ok(slipped)
    }
}

/// What of the list a granted folder is: one that is protected, lies in such a one (both the empty path), or that entries lie in
/// (`.hg`, `.config`), as they would be called. What is made in a grant is looked at by its path in the grant alone. Of a folder in
/// the workspace only its path in there counts: who works in `.claude/worktrees/x` has chosen it.
fn within_control_files(grant: &Path, trees: &Trees) -> Option<PathBuf> {
    let workspace = trees.root().and_then(|path| path.canonicalize().ok());
    let inside = workspace.and_then(|root| grant.strip_prefix(root).ok()).filter(|path| *path != Path::new(""));
    protect::list().folder(inside.unwrap_or(grant), true)
}

fn look_through(root: &Path, below: &Dir, plan: &Plan) -> Result<ProtectPlan, Error> {
    let found = protect::plan(root, below, protect::list(), &plan.policy.documents.0);
    found.map_err(|e| unreadable(root, &e.to_string()))
}

/// A control file of the workspace may be a link that leads into a folder that can be written, and git's configuration may name
/// what lies there.
fn leads_into_a_grant(trees: &Trees) -> Result<(), Error> {
    let Some(root) = trees.root().and_then(|path| path.canonicalize().ok()) else { return Ok(()) };
    let grants: Vec<_> = trees.tame().filter_map(|grant| grant.from.canonicalize().ok()).collect();
    if grants.is_empty() {
        return Ok(());
    }
    let below = Dir::open(&root).map_err(|e| unreadable(&root, &e.to_string()))?;
    let led = protect::led(&root, &below, protect::list());
    if led.cut {
        return Err(unwatched(&root, rustix::io::Errno::NOSPC));
    }
    let repositories = led.repositories.iter().map(PathBuf::as_path);
    let named = protect::named_elsewhere(&root, &below, repositories).ok_or_else(|| unlooked(&root))?;
    let led = led.out.into_iter().chain(led.within.iter().map(|path| root.join(path)));
    for (there, is_folder) in led.map(|path| (path, true)).chain(named) {
        let meets = |grant: &&PathBuf| there.starts_with(grant) || is_folder && grant.starts_with(&there);
        if let Some(grant) = grants.iter().find(meets) {
            return Err(holds_control_files(grant, there.strip_prefix(grant).unwrap_or(Path::new(""))));
        }
    }
    Ok(())
}

/// A grant that can be written and reaches into the workspace is a second way to its control files.
fn overlapping(trees: &Trees) -> Result<(), Error> {
    let root = trees.root().filter(|_| trees.mounted);
    let Some(root) = root.and_then(|path| path.canonicalize().ok()) else { return Ok(()) };
    let real =
        |grant: &&Grant| grant.from.canonicalize().is_ok_and(|path| path.starts_with(&root) || root.starts_with(&path));
    let Some(grant) = trees.write.iter().find(real) else { return Ok(()) };
    Err(Error::refused(Fault {
        id: "fs.protect/grant",
        what: format!("the grant {} reaches into the workspace {}", show_path(&grant.from), show_path(&root)),
        place: "fs.write".to_owned(),
        why: "what it shows can be written, control files included, which `fs.protect` keeps from being written"
            .to_owned(),
        fix: "drop the grant: an `rw` workspace can be written; or ask for `fs.protect = false`".to_owned(),
    }))
}

/// A grant that can be written, in which something steers other programs already.
fn holds_control_files(root: &Path, there: &Path) -> Error {
    let why = "it is a control file, a folder of git's, a policy of this run, or what a link among those of the workspace or git's configuration leads to: \
               other programs obey it, and only in a workspace is it kept from being written";
    in_grant((root, there), why, "make that folder the workspace (`-w PATH:rw`), grant a folder in it")
}

/// A grant that is a folder of control files, lies in one, or is the place of one.
fn of_control_files(root: &Path, there: &Path) -> Error {
    let why = "it is a control file, or lies in a folder of them: other programs obey it, and by its name in the grant nobody would \
               know it for one";
    in_grant((root, there), why, "grant another folder")
}

fn in_grant((root, there): (&Path, &Path), why: &str, instead: &str) -> Error {
    Error::refused(Fault {
        id: "fs.protect/in-grant",
        what: format!("the grant {} would make {} writable", show_path(root), show_path(&root.join(there))),
        place: "fs.write".to_owned(),
        why: why.to_owned(),
        fix: format!("{instead}, use `fs.read`; or spell the grant `dangerous-write`, or ask for `fs.protect = false`"),
    })
}

/// A workspace that is a folder of git's or of other control files, or lies in one.
fn of_git(path: &Path) -> Error {
    Error::refused(Fault {
        id: "fs.protect/git-folder",
        what: format!("{} is a folder of git's or of other control files, or lies in one", show_path(path)),
        place: "the workspace".to_owned(),
        why: "all that is in it steers other programs, and none of it could be protected where it can be written"
            .to_owned(),
        fix: "use workspace mode `overlay`, work in a clone, or ask for `fs.protect = false`".to_owned(),
    })
}

/// A `rw` workspace with a folder in it that decides how runs are confined or whom they trust, and in which some can be written.
fn unheld(root: &Path, there: &Path) -> Error {
    Error::refused(Fault {
        id: "fs.protect/unheld",
        what: format!("{} could be written", show_path(&root.join(there))),
        place: "the workspace".to_owned(),
        why: "it decides how runs are confined or whom they trust (`SSL_CERT_DIR`, or what a policy names), and is the workspace \
              itself, has a folder of git's in it, or is neither a file nor a folder"
            .to_owned(),
        fix: "keep it out of the workspace, use workspace mode `overlay`, or ask for `fs.protect = false`".to_owned(),
    })
}

/// A `rw` workspace whose folders cannot all be watched.
fn unwatched(root: &Path, errno: rustix::io::Errno) -> Error {
    Error::refused(Fault {
        id: "fs.protect/unwatched",
        what: format!("new control files in {} could not be seen", show_path(root)),
        place: "fs.protect".to_owned(),
        why: if errno == rustix::io::Errno::NOSPC {
            "it has more folders than one user may watch".to_owned()
        } else {
            errno.to_string().to_lowercase()
        },
        fix: "use workspace mode `overlay`; raise `fs.inotify.max_user_watches`; or ask for `fs.protect = false`"
            .to_owned(),
    })
}

/// A folder that can be written, into which a home folder may have links, or git's configuration may lead, and nobody found where.
fn unlooked(root: &Path) -> Error {
    Error::refused(Fault {
        id: "fs.protect/unlooked",
        what: format!("not all that may lead into {} could be looked for", show_path(root)),
        place: "fs.protect".to_owned(),
        why: "a home folder has more entries among its hidden folders than are looked at, or git's configuration more words (or \
              files that the owner may not read), or the start was ended: what links and words there lead to, programs read or run"
            .to_owned(),
        fix: "use workspace mode `overlay`; or ask for `fs.protect = false`".to_owned(),
    })
}

fn violation(slipped: &protect::Slipped) -> Violation {
    let where_to = match (&slipped.moved_to, &slipped.why) {
        (Some(place), None) => format!("it was put aside as {place}"),
        (Some(place), Some(why)) => format!("it was put aside as {place}; {why}"),
        (None, Some(why)) => format!("it was left: {why}"),
        (None, None) => slipped.left().to_owned(),
    };
    Violation {
        id: "fs.protect/slipped".to_owned(),
        clause: ClauseId::FsProtect,
        what: format!("{} {}", show_path(&slipped.path), slipped.what),
        why: format!("control files of a workspace are protected; {where_to}"),
        instead: instead_of_making(slipped).to_owned(),
        count: 1,
        seen: DetectedBy::Kernel,
        program: None,
    }
}

fn instead_of_making(slipped: &protect::Slipped) -> &'static str {
    let is_file = |path: &String| Path::new(path).symlink_metadata().is_ok_and(|meta| meta.is_file());
    let is_git = slipped.path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(".git"));
    if is_git && slipped.moved_to.as_ref().is_some_and(is_file) {
        "look at the repository around it, into which went what git did there afterwards; it belongs to a submodule or a linked worktree: \
         run `git submodule update --init` or `git worktree add` outside, before the run, which can then work in it; or run it in \
         workspace mode `overlay` (`-w PATH`), where `fumehood apply --take-protected .git --take-protected PATH/.git` takes both its \
         parts; or ask for `fs.protect = false`"
    } else if is_git {
        "look at the repository around it: what git did there afterwards went into that one (`git status`, `git log`); make a new one in \
         workspace mode `overlay` (`-w PATH`), where it works and `fumehood apply --take-protected` takes it; \
         in `rw` make it below /tmp, or run `git init` there before the run; or ask for `fs.protect = false`"
    } else {
        "leave control files alone, or ask for `fs.protect = false`"
    }
}

fn unreadable(path: &Path, why: &str) -> Error {
    let mistyped = path.as_os_str().as_encoded_bytes().contains(&b':');
    let fix = if mistyped {
        "check the path; what follows `:` is ro, rw, overlay or copy"
    } else if path.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
        "name a directory"
    } else {
        "check the path, its owner and mode"
    };
    Error::refused(Fault {
        id: "run/workspace",
        what: format!("{} cannot be looked through", show_path(path)),
        place: "the workspace".to_owned(),
        why: why.to_lowercase(),
        fix: fix.to_owned(),
    })
}
