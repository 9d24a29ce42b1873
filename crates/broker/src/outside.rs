//! The way out: connects to the first of several addresses that answers.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::stop::reset;

/// When there is no answer by then, the program inside is told so.
const ALL: Duration = Duration::from_millis(2500);
/// How long one address is alone before the next is tried beside it (RFC 8305).
const APART: Duration = Duration::from_millis(250);
/// After so long without a byte a server is asked whether it is there: middle boxes forget what is quiet for some minutes.
const QUIET: Duration = Duration::from_secs(60);
/// How often it is asked again, and how many times it may stay silent: two minutes after its last word it is taken for dead.
const ASKED_EVERY: Duration = Duration::from_secs(15);
const ASKED: u32 = 4;
/// Addresses that are tried.
const MAX_ADDRESSES: usize = 8;

/// The address from which something to this one would leave; none: there is no route to it. Nothing is sent.
pub(crate) fn source(address: IpAddr) -> Option<IpAddr> {
    let any: SocketAddr = if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let from = UdpSocket::bind(any).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    from.ok().map(|from| from.ip())
}

/// Whether an address is one of this machine's own: what is sent to it would leave from it.
pub(crate) fn is_own(address: IpAddr) -> bool {
    source(address) == Some(address)
}

/// Has the kernel ask a server that is silent whether it is still there: without an answer the connection ends, and its place
/// is free. A program cannot see to that itself: what it sets on its own socket the broker's kernel answers. Towards programs
/// nothing is asked: theirs is the same kernel, or a machine that may be paused for as long as one likes.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_keepidle(stream, QUIET)?;
    sockopt::set_tcp_keepintvl(stream, ASKED_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, ASKED)?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}

/// A connection to the first address that answers; families take turns, each try starts a moment after the one before. Until it is
/// said to be orderly, its end is a reset.
///
/// # Errors
/// None answered in time, or what the last of them said.
pub(crate) async fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let connected = match addresses {
        [one] => timeout(ALL, TcpStream::connect(*one)).await,
        several => timeout(ALL, race(in_turns(several))).await,
    };
    let stream = connected.unwrap_or_else(|_late| Err(io::ErrorKind::TimedOut.into()))?;
    stream.set_nodelay(true)?;
    keep_alive(&stream)?;
    reset(&stream);
    Ok(stream)
}

fn in_turns(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let (mut v6, mut v4): (Vec<_>, Vec<_>) = addresses.iter().copied().partition(SocketAddr::is_ipv6);
    let mut turns = Vec::new();
    v6.reverse();
    v4.reverse();
    while turns.len() < MAX_ADDRESSES && !(v6.is_empty() && v4.is_empty()) {
        turns.extend(v6.pop());
        turns.extend(v4.pop());
    }
    turns
}

async fn race(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut tries = JoinSet::new();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let mut rest = addresses.into_iter();
    loop {
        let next = rest.next();
        let is_last = next.is_none();
        if let Some(address) = next {
            tries.spawn_local(TcpStream::connect(address));
        }
        loop {
            let ended = tokio::select! {
                ended = tries.join_next() => ended,
                () = sleep(APART), if !is_last => break,
            };
            match ended {
                Some(Ok(Ok(stream))) => return Ok(stream),
                Some(Ok(Err(error))) => last = error,
                Some(Err(_)) => {}
                None if is_last => return Err(last),
                None => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns() {
        let of = |text: &str| text.parse::<SocketAddr>().unwrap();
        let all = [of("192.0.2.1:1"), of("192.0.2.2:1"), of("[2001:db8::1]:1")];
        assert_eq!(in_turns(&all), [of("[2001:db8::1]:1"), of("192.0.2.1:1"), of("192.0.2.2:1")]);
        let many: Vec<_> = (0..50).map(|n| SocketAddr::from(([192, 0, 2, n], 1))).collect();
        assert_eq!(in_turns(&many).len(), MAX_ADDRESSES);
    }

    #[test]
    fn loopback_is_our_own_and_the_world_is_not() {
        assert!(is_own("127.0.0.1".parse().unwrap()) && is_own("::1".parse().unwrap()));
        assert!(!is_own("192.0.2.1".parse().unwrap()));
    }
}
