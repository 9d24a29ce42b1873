//! What can go wrong on the way from a registry.

use std::path::PathBuf;

use images::ImageError;
use sandbox::fault::{Fault, show_path, show_text};

/// A failure of a pull.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullError {
    /// The store, or the image itself.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Nothing that a registry could have.
    #[error("`{}` names no image of a registry", show_text(reference))]
    Reference {
        /// What was asked for.
        reference: String,
        /// Why not.
        why: String,
    },
    /// What Docker keeps of credentials cannot be used.
    #[error("the credentials for `{}` cannot be used", show_text(registry))]
    Credentials {
        /// For which registry.
        registry: String,
        /// Where they are.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// Without TLS, to somewhere else than this machine.
    #[error("`{}` is not spoken to without TLS", show_text(host))]
    Plain {
        /// Who.
        host: String,
    },
    /// The registry did not give it.
    #[error("the registry `{}` did not give the image", show_text(host))]
    Registry {
        /// Which.
        host: String,
        /// What it said, or why it was not asked.
        why: String,
        /// Whether another try could help.
        passing: bool,
    },
}

impl PullError {
    /// Whether the image itself is what is refused (exit code 126), and not something around it.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        match self {
            Self::Image(error) => error.is_refusal(),
            Self::Credentials { .. } | Self::Plain { .. } => true,
            Self::Reference { .. } | Self::Registry { .. } => false,
        }
    }

    /// What, where, why and fix.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let say = |id, place: String, why: &str, fix: &str| Fault::of(self, id, place, why, fix);
        match self {
            Self::Image(error) => error.fault(),
            Self::Reference { reference, why } => say(
                "image/reference",
                show_text(reference),
                why,
                "write it as `python:3.11-slim`, `ghcr.io/owner/name:tag` or `name@sha256:HEX`",
            ),
            Self::Credentials { path, why, .. } => say(
                "image/credentials",
                show_path(path),
                why,
                "`docker login` without a helper keeps them as `auths`; or copy the image with a tool that has them, and import it",
            ),
            Self::Plain { host } => say(
                "image/plain-http",
                show_text(host),
                "without TLS anybody on the way reads the credentials; only a registry of this machine is spoken to so, with `--plain-http`",
                "give the registry a certificate, or leave `--plain-http` out",
            ),
            Self::Registry { host, why, .. } => say(
                "image/registry",
                show_text(host),
                why,
                "look at the name, the credentials (`docker login`) and the network; what has come so far is kept for the next try",
            ),
        }
    }
}
