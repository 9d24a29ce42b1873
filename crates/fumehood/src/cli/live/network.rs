//! `fumehood net set`: other rules for the network of a live sandbox.

use live::words::{Ask, Replaced, RulesRefused};
use policy::value::secrets_document;
use serde_json::json;

use super::super::args::{Flag, Positionals, To, usage};
use super::super::ask::asked_layers;
use super::super::spec::{Call, Spec};
use super::{answered, connected, home, sandbox_argument, wait_for};
use crate::load;
use crate::ui::{Failure, REFUSED};
use sandbox::PolicyLayer;
use sandbox::fault::{Fault, show_text};

/// The refusal of a sandbox that has no broker.
const NO_RULES: &str = "net/no-rules";

/// What of a policy can be said here.
const RULES: &[Flag] = &[
    Flag::new("policy", Some("POLICY"), To::Document, "A policy document or the name of a preset; later ones win")
        .short(b'p'),
    Flag::new("net", Some("MODE"), To::Clause, "Network: none closes everything, allow").choices(&["none", "allow"]),
    Flag::new("allow-host", Some("HOST[:PORT]"), To::Clause, "A destination that may be reached; sets `--net allow`"),
    Flag::new("set", Some("CLAUSE=VALUE"), To::Set, "Any clause of `net`, e.g. net.connections=64"),
];

pub(crate) const SET: Spec = Spec {
    path: &["net", "set"],
    about: "Replace the rules of the network of a live sandbox",
    usage: "-p POLICY [FLAGS] ID|NAME",
    more: "The whole `net` of the policy takes the place of what held before. Of its other clauses nothing is changed: `[secrets]` has to \
           be as it was, or left out, and the rest is that of the sandbox. Connections that no longer fit are cut. Rules that cannot be held there are refused, and those before hold: the sandbox needs `net.mode = \
           \"allow\"` from its start, and a port that no rule had then needs a new sandbox. `--net none` closes everything.\n\n\
           Exit codes:\n  \
             0    the broker judges by the new rules\n  \
             125  the sandbox is not known, has ended, or did not take them; the reason is told. Or no rule was said\n  \
             126  the policy is wrong\n\n\
           Example: `fumehood net set ID --allow-host example.org`",
    tables: &[RULES],
    words: Positionals::Mixed(1),
    hidden: false,
    run: set,
};

fn set(call: &mut Call<'_>) -> Result<u8, Failure> {
    let (home, word) = (home(call)?, sandbox_argument(call, "net set -p POLICY ID")?);
    let layers = asked_layers(call, REFUSED)?;
    only_rules(&layers)?;
    let loaded = load::policy(&layers, call.environment)?;
    if !loaded.origins.say("net.") {
        return Err(Failure::own(nothing_said()));
    }
    let (net, secrets) = (loaded.policy.net.document(), loaded.policy.secrets);
    let secrets = (!secrets.is_empty()).then(|| secrets_document(&secrets));
    let (id, replaced) = wait_for(async {
        let (info, client) = connected(&home, &word).await?;
        let done = client.call::<Replaced>(&Ask::Network { net, secrets }).await;
        done.map(|replaced| (info.id.clone(), replaced)).map_err(|error| answered(error, &info.id))
    })?;
    let digest = match replaced {
        Replaced::Done { digest } => digest,
        Replaced::Refused(refused) => return Err(not_taken(&refused, &id)),
    };
    if call.json {
        call.console.json(&json!({ "schema": 1, "sandbox": id, "digest": digest }))?;
    } else {
        call.console.data(format!("{}\n", show_text(&digest)).as_bytes())?;
    }
    Ok(0)
}

/// That `--set` names clauses of the network alone: no other one of a sandbox that lives can be changed.
fn only_rules(layers: &[PolicyLayer]) -> Result<(), Failure> {
    let other = layers.iter().find_map(|layer| match layer {
        PolicyLayer::Set(text) => {
            let clause = text.split('=').next().unwrap_or_default().trim();
            (clause != "net" && !clause.starts_with("net.")).then_some(clause)
        }
        PolicyLayer::Document(_) | PolicyLayer::Flag { .. } => None,
    });
    other.map_or(Ok(()), |clause| {
        Err(Failure::own(usage(
            "usage/not-a-rule",
            format!("`--set {}` is no clause of the network", show_text(clause)),
            "of a sandbox that lives only the rules of its network are replaced".to_owned(),
            "leave it out, or create another sandbox with it".to_owned(),
        )))
    })
}

fn nothing_said() -> Fault {
    usage(
        "usage/no-rules",
        "no rule is said".to_owned(),
        "without one the network of the sandbox would be closed, and nothing says that this is meant".to_owned(),
        "`--allow-host HOST`, `-p POLICY` with a `[net]` table, or `--net none` to close it".to_owned(),
    )
}

/// What the sandbox cannot take, as it said so.
fn not_taken(refused: &RulesRefused, id: &str) -> Failure {
    let RulesRefused { id: kind, clause, why, fix } = refused;
    Failure::own(Fault {
        id: if kind == NO_RULES { NO_RULES } else { "net/rules-refused" },
        what: "the rules of the network are as they were".to_owned(),
        place: format!("`{}` of sandbox {id}", show_text(clause)),
        why: show_text(why),
        fix: show_text(fix),
    })
}
