//! `GET /sandboxes` and `GET /v2/sandboxes`: filters, order, pages.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderValue, Response, StatusCode, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use live::words::{Info, State as Doing};
use percent_encoding::percent_decode_str;
use serde_json::Value as Json;
use url::form_urlencoded;

use super::objects;
use crate::answer::{Problem, json_response};
use crate::app::AppState;
use crate::clock::parse_ms;
use crate::keys::Key;
use crate::labels;

/// Entries of a page when nothing is said, and at most.
const PAGE: usize = 100;

/// Which sandboxes, in which order.
#[derive(Debug, PartialEq, Eq)]
struct Query {
    metadata: Vec<(String, String)>,
    states: Vec<Doing>,
    started_after: Option<i64>,
    template: Option<String>,
    ascending: bool,
    limit: usize,
    after: Option<(i64, String)>,
}

pub(super) async fn old(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    uri: Uri,
) -> Result<Response<Body>, Problem> {
    let mut query = parse(uri.query().unwrap_or_default())?;
    query.states = vec![Doing::Running];
    query.limit = usize::MAX;
    let (page, _) = choose(listed(&app, &key).await?, &query);
    Ok(json_response(
        StatusCode::OK,
        &Json::Array(page.iter().filter_map(|info| objects::listed(&app, info)).collect()),
    ))
}

pub(super) async fn new(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    uri: Uri,
) -> Result<Response<Body>, Problem> {
    let query = parse(uri.query().unwrap_or_default())?;
    let (page, next) = choose(listed(&app, &key).await?, &query);
    let shown = Json::Array(page.iter().filter_map(|info| objects::listed(&app, info)).collect());
    let mut response = json_response(StatusCode::OK, &shown);
    if let Some(next) = next.and_then(|next| HeaderValue::from_str(&next).ok()) {
        response.headers_mut().insert("x-next-token", next);
    }
    Ok(response)
}

/// Those of a key; what a template is built in is a part of the build.
async fn listed(app: &AppState, key: &Key) -> Result<Vec<Info>, Problem> {
    let mut all = app.list(key, false).await?;
    all.retain(|info| !info.labels.contains_key(labels::BUILD));
    Ok(all)
}

fn parse(query: &str) -> Result<Query, Problem> {
    let mut read = Query {
        metadata: Vec::new(),
        states: vec![Doing::Running, Doing::Paused],
        started_after: None,
        template: None,
        ascending: false,
        limit: PAGE,
        after: None,
    };
    let mut states = Vec::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match name.as_ref() {
            "metadata" => read.metadata = pairs(&value),
            "state" => {
                for word in value.split(',') {
                    states.push(state_of(word)?);
                }
            }
            "startedAfter" => {
                let time =
                    parse_ms(&value).ok_or_else(|| Problem::invalid("startedAfter", "`startedAfter` is no time"))?;
                read.started_after = Some(time);
            }
            "template" | "templateID" => read.template = Some(value.into_owned()),
            "order" => {
                read.ascending = match value.as_ref() {
                    "asc" => true,
                    "desc" => false,
                    _ => return Err(Problem::invalid("order", "`order` is `asc` or `desc`")),
                };
            }
            "limit" => {
                let limit = value.parse::<usize>().ok().filter(|limit| (1..=PAGE).contains(limit));
                read.limit = limit.ok_or_else(|| Problem::invalid("limit", "`limit` is 1 to 100"))?;
            }
            "nextToken" if value.is_empty() => {}
            "nextToken" => {
                let after = mark(&value);
                read.after = Some(after.ok_or_else(|| Problem::invalid("nextToken", "`nextToken` is none of ours"))?);
            }
            // A filter that is not understood would list what nobody asked for.
            unknown => {
                let what = format!("{} is not known here", policy::diagnostic::quote(unknown));
                return Err(Problem::invalid(unknown, &what));
            }
        }
    }
    if !states.is_empty() {
        read.states = states;
    }
    Ok(read)
}

/// Names and values are encoded, then the pairs, then the whole as one value.
fn pairs(value: &str) -> Vec<(String, String)> {
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    form_urlencoded::parse(value.as_bytes()).map(|(key, value)| (decode(&key), decode(&value))).collect()
}

