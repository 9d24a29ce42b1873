//! Sizes with their units, short enough for a message.

/// Bytes in binary units: `512 B`, `1.5 KiB`, `256 MiB`.
#[must_use]
pub fn bytes(n: u64) -> String {
    const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];
    for (name, shift) in UNITS {
        let unit = 1u64 << shift;
        if n < unit {
            continue;
        }
        let whole = n / unit;
        // Tenths, rounded down: a usage must never look like more than it was.
        let tenth = (n % unit).saturating_mul(10) / unit;
        return if tenth == 0 || whole >= 100 { format!("{whole} {name}") } else { format!("{whole}.{tenth} {name}") };
    }
    "0 B".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_three_digits() {
        let cases = [
            (0, "0 B"),
            (1, "1 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (256 << 20, "256 MiB"),
            ((256 << 20) + 1, "256 MiB"),
            (u64::MAX, "16777215 TiB"),
        ];
        for (n, text) in cases {
            assert_eq!(bytes(n), text);
        }
    }
}
