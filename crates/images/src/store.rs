//! The store: `images/` of the state folder.
//!
//! `trees/HEX/` holds `root/`, `about.json`, the documents of the image and `lease`; `names.json` says which names mean which digest. What is being made
//! has a name with `.new-` before it, and is there whole or not at all.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use sandbox::state::{Cross, Dir, State, own_folder};
use serde::{Deserialize, Serialize};

use crate::check::sum;
use crate::config::{Defaults, sha256_of};
use crate::error::ImageError;
use crate::layout::{Image, images};
use crate::record::{Record, Said};
use crate::resolve::{digest_of, same};
use crate::seal;
use crate::source::Source;
use crate::unfinished::unfinished;
use crate::unpack::{UnpackNotes, unpack};

const TREES: &str = "trees";
const NAMES: &str = "names.json";
const ABOUT: &str = "about.json";
const ROOT: &str = "root";
/// Held shared by who uses a tree.
const LEASE: &str = "lease";
/// Held by who imports, so that what lies unfinished is nobody's.
const IMPORT: &str = "import.lock";
/// Held while names and trees change places.
const LOCK: &str = "lock";
const UNFINISHED: &str = ".new-";
/// No file that we wrote is larger.
const MAX_OWN: u64 = 16 << 20;

/// What is written down of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Always 1.
    pub schema: u32,
    /// `sha256:HEX`: of its manifest, or of the configuration in a docker-archive.
    pub digest: String,
    /// Digest of the tree that it was unpacked to.
    pub tree: String,
    /// Entries of the tree.
    pub files: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Digests of its layers, unpacked.
    pub layers: Vec<String>,
    /// What it says of how it is run.
    pub config: Defaults,
    /// What is not as it was packed.
    pub told: UnpackNotes,
}

impl About {
    /// Whether it is what the documents of the image say.
    fn says(&self, Said { config, layers, unheeded }: &Said) -> bool {
        (&self.config, &self.layers, &self.told.unheeded) == (config, layers, unheeded)
    }
}

/// An image, and what it is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// Its names, sorted; none for one that is known by its digest alone.
    pub names: Vec<String>,
    /// The rest.
    #[serde(flatten)]
    pub about: About,
}

/// A tree that is what was unpacked, and stays in the store as long as this lives.
#[derive(Debug)]
pub struct Lease {
    about: About,
    path: PathBuf,
    held: OwnedFd,
}

impl Lease {
    /// The tree.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is written down of the image.
    #[must_use]
    pub const fn about(&self) -> &About {
        &self.about
    }
}

/// What keeps the tree in the store.
impl From<Lease> for OwnedFd {
    fn from(lease: Lease) -> Self {
        lease.held
    }
}

/// The store, open.
#[derive(Debug)]
pub struct Store {
    dir: Dir,
    path: PathBuf,
}

/// A tree that is being made, with room beside it for what is needed meanwhile.
pub(crate) struct Stage {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) dir: Dir,
    pub(crate) root: Dir,
}

/// An image whose tree is made; without a stage, it was there.
pub(crate) struct Staged {
    pub(crate) stage: Option<String>,
    pub(crate) digest: String,
    pub(crate) names: Vec<String>,
}

type Names = BTreeMap<String, String>;

impl Store {
    /// Opens the store of a state folder, made if it is missing.
    ///
    /// # Errors
    /// [`ImageError::State`].
    pub fn open(state: &State) -> Result<Self, ImageError> {
        let path = state.path().join("images");
        let dir = own_folder(&path, "FUMEHOOD_STATE", state.caller())?;
        let store = Self { dir, path };
        store.dir.make(TREES, Mode::RWXU).map_err(|errno| store.io(TREES, errno))?;
        Ok(store)
    }

    /// Imports all images of an OCI layout or a docker-archive: all of them, or none. `limit`: the most bytes that each may
    /// unpack to; otherwise [`crate::MAX_UNPACKED`] and [`crate::MAX_RATIO`] hold.
    ///
    /// # Errors
    /// Why nothing was kept.
    pub fn import(&self, path: &Path, limit: Option<u64>) -> Result<Vec<Listed>, ImageError> {
        self.alone(|| {
            let source = Source::open(path)?;
            let found = images(&source)?;
            self.staged_and_kept(&source, found, limit)
        })
    }

