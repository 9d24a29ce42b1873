//! Taking changes over into the workspace: all or nothing, never through a link, never over somebody else's work.
//!
//! How each path is exchanged, and taken back where one is not what it was, is in `exchange`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::io::{Errno, Result as KernelResult};
use serde::Serialize;
use sys::signals::BlockedSignals;

use super::ChangesError;
use super::access::of_another;
use super::exchange::{ExchangeError, Plan, Work, parent};
use super::guarded::Guarding;
use super::indices::note_put;
use super::interrupted::Half;
use super::judged::{Asked, Judged};
use super::locks::{locked, locks};
use super::manifest::{BLOBS, Change, Entry, Fingerprint, HASHED, Kind, Manifest, Refused, listed, load};
use super::marks::leaves;
use super::parts;
use super::reflog::Tips;
use super::repacked::LISTED_OTHERWISE;
use super::store::keep;
use super::tidied::Tidied;
use crate::protect::{List, split};
use crate::state::{Cross, Dir, PathText, RunId, State, path_text};

/// What to do with protected paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// Nothing is applied while one is chosen.
    Refuse,
    /// They are left out and stay with the run.
    Leave,
    /// These (and what lies in them) are taken; others refuse.
    Take(Vec<PathBuf>),
}

/// What to apply.
#[derive(Clone, Debug)]
pub struct Request {
    /// These paths and what lies in them; `None` = all.
    pub paths: Option<Vec<PathBuf>>,
    /// What was shown.
    pub digest: Option<String>,
    /// Protected paths.
    pub guarded: Guarded,
    /// Take links that lead out of the workspace.
    pub leaving_links: bool,
}

/// Why nothing was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// Relative to the workspace.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// `changed`, `exists`, `missing`, `touched`, `protected`, `link-leaves`, `not-empty`, `folder`, `not-carried`, `locked`, `owner`.
    pub id: &'static str,
    /// Why.
    pub why: String,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Applied {
    /// All of these are in the workspace now.
    Done {
        /// Digest of what was taken.
        digest: String,
        /// Paths taken.
        paths: Vec<PathText>,
        /// Protected paths that were left.
        left: usize,
        /// Of git's configurations that were taken in part: the keys that were left.
        keys: Vec<KeysLeft>,
        /// What was asked for and is not carried over.
        refused: Vec<Refused>,
    },
    /// Nothing was applied.
    Conflicts(Vec<Conflict>),
}

/// Keys of a configuration that stay with the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeysLeft {
    /// The configuration, relative to the workspace.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// Their names, for people.
    pub keys: String,
}

/// What came of it, and beside it what must not end in the middle.
struct Answer {
    applied: Applied,
    /// Of a part: why the first path was left that is none of an object.
    why: Option<String>,
    /// Until all is written down Ctrl-C is put off.
    put_off: Option<BlockedSignals>,
}

impl Answer {
    fn conflicts(conflicts: Vec<Conflict>) -> Self {
        Self { applied: Applied::Conflicts(conflicts), why: None, put_off: None }
    }
}

/// Applies changes of a run that has ended.
///
/// # Errors
/// [`ChangesError`]; nothing was applied then, but for [`ChangesError::Unkept`]. A conflict is no error.
pub fn apply(
    state: &State,
    run: &RunId,
    request: &Request,
    list: &List,
    now: Timestamp,
) -> Result<Applied, ChangesError> {
    super::manifest::must_have_ended(state, run)?;
    apply_own(state, run, request, list, now)
}

/// [`apply`], and what belongs to it, before whoever ended the caller meanwhile (Ctrl-C) has their way.
///
/// # Errors
/// As [`apply`].
pub fn apply_then<T>(
    state: &State,
    run: &RunId,
    request: &Request,
    (list, now): (&List, Timestamp),
    last: impl FnOnce(Applied) -> T,
) -> Result<T, ChangesError> {
    super::manifest::must_have_ended(state, run)?;
    let Answer { applied, put_off, .. } = answered(state, run, request, list, now)?;
    let done = last(applied);
    drop(put_off);
    Ok(done)
}

