//! Attempts that were stopped, in words useful to the model that made them.
//!
//! Two sources, never mixed: counters of the kernel (`seen: kernel`), and error texts that the program itself printed
//! (`seen: output`), which are a hint and never evidence, since the program may print what it likes.

use std::path::Path;

use backends::{Exhausted, ExhaustedResource};
use policy::control::Interpreter;
use policy::report::{DetectedBy, Limit};
use policy::value::{NetMode, Policy, Workspace, WorkspaceMode};
use policy::{Bytes, ClauseId, Violation};

use crate::fault::show_text;

/// Most violations in a report; the rest is counted in the last one.
const MAX: usize = 32;
/// How much of the error stream is read for hints.
const READ: usize = 64 * 1024;
const DENIED: &str = "Permission denied";
/// How an interpreter's word ends on what it has not.
const NEEDS: &str = "; needs tier process or stronger";
const OOM: &str = "limits.memory/oom";
const REFUSED: &str = "limits.memory/refused";

/// What the kernel counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    /// Forks refused by the process limit.
    pub(super) pids_refused: u64,
    /// Kernel out-of-memory kills.
    pub(super) oom_kills: u64,
    /// The payload died of SIGSYS: a system call that no honest program makes, unless it sent the signal itself.
    pub(super) sigsys: bool,
    /// The payload died of SIGXFSZ: a file would have become larger than it may, unless it sent the signal itself.
    pub(super) sigxfsz: bool,
    /// Places that were found full.
    pub(super) full: Vec<Exhausted>,
}

/// Violations seen by the kernel.
#[must_use]
pub(super) fn from_kernel(counters: &Counters, policy: &Policy) -> Vec<Violation> {
    let mut list = Vec::new();
    if counters.pids_refused > 0 {
        let limit = policy.limits.pids.unwrap_or(0);
        let why = format!("the limit of {limit} processes and threads was reached");
        list.push(Violation { seen: DetectedBy::Kernel, count: counters.pids_refused, ..more_tasks(why) });
    }
    if counters.oom_kills > 0 {
        list.push(out_of_memory(policy, counters.oom_kills));
    }
    if counters.sigsys {
        list.push(kernel(
            "syscalls/killed",
            ClauseId::SyscallsProfile,
            "a system call of a foreign architecture, or one that the profile forbids outright".to_owned(),
            format!(
                "the profile `{}` ends a program that makes it, by SIGSYS; or the program sent that itself",
                policy.syscalls.profile
            ),
            "use the native system calls of this machine".to_owned(),
            1,
        ));
    }
    if counters.sigxfsz {
        let found = large_file(policy);
        let why = format!("{}, or the program sent SIGXFSZ itself", found.why);
        list.push(Violation { seen: DetectedBy::Kernel, why, ..found });
    }
    list.extend(counters.full.iter().map(|full| no_room(full, policy)));
    list
}

/// The violation of a policy in whose sandbox the kernel ended something so often, for want of memory.
#[must_use]
pub fn out_of_memory(policy: &Policy, count: u64) -> Violation {
    let limit = limit_of(policy.limits.memory);
    let why = format!("{limit} for the whole tree was reached; files below /tmp count too");
    Violation { seen: DetectedBy::Kernel, count, ..more_memory(OOM, why) }
}

/// The violation of a limit for which the supervisor ended the run, since nobody else counts here.
#[must_use]
pub(super) fn from_end(limit: Limit, message: &str) -> Option<Violation> {
    let why = message.to_owned();
    let found = match limit {
        Limit::Memory => more_memory(OOM, why),
        Limit::Pids => more_tasks(why),
        Limit::Disk => more_disk(why),
        // The end alone says it: nothing was tried that something else could replace.
        Limit::Wall | Limit::CpuTime | Limit::Output | Limit::Threshold | Limit::Steps => return None,
    };
    let mut found = Violation { seen: DetectedBy::Kernel, ..found };
    if message.starts_with(super::unseen::UNKNOWN) {
        // How much it was nobody knows.
        "limits/unseen".clone_into(&mut found.id);
        "using what nobody can count".clone_into(&mut found.what);
        "run it where a control group counts (`fumehood doctor`), as debuggers have to be, or with `threat = \"mistakes\"`"
            .clone_into(&mut found.instead);
    }
    if message.contains(super::unseen::WAITING) {
        "receive a descriptor within 100 ms of its sending, or send its path; `threat = \"mistakes\"` takes it for nothing"
            .clone_into(&mut found.instead);
    }
    Some(found)
}

