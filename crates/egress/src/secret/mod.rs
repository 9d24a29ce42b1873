//! Secrets of a policy in requests: whom one is meant for, and what it looks like in an answer.
//!
//! # Promises
//! A value is put only into a request whose host, port, method and path its policy names, read as the judge reads them. The
//! value held here is wiped when dropped, and no `Debug` shows it.
//! # Does not promise
//! That the request which carries a value is wiped: its headers and address are ordinary memory.

mod parts;
mod put;
pub mod scrub;
pub mod sign;
mod windows;

pub use put::{is_in_other_charset, searchable};

use policy::value::{Secret, SecretUse, host_matches};
use zeroize::Zeroizing;

use crate::denial::To;
use crate::http;

/// Fewest bytes of a value: shorter ones could not be told from ordinary text in answers.
pub const LEAST: usize = 8;
/// Most bytes of a value: it has to fit into a header.
pub const MAX_VALUE: usize = 8192;
/// The one port that is spoken to without TLS: who names it in `ports` asks for that.
const HTTP: u16 = 80;
/// A secret with its value.
pub struct LoadedSecret {
    name: String,
    secret: Secret,
    value: Zeroizing<String>,
    /// What of it a server may say back without the rest.
    parts: Vec<Zeroizing<String>>,
    placeholder: Option<String>,
    /// Of one that signs.
    signer: Option<sign::Signer>,
}

impl std::fmt::Debug for LoadedSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadedSecret").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A request, as far as it decides whether a secret is meant for it.
#[derive(Clone, Copy, Debug)]
pub struct RequestTarget<'a> {
    /// Whom the connection is for.
    pub to: &'a To,
    /// Its port.
    pub port: u16,
    /// Whether it leaves over TLS whose server was verified.
    pub verified: bool,
    /// The method, as sent.
    pub method: &'a str,
    /// The path without its query.
    pub path: &'a str,
}

impl LoadedSecret {
    /// A secret and its value, from which one newline at the end is cut. `placeholder`: what stands for it inside.
    ///
    /// # Errors
    /// Why the value or its place can not be used, in words that end a sentence "the secret ..." and never hold the value.
    pub fn new(name: String, secret: Secret, value: &str, placeholder: Option<String>) -> Result<Self, &'static str> {
        let line = value.strip_suffix('\n').map_or(value, |line| line.strip_suffix('\r').unwrap_or(line));
        let value = Zeroizing::new(line.to_owned());
        if value.is_empty() {
            return Err("is empty");
        }
        if value.contains(['\r', '\n']) {
            return Err("has more than one line");
        }
        if value.chars().any(char::is_control) {
            return Err("has a control character");
        }
        // Servers cut them from a header, and would say back another value than the one that is searched for.
        if value.trim() != value.as_str() {
            return Err("begins or ends with a blank");
        }
        if value.len() < LEAST && !secret.put.is_public() {
            return Err("is shorter than 8 bytes, so answers could not be searched for it");
        }
        if value.len() > MAX_VALUE {
            return Err("is longer than 8192 bytes");
        }
        put::check(&secret.put, placeholder.as_deref())?;
        let (value, signer) = match &secret.put {
            SecretUse::Sign(_) => sign::parted(&value).map(|(key, signer)| (key, Some(signer)))?,
            SecretUse::Header { .. } | SecretUse::Basic(_) | SecretUse::Query(_) | SecretUse::Placeholder => {
                (value, None)
            }
        };
        let sent = match &secret.put {
            SecretUse::Header { public: true, .. } => Zeroizing::default(),
            SecretUse::Header { format, .. } => Zeroizing::new(format.replacen("{}", &value, 1)),
            SecretUse::Basic(_) | SecretUse::Query(_) | SecretUse::Placeholder => value.clone(),
            SecretUse::Sign(_) => Zeroizing::default(),
        };
        let mut parts = parts::of(&sent)?;
        parts.retain(|part| *part != value);
        Ok(Self { name, secret, value, parts, placeholder, signer })
    }

    /// Its name in the policy.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What nobody inside may see of it: the value, and each part that a server reads by itself.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        let value = (!self.is_public()).then_some(self.value.as_str());
        let token = self.signer.as_ref().and_then(sign::Signer::token);
        let parts = self.parts.iter().map(|part| part.as_str());
        value.into_iter().chain(token).chain(parts)
    }

    /// Whether everybody may see it: it is put on outside, and looked for nowhere.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.secret.put.is_public()
    }

    /// Whether nothing of it is in any request, so that no server can say it back: it signs, without a session token.
    #[must_use]
    pub fn stays_here(&self) -> bool {
        self.signer.as_ref().is_some_and(|signer| signer.token().is_none())
    }

    /// The hosts that may see it, as in rules.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.secret.hosts.iter().map(String::as_str)
    }

    /// Whether requests to this host and port may be meant for it, so that they have to be read one by one.
    #[must_use]
    pub fn is_for(&self, to: &To, port: u16) -> bool {
        is_for(&self.secret, to, port)
    }

    /// Whether this request is one that it is put into.
    #[must_use]
    pub fn fits(&self, asked: &RequestTarget<'_>) -> bool {
        let safe = asked.verified || asked.port == HTTP;
        let methods = &self.secret.methods;
        let by_method = methods.is_empty() || methods.iter().any(|method| method == asked.method);
        safe && self.is_for(asked.to, asked.port) && by_method && self.has_path(asked.path)
    }

    /// Whether a request with an encoded slash goes out at all is said by its rule; here both readings of it have to fit.
    fn has_path(&self, path: &str) -> bool {
        let globs = &self.secret.paths;
        globs.is_empty() || http::path::read(path).is_ok_and(|path| path.is_of(globs, true))
    }
}

/// Whether requests to this host and port are read one by one for a secret, whoever has its value.
#[must_use]
pub fn is_for(secret: &Secret, to: &To, port: u16) -> bool {
    let To::Name(name) = to else { return false };
    secret.ports.contains(&port) && secret.hosts.iter().any(|host| host_matches(host, name))
}

#[cfg(test)]
mod tests;
