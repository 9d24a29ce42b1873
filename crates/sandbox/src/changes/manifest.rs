//! The list of what changed, and where it is kept: `changes/RUN/manifest.json` and `changes/RUN/blobs/SHA256`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::{Errno, Result as KernelResult};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::ChangesError;
use super::guarded::MAX_JUDGED;
use crate::protect;
use crate::state::{Cross, Dir, PathText, RunId, State, path_text};
use policy::json::{canonical, hex, sha256_hex};

/// Contents of the host up to this size are hashed, so that a conflict can be told from a touch.
pub(super) const HASHED: u64 = 8 << 20;
/// No manifest that we wrote is larger.
pub(super) const MAX_MANIFEST: u64 = 256 << 20;
pub(super) const MANIFEST: &str = "manifest.json";
/// How the name of the folder ends for what a run made and was put aside.
pub(crate) const ASIDE: &str = "-aside";
/// The folder of contents in that of a run.
pub const BLOBS: &str = "blobs";

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// It is gone. Sorts first: what replaces it comes after.
    Removed,
    /// It is new.
    Added,
    /// Its content, target or mode is another.
    Modified,
}

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A pipe, socket or device; only ever on the host's side.
    Special,
}

/// What a path of the host was, so that a change by somebody else is seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Kind.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Inode.
    pub inode: u64,
    /// Size.
    pub size: u64,
    /// Modification: seconds and nanoseconds.
    pub mtime: (i64, u64),
    /// Change of the inode: cannot be set back by a program.
    pub ctime: (i64, u64),
    /// Of small files.
    pub sha256: Option<String>,
    /// Of links, hex of the bytes.
    pub target: Option<String>,
    /// Of an index of git's, what it lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<String>,
    /// It has another name too (a hard link).
    #[serde(default)]
    pub has_other_names: bool,
}

/// One changed path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Relative to the workspace.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// What happened.
    pub change: Change,
    /// What it is now; for a removed one what it was.
    pub kind: Kind,
    /// Permission bits now, without set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Size now.
    pub size: u64,
    /// Of a file.
    pub sha256: Option<String>,
    /// Of a link, hex of the bytes.
    pub target: Option<String>,
    /// It had a set-user-id or set-group-id bit, which was left behind.
    pub stripped: bool,
    /// What was there on the host.
    pub base: Option<Fingerprint>,
    /// Somebody changed it on the host while the run lasted.
    pub touched: bool,
}

impl Entry {
    /// What a file is now; nothing where it has no content, or nobody can read it.
    pub(super) fn content(&self, blobs: Option<&Dir>) -> Option<Vec<u8>> {
        blobs?.read(self.sha256.as_deref()?, MAX_JUDGED).ok()
    }
}

#[cfg(test)]
impl Entry {
    /// One with no content and nothing before it.
    pub(super) fn plain(path: &str, change: Change, kind: Kind) -> Self {
        Self {
            path: path.into(),
            change,
            kind,
            mode: 0o644,
            size: 0,
            sha256: None,
            target: None,
            stripped: false,
            base: None,
            touched: false,
        }
    }
}

/// Something that is not carried over, or not as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Relative to the workspace.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// Why.
    pub why: String,
    /// It is carried over all the same: only what `why` says of it is not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
}

impl Refused {
    /// Something that is not carried over.
    pub(crate) fn new(path: impl Into<PathBuf>, why: impl Into<String>) -> Self {
        Self { path: path.into(), why: why.into(), taken: false }
    }
}

/// All changes of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Always 1.
    pub schema: u32,
    /// Run.
    pub run: String,
    /// The workspace on the host, without links.
    #[serde(with = "path_text")]
    pub workspace: PathBuf,
    /// Its device and inode.
    pub root: (u64, u64),
    /// By path, a removal before what replaces it.
    pub entries: Vec<Entry>,
    /// Not carried over.
    pub refused: Vec<Refused>,
    /// Documents of the run's policy that lie in the workspace, by every name: another one would decide how the next run is
    /// confined.
    #[serde(default)]
    pub policies: Vec<PathText>,
    /// Of a linked worktree that the run worked in: its own part of git's folder, `.git/worktrees/NAME`.
    #[serde(default)]
    pub worktree: Option<PathText>,
    /// Paths that the policy hides (`fs.hide`): the run saw nothing there.
    #[serde(default)]
    pub hidden: Vec<PathText>,
    /// Where the host's working trees of git were when the run began.
    #[serde(default)]
    pub heads: Vec<NotedHead>,
    /// References that files of the host's said when the run began, and that are elsewhere by its end, or nowhere.
    #[serde(default)]
    pub moved: Vec<NotedReference>,
    /// Of references that the run made a file of: where each was on the host when the run began; nothing where it had none, `unknown` where nobody knows.
    #[serde(default)]
    pub listed: Vec<NotedReference>,
    /// Lists of references that are not taken now: what git packed into one of them was not removed.
    #[serde(skip)]
    pub(super) untaken: Vec<Entry>,
}

