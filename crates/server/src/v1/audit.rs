//! `GET /v1/audit`: what was recorded.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::{StatusCode, Uri};
use sandbox::audit::Event;
use serde_json::{Value as Json, json};

use super::HttpResult;
use crate::answer::{Problem, json_response};
use crate::app::AppState;
use crate::keys::Key;
use crate::request::Query;

/// Events of one answer, at most, and where no number is asked for.
const MAX_EVENTS: usize = 1000;
const SOME: usize = 100;

/// Which events a request may see.
#[derive(Debug)]
struct EventScope {
    /// All: an operator's key without `sandbox`.
    everything: bool,
    /// Runs and ids of sandboxes.
    runs: BTreeSet<String>,
    sandboxes: BTreeSet<String>,
    /// The key whose own requests are among them.
    key: Option<String>,
}

impl EventScope {
    fn has(&self, event: &Event) -> bool {
        let text = |name: &str| event.body.get(name).and_then(Json::as_str).unwrap_or_default();
        self.everything
            || self.runs.contains(&event.run)
            || self.sandboxes.contains(text("sandbox"))
            || self.key.as_deref().is_some_and(|key| event.kind == "server.request" && text("key") == key)
    }
}

async fn sight(app: &AppState, key: &Key, query: &Query) -> Result<EventScope, Problem> {
    let (found, key) = match query.get("sandbox") {
        Some(word) => {
            let id = app.id_of(key, word).await?;
            (vec![app.own_or_ended(key, &id).await?], None)
        }
        None if key.operator => {
            let (runs, sandboxes) = (BTreeSet::new(), BTreeSet::new());
            return Ok(EventScope { everything: true, runs, sandboxes, key: None });
        }
        None => (app.list(key, true).await?, Some(key.mark())),
    };
    Ok(EventScope {
        everything: false,
        runs: found.iter().map(|info| info.run.clone()).collect(),
        sandboxes: found.into_iter().map(|info| info.id).collect(),
        key,
    })
}

pub(super) async fn events(State(app): State<Arc<AppState>>, Extension(key): Extension<Key>, uri: Uri) -> HttpResult {
    let query = Query::of(&uri);
    let number = |name: &str| match query.get(name) {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_odd| Problem::invalid(name, &format!("`{name}` is no number"))),
    };
    let after: Option<u64> = number("after")?;
    let limit = number("limit")?.map_or(Some(SOME), |limit| usize::try_from(limit).ok());
    let limit = limit.filter(|limit| (1..=MAX_EVENTS).contains(limit));
    let limit =
        limit.ok_or_else(|| Problem::invalid("limit", &format!("`limit` is no number from 1 to {MAX_EVENTS}")))?;
    let sight = sight(&app, &key, &query).await?;
    let Ok(_place) = app.looks.acquire().await else { return Err(crate::backend::gone().into()) };
    let found = app.in_state(move |state| {
        let mut found = VecDeque::new();
        let scanned = sandbox::audit::scan(state, None, &mut |event| {
            if after.is_some_and(|after| event.seq <= after) || !sight.has(&event) {
                return ControlFlow::Continue(());
            }
            found.push_back(event);
            match (found.len() >= limit, after) {
                (true, Some(_)) => return ControlFlow::Break(()),
                (true, None) if found.len() > limit => drop(found.pop_front()),
                (_, _) => {}
            }
            ControlFlow::Continue(())
        });
        scanned.map_err(|error| Problem::of_audit(&error))?;
        Ok(found)
    });
    let found = found.await?;
    let last = found.back().map(|event| event.seq).or(after);
    Ok(json_response(StatusCode::OK, &json!({ "events": found, "last": last })))
}
