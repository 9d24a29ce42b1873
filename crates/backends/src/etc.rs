//! The synthetic `/etc`: what programs need, and nothing that tells who the host is.

use std::net::IpAddr;
use std::path::Path;

use policy::value::{Policy, Root};
use sys::paths::{self, Kind};

use crate::trust;

/// The data file of what is shown of the host's `/etc`, by which a kept one is known to be of this version.
pub(crate) const TABLE: &str = include_str!("../../../resources/etc.toml");

/// One row: a name, or what names begin with.
enum Row<'a> {
    Path(&'a str),
    Glob(&'a str),
}

// Its rows, `ROWS`, as the build read them.
include!(concat!(env!("OUT_DIR"), "/etc.rs"));

/// Which names of the host's `/etc` (as read by the caller) are shown.
#[must_use]
pub fn shown(names: &[String]) -> Vec<&str> {
    let named = |name: &str| {
        ROWS.iter().any(|row| match row {
            Row::Path(path) => *path == name,
            Row::Glob(prefix) => name.starts_with(prefix),
        })
    };
    let mut list: Vec<&str> = names.iter().map(String::as_str).filter(|name| named(name)).collect();
    list.sort_unstable();
    list
}

/// Names of the synthetic files.
pub(crate) const SYNTHETIC: &[&str] =
    &["passwd", "group", "hosts", "nsswitch.conf", "resolv.conf", "hostname", "machine-id"];

/// What the synthetic files say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    /// The user's name.
    pub(crate) user: &'a str,
    /// The host's name.
    pub(crate) hostname: &'a str,
    /// Names of hosts are asked of the broker: any address leads to it, and the one that is written is of the range that the
    /// names get theirs of.
    pub(crate) resolver: bool,
}

/// `/etc/resolv.conf` where names are asked of the broker.
pub(crate) const RESOLVER: &str = "nameserver 198.18.0.1\noptions edns0\n";

/// The synthetic files: name below `/etc` and content.
#[must_use]
pub(crate) fn synthetic(Names { user, hostname, resolver }: Names<'_>) -> Vec<(&'static str, Vec<u8>)> {
    let (hosts, resolv): (&str, &[u8]) =
        if resolver { ("files dns", RESOLVER.as_bytes()) } else { ("files", b"# no resolver inside\n") };
    let nsswitch = format!("passwd: files\ngroup: files\nhosts: {hosts}\nservices: files\nprotocols: files\n");
    vec![
        (
            "passwd",
            format!("root:x:0:0:root:/root:/usr/sbin/nologin\n{user}:x:1000:1000:{user}:/home/{user}:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n").into_bytes(),
        ),
        ("group", format!("root:x:0:\ntty:x:5:\n{user}:x:1000:\nnogroup:x:65534:\n").into_bytes()),
        ("hosts", format!("127.0.0.1 localhost {hostname}\n::1 localhost {hostname}\n").into_bytes()),
        ("nsswitch.conf", nsswitch.into_bytes()),
        ("resolv.conf", resolv.to_vec()),
        ("hostname", format!("{hostname}\n").into_bytes()),
        ("machine-id", Vec::new()),
    ]
}

/// Whether a folder as root, whose `/etc` is shown as it is, names a resolver that is not on loopback: any other leads to the broker,
/// and on the sandbox's own nobody listens, where whoever names none looks for one. Other roots have ours.
#[must_use]
pub fn names_resolver(policy: &Policy) -> bool {
    let at = Path::new("/etc/resolv.conf");
    let Root::Dir(folder) = &policy.fs.root else { return true };
    if trust::is_shown(policy, at) {
        return true;
    }
    let Ok(tree) = folder.canonicalize() else { return false };
    let path =
        trust::found(&tree, at, Kind::File).filter(|path| !trust::OURS.iter().any(|ours| path.starts_with(ours)));
    let place = path.and_then(|path| paths::open_place_within(&tree, &path).ok());
    let bytes = place.and_then(|place| paths::read_place(place, trust::MAX_FILE).ok()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).lines().any(is_elsewhere)
}

/// Whether a line of `resolv.conf` names a resolver that is not on loopback.
fn is_elsewhere(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    let named = words.next() == Some("nameserver");
    let address = words.next().filter(|_| named).and_then(|text| text.split('%').next()?.parse::<IpAddr>().ok());
    // To nowhere in particular is to itself.
    address.is_some_and(|address| !address.to_canonical().is_loopback() && !address.is_unspecified())
}

/// Whom a run is, in the lists of an image.
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) id: u32,
}

impl Account {
    /// A list of ours, without lines that give its name another number.
    #[must_use]
    pub(crate) fn once(&self, ours: &[u8]) -> Vec<u8> {
        let Self { name, id } = self;
        let number = id.to_string();
        let other = |line: &[u8]| {
            let mut parts = line.split(|byte| *byte == b':');
            parts.next() == Some(name.as_bytes()) && parts.nth(1) != Some(number.as_bytes())
        };
        ours.split_inclusive(|byte| *byte == b'\n')
            .filter(|line| !other(line.trim_ascii_end()))
            .flatten()
            .copied()
            .collect()
    }

