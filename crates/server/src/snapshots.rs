//! Snapshots and forks: the files of a live sandbox, kept, and other sandboxes that begin so. Memory is no part of them.
//!
//! A snapshot belongs to the key that created its sandbox: the sandbox's labels are kept in it.

use agent::words::Failure;
use axum::http::StatusCode;
use live::RestoreSettings;
use live::create::Layer;
use live::words::{Ask, Info, Snapshotted};
use policy::Millis;
use sandbox::PolicyLayer;
use sandbox::snapshot::{About, Snapshot, SnapshotError};
use serde_json::{Map, Value as Json};

use crate::answer::Problem;
use crate::app::{AppState, MAX_LIFE_MS, Order};
use crate::backend::call;
use crate::json;
use crate::keys::Key;
use crate::labels;

/// Most snapshots of a key: each takes room on the disk.
const MAX_SNAPSHOTS: usize = 100;
/// Most forks of one request.
const MAX_FORKS: u64 = 20;

/// A snapshot, and what makes sandboxes of it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) about: About,
    kept: RestoreSettings,
}

pub(crate) fn problem(error: &SnapshotError) -> Problem {
    let status = match error {
        SnapshotError::None { .. } => StatusCode::NOT_FOUND,
        SnapshotError::Name { .. } => StatusCode::BAD_REQUEST,
        SnapshotError::Taken { .. } => StatusCode::CONFLICT,
        SnapshotError::TooMany { .. } | SnapshotError::TooManyMachines { .. } => StatusCode::TOO_MANY_REQUESTS,
        SnapshotError::State(_)
        | SnapshotError::Changes(_)
        | SnapshotError::Damaged { .. }
        | SnapshotError::Ended
        | SnapshotError::Machine { .. }
        | SnapshotError::Read { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Problem::of_fault(status, &error.fault())
}

fn no_such(word: &str) -> Problem {
    let what = format!("snapshot {} not found", policy::diagnostic::quote(word));
    let why = "no snapshot of this key has this id or name";
    Problem::new(StatusCode::NOT_FOUND, "serve/no-such-snapshot", what, why, "`GET /v1/snapshots` lists them")
}

/// The build that a snapshot is of.
pub(crate) fn build_of(about: &About) -> Option<String> {
    let mut kept: RestoreSettings = serde_json::from_value(about.layers.clone()).ok()?;
    kept.labels.remove(labels::BUILD)
}

/// What is written down of it, if a sandbox of this key was kept in it.
fn owned(key: &Key, about: About) -> Option<Known> {
    let kept: RestoreSettings = serde_json::from_value(about.layers.clone()).ok()?;
    // Those of builds are their templates', and found by them.
    let is_build = kept.labels.contains_key(labels::BUILD);
    (key.created(&kept.labels) && !is_build).then_some(Known { about, kept })
}

/// How many forks a request asks for.
pub(crate) fn forks_wanted(asked: &Map<String, Json>) -> Result<u64, Problem> {
    let count = json::number(asked, "count")?.unwrap_or(1);
    let wrong = || Problem::invalid("count", &format!("`count` is no number from 1 to {MAX_FORKS}"));
    Some(count).filter(|count| (1..=MAX_FORKS).contains(count)).ok_or_else(wrong)
}

/// # Errors
/// Its requests get headers whose values are kept nowhere: what begins as its snapshot would go without.
fn keeps_no_header(info: &Info) -> Result<(), Problem> {
    if !info.labels.contains_key(labels::HEADERS) {
        return Ok(());
    }
    let what = "a sandbox with header rules has no snapshots and no forks";
    let why = "the values of its headers are held by its broker alone, and what begins as it would go without them";
    let instead = "create another sandbox with the same rules, and copy the files";
    Err(Problem::cannot(StatusCode::NOT_IMPLEMENTED, "network.rules", what, why, instead))
}

/// How long the sandbox of a snapshot was to live when it was created, milliseconds.
fn lived(kept: &RestoreSettings) -> Option<u64> {
    let told = kept.layers.iter().rev().find_map(|layer| match layer {
        Layer::Flag(name, value) if name == "--timeout" => Millis::parse(value).ok(),
        Layer::Flag(..) | Layer::Document(_) | Layer::Set(_) => None,
    })?;
    // Of one that is paused at its end, its supervisor was told a longer one.
    if let Some(life) = kept.labels.get(labels::LIFE).and_then(|life| life.parse::<u64>().ok()) {
        return Some(life.min(MAX_LIFE_MS));
    }
    let beyond = if kept.labels.contains_key(labels::AT_END) { labels::KEPT_MS } else { 0 };
    Some(told.0.saturating_sub(beyond).min(MAX_LIFE_MS))
}

impl AppState {
    /// The snapshots of a key, the oldest first.
    pub(crate) async fn snapshots(&self, key: &Key) -> Result<Vec<Known>, Problem> {
        let all = self.in_state(|state| sandbox::snapshot::list(state).map_err(|error| problem(&error)));
        Ok(all.await?.into_iter().filter_map(|about| owned(key, about)).collect())
    }

    /// A snapshot of a key, by its id or name.
    pub(crate) async fn snapshot_of(&self, key: &Key, word: &str) -> Result<Known, Problem> {
        let name = word.to_owned();
        let opened = self.in_state(move |state| match Snapshot::open(state, &name) {
            Ok(snapshot) => Ok(Some(snapshot.about().clone())),
            Err(SnapshotError::None { .. }) => Ok(None),
            Err(error) => Err(problem(&error)),
        });
        opened.await?.and_then(|about| owned(key, about)).ok_or_else(|| no_such(word))
    }

    /// Keeps the files of a sandbox.
    pub(crate) async fn take_snapshot(
        &self,
        key: &Key,
        info: &Info,
        name: Option<String>,
    ) -> Result<Snapshotted, Problem> {
        keeps_no_header(info)?;
        if self.snapshots(key).await?.len() >= MAX_SNAPSHOTS {
            let what = format!("this key has {MAX_SNAPSHOTS} snapshots");
            let (why, instead) = ("each takes room on the disk", "remove some");
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "serve/too-many", what, why, instead));
        }
        Ok(call(&*self.sandboxes, &info.id, &Ask::Snapshot { name }).await?)
    }

    /// Removes a snapshot of a key.
    pub(crate) async fn remove_snapshot(&self, key: &Key, word: &str) -> Result<(), Problem> {
        let id = self.snapshot_of(key, word).await?.about.id;
        self.in_state(move |state| sandbox::snapshot::remove(state, &id).map_err(|error| problem(&error))).await
    }

    /// A sandbox that begins as a snapshot, with the policy that its sandbox had.
    pub(crate) fn order_from(&self, snapshot: &Known) -> Result<Order, Problem> {
        let Known { about, kept } = snapshot;
        let label = |name: &str| kept.labels.get(name);
        let made = match (label(labels::BASE), kept.template.as_str()) {
            (Some(base), _) => self.base(base)?,
            (None, "") => self.templates.find(crate::templates::BASE)?,
            (None, template) => self.templates.find(template)?,
        };
        let begin = label(labels::BEGIN).and_then(|text| serde_json::from_str(text).ok());
        let of_template = [labels::BASE, labels::BEGIN, labels::WORKDIR];
        let ours = of_template.iter().filter_map(|name| Some(((*name).to_owned(), label(name)?.clone())));
        Ok(Order {
            template: kept.template.clone(),
            layers: kept.layers.iter().cloned().map(PolicyLayer::from).collect(),
            shown: made.shown,
            root: made.root,
            life_ms: lived(kept),
            idle_ms: kept.idle_ms,
            imports: kept.imports.clone(),
            begin,
            ours: ours.collect(),
            from: Some(about.id.clone()),
            ..Order::default()
        })
    }

    /// Sandboxes that begin as this one is now, with its labels, each made or refused by itself. They live for so long, or as long
    /// as this one was to.
    pub(crate) async fn fork(
        &self,
        key: &Key,
        info: &Info,
        count: u64,
        life_ms: Option<u64>,
    ) -> Result<Vec<Result<Info, Vec<Problem>>>, Problem> {
        keeps_no_header(info)?;
        let taken: Result<Snapshotted, Failure> = call(&*self.sandboxes, &info.id, &Ask::Snapshot { name: None }).await;
        let snapshot = taken?.id;
        let made = self.forks(key, info, &snapshot, (count, life_ms)).await;
        // It was there for this alone, whatever came of it.
        let removed =
            self.in_state(move |state| sandbox::snapshot::remove(state, &snapshot).map_err(|error| problem(&error)));
        removed.await?;
        made
    }

    async fn forks(
        &self,
        key: &Key,
        info: &Info,
        snapshot: &str,
        (count, life_ms): (u64, Option<u64>),
    ) -> Result<Vec<Result<Info, Vec<Problem>>>, Problem> {
        let snapshot = self.snapshot_of(key, snapshot).await?;
        let base = self.order_from(&snapshot)?;
        let order = Order {
            metadata: labels::metadata(info),
            life_ms: self.life_of(life_ms.or(base.life_ms), &base.layers).await?,
            pauses_at_end: labels::pauses_at_end(info),
            wakes: info.labels.contains_key(labels::WAKE),
            private_ports: labels::has_private_ports(info),
            ..base
        };
        let mut made = Vec::new();
        for _ in 0..count {
            made.push(self.create(key, order.clone(), None).await);
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_snapshot_is_made_into_lives_as_long_as_its_sandbox_was_to() {
        let kept = |times: &[&str], label: &str| {
            let flag = |time: &&str| Layer::Flag("--timeout".to_owned(), (*time).to_owned());
            let labels = [(label.to_owned(), "pause".to_owned())].into();
            RestoreSettings { layers: times.iter().map(flag).collect(), labels, ..RestoreSettings::default() }
        };
        assert_eq!((lived(&kept(&[], "")), lived(&kept(&["9s", "60000ms"], ""))), (None, Some(60_000)));
        assert_eq!(lived(&kept(&["86460000ms"], labels::AT_END)), Some(60_000));
        assert_eq!(lived(&kept(&["48h"], "")), Some(MAX_LIFE_MS));
        // Below a ceiling it is kept for less than a day, and its own life is written down.
        let mut below = kept(&["3600000ms"], labels::AT_END);
        below.labels.insert(labels::LIFE.to_owned(), "300000".to_owned());
        assert_eq!(lived(&below), Some(300_000));
    }
}
