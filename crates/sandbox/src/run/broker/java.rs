//! The store of trusted certificates that Java reads, in its oldest format (JKS): every release since 1.2 takes it.

use sha1::{Digest as _, Sha1};

const MAGIC: u32 = 0xFEED_FEED;
const VERSION: u32 = 2;
/// An entry that is a certificate alone.
const TRUSTED: u32 = 2;
const KIND: &str = "X.509";
/// Who names a password names this one, as for Java's own store: the digest shows that nothing of the file was lost.
const PASSWORD: &str = "changeit";
/// What Java adds to the digest.
const WHITENER: &str = "Mighty Aphrodite";

/// A store of these certificates (DER); `None`: one of them is longer than a store can say.
pub(super) fn store<'a>(certificates: impl ExactSizeIterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for number in [MAGIC, VERSION, u32::try_from(certificates.len()).ok()?] {
        out.extend(number.to_be_bytes());
    }
    for (place, certificate) in certificates.enumerate() {
        out.extend(TRUSTED.to_be_bytes());
        text(&mut out, &format!("fumehood-{place}"))?;
        // When it was made: of no meaning to who trusts it.
        out.extend(0_u64.to_be_bytes());
        text(&mut out, KIND)?;
        out.extend(u32::try_from(certificate.len()).ok()?.to_be_bytes());
        out.extend(certificate);
    }
    let mut digest = Sha1::new();
    digest.update(PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>());
    digest.update(WHITENER);
    digest.update(&out);
    out.extend(digest.finalize());
    Some(out)
}

/// A text of ASCII, as Java writes one.
fn text(out: &mut Vec<u8>, text: &str) -> Option<()> {
    out.extend(u16::try_from(text.len()).ok()?.to_be_bytes());
    out.extend(text.as_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The format is that of `sun.security.provider.JavaKeyStore`; that Java takes it `scripts/clients` shows.
    #[test]
    fn it_is_written_as_java_writes_it() {
        let made = store([b"der".as_slice()].into_iter()).unwrap();
        let (body, digest) = made.split_at(made.len() - 20);
        let expected = [
            b"\xfe\xed\xfe\xed\0\0\0\x02\0\0\0\x01\0\0\0\x02".as_slice(),
            b"\0\x0afumehood-0\0\0\0\0\0\0\0\0\0\x05X.509\0\0\0\x03der",
        ]
        .concat();
        assert_eq!(body, expected);
        let password = b"\0c\0h\0a\0n\0g\0e\0i\0t";
        assert_eq!(digest, Sha1::digest([password.as_slice(), b"Mighty Aphrodite", body].concat()).as_slice());
    }
}
