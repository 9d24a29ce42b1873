//! TOML into the tree, with every error that the parser can go past.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Key, MAX_DEPTH, MAX_NODES, Node, ParseError, SourceSpan, Value};

pub(super) fn parse(source: u16, text: &str) -> (Option<Node>, Vec<ParseError>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let flaws: Vec<ParseError> = errors.iter().map(|error| flaw(text, error)).collect();
    // Past a duplicate the rest is sound; past a syntax error it is guesswork, and its mistakes would mislead.
    if flaws.iter().any(|flaw| flaw.id != "document/duplicate") {
        return (None, flaws);
    }
    let mut walk = Walk { source, flaws, nodes: 0 };
    let range = table.span();
    let node = walk.table(range, table.get_ref(), 0);
    (Some(node), walk.flaws)
}

fn flaw(text: &str, error: &toml::de::Error) -> ParseError {
    // The span of an error at the end of a line or file is empty.
    let range = error.span().unwrap_or(0..0);
    let message = error.message().lines().collect::<Vec<_>>().join(", ");
    if message.contains("duplicate key") {
        return ParseError::duplicate(range.clone(), text.get(range).unwrap_or_default().trim());
    }
    ParseError::syntax(range, message, "texts need quotes, lists `[ ]`, tables `[name]` or `{ }`")
}

struct Walk {
    source: u16,
    flaws: Vec<ParseError>,
    nodes: usize,
}

impl Walk {
    fn table(&mut self, range: Range<usize>, table: &DeTable<'_>, depth: usize) -> Node {
        let mut entries = Vec::with_capacity(table.len());
        for (key, value) in table {
            let place = SourceSpan::new(self.source, key.span());
            let key = Key { name: key.get_ref().to_string(), place };
            entries.push((key, self.value(value, depth + 1)));
        }
        Node { value: Value::Table(entries), place: SourceSpan::new(self.source, range) }
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, depth: usize) -> Node {
        let range = value.span();
        let place = SourceSpan::new(self.source, range.clone());
        self.nodes += 1;
        if depth > MAX_DEPTH || self.nodes > MAX_NODES {
            if !self.flaws.iter().any(|flaw| matches!(flaw.id, "document/depth" | "document/size")) {
                self.flaws.push(if depth > MAX_DEPTH {
                    ParseError::too_deep(range)
                } else {
                    ParseError::too_many(range)
                });
            }
            return Node { value: Value::Null, place };
        }
        let value = match value.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Boolean(on) => Value::Bool(*on),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Value::Integer(number),
                Err(_too_large) => {
                    self.flaws.push(ParseError::syntax(
                        range,
                        "the number does not fit 64 bits",
                        "write a smaller one",
                    ));
                    Value::Null
                }
            },
            DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Datetime(time) => Value::Text(time.to_string()),
            DeValue::Array(items) => Value::Array(items.iter().map(|item| self.value(item, depth + 1)).collect()),
            DeValue::Table(table) => return self.table(range, table, depth),
        };
        Node { value, place }
    }
}
