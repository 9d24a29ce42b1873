//! The work of the maker (make a starter for each socket that comes) and of a starter (take an order, start the program, tell its end,
//! and reap all orphans).

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FileType, Mode, OFlags};
use rustix::io::Errno;
use sys::bare::{Fd, Ruleset};
use sys::channel::Interest;
use sys::command::{Command, Session};
use sys::pidfd::{End, Used};
use sys::signals::Signals;
use sys::spawn::{SpawnError, Step};

use super::mark;
use super::messages::{self, Order, StarterMessage};
use crate::files::failure::{self, failure};
use crate::words::{Code, Exited, Failure};

/// SIGCHLD.
const CHILD: i32 = 17;
/// The scope of signals (linux/landlock.h).
const SIGNALS: u64 = 2;
/// Where a program is looked for if its environment does not say.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// By how much a program is the likelier one to be ended when memory is used up.
const LATER: i32 = 200;

struct Inside<'a> {
    socket: &'a OwnedFd,
    inbox: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
    /// The program that runs, and its order.
    running: Option<(i32, u64)>,
    /// Something that it left behind may still run.
    left: bool,
}

/// What a starter has from its maker.
struct Given {
    guarded: bool,
    /// Its mark, and who is kept from signals, where the kernel lets nobody adopt orphans.
    marked: Option<(u64, [i32; 2])>,
}

/// The maker, in a copy of the agent; its exit code. `made`: so many starters were made before.
pub(super) fn make(socket: &OwnedFd, agent: i32, mut made: u64) -> i32 {
    let Some((socket, children)) = prepared(socket) else { return 1 };
    go_first();
    let pid = sys::caller::pid();
    // Without it, and without a mark, nobody could say that nothing of a program is left.
    let marks = sys::bare::become_subreaper().is_err();
    let guarded = confine() || marks;
    if !tell(&socket, &StarterMessage::Ready { guarded, marks, pid }) {
        return 1;
    }
    let mut part = [0; 64];
    loop {
        let Some(asked) = wait(&socket, &children) else { return 1 };
        while sys::reap::any().is_some() {}
        if !asked {
            continue;
        }
        match sys::channel::receive(&socket, &mut part, true) {
            Ok(received) if received.count > 0 => {
                for theirs in received.descriptors {
                    let marked = marks.then(|| (mark::of(made), [agent, pid]));
                    // Where none can be made the socket is closed, which the agent hears.
                    drop(sys::fork::run(|| start_programs(&theirs, &Given { guarded, marked })));
                    made = made.saturating_add(1);
                }
            }
            Err(error) if error.is_again() => {}
            // The agent is gone.
            Ok(_) | Err(_) => return 0,
        }
    }
}

/// A starter, in a copy of the maker; its exit code.
fn start_programs(socket: &OwnedFd, given: &Given) -> i32 {
    let Some((socket, children)) = prepared(socket) else { return 1 };
    let (guarded, pid) = (given.guarded, sys::caller::pid());
    let kept = match given.marked {
        // One that comes when its maker is gone is missed by who looks for the mark.
        Some((mark, [agent, maker])) => mark::put(mark, [agent, maker, pid]).filter(|()| parent() == maker),
        None => sys::bare::become_subreaper().ok(),
    };
    if kept.is_none() {
        return 1;
    }
    let mut inside =
        Inside { socket: &socket, inbox: Vec::new(), descriptors: VecDeque::new(), running: None, left: false };
    if !tell(&socket, &StarterMessage::Ready { guarded, marks: given.marked.is_some(), pid }) {
        return 1;
    }
    loop {
        let Some(asked) = wait(&socket, &children) else { return 1 };
        if !inside.reap() || (asked && !inside.take_orders()) {
            // The agent is gone, and with it whoever could hear of anything.
            return 0;
        }
    }
}

/// A copy with nothing of its parent's but the socket, that is told of its children's ends.
fn prepared(socket: &OwnedFd) -> Option<(OwnedFd, Signals)> {
    let socket = alone(socket)?;
    sys::signals::block_all();
    let children = Signals::take(&[CHILD]).ok()?;
    Some((socket, children))
}

/// Waits for a message or the end of a child; whether there is a message.
fn wait(socket: &OwnedFd, children: &Signals) -> Option<bool> {
    let interests = [Interest { fd: socket.as_fd(), write: false }, Interest { fd: children.as_fd(), write: false }];
    let ready = sys::channel::wait(&interests, None).ok()?;
    while children.next().is_some() {}
    Some(ready.first() == Some(&true))
}

