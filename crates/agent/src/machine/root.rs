//! The tree that programs see: the entries of a read-only image, and places of bounded size that can be written.
//!
//! It is made on a small file system of its own, so that mount points need not be in the image.

use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode};
use rustix::mount::MountFlags;

use super::init::{Fault, at, io};
use super::{CERTIFICATES, FsSize, Machine, OURS, OWN};

/// Where the tree is made.
pub(super) const NEW: &str = "/new";
/// Where the image lies before its entries are shown.
const IMAGE: &str = "/image";
/// The image's device.
pub(super) const DEVICE: &str = "/dev/vda";
/// The folder of the root in which it is said who resolves names, and the file.
const ETC: &str = "etc";
const RESOLVER: &str = "resolv.conf";
/// An empty file of the initial file system.
const EMPTY: &str = "/empty";
/// Device, major and minor number.
const DEVICES: &[(&str, u32, u32)] =
    &[("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];
/// Where the home folder really lies.
const HOME: &str = "/tmp/.home";

/// A folder that may be there already.
pub(super) fn folder(path: &str, mode: u32) -> Result<(), Fault> {
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(io(path))
}

/// A new file system.
pub(super) fn mounted(kind: &str, at_path: &str, flags: MountFlags, options: &str) -> Result<(), Fault> {
    let options = std::ffi::CString::new(options).unwrap_or_default();
    rustix::mount::mount(kind, at_path, kind, flags, options.as_c_str()).map_err(at(format!("{kind} at {at_path}")))
}

/// Makes the tree and goes into it, for good.
pub(super) fn enter(machine: &Machine, own: &[(String, Vec<u8>)]) -> Result<(), Fault> {
    folder(IMAGE, 0o755)?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(DEVICE, IMAGE, "ext4", flags, c"noload").map_err(at("mounting the root's image"))?;
    folder(NEW, 0o755)?;
    mounted("tmpfs", NEW, MountFlags::NOSUID | MountFlags::NODEV, "mode=0755,size=1m,nr_inodes=4096")?;
    show_image(machine)?;
    cover_id(machine.machine_id.as_deref())?;
    kernel_file_systems()?;
    devices()?;
    places(machine)?;
    files(own)?;
    certificates(&machine.certificates)?;
    super::workspace::make(machine)?;
    let sealed = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount_remount(NEW, sealed, c"").map_err(at("sealing the root"))?;
    rustix::process::chdir(NEW).map_err(at(NEW))?;
    rustix::mount::mount_move(".", "/").map_err(at("moving the root"))?;
    rustix::process::chroot(".").map_err(at("entering the root"))?;
    rustix::process::chdir("/").map_err(at("/"))
}

/// Every entry of the image under its own name; with a network, a `/etc` in which it is said who resolves names.
fn show_image(machine: &Machine) -> Result<(), Fault> {
    let own_etc = machine.network.as_ref().map(|network| &network.resolver);
    let not_shown = OWN.iter().copied().chain(own_etc.map(|_| ETC));
    show_entries(Path::new(IMAGE), Path::new(NEW), &not_shown.collect::<Vec<_>>())?;
    let Some(resolver) = own_etc else { return Ok(()) };
    let (from, to) = (Path::new(IMAGE).join(ETC), Path::new(NEW).join(ETC));
    folder(&to.display().to_string(), 0o755)?;
    // A link would lead to another folder of the root's.
    if from.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        show_entries(&from, &to, &[RESOLVER])?;
    }
    let file = to.join(RESOLVER);
    std::fs::write(&file, resolver).map_err(io(RESOLVER))?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).map_err(io(RESOLVER))
}

/// Every entry of a folder of the image, but for these.
fn show_entries(from: &Path, to: &Path, but: &[&str]) -> Result<(), Fault> {
    let of = from.display().to_string();
    for entry in std::fs::read_dir(from).map_err(io(of.clone()))? {
        let entry = entry.map_err(io(of.clone()))?;
        let name = entry.file_name();
        if but.iter().any(|own| name == *own) {
            continue;
        }
        let (from, to) = (entry.path(), to.join(&name));
        let kind = entry.file_type().map_err(io(of.clone()))?;
        let shown = from.display().to_string();
        if kind.is_symlink() {
            let target = std::fs::read_link(&from).map_err(io(shown.clone()))?;
            std::os::unix::fs::symlink(target, &to).map_err(io(shown))?;
            continue;
        }
        if kind.is_dir() {
            std::fs::create_dir(&to).map_err(io(shown.clone()))?;
        } else if kind.is_file() {
            std::fs::write(&to, "").map_err(io(shown.clone()))?;
        } else {
            continue;
        }
        rustix::mount::mount_bind(&from, &to).map_err(at(shown))?;
    }
    Ok(())
}

