//! What is wrong with a policy, in four parts: what, where, why, fix. All of them at once.

use std::fmt;

use serde_json::{Value, json};

use crate::clause::ClauseId;

/// Where a mistake was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLocation {
    /// The file's name, `preset strict`, or the flag.
    pub name: String,
    /// Line and column, both from 1, in characters; flags have none.
    pub line_column: Option<(usize, usize)>,
    /// The line, or the flag with its value.
    pub excerpt: String,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line_column {
            Some((line, column)) => write!(f, "{}:{line}:{column}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Stable id, e.g. `unit/missing`.
    pub id: String,
    /// The clause, where it is about one.
    pub clause: Option<ClauseId>,
    /// What is wrong.
    pub what: String,
    /// Where it was written.
    pub at: SourceLocation,
    /// Why it is wrong.
    pub why: String,
    /// What to write instead.
    pub fix: String,
}

impl Diagnostic {
    /// `{id, what, where, why, fix}`, and the clause where it is about one.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let clause = self.clause.map(ClauseId::path);
        json!({
            "id": self.id, "clause": clause, "what": self.what, "where": self.at.to_string(), "why": self.why, "fix": self.fix,
        })
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", Printable(&self.what))?;
        let gap = if self.at.excerpt.is_empty() { "" } else { "   " };
        writeln!(f, "  --> {}{gap}{}", Printable(&self.at.to_string()), Printable(&without_login(&self.at.excerpt)))?;
        writeln!(f, "  why: {}", Printable(&self.why))?;
        write!(f, "  fix: {}", Printable(&self.fix))
    }
}

/// A part of a message, whoever wrote it: nothing in it acts on a terminal or hides.
struct Printable<'a>(&'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| {
            if c.is_control() || is_invisible(c) { write!(f, "{}", c.escape_unicode()) } else { write!(f, "{c}") }
        })
    }
}

/// Every mistake of a policy; never empty when returned as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    /// In the order of the documents.
    pub list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// The same shape as a refusal: nothing ran, exit code 126.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({ "refused": self.list.iter().map(Diagnostic::to_json).collect::<Vec<_>>() })
    }

    /// Puts those of one document together, from its top to its end.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        let names: Vec<String> = self.list.iter().map(|mistake| mistake.at.name.clone()).collect();
        let first = |mistake: &Diagnostic| names.iter().position(|name| *name == mistake.at.name);
        self.list.sort_by_key(|mistake| (first(mistake), mistake.at.line_column));
        self
    }

    /// Adds one, unless it is known: overridden values are looked at twice.
    pub fn add(&mut self, mistake: Diagnostic) {
        if !self.list.contains(&mistake) {
            self.list.push(mistake);
        }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.list.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            write!(f, "{mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// Text of a user in a message: in backticks, control characters escaped, cut at 200 bytes.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = String::from("`");
    for c in text.chars() {
        if out.len() > 200 {
            out.push_str("...");
            break;
        }
        if c.is_control() || is_invisible(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out.push('`');
    out
}

/// A text without what stands before `@` in URLs: a message and a record repeat no password.
#[must_use]
pub fn without_login(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        out.push_str(before);
        out.push_str("://");
        let end = after.find(['"', '\'', '`', ' ', ',', '\n']).unwrap_or(after.len());
        let (url, more) = after.split_at_checked(end).unwrap_or((after, ""));
        match url.rsplit_once('@') {
            Some((_, place)) => {
                out.push_str("***@");
                out.push_str(place);
            }
            None => out.push_str(url),
        }
        rest = more;
    }
    out.push_str(rest);
    out
}

/// The place that a text names, of which a login may be written before an `@`: in a URL or without a scheme, and of any characters.
#[must_use]
pub fn behind_login(text: &str) -> String {
    text.rsplit_once('@').map_or_else(|| text.to_owned(), |(_, place)| format!("***@{place}"))
}

/// Marks that turn the direction of text or cannot be seen: a message must show what is there.
pub(crate) const fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Longest word that may be a misspelt name.
const MAX_MISSPELT: usize = 256;

/// The known word that is meant by an unknown one, if one is near.
#[must_use]
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The comparison costs the product of both lengths, and the word may be a caller's: nothing so long is a slip of the pen.
    if word.len() > MAX_MISSPELT {
        return None;
    }
    let lower = word.to_lowercase().replace('-', "_");
    let near = |candidate: &'a str| {
        let likeness = strsim::jaro_winkler(&lower, &candidate.replace('-', "_"));
        (likeness > 0.82).then_some((candidate, likeness))
    };
    let best = known.into_iter().filter_map(near).max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    Some(best.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_the_at_of_a_url_is_not_repeated() {
        for (text, shown) in [
            ("proxy = \"http://u:p%40w@proxy:3128\", x", "proxy = \"http://***@proxy:3128\", x"),
            ("http://u:a@b@proxy:1 http://other:2", "http://***@proxy:1 http://other:2"),
            ("mail a@b.example", "mail a@b.example"),
            ("://@", "://***@"),
        ] {
            assert_eq!(without_login(text), shown);
        }
    }

    #[test]
    fn a_near_word_is_found_and_a_long_one_costs_nothing() {
        let known: Vec<String> = (0..2000).map(|n| format!("argument_{n}_of_the_tool")).collect();
        let names = || known.iter().map(String::as_str);
        assert_eq!(did_you_mean("argument_7_of_the_tol", names()), Some("argument_7_of_the_tool"));
        let compared = std::cell::Cell::new(0);
        let counted = || names().inspect(|_| compared.set(compared.get() + 1));
        assert_eq!(did_you_mean(&"argument_7".repeat(100_000), counted()), None);
        assert_eq!(compared.get(), 0, "each comparison costs the product of both lengths");
        assert!(did_you_mean("argument_7_of_the_tol", counted()).is_some());
        assert_eq!(compared.get(), 2000, "the count counts");
    }
}