fn parent() -> i32 {
    rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get())
}

fn tell(socket: &OwnedFd, news: &StarterMessage) -> bool {
    messages::encode(news).is_some_and(|bytes| sys::channel::send(socket, &bytes).is_ok())
}

/// When memory is used up, programs go before the agent does: they inherit this.
fn go_first() {
    // The file is ours only while we may be looked into; no program is there yet that could.
    let hidden = sys::bare::set_dumpable(true).is_ok();
    let file = "/proc/self/oom_score_adj";
    if let Some(now) = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse::<i32>().ok()) {
        drop(std::fs::write(file, now.saturating_add(LATER).min(1000).to_string()));
    }
    if hidden {
        let _hidden = sys::bare::set_dumpable(false);
    }
}

/// Closes all that the agent has open but the socket and the three standard descriptors.
fn alone(socket: &OwnedFd) -> Option<OwnedFd> {
    let high = rustix::io::fcntl_dupfd_cloexec(socket, 200).or_else(|_| rustix::io::fcntl_dupfd_cloexec(socket, 3));
    let high = high.ok()?;
    let number = u32::try_from(high.as_raw_fd()).ok()?;
    sys::bare::close_range(3, number.checked_sub(1)?).ok()?;
    sys::bare::close_range(number.checked_add(1)?, sys::bare::LAST_FD).ok()?;
    Some(high)
}

/// Puts this process under a layer of its own; whether it keeps signals inside.
fn confine() -> bool {
    let abi = sys::landlock::abi();
    // Each layer denies links and renames from one folder to another unless it allows them, which it can from ABI 2 on. One
    // without the scope still keeps programs from tracing and reading the agent.
    if abi < 2 {
        return false;
    }
    let refer = sys::landlock::fs::REFER;
    let scope = sys::landlock::scopes(abi) & SIGNALS;
    let layer = || -> Option<()> {
        let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        sys::bare::set_no_new_privs().ok()?;
        let rules = Ruleset::new(refer, 0, scope).ok()?;
        rules.allow_path(Fd::new(u32::try_from(root.as_raw_fd()).ok()?), refer).ok()?;
        rules.restrict_self(0).ok()
    };
    layer().is_some() && scope != 0
}

impl Inside<'_> {
    /// Tells of the program's end, and of the end of the last that it left; false if nobody hears it.
    fn reap(&mut self) -> bool {
        let mut ended = None;
        while let Some((pid, end, used)) = sys::reap::any() {
            if let Some((_, id)) = self.running.take_if(|(running, _)| *running == pid) {
                ended = Some((id, exited(end, used)));
            }
        }
        match ended {
            Some((id, exited)) => {
                self.left = !sys::reap::is_childless();
                tell(self.socket, &StarterMessage::Exited { id, exited, left: self.left })
            }
            None if self.left && self.running.is_none() => {
                self.left = !sys::reap::is_childless();
                self.left || tell(self.socket, &StarterMessage::Empty)
            }
            None => true,
        }
    }

    fn take_orders(&mut self) -> bool {
        let mut part = vec![0; 64 * 1024];
        match sys::channel::receive(self.socket, &mut part, true) {
            Ok(received) if received.count > 0 => {
                self.inbox.extend_from_slice(part.get(..received.count).unwrap_or_default());
                self.descriptors.extend(received.descriptors);
            }
            Err(error) if error.is_again() => return true,
            Ok(_) | Err(_) => return false,
        }
        loop {
            let order: Order = match messages::decode(&mut self.inbox) {
                Ok(Some(order)) => order,
                Ok(None) => return true,
                Err(()) => return false,
            };
            let needed = if order.tty { 1 } else { 3 };
            if self.descriptors.len() < needed {
                return false;
            }
            let descriptors: Vec<OwnedFd> = self.descriptors.drain(..needed).collect();
            let id = order.id;
            let news = match start(order, &descriptors) {
                Ok(pid) => {
                    self.running = Some((pid, id));
                    StarterMessage::Started { id, pid }
                }
                Err(failure) => StarterMessage::Failed { id, failure },
            };
            if !tell(self.socket, &news) {
                return false;
            }
        }
    }
}

fn exited(end: End, used: Used) -> Exited {
    let small = |number: i32| u8::try_from(number & 0xff).ok();
    let (code, signal) = match end {
        End::Exited(code) => (small(code), None),
        End::Signalled { signal, core: _ } => (None, small(signal)),
    };
    let max_rss = used.max_resident_kib.saturating_mul(1024);
    Exited { code, signal, user_us: used.user_us, system_us: used.system_us, max_rss }
}

