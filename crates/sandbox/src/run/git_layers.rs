//! Folders of git's in a read-write workspace: what the run changes there lies in layers until its end. Then what is harmless
//! is taken over, and the rest stays with the run, for `diff` and `apply`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use policy::json::hex;
use policy::report::DetectedBy;
use policy::{ClauseId, Plan, Violation};

use super::moment::Moment;
use super::record::Recorded;
use super::trees::bounds;
use crate::changes::{
    Applied, BESIDE, BLOBS, Conflict, Entry, Guarded, Indices, KeysLeft, Kind, Known, LIES, MAX_JUDGED, Manifest,
    PARTIAL, Request, Store, apply_own, apply_telling, left_out, load, moved_in, naming, read_upper,
};
use crate::error::Error;
use crate::fault::{Fault, show_path, show_short};
use crate::protect;
use crate::state::{Cross, Dir, PathText, RunId};

/// How many paths are named.
const MAX_NAMED: usize = 5;
/// Of a configuration of git's that is larger no keys are named.
const MAX_CONFIG: u64 = 1 << 20;

/// Why what is left in `objects` did not reach the host.
const OBJECTS: &str =
    "objects are only added, each looked into, and what git makes from them for speed it makes again on the host";

/// Why something else did not, where nobody says.
const UNKNOWN: &str = "it is not known to be harmless to git";

/// The layers of one run.
#[derive(Debug)]
pub(super) struct GitLayers {
    /// What their paths are relative to, and that folder as it was found.
    root: PathBuf,
    below: Dir,
    /// Of a worktree: its own part of the shared folder.
    own: Option<PathBuf>,
    /// By number.
    paths: Vec<PathBuf>,
    uppers: Vec<Dir>,
    began: Moment,
    /// The host's indices as they were then.
    indices: Indices,
}

impl GitLayers {
    pub(super) fn new(root: PathBuf, paths: Vec<PathBuf>, own: Option<PathBuf>) -> Result<Self, Error> {
        let below = Dir::open(&root).map_err(|errno| unread(&root, &errno.to_string()))?;
        Ok(Self { root, below, own, paths, uppers: Vec::new(), began: Moment::now(), indices: Indices::default() })
    }

    /// The upper layers, as the guest handed them out.
    pub(super) fn made(&mut self, mut layers: Vec<(u32, OwnedFd)>) {
        layers.sort_by_key(|(number, _)| *number);
        self.uppers = layers.into_iter().map(|(_, fd)| Dir::from(fd)).collect();
        self.began = Moment::now();
        self.indices = Indices::of(&self.below, self.paths.iter().map(PathBuf::as_path));
    }

