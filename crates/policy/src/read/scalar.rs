//! Scalars, words, lists and quantities.

use regex::{Regex, RegexBuilder};

use super::{Reader, fault, list_words};
use crate::diagnostic::{did_you_mean, quote};
use crate::document::{Kind, Node, SourceSpan, Value};
use crate::units::{Bytes, BytesPerSecond, Millis, UnitError};

/// The text that says that a limit is not demanded.
pub(crate) const NO_LIMIT: &str = "none";

/// The smallest value that a clause can mean, and why.
#[derive(Clone, Copy)]
pub(crate) struct Least {
    pub(crate) value: u64,
    pub(crate) why: &'static str,
    pub(crate) example: &'static str,
}

impl Reader<'_> {
    pub(crate) fn text(&mut self, path: &str, node: &Node) -> Option<String> {
        match &node.value {
            Value::Text(text) | Value::Bare(text) if text.contains('\0') => {
                let what = format!("`{path}` has a NUL character");
                self.note(path, node.place, fault("value/nul", what, "the kernel ends every text there", "remove it"));
                None
            }
            Value::Text(text) | Value::Bare(text) => Some(text.clone()),
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Array(_) | Value::Table(_) => {
                self.wrong_type(path, node, "text", "write one text in quotes");
                None
            }
        }
    }

    /// A text of which each is right: what was written without quotes is meant, and only lacks them.
    pub(crate) fn any_text(&mut self, path: &str, node: &Node) -> Option<String> {
        if let Value::Bool(_) | Value::Integer(_) | Value::Float(_) = &node.value {
            let fix = format!("write it in quotes: \"{}\"", self.written(node.place));
            self.wrong_type(path, node, "text", fix);
            return None;
        }
        self.text(path, node)
    }

    /// The value as it stands in the document.
    pub(crate) fn written(&self, place: SourceSpan) -> &str {
        let text = self.source(place).map_or("", |source| source.text.as_str());
        text.get(place.range()).unwrap_or_default()
    }

    pub(crate) fn truth(&mut self, path: &str, node: &Node) -> Option<bool> {
        match &node.value {
            Value::Bool(on) => Some(*on),
            Value::Bare(text) if text == "true" => Some(true),
            Value::Bare(text) if text == "false" => Some(false),
            Value::Text(text) | Value::Bare(text) => {
                let meant = match text.to_ascii_lowercase().as_str() {
                    "yes" | "on" | "1" | "true" => "true",
                    "no" | "off" | "0" | "false" => "false",
                    _ => "true or false",
                };
                self.wrong_type(path, node, "true or false", format!("write {meant}, without quotes"));
                None
            }
            Value::Null | Value::Integer(_) | Value::Float(_) | Value::Array(_) | Value::Table(_) => {
                self.wrong_type(path, node, "true or false", "write true or false");
                None
            }
        }
    }

    pub(crate) fn items<'n>(&mut self, path: &str, node: &'n Node) -> Option<&'n [Node]> {
        match &node.value {
            Value::Array(items) => Some(items),
            // A flag that names one thing means a list of one.
            Value::Bare(_) => Some(std::slice::from_ref(node)),
            Value::Text(_) | Value::Table(_)
                if self.source(node.place).is_some_and(|source| source.kind == Kind::Flag) =>
            {
                Some(std::slice::from_ref(node))
            }
            // Its only item is judged too, so that all is told at once.
            Value::Text(text) => {
                let fix = format!("write [{text:?}]");
                self.wrong_type(path, node, "a list", fix);
                Some(std::slice::from_ref(node))
            }
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Table(_) => {
                self.wrong_type(path, node, "a list", "write it as [ ... ]");
                None
            }
        }
    }

    pub(crate) fn keyword<T: Copy>(&mut self, path: &str, node: &Node, words: &[(&str, T)]) -> Option<T> {
        if !matches!(&node.value, Value::Text(_) | Value::Bare(_)) {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong_type(path, node, "a word", format!("write one of {}", list_words(&known)));
            return None;
        }
        let text = self.text(path, node)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let fix = match did_you_mean(&text, known.iter().copied()) {
            Some(near) => format!("did you mean {}?", self.suggest(path, node.place, near)),
            None => format!("write one of {}", list_words(&known)),
        };
        let why = format!("it is one of {}", list_words(&known));
        self.note(
            path,
            node.place,
            fault("value/word", format!("{} is not a value of `{path}`", quote(&text)), why, fix),
        );
        None
    }

    pub(crate) fn whole(&mut self, path: &str, node: &Node, from: u64, to: u64) -> Option<u64> {
        let number = match &node.value {
            Value::Integer(number) => Some(i128::from(*number)),
            Value::Bare(text) => text.parse::<i128>().ok(),
            Value::Null | Value::Bool(_) | Value::Float(_) | Value::Text(_) | Value::Array(_) | Value::Table(_) => None,
        };
        let Some(number) = number else {
            let fits = |number: u64| (from..=to).contains(&number);
            let quoted = matches!(&node.value, Value::Text(text) if text.parse::<u64>().is_ok_and(fits));
            let fix = if quoted {
                "remove the quotes".to_owned()
            } else {
                format!("write a number from {from} to {to}, without a unit")
            };
            self.wrong_type(path, node, "a whole number", fix);
            return None;
        };
        if let Ok(value) = u64::try_from(number)
            && (from..=to).contains(&value)
        {
            return Some(value);
        }
        let what = format!("`{path}` is {number}");
        let why = if number <= 0 && from > 0 {
            "zero or less would let nothing run; it is not a way to say unlimited".to_owned()
        } else {
            format!("it can be {from} to {to}")
        };
        self.note(path, node.place, fault("value/range", what, why, format!("write a number from {from} to {to}")));
        None
    }

    pub(crate) fn small(&mut self, path: &str, node: &Node, from: u32, to: u32) -> Option<u32> {
        self.whole(path, node, u64::from(from), u64::from(to)).and_then(|number| u32::try_from(number).ok())
    }

    pub(crate) fn size(&mut self, path: &str, node: &Node, least: Least) -> Option<Bytes> {
        self.quantity(path, node, least, Bytes::parse, |size| size.0)
    }

    pub(crate) fn time(&mut self, path: &str, node: &Node, least: Least) -> Option<Millis> {
        self.quantity(path, node, least, Millis::parse, |time| time.0)
    }

    pub(crate) fn rate(&mut self, path: &str, node: &Node, least: Least) -> Option<BytesPerSecond> {
        self.quantity(path, node, least, BytesPerSecond::parse, |rate| rate.0)
    }

    fn quantity<T: Copy + std::fmt::Display>(
        &mut self,
        path: &str,
        node: &Node,
        least: Least,
        parse: fn(&str) -> Result<T, UnitError>,
        amount: fn(&T) -> u64,
    ) -> Option<T> {
        let text = match &node.value {
            Value::Text(text) | Value::Bare(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Table(_) => {
                self.wrong_type(path, node, "a quantity with a unit", self.suggest(path, node.place, least.example));
                return None;
            }
        };
        match parse(&text) {
            Ok(value) if amount(&value) >= least.value => Some(value),
            Ok(value) => {
                let fix = format!("for example {}", self.suggest(path, node.place, least.example));
                self.note(path, node.place, fault("value/range", format!("`{path}` is {value}"), least.why, fix));
                None
            }
            // To write `0B` would only lead to the next refusal.
            Err(error) if error.id == "unit/missing" && least.value > 0 && text.trim() == "0" => {
                let fix = format!("for example {}", self.suggest(path, node.place, least.example));
                self.note(path, node.place, fault("value/range", format!("`{path}` is 0"), least.why, fix));
                None
            }
            Err(error) => {
                let fits = |text: &str| parse(text).is_ok_and(|value| amount(&value) >= least.value);
                let fix = match in_bytes(&text).into_iter().chain([error.fix.clone()]).find(|fix| fits(fix)) {
                    Some(fix) => self.suggest(path, node.place, &fix),
                    None => format!("for example {}", self.suggest(path, node.place, least.example)),
                };
                self.unit_fault(path, node.place, &text, error, fix);
                None
            }
        }
    }

    fn unit_fault(&mut self, path: &str, place: SourceSpan, text: &str, error: UnitError, fix: String) {
        let what = match error.id {
            "unit/missing" => format!("`{path}` needs a unit"),
            "unit/unknown" => format!("`{path}` has an unknown unit: {}", quote(text)),
            "unit/negative" => format!("`{path}` is negative: {}", quote(text)),
            "unit/overflow" => format!("`{path}` is absurdly large: {}", quote(text)),
            _ => format!("`{path}` is not a quantity: {}", quote(text)),
        };
        self.note(path, place, fault(error.id, what, error.why, fix));
    }

    /// A limit that can be lifted with `none`.
    pub(crate) fn limit<T>(
        &mut self,
        path: &str,
        node: &Node,
        read: impl FnOnce(&mut Self, &str, &Node) -> Option<T>,
    ) -> Option<Option<T>> {
        match &node.value {
            Value::Text(text) | Value::Bare(text) if text == NO_LIMIT => Some(None),
            Value::Text(text) | Value::Bare(text)
                if matches!(text.as_str(), "unlimited" | "infinity" | "inf" | "max" | "off") =>
            {
                let fix = self.suggest(path, node.place, NO_LIMIT);
                let what = format!("`{path}` is {}", quote(text));
                self.note(path, node.place, fault("value/word", what, "no limit is spelled `none`", fix));
                None
            }
            Value::Null
            | Value::Bool(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::Bare(_)
            | Value::Array(_)
            | Value::Table(_) => read(self, path, node).map(Some),
        }
    }

    /// Compiles a pattern that must match a whole value; linear time, bounded size.
    pub(crate) fn pattern(&mut self, path: &str, node: &Node) -> Option<String> {
        let text = self.any_text(path, node)?;
        match compile(&text) {
            Ok(_) => Some(text),
            Err(error) => {
                let why = error
                    .to_string()
                    .lines()
                    .last()
                    .unwrap_or_default()
                    .trim()
                    .trim_start_matches("error: ")
                    .to_owned();
                let what = format!("{} is not a regular expression", quote(&text));
                let fix = "look-around and back references do not exist here; escape literal characters with \\";
                self.note(path, node.place, fault("value/pattern", what, why, fix));
                None
            }
        }
    }
}

/// How a number that was written without a unit says bytes, as a size and as a rate. Where the clause can mean so few, no fix
/// offers more: `1000` of output is rather 1000 bytes than 1000 MiB. Of a memory of `512` bytes nothing could run.
fn in_bytes(text: &str) -> Vec<String> {
    let number = text.trim();
    let is_bare = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_bare { vec![format!("{number}B"), format!("{number}B/s")] } else { Vec::new() }
}

/// A pattern against the whole of a value.
pub(crate) fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    // The pattern alone first: `a)(b` must not become valid by the group around it.
    RegexBuilder::new(pattern).size_limit(1 << 18).build()?;
    RegexBuilder::new(&format!(r"\A(?:{pattern})\z")).size_limit(1 << 18).build()
}
