//! What the caller's configuration of pip and npm says of registries. It is read here, and the clients are told of it inside by
//! variables: of the caller's files and other variables they see nothing.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

use sandbox::Environment;

/// Largest file of settings that is read, bytes.
const MAX_SETTINGS: u64 = 1 << 20;
/// By which name a registry at the machine's own loopback is known inside, where `localhost` is the sandbox itself.
const LOOPBACK: &str = "loopback.fumehood.internal";

/// A client of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    Pip,
    Npm,
}

impl Client {
    /// The preset of policies for programs of its language.
    pub(super) const fn preset(self) -> &'static str {
        match self {
            Self::Pip => "python",
            Self::Npm => "node",
        }
    }

    /// The preset of the network that is its usual registry.
    pub(super) const fn registry(self) -> &'static str {
        match self {
            Self::Pip => "pypi",
            Self::Npm => "npm",
        }
    }

    /// Its name, for people.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Pip => "pip",
            Self::Npm => "npm",
        }
    }

    /// The folder of a template that it fills.
    pub(super) const fn part(self) -> &'static str {
        match self {
            Self::Pip => "venv",
            Self::Npm => "node",
        }
    }

    /// The setting that names its usual registry, and that one's name.
    const fn usual(self) -> (&'static str, &'static str) {
        match self {
            Self::Pip => ("index-url", "pypi.org"),
            Self::Npm => ("registry", "registry.npmjs.org"),
        }
    }

    const fn prefix(self) -> &'static str {
        match self {
            Self::Pip => "PIP_",
            Self::Npm => "npm_config_",
        }
    }

    /// Sections of its files, the weaker first.
    const fn sections(self) -> &'static [&'static str] {
        match self {
            Self::Pip => &["global", "install"],
            Self::Npm => &[""],
        }
    }

    /// Its files, the weakest first.
    fn files(self, caller: &Environment) -> Vec<PathBuf> {
        let variable = |name: &str| caller.variable(name).map(PathBuf::from);
        let home = |name: &str| caller.home.as_ref().map(|home| home.join(name));
        let system = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let (mut files, own) = match self {
            Self::Pip => {
                let config = variable("XDG_CONFIG_HOME").map(|folder| folder.join("pip/pip.conf"));
                let own = [home(".pip/pip.conf"), config.or(home(".config/pip/pip.conf")), variable("PIP_CONFIG_FILE")];
                (system(&["/etc/xdg/pip/pip.conf", "/etc/pip.conf"]), own)
            }
            Self::Npm => {
                let own = |name: &str| {
                    variable(&format!("npm_config_{name}"))
                        .or(variable(&format!("NPM_CONFIG_{}", name.to_ascii_uppercase())))
                };
                (
                    system(&["/usr/etc/npmrc", "/etc/npmrc"]),
                    [own("globalconfig"), own("userconfig").or(home(".npmrc")), None],
                )
            }
        };
        files.extend(own.into_iter().flatten());
        files
    }

    /// Whether a setting is about registries and how they are asked. All others stay outside: they could make the client load
    /// code, build packages, or write elsewhere.
    fn takes(self, key: &str) -> bool {
        match self {
            Self::Pip => [
                "index-url",
                "extra-index-url",
                "find-links",
                "no-index",
                "trusted-host",
                "client-cert",
                "timeout",
                "default-timeout",
                "retries",
                "pre",
                "prefer-binary",
            ]
            .contains(&key),
            Self::Npm => {
                key.starts_with("//")
                    || key.ends_with(":registry")
                    || key.starts_with("fetch-")
                    || ["registry", "strict-ssl", "ca", "_auth", "offline", "maxsockets", "before", "legacy-peer-deps"]
                        .contains(&key)
            }
        }
    }

    /// Whether the addresses in a setting are those of registries.
    fn names_registries(self, key: &str) -> bool {
        match self {
            Self::Pip => ["index-url", "extra-index-url", "find-links"].contains(&key),
            Self::Npm => key == "registry" || key.ends_with(":registry"),
        }
    }

    /// A key as it is compared: the same one is written in several ways.
    fn plain(self, key: &str) -> String {
        let (own, rest) = key.strip_prefix('_').map_or(("", key), |rest| ("_", rest));
        if key.starts_with("//") {
            key.to_owned()
        } else {
            own.to_owned() + &rest.to_ascii_lowercase().replace('_', "-")
        }
    }
}