/// What an interpreter of the language tier said by the signal that ended it: what it has not, in its own last line, which stands
/// after all that its program could print; or the limit of its own that was reached.
#[must_use]
pub(super) fn from_interpreter(signal: i32, stderr: &[u8], policy: &Policy) -> Option<Violation> {
    match signal {
        Interpreter::LACKS => Some(lacking(stderr)),
        Interpreter::OUT_OF_MEMORY => {
            let why = format!("the interpreter's values would have passed {}", limit_of(policy.limits.memory));
            Some(Violation { seen: DetectedBy::Kernel, ..more_memory(REFUSED, why) })
        }
        Interpreter::OUT_OF_STEPS => Some(kernel(
            "language.steps/taken",
            ClauseId::LanguageSteps,
            "taking another step".to_owned(),
            format!("all of the {} steps were taken", policy.language.steps.unwrap_or_default()),
            "do less, or ask for a larger `language.steps`".to_owned(),
            1,
        )),
        _ => None,
    }
}

fn lacking(stderr: &[u8]) -> Violation {
    let text = String::from_utf8_lossy(stderr);
    let last = text.lines().next_back().and_then(|line| line.strip_prefix("language tier: ")?.strip_suffix(NEEDS));
    kernel(
        "language/subset",
        ClauseId::Tier,
        show_text(last.unwrap_or("something that it does not name")),
        "the interpreters of the language tier have subsets, and nothing of the system".to_owned(),
        "write it without, or ask for `--tier process` or a stronger one".to_owned(),
        1,
    )
}

fn kernel(id: &str, clause: ClauseId, what: String, why: String, instead: String, count: u64) -> Violation {
    Violation { id: id.to_owned(), clause, what, why, instead, count, seen: DetectedBy::Kernel, program: None }
}

/// Hints read from what the program printed on its error stream.
#[must_use]
pub fn from_output(stderr: &[u8], policy: &Policy) -> Vec<Violation> {
    let start = stderr.len().saturating_sub(READ);
    let text = String::from_utf8_lossy(stderr.get(start..).unwrap_or_default());
    let mut list: Vec<Violation> = Vec::new();
    let mut before = "";
    for line in text.lines() {
        // A traceback names what it was about one line before the error.
        let of_socket = line.ends_with(DENIED) && before.contains("socket") && path_of(line, &[DENIED]).is_none();
        let found = if of_socket && policy.net.mode == NetMode::None {
            Some(closed(policy))
        } else {
            hint(line, before, policy)
        };
        before = line;
        let Some(hint) = found else { continue };
        if let Some(same) = list.iter_mut().find(|v| v.id == hint.id && v.what == hint.what) {
            same.count = same.count.saturating_add(1);
        } else if list.len() < MAX {
            list.push(hint);
        } else if let Some(last) = list.last_mut() {
            last.count = last.count.saturating_add(1);
        }
    }
    list
}

