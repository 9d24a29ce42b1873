//! One container: a live sandbox from its creation to its removal, and one program in it that is the main one.
//!
//! What is known of it lies in a folder of its own (`record.json`, `log`), replaced whole, so that the next server finds it. Its
//! main program is a detached `exec` with the tag [`MAIN`]: it lives on without us, and is found again by that.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent::words::{Code, Failure};
use live::client::Sender;
use live::words::{EndReason, Report};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tokio::sync::watch;

use super::log::Log;
use crate::clock;

/// The tag of the main program.
pub(super) const MAIN: &str = "docker-main";
const RECORD: &str = "record.json";
const NEW_RECORD: &str = "record.new";
const LOG: &str = "log";
/// What a killed program answers in Docker.
pub(super) const KILLED: i32 = 137;
/// Nobody knows how it ended.
pub(super) const UNKNOWN: i32 = 255;

/// How a main program ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Finished {
    /// Milliseconds since 1970.
    pub(super) at_ms: i64,
    pub(super) code: i32,
    /// Its memory was used up.
    pub(super) oom: bool,
    /// Why, where its code does not say it; else empty.
    pub(super) error: String,
}

impl Finished {
    /// As a supervisor reports it.
    pub(super) fn of(report: &Report) -> Self {
        let oom = report.limit.as_deref() == Some("memory");
        let signalled = report.signal.map(|signal| signal.saturating_add(128));
        let code = if oom { KILLED } else { report.code.or(signalled).unwrap_or(UNKNOWN) };
        let mut error = report.limit.as_ref().map_or_else(String::new, |_| report.message.clone());
        if report.dropped > 0 && error.is_empty() {
            error = format!("{} bytes of its output are beyond limits.output and were not kept", report.dropped);
        }
        Self { at_ms: clock::now_ms(), code, oom, error }
    }

    /// Its sandbox ended with it.
    pub(super) fn with_sandbox(reason: Option<EndReason>, message: Option<&str>) -> Self {
        let oom = reason == Some(EndReason::Memory);
        let error = match reason {
            Some(EndReason::Killed) => String::new(),
            Some(_) | None => message.unwrap_or("its sandbox has ended").to_owned(),
        };
        Self { at_ms: clock::now_ms(), code: KILLED, oom, error }
    }

    /// It ended while no server was there to hear it.
    pub(super) fn unheard() -> Self {
        let error = "it ended while no server was running: its exit code is not known".to_owned();
        Self { at_ms: clock::now_ms(), code: UNKNOWN, oom: false, error }
    }

    /// It did not begin.
    pub(super) fn not_begun(failure: &Failure) -> Self {
        let codes = [(Code::NotExecutable, 126), (Code::NotFound, 127)];
        let code = codes.iter().find(|(code, _)| *code == failure.code).map_or(128, |(_, exit)| *exit);
        Self { at_ms: clock::now_ms(), code, oom: false, error: failure.message.clone() }
    }
}

/// What is written down of a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// 64 hexadecimal digits, as Docker has them.
    pub(super) id: String,
    pub(super) name: String,
    /// Its live sandbox.
    pub(super) sandbox: String,
    pub(super) created_ms: i64,
    /// As the body names it, and its digest.
    pub(super) image: String,
    pub(super) image_id: String,
    /// The body, with what the image adds to it.
    pub(super) config: Json,
    pub(super) host: Json,
    pub(super) program: agent::words::Program,
    pub(super) labels: std::collections::BTreeMap<String, String>,
    pub(super) stop_signal: u8,
    pub(super) stop_seconds: u64,
    pub(super) auto_remove: bool,
    pub(super) stdin_once: bool,
    pub(super) started_ms: Option<i64>,
    pub(super) finished: Option<Finished>,
}

/// How it is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Created,
    Running,
    Exited,
    Removed,
}

impl Phase {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Removed => "removing",
        }
    }
}

