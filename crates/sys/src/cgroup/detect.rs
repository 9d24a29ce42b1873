//! Which hierarchies there are, and where below them this process may make groups.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{Available, Controller, Kill, Layout, Missing, Version};
use crate::error::{Error, ErrorContext as _, Result};
use crate::paths::read_all;
use crate::proc::{Membership, Mount, Process};

const CGROUP_MAGIC: i128 = 0x0027_e0eb;
const CGROUP2_MAGIC: i128 = 0x6367_7270;

/// A folder below which groups may be made.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) version: Version,
    /// v1: what is mounted here. v2: what can be handed down.
    pub(super) controllers: Vec<Controller>,
    pub(super) folder: Arc<OwnedFd>,
    pub(super) path: PathBuf,
}

/// When freezer and cpuacct of v1 are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spare {
    WithoutV2,
    Always,
}

fn seen() -> Result<(Vec<Mount>, Vec<Membership>)> {
    let own = Process::own()?;
    Ok((own.mounts_of(|kind| matches!(kind, "cgroup" | "cgroup2"))?, own.cgroups()?))
}

/// The hierarchies of this host, seen from this process.
#[derive(Debug)]
pub struct Hierarchies {
    pub(super) bases: Vec<Base>,
    available: Available,
}

impl Hierarchies {
    /// Looks at the host and leaves no trace.
    ///
    /// # Errors
    /// `/proc/self/mountinfo` or `/proc/self/cgroup` cannot be read.
    pub fn probe() -> Result<Self> {
        let (mounts, memberships) = seen()?;
        Ok(Self::from(&mounts, &memberships, Spare::WithoutV2, || {
            swap_is_off(&std::fs::read_to_string("/proc/swaps").unwrap_or_default())
        }))
    }

    /// The same with the hierarchies that no run uses here: one that does not see v2 does, and may have left something.
    ///
    /// # Errors
    /// As [`Hierarchies::probe`].
    pub fn all() -> Result<Self> {
        let (mounts, memberships) = seen()?;
        Ok(Self::from(&mounts, &memberships, Spare::Always, || false))
    }

    /// As a process in the group at `path` (absolute, below the root of each hierarchy) would see them.
    ///
    /// # Errors
    /// As [`Hierarchies::probe`].
    pub fn of(path: &str) -> Result<Self> {
        let (mounts, mut memberships) = seen()?;
        memberships.iter_mut().for_each(|membership| path.clone_into(&mut membership.path));
        Ok(Self::from(&mounts, &memberships, Spare::WithoutV2, || false))
    }

    fn from(mounts: &[Mount], memberships: &[Membership], spare: Spare, swap_off: impl Fn() -> bool) -> Self {
        let mut bases = Vec::new();
        let mut why = Vec::new();
        let unified = memberships.iter().find(|membership| membership.controllers.is_empty());
        let mut v2_missing = None;
        match unified.map(|membership| v2_base(mounts, membership)) {
            Some(Ok(Some(base))) => bases.push(base),
            Some(Err(missing)) => v2_missing = Some(missing),
            Some(Ok(None)) | None => {}
        }
        // Beside v2, which kills and accounts by itself, these two are never used: not even looked at.
        let passed_over = if bases.is_empty() || spare == Spare::Always {
            &[][..]
        } else {
            &[Controller::Freezer, Controller::CpuAccounting][..]
        };
        for membership in memberships.iter().filter(|membership| !membership.controllers.is_empty()) {
            match v1_base(mounts, membership, passed_over) {
                Ok(Some(base)) => bases.push(base),
                Ok(None) => {}
                Err((controllers, missing)) => {
                    why.extend(controllers.into_iter().map(|controller| (controller, missing.clone())));
                }
            }
        }
        let available = judge(mounts, &bases, &why, v2_missing.as_ref(), swap_off);
        Self { bases, available }
    }

    /// What this host can hold.
    #[must_use]
    pub fn available(&self) -> &Available {
        &self.available
    }

    /// The base for a controller, v1 before v2 (a controller is never in both).
    pub(super) fn base(&self, controller: Controller) -> Option<&Base> {
        self.bases.iter().find(|base| base.controllers.contains(&controller))
    }

    pub(super) fn v2(&self) -> Option<&Base> {
        self.bases.iter().find(|base| base.version == Version::V2)
    }

