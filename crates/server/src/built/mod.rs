//! Templates that clients build: what is known of each, below `server/templates` of the state folder.
//!
//! A template is its key's: no other finds it, by whatever word. Its builds are written down when they begin and when they end;
//! one that a server was in the middle of when it ended is told as failed, by the lock that its builder held.

mod copying;
mod log;
mod names;
mod record;
mod states;
mod steps;
mod uploads;
mod works;

use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use axum::http::StatusCode;

use crate::answer::Problem;

pub(crate) use copying::{Archive, Copying};
pub(crate) use log::{Entry, Level};
use names::new_id;
pub(crate) use names::{TemplateName, is_build_id, is_id, is_name, new_build_id, parse_template_name};
pub(crate) use record::{Build, BuiltTemplate, Phase, Reason, Tag, Template};
pub(crate) use states::StepState;
pub(crate) use steps::{BuildBase, BuildRequest, Copy, Step, asked, usual_place};
pub(crate) use uploads::{MAX_UPLOAD, is_hash};
pub(crate) use works::{Work, Works};

/// Most templates of a key that says no other number.
const MAX_TEMPLATES: usize = 20;
/// Most builds of a template that are remembered; those that a tag names count, too, and stay.
const MAX_BUILDS: usize = 20;
/// Largest file of ours.
const MAX_FILE: u64 = 16 << 20;

const FOLDER: &str = "templates";
const RECORD: &str = "template.json";
const LOCK: &str = "lock";

/// The templates of a state folder.
#[derive(Clone, Debug)]
pub(crate) struct TemplateStore {
    root: PathBuf,
}

