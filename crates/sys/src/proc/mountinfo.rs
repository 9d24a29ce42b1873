//! `/proc/PID/mountinfo`, see proc_pid_mountinfo(5).

use std::borrow::Cow;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its number.
    pub id: u64,
    /// The mount that it is mounted on.
    pub parent: u64,
    /// Device, (major, minor).
    pub device: (u32, u32),
    /// Which folder of the file system is its root.
    pub root: String,
    /// Where it is mounted, as the reader sees it.
    pub point: String,
    /// Options of this mount, as written: `ro,nosuid`.
    pub options: String,
    /// Propagation fields, e.g. `shared:1`, `master:2`.
    pub propagation: Vec<String>,
    /// Type of the file system.
    pub kind: String,
    /// What was mounted.
    pub source: String,
    /// Options of the file system, as written.
    pub super_options: String,
}

impl Mount {
    /// Whether this mount has the option.
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|own| own == option)
    }

    /// Whether its file system has the option.
    #[must_use]
    pub fn super_has(&self, option: &str) -> bool {
        self.super_options.split(',').any(|own| own == option)
    }
}

impl Mount {
    /// What its file system has for an option that says something, each time that it is there.
    pub fn super_values(&self, option: &str) -> impl Iterator<Item = String> {
        let pairs = self.super_options.split(',').filter_map(|own| own.split_once('='));
        pairs.filter(move |(name, _)| *name == option).map(|(_, value)| unescape(value))
    }
}

/// Parses the whole text; `None` when any line does not parse.
#[must_use]
pub fn parse(text: &str) -> Option<Vec<Mount>> {
    text.lines().map(line).collect()
}

/// As [`parse`], of the file systems whose type is `wanted`; of the other lines only the type is read.
#[must_use]
pub(super) fn parse_of(text: &str, wanted: impl Fn(&str) -> bool) -> Option<Vec<Mount>> {
    let kind = |line: &str| Some(wanted(line.split_once(" - ")?.1.split(' ').next()?));
    text.lines().filter_map(|text| kind(text).map_or(Some(None), |yes| yes.then(|| line(text)))).collect()
}

fn line(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ');
    let id = fields.next()?.parse().ok()?;
    let parent = fields.next()?.parse().ok()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let root = unescape(fields.next()?);
    let point = unescape(fields.next()?);
    let options = fields.next()?.to_owned();
    let propagation = fields.map(str::to_owned).collect();
    let mut fields = after.split(' ');
    let kind = unescape(fields.next()?);
    let source = unescape(fields.next()?);
    let super_options = fields.next().unwrap_or_default().to_owned();
    Some(Mount { id, parent, device, root, point, options, propagation, kind, source, super_options })
}

/// Space, tab, newline and backslash come as three octal digits.
fn unescape(text: &str) -> String {
    if !text.contains('\\') {
        return text.to_owned();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let octal = match (first, tail) {
            (b'\\', [a, b, c, ..]) => {
                std::str::from_utf8(&[*a, *b, *c]).ok().and_then(|digits| u8::from_str_radix(digits, 8).ok())
            }
            (_, _) => None,
        };
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { tail.get(3..).unwrap_or_default() } else { tail };
    }
    shown(&bytes)
}

/// Bytes of a path as text: what is no UTF-8 becomes `\xNN`, so that two names that differ stay two names.
#[must_use]
pub fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

/// The file as text that [`parse`] reads: the kernel escapes blanks, and leaves bytes that are no UTF-8 as they are.
pub(super) fn as_text(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\{byte:03o}")));
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_escapes_and_propagation_parses() {
        let text = "36 35 98:0 /mnt1 /a\\040b\\134 rw,noatime shared:1 master:2 - ext3 /dev/root rw,errors=continue\n";
        let mounts = parse(text).unwrap();
        let mount = &mounts[0];
        assert_eq!((mount.id, mount.parent, mount.device), (36, 35, (98, 0)));
        assert_eq!(mount.point, "/a b\\");
        assert_eq!(mount.propagation, ["shared:1", "master:2"]);
        assert!(mount.has("noatime") && !mount.has("ro"));
        assert_eq!((mount.kind.as_str(), mount.super_options.as_str()), ("ext3", "rw,errors=continue"));
    }

    #[test]
    fn a_name_that_is_no_text_is_told_from_others() {
        let line = |byte: u8| [b"36 35 98:0 /a\\012b", &[byte][..], b" /w", &[byte], b" rw - ext3 x rw\n"].concat();
        let mounts = |byte| parse(&as_text(&line(byte))).unwrap();
        assert_eq!((mounts(0xff)[0].root.as_str(), mounts(0xff)[0].point.as_str()), ("/a\nb\\xff", "/w\\xff"));
        assert_ne!(mounts(0xff)[0].point, mounts(0xfe)[0].point);
    }

    #[test]
    fn a_broken_line_is_not_skipped() {
        assert_eq!(parse("36 35 98:0 / / rw - ext3 x rw\nnonsense\n"), None);
        assert_eq!(parse_of("36 35 98:0 / / rw - ext3 x rw\nnonsense\n", |_| false), None);
    }

    #[test]
    fn mounts_of_one_kind_are_those_of_all_that_have_it() {
        let text = "1 0 0:1 / / rw - ext3 x rw\n2 1 0:2 / /a rw - cgroup2 c rw\n3 1 0:3 / /b rw - cgroup c rw,pids\n";
        let all = parse(text).unwrap();
        assert_eq!(parse_of(text, |kind| kind.starts_with("cgroup")).unwrap(), all[1..]);
        assert_eq!(parse_of(text, |_| true).unwrap(), all);
    }
}
