//! MCP servers that are images: pulled once, pinned by the digest that their name had then, and started from the store.
//!
//! The pin is a file of ours in the state folder, one for each image, and no name of the store: whoever imports an archive or
//! pulls an image gives names there.

use gateway::mcp::containers::{Container, Folder, grants};
use gateway::mcp::servers::{Server, Transport};
use images::{ImageError, Reference, Store};
use policy::Policy;
use policy::json::{sha256_hex, toml_text};
use policy::value::{Image, NetMode, Root, WorkspaceMode};
use registry::{PullError, PullOptions};
use rustix::fs::Mode;
use rustix::io::Errno;
use sandbox::PolicyLayer;
use sandbox::fault::{Fault, show_path, show_text};
use sandbox::state::{Cross, State};
use serde::{Deserialize, Serialize};

use crate::replace::replace;

/// The folder of pins in the state folder.
const PINS: &str = "mcp-images";
/// No pin is larger, bytes.
const MAX_PIN: u64 = 64 << 10;

/// What was pulled for a name.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pin {
    /// Always 1.
    schema: u32,
    /// With registry, folder and tag.
    image: String,
    /// `sha256:HEX`, of its manifest.
    digest: String,
}

/// Why there is no image for a server.
#[derive(Debug)]
pub enum Unfetched {
    /// It cannot be had or kept.
    Image(PullError),
    /// Its name means another image than was pinned, or than was accepted.
    Changed {
        /// Its name.
        image: String,
        /// What was pinned.
        pinned: Option<String>,
        /// What its registry has now.
        now: String,
    },
    /// The pin cannot be read or written, or the image names no program.
    Fault(Fault),
}

impl From<PullError> for Unfetched {
    fn from(error: PullError) -> Self {
        Self::Image(error)
    }
}

impl From<ImageError> for Unfetched {
    fn from(error: ImageError) -> Self {
        Self::Image(error.into())
    }
}

impl Unfetched {
    /// Whether the image is what is refused (exit code 126), and not something around it.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        match self {
            Self::Image(error) => error.is_refusal(),
            Self::Changed { .. } => true,
            Self::Fault(_) => false,
        }
    }

    /// What, where, why and fix.
    #[must_use]
    pub fn fault(&self, server: &str) -> Fault {
        match self {
            Self::Image(error) => error.fault(),
            Self::Fault(fault) => fault.clone(),
            Self::Changed { image, pinned, now } => Fault {
                id: "mcp.fetch/changed",
                what: format!("the image of the server `{server}` is another one than was pinned or accepted"),
                place: show_text(image),
                why: match pinned {
                    Some(pinned) => format!("it was {pinned}, and is {now} now; the server stays as it was"),
                    None => format!("it is {now}, and nothing is pinned"),
                },
                fix: format!(
                    "look at what has changed; `fumehood mcp fetch {server} -p POLICY --accept {now}` takes it"
                ),
            },
        }
    }
}

/// The image of a server, in the store.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// With registry, folder and tag.
    pub image: String,
    /// `sha256:HEX`.
    pub digest: String,
    /// The program with its arguments.
    pub argv: Vec<String>,
    /// What the entry's options ask for.
    container: Container,
    /// Where the image says that its program begins.
    workdir: Option<String>,
}

/// Pulls the image of a server and pins it. What is pinned is never replaced by another, unless that one was accepted by its
/// digest.
///
/// # Errors
/// [`Unfetched`]
pub fn fetch(
    state: &State,
    store: &Store,
    container: &Container,
    wanted: &PullOptions,
    accepted: Option<&str>,
) -> Result<Fetched, Unfetched> {
    let no =
        || PullError::Reference { reference: container.image.clone(), why: "it is none by Docker's rules".to_owned() };
    let reference = Reference::parse(&container.image).ok_or_else(no)?;
    let image = reference.to_string();
    let now = match container.is_local {
        true => store.find(&container.image)?.about.digest,
        false => registry::digest(wanted)?,
    };
    let pinned = pinned(state, &image)?;
    if accepted.or(pinned.as_deref()).is_some_and(|expected| expected != now) {
        return Err(Unfetched::Changed { image, pinned, now });
    }
    if !container.is_local {
        // By the digest that was compared: the tag may mean another one by now.
        let exact = Reference { digest: Some(now.clone()), ..reference }.to_string();
        registry::pull(store, &PullOptions { reference: exact, ..wanted.clone() })?;
    }
    let none = || ImageError::None { reference: now.clone() };
    let fetched = of(store, &image, &now, container)?.ok_or_else(none)?;
    pin(state, &Pin { schema: 1, image, digest: now })?;
    Ok(fetched)
}

/// What was fetched of an image before; none if nothing was, or the store has it no more.
///
/// # Errors
/// [`Unfetched`]
pub fn find(state: &State, container: &Container) -> Result<Option<Fetched>, Unfetched> {
    // What can be no name was never fetched.
    let Some(reference) = Reference::parse(&container.image) else { return Ok(None) };
    let image = reference.to_string();
    match pinned(state, &image)? {
        Some(digest) => of(&Store::open(state)?, &image, &digest, container),
        None => Ok(None),
    }
}

