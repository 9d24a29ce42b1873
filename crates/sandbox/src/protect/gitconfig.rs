//! git's configuration, key by key: what a run wrote there is taken over as far as it can name no program, folder, file or
//! server; the lines of the host stay as they are, in their order and with their comments.

use std::collections::{BTreeMap, BTreeSet};

use crate::fault::show_text;

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

/// Why a configuration may not take the place of another: the keys that differ and can name a program, a folder, a file or
/// another server.
pub(super) fn objection(before: &[u8], now: &[u8]) -> Option<String> {
    if now.len() > MAX_SIZE {
        return Some("it is larger than 1 MiB".to_owned());
    }
    let (Some(before), Some(now)) = (lines(before), lines(now)) else {
        return Some("it has lines that are not understood here".to_owned());
    };
    // Of what two files and two keys say git believes the later one.
    if order(&before, &now) != order(&now, &before) {
        return Some("its keys stand in another order".to_owned());
    }
    let (before, now) = (keys_of(&before), keys_of(&now));
    let (_, held) = judged(&before, &now);
    (!held.is_empty()).then(|| format!("{} can name a program or another place", named(&held)))
}

/// The keys that differ and are harmless, as in [`Part::left`], those that name servers first; `None` where there is none.
#[must_use]
pub fn taken(before: &[u8], now: &[u8]) -> Option<String> {
    let (before, now) = (keys(before)?, keys(now)?);
    let (mut harmless, _) = judged(&before, &now);
    harmless.sort_by_key(|(section, _)| !section.starts_with("remote"));
    (!harmless.is_empty()).then(|| named(&harmless))
}

/// The host's configuration with what is harmless of the run's; `None` where all of it is, or nothing.
#[must_use]
pub fn part(before: &[u8], now: &[u8]) -> Option<Part> {
    if now.len() > MAX_SIZE {
        return None;
    }
    let (mut merged, run) = (lines(before)?, lines(now)?);
    let (old, new) = (keys_of(&merged), keys_of(&run));
    let (harmless, held) = judged(&old, &new);
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

/// The keys of one that the other has as well, in the order in which they first stand there.
fn order<'a>(of: &'a [Line], other: &[Line]) -> Vec<&'a Key> {
    let others: BTreeSet<&Key> = other.iter().filter_map(|line| Some(&line.key.as_ref()?.0)).collect();
    let mut seen = BTreeSet::new();
    let keys = of.iter().filter_map(|line| Some(&line.key.as_ref()?.0));
    keys.filter(|key| others.contains(key) && seen.insert(*key)).collect()
}

/// The keys that differ: those that are harmless, and the others.
fn judged<'a>(before: &'a Keys, now: &'a Keys) -> (Vec<&'a Key>, Vec<&'a Key>) {
    let new = now.keys().filter(|key| !before.contains_key(*key));
    let differ = before.keys().chain(new).filter(|key| before.get(*key) != now.get(*key));
    differ.partition(|key| is_harmless(key, before, now))
}

fn named(keys: &[&Key]) -> String {
    let shown: Vec<String> = keys
        .iter()
        .take(MAX_NAMED)
        .map(|(section, key)| format!("`{}`", show_text(&format!("{section}.{key}"))))
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

fn is_harmless(key: &Key, before: &Keys, now: &Keys) -> bool {
    let (section, key_name) = key;
    let (old, new) = (before.get(key), now.get(key));
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
        ("user" | "author" | "committer" | "init" | "core", _) if !below.is_empty() => false,
        ("user" | "author" | "committer", "name" | "email") | ("init", "defaultbranch") => true,
        // `filemode`, `ignorecase` and `symlinks` say which changes of files git does not see.
        ("core", "logallrefupdates") => values().all(|value| ["true", "false", "always"].contains(&value.as_str())),
        // Without a name git stops reading.
        ("branch", _) if below.is_empty() => false,
        // Where a branch of the host's is pulled from and pushed to stays, or goes with all that is said of it.
        ("branch", "remote" | "pushremote" | "merge") if old.is_some() => now.keys().all(|(found, _)| *found != key.0),
        ("branch", "merge") => values().all(|value| value.starts_with("refs/") && plain(value)),
        // A server that the host uses already: what is sent and fetched without a word goes to none that a run named, and comes from
        // no branch of a run's (`.`).
        ("branch", "remote" | "pushremote") => values().all(|value| is_used(value, before)),
        ("branch", "rebase") => {
            values().all(|value| ["true", "false", "merges", "interactive"].contains(&value.as_str()))
        }
        ("branch", "description" | "vscode-merge-base" | "gh-merge-base") => true,
        ("submodule", "active") => true,
        // Of a remote that has an address and keeps it: without one, git takes its name for a folder. Into branches and tags of
        // the host's own nothing is fetched that was not before: a mirror takes their place.
        ("remote", "fetch") => {
            let url = (format!("remote.{below}"), "url".to_owned());
            let addressed = before.contains_key(&url) || (now.contains_key(&url) && is_harmless(&url, before, now));
            let kept = |value: &String| {
                old.is_some_and(|old| old.contains(value)) || is_refspec(value) && is_fetched_aside(value, below)
            };
            is_name(below) && new.is_some() && addressed && values().all(|value| plain(value) && kept(value))
        }
        // A new remote; another address for an old one would send there what was meant for somebody else, and so would `origin`,
        // which git takes by itself before any other that the host has.
        ("remote", "url") => {
            let is_taken_first = below == "origin" && !remotes(before).is_empty();
            is_name(below) && !is_taken_first && old.is_none() && values().all(|value| is_address(value))
        }
        _ => false,
    }
}

