//! The clauses of `[net]` and `[secrets]` where hosts are reached by name: what the sandbox's own network namespace holds, and
//! what the broker does. What it does not do yet is refused by name.

use std::collections::BTreeSet;

use policy::control::{Control, Filter, Inlet, Namespace, Variables};
use policy::value::{
    Net, NetMode, NetRule, Policy, Protocol, Secret, SecretUse, Target, TlsUse, Unknown, host_matches,
};
use policy::{ClauseId, Support, Unmet};

use super::{held, held_with, unmet, when};
use crate::host::Capabilities;
use crate::trust;

/// DNS, by UDP and by TCP.
const DNS: u16 = 53;
/// Below it a program inside could not listen itself, so that a socket on all addresses takes nothing from it.
const FIRST_UNPRIVILEGED: u16 = 1024;
/// Names of one wildcard, or names that no rule has, that can be reached at one such port at once.
const NAMES_AT_ONCE: usize = 16;
/// A spare socket by which the broker takes those of names back that are long unused.
const TAKES_BACK: usize = 1;
/// Most sockets; each is a descriptor of the broker.
const MAX_INLETS: usize = 512;
/// What answers for a clause, whatever the host.
type Answer = fn(&Policy, ClauseId) -> Support;
/// Clauses that the broker holds by its rules, and who answers for each.
const RULES: [(ClauseId, Answer); 9] = [
    (ClauseId::NetPresets, rules),
    (ClauseId::NetAllow, rules),
    (ClauseId::NetDeny, rules),
    (ClauseId::NetUnknown, rules),
    (ClauseId::NetDns, rules),
    (ClauseId::NetPrograms, programs),
    (ClauseId::NetBandwidth, metered),
    (ClauseId::NetBytes, metered),
    (ClauseId::NetConnections, metered),
];
/// Least Landlock ABI of the process tier, in which the broker is confined.
const LEAST_LANDLOCK: u32 = 6;

/// `net.mode = "allow"`.
pub(super) fn by_broker(policy: &Policy, host: &Capabilities) -> Support {
    if host.landlock < LEAST_LANDLOCK {
        return unmet(
            "net.mode/broker-not-confined",
            format!(
                "the broker is confined by the process tier, which needs Landlock ABI {LEAST_LANDLOCK}; this kernel offers {}",
                host.landlock
            ),
            "boot a kernel with Landlock ABI 6 (6.12 or later), or use `net.mode = \"none\"`",
        );
    }
    let ipv6 = host.ipv6();
    let inlets = inlets(&policy.net, ipv6);
    if inlets.len() > MAX_INLETS {
        return unmet(
            "net.allow/too-many-ports",
            format!("the rules need {} sockets, and {MAX_INLETS} are the most", inlets.len()),
            "name fewer ports from 1024 on, or fewer hosts with such ports",
        );
    }
    let others = [Control::LocalRoutes { ipv6 }, Control::Inlets(inlets), Control::Broker];
    let trusted = trust::places(policy).map(|at| Control::Certificates { at });
    held_with(Control::Namespace(Namespace::Net), others.into_iter().chain(trusted))
}

/// The rules, and what else is said about destinations.
pub(super) fn rules(policy: &Policy, id: ClauseId) -> Support {
    if policy.net.mode != NetMode::Allow || policy.demand(id).is_none() {
        return Support::NotAsked;
    }
    let of_presets = id == ClauseId::NetPresets;
    let mut asked: Vec<&NetRule> = policy.net.presets.values().flatten().filter(|_| of_presets).collect();
    asked.extend(policy.net.allow.iter().filter(|_| id == ClauseId::NetAllow));
    if let Some(rule) = policy.net.datagrams_by_proxy().filter(|rule| asked.contains(rule)) {
        return unmet(
            "net.allow/udp-by-proxy",
            format!("`{}` is for UDP, and `net.proxy` passes no datagrams on", rule.to),
            "say by `address` where it is, use TCP, or leave the rule out",
        );
    }
    if id == ClauseId::NetDeny
        && let Some(denial) = policy.net.denied_out_of_sight()
    {
        return unmet(
            "net.deny/by-proxy",
            format!("`net.proxy` resolves names, and whether one leads to `{}` is not seen here", denial.to),
            "deny names, let the proxy refuse these addresses, or leave out `net.proxy`",
        );
    }
    let asks = id == ClauseId::NetUnknown && policy.net.unknown == Unknown::Ask;
    let by_name = asks || asked.iter().any(|rule| rule.address.is_none() && matches!(rule.to, Target::Host(_)));
    let proxied = policy.net.proxy.as_ref().filter(|_| by_name).map(|_| Control::Proxy);
    held_with(Control::Broker, proxied)
}

