//! What outlives a run, and where it lies: `audit/ runs/ changes/ snapshots/ live/ keys/`.
//!
//! Promises: the folder is 0700 and the caller's, no part of its path is a symbolic link, and whatever a run makes on
//! the host is written down in `runs/` before it is made, so that a later start can take it away.
//! Must not: read the environment (the caller passes [`Places`]), or touch another live run's things.

pub(crate) mod cgroup;
mod dir;
mod error;
mod foreign;
mod journal;
mod life;
mod owner;
pub mod path_text;
mod run_id;
mod stray;
#[cfg(test)]
mod tests;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

pub(crate) use dir::own_link;
pub use dir::{Cross, Dir, errno_of, last_name};
pub use error::{StateError, not_a_file, unwritable};
pub use foreign::rights_of;
pub use journal::{Journal, Resource, Watched, beat};
pub(crate) use life::{BEGINNING_SECONDS, carries, changes_of, dead, lives};
pub use owner::Owner;
pub use path_text::PathText;
pub use run_id::RunId;
pub use stray::{Stray, strays};

/// What the environment says about where state lives; read in `cli`, empty values as `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// `$FUMEHOOD_STATE`.
    pub fumehood_state: Option<PathBuf>,
    /// `$FUMEHOOD_KEYS`.
    pub fumehood_keys: Option<PathBuf>,
    /// `$XDG_STATE_HOME`.
    pub xdg_state_home: Option<PathBuf>,
    /// `$HOME`.
    pub home: Option<PathBuf>,
    /// The effective user.
    pub euid: u32,
}

impl Places {
    /// The state folder, and the variable that moves it.
    ///
    /// # Errors
    /// [`StateError::Relative`] or [`StateError::NoPlace`].
    pub fn state(&self) -> Result<(PathBuf, &'static str), StateError> {
        if let Some(path) = &self.fumehood_state {
            return absolute(path, "FUMEHOOD_STATE").map(|p| (p, "FUMEHOOD_STATE"));
        }
        if let Some(path) = &self.xdg_state_home {
            return absolute(path, "XDG_STATE_HOME").map(|p| (p.join("fumehood"), "FUMEHOOD_STATE"));
        }
        if self.euid == 0 {
            return Ok((PathBuf::from("/var/lib/fumehood"), "FUMEHOOD_STATE"));
        }
        let home = self.home.as_ref().ok_or(StateError::NoPlace)?;
        absolute(home, "HOME").map(|p| (p.join(".local/state/fumehood"), "FUMEHOOD_STATE"))
    }

    /// The folder of the keys, and the variable that moves it.
    ///
    /// # Errors
    /// As [`Places::state`].
    pub fn keys(&self) -> Result<(PathBuf, &'static str), StateError> {
        match &self.fumehood_keys {
            Some(path) => absolute(path, "FUMEHOOD_KEYS").map(|p| (p, "FUMEHOOD_KEYS")),
            None => self.state().map(|(p, variable)| (p.join("keys"), variable)),
        }
    }
}

/// The state folder, open.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    root: Dir,
    keys_path: PathBuf,
    keys_variable: &'static str,
    caller: u32,
}

