//! What an image may be called, what names one, and what a name means where nobody said everything of it.

use crate::config::sha256_of;

/// Longest name.
const MAX_NAME: usize = 255;
/// The registry that names without one mean, with its other name, and the folder of its own images.
const USUAL: &str = "docker.io";
const USUAL_TOO: &str = "index.docker.io";
const USUAL_FOLDER: &str = "library";
const USUAL_TAG: &str = "latest";

/// Whether an image may be called this. A name never looks like a digest.
#[must_use]
pub fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:/@+-".contains(&byte))
        && !name.starts_with("sha256:")
}

/// The digest that a reference is, if it is one and no name.
pub(crate) fn digest_of(reference: &str) -> Option<&str> {
    sha256_of(reference).map(|_| reference)
}

/// A name as a registry understands it: `python:3.11-slim` is `docker.io/library/python:3.11-slim`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// `HOST[:PORT]`.
    pub registry: String,
    /// Where the image is there.
    pub repository: String,
    /// Its tag; `latest` if there is neither tag nor digest.
    pub tag: Option<String>,
    /// `sha256:HEX`: then nothing else is meant.
    pub digest: Option<String>,
}

impl Reference {
    /// Reads a name by Docker's rules; `None` for what no registry can have.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (name, digest) = match name.split_once('@') {
            Some((name, digest)) => (name, Some(digest_of(digest)?.to_owned())),
            None => (name, None),
        };
        let (registry, rest) = match name.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
            Some(_) | None => (USUAL, name),
        };
        let (repository, tag) = match rest.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag.to_owned())),
            None => (rest, None),
        };
        let registry = if registry == USUAL_TOO { USUAL } else { registry };
        let repository = if registry == USUAL && !repository.contains('/') {
            format!("{USUAL_FOLDER}/{repository}")
        } else {
            repository.to_owned()
        };
        let tag = tag.or_else(|| digest.is_none().then(|| USUAL_TAG.to_owned()));
        let fits = is_host(registry)
            && repository.split('/').all(is_folder)
            && repository.len() <= MAX_NAME
            && tag.as_deref().is_none_or(is_tag);
        fits.then(|| Self { registry: registry.to_owned(), repository, tag, digest })
    }
}

/// With everything said.
impl std::fmt::Display for Reference {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.registry, self.repository)?;
        self.tag.iter().try_for_each(|tag| write!(out, ":{tag}"))?;
        self.digest.iter().try_for_each(|digest| write!(out, "@{digest}"))
    }
}

/// Whether two names mean the same image of the same registry.
pub(crate) fn same(one: &str, other: &str) -> bool {
    one == other || Reference::parse(one).is_some_and(|one| Reference::parse(other) == Some(one))
}

fn is_host(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (host, None),
    };
    let of_name = |part: &str| {
        !part.is_empty() && !part.starts_with('-') && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    name.split('.').all(of_name) && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// Letters and digits, with single separators between them.
fn is_folder(part: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = part.bytes().next().is_some_and(is_letter) && part.bytes().last().is_some_and(is_letter);
    ends && part.bytes().all(|byte| is_letter(byte) || b"._-".contains(&byte)) && !part.contains("..")
}

fn is_tag(tag: &str) -> bool {
    tag.len() <= 128
        && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        && !tag.starts_with(['.', '-'])
        && !tag.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_docker_writes_them() {
        let hex = "0".repeat(64);
        let pinned = format!("python@sha256:{hex}");
        let whole = format!("docker.io/library/python@sha256:{hex}");
        for (name, means) in [
            ("python", "docker.io/library/python:latest"),
            ("python:3.11-slim", "docker.io/library/python:3.11-slim"),
            ("index.docker.io/library/python:3.11-slim", "docker.io/library/python:3.11-slim"),
            ("me/app:1", "docker.io/me/app:1"),
            ("ghcr.io/me/app", "ghcr.io/me/app:latest"),
            ("localhost/app", "localhost/app:latest"),
            ("127.0.0.1:5000/a/b/c:2.x_y", "127.0.0.1:5000/a/b/c:2.x_y"),
            (&pinned, &whole),
        ] {
            assert_eq!(Reference::parse(name).unwrap().to_string(), means, "{name}");
            assert!(same(name, means), "{name}");
        }
        let wrong = [
            "",
            "Python",
            "a//b",
            "/a",
            "a/",
            "a:",
            ":a",
            "a@",
            "a@sha256:12",
            "../a",
            "a/../b",
            "a b",
            "host.io:x/a",
            "host.io:99999/a",
            "-a",
            "a:-b",
            "a?b",
            "a#b",
            "http://host.io/a",
            "me@host.io/a",
            "a.io/..",
            "a%2fb",
        ];
        for name in wrong {
            assert_eq!(Reference::parse(name), None, "{name}");
        }
        assert!(!same("a:1", "a:2") && !same("ghcr.io/a", "a") && same("No Name", "No Name"));
    }
}
