//! The tokens of a text of JavaScript, without comments. Whether a `/` begins a regular expression is told by what stands before
//! it, which is right but behind a `)` or `}` in rare programs.

use super::MAX_DEPTH;

/// Words behind which a value begins.
const BEFORE_VALUE: &[&str] = &[
    "await",
    "case",
    "delete",
    "do",
    "else",
    "in",
    "instanceof",
    "new",
    "of",
    "return",
    "throw",
    "typeof",
    "void",
    "yield",
];
/// Signs of more than one character that mean something else than their characters.
const LONG: &[&str] = &["...", "=>", "==", "?.", "++", "--"];

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A name, or a word of the language.
    Word(&'a str),
    /// A text in which nothing is evaluated, without its quotes.
    Text(&'a str),
    /// Any other value that is written down: a number, a regular expression, the end of a template.
    Value,
    /// One of [`LONG`], `${`, or one character.
    Sign(&'a str),
}

/// Those of a text, in order.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    rest: &'a str,
    before: Option<Token<'a>>,
    /// How many braces are open.
    braces: usize,
    /// How many were open where each template went over to code.
    templates: Vec<usize>,
    /// How much is left behind a line that has no end of a regular expression: no other is looked for in that line, each of which
    /// would read all of it.
    no_expression: usize,
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '\\' | '\u{200c}' | '\u{200d}')
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let rest = if text.starts_with("#!") { text.get(end_of_line(text)..).unwrap_or_default() } else { text };
        Self { rest, before: None, braces: 0, templates: Vec::new(), no_expression: usize::MAX }
    }

    /// The next so many bytes.
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn skip_blanks(&mut self) {
        loop {
            self.rest = self.rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
            let length = if self.rest.starts_with("//") {
                end_of_line(self.rest)
            } else if let Some(comment) = self.rest.strip_prefix("/*") {
                comment.find("*/").map_or(self.rest.len(), |at| at.saturating_add(4))
            } else {
                return;
            };
            self.take(length);
        }
    }

    fn token(&mut self) -> Option<Token<'a>> {
        self.skip_blanks();
        let first = self.rest.chars().next()?;
        let second = self.rest.chars().nth(1);
        match first {
            '\'' | '"' => {
                let end = end_of_text(self.rest, first);
                let text = self.take(end);
                let text = text.get(1..).unwrap_or_default();
                Some(Token::Text(text.strip_suffix(first).unwrap_or(text)))
            }
            '`' => {
                self.take(1);
                self.template(true)
            }
            '}' if self.templates.last() == Some(&self.braces) => {
                self.templates.pop();
                self.take(1);
                self.template(false)
            }
            '/' if self.value_may_begin()
                && let Some(length) = self.expression() =>
            {
                self.take(length);
                Some(Token::Value)
            }
            '#' => {
                let rest = self.rest.get(1..).unwrap_or_default();
                self.take(rest.find(|c| !is_part(c)).unwrap_or(rest.len()).saturating_add(1));
                Some(Token::Value)
            }
            c if c.is_ascii_digit() || (c == '.' && second.is_some_and(|c| c.is_ascii_digit())) => {
                self.take(self.rest.find(|c| !is_part(c) && c != '.').unwrap_or(self.rest.len()));
                Some(Token::Value)
            }
            c if is_part(c) => Some(Token::Word(self.take(self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len())))),
            c => {
                match c {
                    '{' => self.braces = self.braces.saturating_add(1),
                    '}' => self.braces = self.braces.saturating_sub(1),
                    _ => {}
                }
                let long = LONG.iter().find(|sign| self.rest.starts_with(**sign));
                Some(Token::Sign(self.take(long.map_or(c.len_utf8(), |sign| sign.len()))))
            }
        }
    }

    /// A part of a template, to its end or to where code begins.
    fn template(&mut self, begins: bool) -> Option<Token<'a>> {
        let mut chars = self.rest.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => {
                    chars.next();
                }
                '`' => {
                    let text = self.take(at);
                    self.take(1);
                    return Some(if begins { Token::Text(text) } else { Token::Value });
                }
                '$' if matches!(chars.peek(), Some((_, '{'))) => {
                    self.take(at);
                    self.templates.push(self.braces);
                    return (self.templates.len() <= MAX_DEPTH).then(|| Token::Sign(self.take(2)));
                }
                _ => {}
            }
        }
        self.rest = "";
        None
    }

    /// How long the regular expression is that begins here; `None` where the line has no end of one.
    fn expression(&mut self) -> Option<usize> {
        if self.rest.len() > self.no_expression {
            return None;
        }
        let found = length_of_expression(self.rest);
        if found.is_none() {
            self.no_expression = self.rest.len().saturating_sub(end_of_line(self.rest));
        }
        found
    }

    fn value_may_begin(&self) -> bool {
        match self.before {
            None => true,
            Some(Token::Word(word)) => BEFORE_VALUE.contains(&word),
            Some(Token::Text(_) | Token::Value) => false,
            Some(Token::Sign(sign)) => !matches!(sign, ")" | "]" | "++" | "--"),
        }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        self.before = self.token();
        self.before
    }
}

fn end_of_line(text: &str) -> usize {
    text.find(['\n', '\r', '\u{2028}', '\u{2029}']).unwrap_or(text.len())
}

/// How long the text is that begins here with this quote; at the end of a line it was never ended.
fn end_of_text(text: &str, quote: char) -> usize {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            '\n' | '\r' => return at,
            c if c == quote => return at.saturating_add(1),
            _ => {}
        }
    }
    text.len()
}

fn length_of_expression(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    let mut in_class = false;
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            '\n' | '\r' | '\u{2028}' | '\u{2029}' => return None,
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => {
                let flags = text.get(at.saturating_add(1)..).unwrap_or_default();
                let length = flags.find(|c| !is_part(c)).unwrap_or(flags.len());
                return at.checked_add(1)?.checked_add(length);
            }
            _ => {}
        }
    }
    None
}
