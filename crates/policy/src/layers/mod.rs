//! Layers: `strict` at the bottom, documents in their order (each upon what it extends), flags on top.
//!
//! Tables merge key by key, lists and scalars replace. Flags that name one thing of many (`--read`, `--prefer`, ...)
//! add to the list that the documents give. Entries of `tools.tool` are never replaced, only added.

mod flags;
mod tools;
mod tree;

use std::path::{Path, PathBuf};

use crate::clause::ClauseId;
use crate::diagnostic::{Diagnostic, Diagnostics, SourceLocation, did_you_mean, quote};
use crate::document::{self, Format, Kind, Node, Source, SourceSpan, Value};
use crate::load::{Caller, Loaded, Loader, Origins};
use crate::presets::{PRESETS, preset};
use crate::read::Reader;
use crate::value::NetMode;
use crate::{check, scale_tmpfs};
use tree::{join, origin};

/// Documents that extend documents end here.
const MAX_EXTENDS: usize = 8;
/// More layers than this are not meant.
const MAX_SOURCES: usize = 4096;

/// A policy in the making.
#[derive(Debug)]
pub struct Layers {
    caller: Caller,
    sources: Vec<Source>,
    documents: Vec<Node>,
    flags: Vec<(FlagUse, Node)>,
    inputs: Vec<(String, String, u16)>,
    inputs_later: bool,
    private: Vec<PathBuf>,
    mistakes: Diagnostics,
    name: String,
}

