//! `$'...'`: the escapes of C.

use super::words::Unproven;

/// Reads from behind `$'` to the closing quote: the text, and where it goes on. What would not be text (a NUL, a byte of no
/// character) is refused.
pub(super) fn ansi_c(chars: &[char], mut at: usize) -> Result<(String, usize), Unproven> {
    let mut text = String::new();
    loop {
        let c = *chars.get(at).ok_or("a quote is not closed")?;
        at = at.saturating_add(1);
        match c {
            '\'' => return Ok((text, at)),
            '\\' => {
                let escape = *chars.get(at).ok_or("a quote is not closed")?;
                at = escaped(chars, at.saturating_add(1), escape, &mut text)?;
            }
            c => text.push(c),
        }
    }
}

fn escaped(chars: &[char], at: usize, escape: char, text: &mut String) -> Result<usize, Unproven> {
    const SIMPLE: [(char, char); 13] = [
        ('a', '\u{7}'),
        ('b', '\u{8}'),
        ('e', '\u{1b}'),
        ('E', '\u{1b}'),
        ('f', '\u{c}'),
        ('n', '\n'),
        ('r', '\r'),
        ('t', '\t'),
        ('v', '\u{b}'),
        ('\\', '\\'),
        ('\'', '\''),
        ('"', '"'),
        ('?', '?'),
    ];
    if let Some((_, c)) = SIMPLE.iter().find(|(letter, _)| *letter == escape) {
        text.push(*c);
        return Ok(at);
    }
    match escape {
        '0'..='7' => number(chars, at.saturating_sub(1), 3, 8, text),
        'x' => number(chars, at, 2, 16, text),
        'u' => number(chars, at, 4, 16, text),
        'U' => number(chars, at, 8, 16, text),
        _ => Err("an escape of `$'` is not known"),
    }
}

fn number(chars: &[char], at: usize, most: usize, base: u32, text: &mut String) -> Result<usize, Unproven> {
    let rest = chars.get(at..).unwrap_or_default();
    let digits: Vec<u32> = rest.iter().take(most).map_while(|c| c.to_digit(base)).collect();
    let value = digits.iter().fold(0_u32, |sum, digit| sum.wrapping_mul(base).wrapping_add(*digit));
    let character =
        if base == 8 || most == 2 { char::from_u32(value).filter(char::is_ascii) } else { char::from_u32(value) };
    match character {
        Some(c) if c != '\0' && !digits.is_empty() => {
            text.push(c);
            Ok(at.saturating_add(digits.len()))
        }
        Some(_) | None => Err("an escape of `$'` stands for no character"),
    }
}
