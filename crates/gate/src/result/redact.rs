//! Patterns whose matches are replaced: looked for in each part and over the borders of parts, in the text as it is, and in the
//! text as it would be seen.

use std::ops::Range;

use regex::{Regex, RegexBuilder};

use super::visible::spans_of_nothing;

/// What stands where a match was.
pub(super) const REDACTED: &str = "[redacted]";
const PATTERN: usize = 1 << 20;

/// Compiles a pattern as results are searched for it.
pub(super) fn pattern(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).size_limit(PATTERN).dfa_size_limit(PATTERN).build()
}

/// Replaces all matches in texts that follow each other; answers how many there were.
pub(super) fn redact(texts: &mut [&mut String], patterns: &[Regex]) -> usize {
    if patterns.is_empty() {
        return 0;
    }
    let whole: String = texts.iter().map(|text| text.as_str()).collect();
    let mut found = matches(&whole, patterns);
    if texts.len() > 1 {
        let mut begin = 0;
        // What begins in one part may swallow what the next one begins with, and only alone a part has a beginning and an end.
        for text in texts.iter() {
            found.extend(matches(text, patterns).into_iter().map(|range| range.start + begin..range.end + begin));
            begin += text.len();
        }
    }
    // An empty match shows nothing and would be put between all letters.
    found.retain(|range| !range.is_empty());
    let found = merged(found, &whole);
    let mut begin = 0;
    for text in texts {
        let end = begin + text.len();
        for range in found.iter().rev() {
            let (from, to) = (range.start.max(begin), range.end.min(end));
            if from < to {
                // The word stands where the match begins; what of it lies in later parts is taken out.
                let word = if range.start >= begin { REDACTED } else { "" };
                text.replace_range(from - begin..to - begin, word);
            }
        }
        begin = end;
    }
    found.len()
}

/// Where patterns match a text, as it is and as it would be seen.
fn matches(text: &str, patterns: &[Regex]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = patterns.iter().flat_map(|p| p.find_iter(text).map(|m| m.range())).collect();
    let nothing = spans_of_nothing(text);
    if !nothing.is_empty() {
        let (seen, origin) = without(text, &nothing);
        for pattern in patterns {
            let real = pattern.find_iter(&seen).filter_map(|m| {
                let (first, last) = (origin.get(m.start())?, origin.get(m.end().checked_sub(1)?)?);
                Some(*first..*last + 1)
            });
            found.extend(real);
        }
    }
    found
}

/// The text without some parts, and the place of each of its bytes in the whole.
fn without(text: &str, gaps: &[Range<usize>]) -> (String, Vec<usize>) {
    let (mut seen, mut origin) = (String::with_capacity(text.len()), Vec::with_capacity(text.len()));
    let mut from = 0;
    for gap in gaps.iter().chain([&(text.len()..text.len())]) {
        seen.push_str(text.get(from..gap.start).unwrap_or_default());
        origin.extend(from..gap.start);
        from = gap.end;
    }
    (seen, origin)
}

fn merged(mut ranges: Vec<Range<usize>>, text: &str) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut out: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        // The last byte of a seen text may be the last of a letter of many bytes.
        let range = text.floor_char_boundary(range.start)..text.ceil_char_boundary(range.end);
        match out.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            Some(_) | None => out.push(range),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(texts: &[&str], patterns: &[&str]) -> Vec<String> {
        let mut owned: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let patterns: Vec<Regex> = patterns.iter().map(|p| pattern(p).unwrap()).collect();
        redact(&mut owned.iter_mut().collect::<Vec<_>>(), &patterns);
        owned
    }

    #[test]
    fn matches_are_replaced_wherever_they_begin_and_end() {
        let key = &["sk-[A-Za-z0-9]{4,}"][..];
        assert_eq!(run(&["a sk-ABCD b sk-EFGHI"], key), ["a [redacted] b [redacted]"]);
        assert_eq!(run(&["a sk-A", "BCD", "EF b"], key), ["a [redacted]", "", " b"]);
        assert_eq!(run(&["x s", "k-ABCD"], key), ["x [redacted]", ""]);
        assert_eq!(run(&["sk-\u{1b}[31mAB\u{1b}[0mCD."], key), ["[redacted]."]);
        assert_eq!(run(&["s\u{200b}k-A\u{ad}BCD."], key), ["[redacted]."]);
        assert_eq!(run(&["sk-AB\u{1b}]8;;", "http://x\u{7}CD e"], key), ["[redacted]", " e"]);
        assert_eq!(run(&["none"], key), ["none"]);
        assert_eq!(run(&["sk-ABCD", "-ABCDxyz"], &["sk-ABCD", "ABCD-"]), ["[redacted]", "ABCDxyz"]);
        assert_eq!(run(&["abc"], &["x*"]), ["abc"]);
        // What matches in a part alone does so beside others, too.
        assert_eq!(run(&["sk-first", "sk-second"], &["sk-[a-z]+"]), ["[redacted]", ""]);
        let aws = r"\bAKIA[0-9]{4}\b";
        assert_eq!(run(&["AKIA1234", "AKIA5678", "x"], &[aws]), ["[redacted]", "[redacted]", "x"]);
        assert_eq!(run(&["line one", "token=abc"], &["(?m)^token=[a-z]+$"]), ["line one", "[redacted]"]);
        assert_eq!(run(&["a", "\u{200b}token=a\u{200b}bc"], &["^token=[a-z]+$"]), ["a", "\u{200b}[redacted]"]);
        assert_eq!(run(&["\u{e9}\u{200b}\u{e9}!"], &["\u{e9}\u{e9}"]), ["[redacted]!"]);
    }
}
