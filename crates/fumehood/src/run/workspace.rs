//! The layer of a workspace: filled before the run when it is a copy, read back after it; and the folder in which the
//! process tier writes.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use backends::Capabilities;
use policy::Policy;
use policy::report::{Limit, WorkspaceChange, WorkspaceReport};
use policy::value::WorkspaceMode;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::record::Recorded;
use crate::changes::{Baseline, Bounds, Change, ChangesError, MOST_DEPTH, Store, copy_in, read_copy, read_upper};
use crate::fault::{Fault, show_bytes};
use crate::state::{Cross, Dir};
use crate::ui::{Failure, bytes};

/// What is needed to read a layer back.
#[derive(Debug)]
pub(super) struct Layer {
    /// Root of the overlay's upper or of the copy; it outlives the mount namespace.
    place: Dir,
    /// The workspace on the host, canonical.
    root: PathBuf,
    /// The folder of a copy that shares its file system with others.
    folder: Option<PathBuf>,
    /// Of a copy: what was copied.
    baseline: Option<Baseline>,
    /// Paths that are hidden from the run: no changes of it.
    hidden: Vec<PathBuf>,
    /// Real time just before the run: what changes on the host afterwards is a conflict.
    began: (i64, u64),
}

impl From<ChangesError> for Failure {
    fn from(error: ChangesError) -> Self {
        // A workspace that is too large for its copy can be made to fit, or shown otherwise: nothing of ours failed.
        let code = if matches!(error, ChangesError::TooLarge { .. }) { 126 } else { 125 };
        Self::Faults { code, faults: vec![error.fault()] }
    }
}

impl Layer {
    /// The upper of an overlay, or the empty file system of a copy.
    pub(super) fn new(fd: OwnedFd, root: PathBuf) -> Self {
        Self::of(Dir::from(fd), root)
    }

