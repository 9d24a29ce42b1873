//! The members of a tar stream, one after the other, each header judged. Blocks are read with the crate `tar`; the walk is
//! ours, since that crate keeps names of any length in memory.

use std::io::{self, Read};

use tar::{EntryType, Header, PaxExtensions};

use crate::sparse::{self, Holes, SparseHeaders};

/// Bytes of a block.
const BLOCK: usize = 512;
/// Longest extended header, and longest name of GNU's, bytes.
const MAX_EXTENDED: u64 = 1 << 20;
/// No size is larger.
const MAX_SIZE: u64 = 1 << 62;

/// How the keys of extended attributes begin, access lists and labels among them, by the writers that have them.
const ATTRIBUTES: [&[u8]; 4] = [b"SCHILY.xattr.", b"LIBARCHIVE.xattr.", b"SCHILY.acl.", b"RHT.security."];

/// What a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// With its target.
    Symlink(Vec<u8>),
    /// With the name of what it is one more name of.
    Link(Vec<u8>),
    /// Nothing that can be unpacked; what it is.
    Other(&'static str),
}

/// What a member's headers say of it.
#[derive(Clone, Debug)]
pub struct Member {
    /// As it was written: nobody has judged it.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// All bits of its mode.
    pub mode: u32,
    /// Seconds.
    pub modified: i64,
    /// Of its content.
    pub size: u64,
    /// Of its content, from the beginning of the stream.
    pub at: u64,
    /// It has an owner other than root.
    pub owned: bool,
    /// It has extended attributes.
    pub attributes: bool,
    /// Bytes of its content that are in no stream: zeros that were left out.
    pub holes: u64,
}

/// The reader; its own `read` gives the content of the member that was told last.
#[derive(Debug)]
pub struct Members<R> {
    reader: R,
    at: u64,
    left: u64,
    padding: u64,
    fills: bool,
    /// The map of the member that was told last.
    holes: Option<Holes>,
}

/// What headers before a member's own say.
#[derive(Default)]
struct Extended {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    modified: Option<i64>,
    owned: Option<bool>,
    attributes: bool,
    sparse: SparseHeaders,
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

impl<R: Read> Members<R> {
    /// Over a stream, from its beginning.
    pub fn new(reader: R) -> Self {
        Self { reader, at: 0, left: 0, padding: 0, fills: false, holes: None }
    }

    /// As [`Members::new`], and gives files whose holes were left out with their zeros; else they are [`Kind::Other`].
    pub fn with_holes(reader: R) -> Self {
        Self { fills: true, ..Self::new(reader) }
    }

    /// Leaves the content of the last member behind, and tells the next.
    ///
    /// # Errors
    /// It is no tar stream, or ends too early.
    pub fn next_member(&mut self) -> io::Result<Option<Member>> {
        let mut extended = Extended::default();
        loop {
            self.skip()?;
            let Some(block) = self.block()? else {
                return if extended.is_empty() { Ok(None) } else { Err(wrong("it ends behind an extended header")) };
            };
            let header = Header::from_byte_slice(&block);
            let mut summed = header.clone();
            summed.set_cksum();
            if header.cksum().ok() != summed.cksum().ok() || header.cksum().is_err() {
                return Err(wrong("the checksum of a tar header is wrong"));
            }
            let size = header.entry_size().ok().filter(|size| *size < MAX_SIZE);
            let size = size.ok_or_else(|| wrong("a tar header states no size"))?;
            let kind = header.entry_type();
            self.content(size);
            if kind.is_pax_global_extensions() {
                let mut said = Extended::default();
                said.take(EntryType::XHeader, &self.text(size)?)?;
                if !said.is_empty() || said.owned.is_some() || said.attributes || said.sparse.any() {
                    return Err(wrong("a header for all members says more of them than a comment"));
                }
                continue;
            }
            if kind.is_pax_local_extensions() || kind.is_gnu_longname() || kind.is_gnu_longlink() {
                let text = self.text(size)?;
                extended.take(kind, &text)?;
                continue;
            }
            return self.member(header, extended, size).map(Some);
        }
    }

