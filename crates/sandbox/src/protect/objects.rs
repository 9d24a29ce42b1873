//! Whether git's objects are what they are called. git finds an object by its name and, when it reads a file of the work from
//! one, does not ask again: a loose file, or an index of a pack, that lies shows other contents under an id that was reviewed.
//!
//! Promises: what is taken for honest is, byte for byte: a loose object hashes to its name, and the index of a pack is the one
//! that is made from the pack here, again. Bounded in bytes, whatever the files say of themselves.
//! Must not: believe anything that a run wrote beside a pack.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;

use flate2::bufread::ZlibDecoder;

use super::hash::Hash;
use super::index::READ_AS_FILES;

/// How many bytes are unpacked in one look at the changes of a run, in all.
pub const MAX_UNPACKED: u64 = 4 << 30;
/// No larger object is unpacked.
const MAX_OBJECT: u64 = 256 << 20;
/// Each object counts as so many at least: what is noted of it takes memory, too.
const MIN_COUNTED: u64 = 1 << 10;
/// How many bytes of objects are kept at one time, because others are made from them.
const MAX_KEPT: usize = 512 << 20;

/// So many files of servers, and commits of submodules, may new trees have.
const MAX_NAMED: usize = 1 << 19;

/// The name of an object, a pack or a file of git-lfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; 32],
    /// 20 or 32.
    length: usize,
}

impl Name {
    /// 40 or 64 hexadecimal digits in a row.
    pub(super) fn of(digits: &[&[u8]]) -> Option<Self> {
        let found = policy::json::unhex(std::str::from_utf8(&digits.concat()).ok()?)?;
        let mut bytes = [0; 32];
        bytes.get_mut(..found.len()).filter(|_| matches!(found.len(), 20 | 32))?.copy_from_slice(&found);
        Some(Self { bytes, length: found.len() })
    }

    pub(super) const fn is_long(&self) -> bool {
        self.length == 32
    }

    /// By which it is a name.
    const fn hash(&self) -> Hash {
        if self.is_long() { Hash::Sha256 } else { Hash::Sha1 }
    }

    /// As it is written.
    #[must_use]
    pub fn text(&self) -> String {
        policy::json::hex(self.bytes.get(..self.length).unwrap_or_default())
    }

    fn is(&self, sum: &[u8]) -> bool {
        self.bytes.get(..self.length) == Some(sum)
    }
}

/// A file of a new tree that says which servers are asked.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerFile {
    /// What it is called.
    pub name: &'static [u8],
    /// Its hash.
    pub is: Vec<u8>,
    /// The tree that has it.
    pub tree: Vec<u8>,
}

/// What was seen of new objects.
#[derive(Debug, Default)]
pub struct NewObjects {
    /// git and git LFS read such a file of a commit as if it stood in the working tree. Of every new tree: which one is a commit's, a
    /// later run may say.
    pub files: BTreeSet<ServerFile>,
    /// The commits of submodules that new trees name, each with the name by which one does: git takes them from a server.
    pub links: BTreeMap<Vec<u8>, Vec<u8>>,
    trees: BTreeSet<Vec<u8>>,
    /// With their trees.
    commits: Vec<(Vec<u8>, Vec<u8>)>,
}

impl NewObjects {
    /// The commits of which the trees are new, too: they were looked into.
    #[must_use]
    pub fn commits(&self) -> BTreeSet<Vec<u8>> {
        self.commits.iter().filter(|(_, tree)| self.trees.contains(tree)).map(|(commit, _)| commit.clone()).collect()
    }

    /// The trees that new commits have at the top.
    #[must_use]
    pub fn tops(&self) -> BTreeSet<&[u8]> {
        self.commits.iter().map(|(_, tree)| tree.as_slice()).collect()
    }

    /// All new commits.
    #[must_use]
    pub fn made(&self) -> BTreeSet<Vec<u8>> {
        self.commits.iter().map(|(commit, _)| commit.clone()).collect()
    }

