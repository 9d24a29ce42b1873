//! One request: judged, and made fit to be handed on.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use egress::denial::Reason;
use egress::http::framing::MAX_HEADERS;
use egress::http::is_spelling;
use egress::judge::{self, Granted, Reading, Rules};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Uri};
use hyper::body::{Body, Frame, SizeHint};

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

/// Headers by which some servers take another method, host or path than the request line's, each of their characters that is
/// neither letter nor digit written as `-`: gateways that make variables of headers take any of them for `_`. `Forwarded` has the
/// host beside who asks (`for`, `proto`), and `Destination` is the second path of WebDAV's COPY and MOVE.
const OVERRIDES: [&str; 38] = [
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-method",
    "x-forwarded-method",
    "x-original-uri",
    "x-original-url",
    "x-rewrite-uri",
    "x-rewrite-url",
    "x-request-uri",
    "x-forwarded-uri",
    "x-forwarded-url",
    "x-original-path",
    "x-replaced-path",
    "x-script-name",
    // What gunicorn takes from whoever is in front of it.
    "script-name",
    "path-info",
    "x-waws-unencoded-url",
    "x-forwarded-path",
    "x-forwarded-prefix",
    "x-forwarded-script-name",
    "x-forwarded-host",
    "x-forwarded-server",
    "x-envoy-original-path",
    "x-envoy-original-host",
    "x-envoy-original-method",
    "x-envoy-original-dst-host",
    "x-original-host",
    "x-host",
    "x-http-host-override",
    "http-method-override",
    "x-http-path-override",
    "x-override-url",
    "forwarded",
    "destination",
    "x-http-verb-override",
    "x-forwarded-request-uri",
    "x-proxy-url",
];

/// Endings of headers by which a store of objects takes what it writes, or shows later, from a second path, of whoever asks: S3 and
/// the many that speak as it does with a prefix of their own, Azure, Google Cloud, Swift. A request without them would mean another
/// thing, and write its own body over what is there: it is refused.
const SOURCE_ENDINGS: [&str; 3] = ["-copy-source", "-rename-source", "-symlink-target"];
/// The same, of Swift, by whole names.
const SOURCES: [&str; 2] = ["x-copy-from", "x-object-manifest"];

/// What a trailer may not be, since readers that add trailers to headers would take another host or length for the request's.
const NO_TRAILERS: [HeaderName; 3] = [header::HOST, header::CONTENT_LENGTH, header::TRAILER];

/// What says how a request is read. Gateways that make variables of headers take another spelling for it too, which then has a
/// second meaning.
const FRAMING: [&str; 2] = ["content-length", "transfer-encoding"];

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
    judge_head(request.headers(), aim.way.reading)?;
    if aim.asked {
        return judge::meant_for(&aim.to, aim.port, &asked).map(|()| Granted::Allowed);
    }
    rules.request(&aim.to, aim.port, &asked)
}

