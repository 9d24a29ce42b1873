//! Connections on which nothing goes: they stay, for as long as somebody is at the other end.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use serde_json::json;

use crate::HOST;
use crate::stage::{WORLD, connect, echo, exchange, staged, wait};

/// The broker's own sockets to this server, in the order in which they were connected: broker and test are one process.
fn outside(server: SocketAddr) -> Vec<OwnedFd> {
    let process = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().file_name());
    let numbers: BTreeSet<i32> = numbers.map(|name| name.to_str().unwrap().parse().unwrap()).collect();
    let is_to = |fd: &OwnedFd| {
        let peer = rustix::net::getpeername(fd).ok().flatten();
        peer.and_then(|peer| SocketAddr::try_from(peer).ok()) == Some(server)
    };
    // Those that were closed meanwhile are nobody's; and a number of those may be one of ours by now.
    let fds = numbers.into_iter().filter_map(|fd| pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()).ok());
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for fd in fds.filter(is_to) {
        let own = SocketAddr::try_from(rustix::net::getsockname(&fd).unwrap()).unwrap();
        if seen.insert(own) {
            found.push(fd);
        }
    }
    found
}

/// What of `now` was not there before.
fn newer(before: &[OwnedFd], now: Vec<OwnedFd>) -> OwnedFd {
    let own = |fd: &OwnedFd| SocketAddr::try_from(rustix::net::getsockname(fd).unwrap()).unwrap();
    let known: BTreeSet<SocketAddr> = before.iter().map(own).collect();
    let mut new = now.into_iter().filter(|fd| !known.contains(&own(fd)));
    new.next().expect("one more")
}

/// Seconds instead of minutes.
fn hasten(socket: &OwnedFd) {
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(1)).unwrap();
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(1)).unwrap();
    sockopt::set_tcp_keepcnt(socket, 2).unwrap();
}

fn greeted(mut stream: TcpStream) -> TcpStream {
    stream.read_exact(&mut [0; 7]).unwrap();
    stream
}

/// A server that is asked and answers keeps its connection however long nothing is said; one that does not loses it, and its place
/// is free. Without the question it would be held for ever.
#[test]
fn a_silent_connection_lasts_as_long_as_its_server() {
    staged("idle::a_silent_connection_lasts_as_long_as_its_server", |stage| {
        stage.server((WORLD, 22), echo);
        let mut engine = stage.broker(&json!({"allow": [{"host": HOST, "ports": [22]}], "connections": 3}));
        engine.ready();
        let open = || greeted(stage.program(|| connect(HOST, 22)));
        let (live, first) = (open(), outside((WORLD, 22).into()));
        let [socket] = first.as_slice() else { panic!("{first:?}") };
        assert!(sockopt::socket_keepalive(socket).unwrap(), "what is silent is asked");
        assert_eq!(sockopt::tcp_keepidle(socket).unwrap(), Duration::from_secs(60));
        let dead = open();
        let before = outside((WORLD, 22).into());
        let unasked = open();
        // The third is as it would be without the option.
        let last = newer(&before, outside((WORLD, 22).into()));
        sockopt::set_socket_keepalive(&last, false).unwrap();
        let sockets = outside((WORLD, 22).into());
        assert_eq!(sockets.len(), 3);
        sockets.iter().for_each(hasten);
        // Longer than a server that is not there would be given.
        wait(Duration::from_secs(5));
        assert_eq!(exchange(live, b"still", true).unwrap(), "still");
        stage.world_is_gone();
        let begun = Instant::now();
        let ended = |mut stream: &TcpStream| {
            stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            !matches!(stream.read(&mut [0]), Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
        };
        let mut over = [false; 2];
        while begun.elapsed() < Duration::from_secs(8) {
            for (stream, over) in [&dead, &unasked].into_iter().zip(&mut over) {
                *over = *over || ended(stream);
            }
        }
        assert_eq!(over, [true, false], "the one that is asked, and it alone");
        let usage = engine.used();
        assert!(usage.connections == 3 && usage.open <= 1, "its place is free: {usage:?}");
    });
}
