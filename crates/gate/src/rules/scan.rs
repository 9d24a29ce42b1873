//! A look at the text before the parser sees it: the parser's stack grows with brackets and with chains of operators, and
//! a stack that overflows ends the process. Strings and comments are skipped as the language reads them.
//!
//! Where a string is none to the language (it does not end, or has an escape that there is not), the parser goes on in the
//! middle of it and finds brackets there that nobody counted: such a string is refused here.

use super::CelError;

/// Longest expression, in bytes.
pub const MAX_BYTES: usize = 4096;
/// Deepest nesting of brackets.
pub const MAX_NESTED: usize = 24;
/// Most operators; dots, colons and opening brackets are such.
pub const MAX_OPERATORS: usize = 200;

/// Refuses what the parser could not bear at all, and answers how much there is that needs its stack.
pub(super) fn check(text: &str) -> Result<usize, CelError> {
    let flaw = |at: usize, what: String, fix: &str| {
        let end = text.ceil_char_boundary((at + 1).min(text.len()));
        let (what, why) = (what, "evaluating it would need more stack or time than a decision may take".to_owned());
        Err(CelError { range: text.floor_char_boundary(at.min(text.len()))..end, what, why, fix: fix.to_owned() })
    };
    if text.len() > MAX_BYTES {
        return flaw(
            MAX_BYTES,
            format!("the condition is longer than {MAX_BYTES} bytes"),
            "split it into several rules",
        );
    }
    if let Some(at) = text.find('\0') {
        return flaw(at, "the condition has a NUL in it".to_owned(), "take it out");
    }
    let bytes = text.as_bytes();
    let (mut at, mut depth, mut deepest, mut operators) = (0, 0_usize, 0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' | b'\'' => {
                at = end_of_string(bytes, at).map_err(|(at, what)| no_string(text, at, what))?;
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += bytes.iter().skip(at).position(|b| *b == b'\n').unwrap_or(bytes.len() - at);
                continue;
            }
            b'(' | b'[' | b'{' => {
                depth += 1;
                deepest = depth.max(deepest);
                // `a[0][0]...` is a chain too.
                operators += 1;
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'+' | b'-' | b'*' | b'/' | b'%' | b'!' | b'<' | b'>' | b'=' | b'&' | b'|' | b'?' | b':' | b'.' => {
                operators += 1;
                // `&&`, `||`, `==` and the like are one.
                if matches!(byte, b'&' | b'|' | b'=' | b'<' | b'>' | b'!')
                    && bytes.get(at + 1).is_some_and(|next| matches!(next, b'&' | b'|' | b'='))
                {
                    at += 1;
                }
            }
            b'i' if is_word_in(bytes, at) => operators += 1,
            _ => {}
        }
        if depth > MAX_NESTED {
            return flaw(at, format!("brackets are nested deeper than {MAX_NESTED}"), "split it into several rules");
        }
        if operators > MAX_OPERATORS {
            return flaw(
                at,
                format!("there are more than {MAX_OPERATORS} operators"),
                "use `in [...]`, or several rules",
            );
        }
        at += 1;
    }
    // A level of brackets costs the parser as much stack as some operators do.
    Ok(operators + deepest * 5)
}

fn is_word_in(bytes: &[u8], at: usize) -> bool {
    let part = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let before = at.checked_sub(1).and_then(|before| bytes.get(before));
    bytes.get(at + 1) == Some(&b'n') && !part(before) && !part(bytes.get(at + 2))
}

fn no_string(text: &str, at: usize, what: &str) -> CelError {
    let at = at.min(text.len());
    let range = text.floor_char_boundary(at)..text.ceil_char_boundary((at + 1).min(text.len()));
    let why = "where a text ends is not to be guessed".to_owned();
    let fix =
        r"a text ends on its line, in the mark that it began with; escapes are \n \t \\ \' \x41 \u00e9 and the like";
    CelError { range, what: what.to_owned(), why, fix: fix.to_owned() }
}

