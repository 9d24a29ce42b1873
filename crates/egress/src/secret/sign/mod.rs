//! AWS' signature, version 4, made for a request after it was judged.
//!
//! The program inside has no key: whatever it signed with its placeholder is taken away, and the request is signed anew, for the
//! region and service of the host that was judged. Elsewhere, and in the address (`X-Amz-Signature`), its own signature stays.

use ::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, HeaderValue};
use hmac::{Hmac, KeyInit as _, Mac as _};
use percent_encoding::{percent_decode_str, utf8_percent_encode};
use policy::value::{SecretUse, Signing};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::put::{PARAMETER, hidden};
use super::{LoadedSecret, RequestTarget};
use crate::denial::To;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
const PAYLOAD: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
/// Over TLS, S3 takes these for the digest of a body; all others of its words mean signatures inside the body.
const UNSIGNED: [&str; 2] = ["UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"];

/// Between the parts of a value.
const BETWEEN: char = ':';

/// What a signature is made with, beside the secret access key.
pub(super) struct Signer {
    key_id: String,
    token: Option<Zeroizing<String>>,
}

/// An access key as one value, by which the engine hands it to the broker.
#[must_use]
pub fn joined(key_id: &str, key: &str, token: Option<&str>) -> Zeroizing<String> {
    let [id, key] = [key_id, key].map(str::trim_end);
    let mut out = Zeroizing::new(String::with_capacity(
        id.len().saturating_add(key.len()).saturating_add(token.map_or(0, str::len)).saturating_add(2),
    ));
    for (place, part) in [Some(id), Some(key), token.map(str::trim_end)].into_iter().flatten().enumerate() {
        if place > 0 {
            out.push(BETWEEN);
        }
        out.push_str(part);
    }
    out
}

/// What [`joined`] made: the key, and what else signs.
pub(super) fn parted(value: &str) -> Result<(Zeroizing<String>, Signer), &'static str> {
    let mut parts = value.split(BETWEEN);
    let (Some(id), Some(key), token, None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err("is no access key: an id, a secret key, and a session token where there is one");
    };
    let is_id = id.len() >= 4 && id.len() <= 128 && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_id {
        return Err("has an id of its access key that is none");
    }
    if key.len() < super::LEAST || token.is_some_and(|token| token.len() < super::LEAST) {
        return Err("is shorter than 8 bytes, so answers could not be searched for it");
    }
    let token = token.map(|token| Zeroizing::new(token.to_owned()));
    Ok((Zeroizing::new(key.to_owned()), Signer { key_id: id.to_owned(), token }))
}

impl Signer {
    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref().map(String::as_str)
    }
}

/// Whether a request has a signature in its address, by somebody else's key: it goes as it is.
#[must_use]
pub fn is_presigned(parts: &Parts) -> bool {
    let is = |pair: &str| {
        let name = pair.split('=').next().unwrap_or_default();
        percent_decode_str(name).decode_utf8_lossy().eq_ignore_ascii_case("x-amz-signature")
    };
    parts.uri.query().is_some_and(|query| query.split('&').any(is))
}

/// The digest of a body, as a signature has it.
#[must_use]
pub fn digest(body: &[u8]) -> String {
    hex(&Sha256::digest(body))
}

impl LoadedSecret {
    /// Whether it signs requests.
    #[must_use]
    pub fn signs(&self) -> bool {
        self.signer.is_some()
    }

    /// What stands for the body in the signature where the body need not be read; `None`: its [`digest`] does.
    ///
    /// # Errors
    /// The body has signatures of its own, which cannot be made here.
    pub fn payload(&self, asked: &RequestTarget<'_>, parts: &Parts) -> Result<Option<String>, &'static str> {
        let (_, service) = self.scope(asked)?;
        let [first, _] = UNSIGNED;
        let stated = parts.headers.get(&PAYLOAD).and_then(|value| value.to_str().ok());
        if stated.is_some_and(|text| text.starts_with("STREAMING-") && !UNSIGNED.contains(&text)) {
            return Err(
                "its body is signed piece by piece with a key that is not inside: let the client send it unsigned, or whole",
            );
        }
        if service != "s3" {
            return Ok(None);
        }
        let known = stated.filter(|text| UNSIGNED.contains(text) || is_digest(text));
        Ok(Some(known.unwrap_or(first).to_owned()))
    }

    /// Signs a request that it fits, at this time (`20150830T123600Z`), with what stands for its body.
    ///
    /// # Errors
    /// Nobody says for which region and service, or the request cannot carry the signature.
    pub fn sign(
        &self,
        asked: &RequestTarget<'_>,
        parts: &mut Parts,
        (payload, at): (&str, &str),
    ) -> Result<(), &'static str> {
        let Some(signer) = &self.signer else { return Err("it signs nothing") };
        if !self.fits(asked) || !asked.verified {
            return Err("a signature is for requests over TLS alone");
        }
        let (region, service) = self.scope(asked)?;
        let day = at.get(..8).ok_or("the time is none")?;
        let plain = |text: &str| HeaderValue::from_str(text).map_err(|_unusable| "a header cannot hold it");
        let headers = &mut parts.headers;
        for own in [AUTHORIZATION, TOKEN, PAYLOAD] {
            headers.remove(own);
        }
        headers.insert(DATE, plain(at)?);
        if service == "s3" {
            headers.insert(PAYLOAD, plain(payload)?);
        }
        if let Some(token) = signer.token() {
            headers.insert(TOKEN, hidden(token.as_bytes())?);
        }
        let (names, lines) = signed(headers)?;
        let path = path(parts.uri.path(), &service);
        let query = query(parts.uri.query().unwrap_or_default());
        let request = format!("{}\n{path}\n{query}\n{}\n{names}\n{payload}", parts.method, lines.as_str());
        let scope = format!("{day}/{region}/{service}/aws4_request");
        let text = format!("{ALGORITHM}\n{at}\n{scope}\n{}", digest(Zeroizing::new(request).as_bytes()));
        let mut key = Zeroizing::new(format!("AWS4{}", self.value.as_str()).into_bytes());
        for part in [day, &region, &service, "aws4_request"] {
            key = authenticated(&key, part)?;
        }
        let signature = hex(&authenticated(&key, &text)?);
        let id = &signer.key_id;
        let whole = format!("{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}");
        parts.headers.insert(AUTHORIZATION, hidden(whole.as_bytes())?);
        Ok(())
    }

