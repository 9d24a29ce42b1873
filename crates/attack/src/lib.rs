//! Shows on the user's own machine that each promise of their policy holds.
//!
//! A row of the catalogue ([`row`], data in `resources/attacks`) names a probe ([`probe`]: what is tried, harmless where it
//! succeeds), a scene ([`scene`]: what is laid out on the host, and who judges from outside), and the clauses that promise
//! that it fails. [`judge`] runs each probe twice: unconfined first, where it must succeed, or else the row says nothing; then
//! confined ([`confined`]). Only an observation from outside makes `escaped` or `held`; whatever failed for another reason is
//! `skipped`. [`campaign`] does that for a list of rows.
//!
//! The language tier runs no program of ours: its rows are programs in Python and JavaScript ([`language`]).
//!
//! Our own sandboxes are started in this process, by the crate `sandbox`. What stands inside, and what an unconfined probe is
//! started from, are programs: [`inside`] is what our binary does when it is called as one of them.
//!
//! Must not: print, or know a command line but those of its own programs and of the callers that rows speak of ([`ours`]).
#![forbid(unsafe_code)]

pub mod bare;
pub mod bwrap;
pub mod campaign;
pub mod confined;
pub mod inside;
pub mod judge;
pub mod language;
pub mod launch;
pub mod machine;
pub mod ours;
pub mod probe;
pub mod promise;
pub mod proof;
pub mod reference;
pub mod row;
pub mod scene;
pub mod stage;
pub mod survey;
