//! Text of a caller as a person may see it: nothing acts on the terminal, hides, turns round, or passes for another letter.
//!
//! Whoever approves decides by what the screen shows. So what a terminal acts on or does not show is written out, and a
//! letter that looks like another one is written out where it can deceive: in a word that also has ASCII letters, or in
//! a word made of nothing but such letters. Text in other scripts stays readable.

use serde_json::Value as Json;

/// A text as a person may see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sanitized {
    /// The text, with everything that deceives written out as `\u{..}`.
    pub text: String,
    /// What was written out, once each, in words: "`\u{430}` looks like `a`".
    pub notes: Vec<String>,
}

/// A text as a person may see it.
#[must_use]
pub fn sanitize_text(text: &str) -> String {
    sanitize(text).text
}

/// A text as a person may see it, and what is odd about it.
#[must_use]
pub fn sanitize(text: &str) -> Sanitized {
    let mut out = Sanitized { text: String::with_capacity(text.len()), notes: Vec::new() };
    for word in words(text) {
        let deceives = deceives(word);
        for c in word.chars() {
            let why = oddity(c).or_else(|| deceives.then(|| twin(c)).flatten().map(Odd::Twin));
            match why {
                None => out.text.push(c),
                Some(odd) => write_out(&mut out, c, odd),
            }
        }
    }
    out
}

/// JSON for a person: one `name  value` line per leaf would lose types, so it is JSON, indented, each text as [`sanitize`] has it.
#[must_use]
pub fn sanitize_json(value: &Json) -> Sanitized {
    let mut out = Sanitized::default();
    write_json(&mut out, value, 0);
    out
}

fn write_json(out: &mut Sanitized, value: &Json, depth: usize) {
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => out.text.push_str(&value.to_string()),
        Json::String(text) => write_text(out, text),
        Json::Array(items) if items.is_empty() => out.text.push_str("[]"),
        Json::Object(table) if table.is_empty() => out.text.push_str("{}"),
        Json::Array(items) => {
            out.text.push_str("[\n");
            for (index, item) in items.iter().enumerate() {
                indent(out, depth + 1);
                write_json(out, item, depth + 1);
                out.text.push_str(if index + 1 < items.len() { ",\n" } else { "\n" });
            }
            indent(out, depth);
            out.text.push(']');
        }
        Json::Object(table) => {
            out.text.push_str("{\n");
            for (index, (name, item)) in table.iter().enumerate() {
                indent(out, depth + 1);
                write_text(out, name);
                out.text.push_str(": ");
                write_json(out, item, depth + 1);
                out.text.push_str(if index + 1 < table.len() { ",\n" } else { "\n" });
            }
            indent(out, depth);
            out.text.push('}');
        }
    }
}

/// A JSON string, quoted, with its line breaks as `\n` and no other escape that could be mistaken for the text's own.
fn write_text(out: &mut Sanitized, text: &str) {
    out.text.push('"');
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            out.text.push_str("\\n");
        }
        let plain = line.replace('\\', "\\\\").replace('"', "\\\"");
        let Sanitized { text, notes } = sanitize(&plain);
        out.text.push_str(&text);
        for note in notes {
            if !out.notes.contains(&note) {
                out.notes.push(note);
            }
        }
    }
    out.text.push('"');
}

fn indent(out: &mut Sanitized, depth: usize) {
    out.text.push_str(&"  ".repeat(depth));
}

/// Why a character is written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Odd {
    Control,
    Invisible,
    Turns,
    Blank,
    Combines,
    Twin(char),
}

fn write_out(out: &mut Sanitized, c: char, odd: Odd) {
    let escaped = c.escape_unicode().to_string();
    out.text.push_str(&escaped);
    let note = match odd {
        Odd::Control => format!("`{escaped}` is a control character"),
        Odd::Invisible => format!("`{escaped}` cannot be seen"),
        Odd::Turns => format!("`{escaped}` turns the direction of text"),
        Odd::Blank => format!("`{escaped}` looks like a blank and is none"),
        Odd::Combines => format!("`{escaped}` changes the letter before it"),
        Odd::Twin(like) => format!("`{escaped}` looks like `{like}`"),
    };
    if !out.notes.contains(&note) {
        out.notes.push(note);
    }
}

