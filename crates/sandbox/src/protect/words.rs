//! Words of git's configuration that may be paths: values whole, and what a shell would make of commands.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use super::gitconfig;

/// A configuration has no more words.
const MAX_WORDS: usize = 20_000;
/// So many words behind `cd` may be the folder that it enters.
const MAX_BEHIND: usize = 8;
/// Words behind which a folder is entered.
const ENTERS: [&str; 4] = ["cd", "pushd", "-C", "--chdir"];
/// So deep are commands looked for in words of commands.
const MAX_QUOTED: usize = 3;
/// Programs that run what is in a folder, where its name is their argument.
const RUN_FOLDERS: [&str; 5] = ["python", "pypy", "node", "bun", "deno"];
/// In a command: what becomes the name of a program only when it runs.
const MAKES_NAMES: [&str; 9] = ["$(", "`", "/$", "PATH=", "-exec", "xargs", "printf", " -I", "run-parts"];
/// They stand for the top, which is known.
const KNOWN_FOLDERS: [&str; 3] = ["$(git rev-parse --show-toplevel)", "$(pwd)", "`pwd`"];
/// What node looks for beside a name that is not there.
const OF_NODE: [&str; 3] = [".js", ".cjs", ".mjs"];
/// No path is longer, in bytes.
const MAX_PATH: usize = 4096;
/// So many bytes of words behind folders that are entered are looked at.
const MAX_JOINED: usize = 64 << 20;
/// So often may one command enter a folder: what comes after it may be meant from there.
const MAX_ENTERED: usize = 16;

