//! The kernel of machines: prepared once by root, kept by digest, and checked each time that it is used.
//!
//! It lies in a folder of root's that everybody may read: what a machine starts from is nothing that a user's program could
//! have changed.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::Missing;
use crate::cpio::Archive;

/// Where it lies.
const FOLDER: &str = "/var/lib/fumehood-machine";
/// What it is.
const ABOUT: &str = "about.json";
/// Largest kernel, or modules together, bytes.
const MAX_SIZE: u64 = 256 << 20;
/// What a machine needs beyond the kernel itself, in the order in which it is loaded; what a kernel has built in is left out.
pub const MODULES: &[&str] = &[
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "virtio_console",
    "virtio_blk",
];
/// The order in which all that a machine may need is loaded.
fn modules() -> impl Iterator<Item = &'static str> {
    MODULES.iter().chain(agent::machine::VSOCK).chain(agent::machine::NETWORK).copied()
}

/// The bytes of a module by its name; `None` where the kernel has it built in.
pub(crate) type ModuleOf<'a> = &'a dyn Fn(&str) -> Result<Option<Vec<u8>>, String>;

/// A kernel that was prepared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// The package that it is from, with its version.
    pub package: String,
    /// As `uname -r` says it inside.
    pub release: String,
    /// SHA-256 of the kernel.
    kernel: String,
    /// SHA-256 of the archive of its modules.
    modules: String,
    /// Those of a network are among them.
    #[serde(default)]
    pub network: bool,
    /// SHA-256 of the kernel as its own loader unpacks it: Firecracker starts no other form. Modules for its line are there too then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unpacked: Option<String>,
}

impl Kernel {
    /// SHA-256 of both digests.
    #[must_use]
    pub fn digest(&self) -> String {
        sha256(format!("{} {}", self.kernel, self.modules).as_bytes())
    }

    /// The same one, unpacked.
    pub(super) fn unpacked(self) -> Option<Self> {
        let kernel = self.unpacked.clone()?;
        Some(Self { kernel, ..self })
    }

