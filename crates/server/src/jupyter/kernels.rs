//! `/api/kernels` and `/api/kernelspecs`: kernels by the words of Jupyter's REST interface.

use std::sync::Arc;

use agent::words::{Code, Failure};
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use live::kernel::words::{Context, Contexts, KernelAsk, Languages, ListContexts, NewContext};
use live::words::{Info, State as Doing};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::{HttpResult, Refused};
use crate::answer::{Problem, empty, json_response};
use crate::app::{AppState, MAX_LIFE_MS, Order};
use crate::backend::call;
use crate::keys::Key;
use crate::templates::INTERPRETER;
use crate::{json, request};

/// What a sandbox that is one kernel is called: this, and the kernel's id.
const NAME: &str = "kernel-";
/// A sandbox that is one kernel ends when nobody speaks with it for so long.
const IDLE_MS: u64 = 60 * 60 * 1000;
/// The kernel of who names none.
const DEFAULT: &str = "python3";

/// What the path of a request names.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PathParams {
    /// The sandbox; without, each kernel has its own.
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    kernel: String,
    #[serde(default)]
    name: String,
}

/// A kernel that is there.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    /// Its id for callers.
    id: String,
    /// Its sandbox.
    pub(super) sandbox: String,
    /// Whether the sandbox is it alone.
    alone: bool,
    pub(super) context: Context,
}

/// 32 hex digits as Jupyter writes an id.
fn uuid(hex: &str) -> String {
    let parts = [hex.get(..8), hex.get(8..12), hex.get(12..16), hex.get(16..20), hex.get(20..)];
    parts.map(Option::unwrap_or_default).join("-")
}

fn no_such(id: &str) -> Problem {
    let what = format!("Kernel does not exist: {}", policy::diagnostic::quote(id));
    let why = "no kernel of this key has this id";
    Problem::new(StatusCode::NOT_FOUND, "serve/no-such-kernel", what, why, "`GET /api/kernels` lists them")
}

/// Jupyter's name of the kernel for a language, and back.
fn spec_of(language: &str) -> &str {
    if language == "python" { DEFAULT } else { language }
}

fn language_of(spec: &str) -> &str {
    if spec == DEFAULT { "python" } else { spec }
}

impl Kernel {
    fn model(&self) -> Json {
        let Context { busy, dead, connections, last_ms, language, .. } = &self.context;
        let last = jiff::Timestamp::from_millisecond(*last_ms).unwrap_or_default();
        let state = match (dead, busy) {
            (true, _) => "dead",
            (false, true) => "busy",
            (false, false) => "idle",
        };
        json!({
            "id": self.id, "name": spec_of(language), "last_activity": format!("{last:.6}"), "execution_state": state,
            "connections": connections,
        })
    }
}

/// Asks the contexts of a sandbox.
async fn ask<T: serde::de::DeserializeOwned>(app: &AppState, id: &str, ask: &KernelAsk) -> Result<T, Failure> {
    call(&*app.sandboxes, id, ask).await
}

/// The sandbox that a path names by its id or name.
async fn sandbox(app: &AppState, key: &Key, word: &str) -> Result<Info, Problem> {
    let info = app.own(key, &app.id_of(key, word).await?).await?;
    if info.state == Doing::Paused {
        return Err(Failure::new(Code::Paused, "the sandbox is paused".to_owned()).into());
    }
    Ok(info)
}

/// All kernels that a path can mean.
async fn all(app: &AppState, key: &Key, id: Option<&str>) -> Result<Vec<Kernel>, Problem> {
    if let Some(id) = id {
        let info = sandbox(app, key, id).await?;
        let found: Contexts = ask(app, &info.id, &KernelAsk::Contexts(ListContexts::default())).await?;
        let kernel =
            |context: Context| Kernel { id: uuid(&context.id), sandbox: info.id.clone(), alone: false, context };
        return Ok(found.contexts.into_iter().map(kernel).collect());
    }
    let mut kernels = Vec::new();
    for info in app.list(key, false).await? {
        kernels.extend(alone(app, &info).await);
    }
    Ok(kernels)
}

/// The kernel that a sandbox is alone; none where it is none, or is ending.
async fn alone(app: &AppState, info: &Info) -> Option<Kernel> {
    let id = info.name.as_deref()?.strip_prefix(NAME)?.to_owned();
    if info.state != Doing::Running {
        return None;
    }
    let found: Contexts = ask(app, &info.id, &KernelAsk::Contexts(ListContexts::default())).await.ok()?;
    let context = found.contexts.into_iter().next()?;
    Some(Kernel { id, sandbox: info.id.clone(), alone: true, context })
}

