//! `fumehood exec`: a program in a live sandbox, as if it ran here.

use std::collections::BTreeMap;
use std::ffi::OsString;

use agent::words::{Code, Program, ProgramControl, Size};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use live::client::{Error, Incoming, Sender, Stream};
use live::words::{Ask, Exec, Hint, Info, Report, Running, Stopped};
use sandbox::fault::{Fault, show_text};
use serde_json::{Value, json};
use sys::signals::{WINDOW_CHANGED, forwarded};
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::super::args::{Flag, Positionals, To, usage};
use super::super::spec::{Call, Spec};
use super::{answered, connected, failed, home, missing, text, time, wait_for};
use crate::run::terminal::{RawMode, size};
use crate::ui::{FAILED, Failure};

/// Who saw what a program's own output hints at.
const HINT: &str = "output";

const FLAGS: &[Flag] = &[
    Flag::new("interactive", None, To::Ours, "Let the program read from stdin").short(b'i'),
    Flag::new("tty", None, To::Ours, "Give the program a terminal of its own").short(b't'),
    Flag::new("detach", None, To::Ours, "Print its word for `logs`, and leave it running").short(b'd'),
    Flag::new("cwd", Some("DIR"), To::Ours, "Its working directory inside"),
    Flag::new("env", Some("NAME=VALUE"), To::Ours, "Set a variable for it; may be repeated").many(),
    Flag::new("timeout", Some("TIME"), To::Ours, "Kill it and all that it started after so long, e.g. 30s"),
    Flag::new("quiet", None, To::Ours, "Say nothing of what was stopped").short(b'q'),
    Flag::new("tag", Some("WORD"), To::Ours, "A word by which others can find it"),
];

pub(crate) const SPEC: Spec = Spec {
    path: &["exec"],
    about: "Run a program in a live sandbox",
    usage: "[FLAGS] ID|NAME -- CMD ARGS...",
    more: "The policy is that of the sandbox: there are no flags of clauses here. What the program leaves running lives on \
           until the sandbox ends.\nExit codes as with `fumehood run`; 125 also where the sandbox is unknown, ended or paused.",
    tables: &[FLAGS],
    words: Positionals::EndFlags,
    hidden: false,
    run,
};

fn run(call: &mut Call<'_>) -> Result<u8, Failure> {
    let mut words = std::mem::take(&mut call.parsed.words).into_iter();
    let sandbox = words.next().ok_or_else(|| missing("a sandbox", "exec ID -- CMD ARGS"))?;
    let mut argv: Vec<OsString> = words.collect();
    if argv.first().is_some_and(|word| word == "--") {
        argv.remove(0);
    }
    let asked = asked(call, &argv)?;
    let home = home(call)?;
    let tty = asked.program.tty.is_some();
    let raw = if tty { RawMode::here().map_err(|error| failed(&error))? } else { RawMode::none() };
    let done = wait_for(through(call, &home, &text(&sandbox)?, asked));
    drop(raw);
    done
}

