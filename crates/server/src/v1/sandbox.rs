//! Whose sandbox a request names: each route below `/v1/sandboxes/{id}` asks for one of these, and so for its key.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use live::words::{Info, State as Doing};

use super::Refused;
use crate::answer::Problem;
use crate::app::AppState;
use crate::keys::Key;

/// The sandbox that a request names by its id or name; it lives, and is one of the request's key.
#[derive(Debug)]
pub(super) struct Living(pub(super) Info);

/// As [`Living`], but one that ended lately will do.
#[derive(Debug)]
pub(super) struct Known(pub(super) Info);

async fn named(parts: &mut Parts, app: &Arc<AppState>) -> Result<(Key, String), Problem> {
    let lost = || crate::backend::failed("the request came past the keys");
    let key = parts.extensions.get::<Key>().cloned().ok_or_else(lost)?;
    let path = Path::<BTreeMap<String, String>>::from_request_parts(parts, app).await;
    let word = path.ok().and_then(|Path(mut path)| path.remove("id"));
    let word = word.ok_or_else(|| Problem::invalid("id", "the path names no sandbox"))?;
    let id = app.id_of(&key, &word).await?;
    Ok((key, id))
}

impl FromRequestParts<Arc<AppState>> for Living {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<AppState>) -> Result<Self, Refused> {
        let (key, id) = named(parts, app).await?;
        let info = app.own_or_ended(&key, &id).await?;
        if info.state == Doing::Ended { Err(Problem::ended(&info).into()) } else { Ok(Self(info)) }
    }
}

impl FromRequestParts<Arc<AppState>> for Known {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<AppState>) -> Result<Self, Refused> {
        let (key, id) = named(parts, app).await?;
        Ok(Self(app.own_or_ended(&key, &id).await?))
    }
}
