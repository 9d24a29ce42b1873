//! Files of a tar stream whose holes were left out: the map that says where the pieces belong that were kept, in the four forms that
//! GNU tar and libarchive write, and the content put together again.

use std::io;

use tar::{GnuExtSparseHeader, Header};

/// More pieces than a file has that anybody packs.
const MAX_PIECES: usize = 1 << 16;
/// No place in a file lies farther.
const MAX_PLACE: u64 = 1 << 62;
/// Bytes of a block.
const BLOCK: usize = 512;

fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the map of a file with holes is malformed")
}

/// A piece that was kept: its place in the file, and its length.
type Piece = (u64, u64);

/// What extended headers say of a file with holes.
#[derive(Debug, Default)]
pub(crate) struct SparseHeaders {
    pub(crate) name: Option<Vec<u8>>,
    size: Option<u64>,
    major: Option<u64>,
    /// The place of a piece whose length is still to come.
    place: Option<u64>,
    pieces: Vec<Piece>,
    any: bool,
}

impl SparseHeaders {
    /// Whether anything was said.
    pub(crate) const fn any(&self) -> bool {
        self.any
    }

    /// A record whose name begins with `GNU.sparse.`; `key` is the rest.
    pub(crate) fn take(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.any = true;
        match key {
            b"name" => self.name = Some(value.to_vec()),
            b"size" | b"realsize" => self.size = Some(number(value)?),
            b"major" => self.major = Some(number(value)?),
            b"offset" => self.place = Some(number(value)?),
            b"numbytes" => {
                let place = self.place.take().ok_or_else(wrong)?;
                self.piece((place, number(value)?))?;
            }
            b"map" => {
                let mut numbers = value.split(|byte| *byte == b',');
                while let Some(place) = numbers.next() {
                    let length = numbers.next().ok_or_else(wrong)?;
                    self.piece((number(place)?, number(length)?))?;
                }
            }
            // How many there are, the pieces say.
            b"numblocks" | b"minor" => {}
            _ => return Err(wrong()),
        }
        Ok(())
    }

    fn piece(&mut self, piece: Piece) -> io::Result<()> {
        self.pieces.push(piece);
        if self.pieces.len() > MAX_PIECES { Err(wrong()) } else { Ok(()) }
    }

    /// The map, where the content begins with it (form 1.0): `block` gives the next block of the content.
    pub(crate) fn map(self, block: impl FnMut() -> io::Result<[u8; BLOCK]>) -> io::Result<Holes> {
        let size = self.size.ok_or_else(wrong)?;
        let pieces = match self.major {
            Some(1) => before_content(block)?,
            None | Some(0) => self.pieces,
            Some(_) => return Err(wrong()),
        };
        Holes::new(pieces, size)
    }
}

/// Decimal, as all of these are written.
fn number(text: &[u8]) -> io::Result<u64> {
    let digits = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).filter(|number| *number <= MAX_PLACE).ok_or_else(wrong)
}

/// Numbers, each on a line: how many pieces, then place and length of each; up to a whole block.
fn before_content(mut block: impl FnMut() -> io::Result<[u8; BLOCK]>) -> io::Result<Vec<Piece>> {
    let (mut numbers, mut digits) = (Vec::new(), Vec::new());
    loop {
        for byte in block()? {
            let wanted = numbers.first().map_or(1, |count: &u64| count.saturating_mul(2).saturating_add(1));
            if u64::try_from(numbers.len()).unwrap_or(u64::MAX) >= wanted {
                break;
            }
            if byte != b'\n' {
                digits.push(byte);
                if digits.len() > 20 {
                    return Err(wrong());
                }
                continue;
            }
            numbers.push(number(&digits)?);
            digits.clear();
            if numbers.first().is_some_and(|count| *count > MAX_PIECES as u64) {
                return Err(wrong());
            }
        }
        if let Some((count, rest)) = numbers.split_first()
            && u64::try_from(rest.len()).unwrap_or(u64::MAX) == count.saturating_mul(2)
        {
            return Ok(rest.chunks_exact(2).filter_map(|pair| Some((*pair.first()?, *pair.get(1)?))).collect());
        }
    }
}

/// The map of GNU's own form: in the header, and in blocks behind it.
pub(crate) fn of_header(header: &Header, mut block: impl FnMut() -> io::Result<[u8; BLOCK]>) -> io::Result<Holes> {
    let gnu = header.as_gnu().ok_or_else(wrong)?;
    let mut pieces = Vec::new();
    let mut more = gnu.is_extended();
    let mut take = |entries: &[tar::GnuSparseHeader]| {
        for entry in entries.iter().filter(|entry| !entry.is_empty()) {
            pieces.push((entry.offset().map_err(|_form| wrong())?, entry.length().map_err(|_form| wrong())?));
        }
        if pieces.len() > MAX_PIECES { Err(wrong()) } else { Ok(()) }
    };
    take(&gnu.sparse)?;
    while more {
        let mut next = GnuExtSparseHeader::new();
        next.as_mut_bytes().copy_from_slice(&block()?);
        take(next.sparse())?;
        more = next.is_extended();
    }
    Holes::new(pieces, gnu.real_size().map_err(|_form| wrong())?)
}

/// A file's pieces, and how far it was given.
#[derive(Debug)]
pub(crate) struct Holes {
    pieces: Vec<Piece>,
    next: usize,
    at: u64,
    pub(crate) size: u64,
}

impl Holes {
    /// Pieces in order, none over another, all within the file.
    fn new(pieces: Vec<Piece>, size: u64) -> io::Result<Self> {
        let mut end = 0;
        for (place, length) in &pieces {
            if *place < end || *place > MAX_PLACE || *length > MAX_PLACE {
                return Err(wrong());
            }
            end = place.saturating_add(*length);
        }
        if end > size || size > MAX_PLACE { Err(wrong()) } else { Ok(Self { pieces, next: 0, at: 0, size }) }
    }

    /// Bytes of all pieces.
    pub(crate) fn stored(&self) -> u64 {
        self.pieces.iter().fold(0, |sum, (_, length)| sum.saturating_add(*length))
    }

    /// What comes next: of at most `most` bytes how many, and whether they are of a piece or zeros. 0 at the end.
    pub(crate) fn ahead(&mut self, most: usize) -> (usize, bool) {
        while self.pieces.get(self.next).is_some_and(|(place, length)| place.saturating_add(*length) <= self.at) {
            self.next = self.next.saturating_add(1);
        }
        let (until, kept) = match self.pieces.get(self.next) {
            Some((place, _)) if self.at < *place => (*place, false),
            Some((place, length)) => (place.saturating_add(*length), true),
            None => (self.size, false),
        };
        (usize::try_from(until.saturating_sub(self.at)).unwrap_or(usize::MAX).min(most), kept)
    }

    /// So many were given.
    pub(crate) fn given(&mut self, count: usize) {
        self.at = self.at.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
    }
}
