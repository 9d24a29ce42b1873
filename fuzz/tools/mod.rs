//! What reads an agent's words: arguments, entries, conditions, statements, lines, addresses, and the protocol itself.

pub(crate) mod arguments;
pub(crate) mod commands;
pub(crate) mod conditions;
pub(crate) mod entries;
pub(crate) mod foreign;
pub(crate) mod messages;
pub(crate) mod sql;
pub(crate) mod values;

use std::path::Path;

use gate::Gate;
use gate::guard::Compiled;
use policy::{Caller, Format, Layers, Loaded};

/// A policy as users write one; the targets are fed with arguments and not with policies.
fn loaded(text: &str) -> Loaded {
    let mut layers = Layers::new(Caller { dir: "/".into(), ..Caller::default() });
    let none = |_: &Path| Err("no such file".to_owned());
    layers.document("policy.toml", text, Format::Toml, Path::new("/"), &none);
    layers.finish().unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"))
}

fn gate(text: &str) -> Gate {
    let loaded = loaded(text);
    Gate::new(loaded.policy.tools.as_ref().unwrap(), &loaded.documents).unwrap_or_else(|m| panic!("{m}\n{text}")).0
}

/// A guard alone.
fn guard(text: &str) -> Compiled {
    let loaded = loaded(&format!(
        "version = 1\n[[tools.tool]]\nname = \"t\"\ndecision = \"allow\"\neffect = \"read\"\nguards.q = {text}\n"
    ));
    let tools = loaded.policy.tools.as_ref().unwrap();
    let (_, guard) = tools.entries.first().unwrap().guards.first().unwrap();
    Compiled::new(&guard.value, &loaded.documents).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// The statements or lines of a corpus of the broker's own tests: every text in its lists and under `sql`.
fn corpus(text: &str, keys: &[&str]) -> Vec<Vec<u8>> {
    fn walk(value: &toml::Value, is_one: bool, keys: &[&str], out: &mut Vec<Vec<u8>>) {
        match value {
            toml::Value::String(text) if is_one => out.push(text.as_bytes().to_vec()),
            toml::Value::Array(items) => items.iter().for_each(|item| walk(item, is_one, keys, out)),
            toml::Value::Table(table) => {
                table.iter().for_each(|(key, value)| walk(value, keys.contains(&key.as_str()), keys, out));
            }
            toml::Value::String(_)
            | toml::Value::Integer(_)
            | toml::Value::Float(_)
            | toml::Value::Boolean(_)
            | toml::Value::Datetime(_) => {}
        }
    }
    let mut out = Vec::new();
    walk(&toml::Value::Table(text.parse().unwrap()), false, keys, &mut out);
    assert!(out.len() > 100, "the corpus has another shape");
    out
}