/// The first byte after a string that begins at `at`; where it is none, and why.
fn end_of_string(bytes: &[u8], at: usize) -> Result<usize, (usize, &'static str)> {
    let before = bytes.get(..at).unwrap_or_default();
    let word = before.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    let word = before.get(at - word..).unwrap_or_default().to_ascii_lowercase();
    if ![&b""[..], b"b", b"r", b"br"].contains(&word.as_slice()) {
        return Err((at, "a word runs into a text"));
    }
    let raw = word.ends_with(b"r");
    let quote = bytes.get(at).copied().unwrap_or(b'"');
    let triple = [quote; 3];
    let long = bytes.get(at..at + 3) == Some(&triple[..]);
    let mut next = at + if long { 3 } else { 1 };
    while let Some(byte) = bytes.get(next) {
        if *byte == b'\\' && !raw {
            next += escape(bytes.get(next..).unwrap_or_default()).ok_or((next, "there is no such escape"))?;
        } else if long && bytes.get(next..next + 3) == Some(&triple[..]) {
            return Ok(next + 3);
        } else if !long && *byte == quote {
            return Ok(next + 1);
        } else if !long && matches!(byte, b'\n' | b'\r') {
            break;
        } else {
            next += 1;
        }
    }
    Err((at, "a text does not end"))
}

/// The length of an escape, if it is one.
fn escape(bytes: &[u8]) -> Option<usize> {
    let hex = |digits: usize| {
        let all = bytes.get(2..2 + digits)?;
        all.iter().all(u8::is_ascii_hexdigit).then_some(2 + digits)
    };
    match bytes.get(1)? {
        b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`' => Some(2),
        b'x' | b'X' => hex(2),
        b'u' => hex(4),
        b'U' => hex(8),
        b'0'..=b'3' => bytes.get(2..4)?.iter().all(|byte| (b'0'..=b'7').contains(byte)).then_some(4),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_nesting_and_chains_have_a_bound_each() {
        let cases = [
            ("x".repeat(MAX_BYTES), true),
            ("x".repeat(MAX_BYTES + 1), false),
            (format!("{}1{}", "(".repeat(MAX_NESTED), ")".repeat(MAX_NESTED)), true),
            (format!("{}1", "(".repeat(MAX_NESTED + 1)), false),
            (vec!["1"; MAX_OPERATORS + 1].join("+"), true),
            (vec!["1"; MAX_OPERATORS + 2].join("+"), false),
            (vec!["1"; MAX_OPERATORS + 2].join(" in "), false),
            (vec!["a"; MAX_OPERATORS + 2].join("."), false),
            (vec!["a"; MAX_OPERATORS + 1].join("&&"), true),
            ("!".repeat(MAX_OPERATORS + 1), false),
            ("-".repeat(MAX_OPERATORS + 1), false),
            ("a\0b".to_owned(), false),
        ];
        for (text, good) in cases {
            assert_eq!(check(&text).is_ok(), good, "{text:.60}");
        }
    }

    #[test]
    fn strings_and_comments_are_no_operators_and_hide_none() {
        let many = "+".repeat(MAX_OPERATORS + 1);
        for text in [
            format!("'{many}'"),
            format!("\"\\\"{many}\""),
            format!("'''{many}\n'{many}'''"),
            format!("r'\\' == '{many}'"),
            format!("1 // {many}"),
        ] {
            assert!(check(&text).is_ok(), "{text:.40}");
        }
        for text in [
            format!("''{many}''"),
            format!("r'\\'{many}''"),
            format!("'\\\\'{many}'"),
            format!("// '\n{many}"),
            format!("'\n{many}"),
            format!("'''''' {many}"),
            format!("rb'\\'{many}"),
            format!("br'\\'{many}"),
        ] {
            assert!(check(&text).is_err(), "{text:.40}");
        }
    }

    #[test]
    fn what_is_no_string_to_the_parser_hides_no_brackets() {
        let deep = "[".repeat(1500);
        for text in [
            format!("agent == \"\\u{{e9}}{deep}\""),
            format!("agent == '\\q{deep}'"),
            format!("agent == '\\400{deep}'"),
            format!("agent == '\\x4{deep}'"),
            format!("agent == 'a\r{deep}'"),
            format!("agent == '''{deep}"),
            format!("bar\"\\\"\" {deep} \""),
            format!("agent == {deep}'"),
        ] {
            let flaw = crate::rules::Condition::compile(&text, None).unwrap_err();
            assert!(text.get(flaw.range).is_some());
        }
        for text in [
            r#"agent == "\a\n\x41\u00e9\U0001F600\101\?\`""#,
            "agent == r'\\q' || agent == R'''a\n\"b'''",
            r#"agent == "it's" && session == '"'"#,
        ] {
            assert!(crate::rules::Condition::compile(text, None).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_text_of_many_byte_letters_is_pointed_at_between_letters() {
        let text = "\u{1f600}".repeat(MAX_BYTES / 4 + 1);
        let flaw = check(&text).unwrap_err();
        assert!(text.get(flaw.range).is_some());
    }
}
