//! A program that runs: watched from outside, signalled, waited for.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use sys::pidfd::End;

use crate::CaseError;

/// Most bytes of an output that are read back.
const MAX: u64 = 16 << 20;

/// A program that runs, with its outputs in files.
#[derive(Debug)]
pub struct Live {
    child: sys::spawn::Child,
    out: PathBuf,
    err: PathBuf,
    started: Instant,
}

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Exit code; `None` for a signal.
    pub code: Option<i32>,
    /// Signal.
    pub signal: Option<i32>,
    /// Its stdout.
    pub stdout: Vec<u8>,
    /// Its stderr.
    pub stderr: Vec<u8>,
    /// Its stdout as JSON, if it is that.
    pub report: Value,
    /// How long it ran.
    pub took: Duration,
}

/// Waits without being waited for: there is nothing to watch but time.
pub fn pause(time: Duration) {
    drop(sys::channel::wait(&[], Some(time)));
}

/// Asks until it is so, for at most `limit`.
pub fn until(limit: Duration, mut so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if so() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        pause(Duration::from_millis(10));
    }
}

impl Live {
    pub(crate) fn new(child: sys::spawn::Child, out: PathBuf, err: PathBuf) -> Self {
        Self { child, out, err, started: Instant::now() }
    }

    /// Its number here.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.child.pid
    }

    /// What it has written so far.
    ///
    /// # Errors
    /// The file of its output is gone.
    pub fn so_far(&self) -> Result<String, CaseError> {
        Ok(String::from_utf8_lossy(&bounded(&self.out)?).into_owned())
    }

    /// Waits until its output holds `text`.
    ///
    /// # Errors
    /// It does not, within a minute.
    pub fn says(&self, text: &str) -> Result<(), CaseError> {
        if until(Duration::from_secs(60), || self.so_far().is_ok_and(|so_far| so_far.contains(text))) {
            return Ok(());
        }
        let errors = String::from_utf8_lossy(&bounded(&self.err)?).into_owned();
        Err(format!("it never said `{text}`, but: {} {errors}", self.so_far()?).into())
    }

    /// All processes below it, itself left out, as the host numbers them. What an engine started for it is no child of its
    /// own, but it holds that one by a descriptor.
    #[must_use]
    pub fn below(&self) -> Vec<i32> {
        let tops = std::iter::once(self.pid()).chain(self.held());
        let all: BTreeSet<i32> = tops.flat_map(|top| sys::proc::tree(top).unwrap_or_default()).collect();
        all.into_iter().filter(|pid| *pid != self.pid()).collect()
    }

    /// Processes that it has descriptors of.
    fn held(&self) -> Vec<i32> {
        let all = std::fs::read_dir(format!("/proc/{}/fdinfo", self.pid())).into_iter().flatten().flatten();
        let texts = all.filter_map(|one| std::fs::read_to_string(one.path()).ok());
        let pids =
            texts.filter_map(|text| text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok()));
        pids.filter(|pid| *pid > 0).collect()
    }

    /// The innermost process below it: the payload, or its last child.
    ///
    /// # Errors
    /// Nothing is below it.
    pub fn payload(&self) -> Result<i32, CaseError> {
        self.below().into_iter().max().ok_or_else(|| "nothing runs below the supervisor".into())
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// It is gone.
    pub fn signal(&self, number: i32) -> Result<(), CaseError> {
        Ok(sys::pidfd::send_signal(&self.child.pidfd, number)?)
    }

    /// Waits for the end, at most two minutes.
    ///
    /// # Errors
    /// It does not end, and was killed.
    pub fn end(self) -> Result<Ended, CaseError> {
        let interest = sys::channel::Interest { fd: self.child.pidfd.as_fd(), write: false };
        let ready = sys::channel::wait(&[interest], Some(Duration::from_secs(120)))?;
        let in_time = ready.first() == Some(&true);
        if !in_time {
            self.signal(9)?;
        }
        let took = self.started.elapsed();
        let (end, _) = sys::pidfd::wait(&self.child.pidfd)?;
        let (stdout, stderr) = (bounded(&self.out)?, bounded(&self.err)?);
        if !in_time {
            let said = String::from_utf8_lossy(&stderr).into_owned();
            return Err(format!("it did not end within two minutes: {said}").into());
        }
        let (code, signal) = match end {
            End::Exited(code) => (Some(code), None),
            End::Signalled { signal, core: _ } => (None, Some(signal)),
        };
        let report = serde_json::from_slice(&stdout).unwrap_or(Value::Null);
        Ok(Ended { code, signal, stdout, stderr, report, took })
    }
}

/// At most [`MAX`] bytes of a file.
pub(crate) fn bounded(path: &Path) -> Result<Vec<u8>, CaseError> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Ended {
    /// What the program inside wrote, by the report; else what was written.
    #[must_use]
    pub fn out(&self) -> String {
        match self.report.get("stdout").and_then(Value::as_str) {
            Some(text) => text.trim_end().to_owned(),
            None => String::from_utf8_lossy(&self.stdout).trim_end().to_owned(),
        }
    }

    /// The same for the error stream.
    #[must_use]
    pub fn err(&self) -> String {
        match self.report.get("stderr").and_then(Value::as_str) {
            Some(text) => text.trim_end().to_owned(),
            None => String::from_utf8_lossy(&self.stderr).trim_end().to_owned(),
        }
    }

    /// A text of the report.
    #[must_use]
    pub fn text(&self, pointer: &str) -> &str {
        self.report.pointer(pointer).and_then(Value::as_str).unwrap_or("")
    }

    /// A number of the report.
    #[must_use]
    pub fn number(&self, pointer: &str) -> f64 {
        self.report.pointer(pointer).and_then(Value::as_f64).unwrap_or(-1.0)
    }

    /// The limit that ended it.
    #[must_use]
    pub fn limit(&self) -> &str {
        self.text("/outcome/limit")
    }

    /// Ids of the reasons why it was refused, or of the errors that stopped it.
    #[must_use]
    pub fn refusals(&self) -> Vec<String> {
        let lists = ["/refused", "/errors"].into_iter().filter_map(|at| self.report.pointer(at)?.as_array());
        lists.flatten().filter_map(|reason| Some(reason.get("id")?.as_str()?.to_owned())).collect()
    }

    /// Ids of its violations.
    #[must_use]
    pub fn violations(&self) -> Vec<&str> {
        let list = self.report.get("violations").and_then(Value::as_array);
        list.into_iter().flatten().filter_map(|one| one.get("id")?.as_str()).collect()
    }

    /// The named enforcer of a clause.
    #[must_use]
    pub fn enforcer(&self, clause: &str) -> Option<&str> {
        let list = self.report.get("enforcers").and_then(Value::as_array)?;
        let entry = list.iter().find(|one| one.get("clause").and_then(Value::as_str) == Some(clause))?;
        entry.get("enforcer")?.as_str()
    }

    /// Everything it said, for a failure's words.
    #[must_use]
    pub fn said(&self) -> String {
        let outcome = self.report.get("outcome").map(Value::to_string).unwrap_or_default();
        let errors = String::from_utf8_lossy(&self.stderr);
        let cut = |text: &str| text.chars().take(1500).collect::<String>();
        format!(
            "{:?} {:?} {outcome} out: {} err: {} {}",
            self.code,
            self.signal,
            cut(&self.out()),
            cut(&self.err()),
            cut(&errors)
        )
    }
}
