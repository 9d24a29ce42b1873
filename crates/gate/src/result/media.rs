//! Whether bytes are of the type that they say.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

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

/// Whether text is base64 in its one strict form: the plain alphabet, padded, no blanks, no loose bits. What decoders disagree
/// about is none.
pub(super) fn is_base64(text: &str) -> bool {
    BASE64_STANDARD.decode(text).is_ok()
}

/// The bytes of a text that is base64.
pub(super) fn bytes(text: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(text).ok()
}

/// Why data of a type cannot be passed on; none if it can.
pub(super) fn flaw(kind: &str, mime: &str, data: &str) -> Option<String> {
    let Ok(head) = BASE64_STANDARD.decode(data) else { return Some(format!("{kind} withheld: its data is no base64")) };
    let is_kind = mime.split_once('/').is_some_and(|(first, _)| first == kind);
    (!is_kind || !is_of(mime, &head)).then(|| format!("{kind} withheld: its data is not of the type that it says"))
}

#[cfg(test)]
mod tests {
    use super::{flaw, is_base64};

    #[test]
    fn only_one_spelling_of_bytes_is_base64() {
        for good in ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="] {
            assert!(is_base64(good), "{good}");
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
            assert!(!is_base64(bad), "{bad}");
        }
    }

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
