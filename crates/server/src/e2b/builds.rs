//! Templates that clients build: what is asked for, what is sent for it, and how far it is.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderMap, Response, StatusCode, Uri, header};
use serde_json::{Map, Value as Json, json};
use tokio_stream::StreamExt as _;

use super::templates;
use crate::answer::{Problem, empty, json_response};
use crate::app::AppState;
use crate::builder::TemplateRequest;
use crate::built::{Build, Entry, Level, MAX_UPLOAD, Template, is_hash, is_id, is_name, no_such, parse_template_name};
use crate::clock::{now_ms, rfc3339};
use crate::envd::pieces;
use crate::json as read;
use crate::keys::Key;
use crate::page::Encrypted;
use crate::record;
use crate::request::{Query, body};
use crate::tokens::Purpose;

/// Most log entries of one answer.
const PAGE: u64 = 100;
/// How long an address for an upload holds, seconds.
const UPLOAD_S: i64 = 3600;
/// Most tags of one request.
const MAX_TAGS: usize = 20;
/// Most processors, and most MiB of memory, that a template may ask for.
const MAX_CPUS: u64 = 1024;
const MAX_MEMORY: u64 = 1 << 22;

type Answer = Result<Response<Body>, Problem>;

/// `POST /v3/templates`
pub(super) async fn wish(State(app): State<Arc<AppState>>, Extension(key): Extension<Key>, request: Request) -> Answer {
    key.must_build()?;
    let asked = read::object(&body(request).await?)?;
    let field = if read::says(&asked, "name") { "name" } else { "alias" };
    read::acted_on(&asked, &["name", "alias", "tags", "cpuCount", "memoryMB", "minFreeDiskMB"])?;
    if read::number(&asked, "minFreeDiskMB")?.is_some_and(|mib| mib > 0) {
        let why = "what a template may hold is `limits.disk` and `fs.tmp` of the one that it begins as";
        let what = "`minFreeDiskMB` cannot be held";
        return Err(Problem::cannot(StatusCode::BAD_REQUEST, "minFreeDiskMB", what, why, "leave it out"));
    }
    let name = parse_template_name(field, read::text(&asked, field)?.unwrap_or_default())?;
    let mut tags = vec![name.tag().to_owned()];
    for tag in tags_of(&asked)? {
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    let bounded = |field: &str, most: u64| {
        let number = read::number(&asked, field)?;
        let odd = || Problem::invalid(field, &format!("`{field}` is no whole number from 1 to {most}"));
        number.map(|number| Some(number).filter(|number| (1..=most).contains(number)).ok_or_else(odd)).transpose()
    };
    let (cpus, memory_mib) = (bounded("cpuCount", MAX_CPUS)?, bounded("memoryMB", MAX_MEMORY)?);
    let (template, build) = app.wish(&key, TemplateRequest { name, tags: tags.clone(), cpus, memory_mib }).await?;
    let told = json!({
        "templateID": template.id, "buildID": build, "public": false, "names": [template.name], "aliases": [template.name],
        "tags": tags,
    });
    Ok(json_response(StatusCode::ACCEPTED, &told))
}

fn tags_of(asked: &Map<String, Json>) -> Result<Vec<String>, Problem> {
    let tags = read::list(asked, "tags")?;
    if tags.len() > MAX_TAGS || !tags.iter().all(|tag| is_name(tag)) {
        let rule = "letters, digits, `_`, `.` and `-` after a letter or digit, 63 at most";
        return Err(Problem::invalid("tags", &format!("there are more than {MAX_TAGS} tags, or one is none: {rule}")));
    }
    Ok(tags)
}

/// `GET /templates/{id}/files/{hash}`: whether it is there, and where it is to be sent.
pub(super) async fn file(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path((id, hash)): Path<(String, String)>,
    request: Request,
) -> Answer {
    key.must_build()?;
    if !is_hash(&hash) {
        return Err(Problem::invalid("hash", "a hash is a SHA-256 in 64 hexadecimal digits"));
    }
    let template = app.built(&key, &id).await?.ok_or_else(|| no_such(&id))?;
    let (of, name) = (template.id.clone(), hash.clone());
    let present = app.in_shelf(move |shelf| Ok(shelf.has_upload(&of, &name))).await?;
    let until = now_ms().div_euclid(1000).saturating_add(UPLOAD_S);
    let signature = app.tokens.of(Purpose::Upload, &signed(&template.id, &hash, until));
    let place = base_of(&request)?;
    let url = format!("{place}/templates/uploads/{}/{hash}?until={until}&signature={signature}", template.id);
    Ok(json_response(StatusCode::CREATED, &json!({ "present": present, "url": url })))
}

fn signed(id: &str, hash: &str, until: i64) -> String {
    format!("{id} {hash} {until}")
}

/// The address that a client has of us.
fn base_of(request: &Request) -> Result<String, Problem> {
    let headers: &HeaderMap = request.headers();
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let host = host.or_else(|| request.uri().authority().map(ToString::to_string));
    let host = host.ok_or_else(|| Problem::invalid("Host", "the request names no host, and an address needs one"))?;
    // Who stands before us tells the client's own scheme; a client that makes it up misleads itself alone.
    let told = headers.get("x-forwarded-proto").is_some_and(|value| value == "https");
    let scheme = if told || request.extensions().get::<Encrypted>().is_some() { "https" } else { "http" };
    Ok(format!("{scheme}://{host}"))
}

/// `PUT /templates/uploads/{id}/{hash}`: whoever has the address may send, once or again, until it is too old.
pub(super) async fn upload(
    State(app): State<Arc<AppState>>,
    Path((id, hash)): Path<(String, String)>,
    uri: Uri,
    request: Request,
) -> Answer {
    let query = Query::of(&uri);
    let until = query.get("until").and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
    let signature = query.get("signature").unwrap_or_default();
    let is_good = is_id(&id) && is_hash(&hash) && app.tokens.is(Purpose::Upload, &signed(&id, &hash, until), signature);
    if !is_good || until < now_ms().div_euclid(1000) {
        let (what, why) = ("the signature is wrong, or too old", "this server signed no such address");
        let instead = "ask for a new address (`GET /templates/ID/files/HASH`)";
        return Err(Problem::new(StatusCode::UNAUTHORIZED, "serve/signature", what, why, instead));
    }
    let of = id.clone();
    let owner = app.in_shelf(move |shelf| shelf.owner(&of)).await?;
    if !app.keys.list().is_ok_and(|keys| keys.iter().any(|key| key.mark() == owner)) {
        let (what, why) = ("the address counts no more", "the key that asked for it was removed");
        return Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "serve/signature",
            what,
            why,
            "ask with a key of this server",
        ));
    }
    let asked = record::AuditedRequest::inside(owner, request.method(), "/templates/uploads", "");
    let asked = record::before(&app, asked)?;
    let answer = received(&app, (id, hash), request).await;
    record::after(asked, answer.as_ref().map_or_else(|problem| problem.status, Response::status));
    answer
}

