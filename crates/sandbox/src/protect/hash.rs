//! The hash that a repository names its objects by, and ends its files with.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::io::Errno;
use sha1::{Digest as _, Sha1};
use sha2::{Digest as _, Sha256};

use super::git::{self, MAX_POINTER};
use super::gitconfig;
use crate::state::Dir;

/// A larger configuration says nothing here.
const MAX_CONFIG: u64 = 1 << 20;

/// How git reads the indices of a repository. Nothing in one says it, and a run could write one that reads in two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hash {
    /// 20 bytes.
    Sha1,
    /// 32 bytes.
    Sha256,
}

impl Hash {
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// Of all these bytes.
    pub(super) fn sum(self, parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Sha1 => parts.iter().fold(Sha1::new(), |hash, part| hash.chain_update(part)).finalize().to_vec(),
            Self::Sha256 => parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part)).finalize().to_vec(),
        }
    }

    /// Of the repository of an index, by its configuration on the host; `None` where that is not understood.
    #[must_use]
    pub fn of(host: &Dir, index: &Path) -> Option<Self> {
        let own = index.parent()?;
        let folder = match host.read(own.join("commondir"), MAX_POINTER) {
            Ok(common) => {
                let common = Path::new(OsStr::from_bytes(common.trim_ascii_end()));
                git::resolve(&Path::new("/").join(own), common).filter(|_| common.is_relative())?
            }
            Err(Errno::NOENT) => Path::new("/").join(own),
            Err(_) => return None,
        };
        match host.read(folder.strip_prefix("/").ok()?.join("config"), MAX_CONFIG) {
            Ok(config) => Self::configured(&config),
            Err(Errno::NOENT) => Some(Self::Sha1),
            Err(_) => None,
        }
    }

    fn configured(config: &[u8]) -> Option<Self> {
        let keys = gitconfig::keys(config)?;
        let said = keys.get(&("extensions".to_owned(), "objectformat".to_owned()));
        match said.map(Vec::as_slice) {
            None => Some(Self::Sha1),
            Some([one]) if one == "sha1" => Some(Self::Sha1),
            Some([one]) if one == "sha256" => Some(Self::Sha256),
            Some(_) => None,
        }
    }
}