/// The kernel that a path names.
pub(super) async fn find(app: &AppState, key: &Key, place: &PathParams) -> Result<Kernel, Problem> {
    if place.id.is_some() {
        let found = all(app, key, place.id.as_deref()).await?.into_iter().find(|kernel| kernel.id == place.kernel);
        return found.ok_or_else(|| no_such(&place.kernel));
    }
    let name = format!("{NAME}{}", place.kernel);
    for info in app.list(key, false).await? {
        if info.name.as_deref() == Some(&name)
            && let Some(kernel) = alone(app, &info).await
        {
            return Ok(kernel);
        }
    }
    Err(no_such(&place.kernel))
}

pub(super) async fn list(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(place): Path<PathParams>,
) -> HttpResult {
    let kernels = all(&app, &key, place.id.as_deref()).await?;
    Ok(json_response(StatusCode::OK, &kernels.iter().map(Kernel::model).collect()))
}

pub(super) async fn one(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(place): Path<PathParams>,
) -> HttpResult {
    Ok(json_response(StatusCode::OK, &find(&app, &key, &place).await?.model()))
}

/// What a caller wants to start.
fn wanted(asked: &Map<String, Json>) -> Result<NewContext, Problem> {
    if let Some(unknown) = asked.keys().find(|field| !["name", "env", "path"].contains(&field.as_str())) {
        let what = format!("{} is not known here", policy::diagnostic::quote(unknown));
        return Err(Problem::invalid(unknown, &what));
    }
    let cwd = match json::text(asked, "path")? {
        None | Some("") => "~".to_owned(),
        Some(path) if path.starts_with(['/', '~']) => path.to_owned(),
        Some(path) => format!("~/{path}"),
    };
    let language = json::text(asked, "name")?.filter(|name| !name.is_empty()).unwrap_or(DEFAULT);
    Ok(NewContext {
        language: Some(language_of(language).to_owned()),
        cwd: Some(cwd),
        env: json::variables(asked, "env")?,
    })
}

pub(super) async fn create(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(place): Path<PathParams>,
    request: Request,
) -> HttpResult {
    let path = request.uri().path().to_owned();
    let asked = json::object(&request::body(request).await?)?;
    let new = wanted(&asked)?;
    let kernel = match &place.id {
        Some(id) => {
            let info = sandbox(&app, &key, id).await?;
            let context = start(&app, &info, new).await?;
            Kernel { id: uuid(&context.id), sandbox: info.id, alone: false, context }
        }
        None => with_sandbox(&app, &key, new).await?,
    };
    let mut response = json_response(StatusCode::CREATED, &kernel.model());
    if let Ok(value) = HeaderValue::from_str(&format!("{path}/{}", kernel.id)) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    Ok(response)
}

/// Starts a kernel in a sandbox.
async fn start(app: &AppState, info: &Info, mut new: NewContext) -> Result<Context, Problem> {
    let home = info.agent.as_ref().map_or("/home/user", |agent| &agent.home);
    new.cwd = new.cwd.map(|cwd| cwd.strip_prefix('~').map_or(cwd.clone(), |rest| format!("{home}{rest}")));
    Ok(ask(app, &info.id, &KernelAsk::ContextCreate(new)).await?)
}

/// A sandbox for one kernel.
async fn with_sandbox(app: &AppState, key: &Key, new: NewContext) -> Result<Kernel, Refused> {
    let mut random = [0_u8; 16];
    if !sys::random::fill(&mut random) {
        return Err(crate::backend::failed("the kernel has no random bytes").into());
    }
    let id = uuid(&policy::json::hex(&random));
    let made = app.templates.find(INTERPRETER)?;
    let order = Order {
        template: INTERPRETER.to_owned(),
        layers: made.layers,
        shown: made.shown,
        name: Some(format!("{NAME}{id}")),
        life_ms: Some(app.life(key, MAX_LIFE_MS).await?),
        idle_ms: Some(IDLE_MS),
        ..Order::default()
    };
    let info = app.create(key, order, None).await.map_err(Problem::all)?;
    match start(app, &info, new).await {
        Ok(context) => Ok(Kernel { id, sandbox: info.id, alone: true, context }),
        Err(problem) => {
            // Nobody could find it again; where it cannot be ended, `idle` ends it.
            drop(app.kill(&info.id).await);
            Err(problem.into())
        }
    }
}

