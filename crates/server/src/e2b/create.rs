//! `POST /sandboxes` and `POST /v2/sandboxes`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::{Response, StatusCode};
use policy::value::Secret;
use sandbox::PolicyLayer;
use serde_json::{Map, Value as Json};

use super::{headers, network, objects};
use crate::answer::{Problem, json_response};
use crate::app::{AppState, Once, Order, load};
use crate::json;
use crate::keys::Key;
use crate::request::body;
use crate::templates;

/// Seconds of life when none are asked for, in the older interface and in the newer.
const OLD_LIFE: u64 = 15;
const NEW_LIFE: u64 = 300;

/// What we act on, or what is true whatever it says. All else that says something is refused.
const KNOWN: &[&str] = &[
    "templateID",
    "timeout",
    "autoPause",
    "autoPauseMemory",
    "autoResume",
    "allow_internet_access",
    "network",
    "metadata",
    "envVars",
    // Each sandbox has a token.
    "secure",
];

pub(super) async fn old(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    request: Request,
) -> Result<Response<Body>, Problem> {
    create(&app, &key, request, OLD_LIFE).await
}

pub(super) async fn new(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    request: Request,
) -> Result<Response<Body>, Problem> {
    create(&app, &key, request, NEW_LIFE).await
}

async fn create(app: &AppState, key: &Key, request: Request, life: u64) -> Result<Response<Body>, Problem> {
    let once = request.headers().get("idempotency-key").map(|value| value.to_str().unwrap_or_default().to_owned());
    let bytes = body(request).await?;
    let order = order(app, key, &json::object(&bytes)?, life).await?;
    let once = once.as_deref().map(|key| Once { key, body: &bytes });
    let info = app.create(key, order, once).await.map_err(Problem::all)?;
    Ok(json_response(StatusCode::CREATED, &objects::sandbox(app, &info)))
}

async fn order(app: &AppState, key: &Key, asked: &Map<String, Json>, life: u64) -> Result<Order, Problem> {
    let template = json::text(asked, "templateID")?.unwrap_or(templates::BASE);
    // Before the template: clients name one of theirs with some of it, which is not there.
    enforceable(asked)?;
    let base = app.order_of(key, template).await?;
    let seconds = json::number(asked, "timeout")?.unwrap_or(life);
    let wakes = match asked.get("autoResume") {
        Some(Json::Object(table)) => json::flag(table, "enabled")?.unwrap_or(false),
        Some(Json::Null) | None => false,
        Some(_) => return Err(Problem::invalid("autoResume", "`autoResume` is no table")),
    };
    let network = match asked.get("network") {
        Some(Json::Object(table)) => table.clone(),
        Some(_) | None => Map::new(),
    };
    let outside = network::of_new(&network, json::flag(asked, "allow_internet_access")?)?;
    let own = if outside.headers.is_empty() { BTreeMap::new() } else { own_secrets(app, &base.layers).await? };
    headers::beside(&outside.headers, &own).map_err(|problem| problem.below("network"))?;
    let outward = outside.layers(&own.into_keys().collect());
    Ok(Order {
        layers: base.layers.into_iter().chain(outward).collect(),
        headers: headers::given(outside.headers, &app.tokens),
        metadata: json::texts(asked, "metadata")?,
        env: json::variables(asked, "envVars")?,
        life_ms: Some(seconds.saturating_mul(1000)),
        pauses_at_end: json::flag(asked, "autoPause")?.unwrap_or(false),
        wakes,
        private_ports: json::flag(&network, "allowPublicTraffic")? == Some(false),
        ..base
    })
}

/// The secrets that layers have.
async fn own_secrets(app: &AppState, layers: &[PolicyLayer]) -> Result<BTreeMap<String, Secret>, Problem> {
    let (layers, environment) = (layers.to_vec(), Arc::clone(app.environment()));
    let read = tokio::task::spawn_blocking(move || load(&layers, &environment).map(|loaded| loaded.policy.secrets));
    let read = read.await.map_err(|_lost| crate::backend::failed("the template could not be read"))?;
    read.map_err(Problem::all)
}

/// # Errors
/// What nothing here holds.
fn enforceable(asked: &Map<String, Json>) -> Result<(), Problem> {
    let cannot = |clause: &str, what: &str, why: &str, instead: &str| {
        Err(Problem::cannot(StatusCode::BAD_REQUEST, clause, what, why, instead))
    };
    if asked.get("network").is_some_and(|network| !network.is_null() && !network.is_object()) {
        return Err(Problem::invalid("network", "`network` is no table"));
    }
    let parts = [
        (
            "mcp",
            "no MCP gateway runs inside sandboxes of this server",
            "`fumehood mcp serve` stands before MCP servers",
        ),
        ("iam", "this server gives sandboxes no identity", "leave it out"),
        ("volumeMounts", "this server keeps no volumes", "write and read files through the API"),
    ];
    for (clause, why, instead) in parts {
        if json::says(asked, clause) {
            return cannot(clause, &format!("`{clause}` cannot be held"), why, instead);
        }
    }
    if json::flag(asked, "autoPauseMemory")? == Some(false) {
        let why = "a pause here freezes the processes; they keep their memory";
        return cannot("autoPauseMemory", "`autoPauseMemory: false` cannot be held", why, "leave it out");
    }
    json::acted_on(asked, KNOWN)
}