fn hint(line: &str, before: &str, policy: &Policy) -> Option<Violation> {
    if policy.net.mode != NetMode::Allow && no_network(line, policy) {
        return Some(closed(policy));
    }
    if let Some(found) = of_git(line, policy) {
        return Some(found);
    }
    if let Some(path) = set_id(line).filter(|path| is_writable(path, policy)) {
        return Some(set_id_bit(path));
    }
    if ["File size limit exceeded", "File too large", "EFBIG"].iter().any(|text| line.contains(text)) {
        return Some(large_file(policy));
    }
    let not_permitted = path_of(line, &["Operation not permitted", "EPERM"]);
    if let Some(path) = not_permitted.filter(|path| !is_word_of_shell(line, path)) {
        return Some(outside(path, policy, "is not granted"));
    }
    if let Some(path) = path_of(line, &[DENIED, "EACCES"]) {
        // What was written there may be read and written: executed is all that it may not be.
        if policy.fs.noexec && tells_of_execution(line, before, path) && is_writable(path, policy) {
            return Some(not_executed(path));
        }
        return Some(outside(path, policy, "is not granted"));
    }
    if let Some(path) = path_of(line, &["Read-only file system", "EROFS"]) {
        return Some(read_only(path, policy));
    }
    // What is guarded cannot be taken away nor replaced either: it is a mount.
    let busy = path_of(line, &["Device or resource busy", "EBUSY"]);
    if let Some(path) = busy.filter(|path| is_guarded(path, policy)) {
        return Some(read_only(path, policy));
    }
    if let Some(path) = path_of(line, &["No such file or directory", "ENOENT"]) {
        // Hidden or merely absent: only paths that a host usually has are worth a word.
        let known = ["/etc/", "/home/", "/root/", "/var/", "/proc/", "/sys/", "/boot/", "/srv/", "/mnt/", "/opt/"];
        if known.iter().any(|prefix| path.starts_with(prefix)) {
            return Some(outside(path, policy, "is not there inside"));
        }
        return (policy.workspace.mode == WorkspaceMode::None && !path.starts_with('/'))
            .then(|| without_workspace(path));
    }
    if line.contains("Too many open files") || line.contains("EMFILE") {
        return Some(more_open_files(policy));
    }
    if line.contains("No space left on device") || line.contains("ENOSPC") {
        return Some(more_disk("a writable place is full".to_owned()));
    }
    let no_fork = ["Resource temporarily unavailable", "can't start new thread", "Cannot fork"];
    if no_fork.iter().any(|text| line.contains(text)) {
        return Some(more_tasks(format!("at most {} may run", policy.limits.pids.unwrap_or(0))));
    }
    if line.contains("MemoryError") || line.contains("Cannot allocate memory") {
        return Some(more_memory(REFUSED, "an allocation was refused".to_owned()));
    }
    None
}

/// What git says, and could not say why.
fn of_git(line: &str, policy: &Policy) -> Option<Violation> {
    if line.contains("could not lock config file") && policy.fs.protect {
        return Some(output(
            "fs.protect/git-config",
            ClauseId::FsProtect,
            "writing the configuration of git".to_owned(),
            "`fs.protect` guards it: a key of it can name a program that git on the host would run".to_owned(),
            "`git -c KEY=VALUE` for one command, a workspace of mode `overlay`, or ask the person who started this"
                .to_owned(),
        ));
    }
    if line.contains("Please tell me who you are") {
        return Some(output(
            "env.set/git-identity",
            ClauseId::EnvSet,
            "a commit of git without a name and a mail".to_owned(),
            "the configuration of the caller's git is not shown inside".to_owned(),
            "ask for `git.identity = \"host\"` (`--set git.identity=host`), which brings in that name and mail and nothing else; \
             or `git -c user.name=NAME -c user.email=MAIL commit`"
                .to_owned(),
        ));
    }
    if line.contains("hardlink different from source") && policy.workspace.mode == WorkspaceMode::Overlay {
        return Some(output(
            "workspace/hard-link",
            ClauseId::Workspace,
            "linking files of the workspace".to_owned(),
            "in the layer above them a linked file gets another number, and git takes it for another file".to_owned(),
            "`git clone --no-hardlinks`, or a workspace of mode `copy`".to_owned(),
        ));
    }
    None
}

fn set_id_bit(path: &str) -> Violation {
    output(
        "syscalls/set-id",
        ClauseId::SyscallsProfile,
        format!("a set-user-id or set-group-id bit on {path}"),
        "the filter refuses both, also on folders: it cannot tell them from programs, which would carry this user's rights"
            .to_owned(),
        "the mode without it (`chmod 775` for `chmod 2775`); set it outside, once the change is taken".to_owned(),
    )
}

/// What chmod was refused for, as GNU's and busybox's say it. Modes without these bits are refused by nobody where one may write.
fn set_id(line: &str) -> Option<&str> {
    let named = line.strip_prefix("chmod: ")?.strip_suffix(": Operation not permitted")?;
    let gnu = named.strip_prefix("changing permissions of ");
    Some(gnu.unwrap_or(named).trim_matches(['\'', '\u{2018}', '\u{2019}']))
}

