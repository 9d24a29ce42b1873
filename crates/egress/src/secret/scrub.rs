//! Values taken out of what comes back.
//!
//! Each byte of a value is overwritten with `*`, so no length changes. It is searched for as it is, in hexadecimal digits, and in
//! base64 at each of the three places where it can begin (so also in `Basic`), there with the letters at its ends that share bits with
//! what stands beside it. Large and small letters are one where it stands as it is. What is beyond ASCII is searched for in UTF-8 and Latin-1. Each character of these may stand as it is,
//! percent-encoded or escaped as in JSON (a `'` also as in shells and SQL), whichever a writer takes for which: writers differ in what they escape. Not in other
//! codings, which a server that means to give a secret away can always find.

use std::ops::Range;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use zeroize::{Zeroize, Zeroizing};

use super::windows::Windows;
use super::{LEAST, LoadedSecret, parts};

const MASK: u8 = b'*';
/// Most bytes that one byte of a form is written as: `\u0026`.
const MAX_ESCAPE: usize = 6;
/// What is held back is rounded up to these: it says little of how long a value is.
const HELD: usize = 1 << 10;
/// What Windows 1252 has from 0x80 to 0x9f; a blank is none.
const WINDOWS_1252: &str = "€ ‚ƒ„…†‡ˆ‰Š‹Œ Ž  ‘’“”•–—˜™š›œ žŸ";

/// The forms of values that are searched for.
#[derive(Default)]
pub struct Forms {
    all: Vec<Form>,
    windows: Windows,
    /// A value has bytes that no token has.
    any_byte: bool,
}

/// A value in one coding.
struct Form {
    text: Zeroizing<String>,
    /// Each character is one byte ([`latin`]).
    is_latin: bool,
    /// Large and small letters are one.
    folds: bool,
    /// The letter before it, and the one behind it, have some bits of the value.
    shares: (bool, bool),
}

impl std::fmt::Debug for Forms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Forms({})", self.all.len())
    }
}