pub(super) async fn remove(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(place): Path<PathParams>,
) -> HttpResult {
    let kernel = find(&app, &key, &place).await?;
    if kernel.alone {
        app.kill(&kernel.sandbox).await?;
    } else {
        ask::<Json>(&app, &kernel.sandbox, &KernelAsk::ContextRemove { id: kernel.context.id }).await?;
    }
    Ok(empty(StatusCode::NO_CONTENT))
}

pub(super) async fn interrupt(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(place): Path<PathParams>,
) -> HttpResult {
    let kernel = find(&app, &key, &place).await?;
    ask::<Json>(&app, &kernel.sandbox, &KernelAsk::ContextInterrupt { id: kernel.context.id }).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

pub(super) async fn restart(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(place): Path<PathParams>,
) -> HttpResult {
    let kernel = find(&app, &key, &place).await?;
    let id = kernel.context.id.clone();
    let context = ask(&app, &kernel.sandbox, &KernelAsk::ContextRestart { id }).await?;
    Ok(json_response(StatusCode::OK, &Kernel { context, ..kernel }.model()))
}

/// The languages that a path can start.
async fn languages(app: &AppState, key: &Key, place: &PathParams) -> Result<Vec<String>, Problem> {
    match &place.id {
        Some(id) => {
            let info = sandbox(app, key, id).await?;
            let found: Languages = ask(app, &info.id, &KernelAsk::Languages {}).await?;
            Ok(found.languages)
        }
        None => app.templates.languages(INTERPRETER),
    }
}

fn shown(language: &str) -> Json {
    let display = match language {
        "python" => "Python 3",
        "bash" => "Bash",
        "javascript" => "JavaScript",
        "typescript" => "TypeScript",
        other => other,
    };
    let spec = json!({
        "argv": [], "env": {}, "display_name": display, "language": language, "interrupt_mode": "signal", "metadata": {},
    });
    json!({ "name": spec_of(language), "spec": spec, "resources": {} })
}

pub(super) async fn specs(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(place): Path<PathParams>,
) -> HttpResult {
    let found = languages(&app, &key, &place).await?;
    let specs: Map<String, Json> = found.iter().map(|name| (spec_of(name).to_owned(), shown(name))).collect();
    Ok(json_response(StatusCode::OK, &json!({ "default": DEFAULT, "kernelspecs": specs })))
}

pub(super) async fn spec(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(place): Path<PathParams>,
) -> HttpResult {
    let found = languages(&app, &key, &place).await?;
    let language = language_of(&place.name);
    if !found.iter().any(|known| known == language) {
        let what = format!("Kernel spec {} not found", policy::diagnostic::quote(&place.name));
        let why = "the template has no such kernel";
        let problem = Problem::new(StatusCode::NOT_FOUND, "serve/no-such-kernel", what, why, "`GET /api/kernelspecs`");
        return Err(problem.into());
    }
    Ok(json_response(StatusCode::OK, &shown(language)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_are_those_of_jupyter() {
        assert_eq!(uuid("0123456789abcdef0123456789abcdef"), "01234567-89ab-cdef-0123-456789abcdef");
        assert_eq!((spec_of("python"), language_of("python3"), language_of("bash")), ("python3", "python", "bash"));
        let context = Context { language: "python".to_owned(), busy: true, last_ms: 1_500, ..Context::default() };
        let kernel = Kernel { id: "k".to_owned(), sandbox: "s".to_owned(), alone: true, context };
        let expected = json!({
            "id": "k", "name": "python3", "last_activity": "1970-01-01T00:00:01.500000Z", "execution_state": "busy",
            "connections": 0,
        });
        assert_eq!(kernel.model(), expected);
    }

    #[test]
    fn what_is_wanted_is_read_strictly() {
        let of = |asked: Json| wanted(asked.as_object().unwrap());
        let plain = of(json!({})).unwrap();
        assert_eq!((plain.language.as_deref(), plain.cwd.as_deref()), (Some("python"), Some("~")));
        let full = of(json!({ "name": "bash", "path": "a/b", "env": { "KERNEL_USERNAME": "u" } })).unwrap();
        assert_eq!((full.language.as_deref(), full.cwd.as_deref()), (Some("bash"), Some("~/a/b")));
        assert_eq!(full.env["KERNEL_USERNAME"], "u");
        assert_eq!(of(json!({ "image": "x" })).unwrap_err().status, StatusCode::BAD_REQUEST);
    }
}
