//! The small part of TOML in which profiles are written. The build reads them, so that a start pays nothing, and a file
//! that does not fit fails the build.
//!
//! `key = "text"`, `key = ["text", ...]` over any number of lines, `[[rule]]`, comments, nothing else. What does not fit
//! is an error with its line. A test holds this reader against a real TOML parser over every profile.

use super::rule::{Action, All, Condition, Test, Width};

/// One `[[rule]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Names of calls.
    pub calls: Vec<String>,
    /// Why it is so. Never empty.
    pub why: String,
    /// Alternatives in which the call runs; the rest is answered with `otherwise`.
    pub allow: Vec<String>,
    /// Alternatives in which it is answered with `otherwise`; the rest runs.
    pub deny: Vec<String>,
    /// More alternatives for a call that an earlier rule allows in some.
    pub also: Vec<String>,
    /// `allow`, `kill`, `done` or an errno.
    pub action: String,
    /// `kill` or an errno.
    pub otherwise: String,
}

/// One file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// What it is for, one line.
    pub about: String,
    /// Other files, taken in first.
    pub include: Vec<String>,
    /// Rules; a later one about the same call wins.
    pub rules: Vec<Rule>,
}

/// A text does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// From 1; for a condition the line is 0.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl std::fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// Reads a file.
///
/// # Errors
/// The first line that does not fit.
pub fn parse(text: &str) -> Result<File, SyntaxError> {
    let mut file = File::default();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let line_number = at.saturating_add(1);
        let error = |what: &str| SyntaxError { line: line_number, what: what.to_owned() };
        let line = without_comment(line);
        if line.is_empty() {
            continue;
        }
        if line == "[[rule]]" {
            file.rules.push(Rule::default());
            continue;
        }
        let (key, value) = line.split_once('=').ok_or_else(|| error("neither `key = value` nor `[[rule]]`"))?;
        let mut value = value.trim().to_owned();
        while value.starts_with('[') && !value.ends_with(']') {
            let (_, more) = lines.next().ok_or_else(|| error("a list without end"))?;
            value.push_str(without_comment(more));
        }
        let value = parse_value(&value).ok_or_else(|| error("neither a text nor a list of texts"))?;
        set(&mut file, key.trim(), value).map_err(|what| error(&what))?;
    }
    Ok(file)
}

enum Value {
    Text(String),
    List(Vec<String>),
}

fn set(file: &mut File, key: &str, value: Value) -> Result<(), String> {
    let wrong = || format!("`{key}` is not known here, or of the wrong kind");
    let Some(rule) = file.rules.last_mut() else {
        match (key, value) {
            ("about", Value::Text(text)) => file.about = text,
            ("include", Value::List(list)) => file.include = list,
            (_, _) => return Err(wrong()),
        }
        return Ok(());
    };
    match (key, value) {
        ("calls", Value::List(list)) => rule.calls = list,
        ("why", Value::Text(text)) => rule.why = text,
        ("allow", Value::List(list)) => rule.allow = list,
        ("deny", Value::List(list)) => rule.deny = list,
        ("also", Value::List(list)) => rule.also = list,
        ("action", Value::Text(text)) => rule.action = text,
        ("otherwise", Value::Text(text)) => rule.otherwise = text,
        (_, _) => return Err(wrong()),
    }
    Ok(())
}

/// No text in these files holds a `#`.
fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

fn parse_value(value: &str) -> Option<Value> {
    let text = |text: &str| {
        let inner = text.strip_prefix('"')?.strip_suffix('"')?;
        (!inner.contains(['"', '\\'])).then(|| inner.to_owned())
    };
    match value.strip_prefix('[') {
        None => text(value).map(Value::Text),
        Some(list) => list
            .strip_suffix(']')?
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(text)
            .collect::<Option<_>>()
            .map(Value::List),
    }
}

