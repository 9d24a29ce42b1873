//! The bytes of a layer: counted, hashed, and unpacked by what they begin with, whatever their media type says.

use std::cell::Cell;
use std::fmt::Write as _;
use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use sha2::{Digest as _, Sha256};

/// Hashes and counts what is read through it.
pub(crate) struct Hashed<R> {
    inner: R,
    hash: Sha256,
    count: u64,
}

impl<R: Read> Hashed<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, hash: Sha256::new(), count: 0 }
    }

    /// Reads to the end; the digest and how many bytes there were.
    pub(crate) fn finish(mut self) -> io::Result<(String, u64)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok((hex(&self.hash.finalize()), self.count))
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(buffer.get(..read).unwrap_or_default());
        self.count = self.count.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        Ok(read)
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _written = write!(text, "{byte:02x}");
        text
    })
}

/// How much may still be unpacked, for all layers together.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) limit: u64,
    left: Cell<u64>,
    over: Cell<bool>,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, left: Cell::new(limit), over: Cell::new(false) }
    }

    /// Whether so much is left; it is not taken.
    pub(crate) fn has(&self, bytes: u64) -> bool {
        bytes <= self.left.get()
    }

    /// Takes so much that no stream has: zeros that were left out. `false`: more than is left.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let left = self.left.get().checked_sub(bytes);
        self.left.set(left.unwrap_or_default());
        left.is_some()
    }

    /// Whether more was read than may be.
    pub(crate) fn is_over(&self) -> bool {
        self.over.get()
    }
}

/// Fails when more is read than the budget has.
pub(crate) struct Bounded<'a, R> {
    inner: R,
    budget: &'a Budget,
}

impl<'a, R: Read> Bounded<'a, R> {
    pub(crate) fn new(inner: R, budget: &'a Budget) -> Self {
        Self { inner, budget }
    }
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let Some(left) = self.budget.left.get().checked_sub(u64::try_from(read).unwrap_or(u64::MAX)) else {
            self.budget.over.set(true);
            return Err(io::Error::other("it unpacks to too much"));
        };
        self.budget.left.set(left);
        Ok(read)
    }
}

/// Most memory for unpacking xz, KiB: its strongest setting takes 65 MiB.
const MAX_XZ_MEMORY: u32 = 160 << 10;

/// What a layer may be packed with.
pub(crate) enum Decoder<R: BufRead> {
    Plain(R),
    Gzip(Box<Gzip<R>>),
    Zstd(Box<Zstd<R>>),
    Xz(Box<XzReader<R>>),
}

impl<R: BufRead> Decoder<R> {
    pub(crate) fn new(mut source: R) -> io::Result<Self> {
        let start = source.fill_buf()?;
        if start.starts_with(&[0x1f, 0x8b]) {
            let decoder = Some(GzDecoder::new(source));
            return Ok(Self::Gzip(Box::new(Gzip { decoder, members: 0, given: 0 })));
        }
        if start.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) {
            return Ok(Self::Xz(Box::new(XzReader::new_mem_limit(source, true, MAX_XZ_MEMORY))));
        }
        // A frame, or one that is to be skipped.
        let skipped =
            start.first().is_some_and(|byte| byte & 0xf0 == 0x50) && start.get(1..4) == Some(&[0x2a, 0x4d, 0x18]);
        if skipped || start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            return Ok(Self::Zstd(Box::new(Zstd { source, decoder: FrameDecoder::new(), open: false })));
        }
        Ok(Self::Plain(source))
    }
}

impl<R: BufRead> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(source) => source.read(buffer),
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
            Self::Xz(decoder) => decoder.read(buffer),
        }
    }
}

/// Members of a gzip stream that hold little: each costs as much as the beginning of a stream.
const MAX_SMALL_MEMBERS: u64 = 4096;
/// So much makes a member one that is no small one: writers that give each file its own have a header in it at least.
const SMALL: u64 = 512;

/// All members of a stream, one after the other.
pub(crate) struct Gzip<R> {
    /// None at the end.
    decoder: Option<GzDecoder<R>>,
    members: u64,
    given: u64,
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(mut decoder) = self.decoder.take() {
            let read = decoder.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                self.given = self.given.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
                self.decoder = Some(decoder);
                return Ok(read);
            }
            let mut source = decoder.into_inner();
            if source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.members = self.members.saturating_add(1);
            if self.members.saturating_sub(self.given / SMALL) > MAX_SMALL_MEMBERS {
                return Err(io::Error::other(format!(
                    "it has more than {MAX_SMALL_MEMBERS} members that hold nothing"
                )));
            }
            self.decoder = Some(GzDecoder::new(source));
        }
        Ok(0)
    }
}

/// All frames of a stream, one after the other. A window of more than 128 MiB is an error of the decoder's.
pub(crate) struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    open: bool,
}

impl<R: BufRead> Zstd<R> {
    /// Begins the next frame; false at the end.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    io::copy(&mut (&mut self.source).take(u64::from(length)), &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.open && !self.next_frame()? {
                return Ok(0);
            }
            self.open = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(io::Error::other)?;
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            self.open = false;
        }
    }
}
