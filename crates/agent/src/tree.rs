//! All that descends from a program: by the links to parents in `/proc`, and its session.

use std::collections::BTreeSet;

const STOP: i32 = 19;
const KILL: i32 = 9;
/// Most looks at `/proc`: a program that makes processes faster than that is beyond this.
const LOOKS: usize = 64;

/// What `/proc` says of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) session: i32,
    pub(crate) state: char,
    /// Resident set, pages.
    pub(crate) pages: u64,
}

/// All processes that can be seen.
pub(crate) fn all() -> Vec<Row> {
    let Ok(folder) = std::fs::read_dir("/proc") else { return Vec::new() };
    let numbers = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter_map(|pid| parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)).collect()
}

/// One line of `/proc/PID/stat`; the name in brackets may hold anything.
fn parse(line: &[u8]) -> Option<Row> {
    let close = line.iter().rposition(|byte| *byte == b')')?;
    let pid = std::str::from_utf8(line.split(|byte| *byte == b' ').next()?).ok()?.parse().ok()?;
    let rest = std::str::from_utf8(line.get(close.checked_add(2)?..)?).ok()?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    // Field 24 of proc(5); `session` was field 6.
    let pages = fields.nth(17)?.trim_end().parse().unwrap_or(0);
    Some(Row { pid, parent, session, state, pages })
}

/// The tree of `root`, without this process and its parent.
fn members(root: i32) -> BTreeSet<i32> {
    let rows = all();
    let own = [sys::caller::pid(), rustix::process::getppid().map_or(1, |pid| pid.as_raw_nonzero().get()), 1];
    let rows: Vec<&Row> = rows.iter().filter(|row| !own.contains(&row.pid)).collect();
    let mut found: BTreeSet<i32> =
        rows.iter().filter(|row| row.pid == root || row.session == root).map(|row| row.pid).collect();
    loop {
        let before = found.len();
        let children: Vec<i32> = rows.iter().filter(|row| found.contains(&row.parent)).map(|row| row.pid).collect();
        found.extend(children);
        if found.len() == before {
            return found;
        }
    }
}

/// Sends each of the tree `number` once, until a look finds nobody new; who got it.
fn sweep(root: i32, number: i32) -> BTreeSet<i32> {
    let mut sent = BTreeSet::new();
    for _ in 0..LOOKS {
        let new: Vec<i32> = members(root).difference(&sent).copied().collect();
        if new.is_empty() {
            break;
        }
        for pid in new {
            // Gone meanwhile, or not ours to signal.
            drop(sys::signals::send(pid, false, number));
            sent.insert(pid);
        }
    }
    sent
}

/// Sends a signal to the whole tree.
pub(crate) fn signal(root: i32, number: i32) {
    if number == KILL {
        return end(root);
    }
    if sweep(root, number).is_empty() {
        drop(sys::signals::send(root, true, number));
    }
}

/// Ends the whole tree: first all of it is stopped, so that nobody makes more.
pub(crate) fn end(root: i32) {
    for pid in sweep(root, STOP) {
        drop(sys::signals::send(pid, false, KILL));
    }
    // Where `/proc` shows nothing.
    drop(sys::signals::send(root, true, KILL));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_brackets_may_hold_anything() {
        let rest = "S 7 8 9 0 -1 4194304 5 6 7 8 9 10 1 2 20 0 1 0 123 4096 321 99";
        let line = format!("42 (a) R 1 (b) {rest}\n");
        assert_eq!(parse(line.as_bytes()), Some(Row { pid: 42, parent: 7, session: 9, state: 'S', pages: 321 }));
        assert_eq!(parse(b"42 (a"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn this_process_is_seen_and_is_in_no_tree() {
        let own = sys::caller::pid();
        assert!(all().iter().any(|row| row.pid == own));
        assert!(!members(own).contains(&own));
    }
}