/// Whether git on the host takes this remote by itself: it is `origin`, the only one, or that of a branch.
fn is_used(remote: &String, host: &Keys) -> bool {
    let of_a_branch = || {
        let is_remote = |(section, key): &Key| section.starts_with("branch.") && key == "remote";
        host.iter().any(|(key, values)| is_remote(key) && values.contains(remote))
    };
    let known = remotes(host);
    known.contains(&remote.as_str()) && (remote == "origin" || known.len() == 1 || of_a_branch())
}

/// The remotes that have an address.
fn remotes(config: &Keys) -> Vec<&str> {
    let addresses = config.keys().filter(|(_, key)| key == "url");
    addresses.filter_map(|(section, _)| section.strip_prefix("remote.")).collect()
}

/// Whether a remote can be called so and be nothing else: git looks for a remote of each name before it takes it for a folder or
/// an address, so one that is called `.` or `https://host/x.git` gets what is meant for those.
fn is_name(remote: &str) -> bool {
    remote.starts_with(|c: char| c.is_ascii_alphanumeric())
        && remote.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// Whether what is fetched goes where git keeps what it knows of a remote of this name, under the name that it has there, or
/// nowhere: else `origin/main` would be what somebody put into a request to merge.
fn is_fetched_aside(refspec: &str, remote: &str) -> bool {
    let own = format!("refs/remotes/{remote}/");
    refspec.split_once(':').is_none_or(|(from, to)| {
        let from = from.trim_start_matches('+').strip_prefix("refs/").unwrap_or_default();
        let name = to.strip_prefix(&own).filter(|name| !name.is_empty() && !name.contains(".."));
        name.is_some_and(|name| name == from || from.strip_prefix("heads/") == Some(name))
    })
}

/// Whether git reads it: at another one it stops, in each command that looks for a remote.
fn is_refspec(value: &str) -> bool {
    let value = value.strip_prefix('+').unwrap_or(value);
    let (from, to) = value.split_once(':').unwrap_or((value, ""));
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    let is_ref = |name: &str| !name.ends_with('.') && !name.contains("..") && name.split('/').all(is_part);
    let stars = |name: &str| name.matches('*').count();
    let pair = if to.is_empty() { stars(from) == 0 } else { is_ref(to) && stars(from) == stars(to) };
    is_ref(from) && stars(from) <= 1 && pair
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

/// `https://`, `ssh://` or `user@host:path`, without anything that a shell or git would read as an option or a helper. git decodes an
/// address: in the path of one over HTTPS what stands there may be a blank, and no end of a line.
fn is_address(value: &str) -> bool {
    let allowed = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._/-+~:@".contains(&b));
    let https = || {
        let (host, path) = value.strip_prefix("https://")?.split_once('/')?;
        let mut codes = path.split('%');
        let first = codes.next().is_some_and(allowed);
        let is_code = |text: &str| {
            let code = text.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
            code.is_some_and(|code| code >= b' ' && code != 0x7f) && text.get(2..).is_some_and(allowed)
        };
        (first && codes.all(is_code) && allowed(host)).then_some(host)
    };
    let ssh = || value.strip_prefix("ssh://").filter(|rest| allowed(rest));
    let scp = || {
        let (user, rest) = value.split_once('@').filter(|_| allowed(value))?;
        let (host, path) = rest.split_once(':')?;
        (!user.contains('/') && !path.starts_with(':')).then_some(host)
    };
    let host = https().or_else(ssh).or_else(scp);
    !value.contains("::")
        && host.is_some_and(|host| host.starts_with(|c: char| c.is_ascii_alphanumeric()) && !host.contains("@-"))
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
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_git_reads_it() {
        for config in [
            "[core \"hookspath\0\"]\n\tlogallrefupdates = always\n",
            "[submodule \"x.update\0\"]\n\tactive = !touch x\n",
            "[user]\n\tname = a\0b\n",
            "[user]\n\tname = a\u{85}b\n",
            "[core \"x\"]\n\tlogallrefupdates = always\n",
            "[user \"x\"]\n\tname = a\n",
        ] {
            assert!(objection(b"", config.as_bytes()).is_some(), "{config}");
            assert_eq!(part(b"", config.as_bytes()), None, "{config}");
        }
        let long = format!("[branch \"x\"]\n\tdescription = {}\n", "a".repeat(MAX_SIZE));
        assert!(objection(b"", long.as_bytes()).is_some());
    }

    #[test]
    fn only_keys_that_steer_nothing_are_taken_over() {
        let old = "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://a.example/x.git\n";
        let with = |more: &str| objection(old.as_bytes(), format!("{old}{more}").as_bytes());
        for more in [
            "",
            "[user]\n name = x\n email = x@x\n",
            "[branch \"x\"]\n\tremote = origin\n\tmerge = refs/heads/x\n",
            "[remote \"up\"]\n\turl = git@host.example:a/b.git\n\tfetch = +refs/heads/*:refs/remotes/up/*\n",
            "# a comment\n",
            "[core]\n\tlogAllRefUpdates = always\n[branch \"x\"]\n\trebase = true\n",
            "[remote \"origin\"]\n\tfetch = main\n",
            "[branch \"x\"]\n\tremote = origin\n\tmerge = refs/pull/6/head\n",
            "[remote \"origin\"]\n\tfetch = +refs/heads/a:refs/remotes/origin/a\n\tfetch = refs/pull/*:refs/remotes/origin/pull/*\n",
        ] {
            assert_eq!(with(more), None, "{more}");
        }
        for more in [
            "[core]\n\tfsmonitor = /tmp/x\n",
            "[alias]\n\tst = !sh\n",
            "[include]\n\tpath = /tmp/x\n",
            "[core]\n\thooksPath = x\n",
            "[remote \"origin\"]\n\turl = https://evil.example/x.git\n",
            "[remote \"e\"]\n\turl = ext::sh -c x\n",
            "[remote \"e\"]\n\turl = /tmp/evil\n",
            "[branch \"x\"]\n\tremote = ext::sh\n",
            "[branch \"x\"]\n\tremote = ../evil\n",
            "[filter \"x\"]\n\tclean = sh\n",
            "[core]\n\tpager = sh\n",
            "[branch \"main\"]\n\tpushRemote = up\n[remote \"up\"]\n\turl = https://evil.example/x\n",
            "[x]\n\ty = \\\nz\n",
            "[remote \"e\"]\n\turl = ssh://-oProxyCommand=x/y\n",
            "[remote \"up\"]\n\tuploadpack = sh\n",
            "[url \"https://evil/\"]\n\tinsteadOf = https://a.example/\n",
            "[core]fsmonitor = x\n",
            "fsmonitor = x\n[",
            "[extensions]\n\tworktreeConfig = true\n",
            "[remote \"new\"]\n\turl = https://evil.example/x.git\n\tfetch = +refs/*:refs/*\n",
            "[remote \"new\"]\n\turl = https://evil.example/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
            "[remote \"new\"]\n\turl = https://evil.example/x.git\n\tfetch = +refs/tags/*:refs/tags/*\n",
            "[remote \".\"]\n\turl = https://evil.example/x.git\n",
            "[submodule \"x\"]\n\turl = https://evil.example/x.git\n",
            "[remote \"..\"]\n\turl = https://evil.example/x.git\n",
            "[remote \"https://a.example/x.git\"]\n\turl = https://evil.example/x.git\n",
            "[remote \"git@a.example:x.git\"]\n\turl = https://evil.example/x.git\n",
            "[remote \"team/x.git\"]\n\turl = https://evil.example/x.git\n",
            "[remote \"-x\"]\n\turl = https://evil.example/x.git\n",
            "[core]\n\tignorecase = true\n",
            "[core]\n\tfilemode = false\n",
            "[core]\n\tsymlinks = false\n",
            "[user]\n\tname\n",
            "\u{b}[user]\n\tname = x\n",
            "[user]\n\tname\r= x\n",
            "[branch \"x\" ]\n\tmerge = refs/heads/x\n",
            "[branch \"\"]\n\tmerge = refs/heads/x\n",
            "[branch.]\n\tmerge = refs/heads/x\n",
            "[branch \"x\"]\n\trebase = maybe\n",
            "[core]\n\tlogallrefupdates = maybe\n",
            "[remote \"origin\"]\n\tfetch = +refs/heads/*\n",
            "[remote \"origin\"]\n\tfetch = refs/heads/a.lock:refs/remotes/origin/a.lock\n",
            "[remote \"origin\"]\n\tfetch = refs/heads/**:refs/remotes/origin/**\n",
            "[remote \"origin\"]\n\tfetch = ..x\n",
            "\u{a0}\n",
            "[branch\u{2003}\"x\"]\n\tmerge = refs/heads/x\n",
            "[remote \"origin\"]\n\tfetch = +refs/pull/6/head:refs/remotes/origin/main\n",
            "[remote \"origin\"]\n\tfetch = +refs/heads/a:refs/remotes/origin/main\n",
            "[remote \"a/../..\"]\n\turl = https://evil.example/x.git\n\tfetch = +x:refs/remotes/a/../../heads/x\n",
        ] {
            assert!(with(more).is_some(), "{more}");
        }
        assert!(objection(b"", b"\xff").is_some());
    }

    #[test]
    fn keys_stay_in_the_hosts_order() {
        let host = "[include]\n\tpath = x\n[core]\n\thooksPath = safe\n";
        let turned = "[core]\n\thooksPath = safe\n[include]\n\tpath = x\n";
        assert!(objection(host.as_bytes(), turned.as_bytes()).is_some());
        assert_eq!(objection(host.as_bytes(), format!("[user]\n\tname = a\n{host}").as_bytes()), None);
    }

    #[test]
    fn where_a_branch_is_pulled_from_and_pushed_to_is_the_hosts() {
        let host = "[remote \"origin\"]\n\turl = https://a.example/x.git\n[remote \"backup\"]\n\turl = https://evil.example/x.git\n";
        let main = "[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n";
        let of = |before: &str, now: &str| {
            objection(format!("{host}{before}").as_bytes(), format!("{host}{now}").as_bytes()).is_some()
        };
        let branch =
            |remote: &str, merge: &str| format!("[branch \"main\"]\n\tremote = {remote}\n\tmerge = refs/{merge}\n");
        assert!(!of("", main) && !of(main, "") && !of("", &branch("origin", "pull/6/head")));
        // A server that an earlier run named, another branch, a branch of the run's own, half of what was said.
        for now in [
            branch("backup", "heads/main"),
            branch("origin", "heads/other"),
            branch(".", "heads/main"),
            main.replace("\tremote = origin\n", ""),
            format!("{main}\tpushRemote = backup\n"),
        ] {
            assert!(of(main, &now), "{now}");
        }
        assert!(of("", &branch("backup", "heads/main")) && of("", &branch(".", "heads/main")));
        let origin = "[remote \"origin\"]\n\turl = https://evil.example/x.git\n";
        let with_origin = |host: &str| objection(host.as_bytes(), format!("{host}{origin}").as_bytes()).is_some();
        assert!(with_origin(&host.replace("origin", "private")) && !with_origin(""), "git takes it by itself");
        let used = format!("{main}[branch \"x\"]\n\tremote = backup\n");
        assert!(!of(&used, &format!("{used}[branch \"y\"]\n\tremote = backup\n")), "the host uses it");
    }

    #[test]
    fn an_address_decodes_to_a_host_and_a_path() {
        for address in [
            "https://dev.example/My%20Project/_git/x",
            "https://u@h.example:8443/x.git",
            "ssh://git@h:22/x",
            "git@h:a/b",
        ] {
            assert!(is_address(address), "{address}");
        }
        for address in [
            "ssh://x%3btouch%20pwn%3b/y.git",
            "ssh://a@%2doProxyCommand%3dx/y",
            "ssh://a@b/%0ac",
            "https://a%0ab/x",
            "https://a/x%0Ahost=b",
            "https://a/%",
            "https://a/%zz",
            "git@h:a%20b",
            "https://a",
        ] {
            assert!(!is_address(address), "{address}");
        }
    }

    #[test]
    fn harmless_keys_alone_are_taken_over_and_the_hosts_lines_stay() {
        let host = "; ours\n[core]\n\tbare = false\n\n# who fetches\n[remote \"origin\"]\n\turl = https://a.example/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"old\"]\n\tmerge = refs/heads/old\n\tremote = origin\n[alias]\n\tst = status -s";
        let run = "[core]\n\tbare = false\n\tfsmonitor = /tmp/x\n\thooksPath = x\n[remote \"origin\"]\n\turl = https://evil.example/x\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\tfetch = +refs/pull/*:refs/remotes/origin/pull/*\n[alias]\n\tst = !sh\n[branch \"new\"]\n\tremote = origin\n\tmerge = refs/heads/new\n[user]\n\tname = \"a b\"\n[remote \"up\"]\n\turl = ssh://git@b.example/y\n\tfetch = +refs/heads/*:refs/remotes/up/*\n";
        let part = part(host.as_bytes(), run.as_bytes()).unwrap();
        let expected = "; ours\n[core]\n\tbare = false\n\n# who fetches\n[remote \"origin\"]\n\turl = https://a.example/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\tfetch = +refs/pull/*:refs/remotes/origin/pull/*\n[branch \"old\"]\n[alias]\n\tst = status -s\n[branch \"new\"]\n\tmerge = refs/heads/new\n\tremote = origin\n[remote \"up\"]\n\tfetch = +refs/heads/*:refs/remotes/up/*\n\turl = ssh://git@b.example/y\n[user]\n\tname = \"a b\"\n";
        assert_eq!(String::from_utf8(part.merged).unwrap(), expected);
        let taken = taken(host.as_bytes(), run.as_bytes()).unwrap();
        assert!(taken.contains("`remote.up.url`") && !taken.contains("fsmonitor"), "{taken}");
        assert_eq!(part.left, "`alias.st`, `remote.origin.url`, `core.fsmonitor`, `core.hookspath`");
        assert_eq!(objection(host.as_bytes(), expected.as_bytes()), None);
    }

    #[test]
    fn a_part_is_taken_only_where_there_is_one() {
        let part = |before: &str, now: &str| part(before.as_bytes(), now.as_bytes());
        assert_eq!(part("", "[user]\n\tname = x\n"), None, "all of it");
        assert_eq!(part("", "[alias]\n\tx = !sh\n"), None, "none of it");
        assert_eq!(part("", "[alias]\n\tx = !sh\n[user]\n\tname = x \\\n\n"), None, "not understood");
        assert_eq!(part("[x]\n\ty = \"\\\n\"", "[user]\n\tname = x\n[alias]\n\tx = y\n"), None, "the host's neither");
        // A remote without an address of its own is a folder, an address of another kind a program; a quote without end
        // stops git.
        for held in [
            "[remote \"e\"]\n\tfetch = x\n",
            "[user]\n\tname = \"x\n",
            "[remote \"e\"]\n\turl = ext::sh\n\tfetch = x\n",
        ] {
            assert_eq!(part("", held), None, "{held}");
            assert!(objection(b"", held.as_bytes()).is_some(), "{held}");
        }
        let gone = part("[a]\n\tb = c\n[user]\n\tname = x\n\temail = y\n", "[user]\n\temail = y\n").unwrap();
        assert_eq!((gone.merged, gone.left), (b"[a]\n\tb = c\n[user]\n\temail = y\n".to_vec(), "`a.b`".to_owned()));
        let many: String = (0..9).map(|n| format!("[x{n}]\n\ty = z\n")).collect();
        let left = part("", &format!("{many}[user]\n\tname = x\n")).unwrap().left;
        assert!(left.ends_with("`x4.y` and 4 more"), "{left}");
    }
}
