//! Live sandboxes on the command line: created once, then worked in by id or name.

mod control;
mod copy;
mod create;
mod exec;
mod forward;
mod list;
mod logs;
mod network;
mod pending;
mod snapshot;

use std::ffi::OsStr;
use std::future::Future;
use std::os::unix::ffi::OsStrExt as _;

use agent::words::Code;
use live::client::{Client, Error};
use live::words::Info;
use live::{Home, LiveError};
use policy::units::Millis;
use sandbox::fault::{Fault, show_bytes, show_text};
use sandbox::state::State;

pub(super) use control::{KILL, PAUSE, RESUME, WAIT};
pub(super) use copy::SPEC as COPY;
pub(super) use create::{CREATE, SUPERVISE, tried};
pub(super) use exec::SPEC as EXEC;
pub(super) use forward::SPEC as FORWARD;
pub(super) use list::{INFO, PS};
pub(super) use logs::SPEC as LOGS;
pub(super) use network::SET as NET_SET;
pub(super) use pending::{apply_live, is_live, read_live};
pub(super) use snapshot::{FORK, SNAPSHOT, SNAPSHOTS};

use super::args::usage;
use super::spec::Call;
use crate::ui::Failure;

/// Why nothing came of it, in words: our own failure, 125.
fn stopped(error: &LiveError) -> Failure {
    Failure::own(error.fault())
}

fn home(call: &Call<'_>) -> Result<Home, Failure> {
    let state = State::open(&call.environment.state).map_err(|error| Failure::own(error.fault()))?;
    Home::new(&state).map_err(|error| stopped(&error))
}

/// The id or name that a call begins with.
fn sandbox_argument(call: &Call<'_>, what: &str) -> Result<String, Failure> {
    let word = call.parsed.words.first().map(|word| show_bytes(word.as_bytes()));
    word.ok_or_else(|| missing("a sandbox", what))
}

fn missing(what: &str, fix: &str) -> Failure {
    let why = "nothing says which is meant".to_owned();
    Failure::own(usage("usage/missing-word", format!("{what} is missing"), why, format!("`fumehood {fix}`")))
}

/// What a supervisor, or the agent, answered.
fn answered(error: Error, id: &str) -> Failure {
    let failure = error.failure();
    let (kind, why, fix) = reason(failure.code, id);
    let (what, why) = (show_text(&failure.message), why.to_owned());
    Failure::own(Fault { id: kind, what, place: format!("sandbox {id}"), why, fix })
}

/// The id of what went wrong, why that is so, and what to do.
fn reason(code: Code, id: &str) -> (&'static str, &'static str, String) {
    let look = || format!("look at what is there: `fumehood exec {id} -- ls -la PATH`, `fumehood info {id}`");
    let (why, fix) = match code {
        Code::Ended => {
            return ("live/ended", "nothing of it runs any more", "`fumehood ps -a` says how it ended".to_owned());
        }
        Code::Paused => {
            let why = "everything inside stands still until it is resumed";
            return ("live/paused", why, format!("`fumehood resume {id}`"));
        }
        Code::Secret => {
            let why = "its requests get the value outside; inside it would be everybody's";
            let fix = "leave the variable out: the program finds what stands for the secret in the variable that `secrets` names";
            return ("secrets/brought", why, fix.to_owned());
        }
        Code::Unsupported => {
            let why = "this host, or the tier of the sandbox, has no means for it";
            return ("live/unsupported", why, "`fumehood doctor` says what this host can hold".to_owned());
        }
        Code::NotFound => {
            ("nothing of this name is inside, or the program has ended and its output is not kept any more", look())
        }
        Code::Denied => ("the sandbox's own user may not, and the agent inside may no more than that user", look()),
        Code::NoSpace => {
            let why = "a limit of the policy on disk, files or file size is reached, or the host's disk is full";
            (why, "remove something inside, or create a sandbox with higher limits".to_owned())
        }
        Code::TooMany => ("there are as many at once as there may be", "wait until some have ended".to_owned()),
        Code::Closed => ("nobody listens there inside", "start the server inside first, on loopback".to_owned()),
        Code::Exists => {
            ("something of this name is there already", "use another name, or remove what has it".to_owned())
        }
        Code::NotADirectory | Code::IsADirectory | Code::NoCwd | Code::NotExecutable => {
            ("something else is at this path inside than what was asked for", look())
        }
        Code::Invalid => ("the sandbox does not take it so", look()),
        Code::Cancelled => {
            ("it was given up, or the sandbox was ended meanwhile", "`fumehood ps -a` says more".to_owned())
        }
        Code::Failed => {
            ("it failed inside, or in the supervisor", format!("try again; `fumehood info {id}` says how it does"))
        }
    };
    ("live/failed", why, fix)
}

/// A runtime of one thread. What still waits for the caller's terminal when it ends is left alone.
fn wait_for<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(&error))?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

/// Something of the host failed.
fn failed(error: &dyn std::fmt::Display) -> Failure {
    Failure::own(Fault {
        id: "live/host",
        what: "the command could not go on".to_owned(),
        place: "this process".to_owned(),
        why: show_text(&error.to_string()),
        fix: "mend what is named here, and try again".to_owned(),
    })
}

/// The sandbox that is meant, which lives, and a connection to it.
async fn connected(home: &Home, word: &str) -> Result<(Info, Client), Failure> {
    let info = home.find_live(word).map_err(|error| stopped(&error))?;
    let client = Client::connect(&home.socket_of(&info.id)).await.map_err(|error| answered(error, &info.id))?;
    Ok((info, client))
}

/// A time that a flag says, in milliseconds.
pub(super) fn time(call: &Call<'_>, flag: &str) -> Result<Option<u64>, Failure> {
    let Some(text) = call.parsed.value(flag) else { return Ok(None) };
    let shown = show_bytes(text.as_bytes());
    let read = text.to_str().map(Millis::parse);
    match read {
        Some(Ok(time)) => Ok(Some(time.0)),
        Some(Err(_)) | None => Err(Failure::own(usage(
            "usage/bad-value",
            format!("`--{flag} {shown}`"),
            "it is no time".to_owned(),
            "a number with its unit: 500ms, 30s, 10m, 1h".to_owned(),
        ))),
    }
}

/// A word that must be text, since it goes inside as JSON.
fn text(word: &OsStr) -> Result<String, Failure> {
    word.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::own(usage(
            "usage/no-text",
            format!("`{}` is no text", show_bytes(word.as_bytes())),
            "what is asked of a sandbox is UTF-8".to_owned(),
            "let a shell inside make the bytes".to_owned(),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_and_a_failure_of_ours_are_about_no_path() {
        for (code, why) in [(Code::Exists, "is there already"), (Code::Failed, "it failed inside")] {
            let (_, told, fix) = reason(code, "a1");
            assert!(told.contains(why) && !fix.contains("ls -la"), "{told}; {fix}");
        }
    }
}