    /// After the end. What was taken over, in words, and what was not.
    pub(super) fn take_over(self, recorded: &Recorded, plan: &Plan) -> Result<(Vec<String>, Vec<Violation>), Error> {
        let failed = |errno: rustix::io::Errno| unread(&self.root, &errno.to_string());
        let root = &self.below;
        let bounds = bounds(plan);
        let own = self.own.as_ref().zip(self.paths.first()).map(|(own, git)| git.join(own));
        let began = self.began.on_files();
        let (replaced, heads) = (self.indices.replaced(root), self.indices.heads());
        let known = Known { replaced, heads, ..Known::default() };
        let store = Store::begin(&recorded.state, &recorded.id, &self.root, root, began, bounds)?;
        let mut store = store.in_worktree(own).knowing(known);
        // Until all is taken: what the program closed, the top or on the way to git's folder, stands open.
        let _open = root.look_into("", Cross::Yes).map_err(failed)?;
        let lowers = self.paths.iter().map(|path| root.look_into(path, Cross::Yes).map_err(failed));
        let lowers = lowers.collect::<Result<Vec<_>, _>>()?;
        for ((path, upper), lower) in self.paths.iter().zip(&self.uppers).zip(&lowers) {
            read_upper(&mut store, upper, lower, path)?;
        }
        store.note_late(root, &self.indices);
        let run = &recorded.id;
        let manifest = store.finish(&recorded.state)?;
        if manifest.entries.is_empty() {
            return Ok((
                Vec::new(),
                manifest.refused.iter().map(|refused| violation(run, &[&refused.path], &refused.why)).collect(),
            ));
        }
        let paths = self.named(&manifest);
        if paths.as_ref().is_some_and(Vec::is_empty) {
            let left: Vec<&PathBuf> = manifest.entries.iter().map(|entry| &entry.path).collect();
            return Ok((Vec::new(), vec![violation(run, &left, "it is another worktree's")]));
        }
        let looked_at = self.looked_at(recorded, &manifest);
        let notes = |paths: &[PathText]| {
            let is_taken = |path: &Path| paths.iter().any(|taken| taken.0 == *path);
            let told = looked_at.iter().filter(|(path, _)| is_taken(path)).map(|(_, words)| words.clone());
            let number = format!("{} paths of git's folders were taken over at the end", paths.len());
            [number].into_iter().filter(|_| !paths.is_empty()).chain(told).collect()
        };
        let request = Request { paths, digest: None, guarded: Guarded::Leave, leaving_links: false };
        let now = jiff::Timestamp::now();
        let (applied, why) = apply_telling(&recorded.state, &recorded.id, &request, protect::list(), now)?;
        Ok(match applied {
            Applied::Done { paths, left: 0, .. } => (notes(&paths), Vec::new()),
            Applied::Done { paths, keys, .. } => (notes(&paths), self.left(recorded, &keys, why.as_deref())?),
            Applied::Conflicts(conflicts) => {
                let changed: Vec<&Conflict> = conflicts.iter().filter(|one| one.id != "protected").collect();
                let Some(first) = changed.first() else {
                    let paths: Vec<&PathBuf> = conflicts.iter().map(|one| &one.path).collect();
                    let whole = [LIES, PARTIAL].into_iter().find(|why| conflicts.iter().any(|one| one.why == **why));
                    let first = conflicts.iter().find(|one| !is_of_objects(&one.path)).map(|first| first.why.as_str());
                    let told =
                        whole.map_or_else(|| left_told(run, &paths, first), |why| vec![violation(run, &paths, why)]);
                    return Ok((Vec::new(), told));
                };
                let paths: Vec<&PathBuf> = changed.iter().map(|one| &one.path).collect();
                let why = first.why.split(BESIDE).next().unwrap_or_default();
                (Vec::new(), vec![self.beside(recorded, &paths, why)?])
            }
        })
    }

    /// What stays with the run though something was taken, and where its branches are.
    fn left(&self, recorded: &Recorded, keys: &[KeysLeft], why: Option<&str>) -> Result<Vec<Violation>, Error> {
        let (rest, store) = load(&recorded.state, &recorded.id)?;
        let in_part = |entry: &&Entry| keys.iter().any(|left| left.path == entry.path);
        // The log of a stash goes where that goes.
        let is_told = |entry: &&Entry| !in_part(entry) && !entry.path.ends_with("logs/refs/stash");
        let left = rest.entries.iter().filter(is_told);
        let left: Vec<&PathBuf> = left.map(|entry| &entry.path).collect();
        let mut told: Vec<Violation> = keys.iter().map(|left| keys_left(&recorded.id, left)).collect();
        told.extend(left_told(&recorded.id, &left, why));
        let heads = self.heads(&rest, &store).map(|heads| named(&heads)).unwrap_or_default();
        if let Some(first) = told.get_mut(keys.len()) {
            first.why.push_str(&heads);
        }
        Ok(told)
    }

    /// What is to be said of files of git's that are taken: the keys of configurations that are harmless and differ from the host's, and
    /// what an index has otherwise where no file shows it.
    fn looked_at(&self, recorded: &Recorded, manifest: &Manifest) -> Vec<(PathBuf, String)> {
        let blobs = load(&recorded.state, &recorded.id).map(|(_, store)| store.enter(BLOBS, Cross::No).ok());
        let Ok(Some(blobs)) = blobs else { return Vec::new() };
        let said = |entry: &Entry| {
            let read = |most| {
                let before = || self.below.read(&entry.path, most).unwrap_or_default();
                Some((blobs.read(entry.sha256.as_deref()?, most).ok()?, before()))
            };
            let words = if entry.path.file_name()? == "config" {
                let ((now, before), branches) = (read(MAX_CONFIG)?, protect::Branches::of(&self.below, &entry.path));
                let keys = protect::taken(&before, &now, &|name| branches.has(name))?;
                format!("of {} the host has from the run: {keys}", show_path(&entry.path))
            } else if entry.path.file_name()? == "index" {
                let (now, before) = read(MAX_JUDGED)?;
                let why = left_out((&before, &now), protect::Hash::of(&self.below, &entry.path)?)?;
                format!("{}: left-out: {why}", show_path(&entry.path))
            } else {
                return None;
            };
            Some((entry.path.clone(), words))
        };
        manifest.entries.iter().filter_map(said).collect()
    }