/// Whose limit it was: the policy's, in the unit in which policies write it, or one that the host sets by itself.
#[must_use]
pub(super) fn limit_of(limit: Option<Bytes>) -> String {
    limit.map_or_else(|| "the limit of the host".to_owned(), |bytes| format!("the limit of {bytes}"))
}

fn more_tasks(why: String) -> Violation {
    output(
        "limits.pids/refused",
        ClauseId::LimitsPids,
        "starting another process or thread".to_owned(),
        why,
        "use fewer workers, or ask for a larger `limits.pids`".to_owned(),
    )
}

fn more_memory(id: &str, why: String) -> Violation {
    output(
        id,
        ClauseId::LimitsMemory,
        "using more memory".to_owned(),
        why,
        "work on smaller pieces, or ask for a larger `limits.memory`".to_owned(),
    )
}

fn more_open_files(policy: &Policy) -> Violation {
    let limit = policy.limits.open_files.map_or_else(|| "the limit of the host".to_owned(), |most| most.to_string());
    output(
        "limits.open_files/refused",
        ClauseId::LimitsOpenFiles,
        "opening another file or socket".to_owned(),
        format!("each process may have {limit} open at once"),
        "close what is not used any more, or ask for a larger `limits.open_files`".to_owned(),
    )
}

/// A relative path is seen from the working directory, which is an empty one where there is no workspace.
fn without_workspace(path: &str) -> Violation {
    output(
        "workspace/none",
        ClauseId::Workspace,
        format!("opening {path}"),
        "this run has no workspace: its working directory is not the caller's".to_owned(),
        "`-w .:ro` shows the current folder inside, `--read PATH` one file or folder".to_owned(),
    )
}

fn more_disk(why: String) -> Violation {
    output(
        "limits.disk/full",
        ClauseId::LimitsDisk,
        "writing more".to_owned(),
        why,
        "write less, or ask for a larger `limits.disk`, `limits.files` or `fs.tmp`".to_owned(),
    )
}

/// A place that the kernel keeps small, found without room.
fn no_room(full: &Exhausted, policy: &Policy) -> Violation {
    let why = match full.of {
        ExhaustedResource::Bytes(bytes) => format!("all of its {} were in use", Bytes(bytes)),
        ExhaustedResource::Files(files) => format!("all of its {files} files and folders were in use"),
    };
    let of_place = [("/tmp", "fs.tmp"), ("/dev/shm", "fs.shm"), ("/run", "fs.run")];
    let of_place = of_place.into_iter().find(|(place, _)| full.place == *place).map(|(_, limit)| limit);
    // Without `limits.files` a place has as many as its bytes allow.
    let counted = matches!(full.of, ExhaustedResource::Files(_)) && policy.limits.files.is_some();
    let limit = if counted { "limits.files" } else { of_place.unwrap_or("limits.disk") };
    // The places share `limits.disk`.
    let shared = policy.limits.disk.is_some() && limit.starts_with("fs.");
    let limit = if shared { format!("`{limit}` or `limits.disk`") } else { format!("`{limit}`") };
    Violation {
        what: format!("writing more to {}", full.place),
        instead: format!("write less there, remove what is not needed, or ask for a larger {limit}"),
        seen: DetectedBy::Kernel,
        ..more_disk(why)
    }
}

fn large_file(policy: &Policy) -> Violation {
    // One file holds no more than all may hold together.
    let limits = [(policy.limits.file_size, "limits.file_size"), (policy.limits.disk, "limits.disk")];
    let least = limits.into_iter().filter_map(|(limit, clause)| Some((limit?, clause))).min();
    output(
        "limits.file_size/refused",
        ClauseId::LimitsFileSize,
        "writing a larger file".to_owned(),
        format!("{} for one file was reached", limit_of(least.map(|(limit, _)| limit))),
        format!(
            "write smaller files, or ask for a larger `{}`",
            least.map_or("limits.file_size", |(_, clause)| clause)
        ),
    )
}

fn closed(policy: &Policy) -> Violation {
    let why = match policy.net.mode {
        NetMode::Loopback => "the policy has no network but the run's own `lo`",
        NetMode::None | NetMode::Allow => "the policy has no network",
    };
    output(
        "net.mode/closed",
        ClauseId::NetMode,
        "reaching the network".to_owned(),
        why.to_owned(),
        "work with the files that are there; bring in what is needed by `--read`".to_owned(),
    )
}