/// [`apply`] by the run's own supervisor.
pub(crate) fn apply_own(
    state: &State,
    run: &RunId,
    request: &Request,
    list: &List,
    now: Timestamp,
) -> Result<Applied, ChangesError> {
    answered(state, run, request, list, now).map(|answer| answer.applied)
}

/// [`apply_own`], and why the first path was left that is none of an object.
pub(crate) fn apply_telling(
    state: &State,
    run: &RunId,
    request: &Request,
    list: &List,
    now: Timestamp,
) -> Result<(Applied, Option<String>), ChangesError> {
    answered(state, run, request, list, now).map(|answer| (answer.applied, answer.why))
}

fn answered(
    state: &State,
    run: &RunId,
    request: &Request,
    list: &List,
    now: Timestamp,
) -> Result<Answer, ChangesError> {
    super::unlock(state, run)?;
    let (mut manifest, store) = load(state, run)?;
    let chosen = manifest.choose(request.paths.as_deref())?;
    let digest = manifest.digest(&chosen);
    if let Some(wanted) = request.digest.as_ref().filter(|wanted| **wanted != digest) {
        return Err(ChangesError::Digest { wanted: wanted.clone(), found: digest });
    }
    let (asked, half) = (Asked::of(request), Half::of(&store));
    let request = &with_logs(request, &manifest);
    let root = open_root(&manifest)?;
    let refused = manifest.left_behind(request.paths.as_deref());
    let blobs = store.enter(BLOBS, Cross::No).ok();
    let judged_before = half.judged(&root, blobs.as_ref(), (&asked, &digest));
    parts::settle(&mut manifest, request.paths.as_deref(), (&root, blobs.as_ref()))?;
    let parted = match &request.guarded {
        Guarded::Leave => parts::part(&mut manifest, request.paths.as_deref(), list, (&root, blobs.as_ref()))?,
        Guarded::Refuse | Guarded::Take(_) => Vec::new(),
    };
    // What is not taken is not there, for what is.
    let cut = request.paths.as_deref().map(|paths| manifest.cut_to(paths));
    let judged = cut.as_ref().unwrap_or(&manifest);
    let guarding = Guarding::of(list, judged, Some(&root), blobs.as_ref());
    let before = judged_before.map(Judged::taken).unwrap_or_default();
    let Selection { chosen, left, remembered, mut conflicts } = judge(request, (&guarding, &before));
    conflicts.extend(not_carried(request, &manifest, &refused));
    if chosen.is_empty() && conflicts.is_empty() && (remembered.is_empty() || !left.is_empty()) {
        let found = left.into_iter().chain(refused.iter().map(Conflict::not_carried));
        return Ok(Answer::conflicts(found.collect()));
    }
    let of_objects = |path: &Path| split(path).is_some_and(|(_, rest)| rest.starts_with("objects"));
    let why = left.iter().find(|one| !of_objects(&one.path)).map(|first| first.why.clone());
    let anew: Vec<&Entry> =
        chosen.iter().copied().filter(|e| !before.contains(&(e.path.as_path(), e.change))).collect();
    let tidied = Tidied::of(&root, &anew, &guarding);
    let known = judged_before.map(|judged| judged.entries.as_slice()).unwrap_or_default();
    let put: Vec<&Entry> = tidied.put(&anew).into_iter().chain(known).collect();
    let locks = locks(&put, &guarding);
    conflicts.extend(locked(&root, &locks));
    let (todo, changed) = compared(&root, &put, &guarding, (&half, &before))?;
    conflicts.extend(tidied.conflicts.iter().cloned().chain(changed));
    if !conflicts.is_empty() {
        return Ok(Answer::conflicts(conflicts));
    }
    let tips = Tips::of(&root, &put, &guarding.repositories).since(&root, half.tips());
    drop(guarding);
    let judged = Judged::of(&root, (asked, &digest), &put);
    let plan = Plan { todo: &todo, locks: &locks, judged: &judged, tips: &tips };
    let put_off = match exchanged((state, run, now), (&manifest, &root, &store), &plan)? {
        Ok(put_off) => put_off,
        Err(conflict) => return Ok(Answer::conflicts(vec![conflict])),
    };
    let paths: Vec<PathText> = chosen.iter().map(|e| PathText(e.path.clone())).collect();
    let gone = chosen.iter().chain(&remembered);
    let taken: BTreeSet<(PathBuf, Change)> = gone.map(|e| (e.path.clone(), e.change)).collect();
    let left = left.len().saturating_add(parted.len());
    manifest.entries.retain(|e| !taken.contains(&(e.path.clone(), e.change)));
    let keys = kept((state, run), (&mut manifest, &root, &store), &paths, parted).map_err(ChangesError::unkept)?;
    Ok(Answer { applied: Applied::Done { digest, paths, left, keys, refused }, why, put_off })
}

