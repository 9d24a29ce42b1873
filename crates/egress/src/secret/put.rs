//! Where in a request a secret is put.

use ::http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE};
use ::http::request::Parts;
use ::http::uri::PathAndQuery;
use ::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use policy::value::{FRAMING, SecretUse};
use zeroize::Zeroizing;

use super::{LoadedSecret, MAX_VALUE, RequestTarget};
use crate::http::is_spelling;

/// What stays as it is in a parameter: RFC 3986's unreserved.
pub(super) const PARAMETER: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Wishes for an answer that could not be searched, beside [`ACCEPT_ENCODING`].
const WISHES: [&str; 7] =
    ["range", "if-range", "request-range", "a-im", "accept-charset", "grpc-accept-encoding", "connect-accept-encoding"];
/// Beginnings of charsets in which ASCII is ASCII, and words of servers that are none. In others a value has other bytes than the ones
/// that are searched for.
const CHARSETS: [&str; 29] = [
    "utf-8",
    "utf8",
    "utf_8",
    "us-ascii",
    "ascii",
    "iso-8859-",
    "iso8859",
    "iso_8859",
    "latin",
    "windows-125",
    "windows-874",
    "cp125",
    "cp932",
    "gb2312",
    "gb_2312",
    "gbk",
    "gb18030",
    "big5",
    "euc-",
    "euckr",
    "shift_jis",
    "shift-jis",
    "x-sjis",
    "koi8",
    "tis-620",
    "macintosh",
    "binary",
    "none",
    "undefined",
];

/// Asks for an answer that can be searched: not compressed, whole, and in a charset of the server's own choice.
pub fn searchable(headers: &mut HeaderMap) {
    let is_wish =
        |name: &&HeaderName| WISHES.iter().chain([&"accept-encoding"]).any(|wish| is_spelling(name.as_str(), wish));
    let wishes: Vec<HeaderName> = headers.keys().filter(is_wish).cloned().collect();
    for name in wishes {
        headers.remove(name);
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let accepted: Vec<HeaderValue> = headers.get_all(ACCEPT).iter().filter_map(without_charset).collect();
    headers.remove(ACCEPT);
    for value in accepted {
        headers.append(ACCEPT, value);
    }
}

/// A list of media types without their charsets, by which many a server chooses the one of its answer. `None`: it is no text.
fn without_charset(value: &HeaderValue) -> Option<HeaderValue> {
    let text = value.to_str().ok()?;
    if !text.to_ascii_lowercase().contains("charset") {
        return Some(value.clone());
    }
    let one =
        |media: &str| parted(media, ';').into_iter().filter(|part| !is_charset(part)).collect::<Vec<_>>().join(";");
    let list: Vec<String> = parted(text, ',').into_iter().map(one).collect();
    HeaderValue::from_str(&list.join(",")).ok()
}

fn is_charset(parameter: &str) -> bool {
    let name = parameter.split('=').next().unwrap_or_default().trim();
    name.get(..7).is_some_and(|begin| begin.eq_ignore_ascii_case("charset"))
}

/// The parts of a text between marks that are in no quotes.
fn parted(text: &str, mark: char) -> Vec<&str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(|letter: char| {
        let ends = letter == mark && !quoted;
        quoted ^= letter == '"' && !escaped;
        escaped = letter == '\\' && quoted && !escaped;
        ends
    })
    .collect()
}

/// Whether a body of these headers says of itself that it is in a charset in which a value would have other bytes.
#[must_use]
pub fn is_in_other_charset(headers: &HeaderMap) -> bool {
    let is_other = |value: &HeaderValue| {
        let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
        let charsets = parted(&text, ';').into_iter().filter(|part| is_charset(part));
        let names = charsets.filter_map(|part| part.split_once('=')).map(|(_, name)| name.trim().trim_matches('"'));
        let mut names = names.filter(|name| !name.is_empty());
        names.any(|name| !CHARSETS.iter().any(|known| name.starts_with(known)))
    };
    headers.get_all(CONTENT_TYPE).iter().any(is_other)
}

/// Whether a place can be used.
pub(super) fn check(put: &SecretUse, placeholder: Option<&str>) -> Result<(), &'static str> {
    match put {
        SecretUse::Placeholder if placeholder.is_none_or(str::is_empty) => Err("has no placeholder to stand for it"),
        SecretUse::Header { .. }
        | SecretUse::Basic(_)
        | SecretUse::Query(_)
        | SecretUse::Placeholder
        | SecretUse::Sign(_) => Ok(()),
    }
}

