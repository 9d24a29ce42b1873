//! One HTTP request: where it comes from, who sends it, and whether its headers say what its body says.

use axum::body::{Body, HttpBody, to_bytes};
use axum::http::{HeaderMap, Response, StatusCode, Uri, header};
use serde_json::{Value as Json, json};
use std::time::Duration;

use crate::call::Caller;
use crate::http::{Keys, Who, names_one_host};
use crate::mcp::era;
use crate::mcp::wire::{self, Id, MOST_FROM_CLIENT, RpcError};

/// How long a body may take to arrive.
const SLOW: Duration = Duration::from_secs(30);
/// Before and after a header's value that is written in Base64.
const WRAPPED: (&str, &str) = ("=?base64?", "?=");

/// An answer that ends a request early.
pub(super) struct Early(pub(super) Box<Response<Body>>);

/// An early answer: its status, and an error as JSON-RPC has it.
pub(super) fn early(status: StatusCode, id: Option<&Id>, error: &RpcError) -> Early {
    let body = match id {
        Some(id) => wire::response(id, Err(error.clone())),
        None => wire::error_without_id(error),
    };
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
    }
    Early(Box::new(response))
}

fn refused(status: StatusCode, code: i64, why: impl Into<String>) -> Early {
    early(status, None, &RpcError::new(code, why))
}

/// What every request must show, in this order: a page learns nothing at all, a stranger nothing but that a token is wanted.
///
/// # Errors
/// The early answer.
pub(super) fn admit(headers: &HeaderMap, port: Option<u16>, origins: &[String], keys: &Keys) -> Result<Caller, Early> {
    host(headers, port)?;
    let allowed = |origin: &header::HeaderValue| origins.iter().any(|one| one.as_bytes() == origin.as_bytes());
    if !headers.get_all(header::ORIGIN).iter().all(allowed) {
        return Err(refused(StatusCode::FORBIDDEN, wire::INVALID_REQUEST, "requests of pages are not taken (Origin)"));
    }
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let token = match (given.next().and_then(|value| value.to_str().ok()), given.next()) {
        (Some(one), None) => one.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")),
        (Some(_) | None, _) => None,
    };
    match token.and_then(|(_, token)| keys.who(token.trim())) {
        Some(Who::Agent(caller)) => Ok(caller),
        Some(Who::Person) => {
            Err(refused(StatusCode::FORBIDDEN, wire::INVALID_REQUEST, "the people's token calls no tools"))
        }
        None => Err(refused(StatusCode::UNAUTHORIZED, wire::INVALID_REQUEST, "send `Authorization: Bearer TOKEN`")),
    }
}

/// See [`names_one_host`].
///
/// # Errors
/// The early answer.
pub(super) fn one_host(headers: &HeaderMap, uri: &Uri) -> Result<(), Early> {
    let why = "the first line and the Host header name two hosts";
    if names_one_host(headers, uri) { Ok(()) } else { Err(refused(StatusCode::FORBIDDEN, wire::INVALID_REQUEST, why)) }
}

/// A name that was made to resolve to this machine is not ours.
fn host(headers: &HeaderMap, port: Option<u16>) -> Result<(), Early> {
    let hosts: Vec<_> = headers.get_all(header::HOST).iter().collect();
    let good = match (hosts.as_slice(), port) {
        ([host], Some(port)) => {
            let names = ["127.0.0.1", "localhost", "[::1]"];
            names.iter().any(|name| host.as_bytes() == format!("{name}:{port}").as_bytes())
                || (port == 80 && names.iter().any(|name| host.as_bytes() == name.as_bytes()))
        }
        ([_], None) => true,
        ([] | [_, _, ..], _) => false,
    };
    let why = "the Host header names another host: call 127.0.0.1, localhost or [::1] with the port";
    if good { Ok(()) } else { Err(refused(StatusCode::FORBIDDEN, wire::INVALID_REQUEST, why)) }
}

/// Reads a message: of the right type, in time, within bounds, strictly.
///
/// # Errors
/// The early answer.
pub(super) async fn read(headers: &HeaderMap, body: Body) -> Result<Json, Early> {
    if media(headers, header::CONTENT_TYPE) != Some("application/json") {
        let why = "a message is sent as application/json";
        return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, wire::INVALID_REQUEST, why));
    }
    let too_large = || {
        let why = format!("a message has at most {MOST_FROM_CLIENT} bytes");
        refused(StatusCode::PAYLOAD_TOO_LARGE, wire::INVALID_REQUEST, why)
    };
    if HttpBody::size_hint(&body).lower() > u64::try_from(MOST_FROM_CLIENT).unwrap_or(u64::MAX) {
        return Err(too_large());
    }
    let bytes = match tokio::time::timeout(SLOW, to_bytes(body, MOST_FROM_CLIENT)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => return Err(too_large()),
        Err(_) => {
            return Err(refused(StatusCode::REQUEST_TIMEOUT, wire::INVALID_REQUEST, "the message came too slowly"));
        }
    };
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return Err(refused(StatusCode::BAD_REQUEST, wire::PARSE, "it is no UTF-8 text"));
    };
    crate::json::read(text).map_err(|flaw| {
        early(
            StatusCode::BAD_REQUEST,
            wire::id_of_refused(text).as_ref(),
            &RpcError::new(wire::PARSE, crate::mcp::text::shown(&flaw.to_string(), 300)),
        )
    })
}

fn media(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let value = headers.get(name)?.to_str().ok()?;
    value.split(';').next().map(str::trim)
}

