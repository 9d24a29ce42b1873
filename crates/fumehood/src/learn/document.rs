//! The proposal as a document: the one that was given with the rules added to it, or a new one upon what was given.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use policy::Format;
use policy::value::{Net, NetMode};
use sandbox::fault::{Fault, show_path};
use sandbox::{Environment, PolicyLayer};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::proposal::{Document, Proposal, Proposed};
use crate::load;
use crate::replace::replace;
use crate::ui::Failure;

/// What a new document is called where nobody said.
const NEW: &str = "learned.toml";

/// What a proposal is added to, read before anything runs.
#[derive(Debug)]
pub(super) struct Base {
    /// The documents that were given, by name.
    names: Vec<String>,
    /// What these say of the network.
    net: Net,
    /// The last of them, if it can be edited.
    last: Option<Last>,
}

/// A document that can be edited.
#[derive(Debug)]
struct Last {
    name: String,
    /// Its file, links followed.
    path: PathBuf,
    text: String,
}

impl Base {
    /// # Errors
    /// What was given cannot be read.
    pub(super) fn read(given: &[PolicyLayer], environment: &Environment) -> Result<Self, Failure> {
        let documents: Vec<PolicyLayer> =
            given.iter().filter(|layer| matches!(layer, PolicyLayer::Document(_))).cloned().collect();
        let net = load::policy_alone(&documents, environment)?.policy.net;
        let names: Vec<String> = documents
            .into_iter()
            .filter_map(|layer| if let PolicyLayer::Document(name) = layer { Some(name) } else { None })
            .collect();
        let last = names.last().filter(|name| is_toml(name));
        let last = last.map(|name| Last::read(name, &here(environment, Path::new(name)))).transpose()?;
        Ok(Self { names, net, last })
    }
}

impl Last {
    fn read(name: &str, path: &Path) -> Result<Self, Failure> {
        let read = path.canonicalize().and_then(|path| Ok((std::fs::read_to_string(&path)?, path)));
        let (text, path) = read.map_err(|error| unmade(&show_path(path), &error.to_string()))?;
        Ok(Self { name: name.to_owned(), path, text })
    }
}

fn here(environment: &Environment, path: &Path) -> PathBuf {
    environment.cwd.as_deref().map_or_else(|| path.to_owned(), |cwd| cwd.join(path))
}

/// Makes the document of a proposal, and writes it where that is asked for.
///
/// # Errors
/// What was given cannot be added to, or the file cannot be written.
pub(super) fn write(
    mut proposal: Proposal,
    base: &Base,
    to: Option<&Path>,
    environment: &Environment,
) -> Result<Proposal, Failure> {
    if proposal.rules.is_empty() {
        return Ok(proposal);
    }
    let (name, before) = base.last.as_ref().map_or((NEW, ""), |last| (last.name.as_str(), last.text.as_str()));
    let mut document: DocumentMut = before.parse().map_err(|error| unmade(name, &format!("{error}")))?;
    if before.is_empty() {
        let beside = to.is_none_or(|to| to.parent() == Some(Path::new("")));
        let here = |path: &Path| here(environment, path);
        begin(&mut document, &base.names.iter().map(|name| extended(name, beside, &here)).collect::<Vec<_>>());
    }
    // A list replaces what lies below: rules that came from there are written out.
    let below: Vec<serde_json::Value> = base
        .net
        .document()
        .get("allow")
        .and_then(serde_json::Value::as_array)
        .map(|rules| rules.iter().take(base.net.allow.len()).cloned().collect())
        .unwrap_or_default();
    add(&mut document, base.net.mode == NetMode::Allow, (&below, &proposal.rules)).map_err(|why| unmade(name, why))?;
    let (name, before) = (name.to_owned(), before.to_owned());
    let mut made = Document { name, before, after: document.to_string(), written: None };
    if let Some(to) = to {
        let to = here(environment, to);
        let from = base.last.as_ref().map(|last| last.path.as_path());
        save(&to, from, &made)?;
        let name = to.to_string_lossy().into_owned();
        if from.is_none() {
            made.name.clone_from(&name);
        }
        // Over what was given it is called as it was given.
        let same = from.is_some() && to.canonicalize().ok().as_deref() == from;
        made.written = Some(if same { made.name.clone() } else { name });
    }
    proposal.document = Some(made);
    Ok(proposal)
}

