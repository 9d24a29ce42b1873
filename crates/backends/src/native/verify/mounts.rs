//! The evidence of what is mounted: where, how, and how large.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use guest::config::{Attrs, Config, OwnedOp as Op};
use policy::control::{Control, Cover};
use policy::value::Root;
use sys::paths::Identity;
use sys::proc::Mount;

use super::{Evident, PAGE, Proof, must};
use crate::backend::Protect;
use crate::native::tree::Placed;
use crate::native::{devices, filter};
use crate::trust;

impl Proof<'_> {
    pub(super) fn mounts(&self) -> Result<&[Mount], String> {
        self.started.seen.mounts.as_deref().ok_or_else(|| "the mounts were never final".to_owned())
    }

    /// One root, no mount but the planned ones (nothing of the host's tree is left), and those that are always there as
    /// they must be.
    pub(super) fn root(&self, planned: &Root) -> Evident {
        let found = self.mounts()?;
        let prepared = &self.started.prepared;
        // Which mounts there may be comes from what was applied: that must be the plan's.
        must(prepared.blueprint.root.as_ref() == Some(planned), || {
            format!("the root is {:?}", prepared.blueprint.root)
        })?;
        let points = prepared.by_runtime.clone().unwrap_or_else(|| points(&prepared.config));
        let roots = found.iter().filter(|mount| mount.point == "/").count();
        must(roots == 1, || format!("{roots} mounts are the root"))?;
        for mount in found {
            let planned = points.contains_key(&mount.point)
                || points.iter().any(|(place, point)| {
                    point.whole && mount.point.strip_prefix(place.as_str()).is_some_and(|rest| rest.starts_with('/'))
                });
            must(planned, || format!("nobody planned the mount at {}", mount.point))?;
        }
        for (place, point) in &points {
            match uppermost(found, place) {
                Some(mount) => has(mount, &point.options)?,
                None => must(!point.needed, || format!("there is no mount at {place}"))?,
            }
        }
        Ok(())
    }

    pub(super) fn uppermost(&self, at: &Path) -> Result<&Mount, String> {
        let place = sys::proc::shown(at.as_os_str().as_bytes());
        uppermost(self.mounts()?, &place).ok_or_else(|| format!("there is no mount at {place}"))
    }

    /// The mount of something that the plan shows; what is shown as it is must be what is seen there.
    pub(super) fn shown(&self, from: &Path, at: &Path, write: bool) -> Result<&Mount, String> {
        let placed = Placed::planned(&self.started.prepared.placed, from, at)?;
        let mount = self.uppermost(&placed.point)?;
        has(mount, if write { &["nosuid", "nodev"] } else { &["ro", "nosuid", "nodev"] })?;
        if let Some(is) = placed.is {
            let found = self.started.seen.shown.iter().rev().find(|(point, _)| *point == placed.point);
            let same = |found: &Identity| (found.device, found.inode) == ((is.major, is.minor), is.ino);
            must(found.is_some_and(|(_, found)| same(found)), || {
                format!("{} is another file than the one that was judged", mount.point)
            })?;
        }
        Ok(mount)
    }

    /// Folders of the host that can only be read lie behind a layer, where there are such.
    pub(super) fn readonly_overlay(&self) -> Evident {
        must(self.started.prepared.blueprint.readonly_overlay, || "none was asked for".to_owned())?;
        for control in self.started.prepared.plan.controls() {
            let Control::Mount { from, at, write: false } = control else { continue };
            let dir = self.started.prepared.placed.iter().any(|placed| placed.at == *at && placed.dir);
            let mount = self.shown(from, at, false)?;
            must(!dir || mount.kind == "overlay", || format!("{} is a mount of {}", mount.point, mount.kind))?;
        }
        Ok(())
    }

    pub(super) fn sized(&self, place: &str, bytes: u64, inodes: u64) -> Evident {
        let Some((most_bytes, most_inodes)) = self.started.child.watched.size_of(place) else {
            return Err(format!("the size of {place} cannot be read"));
        };
        // A size of 0 would be none at all; the kernel rounds up to whole pages.
        let bytes = bytes.div_ceil(PAGE).saturating_mul(PAGE);
        must(most_bytes > 0 && most_bytes <= bytes, || format!("{place} holds {most_bytes} bytes"))?;
        must(most_inodes > 0 && most_inodes <= inodes, || format!("{place} holds {most_inodes} files"))
    }

    /// Each protected path that was found stands as it must, whatever the start was given of them.
    pub(super) fn protected(&self) -> Evident {
        let prepared = &self.started.prepared;
        must(prepared.blueprint.protected_mounts, || "none was asked for".to_owned())?;
        let workspace = Path::new(OsStr::from_bytes(prepared.config.cwd.to_bytes()));
        for protect in &self.found.protect {
            let (Protect::Pinned(path) | Protect::ReadOnly(path) | Protect::Layered(path, _)) = protect;
            let mount = self.uppermost(&workspace.join(path))?;
            let held = match protect {
                Protect::Pinned(_) => true,
                Protect::ReadOnly(_) => mount.has("ro"),
                Protect::Layered(..) => mount.has("ro") || mount.kind == "overlay",
            };
            must(held, || format!("{} can be written to", mount.point))?;
        }
        Ok(())
    }

    /// Each path that was found is covered, whatever the start was given of them. A file that is gone since then needs no cover.
    pub(super) fn covered(&self, cover: &Cover) -> Evident {
        let prepared = &self.started.prepared;
        must(prepared.blueprint.covers.contains(cover), || "nothing was to be covered".to_owned())?;
        for found in &self.found.covered {
            if found.from.symlink_metadata().is_err() {
                continue;
            }
            let place = Placed::point_of(&prepared.placed, &found.to);
            let place = place.ok_or_else(|| format!("{} is not shown", found.to.display()))?;
            let mount = self.uppermost(&place)?;
            must(is_cover(mount), || format!("{} is a {} of {}", mount.point, mount.kind, mount.root))?;
        }
        Ok(())
    }

    /// What is trusted is read at each place, and nobody writes there.
    pub(super) fn certificates(&self, at: &[PathBuf]) -> Evident {
        let prepared = &self.started.prepared;
        must(prepared.blueprint.certificates.is_some() && prepared.certificates.is_some(), || {
            "none were made".to_owned()
        })?;
        for place in at {
            has(self.uppermost(place)?, &options(trust::ATTRS))?;
            must(self.started.seen.certificates.contains(place), || format!("{} has others", place.display()))?;
        }
        Ok(())
    }

    /// Every mount that can be written to.
    pub(super) fn noexec(&self) -> Evident {
        for mount in self.mounts()? {
            let buried = uppermost(self.mounts()?, &mount.point).is_some_and(|upper| upper.id != mount.id);
            let planned = self.started.prepared.by_runtime.as_ref().and_then(|points| points.get(&mount.point));
            let device = planned.is_some_and(|point| point.device);
            must(buried || device || mount.has("ro") || mount.has("noexec"), || {
                format!("{} can be executed from", mount.point)
            })?;
        }
        let prepared = &self.started.prepared;
        // A memory file lies on no mount, and the dynamic loader maps it.
        let closed = prepared.filter.as_ref().is_none_or(filter::Built::closes_memory_files);
        must(closed, || "a memory file can be made".to_owned())?;
        // What is shown read-only here may be written through another place.
        for control in prepared.plan.controls() {
            let Control::Mount { from, at, write: false } = control else { continue };
            let real = from.canonicalize().unwrap_or_else(|_gone| from.clone());
            if prepared.blueprint.written(&real) {
                let mount = self.shown(from, at, false)?;
                must(mount.has("noexec"), || format!("{} is written elsewhere, and can be executed", mount.point))?;
            }
        }
        Ok(())
    }
}

