//! Values while a condition is evaluated. Arguments are looked at where they are; only what is made anew is owned.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::rc::Rc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value as Json};

use super::tree::Literal;

/// A value.
#[derive(Clone, Debug)]
pub(super) enum V<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Cow<'a, str>),
    List(List<'a>),
    Map(Entries<'a>),
    Time(Timestamp),
    Span(SignedDuration),
}

#[derive(Clone, Debug)]
pub(super) enum List<'a> {
    Json(&'a [Json]),
    Made(Rc<Vec<V<'a>>>),
}

#[derive(Clone, Debug)]
pub(super) enum Entries<'a> {
    Json(&'a Map<String, Json>),
    Made(Rc<Vec<(V<'a>, V<'a>)>>),
}

impl<'a> V<'a> {
    pub(super) fn json(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(truth) => Self::Bool(*truth),
            Json::Number(number) => match number.as_i64() {
                Some(int) => Self::Int(int),
                None => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::Text(Cow::Borrowed(text)),
            Json::Array(items) => Self::List(List::Json(items)),
            Json::Object(members) => Self::Map(Entries::Json(members)),
        }
    }

    pub(super) fn literal(literal: &'a Literal) -> Self {
        match literal {
            Literal::Null => Self::Null,
            Literal::Bool(truth) => Self::Bool(*truth),
            Literal::Int(int) => Self::Int(*int),
            Literal::Double(double) => Self::Double(*double),
            Literal::Text(text) => Self::Text(Cow::Borrowed(text)),
            Literal::Time(time) => Self::Time(*time),
            Literal::Span(span) => Self::Span(*span),
        }
    }

    /// `text`, `a list`: for messages.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "true or false",
            Self::Int(_) | Self::Double(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
            Self::Time(_) => "a timestamp",
            Self::Span(_) => "a duration",
        }
    }
}

impl<'a> List<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(items) => items.len(),
            Self::Made(items) => items.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<V<'a>> {
        match self {
            Self::Json(items) => items.get(index).map(V::json),
            Self::Made(items) => items.get(index).cloned(),
        }
    }
}

impl<'a> Entries<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(members) => members.len(),
            Self::Made(entries) => entries.len(),
        }
    }

    pub(super) fn field(&self, name: &str) -> Option<V<'a>> {
        match self {
            Self::Json(members) => members.get(name).map(V::json),
            Self::Made(entries) => entries
                .iter()
                .find(|(key, _)| matches!(key, V::Text(text) if text == name))
                .map(|(_, value)| value.clone()),
        }
    }

    pub(super) fn at(&self, key: &V<'a>) -> Option<V<'a>> {
        match (self, key) {
            (_, V::Text(name)) => self.field(name),
            (Self::Made(entries), key) => {
                entries.iter().find(|(other, _)| same(other, key)).map(|(_, value)| value.clone())
            }
            (Self::Json(_), _) => None,
        }
    }

    /// The keys, as `all` and `map` over a map go through them.
    pub(super) fn key(&self, index: usize) -> Option<V<'a>> {
        match self {
            Self::Json(members) => members.keys().nth(index).map(|name| V::Text(Cow::Borrowed(name))),
            Self::Made(entries) => entries.get(index).map(|(key, _)| key.clone()),
        }
    }
}

/// What is left of the work that one evaluation may do.
#[derive(Debug)]
pub(super) struct Fuel(pub(super) u32);

impl Fuel {
    /// Pays for a step and for going through `size` bytes or elements; none when the fuel is used up.
    pub(super) fn pay(&mut self, size: usize) -> Option<()> {
        let price = u32::try_from(size / 16).unwrap_or(u32::MAX).saturating_add(1);
        match self.0.checked_sub(price) {
            Some(left) => {
                self.0 = left;
                Some(())
            }
            None => {
                self.0 = 0;
                None
            }
        }
    }
}

