//! Whose git works in a workspace: its owner's, the caller's, and what the machine gives all of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const PASSWD: &str = "/etc/passwd";
/// What a git of Debian's, or one that was built by hand, reads for everybody.
const OF_THE_MACHINE: [&str; 2] = ["/etc/gitconfig", "/usr/local/etc/gitconfig"];
/// Where git looks in a home folder.
const OF_A_HOME: [&str; 2] = [".gitconfig", ".config/git/config"];

/// What `~` may be: the home folders of the owner and the caller, and each folder that the workspace is or lies in, since
/// whoever works there may have said so by `HOME`.
pub(super) fn homes(root: &Path, owner: Option<u32>) -> BTreeSet<PathBuf> {
    let passwd = std::fs::read(PASSWD).unwrap_or_default();
    let caller = rustix::process::geteuid().as_raw();
    let known = owner.into_iter().chain([caller]).filter_map(|uid| home(&passwd, uid));
    root.ancestors().map(Path::to_owned).chain(known).collect()
}

/// The caller's.
pub(super) fn own_home() -> Option<PathBuf> {
    home(&std::fs::read(PASSWD).ok()?, rustix::process::geteuid().as_raw())
}

/// Whether a file is one that the machine gives all of them.
pub(super) fn is_of_the_machine(file: &Path) -> bool {
    OF_THE_MACHINE.iter().any(|one| file == Path::new(one))
}

/// Who is believed about a configuration that is not the repository's, beside the owner of the workspace.
pub(super) fn trusted() -> [u32; 2] {
    [rustix::process::geteuid().as_raw(), 0]
}

/// The files that count in every repository.
pub(super) fn files(homes: &BTreeSet<PathBuf>) -> impl Iterator<Item = PathBuf> {
    let of_homes = homes.iter().flat_map(|home| OF_A_HOME.map(|name| home.join(name)));
    OF_THE_MACHINE.into_iter().map(PathBuf::from).chain(of_homes)
}

/// The home folder of a user, from the text of `/etc/passwd`.
fn home(passwd: &[u8], uid: u32) -> Option<PathBuf> {
    let text = String::from_utf8_lossy(passwd);
    let lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut homes = lines.filter(|parts| parts.get(2).and_then(|id| id.parse().ok()) == Some(uid));
    homes.next()?.get(5).map(PathBuf::from).filter(|home| home.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_the_sixth_part_of_a_line() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\n\xffodd:x\na:x:1000:1000:A,,,:/home/a:/bin/sh\nb:x:1001:1:::\n";
        assert_eq!(home(passwd, 1000), Some("/home/a".into()));
        assert_eq!(home(passwd, 0), Some("/root".into()));
        assert_eq!(home(passwd, 1001), None);
        assert_eq!(home(passwd, 7), None);
    }
}
