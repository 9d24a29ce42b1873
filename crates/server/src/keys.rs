//! Keys: `e2b_` and 40 lower-case hexadecimal digits, shown once, of which only the SHA-256 is kept.
//!
//! They lie in `server/keys.json` of the state folder, which command line and server read at each use: what is added or
//! removed counts at once. All digests are compared in constant time, so that an answer's time tells nothing of a key.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use live::template::Store;
use policy::json::{hex, sha256_hex};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use crate::answer::Problem;
use crate::labels;
use crate::templates::Templates;

/// The folder in the state folder.
const FOLDER: &str = "server";
const KEYS: &str = "keys.json";
const SECRET: &str = "secret";
/// The largest file of keys that is read.
const MAX_BYTES: u64 = 1 << 20;
/// Most keys.
const MAX_KEYS: usize = 1000;
/// Who asks by the socket of Docker's clients, where a key's mark would stand.
pub(crate) const DOCKER_CALLER: &str = "docker-socket";

/// Why keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// A file or folder of ours.
    #[error("{path}: {why}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A key of this name is there already.
    #[error("a key `{0}` is there already")]
    Taken(String),
    /// No key has this name.
    #[error("there is no key `{0}`")]
    Unknown(String),
    /// A name that cannot be one.
    #[error("`{0}` is no name: 1 to 63 of [a-zA-Z0-9_.-], beginning with a letter or digit")]
    Name(String),
    /// Too many.
    #[error("there are {MAX_KEYS} keys already")]
    TooMany,
    /// The kernel gave no random bytes.
    #[error("the kernel gave no random bytes")]
    NoRandom,
}

/// A key, without what would let somebody in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Its name.
    pub name: String,
    /// SHA-256 of it, hexadecimal.
    digest: String,
    /// The policy that no sandbox of it may exceed: a preset's name or an absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<String>,
    /// Most sandboxes that live at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandboxes: Option<u32>,
    /// The templates that it may make sandboxes of; none = all of them, and policies of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub templates: Option<Vec<String>>,
    /// Most templates that it may build and keep; none = the usual number, 0: it builds none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builds: Option<u32>,
    /// The images that its templates may begin as, as patterns of names; none = no image but the root of its ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<Vec<String>>,
    /// Those of `images` that the store has not are brought from their registry.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pull: bool,
    /// A person's: it may also answer approvals, take changes over to the host, and read all of the audit log and the metrics.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub operator: bool,
    /// When it was added: milliseconds since 1970.
    pub added_ms: i64,
}

/// What a key may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// See [`Key::ceiling`].
    pub ceiling: Option<String>,
    /// See [`Key::sandboxes`].
    pub sandboxes: Option<u32>,
    /// See [`Key::templates`].
    pub templates: Option<Vec<String>>,
    /// See [`Key::builds`].
    pub builds: Option<u32>,
    /// See [`Key::images`].
    pub images: Option<Vec<String>>,
    /// See [`Key::pull`].
    pub pull: bool,
    /// See [`Key::operator`].
    pub operator: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Stored {
    keys: Vec<Key>,
}

impl Key {
    /// What its sandboxes carry: its name, and enough of its digest to tell it from a later key of the same name.
    #[must_use]
    pub fn mark(&self) -> String {
        format!("{} {}", self.name, self.digest.get(..16).unwrap_or_default())
    }

    /// Whether these are labels of a sandbox that this key created.
    pub(crate) fn created(&self, labels: &BTreeMap<String, String>) -> bool {
        labels::owner(labels).is_some_and(|owner| owner == self.mark())
    }

    /// Whether it may make sandboxes of a template; empty: of a policy alone.
    pub(crate) fn may_use(&self, template: &str) -> bool {
        // A tag is part of no name here.
        let name = template.split_once(':').map_or(template, |(name, _tag)| name);
        self.templates.as_ref().is_none_or(|known| known.iter().any(|known| known == name))
    }

    /// # Errors
    /// Its sandboxes are made of other templates.
    pub(crate) fn must_use(&self, template: &str) -> Result<(), Problem> {
        if self.may_use(template) {
            return Ok(());
        }
        let told = match template {
            "" => "this key may not make sandboxes of a policy alone".to_owned(),
            name => format!("this key may not use the template {}", policy::diagnostic::quote(name)),
        };
        let instead = format!("one of {}", self.templates.iter().flatten().cloned().collect::<Vec<_>>().join(", "));
        let why = "each key has a ceiling, and its templates are part of it";
        Err(Problem::new(StatusCode::FORBIDDEN, "serve/beyond-ceiling", told, why, &instead).about("template"))
    }

