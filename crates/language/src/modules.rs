//! Which modules a Python program imports, by the tokens that its parser saw.
//!
//! `import` is a word of the language that can mean nothing else, and the interpreter has no other way to a module: it has
//! neither `__import__` nor `eval`, `exec` or `importlib`.

use ruff_python_ast::token::TokenKind;
use ruff_text_size::Ranged as _;

/// The first part of every module that is imported, in order; a relative import is `.`. `None` where it is no Python.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "every other token is a part of a statement, whatever tokens there will be"
)]
pub(crate) fn imported(text: &str) -> Option<Vec<String>> {
    let parsed = ruff_python_parser::parse_module(text).ok()?;
    let mut found = Vec::new();
    // The tokens of one statement.
    let mut statement: Vec<(TokenKind, &str)> = Vec::new();
    for token in parsed.tokens() {
        match token.kind() {
            TokenKind::Newline | TokenKind::Semi | TokenKind::EndOfFile => {
                found.extend(of_statement(&statement));
                statement.clear();
            }
            TokenKind::Comment | TokenKind::NonLogicalNewline | TokenKind::Indent | TokenKind::Dedent => {}
            kind => statement.push((kind, text.get(std::ops::Range::<usize>::from(token.range())).unwrap_or_default())),
        }
    }
    found.extend(of_statement(&statement));
    Some(found)
}

fn of_statement(tokens: &[(TokenKind, &str)]) -> Vec<String> {
    let Some(at) = tokens.iter().position(|(kind, _)| *kind == TokenKind::Import) else { return Vec::new() };
    let (before, after) = tokens.split_at(at);
    // `from MODULE import NAMES`; the `from` of a `yield` stands before the colon of its own statement.
    let clause = before.iter().rposition(|(kind, _)| *kind == TokenKind::Colon).unwrap_or(0);
    let from = before.iter().rposition(|(kind, _)| *kind == TokenKind::From);
    if let Some(from) = from.filter(|from| *from >= clause) {
        let first = before.get(from.saturating_add(1));
        return vec![first.map_or_else(String::new, |(_, text)| (*text).to_owned())];
    }
    // `import MODULE as NAME, MODULE`
    let mut names = Vec::new();
    let mut expected = true;
    for (kind, text) in after.iter().skip(1) {
        if expected {
            names.push((*text).to_owned());
        }
        expected = *kind == TokenKind::Comma;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_import_is_found_wherever_it_stands() {
        for (text, wanted) in [
            ("import os", vec!["os"]),
            ("import math, os.path as p", vec!["math", "os"]),
            ("from json import loads, dumps as d", vec!["json"]),
            ("from collections.abc import (\n Mapping,\n)", vec!["collections"]),
            ("from . import x", vec!["."]),
            ("from .. import x", vec!["."]),
            ("from ... import x", vec!["..."]),
            ("x = 1; import os; y = 2", vec!["os"]),
            ("if True: import os", vec!["os"]),
            ("def f():\n    import os\n    from sys import argv", vec!["os", "sys"]),
            ("try:\n    pass\nexcept E as e:\n    raise A from e; import os", vec!["os"]),
            ("raise A from e", vec![]),
            ("def f():\n    while (yield from g()): import os", vec!["os"]),
            ("def f():\n    while (yield from g()): from os import path", vec!["os"]),
            ("import \\\n os", vec!["os"]),
            ("x = 'import os' # import sys", vec![]),
            ("f'{1}'\nimport re", vec!["re"]),
        ] {
            assert_eq!(
                imported(text).as_deref(),
                Some(&wanted.iter().map(ToString::to_string).collect::<Vec<_>>()[..]),
                "{text}"
            );
        }
        assert_eq!(imported("import"), None);
    }
}
