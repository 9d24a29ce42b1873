//! HTTP as it comes from inside: where its messages begin and end, and what their paths mean.

pub mod framing;
pub mod path;

/// Whether gateways that make variables of headers (CGI, WSGI) take a name for this one: whatever joins its letters and digits.
#[must_use]
pub fn is_spelling(name: &str, of: &str) -> bool {
    let folded = |byte: u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' };
    name.bytes().map(folded).eq(of.bytes().map(folded))
}
