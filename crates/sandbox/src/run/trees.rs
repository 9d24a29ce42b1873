//! The trees of the host that a plan shows, what of them is not seen or not written, and how much is taken of what a run
//! leaves: as the controls say.

use std::path::{Path, PathBuf};

use policy::control::{Control, Cover, Watch};
use policy::value::Grant;
use policy::{ClauseId, Plan};

use crate::changes::Bounds;

/// How a workspace is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkspaceView {
    /// As it is, and only read.
    Read,
    /// As it is, and written.
    Written,
    /// By a layer over it, or as a copy.
    Layered,
}

/// The trees of a plan.
#[derive(Debug, Default)]
pub(super) struct Trees {
    /// The workspace, as a grant would show it, and how.
    pub(super) workspace: Option<(Grant, WorkspaceView)>,
    /// Grants that are read.
    pub(super) read: Vec<Grant>,
    /// Grants that are written.
    pub(super) write: Vec<Grant>,
    /// Where the workspace would be seen, shown or not: a glob may begin there.
    pub(super) named: Option<PathBuf>,
    /// Globs of what is not seen in all of them.
    pub(super) hide: Vec<String>,
    /// Control files that slip into what is written are put aside.
    pub(super) watched: bool,
    /// Control files of the workspace are mounted read-only.
    pub(super) mounted: bool,
}

impl Trees {
    /// Those of a plan.
    pub(super) fn of(plan: &Plan) -> Self {
        let shown = |clause| of_clause(plan, clause).filter_map(tree);
        let mut all = Self {
            workspace: shown(ClauseId::Workspace).next(),
            read: shown(ClauseId::FsRead).map(|(grant, _)| grant).collect(),
            write: shown(ClauseId::FsWrite).map(|(grant, _)| grant).collect(),
            named: plan.named_workspace().map(Path::to_owned),
            ..Self::default()
        };
        for control in plan.controls().map(held) {
            if let Control::Hide(globs) | Control::Covered(Cover::Hidden(globs)) = control {
                all.hide.clone_from(globs);
            } else if *control == Control::Watch(Watch::Protected) {
                all.watched = true;
            } else if *control == Control::ProtectedMounts {
                all.mounted = true;
            }
        }
        // How a grant was spelled is no control: by both ways the same is mounted.
        for grant in &mut all.write {
            grant.dangerous = plan.steers(grant);
        }
        all
    }

    /// The workspace on the host.
    pub(super) fn root(&self) -> Option<&Path> {
        self.workspace.as_ref().map(|(grant, _)| grant.from.as_path())
    }

    /// Grants that are written and watched.
    pub(super) fn tame(&self) -> impl Iterator<Item = &Grant> {
        self.write.iter().filter(|grant| self.watched && !grant.dangerous)
    }

    /// All grants.
    pub(super) fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.read.iter().chain(&self.write)
    }
}

/// A tree of the host, as a control shows it.
fn tree(control: &Control) -> Option<(Grant, WorkspaceView)> {
    let (from, at, view) = if let Control::Mount { from, at, write } = control {
        (from, at, if *write { WorkspaceView::Written } else { WorkspaceView::Read })
    } else if let Control::Rule { path, write } = control {
        (path, path, if *write { WorkspaceView::Written } else { WorkspaceView::Read })
    } else if let Control::Overlay { from, at, .. } | Control::Copy { from, at, .. } = control {
        (from, at, WorkspaceView::Layered)
    } else {
        return None;
    };
    Some((Grant { from: from.clone(), to: at.clone(), dangerous: false }, view))
}

/// A control itself, whoever holds it: also the kernel of a machine.
pub(super) fn held(control: &Control) -> &Control {
    if let Control::InMachine(inner) = control { inner } else { control }
}

/// What holds a clause.
fn of_clause(plan: &Plan, clause: ClauseId) -> impl Iterator<Item = &Control> {
    let entries = plan.entries.iter().filter(move |entry| entry.clause == clause);
    entries.flat_map(|entry| entry.controls.iter()).map(held)
}

/// Where the workspace of a plan lies on the host.
pub(super) fn source(plan: &Plan) -> Option<PathBuf> {
    Trees::of(plan).root().map(Path::to_owned)
}

/// Whether the program only reads its workspace.
pub(super) fn is_read_only(plan: &Plan) -> bool {
    Trees::of(plan).workspace.is_some_and(|(_, view)| view == WorkspaceView::Read)
}

/// Whether the program's changes of its workspace come to the host after its end alone.
pub(super) fn is_layered(plan: &Plan) -> bool {
    Trees::of(plan).workspace.is_some_and(|(_, view)| view == WorkspaceView::Layered)
}

/// Whether the program sees its workspace through a layer of the kernel's.
pub(super) fn is_overlaid(plan: &Plan) -> bool {
    of_clause(plan, ClauseId::Workspace).any(|control| matches!(control, Control::Overlay { .. }))
}