    /// Region and service: as the policy says, else as the host does.
    fn scope(&self, asked: &RequestTarget<'_>) -> Result<(String, String), &'static str> {
        let SecretUse::Sign(Signing { region, service, .. }) = &self.secret.put else {
            return Err("it signs nothing");
        };
        let To::Name(name) = asked.to else { return Err("an address says no region and service") };
        let said = of_host(name);
        let (said_region, said_service) = said.map_or((None, None), |(region, service)| (Some(region), Some(service)));
        let why = "its host does not say for which region and service it is to be signed: `region` and `service` do";
        Ok((region.clone().or(said_region).ok_or(why)?, service.clone().or(said_service).ok_or(why)?))
    }
}

/// Region and service of a host of AWS. Names that say no region are those of services that have one place, us-east-1.
fn of_host(host: &str) -> Option<(String, String)> {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let (rest, is_china) = match host.strip_suffix(".amazonaws.com") {
        Some(rest) => (rest, false),
        None => (host.strip_suffix(".amazonaws.com.cn")?, true),
    };
    let labels: Vec<&str> = rest.split('.').filter(|label| *label != "dualstack").collect();
    let (last, before) = labels.split_last()?;
    let (region, service) = if is_region(last) {
        (*last, *before.last()?)
    } else if let Some(region) = last.strip_prefix("s3-").filter(|region| is_region(region)) {
        (region, "s3")
    } else if !is_china && (before.is_empty() || *last == "s3") {
        ("us-east-1", *last)
    } else {
        return None;
    };
    let service = service.strip_suffix("-fips").unwrap_or(service);
    let service = match service {
        "email" => "ses",
        one if one.starts_with("s3-") => "s3",
        one if one.starts_with("bedrock-") => "bedrock",
        one => one,
    };
    Some((region.to_owned(), service.to_owned()))
}

/// `eu-central-1`, `us-gov-west-1`.
fn is_region(label: &str) -> bool {
    let parts: Vec<&str> = label.split('-').collect();
    let Some((number, words)) = parts.split_last() else { return false };
    let is_word = |word: &&str| word.len() >= 2 && word.chars().all(|c| c.is_ascii_lowercase());
    words.len() >= 2 && words.iter().all(is_word) && !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
}

/// The names of the headers that are signed, and their lines.
fn signed(headers: &HeaderMap) -> Result<(String, Zeroizing<String>), &'static str> {
    let is_signed =
        |name: &&HeaderName| [HOST, CONTENT_TYPE, CONTENT_MD5].contains(name) || name.as_str().starts_with("x-amz-");
    let mut names: Vec<&HeaderName> = headers.keys().filter(is_signed).collect();
    names.sort_unstable_by_key(|name| name.as_str());
    let mut lines = Zeroizing::new(String::new());
    for name in &names {
        lines.push_str(name.as_str());
        for (place, value) in headers.get_all(*name).into_iter().enumerate() {
            lines.push(if place == 0 { ':' } else { ',' });
            let text = value.to_str().map_err(|_unusable| "a header that is signed is no text")?;
            let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
            lines.push_str(&words.join(" "));
        }
        lines.push('\n');
    }
    let names: Vec<&str> = names.into_iter().map(HeaderName::as_str).collect();
    Ok((names.join(";"), lines))
}

/// The path as it is signed: S3 has one reading of it, all others take it once more as text, without steps of `.`.
fn path(path: &str, service: &str) -> String {
    let coded = |text: &str| utf8_percent_encode(text, PARAMETER).to_string();
    if service == "s3" {
        let decoded = |segment: &str| coded(&percent_decode_str(segment).decode_utf8_lossy());
        return path.split('/').map(decoded).collect::<Vec<_>>().join("/");
    }
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            one => kept.push(one),
        }
    }
    let mut out: String = kept.iter().map(|segment| format!("/{}", coded(segment))).collect();
    if out.is_empty() || path.ends_with('/') {
        out.push('/');
    }
    out
}

/// The parameters as they are signed: in order, and written in one way.
fn query(query: &str) -> String {
    let coded = |text: &str| {
        let spaced = text.replace('+', " ");
        utf8_percent_encode(&percent_decode_str(&spaced).decode_utf8_lossy(), PARAMETER).to_string()
    };
    let mut pairs: Vec<(String, String)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (coded(name), coded(value)))
        .collect();
    pairs.sort_unstable();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))
}

fn authenticated(key: &[u8], text: &str) -> Result<Zeroizing<Vec<u8>>, &'static str> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(|_length| "its key cannot be used")?;
    mac.update(text.as_bytes());
    Ok(Zeroizing::new(mac.finalize().into_bytes().to_vec()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
