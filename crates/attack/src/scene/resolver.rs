//! A resolver on the host: one that answers everything, one that has a name where a row wants it, and one that moves a name once it
//! was asked for it (rebinding).

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::web::Heard;

/// How long a connection may be quiet.
const QUIET: Duration = Duration::from_millis(700);
/// How often another free port is tried.
const MAX_TRIES: u32 = 20;
/// An address that counts as public and is nobody's: it is for documents.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Types of questions.
const A: u16 = 1;
const AAAA: u16 = 28;

/// What it says.
pub(super) enum Answers {
    /// One record of the type that was asked for, whatever that is.
    One,
    /// There is no such name; which were asked for is kept.
    None(Heard),
    /// A name is at a public address when it is first asked for, and then there; an answer is good for no time.
    Moving {
        /// Where it is then.
        to: IpAddr,
        /// Set once that was said.
        told: Arc<AtomicBool>,
    },
    /// Every name is there.
    There {
        /// Where.
        to: IpAddr,
        /// Set once that was said.
        told: Arc<AtomicBool>,
    },
}

/// Answers at `at` until `over`, datagrams and connections; where, and the thread that does.
pub(super) fn serve(at: &str, answers: Answers, over: Arc<AtomicBool>) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let (socket, listener) = both(at)?;
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    let at = socket.local_addr()?;
    listener.set_nonblocking(true)?;
    let thread = std::thread::Builder::new().spawn(move || {
        let mut asked = Vec::new();
        while !over.load(Ordering::Acquire) {
            // Who does not take an answer has none.
            let _datagram = datagram(&socket, &answers, &mut asked);
            let _stream = listener.accept().and_then(|(stream, _)| connection(stream, &answers, &mut asked));
        }
    })?;
    Ok((at, thread))
}

