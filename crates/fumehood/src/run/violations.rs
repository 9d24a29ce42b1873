//! Attempts that were stopped, in words useful to the model that made them.
//!
//! Two sources, never mixed: counters of the kernel (`seen: kernel`), and error texts that the program itself printed
//! (`seen: output`), which are a hint and never evidence, since the program may print what it likes.

use policy::report::Seen;
use policy::value::{NetMode, Policy, WorkspaceMode};
use policy::{ClauseId, Violation};

/// Most violations in a report; the rest is counted in the last one.
const MOST: usize = 32;
/// How much of the error stream is read for hints.
const READ: usize = 64 * 1024;

/// What the kernel counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    /// Forks refused by the process limit.
    pub(super) pids_refused: u64,
    /// Kernel out-of-memory kills.
    pub(super) oom_kills: u64,
    /// The payload died of SIGSYS: a system call that no honest program makes.
    pub(super) sigsys: bool,
    /// A writable tmpfs was found full at the end.
    pub(super) disk_full: bool,
}

/// Violations seen by the kernel.
#[must_use]
pub(super) fn from_kernel(counters: &Counters, policy: &Policy) -> Vec<Violation> {
    let mut list = Vec::new();
    if counters.pids_refused > 0 {
        let limit = policy.limits.pids.unwrap_or(0);
        list.push(kernel(
            "limits.pids/refused",
            ClauseId::LimitsPids,
            "starting another process or thread".to_owned(),
            format!("the limit of {limit} processes and threads was reached"),
            "use fewer workers, or ask for a larger `limits.pids`".to_owned(),
            counters.pids_refused,
        ));
    }
    if counters.oom_kills > 0 {
        let limit = policy.limits.memory.map_or(0, |m| m.0);
        list.push(kernel(
            "limits.memory/oom",
            ClauseId::LimitsMemory,
            "using more memory".to_owned(),
            format!("the limit of {limit} bytes for the whole tree was reached; files below /tmp count too"),
            "work on smaller pieces, or ask for a larger `limits.memory`".to_owned(),
            counters.oom_kills,
        ));
    }
    if counters.sigsys {
        list.push(kernel(
            "syscalls/killed",
            ClauseId::SyscallsProfile,
            "a system call of a foreign architecture, or one that the profile forbids outright".to_owned(),
            format!("the profile `{}` ends a program that makes it", policy.syscalls.profile),
            "use the native system calls of this machine".to_owned(),
            1,
        ));
    }
    if counters.disk_full {
        list.push(kernel(
            "limits.disk/full",
            ClauseId::LimitsDisk,
            "writing more".to_owned(),
            "the writable places are full".to_owned(),
            "write less, remove what is not needed, or ask for a larger `limits.disk`".to_owned(),
            1,
        ));
    }
    list
}

fn kernel(id: &str, clause: ClauseId, what: String, why: String, instead: String, count: u64) -> Violation {
    Violation { id: id.to_owned(), clause, what, why, instead, count, seen: Seen::Kernel }
}

/// Hints read from what the program printed on its error stream.
#[must_use]
pub(super) fn from_output(stderr: &[u8], policy: &Policy) -> Vec<Violation> {
    let start = stderr.len().saturating_sub(READ);
    let text = String::from_utf8_lossy(stderr.get(start..).unwrap_or_default());
    let mut list: Vec<Violation> = Vec::new();
    for hint in text.lines().filter_map(|line| hint(line, policy)) {
        if let Some(same) = list.iter_mut().find(|v| v.id == hint.id && v.what == hint.what) {
            same.count = same.count.saturating_add(1);
        } else if list.len() < MOST {
            list.push(hint);
        } else if let Some(last) = list.last_mut() {
            last.count = last.count.saturating_add(1);
        }
    }
    list
}

