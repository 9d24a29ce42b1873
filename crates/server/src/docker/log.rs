//! What a container's main program prints, kept as it comes: a file of pieces, which any number of readers follow.
//!
//! How much there can be is `limits.output` of the container's policy: what goes beyond it is given to nobody.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::clock;

/// A piece on the disk: its stream, its time, its length, then its bytes.
const HEAD: usize = 1 + 8 + 4;
/// Longest piece.
const MAX_PIECE: usize = 32 * 1024;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Out,
    Err,
}

impl Lane {
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Out => 1,
            Self::Err => 2,
        }
    }
}

/// Something that was printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) lane: Lane,
    /// Milliseconds since 1970.
    pub(super) at_ms: i64,
    pub(super) bytes: Vec<u8>,
}

impl Piece {
    /// As Docker sends it where there is no terminal: a head of eight bytes that says the stream and the length.
    pub(super) fn framed(lane: Lane, bytes: &[u8]) -> Vec<u8> {
        let mut frame = vec![lane.number(), 0, 0, 0];
        frame.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        frame.extend(bytes);
        frame
    }
}

/// Bytes that are there, and whether more can come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Extent {
    length: u64,
    is_over: bool,
}

/// The output of one container.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: Mutex<Option<File>>,
    extent: watch::Sender<Extent>,
}

impl Log {
    /// What was kept before; `is_over`: nothing comes any more.
    pub(super) fn open(path: PathBuf, is_over: bool) -> Self {
        let length = std::fs::metadata(&path).map_or(0, |found| found.len());
        Self { path, file: Mutex::default(), extent: watch::Sender::new(Extent { length, is_over }) }
    }

    /// Begins again with nothing.
    pub(super) fn clear(&self) {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if std::fs::remove_file(&self.path).is_err() {
            // There was none.
        }
        self.extent.send_replace(Extent::default());
    }

    /// Keeps what was printed. What cannot be written is lost to those who ask later, and the program goes on.
    pub(super) fn append(&self, lane: Lane, bytes: &[u8]) {
        let mut pieces = Vec::with_capacity(bytes.len().saturating_add(HEAD));
        for piece in bytes.chunks(MAX_PIECE) {
            pieces.push(lane.number());
            pieces.extend(clock::now_ms().to_be_bytes());
            pieces.extend(u32::try_from(piece.len()).unwrap_or(0).to_be_bytes());
            pieces.extend(piece);
        }
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_none() {
            *file = File::options().append(true).create(true).mode(0o600).open(&self.path).ok();
        }
        let Some(file) = &mut *file else { return };
        if file.write_all(&pieces).is_ok() {
            let more = u64::try_from(pieces.len()).unwrap_or(0);
            self.extent.send_modify(|extent| extent.length = extent.length.saturating_add(more));
        } else if file.set_len(self.end()).is_err() {
            // A part of a piece stays, and readers end there.
        }
    }

    /// Nothing comes any more.
    pub(super) fn close(&self) {
        self.extent.send_modify(|extent| extent.is_over = true);
    }

    /// Where its end is now.
    pub(super) fn end(&self) -> u64 {
        self.extent.borrow().length
    }

    /// What is there from this place on, and, where it is to be followed, what comes.
    pub(super) fn read(&self, from: u64, follow: bool) -> Reader {
        Reader { path: self.path.clone(), file: None, at: from, extent: self.extent.subscribe(), follow }
    }
}

/// Somebody who reads a log.
#[derive(Debug)]
pub(super) struct Reader {
    path: PathBuf,
    file: Option<File>,
    at: u64,
    extent: watch::Receiver<Extent>,
    follow: bool,
}

impl Reader {
    /// Where it is.
    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    /// The next piece; none at the end.
    pub(super) async fn next(&mut self) -> Option<Piece> {
        loop {
            let extent = *self.extent.borrow_and_update();
            if self.at < extent.length {
                return self.piece().ok();
            }
            if !self.follow || extent.is_over || self.extent.changed().await.is_err() {
                return None;
            }
        }
    }

    fn piece(&mut self) -> io::Result<Piece> {
        let torn = || io::Error::from(io::ErrorKind::InvalidData);
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(File::open(&self.path)?),
        };
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, self.at)?;
        let mut rest = head.as_slice();
        let (mut lane, mut at, mut length) = ([0; 1], [0; 8], [0; 4]);
        rest.read_exact(&mut lane)?;
        rest.read_exact(&mut at)?;
        rest.read_exact(&mut length)?;
        let length = usize::try_from(u32::from_be_bytes(length)).ok().filter(|length| *length <= MAX_PIECE);
        let mut bytes = vec![0; length.ok_or_else(torn)?];
        file.read_exact_at(&mut bytes, self.at.saturating_add(u64::try_from(HEAD).unwrap_or(0)))?;
        let whole = u64::try_from(HEAD.saturating_add(bytes.len())).unwrap_or(0);
        self.at = self.at.saturating_add(whole);
        let lane = if lane == [Lane::Out.number()] { Lane::Out } else { Lane::Err };
        Ok(Piece { lane, at_ms: i64::from_be_bytes(at), bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_has_what_was_there_and_what_comes() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::open(folder.path().join("log"), false);
        log.append(Lane::Out, b"one");
        let (mut follows, mut looks) = (log.read(0, true), log.read(0, false));
        assert_eq!(looks.next().await.unwrap().bytes, b"one");
        assert_eq!(looks.next().await, None);
        assert_eq!(follows.next().await.unwrap().lane, Lane::Out);
        log.append(Lane::Err, &[7; MAX_PIECE + 1]);
        log.close();
        let (first, second) = (follows.next().await.unwrap(), follows.next().await.unwrap());
        assert_eq!((first.lane, first.bytes.len(), second.bytes.len()), (Lane::Err, MAX_PIECE, 1));
        assert_eq!(follows.next().await, None);
        let again = Log::open(folder.path().join("log"), true);
        assert_eq!(again.read(0, true).next().await.unwrap().bytes, b"one");
    }

    #[test]
    fn a_frame_says_stream_and_length() {
        assert_eq!(Piece::framed(Lane::Err, b"ab"), [2, 0, 0, 0, 0, 0, 0, 2, b'a', b'b']);
    }
}
