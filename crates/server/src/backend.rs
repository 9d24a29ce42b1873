//! What the server stands on: the sandboxes of a state folder, and connections to their supervisors.

use std::pin::Pin;

use agent::words::{Code, Failure};
use live::client::{Client, Error, Stream};
use live::words::Info;
use sandbox::PolicyLayer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::answer::Problem;

/// Something that is waited for.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A sandbox to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Whose it is: what is kept ready for one is given to nobody else.
    pub owner: String,
    /// Its policy, the weakest layer first.
    pub layers: Vec<PolicyLayer>,
    /// Its name.
    pub name: Option<String>,
    /// Labels, ours included.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Its life, milliseconds; without: for as long as the policy's `limits.wall`.
    pub timeout_ms: Option<u64>,
    /// It ends when nothing was asked of it for so many milliseconds.
    pub idle_ms: Option<u64>,
    /// What it is made from; empty = nothing.
    pub template: String,
    /// Modules that a Python inside has imported, if one is to wait for code.
    pub imports: Option<Vec<String>>,
    /// The id of the snapshot that it begins as.
    pub from: Option<String>,
}

/// The live sandboxes of a state folder.
pub trait Sandboxes: Send + Sync + 'static {
    /// All that live, and those that ended lately if `ended`.
    ///
    /// # Errors
    /// The state folder cannot be read.
    fn list(&self, ended: bool) -> BoxFuture<'_, Result<Vec<Info>, Failure>>;

    /// The one with this id, whether it lives or ended lately.
    ///
    /// # Errors
    /// The state folder cannot be read.
    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Info>, Failure>>;

    /// Creates one.
    ///
    /// # Errors
    /// A refusal, with every reason, or a failure of ours.
    fn create(&self, wanted: Wanted) -> BoxFuture<'_, Result<Info, Vec<Problem>>>;

    /// A connection to the supervisor of one, on which any number of requests go.
    ///
    /// # Errors
    /// `Ended` where no supervisor answers.
    fn connect<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Client, Failure>>;
}

/// Calls of tools that wait for a person: the store of `fumehood approvals`, and its rules. All of it blocks.
pub trait Approvals: Send + Sync + 'static {
    /// Those that wait; with `all` also those that were answered lately.
    ///
    /// # Errors
    /// The store cannot be used.
    fn list(&self, all: bool) -> Result<Vec<Json>, Problem>;

    /// Answers one, recorded before it counts; gives it as it is then.
    ///
    /// # Errors
    /// There is none, somebody or the time was first (409), it cannot be remembered so, or the store cannot be used.
    fn answer(&self, id: &str, said: &Said) -> Result<Json, Problem>;
}

/// An answer to a call that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Who says it, for the record.
    pub by: String,
    /// Yes or no.
    pub decision: Decision,
}

/// Yes or no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Once, and also what is remembered.
    Approve(Option<Remembered>),
    /// No, and what the agent is told.
    Deny(String),
}

/// What is approved beside the one call: as the flags of `fumehood approvals approve`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// `args`, `tool` or `session`.
    pub what: String,
    /// Arguments that may be anything.
    pub any: Vec<String>,
    /// For so many milliseconds.
    pub millis: u64,
}

/// Asks, and waits for the result.
///
/// # Errors
/// The request failed.
pub async fn call<T: DeserializeOwned>(
    sandboxes: &dyn Sandboxes,
    id: &str,
    ask: &(impl Serialize + Sync),
) -> Result<T, Failure> {
    let client = sandboxes.connect(id).await?;
    client.call(ask).await.map_err(Error::failure)
}

/// Asks.
///
/// # Errors
/// No supervisor answers.
pub async fn open(sandboxes: &dyn Sandboxes, id: &str, ask: &(impl Serialize + Sync)) -> Result<Stream, Failure> {
    sandboxes.connect(id).await?.open(ask).map_err(Error::failure)
}

/// The reply to a request, as what it is.
///
/// # Errors
/// The request failed.
pub async fn reply<T: DeserializeOwned>(stream: &mut Stream) -> Result<T, Failure> {
    read(stream.reply().await.map_err(Error::failure)?)
}

/// A value as what it is.
///
/// # Errors
/// It is something else.
pub fn read<T: DeserializeOwned>(value: Json) -> Result<T, Failure> {
    serde_json::from_value(value).map_err(|error| failed(&format!("the supervisor's answer cannot be read: {error}")))
}

/// Our own failure.
#[must_use]
pub fn failed(why: &str) -> Failure {
    Failure { code: Code::Failed, message: why.to_owned() }
}

/// The supervisor is gone.
#[must_use]
pub fn gone() -> Failure {
    Failure { code: Code::Ended, message: "the sandbox has ended".to_owned() }
}
