//! Jupyter's messages, both ways: those who speak with a kernel as they would with one of their own.
//!
//! What a kernel publishes goes to all of them; an answer goes to whom it is for, told by the session of the request.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use agent::words::{Code, Failure};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::lines::Message;
use super::words::Spoken;

/// Most that speak with one kernel at once.
pub const MAX_CHANNELS: usize = 16;
/// Messages that wait to be taken, for each; then the kernel waits.
const WAITING: usize = 16;
/// Sessions of one connection that are known at once.
const SESSIONS: usize = 8;

/// A line with its newline.
pub(super) type Line = Arc<Vec<u8>>;

/// Somebody who speaks with a kernel.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) number: u64,
    to: mpsc::Sender<Line>,
    sessions: VecDeque<String>,
    waiting: VecDeque<Line>,
    since: Instant,
    /// Who takes nothing for so long is given up, and the kernel waits no longer.
    patience: Duration,
}

impl Listener {
    pub(super) fn new(number: u64, patience: Duration) -> (Self, mpsc::Receiver<Line>) {
        let (to, from) = mpsc::channel(WAITING);
        let (sessions, waiting) = (VecDeque::new(), VecDeque::new());
        (Self { number, to, sessions, waiting, since: Instant::now(), patience }, from)
    }

    fn give(&mut self, line: &Line) {
        if let Err(mpsc::error::TrySendError::Full(line)) = self.to.try_send(Arc::clone(line)) {
            self.since = Instant::now();
            self.waiting.push_back(line);
        }
    }
}

/// What does not come from executions.
#[derive(Debug)]
pub(super) enum ChannelCommand {
    Join(Listener),
    Say { number: u64, session: String, line: Vec<u8> },
}

/// All who speak with one kernel.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    list: Vec<Listener>,
}

impl Listeners {
    pub(super) fn join(&mut self, listener: Listener) {
        self.list.push(listener);
    }

    /// How many there are.
    pub(super) fn count(&mut self) -> usize {
        self.list.retain(|one| !one.to.is_closed());
        self.list.len()
    }

    /// Answers to this session are for him.
    pub(super) fn speaks(&mut self, number: u64, session: String) {
        let Some(one) = self.list.iter_mut().find(|one| one.number == number) else { return };
        if !one.sessions.contains(&session) {
            one.sessions.push_back(session);
        }
        if one.sessions.len() > SESSIONS {
            one.sessions.pop_front();
        }
    }

    /// Gives on what the kernel said.
    pub(super) fn hear(&mut self, message: &mut Message) {
        if self.list.is_empty() {
            return;
        }
        let mut line = std::mem::take(&mut message.line);
        line.push(b'\n');
        let line = Arc::new(line);
        let all = message.channel == "iopub";
        for one in &mut self.list {
            if all || one.sessions.contains(&message.parent_header.session) {
                one.give(&line);
            }
        }
    }

    /// Tells all what the kernel itself cannot tell any more.
    pub(super) fn status(&mut self, id: &str, state: &str) {
        let date = jiff::Timestamp::now().to_string();
        let header = json!({
            "msg_id": id, "msg_type": "status", "username": "fumehood", "session": "", "version": "5.3", "date": date,
        });
        let message = json!({
            "channel": "iopub", "header": header, "parent_header": {}, "metadata": {}, "content": {"execution_state": state},
        });
        let line = Arc::new(format!("{}\n", json!({"message": message})).into_bytes());
        self.list.iter_mut().for_each(|one| one.give(&line));
    }

    /// Somebody has not taken what came; until then nothing more is asked of the kernel.
    pub(super) fn is_full(&self) -> bool {
        self.list.iter().any(|one| !one.waiting.is_empty())
    }

