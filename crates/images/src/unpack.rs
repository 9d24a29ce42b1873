//! Layers put over each other into one tree, every entry judged.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;
use sandbox::state::{Dir, errno_of};
use serde::{Deserialize, Serialize};

use crate::decode::{Bounded, Budget, Decoder, Hashed};
use crate::error::ImageError;
use crate::layout::{Image, Layer, differs};
use crate::source::{Part, Source};
use crate::tree::{Problem, Tree, TreePath, times};
use sandbox::members::{Kind, Member, Members};

/// Most bytes that the layers of an image may unpack to, unless said.
pub const MAX_UNPACKED: u64 = 20 << 30;
/// And at most so many times the bytes that they have packed, unless said.
pub const MAX_RATIO: u64 = 200;
/// Most entries of all layers of an image.
pub const MAX_ENTRIES: u64 = 2_000_000;
/// So much any image may unpack to: the blocks that fill the end of a small layer shrink more than all else.
const MIN_UNPACKED: u64 = 1 << 20;
/// Bytes that are moved at once.
const CHUNK: usize = 64 << 10;

const WHITEOUT: &[u8] = b".wh.";
/// Folders that are links into `/usr`.
pub(crate) const MERGED: [&str; 6] = ["bin", "lib", "lib32", "lib64", "libx32", "sbin"];
const OPAQUE: &[u8] = b".wh..wh..opq";

/// What is not as it was packed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpackNotes {
    /// Entries that had another owner than root: all are the importer's now.
    pub owners: u64,
    /// Files and folders that lost set-user-id, set-group-id or the sticky bit.
    pub set_id: u64,
    /// Entries that lost extended attributes: capabilities of files, access lists and labels among them.
    pub attributes: u64,
    /// Entries of the host that were not taken, since not everybody there may read them or no image holds their kind.
    #[serde(default)]
    pub left_out: u64,
    /// What the configuration asks for and nothing here does, by its instruction: `HEALTHCHECK`, `ONBUILD`, `SHELL`, `STOPSIGNAL`,
    /// `VOLUME`.
    #[serde(default)]
    pub unheeded: Vec<String>,
}

/// Unpacks an image into an empty folder. `limit`: the most bytes, if somebody said so.
pub(crate) fn unpack(
    source: &Source,
    image: &Image,
    root: &Dir,
    limit: Option<u64>,
) -> Result<UnpackNotes, ImageError> {
    let mut packed = BTreeMap::new();
    for layer in &image.layers {
        // A layer that is there again unpacks to as much again, and has nothing more packed.
        packed.insert(&layer.part, open(source, layer)?.1);
    }
    let packed = packed.values().fold(0_u64, |sum, size| sum.saturating_add(*size));
    let usual = || packed.saturating_mul(MAX_RATIO).clamp(MIN_UNPACKED, MAX_UNPACKED);
    let budget = Budget::new(limit.unwrap_or_else(usual));
    let mut unpacker = Unpacker::new(source.path(), &budget, root, Form::Layer);
    for layer in &image.layers {
        unpacker.layer(source, layer)?;
    }
    Ok(unpacker.told)
}

fn open<'a>(source: &'a Source, layer: &Layer) -> Result<Part<'a>, ImageError> {
    let (reader, size) =
        source.part(&layer.part)?.ok_or_else(|| source.wrong(format!("its layer `{}` is missing", layer.part)))?;
    match &layer.packed {
        Some((_, stated)) if *stated != size => {
            Err(differs(&layer.part, &format!("{stated} bytes"), &format!("{size} bytes")))
        }
        Some(_) | None => Ok((reader, size)),
    }
}

/// What archives mean by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A layer: there are whiteouts.
    Layer,
    /// A Debian package: what it has below `/bin` and such belongs below `/usr`, where links lead.
    Package,
}

/// Puts archives over each other into one tree.
pub(crate) struct Unpacker<'a> {
    /// What is unpacked, for messages.
    pub(crate) origin: PathBuf,
    budget: &'a Budget,
    tree: Tree<'a>,
    form: Form,
    pub(crate) told: UnpackNotes,
    entries: u64,
}

