//! `/v1/sandboxes`: creating, finding, ending, pausing.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::{Response, StatusCode, Uri};
use live::words::{Info, State as Doing};
use policy::{ClauseId, Millis};
use sandbox::PolicyLayer;
use serde_json::{Map, Value as Json, json};

use super::sandbox::{Known, Living};
use super::{HttpResult, Refused, body, yes};
use crate::answer::{Problem, json_response};
use crate::app::{AppState, MAX_LIFE_MS, Once, Order, Part, life_said, may_live};
use crate::keys::Key;
use crate::request::Query;
use crate::{json as read, labels, templates};

/// Fields of a request.
const KNOWN: &[&str] = &["policy", "name", "timeout", "idle", "from", "template", "labels", "env", "imports"];

/// A sandbox as this interface shows it.
pub(super) fn shown(info: &Info) -> Json {
    let mut json = serde_json::to_value(info).unwrap_or(Json::Null);
    if let Some(map) = json.as_object_mut() {
        map.insert("labels".to_owned(), json!(labels::metadata(info)));
        map.insert("ends_ms".to_owned(), json!(labels::ends_ms(info)));
    }
    json
}

fn answer(status: StatusCode, info: &Info) -> Response<Body> {
    json_response(status, &shown(info))
}

pub(super) async fn create(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    request: Request,
) -> HttpResult {
    let once = request.headers().get("idempotency-key").map(|value| value.to_str().unwrap_or_default().to_owned());
    let bytes = body(request).await?;
    let asked = read::object(&bytes)?;
    read::known(&asked, KNOWN)?;
    let order = order(&app, &key, &asked).await?;
    let once = once.as_deref().map(|key| Once { key, body: &bytes });
    let info = app.create(&key, order, once).await.map_err(Refused)?;
    Ok(answer(StatusCode::CREATED, &info))
}

/// What a request for a sandbox says.
pub(super) async fn order(app: &AppState, key: &Key, asked: &Map<String, Json>) -> Result<Order, Problem> {
    let template = read::text(asked, "template")?.unwrap_or_default();
    let from = read::text(asked, "from")?.unwrap_or_default();
    let mut base = match (from, template, asked.get("policy")) {
        ("", "", None | Some(Json::Null)) => made(templates::BASE, app.templates.find(templates::BASE)?),
        ("", "", Some(policy)) => {
            let found = app.templates.of_policy(policy.as_str())?;
            found.map_or_else(Order::default, |(template, layers)| made(template, layers))
        }
        ("", template, _) => app.order_of(key, template).await?,
        (from, "", _) => app.order_from(&app.snapshot_of(key, from).await?)?,
        (_, _, _) => {
            let what = "both `from` and `template`: a snapshot has the template that its sandbox had";
            return Err(Problem::invalid("from", what));
        }
    };
    let mut life_ms = duration(asked, "timeout")?;
    match asked.get("policy") {
        None | Some(Json::Null) => {}
        Some(policy) => {
            let mut layers = layers_of(policy)?;
            life_ms = life_ms.or_else(|| life_said(&layers));
            if from.is_empty() && template.is_empty() && wants_folder(policy) {
                // Behind the preset, which comes first.
                layers.splice(1..1, app.templates.workspace());
            }
            base.layers.extend(layers);
        }
    }
    // What the caller says goes before how long the sandbox of a snapshot was to live, and that before its policy.
    let life_ms = app.life_of(life_ms.or(base.life_ms), &base.layers).await?;
    Ok(Order {
        imports: read::says(asked, "imports").then(|| read::list(asked, "imports")).transpose()?.or(base.imports),
        name: read::text(asked, "name")?.map(str::to_owned),
        metadata: read::texts(asked, "labels")?,
        env: read::variables(asked, "env")?,
        life_ms,
        idle_ms: duration(asked, "idle")?.or(base.idle_ms),
        ..base
    })
}

fn made(template: &str, made: templates::TemplateLayers) -> Order {
    Order { template: template.to_owned(), layers: made.layers, shown: made.shown, root: made.root, ..Order::default() }
}

/// Whether a policy is a preset's whose workspace is the folder of whoever calls, and names no other: a server has none of
/// theirs, and gives an empty one.
fn wants_folder(policy: &Json) -> bool {
    let name =
        policy.as_str().or_else(|| policy.get("extends")?.as_str().filter(|_| policy.get("workspace").is_none()));
    let preset = name.and_then(policy::presets::preset);
    preset.is_some_and(|preset| preset.text.lines().any(|line| line.starts_with("path = \".\"")))
}

