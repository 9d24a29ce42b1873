//! Numbers with their units, short enough for one line.

/// Seconds, in the unit that reads best: `380 us`, `31 ms`, `2.5 s`, `90 s`, `10 min`.
#[must_use]
pub fn seconds(s: f64) -> String {
    if !s.is_finite() || s < 0.0 {
        return "unknown".to_owned();
    }
    if s == 0.0 {
        return "0 s".to_owned();
    }
    if s < 0.001 {
        return format!("{:.0} us", s * 1e6);
    }
    if s < 0.9995 {
        return trim(format!("{:.1}", s * 1e3)) + " ms";
    }
    if s < 600.0 {
        return trim(format!("{s:.2}")) + " s";
    }
    trim(format!("{:.1}", s / 60.0)) + " min"
}

/// `1 process`, `3 processes`.
#[must_use]
pub fn count(n: u64, one: &str, many: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {many}") }
}

fn trim(text: String) -> String {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_reads_best() {
        let cases = [
            (0.0, "0 s"),
            (0.00038, "380 us"),
            (0.0312, "31.2 ms"),
            (1.0, "1 s"),
            (2.5, "2.5 s"),
            (30.0, "30 s"),
            (599.0, "599 s"),
            (900.0, "15 min"),
            (f64::NAN, "unknown"),
        ];
        for (s, text) in cases {
            assert_eq!(seconds(s), text);
        }
    }
}
