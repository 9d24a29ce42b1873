//! Where in a text a form of a value may stand, found without a step that depends on how much of it the text has.
//!
//! # Promises
//! The work for a text depends on the text alone, until a window stands in it whole: a window is what a form has between the marks
//! by which characters are written otherwise, so nearly all of a token. Letters of it cannot be tried one by one by a clock.
//! # Does not promise
//! The same of a form whose longest such part is shorter than [`LEAST_WINDOW`], nor of its other parts once that one is known.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::ops::Range;

use zeroize::Zeroizing;

/// What begins an escape, or is written otherwise by it: no window has one.
const MARKS: [u8; 4] = *b"%\\'\"";
/// Fewest bytes of a window.
const LEAST_WINDOW: usize = 4;
/// Digits of `\u`.
const UNIT: usize = 4;

/// The windows of some forms.
#[derive(Default)]
pub(super) struct Windows {
    /// Of the sums by which windows are compared; another one each time.
    base: u64,
    groups: Vec<Group>,
    /// Forms without one: they are looked for at each place.
    without: Vec<usize>,
}

/// Windows of one length.
struct Group {
    length: usize,
    /// What the first byte of a window counts.
    first: u64,
    windows: Vec<Window>,
}

struct Window {
    sum: u64,
    form: usize,
    /// Bytes of the form before it.
    before: usize,
}

impl Windows {
    /// Those of forms, in their order.
    pub(super) fn of(forms: impl Iterator<Item = Zeroizing<Vec<u8>>>) -> Self {
        let mut all = Self { base: RandomState::new().build_hasher().finish() | 1, ..Self::default() };
        for (form, text) in forms.enumerate() {
            let text = Zeroizing::new(text.iter().copied().map(folded).collect::<Vec<u8>>());
            match window(&text) {
                Some((before, window)) => all.add(form, before, window),
                None => all.without.push(form),
            }
        }
        all
    }

    fn add(&mut self, form: usize, before: usize, window: &[u8]) {
        let base = self.base;
        let window_of = Window { sum: window.iter().fold(0, |sum, byte| next(sum, base, *byte)), form, before };
        let length = window.len();
        if let Some(group) = self.groups.iter_mut().find(|group| group.length == length) {
            group.windows.push(window_of);
            return;
        }
        let first = (1..length).fold(1_u64, |power, _| power.wrapping_mul(base));
        self.groups.push(Group { length, first, windows: vec![window_of] });
    }

    /// Tells where each form may begin: at one of these places. `longest`: most bytes that one byte of a form is written as.
    pub(super) fn places(&self, text: &[u8], longest: usize, mut told: impl FnMut(usize, Range<usize>)) {
        for form in &self.without {
            told(*form, 0..text.len());
        }
        let read = Read::of(text);
        for group in &self.groups {
            group.places(self.base, &read.bytes, |at, window| {
                let Some(start) = read.starts.get(at).copied() else { return };
                // It may itself begin one byte behind what was read with it.
                told(window.form, start.saturating_sub(window.before.saturating_mul(longest))..start.saturating_add(2));
            });
        }
    }
}

impl Group {
    fn places(&self, base: u64, bytes: &[u8], mut told: impl FnMut(usize, &Window)) {
        let Some((head, rest)) = bytes.split_at_checked(self.length) else { return };
        let mut sum = head.iter().fold(0, |sum, byte| next(sum, base, *byte));
        let mut compare = |at: usize, sum: u64| {
            for window in self.windows.iter().filter(|window| window.sum == sum) {
                told(at, window);
            }
        };
        compare(0, sum);
        for (at, (gone, come)) in bytes.iter().zip(rest).enumerate() {
            sum = next(sum.wrapping_sub(u64::from(*gone).wrapping_mul(self.first)), base, *come);
            compare(at.saturating_add(1), sum);
        }
    }
}

fn next(sum: u64, base: u64, byte: u8) -> u64 {
    sum.wrapping_mul(base).wrapping_add(u64::from(byte))
}

/// What is one for forms of addresses, and large and small letters.
fn folded(byte: u8) -> u8 {
    if byte == b' ' { b'+' } else { byte.to_ascii_lowercase() }
}

/// The longest part of a form that reads the same whatever stands before it, and how much of the form is before it.
fn window(form: &[u8]) -> Option<(usize, &[u8])> {
    let mut at = 0_usize;
    let parts = form.split(|byte| MARKS.contains(byte)).map(|part| {
        let start = at;
        at = at.saturating_add(part.len()).saturating_add(1);
        let lost = could_be_lost(part);
        (start.saturating_add(lost), part.get(lost..).unwrap_or_default())
    });
    parts.max_by_key(|(_, part)| part.len()).filter(|(_, part)| part.len() >= LEAST_WINDOW)
}

/// How many of the first bytes may be read as the end of an escape that begins before them.
fn could_be_lost(part: &[u8]) -> usize {
    let digits = |part: &[u8]| part.iter().take(UNIT).take_while(|byte| byte.is_ascii_hexdigit()).count();
    match part.split_first() {
        Some((b'u', rest)) => digits(rest).saturating_add(1),
        Some(_) | None => digits(part),
    }
}

/// A text as it reads when its escapes are undone, once, and folded.
struct Read {
    bytes: Zeroizing<Vec<u8>>,
    /// Where in the text each of them begins.
    starts: Vec<usize>,
}

impl Read {
    fn of(text: &[u8]) -> Self {
        let (mut bytes, mut starts) = (Zeroizing::new(Vec::with_capacity(text.len())), Vec::with_capacity(text.len()));
        let mut at = 0_usize;
        while let Some((first, rest)) = text.get(at..).and_then(<[u8]>::split_first) {
            let count = match first {
                b'%' => percent(rest).map(|byte| {
                    bytes.push(folded(byte));
                    3
                }),
                b'\\' => unit(rest).map(|(character, count)| {
                    let mut buffer = [0; 4];
                    bytes.extend(character.encode_utf8(&mut buffer).bytes().map(folded));
                    count
                }),
                other => {
                    bytes.push(folded(*other));
                    Some(1)
                }
            };
            if count.is_none() {
                bytes.push(*first);
            }
            starts.resize(bytes.len(), at);
            at = at.saturating_add(count.unwrap_or(1));
        }
        Self { bytes, starts }
    }
}

/// The byte that is written behind a `%`.
fn percent(rest: &[u8]) -> Option<u8> {
    u8::try_from(number(rest.get(..2)?)?).ok()
}

/// The character that is written behind a `\`, and how many bytes it takes with that. Of two backslashes the second one may begin
/// an escape, whatever the first one is.
fn unit(rest: &[u8]) -> Option<(char, usize)> {
    if rest.first() == Some(&b'/') {
        return Some(('/', 2));
    }
    let one = |rest: &[u8]| {
        let (first, rest) = rest.split_first()?;
        first.eq_ignore_ascii_case(&b'u').then(|| rest.get(..UNIT).and_then(number)).flatten()
    };
    let high = one(rest)?;
    let low = rest.get(5..).and_then(|rest| rest.strip_prefix(b"\\")).and_then(one);
    let pair = low.and_then(|low| char::decode_utf16([high, low]).next()?.ok());
    match char::from_u32(u32::from(high)) {
        Some(character) => Some((character, 6)),
        None => Some(pair.map_or((char::REPLACEMENT_CHARACTER, 6), |character| (character, 12))),
    }
}

fn number(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0_u16, |sum, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some((sum << 4) | u16::try_from(digit).ok()?)
    })
}
