//! One program that `exec` started: what is kept of its output, what it is to read, how it ended.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent::frame::Lane;
use agent::words::{Code, Exited, Failure};
use policy::{Policy, Violation};
use tokio::time::Instant;

use super::client::ClientId;
use crate::words::{Exec, Hint, Report, Running};

/// The newest of each lane that is kept for `logs`.
const KEPT: usize = 1 << 20;
/// Most bytes of input that wait for a program beside those of windows.
pub(super) const MAX_INPUT: usize = 4 << 20;

/// So much of what a program printed last is read for hints.
const READ: usize = 64 * 1024;
/// Most bytes of the words of hints in a report: it fits a frame, and a list of programs holds many.
const HINTS: usize = 4096;

/// The newest bytes of a lane.
#[derive(Debug, Default)]
pub(super) struct Ring(VecDeque<u8>);

impl Ring {
    fn push(&mut self, bytes: &[u8]) {
        let newest = bytes.get(bytes.len().saturating_sub(KEPT)..).unwrap_or_default();
        let old = self.0.len().saturating_add(newest.len()).saturating_sub(KEPT);
        self.0.drain(..old.min(self.0.len()));
        self.0.extend(newest);
    }

    /// Forgets the oldest of these bytes, and gives their memory back; how many they were.
    fn forget(&mut self, bytes: usize) -> usize {
        let gone = bytes.min(self.0.len());
        self.0.drain(..gone);
        self.0.shrink_to_fit();
        gone
    }
}

/// What is kept of one program, in lanes, and whether it is over.
pub(super) type OutputRings<'a> = (bool, &'a mut [Ring; 2]);

/// Forgets so much of what is kept that no more than `most` bytes stay in all: first of the programs that are over, the oldest
/// (which come first) before the others, then of those that run the ones of which most is kept.
pub(super) fn bound(all: &mut [OutputRings<'_>], most: usize) {
    let size = |lanes: &[Ring; 2]| lanes.iter().map(|ring| ring.0.len()).sum::<usize>();
    let mut excess = all.iter().map(|(_, lanes)| size(lanes)).sum::<usize>().saturating_sub(most);
    all.sort_by_key(|(over, lanes)| if *over { (false, 0) } else { (true, usize::MAX.saturating_sub(size(lanes))) });
    for (_, lanes) in all {
        for ring in lanes.iter_mut() {
            excess = excess.saturating_sub(ring.forget(excess));
        }
    }
}

/// `limits.output` of one program, as a run counts it: the head is handed on as it comes, and of what is beyond the limit
/// the last is, at the end.
#[derive(Debug)]
pub(super) struct Budget {
    limit: Option<u64>,
    /// Bytes that may still be handed on.
    head: u64,
    /// Most bytes of each tail.
    tail: usize,
    tails: [VecDeque<u8>; 2],
    dropped: [u64; 2],
    /// A lane whose head is over does not begin again.
    cut: [bool; 2],
    pub(super) produced: u64,
}

const fn at(lane: Lane) -> usize {
    match lane {
        Lane::In | Lane::Out => 0,
        Lane::Err => 1,
    }
}

impl Budget {
    pub(super) fn new(limit: Option<u64>) -> Self {
        // An eighth is held back for the two tails, as in a run.
        let tail = limit.map_or(0, |bytes| usize::try_from((bytes / 16).min(64 * 1024)).unwrap_or(0));
        let back = u64::try_from(tail).unwrap_or(u64::MAX).saturating_mul(2);
        let head = limit.map_or(u64::MAX, |bytes| bytes.saturating_sub(back));
        Self { limit, head, tail, tails: Default::default(), dropped: [0; 2], cut: [false; 2], produced: 0 }
    }

    /// Counts what was printed; the part of it that is handed on now.
    pub(super) fn take<'a>(&mut self, lane: Lane, bytes: &'a [u8]) -> &'a [u8] {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.produced = self.produced.saturating_add(length);
        let lane = at(lane);
        let (Some(cut), Some(tail), Some(dropped)) =
            (self.cut.get_mut(lane), self.tails.get_mut(lane), self.dropped.get_mut(lane))
        else {
            return &[];
        };
        let now = if *cut { 0 } else { usize::try_from(self.head.min(length)).unwrap_or(bytes.len()) };
        let (now, later) = bytes.split_at_checked(now).unwrap_or((bytes, &[]));
        if self.limit.is_some() {
            self.head = self.head.saturating_sub(u64::try_from(now.len()).unwrap_or(u64::MAX));
        }
        *cut |= !later.is_empty();
        tail.extend(later);
        let excess = tail.len().saturating_sub(self.tail);
        tail.drain(..excess);
        *dropped = dropped.saturating_add(u64::try_from(excess).unwrap_or(u64::MAX));
        now
    }

    pub(super) fn exceeded(&self) -> bool {
        self.limit.is_some_and(|limit| self.produced > limit)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// What is handed on at the end: where it was cut, and the tails.
    pub(super) fn tails(&mut self) -> [(Lane, Vec<u8>); 2] {
        let [out, err] = std::mem::take(&mut self.tails);
        let [out_dropped, err_dropped] = self.dropped;
        let said = |dropped: u64, tail: VecDeque<u8>| {
            let mut bytes = match dropped {
                0 => Vec::new(),
                dropped => format!("\n[fumehood: {dropped} bytes were cut here]\n").into_bytes(),
            };
            bytes.extend(tail);
            bytes
        };
        [(Lane::Out, said(out_dropped, out)), (Lane::Err, said(err_dropped, err))]
    }
}