/// The mount that is seen at a place, found as the kernel walks there: from the root it crosses, on the mount where it is,
/// the first one on its way. A mount that another one hides, at its place or above it, is never reached.
pub(crate) fn uppermost<'a>(found: &'a [Mount], place: &str) -> Option<&'a Mount> {
    let on_the_way = |point: &str| {
        point == "/" || place.strip_prefix(point).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    // The root of the namespace is mounted on itself, or on a mount that is not in the list.
    let mut here = found
        .iter()
        .find(|mount| mount.point == "/" && !found.iter().any(|m| m.id == mount.parent && m.id != mount.id))?;
    loop {
        let children = found.iter().filter(|mount| mount.parent == here.id && mount.id != here.id);
        match children.filter(|mount| on_the_way(&mount.point)).min_by_key(|mount| mount.point.len()) {
            Some(next) => here = next,
            None => return Some(here).filter(|mount| mount.point == place),
        }
    }
}

/// An empty folder that can only be read, or the device that gives nothing.
fn is_cover(mount: &Mount) -> bool {
    (mount.kind == "tmpfs" && mount.has("ro")) || mount.root == "/null" || mount.root.ends_with("/dev/null")
}

pub(super) fn has(mount: &Mount, options: &[&str]) -> Evident {
    must(options.iter().all(|option| mount.has(option)), || {
        format!("the mount at {} must be {}, and it is {}", mount.point, options.join(", "), mount.options)
    })
}

