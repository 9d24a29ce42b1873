//! One request: judged, and made fit to be handed on.

use egress::denial::Reason;
use egress::judge::{self, Granted, Reading, Rules};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Uri};

use crate::reach::Aim;

/// Headers of one connection, which mean nothing on the next.
const OF_THE_CONNECTION: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Headers by which some servers take another method, host or path than the request line's. `_` is written as `-`: gateways that make
/// variables of headers take both.
const OVERRIDES: [&str; 22] = [
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-method",
    "x-forwarded-method",
    "x-original-uri",
    "x-original-url",
    "x-rewrite-url",
    "x-forwarded-uri",
    "x-original-path",
    "x-forwarded-path",
    "x-forwarded-prefix",
    "x-forwarded-host",
    "x-forwarded-server",
    "x-envoy-original-path",
    "x-envoy-original-host",
    "x-envoy-original-method",
    "x-original-host",
    "x-host",
    "http-method-override",
    "x-http-path-override",
    "x-override-url",
];

/// Whether a request may be handed on, by the rules as they are now.
pub(crate) fn judge<B>(rules: &Rules, aim: &Aim, request: &Request<B>) -> Result<Granted, Reason> {
    let values = request.headers().get_all(header::HOST);
    let mut hosts = Vec::new();
    for value in values {
        hosts.push(value.to_str().map_err(|_not_text| Reason::Host("its Host is no text".to_owned()))?);
    }
    let asked = judge::Request {
        method: request.method().as_str(),
        authority: request.uri().authority().map(http::uri::Authority::as_str),
        hosts,
        path: request.uri().path(),
        opens_websocket: wants_websocket(request),
    };
    if aim.asked {
        return judge::meant_for(&aim.to, aim.port, &asked).map(|()| Granted::Allowed);
    }
    rules.request(&aim.to, aim.port, &asked)
}

/// Leaves out what is of this connection, and makes the target a path; whether it asks for WebSocket. Where method and path are
/// judged, also what would say others to the server.
pub(crate) fn prepare<B>(request: &mut Request<B>, reading: Reading) -> bool {
    let socket = wants_websocket(request);
    if !request.headers().contains_key(header::HOST)
        && let Some(authority) = request.uri().authority()
        && let Ok(value) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(header::HOST, value);
    }
    strip(request.headers_mut());
    if reading == Reading::Requests {
        strip_overrides(request.headers_mut());
    }
    // The proxy asks for the body by itself.
    request.headers_mut().remove(header::EXPECT);
    if socket {
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    }
    let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    *request.version_mut() = http::Version::HTTP_11;
    socket
}

/// Whether the program takes trailers, which gRPC needs.
pub(crate) fn wants_trailers(headers: &HeaderMap) -> bool {
    headers.get(header::TE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers"))
}

/// Makes a prepared request one of HTTP/2: the host is part of its target.
pub(crate) fn in_two<B>(request: &mut Request<B>, trailers: bool) {
    let host = request.headers_mut().remove(header::HOST);
    if let Some(authority) = host.and_then(|host| http::uri::Authority::try_from(host.as_bytes()).ok())
        && let Some(path) = request.uri().path_and_query().cloned()
        && let Ok(target) = Uri::builder().scheme("https").authority(authority).path_and_query(path).build()
    {
        *request.uri_mut() = target;
    }
    *request.version_mut() = http::Version::HTTP_2;
    if trailers {
        request.headers_mut().insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Makes a prepared request one of HTTP/1: cookies, which HTTP/2 may send in crumbs, are one header.
pub(crate) fn in_one<B>(request: &mut Request<B>) {
    let crumbs: Vec<&[u8]> = request.headers().get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() > 1
        && let Ok(whole) = HeaderValue::from_bytes(&crumbs.join(b"; ".as_slice()))
    {
        request.headers_mut().insert(header::COOKIE, whole);
    }
}

/// Takes away the headers of a connection, and those that `Connection` names.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| *name != header::HOST && *name != header::CONTENT_LENGTH)
        .collect();
    for name in OF_THE_CONNECTION.iter().chain(&named) {
        headers.remove(name);
    }
}

fn strip_overrides(headers: &mut HeaderMap) {
    let is_override = |name: &&HeaderName| OVERRIDES.contains(&name.as_str().replace('_', "-").as_str());
    let found: Vec<HeaderName> = headers.keys().filter(is_override).cloned().collect();
    for name in found {
        headers.remove(name);
    }
}

/// Only WebSocket is switched to: any other protocol would leave the judge behind.
fn wants_websocket<B>(request: &Request<B>) -> bool {
    let has = |name: HeaderName, word: &str| {
        let values = request.headers().get_all(name);
        values
            .iter()
            .filter_map(|v| v.to_str().ok())
            .flat_map(|v| v.split(','))
            .any(|v| v.trim().eq_ignore_ascii_case(word))
    };
    let only = request.headers().get_all(header::UPGRADE).iter().count() == 1;
    let exactly =
        request.headers().get(header::UPGRADE).is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"websocket"));
    request.method() == Method::GET && only && exactly && has(header::CONNECTION, "upgrade")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&str, &str)]) -> Request<()> {
        let mut builder = Request::builder().uri("http://a.example/x?y");
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        builder.body(()).unwrap()
    }

    #[test]
    fn what_is_of_the_connection_stays_behind() {
        let mut asked = request(&[
            ("Connection", "close, X-Mine, host"),
            ("X-Mine", "1"),
            ("Keep-Alive", "1"),
            ("Proxy-Authorization", "Basic x"),
            ("Upgrade", "h2c"),
            ("Expect", "100-continue"),
            ("Accept", "*/*"),
        ]);
        assert!(!prepare(&mut asked, Reading::Names));
        let mut names: Vec<_> = asked.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "host"]);
        assert_eq!(asked.uri().to_string(), "/x?y");
        assert_eq!(asked.headers()["host"], "a.example");
    }

    #[test]
    fn what_would_say_another_method_or_path_is_left_out_where_they_are_judged() {
        for (reading, left) in [(Reading::Requests, 1), (Reading::Names, 12)] {
            let mut asked = request(&[
                ("X-HTTP-Method-Override", "DELETE"),
                ("X_Original_URL", "/secret"),
                ("x-rewrite-url", "/secret"),
                ("X-Original-Path", "/secret"),
                ("X-Forwarded-Path", "/secret"),
                ("X_Forwarded_Prefix", "/secret"),
                ("X-Forwarded-Host", "b.example"),
                ("X-Envoy-Original-Path", "/secret"),
                ("X-HTTP-Method", "DELETE"),
                ("HTTP-Method-Override", "DELETE"),
                ("X-Host", "b.example"),
                ("X-Other", "1"),
            ]);
            prepare(&mut asked, reading);
            // And the host, which is made of the target.
            assert_eq!(asked.headers().len(), left + 1, "{reading:?}");
        }
    }

    #[test]
    fn only_websocket_is_switched_to() {
        for (upgrade, connection, switched) in [
            ("websocket", "keep-alive, Upgrade", true),
            ("websocket", "close", false),
            ("h2c", "Upgrade", false),
            ("websocket, h2c", "Upgrade", false),
        ] {
            let mut asked = request(&[("Host", "a.example"), ("Upgrade", upgrade), ("Connection", connection)]);
            assert_eq!(prepare(&mut asked, Reading::Names), switched, "{upgrade} {connection}");
            assert_eq!(asked.headers().contains_key("upgrade"), switched);
        }
    }
}
