//! Timestamps and durations: parsing, and the parts of a time in UTC or at a fixed offset.
//!
//! Names of time zones are not known: their rules change, and a machine without the table would decide otherwise.

use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp, Zoned};

use super::tree::Function;

/// RFC 3339.
pub(super) fn timestamp(text: &str) -> Option<Timestamp> {
    // Jiff reads more than RFC 3339 (brackets, missing seconds); what CEL does not read is an error here too.
    let plain =
        text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b':' | b'.' | b'+' | b'T' | b'Z' | b't' | b'z'));
    if !plain || text.len() < 20 {
        return None;
    }
    text.parse().ok()
}

/// `1h30m`, `-1.5s`, `10ms`, `1us`, `1ns`: as CEL (and Go) write it.
pub(super) fn duration(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    let mut total = 0_i128;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at_checked(end)?;
        let units = [
            ("ns", 1),
            ("us", 1000),
            ("\u{b5}s", 1000),
            ("ms", 1_000_000),
            ("s", 1_000_000_000),
            ("m", 60_000_000_000),
            ("h", 3_600_000_000_000_i128),
        ];
        let (unit, nanos) = units.into_iter().find(|(unit, _)| tail.starts_with(unit))?;
        rest = tail.strip_prefix(unit)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && part.is_empty() {
            return None;
        }
        let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<i128>().ok().filter(|n| *n >= 0) };
        total = total.checked_add(digits(whole)?.checked_mul(nanos)?)?;
        let part = part.get(..part.len().min(18))?;
        let scale = 10_i128.checked_pow(u32::try_from(part.len()).ok()?)?;
        total = total.checked_add(digits(part)?.checked_mul(nanos)? / scale)?;
    }
    let total = if negative { total.checked_neg()? } else { total };
    let seconds = i64::try_from(total.div_euclid(1_000_000_000)).ok()?;
    let nanos = i32::try_from(total.rem_euclid(1_000_000_000)).ok()?;
    SignedDuration::from_secs(seconds).checked_add(SignedDuration::new(0, nanos))
}

/// `UTC`, `+02:00`, `-05:30`.
pub(super) fn offset(text: &str) -> Option<Offset> {
    if text == "UTC" || text == "Z" {
        return Some(Offset::UTC);
    }
    let plus = text.strip_prefix('+').map(|rest| (1, rest));
    let (sign, rest) = plus.or_else(|| Some((-1, text.strip_prefix('-')?)))?;
    let (hours, minutes) = rest.split_once(':')?;
    let number = |text: &str, most: i32| {
        let fits = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<i32>().ok().filter(|n| fits && *n <= most)
    };
    Offset::from_seconds(sign * (number(hours, 23)? * 3600 + number(minutes, 59)? * 60)).ok()
}

/// A part of a time, as CEL counts it: months, days of the month and of the year from 0, Sunday is 0.
pub(super) fn part(function: Function, time: Timestamp, offset: Offset) -> Option<i64> {
    let at: Zoned = time.to_zoned(TimeZone::fixed(offset));
    Some(match function {
        Function::FullYear => i64::from(at.year()),
        Function::Month => i64::from(at.month()) - 1,
        Function::Date => i64::from(at.day()),
        Function::DayOfMonth => i64::from(at.day()) - 1,
        Function::DayOfWeek => i64::from(at.weekday().to_sunday_zero_offset()),
        Function::DayOfYear => i64::from(at.day_of_year()) - 1,
        Function::Hours => i64::from(at.hour()),
        Function::Minutes => i64::from(at.minute()),
        Function::Seconds => i64::from(at.second()),
        Function::Milliseconds => i64::from(at.millisecond()),
        Function::Size
        | Function::Contains
        | Function::StartsWith
        | Function::EndsWith
        | Function::LowerAscii
        | Function::UpperAscii
        | Function::Int
        | Function::Double
        | Function::String
        | Function::Bool
        | Function::Timestamp
        | Function::Duration => return None,
    })
}

/// A duration as a whole number of a unit.
pub(super) fn whole(function: Function, span: SignedDuration) -> Option<i64> {
    match function {
        Function::Hours => Some(span.as_hours()),
        Function::Minutes => Some(span.as_mins()),
        Function::Seconds => Some(span.as_secs()),
        Function::Milliseconds => i64::try_from(span.as_millis()).ok(),
        Function::Size
        | Function::Contains
        | Function::StartsWith
        | Function::EndsWith
        | Function::LowerAscii
        | Function::UpperAscii
        | Function::Int
        | Function::Double
        | Function::String
        | Function::Bool
        | Function::Timestamp
        | Function::Duration
        | Function::FullYear
        | Function::Month
        | Function::Date
        | Function::DayOfMonth
        | Function::DayOfWeek
        | Function::DayOfYear => None,
    }
}
