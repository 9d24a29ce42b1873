//! Whose a request is. A page that somebody looks at is nobody's.

use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use live::words::State;

use crate::answer::Problem;
use crate::app::{AppState, is_id};
use crate::envd::{PORT, Target, was_signed_for};
use crate::page;
use crate::request::Query;

/// Whose a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RouteKind {
    /// That of a sandbox.
    Sandbox(Target),
    /// Anybody may ask whether we are there.
    Health,
    /// What is counted.
    Metrics,
    /// The page at `/`.
    Page,
    /// `/v1`
    Ours,
    /// E2B's control interface.
    Control,
}

/// The request came to an address of the loopback.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loopback;

/// Headers that name a sandbox win over the name of the host.
pub(super) async fn whose(app: &AppState, request: &Parts) -> Result<RouteKind, Problem> {
    let (headers, uri) = (&request.headers, &request.uri);
    one_host(headers, uri)?;
    let host = host(headers, uri);
    let is_ours = is_our_name(&host, app.settings.domain.as_deref());
    if request.extensions.get::<Loopback>().is_some() && !is_ours {
        let (what, why) = ("the request names a host that is not this server", "a page's name may lead to any machine");
        let instead = "ask for an address, `localhost`, or the name of `--domain`";
        return Err(Problem::new(StatusCode::FORBIDDEN, "serve/origin", what, why, instead));
    }
    if let Some(target) = by_headers(headers)? {
        from_no_page(headers, &host, is_ours)?;
        return Ok(RouteKind::Sandbox(target));
    }
    if let Some(target) = by_host(&host, app.settings.domain.as_deref()) {
        // Its pages are its own: what they may ask of each other, the browser and the program inside decide.
        return Ok(RouteKind::Sandbox(target));
    }
    if page::is_ours(uri.path()) {
        // Somebody may have come by a link of another site: what the page is made of is no secret, and what it does it asks
        // below. Under a name that is not ours it would be another site's.
        return if is_ours { Ok(RouteKind::Page) } else { Err(not_our_name(&host)) };
    }
    from_no_page(headers, &host, is_ours)?;
    match uri.path() {
        "/health" => Ok(RouteKind::Health),
        "/metrics" => Ok(RouteKind::Metrics),
        "/files" => by_signature(app, request).await,
        path if path == "/v1" || path.starts_with("/v1/") || crate::jupyter::is_ours(path) => Ok(RouteKind::Ours),
        _ => Ok(RouteKind::Control),
    }
}

fn by_headers(headers: &HeaderMap) -> Result<Option<Target>, Problem> {
    let one = |name: &str| {
        let mut all = headers.get_all(name).iter();
        match (all.next(), all.next()) {
            (None, _) => Ok(None),
            (Some(one), None) => Ok(Some(one.to_str().unwrap_or_default())),
            (Some(_), Some(_)) => Err(Problem::invalid(name, "the header stands twice")),
        }
    };
    let (id, port) = match (one("e2b-sandbox-id")?, one("e2b-sandbox-port")?) {
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(Problem::invalid("E2b-Sandbox-Port", "missing header E2b-Sandbox-Port")),
        (None, Some(_)) => return Err(Problem::invalid("E2b-Sandbox-Id", "missing header E2b-Sandbox-Id")),
        (Some(id), Some(port)) => (id, port),
    };
    let port = port.parse::<u16>().ok().filter(|port| *port > 0);
    let port = port.ok_or_else(|| Problem::invalid("E2b-Sandbox-Port", "E2b-Sandbox-Port is no port"))?;
    if !is_id(id) {
        return Err(Problem::invalid("E2b-Sandbox-Id", "E2b-Sandbox-Id is no id of a sandbox"));
    }
    Ok(Some(Target { id: id.to_owned(), port }))
}

/// # Errors
/// A request names several hosts: whoever stands before us may have understood another.
fn one_host(headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
    let mut named = headers.get_all(header::HOST).iter();
    let (first, more) = (named.next(), named.next());
    let other = uri
        .authority()
        .zip(first)
        .is_some_and(|(authority, host)| !authority.as_str().eq_ignore_ascii_case(host.to_str().unwrap_or_default()));
    if more.is_some() || other { Err(Problem::invalid("Host", "the request names several hosts")) } else { Ok(()) }
}

/// The host that a request names, without its port.
fn host(headers: &HeaderMap, uri: &Uri) -> String {
    let named = headers.get(header::HOST).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let named = named.or_else(|| uri.authority().map(ToString::to_string)).unwrap_or_default();
    name_of(&named).to_ascii_lowercase()
}

/// `[::1]:80` is `[::1]`, `a:80` is `a`.
fn name_of(host: &str) -> &str {
    match host.rfind(']') {
        Some(end) => host.get(..=end).unwrap_or(host),
        None => host.split(':').next().unwrap_or_default(),
    }
}

/// `PORT-ID` as the first label, below a name that is ours.
fn by_host(host: &str, domain: Option<&str>) -> Option<Target> {
    let (label, rest) = host.split_once('.')?;
    if rest != "localhost"
        && domain.map(str::to_ascii_lowercase).as_deref().is_none_or(|domain| rest != name_of(domain))
    {
        return None;
    }
    let (port, id) = label.split_once('-')?;
    let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
    is_id(id).then(|| Target { id: id.to_owned(), port })
}

