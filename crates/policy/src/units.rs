//! Quantities whose unit is part of the type, so that a limit cannot be read in the wrong one, and their texts.
//!
//! Reading is exact: a text that is not a whole number of bytes or milliseconds is an error, never rounded.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A duration in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

/// A share of processor time: 1000 is one whole core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MilliCpus(pub u32);

/// A rate in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BytesPerSecond(pub u64);

/// Why a text is not a quantity, and what was probably meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError {
    /// Stable id: `unit/missing`, `unit/unknown`, `unit/inexact`, `unit/overflow`, `unit/number`.
    pub id: &'static str,
    /// Why.
    pub why: String,
    /// A text that would be read; empty when none suggests itself.
    pub fix: String,
}

/// Sizes and rates end here: beyond it a double, and so a JSON number, is not exact, and no disk is that large.
const MAX_BYTES: u128 = 1 << 50;
/// Ten years; longer is a slip of the keyboard.
const MAX_MILLIS: u128 = 10 * 366 * 24 * 3_600_000;

/// How a size is written, for the schema that editors use.
pub(crate) const SIZE_PATTERN: &str = r"^\s*[0-9]+(\.[0-9]+)?\s*([KMGTP](i|iB)?|[kKMGTP]?B)\s*$";
/// How a time is written.
pub(crate) const TIME_PATTERN: &str = r"^\s*([0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d)\s*)+$";

const SIZES: &[(&str, u128)] = &[
    ("B", 1),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("P", 1 << 50),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
];

const TIMES: &[(&str, u128)] = &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Words people write for the units of time.
const TIME_WORDS: &[(&str, &str)] = &[
    ("msec", "ms"),
    ("millis", "ms"),
    ("milliseconds", "ms"),
    ("S", "s"),
    ("sec", "s"),
    ("secs", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("M", "m"),
    ("min", "m"),
    ("mins", "m"),
    ("minute", "m"),
    ("minutes", "m"),
    ("H", "h"),
    ("hr", "h"),
    ("hour", "h"),
    ("hours", "h"),
    ("day", "d"),
    ("days", "d"),
];

/// A decimal number: `digits / 10^places`.
struct Decimal {
    digits: u128,
    places: u32,
}

impl Decimal {
    /// The number times a unit, if that is whole.
    fn times(&self, unit: u128) -> Option<u128> {
        let product = self.digits.checked_mul(unit)?;
        let divisor = 10_u128.checked_pow(self.places)?;
        product.is_multiple_of(divisor).then_some(product / divisor)
    }
}

fn error(id: &'static str, why: impl Into<String>, fix: impl Into<String>) -> UnitError {
    UnitError { id, why: why.into(), fix: fix.into() }
}

/// Takes a decimal number off the front; 24 digits are more than any limit needs and cannot overflow.
fn take_number(text: &str) -> Result<(Decimal, &str), UnitError> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    if text.starts_with('-') {
        return Err(error("unit/negative", "a limit below zero means nothing", ""));
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || (number.contains('.') && fraction.is_empty()) {
        return Err(error("unit/number", "a quantity starts with a decimal number", ""));
    }
    if whole.len() + fraction.len() > 24 {
        return Err(error("unit/overflow", "the number has more digits than any limit needs", ""));
    }
    let mut digits = 0_u128;
    for digit in whole.chars().chain(fraction.chars()).filter_map(|c| c.to_digit(10)) {
        digits = digits * 10 + u128::from(digit);
    }
    let places = u32::try_from(fraction.len()).unwrap_or(u32::MAX);
    Ok((Decimal { digits, places }, rest.trim_start()))
}

fn bounded(value: Option<u128>, most: u128, unit: &str, of: &str) -> Result<u64, UnitError> {
    let Some(value) = value else {
        return Err(error("unit/inexact", format!("it is not a whole number of {unit}"), ""));
    };
    if value > most {
        return Err(error("unit/overflow", format!("it is beyond {of}, which no host has"), ""));
    }
    u64::try_from(value).map_err(|_too_large| error("unit/overflow", format!("it is beyond {of}"), ""))
}

fn size_hint(suffix: &str) -> Option<&'static str> {
    const MEANT: [(&str, &[&str]); 5] = [
        ("K", &["k", "kib", "ki"]),
        ("M", &["m", "mib", "mi", "mb", "mbit", "meg", "megs"]),
        ("G", &["g", "gib", "gi", "gb", "gbit", "gig", "gigs"]),
        ("T", &["t", "tib", "ti", "tb"]),
        ("B", &["b", "byte", "bytes"]),
    ];
    let suffix = suffix.to_ascii_lowercase();
    MEANT.iter().find(|(_, written)| written.contains(&suffix.as_str())).map(|(unit, _)| *unit)
}

