//! Bytes as text: hex, and the canonical JSON of the policy room, so that one value has one spelling everywhere.

pub(super) use policy::json::write_text as write_string;
pub use policy::json::{canonical, hex, sha256_hex, unhex};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted_by_utf16_and_nothing_is_escaped_without_need() {
        // From RFC 8785 section 3.2.3: the emoji sorts before U+FB33 by UTF-16, after it by code point.
        let value = json!({"\u{fb33}": 1, "\u{1f600}": 2, "\r": 3, "1": 4, "\u{80}": 5, "ö": "\u{f}\n/é\\\""});
        assert_eq!(
            canonical(&value),
            "{\"\\r\":3,\"1\":4,\"\u{80}\":5,\"ö\":\"\\u000f\\n/é\\\\\\\"\",\"\u{1f600}\":2,\"\u{fb33}\":1}"
        );
    }

    #[test]
    fn numbers_are_spelled_as_in_the_rfc() {
        let cases: [(f64, &str); 14] = [
            (0.0, "0"),
            (-0.0, "0"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (295_147_905_179_352_830_000.0, "295147905179352830000"),
            (1e21, "1e+21"),
            (9.999_999_999_999_997e22, "9.999999999999997e+22"),
            (0.000_001, "0.000001"),
            (1e-7, "1e-7"),
            (333_333_333.333_333_3, "333333333.3333333"),
            (-1.5, "-1.5"),
            (100.0, "100"),
            (0.001_5, "0.0015"),
        ];
        for (number, spelled) in cases {
            assert_eq!(canonical(&json!(number)), spelled, "{number}");
        }
        // RFC 8785 knows doubles alone: beyond 2^53 an integer is spelled as the double that it becomes.
        assert_eq!(
            canonical(&json!([u64::MAX, 1_u64 << 53, null, true])),
            "[18446744073709552000,9007199254740992,null,true]"
        );
    }

    #[test]
    fn hex_reads_back() {
        assert_eq!(unhex(&hex(&[0, 15, 255])).unwrap(), [0, 15, 255]);
        assert!(unhex("abc").is_none() && unhex("+1").is_none());
    }
}