/// A registry that the caller named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Registry {
    /// Its name, or an address.
    pub(super) host: String,
    pub(super) port: u16,
    /// Where it is, as the caller's machine knows it.
    pub(super) address: Option<SocketAddr>,
}

/// What of the caller a client needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// Variables that tell it.
    pub(super) env: BTreeMap<String, String>,
    /// Registries that the caller named.
    pub(super) registries: Vec<Registry>,
    /// Its usual registry is asked.
    pub(super) usual: bool,
    /// The proxy, `http://HOST:PORT`.
    pub(super) proxy: Option<String>,
    /// Files of certificates that are trusted.
    pub(super) ca: Vec<PathBuf>,
    /// Files and folders that settings name.
    pub(super) shown: Vec<PathBuf>,
}

impl Settings {
    /// What this caller's files and variables say.
    pub(super) fn read(client: Client, caller: &Environment) -> Self {
        let texts: Vec<String> = client.files(caller).iter().filter_map(|path| text(path)).collect();
        Self::of(client, &texts, caller)
    }

    fn of(client: Client, texts: &[String], caller: &Environment) -> Self {
        let all = all(client, texts, caller);
        let word = |name: &str| caller.variable(name).and_then(OsStr::to_str).filter(|value| !value.is_empty());
        let said = |keys: &[&str], names: &[&str]| {
            let own = keys.iter().find_map(|key| all.get(*key).map(String::as_str));
            own.or_else(|| names.iter().find_map(|name| word(name))).map(str::to_owned)
        };
        let names = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "http_proxy", "HTTP_PROXY"];
        let proxy = said(&["https-proxy", "proxy"], &names).map(|proxy| {
            let proxy = proxy.trim_end_matches('/');
            if proxy.contains("://") { proxy.to_owned() } else { format!("http://{proxy}") }
        });
        let past = said(&["noproxy", "no-proxy"], &["no_proxy", "NO_PROXY"]).unwrap_or_default();
        let past = |host: &str| proxy.is_none() || is_exempt(host, &past);

        let mut settings = Self { proxy: proxy.clone(), ca: certificates(&all, &word), ..Self::default() };
        let mut taken: BTreeMap<String, String> =
            all.iter().filter(|(key, _)| client.takes(key)).map(|(key, value)| (key.clone(), value.clone())).collect();
        let is_set = |key: &str| {
            taken
                .get(key)
                .is_some_and(|value| ["1", "true", "yes", "on"].contains(&value.to_ascii_lowercase().as_str()))
        };
        let offline = is_set("no-index") || is_set("offline");
        let (key, host) = client.usual();
        let named = |value: &str| value.split_whitespace().filter_map(place).collect::<Vec<_>>();
        let is_usual = |place: &RegistryAddress| place.host == host && place.port == 443;
        settings.usual = !offline && taken.get(key).is_none_or(|value| named(value).iter().any(is_usual));
        let places = taken.iter().filter(|(key, _)| client.names_registries(key)).flat_map(|(_, value)| named(value));
        let places: Vec<RegistryAddress> = places.filter(|place| !is_usual(place)).collect();
        for place in places {
            let host = if place.is_loopback() { LOOPBACK.to_owned() } else { place.host.clone() };
            // Who asks by a proxy lets that look for the address.
            let address = if place.is_loopback() || past(&place.host) { place.address() } else { None };
            if place.is_loopback() {
                renamed(&mut taken, &place);
                let trusted = taken.entry("trusted-host".to_owned()).or_default();
                *trusted = format!("{trusted} {LOOPBACK}").trim().to_owned();
            }
            let registry = Registry { host, port: place.port, address };
            if !settings.registries.contains(&registry) {
                settings.registries.push(registry);
            }
        }
        taken.retain(|key, _| client.takes(key));
        let paths = taken.values().flat_map(|value| value.split_whitespace());
        let paths = paths.map(|word| Path::new(word.strip_prefix("file://").unwrap_or(word)));
        settings.shown = paths.filter(|path| path.is_absolute() && path.exists()).map(Path::to_owned).collect();
        settings.env = taken.into_iter().map(|(key, value)| (variable(client, &key), value)).collect();
        settings
    }
}

/// The variable that says a setting.
fn variable(client: Client, key: &str) -> String {
    let name = match client {
        Client::Pip => key.replace('-', "_").to_ascii_uppercase(),
        Client::Npm if key.starts_with("//") || key.starts_with('@') => key.to_owned(),
        Client::Npm => key.replace('-', "_"),
    };
    format!("{}{name}", client.prefix())
}