/// Where a reference was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedReference {
    /// Its file, relative to the workspace.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// What that said, hex.
    pub id: String,
}

/// Where a working tree was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedHead {
    /// git's folder of it, relative to the workspace: the one with its `HEAD` and its index.
    #[serde(with = "path_text")]
    pub own: PathBuf,
    /// What `HEAD` said, hex of the bytes.
    pub head: String,
    /// The commit that it was on, hex.
    pub commit: Option<String>,
}

impl Fingerprint {
    /// Looks at a direct child of a folder of the host; `None` if nothing is there.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn of(dir: &Dir, name: &OsStr) -> KernelResult<Option<Self>> {
        Self::of_called(dir, name, name)
    }

    /// [`Self::of`] of what belongs somewhere else, where it is `called` otherwise.
    pub(super) fn of_called(dir: &Dir, name: &OsStr, called: &OsStr) -> KernelResult<Option<Self>> {
        let Some(stat) = dir.stat(name)? else { return Ok(None) };
        let mut found = Self::from_stat(&stat);
        match found.kind {
            Kind::Symlink => {
                found.target = Some(hex(rustix::fs::readlinkat(dir, Path::new(name), Vec::new())?.as_bytes()));
            }
            Kind::File if found.size <= HASHED => {
                // A file that cannot be read, or that just grew, has no hash; its times and inode still tell.
                if let Ok(content) = dir.read(name, HASHED) {
                    found.sha256 = Some(hex(&Sha256::digest(&content)));
                    found.listed = listed(called, &content);
                }
            }
            Kind::File | Kind::Dir | Kind::Special => {}
        }
        Ok(Some(found))
    }

    /// Without looking inside.
    #[must_use]
    pub fn from_stat(stat: &Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Kind::Special,
        };
        Self {
            kind,
            mode: stat.st_mode & 0o7777,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime: (stat.st_mtime, stat.st_mtime_nsec),
            ctime: (stat.st_ctime, stat.st_ctime_nsec),
            sha256: None,
            target: None,
            listed: None,
            has_other_names: kind != Kind::Dir && stat.st_nlink > 1,
        }
    }

    /// Whether what is there now is what was there then: untouched, or touched and yet the same.
    #[must_use]
    pub fn is_same(&self, now: &Self) -> bool {
        if self.kind != now.kind || self.mode != now.mode {
            return false;
        }
        match self.kind {
            Kind::Dir => true,
            Kind::Symlink => self.target == now.target,
            Kind::File | Kind::Special => {
                let untouched = self.inode == now.inode
                    && self.size == now.size
                    && self.mtime == now.mtime
                    && self.ctime == now.ctime;
                let is_known = |one: &Option<String>, other| one.is_some() && one == other;
                untouched || is_known(&self.sha256, &now.sha256) || is_known(&self.listed, &now.listed)
            }
        }
    }
}

impl Manifest {
    /// The entries that are chosen: all, or those at or below the paths given.
    ///
    /// # Errors
    /// [`ChangesError::NoSuchPath`] for a path that names none, and nothing that is not carried over.
    pub fn choose(&self, paths: Option<&[PathBuf]>) -> Result<Vec<&Entry>, ChangesError> {
        let Some(paths) = paths else { return Ok(self.entries.iter().collect()) };
        for path in paths {
            if !self.has(path) && !self.refused.iter().any(|refused| refused.path.starts_with(path)) {
                return Err(ChangesError::NoSuchPath { path: path.clone() });
            }
        }
        Ok(self.entries.iter().filter(|entry| is_named(paths, &entry.path)).collect())
    }

    /// The list with the entries alone at or below these paths.
    pub(super) fn cut_to(&self, paths: &[PathBuf]) -> Self {
        let mut cut = self.clone();
        let is_list = |entry: &&Entry| entry.path.ends_with("packed-refs") && !is_named(paths, &entry.path);
        cut.untaken.extend(self.entries.iter().filter(is_list).cloned());
        cut.entries.retain(|entry| is_named(paths, &entry.path));
        cut
    }