/// A signed address of a file names no sandbox: it is the one whose token signed it, which says whether it is too old. Ours may name
/// it (`sandbox=ID`).
async fn by_signature(app: &AppState, request: &Parts) -> Result<RouteKind, Problem> {
    let query = Query::of(&request.uri);
    let target = |id: &str| Ok(RouteKind::Sandbox(Target { id: id.to_owned(), port: PORT }));
    if query.get("signature").is_none() {
        return Ok(RouteKind::Control);
    }
    if let Some(id) = query.get("sandbox").filter(|id| is_id(id)) {
        return target(id);
    }
    for info in app.sandboxes.list(false).await? {
        if info.state != State::Ended && was_signed_for(app, &info.id, request) {
            return target(&info.id);
        }
    }
    let (what, why) = ("the signature is wrong", "no sandbox that lives signed this address");
    Err(Problem::new(StatusCode::UNAUTHORIZED, "serve/signature", what, why, "ask for a new address"))
}

/// A page whose name was made to lead to this machine sends its own name as the host; one of another site sends its origin.
fn from_no_page(headers: &HeaderMap, host: &str, is_ours: bool) -> Result<(), Problem> {
    let origins: Vec<_> =
        headers.get_all(header::ORIGIN).iter().map(|value| value.to_str().unwrap_or_default()).collect();
    let site = headers.get("sec-fetch-site").and_then(|value| value.to_str().ok());
    let is_page = !origins.is_empty() || site.is_some();
    let own_site = site.is_none_or(|site| matches!(site, "none" | "same-origin"));
    let same =
        |origin: &&str| origin.split_once("://").is_some_and(|(_, named)| name_of(named).eq_ignore_ascii_case(host));
    if is_page && !(own_site && origins.iter().all(same) && is_ours) {
        let (what, why) =
            ("the request comes from a page of another site", "a page that somebody looks at must not act here");
        return Err(Problem::new(StatusCode::FORBIDDEN, "serve/origin", what, why, "call from a program"));
    }
    Ok(())
}

fn not_our_name(host: &str) -> Problem {
    let what = format!("{} is no name of this server", policy::diagnostic::quote(host));
    let why = "a page of another site could make its own name lead here";
    Problem::new(StatusCode::FORBIDDEN, "serve/host", what, why, "call it by its address, or by the name of `--domain`")
}

fn is_our_name(host: &str, domain: Option<&str>) -> bool {
    let is_address = host.parse::<std::net::IpAddr>().is_ok() || host.starts_with('[');
    let domain = domain.map(|domain| name_of(domain).to_ascii_lowercase());
    let below = domain
        .is_some_and(|domain| host == domain || host.strip_suffix(&domain).is_some_and(|rest| rest.ends_with('.')));
    is_address || host == "localhost" || host.ends_with(".localhost") || below
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn headers_name_a_sandbox_both_or_none() {
        let of = |pairs: &[(&'static str, &str)]| by_headers(&headers(pairs));
        let target = Target { id: "a1".to_owned(), port: 49983 };
        assert_eq!(of(&[("e2b-sandbox-id", "a1"), ("e2b-sandbox-port", "49983")]), Ok(Some(target)));
        assert_eq!(of(&[]), Ok(None));
        for bad in [
            &[("e2b-sandbox-id", "a1")][..],
            &[("e2b-sandbox-port", "1")],
            &[("e2b-sandbox-id", "a-1"), ("e2b-sandbox-port", "1")],
            &[("e2b-sandbox-id", "../a"), ("e2b-sandbox-port", "1")],
            &[("e2b-sandbox-id", "a1"), ("e2b-sandbox-port", "0")],
            &[("e2b-sandbox-id", "a1"), ("e2b-sandbox-port", "70000")],
            &[("e2b-sandbox-id", "a1"), ("e2b-sandbox-id", "a2"), ("e2b-sandbox-port", "1")],
        ] {
            assert_eq!(of(bad).unwrap_err().status, StatusCode::BAD_REQUEST, "{bad:?}");
        }
    }

    #[test]
    fn a_host_names_a_sandbox_below_our_names_alone() {
        let target = |port| Some(Target { id: "abc".to_owned(), port });
        assert_eq!(by_host("8000-abc.localhost", None), target(8000));
        assert_eq!(by_host("8000-abc.box.example", Some("Box.example:7710")), target(8000));
        for other in [
            "8000-abc.evil.example",
            "abc.localhost",
            "8000-a-b.localhost",
            "0-abc.localhost",
            "localhost",
            "127.0.0.1",
        ] {
            assert_eq!(by_host(other, Some("box.example")), None, "{other}");
        }
    }

    #[test]
    fn our_names_are_addresses_and_the_loopback_and_the_domain() {
        for ours in ["127.0.0.1", "[::1]", "localhost", "a.localhost", "box.example", "8-a.box.example"] {
            assert!(is_our_name(ours, Some("box.example")), "{ours}");
        }
        for other in ["evil.example", "notbox.example", "box.example.evil", ""] {
            assert!(!is_our_name(other, Some("box.example")), "{other}");
        }
    }
}