/// A container.
#[derive(Debug)]
pub(super) struct Container {
    folder: PathBuf,
    record: Mutex<Record>,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) log: Log,
    /// The input of its main program, while it runs.
    input: Mutex<Option<Sender>>,
    /// Held while something is done that needs its sandbox thawed, or that starts or ends it.
    pub(super) turn: tokio::sync::Mutex<()>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Container {
    /// A new one, in a folder of its own.
    ///
    /// # Errors
    /// The folder cannot be made or written to.
    pub(super) fn new(all: &Path, record: Record) -> std::io::Result<Self> {
        let folder = all.join(&record.id);
        std::fs::create_dir(&folder)?;
        let container = Self::with(folder, record);
        container.save()?;
        Ok(container)
    }

    /// One that an earlier server made; none where its folder has no whole record.
    pub(super) fn known(folder: PathBuf) -> Option<Self> {
        let record = serde_json::from_slice(&std::fs::read(folder.join(RECORD)).ok()?).ok()?;
        Some(Self::with(folder, record))
    }

    fn with(folder: PathBuf, record: Record) -> Self {
        let phase = match (record.started_ms, &record.finished) {
            (Some(_), Some(_)) => Phase::Exited,
            (Some(_), None) => Phase::Running,
            // A start that failed is none: it can be tried again.
            (None, _) => Phase::Created,
        };
        Self {
            log: Log::open(folder.join(LOG), phase == Phase::Exited),
            folder,
            record: Mutex::new(record),
            phase: watch::Sender::new(phase),
            input: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// What is known of it now.
    pub(super) fn record(&self) -> Record {
        locked(&self.record).clone()
    }

    pub(super) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(super) fn exit_code(&self) -> i32 {
        locked(&self.record).finished.as_ref().map_or(0, |finished| finished.code)
    }

    /// Its main program runs.
    pub(super) fn begun(&self, input: Option<Sender>) -> std::io::Result<()> {
        *locked(&self.input) = input;
        let mut record = locked(&self.record);
        record.started_ms = Some(clock::now_ms());
        // Of an earlier start, which failed.
        record.finished = None;
        drop(record);
        let saved = self.save();
        self.phase.send_replace(Phase::Running);
        saved
    }

    /// Its main program has ended, or did not begin.
    pub(super) fn finished(&self, finished: Finished, began: bool) -> std::io::Result<()> {
        *locked(&self.input) = None;
        locked(&self.record).finished = Some(finished);
        let saved = self.save();
        if began {
            self.log.close();
            self.phase.send_replace(Phase::Exited);
        }
        saved
    }

    pub(super) fn set_input(&self, input: Option<Sender>) {
        *locked(&self.input) = input;
    }

    pub(super) fn input(&self) -> Option<Sender> {
        locked(&self.input).clone()
    }

    /// Nothing of it is left but what somebody still reads.
    pub(super) fn removed(&self) {
        self.log.close();
        if std::fs::remove_dir_all(&self.folder).is_err() {
            // The next server finds it without its sandbox, and as exited.
        }
        self.phase.send_replace(Phase::Removed);
    }

    fn save(&self) -> std::io::Result<()> {
        let record = locked(&self.record);
        let text = serde_json::to_vec(&*record)?;
        let path = self.folder.join(NEW_RECORD);
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.write_all(&text)?;
        std::fs::rename(path, self.folder.join(RECORD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_failed_is_none_and_is_told_by_docker_s_codes() {
        let folder = tempfile::tempdir().unwrap();
        let record = serde_json::json!({
            "id": "a", "name": "a", "sandbox": "s", "created_ms": 0, "image": "", "image_id": "", "config": {}, "host": {},
            "program": agent::words::Program::default(), "labels": {}, "stop_signal": 15, "stop_seconds": 10,
            "auto_remove": false, "stdin_once": false, "started_ms": null, "finished": null,
        });
        let container = Container::new(folder.path(), serde_json::from_value(record).unwrap()).unwrap();
        for (code, exit) in [(Code::NotFound, 127), (Code::NotExecutable, 126), (Code::Failed, 128)] {
            container.finished(Finished::not_begun(&Failure::new(code, "why".to_owned())), false).unwrap();
            assert_eq!((container.phase(), container.exit_code()), (Phase::Created, exit));
        }
        let known = || Container::known(folder.path().join("a")).unwrap();
        assert_eq!(known().phase(), Phase::Created, "the next server finds it so");
        container.begun(None).unwrap();
        assert_eq!((container.exit_code(), known().phase()), (0, Phase::Running));
        container.finished(Finished::default(), true).unwrap();
        assert_eq!((container.phase(), known().phase()), (Phase::Exited, Phase::Exited));
    }
}
