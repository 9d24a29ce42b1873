//! One table of a policy, read alone: what was written of a policy for a process of ours, as strictly as the whole.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::diagnostic::Diagnostics;
use crate::document::Format;
use crate::layers::Layers;
use crate::load::Caller;
use crate::value::{Net, Policy, Secret};

impl Net {
    /// Reads what [`Net::document`] wrote, by the reader of policies and as strictly.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn from_document(net: &Value) -> Result<Self, Diagnostics> {
        read_part("net", net).map(|policy| policy.net)
    }
}

/// Reads what [`secrets_document`](crate::value::secrets_document) wrote, by the reader of policies and as strictly.
///
/// # Errors
/// Every mistake in it.
pub fn secrets(secrets: &Value) -> Result<BTreeMap<String, Secret>, Diagnostics> {
    read_part("secrets", secrets).map(|policy| policy.secrets)
}

/// Reads one table alone.
fn read_part(key: &str, table: &Value) -> Result<Policy, Diagnostics> {
    let text = json!({ "version": 1, key: table }).to_string();
    let root = Path::new("/");
    let caller = Caller { dir: root.to_path_buf(), home: None, profiles: vec!["strict".to_owned()] };
    let mut layers = Layers::new(caller);
    let none = |_: &Path| Err("no other document belongs here".to_owned());
    layers.document(key, &text, Format::Json, root, &none);
    layers.finish().map(|loaded| loaded.policy)
}
