//! The trail of one call in the record: `tool.decided`, `tool.called`, `tool.ended`, `approval.asked`, `approval.ended`.
//!
//! A call that was called and whose trail is dropped without an end was cancelled (or its runner broke off): that is
//! written then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gate::call::Call;
use gate::result::{Bounded, Bounds, ToolFailure};
use gate::verdict::Verdict;
use serde_json::{Value as Json, json};

use super::cost::Costs;
use super::meters::Counts;
use crate::approvals::ApprovalAnswer as Said;
use crate::limits::LedgerFault;
use crate::record::{Event, Record};

/// Longer arguments are written down by their hash alone: a log is no store.
const MAX_ARGUMENTS: usize = 256 << 10;

pub(super) struct Trail<'t> {
    record: &'t Arc<dyn Record>,
    counts: &'t Counts,
    id: String,
    about: Json,
    /// What was asked for, for calls that end before there are arguments as the tool would get them.
    asked: (&'t str, &'t Json),
    begun: Instant,
    bounds: Option<Arc<Bounds>>,
    is_running: bool,
    /// The question that is open.
    asked_as: Option<String>,
}

impl<'t> Trail<'t> {
    pub(super) fn new(record: &'t Arc<dyn Record>, counts: &'t Counts, call: &'t Call<'_>, begun: Instant) -> Self {
        let id = number();
        let about = json!({
            "call": id, "tool": call.tool, "agent": call.caller.agent, "session": call.caller.session,
            "key": call.caller.key,
        });
        let asked = (call.tool, &call.args);
        Self { record, counts, id, about, asked, begun, bounds: None, is_running: false, asked_as: None }
    }

