//! A path in JSON: a string when it is UTF-8, else `{"hex": ".."}`. Nothing is lost, whatever the bytes.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use policy::json::{hex, unhex};

/// A path that is written so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PathText(#[serde(with = "self")] pub PathBuf);

/// The form in JSON.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Hex { hex: String },
}

/// For `#[serde(with)]`.
///
/// # Errors
/// The serializer's.
pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    let form = match path.to_str() {
        Some(text) => Form::Text(text.to_owned()),
        None => Form::Hex { hex: hex(path.as_os_str().as_bytes()) },
    };
    form.serialize(serializer)
}

/// For `#[serde(with)]`.
///
/// # Errors
/// The deserializer's, or a text that is no hex.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    match Form::deserialize(deserializer)? {
        Form::Text(text) => Ok(PathBuf::from(text)),
        Form::Hex { hex } => unhex(&hex)
            .map(|bytes| PathBuf::from(OsString::from_vec(bytes)))
            .ok_or_else(|| serde::de::Error::custom("a path in hex that is no hex")),
    }
}
