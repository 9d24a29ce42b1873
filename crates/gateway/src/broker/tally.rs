//! `counters` of conditions: how many calls there were before this one.
//!
//! A call counts from the moment it is judged, so that of many at once each sees another number; denied, it counts no more.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gate::call::{Call, Caller};
use gate::rules::Counters;
use gate::verdict::Reason;
use policy::tools::Decision;

/// Sessions that are counted at once.
const MAX: usize = 65_536;
/// Tools that are counted in one session.
const MAX_TOOLS: usize = 4096;
/// A session that was quiet for so long may be forgotten when there is no room.
const QUIET: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Default)]
pub(super) struct Tally {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    sessions: HashMap<(String, String), Session>,
    total: u64,
}

#[derive(Debug)]
struct Session {
    tools: HashMap<String, u64>,
    calls: u64,
    last: Instant,
}

/// A call that is counted; dropped without [`Ticket::keep`], it counts no more.
#[derive(Debug)]
pub(super) struct Ticket<'t> {
    tally: &'t Tally,
    of: Option<((String, String), String)>,
    pub(super) counters: Counters,
}

impl Tally {
    pub(super) fn enter(&self, caller: &Caller, tool: &str) -> Result<Ticket<'_>, Box<Reason>> {
        let key = (caller.agent.clone(), caller.session.clone());
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.sessions.len() >= MAX && !inner.sessions.contains_key(&key) {
            inner.sessions.retain(|_, session| session.last.elapsed() < QUIET);
            if inner.sessions.len() >= MAX {
                return Err(Box::new(full("sessions")));
            }
        }
        let total = inner.total;
        let session = inner.sessions.entry(key.clone()).or_insert_with(|| Session {
            tools: HashMap::new(),
            calls: 0,
            last: Instant::now(),
        });
        if session.tools.len() >= MAX_TOOLS && !session.tools.contains_key(tool) {
            return Err(Box::new(full("tools of one session")));
        }
        session.last = Instant::now();
        let of_tool = session.tools.entry(tool.to_owned()).or_default();
        let counters = Counters { tool: *of_tool, session: session.calls, total };
        *of_tool = of_tool.saturating_add(1);
        session.calls = session.calls.saturating_add(1);
        inner.total = total.saturating_add(1);
        Ok(Ticket { tally: self, of: Some((key, tool.to_owned())), counters })
    }

    /// As [`Tally::enter`] would say, counting nothing.
    pub(super) fn look(&self, caller: &Caller, tool: &str) -> Counters {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let session = inner.sessions.get(&(caller.agent.clone(), caller.session.clone()));
        let of_tool = session.and_then(|session| session.tools.get(tool)).copied().unwrap_or(0);
        Counters { tool: of_tool, session: session.map_or(0, |session| session.calls), total: inner.total }
    }

    /// What a call that is counted itself sees after it waited: all the others.
    pub(super) fn others(&self, call: &Call<'_>) -> Counters {
        let Counters { tool, session, total } = self.look(call.caller, call.tool);
        Counters { tool: tool.saturating_sub(1), session: session.saturating_sub(1), total: total.saturating_sub(1) }
    }

    pub(super) fn forget(&self, caller: &Caller) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.sessions.remove(&(caller.agent.clone(), caller.session.clone()));
    }

    fn leave(&self, key: &(String, String), tool: &str) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.total = inner.total.saturating_sub(1);
        if let Some(session) = inner.sessions.get_mut(key) {
            session.calls = session.calls.saturating_sub(1);
            if let Some(of_tool) = session.tools.get_mut(tool) {
                *of_tool = of_tool.saturating_sub(1);
                // Denied names are the caller's invention: they leave nothing behind.
                if *of_tool == 0 {
                    session.tools.remove(tool);
                }
            }
            if session.calls == 0 {
                inner.sessions.remove(key);
            }
        }
    }
}

impl Ticket<'_> {
    pub(super) fn keep(mut self) {
        self.of = None;
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if let Some((key, tool)) = self.of.take() {
            self.tally.leave(&key, &tool);
        }
    }
}

fn full(of: &str) -> Reason {
    Reason {
        id: "tools.counters/full",
        rule: "tools".to_owned(),
        at: None,
        decision: Decision::Deny,
        what: format!("too many {of} are counted at once"),
        why: "conditions may look at counters, and a call that cannot be counted is denied".to_owned(),
        instead: "end sessions that are no longer used".to_owned(),
    }
}
