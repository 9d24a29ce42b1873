//! What one execution gives to whoever asked for it: bounded, in order, and as fast as it is taken.

use std::collections::VecDeque;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::lines::{self, Error, Meaning};

/// The way to whoever asked.
#[derive(Debug)]
pub(super) struct Out {
    sink: mpsc::Sender<Vec<u8>>,
    pending: VecDeque<Vec<u8>>,
    /// Bytes of output that may still come.
    left: u64,
    limit: u64,
    truncated: u64,
    errored: bool,
    last: Instant,
}

impl Out {
    pub(super) fn new(sink: mpsc::Sender<Vec<u8>>, limit: u64) -> Self {
        let pending = VecDeque::new();
        Self { sink, pending, left: limit, limit, truncated: 0, errored: false, last: Instant::now() }
    }

    /// Lines wait to be taken; until then nothing more is asked of the kernel.
    pub(super) fn is_full(&self) -> bool {
        !self.pending.is_empty()
    }

    /// When something was said last.
    pub(super) const fn last(&self) -> Instant {
        self.last
    }

    pub(super) const fn truncated(&self) -> u64 {
        self.truncated
    }

    /// What tells whether anybody listens.
    pub(super) fn sink(&self) -> mpsc::Sender<Vec<u8>> {
        self.sink.clone()
    }

    /// Gives one line on, if one waits. Nothing is lost when this is dropped while it waits.
    pub(super) async fn flow(&mut self) {
        match self.sink.reserve().await {
            Ok(permit) => {
                if let Some(line) = self.pending.pop_front() {
                    permit.send(line);
                }
            }
            // Nobody listens.
            Err(_) => self.pending.clear(),
        }
    }

    pub(super) fn line(&mut self, line: Vec<u8>) {
        self.last = Instant::now();
        if !self.sink.is_closed() {
            self.pending.push_back(line);
        }
    }

    /// An error; an execution has one.
    pub(super) fn error(&mut self, error: &Error) {
        if !std::mem::replace(&mut self.errored, true) {
            self.line(lines::error(error));
        }
    }

    /// What a message of the kernel means for it; true at its end.
    pub(super) fn take(&mut self, meaning: Meaning) -> bool {
        match meaning {
            Meaning::Taken(count) => self.line(lines::number(count)),
            Meaning::Output(line) => self.output(line),
            Meaning::Error(error) => self.error(&error),
            Meaning::Idle => return true,
            Meaning::Nothing => {}
        }
        false
    }

    fn output(&mut self, line: Vec<u8>) {
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        match self.left.checked_sub(length) {
            Some(left) => {
                self.left = left;
                self.line(line);
            }
            None => {
                if self.truncated == 0 {
                    let said = format!(
                        "the output of one execution ends here, after {} bytes; the rest is left out",
                        self.limit
                    );
                    self.line(lines::note(&said));
                }
                // Nothing smaller slips through behind it: what is seen is the beginning.
                self.left = 0;
                self.truncated = self.truncated.saturating_add(length);
            }
        }
    }

    /// Gives on what waits and says that it is over, without anybody waiting for it.
    pub(super) fn finish(mut self, then: impl FnOnce() + Send + 'static) {
        self.line(lines::end());
        tokio::spawn(async move {
            while self.is_full() {
                self.flow().await;
            }
            then();
        });
    }
}
