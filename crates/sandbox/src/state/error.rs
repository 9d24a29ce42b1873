//! What can go wrong with the state folder, by stage.

use std::path::PathBuf;

use rustix::io::Errno;

use crate::fault::{Fault, show_path};

/// A failure of the state folder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// No variable says where state lives.
    #[error("no place for the state folder")]
    NoPlace,
    /// A variable holds a path that is not absolute.
    #[error("`{variable}` is not an absolute path")]
    Relative {
        /// Variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
    },
    /// A part of the path is a symbolic link.
    #[error("{} has a symbolic link in it", show_path(path))]
    Link {
        /// Path.
        path: PathBuf,
        /// The variable that moves it.
        variable: &'static str,
    },
    /// The folder is somebody else's.
    #[error("{} belongs to user {owner}", show_path(path))]
    Owner {
        /// Path.
        path: PathBuf,
        /// The variable that moves it.
        variable: &'static str,
        /// Who owns it.
        owner: u32,
        /// Who asks.
        caller: u32,
    },
    /// Others may write into the folder.
    #[error("{} may be written by others", show_path(path))]
    Open {
        /// Path.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The folder, or something in it, cannot be made or written.
    #[error("{} cannot be written", show_path(path))]
    NotWritable {
        /// Path.
        path: PathBuf,
        /// The variable that moves it.
        variable: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// Something of ours cannot be read.
    #[error("{} cannot be read", show_path(path))]
    NotReadable {
        /// Path.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// A text that should be a run id is none.
    #[error("`{}` is no run id", crate::fault::show_text(text))]
    RunId {
        /// The text.
        text: String,
    },
    /// The kernel gave no random bytes.
    #[error("no random bytes from the kernel")]
    NoRandom,
}

impl StateError {
    /// What, where, why and fix.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let what = self.to_string();
        let say = |id, place: String, why: String, fix: String| Fault { id, what: what.clone(), place, why, fix };
        match self {
            Self::NoPlace => say(
                "state/no-place",
                "the environment".into(),
                "neither FUMEHOOD_STATE, XDG_STATE_HOME nor HOME is set".into(),
                "set FUMEHOOD_STATE to an absolute path that you own".into(),
            ),
            Self::Relative { variable, path } => say(
                "state/relative",
                format!("{variable}={}", show_path(path)),
                "what a relative path means changes with the current directory".into(),
                format!("set {variable} to an absolute path"),
            ),
            Self::Link { path, variable } => say(
                "state/link",
                show_path(path),
                "whoever can change a link on the way can redirect the audit log".into(),
                format!("set {variable} to the path behind the link (`realpath` shows it)"),
            ),
            Self::Owner { path, variable, owner, caller } => say(
                "state/owner",
                show_path(path),
                format!("it belongs to user {owner} and you are user {caller}: its owner could edit the audit log"),
                format!("set {variable} to a folder of your own"),
            ),
            Self::Open { path, mode } => say(
                "state/open",
                show_path(path),
                format!("its mode is {mode:04o}: others could have put something into it"),
                format!("look through it, then `chmod 700 {}`", show_path(path).trim_matches('`')),
            ),
            Self::NotWritable { path, variable, errno } => {
                let (why, fix) = unwritable(*errno, variable);
                say("state/not-writable", show_path(path), why, fix)
            }
            Self::NotReadable { path, errno } => say(
                "state/not-readable",
                show_path(path),
                not_a_file(*errno).map_or_else(|| errno.to_string().to_lowercase(), str::to_owned),
                "give its owner read permission, or move it away".into(),
            ),
            Self::RunId { text } => say(
                "state/run-id",
                format!("`{}`", crate::fault::show_text(text)),
                "run ids look like `r-20261122-013045-7f3a9c`".into(),
                "take one that a report or `fumehood audit show` names".into(),
            ),
            Self::NoRandom => say(
                "state/no-random",
                "getrandom(2)".into(),
                "the kernel refused".into(),
                "let the system call `getrandom` through".into(),
            ),
        }
    }
}

/// Why something cannot be written, and what to do.
#[must_use]
pub fn unwritable(errno: Errno, variable: &str) -> (String, String) {
    let elsewhere = format!("set {variable} to a folder that you own, on a writable disk");
    if let Some(why) = not_a_file(errno) {
        return (why.to_owned(), format!("look at it and move it away, or {elsewhere}"));
    }
    match errno {
        Errno::ROFS => ("the file system is read-only".into(), elsewhere),
        Errno::NOSPC => ("the disk is full".into(), format!("free some space, or set {variable} to another disk")),
        Errno::DQUOT => ("your quota is used up".into(), format!("free some space, or set {variable} to another disk")),
        Errno::ACCESS | Errno::PERM => ("you have no permission to write there".into(), elsewhere),
        Errno::MFILE | Errno::NFILE => {
            ("too many files are open".into(), "raise the limit of open files (`ulimit -n`)".into())
        }
        Errno::FBIG => {
            ("the caller's limit of file sizes is reached".into(), "raise the limit of file sizes (`ulimit -f`)".into())
        }
        other => (other.to_string().to_lowercase(), elsewhere),
    }
}

/// What stands in the place of a file or folder of ours.
#[must_use]
pub fn not_a_file(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::NOTDIR => Some("it, or a part of its path, is no directory"),
        Errno::ISDIR => Some("it is a directory, and a file of ours stands there"),
        Errno::LOOP => Some("it is a symbolic link, and none is followed here"),
        Errno::INVAL | Errno::NXIO => Some("it is a pipe, a socket or a device, and no file"),
        _ => None,
    }
}