/// Whether the client takes what is asked for.
pub(super) fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let texts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = texts.flat_map(|text| text.split(',')).map(|one| one.split(';').next().unwrap_or_default().trim());
    kinds.any(|one| {
        one == kind || one == "*/*" || kind.split_once('/').is_some_and(|(main, _)| one == format!("{main}/*"))
    })
}

/// The revision that the header names.
///
/// # Errors
/// One that is unknown, or more than one.
pub(super) fn version(headers: &HeaderMap) -> Result<Option<&'static str>, Early> {
    let mut given = headers.get_all("mcp-protocol-version").iter();
    let Some(first) = given.next() else { return Ok(None) };
    let known = era::supported().into_iter().find(|known| known.as_bytes() == first.as_bytes());
    match (known, given.next()) {
        (Some(known), None) => Ok(Some(known)),
        (None, _) | (Some(_), Some(_)) => {
            let error = RpcError::new(wire::UNSUPPORTED_VERSION, "unsupported protocol version")
                .with(json!({ "supported": era::supported() }));
            Err(early(StatusCode::BAD_REQUEST, None, &error))
        }
    }
}

/// Whether headers and body of a request without state say the same: whoever routes or judges by the one must not be led
/// astray by the other.
///
/// # Errors
/// Where they differ.
pub(super) fn same(headers: &HeaderMap, id: &Id, method: &str, params: &Json) -> Result<(), Early> {
    let said = params.get("_meta").and_then(|meta| meta.get(era::META_VERSION)).and_then(Json::as_str);
    agree(headers, "mcp-protocol-version", said, id)?;
    agree(headers, "mcp-method", Some(method), id)?;
    let name = match method {
        "tools/call" | "prompts/get" => params.get("name"),
        "resources/read" => params.get("uri"),
        _ => return Ok(()),
    };
    agree(headers, "mcp-name", name.and_then(Json::as_str), id)
}

fn agree(headers: &HeaderMap, name: &'static str, said: Option<&str>, id: &Id) -> Result<(), Early> {
    let mut given = headers.get_all(name).iter();
    let one = match (given.next(), given.next()) {
        (Some(one), None) => one.to_str().ok().and_then(unwrap),
        (Some(_) | None, _) => None,
    };
    if one.is_some() && one.as_deref() == said {
        return Ok(());
    }
    let error = RpcError::new(
        wire::HEADER_MISMATCH,
        format!("the header `{name}` is not there once, saying what the body says"),
    );
    Err(early(StatusCode::BAD_REQUEST, Some(id), &error))
}

/// A value as it is meant: as it stands, or out of its Base64.
fn unwrap(value: &str) -> Option<String> {
    match value.strip_prefix(WRAPPED.0).and_then(|rest| rest.strip_suffix(WRAPPED.1)) {
        Some(wrapped) => String::from_utf8(crate::result::base64::head(wrapped, usize::MAX)?).ok(),
        None => Some(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in list {
            map.append(*name, header::HeaderValue::from_str(value).unwrap());
        }
        map
    }

    #[test]
    fn headers_and_body_must_say_the_same() {
        let params = json!({"name": "a__x", "_meta": {era::META_VERSION: "2026-07-28"}});
        let good = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "a__x")];
        let id = Id::Number(1);
        assert!(same(&headers(&good), &id, "tools/call", &params).is_ok());
        let wrapped = [good[0], good[1], ("mcp-name", "=?base64?YV9feA==?=")];
        assert!(same(&headers(&wrapped), &id, "tools/call", &params).is_ok());
        for bad in [
            vec![good[0], good[1]],
            vec![good[0], good[1], ("mcp-name", "a__y")],
            vec![good[0], good[1], good[2], good[2]],
            vec![good[0], ("mcp-method", "tools/list"), good[2]],
            vec![("mcp-protocol-version", "2025-11-25"), good[1], good[2]],
            vec![good[1], good[2]],
        ] {
            assert!(same(&headers(&bad), &id, "tools/call", &params).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_first_line_and_the_header_name_one_host() {
        let own = headers(&[("host", "localhost:80")]);
        for (line, good) in [("/mcp", true), ("http://localhost:80/mcp", true), ("http://evil.example/mcp", false)] {
            assert_eq!(one_host(&own, &line.parse().unwrap()).is_ok(), good, "{line}");
        }
    }

    #[test]
    fn only_our_own_names_are_hosts() {
        for good in ["127.0.0.1:80", "localhost:80", "[::1]:80", "localhost"] {
            assert!(host(&headers(&[("host", good)]), Some(80)).is_ok(), "{good}");
        }
        for bad in
            ["evil.example:80", "127.0.0.1:81", "localhost.evil:80", "LOCALHOST:80", "127.0.0.1:80 ", "", "127.1:80"]
        {
            assert!(host(&headers(&[("host", bad)]), Some(80)).is_err(), "{bad}");
        }
        assert!(host(&headers(&[("host", "localhost:80"), ("host", "localhost:80")]), Some(80)).is_err());
        assert!(host(&headers(&[]), Some(80)).is_err());
    }

    #[test]
    fn what_a_client_takes_is_read_with_its_wildcards() {
        assert!(accepts(&headers(&[("accept", "application/json, text/event-stream;q=0.9")]), "text/event-stream"));
        assert!(accepts(&headers(&[("accept", "*/*")]), "text/event-stream"));
        assert!(accepts(&headers(&[("accept", "text/*")]), "text/event-stream"));
        assert!(!accepts(&headers(&[("accept", "application/json")]), "text/event-stream"));
        assert!(!accepts(&headers(&[]), "application/json"));
    }
}
