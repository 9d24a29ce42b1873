//! Base64, strictly: the plain alphabet, padded, no blanks, no loose bits. What decoders disagree about is none.

/// The first `most` bytes, if the whole text is base64.
pub(crate) fn head(text: &str, most: usize) -> Option<Vec<u8>> {
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(4) {
        return None;
    }
    let mut out = Vec::with_capacity(most.min(bytes.len() / 4 * 3));
    let last = bytes.len() / 4;
    for (index, group) in bytes.chunks_exact(4).enumerate() {
        let padding = if index + 1 == last { group.iter().rev().take_while(|b| **b == b'=').count() } else { 0 };
        if padding > 2 {
            return None;
        }
        let mut bits = 0_u32;
        for (place, byte) in group.iter().enumerate() {
            let digit = if place >= 4 - padding { 0 } else { digit(*byte)? };
            bits = bits << 6 | digit;
        }
        let [_, a, b, c] = bits.to_be_bytes();
        let is_loose = match padding {
            0 => false,
            1 => c != 0,
            _ => b != 0 || c != 0,
        };
        if is_loose {
            return None;
        }
        let made = [a, b, c];
        out.extend(made.iter().take(3 - padding).take(most.saturating_sub(out.len())));
    }
    Some(out)
}

fn digit(byte: u8) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::head;

    #[test]
    fn only_one_spelling_of_bytes_is_base64() {
        for (text, bytes) in [("", &b""[..]), ("Zg==", b"f"), ("Zm8=", b"fo"), ("Zm9v", b"foo"), ("Zm9vYg==", b"foob")]
        {
            assert_eq!(head(text, 99).as_deref(), Some(bytes), "{text}");
        }
        for bad in [
            "Z",
            "Zg",
            "Zg=",
            "Zg===",
            "Zh==",
            "Zm9=",
            "Z g=",
            "Zg==Zg==",
            "====",
            "Zm9v\n",
            "Zm-v",
            "=m9v",
            "\u{e9}\u{e9}",
        ] {
            assert_eq!(head(bad, 99), None, "{bad}");
        }
        assert_eq!(head("Zm9vYmFy", 4).as_deref(), Some(&b"foob"[..]));
    }
}
