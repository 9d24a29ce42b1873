//! In what order paths are exchanged. An `apply` that is killed stays half done until it is begun again: until its branch moves, and
//! `HEAD` after it, git on the host is where it was; and what a reference named has a name still until all others are put.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::manifest::{Change, Entry, Kind};
use crate::protect::split;

/// What is exchanged before what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    Files,
    /// Objects, and what git's folder has besides what is below.
    Data,
    Index,
    PackedRefs,
    References,
    Head,
    /// A `packed-refs` without a name that the host's has.
    ShorterList,
    /// References in whose way others are, after those.
    Replaced,
    /// References that go, and nothing comes in their place.
    Gone,
}

impl Turn {
    pub(super) fn of(entry: &Entry) -> Self {
        let Some((_, rest)) = split(&entry.path) else { return Self::Files };
        let is_data = |part: &&std::ffi::OsStr| ["objects", "lfs", "logs"].iter().any(|data| part == data);
        let folder = rest.iter().find(|part| is_data(part) || *part == "refs");
        match (folder, rest.file_name().filter(|_| entry.kind != Kind::Dir)) {
            (Some(folder), _) if folder == "refs" => Self::References,
            (None, Some(name)) if name == "index" => Self::Index,
            (None, Some(name)) if name == "packed-refs" => Self::PackedRefs,
            (None, Some(name)) if name == "HEAD" => Self::Head,
            (Some(_) | None, _) => Self::Data,
        }
    }
}

/// The changes in their order, each with its place among those that are given: in one turn what is removed goes first, the deepest
/// ahead, so that folders are empty; nothing is put where something is still to be removed. `is_shorter`: of a list of references.
pub(super) fn in_turn<'e>(todo: &[&'e Entry], is_shorter: impl Fn(&Entry) -> bool) -> Vec<(Turn, usize, &'e Entry)> {
    let is_removed = |entry: &Entry| entry.change == Change::Removed;
    let all = |removed: bool| todo.iter().filter(move |entry| is_removed(entry) == removed);
    let put: BTreeSet<&Path> = all(false).map(|entry| entry.path.as_path()).collect();
    let taken: BTreeSet<&Path> = all(true).map(|entry| entry.path.as_path()).collect();
    let is_in_the_way = |path: &Path| path.ancestors().any(|above| taken.contains(above) && put.contains(above));
    let own = |entry: &Entry| match (Turn::of(entry), is_removed(entry)) {
        (Turn::PackedRefs, false) if is_shorter(entry) => Turn::ShorterList,
        (turn, true) if turn >= Turn::PackedRefs && is_in_the_way(&entry.path) => Turn::Replaced,
        (Turn::PackedRefs, true) => Turn::ShorterList,
        (turn, true) if turn >= Turn::PackedRefs => Turn::Gone,
        (turn, _) => turn,
    };
    let mut last_below = BTreeMap::<&Path, Turn>::new();
    for entry in all(true) {
        let turn = own(entry);
        for above in entry.path.ancestors() {
            let last = last_below.entry(above).or_insert(turn);
            *last = turn.max(*last);
        }
    }
    let removed = taken.iter().filter_map(|path| Some((*path, *last_below.get(path)?)));
    let removed: BTreeMap<&Path, Turn> = removed.collect();
    let turn = |entry: &Entry| {
        let gone = entry.path.ancestors().filter_map(|above| removed.get(above).copied());
        match removed.get(entry.path.as_path()) {
            Some(turn) if is_removed(entry) => *turn,
            Some(_) | None => gone.fold(own(entry), Turn::max),
        }
    };
    let (mut takes, mut puts) = (Vec::new(), Vec::new());
    for (at, entry) in todo.iter().enumerate() {
        let list = if is_removed(entry) { &mut takes } else { &mut puts };
        list.push((turn(entry), at, *entry));
    }
    takes.reverse();
    // Stable: what was first in a turn stays so.
    takes.append(&mut puts);
    takes.sort_by_key(|(turn, _, _)| *turn);
    takes
}

#[cfg(test)]
mod tests {
    use super::*;
    use Change::{Added, Modified, Removed};