impl Forms {
    /// All forms of these secrets.
    #[must_use]
    pub fn of<'a>(secrets: impl IntoIterator<Item = &'a LoadedSecret>) -> Self {
        let mut forms = Self::default();
        for held in secrets {
            for value in held.values() {
                forms.add(value);
            }
        }
        forms.ready()
    }

    /// All forms of headers that are sent as they are, and of what of them a server reads by itself. What is too short to be told
    /// from ordinary text is left out.
    ///
    /// # Errors
    /// One has too many parts, in words that end a sentence "the header ...".
    pub fn of_headers<'a>(sent: impl IntoIterator<Item = &'a str>) -> Result<Self, &'static str> {
        let mut forms = Self::default();
        // Servers cut blanks from both ends.
        for value in sent.into_iter().map(str::trim) {
            if value.len() >= LEAST {
                forms.add(value);
            }
            for part in parts::of(value)? {
                forms.add(&part);
            }
        }
        Ok(forms.ready())
    }

    /// All of them are known: they can be searched for.
    fn ready(mut self) -> Self {
        self.windows = Windows::of(self.all.iter().map(Form::bytes));
        self
    }

    fn add(&mut self, value: &str) {
        self.any_byte |= !value.bytes().all(is_of_token);
        self.text(value);
        if !value.is_ascii() {
            // Many a server reads headers as Latin-1, and says that back.
            let misread: Zeroizing<String> = Zeroizing::new(value.bytes().map(char::from).collect());
            self.text(&misread);
            // Small and large letters are one there, too; and many a one that reads them rightly writes Latin-1.
            for text in [value.to_owned(), value.to_lowercase(), value.to_uppercase()].map(Zeroizing::new) {
                self.text(&text);
                if text.chars().all(|character| latin(character).is_some()) {
                    self.form((text, true), true, (false, false));
                }
            }
        }
    }

    fn text(&mut self, value: &str) {
        // A server may write what it was sent in small letters: the digits of an id.
        self.form((Zeroizing::new(value.to_owned()), false), true, (false, false));
        self.form((hex(value), false), true, (false, false));
        for before in 0..3_usize {
            let shares = (before != 0, before.saturating_add(value.len()) % 3 != 0);
            self.form((coded_after(&STANDARD_NO_PAD, before, value), false), false, shares);
            self.form((coded_after(&URL_SAFE_NO_PAD, before, value), false), false, shares);
        }
    }

    fn form(&mut self, (text, is_latin): (Zeroizing<String>, bool), folds: bool, shares: (bool, bool)) {
        let is_there = |form: &Form| form.is_latin == is_latin && *form.text == *text;
        if !text.is_empty() && !self.all.iter().any(is_there) {
            self.all.push(Form { text, is_latin, folds, shares });
        }
    }

    /// Overwrites what is in a text that is there whole; says whether anything was.
    pub fn mask(&self, text: &mut [u8]) -> bool {
        let marks = self.marks(text, false);
        for (byte, _) in text.iter_mut().zip(&marks).filter(|(_, is_marked)| **is_marked) {
            *byte = MASK;
        }
        marks.contains(&true)
    }

    /// Whether a name, which is written in small letters whatever was sent, has one.
    #[must_use]
    pub fn is_in_name(&self, name: &str) -> bool {
        self.marks(name.as_bytes(), true).contains(&true)
    }

    /// Which bytes are of a value. No place is looked at for how far it fits, but where a window of a form stands whole.
    fn marks(&self, text: &[u8], folds: bool) -> Vec<bool> {
        let mut marks = vec![false; text.len()];
        // Windows that begin side by side are of the same places.
        let mut tried = vec![0_usize; self.all.len()];
        self.windows.places(text, MAX_ESCAPE, |at, places| {
            let (Some(form), Some(tried)) = (self.all.get(at), tried.get_mut(at)) else { return };
            for place in places.start.max(*tried)..places.end {
                if let Some(met) = text.get(place..).and_then(|rest| form.met(rest, folds)) {
                    let range = form.with_shared(text, place..place.saturating_add(met));
                    marks.get_mut(range).into_iter().flatten().for_each(|mark| *mark = true);
                }
            }
            *tried = places.end.max(*tried);
        });
        marks
    }

    /// [`Self::mask`] by a look at each place.
    #[cfg(test)]
    pub(super) fn mask_slowly(&self, text: &mut [u8]) {
        let met = |at: usize, form: &Form| Some(form.with_shared(text, at..at + form.met(&text[at..], false)?));
        let at_each = |at| self.all.iter().filter_map(move |form| met(at, form));
        let marked: Vec<_> = (0..text.len()).flat_map(at_each).collect();
        for range in marked {
            text[range].fill(MASK);
        }
    }

    /// How many of the last bytes are held back: as many as a form can have, up to a byte that is in none. Never by what the values
    /// are: how much comes at a time would say whether a text is the beginning of one, letter by letter.
    fn open(&self, text: &[u8]) -> usize {
        let longest = self.all.iter().map(|form| form.text.len().saturating_add(2)).max().unwrap_or(0);
        let longest = longest.saturating_mul(MAX_ESCAPE);
        let could = |byte: &&u8| self.any_byte || is_of_token(**byte) || matches!(**byte, b'%' | b'\\');
        text.iter().rev().take(longest.next_multiple_of(HELD)).take_while(could).count()
    }
}

/// What tokens and keys are made of (`token68` of RFC 7235), and so all their codings.
fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)
}

impl Form {
    /// As it stands where nothing of it is escaped.
    fn bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut all = Zeroizing::new(Vec::with_capacity(self.text.len()));
        for character in self.text.chars() {
            all.extend_from_slice(plain(character, self.is_latin, &mut [0; 4]));
        }
        all
    }

    /// Where it stands in a text, with the letters beside it that have bits of the value. At the end of a text that has only begun
    /// the last one comes with the next piece, in which the form is met again.
    fn with_shared(&self, text: &[u8], met: Range<usize>) -> Range<usize> {
        let is_letter = |at: Option<usize>| {
            at.and_then(|at| text.get(at)).is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte))
        };
        let before = self.shares.0 && is_letter(met.start.checked_sub(1));
        let behind = self.shares.1 && is_letter(Some(met.end));
        met.start.saturating_sub(usize::from(before))..met.end.saturating_add(usize::from(behind))
    }

    /// Whether a text begins with it, each character in any of its writings. One may be the beginning of another (`%` of `%25`),
    /// so each place that was come to is gone on from.
    fn met(&self, text: &[u8], folds: bool) -> Option<usize> {
        let folds = folds || self.folds;
        let mut reached = vec![0];
        for character in self.text.chars() {
            let mut next = Vec::new();
            for at in reached {
                written((character, self.is_latin), (text, at), folds, &mut next);
            }
            if next.is_empty() {
                return None;
            }
            next.sort_unstable();
            next.dedup();
            reached = next;
        }
        reached.into_iter().max()
    }
}