/// Characters that are written out wherever they stand.
fn oddity(c: char) -> Option<Odd> {
    if c.is_control() {
        return Some(Odd::Control);
    }
    match c {
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => Some(Odd::Turns),
        '\u{ad}'
        | '\u{34f}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200d}'
        | '\u{2060}'..='\u{2065}'
        | '\u{206a}'..='\u{206f}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}'
        | '\u{e000}'..='\u{f8ff}'
        | '\u{f0000}'..='\u{10ffff}' => Some(Odd::Invisible),
        '\u{a0}'
        | '\u{1680}'
        | '\u{2000}'..='\u{200a}'
        | '\u{2028}'
        | '\u{2029}'
        | '\u{202f}'
        | '\u{205f}'
        | '\u{3000}' => Some(Odd::Blank),
        '\u{300}'..='\u{36f}'
        | '\u{483}'..='\u{489}'
        | '\u{1ab0}'..='\u{1aff}'
        | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}'
        | '\u{fe20}'..='\u{fe2f}' => Some(Odd::Combines),
        // Letters in another dress are never anybody's script.
        '\u{ff01}'..='\u{ff5e}' => Some(Odd::Twin(dressed(c, '\u{ff01}', '!'))),
        '\u{1d400}'..='\u{1d7ff}' | '\u{1f100}'..='\u{1f1ff}' | '\u{2460}'..='\u{24ff}' | '\u{2100}'..='\u{214f}' => {
            Some(Odd::Twin(mathematical(c)))
        }
        '\u{2010}'..='\u{2012}' | '\u{2212}' | '\u{fe63}' => Some(Odd::Twin('-')),
        '\u{2044}' | '\u{2215}' | '\u{29f8}' => Some(Odd::Twin('/')),
        '\u{2024}' | '\u{ff61}' | '\u{3002}' => Some(Odd::Twin('.')),
        '\u{2236}' | '\u{a789}' => Some(Odd::Twin(':')),
        '\u{ff0}'..='\u{fff}' | '\u{fe50}'..='\u{fe6b}' => Some(Odd::Invisible),
        _ => None,
    }
}

/// The plain letter at the same distance from the begin of its block.
fn dressed(c: char, from: char, plain: char) -> char {
    let index = u32::from(c).saturating_sub(u32::from(from));
    char::from_u32(u32::from(plain) + index).unwrap_or('?')
}

/// Mathematical letters stand in rows of A-Z a-z, digits in rows of ten; the letter-like ones have no order.
fn mathematical(c: char) -> char {
    match c {
        '\u{1d400}'..='\u{1d6a3}' => {
            let index = u32::from(c).saturating_sub(0x1d400) % 52;
            let (first, index) = if index < 26 { ('A', index) } else { ('a', index - 26) };
            char::from_u32(u32::from(first) + index).unwrap_or('?')
        }
        '\u{1d7ce}'..='\u{1d7ff}' => char::from_digit(u32::from(c).saturating_sub(0x1d7ce) % 10, 10).unwrap_or('?'),
        '\u{212a}' => 'K',
        '\u{212e}' | '\u{212f}' | '\u{2147}' => 'e',
        '\u{210e}' => 'h',
        '\u{2139}' | '\u{2148}' => 'i',
        '\u{2134}' => 'o',
        _ => '?',
    }
}

/// Whether letters of this word pass for ASCII ones.
fn deceives(word: &str) -> bool {
    let mut letters = word.chars().filter(|c| c.is_alphabetic()).peekable();
    if word.is_ascii() || letters.peek().is_none() {
        return false;
    }
    word.chars().any(|c| c.is_ascii_alphabetic()) || letters.all(|c| twin(c).is_some())
}

/// Words as the eye takes them: an address or a host is one, so that one strange letter in it shows.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '@' | '/' | '\u{300}'..='\u{36f}');
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let inside = is_part(first);
        let end = rest.find(|c| is_part(c) != inside).unwrap_or(rest.len());
        let (word, after) = rest.split_at_checked(end)?;
        rest = after;
        Some(word)
    })
}

/// The ASCII letter that a letter of another script is drawn like.
fn twin(c: char) -> Option<char> {
    TWINS.iter().find(|(twins, _)| twins.contains(c)).map(|(_, plain)| *plain)
}