    /// Gives one message on, or gives somebody up. Nothing is lost when this is dropped while it waits.
    pub(super) async fn flow(&mut self) {
        let Some(at) = self.list.iter().position(|one| !one.waiting.is_empty()) else { return };
        let Some(one) = self.list.get_mut(at) else { return };
        let until = one.since.checked_add(one.patience).unwrap_or(one.since);
        let taken = match timeout_at(until, one.to.reserve()).await {
            Ok(Ok(permit)) => {
                if let Some(line) = one.waiting.pop_front() {
                    permit.send(line);
                }
                true
            }
            Ok(Err(_)) | Err(_) => false,
        };
        if taken {
            one.since = Instant::now();
        } else {
            self.list.remove(at);
        }
    }
}

/// A conversation with a kernel. Dropped, it is over; the context lives on.
#[derive(Debug)]
pub struct Channels {
    pub(super) number: u64,
    pub(super) talk: mpsc::Sender<ChannelCommand>,
    pub(super) from: mpsc::Receiver<Line>,
}

impl Channels {
    /// What the kernel says next, a line; none when the context is removed, or this conversation was given up.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        self.from.recv().await.map(|line| line.to_vec())
    }

    /// Says something: a line that is a [`Spoken`].
    ///
    /// # Errors
    /// `invalid` where it is none; `not_found` when the context was removed.
    pub async fn say(&self, line: &[u8]) -> Result<(), Failure> {
        let (session, line) = read(line)?;
        let removed = |_gone| Failure::new(Code::NotFound, "the context was removed".to_owned());
        self.talk.send(ChannelCommand::Say { number: self.number, session, line }).await.map_err(removed)
    }
}

#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    session: String,
    /// Without them a kernel could not answer.
    #[serde(rename = "msg_id")]
    _msg_id: String,
    #[serde(rename = "msg_type")]
    _msg_type: String,
}

/// The session of a message, and the line for a driver.
fn read(line: &[u8]) -> Result<(String, Vec<u8>), Failure> {
    let invalid = |error: serde_json::Error| {
        Failure::new(Code::Invalid, format!("what was said to a kernel is no message of Jupyter's: {error}"))
    };
    let spoken: Spoken = serde_json::from_slice(line).map_err(invalid)?;
    let head: Head = serde_json::from_str(spoken.header.get()).map_err(invalid)?;
    // Written anew: one line, and nothing beside what a message has.
    let mut bytes =
        serde_json::to_vec(&Sent { op: "send", channel: spoken.channel, message: &spoken }).map_err(invalid)?;
    bytes.retain(|byte| *byte != b'\n' && *byte != b'\r');
    bytes.push(b'\n');
    Ok((head.session, bytes))
}

#[derive(serde::Serialize)]
struct Sent<'a> {
    op: &'static str,
    channel: super::words::Channel,
    message: &'a Spoken,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_message_is_one_line_for_a_driver_and_what_is_none_is_refused() {
        let good = "{\"channel\":\"shell\",\"header\":{\"msg_id\":\"1\",\n\"msg_type\":\"x\",\"session\":\"s\"},\"content\":{\"code\":\"a\\nb\"}}";
        let (session, line) = read(good.as_bytes()).unwrap();
        assert_eq!((session.as_str(), line.iter().filter(|byte| **byte == b'\n').count()), ("s", 1));
        let sent: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(sent["message"]["content"]["code"], "a\nb");
        assert_eq!(
            (&sent["op"], &sent["channel"], &sent["message"]["metadata"]),
            (&json!("send"), &json!("shell"), &json!({}))
        );
        for bad in [
            "",
            "[]",
            "{}",
            "{\"channel\":\"iopub\",\"header\":{\"msg_id\":\"1\",\"msg_type\":\"x\"},\"content\":{}}",
            "{\"channel\":\"shell\",\"header\":{\"msg_type\":\"x\"},\"content\":{}}",
            "{\"channel\":\"shell\",\"header\":7,\"content\":{}}",
            "{\"op\":\"interrupt\"}",
        ] {
            assert_eq!(read(bad.as_bytes()).unwrap_err().code, Code::Invalid, "{bad}");
        }
    }
}