    /// `None` if it is no whole tree or commit, or there is more in them than is kept.
    fn note(&mut self, kind: &str, name: &[u8], content: &[u8]) -> Option<()> {
        if kind == "commit" {
            let line = content.split(|byte| *byte == b'\n').next()?.strip_prefix(b"tree ")?;
            self.commits.push((name.to_vec(), policy::json::unhex(std::str::from_utf8(line).ok()?)?));
        } else if kind == "tree" {
            self.trees.insert(name.to_vec());
            let (mut rest, mut before, mut files) = (content, Vec::new(), BTreeSet::new());
            while !rest.is_empty() {
                let (head, behind) = rest.split_at_checked(rest.iter().position(|byte| *byte == 0)?)?;
                let mut parts = head.splitn(2, |byte| *byte == b' ');
                let (mode, file) = (parts.next()?, parts.next()?);
                let (is, behind) = behind.get(1..)?.split_at_checked(name.len())?;
                // In git's order no name is there twice: which of two is read depends on who reads.
                let mode = TreeMode::of(mode)?;
                let here = [file, if mode == TreeMode::Folder { b"/" } else { b"\0" }].concat();
                if before >= here || files.contains(file) {
                    return None;
                }
                before = here;
                files.insert(file);
                let known = READ_AS_FILES.into_iter().find(|known| *known == file);
                let of_servers = |known| ServerFile { name: known, is: is.to_vec(), tree: name.to_vec() };
                self.files.extend(known.map(of_servers));
                self.links.extend((mode == TreeMode::Submodule).then(|| (is.to_vec(), file.to_vec())));
                rest = behind;
            }
        }
        (self.files.len() <= MAX_NAMED && self.links.len() <= MAX_NAMED).then_some(())
    }
}

/// What an entry of a tree is, as git reads its mode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TreeMode {
    Folder,
    FileOrLink,
    Submodule,
}

impl TreeMode {
    /// git takes zeros before it, and whatever is no file, link or folder for a submodule. Of a number that does not fit, versions of git
    /// make different ones.
    fn of(digits: &[u8]) -> Option<Self> {
        let is_octal = (1..=7).contains(&digits.len()) && digits.iter().all(|digit| (b'0'..=b'7').contains(digit));
        let mode = u16::from_str_radix(std::str::from_utf8(digits).ok().filter(|_| is_octal)?, 8).ok()?;
        Some(match mode >> 12 {
            0o04 => Self::Folder,
            0o10 | 0o12 => Self::FileOrLink,
            0..=3 | 5..=7 | 9 | 11.. => Self::Submodule,
        })
    }
}

/// Whether a path ends as that of a loose object does: `objects/`, two digits, the others.
#[must_use]
pub fn is_loose_name(path: &Path) -> bool {
    let mut parts = path.iter().rev().map(OsStr::as_bytes);
    let (Some(rest), Some(two), Some(b"objects")) = (parts.next(), parts.next(), parts.next()) else { return false };
    two.len() == 2 && Name::of(&[two, rest]).is_some()
}

/// Whether the file of a loose object has the contents that it is named by. What is unpacked is taken from `left`.
#[must_use]
pub fn is_loose(name: &Name, file: &[u8], left: &mut u64, seen: &mut NewObjects) -> bool {
    let mut is_honest = || {
        let mut rest = file;
        let object = inflate(&mut rest, left).filter(|_| rest.is_empty())?;
        let (kind, content) = sized(&object)?;
        let sum = name.hash().sum(&[&object]);
        seen.note(kind, &sum, content)?;
        name.is(&sum).then_some(())
    };
    is_honest().is_some()
}

/// What an object says of itself that it is, and its contents, if they have the size that it says.
pub(super) fn sized(object: &[u8]) -> Option<(&str, &[u8])> {
    let (head, content) = object.split_at_checked(object.iter().position(|byte| *byte == 0)?)?;
    let content = content.get(1..)?;
    let (kind, size) = std::str::from_utf8(head).ok()?.split_once(' ')?;
    let is_sized = size.parse::<usize>().ok()? == content.len();
    Some((kind, content)).filter(|_| is_sized && matches!(kind, "commit" | "tree" | "blob" | "tag"))
}

/// The files that belong beside a pack.
#[derive(Debug)]
pub struct PackIndexes {
    /// `.idx`, version 2.
    pub index: Vec<u8>,
    /// `.rev`
    pub reverse: Vec<u8>,
}