    /// Whether there is an entry at or below a path.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.entries.iter().any(|entry| entry.path.starts_with(path))
    }

    /// Whether something else happened at this very path too.
    pub(crate) fn has_other(&self, path: &Path, change: Change) -> bool {
        self.entries.iter().any(|entry| entry.path == path && entry.change != change)
    }

    /// What is not carried over: all, or what is at or below the paths given.
    #[must_use]
    pub fn left_behind(&self, paths: Option<&[PathBuf]>) -> Vec<Refused> {
        let asked = |refused: &&Refused| paths.is_none_or(|paths| is_named(paths, &refused.path));
        self.refused.iter().filter(asked).cloned().collect()
    }

    /// SHA-256 over the canonical form of the run, its workspace and these entries: what `diff --json` shows and
    /// `apply --digest` takes.
    #[must_use]
    pub fn digest(&self, entries: &[&Entry]) -> String {
        let value = serde_json::json!({ "run": self.run, "root": self.root, "entries": entries });
        sha256_hex(canonical(&value).as_bytes())
    }

    pub(crate) fn save(&self, dir: &Dir) -> KernelResult<()> {
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CREATE | rustix::fs::OFlags::TRUNC;
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let mut file = std::io::BufWriter::new(dir.open_file("manifest.new", flags, mode)?);
        serde_json::to_writer(&mut file, self).map_err(|e| crate::state::errno_of(&e.into()))?;
        let file = file.into_inner().map_err(|e| crate::state::errno_of(e.error()))?;
        rustix::fs::fsync(&file)?;
        rustix::fs::renameat(dir, "manifest.new", dir, MANIFEST)
    }
}

/// The changes of one run.
///
/// # Errors
/// [`ChangesError::None`] or [`ChangesError::Damaged`].
pub fn load(state: &State, run: &RunId) -> Result<(Manifest, Dir), ChangesError> {
    let changes = state.changes()?;
    let none = || ChangesError::None { of: format!("run {run}") };
    let dir = changes.enter(run.as_str(), Cross::No).or(Err(none()))?;
    match read(&dir, run.as_str()) {
        Ok(Some(manifest)) => Ok((manifest, dir)),
        Ok(None) => Err(ChangesError::Damaged { run: run.to_string() }),
        Err(Errno::NOENT) => Err(none()),
        Err(errno) => Err(ChangesError::Read { path: state.path().join("changes").join(run.as_str()), errno }),
    }
}

/// The list in a folder; `None` if it is not as we wrote it of this run.
pub(crate) fn read(dir: &Dir, run: &str) -> KernelResult<Option<Manifest>> {
    let content = dir.read(MANIFEST, MAX_MANIFEST)?;
    let plain = |path: &Path| {
        path.components().all(|c| matches!(c, std::path::Component::Normal(_))) && path.file_name().is_some()
    };
    let whole = |manifest: &Manifest| {
        manifest.schema == 1 && manifest.run == run && manifest.entries.iter().all(|entry| plain(&entry.path))
    };
    Ok(serde_json::from_slice(&content).ok().filter(whole))
}

/// The runs that have changes, the one that ended last first.
///
/// # Errors
/// [`ChangesError::State`].
pub fn runs(state: &State) -> Result<Vec<RunId>, ChangesError> {
    let runs = super::order::all(&state.changes()?);
    let mut runs = runs.map_err(|errno| ChangesError::Read { path: state.path().join("changes"), errno })?;
    runs.sort_unstable_by(|one, other| other.cmp(one));
    Ok(runs.into_iter().map(|(_, id)| id).collect())
}

