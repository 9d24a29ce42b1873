//! `diff`, `apply` and `discard` of a sandbox that lives: its supervisor is asked first.

use agent::words::{Code, Failure as Failed};
use live::client::{Client, Error};
use live::words::{Apply, Ask, Changed, Info, Left, State, Taken};
use live::{Home, LiveError};
use sandbox::changes::{Applied, Conflict, Guarded, KeysLeft, Refused, Request};
use sandbox::fault::{Fault, show_text};
use sandbox::state::{PathText, RunId};

use super::super::spec::Call;
use super::{answered, home, stopped, wait_for};
use crate::ui::Failure;

/// What a conflict can be; another word is of a supervisor that is newer than we are.
const CONFLICTS: [&str; 11] = [
    "changed",
    "exists",
    "missing",
    "touched",
    "protected",
    "link-leaves",
    "not-empty",
    "folder",
    "not-carried",
    "locked",
    "owner",
];

/// The live sandbox whose run this is.
fn find(home: &Home, run: &RunId) -> Result<Option<Info>, LiveError> {
    Ok(home.list(false)?.into_iter().find(|info| info.run == run.as_str() && info.state != State::Ended))
}

/// The id of the live sandbox whose run this is.
pub(in crate::cli) fn is_live(call: &Call<'_>, run: &RunId) -> Result<Option<String>, Failure> {
    find(&home(call)?, run).map(|found| found.map(|info| info.id)).map_err(|error| stopped(&error))
}

/// Asks the supervisor of a run; none if nobody answers for it.
fn ask<T: serde::de::DeserializeOwned>(call: &Call<'_>, run: &RunId, ask: &Ask) -> Result<Option<T>, Failure> {
    let home = home(call)?;
    let Some(info) = find(&home, run).map_err(|error| stopped(&error))? else { return Ok(None) };
    wait_for(async {
        let asked = async { Client::connect(&home.socket_of(&info.id)).await?.call(ask).await };
        match asked.await {
            Ok(answer) => Ok(Some(answer)),
            // It ended just now: what it left is kept.
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => Err(said(error, &info.id)),
        }
    })
}

/// What was looked at is not what is there: as with a conflict nothing is applied. What cannot be had at all says itself why, and what to
/// do: the host may well have all that it takes.
fn said(error: Error, id: &str) -> Failure {
    if let Error::Failed(Failed { code: Code::Unsupported, reason: Some(reason), .. }) = &error {
        let [what, why, fix] = [&reason.what, &reason.why, &reason.fix].map(|part| show_text(part));
        return Failure::own(Fault { id: "live/unsupported", what, place: format!("sandbox {id}"), why, fix });
    }
    let differs = matches!(&error, Error::Failed(failure) if failure.code == Code::Invalid);
    let failure = answered(error, id);
    if differs { Failure::Faults { code: 1, faults: failure.into_faults() } } else { failure }
}

/// Reads what a live sandbox changed so far into the store of its run; nothing where none lives.
pub(in crate::cli) fn read_live(call: &Call<'_>, run: &RunId) -> Result<(), Failure> {
    ask::<Changed>(call, run, &Ask::Changes {}).map(drop)
}

/// Takes changes of a live sandbox, and how many paths; none if it does not live. The list of paths may be shorter.
pub(in crate::cli) fn apply_live(
    call: &Call<'_>,
    run: &RunId,
    request: &Request,
) -> Result<Option<(Applied, usize)>, Failure> {
    let texts = |paths: &[std::path::PathBuf]| paths.iter().cloned().map(PathText).collect();
    let (leave_protected, take_protected) = match &request.guarded {
        Guarded::Refuse => (false, Vec::new()),
        Guarded::Leave => (true, Vec::new()),
        Guarded::Take(paths) => (false, texts(paths)),
    };
    let wanted = Apply {
        paths: request.paths.as_deref().map(texts),
        digest: request.digest.clone(),
        leave_protected,
        take_protected,
        leaving_links: request.leaving_links,
    };
    let taken: Option<Taken> = ask(call, run, &Ask::Apply(wanted))?;
    Ok(taken.map(|taken| {
        let count =
            if let Taken::Done { count, .. } = &taken { usize::try_from(*count).unwrap_or(usize::MAX) } else { 0 };
        (applied(taken), count)
    }))
}

fn applied(taken: Taken) -> Applied {
    match taken {
        Taken::Done { digest, count: _, paths, left, keys, refused } => Applied::Done {
            digest,
            paths,
            left: usize::try_from(left).unwrap_or(usize::MAX),
            keys: keys.into_iter().map(|Left { path, why, .. }| KeysLeft { path: path.0, keys: why }).collect(),
            refused: refused
                .into_iter()
                .map(|Left { path, why, .. }| Refused { path: path.0, why, taken: false })
                .collect(),
        },
        Taken::Conflicts(conflicts) => Applied::Conflicts(conflicts.into_iter().map(conflict).collect()),
    }
}

fn conflict(Left { path, id, why }: Left) -> Conflict {
    let known = CONFLICTS.into_iter().find(|known| *known == id);
    Conflict { path: path.0, id: known.unwrap_or("other"), why }
}

#[cfg(test)]
mod tests {
    use agent::words::Reason;

    use super::*;

    #[test]
    fn what_a_supervisor_refuses_is_told_in_the_parts_in_which_it_was_said() {
        let parts = ["`a: b; c` keeps no changes", "its layer: none; never", "take `x: y`; or not"];
        let [what, why, fix] = parts.map(str::to_owned);
        let reason = Some(Box::new(Reason { what, why, fix }));
        let told = |reason| {
            let failure = Failed { reason, ..Failed::new(Code::Unsupported, "one: two; three") };
            let Fault { id, what, why, fix, .. } = said(Error::Failed(failure), "s").into_faults().remove(0);
            (id, [what, why, fix])
        };
        assert_eq!(told(reason), ("live/unsupported", parts.map(str::to_owned)));
        // Of an older supervisor, which says it in one line.
        let (id, [what, ..]) = told(None);
        assert_eq!((id, &*what), ("live/unsupported", "one: two; three"));
    }
}
