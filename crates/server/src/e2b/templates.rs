//! What sandboxes can be made from, as E2B lists it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::{Response, StatusCode, Uri};
use live::words::Info;
use policy::value::Limits;
use serde_json::{Value as Json, json};

use super::objects::ENVD;
use crate::answer::{Problem, json_response};
use crate::app::{AppState, load};
use crate::built::{Template, parse_template_name};
use crate::clock::rfc3339;
use crate::keys::Key;
use crate::labels;
use crate::measured::{cores, mib};
use crate::request::Query;

type HttpResult = Result<Response<Body>, Problem>;

pub(super) async fn alias(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(name): Path<String>,
) -> HttpResult {
    let known = key.may_use(&name) && app.templates.names().contains(&name);
    if known {
        return Ok(json_response(StatusCode::OK, &json!({ "templateID": name, "public": true })));
    }
    let word = parse_template_name("alias", &name);
    let built = match &word {
        Ok(word) => app.built(&key, &word.name).await?,
        Err(_) => None,
    };
    let has_tag =
        |built: &Template| word.as_ref().is_ok_and(|word| word.tag.is_none() || built.tagged(word.tag()).is_some());
    if let Some(built) = built.filter(has_tag) {
        return Ok(json_response(StatusCode::OK, &json!({ "templateID": built.id, "public": false })));
    }
    let what = format!("there is no template {}", policy::diagnostic::quote(&name));
    Err(Problem::new(StatusCode::NOT_FOUND, "serve/no-such-template", what, "none has this name", "GET /templates"))
}

/// All that the key may use and that can be read. One that cannot is told to whoever names it.
pub(super) async fn list(State(app): State<Arc<AppState>>, Extension(key): Extension<Key>, uri: Uri) -> HttpResult {
    // There are no teams here.
    Query::of(&uri).known(&["teamID"])?;
    let made = app.list(&key, true).await?;
    let own = app.all_built(&key).await?;
    let all = of_server(&app, &key).await?;
    let shown = all.iter().map(|(name, limits, made_ms)| shown(name, limits, *made_ms, &made));
    let own = own.iter().map(|template| of_key(template, &made));
    Ok(json_response(StatusCode::OK, &shown.chain(own).collect()))
}

/// One of the server's own, which no client built; none where the key may not use one of this name.
pub(super) async fn one_of_server(app: &AppState, key: &Key, name: &str) -> Result<Option<Json>, Problem> {
    let Some((_, limits, made_ms)) = of_server(app, key).await?.into_iter().find(|(known, ..)| known == name) else {
        return Ok(None);
    };
    let mut told = shown(name, &limits, made_ms, &app.list(key, true).await?);
    if let Some(told) = told.as_object_mut() {
        told.insert("builds".to_owned(), json!([]));
    }
    Ok(Some(told))
}

/// Those of the server that a key may use, with their limits and when they were made.
async fn of_server(app: &AppState, key: &Key) -> Result<Vec<(String, Limits, i64)>, Problem> {
    let (templates, environment) = (app.templates.clone(), Arc::clone(app.environment()));
    let (key, since_ms) = (key.clone(), app.since_ms);
    let read = tokio::task::spawn_blocking(move || {
        let limits = |name: &String| {
            let found = templates.find(name).ok()?;
            let policy = load(&found.layers, &environment).ok()?.policy;
            Some((name.clone(), policy.limits, templates.built_ms(name).unwrap_or(since_ms)))
        };
        templates.names().iter().filter(|name| key.may_use(name)).filter_map(limits).collect()
    });
    read.await.map_err(|_lost| crate::backend::failed("the templates could not be read").into())
}

/// One that the key built.
fn of_key(template: &Template, sandboxes: &[Info]) -> Json {
    let of_it = || {
        let its = |info: &&Info| info.template == template.id && !info.labels.contains_key(labels::BUILD);
        sandboxes.iter().filter(its)
    };
    let newest = template.newest();
    json!({
        "templateID": template.id, "buildID": newest.map(|build| build.id.as_str()), "public": false, "names": [template.name],
        "aliases": [template.name], "cpuCount": newest.and_then(|build| build.cpus).unwrap_or_else(|| cores(None)),
        "memoryMB": newest.and_then(|build| build.memory_mib).unwrap_or(0), "diskSizeMB": 0, "envdVersion": ENVD,
        "buildStatus": newest.map(|build| build.phase.as_str()), "buildCount": template.builds.len(), "createdBy": null,
        "spawnCount": of_it().count(), "lastSpawnedAt": of_it().map(|info| info.created_ms).max().map(rfc3339),
        "createdAt": rfc3339(template.created_ms), "updatedAt": rfc3339(template.updated_ms),
    })
}

/// One of them; what is a part of the program was made for this server when it began.
fn shown(name: &str, limits: &Limits, made_ms: i64, sandboxes: &[Info]) -> Json {
    let of_it = || sandboxes.iter().filter(|info| info.template == name);
    let cpus = limits.cpus.map(|cpus| f64::from(cpus.0) / 1000.0);
    json!({
        "templateID": name, "buildID": name, "public": true, "names": [name], "aliases": [name], "cpuCount": cores(cpus),
        "memoryMB": mib(limits.memory.map(|bytes| bytes.0)), "diskSizeMB": mib(limits.disk.map(|bytes| bytes.0)),
        "envdVersion": ENVD, "buildStatus": "ready", "buildCount": 1, "createdBy": null,
        "spawnCount": of_it().count(), "lastSpawnedAt": of_it().map(|info| info.created_ms).max().map(rfc3339),
        "createdAt": rfc3339(made_ms), "updatedAt": rfc3339(made_ms),
    })
}
