//! The time, and how it is written.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// RFC 3339 in UTC, with milliseconds; the epoch for what no calendar has.
pub(crate) fn rfc3339(ms: i64) -> String {
    let time = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}

/// RFC 3339 in UTC, with nanoseconds.
pub(crate) fn rfc3339_fine(seconds: i64, nanoseconds: u32) -> String {
    let time = Timestamp::new(seconds, i32::try_from(nanoseconds).unwrap_or(0)).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.9}")
}

/// A time as headers of HTTP have it; none for what no calendar has.
pub(crate) fn http_date(seconds: i64) -> Option<String> {
    rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&Timestamp::from_second(seconds).ok()?).ok()
}

/// Seconds since 1970 of such a time.
pub(crate) fn parse_http_date(text: &str) -> Option<i64> {
    rfc2822::DateTimeParser::new().parse_timestamp(text).ok().map(Timestamp::as_second)
}

/// Milliseconds of a time as RFC 3339 writes it.
pub(crate) fn parse_ms(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read() {
        assert_eq!(rfc3339(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(rfc3339_fine(0, 5), "1970-01-01T00:00:00.000000005Z");
        assert_eq!(parse_ms("2023-11-14T22:13:20.123Z"), Some(1_700_000_000_123));
        assert_eq!(rfc3339(i64::MAX), "1970-01-01T00:00:00.000Z");
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!((http_date(784_111_777).as_deref(), parse_http_date(date)), (Some(date), Some(784_111_777)));
        assert_eq!((http_date(i64::MAX), parse_http_date("yesterday")), (None, None));
    }
}
