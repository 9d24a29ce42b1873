//! Processes that belong together, by what `/proc` says of each: its parent, and the mark that it carries.

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
    /// Its `RLIMIT_RSS`, which is what a starter marks its programs by.
    mark: u64,
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

/// Processes that belong together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProcessSet<'a> {
    /// All below `top`, without those in `but` and what is below them.
    Below { top: i32, but: &'a BTreeSet<i32> },
    /// All that carry this mark, but one. Nobody makes such a process but one that is such a process, and that one.
    Marked { mark: u64, but: Option<i32> },
}

/// What came of an attempt to end them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Whoever was seen was sent a signal that ends it.
    Seen,
    /// Nobody is left.
    Done,
}

/// One look at `/proc`.
struct Look {
    living: BTreeSet<Who>,
    over: BTreeSet<Who>,
    /// Of each process that was listed its line was read.
    whole: bool,
}

/// All processes that can be seen; none where `/proc` cannot be read.
pub(crate) fn all() -> Vec<Row> {
    listed().0
}

/// And whether each that was listed was still there to be read.
fn listed() -> (Vec<Row>, bool) {
    let Ok(folder) = std::fs::read_dir("/proc") else { return (Vec::new(), false) };
    let numbers = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let (mut rows, mut whole) = (Vec::new(), true);
    for pid in numbers {
        match row(pid) {
            Some(row) => rows.push(row),
            None => whole = false,
        }
    }
    (rows, whole)
}

fn row(pid: i32) -> Option<Row> {
    parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// When a process began.
pub(crate) fn started(pid: i32) -> Option<u64> {
    row(pid).map(|row| row.started)
}

/// One line of `/proc/PID/stat`; the name in brackets may hold anything.
fn parse(line: &[u8]) -> Option<Row> {
    let close = line.iter().rposition(|byte| *byte == b')')?;
    let pid = std::str::from_utf8(line.split(|byte| *byte == b' ').next()?).ok()?.parse().ok()?;
    let rest = std::str::from_utf8(line.get(close.checked_add(2)?..)?).ok()?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    // Fields 20, 22, 24 and 25 of proc(5); `parent` was field 4.
    let threads = fields.nth(15)?.parse().ok()?;
    let started = fields.nth(1)?.parse().ok()?;
    let pages = fields.nth(1)?.parse().unwrap_or(0);
    let mark = fields.next()?.trim_end().parse().ok()?;
    Some(Row { pid, parent, state, threads, started, pages, mark })
}

impl ProcessSet<'_> {
    /// Looks for them; none where `/proc` shows nothing.
    fn look(&self) -> Option<Look> {
        self.among(&listed())
    }

    fn among(&self, (rows, whole): &(Vec<Row>, bool)) -> Option<Look> {
        let own = sys::caller::pid();
        if !rows.iter().any(|row| row.pid == own) {
            return None;
        }
        let found: Vec<&Row> = match *self {
            Self::Below { top, but } => below(rows, top, but),
            Self::Marked { mark, but } => {
                rows.iter().filter(|row| row.mark == mark && Some(row.pid) != but && row.pid != own).collect()
            }
        };
        let (over, living): (Vec<&Row>, Vec<&Row>) = found.into_iter().partition(|row| row.is_over());
        let who = |rows: Vec<&Row>| rows.into_iter().map(|row| (row.pid, row.started)).collect();
        Some(Look { living: who(living), over: who(over), whole: *whole })
    }

    /// Sends a signal once to each of them that is not in `done`, until a look finds nobody new; who got it.
    fn sweep(&self, number: i32, done: &BTreeSet<Who>) -> Option<BTreeSet<Who>> {
        let mut sent = BTreeSet::new();
        for _ in 0..LOOKS {
            let there = self.look()?.living;
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

    /// Sends them a signal; how many got it, none where `/proc` shows nothing.
    pub(crate) fn signal(&self, number: i32) -> Option<usize> {
        self.sweep(number, &BTreeSet::new()).map(|sent| sent.len())
    }

    /// Ends them: first all are stopped, so that nobody makes more. `None` where `/proc` shows nothing, or where they are made faster
    /// than they are found.
    pub(crate) fn end(&self) -> Option<Ending> {
        let mut killed = BTreeSet::new();
        for _ in 0..PASSES {
            let stopped = self.sweep(STOP, &killed)?;
            if stopped.is_empty() {
                // Of those that are known by their parents only the kernel can say it, to who adopts them.
                let done = matches!(self, Self::Marked { .. }) && gone(&[*self]) == [true];
                return Some(if done { Ending::Done } else { Ending::Seen });
            }
            for who in stopped {
                drop(sys::signals::send(who.0, false, KILL));
                killed.insert(who);
            }
        }
        None
    }
}

/// Of each whether nobody lives. Of the second list each process was read: it is none of them, or had ended at the first look already.
/// So at the time of that list nobody lived who could have made another.
pub(crate) fn gone(all: &[ProcessSet<'_>]) -> Vec<bool> {
    let lists = [listed(), listed()];
    let is_gone = |set: &ProcessSet<'_>| {
        let [Some(first), Some(second)] = lists.each_ref().map(|list| set.among(list)) else { return false };
        second.whole && second.living.is_empty() && second.over.is_subset(&first.over)
    };
    all.iter().map(is_gone).collect()
}

/// All below `top`, without those in `but` and what is below them.
fn below<'r>(rows: &'r [Row], top: i32, but: &BTreeSet<i32>) -> Vec<&'r Row> {
    let own = sys::caller::pid();
    let mut found = BTreeSet::from([top]);
    let mut all = Vec::new();
    loop {
        let before = found.len();
        for row in rows.iter().filter(|row| row.pid != own && !but.contains(&row.pid)) {
            // `found` grows on the way: children mostly have the higher numbers.
            if found.contains(&row.parent) && found.insert(row.pid) {
                all.push(row);
            }
        }
        if found.len() == before {
            return all;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_brackets_may_hold_anything() {
        let rest = "S 7 8 9 0 -1 4194304 5 6 7 8 9 10 1 2 20 0 1 0 123 4096 321 99";
        let line = format!("42 (a) R 1 (b) {rest}\n");
        let row = Row { pid: 42, parent: 7, state: 'S', threads: 1, started: 123, pages: 321, mark: 99 };
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
        let below = ProcessSet::Below { top: parent, but: &BTreeSet::new() }.look().unwrap();
        assert!(below.living.iter().all(|who| who.0 != own));
    }
}