    /// The stream, as far as it was read.
    pub fn into_inner(self) -> R {
        self.reader
    }

    fn member(&mut self, header: &Header, extended: Extended, size: u64) -> io::Result<Member> {
        let size = extended.size.unwrap_or(size);
        let Extended { sparse, .. } = &extended;
        let named = sparse.name.clone().filter(|_| self.fills);
        let name = named.or(extended.path).unwrap_or_else(|| header.path_bytes().into_owned());
        let link = extended.link.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
        let link = || link.ok_or_else(|| wrong("a link without a target"));
        let of = header.entry_type();
        let is_file = of.is_file() || of.is_contiguous();
        // Writers of before 1988 mark a folder by its slash alone. Of content behind it some readers make headers.
        let marked = is_file && name.ends_with(b"/");
        let kind = if of.is_dir() || (marked && size == 0) {
            Kind::Folder
        } else if marked {
            Kind::Other("it is a file with the name of a folder")
        } else if (extended.sparse.any() || of.is_gnu_sparse()) && !self.fills {
            Kind::Other("it is a file in a form that leaves holes out")
        } else if is_file || of.is_gnu_sparse() {
            Kind::File
        } else if of.is_symlink() {
            Kind::Symlink(link()?)
        } else if of.is_hard_link() {
            Kind::Link(link()?)
        } else if of.is_character_special() || of.is_block_special() {
            Kind::Other("it is a device")
        } else if of.is_fifo() {
            Kind::Other("it is a named pipe")
        } else {
            Kind::Other("its kind is unknown")
        };
        // Links and folders have no content, whatever some writers state.
        self.content(if matches!(kind, Kind::File | Kind::Other(_)) { size } else { 0 });
        let stored = size;
        let size = if kind == Kind::File { self.mapped(header, extended.sparse, size)? } else { size };
        Ok(Member {
            name,
            kind,
            mode: header.mode().unwrap_or(0o644),
            modified: extended
                .modified
                .or_else(|| header.mtime().ok().and_then(|seconds| i64::try_from(seconds).ok()))
                .unwrap_or(0),
            size,
            at: self.at,
            owned: extended.owned.unwrap_or(false)
                || header.uid().is_ok_and(|id| id != 0)
                || header.gid().is_ok_and(|id| id != 0),
            attributes: extended.attributes,
            holes: if self.holes.is_some() { size.saturating_sub(stored) } else { 0 },
        })
    }

    /// Reads the map of a file with holes, if it is one; the size of the file.
    fn mapped(&mut self, header: &Header, said: SparseHeaders, size: u64) -> io::Result<u64> {
        let holes = if header.entry_type().is_gnu_sparse() {
            // Its blocks lie before the content, and are none of it.
            self.content(0);
            let holes = sparse::of_header(header, || self.whole_block())?;
            self.content(size);
            holes
        } else if said.any() {
            said.map(|| {
                let mut block = [0; BLOCK];
                self.read_exact(&mut block)
                    .map_err(|_short| wrong("the map of a file with holes is longer than its content"))?;
                Ok(block)
            })?
        } else {
            return Ok(size);
        };
        if holes.stored() != self.left {
            return Err(wrong("the map of a file with holes is not that of its content"));
        }
        let size = holes.size;
        self.holes = Some(holes);
        Ok(size)
    }

    fn whole_block(&mut self) -> io::Result<[u8; BLOCK]> {
        let mut block = [0; BLOCK];
        self.reader.read_exact(&mut block).map_err(|_short| wrong("it ends in the middle of a header"))?;
        self.at = self.at.saturating_add(512);
        Ok(block)
    }

