//! A container's main program from its start to its end, whoever of the servers started it, and what is left of it then.

use std::sync::Arc;
use std::time::Duration;

use agent::words::{Code, Failure};
use axum::http::StatusCode;
use live::client::{Incoming, Stream};
use live::words::{Ask, Exec, Info, Programs, Report, Running, State as Doing, Which};
use serde_json::Value as Json;

use super::container::{Container, Finished, MAIN, Phase};
use super::create::LABEL;
use super::log::Lane;
use super::shown::DEAD;
use super::{Docker, DockerError, locked, told};
use crate::{backend, clock};

/// The files of a container that has ended can be read for so long, if nobody removes it before; its sandbox stands still.
const KEPT: Duration = Duration::from_secs(600);
const KILL: u8 = 9;

fn main() -> Which {
    Which::Tag(MAIN.to_owned())
}

/// What did not begin, kept and told. Docker's command line takes its exit code (127, 126) from these words.
fn not_begun(container: &Container, failure: Failure) -> DockerError {
    let words = [(Code::NotFound, "executable file not found: "), (Code::NotExecutable, "permission denied: ")];
    let words = words.iter().find(|(code, _)| *code == failure.code).map_or("", |(_, words)| words);
    let status = if failure.code.is_away() { StatusCode::CONFLICT } else { StatusCode::BAD_REQUEST };
    let why = match container.finished(Finished::not_begun(&failure), false) {
        Ok(()) => failure.message,
        Err(error) => format!("{failure}; and that could not be kept: {error}"),
    };
    told(status, format!("failed to start the container's program: {words}{why}"))
}

impl Docker {
    /// Starts the main program; false where it runs already. A container that removes itself is gone after a start that failed, as
    /// with Docker: clients wait for that.
    pub(super) async fn start(self: &Arc<Self>, container: &Arc<Container>) -> Result<bool, DockerError> {
        let began = self.begin(container).await;
        if began.is_err()
            && container.phase() == Phase::Created
            && container.record().auto_remove
            && self.remove(container).await.is_err()
        {
            // Its sandbox ends by its own time; nobody is to wait for it.
            self.forget(container);
        }
        began
    }

    async fn begin(self: &Arc<Self>, container: &Arc<Container>) -> Result<bool, DockerError> {
        let _turn = container.turn.lock().await;
        match container.phase() {
            Phase::Running => return Ok(false),
            Phase::Created => {}
            Phase::Exited | Phase::Removed => {
                let message = "fumehood's containers are started once: this one has ended; create another";
                return Err(told(StatusCode::CONFLICT, message));
            }
        }
        let record = container.record();
        if self.status(container, &record).await == DEAD {
            let message = format!(
                "container {} is dead: its sandbox has ended before it was started (by its time, by somebody, or with the host); \
                 remove it, and create another",
                record.id
            );
            return Err(told(StatusCode::CONFLICT, message));
        }
        let takes_input = record.program.stdin || record.program.tty.is_some();
        let exec = Exec { program: record.program, timeout_ms: None, detach: true, tag: Some(MAIN.to_owned()) };
        self.app.meters.exec();
        let opened = match backend::open(&*self.app.sandboxes, &record.sandbox, &Ask::Exec(exec)).await {
            Ok(mut stream) => backend::reply::<Running>(&mut stream).await.map(|_running| stream),
            Err(failure) => Err(failure),
        };
        let stream = opened.map_err(|failure| not_begun(container, failure))?;
        let begun = container.begun(takes_input.then(|| stream.sender()));
        tokio::spawn(Arc::clone(self).keep(Arc::clone(container), stream));
        begun.map_err(|error| {
            told(StatusCode::INTERNAL_SERVER_ERROR, format!("that it began cannot be kept: {error}"))
        })?;
        Ok(true)
    }

    /// Keeps what it prints, to its end.
    async fn keep(self: Arc<Self>, container: Arc<Container>, stream: Stream) {
        let ended = print(&container, stream).await;
        self.ended(container, ended).await;
    }

    async fn ended(self: Arc<Self>, container: Arc<Container>, ended: Result<Json, Failure>) {
        let report = ended.and_then(backend::read::<Report>);
        let finished = match &report {
            Ok(report) => Finished::of(report),
            Err(failure) => self.lost(&container, failure).await,
        };
        if container.finished(finished, true).is_err() {
            // Until this server ends, it is known all the same.
        }
        self.settle(container).await;
    }

    /// How it ended, where nobody reported it.
    async fn lost(&self, container: &Container, failure: &Failure) -> Finished {
        let info = self.app.sandboxes.find(&container.record().sandbox).await.ok().flatten();
        match info {
            Some(info) if info.state == Doing::Ended => Finished::with_sandbox(info.reason, info.message.as_deref()),
            None if failure.code == Code::Ended => Finished::with_sandbox(None, None),
            Some(_) | None => Finished::unheard(),
        }
    }

