//! What a caller asked for, as the record of a run keeps it: enough to ask the same again, and no value that may be a secret.

use std::path::Path;

use policy::diagnostic::without_login;
use policy::value::{Audit, Content};
use serde_json::{Value, json};

use super::{commands, launch};
use crate::audit::Redactor;
use crate::error::Error;
use crate::load::PolicyLayer;
use crate::workload::Workload;

/// The longest value of a layer that is recorded.
const MAX_VALUE: usize = 4096;

/// The layers of a policy, weakest first, and where their relative paths belong. Of a variable the name stays.
pub(super) fn layers(layers: &[PolicyLayer], folder: Option<&Path>) -> Value {
    let folder = folder.map(|folder| folder.to_string_lossy());
    json!({ "folder": folder, "layers": layers.iter().map(layer).collect::<Vec<_>>() })
}

fn layer(layer: &PolicyLayer) -> Value {
    match layer {
        PolicyLayer::Document(name) => json!({ "document": name }),
        PolicyLayer::Flag { name, value } => flag(name, value),
        PolicyLayer::Set(text) => {
            let path = text.split_once('=').map_or(text.as_str(), |(path, _)| path.trim());
            let open = ["env", "inputs", "secrets"].iter().all(|first| path.split('.').next() != Some(first));
            // A proxy may be written with its login.
            let open = open && text.len() <= MAX_VALUE && without_login(text) == *text;
            if open { json!({ "set": text }) } else { json!({ "set": path, "hidden": "" }) }
        }
    }
}

fn flag(name: &str, value: &str) -> Value {
    if matches!(name, "--env" | "--input")
        && let Some((variable, _)) = value.split_once('=')
    {
        return json!({ "flag": name, "hidden": variable });
    }
    if value.len() > MAX_VALUE {
        json!({ "flag": name, "hidden": "" })
    } else {
        json!({ "flag": name, "value": value })
    }
}

/// A layer as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskedLayer {
    /// It can be laid again.
    Known(PolicyLayer),
    /// A flag or clause whose value is not recorded, and the name of the variable or input, where it has one.
    Hidden(String, String),
}

/// Reads a layer back; `None` for what no version wrote.
#[must_use]
pub fn asked_layer(value: &Value) -> Option<AskedLayer> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    if let Some(hidden) = text("hidden") {
        return Some(AskedLayer::Hidden(text("flag").or_else(|| text("set"))?, hidden));
    }
    let document = || text("document").map(PolicyLayer::Document);
    let flag = || Some(PolicyLayer::Flag { name: text("flag")?, value: text("value")? });
    let set = || text("set").map(PolicyLayer::Set);
    document().or_else(flag).or_else(set).map(AskedLayer::Known)
}

/// What is run: its kind, and as much of its words and code as `audit.content` wants kept.
pub(super) fn program(what: &Workload, audit: &Audit) -> Result<Value, Error> {
    let (kind, content) = (kind(what), audit.content);
    if content == Content::None {
        return Ok(json!({ "kind": kind }));
    }
    let sha256 = identity(what)?;
    if content == Content::Hash {
        return Ok(json!({ "kind": kind, "sha256": sha256 }));
    }
    let (text, words): (String, Vec<String>) = match what {
        Workload::Argv(words) => (one_line(&lossy(words), audit)?, lossy(words)),
        Workload::Script(script) => (script.path.to_string_lossy().into_owned(), lossy(&script.args)),
        Workload::Code(code) => (String::from_utf8_lossy(&code.text).into_owned(), lossy(&code.args)),
        Workload::Shell | Workload::Agent(_) | Workload::Image | Workload::Nothing => (String::new(), Vec::new()),
    };
    Ok(json!({ "kind": kind, "sha256": sha256, "language": language(what), "text": text, "words": words }))
}

/// The words as one text, each without what `audit.redact` matches in it: a pattern with anchors matches no word among others.
/// The log takes out what matches over several.
fn one_line(words: &[String], audit: &Audit) -> Result<String, Error> {
    let redactor = Redactor::new(&audit.redact);
    let clean: Result<Vec<_>, _> = words.iter().map(|word| redactor.without(word)).collect();
    Ok(clean?.join(" "))
}

fn kind(what: &Workload) -> &'static str {
    match what {
        Workload::Argv(_) => "command",
        Workload::Script(_) => "script",
        Workload::Code(_) => "code",
        Workload::Shell => "shell",
        Workload::Agent(_) => "live",
        Workload::Image | Workload::Nothing => "nothing",
    }
}

fn language(what: &Workload) -> Option<&str> {
    match what {
        Workload::Script(script) => Some(&script.interpreter.name),
        Workload::Code(code) => Some(&code.interpreter.name),
        Workload::Argv(_) | Workload::Shell | Workload::Agent(_) | Workload::Image | Workload::Nothing => None,
    }
}

