//! Containers that an engine made, in the folder that it names: one folder each, with what it was made of.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sys::proc::Process;

/// The longest id.
const MAX_ID: usize = 255;
/// No record is longer.
const MAX_RECORD: u64 = 4 << 20;
const RECORD: &str = "state.json";
/// There when the program was let go.
const STARTED: &str = "started";
/// Where its supervisor listens.
const SOCKET: &str = "control";

/// The folder of one engine.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    root: PathBuf,
}

/// What is remembered of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    /// Its supervisor, which stands for it.
    pub(crate) pid: i32,
    /// When that process began, in the kernel's ticks: a number is used again.
    pub(crate) began: u64,
    pub(crate) bundle: PathBuf,
    /// The run, as the audit log knows it.
    pub(crate) run: String,
    /// RFC 3339.
    pub(crate) created: String,
    pub(crate) rootfs: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
    pub(crate) annotations: serde_json::Map<String, serde_json::Value>,
}

/// As the specification names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Created,
    Running,
    Stopped,
}

impl Status {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Stopped => "stopped",
        }
    }
}

/// Whether it can name a container, and a folder.
pub(crate) fn is_id(id: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+');
    !id.is_empty() && id.len() <= MAX_ID && !id.starts_with('.') && id.chars().all(plain)
}

impl Store {
    pub(crate) const fn at(root: PathBuf) -> Self {
        Self { root }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    fn folder(&self, id: &str) -> PathBuf {
        self.root.join(id)
    }

    /// A folder for a new one, which nobody else has.
    pub(crate) fn claim(&self, id: &str) -> std::io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.root)?;
        std::fs::DirBuilder::new().mode(0o700).create(self.folder(id))
    }

    pub(crate) fn socket(&self, id: &str) -> PathBuf {
        self.folder(id).join(SOCKET)
    }

    pub(crate) fn write(&self, record: &Record) -> std::io::Result<()> {
        let new = self.folder(&record.id).join("state.new");
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        drop(file);
        std::fs::rename(&new, self.folder(&record.id).join(RECORD))
    }

    pub(crate) fn starts(&self, id: &str) -> std::io::Result<()> {
        std::fs::File::create_new(self.folder(id).join(STARTED)).map(drop)
    }

    /// `None`: there is none of this id.
    pub(crate) fn find(&self, id: &str) -> std::io::Result<Option<Record>> {
        let path = self.folder(id).join(RECORD);
        let file = match std::fs::File::open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        file.take(MAX_RECORD).read_to_end(&mut bytes)?;
        Ok(Some(serde_json::from_slice(&bytes)?))
    }

    /// All that can be read, by id.
    pub(crate) fn all(&self) -> std::io::Result<Vec<Record>> {
        let entries = match std::fs::read_dir(&self.root) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let ids = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).filter(|id| is_id(id));
        let mut all: Vec<Record> = ids.filter_map(|id| self.find(&id).ok().flatten()).collect();
        all.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(all)
    }

    /// Forgets it.
    pub(crate) fn remove(&self, id: &str) -> std::io::Result<()> {
        match std::fs::remove_dir_all(self.folder(id)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// How it stands: its supervisor is asked for in `/proc`, by number and the time of its beginning.
    pub(crate) fn status(&self, record: &Record) -> Status {
        if !is_there(record) {
            return Status::Stopped;
        }
        if self.folder(&record.id).join(STARTED).exists() { Status::Running } else { Status::Created }
    }
}

/// A process that has ended and was not waited for yet is none.
pub(crate) fn is_there(record: &Record) -> bool {
    let Ok(process) = Process::open(record.pid) else { return false };
    let same = process.start_time().is_ok_and(|began| began == record.began);
    same && process.status().is_ok_and(|status| !matches!(status.state, 'Z' | 'X'))
}

/// Where a folder's path is too long for a socket, the descriptor of the folder names it.
pub(crate) fn short(socket: &Path) -> std::io::Result<(std::fs::File, PathBuf)> {
    use std::os::fd::AsRawFd as _;
    let folder = std::fs::File::open(socket.parent().unwrap_or(Path::new("/")))?;
    let name = socket.file_name().unwrap_or_default();
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    Ok((folder, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_folders_and_nothing_else() {
        for id in ["a", "0123456789abcdef", "pod_1.2+x-y"] {
            assert!(is_id(id), "{id}");
        }
        for id in ["", ".", "..", ".hidden", "a/b", "a b", "ä", &"a".repeat(256)] {
            assert!(!is_id(id), "{id}");
        }
    }

    #[test]
    fn a_record_comes_back_and_another_process_of_its_number_is_not_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path().join("made"));
        assert_eq!(store.find("one").unwrap(), None);
        store.claim("one").unwrap();
        assert!(store.claim("one").is_err());
        let own = Process::own().unwrap();
        let pid = i32::try_from(std::process::id()).unwrap();
        let began = own.start_time().unwrap();
        let record = Record {
            id: "one".to_owned(),
            pid,
            began,
            bundle: PathBuf::from("/b"),
            run: "r-1".to_owned(),
            created: "2026-01-01T00:00:00Z".to_owned(),
            rootfs: PathBuf::from("/b/rootfs"),
            group: None,
            annotations: serde_json::Map::new(),
        };
        store.write(&record).unwrap();
        assert_eq!(store.find("one").unwrap(), Some(record.clone()));
        assert_eq!(store.all().unwrap(), std::slice::from_ref(&record));
        assert_eq!(store.status(&record), Status::Created);
        store.starts("one").unwrap();
        assert_eq!(store.status(&record), Status::Running);
        let other = Record { began: began + 1, ..record };
        assert_eq!(store.status(&other), Status::Stopped);
        store.remove("one").unwrap();
        store.remove("one").unwrap();
        assert_eq!(store.find("one").unwrap(), None);
    }
}