/// `allow`, `kill`, `done`, or the name of an errno that these files use.
pub fn action(text: &str) -> Option<Action> {
    const ACTIONS: [(&str, Action); 9] = [
        ("allow", Action::Allow),
        ("kill", Action::Kill),
        // It is not executed, and its caller is told that it was.
        ("done", Action::Errno(0)),
        ("EPERM", Action::Errno(1)),
        ("EACCES", Action::Errno(13)),
        ("EINVAL", Action::Errno(22)),
        ("ENOSYS", Action::Errno(38)),
        ("EOPNOTSUPP", Action::Errno(95)),
        ("EAFNOSUPPORT", Action::Errno(97)),
    ];
    ACTIONS.into_iter().find(|(name, _)| *name == text).map(|(_, action)| action)
}

/// `int0 in 2 10 and int1 & 0xf = 1 and long2 <= 4`: conditions on arguments 0 to 5, `int` for the low 32 bits.
///
/// # Errors
/// The condition that does not fit.
pub fn conditions(text: &str) -> Result<All, SyntaxError> {
    text.split(" and ")
        .map(|one| {
            condition(one.trim())
                .ok_or_else(|| SyntaxError { line: 0, what: format!("`{one}` is no condition on an argument") })
        })
        .collect()
}

fn condition(text: &str) -> Option<Condition> {
    let mut words = text.split_ascii_whitespace();
    let argument = words.next()?;
    let (width, digit) = match (argument.strip_prefix("int"), argument.strip_prefix("long")) {
        (Some(digit), _) => (Width::Int, digit),
        (None, Some(digit)) => (Width::Long, digit),
        (None, None) => return None,
    };
    let argument = digit.parse().ok().filter(|argument| *argument < 6u8)?;
    let every = if width == Width::Int { 0xffff_ffff } else { u64::MAX };
    let mut operator = words.next()?;
    let mut mask = every;
    if operator == "&" {
        mask = number(words.next()?)?;
        operator = words.next()?;
    }
    let values: Vec<u64> = words.map(number).collect::<Option<_>>()?;
    let (first, more) = values.split_first()?;
    let fits = values.iter().all(|value| value & !mask == 0) && mask & !every == 0;
    let test = match operator {
        "=" if more.is_empty() => Test::MaskedIn { mask, values: values.into() },
        "in" => Test::MaskedIn { mask, values: values.into() },
        "!=" if more.is_empty() && mask == every => Test::Ne(*first),
        "<=" if more.is_empty() && mask == every => Test::Le(*first),
        _ => return None,
    };
    fits.then_some(Condition { argument, width, test })
}

fn number(text: &str) -> Option<u64> {
    match (text.strip_prefix("0x"), text.strip_prefix("0o")) {
        (Some(digits), _) => u64::from_str_radix(digits, 16).ok(),
        (None, Some(digits)) => u64::from_str_radix(digits, 8).ok(),
        (None, None) => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_parse_and_nonsense_does_not() {
        let parsed = conditions("int0 in 2 10 and int1 & 0xf = 1 and long2 <= 4 and int3 != 0o7").unwrap();
        assert_eq!(parsed.len(), 4);
        assert_eq!(parsed[1].test, Test::MaskedIn { mask: 0xf, values: vec![1].into() });
        assert_eq!((parsed[2].argument, parsed[2].width), (2, Width::Long));
        for bad in [
            "int6 = 1",
            "int0 == 1",
            "0 = 1",
            "int0 = ",
            "int0 & 1 = 2",
            "int0 = 0x100000000",
            "int0 & 3 <= 1",
            "int0 = 1 2",
        ] {
            assert!(conditions(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_parses_and_errors_name_their_line() {
        let file = parse(
            "about = \"x\" # c\ninclude = [\"a\",\n  \"b\", # two\n]\n[[rule]]\ncalls = [\"read\"]\nwhy = \"y\"\n",
        )
        .unwrap();
        assert_eq!(file.include, ["a", "b"]);
        assert_eq!(file.rules[0].calls, ["read"]);
        assert_eq!(parse("about = \"x\"\nnonsense\n").unwrap_err().line, 2);
        assert_eq!(parse("about = 5\n").unwrap_err().line, 1);
        assert_eq!(parse("[[rule]]\nabout = \"x\"\n").unwrap_err().line, 2);
        assert!(parse("include = [\"a\"\n").is_err());
    }
}
