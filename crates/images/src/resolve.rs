//! What an image may be called, what names one, and what a name means where nobody said everything of it.

use crate::config::sha256_of;

/// Longest name.
const MAX_NAME: usize = 255;
/// The registry that names without one mean, with its other name, and the folder of its own images.
const USUAL: &str = "docker.io";
const USUAL_TOO: &str = "index.docker.io";
const USUAL_FOLDER: &str = "library";
const USUAL_TAG: &str = "latest";

/// Whether an image may be called this. A name never looks like a digest, and has none in it: only who has compared it may say
/// so.
#[must_use]
pub fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:/+-".contains(&byte))
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
        let mut read = Self::split(name)?;
        if read.digest.is_none() && read.tag.is_none() {
            read.tag = Some(USUAL_TAG.to_owned());
        }
        read.fits().then_some(read)
    }

    /// The parts of a name, with nothing put in for a tag that is missing.
    fn split(name: &str) -> Option<Self> {
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
        Some(Self { registry: registry.to_owned(), repository, tag, digest })
    }

    /// Whether a registry can have such a thing.
    fn fits(&self) -> bool {
        is_host(&self.registry)
            && self.repository.split('/').all(is_folder)
            && self.repository.len() <= MAX_NAME
            && self.tag.as_deref().is_none_or(is_tag)
    }
}

/// Which images somebody means: a name as [`Reference`] reads it, in whose repository and tag `*` stands for any characters but `/`.
/// With neither tag nor digest it means all of the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(Reference);

impl NamePattern {
    /// Reads a pattern; `None` for what can mean no image.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let pattern = Reference::split(text)?;
        // With a letter in the place of each star it is as a name must be.
        let plain = |text: &str| text.replace('*', "x");
        let sample = Reference {
            repository: plain(&pattern.repository),
            tag: pattern.tag.as_deref().map(plain),
            ..pattern.clone()
        };
        sample.fits().then_some(Self(pattern))
    }

    /// Whether it means the image of this name. A tag of a name that has a digest says nothing of what the digest is.
    #[must_use]
    pub fn means(&self, name: &str) -> bool {
        let (pattern, Some(named)) = (&self.0, Reference::parse(name)) else { return false };
        let (of, is): (Vec<&str>, Vec<&str>) =
            (pattern.repository.split('/').collect(), named.repository.split('/').collect());
        let is_there = pattern.registry == named.registry
            && of.len() == is.len()
            && of.iter().zip(&is).all(|(of, is)| is_like(of, is));
        let is_one = match (&pattern.digest, &pattern.tag) {
            (Some(digest), _) => named.digest.as_ref() == Some(digest),
            (None, Some(tag)) => named.digest.is_none() && named.tag.is_some_and(|named| is_like(tag, &named)),
            (None, None) => true,
        };
        is_there && is_one
    }
}

/// Whether a text is what a pattern means whose stars stand for any characters.
fn is_like(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        // What is found first leaves the most behind it.
        let Some((_, after)) = text.split_once(part) else { return false };
        text = after;
    }
    text.ends_with(last)
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

    #[test]
    fn a_pattern_means_images_of_its_registry_and_repository_alone() {
        let hex = "0".repeat(64);
        let (pinned, both) = (format!("python@sha256:{hex}"), format!("python:3.12@sha256:{hex}"));
        for (pattern, meant, others) in [
            (
                "python:3.*",
                vec!["python:3.12", "docker.io/library/python:3.9-slim"],
                vec!["python:2", "python", "me/python:3.1", "ghcr.io/library/python:3.1", &pinned, &both],
            ),
            (
                "python",
                vec!["python", "python:2", &pinned, &both],
                vec!["python3", "a/python", "ghcr.io/library/python"],
            ),
            (
                "ghcr.io/me/*",
                vec!["ghcr.io/me/app:1", "ghcr.io/me/x"],
                vec!["ghcr.io/me/a/b", "ghcr.io/you/x", "me/app"],
            ),
            ("*", vec!["debian", "python:3"], vec!["me/app", "quay.io/library/debian"]),
            ("me/*-app*:*-slim", vec!["me/an-app:1-slim", "me/x-app2:1-slim"], vec!["me/app:1-slim", "me/an-app:1"]),
            (&pinned, vec![&pinned, &both], vec!["python", "python:3.12", "debian"]),
        ] {
            let read = NamePattern::parse(pattern).unwrap();
            assert!(meant.iter().all(|name| read.means(name)), "{pattern}: {meant:?}");
            assert!(!others.iter().any(|name| read.means(name)), "{pattern}: {others:?}");
        }
        for bad in ["", "a b", "*.io/x/", "*:*/x", "a@sha256:*", "../*", "host.io:*/a", "Python"] {
            assert_eq!(NamePattern::parse(bad), None, "{bad}");
        }
        assert!(is_like("a*b*c", "a-b-b-c") && !is_like("a*b*c", "a-c-b") && !is_like("ab*b", "ab"));
    }
}
