//! The MCP front doors: a gateway before upstream servers, and our own server, over one engine.
//!
//! The protocol's core is our own, because the gateway must own what a library for one side keeps to itself: both id spaces,
//! what is dropped, how much of a frame is read, and every key that it does not understand. `rmcp` carries HTTP to upstream
//! servers and is the other side of our tests.

pub mod era;
pub mod jsonc;
pub mod names;
pub mod peer;
pub mod pins;
pub mod servers;
pub mod text;
pub mod wire;