/// `"10m"`, or seconds; as milliseconds.
pub(super) fn duration(asked: &Map<String, Json>, field: &str) -> Result<Option<u64>, Problem> {
    let ms = match asked.get(field) {
        Some(Json::String(text)) => {
            let parsed =
                Millis::parse(text).map_err(|error| Problem::invalid(field, &format!("`{field}`: {}", error.why)))?;
            Some(parsed.0)
        }
        Some(Json::Number(number)) => {
            let seconds = number.as_f64().filter(|seconds| (0.0..1.0e9).contains(seconds));
            let seconds =
                seconds.ok_or_else(|| Problem::invalid(field, &format!("`{field}` is no time in seconds")))?;
            u64::try_from(std::time::Duration::from_secs_f64(seconds).as_millis()).ok()
        }
        None | Some(Json::Null) => None,
        Some(_) => return Err(Problem::invalid(field, &format!("`{field}` is no time"))),
    };
    if ms == Some(0) {
        return Err(Problem::invalid(field, &format!("`{field}` is no time: the least is 1ms")));
    }
    if ms.is_some_and(|ms| ms > MAX_LIFE_MS) {
        return Err(Problem::invalid(field, &format!("`{field}` is longer than {MAX_LIFE_MS} ms")));
    }
    Ok(ms)
}

/// A policy of a caller: the name of a preset, or a table of clauses that may `extends` one. No path of this machine is read.
fn layers_of(policy: &Json) -> Result<Vec<PolicyLayer>, Problem> {
    let preset = |name: &str| match policy::presets::preset(name) {
        Some(preset) => Ok(PolicyLayer::Document(preset.name.to_owned())),
        None => {
            let what = format!("{} is no preset", policy::diagnostic::quote(name));
            Err(Problem::invalid("policy", &what))
        }
    };
    match policy {
        Json::String(name) => Ok(vec![preset(name)?]),
        Json::Object(table) => {
            if let Some(path) = null_in("", policy) {
                let what = format!("{} is null, which is the value of no clause", policy::diagnostic::quote(&path));
                return Err(Problem::invalid(&path, &what));
            }
            if let Some(version) = table.get("version").filter(|version| version.as_u64() != Some(1)) {
                let what = format!("`version` is {version}, and this server reads version 1");
                return Err(Problem::invalid("version", &what));
            }
            let mut layers = Vec::new();
            if let Some(name) = read::text(table, "extends")? {
                layers.push(preset(name)?);
            }
            let clauses = table.iter().filter(|(key, _)| !matches!(key.as_str(), "extends" | "version"));
            for (key, value) in clauses {
                lay(key, value, &mut layers)?;
            }
            Ok(layers)
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) => {
            Err(Problem::invalid("policy", "`policy` is the name of a preset or a table of clauses"))
        }
    }
}

/// Where a policy says null, by the path of the clause; none where it does not.
fn null_in(path: &str, value: &Json) -> Option<String> {
    match value {
        Json::Null => Some(path.to_owned()),
        Json::Object(table) => table.iter().find_map(|(key, value)| {
            let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            null_in(&below, value)
        }),
        Json::Array(list) => list.iter().find_map(|value| null_in(path, value)),
        Json::Bool(_) | Json::Number(_) | Json::String(_) => None,
    }
}

/// Whether clauses lie below this word, which is none itself: `limits`.
fn is_group(path: &str) -> bool {
    let is_below = |id: &ClauseId| id.path().strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    ClauseId::ALL.iter().any(is_below)
}

/// Each clause with the whole of its value as `--set CLAUSE=VALUE`, so that it is read as in a document: an empty table says
/// something (`commands = {}` lets nothing run), and a secret is one by all of its parts. What is no clause is laid as well, and
/// refused by whoever reads it.
fn lay(path: &str, value: &Json, layers: &mut Vec<PolicyLayer>) -> Result<(), Problem> {
    if path.split('.').count() > 6 || path.contains(['=', '\n']) || path.trim() != path {
        return Err(Problem::invalid("policy", &format!("{} is no clause", policy::diagnostic::quote(path))));
    }
    match value {
        Json::Object(table) if is_group(path) => {
            for (key, value) in table {
                lay(&format!("{path}.{key}"), value, layers)?;
            }
        }
        // A flag for each: its record keeps the name, and not the value.
        Json::Object(table) if path == "env.set" => {
            for (name, value) in table {
                let text = value.as_str().filter(|_| !name.contains('='));
                let what = "a variable has a name without `=`, and a text as its value";
                let text = text.ok_or_else(|| Problem::invalid("env.set", what))?;
                layers.push(PolicyLayer::Flag { name: "--env".to_owned(), value: format!("{name}={text}") });
            }
        }
        Json::String(proxy) if path == ClauseId::NetProxy.path() && proxy.contains('@') => return Err(no_login()),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Array(_) | Json::Object(_) => {
            layers.push(PolicyLayer::Set(format!("{path}={}", written(value))));
        }
    }
    Ok(())
}