/// Whether a line tells of a connection that could not be made. The filter answers EACCES where there is no network at
/// all, and runtimes name no path then.
fn no_network(line: &str, policy: &Policy) -> bool {
    // In small letters, since each runtime has its own: Go's are small throughout.
    let small = line.to_lowercase();
    let failed = [
        "network is unreachable",
        "name or service not known",
        "temporary failure in name resolution",
        "no address associated with hostname",
        "name does not resolve",
        "could not resolve host",
        "couldn't resolve host",
        "unable to resolve",
        "failed to lookup address information",
        "no such host",
        // Go, where no look-up is tried.
        "no suitable address found",
        "unknownhostexception",
        "eai_again",
        "getaddrinfo enotfound",
        "code enotfound",
        "code: 'enotfound'",
        "enetunreach",
    ];
    let closed = ["permission denied", "eacces", "couldn't connect to server"];
    let callers = ["connect", "socket", "urlopen", "getaddrinfo"];
    failed.iter().any(|text| small.contains(text))
        // Go asks a name server on its own `lo`, where the file of name servers is empty.
        || small.contains("lookup ") && small.contains(":53: ")
        || (policy.net.mode == NetMode::None
            && (small.contains("address family not supported")
                || (closed.iter().any(|text| small.contains(text))
                    && callers.iter().any(|word| small.contains(word)))))
}

fn output(id: &str, clause: ClauseId, what: String, why: String, instead: String) -> Violation {
    Violation { id: id.to_owned(), clause, what, why, instead, count: 1, seen: DetectedBy::Output, program: None }
}

fn outside(path: &str, policy: &Policy, how: &str) -> Violation {
    let instead = match (&policy.workspace.mode, &policy.workspace.at) {
        (WorkspaceMode::None, _) => "work below /tmp; other paths need `--read` or `--write`".to_owned(),
        (_, Some(at)) => format!("the workspace is {}; other paths need `--read` or `--write`", at.display()),
        (_, None) => "stay in the workspace; other paths need `--read` or `--write`".to_owned(),
    };
    // The kernel holds them too, of what is granted.
    let lists = policy.commands.as_ref().is_some_and(|commands| commands.exec);
    let of_lists = if lists { "; `commands.read` and `commands.write` name what of it may be used" } else { "" };
    output(
        "fs.read/outside",
        ClauseId::FsRead,
        path.to_owned(),
        format!("outside the granted paths: it {how}"),
        format!("{instead}{of_lists}"),
    )
}

/// Whether a path lies where the run may write, as far as its spelling tells.
fn is_writable(path: &str, policy: &Policy) -> bool {
    let Workspace { mode, at, path: host } = &policy.workspace;
    let shown = at.as_deref().or(host.as_deref());
    let has_workspace = matches!(mode, WorkspaceMode::Rw | WorkspaceMode::Overlay | WorkspaceMode::Copy);
    let in_workspace = |path: &Path| shown.is_some_and(|top| path.starts_with(top));
    let path = Path::new(path);
    let own = ["/tmp", "/dev/shm", "/run", "/home/user"];
    // A relative one is seen from the working directory: the workspace, or /tmp where there is none.
    (path.is_relative() && (has_workspace || *mode == WorkspaceMode::None))
        || own.iter().any(|place| path.starts_with(place))
        || has_workspace && in_workspace(path)
}

/// Whether what could not be done to a path was executing it: by the shells (`sh: 1: ./x: Permission denied`), by
/// programs that start others, or by Python, whose traceback shows it in the line before.
fn tells_of_execution(line: &str, before: &str, path: &str) -> bool {
    let head = line.split(path).next().unwrap_or_default().trim_end_matches(['\'', '"', '\u{2018}']);
    let by_shell = head.strip_suffix(": ").is_some_and(|head| head.ends_with(|c: char| c.is_ascii_digit()));
    by_shell
        || ["env: ", "make: ", "xargs: ", "run command", "exec", "spawn"].iter().any(|word| head.contains(word))
        || ["child_exception_type", "os.exec", "posix_spawn"].iter().any(|call| before.contains(call))
}

/// Whether what a line names is a command of a shell's own and no path: `sh: 1: kill: Operation not permitted`.
fn is_word_of_shell(line: &str, path: &str) -> bool {
    !path.contains('/') && line.contains(&format!(" {path}: "))
}