/// What is named is taken, or nothing is.
fn not_carried(request: &Request, manifest: &Manifest, refused: &[Refused]) -> Vec<Conflict> {
    let named_alone: Vec<&PathBuf> = request.paths.iter().flatten().filter(|path| !manifest.has(path)).collect();
    let is_named = |refused: &&Refused| named_alone.iter().any(|named| refused.path.starts_with(named));
    refused.iter().filter(is_named).map(Conflict::not_carried).collect()
}

/// Puts all into the workspace, or nothing. From its first step on it is not left half done by Ctrl-C, nor is what comes after it while
/// the answer lives.
fn exchanged(
    (state, run, now): (&State, &RunId, Timestamp),
    (manifest, root, store): (&Manifest, &Dir, &Dir),
    plan: &Plan<'_>,
) -> Result<Result<Option<BlockedSignals>, Conflict>, ChangesError> {
    let Plan { todo, locks, tips, .. } = plan;
    let mut work = Work::begin(state, manifest, root, store, (todo, now))?;
    // Writing all beside it may take long: git on the host may have begun something meanwhile.
    let unlocked = || locked(root, locks).into_iter().next().map_or(Ok(()), |lock| Err(ExchangeError::Conflict(lock)));
    let staged = work.stage(todo).and_then(|()| unlocked());
    let put_off = BlockedSignals::ending();
    match staged.and_then(|()| work.commit(plan)) {
        Ok(()) => {
            tips.log(root, run, now);
            work.end(false).map_err(ChangesError::unkept)?;
            Ok(Ok(put_off))
        }
        Err(error) => {
            work.end(true)?;
            match error {
                ExchangeError::Conflict(conflict) => Ok(Err(conflict)),
                ExchangeError::Failed(error) => Err(error),
            }
        }
    }
}

