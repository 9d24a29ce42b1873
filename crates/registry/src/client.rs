//! One repository of one registry, asked over HTTP.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_ENCODING, HeaderMap, HeaderValue, LOCATION, RANGE, WWW_AUTHENTICATE,
};
use reqwest::{RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use url::{Host, Url};

use crate::auth::{Challenge, MAX_TOKEN, Token, challenge};
use crate::credentials::Credentials;
use crate::error::PullError;

const CONNECT: Duration = Duration::from_secs(30);
/// Longest silence in the middle of an answer.
const SILENCE: Duration = Duration::from_secs(60);
/// Fewest bytes of an answer in a second, on the whole: who sends less keeps a pull for as long as it likes.
const MIN_RATE: u64 = 4 << 10;
const MAX_REDIRECTS: usize = 5;
/// Bytes that are read of a refusal.
const MAX_REFUSAL: usize = 16 << 10;

/// Where a registry answers, if it is not at its name.
const ENDPOINTS: [(&str, &str); 1] = [("docker.io", "registry-1.docker.io")];

pub(crate) struct Client {
    /// With this machine's certificates. Reading them takes as long as all else of a second pull, so who speaks no TLS has none.
    secure: OnceLock<reqwest::Client>,
    open: OnceLock<reqwest::Client>,
    /// Of the repository; all else is below.
    base: Url,
    /// For who asks for a scope of its own.
    scope: String,
    credentials: Option<Credentials>,
    plain: bool,
    /// What the registry is told of who asks, since it asked.
    told: Mutex<Option<HeaderValue>>,
}

/// Which registry is asked, and how.
pub(crate) struct Endpoint<'a> {
    pub(crate) registry: &'a str,
    pub(crate) repository: &'a str,
    /// `HOST[:PORT][/PREFIX]` that is asked instead.
    pub(crate) mirror: Option<&'a str>,
    pub(crate) plain: bool,
}

impl Endpoint<'_> {
    /// Whose credentials are used: a mirror never gets those of what it mirrors.
    pub(crate) fn asked(&self) -> &str {
        self.mirror.map_or(self.registry, |mirror| mirror.split('/').next().unwrap_or(mirror))
    }

    fn url(&self) -> Result<Url, PullError> {
        let known = ENDPOINTS.iter().find(|(name, _)| *name == self.registry).map_or(self.registry, |(_, host)| host);
        let (host, prefix) = match self.mirror {
            Some(mirror) => mirror.split_once('/').unwrap_or((mirror, "")),
            None => (known, ""),
        };
        let scheme = if self.plain { "http" } else { "https" };
        let between = if prefix.is_empty() { "" } else { "/" };
        let text = format!("{scheme}://{host}/v2/{}{between}{}/", prefix.trim_end_matches('/'), self.repository);
        let url = Url::parse(&text).ok().filter(|url| url.username().is_empty() && url.query().is_none());
        let url = url.ok_or_else(|| PullError::Reference {
            reference: host.to_owned(),
            why: "it is no host with an optional port and path".to_owned(),
        })?;
        if self.plain && !is_here(&url) {
            return Err(PullError::Plain { host: host.to_owned() });
        }
        Ok(url)
    }
}

/// Whether it is this machine.
fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

impl Client {
    pub(crate) fn new(endpoint: &Endpoint<'_>, credentials: Option<Credentials>) -> Result<Self, PullError> {
        let base = endpoint.url()?;
        if rustls::crypto::ring::default_provider().install_default().is_err() {
            // Somebody has named it already.
        }
        let scope = format!("repository:{}:pull", base.path().trim_start_matches("/v2/").trim_end_matches('/'));
        let (secure, open) = (OnceLock::new(), OnceLock::new());
        Ok(Self { secure, open, base, scope, credentials, plain: endpoint.plain, told: Mutex::default() })
    }

    fn request(&self, url: &Url) -> Result<RequestBuilder, PullError> {
        let tls = url.scheme() == "https";
        let kept = if tls { &self.secure } else { &self.open };
        if let Some(http) = kept.get() {
            return Ok(http.get(url.clone()));
        }
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .user_agent(concat!("fumehood/", env!("CARGO_PKG_VERSION")));
        let http = if tls { http } else { http.tls_certs_only([]) };
        let http = http.build().map_err(|error| self.failed(deepest(&error)))?;
        Ok(kept.get_or_init(|| http).get(url.clone()))
    }

