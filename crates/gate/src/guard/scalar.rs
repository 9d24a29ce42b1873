//! Values that need no parser of their own: one of a list, a number within bounds, a length, a pattern.

use policy::diagnostic::quote;
use policy::exact::Exact;
use policy::guards::{LengthGuard, NumberGuard};
use policy::span::Spanned;
use regex::{Regex, RegexBuilder};
use serde_json::Value as Json;

use super::{Flaws, Passed, kind_of, text};
use crate::blocked::Blocked;

/// Bytes that a compiled pattern may take.
const PATTERN_SIZE: usize = 1 << 18;
/// Choices that are named in a refusal.
const MAX_NAMED: usize = 12;

/// `kind = "enum"`
#[derive(Debug)]
pub(crate) struct Choices {
    values: Vec<Json>,
}

impl Choices {
    pub(crate) fn new(values: &[Json]) -> Self {
        Self { values: values.to_vec() }
    }

    pub(crate) fn pass(&self, value: &Json) -> Result<Passed, Blocked> {
        // What was written is passed on, so that `1.0` for `1` reaches no tool.
        if let Some(same) = self.values.iter().find(|known| same(known, value)) {
            return Ok(same.clone());
        }
        let what = format!("the value is {}", quote(&value.to_string()));
        let named: Vec<String> = self.values.iter().take(MAX_NAMED).map(|known| quote(&known.to_string())).collect();
        let more = if self.values.len() > MAX_NAMED { ", ..." } else { "" };
        let instead = format!("one of {}{more}", named.join(", "));
        Err(Blocked::new("tools.guard/enum", what, "it is none of the values that are allowed", instead))
    }
}

/// Equal in type and value; numbers as decimals.
fn same(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => matches!((Exact::of(a), Exact::of(b)), (Some(a), Some(b)) if a == b),
        (a, b) => a == b,
    }
}

/// `kind = "number"`
#[derive(Debug)]
pub(crate) struct Bounds {
    guard: NumberGuard,
}

impl Bounds {
    pub(crate) fn new(guard: &NumberGuard) -> Self {
        Self { guard: guard.clone() }
    }

    pub(crate) fn pass(&self, value: &Json) -> Result<Passed, Blocked> {
        let blocked = |what: String, why: &str| Blocked::new("tools.guard/number", what, why, self.instead());
        let Json::Number(number) = value else {
            let what = format!("the value is {}, not a number", kind_of(value));
            return Err(blocked(what, "text is not converted: `\"1\"` and `1` are different values"));
        };
        let shown = quote(&number.to_string());
        let Some(exact) = Exact::of(number) else {
            return Err(blocked(format!("{shown} is no decimal number"), "its size cannot be compared"));
        };
        if self.guard.integer && !exact.is_whole() {
            return Err(blocked(format!("the value is {shown}"), "it is not a whole number"));
        }
        if self.guard.min.as_ref().is_some_and(|min| exact < *min) {
            return Err(blocked(format!("the value is {shown}"), "it is too small"));
        }
        if self.guard.max.as_ref().is_some_and(|max| exact > *max) {
            return Err(blocked(format!("the value is {shown}"), "it is too large"));
        }
        Ok(value.clone())
    }

    fn instead(&self) -> String {
        let kind = if self.guard.integer { "a whole number" } else { "a number" };
        match (&self.guard.min, &self.guard.max) {
            (Some(min), Some(max)) => format!("{kind} from {min} to {max}"),
            (Some(min), None) => format!("{kind}, {min} or more"),
            (None, Some(max)) => format!("{kind}, {max} or less"),
            (None, None) => kind.to_owned(),
        }
    }
}

/// `kind = "length"`
#[derive(Debug)]
pub(crate) struct Lengths {
    guard: LengthGuard,
}

impl Lengths {
    pub(crate) fn new(guard: &LengthGuard) -> Self {
        Self { guard: guard.clone() }
    }

    pub(crate) fn pass(&self, value: &Json) -> Result<Passed, Blocked> {
        let (length, unit) = match value {
            Json::String(text) => (text.chars().count(), "characters"),
            Json::Array(items) => (items.len(), "elements"),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Object(_) => {
                let what = format!("the value is {}", kind_of(value));
                let why = "only text and lists have a length";
                return Err(Blocked::new("tools.guard/length", what, why, "give text or a list"));
            }
        };
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        let (short, long) =
            (self.guard.min.is_some_and(|min| length < min), self.guard.max.is_some_and(|max| length > max));
        if !short && !long {
            return Ok(value.clone());
        }
        let why = if short { "it is too short" } else { "it is too long" };
        let instead = match (self.guard.min, self.guard.max) {
            (Some(min), Some(max)) => format!("{min} to {max} {unit}"),
            (Some(min), None) => format!("{min} {unit} or more"),
            (None, Some(max)) => format!("{max} {unit} or fewer"),
            (None, None) => String::new(),
        };
        Err(Blocked::new("tools.guard/length", format!("the value has {length} {unit}"), why, instead))
    }
}

/// `kind = "pattern"`
#[derive(Debug)]
pub(crate) struct Whole {
    pattern: String,
    regex: Regex,
}

impl Whole {
    pub(crate) fn new(pattern: &Spanned<String>, flaws: &mut Flaws<'_>) -> Option<Self> {
        // The pattern alone first: `a)(b` must not become valid by the group around it. `\A` and `\z` are the ends of
        // the text; `$` would also match before a last newline in other engines.
        let build = |text: &str| RegexBuilder::new(text).size_limit(PATTERN_SIZE).build();
        let whole = build(&pattern.value).and_then(|_| build(&format!(r"\A(?:{})\z", pattern.value)));
        match whole {
            Ok(regex) => Some(Self { pattern: pattern.value.clone(), regex }),
            Err(error) => {
                let why = error.to_string().lines().last().unwrap_or_default().trim().to_owned();
                let what = format!("{} is not a regular expression", quote(&pattern.value));
                let fix = "look-around and back references do not exist here; escape literal characters with \\";
                flaws.note(pattern.at, "value/pattern", what, why, fix);
                None
            }
        }
    }

    pub(crate) fn pass(&self, value: &Json) -> Result<Passed, Blocked> {
        let given = text(value, "tools.guard/pattern", "the value")?;
        if self.regex.is_match(given) {
            return Ok(value.clone());
        }
        let instead = format!("text that matches {} from its first to its last character", quote(&self.pattern));
        let what = format!("the value is {}", quote(given));
        Err(Blocked::new("tools.guard/pattern", what, "it does not match as a whole", instead))
    }
}
