//! One request: where it may come from, who sends it, what it wants.
//!
//! The order is part of the promise: Host and Origin before the token, the token before the path, the path before the
//! body. So a page learns nothing at all, and a stranger learns nothing but that a token is wanted.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use axum::routing::any;
use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;

use super::answer::Problem;
use super::door::{Door, Peer};
use super::guests::Owner;
use super::keys::{Keys, Who};
use super::{Engine, approvals, names_one_host, tools};
use crate::call::Caller;
use crate::json;

/// Largest body.
const MOST_BODY: usize = 8 << 20;
/// How long a body may take to arrive.
const SLOW: Duration = Duration::from_secs(30);
/// How long requests on their way are waited for at the end.
const GRACE: Duration = Duration::from_secs(2);

/// What the requests of a door share.
#[derive(Clone, Debug)]
pub(super) struct Desk {
    pub(super) engine: Arc<dyn Engine>,
    keys: Arc<Keys>,
    origins: Arc<[String]>,
    port: Option<u16>,
}

/// Serves a door until `stop` is done; requests that are on their way then have two seconds more. `origins` are the pages that
/// may send requests: none, unless told.
///
/// # Errors
/// What the kernel answers.
pub async fn desk(
    door: Door,
    engine: Arc<dyn Engine>,
    keys: Keys,
    origins: Vec<String>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let desk = Desk { engine, keys: Arc::new(keys), origins: origins.into(), port: door.port() };
    let router = Router::new().fallback(any(serve)).with_state(desk);
    let (guests, stopped) = (door.guests(), CancellationToken::new());
    let last = stopped.clone();
    let until = async move {
        stop.await;
        stopped.cancel();
    };
    let late = async {
        last.cancelled().await;
        // Who has said nothing yet, or nothing more, is not waited for.
        guests.close();
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = axum::serve(door, router.into_make_service_with_connect_info::<Peer>()).with_graceful_shutdown(until) => served,
        () = late => Ok(()),
    }
}

async fn serve(
    State(desk): State<Desk>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request<Body>,
) -> Response<Body> {
    match desk.answer(&peer, request).await {
        Ok(response) => response,
        Err(problem) => problem.respond(),
    }
}

impl Desk {
    async fn answer(&self, peer: &Peer, request: Request<Body>) -> Result<Response<Body>, Problem> {
        let (head, body) = request.into_parts();
        self.host(&head.headers, &head.uri)?;
        self.origin(&head.headers)?;
        let who = self.who(&head.headers)?;
        let owner = match &who {
            Who::Agent(caller) => Owner::Agent(caller.agent.clone()),
            Who::Person => Owner::People,
        };
        let _stays = peer.shows(owner).ok_or_else(crowded)?;
        let path = head.uri.path().to_owned();
        let query = head.uri.query().unwrap_or_default().to_owned();
        let session = self.session(&head.headers, &who)?;
        let body = match head.method {
            Method::GET => Json::Null,
            Method::POST => read_body(&head.headers, body).await?,
            _ => return Err(not_here("this method")),
        };
        let is_get = head.method == Method::GET;
        match (who, path.strip_prefix("/v1/").unwrap_or_default()) {
            (Who::Agent(caller), rest) if (rest == "sessions" || rest.starts_with("sessions/")) && !is_get => {
                self.sessions(rest.strip_prefix("sessions").unwrap_or_default(), caller).await
            }
            (Who::Agent(mut caller), rest) if rest == "tools" || rest.starts_with("tools/") => {
                caller.session = session;
                tools::answer(self, rest.strip_prefix("tools").unwrap_or("-"), is_get, body, &caller).await
            }
            (Who::Person, rest) if rest == "approvals" || rest.starts_with("approvals/") => {
                let rest = rest.strip_prefix("approvals").unwrap_or_default();
                approvals::answer(self, rest, &query, is_get, body).await
            }
            (Who::Agent(_), rest) if rest.starts_with("approvals") => Err(Problem::new(
                StatusCode::FORBIDDEN,
                "tools.http/not-yours",
                "this token answers nothing",
                "whoever calls tools may not agree to the calls",
                "people use the token in `approvals.token`",
            )),
            (Who::Agent(_) | Who::Person, _) => Err(not_here(&path)),
        }
    }

    /// Gives out a session, or ends one that was given to this agent.
    async fn sessions(&self, rest: &str, mut caller: Caller) -> Result<Response<Body>, Problem> {
        if rest.is_empty() {
            let session = self.keys.new_session(&caller.agent).ok_or_else(no_random)?;
            return Ok(super::answer::good(&serde_json::json!({ "session": session })));
        }
        let Some(named) = rest.strip_prefix('/').and_then(|rest| rest.strip_suffix(":end")) else {
            return Err(not_here(&format!("/v1/sessions{rest}")));
        };
        if !self.keys.is_session(&caller.agent, named) {
            return Err(not_theirs());
        }
        caller.session = named.to_owned();
        self.engine.end_session(&caller).await;
        Ok(super::answer::good(&serde_json::json!({ "ended": named })))
    }

