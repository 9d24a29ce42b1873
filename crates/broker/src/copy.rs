//! Passes bytes between a program and its server, both ways, as if nobody stood between them.
//!
//! A connection that is quiet holds no buffer: one buffer is shared by all of them, and only what the other side does not take at
//! once is kept beside it. A side that closes its half is told so to the other; a side that breaks off breaks the other off.

use std::cell::RefCell;
use std::io;

use rustix::net::Shutdown;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::meter::{Direction, Meter};
use crate::stop::orderly;

/// The shared buffer: what one read takes at most.
pub(crate) const BUFFER: usize = 128 << 10;

/// What is read at once of a connection whose first records are followed.
const TURN: usize = 16 << 10;

/// What is less is a message, behind which mostly nothing comes for now; where much comes, more is there by the next read.
const MESSAGE: usize = 4 << 10;

thread_local! {
    static SHARED: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER]);
}

/// What one turn of one direction did.
enum Turn {
    /// Nothing was there after all.
    Nothing,
    /// The side closed its half.
    End,
    /// So many bytes came; these the other side did not take yet.
    Moved(usize, Vec<u8>),
}

/// Passes bytes until both sides have closed.
///
/// # Errors
/// One side broke off, or `net.bytes` is used up (`QuotaExceeded`): both are to be reset.
pub(crate) async fn both_ways(inside: &TcpStream, outside: &TcpStream, meter: &Meter) -> io::Result<()> {
    let out = one_way(inside, outside, meter, Direction::Out);
    let back = one_way(outside, inside, meter, Direction::In);
    tokio::try_join!(out, back).map(|((), ())| ())
}

async fn one_way(from: &TcpStream, to: &TcpStream, meter: &Meter, way: Direction) -> io::Result<()> {
    loop {
        from.readable().await?;
        meter.wait().await;
        match turn(from, to, meter)? {
            Turn::Nothing => {}
            Turn::End => {
                // This way is whole: what is still on it goes, whatever ends the connection later.
                orderly(to);
                // The other side may be gone already: then there is nobody to tell.
                return match rustix::net::shutdown(to, Shutdown::Write) {
                    Ok(()) | Err(rustix::io::Errno::NOTCONN) => Ok(()),
                    Err(errno) => Err(errno.into()),
                };
            }
            Turn::Moved(count, rest) => {
                // Before anything is waited for: no other connection is to have this turn as well.
                meter.count(way, count);
                if !rest.is_empty() {
                    all(to, &rest).await?;
                }
            }
        }
        // A connection that never waits must not keep the others from their turn.
        tokio::task::consume_budget().await;
    }
}

fn turn(from: &TcpStream, to: &TcpStream, meter: &Meter) -> io::Result<Turn> {
    SHARED.with_borrow_mut(|buffer| {
        let room = meter.room(buffer.len());
        if room == 0 {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let count = match from.try_read(buffer.get_mut(..room).unwrap_or_default()) {
            Ok(0) => return Ok(Turn::End),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Turn::Nothing),
            Err(error) => return Err(error),
        };
        if count < room.min(MESSAGE) {
            drained(from);
        }
        let taken = match to.try_write(buffer.get(..count).unwrap_or_default()) {
            Ok(taken) => taken,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        Ok(Turn::Moved(count, buffer.get(taken..count).unwrap_or_default().to_vec()))
    })
}

/// A read that had room left has taken all that was there: to be told so by one more would cost as much again. What comes later
/// is an event of its own, which nobody but this thread takes, and that the side has closed stays known.
fn drained(from: &TcpStream) {
    drop(from.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into())));
}

/// What comes next, counted, at most a turn's worth; nothing at the end. Where it is given up nothing was taken.
///
/// # Errors
/// The side broke off, or `net.bytes` is used up (`QuotaExceeded`).
pub(crate) async fn some(from: &TcpStream, meter: &Meter, way: Direction) -> io::Result<Vec<u8>> {
    loop {
        from.readable().await?;
        meter.wait().await;
        let room = meter.room(TURN);
        if room == 0 {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let mut bytes = vec![0; room];
        match from.try_read(&mut bytes) {
            Ok(count) => {
                meter.count(way, count);
                bytes.truncate(count);
                return Ok(bytes);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes all of it, as fast as the other side takes it.
///
/// # Errors
/// The other side broke off.
pub(crate) async fn all(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(taken) => bytes = bytes.get(taken..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
