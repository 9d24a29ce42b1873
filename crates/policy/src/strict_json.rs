//! The one reader of JSON, strict: RFC 8259 and nothing beside it. Documents (`document/json.rs`) and what tools are called
//! with (`gate`) are built from it; they differ in what they keep, how much they take and how they say what is wrong.
//!
//! Promises: no comments, no comma before an end, no lone surrogates, no other numbers than the grammar has; whether a key
//! may stand twice is asked of the builder before its value is read; depth and number of values are bounded.

use std::ops::Range;

/// How much is read.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Deepest nesting.
    pub depth: usize,
    /// Most values.
    pub values: usize,
}

/// What is wrong with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A value was expected.
    Value,
    /// A key in quotes was expected.
    Key,
    /// `:` was expected.
    Colon,
    /// `,` or the end of a list was expected.
    ListEnd,
    /// `,` or the end of a table was expected.
    TableEnd,
    /// A text has no end; the range is its beginning.
    TextEnd,
    /// A control character in a text that is not escaped.
    Control,
    /// An escape that JSON does not have.
    Escape,
    /// Four hexadecimal digits were expected.
    Hex,
    /// Half of a character.
    Surrogate,
    /// A digit was expected.
    Digit,
    /// A number with leading zeros.
    LeadingZero,
    /// Something follows the value.
    Trailing,
    /// Values are nested too deep.
    Depth,
    /// There are too many values.
    Values,
}

/// A problem, and where: up to the end of the character that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What it is.
    pub problem: Problem,
    /// Bytes of the text.
    pub range: Range<usize>,
}

/// A value without parts.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar<'t> {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// A number as it is written, of JSON's grammar.
    Number(&'t str),
    /// A text.
    Text(String),
}

/// What is made of a text.
pub trait Build {
    /// A value.
    type Value;
    /// A table that is not finished yet.
    type Table: Default;
    /// Why it cannot be made.
    type Error;

    /// Says what is wrong with the text.
    fn fault(&self, fault: Fault) -> Self::Error;

    /// Makes a value without parts.
    ///
    /// # Errors
    /// It cannot be made.
    fn scalar(&mut self, scalar: Scalar<'_>, range: Range<usize>) -> Result<Self::Value, Self::Error>;

    /// Makes a list.
    fn list(&mut self, items: Vec<Self::Value>, range: Range<usize>) -> Self::Value;

    /// A key was read; its value comes next.
    ///
    /// # Errors
    /// The table may not have it: it is there already.
    fn key(&mut self, table: &Self::Table, key: &str, range: Range<usize>) -> Result<(), Self::Error>;

    /// Puts an entry into a table.
    ///
    /// # Errors
    /// The table is full.
    fn entry(
        &mut self,
        table: &mut Self::Table,
        key: (String, Range<usize>),
        value: Self::Value,
    ) -> Result<(), Self::Error>;

    /// Finishes a table.
    fn table(&mut self, table: Self::Table, range: Range<usize>) -> Self::Value;
}

/// Reads one value that is the whole text, blanks around it aside.
///
/// # Errors
/// The first thing that is wrong with it, or that the builder refuses.
pub fn read<B: Build>(text: &str, limits: Limits, build: &mut B) -> Result<B::Value, B::Error> {
    let mut reader = Reader { text, at: 0, values: 0, limits, build };
    reader.blank();
    let value = reader.value(0)?;
    reader.blank();
    if reader.at < text.len() {
        return Err(reader.here(Problem::Trailing));
    }
    Ok(value)
}

struct Reader<'t, 'b, B> {
    text: &'t str,
    at: usize,
    values: usize,
    limits: Limits,
    build: &'b mut B,
}

impl<'t, B: Build> Reader<'t, '_, B> {
    fn rest(&self) -> &'t [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    fn blank(&mut self) {
        self.at += self.rest().iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn here(&self, problem: Problem) -> B::Error {
        self.fault_since(self.at, problem)
    }

    fn fault_since(&self, start: usize, problem: Problem) -> B::Error {
        let next = self.text.get(self.at..).and_then(|rest| rest.chars().next());
        self.build.fault(Fault { problem, range: start..self.at + next.map_or(0, char::len_utf8) })
    }

    fn value(&mut self, depth: usize) -> Result<B::Value, B::Error> {
        self.values += 1;
        if depth > self.limits.depth {
            return Err(self.here(Problem::Depth));
        }
        if self.values > self.limits.values {
            return Err(self.here(Problem::Values));
        }
        let start = self.at;
        let scalar = match self.peek() {
            Some(b'{') => return self.table(depth),
            Some(b'[') => return self.list(depth),
            Some(b'"') => Scalar::Text(self.text()?),
            Some(b'-' | b'0'..=b'9') => Scalar::Number(self.number()?),
            Some(b't') => self.literal("true", Scalar::Bool(true))?,
            Some(b'f') => self.literal("false", Scalar::Bool(false))?,
            Some(b'n') => self.literal("null", Scalar::Null)?,
            Some(_) | None => return Err(self.here(Problem::Value)),
        };
        self.build.scalar(scalar, start..self.at)
    }