/// The broker's way out.
pub(super) fn proxy(policy: &Policy, id: ClauseId) -> Support {
    when(policy.demand(id).is_some(), || held_with(Control::Broker, [Control::Proxy]))
}

/// More roots: for the broker's own TLS, and shown inside.
pub(super) fn roots(policy: &Policy) -> Support {
    when(policy.demand(ClauseId::NetCa).is_some(), || held(Control::Broker))
}

/// Why other rules cannot be held by the broker of a sandbox that was started with those of `before`: its sockets were made at
/// its start, each for what was named then.
#[must_use]
pub fn unmet_rules(before: &Net, policy: &Policy) -> Vec<Unmet> {
    let mut found: Vec<Unmet> = RULES
        .iter()
        .filter_map(|(id, of)| match of(policy, *id) {
            Support::Unmet(unmet) => Some(unmet),
            Support::NotAsked | Support::Held(_) => None,
        })
        .collect();
    found.extend(fixed(before, &policy.net));
    // Its secrets stay those of the start, whose hosts must stay readable.
    if let Support::Unmet(unmet) = secrets(policy) {
        found.push(unmet);
    }
    let asked = before.asked_ports();
    let has_socket = |rule: &NetRule, port: u16| {
        let asked = rule.protocol == Protocol::Tcp && port < FIRST_UNPRIVILEGED && asked.contains(&port);
        asked
            || before.rules().any(|known| {
                let everywhere = port < FIRST_UNPRIVILEGED || rule.protocol == Protocol::Udp;
                let same = everywhere || known.to == rule.to;
                same && known.protocol == rule.protocol && known.ports.contains(&port)
            })
    };
    for rule in policy.net.rules() {
        if let Some(port) = rule.ports.iter().find(|port| !has_socket(rule, **port)) {
            found.push(Unmet {
                id: "net.allow/no-socket",
                why: format!("nothing listens for port {port} of `{}` inside: sockets are made at the start", rule.to),
                fix: "create another sandbox with this rule".to_owned(),
                weaker: None,
            });
        }
    }
    found
}

/// What is told at the start alone: programs inside were shown the roots, the broker the proxy with its login.
fn fixed(before: &Net, net: &Net) -> Vec<Unmet> {
    // Where no byte leaves neither is used.
    if net.mode != NetMode::Allow {
        return Vec::new();
    }
    let same_proxy = match (&before.proxy, &net.proxy) {
        (None, None) => true,
        // Documents have no login: without one, that of the start is meant.
        (Some(old), Some(new)) => {
            old.place() == new.place() && new.login.as_ref().is_none_or(|login| old.login.as_ref() == Some(login))
        }
        (None, Some(_)) | (Some(_), None) => false,
    };
    let other = |id, clause: ClauseId, why: &str| Unmet {
        id,
        why: format!("`{clause}` is not as it was at the start: {why}"),
        fix: format!("ask for the same `{clause}`, or create another sandbox with this one"),
        weaker: None,
    };
    let ca = other("net.ca/fixed", ClauseId::NetCa, "the files were read then, and programs inside were shown them");
    let proxy = other("net.proxy/fixed", ClauseId::NetProxy, "the broker was told the proxy and its login then");
    [(before.ca == net.ca, ca), (same_proxy, proxy)].into_iter().filter(|(same, _)| !same).map(|(_, one)| one).collect()
}

/// Hosts of one program.
pub(super) fn programs(policy: &Policy, id: ClauseId) -> Support {
    when(policy.demand(id).is_some(), || {
        unmet(
            "net.programs/not-held",
            "which program a connection is of can change before anybody has looked: nobody can hold it",
            format!("leave `{id}` out, and run the program in a sandbox of its own with these hosts"),
        )
    })
}

