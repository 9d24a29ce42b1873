//! What a call of `run`, `shell` or `plan` asks for, as a value: what the command line hands over.

use std::path::PathBuf;
use std::sync::Arc;

use policy::Plan;
use sandbox::run::Tools;
use sandbox::state::RunId;
use sandbox::{PolicyLayer, Workload};

use crate::environment::Environment;
use crate::learn::Learner;
use crate::ui::{Failure, When};

/// From a plan and the layers of its policy to who makes calls of tools.
pub(crate) type ToolsOf = fn(&Plan, &[PolicyLayer], &Environment) -> Result<Option<Arc<dyn Tools>>, Failure>;

/// A call of `run`, `shell` or `plan`.
#[derive(Debug)]
pub struct Request {
    /// Documents and flags that make the policy, weakest first.
    pub layers: Vec<PolicyLayer>,
    /// What to run.
    pub what: Workload,
    /// `-i`: stdin may be the caller's terminal.
    pub interactive: bool,
    /// `-q`: none of our words beside errors and weakenings.
    pub quiet: bool,
    /// `-v`: also who enforced what.
    pub verbose: bool,
    /// `--json`: stdout is one report.
    pub json: bool,
    /// `--report FILE`.
    pub report: Option<PathBuf>,
    /// `--on RUN`: go on from its changes.
    pub on: Option<RunId>,
    /// `--color`.
    pub color: When,
    /// Who makes calls of tools, where the plan lets a program call any.
    pub tools: ToolsOf,
    /// `fumehood learn`: who hears what is reached, and answers.
    pub learner: Option<Arc<Learner>>,
}
