//! The same store and rules for `fumehood serve`.

use gateway::approvals::{AnswerError, Holder, ParkedCall, Remember, Wide};
use sandbox::Environment;
use serde_json::Value as Json;
use server::answer::Problem;
use server::backend::{ApprovalAnswer, Approvals, Decision};

use super::{ReviewAnswer, ReviewContext, unusable};
use crate::ui::Failure;

/// The approvals of a state folder, over HTTP.
#[derive(Debug)]
pub(in crate::cli) struct Served(pub(in crate::cli) Environment);

/// A failure of ours, in the server's words.
fn problem(failure: Failure) -> Problem {
    let faults = failure.into_faults();
    match faults.first() {
        Some(fault) => Problem::of(500, fault.id, fault.what.clone(), &fault.why, &fault.fix),
        None => Problem::of(500, "approvals/unusable", "the store cannot be used", "", "see the server"),
    }
}

impl Approvals for Served {
    fn list(&self, all: bool) -> Result<Vec<Json>, Problem> {
        let review = ReviewContext::open(&self.0, String::new()).map_err(problem)?;
        let calls = review.approvals.list(all).map_err(|error| problem(unusable(&error)))?;
        Ok(calls.iter().map(ParkedCall::to_json).collect())
    }

    fn answer(&self, id: &str, said: &ApprovalAnswer) -> Result<Json, Problem> {
        let review = ReviewContext::open(&self.0, said.by.clone()).map_err(problem)?;
        let found = review.approvals.get(id).map_err(|error| problem(unusable(&error)))?;
        let unknown = || {
            let why = "nothing of this id is kept";
            Problem::of(404, "serve/no-such-call", "no call of this id waits", why, "`GET /v1/approvals?all=true`")
        };
        let call = found.ok_or_else(unknown)?;
        let said = match &said.decision {
            Decision::Deny(why) => ReviewAnswer::No(why.clone()),
            Decision::Approve(None) => ReviewAnswer::Yes(None),
            Decision::Approve(Some(what)) => {
                let (args, holder) = match what.what.as_str() {
                    "tool" => (Wide::Any, Holder::Agent),
                    "session" => (Wide::Any, Holder::Session),
                    _args => (Wide::But(what.any.clone()), Holder::Agent),
                };
                ReviewAnswer::Yes(Some(Remember { args, holder, millis: what.millis }))
            }
        };
        match review.say(&call, &said).map_err(problem)? {
            Ok(done) => Ok(done.to_json()),
            Err(AnswerError::Store(error)) => Err(problem(unusable(&error))),
            Err(lost @ AnswerError::Remember { .. }) => {
                let instead = "remember what the call has, for at most 30 days";
                Err(Problem::of(400, "approvals/remember", "this cannot be remembered", &lost.to_string(), instead))
            }
            Err(lost @ (AnswerError::Over { .. } | AnswerError::Unknown { .. })) => {
                let why = lost.to_string();
                Err(Problem::of(409, "serve/too-late", "the answer does not count", &why, "look at it again"))
            }
        }
    }
}