/// Who is to hear of a piece of input.
#[derive(Clone, Copy, Debug)]
pub(super) enum Written {
    /// A stream, whose credit it is.
    Data(ClientId, u32),
    /// An `input`, which is answered.
    Ask(ClientId, u32),
    /// Nobody waits for it.
    Nobody,
}

/// What a program is to read.
#[derive(Debug)]
pub(super) enum Input {
    Bytes(Vec<u8>, Written),
    Eof,
}

/// How far a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The agent was asked.
    Starting,
    /// It runs.
    Running,
    /// The agent said how it ended; whether memory ended it is still to be seen.
    Ending(Exited, Instant),
    /// How it ended is known; what was stopped meanwhile is being counted.
    Counting(Instant),
    /// It is over.
    Ended,
}

/// One program.
#[derive(Debug)]
pub(super) struct Program {
    /// `p1`, `p2`, ...
    pub(super) number: u64,
    /// Its stream at the agent.
    pub(super) line: u32,
    pub(super) asked: Exec,
    /// A kernel: not a program of anybody.
    pub(super) system: bool,
    pub(super) pid: u32,
    pub(super) stage: Stage,
    pub(super) began: Instant,
    pub(super) started_ms: i64,
    /// Whose `exec` it is, while he is there.
    pub(super) owner: Option<(ClientId, u32)>,
    /// All who listen, the owner too.
    pub(super) readers: BTreeSet<(ClientId, u32)>,
    pub(super) kept: [Ring; 2],
    pub(super) budget: Budget,
    pub(super) input: VecDeque<Input>,
    /// Bytes in `input` that are of no window.
    pub(super) asked_input: usize,
    pub(super) closed: bool,
    pub(super) deadline: Option<Instant>,
    /// When it was to be gone, since we had it killed.
    pub(super) patience: Option<Instant>,
    /// The limit for which we had it killed, and the sentence.
    pub(super) limit: Option<(&'static str, String)>,
    pub(super) oom_before: u64,
    /// What had been stopped when it began.
    pub(super) stopped_before: Arc<[Violation]>,
    /// How it ended, while it is [`Stage::Counting`].
    pub(super) verdict: Option<Report>,
    pub(super) report: Option<Report>,
}

/// Milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl Program {
    pub(super) fn new(number: u64, line: u32, asked: Exec, limit: Option<u64>) -> Self {
        let began = Instant::now();
        let deadline = asked.timeout_ms.and_then(|ms| began.checked_add(Duration::from_millis(ms)));
        Self {
            number,
            line,
            asked,
            system: false,
            pid: 0,
            stage: Stage::Starting,
            began,
            started_ms: now_ms(),
            owner: None,
            readers: BTreeSet::new(),
            kept: Default::default(),
            budget: Budget::new(limit),
            input: VecDeque::new(),
            asked_input: 0,
            closed: false,
            deadline,
            patience: None,
            limit: None,
            oom_before: 0,
            stopped_before: Arc::from([]),
            verdict: None,
            report: None,
        }
    }

