//! Files that clients sent for a build, each under the hash that the client gave it.
//!
//! The hash is a name and no more: it is over what the client read before it packed. So an upload counts for the template that it
//! was sent for, and for nobody else; what it holds is known by its own digest, which is taken while it comes. A build has what was
//! there when it began: the files are held for it by links of their own, whatever is sent under the same hash afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirEntry, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::StatusCode;
use policy::json::hex;
use sha2::{Digest as _, Sha256};

use super::{TemplateStore, failed, make};
use crate::answer::Problem;

/// Largest upload, bytes.
pub(crate) const MAX_UPLOAD: u64 = 256 << 20;
/// Most bytes of all uploads of a key.
const MAX_ALL: u64 = 1 << 30;
/// Most uploads of a template.
const MAX_UPLOADS: usize = 64;

const FILES: &str = "files";
/// What the folder of a build ends with that holds its files.
pub(super) const HELD: &str = ".files";
/// What stands before the random part of one that is on its way.
const UNFINISHED: &str = ".new-";
/// One that nothing was written to for so long was cut off.
const CUT_OFF: Duration = Duration::from_secs(3600);

/// Whether this is a SHA-256 in hexadecimal digits.
pub(crate) fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| b"0123456789abcdef".contains(&byte))
}

/// An upload on its way; what is not finished is taken away.
#[derive(Debug)]
pub(crate) struct Upload {
    id: String,
    hash: String,
    file: File,
    new: PathBuf,
    left: u64,
    digest: Sha256,
}

impl TemplateStore {
    /// Whether a template has an upload of this hash.
    pub(crate) fn has_upload(&self, id: &str, hash: &str) -> bool {
        is_hash(hash) && !self.uploads_of(id, hash).is_empty()
    }