    /// That the registry did not do it.
    pub(crate) fn failed(&self, why: impl Into<String>) -> PullError {
        PullError::Registry { host: host_of(&self.base), why: why.into(), passing: false }
    }

    /// That an answer ends too early.
    pub(crate) fn cut(&self, count: u64, size: u64) -> PullError {
        let why = format!("it ends after {count} of {size} bytes");
        PullError::Registry { host: host_of(&self.base), why, passing: true }
    }

    /// That the connection broke.
    pub(crate) fn broken(&self, error: &reqwest::Error) -> PullError {
        PullError::Registry { host: host_of(&self.base), why: deepest(error), passing: true }
    }

    /// An answer that is one; `from`: only what lies behind so many bytes, which the answer may ignore.
    pub(crate) async fn get(&self, path: &str, accept: &str, from: u64) -> Result<Response, PullError> {
        let mut url = self.base.join(path).map_err(|error| self.failed(error.to_string()))?;
        let mut asked = false;
        for _ in 0..=MAX_REDIRECTS {
            let home = url.origin() == self.base.origin();
            let mut request = self.request(&url)?;
            if !accept.is_empty() {
                request = request.header(ACCEPT, accept);
            }
            if from > 0 {
                request = request.header(RANGE, format!("bytes={from}-"));
            }
            // To nobody else, wherever it leads.
            if let Some(told) = self.told().filter(|_| home) {
                request = request.header(AUTHORIZATION, told);
            }
            let answer = self.sent(request).await?;
            let status = answer.status();
            if status.is_success() {
                let packed = answer.headers().get(CONTENT_ENCODING).is_some_and(|form| form != "identity");
                let unasked = || self.failed("it packs its answer (`Content-Encoding`), which nobody asked for");
                return if packed { Err(unasked()) } else { Ok(answer) };
            }
            if status == StatusCode::UNAUTHORIZED && home && !asked {
                asked = true;
                self.authorize(answer.headers()).await?;
                continue;
            }
            if !status.is_redirection() {
                return Err(self.refused(&url, answer).await);
            }
            url = self.redirected(&url, answer.headers())?;
        }
        Err(self.failed(format!("it redirects more than {MAX_REDIRECTS} times")))
    }

    /// An answer whose head has come.
    async fn sent(&self, request: RequestBuilder) -> Result<Response, PullError> {
        match tokio::time::timeout(SILENCE, request.send()).await {
            Ok(answer) => answer.map_err(|error| self.broken(&error)),
            Err(_late) => Err(self.failed(format!("it answers nothing in {} seconds", SILENCE.as_secs()))),
        }
    }

    fn told(&self) -> Option<HeaderValue> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn redirected(&self, from: &Url, headers: &HeaderMap) -> Result<Url, PullError> {
        let to = headers.get(LOCATION).and_then(|to| to.to_str().ok());
        let to = to.and_then(|to| from.join(to).ok()).ok_or_else(|| self.failed("it redirects to nowhere"))?;
        if !matches!(to.scheme(), "http" | "https") {
            return Err(self.failed(format!("it redirects to an address of the kind `{}:`", to.scheme())));
        }
        if self.may_go(&to) { Ok(to) } else { Err(PullError::Plain { host: host_of(&to) }) }
    }

    /// With TLS anywhere; without, only where the registry itself is asked so, and then only on this machine.
    fn may_go(&self, to: &Url) -> bool {
        to.scheme() == "https" || (to.scheme() == "http" && self.plain && is_here(to))
    }

    async fn authorize(&self, headers: &HeaderMap) -> Result<(), PullError> {
        let challenges = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let wanted = challenges.filter_map(challenge).next();
        let value = match wanted.ok_or_else(|| self.failed("it refuses, and does not say how one proves who one is"))? {
            Challenge::Basic => match &self.credentials {
                Some(credentials) => basic(credentials),
                None => return Err(self.failed("it wants a name and a password, and there are none for it")),
            },
            Challenge::Bearer { realm, service, scope } => {
                let token = self.token(&realm, service.as_deref(), scope.as_deref().unwrap_or(&self.scope)).await?;
                format!("Bearer {token}")
            }
        };
        let mut value = HeaderValue::try_from(value).map_err(|_odd| self.failed("its token cannot be sent"))?;
        value.set_sensitive(true);
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        Ok(())
    }

