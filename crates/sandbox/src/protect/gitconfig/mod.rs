//! git's configuration, key by key: what a run wrote there is taken over as far as it can name no program, folder, file or
//! server; the lines of the host stay as they are, in their order and with their comments.

use std::collections::{BTreeMap, BTreeSet};

use super::references::is_plain_part;
use crate::fault::show_short;

/// A larger one is not taken: what it names could not be looked for any more.
const MAX_SIZE: usize = 1 << 20;

/// How many keys are named.
const MAX_NAMED: usize = 5;

/// The value of a key without one, which git takes for `true` or ends at: no value is written so ([`is_whole`]).
const NONE: &str = "\\";

/// A section and a key of it: both in lower case, with what stands between the quotes as it is.
type Key = (String, String);

/// Keys of a configuration and their values in order.
pub(super) type Keys = BTreeMap<Key, Vec<String>>;

/// What of a configuration is taken over, where not all of it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The host's file with the harmless keys of the run.
    pub merged: Vec<u8>,
    /// The keys that are left out, `section.key`; escaped, at most five, and then how many more.
    pub left: String,
}

/// Whether the host has a branch of this name.
type HasBranch<'a> = &'a dyn Fn(&str) -> bool;

/// Why a configuration may not take the place of another: the keys that differ and can name a program, a folder, a file or
/// another server.
#[must_use]
pub fn config_objection(before: &[u8], now: &[u8], has_branch: HasBranch<'_>) -> Option<String> {
    if now.len() > MAX_SIZE {
        return Some("it is larger than 1 MiB".to_owned());
    }
    let (Some(before), Some(now)) = (lines(before), lines(now)) else {
        return Some("it has lines that are not understood here".to_owned());
    };
    let (old, new) = (keys_of(&before), keys_of(&now));
    let (harmless, held) = judged(&old, &new, has_branch);
    if !held.is_empty() {
        let of_people = held.iter().all(|(section, _)| ["user", "author", "committer"].contains(&section.as_str()));
        let why = if of_people {
            "say who commits, which is the host's to say (`git.identity` brings in yours)"
        } else {
            "can name a program or another place"
        };
        return Some(format!("{} {why}", named(&held)));
    }
    // Of what two files and two keys say git believes the later one.
    let others = |lines: &[Line]| -> Vec<(Key, String)> {
        lines.iter().filter_map(|line| line.key.clone()).filter(|(key, _)| !harmless.contains(&key)).collect()
    };
    (others(&before) != others(&now)).then(|| "its keys stand in another order".to_owned())
}

/// Where a branch is pulled from and pushed to, as far as its own keys say it; `None` where the configuration is not understood.
#[must_use]
pub fn remotes_of(config: &[u8], branch: &str) -> Option<(String, Option<String>)> {
    let keys = keys(config)?;
    let last = |key: &str| keys.get(&(format!("branch.{branch}"), key.to_owned()))?.last().cloned();
    Some((last("remote").unwrap_or_else(|| "origin".to_owned()), last("pushremote")))
}

/// Whether a working tree is a sparse checkout, by the configuration of its repository and its own, which counts where the first says so;
/// `None` where that is not understood.
pub(super) fn is_sparse(config: &[u8], of_tree: &[u8]) -> Option<bool> {
    let (config, of_tree) = (keys(config)?, keys(of_tree)?);
    let said = |keys: &Keys, section: &str, key: &str| {
        let last = keys.get(&(section.to_owned(), key.to_owned()))?.last()?;
        Some(last == NONE || ["true", "yes", "on", "1"].iter().any(|yes| last.eq_ignore_ascii_case(yes)))
    };
    let has_own = said(&config, "extensions", "worktreeconfig").unwrap_or(false);
    let own = said(&of_tree, "core", "sparsecheckout").filter(|_| has_own);
    Some(own.or_else(|| said(&config, "core", "sparsecheckout")).unwrap_or(false))
}

/// The names that it has for servers.
#[must_use]
pub fn servers_named(config: &[u8]) -> BTreeSet<String> {
    let sections = keys(config).unwrap_or_default().into_keys().map(|(section, _)| section);
    sections.filter_map(|section| section.strip_prefix("remote.").map(str::to_owned)).collect()
}

/// The keys that differ and are harmless, as in [`Part::left`], and which of them were removed; `None` where there is none.
#[must_use]
pub fn taken(before: &[u8], now: &[u8], has_branch: HasBranch<'_>) -> Option<String> {
    let (before, now) = (keys(before)?, keys(now)?);
    let (harmless, _) = judged(&before, &now, has_branch);
    let shown: Vec<(&Key, bool)> = harmless.into_iter().map(|key| (key, !now.contains_key(key))).collect();
    (!shown.is_empty()).then(|| shown_keys(&shown))
}

