//! One call over a message bus and its answer: what asking the service manager for a group needs of D-Bus.
//!
//! *Promises*: everything ends by a deadline, the connection itself too; an answer is believed only as far as it is well
//! formed, and nothing of a message decides how much memory is taken beyond [`MAX`].
//!
//! *Does not promise*: more of D-Bus than this. No signals, no descriptors, no objects of our own, one bus by its path.
//! A library of the whole protocol was 0.3 MB of the program, and threads, for one message.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send, socket_with,
};

use crate::error::{Error, ErrorContext as _};

/// Bytes of a message that are read. What is sent to us are names, paths and sentences.
const MAX: usize = 1 << 20;

const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;

const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SIGNATURE: u8 = 8;

/// No answer, or none that helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// The bus cannot be reached, or went away.
    #[error("{0}")]
    Call(#[from] Error),
    /// The deadline passed.
    #[error("nothing came in time")]
    Late,
    /// The bus does not take us for who we are.
    #[error("the bus did not let us in: `{0}`")]
    Unknown(String),
    /// The answer is an error.
    #[error("`{name}`: {text}")]
    Said {
        /// Name of the error.
        name: String,
        /// What it says.
        text: String,
    },
    /// The answer is no message.
    #[error("the bus sent what is no message")]
    Malformed,
}

/// A method of an object of somebody on the bus.
#[derive(Debug)]
pub(super) struct Method<'m> {
    pub(super) to: &'m str,
    pub(super) path: &'m str,
    pub(super) interface: &'m str,
    pub(super) name: &'m str,
    /// Types of the body; empty without one.
    pub(super) signature: &'m str,
}

/// The bus's own first call: it gives us a name, and refuses all others before it.
const HELLO: Method<'_> = Method {
    to: "org.freedesktop.DBus",
    path: "/org/freedesktop/DBus",
    interface: "org.freedesktop.DBus",
    name: "Hello",
    signature: "",
};

/// Connects to the bus at `socket`, calls `method` with `body`, and waits for its answer.
pub(super) fn call(socket: &Path, method: &Method<'_>, body: &Body, deadline: Instant) -> Result<(), BusError> {
    let mut line = Line::open(socket, deadline)?;
    line.greet()?;
    line.ask(1, &HELLO, &Body::default())?;
    line.ask(2, method, body)
}

/// A connection, and what has been read from it beyond what was wanted.
struct Line<'l> {
    fd: OwnedFd,
    name: &'l Path,
    deadline: Instant,
    read: Vec<u8>,
}

impl<'l> Line<'l> {
    fn open(name: &'l Path, deadline: Instant) -> Result<Self, BusError> {
        let object = || name.display().to_string();
        let fd =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).named("socket", object)?;
        let line = Self { fd, name, deadline, read: Vec::new() };
        let address = SocketAddrUnix::new(name).named("connect", object)?;
        // A queue that is full is waited for like a peer that does not read.
        line.wait(Timeout::Send)?;
        line.done("connect", connect(&line.fd, &address))?;
        Ok(line)
    }

    /// Lets the next call take the time that is left.
    fn wait(&self, of: Timeout) -> Result<(), BusError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        // Zero would mean forever.
        if left < Duration::from_micros(1) {
            return Err(BusError::Late);
        }
        self.done("setsockopt", set_socket_timeout(&self.fd, of, Some(left)))
    }

    fn done<T>(&self, call: &'static str, result: rustix::io::Result<T>) -> Result<T, BusError> {
        match result {
            Err(Errno::AGAIN | Errno::INPROGRESS) => Err(BusError::Late),
            other => Ok(other.named(call, || self.name.display().to_string())?),
        }
    }

    fn send(&self, mut bytes: &[u8]) -> Result<(), BusError> {
        while !bytes.is_empty() {
            self.wait(Timeout::Send)?;
            let sent = rustix::io::retry_on_intr(|| send(&self.fd, bytes, SendFlags::NOSIGNAL));
            let sent = self.done("send", sent)?;
            bytes = bytes.get(sent..).unwrap_or_default();
        }
        Ok(())
    }

    fn more(&mut self) -> Result<(), BusError> {
        let mut some = [0; 4096];
        self.wait(Timeout::Recv)?;
        let got = rustix::io::retry_on_intr(|| recv(&self.fd, &mut some, RecvFlags::empty()).map(|(got, _)| got));
        match self.done("recv", got)? {
            0 => Err(Error::new("recv", self.name.display().to_string(), Errno::PIPE).into()),
            got => {
                self.read.extend_from_slice(some.get(..got).unwrap_or_default());
                Ok(())
            }
        }
    }

    /// Says who we are; the bus asks the kernel whether it is true.
    fn greet(&mut self) -> Result<(), BusError> {
        let uid: String = crate::caller::euid().to_string().bytes().map(|digit| format!("{digit:02x}")).collect();
        self.send(format!("\0AUTH EXTERNAL {uid}\r\n").as_bytes())?;
        let answer = loop {
            if let Some(end) = self.read.windows(2).position(|two| two == b"\r\n") {
                break self.read.drain(..end.saturating_add(2)).collect::<Vec<_>>();
            }
            if self.read.len() > MAX {
                return Err(BusError::Malformed);
            }
            self.more()?;
        };
        if !answer.starts_with(b"OK ") {
            return Err(BusError::Unknown(String::from_utf8_lossy(&answer).trim_end().chars().take(80).collect()));
        }
        self.send(b"BEGIN\r\n")
    }

    fn ask(&mut self, serial: u32, method: &Method<'_>, body: &Body) -> Result<(), BusError> {
        self.send(&message(serial, method, body).ok_or(BusError::Malformed)?)?;
        loop {
            let whole = loop {
                match length(&self.read)? {
                    Some(length) if self.read.len() >= length => break self.read.drain(..length).collect::<Vec<_>>(),
                    Some(_) | None => self.more()?,
                }
            };
            let answer = BusReply::read(&whole).ok_or(BusError::Malformed)?;
            // Signals go by.
            if answer.to == Some(serial) {
                return answer.said();
            }
        }
    }
}

