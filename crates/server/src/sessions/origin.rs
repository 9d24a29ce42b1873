//! Whether a request comes from our own page.

use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};

use crate::answer::Problem;

/// A request of our own page: of this host name *and* this port. What changes something, and what opens a connection that
/// stays, must say where it comes from; browsers leave it out of plain reading alone.
///
/// # Errors
/// It comes from elsewhere, or does not say.
pub(crate) fn from_own_page(request: &Parts) -> Result<(), Problem> {
    let text = |name: header::HeaderName| {
        let all = request.headers.get_all(name).iter();
        all.map(|value| value.to_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let hosts = text(header::HOST);
    let host = match (hosts.as_slice(), request.uri.authority()) {
        ([host], _) => host.clone(),
        ([], Some(authority)) => authority.to_string(),
        (_, _) => return Err(elsewhere()),
    };
    let origins = text(header::ORIGIN);
    let sites = text(header::HeaderName::from_static("sec-fetch-site"));
    let is_ours = |origin: &String| {
        let named = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        named.is_some_and(|named| !named.is_empty() && named.eq_ignore_ascii_case(&host))
    };
    let says = !origins.is_empty() || (!sites.is_empty() && !is_upgrade(request));
    let reads = matches!(request.method, Method::GET | Method::HEAD) && !is_upgrade(request);
    if origins.iter().all(is_ours) && sites.iter().all(|site| site == "same-origin") && (says || reads) {
        Ok(())
    } else {
        Err(elsewhere())
    }
}

fn is_upgrade(request: &Parts) -> bool {
    request.headers.contains_key(header::UPGRADE)
}

fn elsewhere() -> Problem {
    let (what, why) =
        ("the request does not come from this server's own page", "a page of another site must not act here");
    Problem::new(StatusCode::FORBIDDEN, "serve/origin", what, why, "open the page at this server's own address")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, headers: &[(&str, &str)]) -> bool {
        let mut builder = axum::http::Request::builder().method(method).uri("/v1/sandboxes");
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        from_own_page(&builder.body(()).unwrap().into_parts().0).is_ok()
    }

    #[test]
    fn a_request_comes_from_this_name_and_this_port() {
        const HOST: (&str, &str) = ("host", "127.0.0.1:7710");
        let own = ("origin", "http://127.0.0.1:7710");
        assert!(asked("POST", &[HOST, own]) && asked("POST", &[HOST, own, ("sec-fetch-site", "same-origin")]));
        assert!(asked("GET", &[HOST]) && asked("POST", &[HOST, ("sec-fetch-site", "same-origin")]));
        assert!(asked("GET", &[HOST, own, ("upgrade", "websocket")]));
        for (method, bad) in [
            ("POST", &[HOST][..]),
            ("DELETE", &[HOST]),
            ("POST", &[HOST, ("origin", "http://127.0.0.1:8000")]),
            ("GET", &[HOST, ("origin", "http://127.0.0.1:8000")]),
            ("POST", &[HOST, own, ("origin", "http://evil.example")]),
            ("POST", &[HOST, ("origin", "null")]),
            ("POST", &[HOST, own, ("sec-fetch-site", "same-site")]),
            ("GET", &[HOST, ("sec-fetch-site", "cross-site")]),
            ("GET", &[HOST, ("sec-fetch-site", "none")]),
            ("GET", &[HOST, ("upgrade", "websocket")]),
            ("GET", &[HOST, ("upgrade", "websocket"), ("sec-fetch-site", "same-origin")]),
            ("POST", &[HOST, HOST, own]),
            ("POST", &[own]),
        ] {
            assert!(!asked(method, bad), "{method} {bad:?}");
        }
    }
}