/// The host's configuration with what is harmless of the run's; `None` where all of it is, or nothing.
#[must_use]
pub fn part(before: &[u8], now: &[u8], has_branch: HasBranch<'_>) -> Option<Part> {
    if now.len() > MAX_SIZE {
        return None;
    }
    let (mut merged, run) = (lines(before)?, lines(now)?);
    let (old, new) = (keys_of(&merged), keys_of(&run));
    let (harmless, held) = judged(&old, &new, has_branch);
    if harmless.is_empty() || held.is_empty() {
        return None;
    }
    let mut wanted = old.clone();
    for key in harmless {
        set(&mut merged, key, &run);
        match new.get(key) {
            Some(values) => drop(wanted.insert(key.clone(), values.clone())),
            None => drop(wanted.remove(key)),
        }
    }
    let merged: String = merged.into_iter().map(|line| line.text).collect();
    // It is read again: what does not say exactly what was judged is not taken.
    (keys(merged.as_bytes())? == wanted).then(|| Part { merged: merged.into_bytes(), left: named(&held) })
}

/// The keys that differ: those that are harmless, and the others.
fn judged<'a>(before: &'a Keys, now: &'a Keys, has_branch: HasBranch<'_>) -> (Vec<&'a Key>, Vec<&'a Key>) {
    let new = now.keys().filter(|key| !before.contains_key(*key));
    let differ = before.keys().chain(new).filter(|key| before.get(*key) != now.get(*key));
    differ.partition(|key| is_harmless(key, before, now, has_branch))
}

fn named(keys: &[&Key]) -> String {
    shown_keys(&keys.iter().map(|key| (*key, false)).collect::<Vec<_>>())
}

/// With whether each was removed.
fn shown_keys(keys: &[(&Key, bool)]) -> String {
    let shown: Vec<String> = keys
        .iter()
        .take(MAX_NAMED)
        .map(|((section, key), removed)| {
            let removed = if *removed { " (removed)" } else { "" };
            format!("{}{removed}", show_short(format!("{section}.{key}").as_bytes()))
        })
        .collect();
    match keys.len().saturating_sub(MAX_NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Puts the lines that the run has of a key in the place of the host's.
fn set(merged: &mut Vec<Line>, key: &Key, run: &[Line]) {
    let is = |line: &Line| line.key.as_ref().is_some_and(|(found, _)| found == key);
    let new: Vec<Line> = run.iter().filter(|line| is(line)).cloned().collect();
    let within = merged.iter().rposition(|line| line.section == key.0 && !line.is_aside);
    let at = merged.iter().position(is).or_else(|| within.map(|at| at.saturating_add(1)));
    merged.retain(|line| !is(line));
    let at = at.unwrap_or_else(|| {
        if !new.is_empty() {
            merged.push(Line::heading(&key.0));
        }
        merged.len()
    });
    let rest = merged.split_off(at.min(merged.len()));
    merged.extend(new);
    merged.extend(rest);
}

fn is_harmless(key: &Key, before: &Keys, now: &Keys, has_branch: HasBranch<'_>) -> bool {
    let (section, key_name) = key;
    let new = now.get(key);
    let (section, below) = section.split_once('.').unwrap_or((section, ""));
    let values = || new.into_iter().flatten();
    if !values().all(|value| is_whole(value)) {
        return false;
    }
    let plain = |value: &String| {
        !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"._/-+*:".contains(&b))
    };
    match (section, key_name.as_str()) {
        // Their keys stand in the section itself.
        ("init" | "core", _) if !below.is_empty() => false,
        ("init", "defaultbranch") => true,
        // `filemode`, `ignorecase` and `symlinks` say which changes of files git does not see.
        ("core", "logallrefupdates") => values().all(|value| ["true", "false", "always"].contains(&value.as_str())),
        // Without a name git stops reading.
        ("branch", _) if !below.split('/').all(|part| is_plain_part(part.as_bytes())) => false,
        // Where a branch that the host has is pulled from and pushed to stays, said or not; and what is said stays where the branch
        // goes, or the next run would make it anew.
        ("branch", "remote" | "merge") if has_branch(below) || before.keys().any(|(found, _)| *found == key.0) => false,
        ("branch", "merge") => values().all(|value| value.starts_with("refs/") && plain(value)),
        // The one that git takes where nothing is said: what is sent and fetched without a word goes nowhere else.
        ("branch", "remote") => values().all(|value| is_default(value, before)),
        ("branch", "rebase") => {
            values().all(|value| ["true", "false", "merges", "interactive"].contains(&value.as_str()))
        }
        ("branch", "description" | "vscode-merge-base" | "gh-merge-base") => true,
        // Who commits (`user`, `author`, `committer`) among them: where this file says nothing of it, another one of the host's does.
        _ => false,
    }
}

/// Whether git on the host takes this remote where nothing is said.
fn is_default(remote: &str, host: &Keys) -> bool {
    let addresses = host.keys().filter(|(_, key)| key == "url");
    let known: Vec<&str> = addresses.filter_map(|(section, _)| section.strip_prefix("remote.")).collect();
    known.contains(&remote) && (remote == "origin" || known.len() == 1)
}

/// Whether quotes and escapes are as git writes them: at any other git stops reading, and works no more.
fn is_whole(value: &str) -> bool {
    let mut quoted = false;
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => quoted = !quoted,
            '\\' if !chars.next().is_some_and(|next| "\\\"ntb".contains(next)) => return false,
            '#' | ';' if !quoted => return true,
            _ => {}
        }
    }
    !quoted
}

