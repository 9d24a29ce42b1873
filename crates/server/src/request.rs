//! What every front door reads of a request: its key, its query, its body.

use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, Uri};

use crate::answer::Problem;

/// The longest body of a request.
const MAX_BODY: usize = 1 << 20;

/// The query of a request; of a name that stands twice the first value counts.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn of(uri: &Uri) -> Self {
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let halves = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Self(halves.map(|(name, value)| (decoded(name), decoded(value))).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// All values of a name.
    pub(crate) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A number that is not negative; no text is none.
    ///
    /// # Errors
    /// It is something else.
    pub(crate) fn whole(&self, name: &str) -> Result<Option<u64>, Problem> {
        let odd = |_| Problem::invalid(name, &format!("`{name}` is no whole number from 0 on"));
        self.get(name).filter(|text| !text.is_empty()).map(|text| text.parse().map_err(odd)).transpose()
    }

    /// What is not understood is not ignored.
    ///
    /// # Errors
    /// A name that is none of these.
    pub(crate) fn known(&self, known: &[&str]) -> Result<(), Problem> {
        match self.0.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, _)) => Err(Problem::unknown(name, known)),
            None => Ok(()),
        }
    }
}

/// A name or a value of a query; bytes that are no text as in paths.
fn decoded(text: &str) -> String {
    let bytes: Vec<u8> = percent_encoding::percent_decode_str(&text.replace('+', " ")).collect();
    agent::path_text::of(std::ffi::OsStr::from_bytes(&bytes))
}

/// The one key that a request shows; empty without, or where it shows several.
pub(crate) fn token(headers: &HeaderMap) -> String {
    let one = |name: &str| {
        let mut all = headers.get_all(name).iter();
        match (all.next(), all.next()) {
            (Some(one), None) => one.to_str().ok(),
            (_, _) => None,
        }
    };
    if headers.contains_key("x-api-key") {
        return one("x-api-key").unwrap_or_default().to_owned();
    }
    let bearer = one("authorization").and_then(|value| value.split_once(' '));
    bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map_or("", |(_, token)| token.trim()).to_owned()
}

/// A whole body, of bounded size and time.
pub(crate) async fn body(request: Request) -> Result<Bytes, Problem> {
    let read = axum::body::to_bytes(request.into_body(), MAX_BODY);
    match tokio::time::timeout(Duration::from_secs(30), read).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_cut)) => {
            let (why, instead) = ("it broke off, or is longer than 1 MiB", "send less");
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "serve/body", "the body cannot be read", why, instead))
        }
        Err(_late) => {
            let (why, instead) = ("it took longer than 30 s", "send it at once");
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "serve/body", "the body did not come", why, instead))
        }
    }
}
