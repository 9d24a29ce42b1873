//! Other rules for the network: they wait for their turn in a place of their own, so that who only looks at files is in nobody's
//! way, nor who asks for other hosts on and on.

use std::collections::VecDeque;

use agent::words::{Code, Failure};
use serde_json::Value;

use super::asks::value;
use super::carrier::Run;
use super::client::{ClientId, StreamKind, failure};
use super::hub::{Hub, Note};

/// Most whole tables that wait.
const MAX_TABLES: usize = 16;
/// Most that wait for other hosts alone.
const MAX_HOSTS: usize = 8;

/// What is asked for.
#[derive(Debug)]
pub(super) enum RulesRequest {
    /// A whole `[net]` table, and the secrets that are named beside it.
    All { net: Value, secrets: Option<Value> },
    /// Whom a table allows.
    Hosts { net: Value },
}

impl RulesRequest {
    fn of(self, run: &dyn Run) -> Result<Value, Failure> {
        match self {
            Self::All { net, secrets } => value(run.network(&net, secrets.as_ref())),
            Self::Hosts { net } => value(run.hosts(&net)),
        }
    }
}

/// Who waits for other rules.
#[derive(Debug, Default)]
pub(super) struct RulesQueue {
    /// One is being replaced.
    works: bool,
    /// Whole tables: they can close the network, and come first.
    tables: VecDeque<(ClientId, u32, RulesRequest)>,
    hosts: VecDeque<(ClientId, u32, RulesRequest)>,
}

impl RulesQueue {
    /// Whether anything is being replaced, or waits for it.
    pub(super) fn is_busy(&self) -> bool {
        self.works || !self.tables.is_empty() || !self.hosts.is_empty()
    }
}

impl Hub {
    /// Takes a request into the queue; it is told when it was its turn.
    pub(super) fn queue_rules(&mut self, (id, stream): (ClientId, u32), request: RulesRequest) -> Result<(), Failure> {
        let (queue, most) = match &request {
            RulesRequest::All { .. } => (&mut self.rules.tables, MAX_TABLES),
            RulesRequest::Hosts { .. } => (&mut self.rules.hosts, MAX_HOSTS),
        };
        if queue.len() >= most {
            return Err(failure(Code::TooMany, "others ask for other rules of this network already: ask again"));
        }
        queue.push_back((id, stream, request));
        self.client(id, |client| drop(client.streams.insert(stream, StreamKind::Files)));
        self.next_rules();
        Ok(())
    }

    /// Begins with the next one of them whose client still waits.
    fn next_rules(&mut self) {
        while !self.rules.works {
            let next = self.rules.tables.pop_front().or_else(|| self.rules.hosts.pop_front());
            let Some((id, stream, request)) = next else { return };
            let waits = |client: &super::client::Client| matches!(client.streams.get(&stream), Some(StreamKind::Files));
            if !self.clients.get(&id).is_some_and(waits) {
                continue;
            }
            self.rules.works = true;
            let (run, notes) = (std::sync::Arc::clone(&self.run), self.notes.clone());
            tokio::spawn(async move {
                let done = tokio::task::spawn_blocking(move || request.of(&*run)).await;
                let lost = |_| Err(failure(Code::Failed, "the thread that replaced the rules is gone"));
                let done = done.unwrap_or_else(lost);
                // Nobody to hear it: the sandbox is over.
                if notes.send(Note::Rules(id, stream, done)).await.is_err() {}
            });
        }
    }

    /// What came of it, to who asked; and the next one.
    pub(super) fn set_rules(&mut self, id: ClientId, stream: u32, done: Result<Value, Failure>) {
        self.rules.works = false;
        self.tell(id, stream, done);
        self.next_rules();
    }
}
