//! A runtime of the Open Containers Initiative: an engine gives a bundle, and its container is a run of ours.
//!
//! [`document`] turns the bundle's document into a policy, or refuses a field by its name; [`store`] remembers containers in the
//! folder that the engine names; [`supervisor`] is the process of one container, which the engine takes for the container's own;
//! [`client`] speaks to it.
//!
//! # Promises
//! Each field of a document is held, changes nothing here, or refuses the container: none is passed over. What runs has the
//! evidence of every run of the container tier before the engine hears that it was created.
//! # Does not promise
//! That a program finds what another runtime would show it: no privilege, nothing of `/sys`, no path that can be written but in
//! memory.

pub(crate) mod client;
mod document;
mod fields;
mod filter;
mod limits;
mod linux;
mod mounts;
pub(crate) mod store;
pub(crate) mod supervisor;

#[cfg(test)]
mod tests;
