//! Where a request may come from, and who sends it: what each must show before anything else of it is looked at.

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::IntoResponse as _;

use super::answer::{Problem, not_found};
use super::connections::{MAX_PER_TOKEN, Owner};
use super::keys::{Keys, Who};
use super::listener::Peer;
use super::server::ServerState;

/// Lets a request through to its route, with [`Who`] sends it as an extension, and keeps its connection until it is answered.
pub(super) async fn admit(
    State(state): State<ServerState>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    let who = match state.who_may(request.headers(), request.uri()) {
        Ok(who) => who,
        Err(problem) => return problem.into_response(),
    };
    let owner = match &who {
        Who::Agent(caller) => Owner::Agent(caller.agent.clone()),
        Who::Person => Owner::People,
    };
    let Some(_active) = peer.authenticated(owner) else { return crowded().into_response() };
    let who = match state.with_session(request.headers(), who) {
        Ok(who) => who,
        Err(problem) => return problem.into_response(),
    };
    // HEAD is no GET here: nothing is answered that nobody reads.
    if !matches!(*request.method(), Method::GET | Method::POST) {
        return not_found("this method").into_response();
    }
    request.extensions_mut().insert(who);
    next.run(request).await
}

impl ServerState {
    fn who_may(&self, headers: &HeaderMap, uri: &Uri) -> Result<Who, Problem> {
        if !names_us(headers, uri, self.port) {
            return Err(Problem::new(
                StatusCode::MISDIRECTED_REQUEST,
                "tools.http/host",
                "the Host header names another host",
                "a page whose name was made to resolve to this machine sends its own name",
                "call 127.0.0.1, localhost or [::1], with the port",
            ));
        }
        if !is_from_no_page_but(headers, &self.origins) {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                "tools.http/origin",
                "the request comes from a page",
                "a page that somebody looks at must not call tools or answer for them",
                "`--allow-origin` names pages that may",
            ));
        }
        bearer(headers, &self.keys).ok_or_else(|| {
            Problem::new(
                StatusCode::UNAUTHORIZED,
                "tools.http/token",
                "no good token",
                "other users and programs of this machine can reach the port as well",
                "send `Authorization: Bearer TOKEN`; `fumehood tools serve` says where the token lies",
            )
        })
    }

    /// An agent with the session that a header names, if we gave it out to this agent; else with the agent's own.
    fn with_session(&self, headers: &HeaderMap, who: Who) -> Result<Who, Problem> {
        let Who::Agent(mut caller) = who else { return Ok(who) };
        let mut given = headers.get_all("fumehood-session").iter();
        let one = match (given.next(), given.next()) {
            (None, _) => {
                caller.session = format!("http {}", caller.agent);
                return Ok(Who::Agent(caller));
            }
            (Some(one), None) => one.to_str().ok(),
            (Some(_), Some(_)) => None,
        };
        let session = one.filter(|session| self.keys.is_session(&caller.agent, session)).ok_or_else(not_theirs)?;
        caller.session = session.to_owned();
        Ok(Who::Agent(caller))
    }
}

/// Whether a request names us as its host, and in its first line no other one. A name that resolves to the loopback is no
/// reason to answer: only our own names are. Over a Unix socket, which has no port, no browser comes; its name is whatever
/// the client writes there, but one.
pub(crate) fn names_us(headers: &HeaderMap, uri: &Uri, port: Option<u16>) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next().map(header::HeaderValue::as_bytes), hosts.next()) else { return false };
    let is_ours = port.is_none_or(|port| {
        ["127.0.0.1", "localhost", "[::1]"]
            .iter()
            .any(|name| host == format!("{name}:{port}").as_bytes() || (port == 80 && host == name.as_bytes()))
    });
    is_ours && uri.authority().is_none_or(|named| named.as_str().as_bytes() == host)
}

/// Whether a request comes from no page, or from one that may send requests.
pub(crate) fn is_from_no_page_but(headers: &HeaderMap, origins: &[String]) -> bool {
    let allowed = |origin: &header::HeaderValue| origins.iter().any(|one| one.as_bytes() == origin.as_bytes());
    let own_site = |site: &header::HeaderValue| matches!(site.as_bytes(), b"none" | b"same-origin");
    headers.get_all(header::ORIGIN).iter().all(allowed)
        && (headers.contains_key(header::ORIGIN) || headers.get_all("sec-fetch-site").iter().all(own_site))
}

/// Who has the one token that a request shows.
pub(crate) fn bearer(headers: &HeaderMap, keys: &Keys) -> Option<Who> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(one), None) = (given.next(), given.next()) else { return None };
    let (scheme, token) = one.to_str().ok()?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") { keys.who(token.trim()) } else { None }
}

pub(super) fn not_theirs() -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "tools.http/session",
        "the session is not one of this agent",
        "approvals and limits belong to a session, so its name cannot be made up",
        "`POST /v1/sessions` gives one",
    )
}

fn crowded() -> Problem {
    let what = format!("{MAX_PER_TOKEN} requests of this token are on their way");
    let (why, fix) = ("each token has places of its own, so that no agent keeps others outside", "wait for answers");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "tools.http/crowded", what, why, fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, header::HeaderValue::from_str(value).unwrap());
        }
        map
    }

    #[test]
    fn the_first_line_and_the_header_name_one_host() {
        let own = headers(&[("host", "localhost:80")]);
        for (line, good) in [("/mcp", true), ("http://localhost:80/mcp", true), ("http://evil.example/mcp", false)] {
            assert_eq!(names_us(&own, &line.parse().unwrap(), Some(80)), good, "{line}");
        }
    }

    #[test]
    fn only_our_own_names_are_hosts() {
        let names_us = |pairs: &[(&'static str, &str)]| names_us(&headers(pairs), &Uri::from_static("/"), Some(80));
        for good in ["127.0.0.1:80", "localhost:80", "[::1]:80", "localhost"] {
            assert!(names_us(&[("host", good)]), "{good}");
        }
        for bad in
            ["evil.example:80", "127.0.0.1:81", "localhost.evil:80", "LOCALHOST:80", "127.0.0.1:80 ", "", "127.1:80"]
        {
            assert!(!names_us(&[("host", bad)]), "{bad}");
        }
        assert!(!names_us(&[("host", "localhost:80"), ("host", "localhost:80")]));
        assert!(!names_us(&[]));
    }

    #[test]
    fn a_page_is_told_by_its_origin_or_by_where_the_browser_says_it_comes_from() {
        let allowed = ["http://localhost:3000".to_owned()];
        let lets = |pairs: &[(&'static str, &str)]| is_from_no_page_but(&headers(pairs), &allowed);
        assert!(lets(&[]) && lets(&[("origin", "http://localhost:3000"), ("sec-fetch-site", "cross-site")]));
        assert!(lets(&[("sec-fetch-site", "none")]) && !lets(&[("sec-fetch-site", "cross-site")]));
        assert!(!lets(&[("origin", "http://evil.example")]) && !lets(&[("origin", "null")]));
    }
}
