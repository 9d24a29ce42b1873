//! How long a sandbox lives where its caller does not say.

use std::sync::Arc;

use policy::{ClauseId, Millis};
use sandbox::PolicyLayer;

use super::{Desk, MAX_LIFE_MS, load};
use crate::answer::Problem;
use crate::keys::Key;

/// A life that neither the caller nor a policy says.
pub(crate) const LIFE_MS: u64 = 10 * 60 * 1000;

impl Desk {
    /// So long a life, or as long a one as the ceiling of the key allows; milliseconds.
    pub(crate) async fn life(&self, key: &Key, wish_ms: u64) -> Result<u64, Problem> {
        let Some(top) = key.ceiling.clone() else { return Ok(wish_ms) };
        let environment = Arc::clone(&self.environment);
        let load = move || load(&[PolicyLayer::Document(top)], &environment);
        match tokio::task::spawn_blocking(load).await {
            Ok(Ok(top)) => Ok(top.policy.limits.wall.map_or(wish_ms, |wall| wall.0.min(wish_ms))),
            Ok(Err(problems)) => Err(Problem::all(problems)),
            Err(_lost) => Err(crate::backend::failed("the ceiling could not be read").into()),
        }
    }

    /// How long a sandbox of these layers lives: as its caller asks, else as `limits.wall` of the policy says, else [`LIFE_MS`]. A
    /// preset's is meant for one program, and is not counted; what the caller says of the policy goes before its template's.
    ///
    /// # Errors
    /// A document cannot be read, or is wrong.
    pub(crate) async fn life_of(&self, asked: Option<u64>, layers: &[PolicyLayer]) -> Result<u64, Problem> {
        if let Some(life) = asked.or_else(|| life_said(layers)) {
            return Ok(life);
        }
        let documents: Vec<PolicyLayer> = layers.iter().filter(|layer| is_own(layer)).cloned().collect();
        if documents.is_empty() {
            return Ok(LIFE_MS);
        }
        let environment = Arc::clone(&self.environment);
        let read = move || {
            let loaded = load(&documents, &environment).map_err(Problem::all)?;
            let of_preset = loaded.origins.of(ClauseId::LimitsWall).starts_with("preset ");
            let wall = loaded.policy.limits.wall.filter(|_| !of_preset);
            Ok(wall.map_or(LIFE_MS, |wall| wall.0.min(MAX_LIFE_MS)))
        };
        let lost = |_| Err(crate::backend::failed("the policy could not be read").into());
        tokio::task::spawn_blocking(read).await.unwrap_or_else(lost)
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
