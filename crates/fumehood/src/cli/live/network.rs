//! `fumehood net set`: other rules for the network of a live sandbox.

use agent::words::Code;
use live::client::Error;
use live::words::{Ask, Replaced};
use serde_json::json;

use super::super::args::Positionals;
use super::super::ask::asked_layers;
use super::super::flags::POLICY;
use super::super::spec::{Call, Spec};
use super::{answered, connected, home, sandbox_argument, wait_for};
use crate::load;
use crate::ui::{Failure, REFUSED};
use sandbox::fault::{Fault, show_text};

/// How the refusal of a supervisor begins.
const AS_THEY_WERE: &str = "the rules of the network are as they were";
/// How it ends.
const OTHERS: &str = "ask for rules that this sandbox can have, or create another one with them";

pub(crate) const SET: Spec = Spec {
    path: &["net", "set"],
    about: "Replace the rules of the network of a live sandbox",
    usage: "-p POLICY [FLAGS] ID|NAME",
    more: "The whole `net` of the policy takes the place of what held before; its other clauses are not looked at. Connections that no \
           longer fit are cut. Rules that cannot be held there are refused, and those before hold: the sandbox needs `net.mode = \
           \"allow\"` from its start, and a port that no rule had then needs a new sandbox. `--net none` closes everything.\n\n\
           Exit codes:\n  \
             0    the broker judges by the new rules\n  \
             125  the sandbox is not known, has ended, or did not take them; the reason is told\n  \
             126  the policy is wrong\n\n\
           Example: `fumehood net set ID --allow-host example.org`",
    tables: &[POLICY],
    words: Positionals::Mixed(1),
    hidden: false,
    run: set,
};

fn set(call: &mut Call<'_>) -> Result<u8, Failure> {
    let (home, word) = (home(call)?, sandbox_argument(call, "net set -p POLICY ID")?);
    let loaded = load::policy(&asked_layers(call, REFUSED)?, call.environment)?;
    let net = loaded.policy.net.document();
    let (id, replaced) = wait_for(async {
        let (info, client) = connected(&home, &word).await?;
        let done = client.call::<Replaced>(&Ask::Network { net }).await;
        done.map(|replaced| (info.id.clone(), replaced)).map_err(|error| not_taken(error, &info.id))
    })?;
    if call.json {
        call.console.json(&json!({ "schema": 1, "sandbox": id, "digest": replaced.digest }))?;
    } else {
        call.console.data(format!("{}\n", show_text(&replaced.digest)).as_bytes())?;
    }
    Ok(0)
}

/// What the sandbox cannot take is refused by its own id; anything else is told as for all that is asked of a sandbox.
fn not_taken(error: Error, id: &str) -> Failure {
    let said = match &error {
        Error::Failed(failure) if failure.code == Code::Invalid => show_text(&failure.message),
        Error::Failed(_) | Error::Connect(_) | Error::Lost | Error::TooMany(_) | Error::Protocol(_) => {
            return answered(error, id);
        }
    };
    // Without what is said here in places of their own.
    let why = said.strip_prefix(AS_THEY_WERE).map_or(said.as_str(), |rest| rest.trim_start_matches(": "));
    let why = why.strip_suffix(OTHERS).map_or(why, |rest| rest.trim_end_matches("; "));
    Failure::own(Fault {
        id: "net/rules-refused",
        what: AS_THEY_WERE.to_owned(),
        place: format!("sandbox {id}"),
        why: why.to_owned(),
        fix: OTHERS.to_owned(),
    })
}