    fn entries(all: &[(&str, Change)]) -> Vec<Entry> {
        let entry = |(path, change): &(&str, Change)| {
            let kind = if path.ends_with('/') { Kind::Dir } else { Kind::File };
            Entry::plain(path.trim_end_matches('/'), *change, kind)
        };
        let mut all: Vec<Entry> = all.iter().map(entry).collect();
        all.sort_by(|a, b| (&a.path, a.change).cmp(&(&b.path, b.change)));
        all
    }

    fn order_of(all: &[(&str, Change)], is_shorter: bool) -> Vec<String> {
        let entries = entries(all);
        let todo: Vec<&Entry> = entries.iter().collect();
        let turns = in_turn(&todo, |_| is_shorter);
        assert!(turns.iter().all(|(_, at, entry)| todo[*at].path == entry.path && todo[*at].change == entry.change));
        turns.into_iter().map(|(_, _, entry)| entry.path.display().to_string()).collect()
    }

    fn order(all: &[(&str, Change)]) -> Vec<String> {
        order_of(all, false)
    }

    #[test]
    fn branches_move_when_all_that_they_name_is_there() {
        let all = [
            (".git/HEAD", Modified),
            (".git/index", Modified),
            (".git/objects/01/", Added),
            (".git/objects/01/ab", Added),
            (".git/packed-refs", Modified),
            (".git/refs/heads/main", Modified),
            (".git/refs/heads/old", Removed),
            ("src/a", Modified),
            ("src/gone", Removed),
        ];
        let expected = [
            "src/gone",
            "src/a",
            ".git/objects/01",
            ".git/objects/01/ab",
            ".git/index",
            ".git/packed-refs",
            ".git/refs/heads/main",
            ".git/HEAD",
            ".git/refs/heads/old",
        ];
        assert_eq!(order(&all), expected);
    }

    /// What a reference that goes named has another name before.
    #[test]
    fn references_go_when_all_others_are_put() {
        let all = [
            (".git/HEAD", Modified),
            (".git/packed-refs", Modified),
            (".git/refs/heads/main", Removed),
            (".git/refs/heads/side", Removed),
            (".git/refs/heads/side/", Added),
            (".git/refs/heads/side/one", Added),
            (".git/refs/heads/topic", Added),
        ];
        let expected = [
            ".git/refs/heads/topic",
            ".git/HEAD",
            ".git/packed-refs",
            ".git/refs/heads/side",
            ".git/refs/heads/side",
            ".git/refs/heads/side/one",
            ".git/refs/heads/main",
        ];
        assert_eq!(order_of(&all, true), expected);
        let other = [(".git/packed-refs", Removed), (".git/refs/heads/a", Added), (".git/refs/heads/b", Removed)];
        assert_eq!(order(&other), [".git/refs/heads/a", ".git/packed-refs", ".git/refs/heads/b"]);
        let file =
            [(".git/refs/f/", Removed), (".git/refs/f/a", Removed), (".git/refs/f", Added), (".git/refs/z", Added)];
        assert_eq!(order(&file), [".git/refs/z", ".git/refs/f/a", ".git/refs/f", ".git/refs/f"]);
    }

    #[test]
    fn folders_come_before_what_is_in_them_and_go_after_it() {
        let gone = [
            ("sub/", Removed),
            ("sub/.git/", Removed),
            ("sub/.git/HEAD", Removed),
            ("sub/.git/refs/", Removed),
            ("sub/.git/refs/x", Removed),
            ("sub/a", Removed),
            ("sub", Added),
        ];
        assert_eq!(
            order(&gone),
            ["sub/a", "sub/.git/refs/x", "sub/.git/refs", "sub/.git/HEAD", "sub/.git", "sub", "sub"]
        );
        let made = [("sub/", Added), ("sub/.git/", Added), ("sub/.git/HEAD", Added), ("sub/.git/refs/", Added)];
        assert_eq!(order(&made), ["sub", "sub/.git", "sub/.git/refs", "sub/.git/HEAD"]);
        let other = [(".git/HEAD", Removed), (".git/HEAD/", Added), (".git/HEAD/x", Added)];
        assert_eq!(order(&other), [".git/HEAD", ".git/HEAD", ".git/HEAD/x"]);
        assert_eq!(order(&[("a", Removed), ("a/", Added), ("a/b", Added)]), ["a", "a", "a/b"]);
    }
}