    /// Whether groups here count the processor time of all that ran in them: v2 always does, v1 by a controller of its own.
    #[must_use]
    pub fn counts_time(&self) -> bool {
        self.v2().is_some() || self.base(Controller::CpuAccounting).is_some()
    }

    pub(super) fn why_not(&self, controller: Controller) -> Missing {
        let known = match controller {
            Controller::Memory => &self.available.memory,
            Controller::Pids => &self.available.pids,
            Controller::Cpu => &self.available.cpu,
            Controller::CpuSet => &self.available.cpuset,
            Controller::Io => &self.available.io,
            Controller::CpuAccounting | Controller::Freezer => return Missing::NotMounted(controller),
        };
        known.as_ref().err().cloned().unwrap_or(Missing::NotMounted(controller))
    }
}

fn judge(
    mounts: &[Mount],
    bases: &[Base],
    why: &[(Controller, Missing)],
    v2_missing: Option<&Missing>,
    swap_off: impl Fn() -> bool,
) -> Available {
    let has = |kind: &str| mounts.iter().any(|mount| mount.kind == kind);
    let layout = match (has("cgroup"), has("cgroup2")) {
        (false, false) => Layout::None,
        (true, false) => Layout::V1,
        (false, true) => Layout::V2,
        (true, true) => Layout::Hybrid,
    };
    let find = |controller: Controller| match bases.iter().find(|base| base.controllers.contains(&controller)) {
        Some(base) => Ok(base.version),
        None => Err(why
            .iter()
            .find(|(which, _)| *which == controller)
            .map(|(_, missing)| missing.clone())
            .or_else(|| v2_missing.cloned())
            .or_else(|| not_offered(bases, layout, controller))
            .unwrap_or(Missing::NotMounted(controller))),
    };
    let memory_base = bases.iter().find(|base| base.controllers.contains(&Controller::Memory));
    Available {
        layout,
        memory: find(Controller::Memory),
        swap_bounded: memory_base.is_some_and(bounds_swap) || swap_off(),
        pids: find(Controller::Pids),
        cpu: find(Controller::Cpu),
        cpuset: find(Controller::CpuSet),
        io: find(Controller::Io),
        kill: killing(bases, find(Controller::Freezer), v2_missing),
    }
}

/// Where v2 is alone, its group is the one that should have it.
fn not_offered(bases: &[Base], layout: Layout, controller: Controller) -> Option<Missing> {
    let base = bases.iter().find(|base| base.version == Version::V2 && layout == Layout::V2)?;
    Some(Missing::NotOffered { path: base.path.clone(), controller })
}

fn killing(
    bases: &[Base],
    freezer: std::result::Result<Version, Missing>,
    v2_missing: Option<&Missing>,
) -> std::result::Result<Kill, Missing> {
    // The root group has no `cgroup.kill`; every other group has it when the kernel does (5.14).
    if bases.iter().any(|base| base.version == Version::V2) {
        return Ok(if crate::machine::kernel_at_least(5, 14) { Kill::Atomic } else { Kill::Frozen });
    }
    match freezer {
        Ok(_) => Ok(Kill::Frozen),
        Err(missing) => Err(v2_missing.cloned().unwrap_or(missing)),
    }
}

fn bounds_swap(memory: &Base) -> bool {
    match memory.version {
        Version::V1 => exists(&memory.folder, "memory.memsw.limit_in_bytes"),
        // The root group has no such file, and a group below it always has (with CONFIG_SWAP).
        Version::V2 => exists(&memory.folder, "memory.swap.max") || !exists(&memory.folder, "cgroup.type"),
    }
}

fn swap_is_off(swaps: &str) -> bool {
    swaps.lines().count() == 1
}

type V1Failure = (Vec<Controller>, Missing);