/// A word of a configuration that may be a path.
#[derive(Clone)]
pub(super) struct ConfigWord {
    pub(super) path: PathBuf,
    /// The value of what key it is, or a part of it.
    pub(super) of: KeyKind,
    pub(super) exact: bool,
    /// It is a word behind the name of a program that git starts.
    pub(super) argument: bool,
    /// All that is in it may be meant.
    pub(super) folder: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyKind {
    /// `core.hooksPath`, `init.templateDir`, `lfs.storage`: a folder.
    Hooks,
    /// `include.path` and the like.
    Further,
    /// Those that count on some branches alone.
    FurtherOnBranch,
    /// `core.worktree`, from which hooks and programs are looked for.
    Tree,
    Other,
}

impl KeyKind {
    /// `sure`: the section is the key's own. Of a configuration that is not understood its name is not known whole.
    fn of(section: &str, key: &str, sure: bool) -> Self {
        let is_on_branch = section == "includeif" || section.starts_with("includeif.onbranch:");
        if ["hookspath", "templatedir", "storage"].iter().any(|end| key.ends_with(end)) {
            Self::Hooks
        } else if key.ends_with("path") && (!sure || section.starts_with("include")) {
            if is_on_branch { Self::FurtherOnBranch } else { Self::Further }
        } else if key.ends_with("worktree") {
            Self::Tree
        } else {
            Self::Other
        }
    }
}

/// The words of a configuration that may be paths: values whole, and words of commands; `None` where it has more than is looked at.
pub(super) fn words(config: &[u8]) -> Option<Vec<ConfigWord>> {
    let cut = Cell::new(false);
    let found = known_words(config, &cut);
    (found.len() <= MAX_WORDS && !cut.get()).then_some(found)
}

fn known_words(config: &[u8], cut: &Cell<bool>) -> Vec<ConfigWord> {
    let Some(keys) = gitconfig::keys(config) else { return all_words(config, cut) };
    let named = keys.iter().flat_map(|((section, key), values)| {
        let values = values.iter().filter(move |value| !names_nothing(section, key, value));
        let of = KeyKind::of(section, key, true);
        values.flat_map(move |value| words_of((section, key, of), value, cut, |word| PathBuf::from(word)))
    });
    // An address that begins with a helper stands in a section's name (`url "ext::sh x".insteadOf`).
    let sections =
        keys.keys().filter_map(|(section, _)| section.split_once('.')).filter(|(_, name)| name.contains("::"));
    let of_sections = sections.flat_map(|(section, name)| {
        words_of((section, "helper", KeyKind::Other), name, cut, |word| PathBuf::from(word))
    });
    named.chain(of_sections).take(MAX_WORDS.saturating_add(1)).collect()
}

/// Of a configuration that is not understood here. It is read byte by byte: it need not be text.
fn all_words(config: &[u8], cut: &Cell<bool>) -> Vec<ConfigWord> {
    let text: String = config.iter().copied().map(char::from).collect();
    let text = text.replace("\\\r\n", "").replace("\\\n", "");
    let bytes = |word: &str| word.chars().filter_map(|c| u8::try_from(u32::from(c)).ok()).collect::<Vec<u8>>();
    let (mut section, mut found) = (String::new(), Vec::new());
    for line in text.lines() {
        if let Some(heading) = line.trim_ascii_start().strip_prefix('[') {
            section = heading.chars().take_while(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
        }
        let (key, value) = line.split_once('=').unwrap_or((line, line));
        let key = key.trim_ascii().to_ascii_lowercase();
        let of = KeyKind::of(&section, &key, false);
        found.extend(words_of((&section, &key, of), value, cut, |word| OsString::from_vec(bytes(word)).into()));
        if found.len() > MAX_WORDS {
            break;
        }
    }
    found
}

/// An alias has words of all kinds, and does not run by itself.
fn words_of(
    (section, key, of): (&str, &str, KeyKind),
    value: &str,
    cut: &Cell<bool>,
    path: impl Fn(&str) -> PathBuf,
) -> Vec<ConfigWord> {
    let whole = unquoted(value);
    let unsaid = Cell::new(false);
    let cut = if section == "alias" { &unsaid } else { cut };
    let words = every_word(value, &whole, cut)
        .into_iter()
        .filter(|word| word.bytes().any(|b| b.is_ascii_alphanumeric()) && !is_a_value(word));
    let exact = |word: &str| match of {
        KeyKind::Hooks | KeyKind::Further | KeyKind::FurtherOnBranch => true,
        KeyKind::Tree => false,
        KeyKind::Other => section != "alias" && word.contains('/'),
    };
    // A program without a folder is found by PATH.
    let program = whole.trim_start_matches('!').split_ascii_whitespace().next().unwrap_or_default();
    let is_command = section != "alias" && is_program(section, key);
    let argument = |word: &str| is_command && word != program;
    let runs_folders = is_command && RUN_FOLDERS.iter().any(|name| whole.contains(name));
    // Where a command makes the names of what it runs, all that is in a folder that it names may be meant.
    let of_known_folders = KNOWN_FOLDERS.iter().fold(whole.clone(), |text, known| text.replace(known, ""));
    let makes_names = is_command && MAKES_NAMES.iter().any(|name| of_known_folders.contains(name));
    let behind_options = |word: &String| {
        let rest = word.strip_prefix('-').map(|rest| rest.trim_start_matches('-').to_owned()).filter(|_| is_command);
        let without_letter = rest.as_ref().and_then(|rest| Some(rest.get(1..)?.to_owned()));
        rest.into_iter().chain(without_letter).filter(|rest| rest.contains('/') || makes_names).collect::<Vec<_>>()
    };
    let words: BTreeSet<String> = words.flat_map(|word| behind_options(&word).into_iter().chain([word])).collect();
    let mut found = Vec::new();
    for word in words {
        let (exact, argument) = (exact(&word), argument(&word));
        let mut add = |word: &str, folder: bool| {
            found.push(ConfigWord { path: path(word), of, exact, argument, folder });
        };
        let is_path = word.contains('/');
        // What a program does with a folder that it is given nobody knows here.
        let is_given = is_command && is_path && !word.trim_matches(['.', '/']).is_empty();
        add(&word, of == KeyKind::Hooks || is_given || makes_names);
        // What a pattern or a variable becomes is in the folder before it.
        let open =
            word.split_once(|c| "*?[{$`(".contains(c) || c == '%' && whole.contains("printf")).filter(|_| is_command);
        if let Some((folder, _)) = open.and_then(|(before, _)| before.rsplit_once('/')) {
            add(folder, true);
        }
        if runs_folders && is_path {
            OF_NODE.iter().for_each(|end| add(&format!("{word}{end}"), false));
        }
    }
    let modules = modules(&whole).filter(|_| runs_folders);
    let modules = modules.flat_map(|name| {
        let above = name.rsplit_once('/').map_or(String::new(), |(above, _)| format!("{above}/"));
        let ends = [".py", ".pyc", ".so", ".abi3.so"].map(|end| (format!("{name}{end}"), false));
        ends.into_iter().chain([(format!("{above}__pycache__"), true), (name, true)])
    });
    found.extend(modules.map(|(name, folder)| ConfigWord {
        path: path(&name),
        of,
        exact: true,
        argument: true,
        folder,
    }));
    found
}

/// With and without what quotes hold together, for they belong to the configuration or to a shell.
fn every_word(value: &str, whole: &str, cut: &Cell<bool>) -> BTreeSet<String> {
    let mut all: BTreeSet<String> = [whole.to_owned()].into();
    for text in BTreeSet::from([value, whole]) {
        let spaced = text.replace(['"', '\''], " ");
        all.extend(spaced.split_ascii_whitespace().map(|word| word.trim_start_matches('!').to_owned()));
        let CommandWords { words, is_cut } = of_command(&text.replace(['"', '\'', '\\'], ""));
        all.extend(words);
        cut.set(cut.get() || is_cut);
    }
    of_shell(whole, MAX_QUOTED, &mut all);
    all
}

/// What Python looks for where it is started, before it looks where programs are installed: `-m a.b` is `a/b.py`, or `a`.
pub(super) fn modules(command: &str) -> impl Iterator<Item = String> {
    let words: Vec<&str> = command.split(|c: char| c.is_ascii_whitespace() || "'\"\\;|&()".contains(c)).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let next = words.iter().skip(1).copied().chain([""]);
    let behind = words.iter().zip(next).filter_map(|(word, next)| {
        let options = word.strip_prefix('-').filter(|options| !options.starts_with('-'))?;
        let (_, name) = options.split_once('m')?;
        Some(if name.is_empty() { next } else { name })
    });
    let names = behind.filter(|name| name.chars().all(|c| c.is_alphanumeric() || "_.".contains(c)));
    let names = names.map(|name| name.replace('.', "/"));
    // A package that is there instead of the first part is taken for it.
    let names: BTreeSet<String> =
        names.flat_map(|name| [name.split('/').next().unwrap_or_default().to_owned(), name]).collect();
    names.into_iter().filter(|name| !name.is_empty())
}

/// The words of a shell's command, as its quotes hold them together; also of commands within a word (`sh -c`), so many deep.
fn of_shell(command: &str, deep: usize, found: &mut BTreeSet<String>) {
    let (mut word, mut quote, mut chars) = (String::new(), None, command.chars());
    let mut words = Vec::new();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None | Some('"'), '\\') => word.extend(chars.next()),
            (None, c) if c.is_ascii_whitespace() || ";|&()<>=!".contains(c) => words.push(std::mem::take(&mut word)),
            (_, c) => word.push(c),
        }
    }
    words.push(word);
    for word in words.into_iter().filter(|word| !word.is_empty() && word != command) {
        if deep > 0 && word.contains(|c: char| c.is_ascii_whitespace() || "'\"".contains(c)) {
            of_shell(&word, deep.saturating_sub(1), found);
        }
        found.insert(word);
    }
}