/// The run with changes that ended last, of the workspace that `path` is, or lies in. `path` has no links in it.
///
/// # Errors
/// [`ChangesError::None`] if there is none.
pub fn newest(state: &State, path: &Path) -> Result<RunId, ChangesError> {
    for run in runs(state)? {
        match load(state, &run) {
            Ok((manifest, _)) if path.starts_with(&manifest.workspace) => return Ok(run),
            Ok(_) | Err(ChangesError::None { .. } | ChangesError::Damaged { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Err(ChangesError::None { of: crate::fault::show_path(path) })
}

/// Throws the changes of a run away, and what was put aside.
///
/// # Errors
/// [`ChangesError::None`] if there are none; [`ChangesError::Lives`].
pub fn discard(state: &State, run: &RunId) -> Result<(), ChangesError> {
    must_have_ended(state, run)?;
    super::unlock(state, run)?;
    let (changes, aside) = (state.changes()?, format!("{run}{ASIDE}"));
    let had = changes.kind(&aside) == Ok(Some(FileType::Directory));
    if had {
        let path = state.path().join("changes").join(&aside);
        changes.remove_tree(&aside).map_err(|errno| ChangesError::Write { path, errno })?;
    }
    match forget(state, run) {
        Err(ChangesError::None { .. }) if had => Ok(()),
        other => other,
    }
}

/// While a run goes on its supervisor alone knows what it took, and what it shows again.
pub(crate) fn must_have_ended(state: &State, run: &RunId) -> Result<(), ChangesError> {
    if crate::state::lives(state, run)? { Err(ChangesError::Lives { run: run.to_string() }) } else { Ok(()) }
}

/// [`discard`] by whoever has taken them all.
pub(super) fn forget(state: &State, run: &RunId) -> Result<(), ChangesError> {
    let changes = state.changes()?;
    if changes.kind(run.as_str()) != Ok(Some(FileType::Directory)) {
        return Err(ChangesError::None { of: format!("run {run}") });
    }
    let path = state.path().join("changes").join(run.as_str());
    let failed = |errno| ChangesError::Write { path: path.clone(), errno };
    // First of all the list: what is left if this is ended in the middle waits for nobody, and `gc` takes it.
    match changes.enter(run.as_str(), Cross::No).and_then(|dir| rustix::fs::unlinkat(&dir, MANIFEST, AtFlags::empty()))
    {
        Ok(()) | Err(Errno::NOENT) => changes.remove_tree(run.as_str()).map_err(failed),
        Err(errno) => Err(failed(errno)),
    }
}

/// What was put aside of each run's work that has any: the names in its folder ([`aside_folder`]), in their order.
///
/// # Errors
/// [`ChangesError`].
pub fn put_aside(state: &State) -> Result<BTreeMap<RunId, Vec<OsString>>, ChangesError> {
    let changes = state.changes()?;
    let failed = |errno| ChangesError::Read { path: state.path().join("changes"), errno };
    let mut found = BTreeMap::new();
    for name in changes.names().map_err(failed)? {
        let run = name.to_str().and_then(|name| name.strip_suffix(ASIDE)?.parse::<RunId>().ok());
        // One that went meanwhile holds nothing.
        let (Some(run), Ok(folder)) = (run, changes.enter(&name, Cross::No)) else { continue };
        let mut names = folder.names().map_err(failed)?;
        if !names.is_empty() {
            names.sort();
            found.insert(run, names);
        }
    }
    Ok(found)
}

/// Where what a run made and was put aside lies.
#[must_use]
pub fn aside_folder(state: &State, run: &RunId) -> PathBuf {
    state.path().join("changes").join(format!("{run}{ASIDE}"))
}

/// Whether a path is one of these or below one.
fn is_named(paths: &[PathBuf], path: &Path) -> bool {
    paths.iter().any(|named| path.starts_with(named))
}

/// Throws the changes at and below these paths away; those that are gone. With a list of references (`packed-refs`) goes that git removed the
/// files of what it packed into it: without it that would be a removal.
///
/// # Errors
/// [`ChangesError::NoSuchPath`] or [`ChangesError::Lives`], and nothing was thrown away.
pub fn discard_at(state: &State, run: &RunId, paths: &[PathBuf]) -> Result<Vec<PathBuf>, ChangesError> {
    must_have_ended(state, run)?;
    super::unlock(state, run)?;
    let (mut manifest, store) = load(state, run)?;
    let gone = manifest.choose(Some(paths))?.into_iter().map(|entry| entry.path.clone());
    let gone: Vec<PathBuf> =
        gone.chain(manifest.left_behind(Some(paths)).into_iter().map(|refused| refused.path)).collect();
    let packed = super::tidied::packed_into(&gone, &manifest, store.enter(BLOBS, Cross::No).ok().as_ref());
    manifest.entries.retain(|entry| !is_named(paths, &entry.path) && !packed.contains(&entry.path));
    manifest.refused.retain(|refused| !is_named(paths, &refused.path));
    if manifest.entries.is_empty() && manifest.refused.is_empty() {
        discard(state, run)?;
    } else {
        super::store::keep(state, run, &manifest, &store)?;
    }
    Ok(gone.into_iter().chain(packed).collect())
}

/// What an index of git's lists, if a file is called so: what git remembers in it of other files is nobody's change.
pub(super) fn listed(name: &OsStr, content: &[u8]) -> Option<String> {
    (name == "index").then(|| protect::listed(content))?.map(|sum| hex(&sum))
}

/// A link's target as bytes.
pub(crate) fn target_bytes(target: &str) -> Option<OsString> {
    policy::json::unhex(target).map(OsString::from_vec)
}
