//! How a registry asks who one is: a challenge, answered with name and password or with a token from where it says.

use serde::Deserialize;

/// No token is longer.
pub(crate) const MAX_TOKEN: usize = 64 << 10;

/// What a registry wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

/// What gives tokens answers.
#[derive(Deserialize)]
pub(crate) struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Token {
    pub(crate) fn text(self) -> Option<String> {
        self.token.or(self.access_token)
    }
}

/// Reads a header `WWW-Authenticate`; `None` for schemes that are not known.
pub(crate) fn challenge(header: &str) -> Option<Challenge> {
    let (scheme, mut rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (mut realm, mut service, mut scope) = (None, None, None);
    while let Some((key, after)) = rest.split_once('=') {
        let (value, left) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.find(',').map_or((after, ""), |at| after.split_at(at)),
        };
        let slot = match key.trim().trim_start_matches(',').trim() {
            "realm" => &mut realm,
            "service" => &mut service,
            "scope" => &mut scope,
            _ => &mut None,
        };
        *slot = Some(value.to_owned());
        rest = left;
    }
    realm.map(|realm| Challenge::Bearer { realm, service, scope })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_as_registries_write_them() {
        let hub = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/python:pull""#;
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
            scope: scope.map(str::to_owned),
        };
        assert_eq!(
            challenge(hub),
            Some(bearer(
                "https://auth.docker.io/token",
                Some("registry.docker.io"),
                Some("repository:library/python:pull")
            ))
        );
        assert_eq!(
            challenge(r#"bearer service=a, realm="https://b/t", error="invalid_token""#),
            Some(bearer("https://b/t", Some("a"), None))
        );
        assert_eq!(challenge(r#"Basic realm="x""#), Some(Challenge::Basic));
        for wrong in ["", "Negotiate", "Bearer", r#"Bearer service="x""#, r#"Bearer realm="x"#] {
            assert_eq!(challenge(wrong), None, "{wrong}");
        }
    }
}
