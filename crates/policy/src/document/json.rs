//! JSON into the tree. Own parser: the usual ones keep no places and let the last of two equal keys win.

use super::{Flaw, Key, MOST_DEPTH, MOST_ENTRIES, MOST_NODES, Node, Place, Value};

pub(super) fn parse(source: u16, text: &str) -> (Option<Node>, Vec<Flaw>) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut parser = Parser { source, text, at: 0, nodes: 0, flaws: Vec::new() };
    match parser.document() {
        Ok(node) => (Some(node), parser.flaws),
        Err(flaw) => {
            parser.flaws.push(flaw);
            (None, parser.flaws)
        }
    }
}

struct Parser<'t> {
    source: u16,
    text: &'t str,
    at: usize,
    nodes: usize,
    /// Duplicate keys: told together, since the rest can still be read.
    flaws: Vec<Flaw>,
}

type Parsed<T> = Result<T, Flaw>;

impl Parser<'_> {
    fn document(&mut self) -> Parsed<Node> {
        let node = self.value(0)?;
        self.blank();
        if self.at < self.text.len() {
            return Err(self.error("something stands after the end of the value", "remove it"));
        }
        Ok(node)
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn error(&self, why: &str, fix: &str) -> Flaw {
        let end = self.at + self.peek().map_or(0, char::len_utf8);
        Flaw::syntax(self.at..end, why, fix)
    }

    fn blank(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    fn take(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Parsed<Node> {
        self.blank();
        self.nodes += 1;
        let start = self.at;
        if depth > MOST_DEPTH {
            return Err(Flaw::too_deep(start..start + 1));
        }
        if self.nodes > MOST_NODES {
            return Err(Flaw::too_many(start..start + 1));
        }
        let value = match self.peek() {
            Some('{') => self.table(depth)?,
            Some('[') => self.array(depth)?,
            Some('"') => Value::Text(self.text()?),
            Some('-' | '0'..='9') => self.number()?,
            Some('a'..='z') => self.word()?,
            Some('/' | '#') => return Err(self.error("JSON has no comments", "remove it, or write the policy in TOML")),
            Some('\'') => return Err(self.error("texts stand in double quotes", "use \" and not '")),
            Some(_) => return Err(self.error("a value does not start so", "texts need double quotes")),
            None => return Err(self.error("the document ends where a value should be", "finish it")),
        };
        Ok(Node { value, place: Place::new(self.source, start..self.at) })
    }

    fn table(&mut self, depth: usize) -> Parsed<Value> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        self.at += 1;
        self.blank();
        while !self.take('}') {
            if !entries.is_empty() && !self.take(',') {
                return Err(self.error("the entries of a table are parted by `,` and end with `}`", "add it"));
            }
            self.blank();
            let start = self.at;
            if self.peek() != Some('"') {
                return Err(self
                    .error("a key in double quotes should stand here", "quote the key; no `,` after the last entry"));
            }
            let name = self.text()?;
            let range = start..self.at;
            if entries.iter().any(|(key, _)| key.name == name) {
                self.flaws.push(Flaw::duplicate(range.clone(), &name));
            }
            self.blank();
            if !self.take(':') {
                return Err(self.error("a key is followed by `:`", "add it"));
            }
            let node = self.value(depth + 1)?;
            if entries.len() >= MOST_ENTRIES {
                return Err(Flaw::too_many(start..self.at));
            }
            entries.push((Key { name, place: Place::new(self.source, range) }, node));
            self.blank();
        }
        Ok(Value::Table(entries))
    }

    fn array(&mut self, depth: usize) -> Parsed<Value> {
        let mut items = Vec::new();
        self.at += 1;
        self.blank();
        while !self.take(']') {
            if !items.is_empty() && !self.take(',') {
                return Err(self.error("the entries of a list are parted by `,` and end with `]`", "add it"));
            }
            items.push(self.value(depth + 1)?);
            self.blank();
        }
        Ok(Value::Array(items))
    }

    fn word(&mut self) -> Parsed<Value> {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let value = match rest.get(..end) {
            Some("true") => Value::Bool(true),
            Some("false") => Value::Bool(false),
            Some("null") => Value::Null,
            _ => return Err(Flaw::syntax(self.at..self.at + end, "texts stand in double quotes", "quote it")),
        };
        self.at += end;
        Ok(value)
    }

    fn number(&mut self) -> Parsed<Value> {
        let rest = self.rest();
        let end = rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E')).unwrap_or(rest.len());
        let text = rest.get(..end).unwrap_or_default();
        let digits = text.strip_prefix('-').unwrap_or(text);
        let leading_zero =
            digits.len() > 1 && digits.starts_with('0') && digits.chars().nth(1).is_some_and(|c| c.is_ascii_digit());
        let range = self.at..self.at + end;
        if leading_zero || text.ends_with('.') {
            return Err(Flaw::syntax(range, "JSON has no such number", "write it as `10` or `0.5`"));
        }
        let value = if digits.chars().all(|c| c.is_ascii_digit()) {
            text.parse().map(Value::Integer).map_err(|_too_large| "the number does not fit 64 bits")
        } else {
            text.parse().map(Value::Float).map_err(|_malformed| "JSON has no such number")
        };
        self.at += end;
        value.map_err(|why| Flaw::syntax(range, why, "write it as `10` or `0.5`"))
    }

    fn text(&mut self) -> Parsed<String> {
        let start = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            let Some(c) = self.peek() else {
                return Err(Flaw::syntax(
                    start..start + 1,
                    "the text that starts here has no end",
                    "add the closing \"",
                ));
            };
            match c {
                '"' => break,
                '\\' => out.push(self.escape()?),
                c if c < ' ' => {
                    return Err(self.error("a text has no line ends or control characters", "write \\n or \\u...."));
                }
                c => {
                    out.push(c);
                    self.at += c.len_utf8();
                }
            }
        }
        self.at += 1;
        Ok(out)
    }

    fn escape(&mut self) -> Parsed<char> {
        self.at += 1;
        let c = self.peek();
        self.at += c.map_or(0, char::len_utf8);
        let plain = match c {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some(c @ ('"' | '\\' | '/')) => c,
            Some('u') => return self.unicode(),
            _ => return Err(self.error("JSON has no such escape", "write \\\\ for a backslash")),
        };
        Ok(plain)
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.rest().get(..4)?;
        if !digits.chars().all(|c| c.is_ascii_hexdigit()) {
            return None;
        }
        let value = u32::from_str_radix(digits, 16).ok()?;
        self.at += 4;
        Some(value)
    }

    fn unicode(&mut self) -> Parsed<char> {
        let whole = self.hex().and_then(|first| {
            if !(0xd800..0xdc00).contains(&first) {
                return char::from_u32(first);
            }
            (self.take('\\') && self.take('u')).then_some(())?;
            let second = self.hex().filter(|n| (0xdc00..0xe000).contains(n))?;
            char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))
        });
        whole.ok_or_else(|| self.error("the \\u escape is not a character", "write four hex digits, or a whole pair"))
    }
}
