//! The synthetic `/etc`: what programs need, and nothing that tells who the host is.

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

/// Whom a run is, in the lists of an image.
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) id: u32,
}

impl Account {
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
    use super::{Names, ROWS, Row, TABLE, shown, synthetic};

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
}