    /// Major and minor number of its release.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        version(&self.release)
    }

    /// For hosts that are only spoken of.
    pub(super) fn assumed() -> Self {
        let text = |text: &str| text.to_owned();
        let (kernel, modules) = (text("-"), text("-"));
        Self { package: text("linux"), release: text("6.12"), kernel, modules, network: true, unpacked: None }
    }

    /// What was prepared on this host.
    pub(super) fn read() -> Result<Self, Missing> {
        let path = Path::new(FOLDER).join(ABOUT);
        let missing = |why: String| Missing {
            id: "tier/no-machine-kernel",
            why,
            fix: "prepare it once, as root: fumehood machine prepare".to_owned(),
        };
        let text = match whole(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(missing("no kernel for machines was prepared on this host".to_owned()));
            }
            Err(error) => return Err(missing(format!("`{}` cannot be used: {error}", path.display()))),
        };
        serde_json::from_slice(&text).map_err(|error| missing(format!("`{}` cannot be read: {error}", path.display())))
    }

    /// Kernel and modules, whose bytes have the digests.
    pub(crate) fn files(&self) -> Result<(Vec<u8>, Vec<u8>), String> {
        let one = |digest: &str| -> Result<Vec<u8>, String> {
            let path = Path::new(FOLDER).join(digest);
            let bytes = whole(&path).map_err(|error| format!("`{}`: {error}", path.display()))?;
            if sha256(&bytes) == digest {
                Ok(bytes)
            } else {
                Err(format!("`{}` is not what was prepared: its digest is another", path.display()))
            }
        };
        Ok((one(&self.kernel)?, one(&self.modules)?))
    }

    /// Keeps a kernel, as it is and unpacked where that is known, with its modules by name; what was kept before goes.
    ///
    /// # Errors
    /// A module of [`MODULES`] or of a network is missing that is not built in; or the folder cannot be written. In words.
    pub fn keep(
        package: &str,
        release: &str,
        (kernel, unpacked): (&[u8], Option<&[u8]>),
        module: ModuleOf<'_>,
    ) -> Result<Self, String> {
        let mut archive = Archive::default();
        archive.folder(agent::machine::MODULES, 0o755);
        for (at, name) in modules().enumerate() {
            let found = match module(name) {
                Err(_) if name == agent::machine::NEWER => None,
                found => found?,
            };
            if let Some(bytes) = found {
                archive.file(&format!("{}/{at:02}-{name}.ko", agent::machine::MODULES), 0o644, &bytes);
            }
        }
        let modules = archive.finish();
        let kept = Self {
            package: package.to_owned(),
            release: release.to_owned(),
            kernel: sha256(kernel),
            modules: sha256(&modules),
            network: true,
            unpacked: unpacked.map(sha256),
        };
        let about = serde_json::to_vec(&kept).map_err(|error| error.to_string())?;
        let all = || -> std::io::Result<()> {
            std::fs::create_dir_all(FOLDER)?;
            // Whatever the caller's mask is: everybody starts machines from it.
            std::fs::set_permissions(FOLDER, std::fs::Permissions::from_mode(0o755))?;
            place(&kept.kernel, kernel)?;
            place(&kept.modules, &modules)?;
            if let Some((name, bytes)) = kept.unpacked.as_ref().zip(unpacked) {
                place(name, bytes)?;
            }
            place(ABOUT, &about)?;
            for entry in std::fs::read_dir(FOLDER)? {
                let entry = entry?;
                let name = entry.file_name();
                let ours = [Some(&kept.kernel), Some(&kept.modules), kept.unpacked.as_ref()];
                if name != ABOUT && !ours.into_iter().flatten().any(|ours| name == **ours) {
                    std::fs::remove_file(entry.path())?;
                }
            }
            Ok(())
        };
        all().map_err(|error| format!("`{FOLDER}` cannot be written: {error}"))?;
        Ok(kept)
    }
}

/// Major and minor number of a release as `uname` says it; what is no number is 0.
pub(super) fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(['.', '-', '+']).map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// A file of the folder, seen whole or not at all.
fn place(name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let folder = Path::new(FOLDER);
    let new = folder.join(format!("{name}.new"));
    drop(std::fs::remove_file(&new));
    let mut file = File::options().write(true).create_new(true).mode(0o644).open(&new)?;
    file.write_all(bytes)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
    file.sync_all()?;
    std::fs::rename(&new, folder.join(name))
}

/// A file that only root can have written, below folders of which the same is true.
fn whole(path: &Path) -> std::io::Result<Vec<u8>> {
    let refused = |why: &str| std::io::Error::other(why.to_owned());
    for above in path.ancestors().skip(1) {
        let meta = above.symlink_metadata()?;
        if !meta.is_dir() || meta.uid() != 0 || (meta.mode() & 0o022 != 0 && meta.mode() & 0o1000 == 0) {
            return Err(refused(&format!("`{}` is not a folder that only root can write", above.display())));
        }
    }
    let named = path.symlink_metadata()?;
    let file = File::open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file()
        || meta.uid() != 0
        || meta.mode() & 0o022 != 0
        || (named.dev(), named.ino()) != (meta.dev(), meta.ino())
    {
        return Err(refused("it is not a file that only root can write"));
    }
    if meta.len() > MAX_SIZE {
        return Err(refused("it is too large"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_SIZE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The digest in hexadecimal digits.
fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The path of a module's file below a tree of modules, by its name; `None` where there is none.
#[must_use]
pub fn find_module(tree: &Path, name: &str) -> Option<PathBuf> {
    let mut folders = vec![tree.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).ok()?.filter_map(Result::ok) {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if entry
                .file_name()
                .to_str()
                .is_some_and(|file| file.strip_suffix(".ko").or_else(|| file.strip_suffix(".ko.xz")) == Some(name))
            {
                return Some(path);
            }
        }
    }
    None
}
