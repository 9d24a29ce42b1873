//! Whether bytes are of the type that they say.

use super::base64;

/// Types that are let through, by their first bytes. SVG is not among them: it is text with scripts and addresses in it.
fn is_of(mime: &str, head: &[u8]) -> bool {
    let at = |place: usize, wanted: &[u8]| head.get(place..place + wanted.len()) == Some(wanted);
    match mime {
        "image/png" => at(0, b"\x89PNG\r\n\x1a\n"),
        "image/jpeg" => at(0, b"\xff\xd8\xff"),
        "image/gif" => at(0, b"GIF87a") || at(0, b"GIF89a"),
        "image/webp" => at(0, b"RIFF") && at(8, b"WEBP"),
        "image/bmp" => at(0, b"BM"),
        "image/avif" => at(4, b"ftypavif") || at(4, b"ftypavis"),
        "audio/wav" | "audio/wave" | "audio/x-wav" => at(0, b"RIFF") && at(8, b"WAVE"),
        "audio/mpeg" | "audio/mp3" => at(0, b"ID3") || matches!(head, [0xff, second, ..] if second & 0xe0 == 0xe0),
        "audio/ogg" => at(0, b"OggS"),
        "audio/flac" => at(0, b"fLaC"),
        "audio/mp4" | "audio/m4a" | "audio/aac" => {
            at(4, b"ftyp") || matches!(head, [0xff, second, ..] if second & 0xf6 == 0xf0)
        }
        "audio/webm" => at(0, b"\x1a\x45\xdf\xa3"),
        _ => false,
    }
}

/// Why data of a type cannot be passed on; none if it can.
pub(super) fn flaw(kind: &str, mime: &str, data: &str) -> Option<String> {
    let Some(head) = base64::head(data, 16) else { return Some(format!("{kind} withheld: its data is no base64")) };
    let is_kind = mime.split_once('/').is_some_and(|(first, _)| first == kind);
    (!is_kind || !is_of(mime, &head)).then(|| format!("{kind} withheld: its data is not of the type that it says"))
}

#[cfg(test)]
mod tests {
    use super::flaw;

    #[test]
    fn a_picture_is_known_by_its_first_bytes_and_text_is_none() {
        let png = "iVBORw0KGgoAAAANSUhEUgAAAAE=";
        assert_eq!(flaw("image", "image/png", png), None);
        for (kind, mime, data) in [
            ("image", "image/jpeg", png),
            ("image", "image/png", "PHNjcmlwdD4="),
            ("image", "image/svg+xml", "PHN2Zz48L3N2Zz4="),
            ("image", "text/html", "PHNjcmlwdD4="),
            ("audio", "image/png", png),
            ("image", "image/png", "not base64"),
            ("image", "image/png", ""),
            ("image", "IMAGE/PNG", png),
        ] {
            assert!(flaw(kind, mime, data).is_some(), "{kind} {mime} {data}");
        }
        assert_eq!(flaw("audio", "audio/wav", "UklGRiQAAABXQVZF"), None);
    }
}
