//! By what the value of a secret is known again in a text, when nobody here has it any more.
//!
//! # Promises
//! No value is kept: its length is, and two sums of it under keys of this process, a fast one that is moved over a text and SHA-256,
//! by which it is sure.
//! # Does not promise
//! That a value in another form (base64, reversed, in two variables) is known.

use zeroize::Zeroizing;

/// The prime of the fast sum: products of two numbers below it fit 128 bits.
const PRIME: u128 = (1 << 61) - 1;
const KEY: usize = 32;

/// One value.
#[derive(Clone, PartialEq, Eq)]
struct Mark {
    /// Whose it is.
    secret: String,
    length: usize,
    fast: u128,
    sure: String,
}

/// The values of a sandbox.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Marks {
    base: u128,
    key: [u8; KEY],
    list: Vec<Mark>,
}

impl std::fmt::Debug for Marks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Marks({})", self.list.len())
    }
}

impl Marks {
    /// Of no value yet; none where no random bytes can be had.
    pub(super) fn new() -> Option<Self> {
        let (mut base, mut key) = ([0; 7], [0; KEY]);
        let random = sys::random::fill(&mut base) && sys::random::fill(&mut key);
        let base = base.iter().fold(1, |sum, byte| (sum << 8) | u128::from(*byte)) % PRIME;
        random.then(|| Self { base, key, list: Vec::new() })
    }

    /// From now on this value is known as that of a secret.
    pub(super) fn add(&mut self, secret: &str, value: &[u8]) {
        if value.is_empty() {
            return;
        }
        let (fast, sure) = (self.fast(value), self.sure(value));
        self.list.push(Mark { secret: secret.to_owned(), length: value.len(), fast, sure });
    }

    /// The secret whose value stands in a text.
    pub(super) fn found_in(&self, text: &[u8]) -> Option<&str> {
        self.list.iter().find(|mark| self.has(mark, text)).map(|mark| mark.secret.as_str())
    }

    fn has(&self, mark: &Mark, text: &[u8]) -> bool {
        let Some(first) = text.get(..mark.length) else { return false };
        let highest = (1..mark.length).fold(1, |power, _| power * self.base % PRIME);
        let mut fast = self.fast(first);
        let moves = text.iter().zip(text.iter().skip(mark.length).map(Some).chain([None]));
        for ((leaves, comes), window) in moves.zip(text.windows(mark.length)) {
            if fast == mark.fast && self.sure(window) == mark.sure {
                return true;
            }
            let Some(comes) = comes else { return false };
            let rest = (fast + PRIME - u128::from(*leaves) * highest % PRIME) % PRIME;
            fast = (rest * self.base + u128::from(*comes)) % PRIME;
        }
        false
    }

    fn fast(&self, bytes: &[u8]) -> u128 {
        bytes.iter().fold(0, |sum, byte| (sum * self.base + u128::from(*byte)) % PRIME)
    }

    fn sure(&self, bytes: &[u8]) -> String {
        let mut all = Zeroizing::new(Vec::with_capacity(bytes.len().saturating_add(KEY)));
        all.extend_from_slice(&self.key);
        all.extend_from_slice(bytes);
        policy::json::sha256_hex(&all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_known_wherever_it_stands_and_nothing_else_is() {
        let mut marks = Marks::new().unwrap();
        marks.add("long", b"0123456789abcdef");
        marks.add("short", b"hunter22");
        for (text, found) in [
            ("0123456789abcdef", Some("long")),
            ("Bearer 0123456789abcdef", Some("long")),
            ("0123456789abcdef, and more", Some("long")),
            ("x=hunter22&y", Some("short")),
            ("0123456789abcde", None),
            ("0123456789abcdeF", None),
            ("1023456789abcdef", None),
            ("hunter2", None),
            ("", None),
        ] {
            assert_eq!(marks.found_in(text.as_bytes()), found, "{text}");
        }
        let shown = format!("{marks:?} {:?}", marks.list.iter().map(|mark| &mark.sure).collect::<Vec<_>>());
        assert!(!shown.contains("hunter22") && !shown.contains("0123456789abcdef"), "{shown}");
        assert_eq!(Marks::default().found_in(b"hunter22"), None);
    }

    #[test]
    fn a_long_text_is_read_once() {
        let mut marks = Marks::new().unwrap();
        marks.add("long", &[b'a'; 8192]);
        let mut text = vec![b'a'; 8191];
        text.push(b'b');
        let text = text.repeat(16);
        let began = std::time::Instant::now();
        assert_eq!(marks.found_in(&text), None);
        assert!(began.elapsed() < std::time::Duration::from_secs(2), "{:?}", began.elapsed());
    }
}
