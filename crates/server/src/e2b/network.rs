//! E2B's rules of the network, as far as ours say exactly the same: hosts that are allowed where everything else is denied.
//!
//! There `allowOut` wins over `denyOut`, hosts are those of ports 80 and 443 (by Host and by TLS's server name), and `*.` stands for
//! any number of labels. What would mean more than that is refused by name.

use axum::http::StatusCode;
use sandbox::PolicyLayer;
use serde_json::{Map, Value as Json};

use crate::answer::Problem;
use crate::json;

/// What denies everything, so that `allowOut` is all that is left.
const EVERYTHING: &str = "0.0.0.0/0";
/// Most hosts of one request.
const MAX_HOSTS: usize = 256;

/// What a request says of where programs may connect to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outside {
    /// It says something; otherwise what held before holds.
    is_said: bool,
    /// Patterns of our own rules.
    hosts: Vec<String>,
}

impl Outside {
    /// Whether nothing is to be reached.
    pub(super) const fn is_closed(&self) -> bool {
        self.hosts.is_empty()
    }

    /// The same as clauses of a policy: they take the place of all rules below.
    pub(super) fn layers(&self) -> Vec<PolicyLayer> {
        if !self.is_said {
            return Vec::new();
        }
        let mode = if self.is_closed() { "none" } else { "allow" };
        let hosts = Json::from(self.hosts.clone());
        let clauses = [format!("mode=\"{mode}\""), "presets=[]".to_owned(), format!("allow={hosts}")];
        clauses.into_iter().map(|clause| PolicyLayer::Set(format!("net.{clause}"))).collect()
    }
}

/// Reads `network` of a new sandbox, beside its `allow_internet_access`.
///
/// # Errors
/// The rule that cannot be held.
pub(super) fn of_new(network: &Map<String, Json>, internet: Option<bool>) -> Result<Outside, Problem> {
    const HELD: &[&str] = &["allowOut", "denyOut", "allowPublicTraffic"];
    let cut = internet == Some(false);
    outside(network, HELD, cut).map_err(|problem| problem.below("network"))
}

/// Reads the rules that take the place of all others; what is not said is nothing.
///
/// # Errors
/// The rule that cannot be held.
pub(super) fn of_change(asked: &Map<String, Json>) -> Result<Outside, Problem> {
    const HELD: &[&str] = &["allowOut", "denyOut", "allow_internet_access"];
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
    let list = |field: &str| match network.get(field) {
        None | Some(Json::Null) => Ok(Vec::new()),
        Some(_) => json::list(network, field),
    };
    let (allowed, denied) = (list("allowOut")?, list("denyOut")?);
    if allowed.len() > MAX_HOSTS {
        return Err(Problem::invalid("allowOut", &format!("more than {MAX_HOSTS} hosts")));
    }
    if !allowed.is_empty() && !cut && !denied.iter().any(|range| range == EVERYTHING) {
        let why = "without `denyOut: [\"0.0.0.0/0\"]` everything else would be allowed too, and no sandbox of this server reaches \
                   the whole internet";
        return Err(cannot("allowOut", why));
    }
    let hosts = allowed.iter().map(|host| pattern(host)).collect::<Result<Vec<_>, _>>()?;
    Ok(Outside { is_said: cut || !allowed.is_empty() || !denied.is_empty(), hosts })
}

/// A host as our rules write it.
fn pattern(host: &str) -> Result<String, Problem> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let last = name.rsplit('.').next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    // What ends with a number is an address, however it is written.
    if name.is_empty() || !name.chars().all(plain) || last.chars().all(|c| c.is_ascii_digit()) {
        let why = "it is no host: addresses are allowed for all ports there, and here only for ports that a rule names";
        return Err(cannot("allowOut", why));
    }
    Ok(if name == host { host.to_owned() } else { format!("**.{name}") })
}

fn cannot(clause: &str, why: &str) -> Problem {
    let instead = "leave it out, or say by `/v1` which hosts and ports are meant (`policy: {net: {...}}`)";
    Problem::cannot(StatusCode::BAD_REQUEST, clause, &format!("`{clause}` cannot be held"), why, instead)
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
        let layers = found.layers();
        assert!(layers.contains(&PolicyLayer::Set("net.mode=\"allow\"".to_owned())), "{layers:?}");
        assert_eq!(new(json!({ "allowOut": ["a.test"] }), Some(false)).unwrap().hosts, ["a.test"]);
        for nothing in [json!({ "denyOut": ["0.0.0.0/0"] }), json!({ "denyOut": ["10.0.0.0/8"] })] {
            let layers = new(nothing, None).unwrap().layers();
            assert!(layers.contains(&PolicyLayer::Set("net.mode=\"none\"".to_owned())), "{layers:?}");
        }
        assert_eq!(new(json!({}), Some(true)).unwrap().layers(), [], "what the template says holds");
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
            (json!({ "rules": { "a.test": [{ "transform": {} }] }, "denyOut": all }), "network.rules"),
            (json!({ "dnsServers": ["1.1.1.1"] }), "network.dnsServers"),
        ] {
            assert_eq!(&*new(asked.clone(), None).unwrap_err().clause, clause, "{asked}");
        }
        assert!(of_change(json!({ "allow_internet_access": true }).as_object().unwrap()).is_err());
        assert!(of_change(&Map::new()).unwrap().is_closed());
    }
}
