//! The circumstances of a caller, as values: nothing in this crate asks the process for them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use egress::wire::Hidden;

use crate::image::Images;
use crate::state::Places;

/// Variables that name another store of certificates than the machine's.
pub(crate) const TRUST_STORES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// For whom and from where something is run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The directory to which relative paths belong; `None` if there is none any more.
    pub cwd: Option<PathBuf>,
    /// The home directory, if it is an absolute path.
    pub home: Option<PathBuf>,
    /// Effective user id.
    pub euid: u32,
    /// Variables; a run is given those that its policy passes.
    pub env: BTreeMap<OsString, OsString>,
    /// Variables that somebody else than the caller wrote, as an entry of an MCP client's configuration does: what a policy passes or
    /// makes a secret of is looked for here before [`Self::env`]. Nothing outside of the sandbox is started with them or found by them.
    pub entries: BTreeMap<OsString, OsString>,
    /// Values of secrets that were handed over for this run alone, by the variable that `from` names: found before [`Self::env`],
    /// and no variable of anybody.
    pub given: BTreeMap<String, Hidden>,
    /// The variables that place our own files, as given.
    pub state: Places,
    /// Files and folders of which a grant of this run has a copy, so that what is in them is shown: settings of an agent.
    pub copied: Vec<PathBuf>,
    /// Documents of whoever starts this run by a policy of its own, as a gateway does: held as those of that policy are.
    pub documents: BTreeSet<PathBuf>,
    /// An executable that is the broker when its first argument is [`crate::run::BROKER_WORD`]; without one no run reaches
    /// hosts.
    pub broker: Option<PathBuf>,
    /// The store of images; without one no run has an image as its root.
    pub images: Option<&'static dyn Images>,
}

/// Two callers are the same whatever store serves them: a program has one.
impl PartialEq for dyn Images {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for dyn Images {}

impl Environment {
    /// The caller with these variables in this directory. Empty variables and relative XDG folders count as unset.
    #[must_use]
    pub fn new(cwd: Option<PathBuf>, env: BTreeMap<OsString, OsString>, euid: u32) -> Self {
        let path = |name: &str| env.get(OsStr::new(name)).filter(|value| !value.is_empty()).map(PathBuf::from);
        let absolute = |name: &str| path(name).filter(|path| path.is_absolute());
        let home = absolute("HOME");
        let state = Places {
            fumehood_state: path("FUMEHOOD_STATE"),
            fumehood_keys: path("FUMEHOOD_KEYS"),
            xdg_state_home: absolute("XDG_STATE_HOME"),
            home: home.clone(),
            euid,
        };
        Self {
            cwd,
            home,
            euid,
            env,
            entries: BTreeMap::new(),
            state,
            given: BTreeMap::new(),
            copied: Vec::new(),
            documents: BTreeSet::new(),
            broker: None,
            images: None,
        }
    }

    /// The same caller, with this program as the broker of runs.
    #[must_use]
    pub fn with_broker(self, broker: Option<PathBuf>) -> Self {
        Self { broker, ..self }
    }

    /// The same caller, with this store of images.
    #[must_use]
    pub fn with_images(self, images: Option<&'static dyn Images>) -> Self {
        Self { images, ..self }
    }

    /// A variable.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.env.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// A variable of an entry's or of the caller's.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&OsStr> {
        self.entries.get(OsStr::new(name)).map(OsString::as_os_str).or_else(|| self.variable(name))
    }

    /// The folder of Docker's client: its settings, contexts and logins.
    #[must_use]
    pub fn docker_folder(&self) -> Option<PathBuf> {
        let of = |name: &str| self.variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        // Without the variable that client asks for the user's own entry.
        let home = || of("HOME").or_else(|| (self.euid == 0).then(|| PathBuf::from("/root")));
        let folder = of("DOCKER_CONFIG").or_else(|| home().map(|home| home.join(".docker")))?;
        // As that reads it: from where the caller stands.
        Some(self.cwd.as_ref().map_or_else(|| folder.clone(), |cwd| cwd.join(&folder)))
    }

    /// The socket of the user's message bus, if the environment names a runtime folder, where the caller's Docker is, and the state
    /// folder.
    #[must_use]
    pub fn services(&self) -> backends::CallerServices {
        let folder = self.variable("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
        let text = |name: &str| self.variable(name).map(|value| value.to_string_lossy().into_owned());
        let (host, context) = (text("DOCKER_HOST"), text("DOCKER_CONTEXT"));
        let docker = backends::DockerClient { host, context, folder: self.docker_folder() };
        let state = self.state.state().ok().map(|(folder, _)| folder);
        let bus = folder.map(|folder| folder.join("bus"));
        let firecracker = self.variable(backends::FIRECRACKER_VARIABLE).map(PathBuf::from);
        backends::CallerServices { bus, docker, state, firecracker, tries_kvm: None }
    }
}
