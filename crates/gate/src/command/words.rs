//! One word as bash would make it: quotes removed, and what only running could tell marked as such.
//!
//! The parser of whole lines hands words over as they were written. They are read a second time here, by rules that know
//! fewer forms than bash and refuse the rest, so that a disagreement between the two readers is a refusal.

use super::quoting::ansi_c;

/// What a word becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Exactly this word.
    Literal(String),
    /// The names of files that match, or itself if none does. True marks active wildcards.
    Glob(Vec<(char, bool)>),
    /// One word that begins so; the rest only running tells.
    One(String),
    /// Any number of words.
    Many,
}

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// As written.
    pub(super) raw: String,
    /// What it becomes.
    pub(super) value: Value,
}

impl Word {
    /// A word that was never written for a shell.
    pub(super) fn literal(text: &str) -> Self {
        Self { raw: text.to_owned(), value: Value::Literal(text.to_owned()) }
    }

    /// The text, if it is known.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Literal(text) => Some(text),
            Value::Glob(_) | Value::One(_) | Value::Many => None,
        }
    }

    /// What it certainly begins with.
    pub(super) fn head(&self) -> String {
        match &self.value {
            Value::Literal(text) | Value::One(text) => text.clone(),
            Value::Glob(parts) => parts.iter().take_while(|(_, active)| !active).map(|(c, _)| *c).collect(),
            Value::Many => String::new(),
        }
    }

    /// As the program would see it; as written where that is not known.
    pub(super) fn shown(&self) -> String {
        self.text().map_or_else(|| self.raw.clone(), str::to_owned)
    }
}

/// Where a word stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordPosition {
    /// An argument: split and expanded to file names.
    Argument,
    /// The value of an assignment, or a here-string: neither split nor expanded to file names.
    Alone,
    /// The body of a here-document: quotes are ordinary characters.
    Document,
}

/// Why a word cannot be known.
pub(super) type Unproven = &'static str;

/// Reads a word; `nested` gathers the command lines inside it.
pub(super) fn read(raw: &str, stands: WordPosition, nested: &mut Vec<String>) -> Result<Word, Unproven> {
    let mut reader = Reader {
        chars: raw.chars().collect(),
        at: 0,
        stands,
        parts: Vec::new(),
        head: None,
        many: false,
        braces: Braces::default(),
        nested,
    };
    reader.run()?;
    let value = reader.value();
    Ok(Word { raw: raw.to_owned(), value })
}

/// Whether wildcards stand in it: a bracket that nothing closes is none.
fn is_pattern(parts: &[(char, bool)]) -> bool {
    let closed = |at: usize| parts.iter().skip(at).any(|(c, _)| *c == ']');
    parts.iter().enumerate().any(|(at, (c, active))| *active && (*c != '[' || closed(at)))
}

/// What is known of unquoted braces.
#[derive(Default)]
struct Braces {
    open: bool,
    dots: usize,
    expands: bool,
}

struct Reader<'a> {
    chars: Vec<char>,
    at: usize,
    stands: WordPosition,
    parts: Vec<(char, bool)>,
    /// What stood before the first unknown part.
    head: Option<String>,
    many: bool,
    braces: Braces,
    nested: &'a mut Vec<String>,
}