/// Adds the places behind a character that is written at a place of a text, in each writing that fits.
fn written((character, is_latin): (char, bool), (text, at): (&[u8], usize), folds: bool, reached: &mut Vec<usize>) {
    let rest = text.get(at..).unwrap_or_default();
    let other =
        if character.is_ascii_lowercase() { character.to_ascii_uppercase() } else { character.to_ascii_lowercase() };
    // The letter of the other case has another number.
    for character in [Some(character), Some(other).filter(|other| folds && *other != character)].into_iter().flatten() {
        let counts = writings((character, is_latin), rest, folds).into_iter().flatten();
        reached.extend(counts.map(|count| at.saturating_add(count)));
    }
}

/// The bytes of a character that is not escaped.
fn plain(character: char, is_latin: bool, bytes: &mut [u8; 4]) -> &[u8] {
    match latin(character).filter(|_| is_latin) {
        Some(byte) => {
            bytes.fill(byte);
            bytes.get(..1).unwrap_or_default()
        }
        None => character.encode_utf8(bytes).as_bytes(),
    }
}

/// A character as ISO 8859-1 has it, or as Windows 1252 has it where the first has controls.
fn latin(character: char) -> Option<u8> {
    let at = || WINDOWS_1252.chars().position(|known| known == character && known != ' ');
    let beyond = || u8::try_from(at()?).ok()?.checked_add(0x80);
    u8::try_from(u32::from(character)).ok().or_else(beyond)
}

/// How many bytes each writing of a character has with which a text begins.
fn writings((character, is_latin): (char, bool), rest: &[u8], folds: bool) -> [Option<usize>; 6] {
    let next = rest.first().copied().unwrap_or_default();
    let (mut bytes, mut units) = ([0; 4], [0; 2]);
    let plain = plain(character, is_latin, &mut bytes);
    let units: &[u16] = character.encode_utf16(&mut units);
    let percent = || plain.iter().flat_map(|byte| [b'%', digit(byte >> 4), digit(byte & 15)]);
    let number = || {
        units.iter().flat_map(|unit| {
            let [high, low] = unit.to_be_bytes();
            [b'\\', b'u', digit(high >> 4), digit(high & 15), digit(low >> 4), digit(low & 15)]
        })
    };
    let is_short = next == b'\\' && matches!(character, '"' | '\\' | '/' | '\'');
    [
        begun(plain.iter().copied(), rest, folds),
        // As forms write it.
        (next == b'+' && character == ' ').then_some(1),
        (next == b'%').then(|| begun(percent(), rest, true)).flatten(),
        (next == b'\\').then(|| begun(number(), rest, true)).flatten(),
        is_short.then(|| begun(std::iter::once(b'\\').chain(plain.iter().copied()), rest, true)).flatten(),
        // As SQL writes it.
        (character == '\'').then(|| begun(b"''".iter().copied(), rest, true)).flatten(),
    ]
}

/// How many bytes a writing has with which a text begins.
fn begun(writing: impl Iterator<Item = u8>, text: &[u8], folds: bool) -> Option<usize> {
    let mut count = 0_usize;
    for byte in writing {
        let found = text.get(count)?;
        if *found != byte && !(folds && found.eq_ignore_ascii_case(&byte)) {
            return None;
        }
        count = count.saturating_add(1);
    }
    Some(count)
}

/// Values taken out of a body that comes in pieces. The last bytes that could be a part of some value are held back until more comes.
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
        for (mark, now) in self.marked.iter_mut().zip(self.forms.marks(&self.held, false)) {
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

/// The digit of half a byte.
fn digit(half: u8) -> u8 {
    b"0123456789abcdef".get(usize::from(half)).copied().unwrap_or_default()
}

fn hex(value: &str) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(value.len().saturating_mul(2)));
    text.extend(value.bytes().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).map(char::from));
    text
}

/// The letters of base64 that the value alone decides, where so many bytes (of three) stand before it.
fn coded_after(engine: &impl Engine, before: usize, value: &str) -> Zeroizing<String> {
    let mut whole = Zeroizing::new(vec![0_u8; before]);
    whole.extend_from_slice(value.as_bytes());
    let coded = Zeroizing::new(engine.encode(whole.as_slice()));
    let first = before.saturating_mul(8).div_ceil(6);
    let end = whole.len().saturating_mul(8).checked_div(6).unwrap_or(0);
    Zeroizing::new(coded.get(first..end).unwrap_or_default().to_owned())
}