/// The words of a command.
pub(super) struct CommandWords {
    pub(super) words: Vec<String>,
    /// It enters more folders, or has more behind them, than is looked at.
    pub(super) is_cut: bool,
}

/// The words of a command: a variable or a substitution may be the top or the home folder, and what comes after `cd` may be meant
/// from there.
pub(super) fn of_command(command: &str) -> CommandWords {
    let of_shell = |c: char| c.is_ascii_whitespace() || "=;|&()<>{},:`#!$".contains(c);
    let (mut words, mut before) = (Vec::new(), None);
    for part in command.split_inclusive(of_shell) {
        let word = part.trim_end_matches(of_shell);
        words.extend([word].into_iter().filter(|word| !word.is_empty()).map(str::to_owned));
        let behind = word.split_once('/').filter(|_| matches!(before, Some('$' | ')' | '}' | '`')));
        words.extend(behind.into_iter().flat_map(|(_, rest)| [rest.to_owned(), format!("~/{rest}")]));
        before = part.chars().next_back();
    }
    let enters = words
        .iter()
        .enumerate()
        .filter(|(_, word)| ENTERS.contains(&word.as_str()))
        .map(|(at, _)| at.saturating_add(1));
    let enters: Vec<usize> = enters.collect();
    // The folder of each `cd` first, then what else behind it may be one, the nearest first.
    let own =
        enters.iter().filter_map(|at| words.get(*at..)?.iter().take(MAX_BEHIND).find(|word| !word.starts_with('-')));
    let own: BTreeSet<&String> = own.collect();
    let behind = (0..MAX_BEHIND).flat_map(|more| enters.iter().map(move |at| at.saturating_add(more)));
    let mut entered: Vec<&String> = Vec::new();
    for folder in own.iter().copied().chain(behind.filter_map(|at| words.get(at))) {
        if entered.len() < MAX_ENTERED && !entered.contains(&folder) {
            entered.push(folder);
        }
    }
    let each: BTreeSet<&String> = words.iter().collect();
    if each.len() > MAX_WORDS {
        return CommandWords { words, is_cut: true };
    }
    let mut is_cut = own.len() > MAX_ENTERED;
    let (mut from_there, mut left) = (Vec::new(), MAX_JOINED);
    for (folder, word) in entered.iter().flat_map(|folder| each.iter().map(move |word| (folder, word))) {
        let length = folder.len().saturating_add(word.len());
        // What is longer is no path.
        if length < MAX_PATH {
            let Some(rest) = left.checked_sub(length) else {
                is_cut = true;
                break;
            };
            left = rest;
            from_there.push(format!("{folder}/{word}"));
        }
    }
    words.extend(from_there);
    CommandWords { words, is_cut }
}