fn not_executed(path: &str) -> Violation {
    output(
        "fs.noexec/refused",
        ClauseId::FsNoexec,
        format!("executing {path}"),
        "nothing that lies in a writable place may be executed".to_owned(),
        "give it to its interpreter (`sh FILE`, `python3 FILE`), or ask for `fs.noexec = false`".to_owned(),
    )
}

/// A writable place with a file in it that is not: one that other programs run unasked.
fn is_guarded(path: &str, policy: &Policy) -> bool {
    policy.fs.protect && policy.workspace.mode == WorkspaceMode::Rw && is_writable(path, policy)
}

fn read_only(path: &str, policy: &Policy) -> Violation {
    let instead = match policy.workspace.mode {
        WorkspaceMode::None | WorkspaceMode::Ro => "write below /tmp".to_owned(),
        WorkspaceMode::Rw | WorkspaceMode::Overlay | WorkspaceMode::Copy => {
            "write in the workspace or below /tmp".to_owned()
        }
    };
    if is_guarded(path, policy) {
        return output(
            "fs.protect/read-only",
            ClauseId::FsProtect,
            path.to_owned(),
            "a control file, which `fs.protect` guards: other programs run or obey it without asking".to_owned(),
            "leave it as it is; in a workspace of mode `overlay` it can be written, and waits to be applied".to_owned(),
        );
    }
    output("fs.write/read-only", ClauseId::FsWrite, path.to_owned(), "this place is read-only".to_owned(), instead)
}

/// The path that an error line with one of `texts` speaks of, in the usual shapes of Python (`... denied:
/// '/etc/shadow'`), shells and the coreutils (`cat: /etc/shadow: Permission denied`, `cannot create .git/x: ...`), and
/// Node (`open '/x'`): the first word with a slash, or the one before the text.
fn path_of<'a>(line: &'a str, texts: &[&str]) -> Option<&'a str> {
    let text = texts.iter().find_map(|text| line.find(text))?;
    let path = match line.find('/') {
        Some(slash) => {
            let (head, rest) = line.split_at_checked(slash)?;
            let start = head.rfind(is_around).map_or(0, |at| at + head.get(at..).map_or(1, first_size));
            let quote = head.get(..start).and_then(|before| before.chars().next_back());
            let end = match quote.and_then(closing) {
                Some(quote) => rest.find(quote),
                None => rest.find(|c| is_around(c) || c == ',' || c == ')'),
            };
            line.get(start..slash + end.unwrap_or(rest.len()))?
        }
        // `sh: 1: cannot create a.txt: Read-only file system`; other lines name no path at all.
        None => {
            let said = line.get(..text)?.trim_end().strip_suffix(':')?;
            // `unable to unlink '.gitmodules': Device or resource busy`
            let said = said.strip_suffix(['\'', '"', '`', '\u{2019}']).unwrap_or(said);
            let (before, name) = said.rsplit_once(is_around)?;
            // `warning: Error disabling address space randomization: Operation not permitted` names none.
            let is_named = line.get(before.len()..).is_some_and(|rest| rest.starts_with(|c| closing(c).is_some()))
                || before.ends_with([':', '\'', '"', '`', '\u{2018}'])
                || ["cannot ", "can't ", "could not "].iter().any(|word| before.contains(word));
            if !is_named {
                return None;
            }
            name
        }
    };
    let plain = path.len() > 1 || path.starts_with(char::is_alphanumeric);
    (plain && path.len() < 4096 && !path.starts_with('[')).then_some(path)
}

fn is_around(c: char) -> bool {
    matches!(c, ':' | ' ' | '(') || closing(c).is_some() || c == '\u{2019}'
}

fn closing(quote: char) -> Option<char> {
    const QUOTES: [(char, char); 4] = [('\'', '\''), ('"', '"'), ('`', '`'), ('\u{2018}', '\u{2019}')];
    QUOTES.into_iter().find(|(opening, _)| *opening == quote).map(|(_, closing)| closing)
}

fn first_size(text: &str) -> usize {
    text.chars().next().map_or(1, char::len_utf8)
}

#[cfg(test)]
mod tests;
