//! What the front doors ask of the broker: which tools are shown, and one call.

use std::sync::Arc;

use crate::call::{Call, Caller, ToolFacts};
use crate::gate::Listed;
use crate::mcp::peer::Boxed;
use crate::result::{ToolFailure, ToolResult};
use crate::verdict::{Reason, Verdict};

/// Runs a tool with the arguments that were judged.
pub type Run = Box<dyn FnOnce(serde_json::Value) -> Boxed<'static, Result<ToolResult, ToolFailure>> + Send>;

/// What became of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What was decided, and why.
    pub verdict: Verdict,
    /// What the tool answered, bounded; none if it was not called.
    pub result: Option<Result<ToolResult, ToolFailure>>,
}

/// The one way to a tool.
pub trait Engine: Send + Sync + 'static {
    /// Whether a tool is shown, and with which schema.
    fn lists(&self, tool: &str, facts: &ToolFacts) -> Listed;

    /// Judges a call and, if it is allowed, makes it.
    fn call<'a>(&'a self, call: Call<'a>, run: Run) -> Boxed<'a, Answer>;

    /// A call that was refused before it could be judged: it is written down as any other denial.
    fn refused(&self, call: &Call<'_>, reason: Reason) {
        let _nothing_is_written = (call, reason);
    }

    /// A session is over: nothing more comes of it.
    fn end_session(&self, caller: &Caller) {
        let _ends = caller;
    }
}

/// An engine that others share.
pub type Shared = Arc<dyn Engine>;

/// The gate alone: for policies without people, counters or a record.
#[derive(Debug)]
pub struct GateOnly(pub crate::gate::Gate);

impl Engine for GateOnly {
    fn lists(&self, tool: &str, facts: &ToolFacts) -> Listed {
        self.0.lists(tool, facts)
    }

    fn call<'a>(&'a self, call: Call<'a>, run: Run) -> Boxed<'a, Answer> {
        Box::pin(async move {
            let judged = self.0.judge(&call);
            let allowed = judged.verdict.decision == policy::tools::Decision::Allow;
            let result = match judged.verdict.args.clone().filter(|_| allowed) {
                Some(args) => Some(run(args).await),
                None => None,
            };
            Answer { verdict: judged.verdict, result }
        })
    }
}
