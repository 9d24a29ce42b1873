//! The waiting side of a parked call.

use std::time::Duration;

use policy::tools::ApprovalBy;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::store::ParkResult;
use super::{AnswerError, ApprovalAnswer, ApprovalError, Approvals, ParkedCall, State, StoreError};

/// A call that was asked about. Dropped while it waits, the call is taken back.
#[derive(Debug)]
pub struct Parked {
    approvals: Approvals,
    call: Option<ParkedCall>,
    answer: Option<ApprovalAnswer>,
    waits: bool,
    by: ApprovalBy,
}

impl Parked {
    pub(super) fn new(approvals: Approvals, found: ParkResult, by: ApprovalBy) -> Self {
        let ParkResult { call, answer, is_new: _ } = found;
        let waits = answer.is_none();
        Self { approvals, call, answer, waits, by }
    }

    /// The parked call; none where a remembered approval covers it.
    #[must_use]
    pub fn call(&self) -> Option<&ParkedCall> {
        self.call.as_ref()
    }

    /// Its id, empty where there is none.
    #[must_use]
    pub fn id(&self) -> &str {
        self.call.as_ref().map_or("", |call| &call.id)
    }

    /// The answer, where nobody had to be waited for.
    #[must_use]
    pub fn known(&self) -> Option<&ApprovalAnswer> {
        self.answer.as_ref()
    }

    /// Lets the call wait without anybody waiting here: the same call, made again in the same session, finds the answer.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be written; the call then waits until it times out.
    pub fn leave(mut self) -> Result<(), StoreError> {
        self.waits = false;
        let Some(call) = &self.call else { return Ok(()) };
        self.approvals.inner.store.leave(&call.id)
    }

    /// Waits for the answer, at most so long and at most until the call expires. An approval is used up by this.
    pub async fn wait(mut self, most: Duration) -> ApprovalAnswer {
        if let Some(answer) = self.answer.take() {
            return answer;
        }
        let Some(call) = self.call.clone() else { return lost(String::new(), ApprovalError::Cancelled) };
        let answer = self.until(&call, most).await;
        self.waits = false;
        answer
    }

    async fn until(&self, call: &ParkedCall, most: Duration) -> ApprovalAnswer {
        let inner = &self.approvals.inner;
        let now = self.approvals.now();
        let left = Duration::from_millis(call.expires.saturating_sub(now)).min(most);
        let expires = now.saturating_add(u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        // From here on: whatever changes in the store after this line is heard.
        let mut changes = inner.changed.subscribe();
        if let Err(error) = self
            .blocking({
                let id = call.id.clone();
                move |approvals| approvals.inner.store.hurry(&id, expires)
            })
            .await
        {
            return lost(call.id.clone(), error.into());
        }
        let mut asking = JoinSet::new();
        for asker in self.approvals.askers_of(&call.session, self.by) {
            let (approvals, call) = (self.approvals.clone(), call.clone());
            asking.spawn(async move { asker.asked(&call, &approvals).await });
        }
        let deadline = Instant::now() + left;
        loop {
            let id = call.id.clone();
            match self.blocking(move |approvals| approvals.look(&id)).await {
                Ok(Some(answer)) => return answer,
                Ok(None) => {}
                Err(error) => return lost(call.id.clone(), error.into()),
            }
            if Instant::now() >= deadline {
                let id = call.id.clone();
                return self
                    .blocking(move |approvals| Ok(approvals.time_out(&id)))
                    .await
                    .unwrap_or_else(|error: StoreError| lost(call.id.clone(), error.into()));
            }
            let again = Instant::now() + inner.changed.look_again;
            tokio::select! {
                heard = changes.changed() => if heard.is_err() { tokio::time::sleep_until(again.min(deadline)).await },
                () = tokio::time::sleep_until(again.min(deadline)) => {}
            }
        }
    }

    /// The store writes to a disk, which no executor should wait for.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Approvals) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let approvals = self.approvals.clone();
        match tokio::task::spawn_blocking(move || work(&approvals)).await {
            Ok(done) => done,
            Err(error) => Err(StoreError::File { path: FILE.into(), why: error.to_string() }),
        }
    }
}

const FILE: &str = "approvals.db";

impl Approvals {
    /// The answer of a call, if there is one; an approval is used up.
    fn look(&self, id: &str) -> Result<Option<ApprovalAnswer>, StoreError> {
        match self.inner.store.peek(id)? {
            Some(call) => self.answer_of(call),
            None => Ok(Some(lost(id.to_owned(), ApprovalError::Cancelled))),
        }
    }

    fn answer_of(&self, call: ParkedCall) -> Result<Option<ApprovalAnswer>, StoreError> {
        let ParkedCall { id, state, by, why, .. } = call;
        Ok(match state {
            State::Waiting => None,
            State::Approved if self.inner.store.consume(&id, self.now())? => {
                Some(ApprovalAnswer::Approved { id, by: by.unwrap_or_default(), remembered: None })
            }
            State::Approved => Some(lost(id, ApprovalError::Used)),
            State::Denied => {
                Some(ApprovalAnswer::Denied { id, by: by.unwrap_or_default(), why: why.unwrap_or_default() })
            }
            State::TimedOut => Some(ApprovalAnswer::TimedOut { id }),
            State::Cancelled => Some(lost(id, ApprovalError::Cancelled)),
        })
    }

    /// waiting -> timed out, or whatever was first.
    fn time_out(&self, id: &str) -> ApprovalAnswer {
        match self.inner.store.finish(id, State::TimedOut, "", "", self.now()) {
            Ok(_) => {
                self.inner.changed.notify();
                ApprovalAnswer::TimedOut { id: id.to_owned() }
            }
            Err(AnswerError::Over { .. }) => match self.look(id) {
                Ok(Some(answer)) => answer,
                // Not waiting a moment ago and waiting now: nothing of ours does that.
                Ok(None) => lost(id.to_owned(), ApprovalError::Cancelled),
                Err(error) => lost(id.to_owned(), error.into()),
            },
            Err(AnswerError::Unknown { .. } | AnswerError::Remember { .. }) => {
                lost(id.to_owned(), ApprovalError::Cancelled)
            }
            Err(AnswerError::Store(error)) => lost(id.to_owned(), error.into()),
        }
    }
}

fn lost(id: String, why: ApprovalError) -> ApprovalAnswer {
    ApprovalAnswer::Lost { id, why }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let Some(call) = self.call.as_ref().filter(|_| self.waits) else { return };
        // Also where somebody agreed this very moment: nothing was run, and nothing must look as if it had been.
        if self.approvals.inner.store.withdraw(&call.id, self.approvals.now()).is_ok() {
            self.approvals.inner.changed.notify();
        }
    }
}