impl LoadedSecret {
    /// Puts the value into a request that it fits; says whether it did. What it then asks of the server is that the answer
    /// can be searched: not compressed, and whole; but for one that everybody may see.
    ///
    /// # Errors
    /// The request cannot carry the value: it may not be sent.
    pub fn put(&self, asked: &RequestTarget<'_>, parts: &mut Parts) -> Result<bool, &'static str> {
        if !self.fits(asked) {
            return Ok(false);
        }
        let is_put = match &self.secret.put {
            SecretUse::Header { name, format, public: _ } => {
                let name =
                    HeaderName::from_bytes(name.as_bytes()).map_err(|_unusable| "its header has no usable name")?;
                let whole = Zeroizing::new(format.replacen("{}", &self.value, 1));
                // Gateways that make variables of headers take another spelling for it, too.
                let is_own = |other: &&HeaderName| is_spelling(other.as_str(), name.as_str());
                let own: Vec<HeaderName> = parts.headers.keys().filter(is_own).cloned().collect();
                for own in own {
                    parts.headers.remove(own);
                }
                parts.headers.insert(name, hidden(whole.as_bytes())?);
                true
            }
            SecretUse::Basic(user) => {
                parts.headers.insert(AUTHORIZATION, hidden(basic(user, &self.value).as_bytes())?);
                true
            }
            SecretUse::Query(key) => {
                let query = self.with_parameter(key, parts.uri.query().unwrap_or_default());
                parts.uri = with_query(&parts.uri, &query)?;
                true
            }
            SecretUse::Placeholder => self.replace(parts)?,
            // It is signed when nothing else of it changes: `sign`.
            SecretUse::Sign(_) => false,
        };
        if is_put && !self.is_public() {
            searchable(&mut parts.headers);
        }
        Ok(is_put)
    }

    /// A body in which the value stands for the placeholder, written as a body of this type writes text; `None` where no
    /// placeholder is.
    #[must_use]
    pub fn in_body(&self, media: &str, body: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let placeholder = self.placeholder.as_deref().filter(|_| self.secret.put == SecretUse::Placeholder)?.as_bytes();
        let media = media.to_ascii_lowercase();
        let value = if media.contains("json") {
            let quoted = Zeroizing::new(serde_json::to_string(self.value.as_str()).ok()?);
            Zeroizing::new(quoted.strip_prefix('"')?.strip_suffix('"')?.to_owned())
        } else if media.starts_with("application/x-www-form-urlencoded") {
            Zeroizing::new(utf8_percent_encode(&self.value, PARAMETER).to_string())
        } else {
            self.value.clone()
        };
        let (mut rest, mut out) = (body, Zeroizing::new(Vec::with_capacity(body.len().saturating_add(MAX_VALUE))));
        let mut is_put = false;
        while let Some(at) = rest.windows(placeholder.len()).position(|window| window == placeholder) {
            let (before, from) = rest.split_at_checked(at)?;
            out.extend_from_slice(before);
            out.extend_from_slice(value.as_bytes());
            rest = from.get(placeholder.len()..)?;
            is_put = true;
        }
        out.extend_from_slice(rest);
        is_put.then_some(out)
    }

    /// Whether it is put where the program sends its placeholder, so also into bodies.
    #[must_use]
    pub fn is_placeholder(&self) -> bool {
        self.secret.put == SecretUse::Placeholder
    }

    /// The program's own parameters of that name, however written, give way to one with the value.
    fn with_parameter(&self, key: &str, query: &str) -> Zeroizing<String> {
        let is_other = |pair: &&str| {
            let written = pair.split('=').next().unwrap_or_default().replace('+', " ");
            percent_decode_str(&written).decode_utf8_lossy() != key
        };
        // Some readers take a `;` for an end as well.
        let others = query.split('&').map(|pair| pair.split(';').filter(is_other).collect::<Vec<_>>().join(";"));
        let mut out = Zeroizing::new(String::new());
        for pair in others.filter(|pair| !pair.is_empty()) {
            out.push_str(&pair);
            out.push('&');
        }
        out.push_str(key);
        out.push('=');
        out.extend(utf8_percent_encode(&self.value, PARAMETER));
        out
    }

    fn replace(&self, parts: &mut Parts) -> Result<bool, &'static str> {
        let Some(placeholder) = self.placeholder.as_deref() else { return Ok(false) };
        let mut is_put = false;
        for (name, header) in &mut parts.headers {
            if FRAMING.contains(&name.as_str()) {
                continue;
            }
            let Ok(text) = header.to_str() else { continue };
            let Some(new) = self.in_header(placeholder, text) else { continue };
            *header = hidden(new.as_bytes())?;
            is_put = true;
        }
        if let Some(query) = parts.uri.query().filter(|query| query.contains(placeholder)) {
            let value = Zeroizing::new(utf8_percent_encode(&self.value, PARAMETER).to_string());
            let query = Zeroizing::new(query.replace(placeholder, &value));
            parts.uri = with_query(&parts.uri, &query)?;
            is_put = true;
        }
        Ok(is_put)
    }

    /// A header with the value in the placeholder's stead, also where it is the password of `Basic`.
    fn in_header(&self, placeholder: &str, text: &str) -> Option<Zeroizing<String>> {
        if text.contains(placeholder) {
            return Some(Zeroizing::new(text.replace(placeholder, &self.value)));
        }
        let (scheme, coded) = text.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let pair = String::from_utf8(STANDARD.decode(coded.trim()).ok()?).ok()?;
        let (user, password) = pair.split_once(':')?;
        if !user.contains(placeholder) && !password.contains(placeholder) {
            return None;
        }
        let filled = |text: &str| Zeroizing::new(text.replace(placeholder, &self.value));
        Some(basic(&filled(user), &filled(password)))
    }
}

fn basic(user: &str, password: &str) -> Zeroizing<String> {
    let pair = Zeroizing::new(format!("{user}:{password}"));
    let coded = Zeroizing::new(STANDARD.encode(pair.as_bytes()));
    Zeroizing::new(format!("Basic {}", coded.as_str()))
}

pub(super) fn hidden(bytes: &[u8]) -> Result<HeaderValue, &'static str> {
    let mut value = HeaderValue::from_bytes(bytes).map_err(|_unusable| "a header cannot hold it")?;
    value.set_sensitive(true);
    Ok(value)
}

fn with_query(uri: &Uri, query: &str) -> Result<Uri, &'static str> {
    let why = "the request's address cannot hold it";
    let whole = Zeroizing::new(format!("{}?{query}", uri.path()));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(whole.as_str()).map_err(|_unusable| why)?);
    Uri::from_parts(parts).map_err(|_unusable| why)
}