/// An empty file in the place of the image's machine id: two machines of one image are not the same machine.
fn cover_id(file: Option<&str>) -> Result<(), Fault> {
    let Some(file) = file else { return Ok(()) };
    let to = format!("{NEW}/{file}");
    std::fs::write(EMPTY, "").map_err(io(EMPTY))?;
    std::fs::set_permissions(EMPTY, std::fs::Permissions::from_mode(0o444)).map_err(io(EMPTY))?;
    rustix::mount::mount_bind(EMPTY, &to).map_err(at(to.clone()))?;
    let sealed = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount_remount(&to, sealed, c"").map_err(at(to))
}

fn kernel_file_systems() -> Result<(), Fault> {
    let at_path = format!("{NEW}/proc");
    folder(&at_path, 0o555)?;
    mounted("proc", &at_path, MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, "")
}

fn devices() -> Result<(), Fault> {
    let dev = format!("{NEW}/dev");
    folder(&dev, 0o755)?;
    // Of its own: the root opens no devices.
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mounted("tmpfs", &dev, flags, "mode=0755,size=64k,nr_inodes=64")?;
    for (name, major, minor) in DEVICES {
        let path = format!("{dev}/{name}");
        let mode = Mode::from_raw_mode(0o666);
        let number = rustix::fs::makedev(*major, *minor);
        rustix::fs::mknodat(CWD, &path, FileType::CharacterDevice, mode, number).map_err(at(path.clone()))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).map_err(io(path))?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        let path = format!("{dev}/{name}");
        std::os::unix::fs::symlink(target, &path).map_err(io(path))?;
    }
    folder(&format!("{dev}/shm"), 0o755)?;
    rustix::mount::mount_remount(&dev, flags | MountFlags::RDONLY, c"").map_err(at(dev))
}

/// The places that can be written.
fn places(machine: &Machine) -> Result<(), Fault> {
    let Machine { id, user, tmp, shm, run, .. } = machine;
    let place = |name: &str, FsSize { bytes, inodes }: &FsSize, mode: &str| {
        let path = format!("{NEW}/{name}");
        folder(&path, 0o755)?;
        let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
        flags.set(MountFlags::NOEXEC, machine.noexec);
        let options = format!("size={bytes},nr_inodes={inodes},mode={mode},uid={id},gid={id}");
        mounted("tmpfs", &path, flags, &options)
    };
    place("tmp", tmp, "1777")?;
    place("dev/shm", shm, "1777")?;
    place("run", run, "0755")?;
    let home = format!("{NEW}{HOME}");
    std::fs::DirBuilder::new().mode(0o700).create(&home).map_err(io(home.clone()))?;
    std::os::unix::fs::chown(&home, Some(*id), Some(*id)).map_err(io(home))?;
    folder(&format!("{NEW}/home"), 0o755)?;
    let link = format!("{NEW}/home/{user}");
    std::os::unix::fs::symlink(HOME, &link).map_err(io(link))
}

/// Files of the run itself, on a file system of their own, which nobody can write.
fn files(own: &[(String, Vec<u8>)]) -> Result<(), Fault> {
    if own.is_empty() {
        return Ok(());
    }
    let to = format!("{NEW}{OURS}");
    folder(&to, 0o755)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mounted("tmpfs", &to, flags, "mode=0755")?;
    for (name, content) in own {
        let target = Path::new(&to).join(name);
        std::fs::write(&target, content).map_err(io(OURS))?;
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o555)).map_err(io(OURS))?;
    }
    rustix::mount::mount_remount(&to, flags | MountFlags::RDONLY, c"").map_err(at(OURS))
}

/// What the run trusts, in the place of the image's own files.
fn certificates(places: &[String]) -> Result<(), Fault> {
    let from = format!("{NEW}{OURS}/{CERTIFICATES}");
    let sealed = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    for place in places {
        let to = format!("{NEW}{place}");
        rustix::mount::mount_bind(&from, &to).map_err(at(place.clone()))?;
        rustix::mount::mount_remount(&to, MountFlags::BIND | sealed, c"").map_err(at(to))?;
    }
    Ok(())
}
