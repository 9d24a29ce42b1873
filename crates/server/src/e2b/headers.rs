//! Headers that E2B's `rules` add to requests: secrets of one sandbox, which its broker puts on outside.
//!
//! # Promises
//! No value is part of a layer, a label, a record or an answer, and none goes inside.

use std::collections::{BTreeMap, BTreeSet};

use policy::value::{NO_CREDENTIALS, Secret, SecretUse, host_matches, is_framing, is_spelling};
use sandbox::{Hidden, PolicyLayer, fits_header};
use serde_json::{Map, Value as Json, json};

use super::hosts::{cannot, covers, pattern};
use crate::answer::Problem;
use crate::app::Headers;
use crate::tokens::{Purpose, Tokens};

/// Most headers of one sandbox.
const MAX_HEADERS: usize = 64;
/// What E2B's server would put something else for.
const HOLE: &str = "${";

/// A header of the requests to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// A pattern of our own rules.
    pub(super) host: String,
    /// In lower case.
    name: String,
    value: Hidden,
}

/// Reads `rules`: of one host the header that was said last counts.
///
/// # Errors
/// What cannot be held, by `rules`.
pub(super) fn of(network: &Map<String, Json>) -> Result<Vec<Header>, Problem> {
    let rules = match network.get("rules") {
        None | Some(Json::Null) => return Ok(Vec::new()),
        Some(Json::Object(rules)) => rules,
        Some(_) => return Err(Problem::invalid("rules", "`rules` is no table")),
    };
    let mut found: BTreeMap<(String, String), Hidden> = BTreeMap::new();
    for (host, list) in rules {
        let host = pattern("rules", host)?;
        let list = list.as_array().ok_or_else(|| Problem::invalid("rules", "a host of `rules` has no list"))?;
        for rule in list {
            for (name, value) in headers(rule)? {
                let name = name.to_ascii_lowercase();
                let value = value.as_str().filter(|value| !value.contains(HOLE));
                let value = value.ok_or_else(|| {
                    cannot("rules", "the value of a header is a text, and nothing is put into it here")
                })?;
                // What fits a policy: of what else a name has nothing is known.
                let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
                if name.is_empty() || !name.chars().all(plain) {
                    return Err(cannot("rules", "the name of a header has letters, digits, `-` and `_`"));
                }
                if is_framing(&name) {
                    let why = format!(
                        "the header `{name}` says how a request is read, whom it is for, or in which form its answer comes"
                    );
                    return Err(cannot("rules", &why));
                }
                fits_header(&name, value, is_public(&name))
                    .map_err(|why| cannot("rules", &format!("the value of `{name}` {why}")))?;
                // Gateways take both for one, and so does who puts them on: one of the two would be gone.
                let is_other =
                    |(at, known): &(String, String)| *at == host && *known != name && is_spelling(known, &name);
                if let Some((_, other)) = found.keys().find(|key| is_other(key)) {
                    return Err(cannot("rules", &format!("`{name}` is another spelling of the header `{other}`")));
                }
                found.insert((host.clone(), name), Hidden(value.to_owned().into()));
            }
        }
    }
    if found.len() > MAX_HEADERS {
        return Err(Problem::invalid("rules", &format!("more than {MAX_HEADERS} headers")));
    }
    Ok(found.into_iter().map(|((host, name), value)| Header { host, name, value }).collect())
}

/// The headers of one rule: nothing else is known of a rule or of its `transform`.
fn headers(rule: &Json) -> Result<Vec<(&String, &Json)>, Problem> {
    let odd = || cannot("rules", "of a rule the headers of its `transform` are held, and nothing else");
    let only = |table: &Map<String, Json>, field: &str| table.keys().all(|known| known == field);
    let rule = rule.as_object().filter(|rule| only(rule, "transform")).ok_or_else(odd)?;
    let transform = match rule.get("transform") {
        None | Some(Json::Null) => return Ok(Vec::new()),
        Some(transform) => transform.as_object().filter(|table| only(table, "headers")).ok_or_else(odd)?,
    };
    match transform.get("headers") {
        None | Some(Json::Null) => Ok(Vec::new()),
        Some(headers) => Ok(headers.as_object().ok_or_else(odd)?.iter().collect()),
    }
}