fn start(order: Order, descriptors: &[OwnedFd]) -> Result<i32, Failure> {
    let mut env: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    env.extend(order.env.into_iter().map(|(name, value)| (name.into(), value.into())));
    if order.tty {
        env.entry("TERM".into()).or_insert_with(|| "xterm-256color".into());
    }
    let (name, arguments) = order.argv.split_first().ok_or_else(|| failure(Code::Invalid, "a program needs a name"))?;
    let cwd = order.cwd.as_deref().map(Path::new);
    let path = env.get(std::ffi::OsStr::new("PATH")).cloned().unwrap_or_else(|| PATH.into());
    let program = find(name, &path)?;
    let session = if order.tty { Session::Terminal } else { Session::Plain };
    let mut command = Command::new(&program).named(name).args(arguments).session(session);
    if let Some(cwd) = cwd {
        command = command.directory(cwd);
    }
    for (name, value) in &env {
        let mut variable = name.clone();
        variable.push("=");
        variable.push(value);
        command = command.variable(variable);
    }
    let three: Vec<(BorrowedFd<'_>, i32)> = descriptors.iter().cycle().map(OwnedFd::as_fd).zip(0..3).collect();
    match command.start_asleep(&three) {
        Ok(pid) => Ok(pid),
        Err(error) => Err(refused(error, name, &cwd.unwrap_or(Path::new("")).join(&program), cwd)),
    }
}

/// The file of a program's name: where a name has no `/`, the first of that name on `PATH` that can be executed.
fn find(name: &str, path: &OsString) -> Result<PathBuf, Failure> {
    if name.is_empty() {
        return Err(failure(Code::Invalid, "a program needs a name"));
    }
    if name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    let mut seen = None;
    // One that is not absolute would depend on the folder.
    for folder in std::env::split_paths(path).filter(|folder| folder.is_absolute()) {
        let candidate = folder.join(name);
        match rustix::fs::stat(&candidate) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {}
            Ok(_) | Err(_) => continue,
        }
        if rustix::fs::access(&candidate, Access::EXEC_OK).is_ok() {
            return Ok(candidate);
        }
        seen = Some(candidate);
    }
    Err(match seen {
        Some(file) => failure(Code::NotExecutable, format!("`{}` may not be executed", file.display())),
        None => failure(Code::NotFound, format!("no program `{name}` is in any folder of PATH")),
    })
}

/// Why a program was not started. `file` is where it should be, as seen from here.
fn refused(error: SpawnError, name: &str, file: &Path, cwd: Option<&Path>) -> Failure {
    let errno = (error.step == Step::Exec).then(|| error.errno.raw_os_error());
    Failure { errno, ..refusal(error, name, file, cwd) }
}

fn refusal(error: SpawnError, name: &str, file: &Path, cwd: Option<&Path>) -> Failure {
    let why = failure::error_text(error.errno);
    match (error.step, error.errno) {
        (Step::Directory, errno) => {
            let code = match errno {
                Errno::NOENT | Errno::NOTDIR => Code::NoCwd,
                other => failure::code(other),
            };
            failure(code, format!("the working directory `{}`: {why}", cwd.unwrap_or(Path::new(".")).display()))
        }
        (Step::Clone | Step::Prepare, Errno::AGAIN) => {
            failure(Code::TooMany, format!("`{name}`: no further process can be made (limits.pids): {why}"))
        }
        (_, Errno::NOMEM) => failure(Code::TooMany, format!("`{name}`: no memory is left (limits.memory): {why}")),
        (Step::Prepare, Errno::INVAL) => failure(Code::Invalid, format!("`{name}`: an argument has a zero byte")),
        (Step::Exec, Errno::NOENT) if rustix::fs::stat(file).is_ok() => {
            failure(Code::NotExecutable, format!("`{name}` is there, but the interpreter that it names is not"))
        }
        (Step::Exec, Errno::NOENT | Errno::NOTDIR) => failure(Code::NotFound, format!("`{name}`: {why}")),
        (Step::Exec, Errno::TOOBIG) => {
            failure(Code::TooMany, format!("`{name}`: arguments and environment are too long for the kernel: {why}"))
        }
        (Step::Exec, _) => failure(Code::NotExecutable, format!("`{name}` cannot be executed: {why}")),
        (step, errno) => failure(failure::code(errno), format!("`{name}`: {} failed: {why}", step.as_str())),
    }
}
