//! Layers: `strict` at the bottom, documents in their order (each upon what it extends), flags on top.
//!
//! Tables merge key by key, lists and scalars replace. Flags that name one thing of many (`--read`, `--prefer`, ...)
//! add to the list that the documents give.

use std::path::{Path, PathBuf};

use crate::clause::ClauseId;
use crate::document::{self, Format, Key, Kind, Node, Place, Source, Value};
use crate::load::{Caller, Loaded, Loader, Origins};
use crate::mistake::{Mistake, Mistakes, Where, did_you_mean, quote};
use crate::presets::{PRESETS, preset};
use crate::read::Reader;
use crate::{check, fit, rows};

/// Documents that extend documents end here.
const MOST_EXTENDS: usize = 8;
/// More layers than this are not meant.
const MOST_SOURCES: usize = 4096;

/// A policy in the making.
#[derive(Debug)]
pub struct Layers {
    caller: Caller,
    sources: Vec<Source>,
    documents: Vec<Node>,
    flags: Vec<(FlagUse, Node)>,
    inputs: Vec<(String, String, u16)>,
    mistakes: Mistakes,
    name: String,
}

/// What a flag does to what is below it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FlagUse {
    /// Its tree goes on top.
    Merge,
    /// Its value joins the list at a path.
    Join(&'static str),
}

impl Layers {
    /// Nothing but `strict` yet.
    #[must_use]
    pub fn new(caller: Caller) -> Self {
        Self {
            caller,
            sources: Vec::with_capacity(16),
            documents: Vec::with_capacity(4),
            flags: Vec::new(),
            inputs: Vec::new(),
            mistakes: Mistakes::default(),
            name: "strict".to_owned(),
        }
    }

    /// `--policy VALUE`: the name of a preset, or a file relative to the current directory. What it extends comes
    /// below it.
    pub fn policy(&mut self, value: &str, loader: &dyn Loader) {
        let at = Where { name: "--policy".to_owned(), line_column: None, excerpt: format!("--policy {value}") };
        let base = self.caller.dir.clone();
        self.referred(value, &base, &at, loader, &mut Vec::new());
    }

    /// A document whose text is at hand. `name` stands in messages, `folder` is where its relative paths start.
    pub fn document(&mut self, name: &str, text: &str, format: Format, folder: &Path, loader: &dyn Loader) {
        self.push_document(name, text.to_owned(), format, folder, loader, &mut Vec::new());
    }

    /// A preset, or a file; both from `--policy` and from `extends`.
    fn referred(&mut self, value: &str, base: &Path, at: &Where, loader: &dyn Loader, chain: &mut Vec<PathBuf>) {
        if let Some(preset) = preset(value) {
            self.preset(preset.name, preset.text);
            return;
        }
        let extends = at.name != "--policy";
        let is_path = value.contains('/') || Format::of(Path::new(value)).is_some() && !extends;
        if !is_path {
            return self.no_such(value, at);
        }
        let path = match crate::read::normal(base, value) {
            Ok(path) => path,
            Err((id, why, fix)) => return self.add(id, format!("{} cannot be read", quote(value)), at, why, fix),
        };
        let Some(format) = Format::of(&path) else {
            let fix = "name it .toml, .yaml, .yml or .json";
            return self.add(
                "document/format",
                format!("{} has no known language", quote(value)),
                at,
                "the ending of its name says it".to_owned(),
                fix.to_owned(),
            );
        };
        if chain.contains(&path) {
            let why = "a document cannot stand below itself".to_owned();
            return self.add(
                "extends/cycle",
                format!("{} extends itself", quote(value)),
                at,
                why,
                "remove one `extends`".to_owned(),
            );
        }
        if chain.len() >= MOST_EXTENDS {
            let why = format!("documents extend at most {MOST_EXTENDS} deep");
            return self.add(
                "extends/depth",
                format!("{} is extended too deep", quote(value)),
                at,
                why,
                "merge some of them".to_owned(),
            );
        }
        match loader.load(&path) {
            Ok(text) => {
                let folder = path.parent().unwrap_or(Path::new("/")).to_path_buf();
                chain.push(path);
                self.push_document(value, text, format, &folder, loader, chain);
                chain.pop();
            }
            Err(why) => self.add(
                "document/unreadable",
                format!("{} cannot be read", quote(value)),
                at,
                why,
                "check the path; it is relative to the current directory, or to the document that extends it"
                    .to_owned(),
            ),
        }
    }