/// How much of a workspace is copied: as much as the place of the copy holds, or as is watched in the run's folder.
pub(super) fn copied(plan: &Plan) -> Bounds {
    let mut all = Bounds::default();
    for control in plan.controls().map(held) {
        if let Control::Copy { size: Some((bytes, inodes)), .. } = control {
            (all.bytes, all.entries) = (*bytes, entries(*inodes));
        } else if let Control::Watch(Watch::Disk(disk)) = control {
            all.bytes = disk.0;
        } else if let Control::Watch(Watch::Files(files)) = control {
            all.entries = entries(*files);
        }
    }
    all
}

/// How much is taken of what a run left. Files with holes look larger than what holds them.
pub(super) fn bounds(plan: &Plan) -> Bounds {
    let default = Bounds::default();
    let (bytes, files) = plan.bounds_of_remains();
    Bounds {
        bytes: bytes.map_or(default.bytes, |disk| disk.0),
        entries: files.map_or(default.entries, entries),
        list: default.list,
    }
}

fn entries(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::guard::Guard;
    use crate::run::host_resources::HostResources;
    use backends::{Assumed, Capabilities};

    /// The plan of a document.
    fn planned(text: &str) -> Plan {
        let loaded = |text: &str| {
            let caller = policy::Caller { dir: "/".into(), home: None, profiles: vec!["default".to_owned()] };
            let mut layers = policy::Layers::new(caller);
            let none = |_: &Path| Err("no such file".to_owned());
            let text = format!("version = 1\n{text}\n");
            layers.document("own", &text, policy::Format::Toml, Path::new("/"), &none);
            layers.finish().unwrap_or_else(|mistakes| panic!("{mistakes}"))
        };
        let host = Capabilities::assumed(Assumed::Groups);
        crate::run::plan(loaded(text), crate::Workload::Nothing, &host).unwrap().plan
    }

    /// The same, whose policy says nothing of it any more: what is read is read from the controls.
    fn plan(text: &str) -> Plan {
        let mut plan = planned(text);
        plan.policy = planned("").policy;
        plan
    }

    #[test]
    fn what_a_run_leaves_is_bounded_by_its_limits() {
        let layered = "tier = \"container\"\nworkspace = { path = \"/srv\", mode = \"overlay\" }";
        let limited = bounds(&planned(&format!("{layered}\nlimits = {{ disk = \"100M\", files = 4000 }}")));
        assert_eq!((limited.bytes, limited.entries), (100 << 20, 4000));
        let default = Bounds::default();
        let free = bounds(&planned(&format!("{layered}\nlimits = {{ disk = \"none\", files = \"none\" }}")));
        assert_eq!((free.bytes, free.entries), (default.bytes, default.entries));
    }

    #[test]
    fn a_grant_by_two_spellings_is_guarded() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap().display().to_string();
        let text = "tier = \"container\"\nlimits = { disk = \"none\", files = \"none\" }\n[fs]";
        let dangerous = format!("{text}\ndangerous-write = [\"{at}\"]");
        assert_eq!(Trees::of(&planned(&dangerous)).tame().count(), 0);
        let both = Trees::of(&planned(&format!("{dangerous}\nwrite = [\"{at}\"]")));
        assert!(both.tame().count() >= 1, "{both:?}");
    }

    #[test]
    fn control_files_are_guarded_where_the_controls_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap();
        for name in ["work/.git", "grant", "loose"] {
            std::fs::create_dir_all(at.join(name)).unwrap();
        }
        std::fs::write(at.join("work/.envrc"), "x").unwrap();
        let shown = |path: &str| at.join(path).display().to_string();
        let text = format!(
            "tier = \"container\"\nlimits = {{ disk = \"none\", files = \"none\" }}\nworkspace = {{ path = \"{}\", mode = \"rw\" }}\n[fs]\nwrite = [\"{}\"]\ndangerous-write = [\"{}\"]",
            shown("work"),
            shown("grant"),
            shown("loose")
        );
        let guarded = plan(&text);
        let trees = Trees::of(&guarded);
        assert!(trees.mounted && trees.watched, "{trees:?}");
        assert_eq!(trees.root(), Some(at.join("work").as_path()));
        assert_eq!(trees.write.len(), 2, "{trees:?}");
        let guard = Guard::make(&guarded, &mut HostResources::of_nothing()).unwrap();
        assert!(!guard.protect.is_empty(), "{guard:?}");
        let free = plan(&format!("{text}\nprotect = false"));
        let guard = Guard::make(&free, &mut HostResources::of_nothing()).unwrap();
        assert!(guard.protect.is_empty() && guard.protected.is_none(), "{guard:?}");
    }
}