    /// # Errors
    /// It may build no templates; says which of its settings says so.
    pub(crate) fn must_build(&self) -> Result<(), Problem> {
        let (clause, told) = match (&self.templates, self.builds) {
            (_, Some(0)) => ("builds", "this key may build no templates (`--builds 0`)"),
            (Some(_), _) => {
                ("templates", "this key may use the templates of its list alone, and build none (`--templates`)")
            }
            (None, _) => return Ok(()),
        };
        let (why, instead) = ("each key has a ceiling", "use a key that may (`fumehood keys add`)");
        Err(Problem::new(StatusCode::FORBIDDEN, "serve/beyond-ceiling", told, why, instead).about(clause))
    }

    /// # Errors
    /// It is no person's, and `what` is for people.
    pub(crate) fn must_be_operator(&self, what: &str) -> Result<(), Problem> {
        if self.operator {
            return Ok(());
        }
        let (told, why) = (format!("this key may not use {what}"), "that is for people, and this key is no person's");
        let instead = "a key of `fumehood keys add --operator`";
        Err(Problem::new(StatusCode::FORBIDDEN, "serve/operator", told, why, instead))
    }
}

/// The keys of a state folder.
#[derive(Clone, Debug)]
pub struct Keys {
    folder: PathBuf,
    /// What was read last, and what the file was like: it is replaced as a whole, so that another one tells of itself.
    read: Arc<Mutex<Option<Read>>>,
}

/// Keys, and the file that they were read from.
type Read = (Stamp, Arc<Vec<Key>>);

/// Device, inode, size, and times of a file.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

fn stamp(found: &std::fs::Metadata) -> Stamp {
    let (changed, modified) = ((found.ctime(), found.ctime_nsec()), (found.mtime(), found.mtime_nsec()));
    (found.dev(), found.ino(), found.size(), changed, modified)
}