/// What must be mounted at one place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Point {
    /// Mounts of the source may lie below.
    pub(crate) whole: bool,
    /// It must be there; a mask of something that the kernel does not have is not.
    pub(crate) needed: bool,
    /// Options that the uppermost mount must have.
    pub(crate) options: Vec<&'static str>,
    /// A device that a runtime shows, whose numbers are looked at: nothing that could be executed.
    pub(crate) device: bool,
}

/// Where mounts may be, and with which options.
fn points(config: &Config) -> BTreeMap<String, Point> {
    let text = |path: &CStr| sys::proc::shown(path.to_bytes());
    let root =
        Point { needed: true, options: options(Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV), ..Point::default() };
    let mut all = BTreeMap::from([("/".to_owned(), root)]);
    for op in &config.ops {
        let (path, whole, needed, attrs) = match op {
            Op::Bind { path, attrs, .. } => (path, true, true, *attrs),
            Op::ReadOnly { path, .. } => (path, true, true, Attrs::RDONLY),
            Op::Overlay { path, attrs, .. } | Op::Tmpfs { path, attrs, .. } | Op::Fill { path, attrs, .. } => {
                (path, false, true, *attrs)
            }
            Op::Devpts { path, .. } => (path, false, true, Attrs::NOSUID | Attrs::NOEXEC),
            Op::Proc { path } | Op::Mqueue { path } => {
                (path, false, true, Attrs::NOSUID | Attrs::NODEV | Attrs::NOEXEC)
            }
            Op::BindInner { path, attrs, .. } => (path, false, true, *attrs),
            Op::Pin { path } => (path, false, true, Attrs::NONE),
            Op::Mask { path, .. } => (path, false, false, Attrs::NONE),
            Op::Device { path, .. } => (path, false, true, devices::ATTRS),
            Op::Root { .. } | Op::Dir { .. } | Op::File { .. } | Op::Symlink { .. } | Op::SetAttr { .. } => continue,
        };
        let point = all.entry(text(path)).or_default();
        point.whole |= whole;
        point.needed |= needed;
        // What is mounted last at a place lies uppermost.
        point.options = options(attrs);
    }
    all
}

