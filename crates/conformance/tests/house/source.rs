//! The files of the tree, and what of them is code.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text files of the tree with one of the endings, without what builds leave and what git keeps.
pub(crate) fn files(endings: &[&str]) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            if kind.is_dir() && name != "target" && name != ".git" && name != "node_modules" {
                folders.push(entry.path());
            } else if !kind.is_dir() && !kind.is_symlink() && endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

pub(crate) fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The source with comments, strings and character literals blanked, lines kept: what is left is code.
pub(crate) fn code_only(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = literal_or_comment(rest);
        let (taken, after) = rest.split_at(if length == 0 { first.len_utf8() } else { length });
        if length == 0 {
            code.push_str(taken);
        } else {
            code.extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        }
        rest = after;
    }
    code
}

/// The length of the comment, string or character literal that `text` begins with; 0 if it begins with code.
fn literal_or_comment(text: &str) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return text.find("*/").map_or(text.len(), |end| end + 2);
    }
    if let Some(after) = text.strip_prefix("r").filter(|after| after.starts_with(['"', '#'])) {
        let hashes = after.chars().take_while(|c| *c == '#').count();
        if after.chars().nth(hashes) == Some('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let opened = 1 + hashes + 1;
            return text.get(opened..).and_then(|t| t.find(&close)).map_or(text.len(), |at| opened + at + close.len());
        }
        return 0;
    }
    if text.starts_with('"') {
        return quoted(text, '"');
    }
    // A lifetime is no literal: a character literal closes after one character or one escape.
    let mut chars = text.chars();
    match (chars.next(), chars.next(), chars.next()) {
        (Some('\''), Some('\\'), _) => quoted(text, '\''),
        (Some('\''), Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 0,
    }
}

/// The length of a literal that opens and closes with `quote` and escapes with a backslash.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + 1;
        }
    }
    text.len()
}

pub(crate) fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Whether a file of code is a test's.
pub(crate) fn is_test(name: &str) -> bool {
    name.contains("/tests/") || name.ends_with("/tests.rs") || name.starts_with("fuzz/")
}

/// The part of a file of code before its own tests.
pub(crate) fn product(code: &str) -> &str {
    code.split("#[cfg(test)]\nmod ").next().unwrap_or_default()
}

/// The control of the tests beside: the reader of code sees through what is no code, and only through that.
#[test]
fn words_in_comments_and_strings_are_no_code() {
    let source = "a // unsafe\n\"unsafe \\\" unsafe\" r#\"unsafe\"# 'u' b /* unsafe */ &'c unsafe_code unsafe d";
    let code = code_only(source);
    assert_eq!(code.lines().count(), source.lines().count());
    assert_eq!(identifiers(&code).collect::<Vec<_>>(), ["a", "b", "c", "unsafe_code", "unsafe", "d"]);
}
