//! `fumehood image pull`: an image of a registry, brought, verified and imported.

use std::path::PathBuf;

use registry::{PullError, PullOptions, pull};

use super::args::{Flag, Positionals, To};
use super::image::{made, references, store};
use super::image_make::{NAME, max_size};
use super::spec::{Call, Spec};
use crate::environment::Environment;
use crate::ui::Failure;

/// How a registry is asked for an image.
pub(super) const REGISTRY: &[Flag] = &[
    Flag::new("mirror", Some("HOST[:PORT][/PATH]"), To::Ours, "Ask this registry instead"),
    Flag::new("plain-http", None, To::Ours, "Speak without TLS, to a registry of this machine alone"),
    Flag::new("max-size", Some("SIZE"), To::Ours, "The most that it may have packed, and unpack to (20G)"),
];

pub(super) const PULL: Spec = Spec {
    path: &["image", "pull"],
    about: "Bring an image from a registry into the store",
    usage: "REF [-t NAME] [--mirror HOST] [--plain-http] [--max-size SIZE]",
    more: "REF as Docker writes it: `python:3.11-slim`, `ghcr.io/owner/name:tag`, `name@sha256:HEX`.\n\
           Credentials are those of `docker login` (`auths` in config.json); helpers are refused by name.\n\
           What has come when it breaks off is gone on with by the next pull, or removed by `fumehood gc`.\n\
           Exit code 0; 126 if the image or the way to it is refused, 125 if it cannot be had or kept.",
    tables: &[
        &[
            NAME,
            Flag::new("platform", Some("OS/ARCH"), To::Ours, "Only that of this machine can be kept, e.g. linux/amd64"),
        ],
        REGISTRY,
    ],
    words: Positionals::Mixed(1),
    hidden: false,
    run,
};

fn failure(error: &PullError) -> Failure {
    Failure::judged(error.is_refusal(), error.fault())
}

/// Docker's file, where `docker login` writes it.
pub(super) fn credentials(environment: &Environment) -> Option<PathBuf> {
    environment.docker_folder().map(|folder| folder.join("config.json"))
}

/// What a call asks of a registry by the flags of [`REGISTRY`].
pub(super) fn wanted(call: &Call<'_>, reference: String) -> Result<PullOptions, Failure> {
    let mirror = call.parsed.value("mirror").map(|value| value.to_string_lossy().into_owned());
    let (plain_http, credentials) = (call.parsed.has("plain-http"), credentials(call.environment));
    Ok(PullOptions { reference, mirror, plain_http, credentials, limit: max_size(call)?, ..PullOptions::default() })
}

fn run(call: &mut Call<'_>) -> Result<u8, Failure> {
    let reference = references(call)?.swap_remove(0);
    let text = |flag: &str| call.parsed.value(flag).map(|value| value.to_string_lossy().into_owned());
    let wanted = PullOptions { name: text("tag"), platform: text("platform"), ..wanted(call, reference)? };
    let image = pull(&store(call)?, &wanted).map_err(|error| failure(&error))?;
    made(call, &[image])
}
