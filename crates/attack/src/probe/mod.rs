//! What is tried inside: `fumehood __probe MARKER NAME ARGS`. Each try is one line of JSON on stdout, written at once, so that
//! a probe that is killed has still said what it saw. What it says is a witness, not a verdict: the judge stands outside.

mod asks;
mod files;
mod hidden;
mod identity;
mod links;
mod load;
mod network;
mod others;
mod process;
mod repository;
mod streams;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ::probe::{arch, calls};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// One try.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Try {
    /// What was tried.
    pub name: String,
    /// It was possible.
    pub possible: bool,
    /// The kernel's answer otherwise.
    pub errno: i32,
    /// What it found: the text of a file, a number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// What a probe has been told, and where it speaks.
#[derive(Debug)]
pub(crate) struct Probe {
    args: Vec<OsString>,
}

impl Probe {
    fn arg(&self, at: usize) -> PathBuf {
        self.args.get(at).map(PathBuf::from).unwrap_or_default()
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.args.iter().map(PathBuf::from).collect()
    }

    fn argument(&self, at: usize) -> String {
        self.args.get(at).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
    }

    fn number(&self, at: usize) -> u64 {
        self.argument(at).parse().unwrap_or(0)
    }

    fn pid(&self, at: usize) -> i32 {
        i32::try_from(self.number(at)).unwrap_or(i32::MAX)
    }

    /// Says what became of a try.
    fn saw<T>(&self, name: impl Into<String>, result: Result<T, Errno>) {
        self.tell(&Try {
            name: name.into(),
            possible: result.is_ok(),
            errno: result.err().map_or(0, Errno::raw_os_error),
            text: String::new(),
        });
    }

    /// Says what was found.
    fn found(&self, name: impl Into<String>, text: impl Into<String>) {
        self.tell(&Try { name: name.into(), possible: true, errno: 0, text: text.into() });
    }

    /// Says what was read, or why not.
    fn read(&self, name: impl Into<String>, result: std::io::Result<Vec<u8>>) {
        match result {
            Ok(bytes) => self.found(name, String::from_utf8_lossy(bytes.get(..65536).unwrap_or(&bytes)).into_owned()),
            Err(error) => self.saw::<()>(name, Err(errno(&error))),
        }
    }

    fn tell(&self, line: &Try) {
        let Ok(mut text) = serde_json::to_string(line) else { return };
        text.push('\n');
        let mut out = std::io::stdout().lock();
        if out.write_all(text.as_bytes()).is_err() || out.flush().is_err() {
            // Nobody listens any more: what cannot be told is not seen.
            ::probe::task::leave(0);
        }
    }
}

/// The kernel's number of an error.
pub(crate) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Waits without holding a processor.
pub(crate) fn rest(time: Duration) {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let timeout =
            rustix::event::Timespec::try_from(left).unwrap_or(rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 });
        // A signal only shortens one round.
        if rustix::event::poll(&mut [], Some(&timeout)).is_err() {
            continue;
        }
    }
}

/// A probe by name.
type Entry = (&'static str, fn(&Probe));

const OWN: &[Entry] = &[("ask", ask), ("int80", int80), ("x32", x32), ("hold", hold), ("nothing", nothing)];

/// The probe of this name.
#[must_use]
pub(crate) fn find(name: &str) -> Option<fn(&Probe)> {
    [
        OWN,
        asks::PROBES,
        files::PROBES,
        hidden::PROBES,
        identity::PROBES,
        links::PROBES,
        load::PROBES,
        network::PROBES,
        others::PROBES,
        process::PROBES,
        repository::PROBES,
        streams::PROBES,
    ]
    .into_iter()
    .flatten()
    .find(|(own, _)| *own == name)
    .map(|(_, probe)| *probe)
}

/// Runs the probe `name`. False if there is none.
#[must_use]
pub fn run(name: &str, args: Vec<OsString>) -> bool {
    let Some(probe) = find(name) else { return false };
    probe(&Probe { args });
    true
}

/// Asks the kernel the questions of [`calls`] by name.
fn ask(probe: &Probe) {
    for name in &probe.args {
        let name = name.to_string_lossy();
        match calls::question(&name) {
            Some(question) => probe.saw(name, question.ask()),
            None => probe.saw::<()>(name, Err(Errno::NOTSUP)),
        }
    }
}

fn int80(probe: &Probe) {
    probe.saw("int 0x80", arch::int80_getpid());
}

fn x32(probe: &Probe) {
    probe.saw("x32 getpid", arch::x32_getpid());
}

/// Stays for a while, to be looked at.
fn hold(probe: &Probe) {
    probe.found("here", "");
    rest(Duration::from_millis(probe.number(0).clamp(50, 5000)));
}

fn nothing(probe: &Probe) {
    probe.found("here", "");
}