/// Values of a message, one after the other, each where its type wants to lie.
#[derive(Debug, Default)]
pub(super) struct Body(Vec<u8>);

impl Body {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    pub(super) fn number(&mut self, value: u32) {
        self.align(4);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// A number of 64 bits.
    pub(super) fn wide(&mut self, value: u64) {
        self.align(8);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn truth(&mut self, value: bool) {
        self.number(u32::from(value));
    }

    /// A text, a name or a path.
    pub(super) fn text(&mut self, value: &str) {
        self.number(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(0);
    }

    /// Types of what follows.
    pub(super) fn types(&mut self, value: &str) {
        self.0.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(0);
    }

    /// What starts a structure.
    pub(super) fn entry(&mut self) {
        self.align(8);
    }

    /// A list: its length in bytes, and what `fill` adds. `to` is where its items want to lie.
    pub(super) fn list(&mut self, to: usize, fill: impl FnOnce(&mut Self)) {
        self.number(0);
        let length_at = self.0.len().saturating_sub(4);
        self.align(to);
        let first = self.0.len();
        fill(self);
        let length = u32::try_from(self.0.len().saturating_sub(first)).unwrap_or(u32::MAX);
        if let Some(place) = self.0.get_mut(length_at..length_at.saturating_add(4)) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }
}

fn message(serial: u32, method: &Method<'_>, body: &Body) -> Option<Vec<u8>> {
    let mut all = Body(vec![b'l', METHOD_CALL, 0, 1]);
    all.number(u32::try_from(body.0.len()).ok()?);
    all.number(serial);
    let texts = [(PATH, "o", method.path), (DESTINATION, "s", method.to), (INTERFACE, "s", method.interface)];
    all.list(8, |all| {
        for (field, kind, text) in texts.into_iter().chain([(MEMBER, "s", method.name)]) {
            all.entry();
            all.0.push(field);
            all.types(kind);
            all.text(text);
        }
        if !method.signature.is_empty() {
            all.entry();
            all.0.push(SIGNATURE);
            all.types("g");
            all.types(method.signature);
        }
    });
    all.align(8);
    all.0.extend_from_slice(&body.0);
    (all.0.len() <= MAX).then_some(all.0)
}

/// Length of the message that starts here; none as long as that has not been read.
fn length(read: &[u8]) -> Result<Option<usize>, BusError> {
    let Some(start) = read.get(..16) else { return Ok(None) };
    let whole = || {
        let mut start = Reader::new(start)?;
        start.at = 4;
        let body = usize::try_from(start.number()?).ok()?;
        start.at = 12;
        let fields = usize::try_from(start.number()?).ok()?;
        let head = fields.checked_add(16)?.checked_next_multiple_of(8)?;
        head.checked_add(body).filter(|length| *length <= MAX)
    };
    whole().map(Some).ok_or(BusError::Malformed)
}

/// What an answer's head says, and the first text of its body.
struct BusReply {
    kind: u8,
    to: Option<u32>,
    error: Option<String>,
    text: Option<String>,
}

impl BusReply {
    fn read(whole: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(whole)?;
        let mut answer = Self { kind: *whole.get(1)?, to: None, error: None, text: None };
        let mut has_text = false;
        reader.at = 12;
        let fields = usize::try_from(reader.number()?).ok()?;
        let end = fields.checked_add(16)?;
        while reader.at < end {
            reader.align(8)?;
            let field = reader.byte()?;
            match (field, reader.types()?.as_str()) {
                (REPLY_SERIAL, "u") => answer.to = Some(reader.number()?),
                (ERROR_NAME, "s") => answer.error = Some(reader.text()?),
                (SIGNATURE, "g") => has_text = reader.types()?.starts_with('s'),
                (_, "s" | "o") => drop(reader.text()?),
                (_, "u") => drop(reader.number()?),
                (_, "g") => drop(reader.types()?),
                _ => return None,
            }
        }
        reader.at = end;
        reader.align(8)?;
        if has_text {
            answer.text = Some(reader.text()?);
        }
        Some(answer)
    }

    fn said(self) -> Result<(), BusError> {
        if self.kind == METHOD_RETURN {
            return Ok(());
        }
        let name = self.error.filter(|_| self.kind == ERROR).ok_or(BusError::Malformed)?;
        Err(BusError::Said { name, text: self.text.unwrap_or_default() })
    }
}

/// Reads values where they lie. Everything past the end is `None`.
struct Reader<'r> {
    bytes: &'r [u8],
    at: usize,
    big: bool,
}

impl<'r> Reader<'r> {
    fn new(bytes: &'r [u8]) -> Option<Self> {
        match bytes.first()? {
            b'l' => Some(Self { bytes, at: 0, big: false }),
            b'B' => Some(Self { bytes, at: 0, big: true }),
            _ => None,
        }
    }

