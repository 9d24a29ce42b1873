//! Live sandboxes: created once, worked in for as long as they live.
//!
//! A live sandbox is one supervisor process that holds one run, whose program is the agent. It is found by its id in the state
//! folder and answers on a unix socket there. There is no daemon: whoever creates one leaves its supervisor running, and
//! everybody else (command line, server, SDK) is a [`client`].
#![forbid(unsafe_code)]

mod begin;
pub mod client;
pub mod create;
mod engine;
mod error;
mod files;
pub mod headroom;
pub mod kernel;
pub mod moment;
mod place;
pub mod pool;
pub mod record;
mod restore;
pub mod supervise;
pub mod supervisor;
pub mod template;
mod wire;
pub mod words;

pub use begin::{Begin, READY_TIMEOUT, quoted};
pub use error::LiveError;
pub use record::{Claim, Home};
pub use restore::RestoreSettings;
