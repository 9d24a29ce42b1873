//! All that descends from a process: by the links to parents in `/proc`.

use std::collections::BTreeSet;

const STOP: i32 = 19;
const KILL: i32 = 9;
/// Most looks at `/proc` in one pass.
const LOOKS: usize = 64;
/// Most passes: a program that makes processes faster than they are found and stopped is beyond all of them.
const PASSES: usize = 64;

/// What `/proc` says of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) state: char,
    /// Those of its threads that have not been reaped, the first one included.
    threads: u64,
    /// When it started, in ticks of the machine: with the pid, nobody else's.
    started: u64,
    /// Resident set, pages.
    pub(crate) pages: u64,
}

impl Row {
    /// It has ended, and its parent has not heard of it yet. One whose first thread alone has ended looks the same but for the
    /// number of its threads.
    fn is_over(&self) -> bool {
        matches!(self.state, 'Z' | 'X') && self.threads <= 1
    }
}

/// Which process, whatever becomes of its number.
type Who = (i32, u64);

/// All processes that can be seen; none where `/proc` cannot be read.
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
    // Fields 20, 22 and 24 of proc(5); `parent` was field 4.
    let threads = fields.nth(15)?.parse().ok()?;
    let started = fields.nth(1)?.parse().ok()?;
    let pages = fields.nth(1)?.trim_end().parse().unwrap_or(0);
    Some(Row { pid, parent, state, threads, started, pages })
}

/// All below `top` that have not ended, without those in `but` and what is below them; none where `/proc` shows nothing.
fn below(top: i32, but: &BTreeSet<i32>) -> Option<BTreeSet<Who>> {
    let rows = all();
    let own = sys::caller::pid();
    if !rows.iter().any(|row| row.pid == own) {
        return None;
    }
    let mut found = BTreeSet::from([top]);
    let mut who = BTreeSet::new();
    loop {
        let before = found.len();
        for row in rows.iter().filter(|row| row.pid != own && !but.contains(&row.pid)) {
            // `found` grows on the way: children mostly have the higher numbers.
            if found.contains(&row.parent) && found.insert(row.pid) && !row.is_over() {
                who.insert((row.pid, row.started));
            }
        }
        if found.len() == before {
            return Some(who);
        }
    }
}

/// Sends a signal once to each below `top` that is not in `done`, until a look finds nobody new; who got it.
fn sweep(top: i32, but: &BTreeSet<i32>, number: i32, done: &BTreeSet<Who>) -> Option<BTreeSet<Who>> {
    let mut sent = BTreeSet::new();
    for _ in 0..LOOKS {
        let there = below(top, but)?;
        let new: Vec<Who> = there.into_iter().filter(|who| !sent.contains(who) && !done.contains(who)).collect();
        if new.is_empty() {
            break;
        }
        for who in new {
            // Gone meanwhile, or not ours to signal.
            drop(sys::signals::send(who.0, false, number));
            sent.insert(who);
        }
    }
    Some(sent)
}

/// Sends a signal to all below `top`; how many got it, none where `/proc` shows nothing.
pub(crate) fn signal(top: i32, number: i32) -> Option<usize> {
    sweep(top, &BTreeSet::new(), number, &BTreeSet::new()).map(|sent| sent.len())
}

/// Ends all below `top`, without those in `but` and what is below them: first all are stopped, so that nobody makes more. False
/// where `/proc` shows nothing, or where they are made faster than they are found.
pub(crate) fn end(top: i32, but: &BTreeSet<i32>) -> bool {
    let mut killed = BTreeSet::new();
    for _ in 0..PASSES {
        let Some(stopped) = sweep(top, but, STOP, &killed) else { return false };
        if stopped.is_empty() {
            return true;
        }
        for who in stopped {
            drop(sys::signals::send(who.0, false, KILL));
            killed.insert(who);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_brackets_may_hold_anything() {
        let rest = "S 7 8 9 0 -1 4194304 5 6 7 8 9 10 1 2 20 0 1 0 123 4096 321 99";
        let line = format!("42 (a) R 1 (b) {rest}\n");
        let row = Row { pid: 42, parent: 7, state: 'S', threads: 1, started: 123, pages: 321 };
        assert_eq!(parse(line.as_bytes()), Some(row));
        let leaderless = line.replace(") S ", ") Z ").replace(" 20 0 1 0 ", " 20 0 2 0 ");
        assert!(!parse(leaderless.as_bytes()).unwrap().is_over(), "another thread of it runs");
        assert!(parse(line.replace(") S ", ") Z ").as_bytes()).unwrap().is_over());
        assert_eq!(parse(b"42 (a"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn this_process_is_seen_and_is_below_nobody() {
        let own = sys::caller::pid();
        assert!(all().iter().any(|row| row.pid == own));
        let parent = rustix::process::getppid().map_or(1, |pid| pid.as_raw_nonzero().get());
        assert!(below(parent, &BTreeSet::new()).unwrap().iter().all(|who| who.0 != own));
    }
}
