//! The broker of a policy: gate, counters, people and record of one state folder, whichever front door stands before it.

mod record;

use std::path::Path;
use std::sync::Arc;

use gate::Gate;
use gateway::Broker;
use gateway::approvals::{Approvals, Settings};
use gateway::limits::{Ledger, LedgerFault};
use policy::clause::ClauseId;
use policy::tools::Tools;
use policy::value::Content;
use policy::{Loaded, Origins};

use crate::ui::Failure;
use policy::json::sha256_hex;
use sandbox::audit::Log;
use sandbox::fault::{Fault, show_path};
use sandbox::state::State;

use record::{Recorder, options};

/// Opens everything that a call needs; what cannot be opened refuses all calls, and so the start.
///
/// # Errors
/// The audit log, the counters or the waiting calls cannot be used.
pub(crate) fn open(
    gate: Gate,
    loaded: &Loaded,
    tools: &Tools,
    state: &State,
    folder: &Path,
) -> Result<Arc<Broker>, Failure> {
    let policy = &loaded.policy;
    let log = Log::open(state, policy.audit.path.as_deref(), options(&policy.audit));
    let log = log.map_err(|error| Failure::own(error.fault()))?;
    let settings = Settings { bound_to: format!("{} {}", digest(tools), folder.display()), ..Settings::default() };
    let approvals = Approvals::open_with(state.path(), settings).map_err(|error| crate::approvals::unusable(&error))?;
    let limits = state.path().join("limits");
    let ledger = Ledger::open(&limits).map_err(|fault| unusable(&fault, &limits))?;
    Ok(Arc::new(Broker::new(gate, ledger, approvals, Arc::new(Recorder::new(log, kept(loaded))))))
}

/// What the log keeps of arguments. A call's arguments are what its record is about, so they are written, redacted, unless
/// somebody wrote `audit.content`: the presets' `hash` is about the code and the command of a run.
fn kept(loaded: &Loaded) -> Content {
    let is_written =
        |origins: &Origins| origins.of(ClauseId::AuditContent).split(", ").any(|origin| !origin.starts_with("preset "));
    if is_written(&loaded.origins) { loaded.policy.audit.content } else { Content::Full }
}

/// Digest of the clause `tools`, as written.
pub(crate) fn digest(tools: &Tools) -> String {
    sha256_hex(tools.written.to_string().as_bytes())
}

fn unusable(fault: &LedgerFault, limits: &Path) -> Failure {
    let [what, why, fix] = fault.parts();
    Failure::own(Fault { id: fault.id(), what, place: show_path(limits), why, fix })
}
