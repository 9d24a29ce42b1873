//! The emulator's own line of orders: QMP, JSON by lines over a socket that came with the emulator's start.
//!
//! What it says is bounded and judged like all that comes out of the emulator's sandbox.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long the emulator may take to do what it is told.
const ANSWER: Duration = Duration::from_secs(60);
/// Longest line.
const MAX_LINE: usize = 256 * 1024;
/// Most lines that are not the one that is waited for.
const MAX_LINES: usize = 1000;
/// The name under which the emulator knows the descriptor of a machine's state.
const STATE: &str = "state";

/// The line.
#[derive(Debug)]
pub(super) struct Monitor {
    socket: OwnedFd,
    inbox: Vec<u8>,
}

impl Monitor {
    /// Waits until the emulator speaks, and has it say how it gets on with a machine's state.
    pub(super) fn greeted(socket: OwnedFd) -> Result<Self, String> {
        let mut monitor = Self { socket, inbox: Vec::new() };
        monitor.wait_for(|said| said.get("QMP").map(|_| ()))?;
        monitor.order("qmp_capabilities", &json!({}))?;
        let events = json!({ "capabilities": [{ "capability": "events", "state": true }] });
        monitor.order("migrate-set-capabilities", &events)?;
        Ok(monitor)
    }

    /// Gives it one order.
    pub(super) fn order(&mut self, name: &str, arguments: &Value) -> Result<(), String> {
        self.tell(name, arguments, None)?;
        self.answered(name)
    }

    /// Has the machine, which stands still, written into a pipe, which the caller reads to its end.
    pub(super) fn write_to(&mut self, pipe: BorrowedFd<'_>) -> Result<(), String> {
        self.give(STATE, pipe)?;
        // The machine stands still meanwhile: as fast as it can.
        self.order("migrate-set-parameters", &json!({ "max-bandwidth": 1_u64 << 40 }))?;
        self.order("migrate", &json!({ "uri": format!("fd:{STATE}") }))
    }

    /// Fills the machine, which has not started, from what was written.
    pub(super) fn read_from(&mut self, state: BorrowedFd<'_>) -> Result<(), String> {
        self.give(STATE, state)?;
        self.order("migrate-incoming", &json!({ "uri": format!("fd:{STATE}") }))?;
        self.moved()
    }

    /// Waits until all of a machine was written or read.
    pub(super) fn moved(&mut self) -> Result<(), String> {
        let ended = self.wait_for(|said| {
            let of = said.get("event").is_some_and(|event| event == "MIGRATION");
            let status = said.get("data")?.get("status")?.as_str()?;
            (of && matches!(status, "completed" | "failed" | "cancelled")).then(|| status.to_owned())
        })?;
        if ended == "completed" { Ok(()) } else { Err(format!("the machine's state: {ended}")) }
    }

    /// Hands it a descriptor, which it knows by this name then.
    pub(super) fn give(&mut self, name: &str, fd: BorrowedFd<'_>) -> Result<(), String> {
        self.tell("getfd", &json!({ "fdname": name }), Some(fd))?;
        self.answered("getfd")
    }

    fn tell(&mut self, name: &str, arguments: &Value, fd: Option<BorrowedFd<'_>>) -> Result<(), String> {
        let gone = |error: sys::error::Error| format!("the emulator takes no orders: {error}");
        let words = json!({ "execute": name, "arguments": arguments }).to_string();
        let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
        // Some hundred bytes, which a socket takes whole.
        let sent = sys::channel::send_some(&self.socket, words.as_bytes(), &fds).map_err(gone)?;
        sys::channel::send(&self.socket, words.as_bytes().get(sent..).unwrap_or_default()).map_err(gone)
    }

    fn answered(&mut self, name: &str) -> Result<(), String> {
        self.wait_for(|said| {
            let error = said.get("error").map(|error| Err(format!("{name}: {error}")));
            error.or_else(|| said.get("return").map(|_| Ok(())))
        })?
    }

    /// The first thing that it says that is one.
    fn wait_for<T>(&mut self, is: impl Fn(&Value) -> Option<T>) -> Result<T, String> {
        let until = Instant::now() + ANSWER;
        for _ in 0..MAX_LINES {
            if let Some(found) = is(&self.line(until)?) {
                return Ok(found);
            }
        }
        Err("the emulator says much, and not what it was asked".to_owned())
    }

    fn line(&mut self, until: Instant) -> Result<Value, String> {
        loop {
            if let Some(end) = self.inbox.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.inbox.drain(..=end).collect();
                return serde_json::from_slice(&line).map_err(|error| format!("the emulator's answer: {error}"));
            }
            if self.inbox.len() > MAX_LINE {
                return Err("the emulator's answer is too long".to_owned());
            }
            let interest = sys::channel::Interest { fd: self.socket.as_fd(), write: false };
            if sys::channel::wait_until(&[interest], Some(until)).map_err(|error| error.to_string())? != [true] {
                return Err(format!("the emulator says nothing for {} s", ANSWER.as_secs()));
            }
            let mut part = [0; 4096];
            match sys::channel::receive(&self.socket, &mut part, true) {
                Ok(received) if received.count > 0 => {
                    self.inbox.extend_from_slice(part.get(..received.count).unwrap_or_default());
                }
                Err(error) if error.is_again() => {}
                Ok(_) | Err(_) => return Err("the emulator is gone".to_owned()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An emulator that says these lines.
    fn saying(lines: &[&str]) -> Result<(Monitor, OwnedFd), String> {
        let (ours, theirs) = sys::channel::pair().unwrap();
        let all = ["{\"QMP\": {}}", "{\"return\": {}}", "{\"return\": {}}"].iter().chain(lines);
        all.for_each(|line| sys::channel::send(&theirs, format!("{line}\r\n").as_bytes()).unwrap());
        Monitor::greeted(ours).map(|monitor| (monitor, theirs))
    }

    #[test]
    fn events_between_are_passed_over_and_an_error_is_told() {
        let lines = ["{\"event\": \"STOP\"}", "{\"return\": {}}", "{\"error\": {\"desc\": \"no\"}}"];
        let (mut monitor, _emulator) = saying(&lines).unwrap();
        assert_eq!(monitor.order("stop", &json!({})), Ok(()));
        assert!(monitor.order("cont", &json!({})).unwrap_err().contains("no"));
    }

    #[test]
    fn a_state_that_was_not_read_whole_is_an_error() {
        let one = |status: &str| format!("{{\"event\": \"MIGRATION\", \"data\": {{\"status\": \"{status}\"}}}}");
        for (status, whole) in [("completed", true), ("failed", false), ("cancelled", false)] {
            let (setup, end) = (one("setup"), one(status));
            let (mut monitor, _emulator) = saying(&[&setup, "{\"event\": \"RESUME\"}", &end]).unwrap();
            assert_eq!(monitor.moved().is_ok(), whole, "{status}");
        }
    }

    #[test]
    fn an_emulator_that_is_gone_or_says_what_is_no_answer_is_an_error() {
        let (mut monitor, emulator) = saying(&[]).unwrap();
        drop(emulator);
        assert!(monitor.order("stop", &json!({})).is_err());
        let (mut monitor, _emulator) = saying(&["not json"]).unwrap();
        assert!(monitor.order("stop", &json!({})).is_err());
        let long = "x".repeat(2 * MAX_LINE);
        let (ours, theirs) = sys::channel::pair().unwrap();
        let says = std::thread::spawn(move || drop(sys::channel::send(&theirs, long.as_bytes())));
        assert!(Monitor::greeted(ours).is_err());
        says.join().unwrap();
    }
}