fn of(store: &Store, image: &str, digest: &str, container: &Container) -> Result<Option<Fetched>, Unfetched> {
    let config = match store.find(digest) {
        Err(ImageError::None { .. }) => return Ok(None),
        other => other?.about.config,
    };
    let args = || container.args.iter().cloned();
    // As Docker has it: an entrypoint of the caller's takes the image's arguments away too.
    let argv: Vec<String> = match &container.entrypoint {
        Some(program) => {
            Some(program.clone()).into_iter().filter(|program| !program.is_empty()).chain(args()).collect()
        }
        None => {
            let own = config.cmd.into_iter().flatten();
            let after: Vec<String> = if container.args.is_empty() { own.collect() } else { args().collect() };
            config.entrypoint.into_iter().flatten().chain(after).collect()
        }
    };
    if argv.is_empty() {
        return Err(Unfetched::Fault(Fault {
            id: "mcp.fetch/program",
            what: format!("the image `{}` does not say what runs", show_text(image)),
            place: show_text(image),
            why: "it names neither ENTRYPOINT nor CMD, and the entry has no arguments after it".to_owned(),
            fix: "write the program after the image, as its documentation does".to_owned(),
        }));
    }
    let (image, digest, container) = (image.to_owned(), digest.to_owned(), container.clone());
    Ok(Some(Fetched { image, digest, argv, container, workdir: config.working_dir }))
}

impl Fetched {
    /// The server as it is started: from what was fetched, with the variables that the options name.
    pub fn start(&self, server: &mut Server) {
        let mut words = self.argv.iter().cloned();
        let command = words.next().unwrap_or_default();
        server.transport = Transport::Command { command, args: words.collect() };
        server.env.clone_from(&self.container.env);
        server.fetched = Some(self.image.clone());
    }

    /// What its sandbox has beside what its policy says.
    #[must_use]
    pub fn layers(&self, policy: &Policy) -> Vec<PolicyLayer> {
        let mut layers = vec![PolicyLayer::Set(format!("fs.root={}", toml_text(&format!("image:{}", self.digest))))];
        layers.extend(self.container.clauses.iter().cloned().map(PolicyLayer::Set));
        // A loopback of its own, as Docker's `none` has.
        if self.container.is_offline && policy.net.mode == NetMode::Allow {
            layers.push(PolicyLayer::Set("net.mode=loopback".to_owned()));
        }
        layers
    }

    /// What the entry's options ask for that the server's own policy does not give: no entry grants anything.
    #[must_use]
    pub fn unmet(&self, policy: &Policy) -> Vec<String> {
        let mut unmet = Vec::new();
        let is_free = match &policy.fs.root {
            Root::Host => true,
            Root::Image(Image { name: _, found }) => found.as_ref().is_ok_and(|found| found.digest == self.digest),
            Root::Empty | Root::Dir(_) => false,
        };
        if !is_free {
            unmet.push("its policy names another root: leave `fs.root` out there, the image is it".to_owned());
        }
        let folders: Vec<&Folder> =
            self.container.folders.iter().filter(|folder| !is_granted(policy, folder)).collect();
        for line in grants(&folders) {
            unmet.push(format!("it asks for folders of the host: write `{line}` into its policy to grant them"));
        }
        if let Some(at) = &self.container.workdir
            && self.workdir.as_deref().map(|own| own.trim_end_matches('/')) != Some(at.as_str())
            && !is_workspace(policy, at)
        {
            let line = format!("workspace = {{ path = \"FOLDER\", mode = \"ro\", at = {} }}", toml_text(at));
            unmet.push(format!("it should begin in `{}`: write `{line}` into its policy", show_text(at)));
        }
        unmet
    }

    /// Variables that an option names, without a value in the entry and in the server's own policy.
    #[must_use]
    pub fn unset(&self, policy: &Policy) -> Vec<String> {
        let given = |name: &&String| policy.env.pass.contains(name) || policy.env.set.contains_key(*name);
        self.container.unset.iter().filter(|name| !given(name)).cloned().collect()
    }
}

/// Whether the policy shows something there; where from is its own affair.
fn is_granted(policy: &Policy, folder: &Folder) -> bool {
    let at = |grants: &[policy::value::Grant]| grants.iter().any(|grant| grant.to.to_str() == Some(&folder.to));
    at(&policy.fs.write)
        || (!folder.is_writable && at(&policy.fs.read))
        || ((!folder.is_writable || policy.workspace.mode != WorkspaceMode::Ro) && is_workspace(policy, &folder.to))
}

fn is_workspace(policy: &Policy, at: &str) -> bool {
    policy.workspace_at().and_then(|path| path.to_str()) == Some(at)
}

/// The file of an image's pin.
fn file_of(image: &str) -> String {
    format!("{}.json", sha256_hex(image.as_bytes()))
}

fn pinned(state: &State, image: &str) -> Result<Option<String>, Unfetched> {
    let path = state.path().join(PINS).join(file_of(image));
    let wrong = |why: String| unreadable(&path, why);
    let text = match state.root().enter(PINS, Cross::No).and_then(|dir| dir.read(file_of(image), MAX_PIN)) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.map_err(|errno| wrong(errno.to_string().to_lowercase()))?,
    };
    let pin: Pin = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    if pin.schema == 1 && pin.image == image {
        Ok(Some(pin.digest))
    } else {
        Err(wrong("it is the pin of another image".to_owned()))
    }
}

fn pin(state: &State, pin: &Pin) -> Result<(), Unfetched> {
    let (folder, file) = (state.path().join(PINS), file_of(&pin.image));
    state.root().make(PINS, Mode::RWXU).map_err(|errno| unreadable(&folder, errno.to_string().to_lowercase()))?;
    let text = serde_json::to_string(pin).unwrap_or_default();
    replace(&folder.join(file), &text, 0o600).map_err(|error| unreadable(&folder, error.to_string().to_lowercase()))
}

fn unreadable(path: &std::path::Path, why: String) -> Unfetched {
    Unfetched::Fault(Fault {
        id: "mcp.fetch/pin",
        what: "the pin of an image cannot be kept".to_owned(),
        place: show_path(path),
        why,
        fix: "make the folder your own and writable; a pin that is damaged is removed, and the server fetched again"
            .to_owned(),
    })
}
