//! Connections of a network namespace, as `/proc/PID/net` shows them.
//!
//! *Kernel facts*: an address stands there as 32-bit words in the order of the machine's bytes, each in hexadecimal digits. A
//! socket that nobody has open any more has inode 0.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{LARGE, Process};
use crate::error::Result;

/// ESTABLISHED, and FIN_WAIT1 and 2: of a side that has said all it has to say.
const OPEN: [&str; 3] = ["01", "04", "05"];

impl Process {
    /// Inode of the TCP socket of its network namespace that is connected from `from` to `to`, and that somebody has open.
    ///
    /// # Errors
    /// ESRCH: it has ended. EFBIG: there are more than 16 MiB of them.
    pub fn connection(&self, from: SocketAddr, to: SocketAddr) -> Result<Option<u64>> {
        for file in ["net/tcp", "net/tcp6"] {
            match self.text(file, LARGE) {
                Ok(text) => {
                    let found = text.lines().skip(1).find_map(|line| connected(line, from, to));
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                // A kernel without IPv6.
                Err(error) if file == "net/tcp6" && error.errno == rustix::io::Errno::NOENT => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// The inode of a line, if it is this connection.
fn connected(line: &str, from: SocketAddr, to: SocketAddr) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let (local, remote, state) = (fields.nth(1)?, fields.next()?, fields.next()?);
    let inode = fields.nth(5)?.parse().ok().filter(|inode| *inode != 0)?;
    let same = |text: &str, side: SocketAddr| {
        address(text).is_some_and(|(ip, port)| ip == side.ip().to_canonical() && port == side.port())
    };
    (OPEN.contains(&state) && same(local, from) && same(remote, to)).then_some(inode)
}

fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let digits = ip.get(at..at.checked_add(8)?)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (part, at) in bytes.chunks_exact_mut(4).zip([0, 8, 16, 24]) {
                part.copy_from_slice(&word(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some((ip.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_the_kernel_writes_it() {
        let line = |state: &str, inode: &str| {
            format!(
                "   1: 0100007F:BEEF 08080808:01BB {state} 00000000:00000000 00:00000000 00000000  1000        0 {inode} 1 x"
            )
        };
        let (from, to) = ("127.0.0.1:48879".parse().unwrap(), "8.8.8.8:443".parse().unwrap());
        assert_eq!(connected(&line("01", "4711"), from, to), Some(4711));
        assert_eq!(connected(&line("05", "4711"), from, to), Some(4711));
        // Not yet connected, closed by everybody, the other way round, another port, nonsense.
        assert_eq!(connected(&line("02", "4711"), from, to), None);
        assert_eq!(connected(&line("05", "0"), from, to), None);
        assert_eq!(connected(&line("01", "4711"), to, from), None);
        assert_eq!(connected(&line("01", "4711"), from, "8.8.8.8:80".parse().unwrap()), None);
        assert_eq!(connected("  sl  local_address rem_address", from, to), None);
        assert_eq!(connected("1: :::: 0100007F:", from, to), None);
        let six =
            "   0: 0000000000000000FFFF00000100007F:BEEF B80D0120000000000000000001000000:01BB 01 0:0 0:0 0  0 0 7 1 x";
        assert_eq!(connected(six, from, "[2001:db8::1]:443".parse().unwrap()), Some(7));
    }

    #[test]
    fn a_connection_of_this_process_is_found() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(at) else { continue };
            let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (from, to) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
            let found = Process::own().unwrap().connection(from, to).unwrap();
            assert_eq!(found, Some(rustix::fs::fstat(&stream).unwrap().st_ino));
        }
    }
}