    /// Its word.
    pub(super) fn id(&self) -> String {
        format!("p{}", self.number)
    }

    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// Whether it did not start since we gave it up: its time was over.
    pub(super) fn is_too_late(&self, failed: &Failure) -> bool {
        failed.code == Code::Cancelled && self.limit.as_ref().is_some_and(|(limit, _)| *limit == "wall")
    }

    /// Whether it reads anything.
    pub(super) fn has_input(&self) -> bool {
        self.asked.program.stdin || self.asked.program.tty.is_some()
    }

    pub(super) fn keep(&mut self, lane: Lane, bytes: &[u8]) {
        if let Some(ring) = self.kept.get_mut(at(lane)) {
            ring.push(bytes);
        }
    }

    /// What is kept of it, in lanes.
    pub(super) fn log(&self) -> [(Lane, Vec<u8>); 2] {
        let [out, err] = &self.kept;
        [(Lane::Out, out.0.iter().copied().collect()), (Lane::Err, err.0.iter().copied().collect())]
    }

    /// Bytes of output that are kept.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept.iter().map(|ring| ring.0.len()).sum()
    }

    /// As callers are told of it.
    pub(super) fn shown(&self) -> Running {
        Running {
            id: self.id(),
            pid: self.pid,
            tag: self.asked.tag.clone(),
            program: self.asked.program.clone(),
            started_ms: self.started_ms,
            report: self.report.clone(),
        }
    }

    /// How it ended. `memory`: the kernel ended something for want of memory, and this is what it hit.
    pub(super) fn judge(&self, exited: &Exited, memory: bool) -> Report {
        let (code, signal) = (exited.code.map(i32::from), exited.signal.map(i32::from));
        let (outcome, limit, message) = match &self.limit {
            Some((limit, message)) => ("limit", Some((*limit).to_owned()), message.clone()),
            None if memory => {
                let message = "the kernel ended it: the memory of the sandbox is used up";
                ("limit", Some("memory".to_owned()), message.to_owned())
            }
            None => match (code, signal) {
                (_, Some(signal)) => ("signalled", None, format!("signal {signal} ended the program")),
                (Some(code), None) => ("exited", None, format!("the program exited with {code}")),
                (None, None) => ("failed", None, "the agent did not say how the program ended".to_owned()),
            },
        };
        self.report(OutcomeFields { outcome, code, signal, limit, message }, exited)
    }

    /// How it ended with its sandbox.
    pub(super) fn swept_along(&self, limit: Option<&str>, message: &str) -> Report {
        let (outcome, signal) = if limit.is_some() { ("limit", None) } else { ("signalled", Some(9)) };
        let limit = limit.map(str::to_owned);
        let message = format!("it ended with its sandbox: {message}");
        self.report(OutcomeFields { outcome, code: None, signal, limit, message }, &Exited::default())
    }

    fn report(&self, facts: OutcomeFields, exited: &Exited) -> Report {
        let seconds = |us: u64| Duration::from_micros(us).as_secs_f64();
        Report {
            outcome: facts.outcome.to_owned(),
            code: facts.code,
            signal: facts.signal,
            limit: facts.limit,
            message: facts.message,
            wall: self.began.elapsed().as_secs_f64(),
            cpu_user: seconds(exited.user_us),
            cpu_system: seconds(exited.system_us),
            memory_peak: exited.max_rss,
            output: self.budget.produced,
            dropped: self.budget.dropped(),
            hints: Vec::new(),
            violations: Vec::new(),
        }
    }

    /// What the policy may have stopped, by what it printed last on its error stream; a terminal has one stream for both.
    pub(super) fn hints(&self, policy: &Policy) -> Vec<Hint> {
        let [out, err] = &self.kept;
        let lane = if self.asked.program.tty.is_some() { out } else { err };
        let printed: Vec<u8> = lane.0.iter().skip(lane.0.len().saturating_sub(READ)).copied().collect();
        let mut room = HINTS;
        let hints = sandbox::hints(&printed, policy).into_iter().map(|found| Hint {
            id: found.id,
            clause: found.clause.path().to_owned(),
            what: found.what,
            why: found.why,
            instead: found.instead,
            count: found.count,
        });
        let fits = hints.take_while(|hint| {
            let size =
                [&hint.what, &hint.why, &hint.instead].into_iter().map(String::len).fold(0, usize::saturating_add);
            room.checked_sub(size).map(|left| room = left).is_some()
        });
        fits.collect()
    }
}