impl<'a> Unpacker<'a> {
    pub(crate) fn new(origin: &Path, budget: &'a Budget, root: &'a Dir, form: Form) -> Self {
        let (origin, tree) = (origin.to_owned(), Tree::new(root));
        Self { origin, budget, tree, form, told: UnpackNotes::default(), entries: 0 }
    }

    fn layer(&mut self, source: &Source, layer: &Layer) -> Result<(), ImageError> {
        let mut packed = Hashed::new(open(source, layer)?.0);
        let unpacked = self.archive(&layer.part, &mut packed)?;
        if layer.unpacked != unpacked {
            return Err(differs(&layer.part, &layer.unpacked, &format!("{unpacked} when unpacked")));
        }
        let (found, _) = packed.finish().map_err(|error| self.unreadable(&layer.part, &error))?;
        match &layer.packed {
            Some((stated, _)) if *stated != format!("sha256:{found}") => {
                Err(differs(&layer.part, stated, &format!("sha256:{found}")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Unpacks one archive over what is there, and gives the digest of what it is unpacked.
    pub(crate) fn archive(&mut self, part: &str, packed: impl Read) -> Result<String, ImageError> {
        self.tree.begin();
        let decoder = Decoder::new(BufReader::with_capacity(CHUNK, packed));
        let decoder = decoder.map_err(|error| self.unreadable(part, &error))?;
        let mut members = Members::with_holes(Hashed::new(Bounded::new(decoder, self.budget)));
        while let Some(member) = members.next_member().map_err(|error| self.unreadable(part, &error))? {
            let member = if self.form == Form::Package { merged(member) } else { member };
            self.entry(part, &member, &mut members)?;
        }
        let (unpacked, _) = members.into_inner().finish().map_err(|error| self.unreadable(part, &error))?;
        self.tree.end().map_err(|(path, problem)| self.told_of(&path, &problem))?;
        Ok(format!("sha256:{unpacked}"))
    }

    fn unreadable(&self, part: &str, error: &std::io::Error) -> ImageError {
        if self.budget.is_over() {
            return ImageError::TooLarge { limit: self.budget.limit };
        }
        self.wrong(format!("its part `{part}` cannot be read: {error}"))
    }

    fn wrong(&self, why: String) -> ImageError {
        ImageError::NotAnImage { path: self.origin.clone(), why }
    }

    fn entry(&mut self, part: &str, member: &Member, content: &mut impl Read) -> Result<(), ImageError> {
        self.entries = self.entries.saturating_add(1);
        if self.entries > MAX_ENTRIES {
            return Err(self.wrong(format!("its layers have more than {MAX_ENTRIES} entries")));
        }
        if !self.budget.has(member.size) || !self.budget.take(member.holes) {
            return Err(ImageError::TooLarge { limit: self.budget.limit });
        }
        match self.judged(member) {
            Ok(None) => Ok(()),
            Ok(Some(file)) => self.fill(part, member, file, content),
            Err(problem) => Err(self.told_of(&member.name, &problem)),
        }
    }

    /// Makes an entry; a file's content is still to come.
    fn judged(&mut self, member: &Member) -> Result<Option<File>, Problem> {
        let Some(place) = TreePath::new(&member.name)? else {
            if member.kind != Kind::Folder {
                return Err(Problem::Refused("it would replace the root"));
            }
            rustix::fs::fchmod(self.tree.root(), Mode::from_raw_mode(folder_mode(member)))?;
            return Ok(None);
        };
        if place.folders().iter().any(|part| part.starts_with(WHITEOUT)) {
            return Err(Problem::Refused("it lies below a whiteout"));
        }
        if let Some(hidden) = place.last().strip_prefix(WHITEOUT) {
            if self.form == Form::Package {
                return Err(Problem::Refused("no layer can hold a file of this name"));
            }
            return self.whiteout(member, &place, hidden).map(|()| None);
        }
        self.tell(member);
        match &member.kind {
            Kind::Folder => self.tree.folder(&place, folder_mode(member), member.modified).map(|()| None),
            Kind::Symlink(target) => self.tree.symlink(&place, target, member.modified).map(|()| None),
            Kind::Link(target) => {
                let target = TreePath::new(target)?.ok_or(Problem::Refused("it is a hard link to the root"))?;
                self.tree.link(&place, &target).map(|()| None)
            }
            Kind::File => self.tree.file(&place).map(Some),
            Kind::Other(what) => Err(Problem::Refused(what)),
        }
    }

    fn whiteout(&self, member: &Member, place: &TreePath, hidden: &[u8]) -> Result<(), Problem> {
        if member.kind != Kind::File {
            return Err(Problem::Refused("it is a whiteout and no file"));
        }
        if place.last() == OPAQUE {
            return self.tree.opaque(place.folders());
        }
        if matches!(hidden, b"" | b"." | b"..") || hidden.starts_with(WHITEOUT) {
            return Err(Problem::Refused("it is a whiteout of nothing that can be"));
        }
        self.tree.whiteout(&place.sibling(hidden))
    }

    fn tell(&mut self, member: &Member) {
        let count = |counter: &mut u64, yes: bool| *counter = counter.saturating_add(u64::from(yes));
        // Of links the mode says nothing.
        let has_mode = matches!(member.kind, Kind::File | Kind::Folder);
        count(&mut self.told.owners, member.owned);
        count(&mut self.told.set_id, has_mode && member.mode & 0o7000 != 0);
        count(&mut self.told.attributes, member.attributes);
    }

    /// The content of a file, zeros as holes; then its mode and time.
    fn fill(&self, part: &str, member: &Member, mut file: File, content: &mut impl Read) -> Result<(), ImageError> {
        let mut buffer = vec![0; CHUNK];
        let shown = || String::from_utf8_lossy(&member.name).into_owned();
        let written = |error: std::io::Error| ImageError::Io { path: shown().into(), errno: errno_of(&error) };
        loop {
            let read = content.read(&mut buffer).map_err(|error| self.unreadable(part, &error))?;
            let part = buffer.get(..read).unwrap_or_default();
            if part.is_empty() {
                break;
            }
            if part.iter().all(|byte| *byte == 0) {
                file.seek(SeekFrom::Current(i64::try_from(read).unwrap_or(0))).map_err(written)?;
            } else {
                file.write_all(part).map_err(written)?;
            }
        }
        file.set_len(member.size).map_err(written)?;
        // Who checks it must be able to read it.
        let mode = member.mode & 0o777 | 0o400;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))
            .and_then(|()| rustix::fs::futimens(&file, &times(member.modified)))
            .map_err(|errno| ImageError::Io { path: shown().into(), errno })
    }

    fn told_of(&self, name: &[u8], problem: &Problem) -> ImageError {
        let entry = String::from_utf8_lossy(name).into_owned();
        match problem {
            Problem::Refused(why) => ImageError::Entry { entry, why: (*why).to_owned() },
            Problem::Call(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::MFILE | Errno::NFILE)) => {
                ImageError::Io { path: Path::new(&entry).to_owned(), errno: *errno }
            }
            Problem::Call(errno) => ImageError::Entry { entry, why: errno.to_string().to_lowercase() },
        }
    }
}

/// A name of a package in the tree, where `/bin`, `/sbin` and `/lib` are links into `/usr`.
fn merged(member: Member) -> Member {
    let name = merged_name(&member.name);
    let kind = match member.kind {
        Kind::Link(target) => Kind::Link(merged_name(&target)),
        kind @ (Kind::File | Kind::Folder | Kind::Symlink(_) | Kind::Other(_)) => kind,
    };
    Member { name, kind, ..member }
}

fn merged_name(name: &[u8]) -> Vec<u8> {
    let below = name.strip_prefix(b"./").unwrap_or(name);
    let first = below.split(|byte| *byte == b'/').next().unwrap_or_default();
    if below.len() > first.len() && MERGED.iter().any(|merged| merged.as_bytes() == first) {
        return [b"usr/", below].concat();
    }
    below.to_vec()
}

/// Its owner can always look into a folder, and empty it.
fn folder_mode(member: &Member) -> u32 {
    member.mode & 0o777 | 0o700
}
