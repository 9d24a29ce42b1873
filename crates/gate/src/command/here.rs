//! The word that ends a here-document. Bash and the parser agree about plain ones alone: of `'a\b'` the parser makes `ab`, so
//! what it takes for the body bash would run; with an empty one at the end of a text it never comes back, and fills the memory.

/// Whether the parser would look for the end of a here-document for ever: in `<<$(`, in `<<'' `, and in `$(<<  E `, where it takes
/// the second blank for the end of a word that has not begun.
pub(super) fn is_odd(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let (before, from) = rest.split_at(at);
        let after = from.trim_start_matches('<');
        rest = after;
        // Three in a row are a here-string.
        if from.len().saturating_sub(after.len()) % 3 != 2 {
            continue;
        }
        let so_far = text.get(..text.len().saturating_sub(after.len())).unwrap_or(before);
        let is_nested = so_far.contains("$(") || so_far.contains("$[");
        let after = after.strip_prefix('-').unwrap_or(after);
        let word = after.trim_start_matches("\\\n").trim_start();
        let blanks = after.len().saturating_sub(word.len());
        if (is_nested && blanks > 1) || expands_or_is_empty(word, is_nested) {
            return true;
        }
    }
    false
}

/// Reads one word and what the parser takes for its text: without any quotes, those inside of others too.
fn expands_or_is_empty(text: &str, is_nested: bool) -> bool {
    let (mut quote, mut is_quoted, mut is_empty) = (None, false, true);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('$' | '`', _) => return true,
            ('\\', None | Some('"')) => is_empty &= chars.next() == Some('\n'),
            ('\'' | '"', None) => (quote, is_quoted) = (Some(c), true),
            (c, Some(open)) if c == open => quote = None,
            (c, None) if c.is_ascii_whitespace() || matches!(c, ';' | '&' | '|' | '<' | '>' | '(' | ')') => break,
            ('\'' | '"', _) => {}
            _ => is_empty = false,
        }
    }
    // What is not closed is refused by the parser itself.
    is_empty && quote.is_none() && (is_quoted || is_nested)
}

/// Whether a word is one that bash and the parser read alike: letters and digits, all of it within one pair of quotes or none.
pub(super) fn is_plain(raw: &str) -> bool {
    let inner = raw.strip_prefix('\\').unwrap_or_else(|| {
        let within = |quote: char| raw.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        within('\'').or_else(|| within('"')).unwrap_or(raw)
    });
    !inner.is_empty()
        && inner.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | ':' | '@' | '%' | '/'))
}
