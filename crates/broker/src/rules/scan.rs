//! A look at the text before the parser sees it: the parser's stack grows with brackets and with chains of operators, and
//! a stack that overflows ends the process. Strings and comments are skipped as the language reads them.

use super::Flaw;

/// Longest expression, in bytes.
pub const MOST_BYTES: usize = 4096;
/// Deepest nesting of brackets.
pub const MOST_NESTED: usize = 24;
/// Most operators; dots, colons and opening brackets are such.
pub const MOST_OPERATORS: usize = 200;

/// Refuses what the parser could not bear at all, and answers how much there is that needs its stack.
pub(super) fn check(text: &str) -> Result<usize, Flaw> {
    let flaw = |at: usize, what: String, fix: &str| {
        let end = text.ceil_char_boundary((at + 1).min(text.len()));
        let (what, why) = (what, "evaluating it would need more stack or time than a decision may take".to_owned());
        Err(Flaw { range: text.floor_char_boundary(at.min(text.len()))..end, what, why, fix: fix.to_owned() })
    };
    if text.len() > MOST_BYTES {
        return flaw(
            MOST_BYTES,
            format!("the condition is longer than {MOST_BYTES} bytes"),
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
                at = end_of_string(bytes, at);
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
        if depth > MOST_NESTED {
            return flaw(at, format!("brackets are nested deeper than {MOST_NESTED}"), "split it into several rules");
        }
        if operators > MOST_OPERATORS {
            return flaw(
                at,
                format!("there are more than {MOST_OPERATORS} operators"),
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

/// The first byte after a string that begins at `at`; the end of the text if it does not end.
fn end_of_string(bytes: &[u8], at: usize) -> usize {
    let letter = |back: usize| at.checked_sub(back).and_then(|at| bytes.get(at)).map(u8::to_ascii_lowercase);
    let raw = letter(1) == Some(b'r') || letter(1) == Some(b'b') && letter(2) == Some(b'r');
    let quote = bytes.get(at).copied().unwrap_or(b'"');
    let triple = [quote; 3];
    let long = bytes.get(at..at + 3) == Some(&triple[..]);
    let mut next = at + if long { 3 } else { 1 };
    while let Some(byte) = bytes.get(next) {
        if *byte == b'\\' && !raw {
            next += 2;
        } else if long && bytes.get(next..next + 3) == Some(&triple[..]) {
            return next + 3;
        } else if !long && (*byte == quote || *byte == b'\n') {
            return next + 1;
        } else {
            next += 1;
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_nesting_and_chains_have_a_bound_each() {
        let cases = [
            ("x".repeat(MOST_BYTES), true),
            ("x".repeat(MOST_BYTES + 1), false),
            (format!("{}1{}", "(".repeat(MOST_NESTED), ")".repeat(MOST_NESTED)), true),
            (format!("{}1", "(".repeat(MOST_NESTED + 1)), false),
            (vec!["1"; MOST_OPERATORS + 1].join("+"), true),
            (vec!["1"; MOST_OPERATORS + 2].join("+"), false),
            (vec!["1"; MOST_OPERATORS + 2].join(" in "), false),
            (vec!["a"; MOST_OPERATORS + 2].join("."), false),
            (vec!["a"; MOST_OPERATORS + 1].join("&&"), true),
            ("!".repeat(MOST_OPERATORS + 1), false),
            ("-".repeat(MOST_OPERATORS + 1), false),
            ("a\0b".to_owned(), false),
        ];
        for (text, good) in cases {
            assert_eq!(check(&text).is_ok(), good, "{text:.60}");
        }
    }

    #[test]
    fn strings_and_comments_are_no_operators_and_hide_none() {
        let many = "+".repeat(MOST_OPERATORS + 1);
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
    fn a_text_of_many_byte_letters_is_pointed_at_between_letters() {
        let text = "\u{1f600}".repeat(MOST_BYTES / 4 + 1);
        let flaw = check(&text).unwrap_err();
        assert!(text.get(flaw.range).is_some());
    }
}
