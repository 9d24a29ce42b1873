//! JSON into the tree: the strict reader, with the place of every value, and equal keys told together.

use std::ops::Range;

use super::{Key, MAX_DEPTH, MAX_ENTRIES, MAX_NODES, Node, ParseError, SourceSpan, Value};
use crate::strict_json::{self, Build, Fault, Limits, Problem, Scalar};

pub(super) fn parse(source: u16, text: &str) -> (Option<Node>, Vec<ParseError>) {
    // Editors write a mark of the byte order; a document may begin with one, as in TOML and YAML.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut tree = Tree { source, text, flaws: Vec::new() };
    match strict_json::read(text, Limits { depth: MAX_DEPTH, values: MAX_NODES }, &mut tree) {
        Ok(node) => (Some(node), tree.flaws),
        Err(flaw) => {
            tree.flaws.push(flaw);
            (None, tree.flaws)
        }
    }
}

struct Tree<'t> {
    source: u16,
    text: &'t str,
    /// Duplicate keys: told together, since the rest can still be read.
    flaws: Vec<ParseError>,
}

impl Tree<'_> {
    fn node(&self, value: Value, range: Range<usize>) -> Node {
        Node { value, place: SourceSpan::new(self.source, range) }
    }

    /// What stands where a value should be.
    fn no_value(&self, range: Range<usize>) -> ParseError {
        let rest = self.text.get(range.start..).unwrap_or_default();
        let (why, fix) = match rest.chars().next() {
            Some('a'..='z') => {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
                return ParseError::syntax(range.start..range.start + end, "texts stand in double quotes", "quote it");
            }
            Some('/' | '#') => ("JSON has no comments", "remove it, or write the policy in TOML"),
            Some('\'') => ("texts stand in double quotes", "use \" and not '"),
            Some(_) => ("a value does not start so", "texts need double quotes"),
            None => ("the document ends where a value should be", "finish it"),
        };
        ParseError::syntax(range, why, fix)
    }
}

impl Build for Tree<'_> {
    type Value = Node;
    type Table = Vec<(Key, Node)>;
    type Error = ParseError;

    fn fault(&self, Fault { problem, range }: Fault) -> ParseError {
        let first = range.start..range.start + 1;
        let (why, fix) = match problem {
            Problem::Value => return self.no_value(range),
            Problem::Depth => return ParseError::too_deep(first),
            Problem::Values => return ParseError::too_many(first),
            Problem::TextEnd => {
                return ParseError::syntax(first, "the text that starts here has no end", "add the closing \"");
            }
            Problem::Key => ("a key in double quotes should stand here", "quote the key; no `,` after the last entry"),
            Problem::Colon => ("a key is followed by `:`", "add it"),
            Problem::ListEnd => ("the entries of a list are parted by `,` and end with `]`", "add it"),
            Problem::TableEnd => ("the entries of a table are parted by `,` and end with `}`", "add it"),
            Problem::Control => ("a text has no line ends or control characters", "write \\n or \\u...."),
            Problem::Escape => ("JSON has no such escape", "write \\\\ for a backslash"),
            Problem::Hex | Problem::Surrogate => {
                ("the \\u escape is not a character", "write four hex digits, or a whole pair")
            }
            Problem::Digit | Problem::LeadingZero => ("JSON has no such number", "write it as `10` or `0.5`"),
            Problem::Trailing => ("something stands after the end of the value", "remove it"),
        };
        ParseError::syntax(range, why, fix)
    }

    fn scalar(&mut self, scalar: Scalar<'_>, range: Range<usize>) -> Result<Node, ParseError> {
        let value = match scalar {
            Scalar::Null => Value::Null,
            Scalar::Bool(bool) => Value::Bool(bool),
            Scalar::Text(text) => Value::Text(text),
            Scalar::Number(written) => number(written).map_err(|why| {
                let fix = "write it as `10` or `0.5`";
                ParseError::syntax(range.clone(), why, fix)
            })?,
        };
        Ok(self.node(value, range))
    }

    fn list(&mut self, items: Vec<Node>, range: Range<usize>) -> Node {
        self.node(Value::Array(items), range)
    }

    fn key(&mut self, table: &Self::Table, key: &str, range: Range<usize>) -> Result<(), ParseError> {
        if table.len() >= MAX_ENTRIES {
            return Err(ParseError::too_many(range));
        }
        if table.iter().any(|(other, _)| other.name == key) {
            self.flaws.push(ParseError::duplicate(range, key));
        }
        Ok(())
    }

    fn entry(
        &mut self,
        table: &mut Self::Table,
        (name, range): (String, Range<usize>),
        node: Node,
    ) -> Result<(), ParseError> {
        table.push((Key { name, place: SourceSpan::new(self.source, range) }, node));
        Ok(())
    }

    fn table(&mut self, table: Self::Table, range: Range<usize>) -> Node {
        self.node(Value::Table(table), range)
    }
}

/// A number of JSON's grammar: whole ones fit 64 bits, the others are finite.
fn number(written: &str) -> Result<Value, &'static str> {
    if !written.contains(['.', 'e', 'E']) {
        return written.parse().map(Value::Integer).map_err(|_too_large| "the number does not fit 64 bits");
    }
    match written.parse::<f64>() {
        Ok(float) if float.is_finite() => Ok(Value::Float(float)),
        Ok(_) | Err(_) => Err("the number is too large"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str) -> String {
        let (node, flaws) = parse(0, text);
        assert!(node.is_none(), "{text}");
        flaws.last().unwrap().why.clone()
    }

    #[test]
    fn numbers_are_of_the_grammar_and_finite() {
        for text in ["[1.e5]", "[.5]", "[01]", "[-]", "[1e]", "[1.]"] {
            assert!(!why(text).is_empty());
        }
        assert_eq!(why("[1e999]"), "the number is too large");
        assert_eq!(why("[9223372036854775808]"), "the number does not fit 64 bits");
        let (node, flaws) = parse(0, "\u{feff}[0.5, -1, 1E2]");
        assert!(flaws.is_empty());
        let Value::Array(items) = node.unwrap().value else { panic!() };
        assert!(matches!(
            items.iter().map(|item| &item.value).collect::<Vec<_>>()[..],
            [Value::Float(0.5), Value::Integer(-1), Value::Float(100.0)]
        ));
    }

    #[test]
    fn equal_keys_are_told_together_and_each_at_its_place() {
        let (node, flaws) = parse(0, r#"{"a": 1, "a": 2, "b": {"c": 1, "\u0063": 2}}"#);
        assert!(node.is_some());
        let places: Vec<_> = flaws.iter().map(|flaw| (flaw.id, flaw.range.start)).collect();
        assert_eq!(places, [("document/duplicate", 9), ("document/duplicate", 31)]);
    }
}
