//! Short names: FAT and NTFS give a name that does not fit eight letters, a dot and three more a second one (`.git` is `GIT~1` too), and
//! whoever opens the one has the other.

/// Letters before the dot of a short name, and behind it.
const STEM: usize = 8;
const END: usize = 3;
/// Of the name's own letters so many are kept where short names of its kind were used up, and so many follow that nobody can know.
const KEPT: usize = 2;
const UNKNOWN: usize = 4;

/// Whether a name is one as those that are made where a name is too long: `STEM~NUMBER.END`.
#[must_use]
pub fn is_short(name: &[u8]) -> bool {
    parts(name).is_some()
}

/// Whether a name may be the short one of what a part of a pattern says (`*` is any bytes).
pub(crate) fn is_short_of(pattern: &[u8], name: &[u8]) -> bool {
    let Some((stem, digits, end)) = parts(name) else { return false };
    let own = pattern.iter().position(|byte| *byte != b'.').and_then(|at| pattern.get(at..)).unwrap_or_default();
    let (long, own_end) = ended(own);
    let fits = own.len() == pattern.len()
        && long.len() <= STEM
        && own_end.len() <= END
        && !long.contains(&b'.')
        && !own.contains(&b'*');
    // A dot may be among what a `*` stands for.
    let is_end = || {
        own_end.contains(&b'*')
            || own_end.is_empty() && own.contains(&b'*')
            || end.eq_ignore_ascii_case(own_end.get(..END).unwrap_or(own_end))
    };
    !fits && is_end() && is_stem(stem, digits, long)
}

/// Whether these letters are what is left of a longer name.
fn is_stem(stem: &[u8], digits: usize, long: &[u8]) -> bool {
    let known: Vec<u8> =
        long.iter().copied().take_while(|byte| *byte != b'*').filter(|byte| !b". ".contains(byte)).collect();
    let is_open = long.contains(&b'*');
    let begins = |stem: &[u8], most: usize| {
        let most = known.len().min(most);
        let same = stem.len().min(most);
        let is_long_enough = stem.len() == most || is_open && stem.len() > most;
        is_long_enough && stem.get(..same).zip(known.get(..same)).is_some_and(|(a, b)| a.eq_ignore_ascii_case(b))
    };
    let most = STEM.saturating_sub(1).saturating_sub(digits);
    let hashed = stem.len().checked_sub(UNKNOWN).and_then(|at| stem.split_at_checked(at));
    begins(stem, most)
        || hashed.is_some_and(|(kept, rest)| {
            kept.len() <= KEPT && begins(kept, KEPT) && rest.iter().all(u8::is_ascii_hexdigit)
        })
}

/// The letters before the number, how many digits that has, and what follows the dot.
fn parts(name: &[u8]) -> Option<(&[u8], usize, &[u8])> {
    let (whole, end) = ended(name);
    let at = whole.iter().rposition(|byte| *byte == b'~')?;
    let (stem, number) = (whole.get(..at)?, whole.get(at.checked_add(1)?..)?);
    let is_one = !stem.is_empty()
        && !whole.contains(&b'.')
        && !number.is_empty()
        && number.iter().all(u8::is_ascii_digit)
        && whole.len() <= STEM
        && end.len() <= END;
    is_one.then_some((stem, number.len(), end))
}

/// A name up to its last dot, and what follows it.
fn ended(name: &[u8]) -> (&[u8], &[u8]) {
    let at = name.iter().rposition(|byte| *byte == b'.').unwrap_or(name.len());
    (name.get(..at).unwrap_or_default(), name.get(at.saturating_add(1)..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_those_of_the_names_that_need_one() {
        for (pattern, name) in [
            (".git", "GIT~1"),
            (".git", "git~12"),
            (".git", "GI1F3A~1"),
            (".vscode", "VSCODE~1"),
            (".vscode", "VSCOD~10"),
            (".mcp.json", "MCP~1.JSO"),
            (".gitmodules", "GITMOD~4"),
            (".gitmodules", "gi7eba~1"),
            (".pre-commit-config.*", "PRE-CO~1.YAM"),
            ("lefthook*.y*ml", "LEFTHO~1.YML"),
            (".env*", "ENVRC~1"),
            (".env*", "ENV~1.LOC"),
            ("fumehood.toml", "FUMEHO~1.TOM"),
            ("*.sublime-project", "X~1.SUB"),
        ] {
            assert!(is_short_of(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
            assert!(is_short(name.as_bytes()), "{name}");
        }
        for (pattern, name) in [
            (".git", "GIT~"),
            (".git", "GI~1"),
            (".git", "GITX~1"),
            (".git", ".git~1"),
            (".git", "GIT~1.TXT"),
            (".git", "GIXXXX~1"),
            (".mcp.json", "MCP~1.TXT"),
            (".mcp.json", "MCP~1"),
            ("tools", "TOOLS~1"),
            ("hk.pkl", "HK~1.PKL"),
            (".vscode", "VSCODE~12"),
            (".vscode", "VSCODE~X"),
        ] {
            assert!(!is_short_of(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for name in ["a", "a~", "~1", "a.~1~", "notes~1.html", "a.b~1", "longername~1"] {
            assert!(!is_short(name.as_bytes()), "{name}");
        }
    }
}
