//! Where trees and files of the host are shown: grants and the workspace, and what their paths really are inside.

use std::path::{Path, PathBuf};

use guest::config::{Attrs, Lowers, OwnedOp as Op};
use policy::value::{Grant, Root, TOOLS};

use super::blueprint::{HostTree, TreeAccess};
use super::landlock::Access;
use super::source::{Resolved, resolve, text};
use super::tree::{Builder, HOME, WORKSPACE_SLOT};
use crate::StartError;
use crate::sizes::Size;

impl Builder<'_> {
    /// Places of the plan, the outer ones first: what lies within another is mounted on top of it.
    pub(super) fn places(&mut self) -> Result<(), StartError> {
        let blueprint = self.blueprint;
        let mut all: Vec<&HostTree> =
            blueprint.reads.iter().chain(&blueprint.writes).chain(&blueprint.workspace).collect();
        all.sort_by_key(|shown| self.really(&shown.at).components().count());
        for shown in all {
            self.stands(shown)?;
            if blueprint.workspace.as_ref() == Some(shown) {
                self.workspace(shown)?;
            } else if shown.how == TreeAccess::Writable {
                self.write(shown)?;
            } else {
                self.read(shown)?;
            }
        }
        Ok(())
    }

    /// Read-only: through an overlay where the kernel can, since a plain bind would let the payload connect to a unix
    /// socket of the host that lies below.
    fn read(&mut self, shown: &HostTree) -> Result<(), StartError> {
        let found = self.blueprint.resolve("fs.read", &shown.from)?;
        let resolved = super::readable::granted(found, self.identity, true, !self.host.root())?;
        let source = self.resolved(&resolved);
        let (to, all) = (self.really(&shown.at), self.mount_read_only(source, &resolved, &shown.at));
        self.placed(shown, &to, &resolved);
        self.allow_shown(shown, &to, &resolved, all)
    }

    /// Of ours: a script, a probe.
    pub(super) fn read_ours(&mut self, grant: &Grant) -> Result<(), StartError> {
        let resolved = resolve("run", &grant.from)?;
        let source = self.resolved(&resolved);
        let access = self.mount_read_only(source, &resolved, &grant.to);
        self.allow(&self.really(&grant.to), access, resolved.dir);
        Ok(())
    }

    /// Where a path really lies inside: some names are links of ours, and the guest follows none.
    pub(super) fn really(&self, to: &Path) -> PathBuf {
        if let Some(place) = self.through_tools(to) {
            return place;
        }
        let home = Path::new("/home").join(self.user());
        let links = [(home.as_path(), HOME), (Path::new("/var/tmp"), "/tmp")];
        links
            .iter()
            .find_map(|(link, place)| to.strip_prefix(link).ok().map(|rest| Path::new(place).join(rest)))
            .unwrap_or_else(|| to.to_owned())
    }

    /// A place below a top-level link of the root tree (`/bin`), and what it leads to.
    fn through_tools(&self, to: &Path) -> Option<PathBuf> {
        let root = match self.blueprint.root.as_ref()? {
            Root::Host => Path::new("/"),
            Root::Image(image) => image.found.as_ref().ok()?.tree.as_path(),
            Root::Empty | Root::Dir(_) => return None,
        };
        let (link, below) = TOOLS.iter().find_map(|link| to.strip_prefix(link).ok().map(|below| (link, below)))?;
        let link = root.join(Path::new(link).strip_prefix("/").ok()?);
        let target = Path::new("/").join(std::fs::read_link(link).ok()?);
        Some(if below == Path::new("") { target } else { target.join(below) })
    }

    /// A place within what is read-only must be there: none can be made in it.
    fn stands(&self, shown: &HostTree) -> Result<(), StartError> {
        let blueprint = self.blueprint;
        let to = self.really(&shown.at);
        let tools = TOOLS.iter().map(PathBuf::from).filter(|_| blueprint.root == Some(Root::Host));
        let tools = tools.map(|tools| (tools.clone(), tools));
        let read = blueprint.reads.iter().chain(&blueprint.workspace).filter(|outer| outer.how == TreeAccess::ReadOnly);
        let read = read.map(|outer| (self.really(&outer.at), outer.from.clone()));
        let around = |(at, from): (PathBuf, PathBuf)| to.strip_prefix(at).ok().map(|below| (below.to_owned(), from));
        // The innermost one is what is seen there.
        let inner = tools.chain(read).filter_map(around).filter(|(below, _)| below != Path::new(""));
        let Some((below, from)) = inner.min_by_key(|(below, _)| below.components().count()) else { return Ok(()) };
        let there = from.join(below);
        there.symlink_metadata().map(drop).map_err(|error| StartError::path("fs", &there, &error))
    }

    /// Mounts what is only read, and says what may be done with all of it.
    pub(super) fn mount_read_only(&mut self, source: u32, resolved: &Resolved, to: &Path) -> Access {
        let to = &self.really(to);
        let written = self.blueprint.noexec && self.blueprint.written(&resolved.path);
        let attrs = Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV;
        let (attrs, access) = if written { (attrs | Attrs::NOEXEC, Access::READ) } else { (attrs, self.readable()) };
        let path = text(to);
        if resolved.dir && self.blueprint.readonly_overlay {
            self.op(Op::Overlay { lowers: Lowers::one(source), path, size: 0, inodes: 0, attrs, export: None });
        } else {
            self.op(Op::Bind { source, path, attrs, file: !resolved.dir });
        }
        access
    }

    fn write(&mut self, shown: &HostTree) -> Result<(), StartError> {
        let resolved = self.blueprint.resolve("fs.write", &shown.from)?;
        let to = self.really(&shown.at);
        self.placed(shown, &to, &resolved);
        let (source, attrs) = (self.own_source(&resolved), self.writable_attrs());
        self.op(Op::Bind { source, path: text(&to), attrs, file: !resolved.dir });
        self.allow_shown(shown, &to, &resolved, self.writable())
    }

    fn workspace(&mut self, shown: &HostTree) -> Result<(), StartError> {
        let resolved = self.blueprint.resolve("workspace", &shown.from)?;
        if !resolved.dir {
            return Err(StartError::NotADirectory { clause: "workspace", path: shown.from.clone() });
        }
        // Shown where it is, it keeps the path that leads to it without a link.
        let at = if shown.at == shown.from { self.really(&resolved.path) } else { self.really(&shown.at) };
        let Size { bytes: size, inodes } = self.sizes.workspace.unwrap_or_default();
        let (path, attrs) = (text(&at), self.writable_attrs());
        let all = match shown.how {
            TreeAccess::ReadOnly => {
                let source = self.workspace_source(&resolved);
                self.mount_read_only(source, &resolved, &at)
            }
            TreeAccess::Writable => {
                let source = self.workspace_source(&resolved);
                self.op(Op::Bind { source, path, attrs, file: false });
                self.writable()
            }
            TreeAccess::Overlay(_) => {
                let source = self.workspace_source(&resolved);
                let export = Some(WORKSPACE_SLOT);
                self.op(Op::Overlay { lowers: Lowers::one(source), path, size, inodes, attrs, export });
                self.writable()
            }
            TreeAccess::Copy(_) | TreeAccess::CopyInFolder => {
                self.op(Op::Fill { path, size, inodes, attrs, slot: WORKSPACE_SLOT });
                self.writable()
            }
        };
        self.allow_shown(shown, &at, &resolved, all)?;
        self.placed(shown, &at, &resolved);
        self.tree.workspace = Some(resolved.path);
        self.tree.cwd = at;
        Ok(())
    }
}
