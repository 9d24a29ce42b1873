//! One HTTP request: where it comes from, who sends it, and whether its headers say what its body says.

use std::time::Duration;

use axum::body::{Body, HttpBody, to_bytes};
use axum::http::{HeaderMap, Response, StatusCode, Uri, header};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use gate::call::Caller;
use serde_json::{Value as Json, json};

use crate::http::{Keys, Who, bearer, is_from_no_page_but, names_us};
use crate::mcp::protocol;
use crate::mcp::wire::{self, Id, MAX_FROM_CLIENT, RpcError};

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

/// What every request must show, in this order: a page learns nothing at all, who has no token nothing but that one is wanted.
///
/// # Errors
/// The early answer.
pub(super) fn admit(
    (headers, uri): (&HeaderMap, &Uri),
    port: Option<u16>,
    origins: &[String],
    keys: &Keys,
) -> Result<Caller, Early> {
    if !names_us(headers, uri, port) {
        let why = "the Host header names another host: call 127.0.0.1, localhost or [::1] with the port";
        return Err(refused(StatusCode::FORBIDDEN, wire::INVALID_REQUEST, why));
    }
    if !is_from_no_page_but(headers, origins) {
        return Err(refused(StatusCode::FORBIDDEN, wire::INVALID_REQUEST, "requests of pages are not taken (Origin)"));
    }
    match bearer(headers, keys) {
        Some(Who::Agent(caller)) => Ok(caller),
        Some(Who::Person) => {
            Err(refused(StatusCode::FORBIDDEN, wire::INVALID_REQUEST, "the people's token calls no tools"))
        }
        None => Err(refused(StatusCode::UNAUTHORIZED, wire::INVALID_REQUEST, "send `Authorization: Bearer TOKEN`")),
    }
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
        let why = format!("a message has at most {MAX_FROM_CLIENT} bytes");
        refused(StatusCode::PAYLOAD_TOO_LARGE, wire::INVALID_REQUEST, why)
    };
    if HttpBody::size_hint(&body).lower() > u64::try_from(MAX_FROM_CLIENT).unwrap_or(u64::MAX) {
        return Err(too_large());
    }
    let bytes = match tokio::time::timeout(SLOW, to_bytes(body, MAX_FROM_CLIENT)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => return Err(too_large()),
        Err(_) => {
            return Err(refused(StatusCode::REQUEST_TIMEOUT, wire::INVALID_REQUEST, "the message came too slowly"));
        }
    };
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return Err(refused(StatusCode::BAD_REQUEST, wire::PARSE, "it is no UTF-8 text"));
    };
    gate::json::read(text).map_err(|flaw| {
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
    let known = protocol::supported().into_iter().find(|known| known.as_bytes() == first.as_bytes());
    match (known, given.next()) {
        (Some(known), None) => Ok(Some(known)),
        (None, _) | (Some(_), Some(_)) => {
            let error = RpcError::new(wire::UNSUPPORTED_VERSION, "unsupported protocol version")
                .with(json!({ "supported": protocol::supported() }));
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
    let said = params.get("_meta").and_then(|meta| meta.get(protocol::META_VERSION)).and_then(Json::as_str);
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
        Some(wrapped) => String::from_utf8(BASE64_STANDARD.decode(wrapped).ok()?).ok(),
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
        let params = json!({"name": "a__x", "_meta": {protocol::META_VERSION: "2026-07-28"}});
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
    fn what_a_client_takes_is_read_with_its_wildcards() {
        assert!(accepts(&headers(&[("accept", "application/json, text/event-stream;q=0.9")]), "text/event-stream"));
        assert!(accepts(&headers(&[("accept", "*/*")]), "text/event-stream"));
        assert!(accepts(&headers(&[("accept", "text/*")]), "text/event-stream"));
        assert!(!accepts(&headers(&[("accept", "application/json")]), "text/event-stream"));
        assert!(!accepts(&headers(&[]), "application/json"));
    }
}
