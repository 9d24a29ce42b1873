//! An upstream server as a run of ours: its own policy, its own sandbox, nothing of our environment but what a run needs.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use broker::mcp::servers::{How, Server};
use broker::mcp::upstream::{Launch, Start};

use crate::cli::{Ingredient, World};
use crate::fault::Fault;
use crate::ui::Failure;

/// What a run needs to find its own files and its program; nothing else of our environment reaches it.
const NEEDED: &[&str] = &["HOME", "LANG", "LC_ALL", "PATH", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"];
/// Our own variables.
const OURS: &str = "FUMEHOOD_";

/// Starts upstream servers.
#[derive(Clone, Debug)]
pub struct Launcher {
    program: PathBuf,
    folder: PathBuf,
    env: BTreeMap<OsString, OsString>,
    /// By policy: the variables of ours that it lets in.
    passed: BTreeMap<String, Vec<OsString>>,
    world_env: BTreeMap<OsString, OsString>,
}

impl Launcher {
    /// A launcher for these servers; each policy is read now, so that a mistake in it is told before a client waits.
    ///
    /// # Errors
    /// The mistakes of a policy, or that our own binary cannot be found.
    pub fn new(world: &World, servers: &[Server]) -> Result<Self, Failure> {
        let mut passed = BTreeMap::new();
        for server in servers {
            if passed.contains_key(&server.policy) || matches!(server.reach, How::Url { .. }) {
                continue;
            }
            let loaded = crate::cli::load::policy(&[Ingredient::Document(server.policy.clone())], world)?;
            let names = loaded.policy.env.pass.iter().map(OsString::from).collect();
            passed.insert(server.policy.clone(), names);
        }
        let wanted = |name: &OsStr| {
            NEEDED.iter().any(|needed| name == *needed) || name.to_str().is_some_and(|name| name.starts_with(OURS))
        };
        let env = world.env.iter().filter(|(name, _)| wanted(name)).map(|(name, value)| (name.clone(), value.clone()));
        Ok(Self {
            program: own_binary()?,
            folder: world.cwd.clone().unwrap_or_else(|| PathBuf::from("/")),
            env: env.collect(),
            passed,
            world_env: world.env.clone(),
        })
    }
}

/// The file that this process runs: not a name that somebody could put another program behind.
pub(super) fn own_binary() -> Result<PathBuf, Failure> {
    std::fs::read_link("/proc/self/exe").map_err(|error| {
        Failure::own(Fault {
            id: "mcp/own-binary",
            what: "cannot find our own binary".to_owned(),
            place: "/proc/self/exe".to_owned(),
            why: error.to_string().to_lowercase(),
            fix: "mount /proc".to_owned(),
        })
    })
}

impl Launch for Launcher {
    fn launch(&self, server: &Server) -> Result<Start, String> {
        let How::Command { command, args } = &server.reach else {
            return Err("it is reached over HTTP, and not started".to_owned());
        };
        let mut words: Vec<OsString> = ["mcp", "upstream", "-q", "-i", "-p"].iter().map(OsString::from).collect();
        words.push(server.policy.as_str().into());
        let mut env = self.env.clone();
        for name in self.passed.get(&server.policy).into_iter().flatten() {
            if let Some(value) = self.world_env.get(name) {
                env.insert(name.clone(), value.clone());
            }
        }
        // Values go by the environment: arguments of a process are for everybody to read.
        for (name, value) in &server.env {
            if NEEDED.contains(&name.as_str()) || name.starts_with(OURS) {
                words.push("--env".into());
                words.push(format!("{name}={value}").into());
            } else {
                words.push("--pass-env".into());
                words.push(name.as_str().into());
                env.insert(name.into(), value.into());
            }
        }
        words.push("--".into());
        words.push(command.into());
        words.extend(args.iter().map(OsString::from));
        Ok(Start { program: self.program.clone(), args: words, env, folder: self.folder.clone() })
    }
}