    /// A name that resolves to the loopback is no reason to answer: only our own names are.
    fn host(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        let hosts: Vec<_> = headers.get_all(header::HOST).iter().collect();
        let good = match (hosts.as_slice(), self.port) {
            ([host], Some(port)) => {
                let names = ["127.0.0.1", "localhost", "[::1]"];
                let is_ours = |name: &&str| host.as_bytes() == format!("{name}:{port}").as_bytes();
                names.iter().any(is_ours) || (port == 80 && names.iter().any(|name| host.as_bytes() == name.as_bytes()))
            }
            // Over a Unix socket no browser comes; its name is whatever the client writes there, but one.
            ([_], None) => true,
            ([] | [_, _, ..], _) => false,
        };
        if good && names_one_host(headers, uri) {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "tools.http/host",
            "the Host header names another host",
            "a page whose name was made to resolve to this machine sends its own name",
            "call 127.0.0.1, localhost or [::1], with the port",
        ))
    }

    fn origin(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let allowed = |origin: &header::HeaderValue| self.origins.iter().any(|one| one.as_bytes() == origin.as_bytes());
        let own_site = |site: &header::HeaderValue| matches!(site.as_bytes(), b"none" | b"same-origin");
        let good = headers.get_all(header::ORIGIN).iter().all(allowed)
            && (headers.contains_key(header::ORIGIN) || headers.get_all("sec-fetch-site").iter().all(own_site));
        if good {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::FORBIDDEN,
            "tools.http/origin",
            "the request comes from a page",
            "a page that somebody looks at must not call tools or answer for them",
            "`--allow-origin` names pages that may",
        ))
    }

    fn who(&self, headers: &HeaderMap) -> Result<Who, Problem> {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let token = match (given.next().and_then(|value| value.to_str().ok()), given.next()) {
            (Some(one), None) => one.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")),
            (Some(_) | None, _) => None,
        };
        token.and_then(|(_, token)| self.keys.who(token.trim())).ok_or_else(|| {
            Problem::new(
                StatusCode::UNAUTHORIZED,
                "tools.http/token",
                "no good token",
                "other users and programs of this machine can reach the port as well",
                "send `Authorization: Bearer TOKEN`; `fumehood tools serve` says where the token lies",
            )
        })
    }

    /// The session that a header names, if we gave it out to this agent; else the agent's own.
    fn session(&self, headers: &HeaderMap, who: &Who) -> Result<String, Problem> {
        let Who::Agent(caller) = who else { return Ok(String::new()) };
        let mut given = headers.get_all("fumehood-session").iter();
        let one = match (given.next(), given.next()) {
            (None, _) => return Ok(format!("http {}", caller.agent)),
            (Some(one), None) => one.to_str().ok(),
            (Some(_), Some(_)) => None,
        };
        one.filter(|session| self.keys.is_session(&caller.agent, session)).map(str::to_owned).ok_or_else(not_theirs)
    }
}

fn not_theirs() -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "tools.http/session",
        "the session is not one of this agent",
        "approvals and limits belong to a session, so its name cannot be made up",
        "`POST /v1/sessions` gives one",
    )
}

async fn read_body(headers: &HeaderMap, body: Body) -> Result<Json, Problem> {
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    let too_large = || {
        let what = "the body is too large, or broke off";
        let (why, fix) = ("8 MiB is the most that is read", "send less");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "tools.http/too-large", what, why, fix)
    };
    // What says that it is too large is not waited for.
    if HttpBody::size_hint(&body).lower() > u64::try_from(MOST_BODY).unwrap_or(u64::MAX) {
        return Err(too_large());
    }
    let read = tokio::time::timeout(SLOW, axum::body::to_bytes(body, MOST_BODY)).await;
    let bytes = match read {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => return Err(too_large()),
        Err(_) => {
            let (why, fix) = ("a body must arrive within 30 s", "send it faster");
            return Err(Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "tools.http/slow",
                "the body does not come",
                why,
                fix,
            ));
        }
    };
    if bytes.is_empty() {
        return Ok(Json::Null);
    }
    if !media.eq_ignore_ascii_case("application/json") {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "tools.http/type",
            "the body is not said to be JSON",
            "a form of a page can send other types without asking",
            "send `Content-Type: application/json`",
        ));
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let what = format!("the body is no UTF-8 at byte {}", error.valid_up_to());
        Problem::new(StatusCode::BAD_REQUEST, "tools.http/body", what, "JSON is UTF-8", "send UTF-8")
    })?;
    json::read(text).map_err(|flaw| {
        let what = format!("{} at byte {}", flaw.what, flaw.at);
        Problem::new(StatusCode::BAD_REQUEST, flaw.id, what, flaw.why, flaw.fix)
    })
}

pub(super) fn not_here(what: &str) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "tools.http/no-such",
        format!("nothing answers {} here", policy::mistake::quote(what)),
        "the path, or the method for this path, is not one of the contract",
        "docs/reference/http.md lists them",
    )
}

fn crowded() -> Problem {
    let what = format!("{} requests of this token are on their way", super::guests::MOST_OF_ONE);
    let (why, fix) = ("each token has places of its own, so that no agent keeps others outside", "wait for answers");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "tools.http/crowded", what, why, fix)
}

fn no_random() -> Problem {
    let (why, fix) = ("the kernel gave no random bytes", "let the system call `getrandom` through");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "tools.http/no-random", "no session can be made", why, fix)
}

/// The fields of a body, and nothing else.
pub(super) fn fields<'a>(body: &'a Json, known: &[&str]) -> Result<&'a serde_json::Map<String, Json>, Problem> {
    let bad = |what: String| {
        let fix = format!("an object of {}", known.join(", "));
        Problem::new(StatusCode::BAD_REQUEST, "tools.http/body", what, "a field with another name would be lost", &fix)
    };
    let table = body.as_object().ok_or_else(|| bad("the body is no object".to_owned()))?;
    match table.keys().find(|key| !known.contains(&key.as_str())) {
        Some(odd) => Err(bad(format!("unknown field {}", policy::mistake::quote(odd)))),
        None => Ok(table),
    }
}