impl Reader<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at.saturating_add(ahead)).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at = self.at.saturating_add(1);
        Some(c)
    }

    fn push(&mut self, c: char) {
        self.parts.push((c, false));
    }

    fn unknown(&mut self, quoted: bool) {
        let so_far = || self.parts.iter().map(|(c, _)| *c).collect();
        if self.head.is_none() {
            self.head = Some(if self.parts.iter().any(|(_, active)| *active) { String::new() } else { so_far() });
        }
        if !quoted && self.stands == WordPosition::Argument {
            self.many = true;
        }
    }

    fn value(self) -> Value {
        if self.many || self.braces.expands {
            return Value::Many;
        }
        let globs = self.stands == WordPosition::Argument && is_pattern(&self.parts);
        match self.head {
            Some(_) if globs => Value::Many,
            Some(head) => Value::One(head),
            None if globs => Value::Glob(self.parts),
            None => Value::Literal(self.parts.into_iter().map(|(c, _)| c).collect()),
        }
    }

    fn run(&mut self) -> Result<(), Unproven> {
        if self.stands == WordPosition::Document {
            return self.document();
        }
        let start = self.at;
        while let Some(c) = self.next() {
            match c {
                '\\' => match self.next() {
                    Some('\n') => {}
                    Some(c) => self.push(c),
                    None => return Err("it ends with a backslash"),
                },
                '\'' => self.single()?,
                '"' => self.double()?,
                '$' => self.dollar(false)?,
                '`' => self.backquotes(false)?,
                '~' if self.tilde(start) => self.unknown(true),
                '*' | '?' | '[' => self.parts.push((c, true)),
                '{' | ',' | '.' | '}' => self.brace(c),
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => {
                    return Err("an operator stands in the middle of it");
                }
                '#' if self.at == start.saturating_add(1) => return Err("it begins with `#`"),
                c => self.push(c),
            }
        }
        Ok(())
    }

    /// Bash replaces `~` at the start of a word, and after `=` and `:` where the word looks like an assignment.
    fn tilde(&self, start: usize) -> bool {
        let before = self.at.checked_sub(2).filter(|at| *at >= start).and_then(|at| self.chars.get(at));
        matches!(before, None | Some('=' | ':'))
    }

    /// `{a,b}` and `{1..3}` become several words. Whoever has an open brace and then a comma or two dots is taken for one.
    fn brace(&mut self, c: char) {
        match c {
            '{' => self.braces.open = true,
            ',' if self.braces.open => self.braces.expands = true,
            '.' if self.braces.open => self.braces.dots = self.braces.dots.saturating_add(1),
            _ => {}
        }
        if self.braces.dots >= 2 {
            self.braces.expands = true;
        }
        if self.stands != WordPosition::Argument {
            self.braces.expands = false;
        }
        self.push(c);
    }

    fn single(&mut self) -> Result<(), Unproven> {
        loop {
            match self.next() {
                Some('\'') => return Ok(()),
                Some(c) => self.push(c),
                None => return Err("a quote is not closed"),
            }
        }
    }

    fn double(&mut self) -> Result<(), Unproven> {
        loop {
            match self.next() {
                Some('"') => return Ok(()),
                Some('\\') => self.escape_in_double(true)?,
                Some('$') => self.dollar(true)?,
                Some('`') => self.backquotes(true)?,
                Some(c) => self.push(c),
                None => return Err("a quote is not closed"),
            }
        }
    }

    fn escape_in_double(&mut self, quote: bool) -> Result<(), Unproven> {
        match self.next() {
            Some('\n') => {}
            Some('"') if quote => self.push('"'),
            Some(c @ ('$' | '`' | '\\')) => self.push(c),
            Some(c) => {
                self.push('\\');
                self.push(c);
            }
            None if quote => return Err("a quote is not closed"),
            None => self.push('\\'),
        }
        Ok(())
    }

    fn document(&mut self) -> Result<(), Unproven> {
        while let Some(c) = self.next() {
            match c {
                '\\' => self.escape_in_double(false)?,
                '`' => return Err("a command stands in a here-document whose delimiter is not quoted"),
                '$' if matches!(self.peek(0), Some('(' | '[')) => {
                    return Err("a command stands in a here-document whose delimiter is not quoted");
                }
                '$' => self.dollar(true)?,
                c => self.push(c),
            }
        }
        Ok(())
    }

    /// What follows a `$`.
    fn dollar(&mut self, quoted: bool) -> Result<(), Unproven> {
        match self.peek(0) {
            Some('\'') if !quoted => {
                self.at = self.at.saturating_add(1);
                let (text, end) = ansi_c(&self.chars, self.at)?;
                self.at = end;
                text.chars().for_each(|c| self.push(c));
                Ok(())
            }
            Some('"') if !quoted => Err("`$\"` translates text by a catalogue"),
            Some('(') if self.peek(1) == Some('(') => self.arithmetic(quoted),
            Some('(') => self.substitution(quoted),
            Some('{') => self.parameter(quoted),
            Some('[') => Err("`$[` is arithmetic, which evaluates text"),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                while self.peek(0).is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
                    self.at = self.at.saturating_add(1);
                }
                self.unknown(quoted);
                Ok(())
            }
            Some(c @ ('0'..='9' | '?' | '$' | '!' | '#' | '@' | '*' | '-')) => {
                self.at = self.at.saturating_add(1);
                if matches!(c, '@' | '*') {
                    self.many = true;
                }
                self.unknown(quoted);
                Ok(())
            }
            Some(_) | None => {
                self.push('$');
                Ok(())
            }
        }
    }

    /// `$((1 + 2))` of numbers alone: everything else evaluates the text of variables once more.
    fn arithmetic(&mut self, quoted: bool) -> Result<(), Unproven> {
        self.at = self.at.saturating_add(2);
        loop {
            match self.next() {
                Some('0'..='9' | ' ' | '+' | '-' | '*' | '/' | '%') => {}
                Some(')') if self.next() == Some(')') => {
                    self.unknown(quoted);
                    return Ok(());
                }
                Some(_) | None => return Err("arithmetic of anything but numbers evaluates the text of variables"),
            }
        }
    }

    /// `$(line)`
    fn substitution(&mut self, quoted: bool) -> Result<(), Unproven> {
        self.at = self.at.saturating_add(1);
        let end = closing(&self.chars, self.at)?;
        let inner: String = self.chars.get(self.at..end).unwrap_or_default().iter().collect();
        self.nested.push(inner);
        self.at = end.saturating_add(1);
        self.unknown(quoted);
        Ok(())
    }

    /// `` `line` ``, without backslashes: their meaning depends on what is options.
    fn backquotes(&mut self, quoted: bool) -> Result<(), Unproven> {
        let mut inner = String::new();
        loop {
            match self.next() {
                Some('`') => break,
                Some('\\') => return Err("a backslash stands between backquotes"),
                Some('#') => return Err("a `#` stands between backquotes"),
                Some('<') if self.peek(0) == Some('<') && self.peek(1) != Some('<') => {
                    return Err("a here-document stands inside a substitution");
                }
                Some(c) => inner.push(c),
                None => return Err("a backquote is not closed"),
            }
        }
        self.nested.push(inner);
        self.unknown(quoted);
        Ok(())
    }

    /// `${name}`, `${#name}`, and the operators whose operand is plain text.
    fn parameter(&mut self, quoted: bool) -> Result<(), Unproven> {
        self.at = self.at.saturating_add(1);
        let length = self.peek(0) == Some('#') && self.peek(1).is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        if length {
            self.at = self.at.saturating_add(1);
        }
        let start = self.at;
        while self.peek(0).is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
            self.at = self.at.saturating_add(1);
        }
        if self.at == start {
            return Err("a form of `${` is not known to be harmless");
        }
        if !length {
            self.operator()?;
        }
        if self.next() != Some('}') {
            return Err("a form of `${` is not known to be harmless");
        }
        self.unknown(quoted);
        Ok(())
    }

    fn operator(&mut self) -> Result<(), Unproven> {
        const OPERATORS: &[&str] = &[":-", ":+", "-", "+", "##", "#", "%%", "%"];
        let starts = |text: &str| text.chars().enumerate().all(|(at, c)| self.peek(at) == Some(c));
        let Some(operator) = OPERATORS.iter().find(|operator| starts(operator)) else { return Ok(()) };
        self.at = self.at.saturating_add(operator.len());
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '*' | '-' | ',' | '@' | '+');
        while self.peek(0).is_some_and(plain) {
            self.at = self.at.saturating_add(1);
        }
        Ok(())
    }
}

