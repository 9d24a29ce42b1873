//! Tokens of sandboxes, derived from a secret of the server and the sandbox's id: nothing is kept, and another server of the
//! same state folder knows them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use policy::json::hex;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// What a token opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Programs and files: E2B's `X-Access-Token`.
    Data,
    /// Ports of a sandbox that are not public: E2B's `E2B-Traffic-Access-Token`.
    Ports,
    /// One upload for a build, until a time: `TEMPLATE HASH SECONDS`.
    Upload,
    /// None: what marks the headers that are put into requests outside.
    Headers,
    /// None: what marks a request, in which headers may be secrets.
    Body,
}

/// Makes and knows tokens.
#[derive(Clone)]
pub(crate) struct Tokens {
    secret: Vec<u8>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens")
    }
}

/// What a signed URL is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signed<'a> {
    /// The path as it stands in the query.
    pub(crate) path: &'a str,
    /// `read` or `write`.
    pub(crate) operation: &'a str,
    /// The user as it stands in the query; empty without.
    pub(crate) user: &'a str,
    /// Seconds since 1970, as it stands in the query.
    pub(crate) expiration: Option<&'a str>,
}

impl Tokens {
    pub(crate) fn new(secret: Vec<u8>) -> Self {
        Self { secret }
    }

    /// The token of a sandbox.
    pub(crate) fn of(&self, purpose: Purpose, id: &str) -> String {
        let word = match purpose {
            Purpose::Data => "data",
            Purpose::Ports => "ports",
            Purpose::Upload => "upload",
            Purpose::Headers => "headers",
            Purpose::Body => "body",
        };
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.secret) else { return String::new() };
        mac.update(format!("{word} {id}").as_bytes());
        hex(&mac.finalize().into_bytes())
    }

    /// Whether a token is that of a sandbox. In constant time.
    pub(crate) fn is(&self, purpose: Purpose, id: &str, given: &str) -> bool {
        let good = self.of(purpose, id);
        !good.is_empty() && bool::from(good.as_bytes().ct_eq(given.as_bytes()))
    }

    /// Whether a URL was signed for a sandbox, and is not too old.
    pub(crate) fn is_signed(&self, id: &str, what: Signed<'_>, signature: &str, now_ms: i64) -> bool {
        let Signed { path, operation, user, expiration } = what;
        let token = self.of(Purpose::Data, id);
        let mut text = format!("{path}:{operation}:{user}:{token}");
        if let Some(expiration) = expiration {
            let is_late = expiration.parse::<i64>().map_or(true, |until| until < now_ms.div_euclid(1000));
            if is_late {
                return false;
            }
            text = format!("{text}:{expiration}");
        }
        let good = format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text.as_bytes())));
        !token.is_empty() && bool::from(good.as_bytes().ct_eq(signature.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_one_sandbox_for_one_purpose() {
        let tokens = Tokens::new(vec![7; 32]);
        let one = tokens.of(Purpose::Data, "a1");
        assert!(tokens.is(Purpose::Data, "a1", &one));
        assert!(!tokens.is(Purpose::Data, "a2", &one) && !tokens.is(Purpose::Ports, "a1", &one));
        assert!(!tokens.is(Purpose::Data, "a1", "") && !Tokens::new(vec![8; 32]).is(Purpose::Data, "a1", &one));
    }

    #[test]
    fn a_signature_is_for_one_path_one_operation_one_user_and_not_for_ever() {
        let tokens = Tokens::new(vec![7; 32]);
        let token = tokens.of(Purpose::Data, "a1");
        let sign = |text: &str| format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text.as_bytes())));
        let good = sign(&format!("/f:read::{token}:2000"));
        let is = |path, operation, user, expiration, at| {
            tokens.is_signed("a1", Signed { path, operation, user, expiration }, &good, at)
        };
        assert!(is("/f", "read", "", Some("2000"), 2_000_000));
        assert!(!is("/f", "read", "", Some("2000"), 2_001_000), "too old");
        assert!(!is("/f", "read", "", None, 0) && !is("/f", "read", "", Some("2001"), 0));
        assert!(!is("/g", "read", "", Some("2000"), 0) && !is("/f", "write", "", Some("2000"), 0));
        assert!(!is("/f", "read", "root", Some("2000"), 0));
        let other = Signed { path: "/f", operation: "read", user: "", expiration: Some("2000") };
        assert!(!tokens.is_signed("a2", other, &good, 0));
    }
}
