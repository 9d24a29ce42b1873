//! `/v1/sandboxes/ID/changes`: what a sandbox changed in its workspace, shown, taken over to the host, or thrown away.
//!
//! Taking over writes to the host, which no sandbox may: a key may do it whose ceiling lets sandboxes write there at once
//! (`workspace.mode = "rw"`), or a person's (`keys add --operator`).

use std::path::PathBuf;
use std::sync::Arc;

use agent::path_text;
use agent::words::Code;
use axum::extract::{Extension, Request, State};
use axum::http::{StatusCode, Uri};
use live::words::{Apply, Ask, Changed, Info, State as Doing, Taken};
use policy::value::WorkspaceMode;
use sandbox::audit::Kind;
use sandbox::changes::{Applied, ChangesError, Diff, Guarded, Request as Wanted};
use sandbox::fault::show_path;
use sandbox::state::{PathText, RunId, State as Folder};
use serde::Deserialize as _;
use serde_json::{Map, Value as Json, json};

use super::sandbox::Known;
use super::{HttpResult, body};
use crate::answer::{Problem, json_response};
use crate::app::AppState;
use crate::keys::Key;
use crate::request::Query;
use crate::{backend, json as read};

/// What went wrong with changes: what is not there, or is not as it was shown, is the caller's to know.
fn problem(error: &ChangesError) -> Problem {
    let status = match error {
        ChangesError::None { .. } | ChangesError::NoSuchPath { .. } => StatusCode::NOT_FOUND,
        ChangesError::Digest { .. } | ChangesError::Lives { .. } => StatusCode::CONFLICT,
        ChangesError::State(_)
        | ChangesError::Damaged { .. }
        | ChangesError::Ended { .. }
        | ChangesError::Read { .. }
        | ChangesError::TooLarge { .. }
        | ChangesError::Write { .. }
        | ChangesError::Unkept { .. }
        | ChangesError::Stuck { .. }
        | ChangesError::Replaced { .. }
        | ChangesError::Moved { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Problem::of_fault(status, &error.fault())
}

/// Paths in JSON: texts, or `{"hex": ..}` of one that is no text.
fn paths(asked: &Map<String, Json>, field: &str) -> Result<Option<Vec<PathText>>, Problem> {
    match asked.get(field) {
        None | Some(Json::Null) => Ok(None),
        Some(list) => Vec::deserialize(list).map(Some).map_err(|_odd| no_path(field)),
    }
}

fn no_path(field: &str) -> Problem {
    Problem::invalid(field, &format!("`{field}` is no path: text, or in JSON {{\"hex\": ..}} of other bytes"))
}

fn run_of(info: &Info) -> Result<RunId, Problem> {
    info.run.parse().map_err(|_odd| backend::failed("the sandbox has no run").into())
}

pub(super) async fn show(State(app): State<Arc<AppState>>, Known(info): Known, uri: Uri) -> HttpResult {
    let query = Query::of(&uri);
    let paths = query.all("path").map(|text| path_text::path(text).ok_or_else(|| no_path("path")));
    let paths = paths.collect::<Result<Vec<PathBuf>, Problem>>()?;
    let paths = (!paths.is_empty()).then_some(paths);
    refresh(&app, &info).await?;
    let run = run_of(&info)?;
    let shown = app.in_state(move |state| match diff(state, &run, paths.as_deref()) {
        Ok(diff) => Ok(json!(diff)),
        // It changed nothing, or all of it was taken or thrown away.
        Err(ChangesError::None { .. }) => Ok(json!({ "schema": 1, "run": run.as_str(), "entries": [], "refused": [] })),
        Err(error) => Err(problem(&error)),
    });
    Ok(json_response(StatusCode::OK, &shown.await?))
}

fn diff(state: &Folder, run: &RunId, paths: Option<&[PathBuf]>) -> Result<Diff, ChangesError> {
    sandbox::changes::diff(state, run, paths, sandbox::protect::list(), &[])
}

/// A sandbox that lives has its changes read first.
async fn refresh(app: &AppState, info: &Info) -> Result<(), Problem> {
    if info.state == Doing::Ended {
        return Ok(());
    }
    match backend::call::<Changed>(&*app.sandboxes, &info.id, &Ask::Changes {}).await {
        Ok(_) => Ok(()),
        // It ended just now: what it left is kept.
        Err(failure) if failure.code == Code::Ended => Ok(()),
        Err(failure) => Err(failure.into()),
    }
}

pub(super) async fn apply(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Known(info): Known,
    request: Request,
) -> HttpResult {
    const FIELDS: &[&str] = &["paths", "digest", "leave_protected", "take_protected", "leaving_links"];
    let asked = read::object(&body(request).await?)?;
    read::known(&asked, FIELDS)?;
    let wanted = Apply {
        paths: paths(&asked, "paths")?,
        digest: read::text(&asked, "digest")?.map(str::to_owned),
        leave_protected: read::flag(&asked, "leave_protected")?.unwrap_or(false),
        take_protected: paths(&asked, "take_protected")?.unwrap_or_default(),
        leaving_links: read::flag(&asked, "leaving_links")?.unwrap_or(false),
    };
    refresh(&app, &info).await?;
    may_apply(&app, &key, &info).await?;
    if info.state == Doing::Ended {
        return applied_after(&app, &info, wanted).await;
    }
    let taken = backend::call::<Taken>(&*app.sandboxes, &info.id, &Ask::Apply(wanted)).await?;
    let status = if matches!(taken, Taken::Done { .. }) { StatusCode::OK } else { StatusCode::CONFLICT };
    Ok(json_response(status, &json!(taken)))
}

/// # Errors
/// This key may not write to the workspace that the changes are of.
async fn may_apply(app: &AppState, key: &Key, info: &Info) -> Result<(), Problem> {
    let run = run_of(info)?;
    let loaded = app.in_state(move |state| match sandbox::changes::load(state, &run) {
        Ok((manifest, _)) => Ok(manifest.workspace),
        Err(error) => Err(problem(&error)),
    });
    let workspace = loaded.await?;
    let refused = |what: String, why: &str, instead: &str| {
        let problem = Problem::new(StatusCode::FORBIDDEN, "serve/apply", what, why, instead);
        Err(problem.about("workspace"))
    };
    if app.is_empty_one(&workspace) {
        let why = "its workspace is a copy of an empty folder of the server, and no folder of the host";
        return refused("nothing can be applied".to_owned(), why, "read the files, or take them as an archive");
    }
    let writes = app.ceiling_of(key).await?.is_some_and(|ceiling| {
        ceiling.workspace.mode == WorkspaceMode::Rw
            && ceiling.workspace.path.as_ref().is_some_and(|most| workspace.starts_with(most))
    });
    if key.operator || writes {
        return Ok(());
    }
    let what = format!("this key may not write to {}", show_path(&workspace));
    let why = "changes of a copy wait for a person, and this key is no person's";
    refused(what, why, "`fumehood apply` on the server, or a key of `keys add --operator`")
}

/// Of a sandbox that has ended: recorded as the command line does.
async fn applied_after(app: &AppState, info: &Info, wanted: Apply) -> HttpResult {
    let run = run_of(info)?;
    let bare = |paths: Vec<PathText>| paths.into_iter().map(|path| path.0).collect::<Vec<PathBuf>>();
    let guarded = match (wanted.take_protected.is_empty(), wanted.leave_protected) {
        (false, _) => Guarded::Take(bare(wanted.take_protected)),
        (true, true) => Guarded::Leave,
        (true, false) => Guarded::Refuse,
    };
    let request =
        Wanted { paths: wanted.paths.map(bare), digest: wanted.digest, guarded, leaving_links: wanted.leaving_links };
    let log = app.log()?;
    let applied = app.in_state(move |state| {
        let now = jiff::Timestamp::now();
        let applied = sandbox::changes::apply(state, &run, &request, sandbox::protect::list(), now);
        let applied = applied.map_err(|error| problem(&error))?;
        if let Applied::Done { digest, paths, left, keys, refused: _ } = &applied {
            let told = json!({ "digest": digest, "paths": paths, "left": left, "keys": keys });
            log.append(run.as_str(), &Kind::workspace_applied(), &told).map_err(|error| Problem::of_audit(&error))?;
        }
        Ok(applied)
    });
    let applied = applied.await?;
    let status = if matches!(applied, Applied::Done { .. }) { StatusCode::OK } else { StatusCode::CONFLICT };
    Ok(json_response(status, &json!(applied)))
}

pub(super) async fn discard(State(app): State<Arc<AppState>>, Known(info): Known, request: Request) -> HttpResult {
    let asked = read::object(&body(request).await?)?;
    read::known(&asked, &["paths"])?;
    let paths: Vec<PathBuf> = paths(&asked, "paths")?.into_iter().flatten().map(|path| path.0).collect();
    if info.state != Doing::Ended {
        let what = "the changes of a sandbox that lives cannot be thrown away";
        let why = "they are what its programs see, and would be told again by the next look";
        let instead = "undo them inside, or end it first";
        return Err(Problem::new(StatusCode::CONFLICT, "serve/lives", what, why, instead).into());
    }
    let (run, log) = (run_of(&info)?, app.log()?);
    let gone = app.in_state(move |state| {
        let told = if paths.is_empty() {
            sandbox::changes::discard(state, &run).map_err(|error| problem(&error))?;
            json!({})
        } else {
            let gone = sandbox::changes::discard_at(state, &run, &paths).map_err(|error| problem(&error))?;
            json!({ "paths": gone.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>() })
        };
        log.append(run.as_str(), &Kind::workspace_discarded(), &told).map_err(|error| Problem::of_audit(&error))?;
        Ok(told)
    });
    let told: Json = gone.await?;
    Ok(json_response(StatusCode::OK, &json!({ "discarded": true, "paths": told.get("paths") })))
}