impl Keys {
    /// Those of this state folder, which is the caller's alone.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(state: &Path) -> Result<Self, KeysError> {
        let folder = state.join(FOLDER);
        match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(at(&folder, &error)),
        }
        let found = std::fs::symlink_metadata(&folder).map_err(|error| at(&folder, &error))?;
        if !found.is_dir() || found.mode() & 0o077 != 0 || found.uid() != rustix::process::geteuid().as_raw() {
            return Err(KeysError::File {
                path: folder,
                why: "it must be a folder that only you may enter (0700)".to_owned(),
            });
        }
        Ok(Self { folder, read: Arc::default() })
    }

    /// The folder for what the server keeps.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// All, in the order in which they were added.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn list(&self) -> Result<Vec<Key>, KeysError> {
        let path = self.folder.join(KEYS);
        let file = match File::options().read(true).custom_flags(nofollow()).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(at(&path, &error)),
        };
        let mut text = String::new();
        file.take(MAX_BYTES).read_to_string(&mut text).map_err(|error| at(&path, &error))?;
        let stored: Stored =
            serde_json::from_str(&text).map_err(|error| KeysError::File { path, why: error.to_string() })?;
        Ok(stored.keys)
    }

    /// As [`Keys::list`]; the file is read only if it is another one than before.
    pub(crate) fn known(&self) -> Result<Arc<Vec<Key>>, KeysError> {
        let found = std::fs::symlink_metadata(self.folder.join(KEYS)).ok().as_ref().map(stamp);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(found), Some((last, keys))) = (&found, &*read)
            && found == last
        {
            return Ok(Arc::clone(keys));
        }
        let keys = Arc::new(self.list()?);
        // A file that was replaced in between is read again.
        *read = found.map(|found| (found, Arc::clone(&keys)));
        Ok(keys)
    }

    /// The key that a sandbox of such labels was created with, if it is still there.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn owner(&self, labels: &BTreeMap<String, String>) -> Result<Option<Key>, KeysError> {
        Ok(self.known()?.iter().find(|key| key.created(labels)).cloned())
    }

    /// Whether what carries this mark is still somebody's: a key's, or that of whoever may use the socket of Docker's clients. Nobody's
    /// where the keys cannot be read.
    #[must_use]
    pub fn has_owner(&self, mark: &str) -> bool {
        mark == DOCKER_CALLER || self.known().is_ok_and(|keys| keys.iter().any(|key| key.mark() == mark))
    }

    /// Those of these templates that cannot be had now. One may be built later, and a key that names it is good then.
    #[must_use]
    pub fn missing_templates(&self, names: &[String]) -> Vec<String> {
        let store = Store::new(self.folder.parent().unwrap_or(&self.folder));
        let templates = Templates::new(store, self.folder.join("empty"));
        names.iter().filter(|name| templates.find(name).is_err()).cloned().collect()
    }

    /// Adds one and gives what its holder sends: it is not kept.
    ///
    /// # Errors
    /// The name is taken or no name, or the file cannot be written.
    pub fn add(&self, name: &str, ceiling: Option<String>, sandboxes: Option<u32>) -> Result<String, KeysError> {
        self.add_with(name, Rights { ceiling, sandboxes, ..Rights::default() })
    }

    /// As [`Keys::add`], with all that a key may do.
    ///
    /// # Errors
    /// As [`Keys::add`].
    pub fn add_with(&self, name: &str, rights: Rights) -> Result<String, KeysError> {
        let Rights { ceiling, sandboxes, templates, builds, images, pull, operator } = rights;
        if !is_name(name) {
            return Err(KeysError::Name(name.to_owned()));
        }
        let token = new_token()?;
        let key = Key {
            name: name.to_owned(),
            digest: sha256_hex(token.as_bytes()),
            ceiling,
            sandboxes,
            templates,
            builds,
            images,
            pull,
            operator,
            added_ms: crate::clock::now_ms(),
        };
        self.change(|keys| {
            if keys.iter().any(|known| known.name == key.name) {
                return Err(KeysError::Taken(key.name));
            }
            if keys.len() >= MAX_KEYS {
                return Err(KeysError::TooMany);
            }
            keys.push(key);
            Ok(())
        })?;
        Ok(token)
    }

    /// Removes one. Its sandboxes live on.
    ///
    /// # Errors
    /// There is none of this name, or the file cannot be written.
    pub fn remove(&self, name: &str) -> Result<(), KeysError> {
        self.change(|keys| {
            let before = keys.len();
            keys.retain(|key| key.name != name);
            if keys.len() == before { Err(KeysError::Unknown(name.to_owned())) } else { Ok(()) }
        })
    }

    /// Whose this is.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn who(&self, token: &str) -> Result<Option<Key>, KeysError> {
        let digest = sha256_hex(token.as_bytes());
        let mut found = None;
        // All are compared, whichever it is.
        for key in self.known()?.iter() {
            if bool::from(key.digest.as_bytes().ct_eq(digest.as_bytes())) {
                found = Some(key.clone());
            }
        }
        Ok(found)
    }

    /// The secret that tokens of sandboxes are derived from; made at first use.
    ///
    /// # Errors
    /// The file cannot be read or made.
    pub fn secret(&self) -> Result<Vec<u8>, KeysError> {
        let path = self.folder.join(SECRET);
        let lock = self.lock()?;
        let mut made = [0_u8; 32];
        match File::options().read(true).custom_flags(nofollow()).open(&path) {
            Ok(mut file) => {
                let mut secret = Vec::new();
                file.read_to_end(&mut secret).map_err(|error| at(&path, &error))?;
                if secret.len() != made.len() {
                    return Err(KeysError::File {
                        path,
                        why: "it is no secret of ours: remove it for a new one".to_owned(),
                    });
                }
                Ok(secret)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                if !sys::random::fill(&mut made) {
                    return Err(KeysError::NoRandom);
                }
                self.replace(SECRET, &made)?;
                drop(lock);
                Ok(made.to_vec())
            }
            Err(error) => Err(at(&path, &error)),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Key>) -> Result<(), KeysError>) -> Result<(), KeysError> {
        let lock = self.lock()?;
        let mut keys = self.list()?;
        change(&mut keys)?;
        let text = serde_json::to_vec_pretty(&Stored { keys })
            .map_err(|error| KeysError::File { path: self.folder.join(KEYS), why: error.to_string() })?;
        let done = self.replace(KEYS, &text);
        drop(lock);
        done
    }

    /// One writer at a time.
    fn lock(&self) -> Result<File, KeysError> {
        let path = self.folder.join("lock");
        let file =
            File::options().create(true).truncate(false).write(true).mode(0o600).custom_flags(nofollow()).open(&path);
        let file = file.map_err(|error| at(&path, &error))?;
        file.lock().map_err(|error| at(&path, &error))?;
        Ok(file)
    }

    /// A file is seen with its old or its new content.
    fn replace(&self, name: &str, content: &[u8]) -> Result<(), KeysError> {
        let (path, new) = (self.folder.join(name), self.folder.join(format!("{name}.new")));
        let write = || {
            let mut file = File::options()
                .create(true)
                .truncate(true)
                .write(true)
                .mode(0o600)
                .custom_flags(nofollow())
                .open(&new)?;
            file.write_all(content)?;
            file.sync_all()?;
            std::fs::rename(&new, &path)
        };
        write().map_err(|error| at(&path, &error))
    }
}