/// Whether it is the ceiling's is not told: who holds a key could ask until one is.
fn no_login() -> Problem {
    let what = "`net.proxy` with a login goes beyond what this key may ask for";
    let why =
        "the login of a proxy is said by who keeps the server, in the document of a template, and is nobody's to guess";
    let instead = "name the proxy without a login, or use a template whose document has it";
    Problem::new(StatusCode::FORBIDDEN, "serve/beyond-ceiling", what, why, instead).about(ClauseId::NetProxy.path())
}

/// A value as TOML, which differs from JSON in tables: rules of the network are some.
fn written(value: &Json) -> String {
    match value {
        Json::Object(table) => {
            let parts: Vec<String> = table
                .iter()
                .map(|(key, value)| format!("{} = {}", policy::json::toml_text(key), written(value)))
                .collect();
            format!("{{ {} }}", parts.join(", "))
        }
        Json::Array(list) => format!("[{}]", list.iter().map(written).collect::<Vec<_>>().join(", ")),
        Json::String(text) => policy::json::toml_text(text),
        Json::Null | Json::Bool(_) | Json::Number(_) => value.to_string(),
    }
}

pub(super) async fn list(State(app): State<Arc<AppState>>, Extension(key): Extension<Key>, uri: Uri) -> HttpResult {
    let ended = yes(&Query::of(&uri), "all")?;
    let all: Vec<Json> = app.list(&key, ended).await?.iter().map(shown).collect();
    Ok(json_response(StatusCode::OK, &json!({ "sandboxes": all })))
}

pub(super) async fn one(State(app): State<Arc<AppState>>, Known(info): Known) -> HttpResult {
    if info.state == Doing::Ended {
        return Ok(answer(StatusCode::OK, &info));
    }
    let now = crate::backend::call::<Info>(&*app.sandboxes, &info.id, &live::words::Ask::Info {}).await;
    Ok(answer(StatusCode::OK, &now.unwrap_or(info)))
}

pub(super) async fn kill(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Known(info): Known,
) -> HttpResult {
    if info.state != Doing::Ended {
        app.kill(&info.id).await?;
    }
    let ended = app.own_or_ended(&key, &info.id).await.unwrap_or(info);
    Ok(answer(StatusCode::OK, &ended))
}

pub(super) async fn pause(State(app): State<Arc<AppState>>, Living(info): Living) -> HttpResult {
    let info = if info.state == Doing::Paused { info } else { app.pause(&info.id).await? };
    Ok(answer(StatusCode::OK, &info))
}

pub(super) async fn resume(State(app): State<Arc<AppState>>, Living(info): Living, request: Request) -> HttpResult {
    let asked = read::object(&body(request).await?)?;
    read::known(&asked, &["timeout"])?;
    let life = duration(&asked, "timeout")?;
    if let Some(life) = life {
        may_live(&info, life)?;
    }
    let info = if info.state == Doing::Paused { app.resume(&info, life).await? } else { info };
    Ok(answer(StatusCode::OK, &info))
}

pub(super) async fn timeout(State(app): State<Arc<AppState>>, Living(info): Living, request: Request) -> HttpResult {
    let asked = read::object(&body(request).await?)?;
    read::known(&asked, &["timeout"])?;
    let life = duration(&asked, "timeout")?.ok_or_else(|| Problem::invalid("timeout", "`timeout` is missing"))?;
    may_live(&info, life)?;
    let info = app.set_end(&info, life, false).await?;
    Ok(answer(StatusCode::OK, &info))
}