/// One line of a configuration.
#[derive(Clone, Debug)]
struct Line {
    /// As it stands there, with its end.
    text: String,
    /// The section that it belongs to.
    section: String,
    /// Of a line that sets a key.
    key: Option<(Key, String)>,
    /// A comment or an empty line.
    is_aside: bool,
}

impl Line {
    /// The heading of a section: what is below it stands in quotes, and has none itself.
    fn heading(section: &str) -> Self {
        let text = match section.split_once('.') {
            Some((name, below)) => format!("[{name} \"{below}\"]\n"),
            None => format!("[{section}]\n"),
        };
        Self { text, section: section.to_owned(), key: None, is_aside: false }
    }
}

/// The keys of a configuration and their values in order; `None` if a line is not understood.
pub(super) fn keys(config: &[u8]) -> Option<Keys> {
    lines(config).map(|lines| keys_of(&lines))
}

fn keys_of(lines: &[Line]) -> Keys {
    let mut found = Keys::new();
    for (key, value) in lines.iter().filter_map(|line| line.key.as_ref()) {
        found.entry(key.clone()).or_default().push(value.clone());
    }
    found
}

fn lines(config: &[u8]) -> Option<Vec<Line>> {
    let mut found = Vec::new();
    let mut section = String::new();
    for whole in std::str::from_utf8(config).ok()?.split_inclusive('\n') {
        // At a byte of 0 git's strings end: what stands before it is another key than what is read here.
        if whole.trim_end_matches(['\r', '\n']).contains(|c: char| c.is_control() && c != '\t') {
            return None;
        }
        let line = trimmed(whole);
        let text = format!("{}\n", whole.strip_suffix('\n').unwrap_or(whole));
        if line.is_empty() || line.starts_with(['#', ';']) {
            found.push(Line { text, section: section.clone(), key: None, is_aside: true });
            continue;
        }
        if line.ends_with('\\') {
            return None;
        }
        if let Some(head) = line.strip_prefix('[') {
            section = heading(head.strip_suffix(']')?)?;
            found.push(Line { text, section: section.clone(), key: None, is_aside: false });
            continue;
        }
        // Before `=` git takes fewer blanks than elsewhere.
        let (key, value) = line
            .split_once('=')
            .map_or((line, NONE), |(key, value)| (key.trim_end_matches([' ', '\t']), trimmed(value)));
        let named = key.starts_with(|c: char| c.is_ascii_alphabetic())
            && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !named || section.is_empty() {
            return None;
        }
        let key = Some(((section.clone(), key.to_ascii_lowercase()), value.to_owned()));
        found.push(Line { text, section: section.clone(), key, is_aside: false });
    }
    Some(found)
}

/// Without what git takes for blanks: any other one is where it stops reading.
fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\r', '\n'])
}

/// `core`, `remote "origin"`.
fn heading(head: &str) -> Option<String> {
    let blanks = [' ', '\t', '\r'];
    let split = head.split_once([' ', '\t']).map(|(name, rest)| (name, Some(rest.trim_start_matches(blanks))));
    let (name, below) = split.unwrap_or((head, None));
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
    if name.is_empty() || !plain(name) || name.ends_with('.') {
        return None;
    }
    let name = name.to_ascii_lowercase();
    match below {
        None => Some(name),
        Some(quoted) => {
            let inner = quoted.strip_prefix('"')?.strip_suffix('"')?;
            (!inner.contains(['"', '\\', ']'])).then(|| format!("{name}.{inner}"))
        }
    }
}

#[cfg(test)]
mod tests;
