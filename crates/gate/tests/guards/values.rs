//! GW-04 and GW-05: numbers as decimals, whole matches in linear time, counted characters, equal values.

use std::time::{Duration, Instant};

use policy::exact::Exact;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use crate::{guard, text};

fn number(text: &str) -> Json {
    serde_json::from_str(text).unwrap()
}

#[test]
fn gw_04_numbers_are_compared_as_they_are_written() {
    let tenth = guard(r#"{ kind = "number", min = 0, max = 0.1 }"#);
    for inside in ["0", "-0", "-0.0", "0.1", "1e-1", "0.05", "1e-300"] {
        assert!(tenth.pass(&number(inside)).is_ok(), "{inside}");
    }
    for outside in ["0.11", "-1e-300", "1", "1e300", "0.10000000000000002"] {
        assert!(tenth.pass(&number(outside)).is_err(), "{outside}");
    }
    let big = guard(r#"{ kind = "number", max = 9007199254740992, integer = true }"#);
    // The control: as doubles the two are equal, and a check by doubles lets the larger through.
    #[expect(clippy::cast_precision_loss, reason = "what the naive check does")]
    let naive = 9_007_199_254_740_993_u64 as f64 <= 9_007_199_254_740_992_u64 as f64;
    assert!(naive && big.pass(&json!(9_007_199_254_740_993_u64)).is_err());
    assert!(big.pass(&json!(9_007_199_254_740_992_u64)).is_ok() && big.pass(&json!(-5)).is_ok());
    for other in [json!("5"), json!(true), json!(null), json!([5]), json!(5.5), json!({"value": 5})] {
        assert!(big.pass(&other).is_err(), "{other}");
    }
    assert!(big.pass(&json!(5.0)).is_ok(), "5.0 is a whole number");
    let blocked = guard(r#"{ kind = "number", min = 1, max = 10, integer = true }"#).pass(&json!(11)).unwrap_err();
    assert_eq!((blocked.id, blocked.instead.as_str()), ("tools.guard/number", "a whole number from 1 to 10"));
}

#[test]
fn gw_05_a_pattern_matches_the_whole_text_in_linear_time() {
    let digits = guard(r#"{ kind = "pattern", pattern = "[0-9]{5}" }"#);
    assert!(text(&digits, "12345").is_ok());
    // An unanchored search finds all of these; `$` of other engines takes the line break.
    for attack in ["12345\n", "x12345", "123456", "12345 ", "\u{661}\u{662}\u{663}\u{664}\u{665}", ""] {
        assert!(text(&digits, attack).is_err(), "{attack:?}");
    }
    let either = guard(r#"{ kind = "pattern", pattern = "a|b" }"#);
    assert!(text(&either, "b").is_ok() && text(&either, "ax").is_err() && text(&either, "xb").is_err());
    let slow = guard(r#"{ kind = "pattern", pattern = "(a+)+b" }"#);
    let before = Instant::now();
    assert!(text(&slow, &"a".repeat(100_000)).is_err());
    assert!(before.elapsed() < Duration::from_secs(60), "{:?}", before.elapsed());
}

#[test]
fn length_counts_characters_and_elements() {
    let short = guard(r#"{ kind = "length", min = 1, max = 3 }"#);
    for inside in [json!("äöü"), json!("a"), json!(["a", "b", "c"]), json!("👩‍🚀")] {
        assert!(short.pass(&inside).is_ok(), "{inside}");
    }
    for outside in [json!(""), json!("abcd"), json!([]), json!([1, 2, 3, 4]), json!(3), json!(null), json!({"a": 1})] {
        assert!(short.pass(&outside).is_err(), "{outside}");
    }
}

#[test]
fn an_enum_is_compared_in_type_and_value_and_what_was_written_is_passed_on() {
    let one = guard(r#"{ kind = "enum", values = ["orders", 1, true] }"#);
    assert_eq!(one.pass(&json!("orders")).unwrap(), json!("orders"));
    assert_eq!(one.pass(&json!(1.0)).unwrap().to_string(), "1");
    for other in
        [json!("Orders"), json!("orders "), json!("1"), json!("true"), json!(2), json!(null), json!(["orders"])]
    {
        assert!(one.pass(&other).is_err(), "{other}");
    }
    assert!(one.pass(&json!("x")).unwrap_err().instead.starts_with("one of `\"orders\"`, `1`, `true`"));
}

proptest! {
    #[test]
    fn a_number_passes_exactly_when_its_decimal_lies_between(any in any::<f64>().prop_filter("finite", |v| v.is_finite()), near in prop::option::of(-2_i32..=12), bound in -1_000_000_i32..1_000_000) {
        // Half of them at the bounds and beside them, where a number of all is never.
        let value = near.map_or(any, |near| f64::from(bound + near));
        let between = guard(&format!("{{ kind = \"number\", min = {bound}, max = {} }}", bound + 10));
        let given = json!(value);
        let exact = Exact::parse(&given.to_string()).unwrap();
        let inside = exact >= Exact::parse(&bound.to_string()).unwrap() && exact <= Exact::parse(&(bound + 10).to_string()).unwrap();
        prop_assert_eq!(between.pass(&given).is_ok(), inside);
    }
}
