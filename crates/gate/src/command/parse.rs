//! From text to a tree, with bounds: what is too long, too deep, or shows otherwise than it reads, is refused before the parser
//! sees it.

use brush_parser::ast::Program;
use brush_parser::{Parser, ParserOptions, Token};
use policy::diagnostic::quote;

use super::{here, options::blocked, subscripts};
use crate::blocked::Blocked;

/// Longest line, in bytes.
pub const MAX_BYTES: usize = 32 * 1024;
/// Most brackets, negations and compound words, which bounds how deep they nest.
const MAX_OPENERS: usize = 256;
/// Most separators, which bounds lists that the parser reads one inside the other.
const MAX_SEPARATORS: usize = 2_000;
/// Most round brackets of the shell's own inside each other, with the `case` of a line: the parser reads what is within a
/// bracket a second time where it turns out to be no arithmetic, and within the last `case` item always. So thirty of them
/// take it minutes, and sixty for ever.
const MAX_TWICE: usize = 8;
/// Digits of a descriptor.
const MAX_DIGITS: usize = 9;
/// The parser calls itself per nesting: 800 deep end a stack of 8 MiB (measured), and its frames grow in debug builds.
const STACK: usize = 64 << 20;
/// Lines as plain as this are read on the caller's stack.
const PLAIN_BYTES: usize = 1024;
const PLAIN_OPENERS: usize = 12;

/// Refuses text that no line may have.
pub(super) fn plain(text: &str) -> Result<(), Blocked> {
    if text.len() > MAX_BYTES {
        let what = format!("the line has {} bytes", text.len());
        return Err(blocked(
            "commands.line/too-big",
            what,
            "so long a line is not read",
            format!("at most {MAX_BYTES} bytes"),
        ));
    }
    let Some(bad) = text.chars().find(|c| is_bad(*c)) else { return Ok(()) };
    let name = format!("U+{:04X}", u32::from(bad));
    let what = format!("{} has the character {name}", quote(text));
    let why = if bad.is_control() {
        "programs, terminals and people read control characters in different ways"
    } else {
        "it looks like a blank or like nothing, so the line is not what it shows"
    };
    Err(blocked("commands.line/character", what, why, "plain blanks and line ends"))
}

/// Control characters, blanks that are none for bash, and what cannot be seen.
fn is_bad(c: char) -> bool {
    if c.is_ascii() {
        return c.is_control() && !matches!(c, '\n' | '\t');
    }
    c.is_control() || c.is_whitespace() || crate::invisible::is_invisible(c) || c == '\u{fe0f}'
}

/// How many things of a line may nest.
fn openers(text: &str) -> usize {
    let marks = text.chars().filter(|c| matches!(c, '(' | '{' | '!' | '`' | '[')).count();
    let word = |word: &&str| {
        matches!(
            *word,
            "if" | "elif"
                | "while"
                | "until"
                | "for"
                | "case"
                | "select"
                | "do"
                | "then"
                | "time"
                | "coproc"
                | "function"
        )
    };
    marks.saturating_add(text.split(|c: char| !c.is_ascii_alphanumeric()).filter(word).count())
}

/// Whether a line is to be read on a stack of its own.
pub(super) fn needs_stack(text: &str) -> bool {
    text.len() > PLAIN_BYTES || openers(text) > PLAIN_OPENERS
}

/// Runs a closure on a large stack; none where there is no such stack.
pub(super) fn on_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    crate::stack::run(STACK, work).ok()
}

/// Whether a redirection names a descriptor that no process has: the parser ends itself at a number that it cannot hold.
fn has_odd_descriptor(text: &str) -> bool {
    // A word goes on behind an escaped line end.
    let text = text.replace("\\\n", "");
    let begins = |before: &str| {
        before
            .chars()
            .next_back()
            .is_none_or(|c| c.is_ascii_whitespace() || matches!(c, ';' | '&' | '|' | '(' | ')' | '<' | '>'))
    };
    text.match_indices(['<', '>']).any(|(at, _)| {
        let before = text.get(..at).unwrap_or_default();
        let rest = before.trim_end_matches(|c: char| c.is_ascii_digit());
        before.len() - rest.len() > MAX_DIGITS && begins(rest)
    })
}