    fn align(&mut self, to: usize) -> Option<()> {
        self.at = self.at.checked_next_multiple_of(to)?;
        Some(())
    }

    fn take(&mut self, count: usize) -> Option<&'r [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn number(&mut self) -> Option<u32> {
        self.align(4)?;
        let bytes = self.take(4)?.try_into().ok()?;
        Some(if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        self.ended(length)
    }

    fn types(&mut self) -> Option<String> {
        let length = usize::from(self.byte()?);
        self.ended(length)
    }

    fn ended(&mut self, length: usize) -> Option<String> {
        let text = std::str::from_utf8(self.take(length)?).ok()?;
        (self.byte()? == 0).then(|| text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error as a bus sends it, cut and changed below.
    fn error() -> Vec<u8> {
        let mut all = Body(vec![b'l', ERROR, 0, 1]);
        all.number(12);
        all.number(77);
        all.list(8, |all| {
            for (field, kind) in [(REPLY_SERIAL, "u"), (ERROR_NAME, "s"), (SIGNATURE, "g")] {
                all.entry();
                all.0.push(field);
                all.types(kind);
                match field {
                    REPLY_SERIAL => all.number(2),
                    ERROR_NAME => all.text("a.b.Denied"),
                    _ => all.types("s"),
                }
            }
        });
        all.align(8);
        all.text("not now");
        all.0
    }

    #[test]
    fn an_error_is_told_by_its_name_and_text() {
        let whole = error();
        assert_eq!(length(&whole).unwrap(), Some(whole.len()));
        let answer = BusReply::read(&whole).unwrap();
        assert_eq!(answer.to, Some(2));
        let said = BusError::Said { name: "a.b.Denied".to_owned(), text: "not now".to_owned() };
        assert_eq!(answer.said(), Err(said));
    }

    #[test]
    fn a_number_of_64_bits_lies_where_its_type_wants_to() {
        let mut body = Body::default();
        body.types("t");
        body.wide(77);
        assert_eq!(body.0, [&[1, b't', 0, 0, 0, 0, 0, 0][..], &77_u64.to_le_bytes()].concat());
    }

    #[test]
    fn a_message_that_is_cut_is_none() {
        let whole = error();
        for cut in 0..whole.len() {
            assert!(BusReply::read(&whole[..cut]).is_none(), "{cut} bytes of it");
        }
    }

    #[test]
    fn a_byte_that_is_changed_is_no_panic_and_no_endless_length() {
        let whole = error();
        for at in 0..whole.len() {
            for value in [0, 1, 4, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                drop(BusReply::read(&changed).map(BusReply::said));
                assert!(length(&changed).map_or(true, |length| length.is_none_or(|length| length <= MAX)));
            }
        }
    }

    #[test]
    fn a_length_of_more_than_is_read_is_refused() {
        let mut whole = error();
        whole[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(length(&whole), Err(BusError::Malformed));
        assert_eq!(length(&whole[..15]), Ok(None));
    }
}
