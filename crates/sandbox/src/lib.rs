//! Runs a program under a policy, and keeps what surrounds a run.
//!
//! [`load`] makes a policy of documents, [`plan`] puts it to this host, [`start`] starts what was planned and gives a
//! [`Sandbox`], whose end is [`Finished`]. Below that: where we keep what outlives a run (`state`), the record that cannot be
//! edited unseen (`audit`), control files that a run must not plant (`protect`), and what a run did to its workspace, kept
//! aside until it is taken (`changes`). Why there is no run is an [`Error`]; each error says itself as a [`fault::Fault`].
//!
//! Must not: print, read the environment, change anything of the whole process, or know a command line.
#![forbid(unsafe_code)]

pub mod audit;
pub mod changes;
mod environment;
mod error;
pub mod fault;
pub mod gc;
mod identity;
mod image;
mod links;
mod load;
pub mod members;
mod mounts;
pub mod protect;
pub mod quantity;
pub mod run;
pub mod snapshot;
mod sparse;
mod start_fault;
pub mod state;
mod steps;
mod workload;

pub use backends::{Capabilities, Remembered, system_stores, unshown_program};
pub use egress::wire::Hidden;
pub use environment::Environment;
pub use error::Error;
pub use image::{Images, LeasedTree};
pub use load::{Inputs, PolicyLayer, here, load, profiles};
pub use run::{
    AllowedAccess, Asker, Event, Finished, Handle, Options, Parked, Planned, Question, Reply, RequestHead, Sandbox,
    Screen, Sink, Stdin, Stdio, UsageNow, Visitor, WritablePlaces, fits_header, hints, out_of_memory, park, plan,
    run_here, start,
};
pub use workload::{Code, Interpreter, Script, Workload};