    /// Arguments are written down redacted as the tool's results are; what `audit.redact` says comes on top.
    pub(super) fn redacted_by(&mut self, bounds: Arc<Bounds>) {
        self.bounds = Some(bounds);
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    fn write(&self, kind: &'static str, more: Json) -> Result<(), String> {
        let mut body = self.about.clone();
        if let (Json::Object(body), Json::Object(more)) = (&mut body, more) {
            body.extend(more);
        }
        self.record.append(&Event { kind, body })
    }

    fn decided(&self, verdict: &Verdict, approver: Option<&str>) -> Result<(), String> {
        // Of a call that was denied early: the arguments as they came, or whoever reads the log learns nothing of it.
        let given = verdict.args.as_ref().unwrap_or(self.asked.1);
        let hash = verdict.hash.clone().unwrap_or_else(|| gate::json::hash(self.asked.0, given));
        let redacted = || self.bounds.as_ref().map_or_else(|| given.clone(), |bounds| bounds.redacted(given));
        let args = if is_longer(given, &mut { MAX_ARGUMENTS }) { Json::Null } else { redacted() };
        let reasons: Vec<Json> = verdict
            .reasons
            .iter()
            .map(|reason| {
                json!({ "id": reason.id, "rule": reason.rule, "decision": reason.decision.as_str(), "what": self.redacted(&reason.what) })
            })
            .collect();
        self.write(
            "tool.decided",
            json!({
                "decision": verdict.decision.as_str(), "rule": verdict.rule, "reasons": reasons, "args": args,
                "hash": hash, "approver": approver, "decided_us": micros(self.begun.elapsed()),
            }),
        )
    }

    /// A reason quotes the value that it is about.
    fn redacted(&self, text: &str) -> Json {
        let text = Json::String(text.to_owned());
        self.bounds.as_ref().map_or_else(|| text.clone(), |bounds| bounds.redacted(&text))
    }

    /// Denied it is whether or not that can be written.
    pub(super) fn denied(&self, verdict: &Verdict, approver: Option<&str>) {
        self.counts.denied(verdict);
        drop(self.decided(verdict, approver));
    }

    pub(super) fn allowed(&mut self, verdict: &Verdict, approver: Option<&str>) -> Result<(), String> {
        self.decided(verdict, approver)?;
        self.write("tool.called", json!({ "hash": verdict.hash }))?;
        self.counts.allowed();
        self.is_running = true;
        Ok(())
    }

    pub(super) fn asked(&mut self, verdict: &Verdict, approval: &str) -> Result<(), String> {
        self.asked_as = Some(approval.to_owned());
        self.write("approval.asked", json!({ "id": approval, "rule": verdict.rule, "hash": verdict.hash }))
    }

    pub(super) fn answered(&mut self, said: &Said) -> Result<(), String> {
        self.asked_as = None;
        let (outcome, id, by, remembered) = match said {
            Said::Approved { id, by, remembered } => ("approved", id, Some(by), remembered.as_ref()),
            Said::Denied { id, by, .. } => ("denied", id, Some(by), None),
            Said::TimedOut { id } => ("timed-out", id, None, None),
            Said::Lost { id, .. } => ("lost", id, None, None),
        };
        self.write("approval.ended", json!({ "id": id, "outcome": outcome, "by": by, "remembered": remembered }))
    }

    pub(super) fn ended(
        &mut self,
        ended: &Result<Bounded, ToolFailure>,
        took: Duration,
        is_late: bool,
        costs: &Costs,
        unsettled: Option<&LedgerFault>,
    ) -> Result<(), String> {
        self.is_running = false;
        let mut body = json!({
            "took_us": micros(took),
            "cost": costs.actual.iter().map(|(_, cost)| *cost).collect::<Vec<_>>(),
            "cost_refused": costs.refused,
            "unsettled": unsettled.map(ToString::to_string),
        });
        let (outcome, more) = match ended {
            Ok(bounded) => {
                self.counts.ended(bounded.size, is_late);
                let outcome = if bounded.result.is_error { "error" } else { "ok" };
                let more = json!({
                    "size": bounded.size, "result_hash": bounded.hash, "dropped": bounded.dropped,
                    "redacted": bounded.redacted, "escaped": bounded.escaped, "withheld": bounded.withheld,
                    "text_differs": bounded.differs,
                });
                (outcome, more)
            }
            Err(failure) => {
                self.counts.ended(failure.message.len(), is_late);
                (if is_late { "timed-out" } else { "failed" }, json!({ "message": failure.message }))
            }
        };
        if let (Json::Object(body), Json::Object(more)) = (&mut body, more) {
            body.insert("outcome".to_owned(), Json::from(outcome));
            body.extend(more);
        }
        self.write("tool.ended", body)
    }
}

impl Drop for Trail<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.asked_as.take() {
            drop(
                self.write(
                    "approval.ended",
                    json!({ "id": id, "outcome": "cancelled", "by": null, "remembered": null }),
                ),
            );
        }
        if self.is_running {
            drop(self.write("tool.ended", json!({ "outcome": "cancelled", "took_us": micros(self.begun.elapsed()) })));
        }
    }
}

/// Whether a value has more bytes than are left, counted as it stands and not as it would be written: the record writes it, once.
fn is_longer(value: &Json, left: &mut usize) -> bool {
    let own = match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => 4,
        Json::String(text) => text.len().saturating_add(2),
        Json::Array(items) => items.len().saturating_add(2),
        Json::Object(map) => map.keys().map(|key| key.len().saturating_add(4)).sum::<usize>().saturating_add(2),
    };
    *left = left.saturating_sub(own);
    let mut parts = match value {
        Json::Array(items) => items.iter().collect::<Vec<_>>(),
        Json::Object(map) => map.values().collect(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => Vec::new(),
    }
    .into_iter();
    *left == 0 || parts.any(|part| is_longer(part, left))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// `c-` and 16 random digits; without random bytes the clock tells calls apart well enough for a log.
fn number() -> String {
    let mut bytes = [0; 8];
    if getrandom::fill(&mut bytes).is_err() {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        bytes = u64::try_from(time.as_nanos() & u128::from(u64::MAX)).unwrap_or(0).to_be_bytes();
    }
    format!("c-{}", policy::json::hex(&bytes))
}
