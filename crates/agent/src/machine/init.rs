//! The first process of a machine: makes the tree that programs see, starts the agent in it as an ordinary user, and switches the
//! machine off when the agent has ended.
//!
//! A step that fails is told to the supervisor, in place of the answer to its first request to the agent, and nothing is started.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{WaitOptions, WaitStatus};
use rustix::system::RebootCommand;
use sys::bare::{self, Fd, Pointers};

use super::begin::{Line, MachineSetup};
use super::groups::Groups;
use super::relay::Relay;
use super::{Attempt, BY_VSOCK, DISKS, MODULES, Machine, PORT, PROGRAM, VSOCK, network, root, workspace};
use crate::files::failure::{error_text, failure};
use crate::frame::{self, Frame, Kind};
use crate::words::{Code, Ended};

/// How long a device may take to appear.
const DEVICES: Duration = Duration::from_secs(60);
/// How long the supervisor may take to hear why there is no agent, where nothing tells that it has.
const HEARS: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Between two looks.
pub(super) const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// Waits for the next look; a signal ends it early.
pub(super) fn a_while() {
    let _paused = rustix::event::poll(&mut [], Some(&LOOK));
}

/// Which step failed, and why.
pub(super) struct Fault(pub(super) String);

impl Fault {
    pub(super) fn of(why: &str) -> Self {
        Self(why.to_owned())
    }
}

/// Names the step of an errno.
pub(super) fn at(step: impl Into<String>) -> impl FnOnce(Errno) -> Fault {
    move |errno| Fault(format!("{}: {}", step.into(), error_text(errno)))
}

/// The same of the standard library's errors.
pub(super) fn io(step: impl Into<String>) -> impl FnOnce(std::io::Error) -> Fault {
    move |error| Fault(format!("{}: {error}", step.into()))
}

/// The same of our own calls.
pub(super) fn call(step: &'static str) -> impl FnOnce(bare::Errno) -> Fault {
    move |errno| at(step)(Errno::from_raw_os_error(errno.number()))
}

/// The whole life of the machine; it never returns to the kernel, which would panic.
pub(crate) fn main() -> ExitCode {
    // Without a line there is nobody whom it could tell.
    if let Ok(socket) = line() {
        if let Err(Fault(why)) = live(&socket) {
            say(&socket, &why);
        }
        off(&socket);
    }
    switched_off();
    ExitCode::FAILURE
}

/// Whether the line to the supervisor is a port of the machine's own address, as the kernel's command line says.
fn by_vsock() -> bool {
    std::env::args().nth(1).is_some_and(|word| word == BY_VSOCK)
}

/// The line to the supervisor, as soon as there is one.
fn line() -> Result<OwnedFd, Fault> {
    let own = MountFlags::NOSUID | MountFlags::NOEXEC;
    root::folder("/dev", 0o755)?;
    root::mounted("devtmpfs", "/dev", own, "mode=0755")?;
    root::folder("/proc", 0o555)?;
    root::mounted("proc", "/proc", own | MountFlags::NODEV, "")?;
    let vsock = by_vsock();
    load_modules(|name| !of_disks(name) && !network::is_module(name) && (vsock || !is_one_of(name, VSOCK)))?;
    if vsock { accepted() } else { open_when_there(&format!("/dev/vport0p{PORT}"), OFlags::RDWR) }
}