/// All settings by their plain keys; a variable wins over the files.
fn all(client: Client, texts: &[String], caller: &Environment) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for section in client.sections() {
        for (_, key, value) in texts.iter().flat_map(|text| entries(client, text)).filter(|(of, _, _)| of == section) {
            all.insert(client.plain(&key), expanded(&value, caller));
        }
    }
    for (name, value) in &caller.env {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
        let prefix = client.prefix();
        let begins = name.get(..prefix.len()).is_some_and(|begin| match client {
            Client::Pip => begin == prefix,
            Client::Npm => begin.eq_ignore_ascii_case(prefix),
        });
        if begins && let Some(key) = name.get(prefix.len()..) {
            all.insert(client.plain(key), value.trim().to_owned());
        }
    }
    all.retain(|_, value| !value.is_empty());
    all
}

/// A file, unless it is none or too large.
fn text(path: &Path) -> Option<String> {
    let facts = fs::metadata(path).ok()?;
    (facts.is_file() && facts.len() <= MAX_SETTINGS).then(|| fs::read_to_string(path).ok()).flatten()
}

/// Section, key and value of each entry.
fn entries(client: Client, text: &str) -> Vec<(String, String, String)> {
    let mut section = String::new();
    let mut found: Vec<(String, String, String)> = Vec::new();
    for line in text.lines() {
        let plain = line.trim();
        if plain.is_empty() || plain.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = plain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.trim().clone_into(&mut section);
            continue;
        }
        // In pip's files an indented line goes on with the value before it.
        if client == Client::Pip
            && line.starts_with([' ', '\t'])
            && let Some((_, _, value)) = found.last_mut()
        {
            *value = format!("{value} {plain}").trim().to_owned();
            continue;
        }
        let cut = match client {
            Client::Pip => plain.split_once(['=', ':']),
            // Keys have colons: `@scope:registry`, `//host/:_authToken`.
            Client::Npm => plain.split_once('='),
        };
        let (key, value) = cut.unwrap_or((plain, "true"));
        let value = value.trim().trim_matches(['"', '\'']).to_owned();
        found.push((section.clone(), key.trim().to_owned(), value));
    }
    found
}

/// `${NAME}` is the caller's variable, as in npm's files; one that there is none of stays as it is.
fn expanded(value: &str, caller: &Environment) -> String {
    let mut parts = value.split("${");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let named = part.split_once('}');
        match named.and_then(|(name, rest)| Some((caller.variable(name)?.to_str()?, rest))) {
            Some((value, rest)) => text.extend([value, rest]),
            None => text.extend(["${", part]),
        }
    }
    text
}

/// Files of certificates that the caller's clients trust.
fn certificates<'a>(all: &BTreeMap<String, String>, word: &dyn Fn(&str) -> Option<&'a str>) -> Vec<PathBuf> {
    let own = ["cert", "cafile"].iter().filter_map(|key| all.get(*key).map(String::as_str));
    let names = ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"];
    let files = own.chain(names.iter().filter_map(|name| word(name))).map(PathBuf::from);
    let files: std::collections::BTreeSet<_> = files.filter_map(|path| fs::canonicalize(path).ok()).collect();
    files.into_iter().filter(|path| path.is_file()).collect()
}

/// Whether `no_proxy` names a host: by itself, or by a domain above it.
fn is_exempt(host: &str, list: &str) -> bool {
    list.split([',', ' ']).map(str::trim).filter(|item| !item.is_empty()).any(|item| {
        let item = item.trim_start_matches('*').trim_start_matches('.').to_ascii_lowercase();
        item.is_empty() || host == item || host.strip_suffix(&item).is_some_and(|before| before.ends_with('.'))
    })
}

/// Where an address of a registry leads.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RegistryAddress {
    host: String,
    port: u16,
    /// `HOST[:PORT]`, as it is written.
    written: String,
}

fn place(url: &str) -> Option<RegistryAddress> {
    let (scheme, rest) = url.split_once("://")?;
    let port = [("https", 443), ("http", 80)].iter().find(|(name, _)| scheme.eq_ignore_ascii_case(name))?.1;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let written = authority.rsplit_once('@').map_or(authority, |(_login, rest)| rest);
    let (host, port) = match written.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (written, port),
    };
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    (!host.is_empty()).then(|| RegistryAddress { host, port, written: written.to_owned() })
}