    /// Of a worktree: what it shares with others and what is its own, as far as that changed. The index and the branch of the
    /// main one are no part of the workspace.
    fn named(&self, manifest: &Manifest) -> Option<Vec<PathBuf>> {
        let own = self.own.as_ref()?;
        let shared = ["objects", "refs", "logs", "packed-refs"].map(PathBuf::from);
        let all = self.paths.iter().flat_map(|top| shared.iter().chain([own]).map(|name| top.join(name)));
        let changed = |path: &PathBuf| manifest.entries.iter().any(|entry| entry.path.starts_with(path));
        Some(all.filter(changed).collect())
    }

    /// Where the host's repository moved on too, nothing of the run's history is lost: its objects are taken over, and the
    /// branches are told by their hashes, with what names them there.
    fn beside(&self, recorded: &Recorded, paths: &[&PathBuf], why: &str) -> Result<Violation, Error> {
        let (manifest, store) = load(&recorded.state, &recorded.id)?;
        let heads = self.heads(&manifest, &store).map_err(|errno| unread(&self.root, &errno.to_string()))?;
        let objects = |path: &&PathBuf| manifest.entries.iter().any(|entry| entry.path.starts_with(path));
        let objects: Vec<PathBuf> =
            self.paths.iter().map(|path| path.join("objects")).filter(|path| objects(&path)).collect();
        let mut is_taken = true;
        if !objects.is_empty() {
            let request = Request { paths: Some(objects), digest: None, guarded: Guarded::Leave, leaving_links: false };
            // Names of objects are their contents: what is in the way is the same. What cannot be taken stays with the run.
            let applied = apply_own(&recorded.state, &recorded.id, &request, protect::list(), jiff::Timestamp::now())?;
            is_taken = matches!(applied, Applied::Done { left: 0, .. });
        }
        let run = &recorded.id;
        let violation = violation(run, paths, &format!("{why}{}", named(&heads)));
        if heads.is_empty() || !is_taken {
            return Ok(violation);
        }
        let commands: Vec<&str> = heads.iter().take(MAX_NAMED).map(|(_, _, naming)| naming.as_str()).collect();
        let instead = format!(
            "its commits are among the host's objects: {} there names them, and `git add -A && git stash`, `git merge` of that and \
             `git stash pop` take them in, for the files are there already; look at the rest with `fumehood diff {run}`, or throw it away \
             with `fumehood discard {run}`",
            commands.join(", ")
        );
        Ok(Violation { instead, ..violation })
    }

    /// The branches that the run moved, in files of their own or in a list, and a `HEAD` of its on no branch: with where they are, and what
    /// names that on the host.
    fn heads(&self, manifest: &Manifest, store: &Dir) -> rustix::io::Result<BTreeSet<(String, String, String)>> {
        let blobs = store.enter(BLOBS, Cross::No)?;
        let (mut moved, mut tips) = (BTreeMap::new(), BTreeMap::new());
        for path in &self.paths {
            tips.extend(protect::Branches::of(&self.below, &path.join("config")).tips());
        }
        let files = manifest.entries.iter().filter(|entry| entry.kind == Kind::File);
        let read = |entry: &Entry, most| entry.sha256.as_deref().and_then(|sum| blobs.read(sum, most).ok());
        let named = files.filter_map(|entry| Some((entry, protect::split(&entry.path)?.1)));
        // What a file of its own says counts, whatever the list says.
        let (lists, others): (Vec<_>, Vec<_>) = named.partition(|(_, rest)| rest == Path::new("packed-refs"));
        for (entry, _) in lists {
            let heads = entry.path.with_file_name("refs").join("heads");
            // What git packed inside alone the host has moved since.
            let is_hosts = |name: &str, id: &[u8]| {
                let path = heads.join(name);
                manifest.moved.iter().any(|noted| noted.path == path && noted.id == hex(id))
            };
            let found = moved_in(&read(entry, MAX_JUDGED).unwrap_or_default(), &tips);
            moved.extend(found.into_iter().filter(|(name, id)| !is_hosts(name, id)));
        }
        for (entry, rest) in others {
            let branch = rest.strip_prefix(Path::new("refs").join("heads")).ok().map(Path::to_string_lossy);
            let Some(name) = branch.or_else(|| rest.ends_with("HEAD").then(|| "HEAD".into())) else { continue };
            let id = read(entry, protect::MAX_REFERENCE).as_deref().and_then(protect::id_of);
            if let Some(id) = id.filter(|id| tips.get(name.as_ref()) != Some(id)) {
                moved.insert(name.into_owned(), id);
            }
        }
        let told = |(name, id): (String, Vec<u8>)| {
            let id = hex(&id);
            let naming = naming(&name, &id, &tips);
            (name, id, naming)
        };
        Ok(moved.into_iter().map(told).collect())
    }
}

