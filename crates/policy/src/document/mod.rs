//! What the user wrote, as one tree for TOML, YAML and JSON, where every key and value knows its place.
//!
//! The tree holds no meaning: which keys exist and which values fit is the business of `read`.

mod json;
mod toml;
mod yaml;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::diagnostic::{Diagnostic, SourceLocation, quote};

/// Documents larger than this are not policies.
pub const MAX_BYTES: usize = 1 << 20;
/// Deeper nesting than this is not a policy.
pub(crate) const MAX_DEPTH: usize = 32;
/// A table with more keys than this is not one of a policy.
pub(crate) const MAX_ENTRIES: usize = 2_000;
/// More values than this are not a policy.
pub(crate) const MAX_NODES: usize = 100_000;

/// The origin of what no layer says.
pub(crate) const DEFAULT_ORIGIN: &str = "preset strict";

/// The language of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// TOML 1.1.
    Toml,
    /// YAML 1.2, without aliases.
    Yaml,
    /// JSON.
    Json,
}

impl Format {
    /// The language that a file's name says.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        const ENDINGS: [(&str, Format); 4] =
            [("toml", Format::Toml), ("yaml", Format::Yaml), ("yml", Format::Yaml), ("json", Format::Json)];
        let ending = path.extension()?;
        ENDINGS.into_iter().find(|(known, _)| ending.eq_ignore_ascii_case(known)).map(|(_, format)| format)
    }
}

/// Which kind of thing a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Preset,
    File,
    Flag,
}

/// One layer's text.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) kind: Kind,
    pub(crate) format: Format,
    /// `strict`, `policy.toml`, `--memory`.
    pub(crate) name: String,
    pub(crate) text: String,
    /// The folder that relative paths start from.
    pub(crate) base: PathBuf,
}

/// A range of bytes in a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceSpan {
    pub(crate) source: u16,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl SourceSpan {
    pub(crate) fn range(self) -> std::ops::Range<usize> {
        let offset = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
        offset(self.start)..offset(self.end)
    }

    pub(crate) fn new(source: u16, range: std::ops::Range<usize>) -> Self {
        let at = |offset: usize| u32::try_from(offset).unwrap_or(u32::MAX);
        Self { source, start: at(range.start), end: at(range.end) }
    }
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) place: SourceSpan,
}

/// A key and its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) place: SourceSpan,
}

/// What all three languages can say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    /// The text of a flag: the clause decides whether it is a number, a word or a truth value.
    Bare(String),
    Array(Vec<Node>),
    Table(Vec<(Key, Node)>),
}

impl Value {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Integer(_) => "a whole number",
            Self::Float(_) => "a decimal number",
            Self::Text(_) => "text",
            Self::Bare(text) => looks_like(text),
            Self::Array(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// What the value of a flag looks like, which is a text until its clause reads it.
fn looks_like(text: &str) -> &'static str {
    let digit = text.trim_start_matches(['-', '+']).starts_with(|c: char| c.is_ascii_digit());
    if text == "true" || text == "false" {
        "true or false"
    } else if text.parse::<i128>().is_ok() {
        "a whole number"
    } else if digit && text.parse::<f64>().is_ok() {
        // Not `inf` and `nan`.
        "a decimal number"
    } else {
        "text"
    }
}

impl Node {
    pub(crate) fn entries(&self) -> &[(Key, Self)] {
        if let Value::Table(entries) = &self.value { entries } else { &[] }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        self.entries().iter().find(|(key, _)| key.name == name).map(|(_, node)| node)
    }

    /// The value below a dotted path.
    pub(crate) fn at(&self, path: &str) -> Option<&Self> {
        path.split('.').try_fold(self, |node, name| node.get(name))
    }
}

/// A mistake while parsing, before it knows the name of its source.
pub(crate) struct ParseError {
    pub(crate) range: std::ops::Range<usize>,
    pub(crate) id: &'static str,
    pub(crate) what: String,
    pub(crate) why: String,
    pub(crate) fix: String,
}

impl ParseError {
    pub(crate) fn duplicate(range: std::ops::Range<usize>, name: &str) -> Self {
        Self {
            range,
            id: "document/duplicate",
            what: format!("{} is written twice", quote(name)),
            why: "which of the two is meant cannot be told".to_owned(),
            fix: "keep one".to_owned(),
        }
    }

