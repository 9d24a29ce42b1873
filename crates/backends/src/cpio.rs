//! The kernel's initial file system: a cpio archive of the kind `newc` (Documentation/driver-api/early-userspace/buffer-format.rst).
//! Several of them may lie one behind the other.

/// Types of files, as in `st_mode`.
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

/// An archive in the making.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a folder.
    pub(crate) fn folder(&mut self, name: &str, mode: u32) {
        self.entry(name, FOLDER | mode, &[]);
    }

    /// Adds a file.
    pub(crate) fn file(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entry(name, FILE | mode, content);
    }

    /// All of it.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries = self.entries.saturating_add(1);
        let (length, named) = (content.len(), name.len().saturating_add(1));
        // Inode, mode, uid, gid, links, time, size, device and its target (each two numbers), length of the name, checksum.
        let header = format!(
            "070701{:08x}{mode:08x}{:08x}{:08x}{:08x}{:08x}{length:08x}{:08x}{:08x}{:08x}{:08x}{named:08x}{:08x}",
            self.entries, 0, 0, 1, 0, 0, 0, 0, 0, 0
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    /// To a multiple of four bytes.
    fn pad(&mut self) {
        let padded = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(padded, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_110_bytes_and_all_is_padded_to_four() {
        let mut archive = Archive::default();
        archive.folder("modules", 0o755);
        archive.file("modules/a", 0o644, b"12345");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let headers: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
        // Each is 110 bytes and its name with a zero, then the content.
        let second = 110_usize + 8 + 2;
        assert_eq!(headers, [0, second, second + 110 + 10 + 8], "{text}");
        assert_eq!(&bytes[second + 54..second + 62], b"00000005");
        assert_eq!(&bytes[second + 14..second + 22], b"000081a4");
    }
}
