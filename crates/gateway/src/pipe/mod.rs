//! The gate over a pipe: lines of JSON between a program and the `fumehood tools serve --stdio` that it started.
//!
//! The program that holds the other end embeds the agent; it is trusted with names of sessions, and it may run tools
//! itself: the gate then sends the arguments as they were judged (`run`), waits for what the tool answered (`ran`), and
//! gives back what of it may be seen (`called`). Everything else is as over HTTP, by the same [`Engine`](crate::engine::Engine).
//!
//! | to the gate | from the gate |
//! | --- | --- |
//! | `{"id", "op": "tools"}` | `{"id", "tools": [...]}` |
//! | `{"id", "op": "register", "tool", "schema", "effect"}` | `{"id", "registered": true}` |
//! | `{"id", "op": "check", "tool", "args", "session"}` | `{"id", "verdict": {...}}` |
//! | `{"id", "op": "call", "tool", "args", "session", "here": true}` | `{"id", "run": {"args"}}` if allowed, then after |
//! | `{"id", "op": "ran", "value" or "failure"}` | `{"id", "called": {verdict, "value" or "failure"}}` |
//! | `{"id", "op": "cancel"}` | nothing: the call is gone |
//! | `{"id", "op": "answer", "approval", "approve", "by", "why"}` | `{"id", "call": {...}}`, where answers are taken here |
//! | | `{"asked": {...}}` for each parked call, where answers are taken here |
//!
//! `text` in place of `args` is JSON as a model wrote it, read by the gate's strict reader. Anything wrong with a line: `{"id", "problem": {"id", "what", "why", "fix"}}`.

mod server;
#[cfg(test)]
mod tests;

pub use server::{Pipe, serve};
