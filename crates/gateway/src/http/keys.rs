//! Who may speak: tokens in files of 0600, made at first use, and the names of sessions that we gave out.
//!
//! There are two kinds. An agent's token calls tools; the people's token answers. A session's name carries a keyed hash
//! of itself, so it holds across a restart, and a name that was made up or belongs to another agent is refused.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use gate::call::Caller;
use hmac::{Hmac, KeyInit as _, Mac as _};
use policy::json::hex;
use sha2::{Digest as _, Sha256};

/// The longest token that is read from a file.
const MAX: u64 = 4096;
/// The shortest that counts as one.
const LEAST: usize = 16;

/// What is wrong with a token's file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token in {} cannot be used: {why}", policy::diagnostic::quote(&path.to_string_lossy()))]
pub struct KeyError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

/// Who a token belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// Somebody who answers.
    Person,
    /// Somebody who calls.
    Agent(Caller),
}

/// The tokens of a listener. Only their hashes are kept.
#[derive(Clone)]
pub struct Keys {
    people: Option<[u8; 32]>,
    agents: BTreeMap<[u8; 32], (String, Option<String>)>,
    /// Makes and knows the names of sessions.
    secret: [u8; 32],
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.agents.values().map(|(agent, _)| agent).collect();
        f.debug_struct("Keys").field("agents", &names).field("people", &self.people.is_some()).finish_non_exhaustive()
    }
}

impl Keys {
    /// The keys of a folder that is the caller's alone: `tools.token` for the agent `local`, `approvals.token` for people.
    ///
    /// # Errors
    /// [`KeyError`] if a file is not the caller's alone, too short, or cannot be made.
    pub fn open(dir: &Path) -> Result<Self, KeyError> {
        let agent = token(&dir.join("tools.token"))?;
        let people = token(&dir.join("approvals.token"))?;
        let agents = BTreeMap::from([(digest(agent.as_bytes()), ("local".to_owned(), None))]);
        Ok(Self {
            people: Some(digest(people.as_bytes())),
            agents,
            secret: digest(format!("sessions {agent}").as_bytes()),
        })
    }

    /// One more agent, known by its own token.
    ///
    /// # Errors
    /// As [`Keys::open`]; and if two agents had the same token.
    pub fn agent(&mut self, name: &str, file: &Path) -> Result<(), KeyError> {
        let hash = digest(token(file)?.as_bytes());
        if self.people == Some(hash) || self.agents.contains_key(&hash) {
            return Err(KeyError { path: file.to_owned(), why: "another already has this token".to_owned() });
        }
        self.agents.insert(hash, (name.to_owned(), Some(name.to_owned())));
        Ok(())
    }

    /// Who has this token. Hashes are compared, so that time tells nothing of the token.
    pub(crate) fn who(&self, token: &str) -> Option<Who> {
        let hash = digest(token.as_bytes());
        if self.people == Some(hash) {
            return Some(Who::Person);
        }
        let (agent, key) = self.agents.get(&hash)?;
        Some(Who::Agent(Caller { agent: agent.clone(), session: String::new(), key: key.clone() }))
    }

    /// A new session of an agent.
    pub(super) fn new_session(&self, agent: &str) -> Option<String> {
        let mut random = [0_u8; 16];
        getrandom::fill(&mut random).ok()?;
        let name = hex(&random);
        let seal = self.seal(agent, &name)?;
        Some(format!("s-{name}-{seal}"))
    }

    /// Whether a session's name is one that we gave to this agent.
    pub(super) fn is_session(&self, agent: &str, session: &str) -> bool {
        let Some((name, seal)) = session.strip_prefix("s-").and_then(|rest| rest.split_once('-')) else { return false };
        // Compared as hashes, for the same reason as tokens.
        self.seal(agent, name).is_some_and(|good| digest(good.as_bytes()) == digest(seal.as_bytes()))
    }

    fn seal(&self, agent: &str, name: &str) -> Option<String> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).ok()?;
        mac.update(agent.as_bytes());
        mac.update(&[0]);
        mac.update(name.as_bytes());
        Some(hex(mac.finalize().into_bytes().get(..16)?))
    }
}

/// The token in a file, made if the file is missing.
fn token(path: &Path) -> Result<String, KeyError> {
    let failed = |why: String| KeyError { path: path.to_owned(), why };
    let mut options = std::fs::OpenOptions::new();
    options.custom_flags(i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default()).mode(0o600);
    match options.clone().write(true).create_new(true).open(path) {
        Ok(mut file) => {
            let mut random = [0_u8; 32];
            getrandom::fill(&mut random).map_err(|error| failed(error.to_string()))?;
            let text = hex(&random);
            // A reader that comes between sees a short token and refuses it.
            std::io::Write::write_all(&mut file, format!("{text}\n").as_bytes())
                .map_err(|error| failed(error.to_string()))?;
            return Ok(text);
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error.to_string())),
    }
    let file = options.read(true).open(path).map_err(|error| failed(error.to_string()))?;
    let found = file.metadata().map_err(|error| failed(error.to_string()))?;
    if !found.is_file() || found.mode() & 0o077 != 0 || found.uid() != rustix::process::geteuid().as_raw() {
        return Err(failed("it must be a file that only you may read (0600)".to_owned()));
    }
    let mut text = String::new();
    file.take(MAX).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    let text = text.trim_end();
    let plain = text.len() >= LEAST && text.bytes().all(|b| b.is_ascii_graphic());
    if plain { Ok(text.to_owned()) } else { Err(failed(format!("it needs at least {LEAST} visible ASCII letters"))) }
}

/// The secret of a webhook: the same rules as a token.
///
/// # Errors
/// As [`Keys::open`].
pub(super) fn secret(path: &Path) -> Result<Vec<u8>, KeyError> {
    token(path).map(String::into_bytes)
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
