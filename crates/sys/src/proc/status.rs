//! `/proc/PID/status`, the part that shows how a process is confined.

/// The five sets, a bit for each capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// CapInh.
    pub inheritable: u64,
    /// CapPrm.
    pub permitted: u64,
    /// CapEff.
    pub effective: u64,
    /// CapBnd.
    pub bounding: u64,
    /// CapAmb.
    pub ambient: u64,
}

/// The fields that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// State letter.
    pub state: char,
    /// Parent's number in the reader's pid namespace.
    pub parent: i32,
    /// The file mode creation mask; `None` for a process that has ended.
    pub umask: Option<u32>,
    /// Real, effective, saved, file-system uid, in the reader's user namespace.
    pub uid: [u32; 4],
    /// The same for the gid.
    pub gid: [u32; 4],
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Its numbers from the reader's pid namespace down to its own.
    pub pids: Vec<i32>,
    /// How many threads.
    pub threads: u32,
    /// Capabilities.
    pub capabilities: Capabilities,
    /// Signals that it ignores, a bit for each from 1 on: they would stay ignored in what it executes.
    pub ignored: u64,
    /// Whether executions can add privilege no more.
    pub no_new_privs: bool,
    /// 0 none, 1 strict, 2 filter.
    pub seccomp: u8,
    /// How many filters; `None` before Linux 5.9.
    pub seccomp_filters: Option<u32>,
}

/// Parses the text; `None` when a needed line is missing or does not parse.
#[must_use]
pub fn parse(text: &str) -> Option<Status> {
    let fields: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(':')).collect();
    let field = |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.trim());
    let mask = |name| u64::from_str_radix(field(name)?, 16).ok();
    Some(Status {
        state: field("State")?.chars().next()?,
        parent: field("PPid")?.parse().ok()?,
        umask: match field("Umask") {
            None => None,
            Some(octal) => Some(u32::from_str_radix(octal, 8).ok()?),
        },
        uid: four(field("Uid")?)?,
        gid: four(field("Gid")?)?,
        groups: numbers(field("Groups")?)?,
        pids: numbers(field("NSpid")?)?,
        threads: field("Threads")?.parse().ok()?,
        capabilities: Capabilities {
            inheritable: mask("CapInh")?,
            permitted: mask("CapPrm")?,
            effective: mask("CapEff")?,
            bounding: mask("CapBnd")?,
            ambient: mask("CapAmb")?,
        },
        ignored: mask("SigIgn")?,
        no_new_privs: field("NoNewPrivs")? == "1",
        seccomp: field("Seccomp")?.parse().ok()?,
        seccomp_filters: match field("Seccomp_filters") {
            None => None,
            Some(number) => Some(number.parse().ok()?),
        },
    })
}

fn numbers<N: std::str::FromStr>(text: &str) -> Option<Vec<N>> {
    text.split_ascii_whitespace().map(|number| number.parse().ok()).collect()
}

fn four(text: &str) -> Option<[u32; 4]> {
    numbers(text)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Name:\tSeccomp:\t2\nUmask:\t0027\nState:\tS (sleeping)\nPPid:\t7\nUid:\t1\t2\t3\t4\nGid:\t5\t5\t5\t5\n\
        Groups:\t4 24 \nNSpid:\t90\t1\nThreads:\t2\nCapInh:\t0\nCapPrm:\t00000000a0\nCapEff:\t0\nCapBnd:\t1ffffffffff\nCapAmb:\t0\n\
        SigIgn:\t0000000000001000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";

    #[test]
    fn every_field_lands_where_it_belongs() {
        let status = parse(TEXT).unwrap();
        assert_eq!((status.state, status.parent, status.uid), ('S', 7, [1, 2, 3, 4]));
        assert_eq!((status.groups.as_slice(), status.pids.as_slice()), (&[4, 24][..], &[90, 1][..]));
        assert_eq!((status.capabilities.permitted, status.capabilities.bounding), (0xa0, 0x1ff_ffff_ffff));
        assert_eq!(status.umask, Some(0o27));
        assert!(status.no_new_privs);
        assert_eq!(status.ignored, 1 << 12);
        assert_eq!((status.seccomp, status.seccomp_filters), (2, Some(3)));
    }

    #[test]
    fn a_missing_line_is_no_default() {
        for name in ["Uid", "CapEff", "SigIgn", "NoNewPrivs", "NSpid"] {
            assert_eq!(parse(&TEXT.replace(&format!("{name}:"), "Other:")), None, "{name}");
        }
    }
}