fn hint(line: &str, policy: &Policy) -> Option<Violation> {
    if let Some(path) = path_of(line, &["Permission denied", "EACCES", "Operation not permitted", "EPERM"]) {
        return Some(outside(path, policy, "is not granted"));
    }
    if let Some(path) = path_of(line, &["Read-only file system", "EROFS"]) {
        return Some(read_only(path, policy));
    }
    if let Some(path) = path_of(line, &["No such file or directory", "ENOENT"]) {
        // Hidden or merely absent: only paths that a host usually has are worth a word.
        let known = ["/etc/", "/home/", "/root/", "/var/", "/proc/", "/sys/", "/boot/", "/srv/", "/mnt/", "/opt/"];
        if known.iter().any(|prefix| path.starts_with(prefix)) {
            return Some(outside(path, policy, "is not there inside"));
        }
        return None;
    }
    if ["Network is unreachable", "Name or service not known", "Temporary failure in name resolution"]
        .iter()
        .any(|text| line.contains(text))
        || (policy.net.mode == NetMode::None && refused_socket(line))
    {
        return Some(output(
            "net.mode/closed",
            ClauseId::NetMode,
            "reaching the network".to_owned(),
            "the policy has no network".to_owned(),
            "work with the files that are there; bring in what is needed by `--read`".to_owned(),
        ));
    }
    if line.contains("No space left on device") || line.contains("ENOSPC") {
        return Some(output(
            "limits.disk/full",
            ClauseId::LimitsDisk,
            "writing more".to_owned(),
            "a writable place is full".to_owned(),
            "write less, or ask for a larger `limits.disk`, `limits.files` or `fs.tmp`".to_owned(),
        ));
    }
    if line.contains("Resource temporarily unavailable") || line.contains("can't start new thread") {
        return Some(output(
            "limits.pids/refused",
            ClauseId::LimitsPids,
            "starting another process or thread".to_owned(),
            format!("at most {} may run", policy.limits.pids.unwrap_or(0)),
            "use fewer workers, or ask for a larger `limits.pids`".to_owned(),
        ));
    }
    if line.contains("MemoryError") || line.contains("Cannot allocate memory") {
        return Some(output(
            "limits.memory/refused",
            ClauseId::LimitsMemory,
            "using more memory".to_owned(),
            "an allocation was refused".to_owned(),
            "work on smaller pieces, or ask for a larger `limits.memory`".to_owned(),
        ));
    }
    None
}

/// Whether a line tells of a socket that could not be made: the filter answers EACCES, and runtimes name no path then.
fn refused_socket(line: &str) -> bool {
    line.contains("Address family not supported")
        || (["Permission denied", "EACCES"].iter().any(|text| line.contains(text))
            && ["connect", "socket", "urlopen", "getaddrinfo"].iter().any(|word| line.contains(word)))
}

fn output(id: &str, clause: ClauseId, what: String, why: String, instead: String) -> Violation {
    Violation { id: id.to_owned(), clause, what, why, instead, count: 1, seen: Seen::Output }
}

fn outside(path: &str, policy: &Policy, how: &str) -> Violation {
    let instead = match (&policy.workspace.mode, &policy.workspace.at) {
        (WorkspaceMode::None, _) => "work below /tmp; other paths need `--read` or `--write`".to_owned(),
        (_, Some(at)) => format!("the workspace is {}; other paths need `--read` or `--write`", at.display()),
        (_, None) => "stay in the workspace; other paths need `--read` or `--write`".to_owned(),
    };
    output(
        "fs.read/outside",
        ClauseId::FsRead,
        path.to_owned(),
        format!("outside the granted paths: it {how}"),
        instead,
    )
}

fn read_only(path: &str, policy: &Policy) -> Violation {
    let instead = match policy.workspace.mode {
        WorkspaceMode::None | WorkspaceMode::Ro => "write below /tmp".to_owned(),
        WorkspaceMode::Rw | WorkspaceMode::Overlay | WorkspaceMode::Copy => {
            "write in the workspace or below /tmp".to_owned()
        }
    };
    output("fs.write/read-only", ClauseId::FsWrite, path.to_owned(), "this place is read-only".to_owned(), instead)
}

/// The absolute path that an error line with one of `texts` speaks of, in the usual shapes of Python
/// (`... denied: '/etc/shadow'`), the coreutils (`cat: /etc/shadow: Permission denied`), and Node (`open '/x'`).
fn path_of<'a>(line: &'a str, texts: &[&str]) -> Option<&'a str> {
    if !texts.iter().any(|text| line.contains(text)) {
        return None;
    }
    let start = line.find('/')?;
    let rest = line.get(start..)?;
    let quoted = start.checked_sub(1).and_then(|i| line.as_bytes().get(i)).copied();
    let end = match quoted {
        Some(quote @ (b'\'' | b'"' | b'`')) => rest.find(char::from(quote)),
        _ => rest.find([':', ' ', '\'', '"', ',', ')']),
    };
    let path = rest.get(..end.unwrap_or(rest.len()))?;
    (path.len() > 1 && path.len() < 4096).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::path_of;

    #[test]
    fn paths_are_found_in_the_usual_error_shapes() {
        let denied = &["Permission denied"];
        assert_eq!(path_of("cat: /etc/shadow: Permission denied", denied), Some("/etc/shadow"));
        assert_eq!(
            path_of("PermissionError: [Errno 13] Permission denied: '/etc/my file'", denied),
            Some("/etc/my file")
        );
        assert_eq!(path_of("all is well in /etc/shadow", denied), None);
    }
}
