//! How programs that nobody trusts reach the registries of packages: the same ones as the caller's own clients, with nothing of
//! his that lets somebody in.

use std::collections::{BTreeMap, BTreeSet};

use policy::json::toml_text;
use sandbox::{Environment, PolicyLayer};

use super::build::rule;
use super::settings::{Client, Registry, Settings};

/// The way to registries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registries {
    /// Clauses of `net` that take the place of all others.
    pub layers: Vec<PolicyLayer>,
    /// Variables that tell the clients where to ask.
    pub env: BTreeMap<String, String>,
    /// Clients whose registries are not reached, since the caller's settings for them hold a login.
    pub left_out: Vec<&'static str>,
}

/// Those that the caller's pip and npm ask. A setting that is a file of his, or that has a login in it, is left out; a client whose
/// registry wants a login is left out whole.
#[must_use]
pub fn registries(caller: &Environment) -> Registries {
    let settings = [Client::Pip, Client::Npm].map(|client| (client, Settings::read(client, caller)));
    of(settings)
}

fn of(settings: [(Client, Settings); 2]) -> Registries {
    let mut found = Registries::default();
    let (mut presets, mut rules, mut ca) = (BTreeSet::new(), Vec::<Registry>::new(), BTreeSet::new());
    let mut proxies = BTreeSet::new();
    for (client, settings) in settings {
        let wants_login = settings.env.iter().any(|(name, value)| is_secret(name) || has_login(value))
            || settings.proxy.as_deref().is_some_and(has_login);
        if wants_login {
            found.left_out.push(client.name());
            continue;
        }
        let plain = settings.env.into_iter().filter(|(_, value)| !value.split_whitespace().any(is_path));
        found.env.extend(plain);
        if settings.usual {
            presets.insert(client.registry());
        }
        for registry in settings.registries {
            if !rules.contains(&registry) {
                rules.push(registry);
            }
        }
        ca.extend(settings.ca.iter().map(|path| toml_text(&path.display().to_string())));
        proxies.extend(settings.proxy);
    }
    if presets.is_empty() && rules.is_empty() {
        return Registries { env: BTreeMap::new(), ..found };
    }
    let presets: Vec<String> = presets.into_iter().map(toml_text).collect();
    let rules: Vec<String> = rules.iter().map(rule).collect();
    let ca: Vec<String> = ca.into_iter().collect();
    let clauses = [
        "net.mode=allow".to_owned(),
        format!("net.presets=[{}]", presets.join(", ")),
        format!("net.allow=[{}]", rules.join(", ")),
        format!("net.ca=[{}]", ca.join(", ")),
    ];
    // Where the clients have two, what one of them asks does not come out; it says so itself.
    let proxy = proxies.into_iter().next().map(|proxy| format!("net.proxy={}", toml_text(&proxy)));
    found.layers = clauses.into_iter().chain(proxy).map(PolicyLayer::Set).collect();
    found
}

/// A setting that lets somebody in, whatever its value.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("_auth") || name.contains("//") || name.ends_with("client_cert")
}

/// An address with a user or a password in it.
fn has_login(value: &str) -> bool {
    value.split_whitespace().any(|word| {
        let authority = word.split_once("://").map(|(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
        authority.is_some_and(|authority| authority.contains('@'))
    })
}

fn is_path(word: &str) -> bool {
    word.starts_with(['/', '.', '~']) || word.starts_with("file:")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(pairs: &[(&str, &str)]) -> Environment {
        let env = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Environment { env, cwd: Some("/".into()), ..Environment::default() }
    }

    #[test]
    fn registries_are_those_of_the_callers_clients_without_his_logins_and_files() {
        let quiet = [("PIP_CONFIG_FILE", "/nowhere"), ("npm_config_userconfig", "/nowhere")];
        let plain = registries(&caller(&[
            quiet[0],
            quiet[1],
            ("PIP_FIND_LINKS", "/srv/wheels"),
            ("PIP_EXTRA_INDEX_URL", "https://wheels.test/simple"),
        ]));
        assert_eq!(plain.left_out, Vec::<&str>::new());
        assert_eq!(plain.env.get("PIP_EXTRA_INDEX_URL").map(String::as_str), Some("https://wheels.test/simple"));
        assert!(!plain.env.contains_key("PIP_FIND_LINKS"), "{plain:?}");
        let said = format!("{:?}", plain.layers);
        assert!(said.contains("pypi") && said.contains("npm") && said.contains("wheels.test"), "{said}");

        let secret = registries(&caller(&[
            quiet[0],
            quiet[1],
            ("PIP_INDEX_URL", "https://me:hunter2@index.test/simple"),
            ("npm_config__auth", "aHVudGVyMg=="),
        ]));
        assert_eq!(secret.left_out, ["pip", "npm"]);
        assert!(secret.layers.is_empty() && secret.env.is_empty(), "{secret:?}");
        assert!(!format!("{secret:?}").contains("hunter2"));
    }
}
