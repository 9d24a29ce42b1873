//! The gate over HTTP: tools are checked and called, and people answer.
//!
//! `GET /v1/tools`, `POST /v1/tools/NAME:check`, `POST /v1/tools/NAME:call`, `POST /v1/sessions`, and `/v1/approvals...`.
//! It listens on the loopback or on a Unix socket only. A page in a browser is kept out by Host and Origin, other users
//! of the machine by the token, and agents from the answers by a second token: whoever may call may not agree.
//!
//! Must not: decide. Everything goes to an [`Engine`](crate::engine::Engine); here requests are read and answers written.

mod admission;
mod answer;
mod approvals;
mod connections;
mod extract;
mod keys;
mod listener;
mod server;
#[cfg(test)]
mod tests;
mod tools;
pub mod webhook;

pub(crate) use admission::{bearer, is_from_no_page_but, names_us};
pub use answer::{called_json, result_json};
pub use connections::ActiveRequest;
pub(crate) use connections::Owner;
pub(crate) use keys::Who;
pub use keys::{KeyError, Keys};
pub use listener::{Connection, HttpListener, Listen, Peer, bind};
pub use server::serve;
