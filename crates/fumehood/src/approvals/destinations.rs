//! Destinations that no rule names (`net.unknown = "ask"`), and requests of rules with `decision = "ask"`, wait in the store of
//! approvals, as calls of tools do.
//!
//! They are a program's, which no limit of its run holds here: one thread has all of them, with one open store and log, and rests
//! for longer than it worked on each.

use std::sync::OnceLock;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use sandbox::state::Places;
use sandbox::{Asker, Environment, Question, Reply};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel};
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::desk::Desk;

/// Most questions that were not looked at yet; the next is answered with no.
const MAX_QUEUED: usize = 64;
/// So many times as long as a look at the store took, its thread rests: it has a quarter of a processor at most.
const REST: u32 = 3;
/// It rests no longer than this.
const MAX_REST: Duration = Duration::from_millis(250);
/// How long the end of a run waits for what is written down then.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Who asks the store of this caller.
pub(crate) fn asker(environment: &Environment) -> Arc<dyn Asker> {
    Arc::new(People { state: environment.state.clone(), thread: OnceLock::new() })
}

#[derive(Debug)]
struct People {
    state: Places,
    thread: OnceLock<Lines>,
}

/// What leads to the thread of all questions; it ends with them.
#[derive(Debug)]
struct Lines {
    questions: Sender<(Question, Reply)>,
    ended: UnboundedSender<(String, mpsc::Sender<()>)>,
}

impl People {
    fn lines(&self) -> &Lines {
        self.thread.get_or_init(|| {
            let ((questions, asked), (ended, over)) = (channel(MAX_QUEUED), unbounded_channel());
            let places = self.state.clone();
            let serve = move || serve(places, asked, over);
            // Without a thread nobody is asked: its lines are closed.
            drop(std::thread::Builder::new().name("fumehood-ask".to_owned()).spawn(serve));
            Lines { questions, ended }
        })
    }
}

impl Asker for People {
    fn ask(&self, question: Question, reply: Reply) {
        if let Err(TrySendError::Full((_, reply)) | TrySendError::Closed((_, reply))) =
            self.lines().questions.try_send((question, reply))
        {
            reply(false);
        }
    }

    fn ended(&self, run: &str) {
        let Some(lines) = self.thread.get() else { return };
        let (done, heard) = mpsc::channel();
        // What stays then ends with its time.
        if lines.ended.send((run.to_owned(), done)).is_ok() && heard.recv_timeout(LAST_WORDS).is_err() {}
    }
}

/// Looks at one question after the other until nobody can ask any more; those that wait for a person wait beside it.
fn serve(
    places: Places,
    mut asked: Receiver<(Question, Reply)>,
    mut over: UnboundedReceiver<(String, mpsc::Sender<()>)>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    let Ok(runtime) = runtime else { return };
    LocalSet::new().block_on(&runtime, async move {
        let (mut desk, mut rested) = (Desk::new(places), Instant::now());
        loop {
            let next = async {
                tokio::time::sleep_until(rested).await;
                asked.recv().await
            };
            tokio::select! {
                biased;
                ended = over.recv() => match ended {
                    Some((run, done)) => {
                        desk.end(&run);
                        // It may not have waited so long.
                        drop(done);
                    }
                    None => return,
                },
                question = next => match question {
                    Some((question, reply)) => {
                        let begun = Instant::now();
                        if desk.take(question, reply) {
                            rested = Instant::now() + rest(begun.elapsed());
                        }
                    }
                    None => return,
                },
            }
        }
    });
}

/// How long it rests after a look that took so long.
fn rest(worked: Duration) -> Duration {
    worked.saturating_mul(REST).min(MAX_REST)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use gateway::approvals::{Approvals, Holder, Remember, Wide};
    use serde_json::Value;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    const RUN: &str = "r-20261123-000000-000000";

    fn question(host: &str) -> Question {
        Question { run: RUN.to_owned(), policy: "p".to_owned(), host: host.to_owned(), port: 443, request: None }
    }

    fn ask(people: &People, host: &str) -> mpsc::Receiver<bool> {
        let (said, heard) = mpsc::channel();
        people.ask(question(host), Box::new(move |allow| said.send(allow).unwrap_or_default()));
        heard
    }

    fn threads() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let named = |task: &Path| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "fumehood-ask\n");
        tasks.filter(|task| task.as_ref().is_ok_and(|task| named(&task.path()))).count()
    }

    /// What was written down of questions: state and count.
    fn events(state: &Path) -> Vec<(String, u64)> {
        let text = std::fs::read_to_string(state.join("audit/audit.jsonl")).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let said = |event: Value| {
            let body = &event["body"];
            let count = body["count"].as_u64().unwrap_or(1);
            (event["kind"] == "egress.asked").then(|| (body["state"].as_str().unwrap().to_owned(), count))
        };
        events.filter_map(said).collect()
    }

    /// One thread has all questions, what is remembered is looked up once a second, and written down with a count.
    #[test]
    fn questions_without_end_cost_a_thread_that_rests_and_an_event_a_second() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let euid = rustix::process::geteuid().as_raw();
        let people = People {
            state: Places { fumehood_state: Some(state.clone()), euid, ..Places::default() },
            thread: OnceLock::new(),
        };
        let waiting: Vec<_> = (0..20).map(|number| ask(&people, &format!("h{number}.example"))).collect();
        // Eight of a run may wait; the others are no.
        for told in waiting.get(8..).unwrap() {
            assert_eq!(told.recv_timeout(LONG), Ok(false));
        }
        assert_eq!(threads(), 1, "one thread for all of them");
        let approvals = Approvals::open(&state).unwrap();
        let calls = approvals.list(false).unwrap();
        assert_eq!(calls.len(), 8);
        let first = calls.iter().find(|call| call.args.contains("\"h0.example\"")).unwrap();
        let remember = Remember { args: Wide::But(Vec::new()), holder: Holder::Agent, millis: Some(60_000) };
        approvals.approve(&first.id, "test", Some(&remember)).unwrap();
        assert_eq!(waiting.first().unwrap().recv_timeout(LONG), Ok(true));
        let begun = std::time::Instant::now();
        for _ in 0..40 {
            assert_eq!(ask(&people, "h0.example").recv_timeout(LONG), Ok(true), "it is remembered");
        }
        let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
        assert_eq!(approvals.memories(false).unwrap().len(), 1);
        people.ended(RUN);
        assert_eq!(approvals.list(false).unwrap().len(), 0, "nobody is asked for a run that has ended");
        let approved: Vec<u64> =
            events(&state).into_iter().filter(|one| one.0 == "approved").map(|one| one.1).collect();
        assert_eq!(approved.iter().sum::<u64>(), 41, "{approved:?}");
        assert!(approved.len() <= 3 + 2 * seconds, "one event and one with a count in a second: {approved:?}");
        assert_eq!((rest(Duration::from_millis(10)), rest(LONG)), (Duration::from_millis(30), MAX_REST));
    }
}