/// Whether a policy is named by a file that can be edited; a preset has no ending.
fn is_toml(name: &str) -> bool {
    Format::of(Path::new(name)) == Some(Format::Toml)
}

/// The head of a new document, upon what was given.
fn begin(document: &mut DocumentMut, names: &[String]) {
    document.insert("version", toml_edit::value(1));
    match names {
        [] => {}
        [one] => drop(document.insert("extends", toml_edit::value(one))),
        many => drop(document.insert("extends", toml_edit::value(many.iter().collect::<Array>()))),
    }
}

/// How a new document names another: a preset as it is, a file from where the new one lies.
fn extended(name: &str, beside: bool, here: &dyn Fn(&Path) -> PathBuf) -> String {
    if Format::of(Path::new(name)).is_none() {
        return name.to_owned();
    }
    match (beside, name.contains('/')) {
        // A file that is extended is told from a preset by its folder.
        (true, false) => format!("./{name}"),
        (true, true) => name.to_owned(),
        (false, _) => here(Path::new(name)).to_string_lossy().into_owned(),
    }
}

/// Adds rules to `net.allow`, and the mode where it is another.
fn add(
    document: &mut DocumentMut,
    is_open: bool,
    (below, rules): (&[serde_json::Value], &[Proposed]),
) -> Result<(), &'static str> {
    let not = "its `net` is no table";
    let net = document.entry("net").or_insert_with(|| Item::Table(Table::new()));
    let net: &mut dyn TableLike = net.as_table_like_mut().ok_or(not)?;
    if !is_open {
        net.insert("mode", toml_edit::value("allow"));
    }
    if net.get("allow").is_none() {
        let mut list = Array::new();
        for rule in below {
            push(&mut list, &of_json(rule), "");
        }
        net.insert("allow", toml_edit::value(list));
    }
    let Some(list) = net.get_mut("allow").and_then(Item::as_array_mut) else {
        return Err("its `net.allow` is no list of one line or several");
    };
    for rule in rules {
        push(list, &table(rule), if rule.reached { "" } else { "   # tried, and not reached" });
    }
    list.set_trailing("\n");
    Ok(())
}

/// Puts a rule on a line of its own; what is said of it stands on the line before.
fn push(list: &mut Array, rule: &InlineTable, said: &str) {
    let before = if said.is_empty() { "\n    ".to_owned() } else { format!("\n    {}\n    ", said.trim_start()) };
    let value = Value::InlineTable(rule.clone()).decorated(before, "");
    list.push_formatted(value);
    list.set_trailing_comma(true);
}

fn table(rule: &Proposed) -> InlineTable {
    let mut made = InlineTable::new();
    made.insert("host", rule.host.as_str().into());
    made.insert("ports", Value::Array(rule.ports.iter().map(|port| i64::from(*port)).collect()));
    for (key, list) in [("methods", &rule.methods), ("paths", &rule.paths)] {
        if !list.is_empty() {
            made.insert(key, Value::Array(list.iter().map(String::as_str).collect()));
        }
    }
    made
}

/// A rule as the policy's own JSON has it: texts, and lists of texts and numbers.
fn of_json(rule: &serde_json::Value) -> InlineTable {
    let one = |value: &serde_json::Value| match (value.as_str(), value.as_i64()) {
        (Some(text), _) => Some(Value::from(text)),
        (None, Some(number)) => Some(Value::from(number)),
        (None, None) => None,
    };
    let any = |value: &serde_json::Value| match value.as_array() {
        Some(list) => Some(Value::Array(list.iter().filter_map(one).collect())),
        None => one(value),
    };
    let pairs = rule.as_object().into_iter().flatten();
    pairs.filter_map(|(key, value)| Some((key.as_str(), any(value)?))).collect()
}