    /// Nothing of it runs any more. Its sandbox stands still for as long as its files may be asked for.
    async fn settle(self: &Arc<Self>, container: Arc<Container>) {
        let record = container.record();
        if record.auto_remove {
            if self.remove(&container).await.is_err() {
                // Its sandbox ends by its own time.
            }
            return;
        }
        let turn = container.turn.lock().await;
        self.kill_all(&record.sandbox).await;
        let frozen = backend::call::<Info>(&*self.app.sandboxes, &record.sandbox, &Ask::Pause {}).await.is_ok();
        drop(turn);
        let since = record.finished.map_or(0, |finished| clock::now_ms().saturating_sub(finished.at_ms));
        // Where it cannot stand still, it ends: nothing of a container that has exited may go on.
        let left = if frozen {
            KEPT.saturating_sub(Duration::from_millis(u64::try_from(since).unwrap_or(0)))
        } else {
            Duration::ZERO
        };
        let docker = Arc::clone(self);
        tokio::spawn(async move {
            let mut phase = container.phase.subscribe();
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                _ = phase.wait_for(|phase| *phase == Phase::Removed) => return,
            }
            if docker.app.kill(&record.sandbox).await.is_err() {
                // It ends by its own time.
            }
        });
    }

    async fn kill_all(&self, sandbox: &str) {
        let Ok(all) = backend::call::<Programs>(&*self.app.sandboxes, sandbox, &Ask::Programs {}).await else {
            return;
        };
        for running in all.programs.into_iter().filter(|running| running.report.is_none()) {
            let ask = Ask::Signal { which: Which::Id(running.id), number: KILL, tree: true };
            if backend::call::<Json>(&*self.app.sandboxes, sandbox, &ask).await.is_err() {
                // It ended meanwhile.
            }
        }
    }

    /// Ends it, with all that is known of it.
    pub(super) async fn remove(&self, container: &Arc<Container>) -> Result<(), DockerError> {
        let _turn = container.turn.lock().await;
        self.app.kill(&container.record().sandbox).await?;
        self.forget(container);
        Ok(())
    }

    fn forget(&self, container: &Container) {
        let id = container.record().id;
        locked(&self.containers).remove(&id);
        locked(&self.execs).retain(|_, exec| exec.container != id);
        container.removed();
    }

    /// Takes over what earlier servers left: containers in their folders, and sandboxes of containers that nobody wrote down.
    pub(crate) async fn adopt(self: &Arc<Self>) {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for container in entries.filter_map(|entry| Container::known(entry.path())) {
            let container = Arc::new(container);
            locked(&self.containers).insert(container.record().id, Arc::clone(&container));
            match container.phase() {
                Phase::Running => drop(tokio::spawn(Arc::clone(self).resume(container))),
                Phase::Exited => self.settle(container).await,
                Phase::Created | Phase::Removed => {}
            }
        }
        for info in self.app.sandboxes.list(false).await.unwrap_or_default() {
            let known = |id: &String| locked(&self.containers).contains_key(id);
            if info.labels.get(LABEL).is_some_and(|id| !known(id)) && self.app.kill(&info.id).await.is_err() {
                // It ends by its own time.
            }
        }
    }

    /// Goes on with a main program that another server started. What it printed is read again: the newest MiB of each stream.
    async fn resume(self: Arc<Self>, container: Arc<Container>) {
        let sandbox = container.record().sandbox;
        let attached = backend::open(&*self.app.sandboxes, &sandbox, &Ask::Attach { which: main() }).await;
        let attached = match attached {
            Ok(mut stream) => backend::reply::<Running>(&mut stream).await.map(|running| (stream, running)),
            Err(failure) => Err(failure),
        };
        let (mut stream, _running) = match attached {
            Ok(attached) => attached,
            Err(failure) => return self.ended(container, Err(failure)).await,
        };
        container.set_input(Some(stream.sender()));
        let logs = backend::open(&*self.app.sandboxes, &sandbox, &Ask::Logs { which: main(), follow: true }).await;
        let printed = async {
            if let Ok(logs) = logs {
                container.log.clear();
                drop(print(&container, logs).await);
            }
        };
        let (ended, ()) = tokio::join!(end(&mut stream), printed);
        self.ended(container, ended).await;
    }
}

/// Keeps what comes, to the end.
async fn print(container: &Container, mut stream: Stream) -> Result<Json, Failure> {
    while let Some(incoming) = stream.next().await {
        match incoming {
            Incoming::Out(bytes) => container.log.append(Lane::Out, &bytes),
            Incoming::Err(bytes) => container.log.append(Lane::Err, &bytes),
            Incoming::Event(_) => {}
            Incoming::End(ended) => return ended,
        }
    }
    Err(backend::gone())
}

async fn end(stream: &mut Stream) -> Result<Json, Failure> {
    while let Some(incoming) = stream.next().await {
        if let Incoming::End(ended) = incoming {
            return ended;
        }
    }
    Err(backend::gone())
}
