//! Requests that are one step.

use std::path::Path;

use rustix::fs::{CWD, Mode};
use rustix::io::Errno;

use super::{Progress, Task};
use crate::files::failure::{at, failure};
use crate::files::{entry, place};
use crate::flow::Io;
use crate::frame::VERSION;
use crate::inside::Inside;
use crate::path_text;
use crate::words::{Code, Failure, Hello, Process, Processes, Request};

/// Most processes in an answer.
const MAX_PROCESSES: usize = 1000;
/// Most bytes of the arguments of one.
const ARGUMENTS: usize = 4096;
/// Most bytes of the arguments of all: as JSON each may become six, and the answer is one frame.
const ALL_ARGUMENTS: usize = 24 * 1024;

pub(super) struct Once(Option<Request>);

impl Once {
    pub(super) fn new(request: Request) -> Self {
        Self(Some(request))
    }
}

impl Task for Once {
    fn step(&mut self, _io: &mut Io<'_>, inside: &mut Inside) -> Result<Progress, Failure> {
        match self.0.take() {
            Some(Request::Hello { version }) => hello(version, inside),
            Some(Request::Stat { path, follow }) => Progress::done(entry::of(&inside.path(&path)?, follow)?),
            Some(Request::Mkdir { path }) => Progress::done(make(&inside.path(&path)?)?),
            Some(Request::Move { from, to }) => Progress::done(rename(&inside.path(&from)?, &inside.path(&to)?)?),
            Some(Request::Processes {}) => Progress::done(processes()),
            Some(
                Request::Start(_)
                | Request::List { .. }
                | Request::Read { .. }
                | Request::Write { .. }
                | Request::Remove { .. }
                | Request::Watch { .. }
                | Request::Archive { .. }
                | Request::Extract { .. }
                | Request::Port { .. },
            )
            | None => Err(failure(Code::Invalid, "the request is no single step")),
        }
    }
}

fn hello(version: u32, inside: &Inside) -> Result<Progress, Failure> {
    if version != VERSION {
        let message = format!("the supervisor speaks version {version} of the protocol, the agent {VERSION}");
        return Err(failure(Code::Unsupported, message));
    }
    Progress::done(Hello {
        version: VERSION,
        pid: u32::try_from(sys::caller::pid()).unwrap_or(0),
        uid: sys::caller::euid(),
        gid: sys::caller::egid(),
        home: path_text::of(&inside.home),
        cwd: path_text::of(&inside.cwd),
        user: inside.user.clone(),
        guarded: inside.starters.guarded(),
    })
}

fn make(path: &Path) -> Result<crate::words::Entry, Failure> {
    if let Some(folder) = path.parent() {
        place::make_folders(folder)?;
    }
    let made = rustix::fs::mkdir(path, Mode::from_raw_mode(0o755));
    // Else the answer for `/` would depend on the file system.
    let made = if path.parent().is_none() { Err(Errno::EXIST) } else { made };
    made.map_err(at("making the folder", path))?;
    entry::of(path, false)
}

fn rename(from: &Path, to: &Path) -> Result<crate::words::Entry, Failure> {
    place::parts(from)?;
    let (folder, _) = place::parts(to)?;
    // First, or a wrong name would leave folders behind.
    rustix::fs::statat(CWD, from, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).map_err(at("moving", from))?;
    place::make_folders(folder)?;
    rustix::fs::rename(from, to).map_err(|errno| {
        if errno == Errno::XDEV {
            let (from, to) = (from.display(), to.display());
            let message = format!("`{from}` and `{to}` are on different file systems: copy it, then remove it");
            return failure(Code::Unsupported, message);
        }
        at("moving to", to)(errno)
    })?;
    entry::of(to, false)
}

fn processes() -> Processes {
    let mut rows = crate::tree::all();
    rows.sort_by_key(|row| row.pid);
    rows.truncate(MAX_PROCESSES);
    let each = ALL_ARGUMENTS.checked_div(rows.len()).unwrap_or(0).clamp(24, ARGUMENTS);
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let number = |pid: i32| u32::try_from(pid).unwrap_or(0);
    let processes = rows.iter().map(|row| Process {
        pid: number(row.pid),
        parent: number(row.parent),
        state: row.state.to_string(),
        argv: arguments(row.pid, each),
        rss: row.pages.saturating_mul(page),
    });
    Processes { processes: processes.collect() }
}

fn arguments(pid: i32, most: usize) -> Vec<String> {
    let mut bytes = Vec::new();
    let Ok(file) = std::fs::File::open(format!("/proc/{pid}/cmdline")) else { return Vec::new() };
    let limit = u64::try_from(most).unwrap_or(0);
    if std::io::Read::read_to_end(&mut std::io::Read::take(file, limit), &mut bytes).is_err() {
        return Vec::new();
    }
    let text = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    if text.is_empty() {
        return Vec::new();
    }
    text.split(|byte| *byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
}
