//! Functions of values.

use std::borrow::Cow;

use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

use super::time::{duration, offset, part, timestamp, whole};
use super::tree::Function;
use super::value::{Fuel, V, exact};

/// Calls a function; an error text, or nothing when the fuel is used up.
pub(super) fn call<'a>(function: Function, values: &[V<'a>], fuel: &mut Fuel) -> Option<Result<V<'a>, String>> {
    for value in values {
        if let V::Text(text) = value {
            fuel.pay(text.len())?;
        }
    }
    Some(match values {
        [value] => of_one(function, value),
        [V::Text(text), V::Text(part)] => of_texts(function, text, part),
        [V::Time(time), V::Text(zone)] if function.is_of_time() => offset(zone)
            .ok_or_else(|| "it is no offset like `+02:00`".to_owned())
            .and_then(|o| of_time(function, *time, o)),
        [a, b] => Err(format!("it is not known for {} and {}", a.kind(), b.kind())),
        [] | [_, _, _, ..] => Err("it has the wrong number of values".to_owned()),
    })
}

fn of_texts<'a>(function: Function, text: &str, part: &str) -> Result<V<'a>, String> {
    match function {
        Function::Contains => Ok(V::Bool(text.contains(part))),
        Function::StartsWith => Ok(V::Bool(text.starts_with(part))),
        Function::EndsWith => Ok(V::Bool(text.ends_with(part))),
        Function::Size
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
        | Function::DayOfYear
        | Function::Hours
        | Function::Minutes
        | Function::Seconds
        | Function::Milliseconds => Err("it is not known for two texts".to_owned()),
    }
}

fn of_time<'a>(function: Function, time: Timestamp, offset: Offset) -> Result<V<'a>, String> {
    part(function, time, offset).map(V::Int).ok_or_else(|| "it is no part of a time".to_owned())
}

fn of_one<'a>(function: Function, value: &V<'a>) -> Result<V<'a>, String> {
    if function.is_of_time() {
        return match value {
            V::Time(time) => of_time(function, *time, Offset::UTC),
            V::Span(span) => whole(function, *span).map(V::Int).ok_or_else(|| "a duration has no such part".to_owned()),
            other => Err(format!("it is not known for {}", other.kind())),
        };
    }
    match function {
        Function::Size => size(value),
        Function::LowerAscii => text(value, str::to_ascii_lowercase),
        Function::UpperAscii => text(value, str::to_ascii_uppercase),
        Function::Int => int(value),
        Function::Double => double(value),
        Function::String => string(value),
        Function::Bool => bool(value),
        Function::Timestamp => time(value),
        Function::Duration => span(value),
        Function::Contains
        | Function::StartsWith
        | Function::EndsWith
        | Function::FullYear
        | Function::Month
        | Function::Date
        | Function::DayOfMonth
        | Function::DayOfWeek
        | Function::DayOfYear
        | Function::Hours
        | Function::Minutes
        | Function::Seconds
        | Function::Milliseconds => Err("it needs two values".to_owned()),
    }
}

fn size<'a>(value: &V<'_>) -> Result<V<'a>, String> {
    let count = match value {
        V::Text(text) => text.chars().count(),
        V::List(list) => list.len(),
        V::Map(entries) => entries.len(),
        other => return Err(format!("{} has no size", other.kind())),
    };
    Ok(V::Int(i64::try_from(count).unwrap_or(i64::MAX)))
}

fn text<'a>(value: &V<'_>, make: impl FnOnce(&str) -> String) -> Result<V<'a>, String> {
    match value {
        V::Text(text) => Ok(V::Text(Cow::Owned(make(text)))),
        other => Err(format!("{} is not text", other.kind())),
    }
}

fn int<'a>(value: &V<'_>) -> Result<V<'a>, String> {
    match value {
        V::Int(int) => Ok(V::Int(*int)),
        V::Double(double) => {
            super::value::whole(*double).map(V::Int).ok_or_else(|| "the number is out of range".to_owned())
        }
        V::Text(text) => text.parse().map(V::Int).map_err(|_why| "the text is no integer".to_owned()),
        V::Time(time) => Ok(V::Int(time.as_second())),
        other => Err(format!("{} is no integer", other.kind())),
    }
}

fn double<'a>(value: &V<'_>) -> Result<V<'a>, String> {
    match value {
        V::Int(int) => exact(*int).map(V::Double).ok_or_else(|| "the number loses digits".to_owned()),
        V::Double(double) => Ok(V::Double(*double)),
        V::Text(text) => text.parse().map(V::Double).map_err(|_why| "the text is no number".to_owned()),
        other => Err(format!("{} is no number", other.kind())),
    }
}

fn string<'a>(value: &V<'a>) -> Result<V<'a>, String> {
    let made = match value {
        V::Text(text) => return Ok(V::Text(text.clone())),
        V::Bool(truth) => truth.to_string(),
        V::Int(int) => int.to_string(),
        V::Double(double) => double.to_string(),
        V::Time(time) => time.to_string(),
        V::Span(span) => format!("{}s", span.as_secs_f64()),
        other => return Err(format!("{} has no text", other.kind())),
    };
    Ok(V::Text(Cow::Owned(made)))
}

fn bool<'a>(value: &V<'_>) -> Result<V<'a>, String> {
    match value {
        V::Bool(truth) => Ok(V::Bool(*truth)),
        V::Text(text) if text == "true" => Ok(V::Bool(true)),
        V::Text(text) if text == "false" => Ok(V::Bool(false)),
        other => Err(format!("{} is neither true nor false", other.kind())),
    }
}

fn time<'a>(value: &V<'_>) -> Result<V<'a>, String> {
    let found = match value {
        V::Time(time) => Some(*time),
        V::Text(text) => timestamp(text),
        V::Int(seconds) => Timestamp::from_second(*seconds).ok(),
        other => return Err(format!("{} is no timestamp", other.kind())),
    };
    found.map(V::Time).ok_or_else(|| "it is no timestamp like `2026-11-22T08:00:00Z`".to_owned())
}

fn span<'a>(value: &V<'_>) -> Result<V<'a>, String> {
    let found: Option<SignedDuration> = match value {
        V::Span(span) => Some(*span),
        V::Text(text) => duration(text),
        other => return Err(format!("{} is no duration", other.kind())),
    };
    found.map(V::Span).ok_or_else(|| "it is no duration like `1h30m`".to_owned())
}