fn asked(call: &Call<'_>, argv: &[OsString]) -> Result<Exec, Failure> {
    let has = |flag| call.parsed.has(flag);
    if argv.is_empty() {
        return Err(missing("a program", "exec ID -- CMD ARGS"));
    }
    if has("tty") && !call.environment.stdin_terminal {
        let fix = "drop `-t`".to_owned();
        let what = "`-t` needs a terminal".to_owned();
        return Err(Failure::own(usage("usage/no-terminal", what, "stdin is not one".to_owned(), fix)));
    }
    for (one, other) in [("tty", "json"), ("tty", "detach"), ("interactive", "detach")] {
        if has(one) && has(other) {
            let why = "nobody would be there for the other".to_owned();
            let what = format!("both `--{one}` and `--{other}`");
            return Err(Failure::own(usage("usage/two-flags", what, why, "keep one".to_owned())));
        }
    }
    let mut env = BTreeMap::new();
    for (_, value) in call.parsed.flags.iter().filter(|(flag, _)| flag.long == "env") {
        let pair = text(value.as_deref().unwrap_or_default())?;
        let Some((name, value)) = pair.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            let fix = "`--env NAME=VALUE`".to_owned();
            let why = "it has no `=`, or no name".to_owned();
            return Err(Failure::own(usage("usage/bad-value", format!("`--env {}`", show_text(&pair)), why, fix)));
        };
        env.insert(name.to_owned(), value.to_owned());
    }
    // Its terminal's own size is asked for when no change of it can be missed.
    let tty = has("tty").then_some(Size { rows: 24, cols: 80 });
    Ok(Exec {
        program: Program {
            argv: argv.iter().map(|word| text(word)).collect::<Result<_, _>>()?,
            env,
            cwd: call.parsed.value("cwd").map(text).transpose()?,
            tty,
            stdin: has("interactive"),
        },
        timeout_ms: time(call, "timeout")?,
        detach: has("detach"),
        tag: call.parsed.value("tag").map(text).transpose()?,
    })
}

async fn through(call: &Call<'_>, home: &live::Home, word: &str, mut asked: Exec) -> Result<u8, Failure> {
    // Before anything is started: no signal of the caller may fall between.
    let mut signals = signals().map_err(|error| failed(&error))?;
    // Nor another size of its terminal.
    if let (Some(tty), Some((rows, cols))) = (&mut asked.program.tty, size()) {
        *tty = Size { rows, cols };
    }
    let (info, client) = connected(home, word).await?;
    let (detach, reads) = (asked.detach, asked.program.stdin || asked.program.tty.is_some());
    let name = asked.program.argv.first().cloned().unwrap_or_default();
    let refused = |error| not_started(error, &info.id, &name);
    let mut stream = client.open(&Ask::Exec(asked)).map_err(refused)?;
    let running = stream.reply().await.map_err(refused)?;
    let running: Running = serde_json::from_value(running).map_err(|error| failed(&error))?;
    if detach {
        if call.json {
            call.console.json(&json!({ "schema": 1, "sandbox": info.id, "program": running }))?;
        } else {
            call.console.data(format!("{}\n", running.id).as_bytes())?;
        }
        return Ok(0);
    }
    let typing = reads.then(|| tokio::spawn(typed(stream.sender())));
    let mut output = Output { keep: call.json, ..Output::default() };
    let report = attended(&mut stream, &mut signals, &mut output).await;
    if let Some(typing) = typing {
        typing.abort();
    }
    let report = report.map_err(|error| answered(error, &info.id))?;
    if call.json {
        call.console.json(&output.report(&report, &running, &info))?;
    } else if report.outcome == "limit" || report.outcome == "failed" {
        call.console.eprint(&format!("fumehood: {}: {}\n", report.outcome, show_text(&report.message)));
    }
    if !call.json && report.dropped > 0 {
        call.console.eprint(&format!(
            "fumehood: cut: {} bytes of output were not kept: its limit is `limits.output`\n",
            report.dropped
        ));
    }
    if !call.json && !call.parsed.has("quiet") {
        all_stopped(&report).iter().for_each(|one| call.console.eprint(&told_stopped(one)));
    }
    Ok(code_of(&report))
}

/// What was stopped: as the broker saw it, and as its own output hints at.
fn all_stopped(report: &Report) -> Vec<Stopped> {
    let hint = |hint: &Hint| {
        let Hint { id, clause, what, why, instead, count } = hint.clone();
        Stopped { id, clause, what, why, instead, count, seen: HINT.to_owned(), program: None }
    };
    report.violations.iter().cloned().chain(report.hints.iter().map(hint)).collect()
}

