//! Firecracker: what it is told, the line to the machine's first process, and what its threads must show.
//!
//! # Promises
//! It is told all at its start, by a file, and takes no orders: there is no socket for them. The machine has disks that are only read
//! and one channel; no network device and no bus on which one could be found.
//! # Does not promise
//! A snapshot or a fork: nobody could ask for one.

use std::ffi::OsString;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::outer::{INITIAL, KERNEL, KERNEL_WORDS, ROOT, SHOWN, WORKSPACE, planned, processors};
use crate::StartError;
use crate::native::blueprint::Blueprint;

/// What it is told, beside what the machine is made of.
pub(super) const CONFIG: &str = "config";
/// Where it is there.
pub(super) const PROGRAM: &str = "firecracker";
/// The socket of the machine's channel, in a folder of its own sandbox that holds nothing else: a machine reaches every socket whose
/// name begins with this one.
const SOCKET: &str = "/dev/shm/agent";
/// The machine's address; any number above those that have a meaning.
const ADDRESS: u32 = 3;
/// Between two tries to reach who is not there yet.
const AGAIN: Duration = Duration::from_millis(50);
/// Longest answer to a connection: `OK`, a number and a line's end.
const MAX_ANSWER: usize = 16;

/// Its words.
pub(super) fn words() -> Vec<OsString> {
    let (program, config) = (format!("{SHOWN}/{PROGRAM}"), format!("{SHOWN}/{CONFIG}"));
    [program.as_str(), "--id", "machine", "--level", "Error", "--no-api", "--config-file", &config]
        .map(Into::into)
        .to_vec()
}

/// What it is told by its file: all that the machine has.
///
/// # Errors
/// A part of every machine is not planned: its memory, that it has no network.
pub(super) fn config(blueprint: &Blueprint, workspace: bool) -> Result<Vec<u8>, StartError> {
    let parts = &blueprint.machine;
    planned((parts.no_network && parts.network.is_none()).then_some(()), "a machine without a network")?;
    let at = |name: &str| format!("{SHOWN}/{name}");
    let drive = |name: &str, file: &str| json!({ "drive_id": name, "path_on_host": at(file), "is_root_device": false, "is_read_only": true });
    let drives: Vec<Value> = [("root", ROOT, true), ("workspace", WORKSPACE, workspace)]
        .into_iter()
        .filter(|(_, _, has)| *has)
        .map(|(name, file, _)| drive(name, file))
        .collect();
    let words = format!("{KERNEL_WORDS} reboot=k 8250.nr_uarts=0 -- {}", agent::machine::BY_VSOCK);
    let config = json!({
        "boot-source": { "kernel_image_path": at(KERNEL), "initrd_path": at(INITIAL), "boot_args": words },
        "drives": drives,
        // Rounded down: never more than is planned.
        "machine-config": { "vcpu_count": processors(blueprint), "mem_size_mib": planned(parts.memory, "memory")? >> 20 },
        "vsock": { "guest_cid": ADDRESS, "uds_path": SOCKET },
    });
    Ok(config.to_string().into_bytes())
}

/// The line to the machine's first process, as soon as that waits: over the socket that the emulator of this process has made in its
/// own sandbox. Nothing of the caller's has run there, and nobody connects a second time.
pub(super) fn line(emulator: i32, until: Instant) -> Result<OwnedFd, String> {
    let path = format!("/proc/{emulator}/root{SOCKET}");
    loop {
        let came = UnixStream::connect(&path).and_then(|stream| asked(stream, until));
        match came {
            Ok(stream) => return Ok(stream.into()),
            Err(error) if Instant::now() >= until => return Err(format!("the machine's channel: {error}")),
            // There is no socket yet, or nobody in the machine waits at the port.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) => return Err(format!("the machine's channel: {error}")),
        }
        if std::fs::metadata(format!("/proc/{emulator}")).is_err() {
            return Err("the emulator ended".to_owned());
        }
        drop(sys::channel::wait(&[], Some(AGAIN)));
    }
}