fn lossy(words: &[std::ffi::OsString]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// SHA-256 (hex) of all that decides what runs: the words, or the interpreter's name, the arguments and the text of the
/// script. No word holds the zero byte between them, and the text stands last.
pub(super) fn identity(what: &Workload) -> Result<String, Error> {
    let (mut bytes, words, text) = match what {
        Workload::Argv(words) => (Vec::new(), words.as_slice(), Vec::new()),
        Workload::Script(script) => {
            (named(&script.interpreter.name), script.args.as_slice(), commands::text(script, launch::MAX_CODE)?)
        }
        Workload::Code(code) => (named(&code.interpreter.name), code.args.as_slice(), code.text.clone()),
        Workload::Shell | Workload::Agent(_) | Workload::Image | Workload::Nothing => (Vec::new(), &[][..], Vec::new()),
    };
    for (at, word) in words.iter().enumerate() {
        if at > 0 || !bytes.is_empty() {
            bytes.push(0);
        }
        bytes.extend_from_slice(word.as_encoded_bytes());
    }
    if language(what).is_some() {
        bytes.push(0);
        bytes.extend_from_slice(&text);
    }
    Ok(policy::json::sha256_hex(&bytes))
}

fn named(interpreter: &str) -> Vec<u8> {
    interpreter.as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_come_back_and_values_of_variables_do_not() {
        let flag = |name: &str, value: &str| PolicyLayer::Flag { name: name.to_owned(), value: value.to_owned() };
        let asked = [
            PolicyLayer::Document("policy.toml".to_owned()),
            flag("--memory", "1G"),
            flag("--env", "TOKEN=hunter2"),
            flag("--pass-env", "LANG"),
            flag("--input", "key=hunter2"),
            PolicyLayer::Set("env.set={A=\"hunter2\"}".to_owned()),
            PolicyLayer::Set("limits.files = 99".to_owned()),
            PolicyLayer::Set(format!("fs.hide={}", "x".repeat(MAX_VALUE))),
            PolicyLayer::Set("net.proxy=http://me:hunter2@proxy:3128".to_owned()),
            PolicyLayer::Set("secrets={ t = { from = \"command:get hunter2\", hosts = [\"a.test\"] } }".to_owned()),
            PolicyLayer::Set("net.proxy=http://proxy:3128".to_owned()),
        ];
        let recorded = layers(&asked, Some(Path::new("/work")));
        assert!(!recorded.to_string().contains("hunter2"), "{recorded}");
        assert_eq!(recorded["folder"], "/work");
        let back: Vec<AskedLayer> =
            recorded["layers"].as_array().unwrap().iter().map(|one| asked_layer(one).unwrap()).collect();
        let hidden = |name: &str, of: &str| AskedLayer::Hidden(name.to_owned(), of.to_owned());
        let known = |at: usize| AskedLayer::Known(asked[at].clone());
        let expected = [
            known(0),
            known(1),
            hidden("--env", "TOKEN"),
            known(3),
            hidden("--input", "key"),
            hidden("env.set", ""),
            known(6),
            hidden("fs.hide", ""),
            hidden("net.proxy", ""),
            hidden("secrets", ""),
            known(10),
        ];
        assert_eq!(back, expected);
        assert_eq!(asked_layer(&json!({ "other": 1 })), None);
    }

    #[test]
    fn what_matches_a_word_is_not_kept_among_others_either() {
        let what = Workload::Argv(["sh", "token=abcdef", "-c", "a b"].map(Into::into).to_vec());
        let audit = |redact: &[&str]| Audit {
            path: None,
            redact: redact.iter().map(|&pattern| pattern.to_owned()).collect(),
            content: Content::Full,
            sync: policy::value::Sync::None,
        };
        let text = |redact| program(&what, &audit(redact)).unwrap()["text"].clone();
        assert_eq!(text(&[r"^token=\S+$"]), "sh [redacted] -c a b");
        assert_eq!(text(&[]), "sh token=abcdef -c a b");
        assert!(program(&what, &audit(&["("])).is_err());
    }

    #[test]
    fn what_runs_is_told_apart_by_its_words() {
        let argv = |words: &[&str]| identity(&Workload::Argv(words.iter().map(Into::into).collect())).unwrap();
        assert_eq!(argv(&["true"]), policy::json::sha256_hex(b"true"));
        assert_ne!(argv(&["a b"]), argv(&["a", "b"]));
        assert_ne!(argv(&["a", ""]), argv(&["a"]));
        assert_ne!(argv(&["", "a"]), argv(&["a"]));
    }
}
