//! What the server stands on: the sandboxes of a state folder, and connections to their supervisors.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;

use agent::words::{Code, Failure};
use live::client::{Client, Error, Stream};
use live::words::Info;
use sandbox::{Hidden, PolicyLayer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::answer::Problem;

/// Something that is waited for.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A sandbox to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxRequest {
    /// Whose it is: what is kept ready for one is given to nobody else.
    pub owner: String,
    /// Its policy, the weakest layer first.
    pub layers: Vec<PolicyLayer>,
    /// A ceiling judged its paths of the host, which have no links: one that is a link when it starts is refused.
    pub no_links: bool,
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
    /// What it begins with, in the place of what its template says.
    pub begin: Option<live::Begin>,
    /// Modules that a Python inside has imported, if one is to wait for code.
    pub imports: Option<Vec<String>>,
    /// The id of the snapshot that it begins as.
    pub from: Option<String>,
    /// Values of secrets that its layers name, by the variable that each is found by.
    pub given: BTreeMap<String, Hidden>,
}

/// The live sandboxes of a state folder.
pub trait Sandboxes: Send + Sync + 'static {
    /// All that live, and those that ended lately if `ended`.
    ///
    /// # Errors
    /// The state folder cannot be read.
    fn list(&self, ended: bool) -> BoxFuture<'_, Result<Vec<Info>, Failure>>;

    /// The same, and how many more there may be: whose they are, nobody can read.
    ///
    /// # Errors
    /// As [`Sandboxes::list`].
    fn list_and_count(&self, ended: bool) -> BoxFuture<'_, Result<(Vec<Info>, usize), Failure>> {
        Box::pin(async move { Ok((self.list(ended).await?, 0)) })
    }

    /// The one with this id, whether it lives or ended lately.
    ///
    /// # Errors
    /// The state folder cannot be read.
    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Info>, Failure>>;

    /// Creates one.
    ///
    /// # Errors
    /// A refusal, with every reason, or a failure of ours.
    fn create(&self, wanted: SandboxRequest) -> BoxFuture<'_, Result<Info, Vec<Problem>>>;

    /// A connection to the supervisor of one, on which any number of requests go.
    ///
    /// # Errors
    /// `Ended` where no supervisor answers.
    fn connect<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Client, Failure>>;
}

/// An image of the caller's store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// `sha256:HEX`
    pub digest: String,
    /// What it is called.
    pub names: Vec<String>,
    /// Bytes of its files.
    pub bytes: u64,
    /// Digests of its layers.
    pub layers: Vec<String>,
    /// Who it says runs in it.
    pub user: Option<String>,
    /// `NAME=VALUE`
    pub env: Vec<String>,
    /// Where it begins.
    pub workdir: Option<String>,
    /// What always runs.
    pub entrypoint: Vec<String>,
    /// Its arguments, or what runs.
    pub cmd: Vec<String>,
    /// What is said of it.
    pub labels: BTreeMap<String, String>,
    /// Names and numbers of its `passwd`.
    pub people: Vec<(String, u32)>,
    /// Where its tree lies.
    pub tree: PathBuf,
}

/// An image to build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipe {
    /// A tar archive with all that is copied, which nobody has judged.
    pub archive: PathBuf,
    /// Its name.
    pub name: String,
    /// The Dockerfile, in the archive; `Dockerfile` without.
    pub file: Option<String>,
    /// Values of `ARG`.
    pub args: BTreeMap<String, String>,
    /// The stage that is wanted; otherwise the last one.
    pub target: Option<String>,
    /// No step is taken from an earlier build.
    pub anew: bool,
}

/// The images of the caller's store. All of it blocks.
pub trait Images: Send + Sync + 'static {
    /// All of them.
    ///
    /// # Errors
    /// The store cannot be read.
    fn list(&self) -> Result<Vec<Image>, Problem>;

    /// The one that a name, a digest or the first twelve digits of one or more mean.
    ///
    /// # Errors
    /// The store cannot be read.
    fn find(&self, reference: &str) -> Result<Option<Image>, Problem>;

    /// Removes a name, and the image with its last one; a digest goes with all its names.
    ///
    /// # Errors
    /// It is in use, or the store cannot be changed.
    fn remove(&self, reference: &str) -> Result<(), Problem>;

    /// Whether a name is among those that these patterns mean, by Docker's rules of names. A pattern that is none means nothing.
    fn is_among(&self, name: &str, patterns: &[String]) -> bool;

    /// Brings one from a registry.
    ///
    /// # Errors
    /// Why it is not there.
    fn pull(&self, reference: &str) -> Result<Image, Problem>;

    /// Builds one; `tell` hears what is done.
    ///
    /// # Errors
    /// Why it was not built.
    fn build(&self, recipe: &Recipe, tell: &mut dyn FnMut(&str)) -> Result<Image, Problem>;
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
    fn answer(&self, id: &str, said: &ApprovalAnswer) -> Result<Json, Problem>;
}

/// An answer to a call that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalAnswer {
    /// Who says it, for the record.
    pub by: String,
    /// Yes or no.
    pub decision: Decision,
}

/// Yes or no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Once, and also what is remembered.
    Approve(Option<RememberedApproval>),
    /// No, and what the agent is told.
    Deny(String),
}

/// What is approved beside the one call: as the flags of `fumehood approvals approve`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RememberedApproval {
    /// `args`, `tool` or `session`.
    pub what: String,
    /// Arguments that may be anything.
    pub any: Vec<String>,
    /// For so many milliseconds; where nothing is said, as the flags have it.
    pub millis: Option<u64>,
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
    Failure::new(Code::Failed, why.to_owned())
}

/// The supervisor is gone.
#[must_use]
pub fn gone() -> Failure {
    Failure::new(Code::Ended, "the sandbox has ended".to_owned())
}
