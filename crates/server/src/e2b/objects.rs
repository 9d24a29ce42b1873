//! E2B's objects, of what a supervisor says of its sandbox.

use live::words::{Info, State};
use policy::value::Net;
use serde_json::{Map, Value as Json, json};

use super::network;
use crate::app::AppState;
use crate::clock::rfc3339;
use crate::labels;
use crate::measured::{cores, mib};
use crate::tokens::Purpose;

/// The version of E2B's own server inside, of whose features clients make use.
pub(super) const ENVD: &str = "0.6.13";

/// What clients want in order to reach a sandbox.
pub(super) fn sandbox(app: &AppState, info: &Info) -> Json {
    let mut object = Map::new();
    base(app, info, &mut object);
    object.insert("envdAccessToken".to_owned(), json!(app.tokens.of(Purpose::Data, &info.id)));
    if labels::has_private_ports(info) {
        object.insert("trafficAccessToken".to_owned(), json!(app.tokens.of(Purpose::Ports, &info.id)));
    }
    Json::Object(object)
}

/// What a list shows of a sandbox; none of one that has ended, for which E2B has no word.
pub(super) fn listed(app: &AppState, info: &Info) -> Option<Json> {
    let mut object = Map::new();
    base(app, info, &mut object);
    state(info, &mut object)?;
    Some(Json::Object(object))
}

/// All about a sandbox; none of one that has ended. Without its rules nothing is said of where it may connect to.
pub(super) fn detail(app: &AppState, info: &Info, rules: Option<&Net>) -> Option<Json> {
    let Json::Object(mut object) = sandbox(app, info) else { return None };
    state(info, &mut object)?;
    let at_end = if labels::pauses_at_end(info) { "pause" } else { "kill" };
    let lifecycle = json!({ "autoResume": info.labels.contains_key(labels::WAKE), "onTimeout": at_end });
    object.insert("lifecycle".to_owned(), lifecycle);
    // Frozen processes keep their memory for as long as the host runs.
    object.insert("pauseMode".to_owned(), json!("full"));
    let mut shown = rules.map_or_else(Map::new, network::shown);
    shown.insert("allowPublicTraffic".to_owned(), json!(!labels::has_private_ports(info)));
    object.insert("network".to_owned(), Json::Object(shown));
    if let Some(rules) = rules {
        if !network::is_open(rules) {
            // Neither all of it nor nothing is what the field has a word for.
            object.insert("allowInternetAccess".to_owned(), json!(false));
        }
        if let Some(Json::Object(ours)) = object.get_mut("fumehood") {
            ours.insert("net".to_owned(), network::summary(rules));
        }
    }
    Some(Json::Object(object))
}

fn base(app: &AppState, info: &Info, object: &mut Map<String, Json>) {
    let template = if info.template.is_empty() { info.policy.as_str() } else { info.template.as_str() };
    object.insert("templateID".to_owned(), json!(template));
    object.insert("sandboxID".to_owned(), json!(info.id));
    object.insert("clientID".to_owned(), json!("fumehood"));
    object.insert("envdVersion".to_owned(), json!(ENVD));
    if let Some(name) = &info.name {
        object.insert("alias".to_owned(), json!(name));
    }
    if let Some(domain) = &app.settings.domain {
        object.insert("domain".to_owned(), json!(domain));
    }
    let ours = json!({
        "tier": info.tier, "policy": info.policy, "planDigest": info.plan, "run": info.run,
        "pause": "processes are frozen and kept while the host runs",
    });
    object.insert("fumehood".to_owned(), ours);
}

fn state(info: &Info, object: &mut Map<String, Json>) -> Option<()> {
    let never = info.created_ms.saturating_add(i64::try_from(crate::app::MAX_LIFE_MS).unwrap_or(0));
    let word = match info.state {
        State::Running => "running",
        State::Paused => "paused",
        State::Ended => return None,
    };
    object.insert("startedAt".to_owned(), json!(rfc3339(info.created_ms)));
    object.insert("endAt".to_owned(), json!(rfc3339(labels::ends_ms(info).unwrap_or(never))));
    object.insert("state".to_owned(), json!(word));
    object.insert("cpuCount".to_owned(), json!(cores(info.cpus)));
    object.insert("memoryMB".to_owned(), json!(mib(info.memory_limit)));
    object.insert("diskSizeMB".to_owned(), json!(mib(info.disk_limit)));
    object.insert("metadata".to_owned(), json!(labels::metadata(info)));
    Some(())
}
