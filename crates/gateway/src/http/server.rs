//! The routes of the front door, and serving them.
//!
//! The order is part of the promise: Host and Origin before the token, the token before the path, the path before the
//! body. So a page learns nothing at all, and who shows no token learns nothing but that one is wanted.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::admission::{admit, not_theirs};
use super::answer::{Problem, good, no_random, not_found};
use super::extract::{Action, Agent, JsonBody};
use super::keys::Keys;
use super::listener::{HttpListener, Peer};
use super::{approvals, tools};
use crate::engine::Engine;

/// How long requests on their way are waited for at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// What the requests of a listener share.
#[derive(Clone, Debug)]
pub(super) struct ServerState {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) keys: Arc<Keys>,
    pub(super) origins: Arc<[String]>,
    pub(super) port: Option<u16>,
}

/// Serves until `stop` is done; requests that are on their way then have two seconds more. `origins` are the pages that
/// may send requests: none, unless told.
///
/// # Errors
/// What the kernel answers.
pub async fn serve(
    listener: HttpListener,
    engine: Arc<dyn Engine>,
    keys: Keys,
    origins: Vec<String>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let state = ServerState { engine, keys: Arc::new(keys), origins: origins.into(), port: listener.port() };
    let (connections, stopped) = (listener.connections(), CancellationToken::new());
    let last = stopped.clone();
    let until = async move {
        stop.await;
        stopped.cancel();
    };
    let late = async {
        last.cancelled().await;
        // Who has said nothing yet, or nothing more, is not waited for.
        connections.close();
        tokio::time::sleep(SHUTDOWN_TIMEOUT).await;
    };
    let service = router(state).into_make_service_with_connect_info::<Peer>();
    tokio::select! {
        served = axum::serve(listener, service).with_graceful_shutdown(until) => served,
        () = late => Ok(()),
    }
}

fn router(state: ServerState) -> Router {
    Router::new()
        .route("/v1/sessions", post(new_session))
        .route("/v1/sessions/{*action}", post(end_session))
        .route("/v1/tools", get(tools::list))
        .route("/v1/tools/{*action}", post(tools::check_or_call))
        .merge(approvals::routes())
        .method_not_allowed_fallback(unrouted)
        .fallback(unrouted)
        .layer(from_fn_with_state(state.clone(), admit))
        .with_state(state)
}

pub(super) async fn unrouted(uri: Uri) -> Problem {
    not_found(uri.path())
}

/// Gives out a session.
async fn new_session(
    State(state): State<ServerState>,
    Agent(caller): Agent,
    _: JsonBody,
) -> Result<Response<Body>, Problem> {
    let session = state.keys.new_session(&caller.agent).ok_or_else(no_random)?;
    Ok(good(&json!({ "session": session })))
}

/// Ends one that was given to this agent.
async fn end_session(
    State(state): State<ServerState>,
    Agent(mut caller): Agent,
    Action { name, verb }: Action,
    uri: Uri,
    _: JsonBody,
) -> Result<Response<Body>, Problem> {
    if verb != "end" {
        return Err(not_found(uri.path()));
    }
    if !state.keys.is_session(&caller.agent, &name) {
        return Err(not_theirs());
    }
    caller.session = name.clone();
    state.engine.end_session(&caller).await;
    Ok(good(&json!({ "ended": name })))
}