struct OutcomeFields {
    outcome: &'static str,
    code: Option<i32>,
    signal: Option<i32>,
    limit: Option<String>,
    message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_beyond_its_limit_keeps_head_and_tail_and_counts_the_rest() {
        let mut budget = Budget::new(Some(64_000));
        let head: usize = (0..100).map(|_| budget.take(Lane::Out, &[1; 10_000]).len()).sum();
        assert_eq!(head, 64_000 - 2 * 4_000);
        assert!(budget.exceeded());
        let dropped = budget.dropped();
        assert_eq!(dropped, 1_000_000 - 56_000 - 4_000);
        let [(_, out), (_, err)] = budget.tails();
        assert!(out.starts_with(format!("\n[fumehood: {dropped} bytes were cut here]\n").as_bytes()));
        assert!(err.is_empty());
    }

    #[test]
    fn of_all_that_is_kept_the_oldest_of_ended_programs_goes_first_and_then_most_of_the_greediest() {
        let lanes = |out: usize, err: usize| {
            let mut lanes: [Ring; 2] = Default::default();
            lanes[0].push(&vec![1; out]);
            lanes[1].push(&vec![2; err]);
            lanes
        };
        let mut all = [lanes(10, 0), lanes(10, 5), lanes(3, 0), lanes(20, 0)];
        let over = [false, true, true, false];
        let sizes = |all: &[[Ring; 2]; 4]| all.each_ref().map(|lanes| lanes[0].0.len() + lanes[1].0.len());
        let mut bounded = |most: usize| {
            let mut kept: Vec<OutputRings<'_>> = over.into_iter().zip(all.iter_mut()).collect();
            bound(&mut kept, most);
            sizes(&all)
        };
        assert_eq!(bounded(48), [10, 15, 3, 20]);
        assert_eq!(bounded(40), [10, 7, 3, 20]);
        assert_eq!(bounded(32), [10, 0, 2, 20]);
        assert_eq!(bounded(15), [10, 0, 0, 5]);
        assert_eq!(bounded(8), [3, 0, 0, 5]);
    }

    #[test]
    fn the_newest_of_a_lane_is_kept() {
        let mut ring = Ring::default();
        ring.push(&vec![1; KEPT]);
        ring.push(&[2; 10]);
        assert_eq!((ring.0.len(), ring.0.back(), ring.0.front()), (KEPT, Some(&2), Some(&1)));
        ring.push(&vec![3; 2 * KEPT]);
        assert!(ring.0.len() == KEPT && ring.0.iter().all(|byte| *byte == 3));
    }
}