fn state_of(word: &str) -> Result<Doing, Problem> {
    match word {
        "running" => Ok(Doing::Running),
        "paused" => Ok(Doing::Paused),
        _ => Err(Problem::invalid("state", "`state` is `running`, `paused` or both")),
    }
}

/// The last entry of a page, as a token.
fn token(info: &Info) -> String {
    URL_SAFE_NO_PAD.encode(format!("{} {}", info.created_ms, info.id))
}

fn mark(token: &str) -> Option<(i64, String)> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let (created, id) = text.split_once(' ')?;
    Some((created.parse().ok()?, id.to_owned()))
}

/// A page, and the token of the next.
fn choose(mut all: Vec<Info>, query: &Query) -> (Vec<Info>, Option<String>) {
    all.retain(|info| {
        let theirs = labels::metadata(info);
        query.states.contains(&info.state)
            && query.metadata.iter().all(|(key, value)| theirs.get(key) == Some(value))
            && query.started_after.is_none_or(|after| info.created_ms >= after)
            && query.template.as_ref().is_none_or(|template| info.template == *template)
    });
    all.sort_by(|one, other| (one.created_ms, &one.id).cmp(&(other.created_ms, &other.id)));
    if !query.ascending {
        all.reverse();
    }
    if let Some((created, id)) = &query.after {
        all.retain(|info| {
            let (here, there) = ((info.created_ms, &info.id), (*created, id));
            if query.ascending { here > there } else { here < there }
        });
    }
    let more = all.len() > query.limit;
    all.truncate(query.limit);
    let next = all.last().filter(|_| more).map(token);
    (all, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(id: &str, created_ms: i64, state: &str, labels: &[(&str, &str)]) -> Info {
        let labels: Json = labels.iter().map(|(key, value)| ((*key).to_owned(), Json::from(*value))).collect();
        serde_json::from_value(serde_json::json!({
            "id": id, "state": state, "run": "r", "tier": "container", "policy": "p", "plan": "d", "template": "base",
            "created_ms": created_ms, "pid": 1, "usage": {}, "labels": labels,
        }))
        .unwrap()
    }

    fn ids(all: &[Info]) -> Vec<&str> {
        all.iter().map(|info| info.id.as_str()).collect()
    }

    #[test]
    fn pages_follow_one_another_in_both_orders_and_end() {
        let all = || (0..5).map(|n| info(&format!("a{n}"), n / 2, "running", &[])).collect::<Vec<_>>();
        for (order, expected) in [("desc", ["a4", "a3", "a2", "a1", "a0"]), ("asc", ["a0", "a1", "a2", "a3", "a4"])] {
            let (mut seen, mut next) = (Vec::new(), Some(String::new()));
            while let Some(token) = next {
                let query = parse(&format!("limit=2&order={order}&nextToken={token}")).unwrap();
                let (page, more) = choose(all(), &query);
                seen.extend(page.into_iter().map(|info| info.id));
                next = more;
            }
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn what_the_filters_say_is_what_is_listed() {
        let all = || {
            vec![
                info("a", 10, "running", &[("k y", "a&b"), ("fumehood.key", "x")]),
                info("b", 20, "paused", &[("k y", "a&b")]),
                info("c", 30, "running", &[("k y", "other")]),
                info("d", 40, "ended", &[]),
            ]
        };
        let listed = |query: &str| choose(all(), &parse(query).unwrap()).0;
        assert_eq!(ids(&listed("")), ["c", "b", "a"]);
        assert_eq!(ids(&listed("state=paused")), ["b"]);
        assert_eq!(ids(&listed("state=running,paused&order=asc")), ["a", "b", "c"]);
        assert_eq!(ids(&listed("metadata=k%252520y%3Da%252526b")), ["b", "a"], "decoded three times");
        assert_eq!(ids(&listed("metadata=fumehood.key%3Dx")), Vec::<&str>::new(), "ours are not seen");
        assert_eq!(ids(&listed("startedAfter=1970-01-01T00:00:00.020Z")), ["c", "b"]);
        assert_eq!(ids(&listed("template=other")), Vec::<&str>::new());
        for bad in ["state=ended", "limit=0", "limit=1000", "order=up", "nextToken=!", "startedAfter=now", "owner=me"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