    async fn token(&self, realm: &str, service: Option<&str>, scope: &str) -> Result<String, PullError> {
        let mut url = Url::parse(realm).map_err(|_odd| self.failed("the place of its tokens is no URL"))?;
        if !self.may_go(&url) {
            return Err(PullError::Plain { host: host_of(&url) });
        }
        url.query_pairs_mut().extend_pairs(service.map(|service| ("service", service))).append_pair("scope", scope);
        let mut request = self.request(&url)?;
        if let Some(credentials) = &self.credentials {
            request = request.header(AUTHORIZATION, basic(credentials));
        }
        let answer = self.sent(request).await?;
        if !answer.status().is_success() {
            return Err(self.refused(&url, answer).await);
        }
        let text = self.text(answer, MAX_TOKEN).await?;
        let token: Option<Token> = serde_json::from_slice(&text).ok();
        token.and_then(Token::text).ok_or_else(|| self.failed("it gives no token"))
    }

    /// All of an answer, which may not be longer.
    pub(crate) async fn text(&self, mut answer: Response, most: usize) -> Result<Vec<u8>, PullError> {
        let mut text = Vec::new();
        let mut pace = Pace::new();
        while let Some(part) = answer.chunk().await.map_err(|error| self.broken(&error))? {
            pace.goes_on(self, part.len())?;
            text.extend_from_slice(&part);
            if text.len() > most {
                return Err(self.failed(format!("it answers with more than {most} bytes")));
            }
        }
        Ok(text)
    }

    /// What a registry says of why not.
    async fn refused(&self, url: &Url, answer: Response) -> PullError {
        #[derive(Deserialize)]
        struct Refusal {
            errors: Vec<Reason>,
        }
        #[derive(Deserialize)]
        struct Reason {
            #[serde(default)]
            message: String,
        }
        let status = answer.status();
        let text = self.text(answer, MAX_REFUSAL).await.unwrap_or_default();
        let said: Option<Refusal> = serde_json::from_slice(&text).ok();
        let said = said.and_then(|said| said.errors.into_iter().next()).map(|reason| reason.message);
        let said = said
            .filter(|said| !said.is_empty())
            .map_or_else(String::new, |said| format!(": {}", said.chars().take(200).collect::<String>()));
        let denied = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let hint = if denied && self.credentials.is_some() {
            " (with the credentials of Docker's `config.json`)"
        } else if denied {
            " (without credentials)"
        } else {
            ""
        };
        let passing = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        PullError::Registry { host: host_of(url), why: format!("it answers {status}{hint}{said}"), passing }
    }
}

/// How fast an answer comes.
pub(crate) struct Pace {
    began: Instant,
    came: u64,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), came: 0 }
    }

    /// More has come. What has come of a blob stays for the next try.
    pub(crate) fn goes_on(&mut self, client: &Client, bytes: usize) -> Result<(), PullError> {
        self.came = self.came.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        if is_fast(self.came, self.began.elapsed()) {
            return Ok(());
        }
        Err(client.failed(format!("it sends less than {} KiB in a second", MIN_RATE >> 10)))
    }
}

fn is_fast(came: u64, spent: Duration) -> bool {
    spent <= SILENCE || came >= spent.as_secs().saturating_mul(MIN_RATE)
}

fn basic(credentials: &Credentials) -> String {
    use base64::Engine as _;
    let text = format!("{}:{}", credentials.user, credentials.password);
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
}

/// Paths and queries of URLs may hold secrets.
fn host_of(url: &Url) -> String {
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    format!("{}{port}", url.host_str().unwrap_or_default())
}

/// The innermost reason, which says what the others only wrap.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(inner) = error.source() {
        error = inner;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sends_a_byte_a_second_is_left_after_a_minute() {
        let after = Duration::from_secs;
        assert!(is_fast(0, after(1)) && is_fast(60, SILENCE), "a beginning may be slow");
        assert!(!is_fast(61, after(61)) && !is_fast(4 << 20, after(3600)));
        assert!(is_fast(4 << 20, after(61)) && is_fast(1 << 30, after(3600)));
    }
}
