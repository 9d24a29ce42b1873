//! What is judged in the text itself, before it is parsed: length, odd characters, comments.

use policy::guards::SqlDialect;
use sqlparser::dialect::Dialect;
use sqlparser::tokenizer::{Token, Tokenizer, Whitespace};

use super::Refusal;

/// Longer text is no question that a model asks.
const MAX_LENGTH: usize = 1 << 16;
/// Chains of operators are trees as deep as they are long.
const MAX_TOKENS: usize = 6_000;
const MAX_CHAIN: usize = 400;

pub(super) fn judge(given: &str, dialect: &dyn Dialect, kind: SqlDialect) -> Result<(), Refusal> {
    if given.len() > MAX_LENGTH {
        return Err(Refusal::text("the text", "it is longer than 64 KiB"));
    }
    if let Some(odd) = given.chars().find(|c| (c.is_control() && !"\n\r\t".contains(*c)) || invisible(*c)) {
        let what = format!("the character U+{:04X}", u32::from(odd));
        return Err(Refusal::text(&what, "databases and readers disagree on what it does"));
    }
    if given.contains('\\') && matches!(kind, SqlDialect::MySql | SqlDialect::Generic) {
        return Err(Refusal::text("a backslash", "what it means depends on a setting of the connection"));
    }
    // The tokenizers of these dialects hand out what stands in such a comment, as if it stood outside.
    if matches!(kind, SqlDialect::MySql | SqlDialect::Generic) && given.contains("/*!") {
        return Err(meant());
    }
    let tokens = Tokenizer::new(dialect, given).tokenize().map_err(|error| {
        Refusal::text("the text", &format!("it does not fall into words: {}", error.to_string().to_lowercase()))
    })?;
    if tokens.len() > MAX_TOKENS {
        return Err(Refusal::text("the text", "it has more than 6000 words"));
    }
    if tokens.iter().filter(|token| links(token)).count() > MAX_CHAIN {
        return Err(Refusal::text("the text", "it has more than 400 operators"));
    }
    tokens.iter().try_for_each(comment)?;
    let hexadecimal = tokens.iter().any(|token| matches!(token, Token::HexStringLiteral(_)));
    if hexadecimal && kind != SqlDialect::MySql && given.to_ascii_lowercase().contains("0x") {
        return Err(Refusal::text(
            "a number written as `0x`",
            "it is a number for the database and bytes for the parser",
        ));
    }
    if kind == SqlDialect::PostgreSql && spells(&tokens) {
        return Err(Refusal::text("a `U&` name or text", "it spells any name in escapes"));
    }
    Ok(())
}

/// The words of a text, without blanks; none where it does not fall into words.
pub(super) fn sql_words(text: &str, dialect: &dyn Dialect) -> Option<Vec<Token>> {
    let tokens = Tokenizer::new(dialect, text).tokenize().ok()?;
    Some(tokens.into_iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect())
}

/// The same, with `OPERATOR(pg_catalog.=)` before ANY and ALL written as `=`.
pub(super) fn without_operators(text: &str, dialect: &dyn Dialect) -> Option<Vec<Token>> {
    let is = |token: &Token, word: &str| matches!(token, Token::Word(found) if found.quote_style.is_none() && found.value == word);
    let mut out = Vec::new();
    let words = sql_words(text, dialect)?;
    let mut rest = words.as_slice();
    while let Some((first, after)) = rest.split_first() {
        if let [open, Token::LParen, schema, Token::Period, operator, Token::RParen, behind, ..] = rest
            && is(open, "OPERATOR")
            && is(schema, "pg_catalog")
            && (is(behind, "ANY") || is(behind, "ALL"))
        {
            out.push(operator.clone());
            rest = rest.get(6..).unwrap_or_default();
        } else {
            out.push(first.clone());
            rest = after;
        }
    }
    Some(out)
}

/// Blanks that some databases take for letters, and marks that cannot be seen.
fn invisible(c: char) -> bool {
    (c.is_whitespace() && !c.is_ascii())
        || matches!(c, '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn meant() -> Refusal {
    Refusal::text("a comment with a meaning", "`/*!`, `/*M!` and `/*+` are not comments everywhere")
}

/// Comments pass where every database agrees on their end; none is passed on.
fn comment(token: &Token) -> Result<(), Refusal> {
    let Token::Whitespace(blank) = token else { return Ok(()) };
    match blank {
        Whitespace::Space | Whitespace::Newline | Whitespace::Tab => Ok(()),
        Whitespace::SingleLineComment { comment, .. } if comment.trim_end_matches(['\n', '\r']).contains('\r') => {
            Err(Refusal::text("a comment with a carriage return", "it ends there for some databases"))
        }
        Whitespace::SingleLineComment { .. } => Ok(()),
        Whitespace::MultiLineComment(inner) => {
            if inner.starts_with(['!', '+']) || inner.starts_with("M!") {
                return Err(meant());
            }
            if inner.contains("/*") || inner.contains("*/") {
                return Err(Refusal::text(
                    "a comment in a comment",
                    "it ends in different places for different databases",
                ));
            }
            Ok(())
        }
    }
}

/// `U&"..."` and `U&'...'`, however the tokenizer cuts them.
fn spells(tokens: &[Token]) -> bool {
    let is_u = |token: &Token| matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("u"));
    let quoted = |token: &Token| {
        matches!(token, Token::SingleQuotedString(_))
            || matches!(token, Token::Word(word) if word.quote_style.is_some())
    };
    let cut =
        tokens.windows(3).any(|three| matches!(three, [first, Token::Ampersand, last] if is_u(first) && quoted(last)));
    cut || tokens.iter().any(|token| matches!(token, Token::UnicodeStringLiteral(_)))
}

/// Tokens that make a tree deeper without nesting in the text.
fn links(token: &Token) -> bool {
    match token {
        Token::Word(word) => {
            word.quote_style.is_none()
                && ["AND", "OR", "UNION", "EXCEPT", "INTERSECT", "JOIN", "IS", "NOT", "COLLATE", "AT", "DIV", "XOR"]
                    .iter()
                    .any(|known| word.value.eq_ignore_ascii_case(known))
        }
        token => {
            let text = token.to_string();
            !text.is_empty() && text.chars().all(|c| "+-/%<>=~!@#^&|?:*".contains(c))
        }
    }
}
