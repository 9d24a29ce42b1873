//! `fumehood attack`: shows on the user's own machine that each promise of their policy holds.
//!
//! A row of the catalogue ([`row`], data in `resources/attacks`) names a probe ([`probe`]: what is tried, harmless where it
//! succeeds), a scene ([`scene`]: what is laid out on the host, and who judges from outside), and the clauses that promise
//! that it fails. [`judge`] runs each probe twice: unconfined first, where it must succeed, or else the row says nothing; then
//! confined ([`confined`]). Only an observation from outside makes `escaped` or `held`; whatever failed for another reason is
//! `skipped`.

pub mod bare;
pub mod bwrap;
pub mod command;
pub mod confined;
pub mod judge;
pub mod launch;
pub mod ours;
pub mod probe;
pub mod promise;
pub mod proof;
pub mod reference;
pub mod row;
pub mod scene;
pub mod stage;
pub mod survey;
