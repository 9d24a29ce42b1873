//! Files that clients sent for a build, each under the hash that the client gave it.
//!
//! The hash is a name and no more: it is over what the client read before it packed. So an upload counts for the template that it
//! was sent for, and for nobody else.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use axum::http::StatusCode;

use super::{TemplateStore, failed, make};
use crate::answer::Problem;

/// Largest upload, bytes.
pub(crate) const MAX_UPLOAD: u64 = 256 << 20;
/// Most bytes of all uploads of a key.
const MAX_ALL: u64 = 1 << 30;
/// Most uploads of a template.
const MAX_UPLOADS: usize = 64;

const FILES: &str = "files";

/// Whether this is a SHA-256 in hexadecimal digits.
pub(crate) fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| b"0123456789abcdef".contains(&byte))
}

/// An upload on its way; what is not finished is taken away.
#[derive(Debug)]
pub(crate) struct Upload {
    file: File,
    new: PathBuf,
    whole: PathBuf,
    left: u64,
}

impl TemplateStore {
    /// Whether a template has an upload of this hash.
    pub(crate) fn has_upload(&self, id: &str, hash: &str) -> bool {
        is_hash(hash) && self.upload_at(id, hash).is_file()
    }

    /// An upload, to be read.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn upload(&self, id: &str, hash: &str) -> Result<File, Problem> {
        let path = self.upload_at(id, hash);
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
        make(&self.folder(id).join(FILES))?;
        let whole = self.upload_at(id, hash);
        let new = whole.with_extension(format!("new-{random}"));
        let file = File::options().create_new(true).write(true).mode(0o600).open(&new);
        let file = file.map_err(|error| failed(&new, &error))?;
        let upload = Upload { file, new, whole, left: size };
        upload.file.set_len(size).map_err(|error| failed(&upload.new, &error))?;
        Ok(upload)
    }

    /// Bytes and number of a template's uploads, unfinished ones too.
    fn uploaded(&self, id: &str) -> (u64, usize) {
        let entries = std::fs::read_dir(self.folder(id).join(FILES)).into_iter().flatten().flatten();
        let sizes = entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len());
        sizes.fold((0, 0), |(bytes, count), size| (bytes.saturating_add(size), count.saturating_add(1)))
    }

    /// Takes away the uploads that are not among these, and what was cut off.
    pub(crate) fn forget_uploads(&self, id: &str, but: &[&str]) {
        for entry in std::fs::read_dir(self.folder(id).join(FILES)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !but.contains(&name.as_str()) && std::fs::remove_file(entry.path()).is_err() {
                // Somebody else was first.
            }
        }
    }

    fn upload_at(&self, id: &str, hash: &str) -> PathBuf {
        self.folder(id).join(FILES).join(hash)
    }
}

impl Upload {
    /// Takes a piece; no more than was announced.
    ///
    /// # Errors
    /// There is more of it, or the folder cannot be written.
    pub(crate) fn take(&mut self, piece: &[u8]) -> Result<(), Problem> {
        let size = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        self.left = self.left.checked_sub(size).ok_or_else(|| odd("more came than `Content-Length` says"))?;
        self.file.write_all(piece).map_err(|error| failed(&self.new, &error))
    }

    /// It is whole.
    ///
    /// # Errors
    /// It is not, or the folder cannot be written.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        if self.left > 0 {
            return Err(odd("less came than `Content-Length` says"));
        }
        std::fs::rename(&self.new, &self.whole).map_err(|error| failed(&self.whole, &error))
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

fn no_room() -> Problem {
    let what = "there is no room for this upload";
    let why = "a key has 1 GiB for what its builds copy, and a template 64 uploads";
    let instead = "copy less, or remove templates; what the last build did not name goes when it is ready";
    Problem::new(StatusCode::INSUFFICIENT_STORAGE, "serve/no-space", what, why, instead)
}

#[cfg(test)]
mod tests {
    use super::super::{Build, new_build_id};
    use super::*;

    fn made(shelf: &TemplateStore, owner: &str) -> String {
        let build = Build { id: new_build_id().unwrap(), ..Build::default() };
        shelf.wish(owner, "app", build, None).unwrap().id
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
        assert!(cut.finish().is_err() && !shelf.has_upload(&one, &hash));
        let mut long = begin("2");
        assert!(long.take(b"abcde").is_err());
        drop(long);
        assert_eq!(shelf.uploaded(&one), (0, 0), "nothing is left");
        let mut good = begin("3");
        good.take(b"abcd").unwrap();
        good.finish().unwrap();
        assert!(shelf.has_upload(&one, &hash) && !shelf.has_upload(&other, &hash));
        assert!(!shelf.has_upload(&one, "../template.json"));
        let none = shelf.begin_upload(("t0123456789abcdef012", &hash), (4, "4")).unwrap_err();
        assert_eq!(none.status, StatusCode::NOT_FOUND);
        // Room is taken by what is announced: no two uploads at once take it twice.
        let room = |size| shelf.begin_upload((&one, &"b".repeat(64)), (size, &size.to_string()));
        let first = room(MAX_ALL - 100).unwrap();
        assert_eq!(room(99).unwrap_err().status, StatusCode::INSUFFICIENT_STORAGE);
        drop(first);
        assert!(room(99).is_ok());
        shelf.forget_uploads(&one, &[]);
        assert!(!shelf.has_upload(&one, &hash));
    }
}