fn new_token() -> Result<String, KeysError> {
    let mut random = [0_u8; 20];
    if sys::random::fill(&mut random) { Ok(format!("e2b_{}", hex(&random))) } else { Err(KeysError::NoRandom) }
}

fn is_name(name: &str) -> bool {
    name.len() < 64
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

fn at(path: &Path, error: &std::io::Error) -> KeysError {
    KeysError::File { path: path.to_owned(), why: error.to_string() }
}

fn nofollow() -> i32 {
    i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> (tempfile::TempDir, Keys) {
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::open(folder.path()).unwrap();
        (folder, keys)
    }

    #[test]
    fn a_key_lets_in_until_it_is_removed_and_lies_nowhere() {
        let (folder, keys) = keys();
        let token = keys.add("ci", Some("strict".to_owned()), Some(3)).unwrap();
        assert!(
            token.len() == 44
                && token.starts_with("e2b_")
                && token.bytes().skip(4).all(|b| b"0123456789abcdef".contains(&b))
        );
        let other = Keys::open(folder.path()).unwrap();
        let found = other.who(&token).unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.ceiling.as_deref(), found.sandboxes), ("ci", Some("strict"), Some(3)));
        let nearly = format!("{}0", token.trim_end_matches(|_: char| true));
        assert_eq!(other.who(&nearly).unwrap(), None);
        assert_eq!(other.who("").unwrap(), None);
        let file = std::fs::read_to_string(folder.path().join("server/keys.json")).unwrap();
        assert!(!file.contains(token.strip_prefix("e2b_").unwrap()));
        assert_eq!(std::fs::metadata(folder.path().join("server/keys.json")).unwrap().mode() & 0o777, 0o600);
        assert!(other.has_owner(&found.mark()) && other.has_owner(DOCKER_CALLER) && !other.has_owner("ci"));
        keys.remove("ci").unwrap();
        assert_eq!(other.who(&token).unwrap(), None);
        assert!(!other.has_owner(&found.mark()), "nothing is kept for it any more");
        assert!(matches!(keys.remove("ci"), Err(KeysError::Unknown(_))));
    }

    #[test]
    fn a_template_that_is_not_there_is_named_and_those_that_are_stay_unsaid() {
        let (_folder, keys) = keys();
        let names = ["base", "strict", "nosuch", "code-interpreter-v1"].map(str::to_owned);
        assert_eq!(keys.missing_templates(&names), ["nosuch", "code-interpreter-v1"], "none was built here");
    }

    #[test]
    fn names_are_unique_and_plain() {
        let (_folder, keys) = keys();
        keys.add("a", None, None).unwrap();
        assert!(matches!(keys.add("a", None, None), Err(KeysError::Taken(_))));
        for bad in ["", "-a", "a b", "a/b", "\u{e9}", &"a".repeat(64)] {
            assert!(matches!(keys.add(bad, None, None), Err(KeysError::Name(_))), "{bad}");
        }
        assert_eq!(keys.list().unwrap().len(), 1);
    }

    #[test]
    fn the_secret_stays_and_a_folder_that_others_may_enter_is_refused() {
        let (folder, keys) = keys();
        let secret = keys.secret().unwrap();
        assert_eq!(Keys::open(folder.path()).unwrap().secret().unwrap(), secret);
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path().join("server"), open).unwrap();
        assert!(Keys::open(folder.path()).is_err());
    }
}
