//! What is begun before there is a plan: the journal, and the guest.
//!
//! Making its namespaces takes the kernel as long as planning takes us, and its way to its first instruction takes longer
//! than the looks at the host's files, so both are done at once: a thread does it (`backends::native::Ready`), which looks
//! for the control groups while the policy is still read. The journal comes first, as always; a refusal, or a plan that
//! asks for another guest, ends what was begun here and leaves nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use backends::native::{Birth, Notebook, Ready, foreseeable};
use backends::{Capabilities, StartError};
use policy::Loaded;
use policy::value::{Policy, WorkspaceMode};

use super::begin::{Io, stdio};
use super::home::Home;
use crate::cli::{Request, What, World};
use crate::state::{Journal, RunId, State, Thing};
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
    birth: Birth,
    signals: sys::signals::Signals,
    notes: Notes,
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
    /// Where the run is recorded, and what was begun.
    fn settle(self) -> ((State, RunId), Begun) {
        let Self { birth, signals, notes: Notes { home, state, id } } = self;
        // While the guest is made: the thread that makes it has the longer way.
        sweep(&state);
        ((state, id), Begun { birth, signals, home })
    }

    /// Ends what was begun: nothing of it is left but where a record may be written.
    pub(super) fn end(self) -> (State, RunId) {
        let (place, begun) = self.settle();
        drop(begun);
        place
    }
}

/// The thread that will make the guest, and looks at the host while the policy is read. `None` is no failure: whatever is
/// in the way is met again on the ordinary way, where it has its words.
pub(super) fn ahead(host: &Arc<Capabilities>) -> Option<Ready> {
    // That thread hears no signal: all of them are for this one, which takes them when there is something to forward.
    let _held = sys::signals::Held::all(&sys::signals::FORWARDED).ok()?;
    Ready::new(host).ok()
}

/// Begins a run on the tier that is tried first. `None` is no failure, as above.
pub(super) fn begin(
    ahead: Option<Ready>,
    loaded: &Loaded,
    request: &Request,
    world: &World,
    host: &Capabilities,
) -> Option<Early> {
    let tier = policy::first_tier(loaded);
    let policy = loaded.policy_on(tier);
    let ready = ahead?;
    if matches!(request.what, What::Nothing) || !foreseeable(tier, &policy, host) {
        return None;
    }
    // Before the guest is there: it inherits the mask, and no signal of the caller may fall between.
    let signals = sys::signals::Signals::take(&sys::signals::FORWARDED).ok()?;
    let mut notes = notes(world, workspace(&policy)).ok()?;
    let birth = ready.begin((tier, stdio(&Io::of(request, &policy, world))), &policy, host, &mut notes)?;
    Some(Early { birth, signals, notes })
}

fn notes(world: &World, workspace: Option<&Path>) -> Result<Notes, Failure> {
    let state = State::open(&world.state)?;
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
    match early.map(Early::settle) {
        Some((place, begun)) => Ok((place, Some(begun))),
        None => Ok(((State::open(&world.state)?, RunId::new(jiff::Timestamp::now())?), None)),
    }
}