fn v1_base(
    mounts: &[Mount],
    membership: &Membership,
    spare: &[Controller],
) -> std::result::Result<Option<Base>, V1Failure> {
    const ALL: [Controller; 7] = [
        Controller::Memory,
        Controller::Pids,
        Controller::Cpu,
        Controller::CpuSet,
        Controller::Io,
        Controller::CpuAccounting,
        Controller::Freezer,
    ];
    let mut controllers: Vec<Controller> =
        ALL.into_iter().filter(|one| membership.controllers.iter().any(|name| name == one.v1())).collect();
    if controllers.iter().all(|one| spare.contains(one)) {
        return Ok(None);
    }
    let mount = mounts
        .iter()
        .rev()
        .find(|mount| mount.kind == "cgroup" && membership.controllers.iter().all(|name| mount.super_has(name)));
    let Some(mount) = mount else { return Ok(None) };
    let failed = |missing| (controllers.clone(), missing);
    let path = below(mount, &membership.path).map_err(failed)?;
    let folder = open_checked(&path, CGROUP_MAGIC).map_err(|error| failed(Missing::Unreadable(error)))?;
    writable(&folder, &path, ".").map_err(failed)?;
    if controllers.contains(&Controller::Memory)
        && record(&folder, "memory.use_hierarchy").is_ok_and(|text| text == "0")
    {
        return Err(failed(Missing::NotHierarchical { path }));
    }
    controllers.sort_unstable();
    Ok(Some(Base { version: Version::V1, controllers, folder: Arc::new(folder), path }))
}

/// v2 wants processes in leaves only: the own group serves when it has no controller or hands all down, or is the
/// root, or holds no process. Otherwise one above it serves if the own group has no limits that would be escaped.
fn v2_base(mounts: &[Mount], membership: &Membership) -> std::result::Result<Option<Base>, Missing> {
    let Some(mount) = mounts.iter().rev().find(|mount| mount.kind == "cgroup2") else { return Ok(None) };
    let mut path = below(mount, &membership.path)?;
    let top = PathBuf::from(&mount.point);
    loop {
        let folder = open_checked(&path, CGROUP2_MAGIC).map_err(Missing::Unreadable)?;
        let text = record(&folder, "cgroup.controllers").map_err(Missing::Unreadable)?;
        let controllers: Vec<Controller> =
            Controller::LIMITING.into_iter().filter(|one| text.split(' ').any(|name| Some(name) == one.v2())).collect();
        let root = !exists(&folder, "cgroup.type");
        if controllers.is_empty() || root || no_processes(&folder)? || hands_down(&folder, &controllers) {
            writable(&folder, &path, ".")?;
            writable(&folder, &path, "cgroup.procs")?;
            return Ok(Some(Base { version: Version::V2, controllers, folder: Arc::new(folder), path }));
        }
        if has_limits(&folder) || path == top || !path.pop() {
            return Err(Missing::Occupied { path });
        }
    }
}

fn no_processes(folder: &OwnedFd) -> std::result::Result<bool, Missing> {
    Ok(read(folder, "cgroup.procs").map_err(Missing::Unreadable)?.is_empty())
}

fn hands_down(folder: &OwnedFd, controllers: &[Controller]) -> bool {
    read(folder, "cgroup.subtree_control")
        .is_ok_and(|text| controllers.iter().all(|one| text.split(' ').any(|name| Some(name) == one.v2())))
}

/// Whether leaving this group would escape a limit.
fn has_limits(folder: &OwnedFd) -> bool {
    limited(folder, "pids.max", no_most) || limited_beside_tasks(folder)
}

/// The same, of all but the number of tasks, which systemd limits for every unit without being asked.
pub(super) fn limited_beside_tasks(folder: &OwnedFd) -> bool {
    ["memory.max", "memory.high", "memory.swap.max", "cpu.max"].iter().any(|file| limited(folder, file, no_most))
        || ["cpuset.cpus", "io.max"].iter().any(|file| limited(folder, file, str::is_empty))
}

fn no_most(text: &str) -> bool {
    text == "max" || text.starts_with("max ")
}

/// A file that cannot be read may hold a limit; one that is not there cannot.
fn limited(folder: &OwnedFd, file: &str, free: fn(&str) -> bool) -> bool {
    match read(folder, file) {
        Ok(text) => !free(&text),
        Err(error) => error.errno != Errno::NOENT,
    }
}

/// The own group's folder under a mount.
pub(super) fn below(mount: &Mount, own: &str) -> std::result::Result<PathBuf, Missing> {
    let outside = || Missing::OutsideMount { own: own.to_owned(), root: mount.root.clone() };
    let inner = if mount.root == "/" { Some(own) } else { own.strip_prefix(mount.root.as_str()) };
    let inner = inner.ok_or_else(outside)?;
    // A path that leaves the reader's cgroup namespace starts with `/..`.
    if inner.split('/').any(|part| part == "..") || (!inner.is_empty() && !inner.starts_with('/')) {
        return Err(outside());
    }
    let mut path = PathBuf::from(&mount.point);
    path.extend(inner.split('/').filter(|part| !part.is_empty()));
    Ok(path)
}

