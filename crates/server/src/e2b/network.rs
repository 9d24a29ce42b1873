//! E2B's rules of the network, as far as ours say exactly the same: hosts that are allowed where everything else is denied.
//!
//! There `allowOut` wins over `denyOut`, hosts are those of ports 80 and 443 (by Host and by TLS's server name), and `*.` stands for
//! any number of labels. What would mean more than that is refused by name. Headers that `rules` adds: [`headers`].

use std::collections::BTreeSet;

use policy::value::{Net, NetMode, NetRule, Protocol, Target, TlsUse};
use sandbox::PolicyLayer;
use serde_json::{Map, Value as Json, json};

use super::headers::{self, Header};
use super::hosts::{cannot, covers, pattern};
use crate::answer::Problem;
use crate::json;

/// What denies everything, so that `allowOut` is all that is left.
const EVERYTHING: &str = "0.0.0.0/0";
/// Most hosts of one request.
const MAX_HOSTS: usize = 256;
const HTTP: u16 = 80;
const HTTPS: u16 = 443;

/// What a request says of where programs may connect to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outside {
    /// It says something; otherwise what held before holds.
    is_said: bool,
    /// Patterns of our own rules.
    hosts: Vec<String>,
    /// What is put into requests to some of them.
    pub(super) headers: Vec<Header>,
}

impl Outside {
    /// Whether nothing is to be reached.
    pub(super) const fn is_closed(&self) -> bool {
        self.hosts.is_empty()
    }

    /// The same as clauses of a policy: they take the place of all rules below. `taken`: names of secrets that stand below them.
    pub(super) fn layers(&self, taken: &BTreeSet<String>) -> Vec<PolicyLayer> {
        if !self.is_said {
            return Vec::new();
        }
        let mode = if self.is_closed() { "none" } else { "allow" };
        // Without TLS nobody would put the header on: such a host is not reached so.
        let with_header = |host: &String| self.headers.iter().any(|header| header.host == *host);
        let rule = |host: &String| {
            if with_header(host) { format!("{{host=\"{host}\",ports=[{HTTPS}]}}") } else { format!("\"{host}\"") }
        };
        let hosts = self.hosts.iter().map(rule).collect::<Vec<_>>().join(",");
        let clauses = [format!("mode=\"{mode}\""), "presets=[]".to_owned(), format!("allow=[{hosts}]")];
        let net = clauses.into_iter().map(|clause| PolicyLayer::Set(format!("net.{clause}")));
        net.chain(headers::layer(&self.headers, taken)).collect()
    }
}

/// Reads `network` of a new sandbox, beside its `allow_internet_access`.
///
/// # Errors
/// The rule that cannot be held.
pub(super) fn of_new(network: &Map<String, Json>, internet: Option<bool>) -> Result<Outside, Problem> {
    const HELD: &[&str] = &["allowOut", "denyOut", "rules", "allowPublicTraffic"];
    let cut = internet == Some(false);
    outside(network, HELD, cut).map_err(|problem| problem.below("network"))
}

/// Reads the rules that take the place of all others; what is not said is nothing.
///
/// # Errors
/// The rule that cannot be held.
pub(super) fn of_change(asked: &Map<String, Json>) -> Result<Outside, Problem> {
    const HELD: &[&str] = &["allowOut", "denyOut", "rules", "allow_internet_access"];
    let internet = json::flag(asked, "allow_internet_access")?;
    if internet == Some(true) {
        return Err(cannot("allow_internet_access", "no sandbox of this server reaches the whole internet"));
    }
    let outside = outside(asked, HELD, internet == Some(false))?;
    Ok(Outside { is_said: true, ..outside })
}