/// The variable that a value is found by: of no environment, see `sandbox::Environment::given`.
fn variable(number: usize) -> String {
    format!("FUMEHOOD_HEADER_{number}")
}

/// Whether each header stands beside the secrets of its template: of two in one header of a request one would be gone.
///
/// # Errors
/// A header that one of them is put into as well, for a host of its own.
pub(super) fn beside(headers: &[Header], own: &BTreeMap<String, Secret>) -> Result<(), Problem> {
    let is_same = |header: &Header, secret: &Secret| {
        let name = match &secret.put {
            SecretUse::Header { name, .. } => name.as_str(),
            SecretUse::Basic(_) | SecretUse::Sign(_) => "authorization",
            SecretUse::Query(_) | SecretUse::Placeholder => return false,
        };
        let meets = |host: &String| {
            host_matches(host, &header.host)
                || covers(host, &header.host)
                || covers(&header.host, host.trim_start_matches(['*', '.']))
        };
        // Gateways that make variables of headers take both for one, and so does who puts them on.
        is_spelling(name, &header.name) && secret.hosts.iter().any(meets)
    };
    match headers.iter().find(|header| own.values().any(|secret| is_same(header, secret))) {
        Some(Header { host, name, .. }) => {
            Err(cannot("rules", &format!("a secret of the template is put into the header `{name}` for `{host}`")))
        }
        None => Ok(()),
    }
}

/// Whether a header is one in which nobody is asked for a credential: it is put on, and answers may have it.
fn is_public(name: &str) -> bool {
    NO_CREDENTIALS.contains(&name)
}

/// Where each is put, as a clause of a policy. `taken` are the names of the template's own secrets, none of which gives way.
pub(super) fn layer(headers: &[Header], taken: &BTreeSet<String>) -> Option<PolicyLayer> {
    let free = (0_usize..).map(|number| format!("header_{number}")).filter(|name| !taken.contains(name));
    let one = |((number, header), key): ((usize, &Header), String)| {
        let (from, Header { host, name, value: _ }) = (variable(number), header);
        let public = if is_public(name) { ",public=true" } else { "" };
        format!("{key}={{from=\"env:{from}\",hosts=[\"{host}\"],as={{header=\"{name}\",format=\"{{}}\"{public}}}}}")
    };
    let all = headers.iter().enumerate().zip(free).map(one).collect::<Vec<_>>().join(",");
    (!headers.is_empty()).then(|| PolicyLayer::Set(format!("secrets={{{all}}}")))
}

/// The values, and the mark by which the same headers are known again.
pub(super) fn given(headers: Vec<Header>, tokens: &Tokens) -> Option<Headers> {
    let mark = mark(&headers, tokens)?;
    let given = headers.into_iter().enumerate().map(|(number, header)| (variable(number), header.value)).collect();
    Some(Headers { given, mark })
}