/// Takes an upload.
async fn received(app: &AppState, (id, hash): (String, String), request: Request) -> Answer {
    let size = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let size = size.ok_or_else(|| {
        let (what, why) = ("an upload says its size", "it has no `Content-Length`");
        Problem::new(StatusCode::LENGTH_REQUIRED, "serve/body", what, why, "send the header")
    })?;
    if size > MAX_UPLOAD {
        let what = format!("an upload of {size} bytes is larger than {MAX_UPLOAD}");
        let (why, instead) = ("what a template copies is bounded", "leave out what it does not need (`.dockerignore`)");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "serve/body", what, why, instead));
    }
    let random = crate::built::new_build_id()?;
    let begun = app.in_shelf(move |shelf| shelf.begin_upload((&id, &hash), (size, &random)));
    let mut upload = begun.await?;
    let mut pieces = pieces(request);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| {
            let why = error.to_string();
            Problem::new(StatusCode::BAD_REQUEST, "serve/body", "the upload cannot be read", &why, "send it again")
        })?;
        upload.take(&piece)?;
    }
    app.in_shelf(move |shelf| shelf.finish_upload(&upload)).await?;
    Ok(empty(StatusCode::OK))
}

/// `POST /v2/templates/{id}/builds/{build}`
pub(super) async fn begin(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path((id, build)): Path<(String, String)>,
    request: Request,
) -> Answer {
    let asked = read::object(&body(request).await?)?;
    app.begin_build(&key, (&id, &build), &asked).await?;
    Ok(empty(StatusCode::ACCEPTED))
}