/// Where the run's branches are, in words.
fn named(heads: &BTreeSet<(String, String, String)>) -> String {
    heads.iter().map(|(name, id, _)| format!("; the run's {} is {id}", show_short(name.as_bytes()))).collect()
}

/// A configuration of which the harmless keys were taken over.
fn keys_left(run: &RunId, left: &KeysLeft) -> Violation {
    let path = show_path(&left.path);
    let named = violation(run, &[&left.path], "they can name a program or another place, or say who commits");
    Violation { what: format!("{} of {path} did not reach the host; its other keys did", left.keys), ..named }
}

/// What stays with the run, and why the first of it does: what `git gc` did inside is told apart from what steers git.
fn left_told(run: &RunId, left: &[&PathBuf], why: Option<&str>) -> Vec<Violation> {
    let (objects, others): (Vec<&PathBuf>, Vec<&PathBuf>) = left.iter().copied().partition(|path| is_of_objects(path));
    let why = why.map_or(UNKNOWN, |why| why.strip_prefix("version control: ").unwrap_or(why));
    let told = [(others, why), (objects, OBJECTS)];
    told.into_iter().filter(|(paths, _)| !paths.is_empty()).map(|(paths, why)| violation(run, &paths, why)).collect()
}

fn is_of_objects(path: &Path) -> bool {
    protect::split(path).is_some_and(|(_, rest)| rest.starts_with("objects"))
}

fn violation(run: &RunId, paths: &[&PathBuf], why: &str) -> Violation {
    let named: Vec<String> = paths.iter().take(MAX_NAMED).map(|path| show_path(path)).collect();
    let more = paths.len().saturating_sub(MAX_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    // The path as one word of a shell; `PATH` where one could not copy it from here.
    let plain = |text: &String| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    let first = paths.first().map(|path| path.display().to_string()).filter(|text| plain(text) && paths.len() == 1);
    let path = first.unwrap_or_else(|| "PATH".to_owned());
    Violation {
        id: "fs.protect/kept".to_owned(),
        clause: ClauseId::FsProtect,
        what: format!("{}{more} did not reach the host", named.join(", ")),
        why: format!("{why}; it is kept with the run (fs.protect)"),
        instead: format!(
            "look at it with `fumehood diff {run}`, and take it with `fumehood apply {run} --take-protected {path} -- {path}` or \
             throw it away with `fumehood discard {run}`"
        ),
        count: u64::try_from(paths.len()).unwrap_or(u64::MAX),
        seen: DetectedBy::Kernel,
        program: None,
    }
}

fn unread(root: &Path, why: &str) -> Error {
    Error::failed(Fault {
        id: "run/git",
        what: "what the run changed in git's folder could not be taken over".to_owned(),
        place: show_path(root),
        why: why.to_lowercase(),
        fix: "check owner, mode and free space".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_takes_what_was_kept_works_as_it_is_told() {
        let run: RunId = "r-20261129-140605-43803e".parse().unwrap();
        let told = |paths: &[&str]| {
            let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
            violation(&run, &paths.iter().collect::<Vec<_>>(), "why").instead
        };
        let hook = ".git/hooks/pre-commit";
        let named = format!("`fumehood apply {run} --take-protected {hook} -- {hook}`");
        assert!(told(&[hook]).contains(&named));
        for others in [&[hook, ".git/info/exclude"][..], &[".git/a b"], &[".git/$(id)"], &[".git/`"]] {
            assert!(
                told(others).contains(&format!("`fumehood apply {run} --take-protected PATH -- PATH`")),
                "{others:?}"
            );
        }
    }
}