    /// Imports the one image of a layout under the name by which it was asked for, digest and all; whatever it calls itself.
    ///
    /// # Errors
    /// As [`Self::import`].
    pub fn import_as(&self, path: &Path, name: &str, limit: Option<u64>) -> Result<Listed, ImageError> {
        self.alone(|| {
            let source = Source::open(path)?;
            let mut found = images(&source)?;
            found.truncate(1);
            found.iter_mut().for_each(|image| image.names = vec![name.to_owned()]);
            let kept = self.staged_and_kept(&source, found, limit)?.pop();
            kept.ok_or_else(|| ImageError::None { reference: name.to_owned() })
        })
    }

    /// Whatever makes trees: one at a time, and what is left unfinished goes.
    pub(crate) fn alone<T>(&self, make: impl FnOnce() -> Result<T, ImageError>) -> Result<T, ImageError> {
        let _importing = self.lock(IMPORT, FlockOperation::LockExclusive)?;
        self.sweep()?;
        let done = make();
        self.sweep()?;
        done
    }

    fn staged_and_kept(
        &self,
        source: &Source,
        found: Vec<Image>,
        limit: Option<u64>,
    ) -> Result<Vec<Listed>, ImageError> {
        let mut staged = Vec::new();
        for image in found {
            let name = self.stage(source, &image, limit)?;
            staged.push(Staged { stage: name, digest: image.digest, names: image.names });
        }
        self.keep_all(staged)
    }

    /// Puts staged trees into their places, all or none of them.
    pub(crate) fn keep_all(&self, staged: Vec<Staged>) -> Result<Vec<Listed>, ImageError> {
        let _lock = self.lock(LOCK, FlockOperation::LockExclusive)?;
        let before = self.names()?;
        let (mut names, mut kept) = (before.clone(), Vec::new());
        for Staged { stage, digest, names: called } in staged {
            self.keep(stage.as_deref(), &digest)?;
            for name in called {
                // However it was written before: one image of a registry has one meaning here.
                names.retain(|other, meant| *meant == digest || !same(&name, other));
                names.insert(name, digest.clone());
            }
            kept.push(digest);
        }
        if names != before {
            self.write_names(&names)?;
        }
        kept.iter().map(|digest| self.listed(&names, digest)).collect()
    }

    /// Unpacks an image beside the others; `None` if it is there and as it was.
    fn stage(&self, source: &Source, image: &Image, limit: Option<u64>) -> Result<Option<String>, ImageError> {
        if self.has(&image.digest)? {
            return Ok(None);
        }
        let stage = self.new_stage()?;
        let told = unpack(source, image, &stage.root, limit)?;
        self.describe(&stage, &image.digest, &image.record, &told)?;
        Ok(Some(stage.name))
    }