/// Datagrams and connections at one port; of a free one somebody may have the other half.
fn both(at: &str) -> io::Result<(UdpSocket, TcpListener)> {
    let mut tries = 0;
    loop {
        let socket = UdpSocket::bind(at)?;
        match TcpListener::bind(socket.local_addr()?) {
            Ok(listener) => return Ok((socket, listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < MAX_TRIES => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

fn datagram(socket: &UdpSocket, answers: &Answers, asked: &mut Vec<u16>) -> io::Result<usize> {
    let mut text = [0; 2048];
    let (length, from) = socket.recv_from(&mut text)?;
    socket.send_to(&answer(text.get(..length).unwrap_or_default(), answers, asked), from)
}

fn connection(mut stream: TcpStream, answers: &Answers, asked: &mut Vec<u16>) -> io::Result<()> {
    let mut text = [0; 2048];
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(QUIET))?;
    let length = stream.read(&mut text)?;
    let said = answer(text.get(2..length).unwrap_or_default(), answers, asked);
    let size = u16::try_from(said.len()).unwrap_or(0).to_be_bytes();
    stream.write_all(&[&size, said.as_slice()].concat())
}

/// What is said to a question; `asked` are the types that were asked for before.
fn answer(question: &[u8], answers: &Answers, asked: &mut Vec<u16>) -> Vec<u8> {
    let kind = kind(question);
    let (to, told) = match answers {
        Answers::Moving { to, told } if asked.contains(&kind) => (to, told),
        Answers::Moving { .. } => {
            asked.push(kind);
            return record(question, (kind == A).then_some(&PUBLIC.octets()));
        }
        Answers::There { to, told } => (to, told),
        Answers::One => return record(question, Some(&PUBLIC.octets())),
        Answers::None(asked) => {
            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.extend_from_slice(question.get(12..end_of_name(question)).unwrap_or_default());
            return no_name(question);
        }
    };
    let said = match to {
        IpAddr::V4(to) if kind == A => record(question, Some(&to.octets())),
        IpAddr::V6(to) if kind == AAAA => record(question, Some(&to.octets())),
        IpAddr::V4(_) | IpAddr::V6(_) => return record(question, None),
    };
    told.store(true, Ordering::Release);
    said
}

/// Where the name of a question ends, and its type begins.
fn end_of_name(question: &[u8]) -> usize {
    let name = question.get(12..).unwrap_or_default().iter().position(|byte| *byte == 0).unwrap_or(0);
    12 + name + 1
}

fn kind(question: &[u8]) -> u16 {
    let end = end_of_name(question);
    question.get(end..end + 2).and_then(|two| two.try_into().ok()).map_or(A, u16::from_be_bytes)
}

/// The answer to a question: of the type and class that was asked for, with these bytes; without any there is none.
fn record(question: &[u8], data: Option<&[u8]>) -> Vec<u8> {
    let mut said = question.to_vec();
    let count = u8::from(data.is_some());
    // A response, no error; one question, one answer or none, nothing else (what follows the question stays behind).
    for (at, byte) in [(2, 0x84), (3, 0), (6, 0), (7, count), (8, 0), (9, 0), (10, 0), (11, 0)] {
        if let Some(place) = said.get_mut(at) {
            *place = byte;
        }
    }
    let end = end_of_name(question) + 4;
    let kind: Vec<u8> = question.get(end - 4..end).unwrap_or(&[0, 1, 0, 1]).to_vec();
    said.truncate(end);
    if let Some(data) = data {
        let length = u16::try_from(data.len()).unwrap_or(0).to_be_bytes();
        said.extend([&[0xc0, 12], kind.as_slice(), &[0, 0, 0, 0], &length, data].concat());
    }
    said
}

/// The answer that there is no such name.
fn no_name(question: &[u8]) -> Vec<u8> {
    let mut said = record(question, None);
    if let Some(byte) = said.get_mut(3) {
        *byte = 3;
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(kind: u8) -> Vec<u8> {
        let mut question = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        question.extend([&b"\x01a\x00\x00"[..], &[kind], b"\x00\x01extra"].concat());
        question
    }

    #[test]
    fn a_question_is_answered_with_one_record_of_its_kind() {
        let said = answer(&question(16), &Answers::One, &mut Vec::new());
        assert_eq!(said.get(..12).unwrap(), [7, 7, 0x84, 0, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert!(
            said.ends_with(
                b"\x01a\x00\x00\x10\x00\x01\xc0\x0c\x00\x10\x00\x01\x00\x00\x00\x00\x00\x04\xc0\x00\x02\x01"
            )
        );
    }

    #[test]
    fn a_name_is_where_a_row_wants_it_and_is_told_in_its_own_family_alone() {
        let (to, told): (IpAddr, _) = ("64:ff9b::a9fe:a9fe".parse().unwrap(), Arc::<AtomicBool>::default());
        let there = Answers::There { to, told: Arc::clone(&told) };
        assert_eq!(answer(&question(1), &there, &mut Vec::new()).get(7), Some(&0), "nothing of the other type");
        assert!(!told.load(Ordering::Acquire));
        let said = answer(&question(28), &there, &mut Vec::new());
        assert!(said.ends_with(&[0, 0, 0xa9, 0xfe, 0xa9, 0xfe]) && told.load(Ordering::Acquire));
    }

    #[test]
    fn a_name_moves_once_it_was_asked_for() {
        for (to, kind, length) in [("127.0.0.1", 1, 4), ("::ffff:127.0.0.1", 28, 16)] {
            let (to, told, mut asked): (IpAddr, _, _) = (to.parse().unwrap(), Arc::<AtomicBool>::default(), Vec::new());
            let moving = Answers::Moving { to, told: Arc::clone(&told) };
            let first = answer(&question(1), &moving, &mut asked);
            assert!(first.ends_with(&PUBLIC.octets()));
            assert_eq!(answer(&question(28), &moving, &mut asked).get(7), Some(&0), "nothing of the other type");
            assert!(!told.load(Ordering::Acquire));
            let then = answer(&question(kind), &moving, &mut asked);
            assert!(
                then.ends_with(&[127, 0, 0, 1])
                    && then.get(then.len() - length - 1) == Some(&u8::try_from(length).unwrap())
            );
            assert!(told.load(Ordering::Acquire));
        }
    }
}
