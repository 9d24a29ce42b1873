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

/// `$NAME`, `${NAME}`, `${NAME:-otherwise}`, `${NAME:+instead}`; `\$` is a `$`.
///
/// # Errors
/// Another form.
pub(crate) fn expand(text: &str, scope: &Scope) -> Result<String, &'static str> {
    const FORM: &str = "a variable is `$NAME`, `${NAME}`, `${NAME:-WORD}` or `${NAME:+WORD}`";
    let named = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['$', '\\']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        if let Some(after) = from.strip_prefix("\\$") {
            out.push('$');
            rest = after;
        } else if let Some(after) = from.strip_prefix('\\') {
            out.push('\\');
            rest = after;
        } else if let Some(inner) = from.strip_prefix("${") {
            let (inner, after) = inner.split_once('}').ok_or(FORM)?;
            let end = inner.find(|c| !named(c)).unwrap_or(inner.len());
            let (name, how) = inner.split_at(end);
            let value = scope.get(name).map(String::as_str).unwrap_or_default();
            if name.is_empty() {
                return Err(FORM);
            }
            match (how, how.strip_prefix(":-"), how.strip_prefix(":+")) {
                ("", _, _) => out.push_str(value),
                (_, Some(otherwise), _) => out.push_str(if value.is_empty() { otherwise } else { value }),
                (_, _, Some(instead)) => out.push_str(if value.is_empty() { "" } else { instead }),
                (_, None, None) => return Err(FORM),
            }
            rest = after;
        } else {
            let inner = from.strip_prefix('$').unwrap_or(from);
            let end = inner.find(|c| !named(c)).unwrap_or(inner.len());
            let (name, after) = inner.split_at(end);
            if name.is_empty() {
                out.push('$');
            } else {
                out.push_str(scope.get(name).map(String::as_str).unwrap_or_default());
            }
            rest = after;
        }
    }
    out.push_str(rest);
    Ok(out)
}