/// The first connection to the port. There is no other: nobody waits there afterwards.
fn accepted() -> Result<OwnedFd, Fault> {
    let socket = rustix::net::socket_with(AddressFamily::VSOCK, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = socket.map_err(at("the socket of the supervisor's line"))?;
    let number = Fd::new(u32::try_from(socket.as_raw_fd()).unwrap_or(u32::MAX));
    bare::bind_vsock(number, PORT).map_err(call("the port of the supervisor's line"))?;
    rustix::net::listen(&socket, 1).map_err(at("waiting for the supervisor"))?;
    rustix::net::accept_with(&socket, SocketFlags::CLOEXEC).map_err(at("waiting for the supervisor"))
}

fn live(socket: &OwnedFd) -> Result<(), Fault> {
    let MachineSetup { machine, filter, files } = Line::new(socket).begun(Path::new(root::DEVICE).exists())?;
    load_modules(of_disks)?;
    let program = rustix::fs::open(Path::new("/").join(PROGRAM), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let program = program.map_err(at("opening the agent"))?;
    let images = [(root::DEVICE, super::ROOT_LABEL), (workspace::DEVICE, super::WORKSPACE_LABEL)];
    let count = if machine.workspace.is_some() { 2 } else { 1 };
    for (device, label) in images.into_iter().take(count) {
        labelled(&open_when_there(device, OFlags::RDONLY)?, device, label)?;
    }
    rustix::system::sethostname(machine.hostname.as_bytes()).map_err(at("the host name"))?;
    // Nothing inside needs namespaces of its own, and much of the kernel is reached through them.
    write("/proc/sys/user/max_user_namespaces", "0")?;
    write("/proc/sys/kernel/dmesg_restrict", "1")?;
    if machine.loopback {
        bare::loopback_up().map_err(call("the loopback device"))?;
    }
    if let Some(device) = &machine.network {
        load_modules(network::is_module)?;
        network::join(device)?;
    }
    let groups = Groups::make()?;
    root::enter(&machine, &files)?;
    let (ours, theirs) = sys::channel::pair().map_err(|error| at("the agent's socket")(error.errno))?;
    let pid = sys::fork::run(|| {
        let Fault(why) = become_agent((&machine, &filter), &groups, &theirs, &program);
        say(socket, &why);
        1
    });
    let pid = pid.map_err(|error| at("starting the agent")(error.errno))?;
    drop((theirs, program));
    let own = socket.try_clone().map_err(io("the supervisor's line"))?;
    carried_until_its_end(Relay::new(own, ours, groups, pid)?, pid)
}

/// Carries what the agent and its supervisor say to each other until the agent has ended; where that cannot be done, the machine
/// ends. Whoever is left behind is taken in meanwhile, for which nobody waits: their numbers count as programs.
fn carried_until_its_end(relay: Relay, agent: i32) -> Result<(), Fault> {
    let (ends, ended) = sys::channel::pipe().map_err(|error| at("a pipe")(error.errno))?;
    let carrier = std::thread::Builder::new().spawn(move || {
        let (port, carried) = relay.run(&ends);
        if let Err(Fault(why)) = carried {
            say(&port, &why);
            off(&port);
        }
        port
    });
    let carrier = carrier.map_err(io("a thread for the agent's line"))?;
    let end = reap_until(agent);
    drop(ended);
    let Ok(port) = carrier.join() else { return Err(Fault::of("the agent's line is lost")) };
    if let Err(Fault(why)) = end {
        say(&port, &why);
    }
    Ok(())
}

/// Switches the machine off when what it had to say is with the emulator: a serial device has it at once.
fn off(line: &OwnedFd) {
    if by_vsock() {
        // Until the supervisor has heard enough.
        let _gone = rustix::event::poll(&mut [PollFd::new(line, PollFlags::RDHUP)], Some(&HEARS));
    }
    switched_off();
}

/// An emulator without a switch ends when the machine starts again, and both do then.
fn switched_off() {
    let _off = rustix::system::reboot(if by_vsock() { RebootCommand::Restart } else { RebootCommand::PowerOff });
}

/// Whether a module finds disks, by the name of its file.
fn of_disks(name: &str) -> bool {
    is_one_of(name, &[DISKS])
}

/// Whether a module is one of these, by the name of its file: its number, a hyphen and its own name.
pub(super) fn is_one_of(file: &str, modules: &[&str]) -> bool {
    let name = file.strip_suffix(".ko").and_then(|file| file.rsplit_once('-'));
    name.is_some_and(|(_, name)| modules.contains(&name))
}

/// The modules that are wanted, in the order of the names.
fn load_modules(wanted: impl Fn(&str) -> bool) -> Result<(), Fault> {
    let folder = Path::new("/").join(MODULES);
    let listed = std::fs::read_dir(&folder).map_err(io("listing the modules"))?;
    let mut files: Vec<_> = listed.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.sort();
    for path in files {
        let name = path.display().to_string();
        if !wanted(&name) {
            continue;
        }
        let file = std::fs::File::open(&path).map_err(io(name.clone()))?;
        match rustix::system::finit_module(&file, c"", 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(at(name)(errno)),
        }
    }
    Ok(())
}

/// A device file: its driver makes it when the device was found.
fn open_when_there(path: &str, flags: OFlags) -> Result<OwnedFd, Fault> {
    let began = Instant::now();
    loop {
        match rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()) {
            Ok(fd) => return Ok(fd),
            // Nothing says that it is there: it is looked for again.
            Err(_) if began.elapsed() < DEVICES => drop(rustix::event::poll(&mut [], Some(&LOOK))),
            Err(errno) => return Err(at(path)(errno)),
        }
    }
}

/// The file system there has this label: devices are numbered in the order in which they are found.
fn labelled(device: &OwnedFd, name: &str, label: &str) -> Result<(), Fault> {
    /// Where ext4's superblock has it.
    const LABEL: u64 = 1024 + 0x78;
    let mut found = [0_u8; 16];
    let read = rustix::io::pread(device, &mut found, LABEL).map_err(at(name))?;
    let text = found.get(..read).unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default();
    if text == label.as_bytes() { Ok(()) } else { Err(Fault(format!("{name}: it is not the image `{label}`"))) }
}

fn write(path: &str, value: &str) -> Result<(), Fault> {
    std::fs::write(path, value).map_err(io(path))
}

/// Waits for the end of the agent, and takes in whatever was left behind on the way.
fn reap_until(agent: i32) -> Result<(), Fault> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == agent => return judged(status),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(at("waiting for the agent")(errno)),
        }
    }
}