/// Other rules for its network: the `net` of a policy, whose `secrets` are as they were; its other clauses are not looked at.
pub(super) async fn network(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Living(info): Living,
    request: Request,
) -> HttpResult {
    let asked = read::object(&body(request).await?)?;
    read::known(&asked, &["policy"])?;
    let policy = asked.get("policy").ok_or_else(|| Problem::invalid("policy", "`policy` is missing"))?;
    let digest = app.set_rules(&key, &info, (layers_of(policy)?, Part::All)).await.map_err(Refused)?;
    Ok(json_response(StatusCode::OK, &json!({ "sandbox": info.id, "digest": digest })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_about_the_callers_folder_is_given_one() {
        for (policy, wants) in [
            (json!("coding-agent"), true),
            (json!({ "extends": "coding-agent", "limits": { "pids": 7 } }), true),
            (json!({ "extends": "coding-agent", "workspace": { "path": "/srv" } }), false),
            (json!("strict"), false),
            (json!({ "limits": { "pids": 7 } }), false),
        ] {
            assert_eq!(wants_folder(&policy), wants, "{policy}");
        }
    }

    #[test]
    fn a_policy_is_a_preset_or_clauses_and_names_no_file() {
        let set = |text: &str| PolicyLayer::Set(text.to_owned());
        assert_eq!(layers_of(&json!("strict")).unwrap(), [PolicyLayer::Document("strict".to_owned())]);
        let clauses = json!({
            "extends": "python", "limits": { "memory": "1G", "pids": 7 }, "syscalls": { "deny": ["ptrace"] }, "env": { "set": { "A.B": "1=2" } },
        });
        let expected = [
            PolicyLayer::Document("python".to_owned()),
            set("limits.memory=\"1G\""),
            set("limits.pids=7"),
            set("syscalls.deny=[\"ptrace\"]"),
            PolicyLayer::Flag { name: "--env".to_owned(), value: "A.B=1=2".to_owned() },
        ];
        assert_eq!(layers_of(&clauses).unwrap(), expected);
        let rules = json!({ "net": { "allow": [{ "host": "a.test", "ports": [80] }, "b.test"] } });
        let rules = layers_of(&rules).unwrap();
        assert_eq!(rules, [set("net.allow=[{ \"host\" = \"a.test\", \"ports\" = [80] }, \"b.test\"]")]);
        for bad in [json!("/etc/policy.toml"), json!({ "extends": "./a.toml" }), json!(7), json!({ "a=b": 1 })] {
            assert!(layers_of(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_policy_says_is_read_whole_or_refused_by_its_clause() {
        for (clauses, expected) in [
            (json!({ "commands": {} }), "commands={  }"),
            (json!({ "limits": { "memory": {} } }), "limits.memory={  }"),
            (json!({ "bogus": {} }), "bogus={  }"),
            (
                json!({ "secrets": { "api": { "from": "env:X", "hosts": ["a.test"] } } }),
                "secrets={ \"api\" = { \"from\" = \"env:X\", \"hosts\" = [\"a.test\"] } }",
            ),
            (json!({ "version": 1, "name": "a\u{7f}" }), "name=\"a\\u007f\""),
        ] {
            assert_eq!(layers_of(&clauses).unwrap(), [PolicyLayer::Set(expected.to_owned())], "{clauses}");
        }
        assert!(layers_of(&json!({ "limits": {}, "env": { "set": {} } })).unwrap().is_empty(), "nothing is said");
        for (bad, clause) in [
            (json!({ "version": 99 }), "version"),
            (json!({ "version": "1" }), "version"),
            (json!({ "bogus": null }), "bogus"),
            (json!({ "extends": null }), "extends"),
            (json!({ "limits": { "memory": null } }), "limits.memory"),
            (json!({ "net": { "allow": [{ "host": "a.test", "ports": null }] } }), "net.allow.ports"),
            (json!({ "env": { "set": { "A=B": "x" } } }), "env.set"),
            (json!({ "env": { "set": { "A": 1 } } }), "env.set"),
        ] {
            let problem = layers_of(&bad).unwrap_err();
            assert_eq!((problem.status, &*problem.clause), (StatusCode::BAD_REQUEST, clause), "{bad}");
        }
    }

    /// Before anybody looks whether it is the right one.
    #[test]
    fn a_login_of_a_proxy_is_no_word_of_a_keys_policy() {
        let with = "http://joe:right@proxy.test:3128";
        let problem = layers_of(&json!({ "net": { "mode": "allow", "proxy": with } })).unwrap_err();
        assert_eq!((problem.status, &*problem.clause), (StatusCode::FORBIDDEN, "net.proxy"));
        assert_eq!(&*problem.id, "serve/beyond-ceiling");
        assert!(!format!("{problem:?}").contains("joe"), "{problem:?}");
        assert_eq!(layers_of(&json!({ "net.proxy": with })).unwrap_err().status, StatusCode::FORBIDDEN);
        for spaced in [
            json!({ "net": { "proxy ": with } }),
            json!({ " net": { "proxy": with } }),
            json!({ "net": { "": { "proxy": with } } }),
        ] {
            let laid = layers_of(&spaced).ok();
            let read = laid.map(|laid| {
                crate::app::load(
                    &laid,
                    &sandbox::Environment { cwd: Some("/".into()), ..sandbox::Environment::default() },
                )
            });
            assert!(read.is_none_or(|read| read.is_err()), "{spaced}");
        }
        assert_eq!(layers_of(&json!({ "net": { "proxy": "http://proxy.test:3128" } })).unwrap().len(), 1);
    }
}
