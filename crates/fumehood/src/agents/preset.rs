//! The agents that are known, as data.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// One agent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agent {
    /// As it is called by.
    #[serde(skip)]
    pub(crate) name: &'static str,
    /// As its vendor writes it.
    pub(crate) title: String,
    /// What is looked for in `PATH`.
    pub(crate) program: String,
    /// The command that installs it.
    pub(crate) install: String,
    /// Its settings, below the home folder.
    pub(super) home: Vec<String>,
    /// Where it keeps a login, below the home folder: never copied.
    #[serde(default)]
    pub(crate) login: Vec<String>,
    /// Names in these that are left out.
    #[serde(default)]
    pub(super) leave: Vec<String>,
    /// Hosts beside those of its keys.
    #[serde(default)]
    pub(super) hosts: Vec<String>,
    /// Variables inside.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Its keys.
    pub(crate) key: Vec<Key>,
}

/// A key of a vendor.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Key {
    /// The variable, outside with the key and inside with its placeholder.
    pub(crate) env: String,
    /// Who may see it.
    pub(super) host: String,
    /// The header that it goes in.
    pub(super) header: String,
    /// How it is written there.
    #[serde(default = "alone")]
    pub(super) format: String,
}

fn alone() -> String {
    "{}".to_owned()
}

const TEXTS: [(&str, &str); 5] = [
    ("aider", include_str!("../../../../resources/agents/aider.toml")),
    ("claude", include_str!("../../../../resources/agents/claude.toml")),
    ("codex", include_str!("../../../../resources/agents/codex.toml")),
    ("gemini", include_str!("../../../../resources/agents/gemini.toml")),
    ("opencode", include_str!("../../../../resources/agents/opencode.toml")),
];

/// All of them, by name. The texts are ours and read in a test: one that could not be read would be missing here.
static AGENTS: LazyLock<Vec<Agent>> = LazyLock::new(|| {
    let read = |(name, text): &(&'static str, &str)| Some(Agent { name, ..toml::from_str(text).ok()? });
    TEXTS.iter().filter_map(read).collect()
});

/// Every agent.
pub(crate) fn agents() -> &'static [Agent] {
    &AGENTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_read() {
        assert_eq!(agents().len(), TEXTS.len());
        assert!(agents().iter().all(|agent| !agent.key.is_empty() && !agent.home.is_empty()));
    }
}
