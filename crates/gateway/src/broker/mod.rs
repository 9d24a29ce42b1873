//! The one path of a call, whichever front door it came through: judged, asked about, reserved, recorded, run, bounded,
//! settled, recorded.
//!
//! Promises: nothing runs that was not judged with exactly these arguments; a call whose decision cannot be written down is
//! not made, and a result whose end cannot be written down is not given out; limits are reserved before the tool runs, and
//! stand for the worst case whatever becomes of it (time-out, cancellation, panic, death of this process) until a smaller
//! cost is reported; a late answer is dropped. After a person agreed the call is judged again: time has passed.
//!
//! Dropping the future of [`Broker::call`] cancels the call: a question about it is taken back; if it runs, its places are free
//! when its tool is known to work no more, its counts stand, and that is recorded.

mod cost;
mod events;
mod meters;
mod reasons;
mod tally;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gate::call::{Call, Caller, ToolFacts};
use gate::result::{Bounded, Bounds, Shapes, ToolFailure, ToolResult};
use gate::verdict::{Reason, Verdict};
use gate::{Gate, Listed, ToolJudgement};
use policy::tools::{Approval, Decision, ResultRule};
use serde_json::Value as Json;

use crate::approvals::{ApprovalAnswer as Said, Approvals, Ask};
use crate::given_up::{Unfinished, telling};
use crate::limits::{Ledger, LedgerFault, Reservation};
use crate::record::Record;
use events::Trail;
use meters::Counts;
pub use meters::Meters;
use tally::Tally;

/// How long a call may take where no entry has a `timeout`: longer than clients of MCP wait (a minute is usual), so that it is
/// theirs which ends a call, and short enough that a tool which never answers keeps no session for ever.
const UNTOLD: Duration = Duration::from_secs(600);
/// How long a call that was given up keeps its places, where nobody hears that its tool works no more.
const LINGER: Duration = Duration::from_secs(5);
/// The same where somebody does: longer than they wait before they end the tool, so that no place is lost for ever.
const MAX_LINGER: Duration = Duration::from_secs(900);
/// How often what was counted is brought to the disk.
const SYNC: Duration = Duration::from_secs(5);
/// Compiled rules of results that are kept.
const KEPT: usize = 1024;

/// What became of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallOutcome {
    /// The number under which it is recorded.
    pub id: String,
    /// The decision, with what limits and people said.
    pub verdict: Verdict,
    /// What the tool answered, bounded; none if it was not run.
    pub result: Option<Result<ToolResult, ToolFailure>>,
    /// Who agreed, where somebody was asked.
    pub approver: Option<String>,
    /// How long the tool took.
    pub took: Duration,
}

/// The broker.
pub struct Broker {
    gate: Gate,
    ledger: Ledger,
    approvals: Approvals,
    record: Arc<dyn Record>,
    shapes: Shapes,
    bounds: Mutex<HashMap<String, Result<Arc<Bounds>, String>>>,
    tally: Tally,
    counts: Counts,
    synced: Mutex<Instant>,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker").field("gate", &self.gate).field("ledger", &self.ledger).finish_non_exhaustive()
    }
}

/// A call that may be made: what it goes with.
struct Granted {
    args: Json,
    reservation: Reservation,
    bounds: Arc<Bounds>,
    approver: Option<String>,
}

impl Broker {
    /// Puts the parts together.
    #[must_use]
    pub fn new(gate: Gate, ledger: Ledger, approvals: Approvals, record: Arc<dyn Record>) -> Self {
        Self {
            gate,
            ledger,
            approvals,
            record,
            shapes: Shapes::default(),
            bounds: Mutex::default(),
            tally: Tally::default(),
            counts: Counts::default(),
            synced: Mutex::new(Instant::now()),
        }
    }

    /// What would be decided now. Reserves, asks and records nothing.
    #[must_use]
    pub fn check(&self, call: &Call<'_>) -> Verdict {
        let counters = self.tally.look(call.caller, call.tool);
        let judged = self.gate.judge(&Call { counters, ..call.clone() });
        let mut verdict = judged.verdict;
        if verdict.decision == Decision::Deny {
            return verdict;
        }
        if let Err(unmet) = self.ledger.look(&judged.limits) {
            reasons::deny(&mut verdict, reasons::of_unmet(&unmet, &judged.limits));
            self.gate.place(&mut verdict.reasons);
        }
        verdict
    }