fn outside(network: &Map<String, Json>, held: &[&str], cut: bool) -> Result<Outside, Problem> {
    if let Some(rule) = network.keys().find(|rule| !held.contains(&rule.as_str()) && json::says(network, rule)) {
        return Err(cannot(rule, "no mechanism of this server holds it"));
    }
    let (allowed, denied) = (json::list(network, "allowOut")?, json::list(network, "denyOut")?);
    if allowed.len() > MAX_HOSTS {
        return Err(Problem::invalid("allowOut", &format!("more than {MAX_HOSTS} hosts")));
    }
    if !allowed.is_empty() && !cut && !denied.iter().any(|range| range == EVERYTHING) {
        let why = "without `denyOut: [\"0.0.0.0/0\"]` everything else would be allowed too, and no sandbox of this server reaches \
                   the whole internet";
        return Err(cannot("allowOut", why));
    }
    let hosts = allowed.iter().map(|host| pattern("allowOut", host)).collect::<Result<Vec<_>, _>>()?;
    let headers = headers::of(network)?;
    let host = |header: &Header| hosts.iter().filter(|host| covers(host, &header.host)).collect::<Vec<_>>();
    if let Some(alone) = headers.iter().find(|header| host(header) != [&header.host]) {
        let why = "it has to stand in `allowOut` once, by the same name and below no `*.`: there it is allowed over TLS alone, without \
                   which nobody would put the header on";
        return Err(cannot("rules", &format!("the host `{}`: {why}", alone.host)));
    }
    Ok(Outside { is_said: cut || !allowed.is_empty() || !denied.is_empty(), hosts, headers })
}

/// Whether something may be reached at all.
pub(super) fn is_open(net: &Net) -> bool {
    net.mode == NetMode::Allow && net.rules().next().is_some()
}

/// Rules as E2B writes them; those that it has no words for are left to [`summary`].
pub(super) fn shown(net: &Net) -> Map<String, Json> {
    let allowed: Vec<String> = if is_open(net) { net.rules().filter_map(host_of).collect() } else { Vec::new() };
    Map::from_iter([("allowOut".to_owned(), json!(allowed)), ("denyOut".to_owned(), json!([EVERYTHING]))])
}

/// The same in our words, and how many of the rules E2B has no words for.
pub(super) fn summary(net: &Net) -> Json {
    let others = if is_open(net) { net.rules().filter(|rule| host_of(rule).is_none()).count() } else { 0 };
    json!({ "mode": net.mode.as_str(), "otherRules": others })
}

