//! The sandboxes of a state folder, by their supervisors' sockets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::words::{Code, Failure};
use live::client::{Client, Error};
use live::words::{Ask, Info};
use live::{Home, LiveError};

use crate::answer::Problem;
use crate::backend::{BoxFuture, SandboxRequest, Sandboxes, failed};

/// Creates a sandbox, and waits until it is there; blocks.
pub type Create = Arc<dyn Fn(SandboxRequest) -> Result<Info, Vec<Problem>> + Send + Sync>;

/// Connections that stand, by id.
type Clients = Arc<Mutex<BTreeMap<String, Client>>>;

/// The sandboxes of a state folder.
pub struct Folder {
    home: Arc<Home>,
    create: Create,
    clients: Clients,
}

impl std::fmt::Debug for Folder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Folder").field("home", &self.home).finish_non_exhaustive()
    }
}

fn locked(clients: &Clients) -> MutexGuard<'_, BTreeMap<String, Client>> {
    clients.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Folder {
    /// Those that are found here, and made so.
    #[must_use]
    pub fn new(home: Home, create: Create) -> Self {
        Self { home: Arc::new(home), create, clients: Clients::default() }
    }

    async fn connected(&self, id: &str) -> Result<Client, Error> {
        if let Some(client) = locked(&self.clients).get(id) {
            return Ok(client.clone());
        }
        let client = Client::connect(&self.home.socket_of(id)).await?;
        // It ends with the sandbox, or with the connection: the next one who asks makes a new one then.
        let mut waiting = client.open(&Ask::Wait {})?;
        let (clients, name) = (Arc::clone(&self.clients), id.to_owned());
        locked(&self.clients).insert(id.to_owned(), client.clone());
        tokio::spawn(async move {
            let _ended = waiting.result::<serde_json::Value>().await;
            locked(&clients).remove(&name);
        });
        Ok(client)
    }
}

impl Sandboxes for Folder {
    fn list(&self, ended: bool) -> BoxFuture<'_, Result<Vec<Info>, Failure>> {
        Box::pin(async move { Ok(self.list_and_count(ended).await?.0) })
    }

    fn list_and_count(&self, ended: bool) -> BoxFuture<'_, Result<(Vec<Info>, usize), Failure>> {
        let home = Arc::clone(&self.home);
        Box::pin(async move {
            match tokio::task::spawn_blocking(move || home.list_and_count(ended)).await {
                Ok(listed) => listed.map_err(|error| failed(&error.to_string())),
                Err(_lost) => Err(failed("the state folder could not be read")),
            }
        })
    }

    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Info>, Failure>> {
        Box::pin(async move {
            // Names are for people: here only an id is one.
            if !live::record::is_id(id) {
                return Ok(None);
            }
            match self.home.find(id) {
                Ok(info) => Ok(Some(info)),
                Err(LiveError::Unknown { .. }) => Ok(None),
                Err(error) => Err(failed(&error.to_string())),
            }
        })
    }

    fn create(&self, wanted: SandboxRequest) -> BoxFuture<'_, Result<Info, Vec<Problem>>> {
        let create = Arc::clone(&self.create);
        Box::pin(async move {
            match tokio::task::spawn_blocking(move || create(wanted)).await {
                Ok(created) => created,
                Err(_lost) => Err(vec![failed("the sandbox could not be made").into()]),
            }
        })
    }

    fn connect<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Client, Failure>> {
        Box::pin(async move {
            self.connected(id).await.map_err(|error| match error {
                Error::Connect(why) => Failure::new(Code::Ended, format!("the sandbox has ended: {why}")),
                Error::Failed(_) | Error::Lost | Error::Protocol(_) | Error::TooMany(_) => error.failure(),
            })
        })
    }
}
