//! What happened to a sandbox as a whole; the output of its programs is not kept here.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::{Response, StatusCode, Uri};
use live::words::Info;
use serde_json::{Value as Json, json};

use crate::answer::{Problem, json_response};
use crate::app::AppState;
use crate::clock::rfc3339;
use crate::keys::Key;
use crate::request::Query;

/// Levels, the least first. All that is told here is `info`.
const LEVELS: [&str; 4] = ["debug", "info", "warn", "error"];
/// Most entries of an answer, and as many as there are without a word.
const MAX_LINES: u64 = 1000;

type HttpResult = Result<Response<Body>, Problem>;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    ms: i64,
    message: String,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LogQuery {
    /// Milliseconds since 1970: entries of then and later, or, backward, of then and before.
    cursor: Option<i64>,
    backward: bool,
    /// No entry is of a level so low.
    none: bool,
    search: String,
    limit: usize,
}

impl LogQuery {
    /// # Errors
    /// A word that is none of these.
    fn of(query: &Query, cursor: &str, known: &[&str]) -> Result<Self, Problem> {
        query.known(known)?;
        let limit = query.whole("limit")?.unwrap_or(MAX_LINES);
        if limit > MAX_LINES {
            return Err(Problem::invalid("limit", &format!("`limit` is 0 to {MAX_LINES}")));
        }
        let backward = match query.get("direction") {
            None | Some("" | "forward") => false,
            Some("backward") => true,
            Some(_) => return Err(Problem::invalid("direction", "`direction` is `forward` or `backward`")),
        };
        let none = match query.get("level").filter(|level| !level.is_empty()) {
            None => false,
            Some(level) => match LEVELS.iter().position(|known| *known == level) {
                Some(least) => least > 1,
                None => return Err(Problem::invalid("level", &format!("`level` is one of {}", LEVELS.join(", ")))),
            },
        };
        let search = query.get("search").unwrap_or_default().to_owned();
        let cursor = query.whole(cursor)?.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        Ok(Self { cursor, backward, none, search, limit: usize::try_from(limit).unwrap_or(usize::MAX) })
    }

    fn chosen(&self, mut all: Vec<Entry>) -> Vec<Entry> {
        all.retain(|entry| {
            let here = self.cursor.is_none_or(|at| if self.backward { entry.ms <= at } else { entry.ms >= at });
            here && !self.none && entry.message.contains(&self.search)
        });
        if self.backward {
            all.reverse();
        }
        all.truncate(self.limit);
        all
    }
}

fn happened(info: &Info) -> Vec<Entry> {
    let message = format!("created, tier {}, policy {}", info.tier, info.policy);
    let created = Entry { ms: info.created_ms, message };
    let why = || info.message.clone().unwrap_or_else(|| "ended".to_owned());
    let ended = info.ended_ms.map(|ms| Entry { ms, message: why() });
    std::iter::once(created).chain(ended).collect()
}

fn shown(entries: &[Entry]) -> Vec<Json> {
    let one = |entry: &Entry| json!({ "timestamp": rfc3339(entry.ms), "level": "info", "message": entry.message, "fields": {} });
    entries.iter().map(one).collect()
}

pub(super) async fn new(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    uri: Uri,
) -> HttpResult {
    let wanted = LogQuery::of(&Query::of(&uri), "cursor", &["cursor", "limit", "direction", "level", "search"])?;
    let found = wanted.chosen(happened(&app.own_or_ended(&key, &id).await?));
    Ok(json_response(StatusCode::OK, &json!({ "logs": shown(&found) })))
}

pub(super) async fn old(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    uri: Uri,
) -> HttpResult {
    let wanted = LogQuery::of(&Query::of(&uri), "start", &["start", "limit"])?;
    let found = wanted.chosen(happened(&app.own_or_ended(&key, &id).await?));
    let lines: Vec<Json> =
        found.iter().map(|entry| json!({ "timestamp": rfc3339(entry.ms), "line": entry.message })).collect();
    Ok(json_response(StatusCode::OK, &json!({ "logs": lines, "logEntries": shown(&found) })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(query: &str) -> Result<Vec<i64>, Problem> {
        let entry = |ms: i64, message: &str| Entry { ms, message: message.to_owned() };
        let uri: Uri = format!("/v2/sandboxes/a/logs?{query}").parse().unwrap();
        let known = ["cursor", "limit", "direction", "level", "search"];
        let wanted = LogQuery::of(&Query::of(&uri), "cursor", &known)?;
        Ok(wanted.chosen(vec![entry(10, "created"), entry(20, "killed")]).into_iter().map(|entry| entry.ms).collect())
    }

    #[test]
    fn each_word_of_the_query_chooses() {
        for (query, found) in [
            ("", vec![10, 20]),
            ("cursor=11", vec![20]),
            ("cursor=11&direction=backward", vec![10]),
            ("direction=backward", vec![20, 10]),
            ("direction=backward&limit=1", vec![20]),
            ("limit=0", vec![]),
            ("level=debug", vec![10, 20]),
            ("level=warn", vec![]),
            ("search=kill", vec![20]),
        ] {
            assert_eq!(chosen(query).unwrap(), found, "{query}");
        }
        for (query, field) in [
            ("cursor=-1", "cursor"),
            ("limit=1001", "limit"),
            ("direction=up", "direction"),
            ("level=loud", "level"),
            ("follow=true", "follow"),
        ] {
            assert_eq!(&*chosen(query).unwrap_err().clause, field);
        }
    }
}
