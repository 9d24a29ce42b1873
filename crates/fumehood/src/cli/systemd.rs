//! What systemd hands to a service: sockets that it listens on already, and where to say how we are doing.

use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use sandbox::Environment;

/// The first socket that is handed over.
const FIRST: i32 = 3;
/// Most that are taken.
const MAX_SOCKETS: i32 = 16;
/// Variables that are for us alone, and no sandbox's supervisor.
pub(super) const OURS: [&str; 4] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET"];

fn text<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
    environment.variable(name)?.to_str()
}

/// The sockets that were handed to us: none where they are meant for another process, which left the variables behind.
///
/// # Errors
/// The variables make no sense, or a socket is not there.
pub(super) fn sockets(environment: &Environment) -> Result<Vec<OwnedFd>, String> {
    let meant = text(environment, "LISTEN_PID").and_then(|pid| pid.parse::<u32>().ok());
    if meant != Some(std::process::id()) {
        return Ok(Vec::new());
    }
    let count = text(environment, "LISTEN_FDS").unwrap_or_default();
    let number = count.parse::<i32>().ok().filter(|number| (1..=MAX_SOCKETS).contains(number));
    let number = number.ok_or_else(|| format!("LISTEN_FDS={count} is no number from 1 to {MAX_SOCKETS}"))?;
    let ourselves = pidfd_open(getpid(), PidfdFlags::empty()).map_err(|error| format!("pidfd_open: {error}"))?;
    (FIRST..FIRST.saturating_add(number))
        .map(|at| {
            pidfd_getfd(&ourselves, at, PidfdGetfdFlags::empty()).map_err(|error| format!("descriptor {at}: {error}"))
        })
        .collect()
}

/// Says how we are doing (`READY=1`, `STOPPING=1`) where somebody wants to hear it.
pub(super) fn notify(environment: &Environment, state: &str) {
    let Some(place) = environment.variable("NOTIFY_SOCKET").map(|place| place.as_bytes()) else { return };
    let address = match place.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(place)),
    };
    let said = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if said.is_err() {
        // Whoever wanted to hear it does not listen: it is no reason not to serve.
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn environment(pairs: &[(&str, String)]) -> Environment {
        let env: BTreeMap<_, _> = pairs.iter().map(|(name, value)| ((*name).into(), value.clone().into())).collect();
        Environment::new(None, env, 0)
    }

    #[test]
    fn sockets_of_another_process_are_not_taken_and_nonsense_is_refused() {
        let of = |pid: u32, count: &str| {
            sockets(&environment(&[("LISTEN_PID", pid.to_string()), ("LISTEN_FDS", count.to_owned())]))
        };
        let us = std::process::id();
        assert!(of(us + 1, "1").unwrap().is_empty() && sockets(&environment(&[])).unwrap().is_empty());
        for bad in ["", "0", "-1", "17", "x"] {
            assert!(of(us, bad).is_err(), "{bad}");
        }
        assert_eq!(of(us, "1").map(|taken| taken.len()).unwrap_or(1), 1);
    }

    #[test]
    fn what_is_said_comes_as_one_datagram() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let heard = UnixDatagram::bind(&path).unwrap();
        notify(&environment(&[("NOTIFY_SOCKET", path.to_str().unwrap().to_owned())]), "READY=1");
        let mut text = [0; 32];
        let count = heard.recv(&mut text).unwrap();
        assert_eq!(&text[..count], b"READY=1");
        notify(&environment(&[("NOTIFY_SOCKET", "/nowhere/at/all".to_owned())]), "READY=1");
    }
}
