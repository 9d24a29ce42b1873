//! What is begun before there is a plan: the journal, and the guest.
//!
//! Making its namespaces takes the kernel as long as planning takes us, and its way to its first instruction takes longer
//! than the looks at the host's files, so both are done at once, and what they need of the state folder as well: a thread
//! does it (`backends::native::Ready`). On it the journal comes first, as always; a refusal, or a plan that asks for
//! another guest, ends what was begun here and leaves nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use backends::native::{Birth, Coming, Notebook, Ready, foreseeable};
use backends::{Capabilities, StartError};
use policy::Loaded;
use policy::value::{Policy, WorkspaceMode};

use super::begin::{Io, stdio};
use super::home::Home;
use crate::cli::{Request, What, World};
use crate::state::{Journal, Places, RunId, State, Thing};
use crate::ui::Failure;

/// What was begun. The order of the fields is the order in which it ends: the journal goes last.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) birth: Birth,
    pub(super) signals: sys::signals::Signals,
    pub(super) home: Home,
}

/// What is being begun. The order of the fields is the order in which it ends.
#[derive(Debug)]
pub(super) struct Early {
    coming: Coming<Notes>,
    signals: sys::signals::Signals,
}

/// Where a run is written down.
#[derive(Debug)]
struct Notes {
    home: Home,
    state: State,
    id: RunId,
}

impl Notebook for Notes {
    fn run(&self) -> &str {
        self.id.as_str()
    }

    fn note(&mut self, group: PathBuf) -> Result<(), StartError> {
        self.home.note(&Thing::Cgroup(group)).map_err(|error| StartError::Internal(error.to_string()))
    }
}

impl Early {
    /// Waits until all is written down: where the run is recorded, and what was begun. `None` if anything was in the way.
    fn settle(self) -> Option<((State, RunId), Begun)> {
        let Self { coming, signals } = self;
        let (Notes { home, state, id }, birth) = coming.noted()?;
        // While the guest is made: the thread that makes it has the longer way.
        sweep(&state);
        Some(((state, id), Begun { birth, signals, home }))
    }

    /// Ends what was begun: nothing of it is left but where a record may be written.
    pub(super) fn end(self) -> Option<(State, RunId)> {
        self.settle().map(|(place, begun)| {
            drop(begun);
            place
        })
    }
}

/// Begins a run on the tier that is tried first. `None` is no failure: whatever is in the way
/// is met again on the ordinary way, where it has its words.
pub(super) fn begin(loaded: &Loaded, request: &Request, world: &World, host: &Arc<Capabilities>) -> Option<Early> {
    let tier = policy::first_tier(loaded);
    let policy = loaded.policy_on(tier);
    if matches!(request.what, What::Nothing) || !foreseeable(tier, &policy, host) {
        return None;
    }
    // Before any other thread is there: all of them inherit the mask, and no signal of the caller may fall between.
    let signals = sys::signals::Signals::take(&sys::signals::FORWARDED).ok()?;
    let (places, workspace) = (world.state.clone(), workspace(&policy).map(Path::to_owned));
    let open = move || notes(&places, workspace.as_deref()).ok();
    let ready = Ready::new(tier, stdio(&Io::of(request, &policy, world)), host, open).ok()?;
    let coming = ready.begin(&policy, host)?;
    Some(Early { coming, signals })
}

fn notes(places: &Places, workspace: Option<&Path>) -> Result<Notes, Failure> {
    let state = State::open(places)?;
    let id = RunId::new(jiff::Timestamp::now())?;
    let home = journal(&state, &id, workspace)?;
    Ok(Notes { home, state, id })
}

/// The workspace of a policy, where it has one.
fn workspace(policy: &Policy) -> Option<&Path> {
    policy.workspace.path.as_deref().filter(|_| policy.workspace.mode != WorkspaceMode::None)
}

/// The journal of a run.
pub(super) fn open(state: &State, id: &RunId, policy: &Policy) -> Result<Home, Failure> {
    sweep(state);
    journal(state, id, workspace(policy))
}

/// What dead runs left is removed before anything of this one runs: also a run that will be killed has swept. The look
/// costs one readdir when there is nothing; a leftover that cannot be removed is no reason not to run, and `gc` tells of it.
fn sweep(state: &State) {
    drop(crate::state::sweep(state, jiff::Timestamp::now(), crate::state::Scope::Start));
}

fn journal(state: &State, id: &RunId, workspace: Option<&Path>) -> Result<Home, Failure> {
    Ok(Home::new(Journal::begin(state, id.clone(), workspace, jiff::Timestamp::now())?))
}

/// What was begun, or only where the run is recorded.
pub(super) fn or_only_its_place(
    early: Option<Early>,
    world: &World,
) -> Result<((State, RunId), Option<Begun>), Failure> {
    match early.and_then(Early::settle) {
        Some((place, begun)) => Ok((place, Some(begun))),
        None => Ok(((State::open(&world.state)?, RunId::new(jiff::Timestamp::now())?), None)),
    }
}