    /// `passwd` or `group` of an image, with a line for this one where it has none for the number.
    #[must_use]
    pub(crate) fn added(&self, list: &str, has: &[u8]) -> Vec<u8> {
        let Self { name, id } = self;
        let number = id.to_string();
        let known = has
            .split(|byte| *byte == b'\n')
            .any(|line| line.split(|byte| *byte == b':').nth(2) == Some(number.as_bytes()));
        let mut all = has.to_vec();
        if known {
            return all;
        }
        if !all.is_empty() && !all.ends_with(b"\n") {
            all.push(b'\n');
        }
        let line = if list == "group" {
            format!("{name}:x:{id}:\n")
        } else {
            format!("{name}:x:{id}:{id}:{name}:/home/{name}:/bin/sh\n")
        };
        all.extend(line.into_bytes());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::{Account, Names, ROWS, Root, Row, TABLE, names_resolver, shown, synthetic};
    use crate::support::policy_of;

    #[test]
    fn of_a_folder_as_root_its_own_file_names_the_resolver() {
        let folder = tempfile::tempdir().unwrap();
        let etc = folder.path().join("etc");
        std::fs::create_dir(&etc).unwrap();
        let names = |more: &str| {
            let mut policy = policy_of(more);
            policy.fs.root = Root::Dir(folder.path().to_owned());
            names_resolver(&policy)
        };
        assert!(!names(""), "it has none");
        assert!(names("fs.read = [{ from = '/usr', to = '/etc/resolv.conf' }]"), "the policy shows one");
        for (text, expected) in [
            ("", false),
            ("nameserver 127.0.0.53\noptions edns0\n", false),
            ("nameserver ::1\n# nameserver 9.9.9.9\nnameserver 0.0.0.0\nnameserver nowhere\n", false),
            ("nameserver 127.0.0.53\nnameserver\t9.9.9.9 \n", true),
            ("nameserver fe80::1%eth0", true),
        ] {
            std::fs::write(etc.join("resolv.conf"), text).unwrap();
            assert_eq!(names(""), expected, "{text:?}");
        }
        // Of what it leads to in a place of the run nothing is there.
        std::fs::create_dir(folder.path().join("run")).unwrap();
        std::fs::rename(etc.join("resolv.conf"), folder.path().join("run/resolv.conf")).unwrap();
        std::os::unix::fs::symlink("../run/resolv.conf", etc.join("resolv.conf")).unwrap();
        assert!(!names(""));
        assert!(names_resolver(&policy_of("")), "a root of ours has our file");
    }

    #[test]
    fn accounts_and_identity_of_the_host_are_never_shown() {
        let names: Vec<String> =
            ["passwd", "shadow", "machine-id", "hostname", "ssh", "ssl", "python3.11", "localtime", "hosts"]
                .iter()
                .map(|s| (*s).to_owned())
                .collect();
        assert_eq!(shown(&names), ["python3.11", "ssl"]);
    }

    /// Of a row that the build did not read, what programs need would be missing inside and no test would know why.
    #[test]
    fn every_row_of_the_table_was_read() {
        assert_eq!(ROWS.len(), TABLE.matches("[[show]]").count());
        let is_read = |wanted: &str| ROWS.iter().any(|row| matches!(row, Row::Path(name) if *name == wanted));
        assert!(is_read("ssl") && !is_read("passwd"));
        assert!(ROWS.iter().any(|row| matches!(row, Row::Glob("python3"))));
    }

    #[test]
    fn names_are_asked_for_only_where_somebody_answers() {
        let file = |resolver, wanted| {
            let all = synthetic(Names { user: "user", hostname: "fumehood", resolver });
            let found = all.into_iter().find(|(name, _)| *name == wanted).unwrap();
            String::from_utf8(found.1).unwrap()
        };
        assert!(file(true, "resolv.conf").contains("nameserver ") && file(true, "nsswitch.conf").contains("files dns"));
        assert!(!file(false, "resolv.conf").contains("nameserver ") && !file(false, "nsswitch.conf").contains("dns"));
    }

    #[test]
    fn the_user_is_known_by_name_inside() {
        let files = synthetic(Names { user: "user", hostname: "fumehood", resolver: false });
        let passwd = &files.iter().find(|(name, _)| *name == "passwd").unwrap().1;
        assert!(String::from_utf8_lossy(passwd).contains("user:x:1000:1000"));
    }

    /// Whom an engine asks for may be root, or have any number: an image without accounts gets ours, in which each name is once.
    #[test]
    fn in_lists_of_ours_a_user_has_one_number() {
        for (user, id, root) in
            [("root", 0, "root:x:0:"), ("user", 1234, "user:x:1234:"), ("user", 1000, "user:x:1000:")]
        {
            let account = Account { name: user.to_owned(), id };
            for (list, ours) in synthetic(Names { user, hostname: "fumehood", resolver: false }) {
                let all = String::from_utf8(account.added(list, &account.once(&ours))).unwrap();
                let named: Vec<&str> = all.lines().filter(|line| line.starts_with(&format!("{user}:"))).collect();
                if matches!(list, "passwd" | "group") {
                    assert!(matches!(named.as_slice(), [line] if line.starts_with(root)), "{list}: {all}");
                }
            }
        }
    }
}