    /// Makes a call, if everything agrees. `run` gets the arguments as they were judged.
    pub async fn call<F, Fut>(&self, call: Call<'_>, run: F) -> CallOutcome
    where
        F: FnOnce(Json) -> Fut,
        Fut: Future<Output = Result<ToolResult, ToolFailure>>,
    {
        let begun = Instant::now();
        let ticket = match self.tally.enter(call.caller, call.tool) {
            Ok(ticket) => ticket,
            Err(reason) => return self.refuse_unjudged(&call, *reason),
        };
        let call = Call { counters: ticket.counters, ..call };
        let mut judged = self.gate.judge(&call);
        let mut trail = Trail::new(&self.record, &self.counts, &call, begun);
        let granted = self.grant(&call, &mut judged, &mut trail).await;
        let Some(granted) = granted else {
            let (id, verdict) = (trail.id().to_owned(), judged.verdict);
            return CallOutcome { id, verdict, result: None, approver: None, took: Duration::ZERO };
        };
        ticket.keep();
        self.run(&call, judged, trail, granted, run).await
    }

    /// Whether a tool is listed, and with which schema.
    #[must_use]
    pub fn lists(&self, tool: &str, facts: &ToolFacts) -> Listed {
        self.gate.lists(tool, facts)
    }

    /// A session is over: its counters are forgotten. Limits by session stand until their windows end.
    pub fn end_session(&self, caller: &Caller) {
        self.tally.forget(caller);
    }

    /// Figures for a page of metrics.
    #[must_use]
    pub fn meters(&self) -> Meters {
        self.counts.read()
    }

    /// The compiled policy.
    #[must_use]
    pub const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Where calls are parked.
    #[must_use]
    pub const fn approvals(&self) -> &Approvals {
        &self.approvals
    }

    /// Where decisions are written down.
    #[must_use]
    pub fn record(&self) -> Arc<dyn Record> {
        Arc::clone(&self.record)
    }

    /// Where calls and spending are counted.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Writes down a call that a front door refused before there was anything to judge: a tool that is not there, one that
    /// is held back.
    pub fn refused(&self, call: &Call<'_>, reason: Reason) {
        drop(self.refuse_unjudged(call, reason));
    }

    fn refuse_unjudged(&self, call: &Call<'_>, reason: Reason) -> CallOutcome {
        let mut verdict = Verdict {
            decision: Decision::Deny,
            rule: String::new(),
            reasons: Vec::new(),
            instead: String::new(),
            args: None,
            hash: None,
        };
        reasons::deny(&mut verdict, vec![reason]);
        let mut trail = Trail::new(&self.record, &self.counts, call, Instant::now());
        // Its arguments are written down, so what the tool's entries redact is not.
        if let Ok(bounds) = self.bounds(&self.gate.judge(call).result) {
            trail.redacted_by(bounds);
        }
        trail.denied(&verdict, None);
        CallOutcome { id: trail.id().to_owned(), verdict, result: None, approver: None, took: Duration::ZERO }
    }

    /// From the first judgement to a reservation and a record; none if the call is denied, which is recorded.
    async fn grant(&self, call: &Call<'_>, judged: &mut ToolJudgement, trail: &mut Trail<'_>) -> Option<Granted> {
        let bounds = match self.bounds(&judged.result) {
            Ok(bounds) => bounds,
            Err(why) => {
                let reason = reasons::unusable_pattern(&judged.verdict.rule, &why);
                reasons::deny(&mut judged.verdict, vec![reason]);
                trail.denied(&judged.verdict, None);
                return None;
            }
        };
        trail.redacted_by(Arc::clone(&bounds));
        let mut approver = None;
        if judged.verdict.decision == Decision::Ask {
            match self.ask(call, judged, trail).await {
                Ok(by) => approver = Some(by),
                Err(denials) => {
                    reasons::deny(&mut judged.verdict, denials);
                    self.gate.place(&mut judged.verdict.reasons);
                }
            }
        }
        if judged.verdict.decision == Decision::Deny {
            trail.denied(&judged.verdict, approver.as_deref());
            return None;
        }
        let Some(args) = judged.verdict.args.clone() else {
            reasons::deny(&mut judged.verdict, vec![reasons::no_arguments()]);
            trail.denied(&judged.verdict, approver.as_deref());
            return None;
        };
        let reservation = match self.ledger.reserve(&judged.limits) {
            Ok(reservation) => reservation,
            Err(unmet) => {
                reasons::deny(&mut judged.verdict, reasons::of_unmet(&unmet, &judged.limits));
                self.gate.place(&mut judged.verdict.reasons);
                trail.denied(&judged.verdict, approver.as_deref());
                return None;
            }
        };
        if let Err(why) = trail.allowed(&judged.verdict, approver.as_deref()) {
            // It was never made, so it counts for nothing; if even that cannot be written the worst case stands.
            let undone = reservation.undo();
            reasons::deny(&mut judged.verdict, reasons::unrecorded(&why, undone.err().as_ref()));
            self.counts.denied(&judged.verdict);
            return None;
        }
        Some(Granted { args, reservation, bounds, approver })
    }

    /// Asks a person. What was agreed to is judged again, for time has passed; the arguments must be the same.
    async fn ask(
        &self,
        call: &Call<'_>,
        judged: &mut ToolJudgement,
        trail: &mut Trail<'_>,
    ) -> Result<String, Vec<Reason>> {
        let rule = judged.verdict.rule.clone();
        let Some((args, hash)) = judged.verdict.args.clone().zip(judged.verdict.hash.clone()) else {
            return Err(vec![reasons::no_arguments()]);
        };
        let why = judged.verdict.reasons.iter().filter(|reason| reason.decision == Decision::Ask);
        let ask = Ask {
            tool: call.tool.to_owned(),
            server: call.tool.split_once('.').map(|(server, _)| server.to_owned()),
            args,
            hash: hash.clone(),
            rule: rule.clone(),
            reason: why.map(|reason| reason.what.clone()).collect::<Vec<_>>().join("; "),
            agent: call.caller.agent.clone(),
            session: call.caller.session.clone(),
            approval: approval(&judged.verdict),
            by: judged.approval_by,
        };
        let begun = Instant::now();
        let approvals = self.approvals.clone();
        let parked = match tokio::task::spawn_blocking(move || approvals.ask(&ask)).await {
            Ok(Ok(parked)) => parked,
            Ok(Err(unasked)) => return Err(vec![unasked.denial(&rule)]),
            Err(error) => return Err(reasons::unrecorded(&error.to_string(), None)),
        };
        let waiting = self.counts.waits();
        if parked.known().is_none() {
            trail.asked(&judged.verdict, parked.id()).map_err(|why| reasons::unrecorded(&why, None))?;
        }
        let said = parked.wait(self.approvals.settings().patience).await;
        drop(waiting);
        trail.answered(&said).map_err(|why| reasons::unrecorded(&why, None))?;
        let by = match &said {
            Said::Approved { by, .. } => by.clone(),
            Said::Denied { .. } | Said::TimedOut { .. } | Said::Lost { .. } => {
                return Err(said.denial(&rule).into_iter().collect());
            }
        };
        let passed = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let counters = self.tally.others(call);
        let again = self.gate.judge(&Call { now: call.now.saturating_add(passed), counters, ..call.clone() });
        *judged = again;
        if judged.verdict.hash.as_deref() != Some(hash.as_str()) {
            return Err(vec![reasons::changed(&rule)]);
        }
        if judged.verdict.decision != Decision::Deny {
            reasons::agreed(&mut judged.verdict, &rule, &by);
        }
        Ok(by)
    }

    async fn run<F, Fut>(
        &self,
        call: &Call<'_>,
        judged: ToolJudgement,
        mut trail: Trail<'_>,
        granted: Granted,
        run: F,
    ) -> CallOutcome
    where
        F: FnOnce(Json) -> Fut,
        Fut: Future<Output = Result<ToolResult, ToolFailure>>,
    {
        let Granted { args, reservation, bounds, approver } = granted;
        let limit = longest(&judged);
        let running = self.counts.runs();
        let unfinished = Unfinished::default();
        let has_places = reservation.has_places();
        let reservation = Lingering { reservation: Some(reservation), unfinished: unfinished.clone() };
        let begun = Instant::now();
        let ran = if has_places {
            tokio::time::timeout(limit, telling(unfinished, run(args))).await
        } else {
            tokio::time::timeout(limit, run(args)).await
        };
        let took = begun.elapsed();
        drop(running);
        let id = trail.id().to_owned();
        let is_late = ran.is_err();
        let costs = match &ran {
            Ok(Ok(result)) => cost::reported(result, &judged),
            // Nobody said what it did cost.
            Ok(Err(_)) | Err(_) => cost::Costs::default(),
        };
        let settled = if is_late {
            drop(reservation);
            None
        } else {
            reservation.settle(&costs.actual)
        };
        let ended = match ran {
            Ok(Ok(result)) => Ok(bounds.bound(result, call.facts.output_schema.as_ref(), &self.shapes)),
            Ok(Err(failure)) => Err(bounds.failure(failure)),
            Err(_) => Err(ToolFailure {
                message: format!("the call took longer than {} s and was given up", limit.as_secs_f64()),
            }),
        };
        self.counts.spent(&judged.limits, &costs.actual);
        let written = trail.ended(&ended, took, is_late, &costs, settled.as_ref());
        self.sync();
        let result = match written {
            Ok(()) => ended.map(|bounded: Bounded| bounded.result),
            Err(why) => {
                let message = format!("the end of the call could not be recorded, so its result is withheld: {why}");
                Err(bounds.failure(ToolFailure { message }))
            }
        };
        CallOutcome { id, verdict: judged.verdict, result: Some(result), approver, took }
    }

    /// What a server may say beside the results of its tools; none if a pattern cannot be compiled.
    #[must_use]
    pub(crate) fn bounds_of_server(&self, server: &str) -> Option<Arc<Bounds>> {
        self.bounds(&self.gate.result_of_server(server)).ok()
    }

    fn bounds(&self, rule: &ResultRule) -> Result<Arc<Bounds>, String> {
        let key = format!("{rule:?}");
        let mut kept = self.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = kept.get(&key) {
            return found.clone();
        }
        if kept.len() >= KEPT {
            kept.clear();
        }
        let made = Bounds::new(rule).map(Arc::new);
        kept.insert(key, made.clone());
        made
    }

    /// Every few seconds, beside the calls: a loss of power then loses the counts of a few seconds at most.
    fn sync(&self) {
        let mut last = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() >= SYNC {
            *last = Instant::now();
            let ledger = self.ledger.clone();
            // Detached: whether it worked the next reservation finds out.
            drop(tokio::task::spawn_blocking(move || ledger.sync()));
        }
    }
}

/// What a call that runs has reserved. Dropped before its tool answered (time-out, cancellation), its places stay taken for a
/// while: whoever runs the tool is told, but may still work.
struct Lingering {
    reservation: Option<Reservation>,
    unfinished: Unfinished,
}

impl Lingering {
    fn settle(mut self, costs: &[(usize, u64)]) -> Option<LedgerFault> {
        self.reservation.take().and_then(|reservation| reservation.settle(costs).err())
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let Some(reservation) = self.reservation.take().filter(Reservation::has_places) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let unfinished = self.unfinished.clone();
        let longest = if unfinished.is_followed() { MAX_LINGER } else { LINGER };
        drop(runtime.spawn(async move {
            let _told = tokio::time::timeout(longest, unfinished.over()).await;
            drop(reservation);
        }));
    }
}

/// Which kind of agreement is wanted: the strictest of all that ask.
fn approval(verdict: &Verdict) -> Approval {
    let mut asks = verdict.reasons.iter().filter(|reason| reason.decision == Decision::Ask);
    if asks.clone().any(|reason| reason.id == "tools.approval/always") {
        Approval::Always
    } else if asks.all(|reason| reason.id == "tools.approval/first") {
        Approval::First
    } else {
        Approval::Never
    }
}

/// How long a call may take.
fn longest(judged: &ToolJudgement) -> Duration {
    judged.timeout.map_or(UNTOLD, |timeout| Duration::from_millis(timeout.0))
}
