//! `commands.block`: refused whatever else allows it, compared with the parsed words of each program that would be started.
//!
//! `rm -rf` is a program with two options, in whatever spelling and order; `/etc/passwd` is a path, in whatever spelling;
//! `git push` a program with a sub-command; `curl` a program.

use std::path::{Path, PathBuf};

use super::argument_rules::Folders;
use super::places::lexical;
use super::table::{Style, Table};
use super::words::{Value, Word};

/// One pattern.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// As written.
    pub(super) text: String,
    words: Vec<String>,
}

/// What a pattern is compared with.
#[derive(Debug)]
pub(super) struct BlockSubject<'a> {
    /// Last part of the program's name.
    pub(super) name: &'a str,
    pub(super) table: Option<&'a Table>,
    pub(super) words: &'a [Word],
    pub(super) folders: &'a Folders,
    pub(super) shallow: bool,
}

impl Block {
    pub(super) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), words: text.split_ascii_whitespace().map(str::to_owned).collect() }
    }

    /// Whether it is about a path.
    pub(super) fn is_path(&self) -> bool {
        self.words.len() == 1 && self.text.contains('/')
    }

    /// Whether a program with its words is what is blocked.
    pub(super) fn hits(&self, started: &BlockSubject<'_>) -> bool {
        match self.words.split_first() {
            Some((path, [])) if path.contains('/') => started.words.iter().any(|word| path_hit(path, word, started)),
            Some((name, [])) => {
                let is_file =
                    |word: &Word| word.text().is_some_and(|text| text.rsplit('/').next() == Some(name.as_str()));
                started.name == name || name.starts_with('.') && started.words.iter().any(is_file)
            }
            Some((name, rest)) => started.name == name && words_hit(rest, started),
            None => false,
        }
    }

    /// Whether a file that is opened by a redirection is blocked.
    pub(super) fn hits_file(&self, word: &Word, folders: &Folders) -> bool {
        let started =
            BlockSubject { name: "", table: None, words: std::slice::from_ref(word), folders, shallow: false };
        self.hits(&started)
    }
}

/// Every option and every word of the pattern is among those given.
fn words_hit(rest: &[String], started: &BlockSubject<'_>) -> bool {
    let words: Vec<&str> = started.words.iter().filter_map(Word::text).collect();
    let given = options(words.iter().copied(), started.table);
    let operands: Vec<&str> = words.iter().copied().filter(|word| !word.starts_with('-')).collect();
    let wanted = wanted(rest, started.table);
    let plain = rest.iter().filter(|word| !word.starts_with('-'));
    wanted.iter().all(|option| given.contains(option))
        && plain.into_iter().all(|word| operands.contains(&word.as_str()))
}

/// The options of a pattern: letters behind one dash are options of their own, unless the program knows them together.
fn wanted(rest: &[String], table: Option<&Table>) -> Vec<String> {
    let known = |word: &&String| {
        table.is_some_and(|table| {
            table.style == Style::Find || table.flags.iter().any(|flag| flag.names.contains(*word))
        })
    };
    let mut all = Vec::new();
    for word in rest.iter().filter(|word| word.starts_with('-')) {
        if word.starts_with("--") || known(&word) {
            all.extend(options(std::iter::once(word.as_str()), table).into_iter().take(1));
        } else {
            all.extend(options(std::iter::once(word.as_str()), table).into_iter().skip(1));
        }
    }
    all
}

/// Options one by one, each by its first spelling where a table knows it: `-rf` is `-r` and `-f`.
fn options<'a>(words: impl Iterator<Item = &'a str>, table: Option<&Table>) -> Vec<String> {
    let same = |name: &str| {
        let flags = table.map(|table| table.flags.as_slice()).unwrap_or_default();
        let found = flags.iter().find(|flag| {
            let begins = |known: &String| name.len() > 3 && name.starts_with("--") && known.starts_with(name);
            flag.names.iter().any(|known| known == name || begins(known))
        });
        found.map_or_else(|| name.to_owned(), |flag| flag.name().to_owned())
    };
    let mut all = Vec::new();
    for word in words.take_while(|word| *word != "--") {
        if word.starts_with("--") {
            all.push(same(word.split('=').next().unwrap_or(word)));
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            all.push(same(word));
            all.extend(letters.chars().map(|letter| same(&format!("-{letter}"))));
        }
    }
    all
}