/// One that was ended from inside says nothing more: the supervisor hears that the machine is off.
fn judged(status: WaitStatus) -> Result<(), Fault> {
    match status.exit_status() {
        Some(0) => Ok(()),
        Some(code) => Err(Fault(format!("the agent ended with code {code}"))),
        None => Err(Fault("the agent was ended by a signal".to_owned())),
    }
}

/// In the child: an ordinary user without any privilege, then the agent; only a fault comes back.
fn become_agent((machine, filter): (&Machine, &[u8]), groups: &Groups, socket: &OwnedFd, program: &OwnedFd) -> Fault {
    let confined = groups.enter().and_then(|()| confine(machine, filter, socket));
    confined.map_or_else(|fault| fault, |()| execute(machine, program))
}

fn confine(machine: &Machine, filter: &[u8], socket: &OwnedFd) -> Result<(), Fault> {
    let nothing = crate::files::nothing().map_err(at("/dev/null"))?;
    rustix::process::setsid().map_err(at("a session of its own"))?;
    bare::join_new_keyring().map_err(call("a keyring of its own"))?;
    for (resource, value) in &machine.rlimits {
        bare::set_limit(*resource, *value).map_err(call("a resource limit"))?;
    }
    bare::set_umask(machine.umask);
    rustix::process::chdir(&machine.cwd).map_err(at(machine.cwd.clone()))?;
    bare::drop_bounding().map_err(call("the capabilities' bound"))?;
    bare::clear_ambient().map_err(call("the ambient capabilities"))?;
    bare::clear_groups().map_err(call("the groups"))?;
    bare::set_group(machine.id).map_err(call("the group"))?;
    bare::set_user(machine.id).map_err(call("the user"))?;
    bare::drop_capabilities().map_err(call("the capabilities"))?;
    bare::set_no_new_privs().map_err(call("no_new_privs"))?;
    rustix::stdio::dup2_stdin(socket).map_err(at("descriptor 0"))?;
    rustix::stdio::dup2_stdout(&nothing).map_err(at("descriptor 1"))?;
    rustix::stdio::dup2_stderr(&nothing).map_err(at("descriptor 2"))?;
    bare::set_filter(filter).map_err(call("the filter of system calls"))?;
    machine.attempts.iter().try_for_each(attempted)
}

/// The filter answers as it was planned.
fn attempted(Attempt { number, args, errno }: &Attempt) -> Result<(), Fault> {
    let found = bare::attempt(*number, args).map_err(call("an attempt"))?;
    if bare::answered(*errno, found) {
        return Ok(());
    }
    Err(Fault(format!("the filter of system calls: call {number} is answered by errno {found}, and not by {errno}")))
}

fn execute(machine: &Machine, program: &OwnedFd) -> Fault {
    let texts: Option<Vec<CString>> = machine.environment.iter().map(|text| CString::new(text.as_str()).ok()).collect();
    let Some(texts) = texts else { return Fault("the environment has a zero byte".to_owned()) };
    let pointers = |texts: &[CString]| Pointers::new(texts.len());
    let (Ok(arguments), Ok(environment)) = (Pointers::new(1), pointers(&texts)) else {
        return Fault("no memory for the agent's arguments".to_owned());
    };
    let (arguments, _) = arguments.filled(std::iter::once(c"fumehood-agent"));
    let (environment, _) = environment.filled(texts.iter().map(CString::as_c_str));
    let program = Fd::new(u32::try_from(program.as_raw_fd()).unwrap_or(u32::MAX));
    call("executing the agent")(bare::execute_descriptor(program, &arguments, &environment))
}

fn say(port: impl AsFd, why: &str) {
    let ended = Ended::<()>::Error(failure(Code::Failed, format!("the machine's first process: {why}")));
    let mut bytes = Vec::new();
    let words = serde_json::to_vec(&ended).unwrap_or_default();
    if frame::put(&mut bytes, Frame { kind: Kind::End, stream: super::SECOND, payload: &words }) {
        let _gone = rustix::io::write(port, &bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// fchmod of no descriptor: without a filter the kernel answers EBADF, and no filter's EPERM.
    #[test]
    fn an_answer_that_was_not_planned_is_a_fault() {
        let fchmod = |errno| Attempt { number: 91, args: [u64::MAX, 0, 0, 0, 0, 0], errno };
        assert!(attempted(&fchmod(0)).is_ok());
        let Err(Fault(why)) = attempted(&fchmod(1)) else { panic!("it was not missed") };
        assert!(why.contains("call 91"), "{why}");
        // What would do something is not tried at all: close(2) of our own input.
        assert!(attempted(&Attempt { number: 3, args: [0; 6], errno: 0 }).is_err());
    }
}
