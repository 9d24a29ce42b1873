//! Sessions: who signed in on the page. They are kept in memory, and end with the server, their time, or their key.

mod origin;

pub(crate) use origin::from_own_page;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use policy::json::{hex, sha256_hex};
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

use crate::answer::Problem;
use crate::keys::{Key, Keys};

/// How long one lasts.
pub(crate) const LIFE: Duration = Duration::from_secs(12 * 60 * 60);
/// Most of one key; the oldest ends for a new one.
const MAX_OF_KEY: usize = 32;
/// The header with the page's half.
const HALF: &str = "x-fumehood-page";
/// The same for WebSockets, for which a page cannot set headers: one of the protocols that it offers.
const HALF_PROTOCOL: &str = "fumehood.page.";
/// Bytes of each half.
const RANDOM: usize = 32;

/// All sessions, by the digest of their cookie: how long a search takes says nothing of a cookie.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: Mutex<BTreeMap<String, Session>>,
}

#[derive(Debug)]
struct Session {
    /// Digest of the page's half.
    half: String,
    key: Key,
    begun: Instant,
    over: CancellationToken,
}

/// What signing in gives.
pub(crate) struct Opened {
    pub(crate) cookie: String,
    pub(crate) half: String,
}

/// A request of the page, and whose it is.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    key: Key,
    digest: String,
    over: CancellationToken,
}

impl Visit {
    /// The key of who signed in.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Done when the session is over.
    pub(crate) fn over(&self) -> &CancellationToken {
        &self.over
    }
}

/// The name of the cookie. Every port of a host name gets it, and so may another server of ours: the port is part of the name.
pub(crate) fn cookie_name(request: &Parts) -> String {
    let named = request.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    // HTTP/2 has it in the address.
    let host = named.or_else(|| request.uri.authority().map(axum::http::uri::Authority::as_str)).unwrap_or_default();
    let port = host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    format!("fumehood-{}", port.unwrap_or(0))
}

/// What a session that is not there is told as.
pub(crate) fn over() -> Problem {
    let why = "it ended, its key was removed, or the server was started anew";
    Problem::new(StatusCode::UNAUTHORIZED, "serve/session", "this session is over", why, "sign in again")
}

impl Sessions {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<String, Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new one; none where the kernel gives no random bytes.
    pub(crate) fn open(&self, key: &Key) -> Option<Opened> {
        let (mut cookie, mut half) = ([0_u8; RANDOM], [0_u8; RANDOM]);
        if !(sys::random::fill(&mut cookie) && sys::random::fill(&mut half)) {
            return None;
        }
        let opened = Opened { cookie: hex(&cookie), half: hex(&half) };
        let session = Session {
            half: sha256_hex(opened.half.as_bytes()),
            key: key.clone(),
            begun: Instant::now(),
            over: CancellationToken::new(),
        };
        let mut open = self.locked();
        let of_key: Vec<_> = open.iter().filter(|(_, known)| known.key.mark() == key.mark()).collect();
        if of_key.len() >= MAX_OF_KEY {
            let oldest = of_key.iter().min_by_key(|(_, known)| known.begun).map(|(digest, _)| (*digest).clone());
            end(&mut open, oldest.as_deref());
        }
        open.insert(sha256_hex(opened.cookie.as_bytes()), session);
        Some(opened)
    }

    /// Ends one.
    pub(crate) fn close(&self, visit: &Visit) {
        end(&mut self.locked(), Some(&visit.digest));
    }

    /// Ends those whose time is over or whose key is gone.
    pub(crate) fn sweep(&self, keys: &Keys) {
        let mut open = self.locked();
        if open.is_empty() {
            return;
        }
        // Where the keys cannot be read, nobody is let in either.
        let known = keys.list().unwrap_or_default();
        let is_good = |session: &Session| {
            session.begun.elapsed() < LIFE && known.iter().any(|key| key.mark() == session.key.mark())
        };
        let stale: Vec<String> =
            open.iter().filter(|(_, session)| !is_good(session)).map(|(digest, _)| digest.clone()).collect();
        stale.iter().for_each(|digest| end(&mut open, Some(digest)));
    }

    /// Who a request of the page is from; none where it does not say that it is one.
    pub(crate) fn visit(&self, keys: &Keys, request: &Parts) -> Result<Option<Visit>, Problem> {
        let Some(half) = half(request) else { return Ok(None) };
        from_own_page(request)?;
        self.sweep(keys);
        let (open, half) = (self.locked(), sha256_hex(half.as_bytes()));
        // Another server of this host may have set a cookie of the same name: each is tried.
        let found = cookies(request).into_iter().find_map(|cookie| {
            let digest = sha256_hex(cookie.as_bytes());
            let session = open.get(&digest)?;
            let is_same = bool::from(session.half.as_bytes().ct_eq(half.as_bytes()));
            is_same.then(|| Visit { key: session.key.clone(), digest, over: session.over.clone() })
        });
        drop(open);
        found.map(Some).ok_or_else(over)
    }
}

