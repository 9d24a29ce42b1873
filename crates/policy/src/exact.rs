//! Decimal numbers as they are written, compared without rounding: `0.1` is one tenth, and 2^53 + 1 is not 2^53.

use std::cmp::Ordering;
use std::fmt;

/// Longer numbers are not ones of a policy or of an argument.
const MAX_LENGTH: usize = 400;
/// Beyond what any double can hold; a larger exponent is nonsense.
const MAX_EXPONENT: i64 = 400;

/// A decimal number of any size, exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exact {
    /// Below zero; zero itself never is.
    negative: bool,
    /// Digits without zeros at either end; empty for zero.
    digits: Vec<u8>,
    /// The value is `0.DIGITS` times ten to this power; 0 for zero.
    power: i64,
}

impl Exact {
    /// Reads `-12`, `0.5`, `1e3`, as JSON and TOML write them. Underscores between digits are TOML's.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_LENGTH {
            return None;
        }
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (rest, 0),
        };
        if exponent.abs() > MAX_EXPONENT {
            return None;
        }
        let (whole, part) = mantissa.split_once('.').map_or((mantissa, None), |(whole, part)| (whole, Some(part)));
        let (whole, part) = (plain(whole)?, part.map_or(Some(String::new()), plain)?);
        let mut power = i64::try_from(whole.len()).ok()?.checked_add(exponent)?;
        let all = whole + &part;
        let leading = all.bytes().take_while(|digit| *digit == b'0').count();
        let digits = all.trim_start_matches('0').trim_end_matches('0').as_bytes().to_vec();
        power = power.checked_sub(i64::try_from(leading).ok()?)?;
        if digits.is_empty() {
            return Some(Self { negative: false, digits, power: 0 });
        }
        Some(Self { negative, digits, power })
    }

    /// The number that JSON text would say. A double is taken as its shortest text, which is what is passed on.
    #[must_use]
    pub fn of(number: &serde_json::Number) -> Option<Self> {
        Self::parse(&number.to_string())
    }

    /// Whether nothing stands behind the point.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        i64::try_from(self.digits.len()).is_ok_and(|length| length <= self.power.max(0))
    }

    fn size(&self, other: &Self) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => self.power.cmp(&other.power).then_with(|| self.digits.cmp(&other.digits)),
        }
    }
}

/// Digits, with underscores between them taken out; at least one.
fn plain(text: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_digit() || c == '_';
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let good = text.chars().all(fits) && ends(text.chars().next()) && ends(text.chars().next_back());
    (good && !text.contains("__")).then(|| text.replace('_', ""))
}

impl Ord for Exact {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.size(other),
            (true, true) => other.size(self),
        }
    }
}

impl PartialOrd for Exact {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Exact {
    /// Plain where that is short, else with an exponent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.digits.is_empty() {
            return f.write_str("0");
        }
        if self.negative {
            f.write_str("-")?;
        }
        let digits: String = self.digits.iter().copied().map(char::from).collect();
        let length = i64::try_from(self.digits.len()).unwrap_or(i64::MAX);
        let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or(0));
        match self.power {
            power if (length..=21).contains(&power) => write!(f, "{digits}{}", zeros(power.saturating_sub(length))),
            power if (1..length).contains(&power) => {
                let (whole, part) = digits.split_at(usize::try_from(power).unwrap_or(0));
                write!(f, "{whole}.{part}")
            }
            power if (-5..=0).contains(&power) => write!(f, "0.{}{digits}", zeros(power.saturating_neg())),
            power => {
                let (first, rest) = digits.split_at(1);
                let point = if rest.is_empty() { "" } else { "." };
                write!(f, "{first}{point}{rest}e{}", power.saturating_sub(1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(text: &str) -> Exact {
        Exact::parse(text).unwrap_or_else(|| panic!("{text} is a number"))
    }

    #[test]
    fn numbers_compare_as_written_and_not_as_doubles() {
        assert!(number("9007199254740993") > number("9007199254740992"));
        assert!(number("0.1") < number("0.10000000000000000001"));
        assert!(number("-2") < number("-1.5") && number("-1.5") < number("0") && number("0") < number("1e-300"));
        assert_eq!(number("1e3"), number("1000.00"));
        assert_eq!(number("-0"), number("0.0"));
        assert_eq!(number("1_000"), number("1000"));
        assert!(number("99.99") < number("100") && number("100") < number("100.01"));
    }

    #[test]
    fn whole_numbers_are_those_without_a_rest() {
        for text in ["0", "-0.0", "5", "1e3", "1.5e1", "100"] {
            assert!(number(text).is_whole(), "{text}");
        }
        for text in ["0.5", "1e-3", "1.05e1", "100.1"] {
            assert!(!number(text).is_whole(), "{text}");
        }
    }

    #[test]
    fn what_is_no_decimal_number_is_refused() {
        for text in ["", "-", ".5", "5.", "1e", "0x10", "NaN", "inf", "1e401", "1__0", "_1", "1_", "1 ", "--1", "1e1e1"]
        {
            assert_eq!(Exact::parse(text), None, "{text}");
        }
        assert_eq!(Exact::parse(&"9".repeat(401)), None);
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_whole_numbers(a in any::<i64>(), b in any::<i64>()) {
            prop_assert_eq!(number(&a.to_string()).cmp(&number(&b.to_string())), a.cmp(&b));
            prop_assert_eq!(number(&a.to_string()).to_string(), a.to_string());
        }

        #[test]
        fn the_text_is_read_back_as_the_same_number(value in proptest::num::f64::NORMAL | proptest::num::f64::ZERO) {
            let read = Exact::parse(&format!("{value:e}")).unwrap();
            prop_assert_eq!(Exact::parse(&read.to_string()), Some(read));
        }
    }
}