    fn no_such(&mut self, value: &str, at: &Where) {
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        let fix = match did_you_mean(value, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`? a file is written ./{value}.toml"),
            None => format!("presets are {}; a file is written ./{value}.toml", names.join(", ")),
        };
        self.add(
            "preset/unknown",
            format!("{} is not a preset", quote(value)),
            at,
            "a name without a folder is that of a preset".to_owned(),
            fix,
        );
    }

    fn add(&mut self, id: &str, what: String, at: &Where, why: String, fix: String) {
        self.mistakes.add(Mistake { id: id.to_owned(), clause: None, what, at: at.clone(), why, fix });
    }

    fn preset(&mut self, name: &'static str, text: &str) {
        // Upon an untouched ground `strict` says nothing new.
        name.clone_into(&mut self.name);
        if name == "strict" && self.documents.is_empty() {
            return;
        }
        let base = self.caller.dir.clone();
        if let Some(tree) = self.tree(Kind::Preset, name, text.to_owned(), Format::Toml, &base) {
            self.documents.push(tree);
        }
    }

    fn tree(&mut self, kind: Kind, name: &str, text: String, format: Format, base: &Path) -> Option<Node> {
        let index = u16::try_from(self.sources.len()).ok().filter(|_| self.sources.len() < MOST_SOURCES);
        let Some(index) = index else {
            let at = Where { name: name.to_owned(), line_column: None, excerpt: String::new() };
            let why = format!("more than {MOST_SOURCES} documents and flags are not meant");
            self.add(
                "document/size",
                "there are too many layers".to_owned(),
                &at,
                why,
                "write them into one document".to_owned(),
            );
            return None;
        };
        let source = Source { kind, format, name: name.to_owned(), text, base: base.to_path_buf() };
        let (tree, mistakes) = document::parse(index, &source);
        self.sources.push(source);
        for mistake in mistakes {
            self.mistakes.add(mistake);
        }
        tree
    }

    fn push_document(
        &mut self,
        name: &str,
        text: String,
        format: Format,
        folder: &Path,
        loader: &dyn Loader,
        chain: &mut Vec<PathBuf>,
    ) {
        let Some(tree) = self.tree(Kind::File, name, text, format, folder) else { return };
        let stem = Path::new(name).file_stem().and_then(|stem| stem.to_str()).unwrap_or(name).to_owned();
        self.version(&tree);
        if let Some(extends) = tree.get("extends") {
            self.extends(extends, folder, loader, chain);
        }
        // Values that a later layer overrides are read as well: a mistake does not become right by being covered.
        self.name = self.reader().policy(&tree, &stem).name;
        self.documents.push(tree);
    }

    fn reader(&mut self) -> Reader<'_> {
        Reader { sources: &self.sources, caller: &self.caller, mistakes: &mut self.mistakes }
    }

    fn version(&mut self, tree: &Node) {
        let mut reader = self.reader();
        match tree.get("version") {
            Some(Node { value: Value::Integer(1), .. }) => {}
            Some(node) => {
                let written = quote(reader.written(node.place));
                let fault = crate::read::fault(
                    "document/version",
                    format!("`version` is {written}"),
                    "this fumehood reads version 1",
                    "write version = 1",
                );
                reader.note("version", node.place, fault);
            }
            None => {
                let fault = crate::read::fault(
                    "document/version",
                    "the document has no `version`",
                    "without it a later fumehood could not tell what was meant",
                    "start with version = 1",
                );
                reader.note("version", Place { end: tree.place.start, ..tree.place }, fault);
            }
        }
    }

    fn extends(&mut self, node: &Node, folder: &Path, loader: &dyn Loader, chain: &mut Vec<PathBuf>) {
        let items = match &node.value {
            Value::Array(items) => items.as_slice(),
            Value::Null
            | Value::Bool(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::Bare(_)
            | Value::Table(_) => std::slice::from_ref(node),
        };
        for item in items {
            let mut reader = self.reader();
            let Some(value) = reader.text("extends", item) else { continue };
            let Some(source) = reader.source(item.place) else { continue };
            let at = source.place_of(crate::read::offset(item.place.start)..crate::read::offset(item.place.end));
            self.referred(&value, folder, &at, loader, chain);
        }
    }

    /// `--set CLAUSE=VALUE`. Lists, tables and quoted texts as in TOML, everything else as it is.
    pub fn set(&mut self, assignment: &str) {
        let written = format!("--set {assignment}");
        let Some((path, value)) = assignment.split_once('=') else {
            let at = Where { name: "--set".to_owned(), line_column: None, excerpt: written };
            return self.add(
                "flag/set",
                format!("{} has no `=`", quote(assignment)),
                &at,
                "it assigns a value to a clause".to_owned(),
                "write --set limits.files=10000".to_owned(),
            );
        };
        let path = path.trim();
        if !self.settable(path, &written) {
            return;
        }
        self.flag_tree(path, value.trim(), "--set", written, FlagUse::Merge);
    }

    fn settable(&mut self, path: &str, written: &str) -> bool {
        let known = |path: &str| crate::read::clause_of(path).is_some() || matches!(path, "prefer" | "name");
        let deep = path.split('.').count() > 6 || path.split('.').any(str::is_empty);
        if known(path) && !deep {
            return true;
        }
        let words = ClauseId::ALL.iter().map(|id| id.path());
        let fix = match did_you_mean(path, words) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`fumehood policy show` lists the clauses".to_owned(),
        };
        let at = Where { name: "--set".to_owned(), line_column: None, excerpt: written.to_owned() };
        self.add(
            "key/unknown",
            format!("{} is not a clause", quote(path)),
            &at,
            "unknown clauses are refused, so that a misspelt limit is never silently absent".to_owned(),
            fix,
        );
        false
    }

    /// A flag of its own, by its long name: `("--memory", "512M")`. Which clause it means is in the table of rows.
    pub fn flag(&mut self, name: &str, value: &str) {
        let written = format!("{name} {value}");
        match name {
            "--env" => self.env_flag(value, written),
            "--workspace" => self.workspace_flag(value, written),
            "--input" => self.input_flag(value, written),
            "--allow-host" => {
                self.flag_tree("net.allow", value, name, written.clone(), FlagUse::Join("net.allow"));
                self.flags.insert(0, (FlagUse::Merge, self.bare_tree("net.mode", "allow")));
            }
            "--read" => self.flag_tree("fs.read", value, name, written, FlagUse::Join("fs.read")),
            "--write" => self.flag_tree("fs.write", value, name, written, FlagUse::Join("fs.write")),
            "--dangerous-read" => {
                self.flag_tree("fs.dangerous-read", value, name, written, FlagUse::Join("fs.dangerous-read"))
            }
            "--dangerous-write" => {
                self.flag_tree("fs.dangerous-write", value, name, written, FlagUse::Join("fs.dangerous-write"))
            }
            "--pass-env" => self.flag_tree("env.pass", value, name, written, FlagUse::Join("env.pass")),
            "--prefer" => self.flag_tree("prefer", value, name, written, FlagUse::Join("prefer")),
            _ => match rows::row_of_flag(name) {
                Some(row) => self.flag_tree(row.clause.path(), value, name, written, FlagUse::Merge),
                None => {
                    let at = Where { name: name.to_owned(), line_column: None, excerpt: written };
                    self.add(
                        "flag/unknown",
                        format!("{} is not a flag of a clause", quote(name)),
                        &at,
                        "each clause has at most one flag".to_owned(),
                        "use --set CLAUSE=VALUE".to_owned(),
                    );
                }
            },
        }
    }

    fn env_flag(&mut self, value: &str, written: String) {
        let Some((key, text)) = value.split_once('=') else {
            let at = Where { name: "--env".to_owned(), line_column: None, excerpt: written };
            return self.add(
                "flag/env",
                format!("{} has no `=`", quote(value)),
                &at,
                "`--env` sets a value".to_owned(),
                format!("write --env {value}=VALUE, or --pass-env {value} to take the caller's"),
            );
        };
        let Some(source) = self.flag_source("--env", written) else { return };
        let place = self.whole(source);
        let leaf = Node { value: Value::Text(text.to_owned()), place };
        let tree = [key, "set", "env"].iter().fold(leaf, |node, name| wrap(name, node, place));
        self.flags.push((FlagUse::Merge, tree));
    }

    fn workspace_flag(&mut self, value: &str, written: String) {
        let modes = ["none", "ro", "rw", "overlay", "copy"];
        let (path, mode) = match value.rsplit_once(':') {
            Some((path, mode)) if modes.contains(&mode) && !path.is_empty() => (path, mode),
            _ => (value, "overlay"),
        };
        let Some(source) = self.flag_source("--workspace", written) else { return };
        let place = self.whole(source);
        let leaf = |text: &str| Node { value: Value::Bare(text.to_owned()), place };
        let key = |name: &str| Key { name: name.to_owned(), place };
        let table = Value::Table(vec![(key("path"), leaf(path)), (key("mode"), leaf(mode))]);
        let tree = wrap("workspace", Node { value: table, place }, place);
        self.flags.push((FlagUse::Merge, tree));
    }

    fn input_flag(&mut self, value: &str, written: String) {
        match value.split_once('=') {
            Some((key, text)) => {
                if let Some(source) = self.flag_source("--input", written) {
                    self.inputs.push((key.to_owned(), text.to_owned(), source));
                }
            }
            None => {
                let at = Where { name: "--input".to_owned(), line_column: None, excerpt: written };
                self.add(
                    "flag/input",
                    format!("{} has no `=`", quote(value)),
                    &at,
                    "an input is a name and a value".to_owned(),
                    format!("write --input {value}=VALUE"),
                );
            }
        }
    }

    fn flag_source(&mut self, name: &str, written: String) -> Option<u16> {
        let base = self.caller.dir.clone();
        let index = u16::try_from(self.sources.len()).ok().filter(|_| self.sources.len() < MOST_SOURCES);
        if index.is_none() {
            let at = Where { name: name.to_owned(), line_column: None, excerpt: String::new() };
            let why = format!("more than {MOST_SOURCES} documents and flags are not meant");
            self.add(
                "document/size",
                "there are too many layers".to_owned(),
                &at,
                why,
                "write them into a document".to_owned(),
            );
        }
        self.sources.push(Source {
            kind: Kind::Flag,
            format: Format::Toml,
            name: name.to_owned(),
            text: written,
            base,
        });
        index
    }

    /// The value part of a flag's text.
    fn whole(&self, source: u16) -> Place {
        let text = self.sources.get(usize::from(source)).map_or("", |source| source.text.as_str());
        let start = text.find([' ', '=']).map_or(0, |at| at + 1);
        Place::new(source, start..text.len())
    }

    fn flag_tree(&mut self, path: &str, value: &str, name: &str, written: String, usage: FlagUse) {
        let Some(source) = self.flag_source(name, written) else { return };
        let place = self.whole(source);
        let value = typed(value, place).unwrap_or_else(|| Value::Bare(value.to_owned()));
        let leaf = Node { value, place };
        let tree = path.rsplit('.').fold(leaf, |node, name| wrap(name, node, place));
        self.flags.push((usage, tree));
    }

    fn bare_tree(&self, path: &str, value: &str) -> Node {
        let last = u16::try_from(self.sources.len().saturating_sub(1)).unwrap_or(0);
        let place = self.whole(last);
        let leaf = Node { value: Value::Bare(value.to_owned()), place };
        path.rsplit('.').fold(leaf, |node, name| wrap(name, node, place))
    }

    /// The policy, or everything that is wrong with it.
    ///
    /// # Errors
    /// Every mistake of every layer, and of what they say together.
    pub fn finish(mut self) -> Result<Loaded, Mistakes> {
        let base = self.caller.dir.clone();
        let ground = PRESETS
            .first()
            .and_then(|strict| self.tree(Kind::Preset, strict.name, strict.text.to_owned(), Format::Toml, &base));
        let place = Place { source: 0, start: 0, end: 0 };
        let mut tree = ground.unwrap_or(Node { value: Value::Table(Vec::new()), place });
        for document in std::mem::take(&mut self.documents) {
            merge(&mut tree, document);
        }
        // The name is that of the topmost document: those below speak of themselves.
        if let Value::Table(entries) = &mut tree.value {
            entries.retain(|(key, _)| key.name != "name");
        }
        for (usage, flag) in std::mem::take(&mut self.flags) {
            self.reader().policy(&flag, "flag");
            match usage {
                FlagUse::Merge => merge(&mut tree, flag),
                FlagUse::Join(path) => join(&mut tree, flag, path),
            }
        }
        let name = std::mem::take(&mut self.name);
        let mut policy = self.reader().policy(&tree, &name);
        let inputs = std::mem::take(&mut self.inputs);
        self.reader().given_inputs(&mut policy, &inputs);
        let shrunk = fit::shrink(&mut policy, &self.sources, &tree);
        let mut lints = Vec::new();
        if self.mistakes.list.is_empty() {
            check::together(&mut self.reader(), &tree, &policy, &mut lints);
        }
        if !self.mistakes.list.is_empty() {
            return Err(self.mistakes);
        }
        let at_given = tree.at("workspace.at").is_some();
        let mut origins = Origins { list: ClauseId::ALL.iter().map(|id| origin(&self.sources, &tree, *id)).collect() };
        fit::tell(&mut origins, &shrunk);
        for lint in &mut lints {
            origins.of(lint.clause).clone_into(&mut lint.at);
        }
        Ok(Loaded { policy, origins, lints, at_given })
    }
}

/// A table with one entry.
fn wrap(name: &str, node: Node, place: Place) -> Node {
    Node { value: Value::Table(vec![(Key { name: name.to_owned(), place }, node)]), place }
}

/// A flag's value in TOML's own spelling; its parts get the place of the flag.
fn typed(value: &str, place: Place) -> Option<Value> {
    if !value.starts_with(['[', '{', '"', '\'']) {
        return None;
    }
    let text = format!("v = {value}");
    let source = Source { kind: Kind::Flag, format: Format::Toml, name: String::new(), text, base: PathBuf::new() };
    let (tree, mistakes) = document::parse(0, &source);
    let mut node = tree.filter(|_| mistakes.is_empty())?.get("v")?.clone();
    replace(&mut node, place);
    Some(node.value)
}

fn replace(node: &mut Node, place: Place) {
    node.place = place;
    match &mut node.value {
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, place)),
        Value::Table(entries) => {
            for (key, node) in entries {
                key.place = place;
                replace(node, place);
            }
        }
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) | Value::Bare(_) => {}
    }
}

/// Puts one tree upon another.
fn merge(below: &mut Node, above: Node) {
    match (&mut below.value, above) {
        (Value::Table(entries), Node { value: Value::Table(new), .. }) => {
            for (key, node) in new {
                match entries.iter_mut().find(|(known, _)| known.name == key.name) {
                    Some((_, old)) => merge(old, node),
                    None => entries.push((key, node)),
                }
            }
        }
        (_, above) => *below = above,
    }
}

/// Adds a flag's value to the list at a path.
fn join(tree: &mut Node, mut flag: Node, path: &str) {
    let Some(added) = flag.at(path).cloned() else { return };
    let mut list = match tree.at(path) {
        Some(Node { value: Value::Array(items), .. }) => items.clone(),
        _ => Vec::new(),
    };
    let place = list.first().map_or(added.place, |first| first.place);
    match added.value {
        Value::Array(items) => list.extend(items),
        value => list.push(Node { value, place: added.place }),
    }
    let whole = Node { value: Value::Array(list), place };
    flag = path.rsplit('.').fold(whole, |node, name| wrap(name, node, added.place));
    merge(tree, flag);
}

fn origin(sources: &[Source], tree: &Node, id: ClauseId) -> String {
    let mut list: Vec<(u16, String)> = Vec::new();
    const ALSO: &[(ClauseId, &str)] =
        &[(ClauseId::FsRead, "fs.dangerous-read"), (ClauseId::FsWrite, "fs.dangerous-write"), (ClauseId::Tools, "mcp")];
    let also = ALSO.iter().filter(|(of, _)| *of == id).map(|(_, path)| *path);
    for path in std::iter::once(id.path()).chain(also) {
        if let Some(node) = tree.at(path) {
            gather(sources, node, &mut list);
        }
    }
    let list: Vec<String> = list.into_iter().map(|(_, text)| text).collect();
    if list.is_empty() { "default".to_owned() } else { list.join(", ") }
}

/// The first place in each source that a value is made of.
fn gather(sources: &[Source], node: &Node, list: &mut Vec<(u16, String)>) {
    match &node.value {
        Value::Table(entries) => entries.iter().for_each(|(_, node)| gather(sources, node, list)),
        Value::Array(items) if !items.is_empty() && items.iter().any(|item| item.place.source != node.place.source) => {
            items.iter().for_each(|item| gather(sources, item, list));
        }
        Value::Null
        | Value::Bool(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Text(_)
        | Value::Bare(_)
        | Value::Array(_) => {
            let known = list.iter().any(|(source, _)| *source == node.place.source);
            if let Some(source) = sources.get(usize::from(node.place.source)).filter(|_| !known) {
                list.push((node.place.source, source.origin(node.place)));
            }
        }
    }
}
