//! The rules that a run would have needed, and what else is to be said of it. Nothing is made wider than what was seen.

use std::collections::{BTreeMap, BTreeSet};

use egress::host::{AuthorityHost, authority};
use egress::wire::MAX_SEEN;
use policy::value::{Net, NetRule, Target, host_matches};
use sandbox::AllowedAccess;
use sandbox::fault::show_text;
use serde_json::{Value, json};

use crate::ui::{Palette, Role};

/// Most paths of one rule; of more the rule has those that came first by the alphabet.
const MAX_PATHS: usize = 64;

/// What is proposed.
#[derive(Debug, Default)]
pub(crate) struct Proposal {
    /// Rules for `net.allow`, each the smallest for what was seen.
    pub(super) rules: Vec<Proposed>,
    /// What is not proposed, and why.
    pub(super) remarks: Vec<String>,
    /// The document, before and after; none where nothing is to be changed.
    pub(super) document: Option<Document>,
}

/// A document that would have the rules.
#[derive(Debug)]
pub(super) struct Document {
    /// As it is called.
    pub(super) name: String,
    /// As it is; empty where there is none yet.
    pub(super) before: String,
    /// As it would be.
    pub(super) after: String,
    /// Where it is written, if it is.
    pub(super) written: Option<String>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proposed {
    pub(super) host: String,
    pub(super) ports: Vec<u16>,
    pub(super) methods: Vec<String>,
    pub(super) paths: Vec<String>,
    /// Something came through; else it was only tried.
    pub(super) reached: bool,
}

/// The requests of one destination by method; none where the bytes were not read, or not all of it can be a rule.
type Requests = Option<BTreeMap<String, BTreeSet<String>>>;

impl Proposal {
    /// What a run needs that these rules do not have.
    pub(super) fn of(asked: &BTreeSet<(String, u16)>, passed: &BTreeSet<AllowedAccess>, given: &Net) -> Self {
        let mut proposal = Self::default();
        // Ports of one host about which the same is known become one rule.
        let mut alike: BTreeMap<(String, Requests, bool), Vec<u16>> = BTreeMap::new();
        for (host, port) in asked {
            let seen: Vec<&AllowedAccess> =
                passed.iter().filter(|one| one.host == *host && one.port == *port).collect();
            let requests = proposal.requests(host, *port, &seen);
            alike.entry((host.clone(), requests, !seen.is_empty())).or_default().push(*port);
        }
        for ((host, requests, reached), ports) in alike {
            let rule = |methods: Vec<String>, paths| Proposed {
                host: host.clone(),
                ports: ports.clone(),
                methods,
                paths,
                reached,
            };
            match requests {
                None => proposal.rules.push(rule(Vec::new(), Vec::new())),
                Some(requests) => proposal.rules.extend(
                    requests.into_iter().map(|(method, paths)| rule(vec![method], paths.into_iter().collect())),
                ),
            }
        }
        if passed.len() >= MAX_SEEN {
            proposal
                .remarks
                .push(format!("{MAX_SEEN} kinds of requests and connections were heard, and no more are told"));
        }
        let unused = given.rules().filter(|rule| !passed.iter().any(|one| is_for(rule, one)));
        proposal.remarks.extend(unused.map(|rule| format!("the rule for {} was not used", rule.to)));
        proposal
    }

    /// Methods and paths, where each request was read and can be named by a rule.
    fn requests(&mut self, host: &str, port: u16, seen: &[&AllowedAccess]) -> Requests {
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for one in seen {
            let (method, path) = one.request.as_ref()?;
            match egress::http::path::plain(path) {
                // A star in a rule stands for anything, and brackets stand in none.
                Ok(path) if !path.contains(['*', '[', ']', '{', '}']) && is_method(method) => {
                    found.entry(method.clone()).or_default().insert(path);
                }
                Ok(_) | Err(_) => {
                    self.remarks.push(format!(
                        "{host}:{port} was asked for a path, or by a method, that no rule can name, so the rule is for the whole host"
                    ));
                    return None;
                }
            }
        }
        for (method, paths) in &mut found {
            if paths.len() > MAX_PATHS {
                self.remarks.push(format!(
                    "{host}:{port} was asked for {} paths by {method}; {MAX_PATHS} are proposed: write a pattern instead, \
                     if you mean one",
                    paths.len()
                ));
                *paths = paths.iter().take(MAX_PATHS).cloned().collect();
            }
        }
        (!found.is_empty()).then_some(found)
    }

    /// For people: the difference, and what is to be said beside it.
    pub(crate) fn text(&self, palette: Palette) -> String {
        let mut text = String::new();
        match &self.document {
            None => text.push_str("learned: no rule is missing for what it reached\n"),
            Some(document) => {
                let (done, name) = match &document.written {
                    Some(to) => ("written to", to),
                    None => ("proposed for", &document.name),
                };
                text.push_str(&format!("learned: {done} {}\n", show_text(name)));
                text.push_str(&difference(document, palette));
            }
        }
        for remark in &self.remarks {
            text.push_str(&format!("{} {}\n", palette.paint(Role::Weak, "note:"), show_text(remark)));
        }
        text
    }