impl RegistryAddress {
    fn is_loopback(&self) -> bool {
        let named = self.host == "localhost" || self.host.ends_with(".localhost");
        named || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// Where the machine's own resolver says that it is; IPv4 first, which every machine has.
    fn address(&self) -> Option<SocketAddr> {
        let found: Vec<SocketAddr> = (self.host.as_str(), self.port).to_socket_addrs().ok()?.collect();
        found.iter().find(|address| address.is_ipv4()).or(found.first()).copied()
    }
}

/// The loopback's name instead of its address, in all that names this place.
fn renamed(settings: &mut BTreeMap<String, String>, place: &RegistryAddress) {
    let bare = place.written.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    let new = bare.map_or_else(|| LOOPBACK.to_owned(), |(_, port)| format!("{LOOPBACK}:{port}"));
    let within = |text: &str| {
        let words: Vec<String> = text.split_whitespace().map(|word| renamed_word(word, &place.written, &new)).collect();
        words.join(" ")
    };
    *settings = settings.iter().map(|(key, value)| (within(key), within(value))).collect();
}

fn renamed_word(word: &str, old: &str, new: &str) -> String {
    let begin = word.find("//").map_or(0, |at| at.saturating_add(2));
    let Some((before, rest)) = word.split_at_checked(begin) else { return word.to_owned() };
    let (authority, path) = rest.split_at_checked(rest.find('/').unwrap_or(rest.len())).unwrap_or((rest, ""));
    let login = authority.strip_suffix(old).filter(|login| begin > 0 && (login.is_empty() || login.ends_with('@')));
    login.map_or_else(|| word.to_owned(), |login| format!("{before}{login}{new}{path}"))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn caller(env: &[(&str, &str)]) -> Environment {
        let env = env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
        Environment::new(Some(PathBuf::from("/")), env, 1000)
    }

    fn of(client: Client, text: &str, env: &[(&str, &str)]) -> Settings {
        Settings::of(client, &[text.to_owned()], &caller(env))
    }

    fn env(settings: &Settings) -> Vec<(&str, &str)> {
        settings.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    fn registry(host: &str, port: u16, address: Option<&str>) -> Registry {
        Registry { host: host.to_owned(), port, address: address.map(|address| address.parse().unwrap()) }
    }

    #[test]
    fn who_says_nothing_asks_the_usual_registry_and_of_other_settings_nothing_goes_in() {
        let secret =
            [("AWS_SECRET_ACCESS_KEY", "x"), ("PIP_TARGET", "/"), ("NODE_OPTIONS", "-r /x"), ("HOME", "/root")];
        for client in [Client::Pip, Client::Npm] {
            let text = "[global]\nbuild = /x\nscript-shell = /x\nnode-options = -r /x\nno-binary = :all:\n";
            assert_eq!(of(client, text, &secret), Settings { usual: true, ..Settings::default() });
        }
    }

    #[test]
    fn a_mirror_is_asked_instead_by_its_name_and_port() {
        let text = "# ours\n[install]\nindex-url = https://u:p@one.invalid:8443/simple\n\
                    [global]\nindex-url = https://two.invalid/simple\nextra-index-url =\n  http://three.invalid/a\n  https://pypi.org/simple\n";
        let settings = of(Client::Pip, text, &[("PIP_RETRIES", "7"), ("PIP_NO_INDEX", "")]);
        let places = [registry("three.invalid", 80, None), registry("one.invalid", 8443, None)];
        assert_eq!((settings.registries.as_slice(), settings.usual), (places.as_slice(), false));
        let expected = [
            ("PIP_EXTRA_INDEX_URL", "http://three.invalid/a https://pypi.org/simple"),
            ("PIP_INDEX_URL", "https://u:p@one.invalid:8443/simple"),
            ("PIP_RETRIES", "7"),
        ];
        assert_eq!(env(&settings), expected);
        let settings = of(Client::Pip, text, &[("PIP_INDEX_URL", "https://pypi.org/simple")]);
        assert!(settings.usual && settings.registries.len() == 1, "a variable wins: {settings:?}");
        let settings = of(Client::Pip, "", &[("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", "/usr/lib")]);
        assert_eq!(
            (settings.usual, settings.registries.len(), settings.shown),
            (false, 0, vec![PathBuf::from("/usr/lib")])
        );
    }

    #[test]
    fn scopes_and_tokens_of_npm_are_handed_on() {
        let text = "registry = \"https://one.invalid/npm/\"\n@team:registry=https://two.invalid\n\
                    //two.invalid/:_authToken=${TOKEN}\n;x\nignore-scripts = false\n";
        let settings = of(Client::Npm, text, &[("TOKEN", "t0ken"), ("NPM_CONFIG_FETCH_RETRIES", "5")]);
        let expected = [
            ("npm_config_//two.invalid/:_authToken", "t0ken"),
            ("npm_config_@team:registry", "https://two.invalid"),
            ("npm_config_fetch_retries", "5"),
            ("npm_config_registry", "https://one.invalid/npm/"),
        ];
        assert_eq!(env(&settings), expected);
        let places = [registry("two.invalid", 443, None), registry("one.invalid", 443, None)];
        assert_eq!((settings.registries.as_slice(), settings.usual), (places.as_slice(), false));
    }

    #[test]
    fn a_registry_at_the_loopback_has_a_name_inside() {
        let text = "registry = http://localhost:4873/\n//localhost:4873/:_authToken=x\n";
        let settings = of(Client::Npm, text, &[]);
        assert_eq!(settings.registries, [registry(LOOPBACK, 4873, Some("127.0.0.1:4873"))]);
        assert_eq!(
            env(&settings),
            [
                ("npm_config_//loopback.fumehood.internal:4873/:_authToken", "x"),
                ("npm_config_registry", "http://loopback.fumehood.internal:4873/"),
            ]
        );
        let settings = of(Client::Pip, "", &[("PIP_INDEX_URL", "http://u:p@127.0.0.1:3141/simple")]);
        assert_eq!(
            env(&settings),
            [("PIP_INDEX_URL", "http://u:p@loopback.fumehood.internal:3141/simple"), ("PIP_TRUSTED_HOST", LOOPBACK),]
        );
        for (word, expected) in [
            ("http://localhost/x", "http://NEW/x"),
            ("http://localhost.corp/x", "http://localhost.corp/x"),
            ("http://a@localhost", "http://a@NEW"),
            ("http://notlocalhost/", "http://notlocalhost/"),
            ("localhost", "localhost"),
        ] {
            assert_eq!(renamed_word(word, "localhost", "NEW"), expected);
        }
    }

    #[test]
    fn a_proxy_is_asked_for_all_that_it_is_not_spared() {
        let env = [
            ("HTTPS_PROXY", "http://u:p@proxy.invalid:3128/"),
            ("NO_PROXY", "corp.invalid, .localdomain,127.0.0.1"),
            ("PIP_EXTRA_INDEX_URL", "http://127.0.0.1:81 https://a.corp.invalid"),
        ];
        let settings = of(Client::Pip, "", &env);
        assert_eq!(settings.proxy.as_deref(), Some("http://u:p@proxy.invalid:3128"));
        assert!(!settings.env.values().any(|value| value.contains("proxy.invalid")), "{settings:?}");
        assert_eq!(settings.registries[0].address, Some("127.0.0.1:81".parse().unwrap()));
        for (host, exempt) in
            [("a.corp.invalid", true), ("corp.invalid", true), ("xcorp.invalid", false), ("pypi.org", false)]
        {
            assert_eq!(is_exempt(host, env[1].1), exempt, "{host}");
        }
        assert!(is_exempt("x", "*") && !is_exempt("x", ""));
        assert_eq!(of(Client::Npm, "proxy = proxy.invalid:1", &[]).proxy.as_deref(), Some("http://proxy.invalid:1"));
    }

    #[test]
    fn addresses_are_read_as_clients_read_them() {
        let short = |url: &str| place(url).map(|place| (place.host, place.port));
        for (url, host, port) in [
            ("https://a.b/simple", "a.b", 443),
            ("HTTP://A.B", "a.b", 80),
            ("http://u:p@a.b:81?x", "a.b", 81),
            ("http://[::1]:81/", "::1", 81),
            ("http://[fd00::1]/", "fd00::1", 80),
        ] {
            assert_eq!(short(url), Some((host.to_owned(), port)), "{url}");
        }
        for none in ["/opt/wheels", "file:///x", "https:///x", "https://a:x/", "ftp://a/"] {
            assert_eq!(short(none), None, "{none}");
        }
    }
}
