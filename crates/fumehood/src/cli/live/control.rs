//! `fumehood wait | kill | pause | resume`.

use live::Home;
use live::words::{Ask, Info, State};
use serde_json::json;

use super::super::args::Positionals;
use super::super::spec::{Call, Spec};
use super::{answered, connected, home, missing, sandbox_argument, stopped, text, wait_for};
use crate::ui::{FAILED, Failure};
use sandbox::fault::show_text;

/// Sandboxes that one call may name.
const MANY: usize = 1000;

pub(crate) const WAIT: Spec = Spec {
    path: &["wait"],
    about: "Wait until a live sandbox has ended",
    usage: "ID|NAME",
    more: "Prints how it ended; `--json` all about it. Exit code 0, or 125 if it is not known.",
    tables: &[],
    words: Positionals::Mixed(1),
    hidden: false,
    run: wait,
};

pub(crate) const KILL: Spec = Spec {
    path: &["kill"],
    about: "End live sandboxes",
    usage: "ID|NAME...",
    more: "Returns when nothing is left of them but what `diff` shows. Exit code 0, also for one that has ended already; 125 if \
           one is not known.",
    tables: &[],
    words: Positionals::Mixed(MANY),
    hidden: false,
    run: kill,
};

pub(crate) const PAUSE: Spec = Spec {
    path: &["pause"],
    about: "Freeze live sandboxes",
    usage: "ID|NAME...",
    more: "Its processes stay and get no processor time; `--idle` does not count, its `--timeout` does. Exit code 0, or 125 where \
           the host has no freezer.",
    tables: &[],
    words: Positionals::Mixed(MANY),
    hidden: false,
    run: pause,
};

pub(crate) const RESUME: Spec = Spec {
    path: &["resume"],
    about: "Let frozen sandboxes go on",
    usage: "ID|NAME...",
    more: "Exit code 0, also for one that is not frozen.",
    tables: &[],
    words: Positionals::Mixed(MANY),
    hidden: false,
    run: resume,
};

fn wait(call: &mut Call<'_>) -> Result<u8, Failure> {
    let (home, word) = (home(call)?, sandbox_argument(call, "wait ID")?);
    let found = home.find(&word).map_err(|error| stopped(&error))?;
    let ended = if found.state == State::Ended {
        found
    } else {
        let told = wait_for(async {
            let (info, client) = connected(&home, &found.id).await?;
            client.call::<Info>(&Ask::Wait {}).await.map_err(|error| answered(error, &info.id))
        });
        // A supervisor that was killed says nothing; the record does.
        told.or_else(|_| home.find(&found.id).map_err(|error| stopped(&error)))?
    };
    if call.json {
        return call.console.json(&ended).map(|_| 0);
    }
    let message = show_text(ended.message.as_deref().unwrap_or("it has ended"));
    call.console.data(format!("{message}\n").as_bytes()).map(|_| 0)
}

/// What was named, each once.
fn named(call: &Call<'_>, command: &str) -> Result<Vec<String>, Failure> {
    if call.parsed.words.is_empty() {
        return Err(missing("a sandbox", &format!("{command} ID...")));
    }
    call.parsed.words.iter().map(|word| text(word)).collect()
}

fn kill(call: &mut Call<'_>) -> Result<u8, Failure> {
    let home = home(call)?;
    each(call, &home, "kill", |info| {
        let home = &home;
        wait_for(async move { live::create::kill(home, &info.id).await.map_err(|error| answered(error, &info.id)) })
    })
}

fn pause(call: &mut Call<'_>) -> Result<u8, Failure> {
    freeze(call, "pause", &Ask::Pause {})
}

fn resume(call: &mut Call<'_>) -> Result<u8, Failure> {
    freeze(call, "resume", &Ask::Resume {})
}

fn freeze(call: &Call<'_>, command: &str, ask: &Ask) -> Result<u8, Failure> {
    let home = home(call)?;
    each(call, &home, command, |info| {
        wait_for(async {
            let (info, client) = connected(&home, &info.id).await?;
            client.call::<Info>(ask).await.map(drop).map_err(|error| answered(error, &info.id))
        })
    })
}

/// All of them, also behind one that fails; the first failure is told when the others are done.
fn each(
    call: &Call<'_>,
    home: &Home,
    command: &str,
    mut with: impl FnMut(&Info) -> Result<(), Failure>,
) -> Result<u8, Failure> {
    let (mut done, mut faults) = (Vec::new(), Vec::new());
    for word in named(call, command)? {
        let found = home.find(&word).map_err(|error| stopped(&error));
        match found.and_then(|info| with(&info).map(|()| info.id)) {
            Ok(id) => done.push(id),
            Err(failure) => faults.extend(failure.into_faults()),
        }
    }
    if !faults.is_empty() {
        return Err(Failure::Faults { code: FAILED, faults });
    }
    if call.json {
        call.console.json(&json!({ "schema": 1, "sandboxes": done }))?;
    }
    Ok(0)
}