/// A value as git reads it.
fn unquoted(value: &str) -> String {
    let (mut read, mut quoted, mut chars) = (String::new(), false, value.chars());
    while let Some(c) = chars.next() {
        match c {
            '"' => quoted = !quoted,
            '\\' => read.extend(chars.next().map(|c| match c {
                'n' => '\n',
                't' => '\t',
                'b' => '\u{8}',
                c => c,
            })),
            '#' | ';' if !quoted => break,
            _ => read.push(c),
        }
    }
    read.trim_ascii().to_owned()
}

/// Keys whose values are no paths: names, addresses and branches. An address with a helper is a command.
fn names_nothing(section: &str, key: &str, value: &str) -> bool {
    let plain = match section.split('.').next().unwrap_or_default() {
        "user" | "author" | "committer" | "branch" => true,
        "remote" => ["url", "pushurl", "fetch", "push"].contains(&key),
        "submodule" => ["url", "path", "branch", "active", "ignore"].contains(&key),
        "url" => ["insteadof", "pushinsteadof"].contains(&key),
        _ => false,
    };
    plain && !value.contains("::")
}

/// Keys whose values are commands.
fn is_program(section: &str, key: &str) -> bool {
    const ENDS: [&str; 20] = [
        "askpass",
        "browser",
        "clean",
        "cmd",
        "command",
        "driver",
        "editor",
        "external",
        "filter",
        "fsmonitor",
        "helper",
        "hook",
        "pack",
        "pager",
        "process",
        "program",
        "proxy",
        "smudge",
        "textconv",
        "editcmd",
    ];
    section.split('.').next() == Some("pager") || ENDS.iter().any(|end| key.ends_with(end))
}

/// `bare = false`, `repositoryformatversion = 0`: words that name nothing.
fn is_a_value(word: &str) -> bool {
    ["true", "false", "yes", "no", "on", "off", "auto"].contains(&word) || word.bytes().all(|b| b.is_ascii_digit())
}