fn open_checked(path: &Path, magic: i128) -> Result<OwnedFd> {
    let object = || path.display().to_string();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let folder = rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve).named("openat2", object)?;
    let found = rustix::fs::fstatfs(&folder).named("fstatfs", object)?;
    if i128::from(found.f_type) == magic { Ok(folder) } else { Err(Error::new("fstatfs", object(), Errno::NODEV)) }
}

fn writable(folder: &OwnedFd, path: &Path, file: &str) -> std::result::Result<(), Missing> {
    rustix::fs::accessat(folder, file, Access::WRITE_OK, AtFlags::EACCESS)
        .map_err(|errno| Missing::NotWritable { path: path.to_path_buf(), errno })
}

pub(super) fn exists(folder: &OwnedFd, file: &str) -> bool {
    rustix::fs::accessat(folder, file, Access::EXISTS, AtFlags::empty()).is_ok()
}

/// A kernel file of a group, without the last line break.
pub(super) fn read(folder: impl AsFd, file: &str) -> Result<String> {
    let fd = open(folder, file)?;
    let bytes = read_all(&fd, 1 << 20).named("read", || file.to_owned())?;
    text(bytes, file)
}

/// As [`read`], for a file that the kernel writes at once (`seq_show`), and not line by line as the list of processes:
/// what one read leaves room for is all of it.
pub(super) fn record(folder: impl AsFd, file: &str) -> Result<String> {
    let fd = open(folder, file)?;
    let mut bytes = Vec::with_capacity(ONE_READ);
    rustix::io::read(&fd, rustix::buffer::spare_capacity(&mut bytes)).named("read", || file.to_owned())?;
    if bytes.len() == bytes.capacity() {
        bytes.extend(read_all(&fd, 1 << 20).named("read", || file.to_owned())?);
    }
    text(bytes, file)
}

/// More than any counter, and most lists of counters, take.
const ONE_READ: usize = 1024;

fn open(folder: impl AsFd, file: &str) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(folder, file, flags, Mode::empty()).named("openat", || file.to_owned())
}

fn text(bytes: Vec<u8>, file: &str) -> Result<String> {
    let mut text = String::from_utf8(bytes).map_err(|_not_text| Error::new("read", file, Errno::BADMSG))?;
    text.truncate(text.trim_end().len());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(root: &str) -> Mount {
        let line = format!("5 1 0:9 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory");
        crate::proc::parse_mountinfo(&line).unwrap().remove(0)
    }

    #[test]
    fn the_own_group_is_found_below_any_mount_root() {
        let at = |root: &str, own: &str| below(&mount(root), own).ok().map(|path| path.display().to_string());
        assert_eq!(at("/", "/"), Some("/sys/fs/cgroup/memory".into()));
        assert_eq!(at("/", "/a/b"), Some("/sys/fs/cgroup/memory/a/b".into()));
        assert_eq!(at("/docker/x", "/docker/x"), Some("/sys/fs/cgroup/memory".into()));
        assert_eq!(at("/docker/x", "/docker/x/y"), Some("/sys/fs/cgroup/memory/y".into()));
    }

    #[test]
    fn a_group_outside_the_mount_is_not_guessed() {
        for (root, own) in [("/docker/x", "/other"), ("/docker/x", "/docker/xy"), ("/", "/../x")] {
            assert!(matches!(below(&mount(root), own), Err(Missing::OutsideMount { .. })), "{root} {own}");
        }
    }

    #[test]
    fn nothing_mounted_is_a_reason_for_each() {
        let found = Hierarchies::from(&[], &[], Spare::WithoutV2, || true);
        assert_eq!(found.available().layout, Layout::None);
        assert_eq!(found.available().memory, Err(Missing::NotMounted(Controller::Memory)));
        assert!(found.available().kill.is_err() && !found.counts_time());
    }

    #[test]
    fn swap_is_off_only_without_a_second_line() {
        assert!(swap_is_off("Filename\tType\tSize\n"));
        assert!(!swap_is_off("Filename\n/dev/sda2 partition 1 0 -2\n"));
        assert!(!swap_is_off(""));
    }
}