/// How much passes the broker. Where no socket can be made, nothing does. With an own `lo` it could be meant for what programs
/// inside say to each other, which nobody meters.
pub(super) fn metered(policy: &Policy, id: ClauseId) -> Support {
    when(policy.demand(id).is_some(), || match policy.net.mode {
        NetMode::Allow => held(Control::Broker),
        NetMode::None => held_with(Control::Namespace(Namespace::Net), [Control::Filter(Filter::NoInet)]),
        NetMode::Loopback => {
            let name = if id == ClauseId::NetBytes {
                "net.bytes/no-broker"
            } else if id == ClauseId::NetConnections {
                "net.connections/no-broker"
            } else {
                "net.bandwidth/no-broker"
            };
            unmet(
                name,
                "the sandbox's own `lo` passes no broker, which alone meters",
                format!("leave `{id}` out: no byte leaves; or use `net.mode = \"allow\"`"),
            )
        }
    })
}

/// Every clause of `[net]` but the mode, on the tier without a network namespace of its own. Limits hold where no socket can be
/// made.
pub(super) fn without_namespace(policy: &Policy, id: ClauseId) -> Support {
    if policy.net.mode == NetMode::None && policy.demand(id).is_some() {
        return held(Control::Filter(Filter::NoInet));
    }
    when(policy.demand(id).is_some() && policy.net.mode != NetMode::None, || {
        unmet(
            "net.mode/allow-needs-container",
            "without a network namespace every connection would be the host's own",
            "use `--tier container`, or `net.mode = \"none\"`",
        )
    })
}

/// `[secrets]`, where there is a broker.
pub(super) fn secrets(policy: &Policy) -> Support {
    if policy.secrets.is_empty() {
        return Support::NotAsked;
    }
    if policy.net.mode != NetMode::Allow {
        return secrets_without_broker(policy);
    }
    for (name, secret) in &policy.secrets {
        let named = format!("`secrets.{name}`");
        if secret.put == SecretUse::Placeholder && secret.env.is_none() {
            return unmet(
                "secrets/no-placeholder",
                format!(
                    "{named} is put where the program sends its placeholder, and no variable tells it to the program"
                ),
                format!("name the variable: `secrets.{name}.env = \"TOKEN\"`"),
            );
        }
        if let Some(rule) = policy.net.rules().find(|rule| rule.tls == TlsUse::Pass && is_also_for(rule, secret)) {
            return unmet(
                "secrets/passed",
                format!("{named} is for `{}`, whose rule has `tls = \"pass\"`: its requests are not read", rule.to),
                "leave `tls` out of the rule, or its host out of the secret",
            );
        }
    }
    // The program is told placeholders by variables; the values stay outside.
    let told: Vec<String> = policy.secrets.values().filter_map(|secret| secret.env.clone()).collect();
    let told = (!told.is_empty()).then_some(Control::Environment(Variables::Passed(told)));
    held_with(Control::Secrets, told)
}

/// Whether a rule may be for requests that a secret is for.
fn is_also_for(rule: &NetRule, secret: &Secret) -> bool {
    let Target::Host(host) = &rule.to else { return false };
    let meets = |other: &String| host == other || host_matches(host, other) || host_matches(other, host);
    secret.hosts.iter().any(meets) && secret.ports.iter().any(|port| rule.ports.contains(port))
}

/// `[secrets]`, where nobody stands between program and network.
pub(super) fn secrets_without_broker(policy: &Policy) -> Support {
    when(!policy.secrets.is_empty(), || {
        unmet(
            "secrets/no-broker",
            "secrets are put into requests by the broker, and without `net.mode = \"allow\"` in a container there is none",
            "use `--tier container` and `net.mode = \"allow\"`, or remove the `secrets` table",
        )
    })
}

