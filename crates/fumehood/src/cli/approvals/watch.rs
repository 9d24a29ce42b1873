//! `fumehood approvals watch`: each call is shown once and waits for a key and Return; or, for programs, a stream of lines.
//!
//! What was typed before a call is on the screen is thrown away: nobody can have meant it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead as _;

use broker::approvals::{ParkedCall, State};
use serde_json::json;
use tokio::sync::mpsc;

use super::{Desk, Said, desk, page, unusable};
use crate::cli::spec::Call;
use crate::fault::{Fault, show_text};
use crate::ui::{Failure, Role};

pub(super) fn watch(call: &mut Call<'_>) -> Result<u8, Failure> {
    let desk = desk(call)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Failure::own(Fault {
            id: "approvals/unusable",
            what: "cannot wait for calls".to_owned(),
            place: "epoll(7)".to_owned(),
            why: error.to_string().to_lowercase(),
            fix: "close other programs: the kernel has no descriptor left".to_owned(),
        })
    })?;
    let person = call.world.stdin_terminal && call.world.stderr_terminal && !call.json;
    if person { runtime.block_on(ask(call, &desk)) } else { runtime.block_on(stream(call, &desk)) }
}

/// One line for each change, until nobody reads any more.
async fn stream(call: &Call<'_>, desk: &Desk) -> Result<u8, Failure> {
    let mut changes = desk.approvals.changes();
    let mut known: BTreeMap<String, State> = BTreeMap::new();
    let mut begun = false;
    loop {
        let calls = desk.approvals.list(true).map_err(|error| unusable(&error))?;
        for one in calls {
            let is_news = known.get(&one.id) != Some(&one.state);
            // What was over before we began is no news.
            if is_news && (begun || one.state == State::Waiting) {
                let line = format!("{}\n", json!({ "event": one.state.word(), "call": one.to_json() }));
                if !call.voice.data(line.as_bytes())? {
                    return Ok(0);
                }
            }
            known.insert(one.id, one.state);
        }
        begun = true;
        // A second later, time-outs that nobody waits for are seen as well.
        if tokio::time::timeout(std::time::Duration::from_secs(1), changes.changed())
            .await
            .is_ok_and(|rung| rung.is_err())
        {
            return Ok(0);
        }
    }
}

/// Lines of the terminal, as they are typed.
fn lines() -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if send.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receive
}

async fn ask(call: &Call<'_>, desk: &Desk) -> Result<u8, Failure> {
    let mut changes = desk.approvals.changes();
    let mut typed = lines();
    let mut later = BTreeSet::new();
    let mut idle = false;
    loop {
        let calls = desk.approvals.list(false).map_err(|error| unusable(&error))?;
        let Some(next) = calls.into_iter().find(|one| !later.contains(&one.id)) else {
            if !idle {
                call.voice.say("waiting for calls; `q` ends\n");
                idle = true;
            }
            tokio::select! {
                rung = changes.changed() => if rung.is_err() { return Ok(0) },
                line = typed.recv() => match line.as_deref().map(str::trim) {
                    None | Some("q") => return Ok(0),
                    Some(_) => {}
                },
            }
            continue;
        };
        idle = false;
        match one(call, desk, &next, &mut changes, &mut typed).await? {
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
    desk: &Desk,
    parked: &ParkedCall,
    changes: &mut tokio::sync::watch::Receiver<u64>,
    typed: &mut mpsc::Receiver<String>,
) -> Result<Next, Failure> {
    let palette = call.voice.err;
    let prompt = |voice: &crate::ui::Voice| {
        voice.say(&format!("{} [y]es, [n]o, [d]etails, [s] later, [q]uit\n", palette.paint(Role::Name, "agree?")));
    };
    call.voice.say(&page::details(parked, palette));
    forget_typed(typed);
    prompt(&call.voice);
    loop {
        tokio::select! {
            rung = changes.changed() => {
                if rung.is_err() {
                    return Ok(Next::End);
                }
                let now = desk.approvals.get(&parked.id).map_err(|error| unusable(&error))?;
                if let Some(over) = now.filter(|now| now.state != State::Waiting) {
                    call.voice.say(&format!("{} is {} already\n", over.id, over.state.word()));
                    return Ok(Next::Call);
                }
            }
            line = typed.recv() => {
                let said = match line.as_deref().map(str::trim) {
                    None | Some("q") => return Ok(Next::End),
                    Some("s") => return Ok(Next::Later),
                    Some("y") => Said::Yes(None),
                    Some("n") => Said::No(String::new()),
                    Some("d") => {
                        call.voice.say(&page::details(parked, palette));
                        prompt(&call.voice);
                        continue;
                    }
                    // A stray Return agrees to nothing.
                    Some(_) => {
                        prompt(&call.voice);
                        continue;
                    }
                };
                match desk.say(parked, &said)? {
                    Ok(done) => call.voice.say(&format!("{}: {}\n", done.state.word(), show_text(&done.tool))),
                    Err(lost) => call.voice.say(&format!("too late: {lost}\n")),
                }
                return Ok(Next::Call);
            }
        }
    }
}

/// Throws away what was typed before the call was on the screen.
fn forget_typed(typed: &mut mpsc::Receiver<String>) {
    if rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush).is_err() {
        // No terminal any more: the next read says so.
    }
    while typed.try_recv().is_ok() {}
}
