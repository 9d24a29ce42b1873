//! StartContext many square brackets of a line are open at once: the parser reads what is behind one a second time where nothing closes
//! it, so that 23 of them take it a minute and more.

/// Most that are read. Subscripts inside each other are two or three deep where people write them.
pub(super) const MAX: usize = 10;

/// What a quote leaves of the marks in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    /// None.
    Nothing,
    /// `'`
    Single,
    /// `$'`, where a backslash counts.
    Ansi,
    /// `"`
    Double,
}

/// The most brackets that are open at once. One closes only what was opened in the same quotes: who hides the end of a bracket
/// from the parser does not hide it from here. What stands in single quotes is text.
pub(super) fn most_open(text: &str) -> usize {
    // Each `$(`, `(` and quote begins anew; how many are open in each.
    let mut within = vec![(Within::Nothing, 0_usize)];
    let (mut deepest, mut escaped, mut before) = (0, false, ' ');
    for (at, mark) in text.char_indices() {
        let here = within.last().map_or(Within::Nothing, |(here, _)| *here);
        let last = std::mem::replace(&mut before, mark);
        if std::mem::take(&mut escaped) {
            continue;
        }
        match (here, mark) {
            (Within::Nothing | Within::Double | Within::Ansi, '\\') => escaped = true,
            (Within::Nothing, '\'') => within.push((if last == '$' { Within::Ansi } else { Within::Single }, 0)),
            (Within::Nothing, '"') => within.push((Within::Double, 0)),
            (Within::Single | Within::Ansi, '\'') | (Within::Double, '"') | (Within::Nothing, ')') => {
                // The first stays, whatever closes too much.
                within.truncate(within.len().saturating_sub(1).max(1));
            }
            (Within::Nothing, '(') => within.push((Within::Nothing, 0)),
            (Within::Double, '(') if last == '$' => within.push((Within::Nothing, 0)),
            (Within::Nothing | Within::Double, '[') if !is_sequence(text.get(..at).unwrap_or_default()) => {
                within.last_mut().into_iter().for_each(|(_, open)| *open += 1);
                deepest = within.iter().map(|(_, open)| open).sum::<usize>().max(deepest);
            }
            (Within::Nothing | Within::Double, ']') => {
                within.last_mut().into_iter().for_each(|(_, open)| *open = open.saturating_sub(1));
            }
            (Within::Nothing | Within::Single | Within::Ansi | Within::Double, _other) => {}
        }
    }
    deepest
}

/// Whether a bracket behind this begins a sequence for a terminal (`\e[`, `\033[`, `\x1b[`), which nothing ever closes.
fn is_sequence(before: &str) -> bool {
    ["\\e", "\\033", "\\x1b", "\\x1B", "\\E"].iter().any(|begin| before.ends_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bracket_is_closed_by_one_in_the_same_quotes() {
        let cases = [
            ("[ -f a ] && [[ -d b ]] && ls [abc] [d]", 2),
            ("a[b[c[1]]]=2", 3),
            ("a[x a[x a[x", 3),
            ("a[']' a['\\]' a[\"]\" a[$'\\']'", 4),
            ("a[\"$(\"]\")\" a[\"$(\"]\")\"", 2),
            ("printf \"\\e[1m\\033[31m\\x1b[0m\"", 0),
            ("it\\'s [a] [b]", 1),
            ("python3 -c 'a[0] + a[1' \"b[0] + b[1]\" 'c['", 1),
            ("\"${a[${a[${a[1]}\"", 3),
        ];
        for (text, most) in cases {
            assert_eq!(most_open(text), most, "{text}");
        }
    }
}
