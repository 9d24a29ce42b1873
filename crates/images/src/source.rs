//! What an image is imported from: a folder, or an archive of which each member is read where it lies.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use sandbox::state::{Dir, errno_of};

use crate::config::MAX_DOCUMENT;
use crate::error::ImageError;
use sandbox::members::{Kind, Members};

/// Most members of an archive: blobs and documents, not the files of the image.
const MAX_MEMBERS: usize = 10_000;

pub(crate) struct Source {
    path: PathBuf,
    parts: Parts,
}

/// The bytes of a part, and how many there are.
pub(crate) type Part<'a> = (Box<dyn Read + 'a>, u64);

enum Parts {
    Folder(Dir),
    Archive { file: File, members: BTreeMap<String, MemberPlace> },
}

/// What an archive has under a name.
enum MemberPlace {
    At(u64, u64),
    /// What older versions of `docker save` write for a layer that they have written already.
    LikeOther(String),
}

impl Source {
    pub(crate) fn open(path: &Path) -> Result<Self, ImageError> {
        let io = |error: &io::Error| ImageError::Io { path: path.to_owned(), errno: errno_of(error) };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let open = rustix::fs::open(path, flags, Mode::empty());
        let file = File::from(open.map_err(|errno| ImageError::Io { path: path.to_owned(), errno })?);
        let kind = file.metadata().map_err(|error| io(&error))?.file_type();
        let parts = if kind.is_dir() {
            Parts::Folder(Dir::from(OwnedFd::from(file)))
        } else if kind.is_file() {
            let members = members_of(&file).map_err(|why| ImageError::NotAnImage { path: path.to_owned(), why })?;
            Parts::Archive { file, members }
        } else {
            let why = "it is neither a folder nor a file".to_owned();
            return Err(ImageError::NotAnImage { path: path.to_owned(), why });
        };
        Ok(Self { path: path.to_owned(), parts })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// That this cannot be imported.
    pub(crate) fn wrong(&self, why: impl Into<String>) -> ImageError {
        ImageError::NotAnImage { path: self.path.clone(), why: why.into() }
    }

    /// One part, and its size.
    pub(crate) fn part(&self, name: &str) -> Result<Option<Part<'_>>, ImageError> {
        match &self.parts {
            Parts::Folder(dir) => match dir.open_file(name, OFlags::RDONLY, Mode::empty()) {
                Ok(file) => {
                    let meta = file.metadata().map_err(|error| self.io(name, &error))?;
                    if !meta.is_file() {
                        return Err(self.wrong(format!("`{name}` is no file")));
                    }
                    Ok(Some((Box::new(file), meta.len())))
                }
                Err(rustix::io::Errno::NOENT) => Ok(None),
                Err(rustix::io::Errno::LOOP | rustix::io::Errno::XDEV) => {
                    Err(self.wrong(format!("`{name}` leads out of it, or through a link")))
                }
                Err(errno) => Err(ImageError::Io { path: self.path.join(name), errno }),
            },
            Parts::Archive { file, members } => {
                let lies = match members.get(name) {
                    Some(MemberPlace::LikeOther(other)) => members.get(other),
                    found => found,
                };
                match lies {
                    Some(MemberPlace::At(at, size)) => {
                        Ok(Some((Box::new(Section { file, at: *at, left: *size }), *size)))
                    }
                    Some(MemberPlace::LikeOther(_)) => Err(self.wrong(format!("`{name}` is a link to a link"))),
                    None => Ok(None),
                }
            }
        }
    }

    /// A document.
    pub(crate) fn document(&self, name: &str) -> Result<Option<Vec<u8>>, ImageError> {
        let Some((reader, size)) = self.part(name)? else { return Ok(None) };
        let mut text = Vec::new();
        let most = MAX_DOCUMENT.saturating_add(1);
        let read = reader.take(most).read_to_end(&mut text).map_err(|error| self.io(name, &error))?;
        if size > MAX_DOCUMENT || u64::try_from(read).unwrap_or(u64::MAX) > MAX_DOCUMENT {
            return Err(self.wrong(format!("`{name}` is larger than {MAX_DOCUMENT} bytes")));
        }
        Ok(Some(text))
    }

    fn io(&self, name: &str, error: &io::Error) -> ImageError {
        ImageError::Io { path: self.path.join(name), errno: errno_of(error) }
    }
}

/// Where the files of an archive lie in it.
fn members_of(file: &File) -> Result<BTreeMap<String, MemberPlace>, String> {
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    let mut found = BTreeMap::new();
    let mut members = Members::new(Section { file, at: 0, left: length });
    while let Some(member) = members
        .next_member()
        .map_err(|error| format!("it cannot be read as a tar archive: {error} (is it compressed?)"))?
    {
        // A member that is none of an image is never asked for.
        let Ok(name) = String::from_utf8(member.name) else { continue };
        let name = name.strip_prefix("./").unwrap_or(&name).to_owned();
        let lies = match member.kind {
            Kind::File => MemberPlace::At(member.at, member.size),
            Kind::Symlink(target) | Kind::Link(target) => MemberPlace::LikeOther(other_of(&target)),
            Kind::Folder | Kind::Other(_) => continue,
        };
        if found.insert(name.clone(), lies).is_some() {
            return Err(format!("it has `{name}` twice"));
        }
        if found.len() > MAX_MEMBERS {
            return Err(format!("it has more than {MAX_MEMBERS} members"));
        }
    }
    Ok(found)
}

/// The member that a link in an archive means: all lie in it, or in folders right below.
fn other_of(target: &[u8]) -> String {
    let target = String::from_utf8_lossy(target);
    target.strip_prefix("../").unwrap_or(&target).to_owned()
}

/// A part of a file.
pub(crate) struct Section<'a> {
    pub(crate) file: &'a File,
    pub(crate) at: u64,
    pub(crate) left: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read_at(buffer.get_mut(..most).unwrap_or_default(), self.at)?;
        let count = u64::try_from(read).unwrap_or(u64::MAX);
        self.at = self.at.saturating_add(count);
        self.left = self.left.saturating_sub(count);
        Ok(read)
    }
}