/// What is to be done, and what somebody changed on the host meanwhile. What an `apply` that was ended had judged (`before`) is not judged
/// anew.
fn compared<'a>(
    root: &Dir,
    chosen: &[&'a Entry],
    guarding: &Guarding<'_>,
    (half, before): (&Half, &BTreeSet<(&Path, Change)>),
) -> Result<(Vec<&'a Entry>, Vec<Conflict>), ChangesError> {
    let (mut todo, mut conflicts) = (Vec::new(), Vec::new());
    let repacked = guarding.manifest.listed_otherwise(root, guarding.blobs);
    let of = |change: Change| chosen.iter().filter(move |entry| entry.change == change);
    let removed: BTreeSet<&Path> = of(Change::Removed).map(|entry| entry.path.as_path()).collect();
    let added: BTreeMap<&Path, &Entry> = of(Change::Added).map(|entry| (entry.path.as_path(), *entry)).collect();
    let look = |entry: &Entry| {
        let stands = standing(root, entry, &removed)?;
        let is_there =
            matches!(stands, ApplyState::Conflict(..)) && half.has(&entry.path) && is_replaced(root, entry, &added)?;
        let stands = if is_there { ApplyState::Done } else { stands };
        Ok((stands, of_another(root, entry)?))
    };
    for entry in chosen.iter().filter(|entry| !is_listed_so(root, entry, guarding.blobs)) {
        let conflict = |id, why| Conflict { path: entry.path.clone(), id, why };
        match look(entry) {
            Ok((ApplyState::Ready, Some(owner))) => conflicts.push(Conflict::owner(entry, owner)),
            Ok((ApplyState::Ready, None)) if before.contains(&(entry.path.as_path(), entry.change)) => {
                todo.push(*entry)
            }
            Ok((ApplyState::Ready, None)) => {
                let is_listed_otherwise = repacked.contains(entry.path.as_path()) || guarding.leaves_behind(entry);
                let listed = is_listed_otherwise.then(|| LISTED_OTHERWISE.to_owned());
                let elsewhere = || guarding.is_elsewhere(entry).map(str::to_owned);
                match listed.or_else(elsewhere).or_else(|| guarding.is_under_file(entry)) {
                    None => todo.push(*entry),
                    Some(why) => conflicts.push(conflict("changed", guarding.beside(entry, why))),
                }
            }
            Ok((ApplyState::Done, _)) => {}
            Ok((ApplyState::Conflict(id, why), _)) => {
                let why = guarding.packed_by_both(entry).map_or(why, str::to_owned);
                conflicts.push(conflict(id, guarding.beside(entry, why)));
            }
            Err(errno) => {
                return Err(ChangesError::Read { path: guarding.manifest.workspace.join(&entry.path), errno });
            }
        }
    }
    Ok((todo, conflicts))
}

/// Whether what the run put in the place of something, or of a folder above it, is there already.
fn is_replaced(root: &Dir, entry: &Entry, added: &BTreeMap<&Path, &Entry>) -> KernelResult<bool> {
    let mut above = entry.path.ancestors().filter_map(|above| added.get(above));
    let Some(put) = above.find(|_| entry.change == Change::Removed) else { return Ok(false) };
    // A folder takes the place of what was none alone, and of nothing below it.
    if put.kind == Kind::Dir && (put.path != entry.path || entry.kind == Kind::Dir) {
        return Ok(false);
    }
    match parent(root, &put.path) {
        Ok((dir, name)) => Ok(is_done(put, Fingerprint::of(&dir, &name)?.as_ref())),
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::XDEV) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Of a stash that is taken by its name its log is, too: in that git looks for it.
fn with_logs(request: &Request, manifest: &Manifest) -> Request {
    let mut request = request.clone();
    let Guarded::Take(named) = request.guarded else { return request };
    let is_asked_for = |log: &Path| {
        let stash = log.ancestors().nth(3).map(|folder| folder.join("refs").join("stash"));
        log.ends_with("logs/refs/stash") && stash.is_some_and(|stash| named.iter().any(|path| stash.starts_with(path)))
    };
    let paths = manifest.entries.iter().map(|entry| &entry.path);
    let logs: Vec<PathBuf> = paths.filter(|path| is_asked_for(path)).cloned().collect();
    request.paths.iter_mut().for_each(|paths| paths.extend(logs.iter().cloned()));
    request.guarded = Guarded::Take(named.into_iter().chain(logs).collect());
    request
}

fn open_root(manifest: &Manifest) -> Result<Dir, ChangesError> {
    let path = &manifest.workspace;
    let failed = |errno| ChangesError::Read { path: path.clone(), errno };
    let root = Dir::open(path).map_err(failed)?;
    let stat = rustix::fs::fstat(&root).map_err(failed)?;
    if (stat.st_dev, stat.st_ino) == manifest.root { Ok(root) } else { Err(ChangesError::Moved { path: path.clone() }) }
}

impl Conflict {
    fn owner(entry: &Entry, owner: u32) -> Self {
        let why =
            format!("it belongs to somebody else (user {owner}), and would become another's: write into it yourself");
        Self { path: entry.path.clone(), id: "owner", why }
    }

    fn not_carried(refused: &Refused) -> Self {
        Self { path: refused.path.clone(), id: "not-carried", why: refused.why.clone() }
    }
}

/// What the list and the request say.
#[derive(Default)]
struct Selection<'a> {
    chosen: Vec<&'a Entry>,
    /// Protected, and left out as it was asked for.
    left: Vec<Conflict>,
    /// Of no use to git on the host, and not asked about.
    remembered: Vec<&'a Entry>,
    conflicts: Vec<Conflict>,
}

