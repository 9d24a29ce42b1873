//! A new sandbox becomes what a snapshot was: the agent inside is asked to remove and to unpack, before anybody else is heard. A
//! machine has begun with all of it.

use std::collections::BTreeMap;
use std::io::{BufWriter, Read as _, Result as IoResult, Write};
use std::path::{Path, PathBuf};

use agent::path_text;
use agent::words::{Code, Request, Skipped};
use policy::Plan;
use policy::value::{Tier, WorkspaceMode};
use sandbox::fault::{show_path, show_text};
use sandbox::snapshot::{Snapshot, SnapshotError, TMP};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::client::{Client, Error};
use crate::create::Layer;

/// Bytes that are sent at once, and how many of those wait.
const PIECE: usize = 64 * 1024 - 1;
const PIECES: usize = 4;

/// What a snapshot says of how another sandbox is made of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreSettings {
    /// Where its maker stood: relative paths in the layers start there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// The layers of its policy, the weakest first.
    #[serde(default)]
    pub layers: Vec<Layer>,
    /// What it was made from beside them; empty = nothing.
    #[serde(default)]
    pub template: String,
    /// It is ended when it was idle for so many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// Modules that a Python inside has imported, if one waits for code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imports: Option<Vec<String>>,
    /// The labels of the sandbox that it was made of: whoever made it knows by them whose it is. No other sandbox gets them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl RestoreSettings {
    /// What a snapshot was made with.
    ///
    /// # Errors
    /// [`SnapshotError::Damaged`].
    pub fn of(snapshot: &Snapshot) -> Result<Self, SnapshotError> {
        let kept = serde_json::from_value(snapshot.about().layers.clone());
        kept.map_err(|_odd| SnapshotError::Damaged { id: snapshot.id().to_owned() })
    }
}

/// Where what a snapshot holds belongs.
#[derive(Debug)]
pub(crate) struct Restore {
    snapshot: Snapshot,
    tier: Tier,
    /// The workspace inside, where it has a layer of its own.
    workspace: Option<Workspace>,
}

#[derive(Debug)]
enum Workspace {
    At(PathBuf),
    /// Below the home folder.
    Home,
}

impl Restore {
    /// What is to be done in a sandbox of this plan; in words why it cannot be.
    pub(crate) fn new(snapshot: Snapshot, plan: &Plan) -> Result<Self, String> {
        let about = snapshot.about();
        if about.tier != plan.tier.as_str() {
            let (was, is) = (&about.tier, plan.tier.as_str());
            return Err(format!("it is of the tier `{was}`, and the new sandbox would be of the tier `{is}`"));
        }
        if plan.tier == Tier::Vm && about.memory.is_none() {
            return Err("it has no memory of a machine".to_owned());
        }
        let workspace = &plan.policy.workspace;
        let place = match (workspace.mode, plan.tier) {
            (WorkspaceMode::Overlay | WorkspaceMode::Copy, Tier::Process) => Some(Workspace::Home),
            (WorkspaceMode::Overlay | WorkspaceMode::Copy, _) => {
                plan.policy.workspace_at().map(|at| Workspace::At(at.clone()))
            }
            (WorkspaceMode::None | WorkspaceMode::Ro | WorkspaceMode::Rw, _) => None,
        };
        if place.is_none() && about.changes > 0 {
            return Err(format!(
                "it has changes of a workspace, and the new sandbox would have no layer to hold them (workspace.mode = \
                 \"{}\")",
                workspace.mode.as_str()
            ));
        }
        Ok(Self { snapshot, tier: plan.tier, workspace: place })
    }

    /// Whether a machine has begun with all of it, its programs included.
    pub(crate) const fn goes_on(&self) -> bool {
        self.snapshot.about().memory.is_some()
    }

    /// Does it; in words why not.
    pub(crate) async fn run(self, client: Client, home: String) -> Result<(), String> {
        if self.goes_on() {
            return Ok(());
        }
        let Self { snapshot, tier, workspace } = self;
        let damaged = |error: SnapshotError| error.to_string();
        let tmp = if tier == Tier::Process { home.clone() } else { "/tmp".to_owned() };
        if let Some(file) = snapshot.file(TMP).map_err(damaged)? {
            let source = move |pipe: &mut Buffered| pour(file, pipe);
            unpack(&client, &tmp, source).await?;
        }
        let Some(workspace) = workspace else { return Ok(()) };
        let folder = match workspace {
            Workspace::At(path) => path,
            Workspace::Home => Path::new(&home).join("workspace"),
        };
        for path in snapshot.deletions().map_err(damaged)? {
            remove(&client, &folder.join(path)).await?;
        }
        let source = move |pipe: &mut Buffered| snapshot.write_tar(pipe).map_err(|error| error.to_string());
        unpack(&client, &path_text::of(&folder), source).await
    }
}

async fn remove(client: &Client, path: &Path) -> Result<(), String> {
    let done = client.call::<Option<()>>(&Request::Remove { path: path_text::of(path) }).await;
    match done {
        Ok(_) => Ok(()),
        // The host has it no more.
        Err(Error::Failed(failure)) if failure.code == Code::NotFound => Ok(()),
        Err(error) => Err(format!("{} cannot be removed: {error}", show_path(path))),
    }
}

/// Unpacks a stream that a thread makes.
async fn unpack(
    client: &Client,
    folder: &str,
    make: impl FnOnce(&mut Buffered) -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    let place = show_text(folder);
    let mut stream = client.open(&Request::Extract { path: folder.to_owned() }).map_err(|error| error.to_string())?;
    let (to, mut pieces): (Sender<Vec<u8>>, Receiver<Vec<u8>>) = channel(PIECES);
    let maker = tokio::task::spawn_blocking(move || {
        // Headers of 512 bytes go together.
        let mut pipe = BufWriter::with_capacity(PIECE, Pipe { to });
        make(&mut pipe)?;
        pipe.flush().map_err(|error| error.to_string())
    });
    let mut taken = Ok(());
    while let Some(piece) = pieces.recv().await {
        taken = stream.send(&piece).await;
        if taken.is_err() {
            break;
        }
    }
    // A maker that still has something ends by that.
    drop(pieces);
    let made = maker.await.map_err(|_lost| "the thread that read it is gone".to_owned())?;
    if taken.is_ok() {
        made?;
        // Where the request has ended, its result says why.
        drop(stream.eof());
    }
    let skipped: Skipped = stream.result().await.map_err(|error| format!("unpacking into {place}: {error}"))?;
    match skipped.skipped.first() {
        None => Ok(()),
        Some(first) => Err(format!("in {place} something could not be made again: {}", show_text(first))),
    }
}

fn pour(mut file: std::fs::File, pipe: &mut Buffered) -> Result<(), String> {
    let mut piece = vec![0; PIECE];
    loop {
        let count = file.read(&mut piece).map_err(|error| error.to_string())?;
        let Some(bytes) = piece.get(..count).filter(|bytes| !bytes.is_empty()) else { return Ok(()) };
        pipe.write_all(bytes).map_err(|error| error.to_string())?;
    }
}

type Buffered = BufWriter<Pipe>;

/// Where a thread writes what a task sends.
struct Pipe {
    to: Sender<Vec<u8>>,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> IoResult<usize> {
        let piece = bytes.get(..bytes.len().min(PIECE)).unwrap_or_default();
        let sent = self.to.blocking_send(piece.to_vec());
        sent.map_err(|_gone| std::io::Error::from(std::io::ErrorKind::BrokenPipe))?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> IoResult<()> {
        Ok(())
    }
}
