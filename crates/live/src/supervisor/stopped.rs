//! What the broker of the network stopped while a program ran: counted before its end is told, so that nothing of it is missing. And
//! what the kernel did for want of memory.

use std::time::Duration;

use policy::Violation;
use policy::report::DetectedBy;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use super::hub::{Hub, Note};
use super::program::Stage;
use crate::words::{Report, Stopped};

/// The end of a program is told after this time, whatever its broker does.
const COUNTED: Duration = Duration::from_millis(200);
/// Most kinds in a report; of others the attempts are counted.
const MAX_TOLD: usize = 16;
/// Most kinds in what is said about a sandbox.
const MAX_LAST: usize = 8;
/// Most bytes of the words of a report: it fits a frame, and a list of programs holds many.
const WORDS: usize = 8192;

/// Tells the hub, when it is dropped: the broker has counted, or never will.
struct CountedNote(Sender<Note>, u64);

impl Drop for CountedNote {
    fn drop(&mut self) {
        // One that is not heard is found by its time.
        drop(self.0.try_send(Note::Counted(self.1)));
    }
}

impl Hub {
    /// A program has ended so: it is told when what was stopped meanwhile is known.
    pub(super) fn count_stopped(&mut self, number: u64, report: Report) {
        let note = CountedNote(self.notes.clone(), number);
        let Some(program) = self.programs.get_mut(&number) else { return };
        (program.stage, program.verdict) = match Instant::now().checked_add(COUNTED) {
            Some(at) if self.run.count(Box::new(move || drop(note))) => (Stage::Counting(at), Some(report)),
            Some(_) | None => return self.conclude(number, report),
        };
    }

    /// It is known, or it took too long.
    pub(super) fn counted(&mut self, number: u64) {
        let Some(program) = self.programs.get_mut(&number) else { return };
        if matches!(program.stage, Stage::Counting(_))
            && let Some(report) = program.verdict.take()
        {
            self.conclude(number, report);
        }
    }

    /// Of memory that was used up: how much may be used, how much was, and what to do instead.
    pub(super) fn tell_memory(&self, report: &mut Report, before: u64) {
        let limit = match self.setup.policy.as_ref() {
            Some(policy) => {
                let kills = self.run.oom_kills().saturating_sub(before).max(1);
                report.violations.insert(0, told(&sandbox::out_of_memory(policy, kills), kills));
                policy.limits.memory.map(|bytes| format!(" is {bytes}")).unwrap_or_default()
            }
            None => String::new(),
        };
        let most = self.run.usage().get("memory_peak").and_then(serde_json::Value::as_u64).filter(|most| *most > 0);
        let most = most.map(|bytes| format!(", {} MiB were used at most", bytes >> 20)).unwrap_or_default();
        report.message = format!("{} (`limits.memory`{limit}{most})", report.message);
    }
}

fn told(violation: &Violation, count: u64) -> Stopped {
    let seen = match violation.seen {
        DetectedBy::Kernel => "kernel",
        DetectedBy::Output => "output",
        DetectedBy::Broker => "broker",
    };
    Stopped {
        id: violation.id.clone(),
        clause: violation.clause.path().to_owned(),
        what: violation.what.clone(),
        why: violation.why.clone(),
        instead: violation.instead.clone(),
        count,
        seen: seen.to_owned(),
        program: violation.program.clone(),
    }
}

/// What of this was not there before, or less often.
pub(super) fn between(before: &[Violation], now: &[Violation]) -> Vec<Stopped> {
    let (mut list, mut more, mut room) = (Vec::new(), 0_u64, WORDS);
    for found in now {
        let same = |known: &&Violation| (&known.id, &known.what, &known.why) == (&found.id, &found.what, &found.why);
        let count = found.count.saturating_sub(before.iter().find(same).map_or(0, |known| known.count));
        if count == 0 {
            continue;
        }
        let words =
            [&found.what, &found.why, &found.instead].into_iter().map(String::len).fold(0, usize::saturating_add);
        match room.checked_sub(words) {
            Some(left) if list.len() < MAX_TOLD => {
                room = left;
                list.push(told(found, count));
            }
            Some(_) | None => more = more.saturating_add(count),
        }
    }
    if let Some(last) = now.last().filter(|_| more > 0) {
        list.push(Stopped {
            id: "net/more".to_owned(),
            clause: last.clause.path().to_owned(),
            what: "attempts of more kinds than are told one by one".to_owned(),
            why: format!("the report of a program tells {MAX_TOLD}"),
            instead: "look at the first ones; `fumehood audit show --net` has all".to_owned(),
            count: more,
            seen: "broker".to_owned(),
            program: None,
        });
    }
    list
}

/// The last of these that were new, with all their attempts.
pub(super) fn last(now: &[Violation]) -> Vec<Stopped> {
    let newest = now.get(now.len().saturating_sub(MAX_LAST)..).unwrap_or_default();
    newest.iter().map(|violation| told(violation, violation.count)).collect()
}

#[cfg(test)]
mod tests {
    use policy::ClauseId;

    use super::*;

    fn denied(host: &str, count: u64) -> Violation {
        Violation {
            id: "net.allow/unknown-name".to_owned(),
            clause: ClauseId::NetAllow,
            what: format!("looking up {host}"),
            why: "no rule".to_owned(),
            instead: "ask".to_owned(),
            count,
            seen: DetectedBy::Broker,
            program: None,
        }
    }

    #[test]
    fn what_is_new_or_more_often_is_told_and_nothing_else() {
        let before = [denied("a.test", 3), denied("b.test", 1)];
        let now = [denied("a.test", 5), denied("b.test", 1), denied("c.test", 1)];
        let told: Vec<_> = between(&before, &now).into_iter().map(|one| (one.what, one.count)).collect();
        assert_eq!(told, [("looking up a.test".to_owned(), 2), ("looking up c.test".to_owned(), 1)]);
        assert_eq!(between(&now, &now), []);
        let other = Violation { why: "another rule".to_owned(), ..denied("a.test", 2) };
        let again = [now.as_slice(), &[other]].concat();
        let told: Vec<_> = between(&now, &again).into_iter().map(|one| (one.why, one.count)).collect();
        assert_eq!(told, [("another rule".to_owned(), 2)], "the same act is stopped for two reasons");
    }

    #[test]
    fn a_program_that_tries_much_fills_no_frame() {
        let many: Vec<_> = (0..200).map(|number| denied(&format!("{number}.{}", "x".repeat(400)), 2)).collect();
        let told = between(&[], &many);
        assert!(told.len() <= MAX_TOLD + 1 && serde_json::to_vec(&told).unwrap().len() < 2 * WORDS, "{}", told.len());
        assert_eq!(told.iter().map(|one| one.count).sum::<u64>(), 400);
        assert_eq!(told.last().unwrap().id, "net/more");
        assert_eq!(last(&many).len(), MAX_LAST);
        assert_eq!(last(&many).last().unwrap().what, many.last().unwrap().what);
    }
}