/// Writes it: over the document that it came of, or as a file that is not there yet.
fn save(to: &Path, from: Option<&Path>, made: &Document) -> Result<(), Failure> {
    let failed = |why: String| {
        Failure::own(Fault {
            id: "learn/not-written",
            what: format!("the proposal cannot be written to {}", show_path(to)),
            place: "--save".to_owned(),
            why,
            fix: "name a file that is not there, or the policy that was given".to_owned(),
        })
    };
    let told = |error: std::io::Error| failed(error.to_string().to_lowercase());
    if let Some(from) = from.filter(|from| to.canonicalize().is_ok_and(|to| to == *from)) {
        if std::fs::read_to_string(from).map_err(told)? != made.before {
            return Err(failed("it was changed meanwhile".to_owned()));
        }
        let mode = std::fs::metadata(from).map_err(told)?.mode() & 0o777;
        return replace(from, &made.after, mode).map_err(told);
    }
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(to);
    file.and_then(|mut file| file.write_all(made.after.as_bytes())).map_err(told)
}

fn unmade(name: &str, why: &str) -> Failure {
    Failure::own(Fault {
        id: "learn/not-made",
        what: format!("no difference to {name} can be made"),
        place: "the policy that was given".to_owned(),
        why: why.to_owned(),
        fix: "take the rules from `--json`".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(host: &str, reached: bool) -> Proposed {
        let (methods, paths) = (vec!["GET".to_owned()], vec!["/a".to_owned()]);
        Proposed { host: host.to_owned(), ports: vec![80], methods, paths, reached }
    }

    fn added(before: &str, below: &[serde_json::Value]) -> String {
        let mut document: DocumentMut = before.parse().unwrap();
        add(&mut document, before.contains("allow"), (below, &[rule("a.example", true), rule("b.example", false)]))
            .unwrap();
        document.to_string()
    }

    #[test]
    fn rules_are_added_to_what_is_there_and_the_rest_stays() {
        let made = added("version = 1 # mine\n\n[net]\nmode = \"allow\"\nallow = [\"x.example\"] # one\n", &[]);
        assert_eq!(
            made,
            "version = 1 # mine\n\n[net]\nmode = \"allow\"\nallow = [\"x.example\",\n    { host = \"a.example\", ports = [80], methods = [\"GET\"], paths = [\"/a\"] },\n    # tried, and not reached\n    { host = \"b.example\", ports = [80], methods = [\"GET\"], paths = [\"/a\"] },\n] # one\n"
        );
        let read: toml::Table = made.parse().unwrap();
        assert_eq!(read["net"]["allow"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn every_way_to_write_the_table_is_followed() {
        for before in ["", "net = { mode = \"none\" }\n", "net.mode = \"none\"\n", "[net]\nmode = \"none\"\n"] {
            let read: toml::Table = added(before, &[]).parse().unwrap();
            assert_eq!(read["net"]["mode"].as_str(), Some("allow"), "{before}");
            assert_eq!(read["net"]["allow"].as_array().unwrap().len(), 2, "{before}");
        }
        let mut wrong: DocumentMut = "net = 1\n".parse().unwrap();
        assert!(add(&mut wrong, true, (&[], &[])).is_err());
    }

    #[test]
    fn rules_that_lie_below_are_written_out() {
        let below = serde_json::json!({ "host": "y.example", "ports": [5432], "address": "10.1.2.3:6432" });
        let read: toml::Table = added("version = 1\nextends = \"./base.toml\"\n", &[below]).parse().unwrap();
        let list = read["net"]["allow"].as_array().unwrap();
        assert_eq!((list.len(), list[0]["address"].as_str()), (3, Some("10.1.2.3:6432")));
    }
}