/// `GET /templates/{id}/builds/{build}/status`
pub(super) async fn status(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path((id, build)): Path<(String, String)>,
    uri: Uri,
) -> Answer {
    let query = Query::of(&uri);
    query.known(&["logsOffset", "limit", "level"])?;
    let offset = usize::try_from(query.whole("logsOffset")?.unwrap_or(0)).unwrap_or(usize::MAX);
    let limit = query.whole("limit")?.unwrap_or(PAGE).min(PAGE);
    let least = match query.get("level").filter(|text| !text.is_empty()) {
        None => Level::Debug,
        Some(text) => Level::parse(text)
            .ok_or_else(|| Problem::invalid("level", "`level` is `debug`, `info`, `warn` or `error`"))?,
    };
    let (template, build, said) = app.build_of(&key, (&id, &build)).await?;
    let chosen: Vec<Json> = said
        .iter()
        .filter(|entry| entry.level >= least)
        .skip(offset)
        .take(usize::try_from(limit).unwrap_or(usize::MAX))
        .map(shown_entry)
        .collect();
    let mut told = json!({
        "templateID": template.id, "buildID": build.id, "status": build.phase.as_str(), "logs": [], "logEntries": chosen,
    });
    if let (Some(reason), Some(told)) = (&build.reason, told.as_object_mut()) {
        let of_step: Vec<Json> = said
            .iter()
            .filter(|entry| entry.step == reason.step && entry.level >= Level::Warn)
            .map(shown_entry)
            .collect();
        let mut shown = json!({ "message": reason.message, "logEntries": of_step });
        if let Some(shown) = shown.as_object_mut().filter(|_| !reason.step.is_empty()) {
            shown.insert("step".to_owned(), json!(reason.step));
        }
        told.insert("reason".to_owned(), shown);
    }
    Ok(json_response(StatusCode::OK, &told))
}

fn shown_entry(entry: &Entry) -> Json {
    let Entry { at_ms, level, message, step } = entry;
    json!({ "timestamp": rfc3339(*at_ms), "level": level.as_str(), "message": message, "step": step })
}

/// `GET /templates/{id}`
pub(super) async fn one(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
) -> Answer {
    let Some(template) = app.built(&key, &id).await? else {
        let told = templates::one_of_server(&app, &key, &id).await?.ok_or_else(|| no_such(&id))?;
        return Ok(json_response(StatusCode::OK, &told));
    };
    let builds: Vec<Json> = template.builds.iter().rev().map(shown_build).collect();
    let told = json!({
        "templateID": template.id, "public": false, "names": [template.name], "aliases": [template.name], "builds": builds,
        "createdAt": rfc3339(template.created_ms), "updatedAt": rfc3339(template.updated_ms), "spawnCount": 0,
        "lastSpawnedAt": null,
    });
    Ok(json_response(StatusCode::OK, &told))
}

fn shown_build(build: &Build) -> Json {
    let ended = build.ended_ms.map(rfc3339);
    json!({
        "buildID": build.id, "status": build.phase.as_str(), "createdAt": rfc3339(build.created_ms),
        "updatedAt": ended.clone().unwrap_or_else(|| rfc3339(build.created_ms)), "finishedAt": ended,
        "cpuCount": build.cpus.unwrap_or(0), "memoryMB": build.memory_mib.unwrap_or(0), "envdVersion": super::objects::ENVD,
    })
}

/// `GET /templates/{id}/tags`
pub(super) async fn tags(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
) -> Answer {
    let template: Template = app.built(&key, &id).await?.ok_or_else(|| no_such(&id))?;
    let shown = template
        .tags
        .iter()
        .map(|(name, tag)| json!({ "tag": name, "buildID": tag.build, "createdAt": rfc3339(tag.at_ms) }));
    Ok(json_response(StatusCode::OK, &shown.collect()))
}

/// `POST /templates/tags`
pub(super) async fn tag(State(app): State<Arc<AppState>>, Extension(key): Extension<Key>, request: Request) -> Answer {
    let asked = read::object(&body(request).await?)?;
    read::acted_on(&asked, &["target", "tags"])?;
    let (target, tags) = (read::text(&asked, "target")?.unwrap_or_default(), tags_of(&asked)?);
    let build = app.tag(&key, target, tags.clone()).await?;
    Ok(json_response(StatusCode::CREATED, &json!({ "buildID": build, "tags": tags })))
}

/// `DELETE /templates/tags`
pub(super) async fn untag(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    request: Request,
) -> Answer {
    let asked = read::object(&body(request).await?)?;
    read::acted_on(&asked, &["name", "tags"])?;
    app.untag(&key, read::text(&asked, "name")?.unwrap_or_default(), tags_of(&asked)?).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
