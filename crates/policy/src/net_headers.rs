//! Headers that say how a request is read, and those that hold no credential.

/// Whether gateways that make variables of headers (CGI, WSGI) take a name for this one: whatever joins its letters and digits.
#[must_use]
pub fn is_spelling(name: &str, of: &str) -> bool {
    let folded = |byte: u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' };
    name.bytes().map(folded).eq(of.bytes().map(folded))
}

/// Whether a header is one of [`FRAMING`], in any spelling of it.
#[must_use]
pub fn is_framing(name: &str) -> bool {
    FRAMING.iter().any(|one| is_spelling(name, one))
}

/// Headers that say how a request is read, or whom it is for: a secret in them would change which request it is. The last six ask for
/// an answer that could not be searched, and are taken away where a secret is put.
pub const FRAMING: [&str; 16] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "accept-encoding",
    "accept-charset",
    "range",
    "if-range",
    "request-range",
    "a-im",
];
/// Headers in which no server asks for a credential: what is said in them everybody may see. In lower case.
pub const NO_CREDENTIALS: [&str; 13] = [
    "accept",
    "accept-language",
    "anthropic-beta",
    "anthropic-version",
    "cache-control",
    "content-language",
    "content-type",
    "dnt",
    "pragma",
    "prefer",
    "user-agent",
    "x-github-api-version",
    "x-requested-with",
];
