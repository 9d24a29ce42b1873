//! The page at `/`: static files, and sessions that stand for a key on `/v1`.
//!
//! What the page shows it asks of `/v1`, as any other client does. Signing in gives two halves: a cookie, which no script can
//! read, and a word that the page keeps for its own origin and sends as a header. Cookies go to every port of a host name, a
//! page's own storage does not: so neither another server of this machine nor a page of another site can act as who signed in.

mod assets;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use serde_json::json;

use crate::answer::{Problem, harden, json_response};
use crate::app::AppState;
use crate::keys::Key;
use crate::sessions::{self, Visit, from_own_page};
use crate::{json as read, request};

/// What the page may load and do. Nothing of it is inline, and nothing comes from elsewhere; pictures that code made are shown
/// from memory.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";
/// Where sessions are made, looked at and ended.
const SESSION: &str = "/page/session";

/// Whether a path is one of the page's.
pub(crate) fn is_ours(path: &str) -> bool {
    path == "/" || path.starts_with("/page/")
}

/// Answers a request for the page.
pub(crate) async fn answer(app: Arc<AppState>, request: Request) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let answered = match (request.method(), path.as_str()) {
        (&Method::POST, SESSION) => sign_in(&app, request).await,
        (&Method::GET, SESSION) => look(&app, &request.into_parts().0),
        (&Method::DELETE, SESSION) => sign_out(&app, &request.into_parts().0),
        (&Method::GET | &Method::HEAD, path) => file(path),
        (_, path) => Err(Problem::no_route(path)),
    };
    let mut response = answered.unwrap_or_else(|problem| problem.problem(std::slice::from_ref(&problem)));
    protect(response.headers_mut());
    response
}

/// Headers of every answer for the page.
fn protect(headers: &mut HeaderMap) {
    harden(headers);
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=(), usb=()"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

fn file(path: &str) -> Result<Response<Body>, Problem> {
    let asset = assets::find(path).ok_or_else(|| Problem::no_route(path))?;
    let mut response = Response::new(Body::from(asset.bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    if asset.packed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

/// The key comes in a body once, and goes back as a session.
async fn sign_in(app: &AppState, request: Request) -> Result<Response<Body>, Problem> {
    let (parts, body) = request.into_parts();
    from_own_page(&parts)?;
    let asked = read::object(&request::body(Request::from_parts(parts.clone(), body)).await?)?;
    let key = app.who(read::text(&asked, "key")?.unwrap_or_default().trim())?;
    let opened = app.sessions.open(&key).ok_or_else(|| crate::backend::failed("the kernel gave no random bytes"))?;
    let mut response = json_response(StatusCode::OK, &shown(&key, Some(&opened.half)));
    let age = sessions::LIFE.as_secs();
    let cookie = format!("{}={}; {}; Max-Age={age}", sessions::cookie_name(&parts), opened.cookie, flags(&parts));
    set_cookie(&mut response, &cookie)?;
    Ok(response)
}

/// The request came by TLS: a cookie that answers it is for such connections alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encrypted;

/// No script reads it, no other site sends it.
fn flags(parts: &Parts) -> &'static str {
    if parts.extensions.get::<Encrypted>().is_some() {
        "Path=/; HttpOnly; SameSite=Strict; Secure"
    } else {
        "Path=/; HttpOnly; SameSite=Strict"
    }
}

fn set_cookie(response: &mut Response<Body>, cookie: &str) -> Result<(), Problem> {
    let value = HeaderValue::from_str(cookie).map_err(|_odd| crate::backend::failed("the cookie cannot be written"))?;
    response.headers_mut().insert(header::SET_COOKIE, value);
    Ok(())
}

fn shown(key: &Key, half: Option<&str>) -> serde_json::Value {
    json!({
        "key": key.name, "ceiling": key.ceiling, "sandboxes": key.sandboxes, "operator": key.operator, "page": half,
        "version": env!("CARGO_PKG_VERSION"),
    })
}

fn look(app: &AppState, parts: &Parts) -> Result<Response<Body>, Problem> {
    let visit = visit(app, parts)?.ok_or_else(sessions::over)?;
    Ok(json_response(StatusCode::OK, &shown(visit.key(), None)))
}

fn sign_out(app: &AppState, parts: &Parts) -> Result<Response<Body>, Problem> {
    let visit = visit(app, parts)?.ok_or_else(sessions::over)?;
    app.sessions.close(&visit);
    let mut response = json_response(StatusCode::OK, &json!({}));
    set_cookie(&mut response, &format!("{}=; {}; Max-Age=0", sessions::cookie_name(parts), flags(parts)))?;
    Ok(response)
}

/// Who a request of the page is from; none where it is not one of the page.
///
/// # Errors
/// It comes from elsewhere, or its session is over.
pub(crate) fn visit(app: &AppState, parts: &Parts) -> Result<Option<Visit>, Problem> {
    app.sessions.visit(&app.keys, parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_that_came_by_tls_goes_by_tls_alone() {
        let mut parts = axum::http::Request::new(()).into_parts().0;
        assert!(!flags(&parts).contains("Secure"), "a browser would not keep it");
        parts.extensions.insert(Encrypted);
        assert_eq!(flags(&parts), "Path=/; HttpOnly; SameSite=Strict; Secure");
    }
}