fn end(open: &mut BTreeMap<String, Session>, digest: Option<&str>) {
    if let Some(session) = digest.and_then(|digest| open.remove(digest)) {
        session.over.cancel();
    }
}

/// The page's half, if a request has one.
fn half(request: &Parts) -> Option<&str> {
    if let Some(half) = request.headers.get(HALF) {
        return Some(half.to_str().unwrap_or_default());
    }
    let protocols =
        request.headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    protocols.flat_map(|value| value.split(',')).find_map(|protocol| protocol.trim().strip_prefix(HALF_PROTOCOL))
}

/// Takes the session out of a request that was let in: a port of a sandbox, to which it may be passed on, must not see it.
pub(crate) fn forget(headers: &mut HeaderMap) {
    headers.remove(header::COOKIE);
    headers.remove(HALF);
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let others =
        offered.flat_map(|value| value.split(',')).map(str::trim).filter(|name| !name.starts_with(HALF_PROTOCOL));
    let others = others.collect::<Vec<_>>().join(", ");
    headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
    if let Ok(others) = HeaderValue::from_str(&others)
        && !others.is_empty()
    {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, others);
    }
}

fn cookies(request: &Parts) -> Vec<&str> {
    let name = cookie_name(request);
    let all = request.headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(known, _)| *known == name).map(|(_, value)| value).take(8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> (tempfile::TempDir, Keys, Key) {
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::open(folder.path()).unwrap();
        let token = keys.add("one", None, None).unwrap();
        let key = keys.who(&token).unwrap().unwrap();
        (folder, keys, key)
    }

    fn request(cookie: &str, half: &str) -> Parts {
        let builder = axum::http::Request::builder().uri("/v1/sandboxes").header("host", "127.0.0.1:7710");
        let builder = builder.header("cookie", format!("a=b; fumehood-7710={cookie}")).header(HALF, half);
        builder.body(()).unwrap().into_parts().0
    }

    #[test]
    fn both_halves_are_wanted_and_a_removed_key_ends_all() {
        let (_folder, keys, key) = keys();
        let sessions = Sessions::default();
        let opened = sessions.open(&key).unwrap();
        let other = sessions.open(&key).unwrap();
        assert_eq!((opened.cookie.len(), opened.half.len()), (64, 64));
        let who = |cookie: &str, half: &str| sessions.visit(&keys, &request(cookie, half));
        let visit = who(&opened.cookie, &opened.half).unwrap().unwrap();
        assert_eq!(visit.key(), &key);
        for (cookie, half) in
            [(&opened.cookie, &other.half), (&opened.half, &opened.half), (&String::new(), &opened.half)]
        {
            assert_eq!(who(cookie, half).unwrap_err().status, StatusCode::UNAUTHORIZED);
        }
        keys.remove("one").unwrap();
        assert_eq!(who(&opened.cookie, &opened.half).unwrap_err().status, StatusCode::UNAUTHORIZED);
        assert!(visit.over().is_cancelled());
    }

    #[test]
    fn a_session_is_not_passed_on() {
        let mut request = request("c", "h");
        let offered = "fumehood.terminal, fumehood.page.h, other";
        request.headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(offered));
        forget(&mut request.headers);
        assert_eq!(request.headers.len(), 2, "{:?}", request.headers);
        assert_eq!(request.headers[header::SEC_WEBSOCKET_PROTOCOL], "fumehood.terminal, other");
    }

    #[test]
    fn the_oldest_ends_for_a_new_one_and_closing_ends_one() {
        let (_folder, keys, key) = keys();
        let sessions = Sessions::default();
        let all: Vec<Opened> = (0..=MAX_OF_KEY).map(|_| sessions.open(&key).unwrap()).collect();
        let is_there = |opened: &Opened| sessions.visit(&keys, &request(&opened.cookie, &opened.half)).is_ok();
        assert!(!is_there(&all[0]) && all.iter().skip(1).all(is_there));
        let visit = sessions.visit(&keys, &request(&all[1].cookie, &all[1].half)).unwrap().unwrap();
        sessions.close(&visit);
        assert!(!is_there(&all[1]) && is_there(&all[2]));
    }
}