fn path_hit(path: &str, word: &Word, started: &BlockSubject<'_>) -> bool {
    match &word.value {
        Value::Literal(text) => text_hit(path, text, started),
        Value::Glob(pattern) => {
            let text: String = pattern.iter().map(|(c, _)| *c).collect();
            text_hit(path, &text, started) || glob_hit(path, pattern, started)
        }
        // Only what it begins with is known; places where that matters take no such words.
        Value::One(head) => !head.is_empty() && text_hit(path, head, started),
        Value::Many => false,
    }
}

/// The path itself, below it, or (where the program looks into folders) above it; also behind `=`, `@` and `:`.
fn text_hit(path: &str, text: &str, started: &BlockSubject<'_>) -> bool {
    let wanted = lexical(Path::new(path));
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    if text.match_indices(path).any(|(at, _)| text.get(at.saturating_add(path.len())..).is_some_and(ends)) {
        return true;
    }
    let parts = std::iter::once(text).chain(text.split(['=', '@', ':', ',']).skip(1));
    let mut places = parts
        .filter(|part| !part.is_empty())
        .flat_map(|part| started.folders.iter().map(move |folder| lexical(&folder.join(part))));
    if path.starts_with('/') {
        let above = |place: &PathBuf| !started.shallow && wanted.starts_with(place) && place != Path::new("/");
        return places.any(|place| place.starts_with(&wanted) || above(&place) || root_of_all(text, started));
    }
    // A relative pattern is a run of parts anywhere in the path.
    let run: Vec<_> = wanted.components().collect();
    places.any(|place| place.components().collect::<Vec<_>>().windows(run.len().max(1)).any(|window| window == run))
}

/// `/` as a place to look into contains everything.
fn root_of_all(text: &str, started: &BlockSubject<'_>) -> bool {
    !started.shallow && lexical(Path::new(text)) == Path::new("/") && text.starts_with('/')
}

/// A pattern that could match the path, or a folder above it.
fn glob_hit(path: &str, pattern: &[(char, bool)], started: &BlockSubject<'_>) -> bool {
    let wanted = lexical(Path::new(path));
    let absolute = matches!(pattern.first(), Some(('/', _)));
    let first_active = pattern.first().is_some_and(|(_, active)| *active);
    let mut targets: Vec<String> = Vec::new();
    for place in wanted.ancestors().filter(|place| *place != Path::new("/")) {
        if place == wanted || !started.shallow {
            targets.push(place.to_string_lossy().into_owned());
            for folder in started.folders {
                if let Ok(rest) = place.strip_prefix(folder) {
                    targets.push(rest.to_string_lossy().into_owned());
                    targets.push(format!("./{}", rest.to_string_lossy()));
                }
            }
        }
    }
    // Patterns with `..` or doubled slashes are compared only by their last part.
    let text: String = pattern.iter().map(|(c, _)| *c).collect();
    let odd = text.contains("..") || text.contains("//") || text.contains("/./");
    if odd || !absolute && !first_active && !path.starts_with('/') {
        let last: Vec<(char, bool)> = pattern
            .iter()
            .rev()
            .take_while(|(c, _)| *c != '/')
            .copied()
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect();
        let name = wanted.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        return matches_text(&last, &name);
    }
    targets.iter().any(|target| matches_text(pattern, target))
}

/// Whether a pattern of the shell can match text. A bracket matches any character, `*` also a slash: rather too much.
pub(super) fn matches_text(pattern: &[(char, bool)], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    // `reach[j]`: the part of the pattern so far matches the first j characters.
    let mut reach = vec![false; text.len().saturating_add(1)];
    if let Some(first) = reach.first_mut() {
        *first = true;
    }
    let mut at = 0_usize;
    while let Some((c, active)) = pattern.get(at).copied() {
        let mut next = vec![false; reach.len()];
        let star = active && c == '*';
        let any = active && matches!(c, '?' | '[');
        if active && c == '[' {
            let rest = pattern.get(at.saturating_add(2)..).unwrap_or_default();
            if let Some(end) = rest.iter().position(|(c, _)| *c == ']') {
                at = at.saturating_add(2).saturating_add(end);
            }
        }
        let mut open = false;
        for j in 0..reach.len() {
            let here = reach.get(j).copied().unwrap_or(false);
            let before = j.checked_sub(1);
            let step = before.is_some_and(|b| {
                reach.get(b).copied().unwrap_or(false) && (any || text.get(b).is_some_and(|t| *t == c))
            });
            open = open || here;
            let reached = if star { open } else { step };
            if let Some(slot) = next.get_mut(j) {
                *slot = reached;
            }
        }
        reach = next;
        at = at.saturating_add(1);
    }
    reach.last().copied().unwrap_or(false)
}
