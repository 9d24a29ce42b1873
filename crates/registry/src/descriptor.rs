//! What an index or a manifest says of each of its parts, and where that part lies in a layout.

use serde::Deserialize;

use crate::client::Client;
use crate::error::PullError;

/// Where an OCI layout has its blobs.
pub(crate) const BLOBS: &str = concat!("blobs", "/sha256");

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Descriptor {
    pub(crate) digest: String,
    pub(crate) size: u64,
    pub(crate) platform: Option<Platform>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Platform {
    pub(crate) architecture: String,
    pub(crate) os: String,
}

pub(crate) fn hex_of(client: &Client, digest: &str) -> Result<String, PullError> {
    let hex = digest.strip_prefix("sha256:").filter(|hex| {
        hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    });
    hex.map(str::to_owned).ok_or_else(|| client.failed(format!("`{digest}` is no digest of SHA-256")))
}