/// Values of different kinds are not equal, numbers apart. None when the fuel is used up.
pub(super) fn equal(a: &V<'_>, b: &V<'_>, fuel: &mut Fuel) -> Option<bool> {
    fuel.pay(0)?;
    Some(match (a, b) {
        (V::List(a), V::List(b)) => {
            if a.len() != b.len() {
                return Some(false);
            }
            for (a, b) in (0..a.len()).filter_map(|at| a.get(at).zip(b.get(at))) {
                if !equal(&a, &b, fuel)? {
                    return Some(false);
                }
            }
            true
        }
        (V::Map(a), V::Map(b)) => {
            if a.len() != b.len() {
                return Some(false);
            }
            for key in (0..a.len()).filter_map(|at| a.key(at)) {
                let Some((a, b)) = a.at(&key).zip(b.at(&key)) else { return Some(false) };
                if !equal(&a, &b, fuel)? {
                    return Some(false);
                }
            }
            true
        }
        (V::Text(a), V::Text(b)) => {
            fuel.pay(a.len().min(b.len()))?;
            a == b
        }
        (
            V::Null
            | V::Bool(_)
            | V::Int(_)
            | V::Double(_)
            | V::Text(_)
            | V::List(_)
            | V::Map(_)
            | V::Time(_)
            | V::Span(_),
            _other,
        ) => same(a, b),
    })
}

/// Equality of what has no parts; lists and maps are equal to nothing here.
pub(super) fn same(a: &V<'_>, b: &V<'_>) -> bool {
    let both_null = matches!((a, b), (V::Null, V::Null));
    both_null || compare(a, b) == Some(Ordering::Equal)
}

/// What can be put in order; numbers by their exact value, NaN by none.
pub(super) fn compare(a: &V<'_>, b: &V<'_>) -> Option<Ordering> {
    match (a, b) {
        (V::Int(a), V::Int(b)) => Some(a.cmp(b)),
        (V::Double(a), V::Double(b)) => a.partial_cmp(b),
        (V::Int(a), V::Double(b)) => compare_mixed(*a, *b),
        (V::Double(a), V::Int(b)) => compare_mixed(*b, *a).map(Ordering::reverse),
        (V::Text(a), V::Text(b)) => Some(a.cmp(b)),
        (V::Bool(a), V::Bool(b)) => Some(a.cmp(b)),
        (V::Time(a), V::Time(b)) => Some(a.cmp(b)),
        (V::Span(a), V::Span(b)) => Some(a.cmp(b)),
        // Of different kinds, or of one that has no order.
        (
            V::Null
            | V::Bool(_)
            | V::Int(_)
            | V::Double(_)
            | V::Text(_)
            | V::List(_)
            | V::Map(_)
            | V::Time(_)
            | V::Span(_),
            _other,
        ) => None,
    }
}

/// 2^63: every double from here on is above every integer.
const BEYOND: f64 = 9_223_372_036_854_775_808.0;

fn compare_mixed(int: i64, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    if double >= BEYOND {
        return Some(Ordering::Less);
    }
    if double < -BEYOND {
        return Some(Ordering::Greater);
    }
    let whole = whole(double)?;
    let rest = double - double.trunc();
    Some(int.cmp(&whole).then_with(|| 0.0.partial_cmp(&rest).unwrap_or(Ordering::Equal)))
}

/// The integer part; none where it does not fit.
#[expect(clippy::cast_possible_truncation, reason = "the range was looked at: the integer part fits")]
pub(super) fn whole(double: f64) -> Option<i64> {
    (-BEYOND..BEYOND).contains(&double).then_some(double.trunc() as i64)
}

/// An integer as a double, where that is the same number.
#[expect(clippy::cast_precision_loss, reason = "it is looked at whether the number came through")]
pub(super) fn exact(int: i64) -> Option<f64> {
    let double = int as f64;
    (double < BEYOND && whole(double) == Some(int)).then_some(double)
}
