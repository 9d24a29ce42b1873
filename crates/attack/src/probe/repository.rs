//! Tries on what git believes of its own files: written as git reads them, not as another reader would.

use std::fs;

use super::{Entry, Probe, errno};

pub(super) const PROBES: &[Entry] = &[("plant-believed", plant_believed), ("plant-zero", plant_zero)];

/// Of an entry of the index: all before its path.
const HEAD: usize = 62;
/// Its path begins 8 bytes later for git than for who takes a path to end at its first zero.
const LATER: usize = 8;
const HOOK: &[u8] = b".git/hooks/post-checkout";

/// A folder of git's: an index with an entry that only git sees, and references that replace an object.
fn plant_believed(probe: &Probe) {
    let git = probe.arg(0);
    let put = |name: &str, content: &[u8]| {
        let written = fs::write(git.join(name), content).map_err(|error| errno(&error));
        probe.saw(name, written);
    };
    put("index", &index());
    let (one, other) = ("01".repeat(20), "23".repeat(20));
    put(
        "packed-refs",
        format!("# pack-refs with: peeled fully-peeled sorted\n{one} refs/replace/{other}\n").as_bytes(),
    );
    put("ORIG_HEAD", b"ref: hooks/pre-commit\n");
}

/// A configuration of git's: a key that may be taken over to who reads past a zero, where git's name ends.
fn plant_zero(probe: &Probe) {
    let config = probe.arg(0);
    let put = || {
        let mut content = fs::read(&config)?;
        content.extend(b"[core \"hookspath\0\"]\n\tlogallrefupdates = always\n");
        fs::write(&config, content)
    };
    probe.saw("config", put().map_err(|error: std::io::Error| errno(&error)));
}

/// The first entry says a longer path than it has, so that git looks for the second one further on.
fn index() -> Vec<u8> {
    let size = |path: usize| (HEAD + path + 8) & !7;
    let first = size(1);
    let mut all = b"DIRC\0\0\0\x02\0\0\0\x02".to_vec();
    let begins = all.len();
    all.extend(entry(0o100_644, 2, b"!"));
    all.resize(begins + first + LATER, 1);
    let length = 0x100 + HOOK.len();
    let second = all.len();
    all.extend(entry(0o100_755, length, HOOK));
    all.resize(second + size(length), 0);
    // Where the other reader sees the entries end: an extension that it passes over.
    let end = begins + first + size(LATER + HOOK.len());
    let rest = u32::try_from(all.len() - end - 8).unwrap_or_default();
    if let Some(place) = all.get_mut(end..end + 8) {
        place.copy_from_slice(&[&b"AAAA"[..], &rest.to_be_bytes()].concat());
    }
    all.extend([0; 20]);
    all
}

fn entry(mode: u32, length: usize, path: &[u8]) -> Vec<u8> {
    let mut all = vec![1; HEAD - 2];
    if let Some(place) = all.get_mut(24..28) {
        place.copy_from_slice(&mode.to_be_bytes());
    }
    all.extend(u16::try_from(length).unwrap_or_default().to_be_bytes());
    all.extend(path);
    // What follows a path is zero up to the next entry.
    if path.len() == 1 {
        all.resize(HEAD + 2, 0);
    }
    all
}
