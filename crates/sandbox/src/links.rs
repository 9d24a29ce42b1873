//! Where the grants of a policy really lead. `policy` judges them by their names alone and may not look; what a link leads
//! to is as dangerous as its own name, and an earlier run may have put that link into its workspace. So is another place in which the
//! same is to be seen, since its file system is mounted there too (`mount --bind`).

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use policy::diagnostic::{Diagnostic, SourceLocation};
use policy::value::{Grant, Root, WorkspaceMode};
use policy::{ClauseId, Diagnostics, Loaded, Plan};

use crate::environment::Environment;
use crate::error::Error;
use crate::fault::{Fault, show_path};
use crate::mounts::Mounts;

/// The folders of the log and of what runs left, and of the keys.
pub(crate) fn ours(environment: &Environment) -> Vec<PathBuf> {
    [environment.state.state(), environment.state.keys()].into_iter().flatten().map(|(folder, _)| folder).collect()
}

/// Refuses a log in a folder that the run may write: it could cut off what it did.
///
/// # Errors
/// The grant that reaches it.
pub(crate) fn log_is_out_of_reach(loaded: &Loaded) -> Result<(), Error> {
    let policy = &loaded.policy;
    let Some(log) = &policy.audit.path else { return Ok(()) };
    // A folder that is not there yet lies where its nearest one does.
    let real = |path: &Path| {
        let there =
            path.ancestors().find_map(|above| Some((above.canonicalize().ok()?, path.strip_prefix(above).ok()?)));
        there.map_or_else(|| path.to_owned(), |(real, below)| real.join(below))
    };
    let folder = real(log);
    let workspace = policy.workspace.path.as_ref().filter(|_| policy.workspace.mode == WorkspaceMode::Rw);
    let grants = policy.fs.write.iter().filter(|grant| !grant.dangerous).map(|grant| (&grant.from, ClauseId::FsWrite));
    let mut writable = grants.chain(workspace.map(|path| (path, ClauseId::Workspace)));
    let Some((path, clause)) = writable.find(|(path, _)| {
        let path = real(path);
        folder.starts_with(&path) || path.starts_with(&folder)
    }) else {
        return Ok(());
    };
    let list = vec![Diagnostic {
        id: "grant/dangerous".to_owned(),
        clause: Some(clause),
        what: format!(
            "`{}` makes {} writable, where the log is kept ({})",
            clause.path(),
            show_path(path),
            show_path(log)
        ),
        at: SourceLocation { name: loaded.origins.of(clause).to_owned(), line_column: None, excerpt: String::new() },
        why: "a program that may write to the log can remove what it did from it".to_owned(),
        fix: "keep the log elsewhere (`audit.path`), or grant less".to_owned(),
    }];
    Err(Error::Mistakes(Diagnostics { list }))
}

/// Refuses a grant that is shown within a copy of the workspace, where the workspace has something of that name: what is mounted
/// there stands where the copy would be made, and would be written.
///
/// # Errors
/// The first such grant.
pub(crate) fn copies_are_free(plan: &Plan) -> Result<(), Error> {
    let policy = &plan.policy;
    let root = policy.workspace.path.as_deref().filter(|_| policy.workspace.mode == WorkspaceMode::Copy);
    let Some(root) = root.filter(|_| !plan.tier.on_host_tree()) else { return Ok(()) };
    let shown = policy.workspace.at.as_deref().unwrap_or(root);
    let taken = |grant: &&Grant| {
        let below = grant.to.strip_prefix(shown).ok().filter(|below| !below.as_os_str().is_empty());
        below.is_some_and(|below| root.join(below).symlink_metadata().is_ok())
    };
    let Some(grant) = policy.fs.read.iter().chain(&policy.fs.write).find(taken) else { return Ok(()) };
    Err(Error::refused(Fault {
        id: "run/grant-in-copy",
        what: format!("the grant {} is shown at {}", show_path(&grant.from), show_path(&grant.to)),
        place: "fs.read, fs.write".to_owned(),
        why: format!("the workspace {} has that name as well, and its copy would be made there", show_path(root)),
        fix: "drop the grant where the workspace shows the same; show it elsewhere (`to`); or use `-w PATH:overlay`"
            .to_owned(),
    }))
}