/// Where the `)` stands that closes a substitution whose text begins at `at`. Comments, here-documents and `case` are refused:
/// in them a bracket may close nothing.
fn closing(chars: &[char], mut at: usize) -> Result<usize, Unproven> {
    let mut depth = 0_usize;
    let mut before = ' ';
    let mut word = String::new();
    let get = |at: usize| chars.get(at).copied();
    while let Some(c) = get(at) {
        match c {
            '\\' => at = at.saturating_add(1),
            '\'' => at = skip_single(chars, at, before == '$')?,
            '"' => at = skip_double(chars, at)?,
            '`' => return Err("backquotes stand inside a substitution"),
            '#' if before.is_ascii_whitespace() || matches!(before, ';' | '&' | '|' | '(' | ')') => {
                return Err("a comment stands inside a substitution");
            }
            '<' if get(at.saturating_add(1)) == Some('<') => {
                if get(at.saturating_add(2)) != Some('<') {
                    return Err("a here-document stands inside a substitution");
                }
                at = at.saturating_add(2);
            }
            '(' => depth = depth.saturating_add(1),
            ')' if depth == 0 => return Ok(at),
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if c.is_ascii_alphanumeric() || c == '_' {
            word.push(c);
        } else {
            word.clear();
        }
        if word == "case" {
            return Err("`case` stands inside a substitution");
        }
        before = c;
        at = at.saturating_add(1);
    }
    Err("a substitution is not closed")
}

fn skip_single(chars: &[char], at: usize, ansi: bool) -> Result<usize, Unproven> {
    if ansi {
        return ansi_c(chars, at.saturating_add(1)).map(|(_, end)| end.saturating_sub(1));
    }
    let rest = chars.get(at.saturating_add(1)..).unwrap_or_default();
    let end = rest.iter().position(|c| *c == '\'').ok_or("a quote is not closed")?;
    Ok(at.saturating_add(1).saturating_add(end))
}

fn skip_double(chars: &[char], mut at: usize) -> Result<usize, Unproven> {
    loop {
        at = at.saturating_add(1);
        match chars.get(at) {
            Some('"') => return Ok(at),
            Some('\\') => at = at.saturating_add(1),
            Some('`') => return Err("backquotes stand inside a substitution"),
            Some('$') if chars.get(at.saturating_add(1)) == Some(&'(') => {
                at = closing(chars, at.saturating_add(2))?;
            }
            Some('$') if chars.get(at.saturating_add(1)) == Some(&'{') => {
                let rest = chars.get(at..).unwrap_or_default();
                let end = rest.iter().position(|c| *c == '}').ok_or("a `${` is not closed")?;
                if rest.iter().take(end).any(|c| matches!(c, '"' | '\'' | '\\' | '`' | '(')) {
                    return Err("a form of `${` is not known to be harmless");
                }
                at = at.saturating_add(end);
            }
            Some(_) => {}
            None => return Err("a quote is not closed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(raw: &str) -> Result<Value, Unproven> {
        read(raw, WordPosition::Argument, &mut Vec::new()).map(|word| word.value)
    }

    fn literal(text: &str) -> Result<Value, Unproven> {
        Ok(Value::Literal(text.to_owned()))
    }

    #[test]
    fn quotes_and_escapes_vanish_as_in_bash() {
        for (raw, text) in [
            (r"c\url", "curl"),
            ("'cu'rl", "curl"),
            (r"$'\x63url'", "curl"),
            (r"$'\143url'", "curl"),
            (r"$'\u0063url'", "curl"),
            (r#""r"m"#, "rm"),
            (r#""a\b\"\$c""#, r#"a\b"$c"#),
            ("a\\\nb", "ab"),
            ("''", ""),
            ("a'*'b", "a*b"),
            (r"\*", "*"),
            ("{}", "{}"),
            ("{a}", "{a}"),
            ("$", "$"),
            ("[", "["),
        ] {
            assert_eq!(value(raw), literal(text), "{raw}");
        }
    }

    #[test]
    fn what_only_running_tells_is_marked_with_what_it_begins_with() {
        assert_eq!(value("\"$x\""), Ok(Value::One(String::new())));
        assert_eq!(value("./\"$x\""), Ok(Value::One("./".to_owned())));
        assert_eq!(value("./$x"), Ok(Value::Many));
        assert_eq!(value("\"$@\""), Ok(Value::Many));
        assert_eq!(value("{a,b}"), Ok(Value::Many));
        assert_eq!(value("{1..3}"), Ok(Value::Many));
        assert_eq!(value("~/x"), Ok(Value::One(String::new())));
        assert_eq!(value("--file=~/x"), Ok(Value::One("--file=".to_owned())));
        assert!(matches!(value("*.py"), Ok(Value::Glob(_))));
        assert_eq!(value("$((1 + 2))"), Ok(Value::Many));
    }

    #[test]
    fn nested_lines_are_found_at_any_depth_of_quotes() {
        let mut nested = Vec::new();
        read("a\"x $(echo \")\" $(id))\"b`pwd`", WordPosition::Argument, &mut nested).unwrap();
        assert_eq!(nested, ["echo \")\" $(id)", "pwd"]);
    }

    #[test]
    fn what_cannot_be_read_with_certainty_is_refused() {
        for raw in [
            "${x@P}",
            "${!x}",
            "${x:-$(id)}",
            "${x/$(id)/b}",
            "${a[$(id)]}",
            "$((1+$(id)))",
            "$((x))",
            "$[1]",
            "$\"x\"",
            "$(echo a # )\nrm b)",
            "$(case x in x) rm;; esac)",
            "$(cat <<E\nE\n)",
            "`a\\`b`",
            "'",
            "\"",
            "$(",
            "${",
            "a\\",
            "`",
            "$'\\x00'",
            "$'\\xff'",
            "a;b",
            "a(b",
            "#x",
            "${x:=y}",
            "${x^^}",
        ] {
            assert!(value(raw).is_err(), "{raw}: {:?}", value(raw));
        }
    }
}
