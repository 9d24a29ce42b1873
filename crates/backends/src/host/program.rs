//! A runtime of containers on this host: a program that root starts, and what it says of itself.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sys::command::Command;

/// Where an administrator or a distribution puts it. Root executes it, so that no other folder counts.
const FOLDERS: [&str; 4] = ["/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin"];
/// How long it may take to say its version or its flags.
const ANSWER: Duration = Duration::from_secs(10);
/// Most that it may say.
const MAX_ANSWER: usize = 64 << 10;

/// Why there is none, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProgramMissing {
    /// It is in none of the places.
    Nowhere(String),
    /// Others than root could replace it.
    NotTrusted(String),
}

/// The first of that name.
pub(crate) fn find(name: &str) -> Result<PathBuf, ProgramMissing> {
    let places = FOLDERS.map(|folder| Path::new(folder).join(name));
    let there = places.iter().find(|path| path.exists());
    let names = || places.each_ref().map(|path| path.display().to_string()).join(", no ");
    trusted(there.ok_or_else(|| ProgramMissing::Nowhere(format!("there is no {}", names())))?)
        .map_err(ProgramMissing::NotTrusted)
}

/// Where it lies without links. Root runs it: nobody else may be able to write it, or a folder on the way to it.
pub(crate) fn trusted(path: &Path) -> Result<PathBuf, String> {
    let real = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
    for one in real.ancestors() {
        let meta = one.symlink_metadata().map_err(|error| format!("{}: {error}", one.display()))?;
        if meta.uid() != 0 || meta.mode() & 0o022 != 0 {
            return Err(format!("{} can be written by others than root", one.display()));
        }
    }
    Ok(real)
}

/// What it says to one word.
pub(crate) fn ask(path: &Path, word: &str) -> Result<String, String> {
    let answer = Command::new(path).arg(word).output(b"", MAX_ANSWER, ANSWER).map_err(|error| error.to_string())?;
    if answer.timed_out {
        return Err(format!("`{} {word}` did not answer within {} s", path.display(), ANSWER.as_secs()));
    }
    Ok(String::from_utf8_lossy(&[answer.stdout, answer.stderr].concat()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_can_replace_is_not_run_and_a_link_is_followed_once() {
        let folder = tempfile::tempdir().unwrap();
        let (link, written) = (folder.path().join("runsc"), folder.path().join("written"));
        std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
        std::fs::write(&written, "").unwrap();
        // The temporary folder is everybody's.
        let judged = (trusted(&link), trusted(&written));
        assert_eq!(judged.0, Ok(Path::new("/bin/sh").canonicalize().unwrap()));
        assert!(judged.1.is_err_and(|why| why.contains("can be written by others")));
    }
}