/// Held by whoever builds, as long as it does.
#[derive(Debug)]
pub(crate) struct Busy(#[expect(dead_code, reason = "it is held, and gone with this")] File);

impl TemplateStore {
    /// Those of this server's folder.
    pub(crate) fn new(server: &Path) -> Self {
        Self { root: server.join(FOLDER) }
    }

    /// The templates of an owner, by name.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn list(&self, owner: &str) -> Result<Vec<Template>, Problem> {
        let mut all = self.all()?;
        all.retain(|template| template.owner == owner);
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    fn ids(&self) -> Result<Vec<String>, Problem> {
        let names = match std::fs::read_dir(&self.root) {
            Ok(names) => names,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(&self.root, &error)),
        };
        let names = names.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.filter(|name| is_id(name)).collect())
    }

    fn all(&self) -> Result<Vec<Template>, Problem> {
        let mut all = Vec::new();
        for id in self.ids()? {
            // One that is removed meanwhile is none.
            all.extend(self.read(&id)?);
        }
        Ok(all)
    }

    /// The template of an owner that a word names, by its id or name.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn find(&self, owner: &str, name: &str) -> Result<Option<Template>, Problem> {
        if is_id(name) {
            return Ok(self.read(name)?.filter(|template| template.owner == owner));
        }
        Ok(self.list(owner)?.into_iter().find(|template| template.name == name))
    }

    /// Those whose owner is none of these: their keys are gone.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn orphans(&self, owners: &[String]) -> Result<Vec<Template>, Problem> {
        Ok(self.all()?.into_iter().filter(|template| !owners.contains(&template.owner)).collect())
    }

    /// Takes away what lies there of templates that are none any more: a build that was cut off by their removal may have written it.
    ///
    /// # Errors
    /// The folder cannot be read or written.
    pub(crate) fn sweep(&self) -> Result<(), Problem> {
        if !self.root.is_dir() {
            return Ok(());
        }
        // None is being made meanwhile.
        let _lock = self.lock(&self.root)?;
        for id in self.ids()? {
            let folder = self.folder(&id);
            if !folder.join(RECORD).exists() {
                std::fs::remove_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
            }
        }
        Ok(())
    }

    fn read(&self, id: &str) -> Result<Option<Template>, Problem> {
        let path = self.folder(id).join(RECORD);
        let Some(text) = read(&path)? else { return Ok(None) };
        let template: Template = serde_json::from_slice(&text).map_err(|error| failed(&path, &error.into()))?;
        if template.id == id {
            Ok(Some(template))
        } else {
            Err(failed(&path, &std::io::Error::other("it is another's")))
        }
    }

    /// The build that an owner wants next: of the template of this name, which is made where there is none. `most`: so many may be
    /// there.
    ///
    /// # Errors
    /// There are too many, or the folder cannot be written.
    pub(crate) fn wish(&self, owner: &str, name: &str, build: Build, most: Option<u32>) -> Result<Template, Problem> {
        make(&self.root)?;
        // One who makes at a time, so that no name is there twice and none too many.
        let _lock = self.lock(&self.root)?;
        if let Some(known) = self.find(owner, name)? {
            return self.change(&known.id, |template| {
                let excess = template.builds.len().saturating_add(1).saturating_sub(MAX_BUILDS);
                let stale: Vec<String> = template.stale().take(excess).map(|build| build.id.clone()).collect();
                template.builds.retain(|build| !stale.contains(&build.id));
                if template.builds.len() >= MAX_BUILDS {
                    return Err(too_many(&format!("this template has {MAX_BUILDS} builds that run or have a tag")));
                }
                template.builds.push(build);
                Ok(template.clone())
            });
        }
        let most = most.map_or(MAX_TEMPLATES, |most| usize::try_from(most).unwrap_or(usize::MAX));
        if self.list(owner)?.len() >= most {
            return Err(too_many(&format!("this key has {most} templates, the most that it may keep (`--builds`)")));
        }
        let now = build.created_ms;
        let template = Template {
            id: new_id()?,
            owner: owner.to_owned(),
            name: name.to_owned(),
            tags: std::collections::BTreeMap::new(),
            builds: vec![build],
            created_ms: now,
            updated_ms: now,
        };
        let folder = self.folder(&template.id);
        make(&folder)?;
        write(&folder.join(RECORD), &template)?;
        Ok(template)
    }

    /// Changes what is known of a template; nobody else does meanwhile.
    ///
    /// # Errors
    /// It is not there any more, what `change` says, or the folder cannot be written.
    pub(crate) fn change<T>(
        &self,
        id: &str,
        change: impl FnOnce(&mut Template) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let folder = self.folder(id);
        let _lock = self.lock(&folder)?;
        let mut template = self.read(id)?.ok_or_else(|| no_such(id))?;
        let done = change(&mut template)?;
        write(&folder.join(RECORD), &template)?;
        Ok(done)
    }

    /// Takes all of a template away.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn remove(&self, id: &str) -> Result<(), Problem> {
        let folder = self.folder(id);
        // From here on nobody finds it, whoever is killed in between.
        let record = folder.join(RECORD);
        match std::fs::remove_file(&record) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(&record, &error)),
            Ok(()) | Err(_) => {}
        }
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(&folder, &error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Whoever builds holds this; none where somebody does already.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn busy(&self, id: &str, build: &str) -> Result<Option<Busy>, Problem> {
        let path = self.folder(id).join(format!("{build}.busy"));
        let file = opened(&path).map_err(|error| failed(&path, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Busy(file))),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(error)) => Err(failed(&path, &error)),
        }
    }

    /// What a build said, once it has ended.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn log(&self, id: &str, build: &str) -> Result<Vec<Entry>, Problem> {
        let path = self.folder(id).join(format!("{build}.log"));
        let Some(text) = read(&path)? else { return Ok(Vec::new()) };
        serde_json::from_slice(&text).map_err(|error| failed(&path, &error.into()))
    }

    /// Keeps what a build said.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn keep_log(&self, id: &str, build: &str, entries: &[Entry]) -> Result<(), Problem> {
        write(&self.folder(id).join(format!("{build}.log")), &entries)
    }

    /// Takes away what belongs to no build that is known, and the files of those that are over.
    pub(crate) fn tidy(&self, template: &Template) {
        let folder = self.folder(&template.id);
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let of_build = name.strip_suffix(".log").or_else(|| name.strip_suffix(".busy"));
            let is_lost = of_build.is_some_and(|id| template.build(id).is_none());
            let files_of = name.strip_suffix(uploads::HELD).map(|id| template.build(id));
            let is_over = files_of.is_some_and(|build| build.is_none_or(|build| !build.is_on_its_way()));
            let gone = (is_lost && std::fs::remove_file(entry.path()).is_err())
                || (is_over && std::fs::remove_dir_all(entry.path()).is_err());
            if gone {
                // Somebody else was first.
            }
        }
    }

    fn folder(&self, id: &str) -> PathBuf {
        self.root.join(id)
    }

    fn lock(&self, folder: &Path) -> Result<File, Problem> {
        let path = folder.join(LOCK);
        let locked = opened(&path).and_then(|file| file.lock().map(|()| file));
        locked.map_err(|error| if error.kind() == ErrorKind::NotFound { no_such("") } else { failed(&path, &error) })
    }
}

