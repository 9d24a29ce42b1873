//! Tells a URL of each parked call, signed, so that the receiver knows who says so and when.
//!
//! Each POST carries `Fumehood-Timestamp` (seconds since the epoch), `Fumehood-Delivery` (the call's id: the same for
//! each try) and `Fumehood-Signature: v1=` with the hex HMAC-SHA-256 of `v1.TIMESTAMP.BODY` under the shared secret. A
//! receiver refuses what is older than [`WINDOW`]. Nothing in the response answers a call: answers come by the approvals
//! API or the command line. Tries are bounded and end with the call; a failure neither blocks nor approves.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use policy::json::{hex, unhex};
use serde_json::json;
use sha2::Sha256;
use url::{Host, Url};

use super::keys::secret;
use crate::approvals::{Approvals, Asker, ParkedCall};
use crate::engine::BoxFuture;

/// How old a delivery may be when it arrives.
pub const WINDOW: Duration = Duration::from_secs(300);
/// When to try, after the call was parked.
const TRIES: [Duration; 5] =
    [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(15), Duration::from_secs(60)];
/// How long one try may take.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Takes the words about a delivery that failed.
pub type Complain = Box<dyn Fn(&str) + Send + Sync>;

/// A URL that is told.
pub struct Webhook {
    url: Url,
    secret: Vec<u8>,
    client: reqwest::Client,
    tries: [Duration; 5],
    complain: Complain,
    /// What was complained of last: the same is not said again before something arrived.
    said: Mutex<Option<String>>,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

impl Webhook {
    /// A webhook, with the secret in a file of 0600 that is made if it is missing.
    ///
    /// # Errors
    /// Why not: an address in the clear, a secret that others may read, no roots of trust.
    pub fn new(url: &str, secret_file: &Path, complain: Complain) -> Result<Self, String> {
        Self::with(url, secret(secret_file).map_err(|error| error.to_string())?, TRIES, complain)
    }

    pub(super) fn with(url: &str, secret: Vec<u8>, tries: [Duration; 5], complain: Complain) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|error| format!("it is no URL: {error}"))?;
        let is_here = match url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        };
        if url.scheme() != "https" && !(url.scheme() == "http" && is_here) {
            return Err("the arguments of calls would go out in the clear: use https".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a password in a URL ends in logs: the signature proves who sends".to_owned());
        }
        name_ciphers()?;
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(DELIVERY_TIMEOUT)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { url, secret, client, tries, complain, said: Mutex::default() })
    }

    /// A webhook that fails is not silent: somebody may think that he is told.
    fn failed(&self, why: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.as_deref() != Some(why) {
            (self.complain)(&format!("the webhook at {} was not told of a call that waits: {why}", self.host()));
            *said = Some(why.to_owned());
        }
    }

    /// Without path and query, where some services have their secrets.
    fn host(&self) -> String {
        let port = self.url.port().map_or_else(String::new, |port| format!(":{port}"));
        format!("{}://{}{port}", self.url.scheme(), self.url.host_str().unwrap_or_default())
    }

    /// One try.
    async fn deliver(&self, id: &str, body: &str) -> Result<(), String> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        let signature = sign(&self.secret, now, body).ok_or("it cannot be signed")?;
        let request = self
            .client
            .post(self.url.clone())
            .header("content-type", "application/json")
            .header("fumehood-timestamp", now.to_string())
            .header("fumehood-delivery", id)
            .header("fumehood-signature", signature)
            .body(body.to_owned());
        let response = request.send().await.map_err(|error| deepest(&error))?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status if status.is_redirection() => Err(format!("it answered {status}, and redirects are not followed")),
            status => Err(format!("it answered {status}")),
        }
    }
}

impl Asker for Webhook {
    fn asked<'a>(&'a self, call: &'a ParkedCall, _: &'a Approvals) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let body = json!({
                "event": "approval.asked", "call": call.to_json(),
                "answers": {
                    "approve": format!("/v1/approvals/{}:approve", call.id), "deny": format!("/v1/approvals/{}:deny", call.id),
                },
            });
            let body = body.to_string();
            let begun = tokio::time::Instant::now();
            for after in self.tries {
                tokio::time::sleep_until(begun + after).await;
                match self.deliver(&call.id, &body).await {
                    Ok(()) => return *self.said.lock().unwrap_or_else(PoisonError::into_inner) = None,
                    Err(why) => self.failed(&why),
                }
            }
        })
    }
}

/// What is at the bottom of an error: `invalid peer certificate: UnknownIssuer`, and not that a request failed.
fn deepest(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(below) = cause.source() {
        cause = below;
    }
    let why = cause.to_string();
    if why.contains("certificate") {
        return format!("{why} (only roots that this system trusts count; SSL_CERT_FILE names others)");
    }
    why
}

/// `v1=HEX`
fn sign(secret: &[u8], timestamp: u64, body: &str) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
    mac.update(format!("v1.{timestamp}.").as_bytes());
    mac.update(body.as_bytes());
    Some(format!("v1={}", hex(&mac.finalize().into_bytes())))
}

/// Whether a delivery is genuine and fresh: what a receiver has to do.
#[must_use]
pub fn verify(secret: &[u8], timestamp: &str, signature: &str, body: &str, now: u64) -> bool {
    let Some(then) = timestamp.parse::<u64>().ok().filter(|then| then.to_string() == timestamp) else { return false };
    let fresh = now.abs_diff(then) <= WINDOW.as_secs();
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return false };
    mac.update(format!("v1.{then}.").as_bytes());
    mac.update(body.as_bytes());
    let given = signature.strip_prefix("v1=").and_then(unhex);
    fresh && given.is_some_and(|given| mac.verify_slice(&given).is_ok())
}

/// TLS needs one implementation of its ciphers for the whole process; whoever is first names it, and all name the same.
fn name_ciphers() -> Result<(), String> {
    if rustls::crypto::ring::default_provider().install_default().is_ok() {
        return Ok(());
    }
    rustls::crypto::CryptoProvider::get_default().map(|_| ()).ok_or_else(|| "TLS has no ciphers".to_owned())
}