/// Before anybody compares with the host. What an `apply` that was ended was to take (`before`) is taken.
fn judge<'a>(request: &Request, (guarding, before): (&Guarding<'a>, &BTreeSet<(&Path, Change)>)) -> Selection<'a> {
    let mut judged = Selection::default();
    for entry in &guarding.manifest.entries {
        let conflict = |id, why: String| Conflict { path: entry.path.clone(), id, why };
        if before.contains(&(entry.path.as_path(), entry.change)) {
            judged.chosen.push(entry);
            continue;
        }
        let is_asked_for =
            matches!(&request.guarded, Guarded::Take(paths) if paths.iter().any(|path| entry.path.starts_with(path)));
        if guarding.is_remembered(entry) && !is_asked_for {
            judged.remembered.push(entry);
            continue;
        }
        if let Some(why) = guarding.why(entry) {
            match &request.guarded {
                Guarded::Leave => {
                    judged.left.push(conflict("protected", why));
                    continue;
                }
                Guarded::Take(_) if is_asked_for => {}
                Guarded::Refuse | Guarded::Take(_) => {
                    judged.conflicts.push(conflict("protected", why));
                    continue;
                }
            }
        }
        match leaves(&guarding.manifest.workspace, entry).filter(|_| !request.leaving_links) {
            Some(why) => judged.conflicts.push(conflict("link-leaves", why.into())),
            None => judged.chosen.push(entry),
        }
    }
    judged.leave_folders();
    judged
}

impl Selection<'_> {
    /// A folder that the run removed stays where something in it does.
    fn leave_folders(&mut self) {
        let left: BTreeSet<PathBuf> = self.left.iter().map(|one| one.path.clone()).collect();
        let remembered: BTreeSet<PathBuf> = self.remembered.iter().map(|entry| entry.path.clone()).collect();
        let stays = |all: &BTreeSet<PathBuf>, folder: &Path| {
            all.range(folder.to_path_buf()..).next().is_some_and(|first| first.starts_with(folder))
        };
        let mut taken = Vec::new();
        for entry in std::mem::take(&mut self.chosen) {
            let is_folder = entry.change == Change::Removed && entry.kind == Kind::Dir;
            if is_folder && stays(&left, &entry.path) {
                let why = "something in it stays with the run".to_owned();
                self.left.push(Conflict { path: entry.path.clone(), id: "protected", why });
            } else if is_folder && stays(&remembered, &entry.path) {
                self.remembered.push(entry);
            } else {
                taken.push(entry);
            }
        }
        self.chosen = taken;
    }
}

