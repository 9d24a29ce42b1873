//! Where in a request a secret is put.

use ::http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE};
use ::http::request::Parts;
use ::http::uri::PathAndQuery;
use ::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use policy::value::{SecretUse, is_framing};
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

/// A list of media types without their charsets, by which many a server chooses the one of its answer. `None`: there is none.
/// Readers differ in where a quoted text ends: where a charset stands anywhere, nothing but types and their weights is kept.
fn without_charset(value: &HeaderValue) -> Option<HeaderValue> {
    let text = value.to_str().ok()?;
    if !text.to_ascii_lowercase().contains("charset") {
        return Some(value.clone());
    }
    let is_weight = |parameter: &str| {
        parameter.trim().strip_prefix(['q', 'Q']).is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let one = |media: &str| {
        let parts = media.split(';').enumerate().filter(|(at, part)| *at == 0 || is_weight(part));
        parts.map(|(_, part)| part).collect::<Vec<_>>().join(";")
    };
    let has_type = |media: &&str| media.split(';').next().is_some_and(|name| name.contains('/') && !name.contains('"'));
    let list: Vec<String> = text.split(',').filter(has_type).map(one).collect();
    HeaderValue::from_str(&list.join(",")).ok().filter(|left| !left.is_empty())
}

/// The names that stand behind `word =` in a text in small letters, quoted or not.
fn named<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(word).skip(1).filter_map(|rest| {
        let name = rest.trim_start().strip_prefix('=')?.trim_start().trim_start_matches(['"', '\'', '\\']);
        Some(name).filter(|name| !name.is_empty() && !name.starts_with(';'))
    })
}

/// Whether a text in small letters names a charset in which a value would have other bytes.
fn names_other_charset(text: &str, word: &str) -> bool {
    named(text, word).any(|name| !CHARSETS.iter().any(|known| name.starts_with(known)))
}

/// Whether a body of these headers says of itself that it is in a charset in which a value would have other bytes.
#[must_use]
pub fn is_in_other_charset(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_TYPE).iter().any(|value| {
        let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
        names_other_charset(&text, "charset")
    })
}

/// Most letters before a placeholder that are looked at for an escape.
const MAX_BEFORE: usize = 64;
/// How often an escape that was escaped is undone; deeper ones are refused.
const MAX_DEPTH: usize = 4;
/// What begins an escape, escaped itself.
const MARKS_ESCAPED: [(&str, &str); 20] = [
    ("%25", "%"),
    ("%5c", "\\"),
    ("%5C", "\\"),
    ("%26", "&"),
    ("%23", "#"),
    ("%u0025", "%"),
    ("%u005c", "\\"),
    ("%u005C", "\\"),
    ("\\u0025", "%"),
    ("\\u005c", "\\"),
    ("\\u005C", "\\"),
    ("\\u0026", "&"),
    ("\\u0023", "#"),
    ("\\x25", "%"),
    ("\\x5c", "\\"),
    ("\\x5C", "\\"),
    ("\\x26", "&"),
    ("\\x23", "#"),
    ("&amp;", "&"),
    ("\\\\", "\\"),
];

/// Whether the end of a text may be the beginning of an escape, which would swallow the first letters of what stands behind it:
/// `%`, `%4`, `\u00`, `&#`; also of one that is escaped itself, for who reads a text twice.
fn opens_escape(before: &str) -> bool {
    let window = before.char_indices().rev().nth(MAX_BEFORE).and_then(|(at, _)| before.get(at..));
    let mut near = window.unwrap_or(before).to_owned();
    let undone =
        |text: &str| MARKS_ESCAPED.iter().fold(text.to_owned(), |text, (escaped, mark)| text.replace(escaped, mark));
    for _ in 0..MAX_DEPTH {
        near = undone(&near);
    }
    if undone(&near) != near {
        return true;
    }
    let Some((at, mark)) = near.char_indices().rev().find(|(_, c)| matches!(c, '%' | '\\' | '&')) else {
        // One whose beginning is farther away.
        return window.is_some() && near.chars().all(|c| c.is_ascii_alphanumeric());
    };
    let rest = near.get(at.saturating_add(1)..).unwrap_or_default();
    let has_less = |count: usize| rest.len() < count && rest.chars().skip(1).all(|c| c.is_ascii_hexdigit());
    match (mark, rest.chars().next()) {
        ('&', first) => first == Some('#') && rest.chars().skip(1).all(|c| c.is_ascii_alphanumeric()),
        ('%' | '\\', None) => true,
        ('%' | '\\', Some('u')) => has_less(5) || (rest.starts_with("u{") && !rest.contains('}')),
        ('%', Some(first)) => first.is_ascii_hexdigit() && has_less(2),
        (_, Some('U')) => has_less(9),
        (_, Some('x' | '0'..='7')) => has_less(3),
        (_, _) => false,
    }
}