/// A document at hand.
struct Written<'a> {
    name: &'a str,
    text: String,
    format: Format,
    folder: &'a Path,
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
            inputs_later: false,
            private: Vec::new(),
            mistakes: Diagnostics::default(),
            name: "strict".to_owned(),
        }
    }

    /// Inputs are given when something runs: until then a required one may be missing.
    pub fn without_inputs(&mut self) {
        self.inputs_later = true;
    }

    /// A folder of ours (state, keys): to grant it, or what contains it, needs the `dangerous-` spelling.
    pub fn keep_private(&mut self, folder: PathBuf) {
        self.private.push(folder);
    }

    /// `--policy VALUE`: the name of a preset, or a file relative to the current directory. What it extends comes
    /// below it.
    pub fn policy(&mut self, value: &str, loader: &dyn Loader) {
        let at =
            SourceLocation { name: "--policy".to_owned(), line_column: None, excerpt: format!("--policy {value}") };
        let base = self.caller.dir.clone();
        self.referred(value, &base, &at, loader, &mut Vec::new());
    }

    /// A document whose text is at hand. `name` stands in messages, `folder` is where its relative paths start.
    pub fn document(&mut self, name: &str, text: &str, format: Format, folder: &Path, loader: &dyn Loader) {
        let text = text.to_owned();
        self.push_document(Written { name, text, format, folder }, loader, &mut Vec::new());
    }

    /// A preset, or a file; both from `--policy` and from `extends`.
    fn referred(
        &mut self,
        value: &str,
        base: &Path,
        at: &SourceLocation,
        loader: &dyn Loader,
        chain: &mut Vec<PathBuf>,
    ) {
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
        if chain.len() >= MAX_EXTENDS {
            let why = format!("documents extend at most {MAX_EXTENDS} deep");
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
                self.push_document(Written { name: value, text, format, folder: &folder }, loader, chain);
                chain.pop();
            }
            Err(why) if why.contains("UTF-8") => self.add(
                "document/unreadable",
                format!("{} cannot be read", quote(value)),
                at,
                why,
                "save it as UTF-8, e.g. `iconv -f LATIN1 -t UTF-8 OLD >NEW`".to_owned(),
            ),
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

    fn no_such(&mut self, value: &str, at: &SourceLocation) {
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        let folder = value.chars().all(|c| c == '.');
        // Its name may have the ending of a document already.
        let file = match Format::of(Path::new(value)) {
            Some(_) => format!("./{value}"),
            None => format!("./{value}.toml"),
        };
        let fix = if value.is_empty() {
            format!("presets are {}; a file is written ./NAME.toml", names.join(", "))
        } else if folder {
            format!("name the file in it, e.g. {value}/policy.toml; presets are {}", names.join(", "))
        } else if let Some(near) = did_you_mean(value, names.iter().copied()) {
            format!("did you mean `{near}`? a file is written {file}")
        } else {
            format!("presets are {}; a file is written {file}", names.join(", "))
        };
        self.add(
            "preset/unknown",
            format!("{} is not a preset", quote(value)),
            at,
            "a name without a folder is that of a preset".to_owned(),
            fix,
        );
    }

    fn add(&mut self, id: &str, what: String, at: &SourceLocation, why: String, fix: String) {
        self.mistakes.add(Diagnostic { id: id.to_owned(), clause: None, what, at: at.clone(), why, fix });
    }

    fn preset(&mut self, name: &'static str, text: &str) {
        // Where nothing else was said `strict` says nothing new: it is what the defaults are.
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
        let index = u16::try_from(self.sources.len()).ok().filter(|_| self.sources.len() < MAX_SOURCES);
        let Some(index) = index else {
            let at = SourceLocation { name: name.to_owned(), line_column: None, excerpt: String::new() };
            let why = format!("more than {MAX_SOURCES} documents and flags are not meant");
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

    fn push_document(&mut self, written: Written<'_>, loader: &dyn Loader, chain: &mut Vec<PathBuf>) {
        let Written { name, text, format, folder } = written;
        let Some(mut tree) = self.tree(Kind::File, name, text, format, folder) else { return };
        let stem = Path::new(name).file_stem().and_then(|stem| stem.to_str()).unwrap_or(name).to_owned();
        self.version(&tree);
        self.schema_files(&mut tree, folder, loader);
        if let Some(extends) = tree.get("extends") {
            self.extends(extends, folder, loader, chain);
        }
        // Values that a later layer overrides are read as well: a mistake does not become right by being covered.
        self.name = self.reader().policy(&tree, &stem).name;
        self.documents.push(tree);
    }

    fn reader(&mut self) -> Reader<'_> {
        Reader { sources: &self.sources, caller: &self.caller, private: &self.private, mistakes: &mut self.mistakes }
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
                reader.note("version", SourceSpan { end: tree.place.start, ..tree.place }, fault);
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
            let at = source.place_of(item.place.range());
            self.referred(&value, folder, &at, loader, chain);
        }
    }

    /// `--allow-host` beside a `--net` that closes the network, which it stays: one of them is not meant.
    fn named_and_closed(&mut self) {
        let of = |name: &str| self.sources.iter().find(|source| source.kind == Kind::Flag && source.name == name);
        let (Some(host), Some(mode)) = (of("--allow-host"), of("--net").filter(|flag| flag.text != "--net allow"))
        else {
            return;
        };
        let (what, at) = (format!("`{}` beside `{}`", host.text, mode.text), host.place_of(0..host.text.len()));
        let why = "no host can be reached in this mode".to_owned();
        self.add("flag/allow-host", what, &at, why, "leave one of them out".to_owned());
    }

    /// The policy, or everything that is wrong with it.
    ///
    /// # Errors
    /// Every mistake of every layer, and of what they say together.
    pub fn finish(mut self) -> Result<Loaded, Diagnostics> {
        // `strict` needs no reading: what no layer says has its values already (`Policy::defaults`).
        let place = SourceSpan { source: u16::MAX, start: 0, end: 0 };
        let mut tree = Node { value: Value::Table(Vec::new()), place };
        for document in std::mem::take(&mut self.documents) {
            tools::lay(&mut tree, document);
        }
        // The name is that of the topmost document: those below speak of themselves.
        if let Value::Table(entries) = &mut tree.value {
            entries.retain(|(key, _)| key.name != "name");
        }
        for (usage, flag) in std::mem::take(&mut self.flags) {
            self.reader().policy(&flag, "flag");
            match usage {
                FlagUse::Merge => tools::lay(&mut tree, flag),
                FlagUse::Join(path) => join(&mut tree, flag, path),
            }
        }
        let name = std::mem::take(&mut self.name);
        let mut policy = self.reader().policy(&tree, &name);
        let (inputs, later) = (std::mem::take(&mut self.inputs), self.inputs_later);
        self.reader().given_inputs(&mut policy, &inputs, later);
        let shrunk = scale_tmpfs::shrink(&mut policy, &self.sources, &tree);
        if policy.net.mode != NetMode::Allow {
            self.named_and_closed();
        }
        let mut lints = Vec::new();
        if self.mistakes.list.is_empty() {
            check::together(&mut self.reader(), &tree, &policy, &mut lints);
        }
        if !self.mistakes.list.is_empty() {
            return Err(self.mistakes.in_order());
        }
        // Writing includes reading: shown twice, the second mount would cover the first.
        let crate::value::Fs { read, write, .. } = &mut policy.fs;
        read.retain(|grant| write.iter().all(|other| (&other.from, &other.to) != (&grant.from, &grant.to)));
        let at_given = tree.at("workspace.at").is_some();
        let mut origins = Origins { list: ClauseId::ALL.iter().map(|id| origin(&self.sources, &tree, *id)).collect() };
        scale_tmpfs::tell(&mut origins, &shrunk);
        if !inputs.is_empty() {
            origins.add(ClauseId::Inputs, "--input");
        }
        for lint in &mut lints {
            origins.of(lint.clause).clone_into(&mut lint.at);
        }
        let documents = crate::span::Documents { sources: self.sources, ..Default::default() };
        Ok(Loaded { policy, origins, lints, documents, at_given })
    }
}