/// The sockets that rules need. Below 1024 one on all addresses for each port; from there on ports belong to programs inside
/// too, and so each name gets sockets of its own, but for ranges of addresses, of which nobody knows which will be asked for,
/// and for datagrams, whose socket is one for all.
pub(super) fn inlets(net: &Net, ipv6: bool) -> Vec<Inlet> {
    let mut everywhere = BTreeSet::from([(false, DNS), (true, DNS)]);
    let (mut own, mut shared) = (0_usize, 0_usize);
    for rule in net.rules() {
        let udp = rule.protocol == Protocol::Udp;
        let is_range = matches!(&rule.to, Target::Cidr(cidr) if !cidr.is_single());
        let is_wildcard = matches!(&rule.to, Target::Host(host) if host.starts_with('*'));
        for port in &rule.ports {
            if udp || *port < FIRST_UNPRIVILEGED || is_range {
                everywhere.insert((udp, *port));
            } else if is_wildcard {
                shared = shared.saturating_add(NAMES_AT_ONCE);
            } else {
                own = own.saturating_add(1);
            }
        }
    }
    let (low, high): (Vec<u16>, Vec<u16>) = net.asked_ports().into_iter().partition(|port| *port < FIRST_UNPRIVILEGED);
    everywhere.extend(low.into_iter().map(|port| (false, port)));
    let families = || [false, true].into_iter().filter(|of_ipv6| ipv6 || !of_ipv6);
    let needed = everywhere.len().saturating_add(own).saturating_add(shared).saturating_add(TAKES_BACK);
    let left = MAX_INLETS.checked_div(families().count()).unwrap_or_default().saturating_sub(needed);
    // A person is asked as far as there are sockets: a policy is not refused for it.
    let asked = high.len().saturating_mul(NAMES_AT_ONCE).min(left);
    let takes_back = if shared.saturating_add(asked) > 0 { TAKES_BACK } else { 0 };
    let spares = own.saturating_add(shared).saturating_add(asked).saturating_add(takes_back);
    let of_port = |(udp, port): (bool, u16)| families().map(move |ipv6| Inlet { ipv6, udp, port });
    let spare = families().map(|ipv6| Inlet { ipv6, udp: false, port: 0 });
    let spares = spare.flat_map(|inlet| std::iter::repeat_n(inlet, spares));
    everywhere.into_iter().flat_map(of_port).chain(spares).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::policy_of;

    fn strict() -> Policy {
        policy_of("")
    }

    /// The rules, as TOML has them.
    fn net(allow: &str) -> Net {
        policy_of(&format!("net = {{ mode = 'allow', allow = {allow} }}")).net
    }

    #[test]
    fn other_rules_need_the_sockets_that_are_there() {
        let policy = |allow: &str| Policy { net: net(allow), ..strict() };
        let before = net(r#"["a.test", "b.test:8443"]"#);
        let ids = |allow| unmet_rules(&before, &policy(allow)).iter().map(|unmet| unmet.id).collect::<Vec<_>>();
        assert_eq!(
            ids(r#"["c.test", "*.d.test:443", "b.test:8443", "192.0.2.7:80"]"#),
            [""; 0],
            "low ports are everybody's"
        );
        assert_eq!(ids("[]"), [""; 0]);
        assert_eq!(ids(r#"["a.test:22"]"#), ["net.allow/no-socket"]);
        assert_eq!(ids(r#"[{ host = "a.test", ports = [443], protocol = "udp" }]"#), ["net.allow/no-socket"]);
        assert_eq!(ids(r#"["c.test:8443"]"#), ["net.allow/no-socket"], "a high port is one name's");
        assert_eq!(
            ids(r#"[{ host = "a.test", ports = [443], methods = ["GET"] }]"#),
            [""; 0],
            "the broker knows what it can open"
        );
    }

    #[test]
    fn roots_and_proxy_are_told_at_the_start_alone() {
        let of = |more: &str| policy_of(&format!("net = {{ mode = 'allow', allow = ['a.test']{more} }}")).net;
        let start = of(", ca = ['/a.pem'], proxy = 'http://u:p@proxy.test:1'");
        let ids = |more: &str| {
            let policy = Policy { net: of(more), ..strict() };
            unmet_rules(&start, &policy).iter().map(|unmet| unmet.id).collect::<Vec<_>>()
        };
        for same in ["http://proxy.test:1", "http://u:p@proxy.test:1"] {
            assert_eq!(ids(&format!(", ca = ['/a.pem'], proxy = '{same}'")), [""; 0], "{same}");
        }
        for other in ["http://proxy.test:2", "http://u:q@proxy.test:1"] {
            assert_eq!(ids(&format!(", ca = ['/a.pem'], proxy = '{other}'")), ["net.proxy/fixed"], "{other}");
        }
        assert_eq!(ids(""), ["net.ca/fixed", "net.proxy/fixed"]);
        let none = Policy { net: policy_of("").net, ..strict() };
        assert_eq!(unmet_rules(&start, &none).len(), 0, "no network needs neither");
    }

    #[test]
    fn a_host_of_a_secret_stays_readable() {
        let text = |tls: &str| {
            format!(
                "net = {{ mode = 'allow', allow = [{{ host = 'a.test', ports = [443]{tls} }}] }}\n\
                 secrets.x = {{ from = 'env:X', hosts = ['a.test'] }}\n"
            )
        };
        let start = policy_of(&text(""));
        let passed = Policy { net: policy_of(&text(", tls = 'pass'")).net, ..start.clone() };
        let ids: Vec<&str> = unmet_rules(&start.net, &passed).iter().map(|unmet| unmet.id).collect();
        assert_eq!(ids, ["secrets/passed"]);
        assert!(unmet_rules(&start.net, &start).is_empty());
    }

    #[test]
    fn low_ports_are_taken_everywhere_and_high_ports_by_name_alone() {
        let of = |allow, ipv6| -> Vec<(bool, bool, u16)> {
            inlets(&net(allow), ipv6).iter().map(|inlet| (inlet.ipv6, inlet.udp, inlet.port)).collect()
        };
        let dns = [(false, false, 53), (false, true, 53)];
        assert_eq!(of("[]", false), dns);
        let web = of(r#"["a.test", "b.test:80"]"#, false);
        assert_eq!(web, [(false, false, 53), (false, false, 80), (false, false, 443), (false, true, 53)]);
        let high = of(r#"["a.test:8443", "192.0.2.7:5432"]"#, true);
        assert_eq!(high.iter().filter(|(ipv6, _, port)| *port == 0 && *ipv6).count(), 2);
        assert_eq!(high.iter().filter(|(_, _, port)| *port == 0).count(), 4);
        let range = of(r#"[{ cidr = "192.0.2.0/24", ports = [8443] }]"#, false);
        assert!(range.contains(&(false, false, 8443)) && !range.contains(&(false, false, 0)));
        // One socket of datagrams for all names, low and high.
        let udp = of(r#"[{ host = "a.test", ports = [123, 5000], protocol = "udp" }]"#, true);
        for inlet in [(false, true, 123), (true, true, 123), (false, true, 5000), (true, true, 5000)] {
            assert!(udp.contains(&inlet) && !udp.contains(&(inlet.0, true, 0)), "{inlet:?} {udp:?}");
        }
        let spares = |inlets: &[(bool, bool, u16)]| inlets.iter().filter(|(_, _, port)| *port == 0).count();
        assert_eq!(spares(&of(r#"["*.a.test:8443"]"#, false)), NAMES_AT_ONCE + TAKES_BACK);
    }

    /// Names that no rule has are heard on the common ports, with sockets of their own on the high ones; and no policy is refused
    /// because of them.
    #[test]
    fn names_that_a_person_is_asked_about_have_sockets_as_far_as_there_are_some() {
        let of = |allow: &str, unknown: &str| {
            let net = policy_of(&format!("net = {{ mode = 'allow', unknown = '{unknown}', allow = {allow} }}")).net;
            inlets(&net, true)
        };
        let spares = |inlets: &[Inlet]| inlets.iter().filter(|inlet| inlet.port == 0).count();
        let asked = of("[]", "ask");
        for port in [22, 80, 443] {
            assert!(asked.contains(&Inlet { ipv6: true, udp: false, port }), "{port}");
        }
        assert_eq!(spares(&asked), 2 * (7 * NAMES_AT_ONCE + TAKES_BACK), "seven common ports are high");
        assert_eq!(spares(&of(r#"["a.test:9000"]"#, "ask")), 2 * (1 + 8 * NAMES_AT_ONCE + TAKES_BACK));
        let ports: Vec<String> = (9000..9012).map(|port| format!("\"*.a.test:{port}\"")).collect();
        let many = format!("[{}]", ports.join(", "));
        let (asked, denied) = (of(&many, "ask"), of(&many, "deny"));
        assert!(asked.len() <= MAX_INLETS && spares(&asked) > spares(&denied), "{} {}", asked.len(), denied.len());
    }
}
