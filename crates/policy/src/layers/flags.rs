//! Flags: small trees that go on top of the documents.

use super::tree::{typed, wrap};
use super::{FlagUse, Layers, MAX_SOURCES};
use crate::clause::ClauseId;
use crate::diagnostic::{SourceLocation, did_you_mean, quote};
use crate::document::{Format, Key, Kind, Node, Source, SourceSpan, Value};
use crate::names::is_env_name;
use crate::rows;

impl Layers {
    /// `--set CLAUSE=VALUE`. Lists, tables and quoted texts as in TOML, everything else as it is.
    pub fn set(&mut self, assignment: &str) {
        let written = format!("--set {assignment}");
        let Some((path, value)) = assignment.split_once('=') else {
            let clause = crate::read::clause_of(assignment.trim())
                .map_or("limits.files=10000".to_owned(), |_known| format!("{}=VALUE", assignment.trim()));
            let at = SourceLocation { name: "--set".to_owned(), line_column: None, excerpt: written };
            return self.add(
                "flag/set",
                format!("{} has no `=`", quote(assignment)),
                &at,
                "it assigns a value to a clause".to_owned(),
                format!("write --set {clause}"),
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
        let at = SourceLocation { name: "--set".to_owned(), line_column: None, excerpt: written.to_owned() };
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
                self.flag_tree("net.allow", value, name, written, FlagUse::Join("net.allow"));
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
            // A flag without a value: the terminal is asked for.
            "--tty" => self.flag_tree("process.tty", value, name, "--tty".to_owned(), FlagUse::Merge),
            "--prefer" => self.flag_tree("prefer", value, name, written, FlagUse::Join("prefer")),
            _ => match rows::row_of_flag(name) {
                Some(row) => self.flag_tree(row.clause.path(), value, name, written, FlagUse::Merge),
                None => {
                    let at = SourceLocation { name: name.to_owned(), line_column: None, excerpt: written };
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
            let at = SourceLocation { name: "--env".to_owned(), line_column: None, excerpt: written };
            let name = if is_env_name(value) { value } else { "NAME" };
            return self.add(
                "flag/env",
                format!("{} has no `=`", name_or("what `--env` takes", value)),
                &at,
                "`--env` sets a value".to_owned(),
                format!("write --env {name}=VALUE, or --pass-env {name} to take the caller's"),
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
        let with_mode = value.rsplit_once(':').filter(|(path, mode)| modes.contains(mode) && !path.is_empty());
        let (path, mode) = with_mode.unwrap_or((value, "overlay"));
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
                let at = SourceLocation { name: "--input".to_owned(), line_column: None, excerpt: written };
                let name = if is_env_name(value) { value } else { "NAME" };
                self.add(
                    "flag/input",
                    format!("{} has no `=`", name_or("what `--input` takes", value)),
                    &at,
                    "an input is a name and a value".to_owned(),
                    format!("write --input {name}=VALUE"),
                );
            }
        }
    }

    fn flag_source(&mut self, name: &str, written: String) -> Option<u16> {
        let base = self.caller.dir.clone();
        let index = u16::try_from(self.sources.len()).ok().filter(|_| self.sources.len() < MAX_SOURCES);
        if index.is_none() {
            let at = SourceLocation { name: name.to_owned(), line_column: None, excerpt: String::new() };
            let why = format!("more than {MAX_SOURCES} documents and flags are not meant");
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
    fn whole(&self, source: u16) -> SourceSpan {
        let text = self.sources.get(usize::from(source)).map_or("", |source| source.text.as_str());
        let start = text.find([' ', '=']).map_or(0, |at| at + 1);
        SourceSpan::new(source, start..text.len())
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
}

/// What was meant for a name, if it can be one: anything else may be a secret, and a refusal is recorded.
fn name_or(otherwise: &str, value: &str) -> String {
    if is_env_name(value) { quote(value) } else { otherwise.to_owned() }
}