/// One path of the host that the policy names, and the grants that could spell it dangerous.
struct PolicyPath<'a> {
    clause: ClauseId,
    path: &'a Path,
    spelled: Option<(&'static str, &'a [Grant])>,
}

fn named(loaded: &Loaded) -> Vec<PolicyPath<'_>> {
    let policy = &loaded.policy;
    let (read, write) = (("read", &policy.fs.read[..]), ("write", &policy.fs.write[..]));
    let mut all = Vec::new();
    for (clause, spelled) in [(ClauseId::FsRead, read), (ClauseId::FsWrite, write)] {
        let tame = spelled.1.iter().filter(|grant| !grant.dangerous);
        all.extend(tame.map(|grant| PolicyPath { clause, path: &grant.from, spelled: Some(spelled) }));
    }
    let workspace = match policy.workspace.mode {
        WorkspaceMode::None => None,
        WorkspaceMode::Rw => Some(write),
        WorkspaceMode::Ro | WorkspaceMode::Overlay | WorkspaceMode::Copy => Some(read),
    };
    if let (Some(path), Some(spelled)) = (&policy.workspace.path, workspace) {
        all.push(PolicyPath { clause: ClauseId::Workspace, path, spelled: Some(spelled) });
    }
    if let Root::Dir(path) = &policy.fs.root {
        all.push(PolicyPath { clause: ClauseId::FsRoot, path, spelled: None });
    }
    all
}

/// Whether two paths are one file or folder: a mount may cover what is elsewhere.
fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    identity(one).is_some_and(|this| identity(other) == Some(this))
}

/// Refuses what leads to a dangerous place without saying so.
///
/// # Errors
/// Every grant that does.
pub(crate) fn lead_nowhere_dangerous(loaded: &Loaded, environment: &Environment) -> Result<(), Error> {
    // What is not there was judged by its name already.
    let real = |named: &PolicyPath<'_>| named.path.canonicalize().ok();
    let led: Vec<_> = named(loaded).into_iter().filter_map(|named| Some((real(&named)?, named))).collect();
    if led.is_empty() {
        return Ok(());
    }
    let mounts = Mounts::default();
    let home = environment.home.as_deref().and_then(|home| home.canonicalize().ok());
    let ours: Vec<_> = ours(environment)
        .into_iter()
        .map(|folder| folder.canonicalize().unwrap_or_else(|_missing| folder.clone()))
        .collect();
    let judge = |(real, PolicyPath { clause, path, spelled }): (PathBuf, PolicyPath<'_>)| {
        let why_of = |place: &Path| policy::danger::why(place, home.as_deref(), &ours);
        let by_link = || Some((real.clone(), why_of(&real).filter(|_| real != path)?));
        let by_mount = || {
            let mut elsewhere = mounts.elsewhere(&real).into_iter();
            elsewhere.find_map(|(place, part)| {
                let why = why_of(&place)?;
                is_same(&place, &real.join(part)).then_some((place, why))
            })
        };
        let (place, why) = by_link().or_else(by_mount)?;
        let is_said = |grant: &Grant| grant.dangerous && grant.from.canonicalize().is_ok_and(|from| from == real);
        if spelled.is_some_and(|(_, grants)| grants.iter().any(is_said)) {
            return None;
        }
        let fix = match spelled {
            Some((word, _)) => {
                format!("grant less, or spell it --dangerous-{word} {}", show_path(&real).trim_matches('`'))
            }
            None => "name a folder that holds a root tree and nothing else".to_owned(),
        };
        Some(Diagnostic {
            id: "grant/dangerous".to_owned(),
            clause: Some(clause),
            what: format!("`{}` names {}, which leads to {}", clause.path(), show_path(path), show_path(&place)),
            at: SourceLocation {
                name: loaded.origins.of(clause).to_owned(),
                line_column: None,
                excerpt: String::new(),
            },
            why,
            fix,
        })
    };
    let list: Vec<_> = led.into_iter().filter_map(judge).collect();
    if list.is_empty() { Ok(()) } else { Err(Error::Mistakes(Diagnostics { list })) }
}
