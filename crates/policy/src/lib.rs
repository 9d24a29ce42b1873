//! What a run may do, decided before it runs: documents, the validated policy, the plan and the report.
//!
//! Everything here is a pure value or a pure function: no I/O, no clock, no environment, no randomness.
//! The flow is `document -> policy -> (x capabilities) -> plan | refusal`, and after the run `outcome -> report`.
#![forbid(unsafe_code)]

mod check;
mod cidr;
pub mod clause;
pub mod commands;
pub mod control;
pub mod danger;
mod defaults;
pub mod demand;
pub mod diagnostic;
pub mod document;
pub mod exact;
pub mod guards;
pub mod javascript;
pub mod json;
pub mod layers;
pub mod lint;
pub mod load;
pub mod names;
mod net;
mod net_headers;
pub mod net_presets;
pub mod part;
pub mod plan;
pub mod planning;
pub mod presets;
pub mod protected;
mod read;
pub mod reference;
pub mod report;
pub mod rows;
mod scale_tmpfs;
pub mod schema;
mod short_name;
pub mod show;
pub mod span;
pub mod strict_json;
pub mod tool_rows;
pub mod tools;
pub mod units;
pub mod value;
pub mod wild;
mod words;

pub use clause::ClauseId;
pub use control::{Control, Controls, Strength};
pub use diagnostic::{Diagnostic, Diagnostics};
pub use document::Format;
pub use layers::Layers;
pub use lint::Lint;
pub use load::{Caller, Loaded, Loader, Origins};
pub use plan::{Entry, Plan, Refusal, Support, Unmet, Weakened};
pub use planning::{Answers, Candidate, Choice, choose, first_tier, not_built, plan as make_plan};
pub use report::{Outcome, OutcomeKind, Report, Usage, Violation};
pub use units::{Bytes, BytesPerSecond, MilliCpus, Millis};
pub use value::Policy;