/// Whether a value can stand wherever a text has its placeholder.
fn may_stand(text: &str, placeholder: &str) -> Result<(), &'static str> {
    let opened = text.match_indices(placeholder).any(|(at, _)| text.get(..at).is_none_or(opens_escape));
    if opened { Err("an escape begins before it, and would swallow some of it") } else { Ok(()) }
}

/// Why a value may not stand in a body: whoever reads it would not read the value, and could say it back in other letters.
fn objection(media: &str, body: &[u8], placeholder: &str) -> Option<&'static str> {
    let Some(text) = std::str::from_utf8(body).ok().filter(|text| !text.contains('\0')) else {
        return Some(
            "its body is no text in UTF-8, so that its readers would read something else than what stands there",
        );
    };
    if let Err(why) = may_stand(text, placeholder) {
        return Some(why);
    }
    if ["grpc", "proto", "msgpack", "cbor"].iter().any(|binary| media.contains(binary)) {
        return Some("its body says its own lengths, which the value would not keep");
    }
    let lower = Zeroizing::new(text.to_ascii_lowercase());
    let is_multipart = media.starts_with("multipart/");
    let codings = lower.split("content-transfer-encoding").skip(1);
    let is_plain = |rest: &str| {
        let coding = rest.trim_start().strip_prefix(':').unwrap_or_default().trim_start();
        ["binary", "8bit", "7bit"].iter().any(|plain| coding.starts_with(plain))
    };
    if is_multipart && !codings.into_iter().all(is_plain) {
        return Some("a part of its body says a coding, which its readers would undo");
    }
    // Of XML the first line alone says it.
    let prolog = lower.split_once("?>").map_or("", |(prolog, _)| prolog);
    let in_parts = (is_multipart || media.contains("html")) && names_other_charset(&lower, "charset");
    if in_parts || (media.contains("xml") && names_other_charset(prolog, "encoding")) {
        return Some("its body is in a charset in which ASCII is not ASCII");
    }
    let mut values = serde_json::Deserializer::from_slice(body).into_iter::<serde::de::IgnoredAny>();
    if media.contains("json") && values.any(|value| value.is_err()) {
        return Some("its body says that it is JSON, and is none: the value is to stand within a text");
    }
    None
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
    ///
    /// # Errors
    /// There is one, where its readers would not read the value as it is: in other bytes than UTF-8's, in what says its own lengths or
    /// codings, in JSON beside texts.
    pub fn in_body(&self, media: &str, body: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, &'static str> {
        let Some(placeholder) = self.placeholder.as_deref().filter(|_| self.is_placeholder()) else { return Ok(None) };
        let media = media.to_ascii_lowercase();
        match self.filled(placeholder.as_bytes(), &media, body) {
            Some(filled) => objection(&media, body, placeholder).map_or(Ok(Some(filled)), Err),
            None => Ok(None),
        }
    }

    fn filled(&self, placeholder: &[u8], media: &str, body: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
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
            if is_framing(name.as_str()) {
                continue;
            }
            let Ok(text) = header.to_str() else { continue };
            let Some(new) = self.in_header(placeholder, text)? else { continue };
            *header = hidden(new.as_bytes())?;
            is_put = true;
        }
        if let Some(query) = parts.uri.query().filter(|query| query.contains(placeholder)) {
            may_stand(query, placeholder)?;
            let value = Zeroizing::new(utf8_percent_encode(&self.value, PARAMETER).to_string());
            let query = Zeroizing::new(query.replace(placeholder, &value));
            parts.uri = with_query(&parts.uri, &query)?;
            is_put = true;
        }
        Ok(is_put)
    }

    /// A header with the value in the placeholder's stead, also where it is the password of `Basic`.
    ///
    /// # Errors
    /// It is a part of what the server decodes: it would read something else.
    fn in_header(&self, placeholder: &str, text: &str) -> Result<Option<Zeroizing<String>>, &'static str> {
        let filled = |text: &str| Zeroizing::new(text.replace(placeholder, &self.value));
        let basic_pair = text.trim().split_once([' ', '\t']).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic"));
        let Some(coded) = basic_pair.map(|(_, coded)| coded.trim()).filter(|coded| *coded != placeholder) else {
            may_stand(text, placeholder)?;
            return Ok(text.contains(placeholder).then(|| filled(text)));
        };
        if coded.contains(placeholder) {
            return Err("it stands within what is coded of `Basic`, which the server would decode");
        }
        let pair = STANDARD.decode(coded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let pair = pair.as_deref().and_then(|pair| pair.split_once(':'));
        pair.map_or(Ok(()), |(user, password)| may_stand(user, placeholder).and(may_stand(password, placeholder)))?;
        let with = pair.filter(|(user, password)| user.contains(placeholder) || password.contains(placeholder));
        Ok(with.map(|(user, password)| basic(&filled(user), &filled(password))))
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