impl Bytes {
    /// Reads `256M` (2^20), `256MB` (10^6), `1Gi`, `256 M`.
    ///
    /// # Errors
    /// No unit, an unknown one, not a whole number of bytes, or beyond 1 PiB.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        let text = text.trim();
        let (number, suffix) = take_number(text)?;
        let shown = text.strip_suffix(suffix).unwrap_or(text).trim_end();
        if suffix.is_empty() {
            return Err(missing_size(shown, &number));
        }
        match SIZES.iter().find(|(name, _)| *name == suffix) {
            Some((_, unit)) => Ok(Self(bounded(number.times(*unit), MAX_BYTES, "bytes", "1 PiB")?)),
            None => Err(error(
                "unit/unknown",
                "units of size are B, K, M, G, T (powers of 1024) and KB, MB, GB, TB (powers of 1000)",
                size_hint(suffix).map(|unit| format!("{shown}{unit}")).unwrap_or_default(),
            )),
        }
    }
}

fn missing_size(shown: &str, number: &Decimal) -> UnitError {
    if number.digits == 0 {
        return error("unit/missing", "0 needs a unit as any other size", "0B");
    }
    let small = number.digits < 1 << 16;
    let (why, unit) = if small { ("bytes or MiB", "M") } else { ("bytes or KiB", "B") };
    error("unit/missing", format!("{shown} could be {why}"), format!("{shown}{unit}"))
}

impl Millis {
    /// Reads `500ms`, `30s`, `5m`, `1h`, `1m30s`, `1 m 30 s`.
    ///
    /// # Errors
    /// No unit, an unknown one, units out of order, not a whole number of milliseconds, or beyond ten years.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        let text = text.trim();
        let (mut rest, mut total, mut last) = (text, 0_u128, u128::MAX);
        while !rest.is_empty() || last == u128::MAX {
            let (number, after) = take_number(rest)?;
            let end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            if name.is_empty() {
                return Err(missing_time(text));
            }
            let Some((_, unit)) = TIMES.iter().find(|(unit, _)| *unit == name) else {
                return Err(unknown_time(text, name));
            };
            if *unit >= last {
                return Err(error("unit/order", "units of time go from large to small, each once", ""));
            }
            let part = number
                .times(*unit)
                .ok_or_else(|| error("unit/inexact", "it is not a whole number of milliseconds", ""))?;
            total = total.saturating_add(part);
            last = *unit;
            rest = after.trim_start();
        }
        Ok(Self(bounded(Some(total), MAX_MILLIS, "milliseconds", "ten years")?))
    }
}

fn missing_time(text: &str) -> UnitError {
    if text.chars().all(|c| c.is_ascii_digit()) {
        let unit = if text.len() > 3 { "ms" } else { "s" };
        return error(
            "unit/missing",
            format!("{text} could be milliseconds, seconds or minutes"),
            format!("{text}{unit}"),
        );
    }
    error("unit/missing", "a part of it has no unit: ms, s, m, h or d", "")
}

fn unknown_time(text: &str, name: &str) -> UnitError {
    let meant = TIME_WORDS.iter().find(|(word, _)| *word == name).map(|(_, unit)| *unit);
    let fix = meant.map(|unit| text.replace(name, unit).replace(' ', "")).unwrap_or_default();
    error("unit/unknown", "units of time are ms, s, m, h and d", fix)
}

impl BytesPerSecond {
    /// Reads `50M/s`.
    ///
    /// # Errors
    /// As for sizes, or without `/s`.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        let text = text.trim();
        let Some(size) = text.strip_suffix("/s").or_else(|| text.strip_suffix("/ s")) else {
            let fix = Bytes::parse(text)
                .map(|size| format!("{size}/s"))
                .or_else(|error| if error.fix.is_empty() { Err(()) } else { Ok(format!("{}/s", error.fix)) });
            return Err(error(
                "unit/missing",
                "a rate is a size per second",
                fix.unwrap_or_else(|()| "50M/s".to_owned()),
            ));
        };
        let rate = Bytes::parse(size).map_err(|mut error| {
            if !error.fix.is_empty() {
                error.fix.push_str("/s");
            }
            error
        })?;
        Ok(Self(rate.0))
    }
}

impl fmt::Display for Bytes {
    /// The largest unit that is exact, so that the text is read back as the same size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, shift) in [("T", 40), ("G", 30), ("M", 20), ("K", 10)] {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        for (unit, size) in [("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1_000)] {
            if self.0 != 0 && self.0.is_multiple_of(size) {
                return write!(f, "{}{unit}", self.0 / size);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", Bytes(self.0))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
            if rest >= size {
                write!(f, "{}{unit}", rest / size)?;
                rest %= size;
            }
        }
        Ok(())
    }
}

impl fmt::Display for MilliCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / 1000.0)
    }
}

/// A list of numbers in rising order as the kernel and policies write it: what [`ranges`] reads.
#[must_use]
pub fn spans(numbers: &[u32]) -> String {
    let spans = numbers.chunk_by(|before, next| before.checked_add(1) == Some(*next)).filter_map(|span| {
        let (from, to) = (span.first()?, span.last()?);
        Some(if from == to { from.to_string() } else { format!("{from}-{to}") })
    });
    spans.collect::<Vec<_>>().join(",")
}

/// The ranges of a list of numbers as the kernel and policies write them (`0-3,8`); `None` for a part that is none.
pub fn ranges(text: &str) -> impl Iterator<Item = Option<(u32, u32)>> {
    text.split(',').map(|part| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        from.trim().parse().ok().zip(to.trim().parse().ok())
    })
}