fn opened(path: &Path) -> std::io::Result<File> {
    File::options().create(true).truncate(false).write(true).mode(0o600).open(path)
}

fn make(folder: &Path) -> Result<(), Problem> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed(folder, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A file of ours; none where there is none.
fn read(path: &Path) -> Result<Option<Vec<u8>>, Problem> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE).read_to_end(&mut text));
    match read {
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path, &error)),
    }
}

/// Seen with its old or its new content. What could not be read again is not written.
fn write(path: &Path, value: &impl serde::Serialize) -> Result<(), Problem> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let written = || {
        let text = serde_json::to_vec(value)?;
        if u64::try_from(text.len()).is_ok_and(|length| length > MAX_FILE) {
            return Err(std::io::Error::from(ErrorKind::FileTooLarge));
        }
        let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    };
    written().map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> Problem {
    let what = "the server's templates cannot be used".to_owned();
    let why = format!("{}: {error}", path.file_name().unwrap_or_default().to_string_lossy());
    let instead = "make room in the server's state folder, or see its log";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "serve/templates", what, &why, instead)
}

/// There is none, or it is another key's: which of the two is not told.
pub(crate) fn no_such(word: &str) -> Problem {
    let what = format!("template {} not found", policy::diagnostic::quote(word));
    let why = "no template of this key has this id or name";
    Problem::new(StatusCode::NOT_FOUND, "serve/no-such-template", what, why, "`GET /templates` lists them")
}

fn too_many(what: &str) -> Problem {
    let (why, instead) = ("each takes room on the disk", "remove some (`DELETE /templates/ID`)");
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "serve/too-many", what, why, instead)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build() -> Build {
        Build { id: new_build_id().unwrap(), created_ms: 5, ..Build::default() }
    }

    #[test]
    fn a_template_is_its_keys_and_is_found_by_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = TemplateStore::new(folder.path());
        assert_eq!(shelf.list("a 1").unwrap(), []);
        let made = shelf.wish("a 1", "app", build(), None).unwrap();
        let again = shelf.wish("a 1", "app", build(), None).unwrap();
        assert_eq!((&again.id, again.builds.len()), (&made.id, 2));
        // The same name of another key is another template.
        let other = shelf.wish("b 2", "app", build(), None).unwrap();
        assert_ne!(other.id, made.id);
        assert_eq!(shelf.find("b 2", &made.id).unwrap(), None);
        assert_eq!(shelf.find("b 2", "app").unwrap().map(|found| found.id), Some(other.id));
        // Nor is a key that came later under the same name its owner.
        assert_eq!(shelf.find("a 3", "app").unwrap(), None);
        for bad in ["../../x", "", "t", "t0123456789abcdefghi"] {
            assert_eq!(shelf.find("a 1", bad).unwrap(), None, "{bad}");
        }
        shelf.remove(&made.id).unwrap();
        assert_eq!(shelf.find("a 1", "app").unwrap(), None);
    }

    #[test]
    fn no_more_are_kept_than_may_be() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = TemplateStore::new(folder.path());
        shelf.wish("a", "one", build(), Some(1)).unwrap();
        let refused = shelf.wish("a", "two", build(), Some(1)).unwrap_err();
        assert!(refused.status == StatusCode::TOO_MANY_REQUESTS && refused.what.contains("--builds"), "{refused:?}");
        for _ in 0..MAX_BUILDS * 2 {
            let last = shelf.wish("a", "one", build(), Some(1)).unwrap();
            assert!(last.builds.len() <= MAX_BUILDS);
        }
    }

    #[test]
    fn whoever_builds_is_known_by_a_lock() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = TemplateStore::new(folder.path());
        let made = shelf.wish("a", "one", build(), None).unwrap();
        let held = shelf.busy(&made.id, &made.builds[0].id).unwrap();
        assert!(held.is_some() && shelf.busy(&made.id, &made.builds[0].id).unwrap().is_none());
        drop(held);
        assert!(shelf.busy(&made.id, &made.builds[0].id).unwrap().is_some());
    }
}
