//! How long a sandbox lives, and what ends, stops and moves its life.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent::words::Failure;
use axum::http::StatusCode;
use live::moment::boot_ms;
use live::words::{Ask, Info, State};
use policy::{ClauseId, Millis};
use sandbox::PolicyLayer;

use super::{AppState, MAX_LIFE_MS, load, locked};
use crate::answer::Problem;
use crate::backend::call;
use crate::keys::Key;
use crate::labels::{self, KEPT_MS};

/// A life that neither the caller nor a policy says.
pub(crate) const LIFE_MS: u64 = 10 * 60 * 1000;

impl AppState {
    /// So long a life, or as long a one as the ceiling of the key allows; milliseconds.
    pub(crate) async fn life(&self, key: &Key, wish_ms: u64) -> Result<u64, Problem> {
        let wall = self.ceiling_of(key).await?.and_then(|top| top.limits.wall);
        Ok(wall.map_or(wish_ms, |wall| wall.0.min(wish_ms)))
    }

    /// How long a sandbox of these layers is to live: as its caller asks, else as `limits.wall` of the policy says; none where nobody
    /// says it. A preset's is meant for one program, and is not counted; what the caller says of the policy goes before its template's.
    ///
    /// # Errors
    /// A document cannot be read, or is wrong.
    pub(crate) async fn life_of(&self, asked: Option<u64>, layers: &[PolicyLayer]) -> Result<Option<u64>, Problem> {
        match asked.or_else(|| life_said(layers)) {
            Some(life) => Ok(Some(life)),
            None => self.life_written(layers).await,
        }
    }

    /// What the documents among the layers say that somebody here wrote.
    async fn life_written(&self, layers: &[PolicyLayer]) -> Result<Option<u64>, Problem> {
        let documents: Vec<PolicyLayer> = layers.iter().filter(|layer| is_own(layer)).cloned().collect();
        if documents.is_empty() {
            return Ok(None);
        }
        let environment = Arc::clone(&self.environment);
        let read = move || {
            let loaded = load(&documents, &environment).map_err(Problem::all)?;
            let of_preset = loaded.origins.of(ClauseId::LimitsWall).starts_with("preset ");
            let wall = loaded.policy.limits.wall.filter(|_| !of_preset);
            Ok(wall.map(|wall| wall.0.min(MAX_LIFE_MS)))
        };
        let lost = |_| Err(crate::backend::failed("the policy could not be read").into());
        tokio::task::spawn_blocking(read).await.unwrap_or_else(lost)
    }

