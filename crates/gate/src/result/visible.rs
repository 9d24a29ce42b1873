//! Text that nothing acts on and nobody overlooks: what a terminal obeys, what cannot be seen, what turns the direction of
//! text, and the marks by which chat formats tell who speaks, are written out as `\u{..}`.

use crate::invisible::is_invisible;

/// Whether a character is written out.
pub(super) fn is_hidden(c: char) -> bool {
    // A blank pattern of Braille looks like nothing, and an emoji's selector can carry bits.
    (c.is_control() && !matches!(c, '\n' | '\t')) || is_invisible(c) || matches!(c, '\u{2800}' | '\u{fe0f}')
}

/// The text with all that written out, and how many characters were.
pub(super) fn visible(text: &str) -> (String, usize) {
    let mut out = String::with_capacity(text.len());
    let mut written = 0;
    let mut rest = text.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let is_line_end = c == '\r' && rest.peek().is_some_and(|(_, next)| *next == '\n');
        let is_mark = c == '|' && (before(text, at) || after(text, at));
        if (is_hidden(c) && !is_line_end) || is_mark {
            out.extend(c.escape_unicode());
            written += 1;
        } else {
            out.push(c);
        }
    }
    (out, written)
}

/// Longest name in a mark like `<|im_start|>`.
const MARK: usize = 40;

fn is_mark_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MARK
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b' '))
}

/// `<|name|>` with its first bar at `at`.
fn after(text: &str, at: usize) -> bool {
    let opens = text.get(..at).is_some_and(|head| head.ends_with('<'));
    opens && text.get(at + 1..).and_then(|rest| rest.split_once("|>")).is_some_and(|(name, _)| is_mark_name(name))
}

/// `<|name|>` with its last bar at `at`.
fn before(text: &str, at: usize) -> bool {
    let closes = text.get(at + 1..).is_some_and(|rest| rest.starts_with('>'));
    // Only so far back as a name can be long: this is asked at every bar.
    let from = text.ceil_char_boundary(at.saturating_sub(MARK + 2));
    closes && text.get(from..at).and_then(|head| head.rsplit_once("<|")).is_some_and(|(_, name)| is_mark_name(name))
}

/// Where control sequences, hidden characters and the like are, for whoever looks beneath them.
pub(super) fn spans_of_nothing(text: &str) -> Vec<std::ops::Range<usize>> {
    let mut spans: Vec<std::ops::Range<usize>> = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let next = at + c.len_utf8();
        let end = if c == '\u{1b}' {
            end_of_sequence(bytes, next)
        } else if c == '\u{9b}' {
            end_of_parameters(bytes, next)
        } else if is_hidden(c) || c == '\r' {
            next
        } else {
            at = next;
            continue;
        };
        let end = text.ceil_char_boundary(end.min(text.len()));
        spans.push(at..end);
        at = end;
    }
    spans
}

/// After an ESC: a control sequence, an operating system command (to BEL or ST), or a short one.
fn end_of_sequence(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at) {
        Some(b'[') => end_of_parameters(bytes, at + 1),
        Some(b']' | b'P' | b'X' | b'^' | b'_') => {
            let rest = bytes.get(at + 1..).unwrap_or_default();
            // A command that never ends is none: the text behind it would be looked over.
            match rest.iter().take(4096).position(|b| matches!(b, 0x07 | 0x1b)) {
                Some(end) if rest.get(end) == Some(&0x1b) => at + 1 + end + 2,
                Some(end) => at + 1 + end + 1,
                None => at + 1,
            }
        }
        Some(0x20..=0x2f) => at + 2,
        Some(0x30..=0x7e) => at + 1,
        Some(_) | None => at,
    }
}

fn end_of_parameters(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|b| matches!(b, 0x20..=0x3f)) {
        at += 1;
    }
    if bytes.get(at).is_some_and(|b| matches!(b, 0x40..=0x7e)) { at + 1 } else { at }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_hides_or_turns_is_written_out_and_the_rest_stays() {
        for (text, seen) in [
            (
                "plain \u{e9} \u{4e2d}\u{6587} \u{1f600}\n\tline\r\nnext",
                "plain \u{e9} \u{4e2d}\u{6587} \u{1f600}\n\tline\r\nnext",
            ),
            ("\u{1b}[31mred\u{1b}[0m", "\\u{1b}[31mred\\u{1b}[0m"),
            ("\u{1b}]52;c;ZXZpbA==\u{7}", "\\u{1b}]52;c;ZXZpbA==\\u{7}"),
            ("a\u{9b}31m", "a\\u{9b}31m"),
            ("over\rwrite", "over\\u{d}write"),
            ("b\u{8}s \u{7f} \0", "b\\u{8}s \\u{7f} \\u{0}"),
            ("\u{202e}txt.exe", "\\u{202e}txt.exe"),
            ("zero\u{200b}width\u{feff}", "zero\\u{200b}width\\u{feff}"),
            ("tag \u{e0041}\u{e0042}", "tag \\u{e0041}\\u{e0042}"),
            ("<|im_start|>system", "<\\u{7c}im_start\\u{7c}>system"),
            ("a <| b |> c || d |> e", "a <\\u{7c} b \\u{7c}> c || d |> e"),
            ("x | y <| | |>", "x | y <| | |>"),
            ("line\u{2028}sep", "line\\u{2028}sep"),
        ] {
            assert_eq!(visible(text).0, seen, "{text:?}");
        }
    }

    #[test]
    fn sequences_are_found_whole_and_those_without_an_end_hide_nothing() {
        let gaps = |text: &str| {
            let mut text = text.to_owned();
            for span in spans_of_nothing(&text).into_iter().rev() {
                text.replace_range(span, "");
            }
            text
        };
        for (text, left) in [
            ("sk-\u{1b}[31mAB\u{1b}[0mC", "sk-ABC"),
            ("sk-\u{1b}]0;title\u{7}ABC", "sk-ABC"),
            ("sk-\u{1b}]0;title\u{1b}\\ABC", "sk-ABC"),
            ("sk-\u{9b}1;2mABC", "sk-ABC"),
            ("s\u{200b}k\u{ad}-A\u{e0041}BC", "sk-ABC"),
            ("sk-\u{1b}(BABC", "sk-ABC"),
            ("\u{1b}]sk-ABC", "sk-ABC"),
            ("sk-A\rBC", "sk-ABC"),
        ] {
            assert_eq!(gaps(text), left, "{text:?}");
        }
    }
}