/// The host of a rule that says no less and no more than E2B's; headers that are added go over TLS alone.
fn host_of(rule: &NetRule) -> Option<String> {
    // The last two say something beside methods and paths alone.
    let NetRule { to, ports, protocol, methods, paths, address, tls, asks, encoded_slashes: _, websocket: _ } = rule;
    let is_plain = *protocol == Protocol::Tcp && methods.is_empty() && paths.is_empty() && *tls == TlsUse::Auto;
    let is_same = is_plain && address.is_none() && !asks && (*ports == [HTTP, HTTPS] || *ports == [HTTPS]);
    match to {
        Target::Host(name) if is_same => match name.strip_prefix("**.") {
            Some(end) => Some(format!("*.{end}")),
            // One label more, and no further: not what a star means there.
            None => (!name.starts_with("*.")).then(|| name.clone()),
        },
        Target::Host(_) | Target::Cidr(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "what is asked is written where it is judged")]
    fn new(network: Json, internet: Option<bool>) -> Result<Outside, Problem> {
        of_new(network.as_object().unwrap(), internet)
    }

    #[test]
    fn hosts_are_allowed_where_everything_else_is_denied() {
        let asked = json!({ "allowOut": ["api.example.org", "*.example.net"], "denyOut": ["0.0.0.0/0"] });
        let found = new(asked, None).unwrap();
        assert_eq!(found.hosts, ["api.example.org", "**.example.net"]);
        let layers = found.layers(&BTreeSet::new());
        assert!(layers.contains(&PolicyLayer::Set("net.mode=\"allow\"".to_owned())), "{layers:?}");
        assert_eq!(new(json!({ "allowOut": ["a.test"] }), Some(false)).unwrap().hosts, ["a.test"]);
        for nothing in [json!({ "denyOut": ["0.0.0.0/0"] }), json!({ "denyOut": ["10.0.0.0/8"] })] {
            let layers = new(nothing, None).unwrap().layers(&BTreeSet::new());
            assert!(layers.contains(&PolicyLayer::Set("net.mode=\"none\"".to_owned())), "{layers:?}");
        }
        assert_eq!(new(json!({}), Some(true)).unwrap().layers(&BTreeSet::new()), [], "what the template says holds");
    }

    fn with_header() -> Json {
        json!({ "transform": { "headers": { "Authorization": "Bearer long-enough" } } })
    }

    #[test]
    fn a_host_with_a_header_is_reached_over_tls_alone_and_its_value_is_in_no_layer() {
        let rules = json!({ "a.test": [with_header()], "b.test": [{}] });
        let found =
            new(json!({ "rules": rules, "allowOut": ["a.test", "b.test"], "denyOut": ["0.0.0.0/0"] }), None).unwrap();
        let layers = found.layers(&BTreeSet::new());
        let said = |text: &str| layers.contains(&PolicyLayer::Set(text.to_owned()));
        assert!(said("net.allow=[{host=\"a.test\",ports=[443]},\"b.test\"]"), "{layers:?}");
        assert!(!format!("{layers:?}").contains("long-enough"), "{layers:?}");
        let environment = sandbox::Environment { cwd: Some("/".into()), ..sandbox::Environment::default() };
        let policy = crate::app::load(&layers, &environment).unwrap().policy;
        let [secret] = policy.secrets.values().collect::<Vec<_>>()[..] else { panic!("{:?}", policy.secrets) };
        assert_eq!((&secret.hosts[..], &secret.ports[..]), (&["a.test".to_owned()][..], &[443][..]));
        let shown = shown(&policy.net);
        assert_eq!((&shown["allowOut"], &shown["denyOut"]), (&json!(["a.test", "b.test"]), &json!(["0.0.0.0/0"])));
    }

    #[test]
    fn rules_that_e2b_has_no_words_for_are_counted_and_not_shown() {
        let layers = [
            PolicyLayer::Set("net.mode=allow".to_owned()),
            PolicyLayer::Set("net.allow=[\"a.test\",\"**.b.test\",\"*.c.test\",\"d.test:22\"]".to_owned()),
        ];
        let environment = sandbox::Environment { cwd: Some("/".into()), ..sandbox::Environment::default() };
        let net = crate::app::load(&layers, &environment).unwrap().policy.net;
        assert_eq!(shown(&net)["allowOut"], json!(["a.test", "*.b.test"]));
        assert_eq!(summary(&net), json!({ "mode": "allow", "otherRules": 2 }));
        let closed = Net { mode: NetMode::None, ..net };
        assert!(!is_open(&closed) && shown(&closed)["allowOut"] == json!([]), "rules of a network that is not there");
    }

    #[test]
    fn what_would_mean_more_is_refused_by_name() {
        let all = ["0.0.0.0/0"];
        for (asked, clause) in [
            (json!({ "allowOut": ["a.test"] }), "network.allowOut"),
            (json!({ "allowOut": ["192.0.2.1"], "denyOut": all }), "network.allowOut"),
            (json!({ "allowOut": ["192.0.2.0/24"], "denyOut": all }), "network.allowOut"),
            (json!({ "allowOut": ["*"], "denyOut": all }), "network.allowOut"),
            (json!({ "allowOut": ["0x7f.1"], "denyOut": all }), "network.allowOut"),
            (json!({ "allowOut": ["a.test\"]"], "denyOut": all }), "network.allowOut"),
            (json!({ "rules": { "a.test": [with_header()] }, "denyOut": all }), "network.rules"),
            (
                json!({ "rules": { "b.a.test": [with_header()] }, "allowOut": ["b.a.test", "*.a.test"], "denyOut": all }),
                "network.rules",
            ),
            (
                json!({ "rules": { "a.test": [{ "transform": { "query": {} } }] }, "allowOut": ["a.test"], "denyOut": all }),
                "network.rules",
            ),
            (
                json!({ "rules": { "a.test": [{ "port": 1 }] }, "allowOut": ["a.test"], "denyOut": all }),
                "network.rules",
            ),
            (json!({ "dnsServers": ["1.1.1.1"] }), "network.dnsServers"),
        ] {
            assert_eq!(&*new(asked.clone(), None).unwrap_err().clause, clause, "{asked}");
        }
        assert!(of_change(json!({ "allow_internet_access": true }).as_object().unwrap()).is_err());
        assert!(of_change(&Map::new()).unwrap().is_closed());
    }
}