    /// Ends a sandbox; its streams end with it.
    pub(crate) async fn kill(&self, id: &str) -> Result<(), Failure> {
        // Whoever is cut off asks at once whether it is still there, and takes a yes for a fault of the network.
        let _going = Going::of(self, id);
        // Before it is killed: a stream that heard how its program died would end in good order, and clients take that for the
        // program's own end.
        self.cut(id);
        let killed = call::<Info>(&*self.sandboxes, id, &Ask::Kill {}).await;
        self.cut(id);
        match killed {
            Ok(_) => Ok(()),
            // Somebody else was first.
            Err(failure) if failure.code == agent::words::Code::Ended => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Whether a sandbox is being ended.
    pub(crate) fn is_going(&self, id: &str) -> bool {
        locked(&self.going).iter().any(|going| going == id)
    }

    /// Freezes a sandbox; its end stands.
    pub(crate) async fn pause(&self, id: &str) -> Result<Info, Failure> {
        let info = call::<Info>(&*self.sandboxes, id, &Ask::Pause {}).await?;
        self.cut(id);
        Ok(info)
    }

    /// Freezes a sandbox as E2B does: it is kept for a day at least, or as long as the ceiling of its key allows.
    pub(crate) async fn pause_and_keep(&self, id: &str) -> Result<Info, Failure> {
        let info = self.pause(id).await?;
        let kept = Ask::Timeout { ms: labels::within(&info, KEPT_MS), only_later: true, labels: BTreeMap::new() };
        if call::<Info>(&*self.sandboxes, id, &kept).await.is_err() {
            // It is paused all the same, and its end stands as it was.
        }
        Ok(info)
    }

    /// Thaws a sandbox, which then lives for so long; without, its end stands.
    pub(crate) async fn resume(&self, info: &Info, life_ms: Option<u64>) -> Result<Info, Failure> {
        let resumed = call::<Info>(&*self.sandboxes, &info.id, &Ask::Resume {}).await?;
        match life_ms {
            Some(life_ms) => self.set_end(info, life_ms, false).await,
            None => Ok(resumed),
        }
    }

    /// Moves the end of a sandbox to so many milliseconds from now, as far as the ceiling of its key allows.
    pub(crate) async fn set_end(&self, info: &Info, life_ms: u64, only_later: bool) -> Result<Info, Failure> {
        let Some((ms, only_later, labels)) = labels::end_in(info, life_ms, only_later) else { return Ok(info.clone()) };
        call::<Info>(&*self.sandboxes, &info.id, &Ask::Timeout { ms, only_later, labels }).await
    }

    /// Lets a sandbox end so many milliseconds from now and no earlier, whatever its key may ask for: time that the server takes.
    pub(crate) async fn outlast(&self, info: &Info, ms: u64) {
        let later = Ask::Timeout { ms, only_later: true, labels: BTreeMap::new() };
        if call::<Info>(&*self.sandboxes, &info.id, &later).await.is_err() {
            // It ends with the time that was asked for, and its program is told as one that ended so.
        }
    }

    /// What is due: sandboxes that are paused at the end of their life, and streams of those that run no more. To be called
    /// each second or so.
    pub async fn tend(&self) {
        self.sessions.sweep(&self.keys);
        self.follow_keys().await;
        let Ok(all) = self.sandboxes.list(false).await else { return };
        let now = boot_ms();
        for info in &all {
            let over = labels::pauses_at_end(info) && labels::is_over(info, now);
            if info.state == State::Running && over && self.pause_and_keep(&info.id).await.is_err() {
                // Without a freezer its end is the supervisor's, and each second until then we try again.
            }
        }
        let running: BTreeSet<&str> =
            all.iter().filter(|info| info.state == State::Running).map(|info| info.id.as_str()).collect();
        let stale: Vec<String> =
            locked(&self.cuts).keys().filter(|id| !running.contains(id.as_str())).cloned().collect();
        stale.iter().for_each(|id| self.cut(id));
    }
}

/// A sandbox that is being ended: until that is done it is told as gone already.
struct Going<'a>(&'a AppState, &'a str);

impl<'a> Going<'a> {
    fn of(app: &'a AppState, id: &'a str) -> Self {
        locked(&app.going).push(id.to_owned());
        Self(app, id)
    }
}

impl Drop for Going<'_> {
    fn drop(&mut self) {
        let mut going = locked(&self.0.going);
        // Others may be at it too.
        if let Some(at) = going.iter().position(|id| id == self.1) {
            going.swap_remove(at);
        }
    }
}

/// Whether the ceiling of its key lets a sandbox live so many milliseconds more.
///
/// # Errors
/// It does not.
pub(crate) fn may_live(info: &Info, life_ms: u64) -> Result<(), Problem> {
    match labels::left_ms(info) {
        Some(left) if left < life_ms => {
            let what = format!("it would live longer than its key may let it: {left} ms are left");
            let why = "`limits.wall` of the ceiling of this key is counted from the creation of a sandbox";
            let refused = StatusCode::FORBIDDEN;
            let problem = Problem::new(refused, "serve/beyond-ceiling", what, why, "ask for a shorter life");
            Err(problem.about(ClauseId::LimitsWall.path()))
        }
        Some(_) | None => Ok(()),
    }
}

/// What clauses that were written one by one say, the last one first; a value that is no time is told when the policy is read.
pub(crate) fn life_said(layers: &[PolicyLayer]) -> Option<u64> {
    let wall = |layer: &PolicyLayer| {
        let PolicyLayer::Set(text) = layer else { return None };
        let value = text.strip_prefix("limits.wall=")?;
        Millis::parse(value.trim_matches('"')).ok().map(|wall| wall.0.min(MAX_LIFE_MS))
    };
    layers.iter().rev().find_map(wall)
}

/// Whether it is a document that somebody here wrote.
fn is_own(layer: &PolicyLayer) -> bool {
    matches!(layer, PolicyLayer::Document(name) if policy::presets::preset(name).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_clauses_the_last_that_is_a_time_counts_and_a_day_is_the_most() {
        let said = |list: &[&str]| {
            let layers: Vec<_> = list.iter().map(|text| PolicyLayer::Set((*text).to_owned())).collect();
            life_said(&layers)
        };
        assert_eq!(said(&["limits.wall=\"9s\"", "limits.wall=\"2s\"", "limits.pids=7"]), Some(2000));
        assert_eq!((said(&["limits.pids=7"]), said(&["limits.wall=\"x\""])), (None, None));
        assert_eq!(said(&["limits.wall=\"1000h\""]), Some(MAX_LIFE_MS));
    }

    #[test]
    fn a_preset_is_nobodys_own_document() {
        let own = |name: &str| is_own(&PolicyLayer::Document(name.to_owned()));
        assert!(own("/srv/team.toml") && !own("strict"));
    }
}
