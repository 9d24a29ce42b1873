//! An image of the store as an OCI layout: one layer, uncompressed, so that one tree has one digest wherever it is written.

use std::fs::File;
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use sandbox::state::{Cross, Dir, errno_of};
use serde_json::{Value, json};

use crate::config::Defaults;
use crate::error::ImageError;
use crate::layout::{NAME, architecture};
use crate::pack::{Digested, file_header, pack, padding};
use crate::store::Store;

const BLOBS: &str = concat!("blobs", "/sha256");
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// What lies under a digest.
#[derive(Clone, Debug)]
pub(crate) struct Blob {
    pub(crate) kind: &'static str,
    pub(crate) digest: String,
    pub(crate) size: u64,
}

impl Blob {
    fn of(kind: &'static str, bytes: &[u8]) -> io::Result<Self> {
        let mut digested = Digested::new(io::sink());
        digested.write_all(bytes)?;
        let (digest, size) = digested.finish()?;
        Ok(Self { kind, digest, size })
    }

    fn json(&self) -> Value {
        json!({ "mediaType": self.kind, "digest": self.digest, "size": self.size })
    }

    fn path(&self) -> String {
        format!("{BLOBS}/{}", self.digest.strip_prefix("sha256:").unwrap_or(&self.digest))
    }
}

/// Configuration and manifest of an image that has one layer, as they are written.
pub(crate) struct Documents {
    pub(crate) config: (Blob, Vec<u8>),
    pub(crate) manifest: (Blob, Vec<u8>),
}

pub(crate) fn documents(defaults: &Defaults, layer: &Blob) -> io::Result<Documents> {
    let config = json!({
        "created": "1970-01-01T00:00:00Z", "architecture": architecture(), "os": "linux", "config": defaults,
        "rootfs": { "type": "layers", "diff_ids": [layer.digest] },
    });
    let config = serde_json::to_vec(&config)?;
    let of_config = Blob::of(CONFIG, &config)?;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": of_config.json(), "layers": [layer.json()],
    });
    let manifest = serde_json::to_vec(&manifest)?;
    Ok(Documents { config: (of_config, config), manifest: (Blob::of(MANIFEST, &manifest)?, manifest) })
}

/// The one layer that a tree is.
pub(crate) fn layer(root: &Dir, out: impl io::Write) -> io::Result<Blob> {
    let mut digested = Digested::new(out);
    pack(root, &mut digested)?;
    let (digest, size) = digested.finish()?;
    Ok(Blob { kind: LAYER, digest, size })
}

impl Store {
    /// Writes an image as an OCI layout: an archive if the path ends in `.tar`, else a folder. Gives the digest of the
    /// manifest. What is not written to its end has another name, and is removed.
    ///
    /// # Errors
    /// As [`Self::lease`]; [`ImageError::Exists`]: nothing is written over.
    pub fn export(&self, reference: &str, to: &Path) -> Result<String, ImageError> {
        let failed = |errno| ImageError::Io { path: to.to_owned(), errno };
        let name = to.file_name().ok_or_else(|| failed(Errno::INVAL))?;
        let above = to.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        let above = rustix::fs::open(above, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let above = Dir::from(above.map_err(failed)?);
        if above.kind(name).map_err(failed)?.is_some() {
            return Err(ImageError::Exists { path: to.to_owned() });
        }
        let listed = self.find(reference)?;
        let lease = self.lease(reference)?;
        let root = Dir::open(lease.path()).map_err(failed)?;
        let called = listed.names.iter().find(|name| *name == reference).or_else(|| listed.names.first());
        let stage = crate::unfinished::unfinished(".fumehood-")?;
        let written = if to.extension().is_some_and(|extension| extension == "tar") {
            Layout::archive(&above, &stage)
        } else {
            Layout::folder(&above, &stage)
        };
        let written = written
            .and_then(|layout| layout.write(&root, &listed.about.config, called.map(String::as_str)))
            .map_err(|error| errno_of(&error));
        let kept = written.and_then(|digest| {
            rustix::fs::renameat_with(&above, stage.as_str(), &above, name, RenameFlags::NOREPLACE).map(|()| digest)
        });
        kept.map_err(|errno| {
            // The failure that is told is the first one.
            let _gone = above.remove_tree(&stage);
            if errno == Errno::EXIST { ImageError::Exists { path: to.to_owned() } } else { failed(errno) }
        })
    }
}

/// A layout that is being written.
enum Layout {
    Folder(Dir),
    Archive(File),
}

impl Layout {
    fn folder(above: &Dir, name: &str) -> io::Result<Self> {
        let mode = Mode::from_raw_mode(0o755);
        rustix::fs::mkdirat(above, name, mode)?;
        let dir = above.enter(name, Cross::No)?;
        dir.make("blobs", mode)?;
        dir.enter("blobs", Cross::No)?.make("sha256", mode)?;
        Ok(Self::Folder(dir))
    }

    fn archive(above: &Dir, name: &str) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        Ok(Self::Archive(above.open_file(name, flags, Mode::from_raw_mode(0o644))?))
    }

    fn write(mut self, root: &Dir, defaults: &Defaults, name: Option<&str>) -> io::Result<String> {
        let layer = self.layer(root)?;
        let Documents { config, manifest } = documents(defaults, &layer)?;
        for (blob, bytes) in [&config, &manifest] {
            self.file(&blob.path(), bytes)?;
        }
        let mut of_manifest = manifest.0.json();
        if let Some(all) = of_manifest.as_object_mut() {
            all.extend(name.map(|name| ("annotations".to_owned(), json!({ NAME: name }))));
            all.insert("platform".to_owned(), json!({ "architecture": architecture(), "os": "linux" }));
        }
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [of_manifest] });
        self.file("index.json", &serde_json::to_vec(&index)?)?;
        self.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        if let Self::Archive(file) = &mut self {
            file.write_all(&[0; 1024])?;
        }
        Ok(manifest.0.digest)
    }

    /// The layer, whose name and size are known when it is written.
    fn layer(&mut self, root: &Dir) -> io::Result<Blob> {
        match self {
            Self::Folder(dir) => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                let file = dir.open_file("layer", flags, Mode::from_raw_mode(0o644))?;
                let blob = layer(root, BufWriter::with_capacity(128 << 10, file))?;
                rustix::fs::renameat(&*dir, "layer", &*dir, PathBuf::from(blob.path()))?;
                Ok(blob)
            }
            Self::Archive(file) => {
                let at = file.stream_position()?;
                file.write_all(&[0; 512])?;
                let blob = layer(root, BufWriter::with_capacity(128 << 10, &*file))?;
                file.write_all_at(file_header(&blob.path(), blob.size).as_bytes(), at)?;
                file.seek(SeekFrom::Current(i64::try_from(padding(blob.size)).unwrap_or(0)))?;
                Ok(blob)
            }
        }
    }

    fn file(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Folder(dir) => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                dir.open_file(name, flags, Mode::from_raw_mode(0o644))?.write_all(bytes)
            }
            Self::Archive(file) => {
                let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                file.write_all(file_header(name, size).as_bytes())?;
                file.write_all(bytes)?;
                file.seek(SeekFrom::Current(i64::try_from(padding(size)).unwrap_or(0))).map(drop)
            }
        }
    }
}