    fn of(place: Dir, root: PathBuf) -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let began = (now.tv_sec, u64::try_from(now.tv_nsec).unwrap_or(0));
        Self { place, root, folder: None, baseline: None, hidden: Vec::new(), began }
    }

    /// Hides what `fs.hide` names: taken out of a copy, covered in an overlay. Nothing of the payload runs yet, and
    /// nobody has looked at these names in the overlay, so what is put into its upper layer now is what it shows.
    pub(super) fn hide(&mut self, policy: &Policy, owner: (u32, u32), host: &Capabilities) -> Result<(), Failure> {
        self.hidden = super::hide::resolve(&self.root, &policy.fs.hide)?;
        if self.hidden.is_empty() {
            return Ok(());
        }
        let _guard = as_owner(owner, host)?;
        for path in &self.hidden {
            let name = path.file_name().unwrap_or_default();
            let told = |e: rustix::io::Errno| failed(&format!("hiding `{}`", path.display()), &e.to_string());
            let parent = self.parent(path).map_err(told)?;
            match &mut self.baseline {
                Some(baseline) => {
                    parent.remove_tree(name).map_err(told)?;
                    baseline.entries.retain(|copied, _| !copied.starts_with(path));
                }
                None => {
                    // A character device 0/0 is overlayfs's mark of a name that is not there.
                    let (kind, mode) = (rustix::fs::FileType::CharacterDevice, rustix::fs::Mode::empty());
                    rustix::fs::mknodat(&parent, Path::new(name), kind, mode, 0).map_err(told)?;
                }
            }
        }
        Ok(())
    }

    /// Takes our mark away before the layer is read back. What the run put in its place stays, as a change of the run.
    fn uncover(&self, path: &Path) {
        let name = path.file_name().unwrap_or_default();
        let Ok(parent) = self.parent(path) else { return };
        let ours = parent.stat(name).is_ok_and(|stat| {
            stat.is_some_and(|stat| {
                let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
                kind == rustix::fs::FileType::CharacterDevice && stat.st_rdev == 0
            })
        });
        if ours {
            // A mark that stays would only be read back as a removal, which `apply` shows before it does it.
            if parent.remove_tree(name).is_err() {}
        }
    }

    /// The folder of the layer that holds a path; in an overlay's upper it is made as it is below.
    fn parent(&self, path: &Path) -> rustix::io::Result<Dir> {
        let mut at = self.place.enter(".", Cross::Yes)?;
        for part in path.parent().unwrap_or(Path::new("")) {
            if self.baseline.is_none() {
                at.make(
                    part,
                    rustix::fs::Mode::RWXU
                        | rustix::fs::Mode::RGRP
                        | rustix::fs::Mode::XGRP
                        | rustix::fs::Mode::ROTH
                        | rustix::fs::Mode::XOTH,
                )?;
            }
            at = at.enter(part, Cross::No)?;
        }
        Ok(at)
    }

    /// Copies the workspace into the layer. As root in the container tier the layer's file system knows only the run's
    /// user, so the files are made as that user.
    pub(super) fn fill(&mut self, policy: &Policy, owner: (u32, u32), host: &Capabilities) -> Result<(), Failure> {
        let guard = as_owner(owner, host)?;
        let from = self.source()?;
        let copied = copy_in(&from, &self.place, bounds(policy), None);
        drop(guard);
        self.baseline = Some(copied?);
        Ok(())
    }

    /// What a copy lacks, in words.
    pub(super) fn not_copied(&self) -> Vec<String> {
        let refused = self.baseline.iter().flat_map(|baseline| &baseline.refused);
        refused.map(|refused| super::mounts::not_copied(&refused.path, &refused.why)).collect()
    }

    fn source(&self) -> Result<Dir, Failure> {
        Dir::open(&self.root).map_err(|e| failed("opening the workspace", &e.to_string()))
    }

    /// Bytes that the layer holds.
    pub(super) fn used(&self) -> u64 {
        if let Some(folder) = &self.folder {
            let mut count = Count::default();
            count.folder(folder);
            return count.bytes;
        }
        rustix::fs::fstatvfs(&self.place)
            .map_or(0, |fs| fs.f_blocks.saturating_sub(fs.f_bfree).saturating_mul(fs.f_frsize))
    }

    /// Takes what the run left in the layer into `changes/RUN`, and says how much that is.
    pub(super) fn read_back(self, recorded: &Recorded, policy: &Policy) -> Result<WorkspaceReport, Failure> {
        let root = self.source()?;
        // A layer holds no more than its limit, but files with holes look larger than all of it: reading and keeping those
        // would cost the host what the limit is there to save.
        let bounds = bounds(policy);
        let mut store = Store::begin(&recorded.state, &recorded.id, &self.root, &root, self.began, bounds)?;
        match &self.baseline {
            Some(baseline) => read_copy(&mut store, &self.place, baseline)?,
            None => {
                for path in &self.hidden {
                    self.uncover(path);
                }
                read_upper(&mut store, &self.place, &root)?;
            }
        }
        let manifest = store.finish(&recorded.state)?;
        let mut report = WorkspaceReport::default();
        let mut tell = |path: &Path, change: &str| {
            *report.counts.entry(change.to_owned()).or_insert(0) += 1;
            if report.changes.len() < WorkspaceReport::MOST {
                report
                    .changes
                    .push(WorkspaceChange { path: show_bytes(path.as_os_str().as_bytes()), change: change.to_owned() });
            }
        };
        for entry in &manifest.entries {
            let change = match entry.change {
                Change::Added => "added",
                Change::Modified => "modified",
                Change::Removed => "removed",
            };
            tell(&entry.path, change);
        }
        for refused in &manifest.refused {
            tell(&refused.path, "refused");
        }
        Ok(report)
    }
}

/// As root the files of a layer are made as the run's user: its file system knows nobody else.
fn as_owner(owner: (u32, u32), host: &Capabilities) -> Result<Option<sys::fsids::As>, Failure> {
    if !host.root() {
        return Ok(None);
    }
    sys::fsids::As::user_who_reads_all(owner.0, owner.1)
        .map(Some)
        .map_err(|e| failed("becoming the run's user for its files", &e.to_string()))
}

fn bounds(policy: &Policy) -> Bounds {
    let default = Bounds::default();
    Bounds {
        bytes: policy.limits.disk.map_or(default.bytes, |disk| disk.0),
        entries: policy.limits.files.map_or(default.entries, |n| usize::try_from(n).unwrap_or(usize::MAX)),
        list: default.list,
    }
}