/// One of them in the words of a run's report.
fn told_stopped(one: &Stopped) -> String {
    let Stopped { what, why, instead, count, seen, program, id: _, clause: _ } = one;
    let (what, why, instead) = (show_text(what), show_text(why), show_text(instead));
    let by = program.as_ref().map_or_else(String::new, |program| format!(" by {}", show_text(program)));
    let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
    let hint = if seen == HINT { " (read from the program's output: a hint, not evidence)" } else { "" };
    format!("fumehood: stopped: {what}{by}{times}: {why}{hint}\nfumehood: instead: {instead}\n")
}

/// Why the program did not start; as `run` has it, 126 and 127.
fn not_started(error: Error, id: &str, name: &str) -> Failure {
    let failure = error.failure();
    let (code, kind, fix) = match failure.code {
        Code::NotFound => (127, "live/no-program", "look what is there: `fumehood exec ID -- sh -c 'echo $PATH'`"),
        Code::NotExecutable | Code::Denied => {
            (126, "live/not-executable", "name a program that may be executed inside")
        }
        Code::NoCwd => (125, "live/no-directory", "`--cwd` names a folder inside"),
        Code::Exists
        | Code::NotADirectory
        | Code::IsADirectory
        | Code::Invalid
        | Code::NoSpace
        | Code::TooMany
        | Code::Secret
        | Code::Unsupported
        | Code::Closed
        | Code::Cancelled
        | Code::Paused
        | Code::Ended
        | Code::Failed => return answered(Error::Failed(failure), id),
    };
    let fault = Fault {
        id: kind,
        what: format!("`{}` was not started", show_text(name)),
        place: format!("sandbox {id}"),
        why: show_text(&failure.message),
        fix: fix.to_owned(),
    };
    Failure::Faults { code, faults: vec![fault] }
}

fn code_of(report: &Report) -> u8 {
    let code = match report.outcome.as_str() {
        "exited" => report.code.unwrap_or(125),
        "signalled" => report.signal.map_or(125, |number| number.saturating_add(128)),
        "limit" => 124,
        "refused" => report.code.unwrap_or(126),
        _ => 125,
    };
    u8::try_from(code).unwrap_or(FAILED)
}

/// What is typed, to the program; at its end the program sees the end.
async fn typed(to: Sender) {
    let mut from = tokio::io::stdin();
    let mut room = vec![0; 32 * 1024];
    loop {
        match from.read(&mut room).await {
            Ok(0) | Err(_) => break,
            Ok(count) => {
                if to.send(room.get(..count).unwrap_or_default()).await.is_err() {
                    return;
                }
            }
        }
    }
    // A program that has ended has no input any more.
    if to.eof().is_err() {}
}

/// The signals that are passed on, as they come.
fn signals() -> std::io::Result<UnboundedReceiver<i32>> {
    let (to, from) = unbounded_channel();
    for number in forwarded() {
        let mut arrivals = signal(SignalKind::from_raw(number))?;
        let to = to.clone();
        tokio::spawn(async move { while arrivals.recv().await.is_some() && to.send(number).is_ok() {} });
    }
    Ok(from)
}

/// Passes on what it prints and what the caller is told by signals, until its end.
async fn attended(
    stream: &mut Stream,
    signals: &mut UnboundedReceiver<i32>,
    output: &mut Output,
) -> Result<Report, Error> {
    let mut interrupts: u32 = 0;
    loop {
        tokio::select! {
            incoming = stream.next() => match incoming {
                Some(Incoming::Out(bytes)) => output.take(stream, false, bytes).await?,
                Some(Incoming::Err(bytes)) => output.take(stream, true, bytes).await?,
                Some(Incoming::Event(_)) => {}
                Some(Incoming::End(ended)) => {
                    return serde_json::from_value(ended?).map_err(|error| Error::Protocol(error.to_string()));
                }
                None => return Err(Error::Lost),
            },
            Some(number) = signals.recv() => told(stream, number, &mut interrupts)?,
        }
    }
}

