//! What our own binary does when a row calls it as a program: inside a sandbox as a probe, outside as what starts an unconfined
//! one, or as a neighbour on the host.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use ::probe::task::{self, Ended, Forked};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sandbox::Environment;
use sandbox::fault::Fault;

use crate::stage::NOBODY;
use crate::{probe, scene};

/// Where the machine's resolvers are named.
const RESOLVERS: &str = "/etc/resolv.conf";

/// A failure of ours: nothing was concluded.
pub(crate) fn fault(what: &str, why: impl std::fmt::Display) -> Fault {
    Fault {
        id: "attack/failed",
        what: what.to_owned(),
        place: "`fumehood attack`".to_owned(),
        why: why.to_string().to_lowercase(),
        fix: "see the reason; nothing was concluded".to_owned(),
    }
}

/// `MARKER NAME ARGS`: tries one thing; the exit code.
#[must_use]
pub fn probe(words: Vec<OsString>) -> u8 {
    let mut words = words.into_iter();
    let (_marker, name) = (words.next(), words.next().unwrap_or_default());
    let known = probe::run(&name.to_string_lossy(), words.collect());
    // Nobody else hands on what a probe left in its buffer; one that filled its output has no reader.
    drop(std::io::Write::flush(&mut std::io::stdout()));
    if known { 0 } else { 125 }
}

/// `TOKEN`: a process of the host that keeps a secret.
///
/// # Errors
/// Nobody listens.
pub fn neighbour(words: &[OsString]) -> Result<(), Fault> {
    let token = words.first().cloned().unwrap_or_default();
    scene::neighbour_stay(&token).map_err(|error| fault("the neighbour cannot speak", error))
}

/// `HOW PROGRAM ARGS`: lets go of privilege or of the host's namespaces, or becomes a caller of a certain kind, and then the
/// program. Its exit code where it stays as the program's parent.
///
/// # Errors
/// It could not become that.
pub fn control(words: &[OsString], environment: &Environment) -> Result<u8, Fault> {
    let how = words.first().cloned().unwrap_or_default();
    let own = match how.as_bytes() {
        b"mount" => 3,
        b"resolvers" | b"network" => 2,
        _ => 1,
    };
    let argv: Vec<&OsStr> = words.iter().skip(own).map(OsString::as_os_str).collect();
    let path = argv.first().copied().unwrap_or_default();
    let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let fd = opened.map_err(|errno| fault("the program cannot be opened", errno))?;
    let root = environment.euid == 0;
    let done = match how.as_bytes() {
        b"user" if root => task::become_id(NOBODY),
        b"groups" if root => task::join_groups(&[4, 6, 20]),
        b"terminal" => task::own_terminal(),
        b"mount" => own_mount(words),
        b"resolvers" => task::own_file_at(words.get(1).map_or(OsStr::new(""), OsString::as_os_str), RESOLVERS),
        b"network" => own_network(words),
        b"private" => return private(&fd, &argv, environment),
        _ => Ok(()),
    };
    done.map_err(|errno| fault("privilege cannot be let go", errno))?;
    let env = variables(environment);
    let env: Vec<&OsStr> = env.iter().map(OsString::as_os_str).collect();
    let errno = task::exec(&fd, &argv, &env);
    Err(fault("the program cannot be executed", errno))
}

/// `FOLDER SECRET`: another file system there, that nobody else sees, with the secret in a file.
fn own_mount(words: &[OsString]) -> rustix::io::Result<()> {
    let word = |at: usize| words.get(at).cloned().unwrap_or_default();
    task::own_mount_at(&word(1))?;
    let written = std::fs::write(Path::new(&word(1)).join("secret.txt"), word(2).as_bytes());
    written.map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
}

/// `NAMESPACE`: that network instead of the caller's.
fn own_network(words: &[OsString]) -> rustix::io::Result<()> {
    let path = words.get(1).map_or(OsStr::new(""), OsString::as_os_str);
    let namespace = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
}

fn variables(environment: &Environment) -> Vec<OsString> {
    let join = |(name, value): (&OsString, &OsString)| [name, OsStr::new("="), value].into_iter().collect::<OsString>();
    environment.env.iter().map(join).collect()
}

/// New mount, process, network, ipc and host name namespaces, and a user namespace for who is not root: what succeeds in
/// them touches nothing else.
fn private(fd: &OwnedFd, argv: &[&OsStr], environment: &Environment) -> Result<u8, Fault> {
    const OWN: i32 = 0x0002_0000 | 0x2000_0000 | 0x4000_0000 | 0x0800_0000 | 0x0400_0000;
    let user = if environment.euid == 0 { 0 } else { 0x1000_0000 };
    // Inside, before the maps, everybody is nobody.
    let gid = rustix::process::getegid().as_raw();
    task::unshare(OWN | user).map_err(|errno| fault("no private namespaces can be made", errno))?;
    if user != 0 {
        // Root of the new user namespace: an execution by anybody else would lose what is to be tried.
        let uid = environment.euid;
        std::fs::write("/proc/self/setgroups", "deny")
            .and_then(|()| std::fs::write("/proc/self/uid_map", format!("0 {uid} 1")))
            .and_then(|()| std::fs::write("/proc/self/gid_map", format!("0 {gid} 1")))
            .map_err(|error| fault("the private user namespace has no ids", error))?;
    }
    let env = variables(environment);
    let env: Vec<&OsStr> = env.iter().map(OsString::as_os_str).collect();
    let forked = task::fork().map_err(|errno| fault("no child can be made", errno))?;
    let Forked::Parent(child) = forked else {
        // Process 1 of the new namespace holds its own `/proc`, and starts the probe.
        if task::own_proc().is_err() {
            task::leave(125);
        }
        // A mount of the working directory, whose place on the host the list of mounts then tells. Only one row needs it.
        let _shown = task::bind_here();
        let ended = task::in_child(|| u8::try_from(task::exec(fd, argv, &env).raw_os_error()).unwrap_or(125));
        task::leave(match ended {
            Ok(Ended::Code(code)) => code,
            Ok(Ended::Signal(_)) | Err(_) => 125,
        });
    };
    match task::wait(child) {
        Ok(Ended::Code(code)) => Ok(code),
        Ok(Ended::Signal(_)) | Err(_) => Ok(125),
    }
}