    fn literal(&mut self, word: &str, scalar: Scalar<'t>) -> Result<Scalar<'t>, B::Error> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err(self.here(Problem::Value));
        }
        self.at += word.len();
        Ok(scalar)
    }

    fn table(&mut self, depth: usize) -> Result<B::Value, B::Error> {
        let (start, mut table) = (self.at, B::Table::default());
        self.at += 1;
        self.blank();
        if self.take(b'}') {
            return Ok(self.build.table(table, start..self.at));
        }
        loop {
            self.blank();
            let from = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.here(Problem::Key));
            }
            let key = self.text()?;
            let range = from..self.at;
            self.build.key(&table, &key, range.clone())?;
            self.blank();
            if !self.take(b':') {
                return Err(self.here(Problem::Colon));
            }
            self.blank();
            let value = self.value(depth + 1)?;
            self.build.entry(&mut table, (key, range), value)?;
            if !self.goes_on(b'}', Problem::TableEnd)? {
                return Ok(self.build.table(table, start..self.at));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<B::Value, B::Error> {
        let (start, mut items) = (self.at, Vec::new());
        self.at += 1;
        self.blank();
        if self.take(b']') {
            return Ok(self.build.list(items, start..self.at));
        }
        loop {
            self.blank();
            items.push(self.value(depth + 1)?);
            if !self.goes_on(b']', Problem::ListEnd)? {
                return Ok(self.build.list(items, start..self.at));
            }
        }
    }

    /// After an element: a comma, or the end.
    fn goes_on(&mut self, end: u8, problem: Problem) -> Result<bool, B::Error> {
        self.blank();
        if self.take(b',') {
            return Ok(true);
        }
        if self.take(end) { Ok(false) } else { Err(self.here(problem)) }
    }

    fn text(&mut self) -> Result<String, B::Error> {
        let (start, mut out) = (self.at, String::new());
        self.at += 1;
        loop {
            let rest = self.rest();
            let plain = rest.iter().position(|c| matches!(c, b'"' | b'\\' | 0..=0x1f)).unwrap_or(rest.len());
            out.push_str(self.text.get(self.at..self.at + plain).unwrap_or_default());
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                Some(_) => return Err(self.here(Problem::Control)),
                None => return Err(self.fault_since(start, Problem::TextEnd)),
            }
        }
    }

    fn escape(&mut self) -> Result<char, B::Error> {
        let start = self.at;
        self.at += 1;
        let c = match self.peek() {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(start),
            Some(_) | None => return Err(self.here(Problem::Escape)),
        };
        self.at += 1;
        Ok(c)
    }

    fn unicode(&mut self, start: usize) -> Result<char, B::Error> {
        let high = self.hex()?;
        let code = if matches!(high, 0xd800..=0xdbff) && self.rest().starts_with(b"\\u") {
            self.at += 1;
            let low = self.hex()?;
            if !(0xdc00..=0xdfff).contains(&low) {
                return Err(self.fault_since(start, Problem::Surrogate));
            }
            0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)
        } else {
            high
        };
        // No half of a character is one.
        char::from_u32(code).ok_or_else(|| self.fault_since(start, Problem::Surrogate))
    }

    /// `u` and four digits.
    fn hex(&mut self) -> Result<u32, B::Error> {
        let digits =
            self.text.get(self.at + 1..self.at + 5).filter(|digits| digits.bytes().all(|c| c.is_ascii_hexdigit()));
        let Some(number) = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) else {
            return Err(self.here(Problem::Hex));
        };
        self.at += 5;
        Ok(number)
    }

    fn digits(&mut self) -> Result<(), B::Error> {
        let count = self.rest().iter().take_while(|c| c.is_ascii_digit()).count();
        if count == 0 {
            return Err(self.here(Problem::Digit));
        }
        self.at += count;
        Ok(())
    }

    fn number(&mut self) -> Result<&'t str, B::Error> {
        let start = self.at;
        self.take(b'-');
        let from = self.at;
        let leading = self.peek() == Some(b'0');
        self.digits()?;
        if leading && self.at > from + 1 {
            self.at = from;
            return Err(self.here(Problem::LeadingZero));
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        Ok(self.text.get(start..self.at).unwrap_or_default())
    }
}