/// How the host stands to one change.
pub(crate) enum ApplyState {
    /// As it was.
    Ready,
    /// It is already so: an `apply` that was ended half-way.
    Done,
    /// By its id, and why.
    Conflict(&'static str, String),
}

pub(crate) fn standing(root: &Dir, entry: &Entry, removed: &BTreeSet<&Path>) -> KernelResult<ApplyState> {
    let replaced = entry.base.is_none() && entry.path.ancestors().skip(1).any(|above| removed.contains(above));
    let found = match parent(root, &entry.path) {
        Ok((dir, name)) => Fingerprint::of(&dir, &name)?,
        Err(Errno::NOENT) => None,
        // What is in the way goes first.
        Err(Errno::LOOP | Errno::NOTDIR) if replaced => None,
        Err(Errno::LOOP | Errno::NOTDIR | Errno::XDEV) => {
            return Ok(ApplyState::Conflict("folder", "its folder is a link, a file or another disk now".into()));
        }
        Err(errno) => return Err(errno),
    };
    if is_done(entry, found.as_ref()) {
        return Ok(ApplyState::Done);
    }
    if entry.touched {
        return Ok(ApplyState::Conflict("touched", "somebody changed it while the run lasted".into()));
    }
    Ok(match (&entry.base, found) {
        (None, None) => ApplyState::Ready,
        // What replaces a path that the run removed finds it there still.
        (None, Some(now))
            if entry.change == Change::Added
                && removed.contains(entry.path.as_path())
                && (now.kind == Kind::Dir) != (entry.kind == Kind::Dir) =>
        {
            ApplyState::Ready
        }
        (None, Some(_)) => ApplyState::Conflict("exists", "it was made on the host meanwhile".into()),
        (Some(_), None) => ApplyState::Conflict("missing", "it was removed on the host meanwhile".into()),
        (Some(base), Some(now)) if base.is_same(&now) => ApplyState::Ready,
        (Some(_), Some(_)) => ApplyState::Conflict("changed", "it was changed on the host meanwhile".into()),
    })
}

/// Whether an index of the host's lists what it is to list: one that was taken already, into which git wrote anew what it remembers.
fn is_listed_so(root: &Dir, entry: &Entry, blobs: Option<&Dir>) -> bool {
    let is_index = entry.change != Change::Removed && entry.kind == Kind::File && split(&entry.path).is_some();
    let Some(name) = entry.path.file_name().filter(|name| is_index && *name == "index") else { return false };
    let ours = || listed(name, &blobs?.read(entry.sha256.as_deref()?, HASHED).ok()?);
    let theirs = || listed(name, &root.read(&entry.path, HASHED).ok()?);
    ours().is_some_and(|ours| theirs() == Some(ours))
}

fn is_done(entry: &Entry, found: Option<&Fingerprint>) -> bool {
    match (entry.change, found) {
        (Change::Removed, None) => true,
        (Change::Removed, Some(_)) | (Change::Added | Change::Modified, None) => false,
        (Change::Added | Change::Modified, Some(now)) => {
            let same_mode = now.mode & 0o777 == entry.mode;
            now.kind == entry.kind
                && match entry.kind {
                    Kind::Dir => same_mode || entry.change == Change::Added,
                    Kind::Symlink => now.target == entry.target,
                    Kind::File => same_mode && now.sha256.is_some() && now.sha256 == entry.sha256,
                    Kind::Special => false,
                }
        }
    }
}

/// What was not taken stays with the run; if nothing did, the run's changes are gone.
fn kept(
    (state, run): (&State, &RunId),
    (manifest, root, store): (&mut Manifest, &Dir, &Dir),
    taken: &[PathText],
    parted: Vec<parts::Parted>,
) -> Result<Vec<KeysLeft>, ChangesError> {
    // Where they are now is no work of somebody else's when the rest is taken.
    let put: Vec<&Path> = taken.iter().map(|path| path.0.as_path()).collect();
    note_put(&mut manifest.heads, root, &put);
    manifest.note_lists(root, &put);
    let keys = parts::keep(manifest, parted, root);
    if manifest.entries.is_empty() {
        super::manifest::forget(state, run)?;
        return Ok(keys);
    }
    keep(state, run, manifest, store)?;
    let failed = |errno| ChangesError::Write { path: state.path().join("changes").join(run.as_str()), errno };
    super::interrupted::settle(store, taken).map_err(failed)?;
    Ok(keys)
}