/// Makes the index of a pack; `None` if it is not whole by itself, or there is too much in it. What is unpacked is taken from
/// `left`.
#[must_use]
pub fn beside(name: &Name, pack: &[u8], left: &mut u64, seen: &mut NewObjects) -> Option<PackIndexes> {
    let format = name.hash();
    let (body, checksum) = pack.split_at_checked(pack.len().checked_sub(format.bytes())?)?;
    if format.sum(&[body]) != checksum {
        return None;
    }
    let scanned = scan(format, body, left)?;
    let count = scanned.len();
    let mut named = resolve(format, scanned, left, seen)?;
    if named.len() != count {
        return None;
    }
    named.sort();
    let mut index = b"\xfftOc\0\0\0\x02".to_vec();
    for first in 0..=u8::MAX {
        let upto = named.partition_point(|object| object.name.first().is_some_and(|byte| *byte <= first));
        index.extend(u32::try_from(upto).ok()?.to_be_bytes());
    }
    named.iter().for_each(|object| index.extend(&object.name));
    named.iter().for_each(|object| index.extend(object.crc.to_be_bytes()));
    for object in &named {
        // Larger offsets have a table of their own; no pack that is looked at has any.
        index.extend(u32::try_from(object.at).ok().filter(|at| at.leading_zeros() > 0)?.to_be_bytes());
    }
    let mut reverse = b"RIDX\0\0\0\x01\0\0\0".to_vec();
    reverse.push(if name.is_long() { 2 } else { 1 });
    let mut by_place: Vec<(usize, usize)> = named.iter().enumerate().map(|(at, object)| (object.at, at)).collect();
    by_place.sort_unstable();
    for (_, at) in by_place {
        reverse.extend(u32::try_from(at).ok()?.to_be_bytes());
    }
    let sealed = |mut file: Vec<u8>| {
        file.extend(checksum);
        file.extend(format.sum(&[&file]));
        file
    };
    Some(PackIndexes { index: sealed(index), reverse: sealed(reverse) })
}

/// An object of a pack with its name.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct PackEntry {
    name: Vec<u8>,
    crc: u32,
    at: usize,
}

/// What an object of a pack is made from.
pub(super) enum ObjectBase {
    /// Itself.
    Whole(&'static str),
    /// The one that lies so far before it.
    Distance(usize),
    /// The object of a name.
    Name(Vec<u8>),
}

/// How an object of a pack begins: what it is made from, and the size of what is packed of it.
pub(super) fn packed_head(rest: &mut &[u8], format: Hash) -> Option<(ObjectBase, u64)> {
    let (kind, size) = head(rest)?;
    let from = match kind {
        1 => ObjectBase::Whole("commit"),
        2 => ObjectBase::Whole("tree"),
        3 => ObjectBase::Whole("blob"),
        4 => ObjectBase::Whole("tag"),
        6 => ObjectBase::Distance(distance(rest)?),
        7 => ObjectBase::Name(take(rest, format.bytes())?.to_vec()),
        0 | 5 | 8.. => return None,
    };
    Some((from, size))
}

/// An object as it stands in a pack.
struct PackObject<'a> {
    at: usize,
    crc: u32,
    from: ObjectBase,
    size: u64,
    /// Still packed.
    stream: &'a [u8],
}

/// Finds the objects of a pack.
fn scan<'a>(format: Hash, body: &'a [u8], left: &mut u64) -> Option<Vec<PackObject<'a>>> {
    let mut rest = body;
    let version = take(&mut rest, 8)?;
    if version != b"PACK\0\0\0\x02" {
        return None;
    }
    let count = u32::from_be_bytes(take(&mut rest, 4)?.try_into().ok()?);
    let mut found = Vec::new();
    for _ in 0..count {
        *left = left.checked_sub(MIN_COUNTED)?;
        let (at, begins) = (body.len().checked_sub(rest.len())?, rest);
        let (from, size) = packed_head(&mut rest, format)?;
        let stream = rest;
        // Where it ends is known when it is unpacked.
        if u64::try_from(inflate(&mut rest, left)?.len()).ok()? != size {
            return None;
        }
        let stream = stream.get(..stream.len().checked_sub(rest.len())?)?;
        let mut crc = flate2::Crc::new();
        crc.update(begins.get(..begins.len().checked_sub(rest.len())?)?);
        found.push(PackObject { at, crc: crc.sum(), from, size, stream });
    }
    rest.is_empty().then_some(found)
}