    /// Of what the stream has.
    fn stored(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(part) = buffer.get_mut(..most).filter(|part| !part.is_empty()) else { return Ok(0) };
        let read = self.reader.read(part)?;
        if read == 0 {
            return Err(wrong("it ends in the middle of a member"));
        }
        let count = u64::try_from(read).unwrap_or(u64::MAX);
        self.left = self.left.saturating_sub(count);
        self.at = self.at.saturating_add(count);
        Ok(read)
    }

    fn content(&mut self, size: u64) {
        self.left = size;
        self.padding = size.wrapping_neg() % 512;
    }

    fn skip(&mut self) -> io::Result<()> {
        let rest = self.left.saturating_add(self.padding);
        let skipped = io::copy(&mut (&mut self.reader).take(rest), &mut io::sink())?;
        self.at = self.at.saturating_add(skipped);
        let cut = skipped < self.left;
        (self.left, self.padding, self.holes) = (0, 0, None);
        // Some writers (umoci's `insert`) leave out what fills the last block, and the blocks of the end.
        if cut { Err(wrong("it ends in the middle of a member")) } else { Ok(()) }
    }

    /// The next header; `None` at the end, which two blocks of zeros are, or one and nothing more: behind a single one some
    /// readers go on.
    fn block(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let is_zero = |block: &[u8; BLOCK]| block.iter().all(|byte| *byte == 0);
        let Some(block) = self.one_block()?.filter(|block| !is_zero(block)) else {
            return match self.one_block()? {
                Some(block) if !is_zero(&block) => Err(wrong("it goes on behind a block of zeros")),
                Some(_) | None => Ok(None),
            };
        };
        Ok(Some(block))
    }

    fn one_block(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while let Some(rest) = block.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.reader.read(rest)? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(wrong("it ends in the middle of a header")),
                count => filled = filled.saturating_add(count),
            }
        }
        self.at = self.at.saturating_add(512);
        Ok(Some(block))
    }

    fn text(&mut self, size: u64) -> io::Result<Vec<u8>> {
        if size > MAX_EXTENDED {
            return Err(wrong("an extended tar header is too long"));
        }
        let mut text = Vec::new();
        self.read_to_end(&mut text)?;
        Ok(text)
    }
}

impl<R: Read> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(holes) = &mut self.holes else { return self.stored(buffer) };
        let (count, kept) = holes.ahead(buffer.len());
        let part = buffer.get_mut(..count).unwrap_or_default();
        let read = if kept {
            self.stored(part)?
        } else {
            part.fill(0);
            count
        };
        if let Some(holes) = &mut self.holes {
            holes.given(read);
        }
        Ok(read)
    }
}

impl Extended {
    fn is_empty(&self) -> bool {
        self.path.is_none() && self.link.is_none() && self.size.is_none() && self.modified.is_none()
    }

    fn take(&mut self, kind: EntryType, text: &[u8]) -> io::Result<()> {
        let name = || text.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        if kind.is_gnu_longname() {
            self.path = Some(name());
            return Ok(());
        }
        if kind.is_gnu_longlink() {
            self.link = Some(name());
            return Ok(());
        }
        for record in PaxExtensions::new(text) {
            let record = record?;
            let value = record.value_bytes();
            let number = || record.value().ok().and_then(|value| value.parse::<u64>().ok());
            match record.key_bytes() {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => {
                    let size = number().filter(|size| *size < MAX_SIZE);
                    self.size = Some(size.ok_or_else(|| wrong("an extended tar header states no size"))?);
                }
                b"mtime" => {
                    let whole = record.value().ok().and_then(|value| value.split('.').next()?.parse().ok());
                    self.modified = Some(whole.ok_or_else(|| wrong("an extended tar header states no time"))?);
                }
                b"uid" | b"gid" => self.owned = Some(self.owned.unwrap_or(false) || number() != Some(0)),
                key => {
                    self.attributes |= ATTRIBUTES.iter().any(|begin| key.starts_with(begin));
                    if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                        self.sparse.take(key, value)?;
                    }
                }
            }
        }
        Ok(())
    }
}