    /// What was sent under a hash, each by its name and its digest: one, but for a server that was killed in between.
    fn uploads_of(&self, id: &str, hash: &str) -> Vec<(PathBuf, String)> {
        let folder = self.folder(id).join(FILES);
        let named = |entry: DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let digest = name.strip_prefix(hash)?.strip_prefix('.').filter(|digest| is_hash(digest))?;
            Some((entry.path(), digest.to_owned()))
        };
        entries(&folder).filter_map(named).collect()
    }

    /// Holds the uploads of these hashes for a build; the digest of each.
    ///
    /// # Errors
    /// One of them is not there any more, or the folder cannot be written.
    pub(crate) fn hold_uploads(
        &self,
        (id, build): (&str, &str),
        hashes: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, String>, Problem> {
        // Nothing is sent under one of them meanwhile.
        let _lock = self.lock(&self.folder(id))?;
        let held = self.held(id, build);
        let mut digests = BTreeMap::new();
        if hashes.is_empty() {
            return Ok(digests);
        }
        make(&held)?;
        for hash in hashes {
            let found = self.uploads_of(id, hash).into_iter().next();
            let (path, digest) = found.ok_or_else(|| gone(hash))?;
            match std::fs::hard_link(&path, held.join(hash)) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(&path, &error)),
                Ok(()) | Err(_) => {}
            }
            digests.insert(hash.clone(), digest);
        }
        Ok(digests)
    }

    /// An upload that is held for a build, to be read.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn held_upload(&self, (id, build): (&str, &str), hash: &str) -> Result<File, Problem> {
        let path = self.held(id, build).join(hash);
        File::open(&path).map_err(|error| failed(&path, &error))
    }

    /// Whose a template is.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn owner(&self, id: &str) -> Result<String, Problem> {
        Ok(self.read(id)?.ok_or_else(|| super::no_such(id))?.owner)
    }

    /// Begins an upload. `random` tells it from another one of the same hash.
    ///
    /// # Errors
    /// The key has no room for it, or the folder cannot be written.
    pub(crate) fn begin_upload(
        &self,
        (id, hash): (&str, &str),
        (size, random): (u64, &str),
    ) -> Result<Upload, Problem> {
        // One who begins at a time: each takes its room at once.
        let _lock = self.lock(&self.root)?;
        let all = self.list(&self.owner(id)?)?;
        let used: u64 = all.iter().map(|template| self.uploaded(&template.id).0).fold(0, u64::saturating_add);
        if used.saturating_add(size) > MAX_ALL || self.uploaded(id).1 >= MAX_UPLOADS {
            return Err(no_room());
        }
        let folder = self.folder(id).join(FILES);
        make(&folder)?;
        let new = folder.join(format!("{hash}{UNFINISHED}{random}"));
        let file = File::options().create_new(true).write(true).mode(0o600).open(&new);
        let file = file.map_err(|error| failed(&new, &error))?;
        let (id, hash) = (id.to_owned(), hash.to_owned());
        let upload = Upload { id, hash, file, new, left: size, digest: Sha256::new() };
        upload.file.set_len(size).map_err(|error| failed(&upload.new, &error))?;
        Ok(upload)
    }

    /// It is whole: from here on it is what its hash means, and nothing that was sent under it before. Builds that began with that
    /// go on with it.
    ///
    /// # Errors
    /// It is not whole, or the folder cannot be written.
    pub(crate) fn finish_upload(&self, upload: &Upload) -> Result<(), Problem> {
        if upload.left > 0 {
            return Err(odd("less came than `Content-Length` says"));
        }
        let _lock = self.lock(&self.folder(&upload.id))?;
        let digest = hex(&upload.digest.clone().finalize());
        let whole = self.folder(&upload.id).join(FILES).join(format!("{}.{digest}", upload.hash));
        std::fs::rename(&upload.new, &whole).map_err(|error| failed(&whole, &error))?;
        for (path, _) in self.uploads_of(&upload.id, &upload.hash).into_iter().filter(|(path, _)| *path != whole) {
            std::fs::remove_file(&path).map_err(|error| failed(&path, &error))?;
        }
        Ok(())
    }

    /// Bytes and number of a template's uploads: unfinished ones too, and those that are held for builds alone.
    fn uploaded(&self, id: &str) -> (u64, usize) {
        let folder = self.folder(id);
        let is_held = |entry: &DirEntry| entry.file_name().to_string_lossy().ends_with(HELD);
        let held = entries(&folder).filter(is_held).map(|entry| entry.path());
        let all = std::iter::once(folder.join(FILES)).chain(held).flat_map(|folder| entries(&folder));
        let mut seen = BTreeSet::new();
        let sizes = all.filter_map(|entry| entry.metadata().ok()).filter(|meta| seen.insert((meta.dev(), meta.ino())));
        sizes.fold((0, 0), |(bytes, count), meta| (bytes.saturating_add(meta.len()), count.saturating_add(1)))
    }

    /// Takes away the uploads whose hashes are not among these, and what was cut off.
    pub(crate) fn forget_uploads(&self, id: &str, but: &BTreeSet<String>) {
        let is_cut_off = |entry: &DirEntry| {
            let since = entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|time| time.elapsed().ok());
            since.is_some_and(|since| since > CUT_OFF)
        };
        let Ok(_lock) = self.lock(&self.folder(id)) else { return };
        for entry in entries(&self.folder(id).join(FILES)) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_kept = match name.split_once(UNFINISHED) {
                Some(_) => !is_cut_off(&entry),
                None => name.split_once('.').is_some_and(|(hash, _)| but.contains(hash)),
            };
            if !is_kept && std::fs::remove_file(entry.path()).is_err() {
                // Somebody else was first.
            }
        }
    }

    /// The folder with the files of a build.
    fn held(&self, id: &str, build: &str) -> PathBuf {
        self.folder(id).join(format!("{build}{HELD}"))
    }
}

/// What is in a folder; nothing where there is none.
fn entries(folder: &Path) -> impl Iterator<Item = DirEntry> + use<> {
    std::fs::read_dir(folder).into_iter().flatten().flatten()
}

impl Upload {
    /// Takes a piece; no more than was announced.
    ///
    /// # Errors
    /// There is more of it, or the folder cannot be written.
    pub(crate) fn take(&mut self, piece: &[u8]) -> Result<(), Problem> {
        let size = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        self.left = self.left.checked_sub(size).ok_or_else(|| odd("more came than `Content-Length` says"))?;
        self.digest.update(piece);
        self.file.write_all(piece).map_err(|error| failed(&self.new, &error))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        match std::fs::remove_file(&self.new) {
            // It was finished, or its template is gone.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Ok(()) | Err(_) => {}
        }
    }
}

fn odd(why: &str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "serve/body", "the upload is not whole", why, "send it again")
}

fn gone(hash: &str) -> Problem {
    let what = format!("the files of the hash {hash} are gone");
    let (why, instead) = ("another build of the template took them away", "send them again, and ask for another build");
    Problem::new(StatusCode::CONFLICT, "serve/in-progress", what, why, instead)
}

