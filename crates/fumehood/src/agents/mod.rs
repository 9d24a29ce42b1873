//! Whole agents in a sandbox: who they are as data, their policy, their program on this host, a private copy of their settings.
//!
//! # Promises
//! The agent works on a layer over the workspace, reaches its own API, package registries and GitHub for reading, pushes there
//! when a person agreed, and has a placeholder where its key would be. Of its settings only text files go inside, without what names or contents call a secret.
//! # Does not promise
//! That a secret under an innocent name in a text file is recognised; that what the agent sends to its API is harmless.

mod preset;
mod program;
mod settings;

use std::path::{Path, PathBuf};

use sandbox::Environment;
use sandbox::fault::{Fault, show_path};
use serde_json::{Map, Value, json};

use crate::folder::OwnFolder;
use crate::ui::Failure;
pub(crate) use preset::{Agent, agents};
pub(crate) use program::{InstalledProgram, find};

/// Where the copy of the settings is seen inside, before it is copied into the home folder there.
const SETTINGS: &str = "/opt/fumehood-agent";
/// Copies the settings into the sandbox's own home folder, where the agent may change them, and becomes the agent.
pub(crate) const START: &str = "cp -R /opt/fumehood-agent/. \"$HOME\"/ && exec \"$@\"";
/// Where packages and sources come from.
const PRESETS: [&str; 6] = ["crates", "debian", "github-push", "github-read", "npm", "pypi"];
/// How long an agent may work, unless somebody says otherwise.
const WALL: &str = "8h";

/// A folder of ours outside with what an agent is given; gone when this is dropped.
#[derive(Debug)]
pub(crate) struct AgentFolder {
    folder: OwnFolder,
    /// Keys that are set, by the variable.
    pub(crate) keys: Vec<String>,
    /// What was left out of the settings.
    pub(crate) left: usize,
    /// What the settings are copied of: no secret's file is among it.
    pub(crate) copied: Vec<PathBuf>,
}

impl AgentFolder {
    /// Copies the settings and writes the policy.
    ///
    /// # Errors
    /// The folder cannot be made or written.
    pub(crate) fn new(agent: &Agent, found: &InstalledProgram, environment: &Environment) -> Result<Self, Failure> {
        let folder = OwnFolder::new(environment, "agent", 0o700)?;
        let mut given = Self { folder, keys: Vec::new(), left: 0, copied: Vec::new() };
        let failed = |error: std::io::Error| not_given(given.folder.path(), &error.to_string());
        let settings = given.folder.path().join("settings");
        std::fs::create_dir(&settings).map_err(failed)?;
        let left = match &environment.home {
            Some(home) => settings::copy(home, agent, &settings).map_err(failed)?,
            None => 0,
        };
        let keys = keys(agent, environment);
        let document = document(agent, found, &keys);
        std::fs::write(given.policy(), document.to_string()).map_err(failed)?;
        let copied = environment.home.iter().flat_map(|home| agent.home.iter().map(move |name| home.join(name)));
        given.copied = copied.collect();
        (given.keys, given.left) = (keys, left);
        Ok(given)
    }

    /// The policy document.
    pub(crate) fn policy(&self) -> PathBuf {
        self.folder.path().join("agent.json")
    }

    /// The grant of the copy, as `--read` has it.
    pub(crate) fn grant(&self) -> String {
        format!("{}:{SETTINGS}", self.folder.path().join("settings").display())
    }
}

/// The keys of an agent that are set, by the variable.
pub(crate) fn keys(agent: &Agent, environment: &Environment) -> Vec<String> {
    let is_set = |key: &&preset::Key| environment.variable(&key.env).is_some_and(|value| !value.is_empty());
    agent.key.iter().filter(is_set).map(|key| key.env.clone()).collect()
}

/// The logins of an agent that are there, below the home folder.
pub(crate) fn logins<'a>(agent: &'a Agent, environment: &Environment) -> Vec<&'a str> {
    let is_there = |login: &&String| environment.home.as_ref().is_some_and(|home| home.join(login).is_file());
    agent.login.iter().filter(is_there).map(String::as_str).collect()
}

/// The policy of an agent: the preset for coding, its hosts and its keys.
fn document(agent: &Agent, found: &InstalledProgram, keys: &[String]) -> Value {
    let of_keys: Vec<&preset::Key> = agent.key.iter().filter(|key| keys.contains(&key.env)).collect();
    let hosts = of_keys.iter().map(|key| &key.host).chain(&agent.hosts);
    let allow: Vec<Value> = hosts.map(|host| json!({ "host": host, "ports": [443] })).collect();
    let secret = |key: &&preset::Key| {
        let put = json!({ "header": key.header, "format": key.format });
        let from = format!("env:{}", key.env);
        let value = json!({ "from": from, "hosts": [key.host], "as": put, "env": key.env });
        (key.env.to_lowercase().replace('_', "-"), value)
    };
    let mut env: Map<String, Value> =
        agent.env.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
    env.insert("PATH".to_owned(), found.path().into());
    let mut document = json!({
        "version": 1, "name": format!("agent-{}", agent.name), "extends": "coding-agent",
        "limits": { "wall": WALL },
        "env": { "set": env },
        "net": { "mode": "allow", "presets": PRESETS, "allow": allow },
    });
    if let (false, Some(map)) = (of_keys.is_empty(), document.as_object_mut()) {
        map.insert("secrets".to_owned(), Value::Object(of_keys.iter().map(secret).collect()));
    }
    document
}

fn not_given(place: &Path, why: &str) -> Failure {
    Failure::own(Fault {
        id: "agent/settings",
        what: "the agent's settings cannot be copied".to_owned(),
        place: show_path(place),
        why: why.to_lowercase(),
        fix: "make room in /tmp".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_agent_has_a_policy_that_is_one() {
        for agent in agents() {
            let keys: Vec<String> = agent.key.iter().map(|key| key.env.clone()).collect();
            let found = InstalledProgram { program: "/usr/bin/x".into(), reads: Vec::new(), folders: Vec::new() };
            let text = document(agent, &found, &keys).to_string();
            let root = Path::new("/srv/project");
            let caller = policy::Caller {
                dir: root.to_path_buf(),
                home: None,
                profiles: vec!["default".to_owned(), "strict".to_owned()],
            };
            let mut layers = policy::Layers::new(caller);
            let none = |_: &Path| Err("no such file".to_owned());
            layers.document("agent.json", &text, policy::Format::Json, root, &none);
            let loaded = layers.finish().unwrap_or_else(|mistakes| panic!("{}: {mistakes}", agent.name));
            assert_eq!(loaded.policy.secrets.len(), agent.key.len(), "{}", agent.name);
            let asks = |rule: &&policy::value::NetRule| rule.asks;
            let held: Vec<_> = loaded.policy.net.rules().filter(asks).flat_map(|rule| &rule.paths).collect();
            assert_eq!(held, ["/*/*/git-receive-pack"], "a push waits for a person");
            assert!(!text.contains('*'), "no pattern of hosts: {text}");
        }
    }
}
