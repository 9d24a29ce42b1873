//! The builds that this server is at work on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::log::{Entry, Level, Log};

/// So many are built at once; others wait.
const AT_ONCE: usize = 4;
/// Most builds of a key that are built or wait.
const OF_A_KEY: usize = 2;

/// A build on its way.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) owner: String,
    pub(crate) template: String,
    pub(crate) build: String,
    log: Mutex<Log>,
    /// The sandbox that it is made in.
    sandbox: Mutex<Option<String>>,
    /// It is not wanted any more.
    pub(crate) cancelled: CancellationToken,
    /// Why not; who says it first is heard.
    why: OnceLock<&'static str>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work {
    pub(crate) fn new(owner: &str, template: &str, build: &str) -> Self {
        Self {
            owner: owner.to_owned(),
            template: template.to_owned(),
            build: build.to_owned(),
            log: Mutex::default(),
            sandbox: Mutex::default(),
            cancelled: CancellationToken::new(),
            why: OnceLock::new(),
        }
    }

    /// It is to end.
    pub(crate) fn cancel(&self, why: &'static str) {
        self.why.get_or_init(|| why);
        self.cancelled.cancel();
    }

    /// Why it was to end.
    pub(crate) fn why(&self) -> &'static str {
        self.why.get().copied().unwrap_or("the server ends")
    }

    pub(crate) fn say(&self, level: Level, step: &str, message: &str) {
        locked(&self.log).say(crate::clock::now_ms(), level, step, message);
    }

    pub(crate) fn said(&self) -> Vec<Entry> {
        locked(&self.log).entries.clone()
    }

    /// The end of what a step said.
    pub(crate) fn last_words(&self, step: &str) -> Option<String> {
        let log = locked(&self.log);
        let of_step = |entry: &&Entry| entry.step == step && !entry.message.trim().is_empty();
        log.entries.iter().rfind(of_step).map(|entry| entry.message.clone())
    }

    pub(crate) fn is_in(&self, sandbox: Option<String>) {
        *locked(&self.sandbox) = sandbox;
    }

    pub(crate) fn sandbox(&self) -> Option<String> {
        locked(&self.sandbox).clone()
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Works {
    at: Mutex<BTreeMap<String, Arc<Work>>>,
    /// The owners that were there when what was of others was taken away last.
    owners: Mutex<Option<Vec<String>>>,
    pub(crate) turns: Arc<Semaphore>,
}

impl Default for Works {
    fn default() -> Self {
        Self { at: Mutex::default(), owners: Mutex::default(), turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl Works {
    /// Takes one on; none where its key has as many as it may.
    pub(crate) fn take(&self, work: Work) -> Option<Arc<Work>> {
        let mut at = locked(&self.at);
        let of_key = at.values().filter(|known| known.owner == work.owner).count();
        if of_key >= OF_A_KEY {
            return None;
        }
        let work = Arc::new(work);
        at.insert(work.build.clone(), Arc::clone(&work));
        Some(work)
    }

    pub(crate) fn get(&self, build: &str) -> Option<Arc<Work>> {
        locked(&self.at).get(build).cloned()
    }

    /// It is over.
    pub(crate) fn done(&self, build: &str) {
        locked(&self.at).remove(build);
    }

    /// Whether these owners are others than those of the last time; from now on they are.
    pub(crate) fn follows(&self, owners: Vec<String>) -> bool {
        let mut last = locked(&self.owners);
        let is_new = last.as_ref() != Some(&owners);
        *last = Some(owners);
        is_new
    }

    /// What was to be done for the owners is to be done again.
    pub(crate) fn follow_again(&self) {
        *locked(&self.owners) = None;
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Work>> {
        locked(&self.at).values().cloned().collect()
    }

    /// Those of a template.
    pub(crate) fn of(&self, template: &str) -> Vec<Arc<Work>> {
        locked(&self.at).values().filter(|work| work.template == template).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_builds_so_many_at_once_and_no_more() {
        let works = Works::default();
        for at in 0..OF_A_KEY {
            assert!(works.take(Work::new("a", "t", &at.to_string())).is_some());
        }
        assert!(works.take(Work::new("a", "t", "more")).is_none());
        assert!(works.take(Work::new("b", "u", "other")).is_some(), "another key's are its own");
        works.done("0");
        assert!(works.take(Work::new("a", "t", "more")).is_some());
        assert_eq!(works.of("t").len(), OF_A_KEY);
    }

    #[test]
    fn a_build_ends_for_the_reason_that_was_first_and_owners_are_followed_once() {
        let work = Work::new("a", "t", "0");
        assert!(!work.cancelled.is_cancelled());
        work.cancel("first");
        work.cancel("second");
        assert!(work.cancelled.is_cancelled() && work.why() == "first");
        let (works, owners) = (Works::default(), |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect());
        assert!(works.follows(owners(&[])) && !works.follows(owners(&[])));
        assert!(works.follows(owners(&["a"])) && !works.follows(owners(&["a"])) && works.follows(owners(&["b"])));
        works.follow_again();
        assert!(works.follows(owners(&["b"])));
    }
}
