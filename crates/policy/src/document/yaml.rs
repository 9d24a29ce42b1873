//! YAML into the tree, from the parser's events: core schema, one document, no aliases and no tags.
//!
//! Aliases are refused and not budgeted: a policy that must be read by people gains nothing from them, and the
//! well-known bomb costs nothing.

use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, Span};

use super::{Key, MAX_DEPTH, MAX_ENTRIES, MAX_NODES, Node, ParseError, SourceSpan, Value};

pub(super) fn parse(source: u16, text: &str) -> (Option<Node>, Vec<ParseError>) {
    let mut builder =
        Builder { source, length: text.len(), open: Vec::new(), root: None, documents: 0, nodes: 0, flaws: Vec::new() };
    for event in Parser::new_from_str(text) {
        let step = match event {
            Ok((event, span)) => builder.event(event, &span),
            Err(error) => {
                let at = error.marker().byte_offset().unwrap_or(0).min(text.len());
                Err(ParseError::syntax(at..at, error.info().to_owned(), "check indentation, quotes and `key: value`"))
            }
        };
        if let Err(flaw) = step {
            builder.flaws.push(flaw);
            return (None, builder.flaws);
        }
    }
    let empty = Node { value: Value::Table(Vec::new()), place: SourceSpan::new(source, 0..0) };
    (Some(builder.root.unwrap_or(empty)), builder.flaws)
}

enum Open {
    Array(Vec<Node>, usize),
    Table(Vec<(Key, Node)>, Option<Key>, usize),
}

struct Builder {
    source: u16,
    length: usize,
    open: Vec<Open>,
    root: Option<Node>,
    documents: usize,
    nodes: usize,
    flaws: Vec<ParseError>,
}

impl Builder {
    fn range(&self, span: &Span) -> Range<usize> {
        let range = span.byte_range().unwrap_or(0..0);
        range.start.min(self.length)..range.end.min(self.length)
    }

    fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), ParseError> {
        let range = self.range(span);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(ParseError::syntax(
                        range,
                        "the file holds more than one document",
                        "keep one, or give each with --policy",
                    ));
                }
                Ok(())
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                Err(ParseError::syntax(range, "aliases are not read in policies", "write the value out"))
            }
            Event::Scalar(text, style, _, tag) => {
                refuse_tag(tag.is_some(), &range)?;
                self.scalar(&text, style, range)
            }
            Event::SequenceStart(_, _, tag) => {
                refuse_tag(tag.is_some(), &range)?;
                self.enter(Open::Array(Vec::new(), range.start), range)
            }
            Event::MappingStart(_, _, tag) => {
                refuse_tag(tag.is_some(), &range)?;
                self.enter(Open::Table(Vec::new(), None, range.start), range)
            }
            Event::SequenceEnd | Event::MappingEnd => self.leave(range),
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd | Event::Anchor(..) => Ok(()),
            // The enum is open, and what is not known is not read past.
            _ => Err(ParseError::syntax(range, "this form of YAML is not read in policies", "write it in block style")),
        }
    }

    fn enter(&mut self, open: Open, range: Range<usize>) -> Result<(), ParseError> {
        self.count(&range)?;
        if let Some(Open::Table(_, None, _)) = self.open.last() {
            return Err(ParseError::syntax(
                range,
                "a key is a plain word, not a list or table",
                "quote it if it is text",
            ));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(ParseError::too_deep(range));
        }
        self.open.push(open);
        Ok(())
    }

    fn count(&mut self, range: &Range<usize>) -> Result<(), ParseError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES { Err(ParseError::too_many(range.clone())) } else { Ok(()) }
    }

    fn leave(&mut self, range: Range<usize>) -> Result<(), ParseError> {
        let (value, start) = match self.open.pop() {
            Some(Open::Array(items, start)) => (Value::Array(items), start),
            Some(Open::Table(entries, _, start)) => (Value::Table(entries), start),
            None => {
                return Err(ParseError::syntax(
                    range,
                    "a list or table ends that did not start",
                    "check the indentation",
                ));
            }
        };
        let end = range.end.max(start);
        self.put(Node { value, place: SourceSpan::new(self.source, start..end) })
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, range: Range<usize>) -> Result<(), ParseError> {
        self.count(&range)?;
        let place = SourceSpan::new(self.source, range.clone());
        if let Some(Open::Table(entries, key @ None, _)) = self.open.last_mut() {
            if entries.len() >= MAX_ENTRIES {
                return Err(ParseError::too_many(range));
            }
            if entries.iter().any(|(key, _)| key.name == text) {
                self.flaws.push(ParseError::duplicate(range, text));
            }
            *key = Some(Key { name: text.to_owned(), place });
            return Ok(());
        }
        let value = if style == ScalarStyle::Plain { plain(text) } else { Value::Text(text.to_owned()) };
        self.put(Node { value, place })
    }

    fn put(&mut self, node: Node) -> Result<(), ParseError> {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::Array(items, _)) => items.push(node),
            Some(Open::Table(entries, key, _)) => {
                if let Some(key) = key.take() {
                    entries.push((key, node));
                }
            }
        }
        Ok(())
    }
}

fn refuse_tag(tagged: bool, range: &Range<usize>) -> Result<(), ParseError> {
    if tagged {
        return Err(ParseError::syntax(range.clone(), "tags are not read in policies", "remove the `!...`"));
    }
    Ok(())
}

/// The YAML 1.2 core schema. `no`, `on` and `012` stay text and are then told apart by the clause.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return Value::Text(text.to_owned());
    }
    let mut bases = [("0x", 16), ("0o", 8)].into_iter();
    if let Some(number) = bases.find_map(|(mark, base)| i64::from_str_radix(digits.strip_prefix(mark)?, base).ok()) {
        return Value::Integer(number);
    }
    let leading_zero = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
    if !leading_zero && digits.chars().all(|c| c.is_ascii_digit()) {
        return text.parse().map_or_else(|_too_large| Value::Text(text.to_owned()), Value::Integer);
    }
    let decimal = digits.chars().all(|c| matches!(c, '0'..='9' | '.' | 'e' | 'E' | '-' | '+'));
    let number = text.parse::<f64>().ok().filter(|_| decimal && !leading_zero);
    number.map_or_else(|| Value::Text(text.to_owned()), Value::Float)
}
