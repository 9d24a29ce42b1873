//! The file of `--report`: opened before anything runs, so that neither a place that cannot be written is found out too
//! late, nor a link leads our words elsewhere that the program puts there meanwhile.

use std::cell::Cell;
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use policy::Policy;
use policy::value::WorkspaceMode;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use serde_json::Value;

use crate::ui::Failure;
use sandbox::fault::{Fault, show_path};

pub(super) const UNWRITABLE: &str = "run/report-unwritable";
const FIX: &str = "name a file in a folder that you may write";

/// An open file for the report.
#[derive(Debug)]
pub(super) struct ReportFile {
    path: PathBuf,
    file: File,
    /// Where the caller stands.
    cwd: PathBuf,
    /// The policy was asked.
    judged: Cell<bool>,
}

impl ReportFile {
    /// Opens the file; made if it is not there.
    ///
    /// # Errors
    /// It cannot be written; nobody reads the pipe.
    pub(super) fn open(path: &Path, cwd: Option<&Path>) -> Result<Self, Failure> {
        // A pipe without a reader would be waited for.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
            // Exclusive: a link that leads nowhere does not say where a file is to be made.
            Err(Errno::NOENT) => {
                rustix::fs::openat(CWD, path, flags | OFlags::CREATE | OFlags::EXCL, Mode::from_raw_mode(0o666))
            }
            other => other,
        };
        let waits = |file: OwnedFd| rustix::fs::fcntl_setfl(&file, OFlags::empty()).map(|()| file);
        let file = opened
            .and_then(waits)
            .map_err(|errno| unwritable(path, format!("{}; nothing was run", why_not(errno)), FIX))?;
        let cwd = cwd.map(Path::to_owned).unwrap_or_default();
        Ok(Self { path: path.to_owned(), file: File::from(file), cwd, judged: Cell::new(false) })
    }

    /// What the program may write holds no link that leads our report out of it: an earlier run could have put it there.
    /// The file is emptied, so that an old report is not taken for this run's.
    ///
    /// # Errors
    /// There is one.
    pub(super) fn judge(&self, policy: &Policy) -> Result<(), Failure> {
        let workspace = policy.workspace.path.as_ref().filter(|_| policy.workspace.mode == WorkspaceMode::Rw);
        policy.fs.write.iter().map(|grant| &grant.from).chain(workspace).try_for_each(|root| self.stays_in(root))?;
        self.judged.set(true);
        self.empty();
        Ok(())
    }

    fn stays_in(&self, root: &Path) -> Result<(), Failure> {
        let Ok(real_root) = root.canonicalize() else { return Ok(()) };
        let real = std::fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        if !leads_through(&self.cwd.join(&self.path), &real_root) || real.is_ok_and(|to| to.starts_with(&real_root)) {
            return Ok(());
        }
        let why = format!(
            "a link leads it out of {}, where a program may have put that link; nothing was run",
            show_path(root)
        );
        Err(unwritable(&self.path, why, "name the file itself, best outside of what the program may write"))
    }

    /// Writes the report, alone. Where the policy could not be asked what is written by programs, it may be all that lies
    /// where the caller stands.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&self, value: &Value) -> Result<(), Failure> {
        if !self.judged.get() {
            self.stays_in(&self.cwd)?;
        }
        self.empty();
        let mut file = &self.file;
        file.write_all(sandbox::fault::show_json(format!("{value:#}\n")).as_bytes())
            .map_err(|e| unwritable(&self.path, e.to_string().to_lowercase(), FIX))?;
        self.is_there()
    }

    /// A program that may write to its folder may have taken the file away, and put its own words there.
    fn is_there(&self) -> Result<(), Failure> {
        let opened = self.file.metadata().map_err(|e| unwritable(&self.path, e.to_string().to_lowercase(), FIX))?;
        let named = self.cwd.join(&self.path).metadata();
        if !opened.is_file() || named.is_ok_and(|named| (named.dev(), named.ino()) == (opened.dev(), opened.ino())) {
            return Ok(());
        }
        let why = "the file was taken away while the run lasted: what stands there now is not this report".to_owned();
        Err(unwritable(
            &self.path,
            why,
            "name a file that the program may not write, outside of its workspace and grants",
        ))
    }

    /// A program that sees the file may have written to it. A pipe or a device is no file that could be empty.
    fn empty(&self) {
        let mut file = &self.file;
        if file.set_len(0).and_then(|()| file.rewind()).is_err() {}
    }
}

/// Whether a name below `root` decides where `path` leads, which may come to that name through others. What cannot be walked
/// is judged as if one did.
fn leads_through(path: &Path, root: &Path) -> bool {
    let decides = |name: &PathBuf| name.parent().is_some_and(|folder| folder.starts_with(root));
    sys::path_walk::of(path).is_none_or(|way| way.names.iter().any(decides))
}

fn why_not(errno: Errno) -> String {
    match errno {
        Errno::NXIO => "it is a socket, or a pipe that nobody reads".to_owned(),
        Errno::EXIST => "it is a link that leads nowhere".to_owned(),
        errno => std::io::Error::from(errno).to_string().to_lowercase(),
    }
}

fn unwritable(path: &Path, why: String, fix: &str) -> Failure {
    Failure::own(Fault {
        id: UNWRITABLE,
        what: format!("the report cannot be written to {}", show_path(path)),
        place: "--report".to_owned(),
        why,
        fix: fix.to_owned(),
    })
}