/// Whether a head has no more headers than are taken, whatever the version, and names no second path where paths are judged.
fn judge_head(headers: &HeaderMap, reading: Reading) -> Result<(), Reason> {
    if headers.len() > MAX_HEADERS {
        return Err(Reason::Malformed(format!("its head has more than {MAX_HEADERS} headers")));
    }
    match reading {
        Reading::Requests => {}
        Reading::Nothing | Reading::Names => return Ok(()),
    }
    match headers.keys().find(|name| is_source(name.as_str())) {
        Some(source) => Err(Reason::Path(format!("`{source}` names a second one, which is not judged"))),
        None => Ok(()),
    }
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
    one_form(request.headers_mut());
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

/// Writes the host in the form in which it was judged: many a server compares letters, and a dot at the end, and leads what it does
/// not know to its first site.
fn one_form(headers: &mut HeaderMap) {
    let text = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let plain = text.and_then(egress::host::authority).map(|host| host.to_string());
    if let Some(value) = plain.and_then(|plain| HeaderValue::from_str(&plain).ok()) {
        headers.insert(header::HOST, value);
    }
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

/// Makes a prepared request one of HTTP/1: cookies, which HTTP/2 may send in crumbs, are one header. A body of a length that
/// nobody knows yet goes in chunks: of a GET it would be left out. Says whether it is the last one on its connection: many a server
/// leaves a body unread that it did not expect, and would take it for the next request, which nobody judged.
pub(crate) fn in_one<B: Body>(request: &mut Request<B>) -> bool {
    let body = request.body();
    let is_last = !body.is_end_stream();
    if !body.is_end_stream()
        && body.size_hint().exact().is_none()
        && !request.headers().contains_key(header::CONTENT_LENGTH)
    {
        request.headers_mut().insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    let crumbs: Vec<&[u8]> = request.headers().get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() > 1
        && let Ok(whole) = HeaderValue::from_bytes(&crumbs.join(b"; ".as_slice()))
    {
        request.headers_mut().insert(header::COOKIE, whole);
    }
    if is_last {
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    is_last
}

/// Takes away the headers of a connection, those that `Connection` names, and other spellings of what frames a message.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let other = |name: &&HeaderName| is_one_of(&FRAMING, name.as_str()) && !FRAMING.contains(&name.as_str());
    let others: Vec<HeaderName> = headers.keys().filter(other).cloned().collect();
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| *name != header::HOST && *name != header::CONTENT_LENGTH)
        .collect();
    for name in OF_THE_CONNECTION.iter().chain(&named).chain(&others) {
        headers.remove(name);
    }
}

/// A body whose trailers say no more than headers may: some servers add them to those. Where method and path are judged they
/// are asked by the same list.
pub(crate) struct Trailed<B> {
    body: B,
    reading: Reading,
}

impl<B> Trailed<B> {
    pub(crate) fn new(body: B, reading: Reading) -> Self {
        Self { body, reading }
    }
}

impl<B: Body + Unpin> Body for Trailed<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.get_mut();
        let next = ready!(Pin::new(&mut this.body).poll_frame(cx));
        let fit = |frame: Frame<B::Data>| match frame.into_trailers() {
            Ok(mut trailers) => {
                strip_trailers(&mut trailers, this.reading);
                Frame::trailers(trailers)
            }
            Err(other) => other,
        };
        Poll::Ready(next.map(|frame| frame.map(fit)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn strip_trailers(trailers: &mut HeaderMap, reading: Reading) {
    strip(trailers);
    for name in NO_TRAILERS {
        trailers.remove(name);
    }
    if reading == Reading::Requests {
        strip_overrides(trailers);
        let sources: Vec<HeaderName> = trailers.keys().filter(|name| is_source(name.as_str())).cloned().collect();
        for name in sources {
            trailers.remove(name);
        }
    }
}

fn strip_overrides(headers: &mut HeaderMap) {
    let found: Vec<HeaderName> = headers.keys().filter(|name| is_override(name.as_str())).cloned().collect();
    for name in found {
        headers.remove(name);
    }
    // What is announced to come behind the body does not come, either.
    if !headers.contains_key(header::TRAILER) {
        return;
    }
    let values = headers.get_all(header::TRAILER).iter().filter_map(|value| value.to_str().ok());
    let names = values.flat_map(|value| value.split(',')).map(str::trim);
    let left =
        names.filter(|name| !name.is_empty() && !is_override(name) && !is_source(name)).collect::<Vec<_>>().join(", ");
    headers.remove(header::TRAILER);
    if !left.is_empty()
        && let Ok(value) = HeaderValue::from_str(&left)
    {
        headers.insert(header::TRAILER, value);
    }
}

fn is_override(name: &str) -> bool {
    is_one_of(&OVERRIDES, name)
}

/// Whether a header names a second path, however its letters and digits are joined.
fn is_source(name: &str) -> bool {
    let ends = |ending: &str| {
        let from = name.len().checked_sub(ending.len());
        from.and_then(|from| name.get(from..)).is_some_and(|end| is_spelling(end, ending))
    };
    SOURCE_ENDINGS.iter().any(|ending| ends(ending)) || is_one_of(&SOURCES, name)
}

/// Whether a name is one of a list, however its letters and digits are joined.
fn is_one_of(list: &[&str], name: &str) -> bool {
    list.iter().any(|one| is_spelling(name, one))
}

/// Only WebSocket is switched to: any other protocol would leave the judge behind.
pub(crate) fn wants_websocket<B>(request: &Request<B>) -> bool {
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
            ("Content_Length", "30"),
            ("Transfer.Encoding", "chunked"),
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
        for (reading, left) in [(Reading::Requests, 1), (Reading::Names, 24)] {
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
                ("Forwarded", "for=192.0.2.1;host=b.example"),
                ("X.HTTP.Method.Override", "DELETE"),
                ("X-Script-Name", "/secret"),
                ("X-Forwarded~Script-Name", "/secret"),
                ("X-Request-Uri", "/secret"),
                ("X-Rewrite-Uri", "/secret"),
                ("X-HTTP-Host-Override", "b.example"),
                ("X-Waws-Unencoded-Url", "/secret"),
                ("Destination", "/secret"),
                ("X-HTTP-Verb-Override", "DELETE"),
                ("X_Forwarded_Request_Uri", "/secret"),
                ("X-Proxy-Url", "/secret"),
                ("X-Other", "1"),
            ]);
            prepare(&mut asked, reading);
            // And the host, which is made of the target.
            assert_eq!(asked.headers().len(), left + 1, "{reading:?}");
        }
    }

    #[test]
    fn a_server_hears_the_host_in_the_form_that_was_judged() {
        for (sent, heard) in [
            ("A.Example", "a.example"),
            ("a.example.", "a.example"),
            ("A.example.:8080", "a.example:8080"),
            ("127.0.0.1:08080", "127.0.0.1:8080"),
            ("[::1]:8080", "[::1]:8080"),
        ] {
            let mut asked = request(&[("Host", sent)]);
            prepare(&mut asked, Reading::Names);
            assert_eq!(asked.headers().get_all("host").iter().collect::<Vec<_>>(), [heard]);
        }
        // Of the target, where there is no such header.
        let mut asked = Request::builder().uri("http://A.Example:8080/x").body(()).unwrap();
        prepare(&mut asked, Reading::Names);
        assert_eq!(asked.headers().get("host").unwrap(), "a.example:8080");
    }

    #[test]
    fn a_second_path_and_too_many_headers_are_refused() {
        for name in [
            "x-amz-copy-source",
            "X_Amz.Copy-Source",
            "x-ms-rename-source",
            "X-Copy-From",
            "x-oss-copy-source",
            "x-cos-copy-source",
            "x-obs_copy_source",
            "x-ms-file-rename-source",
            "X-Object-Manifest",
            "X-Symlink-Target",
            "x-oss-symlink-target",
        ] {
            let asked = request(&[(name, "/b/secret")]);
            let refused = judge_head(asked.headers(), Reading::Requests);
            assert!(matches!(refused, Err(Reason::Path(why)) if why.contains("second")), "{name}");
            assert!(judge_head(asked.headers(), Reading::Names).is_ok(), "{name}");
        }
        // Conditions of the source, and other words with these in them, name no path.
        for name in ["x-amz-copy-source-if-match", "x-source", "copy-source"] {
            assert!(judge_head(request(&[(name, "1")]).headers(), Reading::Requests).is_ok(), "{name}");
        }
        for (count, taken) in [(MAX_HEADERS, true), (MAX_HEADERS + 1, false)] {
            for reading in [Reading::Requests, Reading::Names] {
                let same = vec![("X-Same", "1"); count];
                assert_eq!(judge_head(request(&same).headers(), reading).is_ok(), taken, "{count}");
            }
        }
    }

    #[test]
    fn trailers_are_asked_by_the_same_list() {
        for (reading, left, announced) in [
            (Reading::Requests, vec!["x-sum"], Some("X-Sum, X-Other")),
            (
                Reading::Names,
                vec!["x-http-method-override", "x-sum", "x_amz_copy-source"],
                Some("X-Sum, X-HTTP-Method-Override"),
            ),
        ] {
            let mut asked = request(&[("Trailer", "X-Sum, X-HTTP-Method-Override"), ("Trailer", "X_Host,X-Other")]);
            prepare(&mut asked, reading);
            assert_eq!(asked.headers().get("trailer").map(|value| value.to_str().unwrap()), announced);
            let mut only = request(&[("Trailer", "Destination")]);
            prepare(&mut only, reading);
            assert_eq!(only.headers().contains_key("trailer"), reading == Reading::Names);

            let mut trailers = HeaderMap::new();
            for (name, value) in [
                ("x-sum", "1"),
                ("x-http-method-override", "DELETE"),
                ("x_amz_copy-source", "/o/s"),
                ("host", "b.example"),
            ] {
                trailers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            let body = http_body_util::StreamBody::new(tokio_stream::iter([
                Ok::<_, hyper::Error>(Frame::data(bytes::Bytes::from_static(b"body"))),
                Ok(Frame::trailers(trailers)),
            ]));
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let read = runtime.block_on(http_body_util::BodyExt::collect(Trailed::new(body, reading))).unwrap();
            let mut names: Vec<_> = read.trailers().unwrap().keys().map(HeaderName::as_str).collect();
            names.sort_unstable();
            assert_eq!(names, left, "{reading:?}");
            assert_eq!(read.to_bytes().as_ref(), b"body");
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