/// By the letter that they pass for: Cyrillic, Greek, Armenian, Cherokee, Latin relatives without their own sound in ASCII.
const TWINS: &[(&str, char)] = &[
    ("аɑα", 'a'),
    ("АΑᎪ", 'A'),
    ("Ьƅ", 'b'),
    ("ВΒᏴ", 'B'),
    ("сϲᴄ", 'c'),
    ("СϹᏟ", 'C'),
    ("ԁɗ", 'd'),
    ("Ꭰ", 'D'),
    ("еєҽ", 'e'),
    ("ЕΕᎬ", 'E'),
    ("ſ", 'f'),
    ("Ϝ", 'F'),
    ("ɡց", 'g'),
    ("ԌᏀ", 'G'),
    ("һհ", 'h'),
    ("НΗᎻ", 'H'),
    ("іıɩι", 'i'),
    ("ІΙӀ", 'I'),
    ("јϳ", 'j'),
    ("ЈᎫ", 'J'),
    ("κк", 'k'),
    ("КΚᏦ", 'K'),
    ("ӏǀ", 'l'),
    ("Ꮮ", 'L'),
    ("МΜᎷ", 'M'),
    ("ո", 'n'),
    ("Ν", 'N'),
    ("оοօ", 'o'),
    ("ОΟՕ", 'O'),
    ("рρ", 'p'),
    ("РΡᏢ", 'P'),
    ("ԛ", 'q'),
    ("Ԛ", 'Q'),
    ("гᴦ", 'r'),
    ("Ꭱ", 'R'),
    ("ѕ", 's'),
    ("ЅՏᏚ", 'S'),
    ("тτ", 't'),
    ("ТΤᎢ", 'T'),
    ("υսᴜ", 'u'),
    ("Ս", 'U'),
    ("νѵ", 'v'),
    ("ѴᏙ", 'V'),
    ("ԝѡω", 'w'),
    ("ԜᎳ", 'W'),
    ("хχ", 'x'),
    ("ХΧ", 'X'),
    ("уγ", 'y'),
    ("ҮΥ", 'Y'),
    ("ᴢ", 'z'),
    ("ΖᏃ", 'Z'),
    ("з", '3'),
    ("Ꮞ", '4'),
    ("б", '6'),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_on_or_hides_is_written_out() {
        let cases = [
            ("\u{1b}[2J\u{1b}]52;c;YQ==\u{7}", "\\u{1b}[2J\\u{1b}]52;c;YQ==\\u{7}"),
            ("a\u{202e}txt.exe", "a\\u{202e}txt.exe"),
            ("pay\u{200b}pal", "pay\\u{200b}pal"),
            ("rm\u{a0}-rf", "rm\\u{a0}-rf"),
            ("a\u{2028}b", "a\\u{2028}b"),
            ("e\u{301}", "e\\u{301}"),
            ("ｒｍ", "\\u{ff52}\\u{ff4d}"),
            ("\u{1d42b}\u{1d426}", "\\u{1d42b}\\u{1d426}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("\u{e0041}", "\\u{e0041}"),
        ];
        for (text, wanted) in cases {
            let Sanitized { text: got, notes } = sanitize(text);
            assert_eq!(got, wanted);
            assert!(!notes.is_empty(), "{text:?} is marked");
        }
    }

    #[test]
    fn a_letter_that_passes_for_another_is_named() {
        let seen = sanitize("bob@pаypal.com");
        assert_eq!(seen.text, "bob@p\\u{430}ypal.com");
        assert_eq!(seen.notes, ["`\\u{430}` looks like `a`"]);
        assert_eq!(sanitize("ｒｍ").notes, ["`\\u{ff52}` looks like `r`", "`\\u{ff4d}` looks like `m`"]);
        // A whole word of such letters deceives as well.
        assert_eq!(sanitize_text("сор"), "\\u{441}\\u{43e}\\u{440}");
        assert_eq!(sanitize_text("рау.example"), "\\u{440}\\u{430}\\u{443}.example");
    }

    #[test]
    fn other_scripts_stay_readable() {
        for text in
            ["Привет, мир", "Γειά σου Κόσμε", "日本語のテキスト", "Grüße aus Köln", "naïve café", "שלום", "1 < 2", ""]
        {
            let Sanitized { text: got, notes } = sanitize(text);
            assert_eq!((got.as_str(), notes.len()), (text, 0));
        }
    }

    #[test]
    fn json_shows_its_own_escapes_and_not_those_of_the_text() {
        let value = serde_json::json!({ "a\u{1b}": "x\"\\n\ny", "n": [1, true, null], "e": {}, "l": [] });
        let wanted = "{\n  \"a\\u{1b}\": \"x\\\"\\\\n\\ny\",\n  \"n\": [\n    1,\n    true,\n    null\n  ],\n  \"e\": {},\n  \"l\": []\n}";
        assert_eq!(sanitize_json(&value).text, wanted);
        // A text that spells an escape out is told apart from the character itself.
        assert_ne!(sanitize_json(&serde_json::json!("\\u{1b}")).text, sanitize_json(&serde_json::json!("\u{1b}")).text);
    }
}
