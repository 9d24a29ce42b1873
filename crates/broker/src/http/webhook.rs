//! Tells a URL of each parked call, signed, so that the receiver knows who says so and when.
//!
//! Each POST carries `Fumehood-Timestamp` (seconds since the epoch), `Fumehood-Delivery` (the call's id: the same for
//! each try) and `Fumehood-Signature: v1=` with the hex HMAC-SHA-256 of `v1.TIMESTAMP.BODY` under the shared secret. A
//! receiver refuses what is older than [`WINDOW`]. Nothing in the response answers a call: answers come by the approvals
//! API or the command line. Tries are bounded and end with the call; a failure neither blocks nor approves.

use std::path::Path;
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use policy::json::{hex, unhex};
use serde_json::json;
use sha2::Sha256;
use url::{Host, Url};

use super::Boxed;
use super::keys::secret;
use crate::approvals::{Approvals, Asker, ParkedCall};

/// How old a delivery may be when it arrives.
pub const WINDOW: Duration = Duration::from_secs(300);
/// When to try, after the call was parked.
const TRIES: [Duration; 5] =
    [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(15), Duration::from_secs(60)];
/// How long one try may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A URL that is told.
#[derive(Debug)]
pub struct Webhook {
    url: Url,
    secret: Vec<u8>,
    client: reqwest::Client,
    tries: [Duration; 5],
}

impl Webhook {
    /// A webhook, with the secret in a file of 0600 that is made if it is missing.
    ///
    /// # Errors
    /// Why not: an address in the clear, a secret that others may read, no roots of trust.
    pub fn new(url: &str, secret_file: &Path) -> Result<Self, String> {
        Self::with(url, secret(secret_file).map_err(|error| error.to_string())?, TRIES)
    }

    pub(super) fn with(url: &str, secret: Vec<u8>, tries: [Duration; 5]) -> Result<Self, String> {
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
            .timeout(PATIENCE)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { url, secret, client, tries })
    }

    /// One try; whether it arrived.
    async fn deliver(&self, id: &str, body: &str) -> bool {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        let Some(signature) = sign(&self.secret, now, body) else { return false };
        let request = self
            .client
            .post(self.url.clone())
            .header("content-type", "application/json")
            .header("fumehood-timestamp", now.to_string())
            .header("fumehood-delivery", id)
            .header("fumehood-signature", signature)
            .body(body.to_owned());
        request.send().await.is_ok_and(|response| response.status().is_success())
    }
}

impl Asker for Webhook {
    fn asked<'a>(&'a self, call: &'a ParkedCall, _: &'a Approvals) -> Boxed<'a, ()> {
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
                if self.deliver(&call.id, &body).await {
                    return;
                }
            }
        })
    }
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
