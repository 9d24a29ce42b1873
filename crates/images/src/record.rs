//! The documents that the digest of an image is of, kept beside its tree. Each use holds them against the digest, and what is
//! written down of how the image is run against them.

use std::io::Write as _;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sandbox::state::{Dir, errno_of};
use sha2::{Digest as _, Sha256};

use crate::config::{Config, Defaults, MAX_DOCUMENT, Manifest, Wishes};
use crate::decode::hex;

const MANIFEST: &str = "manifest";
const CONFIG: &str = "config";

/// Manifest and configuration, byte for byte.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// None in a docker-archive.
    pub(crate) manifest: Option<Vec<u8>>,
    pub(crate) config: Vec<u8>,
}

/// What they say.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) config: Defaults,
    /// Digests of the layers, unpacked.
    pub(crate) layers: Vec<String>,
    /// What is asked for that nothing here does, by its instruction.
    pub(crate) unheeded: Vec<String>,
}

impl Record {
    pub(crate) fn write(&self, dir: &Dir) -> Result<(), Errno> {
        let documents = [(MANIFEST, self.manifest.as_ref()), (CONFIG, Some(&self.config))];
        for (name, text) in documents.into_iter().filter_map(|(name, text)| Some((name, text?))) {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            let mut file = dir.open_file(name, flags, Mode::from_raw_mode(0o600))?;
            file.write_all(text).and_then(|()| file.sync_all()).map_err(|error| errno_of(&error))?;
        }
        Ok(())
    }

    pub(crate) fn read(dir: &Dir) -> Result<Self, Errno> {
        let manifest = match dir.read(MANIFEST, MAX_DOCUMENT) {
            Err(Errno::NOENT) => None,
            other => Some(other?),
        };
        Ok(Self { manifest, config: dir.read(CONFIG, MAX_DOCUMENT)? })
    }

    /// What they say, if they are those that the digest is of.
    pub(crate) fn said(&self, digest: &str) -> Option<Said> {
        let of_config = match &self.manifest {
            None => digest.to_owned(),
            Some(manifest) => {
                (digest_of(manifest) == digest).then_some(())?;
                serde_json::from_slice::<Manifest>(manifest).ok()?.config.digest
            }
        };
        (digest_of(&self.config) == of_config).then_some(())?;
        let config: Config = serde_json::from_slice(&self.config).ok()?;
        let wishes: Wishes = serde_json::from_slice(&self.config).ok()?;
        Some(Said {
            config: config.config.unwrap_or_default(),
            layers: config.rootfs.diff_ids,
            unheeded: wishes.unheeded(),
        })
    }
}

pub(crate) fn digest_of(text: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(text)))
}