    pub(crate) fn too_deep(range: std::ops::Range<usize>) -> Self {
        Self {
            range,
            id: "document/depth",
            what: format!("values are nested more than {MAX_DEPTH} deep"),
            why: "no policy needs that".to_owned(),
            fix: "flatten it".to_owned(),
        }
    }

    pub(crate) fn too_many(range: std::ops::Range<usize>) -> Self {
        Self {
            range,
            id: "document/size",
            what: format!("the document has more than {MAX_NODES} values"),
            why: "no policy needs that".to_owned(),
            fix: "divide it, or use globs".to_owned(),
        }
    }

    pub(crate) fn syntax(range: std::ops::Range<usize>, why: impl Into<String>, fix: &str) -> Self {
        let what = "the document cannot be read".to_owned();
        Self { range, id: "document/syntax", what, why: why.into(), fix: fix.to_owned() }
    }
}

/// Parses one source into a tree, whatever its root is.
pub(crate) fn parse_flaws(index: u16, source: &Source) -> (Option<Node>, Vec<ParseError>) {
    let text = source.text.as_str();
    if let Some(flaw) = unfit(text) {
        return (None, vec![flaw]);
    }
    match source.format {
        Format::Toml => toml::parse(index, text),
        Format::Yaml => yaml::parse(index, text),
        Format::Json => json::parse(index, text),
    }
}

/// Parses one source into a tree whose root is a table; a partial tree may come with mistakes.
pub(crate) fn parse(index: u16, source: &Source) -> (Option<Node>, Vec<Diagnostic>) {
    let (node, flaws) = parse_flaws(index, source);
    let mut mistakes: Vec<Diagnostic> = flaws.into_iter().map(|flaw| source.mistake(flaw)).collect();
    let root = match node {
        Some(node) if matches!(node.value, Value::Table(_)) => Some(node),
        Some(node) if matches!(node.value, Value::Null) => {
            Some(Node { value: Value::Table(Vec::new()), place: node.place })
        }
        Some(node) => {
            let why = format!("a policy is a table of clauses, and this is {}", node.value.kind());
            let fix = "start with `version = 1` (TOML), `version: 1` (YAML) or `{\"version\": 1}` (JSON)";
            mistakes.push(source.mistake(ParseError::syntax(node.place.range(), why, fix)));
            None
        }
        None => None,
    };
    (root, mistakes)
}

/// Where a value was written; what is in no source has a default.
pub(crate) fn locate(sources: &[Source], place: SourceSpan) -> SourceLocation {
    match sources.get(usize::from(place.source)) {
        Some(source) => source.place_of(place.range()),
        None => SourceLocation { name: DEFAULT_ORIGIN.to_owned(), line_column: None, excerpt: String::new() },
    }
}

/// The place of what a JSON Pointer names below the value at a place: for messages, so the source is parsed once more.
pub(crate) fn pointed(place: SourceSpan, source: &Source, pointer: &str) -> Option<SourceSpan> {
    let (tree, _) = parse_flaws(place.source, source);
    let node = standing_at(tree.as_ref()?, place)?.clone();
    let (node, text) = match &node.value {
        Value::Text(text) | Value::Bare(text) => {
            let inner = Source { kind: Kind::File, format: Format::Json, text: text.clone(), ..source.clone() };
            (parse_flaws(place.source, &inner).0?, Some(text.clone()))
        }
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Array(_) | Value::Table(_) => {
            (node, None)
        }
    };
    let mut at = &node;
    for part in pointer.split('/').skip(1) {
        let name = part.replace("~1", "/").replace("~0", "~");
        let below = match &at.value {
            Value::Array(items) => name.parse::<usize>().ok().and_then(|index| items.get(index)),
            Value::Null
            | Value::Bool(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::Bare(_)
            | Value::Table(_) => at.get(&name),
        };
        match below {
            Some(below) => at = below,
            None => break,
        }
    }
    match text {
        None => Some(at.place),
        Some(text) => source.inside(place, &text, at.place.range()),
    }
}

fn standing_at(node: &Node, place: SourceSpan) -> Option<&Node> {
    if node.place == place {
        return Some(node);
    }
    match &node.value {
        Value::Table(entries) => entries.iter().find_map(|(_, node)| standing_at(node, place)),
        Value::Array(items) => items.iter().find_map(|node| standing_at(node, place)),
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) | Value::Bare(_) => None,
    }
}

fn unfit(text: &str) -> Option<ParseError> {
    if text.len() > MAX_BYTES {
        let what = format!("the document has {} bytes", text.len());
        let why = format!("policies end at {MAX_BYTES} bytes");
        return Some(ParseError {
            range: 0..0,
            id: "document/size",
            what,
            why,
            fix: "divide it, or use globs".to_owned(),
        });
    }
    let at = text.find('\0')?;
    Some(ParseError::syntax(at..at + 1, "it has a NUL byte", "save it as plain text"))
}

impl Source {
    pub(crate) fn mistake(&self, flaw: ParseError) -> Diagnostic {
        let ParseError { range, id, what, why, fix } = flaw;
        let at = self.place_of(range);
        Diagnostic { id: id.to_owned(), clause: None, what, at, why, fix }
    }

