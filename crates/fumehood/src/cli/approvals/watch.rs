//! `fumehood approvals watch`: each call is shown once and waits for a key and Return; or, for programs, a stream of lines.
//!
//! What was typed before a call is on the screen is thrown away: nobody can have meant it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use gateway::approvals::{ParkedCall, State};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, tcflush};
use serde_json::json;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{ReviewAnswer, ReviewContext, page, review};
use crate::approvals::unusable;
use crate::cli::spec::Call;
use crate::ui::{Failure, Role};
use sandbox::fault::{Fault, show_text};

/// How soon to look although nobody was told: nobody tells of time-outs that nobody waits for.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

pub(super) fn watch(call: &mut Call<'_>) -> Result<u8, Failure> {
    let review = review(call)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Failure::own(Fault {
            id: "approvals/unusable",
            what: "cannot wait for calls".to_owned(),
            place: "epoll(7)".to_owned(),
            why: error.to_string().to_lowercase(),
            fix: "close other programs: the kernel has no descriptor left".to_owned(),
        })
    })?;
    let person = call.environment.stdin_terminal && call.environment.stderr_terminal && !call.json;
    if person { runtime.block_on(ask(call, &review)) } else { runtime.block_on(stream(call, &review)) }
}

/// One line for each change, until nobody reads any more.
async fn stream(call: &Call<'_>, review: &ReviewContext) -> Result<u8, Failure> {
    let mut changes = review.approvals.changes();
    let mut known: BTreeMap<String, State> = BTreeMap::new();
    let mut begun = false;
    loop {
        let calls = review.approvals.list(true).map_err(|error| unusable(&error))?;
        for one in calls {
            let is_news = known.get(&one.id) != Some(&one.state);
            // What was over before we began is no news.
            if is_news && (begun || one.state == State::Waiting) {
                let line = format!("{}\n", json!({ "event": one.state.as_str(), "call": one.to_json() }));
                if !call.console.data(line.as_bytes())? {
                    return Ok(0);
                }
            }
            known.insert(one.id, one.state);
        }
        begun = true;
        if tokio::time::timeout(LOOK_AGAIN, changes.changed()).await.is_ok_and(|rung| rung.is_err()) {
            return Ok(0);
        }
    }
}

/// The terminal, read by the one thread that also shows calls: what was typed before a call was shown is in nobody's hands
/// and can be thrown away.
struct Keys {
    terminal: AsyncFd<OwnedFd>,
    typed: Vec<u8>,
}

impl Keys {
    #[expect(deprecated, reason = "its successor is unsafe; the descriptor is our own and lives as long as this")]
    fn new() -> std::io::Result<Self> {
        let terminal = std::io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Self { terminal: AsyncFd::with_interest(terminal, Interest::READABLE)?, typed: Vec::new() })
    }

    /// The next line; none at the end. Nothing is lost when it is not waited for to the end.
    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.typed.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.typed.drain(..=end).collect();
                return Some(String::from_utf8_lossy(&line).trim().to_owned());
            }
            let mut ready = self.terminal.readable().await.ok()?;
            // The terminal is shared with the shell and stays blocking: it is asked again before it is read.
            let mut asked = [PollFd::new(self.terminal.get_ref(), PollFlags::IN)];
            if !poll(&mut asked, Some(&Timespec::default())).is_ok_and(|count| count > 0) {
                ready.clear_ready();
                continue;
            }
            let mut part = [0; 1024];
            match rustix::io::read(self.terminal.get_ref(), &mut part) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.typed.extend_from_slice(part.get(..count).unwrap_or_default()),
            }
        }
    }

    /// Throws away what was typed so far.
    fn forget(&mut self) {
        if tcflush(self.terminal.get_ref(), QueueSelector::IFlush).is_err() {
            // No terminal any more: the next read says so.
        }
        self.typed.clear();
    }
}

async fn ask(call: &Call<'_>, review: &ReviewContext) -> Result<u8, Failure> {
    let mut changes = review.approvals.changes();
    let mut typed = Keys::new().map_err(|error| {
        let (what, fix) =
            ("the terminal cannot be read".to_owned(), "`fumehood approvals ls` and `approve` need none".to_owned());
        Failure::own(Fault {
            id: "approvals/unusable",
            what,
            place: "stdin".to_owned(),
            why: error.to_string().to_lowercase(),
            fix,
        })
    })?;
    let mut later = BTreeSet::new();
    let mut idle = false;
    loop {
        let calls = review.approvals.list(false).map_err(|error| unusable(&error))?;
        let Some(next) = calls.into_iter().find(|one| !later.contains(&one.id)) else {
            if !idle {
                call.console.eprint("waiting for calls; `q` ends\n");
                idle = true;
            }
            tokio::select! {
                rung = changes.changed() => if rung.is_err() { return Ok(0) },
                line = typed.line() => match line.as_deref() {
                    None | Some("q") => return Ok(0),
                    Some(_) => {}
                },
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
            continue;
        };
        idle = false;
        match one(call, review, &next, &mut changes, &mut typed).await? {
            Next::Call => {}
            Next::Later => drop(later.insert(next.id)),
            Next::End => return Ok(0),
        }
    }
}

/// What comes after a call.
enum Next {
    Call,
    Later,
    End,
}

/// Shows one call and takes its answer, unless somebody or the time is first.
async fn one(
    call: &Call<'_>,
    review: &ReviewContext,
    parked: &ParkedCall,
    changes: &mut tokio::sync::watch::Receiver<u64>,
    typed: &mut Keys,
) -> Result<Next, Failure> {
    let palette = call.console.err;
    let prompt = |console: &crate::ui::Console| {
        console.eprint(&format!("{} [y]es, [n]o, [d]etails, [s] later, [q]uit\n", palette.paint(Role::Name, "agree?")));
    };
    call.console.eprint(&page::details(parked, palette));
    typed.forget();
    prompt(&call.console);
    loop {
        tokio::select! {
            rung = tokio::time::timeout(LOOK_AGAIN, changes.changed()) => {
                if rung.is_ok_and(|rung| rung.is_err()) {
                    return Ok(Next::End);
                }
                let now = review.approvals.get(&parked.id).map_err(|error| unusable(&error))?;
                if let Some(over) = now.filter(|now| now.state != State::Waiting) {
                    call.console.eprint(&format!("{} is {} already\n", over.id, over.state.as_str()));
                    return Ok(Next::Call);
                }
            }
            line = typed.line() => {
                let said = match line.as_deref() {
                    None | Some("q") => return Ok(Next::End),
                    Some("s") => return Ok(Next::Later),
                    Some("y") => ReviewAnswer::Yes(None),
                    Some("n") => ReviewAnswer::No(String::new()),
                    Some("d") => {
                        call.console.eprint(&page::details(parked, palette));
                        prompt(&call.console);
                        continue;
                    }
                    // A stray Return agrees to nothing.
                    Some(_) => {
                        prompt(&call.console);
                        continue;
                    }
                };
                match review.say(parked, &said)? {
                    Ok(done) => call.console.eprint(&format!("{}: {}\n", done.state.as_str(), show_text(&done.tool))),
                    Err(lost) => call.console.eprint(&format!("too late: {lost}\n")),
                }
                return Ok(Next::Call);
            }
        }
    }
}