/// Asks for the port, and takes the answer, of which no byte more is read than it has: what follows is the machine's.
fn asked(mut stream: UnixStream, until: Instant) -> std::io::Result<UnixStream> {
    stream.set_nonblocking(true)?;
    stream.write_all(format!("CONNECT {}\n", agent::machine::PORT).as_bytes())?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\n") {
        let interest = sys::channel::Interest { fd: stream.as_fd(), write: false };
        let ready = sys::channel::wait_until(&[interest], Some(until));
        if ready.map_err(|error| std::io::Error::from(error.errno))? != [true] {
            return Err(ErrorKind::TimedOut.into());
        }
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => answer.extend_from_slice(&byte),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        if answer.len() > MAX_ANSWER {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    if answer.starts_with(b"OK ") { Ok(stream) } else { Err(ErrorKind::InvalidData.into()) }
}

#[cfg(test)]
mod tests {
    use policy::control::{Accelerator, Emulator};
    use policy::value::Threat;

    use super::*;

    fn blueprint() -> Blueprint {
        let mut blueprint = Blueprint::default();
        blueprint.machine.emulator = Some((Emulator::Firecracker, Accelerator::Kvm, Threat::Hostile));
        blueprint.machine.memory = Some((256 << 20) + 4095);
        blueprint.machine.no_network = true;
        blueprint
    }

    #[test]
    fn all_that_a_machine_has_stands_in_one_file_and_nobody_is_asked_for_more() {
        let config =
            |workspace| -> Value { serde_json::from_slice(&config(&blueprint(), workspace).unwrap()).unwrap() };
        let (with, without) = (config(true), config(false));
        assert_eq!(with["machine-config"], json!({ "vcpu_count": 1, "mem_size_mib": 256 }));
        let keys: Vec<&String> = with.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["boot-source", "drives", "machine-config", "vsock"]);
        let drives = |config: &Value| config["drives"].as_array().unwrap().clone();
        assert_eq!((drives(&with).len(), drives(&without).len()), (2, 1));
        assert!(drives(&with).iter().all(|drive| drive["is_read_only"] == true), "{with}");
        let words = words().join(" ".as_ref()).into_string().unwrap();
        assert!(words.contains("--no-api"), "{words}");
        for never in ["--no-seccomp", "--seccomp-filter", "--api-sock", "--enable-pci", "--boot-timer"] {
            assert!(!words.contains(never), "{words}");
        }
    }

    #[test]
    fn a_machine_with_a_network_or_without_memory_is_none() {
        let mut networked = blueprint();
        networked.machine.network = Some(false);
        let (mut open, mut without) = (blueprint(), blueprint());
        (open.machine.no_network, without.machine.memory) = (false, None);
        for odd in [networked, open, without] {
            assert!(config(&odd, false).is_err(), "{odd:?}");
        }
    }

    /// An emulator that answers one connection so; what came of it, and what is read behind the answer.
    fn answered(answer: &'static [u8]) -> std::io::Result<Vec<u8>> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(answer).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let mut stream = asked(ours, Instant::now() + Duration::from_secs(20))?;
        let (mut said, mut rest) = ([0; 10], Vec::new());
        theirs.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"CONNECT 1\n");
        stream.read_to_end(&mut rest)?;
        Ok(rest)
    }

    #[test]
    fn what_follows_the_answer_is_the_machines_and_anything_else_is_an_error() {
        assert_eq!(answered(b"OK 1073741824\nframe\n").unwrap(), b"frame\n");
        for odd in [&b""[..], b"OK 1", b"NO\n", b"OK 11111111111111111111111\n"] {
            assert!(answered(odd).is_err(), "{odd:?}");
        }
    }

    #[test]
    fn an_emulator_that_is_not_there_is_not_waited_for() {
        let began = Instant::now();
        // No process has this number.
        assert!(line(i32::MAX, began + Duration::from_secs(60)).unwrap_err().contains("ended"));
    }
}
