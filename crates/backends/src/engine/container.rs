//! One container of an engine: what is asked for, what the engine says that it is, and its removal.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::host::engine::{Api, Body, Failure, Method};
use crate::host::{docker, podman};
use crate::native::start::Outer;

/// Names the run that a container is for.
pub(super) const LABEL: &str = "fumehood.run";

/// What an engine is asked for.
pub(super) trait Order {
    /// Which engine.
    fn api(&self) -> Api;

    /// Where it is asked.
    fn creation(&self) -> String {
        "/containers/create".to_owned()
    }

    /// In its words.
    fn document(&self) -> Value;

    /// What it must say of the container afterwards, by the place where it says it.
    fn expected(&self) -> Vec<(&'static str, Value)>;
}

/// Which namespaces are the container's own.
#[expect(clippy::struct_excessive_bools, reason = "a set of kinds, each asked for or not")]
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnNamespaces {
    pub(super) user: bool,
    pub(super) pid: bool,
    pub(super) net: bool,
    pub(super) ipc: bool,
    pub(super) uts: bool,
}

/// Everything that the engine says otherwise of the container than it was asked for.
pub(super) fn differs(order: &dyn Order, said: &Value) -> Vec<String> {
    let engine = order.api().engine;
    let other = |(at, wanted): (&'static str, Value)| {
        let found = said.pointer(at);
        let same = match (found, &wanted) {
            // No list and an empty one are one.
            (None | Some(Value::Null), Value::Array(list)) => list.is_empty(),
            (Some(Value::Array(found)), Value::Array(wanted)) => same_members(found, wanted),
            (found, wanted) => found == Some(wanted),
        };
        (!same).then(|| {
            let found = found.map_or_else(|| "nothing".to_owned(), Value::to_string);
            format!("{engine} says of the container that `{at}` is {found}, and {wanted} was asked for")
        })
    };
    order.expected().into_iter().filter_map(other).collect()
}

/// In whatever order.
fn same_members(found: &[Value], wanted: &[Value]) -> bool {
    let all = |one: &[Value], other: &[Value]| one.iter().all(|member| other.contains(member));
    found.len() == wanted.len() && all(found, wanted) && all(wanted, found)
}

pub(super) fn name(run: &str) -> String {
    format!("fumehood-{run}")
}

/// A container that exists. Dropping it removes it, with whatever still runs in it.
#[derive(Debug)]
pub(super) struct Container {
    api: Api,
    id: String,
}

impl Outer for Container {}

impl Drop for Container {
    fn drop(&mut self) {
        // Whoever drops it has no reader: what is left carries the run's label, and `gc` takes it.
        drop(self.remove());
    }
}

impl Container {
    /// Makes it, without starting it.
    ///
    /// # Errors
    /// The engine refuses; in words.
    pub(super) fn make(wanted: &dyn Order) -> Result<Self, String> {
        let api = wanted.api();
        let document = wanted.document();
        let made = api.ask(Method::Post, &wanted.creation(), Body::Document(&document));
        let made = made.map_err(|why| why.to_string())?;
        let id = made.get("Id").and_then(Value::as_str).filter(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let id = id.ok_or_else(|| format!("{} made a container and says no name of it", api.engine))?;
        Ok(Self { api, id: id.to_owned() })
    }

    /// Starts its first process; that one's number.
    ///
    /// # Errors
    /// The engine refuses, or what it says of the container is not what was wanted; in words.
    pub(super) fn start(&self, wanted: &dyn Order) -> Result<i32, Vec<String>> {
        let told = |failure: Failure| vec![failure.to_string()];
        let path = |what: &str| format!("/containers/{}/{what}", self.id);
        self.api.tell(Method::Post, &path("start"), Body::None).map_err(told)?;
        let said = self.api.ask(Method::Get, &path("json"), Body::None).map_err(told)?;
        let differs = differs(wanted, &said);
        if !differs.is_empty() {
            return Err(differs);
        }
        let pid = said.pointer("/State/Pid").and_then(Value::as_i64).and_then(|pid| i32::try_from(pid).ok());
        pid.filter(|pid| *pid > 1).ok_or_else(|| vec![format!("{} says no process of the container", self.api.engine)])
    }

    fn remove(&self) -> Result<(), Failure> {
        remove(&self.api, &self.id)
    }
}

/// The engine refuses to remove a container whose last process ends just then: it asks again, for as long as this.
const REMOVED: Duration = Duration::from_secs(2);

#[expect(clippy::disallowed_methods, reason = "the engine has no descriptor that says when")]
fn remove(api: &Api, id: &str) -> Result<(), Failure> {
    let until = Instant::now() + REMOVED;
    loop {
        match api.tell(Method::Delete, &format!("/containers/{id}?force=true&timeout=0&v=true"), Body::None) {
            Ok(()) | Err(Failure::Unknown) => return Ok(()),
            Err(Failure::Other(_)) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Err(failure) => return Err(failure),
        }
    }
}

/// Removes the containers of podman's that carry a run's label, whatever runs in them; how many.
///
/// # Errors
/// One is still there; in words.
pub(super) fn end_podmans(run: &str) -> Result<usize, String> {
    end_labelled(run, || Ok(podman::API))
}

/// The same of Docker's.
///
/// # Errors
/// One is still there; in words.
pub(super) fn end_dockers(run: &str) -> Result<usize, String> {
    end_labelled(run, docker::api)
}

fn end_labelled(run: &str, api: impl Fn() -> Result<Api, Failure>) -> Result<usize, String> {
    // Only root has such runs, and nobody else may ask root's service.
    if sys::caller::euid() != 0 {
        return Ok(0);
    }
    // A name that is no run's would be a filter of another kind.
    if !run.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Ok(0);
    }
    let filter = format!("%7B%22label%22%3A%5B%22{LABEL}%3D{run}%22%5D%7D");
    let path = format!("/containers/json?all=true&filters={filter}");
    let (api, all) = match api().and_then(|api| Ok((api, api.ask(Method::Get, &path, Body::None)?))) {
        Ok(all) => all,
        // Where nobody serves there is nobody to ask, and most runs never had a container; what another than root serves made none.
        Err(Failure::Nobody(_) | Failure::Rootless(_) | Failure::Elsewhere(_)) => return Ok(0),
        Err(failure) => return Err(failure.to_string()),
    };
    let ids: Vec<&str> = all.as_array().into_iter().flatten().filter_map(|one| one.get("Id")?.as_str()).collect();
    ids.iter().try_for_each(|id| remove(&api, id)).map_err(|failure| failure.to_string())?;
    Ok(ids.len())
}
