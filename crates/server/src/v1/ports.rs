//! `/v1/sandboxes/ID/ports`: what listens inside, and requests to it.
//!
//! What answers there is hostile. By a host name of its own (`PORT-ID.localhost`) a browser keeps it apart from us; below `/v1`
//! it would be of our own origin, so that each answer is marked as sandboxed and keeps the headers alone that are about what it
//! carries: one that acts on an origin (cookies, `Clear-Site-Data`, `Strict-Transport-Security`) would act on ours.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent::words::Request as Ask;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use live::client::Incoming;
use live::words::NO_PORTS;
use serde_json::{Value as Json, json};

use super::HttpResult;
use super::sandbox::Living;
use crate::answer::{Problem, json_response};
use crate::app::AppState;
use crate::backend;
use crate::envd::{Context, pass_on};

/// Tables of the kernel with the sockets of the sandbox's own network.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// Most bytes of one that are read.
const MAX_TABLE: u64 = 1 << 20;
/// The state of a socket that listens.
const LISTENS: &str = "0A";

/// Headers that are about an answer itself. What is not here, and no name of a program's own, is left out: browsers learn new ones.
const OF_AN_ANSWER: [&str; 24] = [
    "accept-ranges",
    "age",
    "allow",
    "cache-control",
    "connection",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expires",
    "keep-alive",
    "last-modified",
    "pragma",
    "retry-after",
    "server",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
    "warning",
];
/// How names begin that mean something to the program's own clients alone, or to the connection.
const OF_PROGRAMS: [&str; 3] = ["x-", "grpc-", "sec-websocket-"];

fn is_kept(name: &HeaderName) -> bool {
    OF_AN_ANSWER.contains(&name.as_str()) || OF_PROGRAMS.iter().any(|start| name.as_str().starts_with(start))
}

fn keep_what_it_carries(headers: &mut HeaderMap) {
    let left_out: Vec<HeaderName> = headers.keys().filter(|name| !is_kept(name)).cloned().collect();
    for name in left_out {
        headers.remove(name);
    }
}

/// # Errors
/// The sandbox shares the network of the host: there are no ports of its own.
fn has_network(info: &live::words::Info) -> Result<(), Problem> {
    if info.has_ports() {
        return Ok(());
    }
    Err(Problem::cannot(StatusCode::NOT_IMPLEMENTED, "tier", "ports cannot be reached", NO_PORTS, "use another tier"))
}

pub(super) async fn list(State(app): State<Arc<AppState>>, Living(info): Living) -> HttpResult {
    has_network(&info)?;
    let mut ports = BTreeSet::new();
    for path in TABLES {
        let ask = Ask::Read { path: path.to_owned(), offset: 0, length: Some(MAX_TABLE) };
        let mut stream = backend::open(&*app.sandboxes, &info.id, &ask).await?;
        let mut table = Vec::new();
        while let Some(incoming) = stream.next().await {
            match incoming {
                Incoming::Out(bytes) => table.extend(bytes),
                // A kernel without IPv6 has one table.
                Incoming::End(_) => break,
                Incoming::Event(_) | Incoming::Err(_) => {}
            }
        }
        ports.extend(listening(&String::from_utf8_lossy(&table)));
    }
    let domain = app.settings.domain.as_deref().unwrap_or("localhost");
    let told: Vec<Json> = ports
        .iter()
        .map(|port| {
            let path = format!("/v1/sandboxes/{}/ports/{port}/", info.id);
            json!({ "port": port, "host": format!("{port}-{}.{domain}", info.id), "path": path })
        })
        .collect();
    Ok(json_response(StatusCode::OK, &json!({ "ports": told })))
}

/// The ports that a table of the kernel shows as listening.
fn listening(table: &str) -> impl Iterator<Item = u16> {
    table.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next()?, words.nth(1)?);
        let port = u16::from_str_radix(local.rsplit(':').next()?, 16).ok()?;
        (state == LISTENS).then_some(port)
    })
}

pub(super) async fn proxy(
    State(app): State<Arc<AppState>>,
    Living(info): Living,
    Path(named): Path<BTreeMap<String, String>>,
    mut request: Request,
) -> HttpResult {
    has_network(&info)?;
    let port = named.get("port").and_then(|port| port.parse::<u16>().ok()).filter(|port| *port > 0);
    let port = port.ok_or_else(|| Problem::invalid("port", "the path names no port"))?;
    // What stands after the port, as it was sent: `/v1/sandboxes/ID/ports/PORT/REST`.
    let sent = request.uri().path_and_query().map_or("/", |sent| sent.as_str());
    let rest = sent.splitn(7, '/').nth(6).unwrap_or_default();
    let inside: Uri = format!("/{rest}").parse().map_err(|_odd| Problem::invalid("path", "the path is none"))?;
    *request.uri_mut() = inside;
    // The key is ours, and none of the program's business; so is the page's cookie.
    if request.headers_mut().remove("x-api-key").is_none() {
        request.headers_mut().remove(header::AUTHORIZATION);
    }
    request.headers_mut().remove(header::COOKIE);
    let context = Context { app, info };
    let mut response = pass_on(&context, port, request).await;
    let headers = response.headers_mut();
    keep_what_it_carries(headers);
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_listen_are_read_from_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue\n   0: 0100007F:1F40 00000000:0000 0A 00000000\n   1: 0100007F:1F41 0100007F:0050 01 0\nodd\n";
        assert_eq!(listening(table).collect::<Vec<_>>(), [8000]);
    }

    /// The attack: a program inside signs the person out of our page, or marks our host name for HTTPS.
    #[test]
    fn nothing_that_acts_on_an_origin_is_kept_of_an_answer() {
        let mut headers = HeaderMap::new();
        let all = [
            "Set-Cookie",
            "Clear-Site-Data",
            "Strict-Transport-Security",
            "Alt-Svc",
            "Refresh",
            "Location",
            "Link",
            "Access-Control-Allow-Origin",
            "Access-Control-Allow-Credentials",
            "Cross-Origin-Resource-Policy",
            "Service-Worker-Allowed",
            "WWW-Authenticate",
            "NEL",
            "Report-To",
            "Speculation-Rules",
            "Accept-CH",
            "Permissions-Policy",
            "Of-Next-Year",
        ];
        let kept = ["content-type", "etag", "sec-websocket-accept", "x-answer"];
        for name in all.map(str::to_ascii_lowercase).iter().map(String::as_str).chain(kept) {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_static("a"));
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_static("b"));
        }
        keep_what_it_carries(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, kept);
        assert_eq!(headers.len(), 2 * kept.len());
    }
}
