//! What `docker login` keeps: `auths` of Docker's `config.json`. Helpers are programs that hold credentials elsewhere; they are
//! not run, and refused by name where the registry would need them.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::error::PullError;

/// No such file is larger.
const MAX_CONFIG: u64 = 1 << 20;
/// Under which names the credentials of a registry are kept, where it is not its own.
const KEPT_AS: [(&str, &[&str]); 1] = [("docker.io", &["https://index.docker.io/v1/", "index.docker.io", "docker.io"])];

/// Name and password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) password: String,
}

/// A password is in no message.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "credentials of {}", self.user)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    #[serde(default)]
    auths: BTreeMap<String, AuthEntry>,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
struct AuthEntry {
    auth: Option<String>,
    identitytoken: Option<String>,
}

/// What is kept for a registry; `None` if there is nothing, also no file.
pub(crate) fn of(registry: &str, config: Option<&Path>) -> Result<Option<Credentials>, PullError> {
    let Some(path) = config else { return Ok(None) };
    let wrong = |why: String| PullError::Credentials { registry: registry.to_owned(), path: path.to_owned(), why };
    let mut text = String::new();
    match std::fs::File::open(path) {
        Ok(file) => file.take(MAX_CONFIG).read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(error.to_string())),
    };
    // What it says is a secret, and so no error shows a part of it.
    let config: Config = serde_json::from_str(&text).map_err(|error| {
        wrong(format!("it cannot be read as JSON of Docker's, at line {} column {}", error.line(), error.column()))
    })?;
    read(registry, &config).map_err(wrong)
}

fn read(registry: &str, config: &Config) -> Result<Option<Credentials>, String> {
    let own = [registry];
    let names = KEPT_AS.iter().find(|(known, _)| *known == registry).map_or(&own[..], |(_, names)| names);
    let is_it = |key: &str| names.iter().any(|name| key == *name || host_of(key) == *name);
    if let Some((_, helper)) = config.cred_helpers.iter().find(|(key, _)| is_it(key)) {
        return Err(format!("the helper `docker-credential-{helper}` has them, and helpers are not run"));
    }
    let Some((_, kept)) = config.auths.iter().find(|(key, _)| is_it(key)) else { return Ok(None) };
    if kept.identitytoken.as_ref().is_some_and(|token| !token.is_empty()) {
        return Err("they are an identity token, and those are not exchanged here".to_owned());
    }
    let Some(auth) = kept.auth.as_ref().filter(|auth| !auth.is_empty()) else {
        return match &config.creds_store {
            Some(helper) => Err(format!("the helper `docker-credential-{helper}` has them, and helpers are not run")),
            None => Ok(None),
        };
    };
    let bytes = STANDARD.decode(auth).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let text = bytes.ok_or("its `auth` is no base64 of a name and a password")?;
    let (user, password) = text.split_once(':').ok_or("its `auth` is no base64 of a name and a password")?;
    // Docker fills the end with zeros.
    let password = password.trim_end_matches('\0');
    Ok(Some(Credentials { user: user.to_owned(), password: password.to_owned() }))
}

/// Docker once kept the whole URL.
fn host_of(key: &str) -> &str {
    let rest = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    rest.split('/').next().unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_text(registry: &str, text: &str) -> Result<Option<Credentials>, String> {
        read(registry, &serde_json::from_str(text).unwrap())
    }

    #[test]
    fn what_docker_keeps_is_found_for_its_registry_alone() {
        let auth = STANDARD.encode("me:pass:word");
        let text = format!(
            r#"{{"auths":{{"https://index.docker.io/v1/":{{"auth":"{auth}"}},"ghcr.io":{{"auth":"{auth}"}},"https://old.io/v2/":{{"auth":"{auth}"}}}}}}"#
        );
        let me = Credentials { user: "me".to_owned(), password: "pass:word".to_owned() };
        for registry in ["docker.io", "ghcr.io", "old.io"] {
            assert_eq!(of_text(registry, &text), Ok(Some(me.clone())), "{registry}");
        }
        for registry in ["evil.io", "ghcr.io:444", "hcr.io", "index.docker.io.evil"] {
            assert_eq!(of_text(registry, &text), Ok(None), "{registry}");
        }
        assert_eq!(format!("{me:?}"), "credentials of me");
    }

    #[test]
    fn helpers_are_refused_by_name_where_they_would_be_needed() {
        let text = r#"{"auths":{"ghcr.io":{}},"credsStore":"desktop","credHelpers":{"quay.io":"secretservice"}}"#;
        for (registry, helper) in
            [("ghcr.io", "docker-credential-desktop"), ("quay.io", "docker-credential-secretservice")]
        {
            assert!(of_text(registry, text).unwrap_err().contains(helper));
        }
        assert_eq!(of_text("other.io", text), Ok(None), "nobody logged in there");
        assert!(of_text("a.io", r#"{"auths":{"a.io":{"identitytoken":"x"}}}"#).is_err());
        assert!(of_text("a.io", r#"{"auths":{"a.io":{"auth":"!"}}}"#).is_err());
    }
}
