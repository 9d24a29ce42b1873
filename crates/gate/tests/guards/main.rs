//! Guards of plain values, addresses, paths and URLs: each row has the attack, a naive check that lets it through, and work
//! that must pass. Rows GW-04, GW-05, GW-06 to GW-09 of the catalogue; GW-10 to GW-13 are the corpus of `sql`.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails loudly")]

mod documents;
mod email;
mod load;
mod path;
mod url;
mod values;

use std::path::Path;

use gate::Blocked;
use gate::guard::Compiled;
use policy::{Caller, Diagnostics, Format, Layers, Loaded};
use serde_json::Value as Json;

/// A policy with one guard, read as users' policies are.
fn load(guard: &str) -> Result<(Loaded, Compiled), Diagnostics> {
    load_from(guard, &[])
}

/// The same, read from these files.
fn load_from(guard: &str, files: &[std::path::PathBuf]) -> Result<(Loaded, Compiled), Diagnostics> {
    let text = format!(
        "version = 1\n[[tools.tool]]\nname = \"t\"\ndecision = \"allow\"\neffect = \"read\"\nguards.value = {guard}\n"
    );
    let mut layers = Layers::new(Caller { dir: "/".into(), home: None, profiles: Vec::new() });
    let no_file = |_: &Path| Err::<String, String>("no such file".to_owned());
    layers.document("policy.toml", &text, Format::Toml, Path::new("/"), &no_file);
    let mut loaded = layers.finish()?;
    loaded.documents.files.extend(files.iter().cloned());
    let (_, guard) = loaded.policy.tools.as_ref().unwrap().entries[0].guards[0].clone();
    let compiled = Compiled::new(&guard.value, &loaded.documents)?;
    Ok((loaded, compiled))
}

fn guard(text: &str) -> Compiled {
    load(text).unwrap_or_else(|mistakes| panic!("{text}\n{mistakes}")).1
}

fn text(guard: &Compiled, value: &str) -> Result<String, Blocked> {
    guard.pass(&Json::String(value.to_owned())).map(|passed| passed.as_str().unwrap().to_owned())
}

/// All must be stopped; returns how many the naive check would have let through.
fn stopped(guard: &Compiled, attacks: &[&str], naive: impl Fn(&str) -> bool) -> usize {
    let passed: Vec<_> = attacks.iter().filter_map(|attack| text(guard, attack).ok().map(|to| (*attack, to))).collect();
    assert!(passed.is_empty(), "these pass: {passed:#?}");
    attacks.iter().filter(|attack| naive(attack)).count()
}
