//! The documents of an image: index, manifest, configuration. What is not needed is not read.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// No such document is larger.
pub(crate) const MAX_DOCUMENT: u64 = 4 << 20;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Descriptor {
    #[serde(rename = "mediaType", default)]
    pub(crate) media_type: String,
    pub(crate) digest: String,
    pub(crate) size: u64,
    pub(crate) annotations: Option<BTreeMap<String, String>>,
    pub(crate) platform: Option<Platform>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Platform {
    pub(crate) architecture: String,
    pub(crate) os: String,
}

/// An index, a manifest and a configuration are three things, and no document is two of them: a digest would name two trees.
#[derive(Debug, Deserialize)]
pub(crate) struct Index {
    pub(crate) config: Option<IgnoredAny>,
    pub(crate) layers: Option<IgnoredAny>,
    pub(crate) rootfs: Option<IgnoredAny>,
    pub(crate) manifests: Vec<Descriptor>,
}

/// What says of a document whether it is an index.
#[derive(Debug, Deserialize)]
pub(crate) struct Kind {
    #[serde(rename = "mediaType", default)]
    pub(crate) media_type: String,
    pub(crate) manifests: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) rootfs: Option<IgnoredAny>,
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

/// One image of a docker-archive.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Saved {
    pub(crate) config: String,
    pub(crate) repo_tags: Option<Vec<String>>,
    pub(crate) layers: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Config {
    pub(crate) layers: Option<IgnoredAny>,
    pub(crate) manifests: Option<IgnoredAny>,
    pub(crate) architecture: String,
    pub(crate) os: String,
    pub(crate) config: Option<Defaults>,
    pub(crate) rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RootFs {
    pub(crate) diff_ids: Vec<String>,
}

/// What a configuration asks for and nothing here does.
#[derive(Debug, Deserialize)]
pub(crate) struct Wishes {
    config: Option<Unheeded>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Unheeded {
    healthcheck: Value,
    on_build: Value,
    shell: Value,
    stop_signal: Value,
    volumes: Value,
}

impl Wishes {
    /// By their instructions.
    pub(crate) fn unheeded(self) -> Vec<String> {
        let Unheeded { healthcheck, on_build, shell, stop_signal, volumes } = self.config.unwrap_or_default();
        let all = [
            ("HEALTHCHECK", healthcheck),
            (ON_BUILD, on_build),
            (SHELL, shell),
            ("STOPSIGNAL", stop_signal),
            ("VOLUME", volumes),
        ];
        let empty = [Value::Null, json!(""), json!([]), json!({})];
        all.into_iter().filter(|(_, said)| !empty.contains(said)).map(|(name, _)| name.to_owned()).collect()
    }
}

/// Those of a base that would change what a build does.
pub(crate) const ON_BUILD: &str = "ONBUILD";
pub(crate) const SHELL: &str = "SHELL";

/// What an image says of how it is run, where a policy says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Defaults {
    /// Who runs in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// `NAME=VALUE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<String>>,
    /// Where it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// What always runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Its arguments, or what runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cmd: Option<Vec<String>>,
    /// What is said of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Ports that it says it listens on: told, and opened by nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exposed_ports: Option<BTreeMap<String, Value>>,
}

/// The hexadecimal part of a digest that can be checked here; `None` for others.
pub(crate) fn sha256_of(digest: &str) -> Option<&str> {
    digest.strip_prefix("sha256:").filter(|hex| is_hex(hex))
}

/// 64 characters of `0-9a-f`.
pub(crate) fn is_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}
