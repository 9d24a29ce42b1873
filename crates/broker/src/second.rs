//! The second client hello of a connection that is passed on. A server may ask for one (`HelloRetryRequest`), and some take the
//! name in it for the one that is meant: so it is judged as the first was, before the server has any of it.
//!
//! Whether it is asked for, the server's first record says in plain. Until then no handshake record of the program goes on;
//! everything else does, early data before all.

use egress::denial::Reason;
use egress::hello::{First, HelloReply, answer, first};
use tokio::net::TcpStream;

use crate::copy;
use crate::meter::Direction;
use crate::run::Run;
use crate::stop::ConnectionEnd;

const HANDSHAKE: u8 = 22;
/// The length of what stands before a record.
const HEAD: usize = 5;
/// Most bytes of a server's that are kept to see what they are.
const MAX_ANSWER: usize = 4 << 10;

/// What a program sends behind its first hello, record by record.
#[derive(Debug, Default)]
struct Records {
    /// What is not passed on: the beginning of a record, or all from the first one of a handshake on.
    held: Vec<u8>,
    /// What is still to come of the record before.
    left: usize,
}

impl Records {
    /// Takes bytes in; what of them may go on.
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let mut passed = Vec::new();
        loop {
            let now = self.left.min(self.held.len());
            passed.extend(self.held.drain(..now));
            self.left = self.left.saturating_sub(now);
            if self.left > 0 || self.is_handshake() {
                return passed;
            }
            let Some([_, _, _, high, low]) = self.held.first_chunk::<HEAD>() else { return passed };
            self.left = usize::from(u16::from_be_bytes([*high, *low])).saturating_add(HEAD);
        }
    }

    /// Whether a record of a handshake is held.
    fn is_handshake(&self) -> bool {
        self.left == 0 && self.held.first() == Some(&HANDSHAKE)
    }
}

/// Passes bytes until it is known that no second hello comes, or it was judged and passed on. `behind` came with the first.
///
/// # Errors
/// It may not be, one side broke off, or `net.bytes` is used up.
pub(crate) async fn judged(
    run: &Run,
    name: &str,
    (program, behind): (&TcpStream, &[u8]),
    server: &TcpStream,
) -> Result<(), ConnectionEnd> {
    let (mut records, mut said, mut answered) = (Records::default(), Vec::new(), HelloReply::More);
    copy::all(server, &records.take(behind)).await?;
    loop {
        if answered == HelloReply::Retry && records.is_handshake() {
            match first(&records.held) {
                First::More | First::NotTls => {}
                First::Malformed(why) => return Err(ConnectionEnd::Denied(Reason::Malformed(why.to_owned()))),
                First::Hello(hello) => {
                    run.rules().hello(name, &hello).map_err(ConnectionEnd::Denied)?;
                    answered = HelloReply::Other;
                }
            }
        }
        if answered == HelloReply::Other {
            return Ok(copy::all(server, &records.held).await?);
        }
        let goes_on = answered == HelloReply::Retry || !records.is_handshake();
        tokio::select! {
            came = copy::some(server, &run.meter, Direction::In) => {
                let came = came?;
                copy::all(program, &came).await?;
                said.extend_from_slice(&came);
                if answered == HelloReply::More {
                    answered = answer(&said);
                }
                // A server that has closed asks for nothing more, nor does one that warns without an end.
                if came.is_empty() || (answered == HelloReply::More && said.len() > MAX_ANSWER) {
                    answered = HelloReply::Other;
                }
                said.truncate(MAX_ANSWER);
            }
            came = copy::some(program, &run.meter, Direction::Out), if goes_on => {
                let came = came?;
                if came.is_empty() {
                    // What is held is no whole hello, and will be none.
                    answered = HelloReply::Other;
                }
                copy::all(server, &records.take(&came)).await?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_a_handshake_goes_on() {
        let early = [&[20, 3, 3, 0, 1, 1][..], &[23, 3, 3, 0, 4, 22, 3, 1, 0]].concat();
        let hello = [22, 3, 1, 0, 2, 1, 0];
        let all = [early.as_slice(), &hello].concat();
        for at in 0..=all.len() {
            let mut records = Records::default();
            let (before, after) = all.split_at(at);
            let passed = [records.take(before), records.take(after)].concat();
            assert_eq!((passed.as_slice(), records.held.as_slice()), (early.as_slice(), &hello[..]), "{at}");
            assert!(records.is_handshake());
        }
        // What is no TLS has no records, and no server reads a hello in it.
        let mut records = Records::default();
        assert_eq!((records.take(b"and more"), records.is_handshake()), (b"and more".to_vec(), false));
    }
}
