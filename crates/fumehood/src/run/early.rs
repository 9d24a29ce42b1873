//! What is begun before there is a plan: the journal, and the guest.
//!
//! Making its namespaces takes the kernel as long as planning takes us, and its way to its first instruction takes longer
//! than the looks at the host's files, so both are done at once. The journal comes first,
//! as always; a refusal, or a plan that asks for another guest, ends what was begun here and leaves nothing.

use backends::Capabilities;
use backends::native::{Birth, Foreseen, Ready};
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

/// What was begun, and where the run is recorded.
#[derive(Debug)]
pub(super) struct Early {
    begun: Begun,
    state: State,
    id: RunId,
}

impl Early {
    /// Ends what was begun: nothing of it is left but where a record may be written.
    pub(super) fn end(self) -> (State, RunId) {
        drop(self.begun);
        (self.state, self.id)
    }
}

/// Begins a run on the tier that is tried first. `None` is no failure: whatever is in the way
/// is met again on the ordinary way, where it has its words.
pub(super) fn begin(loaded: &Loaded, request: &Request, world: &World, host: &Capabilities) -> Option<Early> {
    let tier = policy::first_tier(loaded);
    let policy = loaded.policy_on(tier);
    if matches!(request.what, What::Nothing) || !Foreseen::possible(tier, &policy, host) {
        return None;
    }
    // Before any other thread is there: all of them inherit the mask, and no signal of the caller may fall between.
    let signals = sys::signals::Signals::take(&sys::signals::FORWARDED).ok()?;
    let ready = Ready::new(tier, stdio(&Io::of(request, world)), host).ok()?;
    let (state, id, mut home) = journal(&policy, world).ok()?;
    let foreseen = Foreseen { policy: &policy, run: id.as_str() };
    for path in foreseen.groups(host) {
        home.note(&Thing::Cgroup(path)).ok()?;
    }
    let birth = foreseen.begin(ready, host).ok()?;
    Some(Early { begun: Begun { birth, signals, home }, state, id })
}

fn journal(policy: &Policy, world: &World) -> Result<(State, RunId, Home), Failure> {
    let state = State::open(&world.state)?;
    let id = RunId::new(jiff::Timestamp::now())?;
    let home = open(&state, &id, policy)?;
    Ok((state, id, home))
}

/// The journal of a run. What dead runs left is removed first: also a run that will be killed while it starts has swept.
/// The look costs one readdir when there is nothing; a leftover that cannot be removed is no reason not to run, and `gc`
/// tells of it.
pub(super) fn open(state: &State, id: &RunId, policy: &Policy) -> Result<Home, Failure> {
    drop(crate::state::sweep(state, jiff::Timestamp::now(), crate::state::Scope::Start));
    let workspace = policy.workspace.path.as_deref().filter(|_| policy.workspace.mode != WorkspaceMode::None);
    Ok(Home::new(Journal::begin(state, id.clone(), workspace, jiff::Timestamp::now())?))
}

/// What was begun, or only where the run is recorded.
pub(super) fn or_only_its_place(
    early: Option<Early>,
    world: &World,
) -> Result<((State, RunId), Option<Begun>), Failure> {
    match early {
        Some(Early { begun, state, id }) => Ok(((state, id), Some(begun))),
        None => Ok(((State::open(&world.state)?, RunId::new(jiff::Timestamp::now())?), None)),
    }
}
