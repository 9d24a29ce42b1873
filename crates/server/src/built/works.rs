//! The builds that this server is at work on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
        }
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
    pub(crate) turns: Arc<Semaphore>,
}

impl Default for Works {
    fn default() -> Self {
        Self { at: Mutex::default(), turns: Arc::new(Semaphore::new(AT_ONCE)) }
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
}
