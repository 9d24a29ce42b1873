//! Values taken out of what comes back.
//!
//! Each byte of a value is overwritten with `*`, so no length changes. It is searched for as it is, percent-encoded,
//! escaped as in JSON, in hexadecimal digits, and in base64 at each of the three places where it can begin (so also in `Basic`); not in other codings, which a
//! server that means to give a secret away can always find.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use zeroize::{Zeroize, Zeroizing};

use super::{Held, put};

const MASK: u8 = b'*';

/// The forms of values that are searched for.
#[derive(Default)]
pub struct Forms(Vec<Zeroizing<Vec<u8>>>);

impl std::fmt::Debug for Forms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Forms({})", self.0.len())
    }
}

impl Forms {
    /// All forms of these secrets.
    #[must_use]
    pub fn of<'a>(secrets: impl IntoIterator<Item = &'a Held>) -> Self {
        let mut forms = Self::default();
        for held in secrets {
            for value in held.values() {
                forms.add(value);
            }
        }
        forms
    }

    fn add(&mut self, value: &str) {
        self.text(value);
        if !value.is_ascii() {
            // Many a server reads headers as Latin-1, and says that back.
            let misread: Zeroizing<String> = Zeroizing::new(value.bytes().map(char::from).collect());
            self.text(&misread);
        }
    }

    fn text(&mut self, value: &str) {
        self.form(value.as_bytes().to_vec());
        for coded in [utf8_percent_encode(value, put::PARAMETER), utf8_percent_encode(value, NON_ALPHANUMERIC)] {
            let upper = Zeroizing::new(coded.to_string());
            self.form(lower_hex(upper.as_bytes()));
            self.form(upper.as_bytes().to_vec());
            self.form(upper.replace("%20", "+").into_bytes());
        }
        if let Ok(quoted) = serde_json::to_string(value).map(Zeroizing::new) {
            let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default();
            self.form(inner.as_bytes().to_vec());
            self.form(inner.replace('/', "\\/").into_bytes());
            if !inner.is_ascii() {
                self.form(ascii_json(inner, |unit| format!("\\u{unit:04x}")));
                self.form(ascii_json(inner, |unit| format!("\\u{unit:04X}")));
            }
        }
        for hex in [hex(value, |byte| format!("{byte:02x}")), hex(value, |byte| format!("{byte:02X}"))] {
            self.form(hex.into_bytes());
        }
        for before in 0..3_usize {
            self.form(coded_after(&STANDARD_NO_PAD, before, value));
            self.form(coded_after(&URL_SAFE_NO_PAD, before, value));
        }
    }

    fn form(&mut self, form: Vec<u8>) {
        let form = Zeroizing::new(form);
        if !form.is_empty() && !self.0.contains(&form) {
            self.0.push(form);
        }
    }

    /// Overwrites what is in a text that is there whole; says whether anything was.
    pub fn mask(&self, text: &mut [u8]) -> bool {
        let marks = self.marks(text);
        for (byte, _) in text.iter_mut().zip(&marks).filter(|(_, is_marked)| **is_marked) {
            *byte = MASK;
        }
        marks.contains(&true)
    }

    /// Whether a name, which is written in small letters whatever was sent, has one.
    #[must_use]
    pub fn is_in_name(&self, name: &str) -> bool {
        let has = |form: &Vec<u8>| name.as_bytes().windows(form.len()).any(|part| part.eq_ignore_ascii_case(form));
        self.0.iter().any(|form| has(form))
    }

    fn marks(&self, text: &[u8]) -> Vec<bool> {
        let mut marks = vec![false; text.len()];
        for at in 0..text.len() {
            let rest = text.get(at..).unwrap_or_default();
            let longest = self.0.iter().filter(|form| rest.starts_with(form)).map(|form| form.len()).max();
            for mark in marks.iter_mut().skip(at).take(longest.unwrap_or(0)) {
                *mark = true;
            }
        }
        marks
    }

    /// How many of the last bytes could be the beginning of a form.
    fn open(&self, text: &[u8]) -> usize {
        let longest = self.0.iter().map(|form| form.len()).max().unwrap_or(0).saturating_sub(1);
        let begins = |end: &[u8]| self.0.iter().any(|form| form.len() > end.len() && form.starts_with(end));
        let from = text.len().saturating_sub(longest);
        (from..text.len()).find(|at| text.get(*at..).is_some_and(begins)).map_or(0, |at| text.len().saturating_sub(at))
    }
}

/// Values taken out of a body that comes in pieces. Held back is only what could be the beginning of a value.
#[derive(Debug)]
pub struct Scrub {
    forms: Arc<Forms>,
    held: Vec<u8>,
    marked: Vec<bool>,
    found: bool,
}

impl Scrub {
    /// Nothing was read yet.
    #[must_use]
    pub fn new(forms: Arc<Forms>) -> Self {
        Self { forms, held: Vec::new(), marked: Vec::new(), found: false }
    }

    /// Takes the next piece, and gives what may go on.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(piece);
        self.mark();
        let open = self.forms.open(&self.held);
        self.give(self.held.len().saturating_sub(open))
    }

    /// What is left at the end.
    pub fn finish(&mut self) -> Vec<u8> {
        self.give(self.held.len())
    }

    /// How many bytes are held back.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether any value was found so far.
    #[must_use]
    pub fn found(&self) -> bool {
        self.found
    }

    /// Bytes that were marked stay so: a value may end where the beginning of another one is held back.
    fn mark(&mut self) {
        self.marked.resize(self.held.len(), false);
        for (mark, now) in self.marked.iter_mut().zip(self.forms.marks(&self.held)) {
            *mark |= now;
            self.found |= now;
        }
    }

    fn give(&mut self, count: usize) -> Vec<u8> {
        let marks = self.marked.drain(..count);
        self.held.drain(..count).zip(marks).map(|(byte, is_marked)| if is_marked { MASK } else { byte }).collect()
    }
}

impl Drop for Scrub {
    fn drop(&mut self) {
        self.held.zeroize();
    }
}

/// What JSON has between quotes, with all that is not ASCII as numbers.
fn ascii_json(inner: &str, number: impl Fn(u16) -> String) -> Vec<u8> {
    let mut text = String::new();
    let mut units = [0_u16; 2];
    for one in inner.chars() {
        if one.is_ascii() {
            text.push(one);
        } else {
            text.extend(one.encode_utf16(&mut units).iter().map(|unit| number(*unit)));
        }
    }
    text.into_bytes()
}

fn hex(value: &str, digits: impl Fn(u8) -> String) -> String {
    value.bytes().map(digits).collect()
}

/// `%2F` as `%2f`.
fn lower_hex(text: &[u8]) -> Vec<u8> {
    let mut left = 0_u8;
    let lower = |byte: &u8| {
        let is_hex = left > 0;
        left = if *byte == b'%' { 2 } else { left.saturating_sub(1) };
        if is_hex { byte.to_ascii_lowercase() } else { *byte }
    };
    text.iter().map(lower).collect()
}

/// The letters of base64 that the value alone decides, where so many bytes (of three) stand before it.
fn coded_after(engine: &impl Engine, before: usize, value: &str) -> Vec<u8> {
    let mut whole = Zeroizing::new(vec![0_u8; before]);
    whole.extend_from_slice(value.as_bytes());
    let coded = Zeroizing::new(engine.encode(whole.as_slice()));
    let first = before.saturating_mul(8).div_ceil(6);
    let end = whole.len().saturating_mul(8).checked_div(6).unwrap_or(0);
    coded.as_bytes().get(first..end).unwrap_or_default().to_vec()
}
