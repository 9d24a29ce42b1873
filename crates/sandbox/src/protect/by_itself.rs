//! What git does to its objects by itself.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::gitdir::{is_byte, packed};
use super::objects::Name;

/// Whether it is what git makes from its objects for speed, or an object that it packed and removed: neither is ever taken, and git on the
/// host does both by itself, so that nobody need be asked.
#[must_use]
pub fn is_tidied(rest: &Path, is_removed: bool) -> bool {
    let parts: Vec<&[u8]> = rest.components().map(|part| part.as_os_str().as_bytes()).collect();
    let is_for_speed = |name: &[u8]| {
        name.starts_with(b"multi-pack-index") || [&b".bitmap"[..], b".mtimes"].iter().any(|end| name.ends_with(end))
    };
    match parts.as_slice() {
        [b"objects", b"info", b"commit-graph" | b"commit-graphs" | b"packs", ..] | [b"info", b"refs"] => true,
        // How conflicts were solved: by that the host's git would solve others.
        [b"rr-cache", ..] => true,
        [b"MERGE_RR"] | [b"worktrees", _, b"MERGE_RR"] => !is_removed,
        [b"objects", b"pack", name, ..] if is_for_speed(name) => true,
        [b"objects", b"pack", name] => is_removed && packed(name).is_some(),
        [b"objects", two] => is_removed && is_byte(two),
        [b"objects", two, name] => is_removed && is_byte(two) && Name::of(&[two, name]).is_some(),
        [] | [_, ..] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_tidies_up_is_asked_of_nobody() {
        let sum = format!("01{}", "23".repeat(19));
        for path in [
            "info/refs",
            "rr-cache/01/postimage",
            "objects/info/commit-graph",
            "objects/pack/multi-pack-index",
            &format!("objects/pack/pack-{sum}.bitmap"),
        ] {
            assert!(is_tidied(Path::new(path), false) && is_tidied(Path::new(path), true), "{path}");
        }
        assert!(is_tidied(Path::new("MERGE_RR"), false) && !is_tidied(Path::new("MERGE_RR"), true));
        for path in ["objects/01", &format!("objects/01/{}", "23".repeat(19)), &format!("objects/pack/pack-{sum}.idx")]
        {
            assert!(!is_tidied(Path::new(path), false) && is_tidied(Path::new(path), true), "{path}");
        }
        for path in [
            "objects",
            "objects/pack",
            "objects/info/alternates",
            "objects/01/x",
            "lfs/objects/01",
            "refs/heads/01",
            "objects/pack/x.pack",
        ] {
            assert!(!is_tidied(Path::new(path), true), "{path}");
        }
    }
}