fn no_room() -> Problem {
    let what = "there is no room for this upload";
    let why = "a key has 1 GiB for what its builds copy, and a template 64 uploads";
    let instead = "copy less, or remove templates; what the last build did not name goes when it is ready";
    Problem::new(StatusCode::INSUFFICIENT_STORAGE, "serve/no-space", what, why, instead)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::super::{Build, new_build_id};
    use super::*;

    fn made(shelf: &TemplateStore, owner: &str) -> String {
        let build = Build { id: new_build_id().unwrap(), ..Build::default() };
        shelf.wish(owner, "app", build, None).unwrap().id
    }

    fn send(shelf: &TemplateStore, id: &str, hash: &str, text: &str) {
        let size = u64::try_from(text.len()).unwrap();
        let mut upload = shelf.begin_upload((id, hash), (size, text)).unwrap();
        upload.take(text.as_bytes()).unwrap();
        shelf.finish_upload(&upload).unwrap();
    }

    #[test]
    fn an_upload_is_there_whole_or_not_at_all_and_for_one_template() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = TemplateStore::new(folder.path());
        let (one, other) = (made(&shelf, "a"), made(&shelf, "b"));
        let hash = "a".repeat(64);
        let begin = |random: &str| shelf.begin_upload((&one, &hash), (4, random)).unwrap();
        let mut cut = begin("1");
        cut.take(b"abc").unwrap();
        assert!(shelf.finish_upload(&cut).is_err() && !shelf.has_upload(&one, &hash));
        drop(cut);
        let mut long = begin("2");
        assert!(long.take(b"abcde").is_err());
        drop(long);
        assert_eq!(shelf.uploaded(&one), (0, 0), "nothing is left");
        send(&shelf, &one, &hash, "abcd");
        assert!(shelf.has_upload(&one, &hash) && !shelf.has_upload(&other, &hash));
        assert!(!shelf.has_upload(&one, "../template.json"));
        let none = shelf.begin_upload(("t0123456789abcdef012", &hash), (4, "4")).unwrap_err();
        assert_eq!(none.status, StatusCode::NOT_FOUND);
        // Room is taken by what is announced: no two uploads at once take it twice.
        let room = |size| shelf.begin_upload((&one, &"b".repeat(64)), (size, &size.to_string()));
        let first = room(MAX_ALL - 100).unwrap();
        assert_eq!(room(99).unwrap_err().status, StatusCode::INSUFFICIENT_STORAGE);
        // What is on its way stays, whatever is forgotten meanwhile.
        shelf.forget_uploads(&one, &BTreeSet::new());
        assert!(!shelf.has_upload(&one, &hash) && shelf.uploaded(&one).1 == 1);
        drop(first);
        assert!(room(99).is_ok());
    }

    #[test]
    fn a_build_has_what_was_there_when_it_began_whatever_is_sent_under_the_same_hash_later() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = TemplateStore::new(folder.path());
        let (id, build, later) = (made(&shelf, "a"), new_build_id().unwrap(), new_build_id().unwrap());
        let hash = "c".repeat(64);
        let hashes = BTreeSet::from([hash.clone()]);
        let seen = |build: &str| {
            let mut text = String::new();
            shelf.held_upload((&id, build), &hash).unwrap().read_to_string(&mut text).unwrap();
            text
        };
        assert_eq!(shelf.hold_uploads((&id, &build), &hashes).unwrap_err().status, StatusCode::CONFLICT);
        send(&shelf, &id, &hash, "first");
        let first = shelf.hold_uploads((&id, &build), &hashes).unwrap();
        send(&shelf, &id, &hash, "second");
        assert_eq!(seen(&build), "first");
        let second = shelf.hold_uploads((&id, &later), &hashes).unwrap();
        assert!(first != second && seen(&later) == "second" && seen(&build) == "first");
        // Both lie on the disk, and both are counted, each once.
        assert_eq!(shelf.uploaded(&id), (11, 2));
        shelf.forget_uploads(&id, &BTreeSet::new());
        assert_eq!((seen(&build).as_str(), seen(&later).as_str()), ("first", "second"));
        // With the builds their files go.
        let template = shelf.find("a", &id).unwrap().unwrap();
        shelf.tidy(&template);
        assert_eq!(shelf.uploaded(&id), (0, 0));
    }
}