impl State {
    /// Opens the state folder, made if it is missing.
    ///
    /// # Errors
    /// [`StateError`]: each names the path, the variable that moves it, and the fix.
    pub fn open(places: &Places) -> Result<Self, StateError> {
        let (path, variable) = places.state()?;
        let (keys_path, keys_variable) = places.keys()?;
        let root = own_folder(&path, variable, places.euid)?;
        Ok(Self { path, root, keys_path, keys_variable, caller: places.euid })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The effective user it was opened for.
    #[must_use]
    pub fn caller(&self) -> u32 {
        self.caller
    }

    /// The folder itself.
    #[must_use]
    pub fn root(&self) -> &Dir {
        &self.root
    }

    /// The path of the audit log's folder.
    #[must_use]
    pub fn audit_path(&self) -> PathBuf {
        self.path.join("audit")
    }

    /// The folder of the audit log.
    ///
    /// # Errors
    /// [`StateError::NotWritable`] and the like.
    pub fn audit(&self) -> Result<Dir, StateError> {
        self.inner("audit")
    }

    /// The folder of the journals of live runs.
    ///
    /// # Errors
    /// [`StateError::NotWritable`] and the like.
    pub fn runs(&self) -> Result<Dir, StateError> {
        self.inner("runs")
    }

    /// The folder of changes that wait to be applied or discarded.
    ///
    /// # Errors
    /// [`StateError::NotWritable`] and the like.
    pub fn changes(&self) -> Result<Dir, StateError> {
        self.inner("changes")
    }

    /// The folder of snapshots.
    ///
    /// # Errors
    /// [`StateError::NotWritable`] and the like.
    pub fn snapshots(&self) -> Result<Dir, StateError> {
        self.inner("snapshots")
    }

    /// The folder of prepared machines.
    ///
    /// # Errors
    /// [`StateError::NotWritable`] and the like.
    pub fn machines(&self) -> Result<Dir, StateError> {
        self.inner("machines")
    }

    /// The folder of live sandboxes.
    ///
    /// # Errors
    /// [`StateError::NotWritable`] and the like.
    pub fn live(&self) -> Result<Dir, StateError> {
        self.inner("live")
    }

    /// The folder of the signing key and the checkpoints, and its path.
    ///
    /// # Errors
    /// [`StateError::NotWritable`] and the like.
    pub fn keys(&self) -> Result<(Dir, PathBuf), StateError> {
        own_folder(&self.keys_path, self.keys_variable, self.caller).map(|dir| (dir, self.keys_path.clone()))
    }

    fn inner(&self, name: &'static str) -> Result<Dir, StateError> {
        let path = self.path.join(name);
        let made = match self.root.enter(name, Cross::Yes) {
            Err(Errno::NOENT) => self.root.make(name, Mode::RWXU).and_then(|_| self.root.enter(name, Cross::Yes)),
            other => other,
        };
        let dir = made.map_err(|errno| unusable(&path, "FUMEHOOD_STATE", errno))?;
        check_owner(&dir, &path, "FUMEHOOD_STATE", self.caller)?;
        close_to_others(&dir, &path, "FUMEHOOD_STATE")?;
        Ok(dir)
    }
}

/// Opens a folder that must be the caller's alone, and makes it if it is missing. Others may not even look into it.
///
/// # Errors
/// [`StateError`], naming `variable` as what moves the folder.
pub fn own_folder(path: &Path, variable: &'static str, caller: u32) -> Result<Dir, StateError> {
    let dir = named_folder(path, variable, caller)?;
    close_to_others(&dir, path, variable)?;
    Ok(dir)
}

/// Opens a folder that the user named: nobody else may write into it, but its mode is left as it is.
///
/// # Errors
/// As [`own_folder`].
pub fn named_folder(path: &Path, variable: &'static str, caller: u32) -> Result<Dir, StateError> {
    let dir = match Dir::open(path) {
        Err(Errno::NOENT) => make_all(path, variable)?,
        other => other.map_err(|errno| unusable(path, variable, errno))?,
    };
    check_owner(&dir, path, variable, caller)?;
    Ok(dir)
}

/// Makes a folder and its missing parents, each 0700, without following a link.
fn make_all(path: &Path, variable: &'static str) -> Result<Dir, StateError> {
    let mut at = PathBuf::from("/");
    let mut dir = Dir::open(&at).map_err(|errno| unusable(&at, variable, errno))?;
    for part in path.components().skip(1) {
        at.push(part);
        let name = part.as_os_str();
        let next = match dir.enter(name, Cross::Yes) {
            Err(Errno::NOENT) => dir.make(name, Mode::RWXU).and_then(|_| dir.enter(name, Cross::Yes)),
            other => other,
        };
        dir = next.map_err(|errno| unusable(&at, variable, errno))?;
    }
    Ok(dir)
}

/// Where copies for later starts lie. It is shown inside as the source of a mount, so it is not the state folder, whose
/// path may name the user; `None` where the system has no runtime folder for this user.
#[must_use]
pub fn cache(euid: u32) -> Option<PathBuf> {
    let folder = if euid == 0 { PathBuf::from("/run") } else { PathBuf::from(format!("/run/user/{euid}")) };
    folder.is_dir().then(|| folder.join("fumehood"))
}

fn check_owner(dir: &Dir, path: &Path, variable: &'static str, caller: u32) -> Result<(), StateError> {
    let stat = rustix::fs::fstat(dir).map_err(|errno| unusable(path, variable, errno))?;
    if stat.st_uid != caller {
        return Err(StateError::Owner { path: path.into(), variable, owner: stat.st_uid, caller });
    }
    let mode = stat.st_mode & 0o7777;
    if mode & 0o022 == 0 { Ok(()) } else { Err(StateError::Open { path: path.into(), mode }) }
}

/// Only readable by others: closing it is enough, nobody could have put anything in.
fn close_to_others(dir: &Dir, path: &Path, variable: &'static str) -> Result<(), StateError> {
    let close = |stat: rustix::fs::Stat| {
        if stat.st_mode & 0o777 == 0o700 { Ok(()) } else { rustix::fs::fchmod(dir.as_fd(), Mode::RWXU) }
    };
    rustix::fs::fstat(dir).and_then(close).map_err(|errno| unusable(path, variable, errno))
}

fn unusable(path: &Path, variable: &'static str, errno: Errno) -> StateError {
    match errno {
        Errno::LOOP => StateError::Link { path: path.into(), variable },
        errno => StateError::NotWritable { path: path.into(), variable, errno },
    }
}

fn absolute(path: &Path, variable: &'static str) -> Result<PathBuf, StateError> {
    let plain = path.is_absolute() && !path.components().any(|c| c == std::path::Component::ParentDir);
    if plain { Ok(path.to_owned()) } else { Err(StateError::Relative { variable, path: path.to_owned() }) }
}

/// Whether a mode says "regular file".
#[must_use]
pub fn is_regular(mode: u32) -> bool {
    FileType::from_raw_mode(mode) == FileType::RegularFile
}