/// None where there are none.
pub(super) fn mark(headers: &[Header], tokens: &Tokens) -> Option<String> {
    let all = headers.iter().map(|Header { host, name, value }| json!([host, name, value.0.as_str()]));
    (!headers.is_empty()).then(|| tokens.of(Purpose::Headers, &Json::from_iter(all).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "what is asked is written where it is judged")]
    fn read(rules: Json) -> Result<Vec<Header>, Problem> {
        of(json!({ "rules": rules }).as_object().unwrap())
    }

    fn rule(name: &str, value: &str) -> Json {
        json!({ "transform": { "headers": { name: value } } })
    }

    #[test]
    fn of_one_host_the_last_header_counts_and_a_mark_is_of_all_of_them() {
        let found = read(json!({ "a.test": [rule("X-Key", "first-value"), rule("x-key", "second-value")] })).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].value.0.as_str(), "second-value");
        let tokens = Tokens::new(vec![1; 32]);
        let mark = |rules: Json| mark(&read(rules).unwrap(), &tokens);
        let one = mark(json!({ "a.test": [rule("x-key", "second-value")] }));
        assert_eq!(one, super::mark(&found, &tokens));
        for other in [
            json!({ "a.test": [rule("x-key", "third-value")] }),
            json!({ "b.test": [rule("x-key", "second-value")] }),
            json!({ "a.test": [rule("x-other", "second-value")] }),
        ] {
            assert_ne!(mark(other.clone()), one, "{other}");
        }
        assert_eq!(mark(json!({ "a.test": [{}] })), None);
        assert!(!format!("{found:?}").contains("second-value"));
    }

    #[test]
    fn what_is_no_credential_is_public_and_a_secret_of_the_template_keeps_its_name() {
        let rules = [rule("Accept", "text"), rule("X-Key", "long-enough"), rule("User-Agent", "example/1")];
        let found = read(json!({ "a.test": rules })).unwrap();
        let own =
            ["secrets={header_0={from=\"env:OWN\",hosts=[\"own.test\"]}}"].map(|one| PolicyLayer::Set(one.to_owned()));
        let taken = BTreeSet::from(["header_0".to_owned()]);
        let environment = sandbox::Environment { cwd: Some("/".into()), ..sandbox::Environment::default() };
        let layers: Vec<_> = own.into_iter().chain(layer(&found, &taken)).collect();
        let secrets = crate::app::load(&layers, &environment).unwrap().policy.secrets;
        let of = |name: &str| (secrets[name].hosts[0].as_str(), secrets[name].put.is_public());
        assert_eq!(secrets.len(), 4, "{secrets:?}");
        for (host, name, fits) in [
            ("own.test", "Authorization", false),
            ("*.test", "authorization", false),
            ("own.test", "X-Key", true),
            ("b.own.test", "Authorization", true),
        ] {
            let asked = read(json!({ host: [rule(name, "long-enough")] })).unwrap();
            let own = BTreeMap::from([("own".to_owned(), secrets["header_0"].clone())]);
            assert_eq!(beside(&asked, &own).is_ok(), fits, "{host} {name}");
        }
        assert_eq!(of("header_0"), ("own.test", false), "the template's own");
        // In the order of their names: accept, user-agent, x-key.
        let given = ["header_1", "header_2", "header_3"].map(of);
        assert_eq!(given, [("a.test", true), ("a.test", true), ("a.test", false)]);
    }

    #[test]
    fn what_cannot_be_a_secret_header_is_refused_without_a_word_of_it() {
        for bad in [
            rule("x-key", "short"),
            rule("x-key", "two\r\nlines of it"),
            rule("x-key", "Bearer ${e2b.identity.tokens.aws}"),
            rule("host", "elsewhere.test"),
            rule("content-length", "1000000000"),
            rule("Content_Length", "1000000000"),
            rule("Transfer_Encoding", "gzip, chunked"),
            rule("Accept_Encoding", "gzip, and more"),
            rule("Keep-Alive", "timeout=1000"),
            rule("Proxy_Connection", "keep-alive"),
            json!({ "transform": { "headers": { "X_Key": "long-enough", "X-Key": "long-enough" } } }),
            rule("x key", "long-enough"),
            rule("", "long-enough"),
            json!({ "transform": { "headers": { "x-key": 7 } } }),
        ] {
            let problem = read(json!({ "a.test": [bad] })).unwrap_err();
            assert_eq!(&*problem.clause, "rules", "{bad}");
            assert!(!problem.line().contains("long-enough"), "{problem:?}");
        }
    }
}