    /// The place of a part of a text, if it is written as it reads.
    pub(crate) fn inside(&self, place: SourceSpan, text: &str, range: std::ops::Range<usize>) -> Option<SourceSpan> {
        let whole = place.range();
        let start = whole.start.checked_add(self.text.get(whole)?.find(text)?)?;
        let end = range.end.min(text.len());
        Some(SourceSpan::new(place.source, start.checked_add(range.start.min(end))?..start.checked_add(end)?))
    }

    /// What stands before a place, and where its line begins.
    fn before(&self, at: usize) -> (&str, usize) {
        let before = self.text.get(..floor_boundary(&self.text, at)).unwrap_or_default();
        (before, before.rfind('\n').map_or(0, |at| at + 1))
    }

    /// The line in which a range begins, or the flag.
    pub(crate) fn line_of(&self, range: &std::ops::Range<usize>) -> &str {
        match self.kind {
            Kind::Flag => &self.text,
            Kind::Preset | Kind::File => {
                let (_, line_start) = self.before(range.start);
                self.text.get(line_start..).unwrap_or_default().lines().next().unwrap_or_default()
            }
        }
    }

    /// Where a range lies, in the words of this kind of source.
    pub(crate) fn place_of(&self, range: std::ops::Range<usize>) -> SourceLocation {
        let excerpt = excerpt(self.line_of(&range));
        match self.kind {
            Kind::Flag => SourceLocation { name: self.name.clone(), line_column: None, excerpt },
            Kind::Preset | Kind::File => {
                let (before, line_start) = self.before(range.start);
                let line = before.matches('\n').count() + 1;
                let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
                let name = match self.kind {
                    Kind::Preset => format!("preset {}", self.name),
                    Kind::File | Kind::Flag => self.name.clone(),
                };
                SourceLocation { name, line_column: Some((line, column)), excerpt }
            }
        }
    }

    /// The origin of a value, as in `policy show`.
    pub(crate) fn origin(&self, place: SourceSpan) -> String {
        match self.kind {
            Kind::Preset => format!("preset {}", self.name),
            Kind::Flag => self.name.clone(),
            Kind::File => self.place_of(place.range()).to_string(),
        }
    }
}

fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// One line of the document, without its ends, cut at a length that still fits a terminal.
fn excerpt(line: &str) -> String {
    let mut out = String::new();
    for c in crate::diagnostic::without_login(line.trim()).chars().take(100) {
        if c.is_control() || crate::diagnostic::is_invisible(c) {
            // Writing to a `String` cannot fail.
            let written = write!(out, "\\u{{{:x}}}", u32::from(c));
            debug_assert!(written.is_ok());
        } else {
            out.push(c);
        }
    }
    out
}