    /// For programs.
    pub(crate) fn to_json(&self) -> Value {
        let rules: Vec<Value> = self.rules.iter().map(Proposed::to_json).collect();
        let document = self.document.as_ref().map(
            |document| json!({ "name": document.name, "text": document.after, "written": document.written.is_some() }),
        );
        json!({ "allow": rules, "remarks": self.remarks, "document": document })
    }
}

impl Proposed {
    fn to_json(&self) -> Value {
        let Self { host, ports, methods, paths, reached } = self;
        json!({ "host": host, "ports": ports, "methods": methods, "paths": paths, "reached": reached })
    }
}

fn difference(document: &Document, palette: Palette) -> String {
    let diff = similar::TextDiff::from_lines(document.before.as_str(), document.after.as_str());
    let before = if document.before.is_empty() { "/dev/null" } else { document.name.as_str() };
    let role = |line: &str| match line.as_bytes().first() {
        Some(b'+') => Role::Good,
        Some(b'-') => Role::Bad,
        Some(_) | None => Role::Aside,
    };
    let lines = diff.unified_diff().context_radius(3).header(before, &document.name).to_string();
    lines.lines().map(|line| format!("{}\n", palette.paint(role(line), &show_text(line)))).collect()
}

/// Whether a rule can name a method, as policies have it.
fn is_method(method: &str) -> bool {
    (1..=32).contains(&method.len()) && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
}

/// Whether a rule was what let this through.
fn is_for(rule: &NetRule, passed: &AllowedAccess) -> bool {
    let named = match (&rule.to, passed.host.parse()) {
        (Target::Cidr(range), Ok(address)) => range.contains(address),
        (Target::Host(pattern), Err(_)) => {
            matches!(authority(&passed.host).map(|found| found.host), Some(AuthorityHost::Name(name)) if host_matches(pattern, &name))
        }
        (Target::Cidr(_), Err(_)) | (Target::Host(_), Ok(_)) => false,
    };
    named && rule.ports.contains(&passed.port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(host: &str, port: u16, request: Option<(&str, &str)>) -> AllowedAccess {
        let request = request.map(|(method, path)| (method.to_owned(), path.to_owned()));
        AllowedAccess { host: host.to_owned(), port, request }
    }

    fn of(asked: &[(&str, u16)], seen: &[AllowedAccess]) -> Proposal {
        let asked = asked.iter().map(|(host, port)| ((*host).to_owned(), *port)).collect();
        Proposal::of(&asked, &seen.iter().cloned().collect(), &Net::closed())
    }

    fn shown(proposal: &Proposal) -> Vec<String> {
        let one = |rule: &Proposed| {
            format!(
                "{} {:?} {} {} {}",
                rule.host,
                rule.ports,
                rule.methods.join(","),
                rule.paths.join(","),
                rule.reached
            )
        };
        proposal.rules.iter().map(one).collect()
    }

    #[test]
    fn ports_of_a_host_are_one_rule_and_hosts_are_never_one() {
        let asked = [("a.example", 443), ("a.example", 22), ("b.example", 443)];
        let seen = [passed("a.example", 443, None), passed("a.example", 22, None)];
        assert_eq!(shown(&of(&asked, &seen)), ["a.example [22, 443]   true", "b.example [443]   false"]);
    }

    #[test]
    fn a_method_has_its_own_paths_and_no_others() {
        let seen = [
            passed("a.example", 80, Some(("GET", "/x"))),
            passed("a.example", 80, Some(("GET", "/%79"))),
            passed("a.example", 80, Some(("POST", "/z"))),
        ];
        let rules = shown(&of(&[("a.example", 80)], &seen));
        assert_eq!(rules, ["a.example [80] GET /x,/y true", "a.example [80] POST /z true"]);
    }

    #[test]
    fn what_no_rule_can_name_is_said() {
        for path in ["/a//b", "/*", "/a[1]", "/%7Bid%7D", "", "*"] {
            let made = of(&[("a.example", 80)], &[passed("a.example", 80, Some(("GET", path)))]);
            assert_eq!(shown(&made), ["a.example [80]   true"], "{path}");
            assert_eq!(made.remarks.len(), 1, "{path}");
        }
        for method in ["get", "M_X", &"A".repeat(33)] {
            let made = of(&[("a.example", 80)], &[passed("a.example", 80, Some((method, "/a")))]);
            assert_eq!((shown(&made), made.remarks.len()), (vec!["a.example [80]   true".to_owned()], 1), "{method}");
        }
        let most: Vec<_> = (0..MAX_SEEN).map(|n| passed("a.example", 80, Some(("GET", &format!("/{n}"))))).collect();
        assert!(of(&[("a.example", 80)], &most).remarks.iter().any(|said| said.contains("1000 kinds")));
        let many: Vec<_> =
            (0..MAX_PATHS + 9).map(|n| passed("a.example", 80, Some(("GET", &format!("/{n}"))))).collect();
        let made = of(&[("a.example", 80)], &many);
        assert_eq!((made.rules[0].paths.len(), made.remarks.len()), (MAX_PATHS, 1));
    }
}