fn options() -> ParserOptions {
    ParserOptions { enable_extended_globbing: false, ..ParserOptions::default() }
}

/// Whether the parser would not come back. Brackets in words (quoted, `$(`) are not its own.
fn is_read_for_ever(text: &str) -> bool {
    if text.matches('(').count() + text.matches("case").count() <= MAX_TWICE {
        return false;
    }
    // What cannot be divided into words is no line either, and is told by the parser, at once.
    let Ok(tokens) = brush_parser::uncached_tokenize_str(text, &options().tokenizer_options()) else { return false };
    let (mut depth, mut deepest, mut cases) = (0_usize, 0, 0);
    for token in tokens {
        match token {
            Token::Operator(operator, _) if operator == "(" => depth += 1,
            Token::Operator(operator, _) if operator == ")" => depth = depth.saturating_sub(1),
            // Where one ends is not asked: `esac` may be anybody's argument.
            Token::Word(word, _) if word == "case" => cases += 1,
            Token::Operator(..) | Token::Word(..) => {}
        }
        deepest = depth.max(deepest);
    }
    deepest + cases > MAX_TWICE
}

/// Whether digits or a name in braces stand between two redirections, `<5<x`, `<{a}<x`: a file for the parser, a descriptor
/// for bash.
fn has_two_readings(text: &str) -> bool {
    let is_near = |(at, _)| {
        let before: &str = text.get(..at).unwrap_or_default();
        let rest = before.trim_end_matches(|c: char| c.is_ascii_digit());
        before.ends_with('}') || (rest.len() < before.len() && rest.trim_end().ends_with(['<', '>', '|', '-', '\\']))
    };
    if !text.match_indices(['<', '>']).any(is_near) {
        return false;
    }
    let Ok(tokens) = brush_parser::uncached_tokenize_str(text, &options().tokenizer_options()) else { return false };
    tokens.windows(3).any(|three| {
        let [Token::Operator(first, _), Token::Word(word, at), Token::Operator(next, after)] = three else {
            return false;
        };
        first.starts_with(['<', '>'])
            && !first.ends_with('&')
            && (word.bytes().all(|byte| byte.is_ascii_digit()) || (word.starts_with('{') && word.ends_with('}')))
            && next.starts_with(['<', '>'])
            && at.end.index == after.start.index
    })
}

/// The tree of a line.
pub(super) fn program(text: &str) -> Result<Program, Blocked> {
    let separators = text.chars().filter(|c| matches!(c, ';' | '&' | '|' | '\n')).count();
    if openers(text) > MAX_OPENERS || separators > MAX_SEPARATORS {
        let what = "the line nests or joins too many commands".to_owned();
        return Err(blocked("commands.line/too-big", what, "so long a line is not read", "divide it"));
    }
    if here::is_odd(text) {
        let what = format!("{} ends a here-document with an expansion, or with nothing", quote(text));
        return Err(blocked("commands.line/syntax", what, "the end is a plain word", "`<<END`"));
    }
    if is_read_for_ever(text) {
        let what = format!("the line has more than {MAX_TWICE} round brackets or `case` inside each other");
        return Err(blocked("commands.line/too-big", what, "so deep a line is not read", "divide it"));
    }
    if subscripts::most_open(text) > subscripts::MAX {
        let what = format!("the line has more than {} square brackets open at once", subscripts::MAX);
        return Err(blocked("commands.line/too-big", what, "so deep a line is not read", "close them"));
    }
    if has_odd_descriptor(text) {
        let what = format!("{} redirects a descriptor of more than {MAX_DIGITS} digits", quote(text));
        return Err(blocked("commands.line/syntax", what, "no process has one", "a small number"));
    }
    if has_two_readings(text) {
        let what = format!("{} has a number or a name in braces between two redirections", quote(text));
        return Err(blocked("commands.line/syntax", what, "bash takes it for a descriptor", "a blank behind it"));
    }
    Parser::new(text.as_bytes(), &options()).parse_program().map_err(|error| {
        let what = format!("{} cannot be read", quote(text));
        let why = format!("it is no complete line of bash: {}", error.to_string().lines().next().unwrap_or_default());
        blocked("commands.line/syntax", what, why, "a complete line")
    })
}
