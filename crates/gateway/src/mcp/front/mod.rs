//! Front doors: where clients come in.

pub mod http;
mod request;
pub mod stdio;
mod streams;