/// The words of `/proc/PID/mountinfo` for attributes of a mount.
pub(crate) fn options(attrs: Attrs) -> Vec<&'static str> {
    [(Attrs::RDONLY, "ro"), (Attrs::NOSUID, "nosuid"), (Attrs::NODEV, "nodev"), (Attrs::NOEXEC, "noexec")]
        .into_iter()
        .filter(|(attr, _)| attrs.bits() & attr.bits() != 0)
        .map(|(_, word)| word)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mounts by (number, the number of that on which they are mounted, place).
    fn mounts(all: &[(u64, u64, &str)]) -> Vec<Mount> {
        let line = |(id, parent, point): &(u64, u64, &str)| {
            format!("{id} {parent} 0:{id} / {point} rw,nosuid - tmpfs none rw\n")
        };
        sys::proc::parse_mountinfo(&all.iter().map(line).collect::<String>()).unwrap()
    }

    #[test]
    fn the_uppermost_mount_is_the_one_that_the_kernel_walks_to() {
        let at = |all: &[(u64, u64, &str)], place: &str| uppermost(&mounts(all), place).map(|mount| mount.id);
        // The root is mounted on one that is not in the list, or on itself.
        for root in [(2, 1, "/"), (2, 2, "/")] {
            let tree = [root, (3, 2, "/work"), (4, 3, "/work/.git"), (5, 2, "/tmp")];
            assert_eq!([at(&tree, "/"), at(&tree, "/work"), at(&tree, "/work/.git")], [Some(2), Some(3), Some(4)]);
            // No mount of its own, and no place whose name begins alike.
            assert_eq!([at(&tree, "/work/src"), at(&tree, "/wor"), at(&tree, "/workshop")], [None; 3]);
            // The kernel promises no order of the lines.
            let turned: Vec<_> = tree.iter().rev().copied().collect();
            assert_eq!([at(&turned, "/work/.git"), at(&turned, "/tmp")], [Some(4), Some(5)]);
        }
        // One above another at the same place: the upper one is mounted on the lower one.
        let above = [(2, 1, "/"), (3, 2, "/work"), (4, 3, "/work")];
        assert_eq!(at(&above, "/work"), Some(4));
        assert_eq!(at(&[above[0], above[2], above[1]], "/work"), Some(4));
        // A second root lies on the first and hides all that is mounted there.
        let roots = [(2, 1, "/"), (3, 2, "/work"), (4, 2, "/"), (5, 4, "/tmp")];
        assert_eq!([at(&roots, "/"), at(&roots, "/work"), at(&roots, "/tmp")], [Some(4), None, Some(5)]);
        // What is mounted below a folder that another mount covers is never reached, whether it is older or newer.
        let buried = [(2, 1, "/"), (3, 2, "/a/b/c"), (4, 2, "/a/b")];
        assert_eq!([at(&buried, "/a/b"), at(&buried, "/a/b/c")], [Some(4), None]);
        let anew = [buried[0], buried[1], buried[2], (5, 4, "/a/b/c")];
        assert_eq!(at(&anew, "/a/b/c"), Some(5));
        assert_eq!(at(&[], "/"), None);
    }

    #[test]
    fn a_path_lies_where_the_innermost_tree_around_it_is_mounted() {
        let one = |at: &str, point: &str| Placed {
            at: at.into(),
            point: point.into(),
            dir: true,
            write: false,
            source: None,
            is: None,
        };
        // `/home/user` is a link of ours, but not within what is shown at `/home`.
        let all = [one("/home", "/home"), one("/home/user/in", "/tmp/.home/in"), one("/data/f", "/data/f")];
        let of = |path: &str| Placed::point_of(&all, Path::new(path));
        assert_eq!(of("/home/user/.env"), Some("/home/user/.env".into()));
        assert_eq!(of("/home/user/in/.env"), Some("/tmp/.home/in/.env".into()));
        assert_eq!(of("/data/f").unwrap().as_os_str(), "/data/f");
        assert_eq!(of("/data"), None);
    }

    #[test]
    fn a_cover_gives_nothing_of_what_lies_below() {
        let line =
            |root: &str, options: &str, kind: &str| format!("5 2 0:5 {root} /srv/.env {options} - {kind} none rw\n");
        let is = |line: String| is_cover(&sys::proc::parse_mountinfo(&line).unwrap()[0]);
        assert!(
            is(line("/null", "rw", "devtmpfs")) && is(line("/dev/null", "ro", "tmpfs")) && is(line("/", "ro", "tmpfs"))
        );
        assert!(
            !is(line("/", "rw", "tmpfs"))
                && !is(line("/srv/.env", "ro", "ext4"))
                && !is(line("/srv/null", "ro", "ext4"))
        );
    }
}
