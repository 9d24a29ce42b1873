//! In what order paths are exchanged. An `apply` that is killed stays half done until it is begun again: until its branch moves, last of
//! all, git on the host is where it was.

use std::collections::BTreeMap;
use std::path::Path;

use super::manifest::{Change, Entry, Kind};
use crate::protect::split;

/// What is exchanged before what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Files,
    /// Objects, and what git's folder has besides what is below.
    Data,
    Index,
    PackedRefs,
    References,
    Head,
}

impl Turn {
    fn of(entry: &Entry) -> Self {
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
/// ahead, so that folders are empty; nothing is put where something is still to be removed.
pub(super) fn in_turn<'e>(todo: &[&'e Entry]) -> Vec<(usize, &'e Entry)> {
    let is_removed = |entry: &Entry| entry.change == Change::Removed;
    let mut last_below = BTreeMap::<&Path, Turn>::new();
    for entry in todo.iter().filter(|entry| is_removed(entry)) {
        let turn = Turn::of(entry);
        for above in entry.path.ancestors() {
            let last = last_below.entry(above).or_insert(turn);
            *last = turn.max(*last);
        }
    }
    let removed = todo.iter().filter(|entry| is_removed(entry)).map(|entry| entry.path.as_path());
    let removed: BTreeMap<&Path, Turn> = removed.filter_map(|path| Some((path, *last_below.get(path)?))).collect();
    let turn = |entry: &Entry| {
        let gone = entry.path.ancestors().filter_map(|above| removed.get(above).copied());
        match removed.get(entry.path.as_path()) {
            Some(turn) if is_removed(entry) => *turn,
            Some(_) | None => gone.fold(Turn::of(entry), Turn::max),
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
    takes.into_iter().map(|(_, at, entry)| (at, entry)).collect()
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

    fn order(all: &[(&str, Change)]) -> Vec<String> {
        let entries = entries(all);
        let todo: Vec<&Entry> = entries.iter().collect();
        let turns = in_turn(&todo);
        assert!(turns.iter().all(|(at, entry)| todo[*at].path == entry.path && todo[*at].change == entry.change));
        turns.into_iter().map(|(_, entry)| entry.path.display().to_string()).collect()
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
            ".git/refs/heads/old",
            ".git/refs/heads/main",
            ".git/HEAD",
        ];
        assert_eq!(order(&all), expected);
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
