//! The synthetic `/etc`: what programs need, and nothing that tells who the host is.

use serde::Deserialize;

/// The data file of what is shown of the host's `/etc`.
pub(super) const TABLE: &str = include_str!("../../../../resources/etc.toml");

#[derive(Deserialize)]
struct Table {
    show: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    path: Option<String>,
    glob: Option<String>,
}

/// Which names of the host's `/etc` (as read by the caller) are shown.
///
/// # Errors
/// The embedded table is broken; the text says where.
pub(crate) fn shown(names: &[String]) -> Result<Vec<&str>, String> {
    let table: Table = toml::from_str(TABLE).map_err(|e| format!("resources/etc.toml: {e}"))?;
    let mut list: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| {
            table.show.iter().any(|row| {
                let exact = row.path.as_deref() == Some(name);
                let prefix = row.glob.as_deref().and_then(|glob| glob.strip_suffix('*'));
                exact || prefix.is_some_and(|prefix| name.starts_with(prefix))
            })
        })
        .collect();
    list.sort_unstable();
    Ok(list)
}

/// The synthetic files: name below `/etc` and content.
#[must_use]
pub(crate) fn synthetic(user: &str, hostname: &str) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        (
            "passwd",
            format!("root:x:0:0:root:/root:/usr/sbin/nologin\n{user}:x:1000:1000:{user}:/home/{user}:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n").into_bytes(),
        ),
        ("group", format!("root:x:0:\ntty:x:5:\n{user}:x:1000:\nnogroup:x:65534:\n").into_bytes()),
        ("hosts", format!("127.0.0.1 localhost {hostname}\n::1 localhost {hostname}\n").into_bytes()),
        ("nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n".to_vec()),
        ("resolv.conf", b"# no resolver inside\n".to_vec()),
        ("hostname", format!("{hostname}\n").into_bytes()),
        ("machine-id", Vec::new()),
    ]
}

#[cfg(test)]
mod tests {
    use super::{shown, synthetic};

    #[test]
    fn accounts_and_identity_of_the_host_are_never_shown() {
        let names: Vec<String> =
            ["passwd", "shadow", "machine-id", "hostname", "ssh", "ssl", "python3.11", "localtime", "hosts"]
                .iter()
                .map(|s| (*s).to_owned())
                .collect();
        assert_eq!(shown(&names).unwrap(), ["python3.11", "ssl"]);
    }

    #[test]
    fn the_user_is_known_by_name_inside() {
        let files = synthetic("user", "fumehood");
        let passwd = &files.iter().find(|(name, _)| *name == "passwd").unwrap().1;
        assert!(String::from_utf8_lossy(passwd).contains("user:x:1000:1000"));
    }
}