fn told(stream: &Stream, number: i32, interrupts: &mut u32) -> Result<(), Error> {
    if number == WINDOW_CHANGED {
        let Some((rows, cols)) = size() else { return Ok(()) };
        return stream.control(&ProgramControl::Resize(Size { rows, cols }));
    }
    *interrupts = interrupts.saturating_add(1);
    match u8::try_from(number) {
        Ok(number) if *interrupts < 3 => stream.control(&ProgramControl::Signal { number, tree: false }),
        // A third one is for a program that ignores them.
        Ok(_) | Err(_) => stream.cancel(),
    }
}

/// Where the program's output goes.
#[derive(Default)]
struct Output {
    keep: bool,
    out: Vec<u8>,
    err: Vec<u8>,
    /// Nobody reads it any more.
    closed: bool,
}

impl Output {
    async fn take(&mut self, stream: &Stream, errors: bool, bytes: Vec<u8>) -> Result<(), Error> {
        if self.keep {
            if errors {
                self.err.extend(bytes)
            } else {
                self.out.extend(bytes)
            }
            return Ok(());
        }
        let written = if errors {
            write(&mut tokio::io::stderr(), &bytes).await
        } else {
            write(&mut tokio::io::stdout(), &bytes).await
        };
        if written.is_err() && !errors && !self.closed {
            // Whoever read it has seen what he wanted; the program is told as a pipe would tell it.
            self.closed = true;
            stream.control(&ProgramControl::Signal { number: 13, tree: false })?;
        }
        Ok(())
    }

    /// The report of `run --json`, as far as a program of a sandbox has one.
    fn report(&self, report: &Report, running: &Running, info: &Info) -> Value {
        let mut value = json!({
            "schema": 1, "run": info.run, "sandbox": info.id, "program": running.id, "policy": info.policy,
            "plan": { "digest": info.plan }, "tier": info.tier,
            "outcome": {
                "kind": report.outcome, "code": report.code, "signal": report.signal, "limit": report.limit,
                "message": report.message,
            },
            "usage": {
                "wall": report.wall, "cpu_user": report.cpu_user, "cpu_system": report.cpu_system,
                "memory_peak": report.memory_peak, "output": report.output,
            },
            "violations": all_stopped(report),
            "cut": report.dropped > 0, "dropped": report.dropped,
        });
        if let Some(map) = value.as_object_mut() {
            for (name, bytes) in [("stdout", &self.out), ("stderr", &self.err)] {
                match std::str::from_utf8(bytes) {
                    Ok(text) => map.insert(name.to_owned(), text.into()),
                    Err(_) => map.insert(format!("{name}_base64"), BASE64_STANDARD.encode(bytes).into()),
                };
            }
        }
        value
    }
}

async fn write(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_broker_stopped_is_told_as_a_fact_and_what_was_printed_as_a_hint() {
        let report: Report = serde_json::from_value(json!({
            "outcome": "exited", "code": 6, "message": "", "wall": 0.0, "cpu_user": 0.0, "cpu_system": 0.0, "memory_peak": 0,
            "output": 0, "dropped": 0,
            "hints": [{ "id": "fs.read/outside", "clause": "fs.read", "what": "reading /x", "why": "w", "instead": "i", "count": 1 }],
            "violations": [{
                "id": "net.allow/unknown-address", "clause": "net.allow", "what": "connecting to 192.0.2.1:80", "why": "no rule",
                "instead": "ask", "count": 2, "seen": "broker", "program": "/bin/x\u{1b}",
            }],
        }))
        .unwrap();
        let told: String = all_stopped(&report).iter().map(told_stopped).collect();
        let first = "fumehood: stopped: connecting to 192.0.2.1:80 by /bin/x";
        assert!(told.starts_with(first) && told.contains(" (2 times): no rule\nfumehood: instead: ask\n"), "{told}");
        assert!(told.contains("reading /x: w (read from the program's output") && !told.contains('\u{1b}'), "{told}");
    }
}