/// The copy of a workspace in the process tier: a folder of ours that belongs to the run's user.
pub(super) fn copy_to_folder(
    root: &Path,
    to: &Path,
    policy: &Policy,
    (uid, gid): (u32, u32),
    host: &Capabilities,
) -> Result<Layer, Failure> {
    let made = std::fs::DirBuilder::new().mode(0o700).create(to);
    made.map_err(|e| failed("making the copy of the workspace", &e.to_string()))?;
    let place = Dir::open(to).map_err(|e| failed("opening the copy of the workspace", &e.to_string()))?;
    let owner = if host.root() {
        std::os::unix::fs::lchown(to, Some(uid), Some(gid))
            .map_err(|e| failed("handing over the copy of the workspace", &e.to_string()))?;
        Some((rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid)))
    } else {
        None
    };
    let mut layer = Layer::of(place, root.to_owned());
    layer.folder = Some(to.to_owned());
    let from = layer.source()?;
    layer.baseline = Some(copy_in(&from, &layer.place, bounds(policy), owner)?);
    Ok(layer)
}

/// The limit that the folder of a run has passed, if any: bytes and inodes, counted by walking it.
pub(super) fn over_limit(tmp: &Path, unlinked: u64, policy: &Policy) -> Option<(Limit, String)> {
    let mut count = Count { bytes: unlinked, ..Count::default() };
    // The copy of a workspace lies in the same folder, and is no part of what `fs.tmp` bounds.
    let copy = (policy.workspace.mode == WorkspaceMode::Copy).then_some("workspace");
    count.below(Dir::open(tmp), 0, copy);
    if count.bytes > policy.fs.tmp.0 {
        let words = format!("{} were written to TMPDIR, its size is {}", bytes(count.bytes), policy.fs.tmp);
        return Some((Limit::Disk, words));
    }
    if let Some(copy) = copy {
        count.folder(&tmp.join(copy));
    }
    if let Some(why) = count.unseen {
        // To go on would be to hold a limit that nobody can see.
        let words = format!("what a folder in TMPDIR or the copy of the workspace holds cannot be counted: {why}");
        return Some((Limit::Disk, words));
    }
    let limits = &policy.limits;
    if let Some(disk) = limits.disk
        && count.bytes > disk.0
    {
        return Some((Limit::Disk, format!("{} were written, the limit is {disk}", bytes(count.bytes))));
    }
    if let Some(files) = limits.files
        && count.files > files
    {
        return Some((Limit::Disk, format!("{} files were made, the limit is {files}", count.files)));
    }
    None
}

/// What lies in a folder of the run: walked by descriptors, since a path may be longer than the kernel takes.
#[derive(Default)]
struct Count {
    bytes: u64,
    files: u64,
    /// Why the rest could not be looked at.
    unseen: Option<String>,
}

impl Count {
    fn folder(&mut self, folder: &Path) {
        self.below(Dir::open(folder), 0, None);
    }

    fn below(&mut self, folder: rustix::io::Result<Dir>, depth: usize, but: Option<&str>) {
        let names = folder.and_then(|dir| dir.names().map(|names| (dir, names)));
        let Some((dir, names)) = self.seen(names) else { return };
        for name in names.iter().filter(|name| but.is_none_or(|but| *name != but)) {
            let Some(Some(stat)) = self.seen(dir.stat(name)) else { continue };
            self.files = self.files.saturating_add(1);
            let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
            self.bytes = self.bytes.saturating_add(blocks.saturating_mul(512));
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                continue;
            }
            if depth < MOST_DEPTH {
                self.below(dir.enter(name, Cross::No), depth + 1, None);
            } else {
                self.unseen.get_or_insert_with(|| format!("folders are more than {MOST_DEPTH} deep"));
            }
        }
    }

    /// What was found; nothing if it went away meanwhile, or is another thing now.
    fn seen<T>(&mut self, found: rustix::io::Result<T>) -> Option<T> {
        match found {
            Ok(found) => Some(found),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => None,
            Err(errno) => {
                self.unseen.get_or_insert_with(|| errno.to_string().to_lowercase());
                None
            }
        }
    }
}

/// Removes a folder of ours and all below it, whatever modes the run left.
pub(super) fn remove_tree(path: &Path) -> Result<(), Failure> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    // Most runs leave it empty.
    if rustix::fs::rmdir(path).is_ok() {
        return Ok(());
    }
    Dir::open(parent)
        .and_then(|dir| dir.remove_tree(name))
        .map_err(|e| failed("removing the folder of the run", &e.to_string()))
}

fn failed(what: &str, why: &str) -> Failure {
    Failure::own(Fault {
        id: "run/workspace",
        what: format!("{what} failed"),
        place: "the workspace".to_owned(),
        why: why.to_lowercase(),
        fix: "check owner, mode and free space; or use another workspace mode".to_owned(),
    })
}