    /// Gives an image that is there one more name; `None` if it is not, or a use found it changed. That is no use: a tree that was
    /// sealed in this boot is not looked at, and each use of it is.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn call(&self, digest: &str, name: &str) -> Result<Option<Listed>, ImageError> {
        self.alone(|| {
            let there = |about: About| {
                self.folders(digest).is_ok_and(|(dir, _root)| seal::is_kept(&dir, &about.tree)) || self.is_whole(&about)
            };
            if !self.about(digest)?.is_some_and(there) {
                return Ok(None);
            }
            let staged = Staged { stage: None, digest: digest.to_owned(), names: vec![name.to_owned()] };
            Ok(self.keep_all(vec![staged])?.pop())
        })
    }

    /// Whether an image is there, and as it was.
    pub(crate) fn has(&self, digest: &str) -> Result<bool, ImageError> {
        Ok(self.about(digest)?.is_some_and(|about| self.is_whole(&about)))
    }

    /// An empty tree beside the others.
    pub(crate) fn new_stage(&self) -> Result<Stage, ImageError> {
        let name = unfinished(UNFINISHED)?;
        let io = |errno| self.io(&name, errno);
        self.dir.make(&name, Mode::RWXU).map_err(io)?;
        let dir = self.dir.enter(&name, Cross::No).map_err(io)?;
        dir.make(ROOT, Mode::from_raw_mode(0o755)).map_err(io)?;
        let root = dir.enter(ROOT, Cross::No).map_err(io)?;
        // Whatever the caller's umask is.
        rustix::fs::fchmod(&root, Mode::from_raw_mode(0o755)).map_err(io)?;
        let path = self.path.join(&name);
        Ok(Stage { name, path, dir, root })
    }

    /// Writes down what a staged tree is.
    pub(crate) fn describe(
        &self,
        stage: &Stage,
        digest: &str,
        record: &Record,
        told: &UnpackNotes,
    ) -> Result<(), ImageError> {
        let io = |errno| self.io(&stage.name, errno);
        let Said { config, layers, unheeded } = record.said(digest).ok_or_else(|| changed(digest))?;
        record.write(&stage.dir).map_err(io)?;
        let sum = seal::around(&stage.dir, &stage.root, || sum(&stage.root)).map_err(io)?;
        let about = About {
            schema: 1,
            digest: digest.to_owned(),
            tree: sum.digest,
            files: sum.files,
            bytes: sum.bytes,
            layers,
            config,
            told: UnpackNotes { unheeded, ..told.clone() },
        };
        write(&stage.dir, ABOUT, &about).map_err(io)?;
        write(&stage.dir, LEASE, &()).map_err(io)
    }

    /// Puts a staged tree into its place.
    fn keep(&self, stage: Option<&str>, digest: &str) -> Result<(), ImageError> {
        let Some(stage) = stage else { return Ok(()) };
        let place = self.place(digest)?;
        // One of the same digest that was changed goes, if nobody is in it.
        self.take_away(digest, &format!("{stage}-old"))?;
        rustix::fs::renameat(&self.dir, stage, &self.dir, &place).map_err(|errno| self.io(&place, errno))
    }

    /// Moves a tree out of its place, for the next sweep; not while somebody uses it.
    fn take_away(&self, digest: &str, to: &str) -> Result<(), ImageError> {
        let place = self.place(digest)?;
        let io = |errno| self.io(&place, errno);
        let dir = match self.dir.enter(&place, Cross::No) {
            Err(Errno::NOENT) => return Ok(()),
            other => other.map_err(io)?,
        };
        let _alone = match dir.open_file(LEASE, OFlags::RDONLY, Mode::empty()) {
            Err(Errno::NOENT) => None,
            other => {
                let lease = other.map_err(io)?;
                match rustix::fs::flock(&lease, FlockOperation::NonBlockingLockExclusive) {
                    Err(Errno::WOULDBLOCK) => return Err(ImageError::InUse { reference: digest.to_owned() }),
                    other => other.map_err(io)?,
                }
                Some(lease)
            }
        };
        rustix::fs::renameat(&self.dir, &place, &self.dir, to).map_err(io)
    }

    /// All images, by digest.
    ///
    /// # Errors
    /// [`ImageError::Io`], [`ImageError::Changed`].
    pub fn list(&self) -> Result<Vec<Listed>, ImageError> {
        let _lock = self.lock(LOCK, FlockOperation::LockShared)?;
        let names = self.names()?;
        let trees = self.dir.enter(TREES, Cross::No).and_then(|dir| dir.names());
        let trees = trees.map_err(|errno| self.io(TREES, errno))?;
        let digests = trees.iter().filter_map(|name| Some(format!("sha256:{}", name.to_str()?)));
        digests.filter(|digest| digest_of(digest).is_some()).map(|digest| self.listed(&names, &digest)).collect()
    }

    /// The image that a name or a digest means.
    ///
    /// # Errors
    /// [`ImageError::None`] and as [`Self::list`].
    pub fn find(&self, reference: &str) -> Result<Listed, ImageError> {
        let _lock = self.lock(LOCK, FlockOperation::LockShared)?;
        let names = self.names()?;
        let digest = self.digest(&names, reference)?;
        self.listed(&names, &digest)
    }

    /// Removes a name, and the image with its last one; by digest, the image with all its names.
    ///
    /// # Errors
    /// [`ImageError::None`], [`ImageError::InUse`]: then nothing is removed.
    pub fn remove(&self, reference: &str) -> Result<(), ImageError> {
        self.alone(|| {
            let _lock = self.lock(LOCK, FlockOperation::LockExclusive)?;
            let mut names = self.names()?;
            let digest = self.digest(&names, reference)?;
            if digest_of(reference).is_some() {
                names.retain(|_, meant| *meant != digest);
            } else if names.remove(reference).is_none() {
                names.retain(|name, _| !same(name, reference));
            }
            if !names.values().any(|meant| *meant == digest) {
                self.take_away(&digest, &format!("{UNFINISHED}removed"))?;
            }
            self.write_names(&names)
        })
    }

    /// Gives out a tree that is what was unpacked; it stays as long as the lease does.
    ///
    /// # Errors
    /// [`ImageError::None`]; [`ImageError::Changed`]: it is not what was unpacked.
    pub fn lease(&self, reference: &str) -> Result<Lease, ImageError> {
        self.leased(reference, |about| self.is_whole(about))
    }

    /// The same, after reading all of it whether it was sealed or not.
    ///
    /// # Errors
    /// As [`Self::lease`].
    pub fn lease_read_again(&self, reference: &str) -> Result<Lease, ImageError> {
        self.leased(reference, |about| self.is_read_whole(about))
    }

    fn leased(&self, reference: &str, is_whole: impl FnOnce(&About) -> bool) -> Result<Lease, ImageError> {
        let (about, held) = {
            let _lock = self.lock(LOCK, FlockOperation::LockShared)?;
            let digest = self.digest(&self.names()?, reference)?;
            let about = self.about(&digest)?.ok_or_else(|| changed(&digest))?;
            let lease = self.dir.open_file(format!("{}/{LEASE}", self.place(&digest)?), OFlags::RDONLY, Mode::empty());
            let lease = lease.map_err(|_unusable| changed(&digest))?;
            rustix::fs::flock(&lease, FlockOperation::LockShared).map_err(|errno| self.io(LEASE, errno))?;
            (about, OwnedFd::from(lease))
        };
        if !is_whole(&about) {
            return Err(changed(&about.digest));
        }
        let path = self.tree(&about.digest)?;
        Ok(Lease { about, path, held })
    }

    /// Its folder.
    pub(crate) const fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Where the tree of an image lies.
    pub(crate) fn tree(&self, digest: &str) -> Result<PathBuf, ImageError> {
        Ok(self.path.join(self.place(digest)?).join(ROOT))
    }

    fn digest(&self, names: &Names, reference: &str) -> Result<String, ImageError> {
        let none = || ImageError::None { reference: reference.to_owned() };
        let named = names.get(reference).cloned().or_else(|| digest_of(reference).map(str::to_owned));
        let digest = named.or_else(|| self::named(names, reference).map(|(_, digest)| digest.clone()));
        let digest = digest.ok_or_else(none)?;
        let there = self.dir.enter(self.place(&digest)?, Cross::No).is_ok();
        if there { Ok(digest) } else { Err(none()) }
    }

    /// Where a tree is in the store.
    fn place(&self, digest: &str) -> Result<String, ImageError> {
        sha256_of(digest).map(|hex| format!("{TREES}/{hex}")).ok_or_else(|| changed(digest))
    }

    fn listed(&self, names: &Names, digest: &str) -> Result<Listed, ImageError> {
        let about = self.about(digest)?.ok_or_else(|| changed(digest))?;
        let names = names.iter().filter(|(_, meant)| *meant == digest).map(|(name, _)| name.clone()).collect();
        Ok(Listed { names, about })
    }

    /// What is written down of an image; `None` if there is none, or if it is not what the image says.
    fn about(&self, digest: &str) -> Result<Option<About>, ImageError> {
        let place = self.place(digest)?;
        match self.dir.read(format!("{place}/{ABOUT}"), MAX_OWN) {
            Err(Errno::NOENT) => Ok(None),
            Ok(text) => {
                let about: Option<About> = serde_json::from_slice(&text).ok();
                let about = about.filter(|about| about.schema == 1 && about.digest == digest);
                let record = self.dir.enter(&place, Cross::No).and_then(|dir| Record::read(&dir));
                let said = record.ok().and_then(|record| record.said(digest));
                Ok(about.filter(|about| said.is_some_and(|said| about.says(&said))))
            }
            Err(errno) => Err(self.io(&place, errno)),
        }
    }

    /// Whether the tree is what was unpacked: nothing of it was changed since all of it was read, or all of it is read now.
    fn is_whole(&self, about: &About) -> bool {
        let sealed = |(dir, root): (Dir, Dir)| seal::holds(&dir, &root, &about.tree);
        self.folders(&about.digest).is_ok_and(sealed) || self.is_read_whole(about)
    }

    fn is_read_whole(&self, about: &About) -> bool {
        let Ok((dir, root)) = self.folders(&about.digest) else { return false };
        let whole = seal::around(&dir, &root, || sum(&root)).is_ok_and(|found| found.digest == about.tree);
        if !whole {
            seal::forget(&dir);
        }
        whole
    }

    /// The folder of an image, and its tree.
    fn folders(&self, digest: &str) -> Result<(Dir, Dir), ImageError> {
        let place = self.place(digest)?;
        let folders =
            self.dir.enter(&place, Cross::No).and_then(|dir| dir.enter(ROOT, Cross::No).map(|root| (dir, root)));
        folders.map_err(|errno| self.io(&place, errno))
    }

    fn names(&self) -> Result<Names, ImageError> {
        match self.dir.read(NAMES, MAX_OWN) {
            Err(Errno::NOENT) => Ok(Names::new()),
            Ok(text) => serde_json::from_slice(&text).map_err(|_unread| self.io(NAMES, Errno::INVAL)),
            Err(errno) => Err(self.io(NAMES, errno)),
        }
    }

    fn write_names(&self, names: &Names) -> Result<(), ImageError> {
        let new = format!("{UNFINISHED}names");
        let io = |errno| self.io(NAMES, errno);
        self.dir.remove_tree(&new).map_err(io)?;
        write(&self.dir, &new, names).map_err(io)?;
        rustix::fs::renameat(&self.dir, &new, &self.dir, NAMES).map_err(io)
    }

    /// Takes away what was begun and not finished; with [`IMPORT`] held it is nobody's.
    fn sweep(&self) -> Result<(), ImageError> {
        for name in self.dir.names().map_err(|errno| self.io("", errno))? {
            if name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes()) {
                self.dir.remove_tree(&name).map_err(|errno| self.io(UNFINISHED, errno))?;
            }
        }
        Ok(())
    }

    /// Takes away what imports, removals and downloads that were killed left, unless somebody is at work; and names whose tree
    /// is gone. How many things there were.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn sweep_unfinished(&self) -> Result<u64, ImageError> {
        let mut count = u64::from(self.clear_downloads()?);
        let _importing = match self.lock(IMPORT, FlockOperation::NonBlockingLockExclusive) {
            Err(ImageError::Io { errno: Errno::WOULDBLOCK, .. }) => return Ok(count),
            lock => lock?,
        };
        let unfinished = self.dir.names().map_err(|errno| self.io("", errno))?;
        let unfinished = unfinished.iter().filter(|name| name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes()));
        count = count.saturating_add(u64::try_from(unfinished.count()).unwrap_or(0));
        self.sweep()?;
        let _lock = self.lock(LOCK, FlockOperation::LockExclusive)?;
        let mut names = self.names()?;
        let before = names.len();
        names.retain(|_, digest| self.place(digest).is_ok_and(|place| self.dir.enter(place, Cross::No).is_ok()));
        if names.len() < before {
            count = count.saturating_add(u64::try_from(before.saturating_sub(names.len())).unwrap_or(0));
            self.write_names(&names)?;
        }
        Ok(count)
    }

    fn lock(&self, name: &str, how: FlockOperation) -> Result<File, ImageError> {
        flock(&self.dir, name, how).map_err(|errno| self.io(name, errno))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn io(&self, below: &str, errno: Errno) -> ImageError {
        ImageError::Io { path: self.path.join(below), errno }
    }
}

pub(crate) fn flock(dir: &Dir, name: &str, how: FlockOperation) -> Result<File, Errno> {
    let file = dir.open_file(name, OFlags::RDWR | OFlags::CREATE, Mode::from_raw_mode(0o600))?;
    rustix::io::retry_on_intr(|| rustix::fs::flock(&file, how))?;
    Ok(file)
}

/// The name that means what a reference means, and its digest.
fn named<'a>(names: &'a Names, reference: &str) -> Option<(&'a String, &'a String)> {
    names.iter().find(|(name, _)| same(name, reference))
}

fn changed(digest: &str) -> ImageError {
    ImageError::Changed { digest: digest.to_owned() }
}

/// Writes a new file.
fn write(dir: &Dir, name: &str, what: &impl Serialize) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let mut file = dir.open_file(name, flags, Mode::from_raw_mode(0o600))?;
    let text = serde_json::to_vec(what).map_err(|_unwritten| Errno::INVAL)?;
    // What could not be read again is not written.
    if u64::try_from(text.len()).is_ok_and(|length| length > MAX_OWN) {
        return Err(Errno::FBIG);
    }
    file.write_all(&text).and_then(|()| file.sync_all()).map_err(|error| sandbox::state::errno_of(&error))
}
