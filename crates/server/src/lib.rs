//! The HTTP server of live sandboxes: E2B's control and data interfaces, and our own below `/v1`.
//!
//! [`http::serve`] is the listener and says which request is whose: a request that names a sandbox (by headers or by the first
//! label of its host) goes to `envd`, all others to `e2b` and `v1`. What both do with sandboxes is in `app`, which asks
//! [`backend::Sandboxes`]. The server keeps nothing that a crash can lose: sandboxes are those of the state folder, each with
//! a supervisor of its own; to whom one belongs is in its labels, and tokens are derived from its id.
//!
//! Must not: decide what a policy means, read the environment, or do anything inside a sandbox but by asking its supervisor.
#![forbid(unsafe_code)]

mod admission;
pub mod answer;
pub mod app;
pub mod backend;
mod builder;
mod built;
mod ceiling;
mod clock;
mod docker;
mod e2b;
mod envd;
pub mod folder;
pub mod http;
mod json;
mod jupyter;
pub mod keys;
mod labels;
mod listing;
mod measured;
mod meters;
mod metrics;
mod nets;
mod page;
mod places;
mod record;
mod request;
mod rpc;
mod sessions;
mod snapshots;
mod templates;
mod tokens;
pub mod traces;
mod v1;
mod watchers;

pub use ceiling::written as written_by_itself;
pub use docker::{CAPABILITIES, signal_number};
pub use labels::owner;
