//! Words, pairs and variables, as a Dockerfile writes them.

use std::collections::BTreeMap;

/// What variables stand for.
pub(crate) type Scope = BTreeMap<String, String>;

/// `["a", "b"]`; `None` for what is no such list.
pub(super) fn json_words(text: &str) -> Option<Vec<String>> {
    if text.starts_with('[') { serde_json::from_str(text).ok() } else { None }
}

const OPEN: &str = "a quotation mark is never closed";

/// Words with quotation marks and backslashes taken off; variables are kept as they are written.
pub(super) fn split(text: &str) -> Result<Vec<String>, &'static str> {
    Ok(raw_words(text)?.iter().map(|word| unquoted(word)).collect())
}

/// `A=b C="d e"`, or in the old form `A everything else`.
pub(super) fn pairs(text: &str) -> Result<Vec<(String, String)>, &'static str> {
    const FORM: &str = "it is `NAME=VALUE ...`";
    let words = raw_words(text)?;
    let first = words.first().ok_or(FORM)?;
    if !first.contains('=') {
        let (name, value) = text.split_once(char::is_whitespace).ok_or(FORM)?;
        return Ok(vec![(name.to_owned(), value.trim().to_owned())]);
    }
    let pair = |word: &String| {
        let (name, value) = word.split_once('=').filter(|(name, _)| !name.is_empty())?;
        Some((unquoted(name), unquoted(value)))
    };
    words.iter().map(|word| pair(word).ok_or(FORM)).collect()
}

/// Words as they are written. What stands in single quotation marks holds no variables, so a `$` in them is escaped.
fn raw_words(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if quote.is_none() && c.is_whitespace() {
            words.extend(word.take());
            continue;
        }
        let here = word.get_or_insert_default();
        match (c, quote) {
            ('\\', None | Some('"')) => {
                here.push(c);
                here.extend(chars.next());
            }
            ('$', Some('\'')) => here.push_str("\\$"),
            (c, Some(open)) if c == open => {
                quote = None;
                here.push(c);
            }
            ('"' | '\'', None) => {
                quote = Some(c);
                here.push(c);
            }
            (c, _) => here.push(c),
        }
    }
    if quote.is_some() {
        return Err(OPEN);
    }
    words.extend(word);
    Ok(words)
}

/// Without quotation marks; `\$` stays for [`expand`], other backslashes go.
fn unquoted(word: &str) -> String {
    let mut out = String::new();
    let mut quote: Option<char> = None;
    let mut chars = word.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => match chars.next() {
                Some('$') => out.push_str("\\$"),
                Some(next) => out.push(next),
                None => out.push('\\'),
            },
            ('\\', Some(_)) => {
                out.push('\\');
                // Of a `$` in single quotation marks.
                if chars.as_str().starts_with('$') {
                    out.extend(chars.next());
                }
            }
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => quote = Some(c),
            (c, _) => out.push(c),
        }
    }
    out
}

/// Words within words.
const MAX_NESTED: usize = 16;
/// Longest value: no program could be given a longer one.
const MAX_VALUE: usize = 128 << 10;

/// `$NAME`, `${NAME}`, `${NAME:-otherwise}`, `${NAME:+instead}`, whose words are expanded as all else is; `\$` is a `$`.
///
/// # Errors
/// Another form, or one too large.
pub(crate) fn expand(text: &str, scope: &Scope) -> Result<String, &'static str> {
    let mut out = String::new();
    let rest = Expanding { scope, nested: 0 }.word(text, &mut out)?;
    if rest.is_empty() { Ok(out) } else { Err(FORM) }
}

const FORM: &str = "a variable is `$NAME`, `${NAME}`, `${NAME:-WORD}` or `${NAME:+WORD}`";

struct Expanding<'a> {
    scope: &'a Scope,
    /// Braces that are open.
    nested: usize,
}

impl Expanding<'_> {
    /// Up to the end, or to the brace that ends a word within one; what is left.
    fn word<'t>(&self, text: &'t str, out: &mut String) -> Result<&'t str, &'static str> {
        let mut rest = text;
        let ends: &[char] = if self.nested > 0 { &['$', '\\', '}'] } else { &['$', '\\'] };
        while let Some(at) = rest.find(ends) {
            let (before, from) = rest.split_at(at);
            out.push_str(before);
            if from.starts_with('}') {
                return Ok(from);
            }
            rest = if let Some(after) = from.strip_prefix("\\$") {
                out.push('$');
                after
            } else if let Some(after) = from.strip_prefix('\\') {
                out.push('\\');
                after
            } else if let Some(inner) = from.strip_prefix("${") {
                self.braces(inner, out)?
            } else {
                self.plain(from.strip_prefix('$').unwrap_or(from), out)
            };
            if out.len() > MAX_VALUE {
                return Err("a value is longer than 128 KiB");
            }
        }
        out.push_str(rest);
        Ok("")
    }

    fn value(&self, name: &str) -> &str {
        self.scope.get(name).map(String::as_str).unwrap_or_default()
    }

    /// Behind `$`.
    fn plain<'t>(&self, inner: &'t str, out: &mut String) -> &'t str {
        let (name, after) = name_of(inner);
        out.push_str(if name.is_empty() { "$" } else { self.value(name) });
        after
    }

    /// Behind `${`.
    fn braces<'t>(&self, inner: &'t str, out: &mut String) -> Result<&'t str, &'static str> {
        let (name, how) = name_of(inner);
        if name.is_empty() || self.nested >= MAX_NESTED {
            return Err(FORM);
        }
        let value = self.value(name);
        let (word, instead) = match (how.strip_prefix(":-"), how.strip_prefix(":+")) {
            (Some(word), _) => (word, false),
            (None, Some(word)) => (word, true),
            (None, None) => {
                out.push_str(value);
                return how.strip_prefix('}').ok_or(FORM);
            }
        };
        let mut other = String::new();
        let after = Self { nested: self.nested.saturating_add(1), ..*self }.word(word, &mut other)?;
        out.push_str(match (value.is_empty(), instead) {
            (true, true) => "",
            (true, false) | (false, true) => &other,
            (false, false) => value,
        });
        after.strip_prefix('}').ok_or(FORM)
    }
}

/// The name in front, and what follows it.
fn name_of(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    text.split_at(end)
}
