//! What of a value a server reads by itself, and so may say back without the rest: the token of `Bearer TOKEN`, the values of a
//! cookie, the password of `Basic`; each also decoded where it has `%XX`, and without the `=` at its end.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use super::LEAST;

/// Most parts of a value: an answer is searched for each, in all its forms.
const MAX_PARTS: usize = 32;
/// Between the words of a header.
const BETWEEN: [char; 4] = [' ', '\t', ',', ';'];

/// The parts of what is sent, of at least [`LEAST`] bytes each; none of a text that is one word.
///
/// # Errors
/// There are too many, in words that end a sentence "the secret ...".
pub(super) fn of(sent: &str) -> Result<Vec<Zeroizing<String>>, &'static str> {
    let mut all = Vec::new();
    let mut words = sent.split(BETWEEN).filter(|word| !word.is_empty());
    let scheme = words.next().filter(|word| is_scheme(word) && *word != sent);
    for word in sent.split(BETWEEN).filter(|word| Some(*word) != scheme) {
        let value = word.split_once('=').map(|(_, value)| value).unwrap_or_default();
        for one in [word, value].map(|one| one.trim_matches('"')) {
            add(&mut all, one, sent);
            // What pads base64 is no part of what it says.
            add(&mut all, one.trim_end_matches('='), sent);
            if let Some(decoded) = decoded(one) {
                add(&mut all, &decoded, sent);
            }
            if let Some(pair) = pair(one) {
                add(&mut all, &pair, sent);
                add(&mut all, pair.split_once(':').map_or("", |(_, password)| password), sent);
            }
        }
    }
    if all.len() > MAX_PARTS {
        return Err("has more than 32 words that a server could say back alone");
    }
    Ok(all)
}

fn add(all: &mut Vec<Zeroizing<String>>, part: &str, whole: &str) {
    if part.len() >= LEAST && part != whole && all.iter().all(|known| known.as_str() != part) {
        all.push(Zeroizing::new(part.to_owned()));
    }
}

/// Whether a first word names how the rest is read.
fn is_scheme(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
}

/// A text as who reads cookies and forms decodes it; none where that is the same, or no text.
fn decoded(text: &str) -> Option<Zeroizing<String>> {
    let bytes = Zeroizing::new(percent_encoding::percent_decode_str(text).collect::<Vec<u8>>());
    let read = std::str::from_utf8(&bytes).ok()?;
    (read != text).then(|| Zeroizing::new(read.to_owned()))
}

/// The user and the password of a word, if it is those in base64.
fn pair(word: &str) -> Option<Zeroizing<String>> {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let bytes = Zeroizing::new(GeneralPurpose::new(&STANDARD, config).decode(word).ok()?);
    let text = std::str::from_utf8(&bytes).ok()?;
    let is_pair = text.contains(':') && !text.chars().any(char::is_control);
    is_pair.then(|| Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_reads_by_itself_is_a_part() {
        let parts = |sent: &str| of(sent).unwrap().iter().map(|part| part.to_string()).collect::<Vec<_>>();
        assert_eq!(parts("Bearer sk-live-Zq83LmX0"), ["sk-live-Zq83LmX0"]);
        assert_eq!(parts("session=Zq83LmX0vTa7; theme=dark"), ["session=Zq83LmX0vTa7", "Zq83LmX0vTa7", "theme=dark"]);
        assert_eq!(parts("Digest key=\"Zq83LmX0vTa7\", n=1"), ["key=\"Zq83LmX0vTa7", "Zq83LmX0vTa7"]);
        assert_eq!(
            parts("Basic c3ZjOmh1bnRlcjItaHVudGVyMg=="),
            ["c3ZjOmh1bnRlcjItaHVudGVyMg==", "c3ZjOmh1bnRlcjItaHVudGVyMg", "svc:hunter2-hunter2", "hunter2-hunter2"]
        );
        let alone = ["c3ZjOmh1bnRlcjItaHVudGVyMg", "svc:hunter2-hunter2", "hunter2-hunter2"];
        assert_eq!(parts("c3ZjOmh1bnRlcjItaHVudGVyMg=="), alone);
        // As who reads cookies decodes it.
        assert_eq!(
            parts("connect.sid=s%3AZq83LmX0%2BvTa"),
            ["connect.sid=s:Zq83LmX0+vTa", "s%3AZq83LmX0%2BvTa", "s:Zq83LmX0+vTa"]
        );
        assert_eq!(parts("s%3AZq83LmX0"), ["s:Zq83LmX0"]);
        for whole in ["sk-live-Zq83LmX0", "Bearer short", "", "0123456789abcdef"] {
            assert_eq!(parts(whole), Vec::<String>::new(), "{whole}");
        }
        let many = (0..33).map(|n| format!("name{n}=1234 ")).collect::<String>();
        assert!(of(&many).is_err());
    }
}