/// One that others are made from, and what kind it is.
type Base = Rc<(&'static str, Vec<u8>)>;

/// Names the objects of a pack: each that is whole, then those that are made from it, and so on. One that is made from none of
/// them is missing in the end.
fn resolve(format: Hash, packed: Vec<PackObject<'_>>, left: &mut u64, seen: &mut NewObjects) -> Option<Vec<PackEntry>> {
    let (mut by_place, mut by_name) =
        (BTreeMap::<usize, Vec<PackObject<'_>>>::new(), BTreeMap::<Vec<u8>, Vec<_>>::new());
    let mut queue: Vec<(PackObject<'_>, Option<Base>)> = Vec::new();
    for object in packed {
        match &object.from {
            ObjectBase::Whole(_) => queue.push((object, None)),
            ObjectBase::Distance(far) => by_place.entry(object.at.checked_sub(*far)?).or_default().push(object),
            ObjectBase::Name(name) => by_name.entry(name.clone()).or_default().push(object),
        }
    }
    let mut named = Vec::new();
    let mut kept = 0_usize;
    while let Some((object, base)) = queue.pop() {
        let content = inflate(&mut { object.stream }, left).filter(|_| object.size <= MAX_OBJECT)?;
        let (kind, content) = match (&object.from, &base) {
            (ObjectBase::Whole(kind), _) => (*kind, content),
            (ObjectBase::Distance(_) | ObjectBase::Name(_), Some(base)) => (base.0, patch(&base.1, &content, left)?),
            (ObjectBase::Distance(_) | ObjectBase::Name(_), None) => return None,
        };
        if let Some(base) = base.and_then(Rc::into_inner) {
            kept = kept.saturating_sub(base.1.len());
        }
        let name = format.sum(&[format!("{kind} {}\0", content.len()).as_bytes(), &content]);
        seen.note(kind, &name, &content)?;
        let mut next = by_place.remove(&object.at).unwrap_or_default();
        next.extend(by_name.remove(&name).unwrap_or_default());
        named.push(PackEntry { name, crc: object.crc, at: object.at });
        if !next.is_empty() {
            kept = kept.saturating_add(content.len());
            if kept > MAX_KEPT {
                return None;
            }
            let base = Rc::new((kind, content));
            queue.extend(next.into_iter().map(|object| (object, Some(Rc::clone(&base)))));
        }
    }
    Some(named)
}

/// Unpacks a stream, and goes on behind it.
pub(super) fn inflate(rest: &mut &[u8], left: &mut u64) -> Option<Vec<u8>> {
    let most = MAX_OBJECT.min(*left);
    let mut decoder = ZlibDecoder::new(*rest);
    let mut out = Vec::new();
    decoder.by_ref().take(most.saturating_add(1)).read_to_end(&mut out).ok()?;
    *left = left.checked_sub(u64::try_from(out.len()).ok()?)?;
    *rest = rest.get(usize::try_from(decoder.total_in()).ok()?..)?;
    (u64::try_from(out.len()).ok()? <= most).then_some(out)
}

/// Makes an object from another one.
pub(super) fn patch(base: &[u8], delta: &[u8], left: &mut u64) -> Option<Vec<u8>> {
    let mut rest = delta;
    let (from, size) = (number(&mut rest)?, number(&mut rest)?);
    if usize::try_from(from).ok()? != base.len() || size > MAX_OBJECT {
        return None;
    }
    *left = left.checked_sub(size)?;
    let size = usize::try_from(size).ok()?;
    let mut out = Vec::new();
    while !rest.is_empty() {
        let order = byte(&mut rest)?;
        let part = if order & 0x80 == 0 {
            take(&mut rest, usize::from(order)).filter(|part| !part.is_empty())?
        } else {
            let (at, length) = (field(&mut rest, order, 4)?, field(&mut rest, order >> 4, 3)?);
            let length = if length == 0 { 0x10000 } else { length };
            base.get(at..at.checked_add(length)?)?
        };
        out.extend(part);
        if out.len() > size {
            return None;
        }
    }
    (out.len() == size).then_some(out)
}

/// A number of so many bytes, the lowest first, of which those are there that have their bit in `there`.
fn field(rest: &mut &[u8], there: u8, bytes: u32) -> Option<usize> {
    let mut sum = 0;
    for at in (0..bytes).filter(|at| there & (1 << at) != 0) {
        sum |= usize::from(byte(rest)?) << at.saturating_mul(8);
    }
    Some(sum)
}

/// The kind and the size of a packed object.
fn head(rest: &mut &[u8]) -> Option<(u8, u64)> {
    let first = byte(rest)?;
    let size = if first & 0x80 == 0 { 0 } else { number(rest)? };
    // The lowest four bits stand in the first byte.
    let size = size.checked_mul(16)?.checked_add(u64::from(first & 0x0f))?;
    Some((first >> 4 & 7, size))
}

/// Seven bits in a byte, the lowest first.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut sum = 0_u64;
    for shift in (0..56).step_by(7) {
        let next = byte(rest)?;
        sum |= u64::from(next & 0x7f).checked_shl(shift)?;
        if next & 0x80 == 0 {
            return Some(sum);
        }
    }
    None
}

/// How far before it the object lies that one is made from.
fn distance(rest: &mut &[u8]) -> Option<usize> {
    let mut next = byte(rest)?;
    let mut sum = usize::from(next & 0x7f);
    while next & 0x80 != 0 {
        next = byte(rest)?;
        sum = sum.checked_add(1)?.checked_mul(128)? | usize::from(next & 0x7f);
    }
    (sum > 0).then_some(sum)
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    let (first, more) = rest.split_first()?;
    *rest = more;
    Some(*first)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (part, more) = rest.split_at_checked(length)?;
    *rest = more;
    Some(part)
}
