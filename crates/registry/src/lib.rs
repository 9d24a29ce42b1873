//! Images from registries: the Distribution API, as far as it takes to read.
//!
//! What comes is put into the store's room for downloads and imported from there, so that it is judged as every image is.
//!
//! # Promises
//! Nothing is kept whose digest is not the one that its manifest says, and no manifest whose digest is not the one that was
//! asked for. No more bytes are taken than the manifest says, and than may be unpacked. Credentials go to the registry that
//! they are for and to where it gives tokens, over TLS, and to no host that it redirects to. Without TLS only this machine
//! itself is spoken to, and only where somebody said so.
//! # Does not promise
//! That a tag means today what it meant yesterday: a digest does.
#![forbid(unsafe_code)]

mod auth;
mod blob;
mod client;
mod credentials;
mod descriptor;
mod error;
mod pull;

pub use error::PullError;
pub use pull::{PullOptions, digest, pull};
