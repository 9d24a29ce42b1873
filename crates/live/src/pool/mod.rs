//! Sandboxes that were made ready before anybody asked for them: everything in force and proven, the agent started, no
//! program of anybody.
//!
//! One that is taken is exactly what was asked for: the same owner and layers, the same policy once they are read again, the
//! same files of the host behind it. Anything else, and a pool that is empty, is a cold start, never a weaker sandbox. None is
//! given to another owner, and none is used twice. What is kept ready follows what was asked for lately; the supervisors of
//! it end with whoever holds the pool, however that ends, and leave nothing.

mod demand;
mod proof;
mod spare;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sandbox::Environment;
use sandbox::fault::show_text;

use crate::create::{Created, Refusal, Request, Taking, create};
use crate::error::LiveError;
use crate::headroom::Headroom;
use demand::{Demand, Shape};
use proof::Proof;
use spare::{NotMade, Spare};

/// How often what is due is looked for when nothing is asked.
const LOOK: Duration = Duration::from_secs(1);
/// So long those that are ready are tried, one after the other, before a start is a cold one.
const PATIENCE: Duration = Duration::from_secs(1);
/// Nothing is made ready while the host has less memory than this, bytes: twice of what a server leaves free.
const FREE_MEMORY: u64 = 512 << 20;

/// How large a pool may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most sandboxes that are ready at once; 0 = no pool.
    pub count: usize,
    /// Most memory of those, bytes.
    pub memory: u64,
    /// None is given out that is older than this: what it shows of the host was looked at then.
    pub age: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { count: 0, memory: 512 << 20, age: Duration::from_secs(10 * 60) }
    }
}

/// How a pool is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Sandboxes that are ready.
    pub ready: usize,
    /// Sandboxes that are to be ready, by what was asked lately.
    pub wanted: usize,
    /// Memory of those that are ready, bytes.
    pub memory: u64,
    /// How many were given out.
    pub taken: u64,
    /// How many started cold.
    pub cold: u64,
    /// Why it is not full, if something hinders it.
    pub trouble: Option<String>,
}

/// Hears why a pool cannot be filled, once for each reason; and when it can again.
pub type Tell = Box<dyn Fn(&str) + Send + Sync>;
/// Whether an owner is somebody still: what is ready for others is ended.
pub type IsOwner = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// Sandboxes that are ready. Dropped, they are ended.
pub struct Pool {
    shared: Arc<Shared>,
    filler: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    program: PathBuf,
    environment: Environment,
    settings: Settings,
    tell: Tell,
    is_owner: IsOwner,
    now: Mutex<Now>,
    changed: Condvar,
}

#[derive(Default)]
struct Now {
    demand: Demand,
    taken: u64,
    cold: u64,
    trouble: Option<String>,
    stops: bool,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says why it cannot be filled, or that it can.
    fn hindered(&self, why: Option<String>) {
        let mut now = self.locked();
        if now.trouble == why {
            return;
        }
        let words = match &why {
            Some(why) => format!("the pool cannot be filled, sandboxes start cold: {why}"),
            None => "the pool can be filled again".to_owned(),
        };
        now.trouble = why;
        drop(now);
        (self.tell)(&words);
    }
}

impl Pool {
    /// A pool that starts supervisors by calling `program`, for the caller whose `environment` this is.
    ///
    /// # Errors
    /// [`LiveError::Start`]: there is no thread to fill it.
    pub fn new(
        program: &Path,
        environment: &Environment,
        settings: Settings,
        (tell, is_owner): (Tell, IsOwner),
    ) -> Result<Self, LiveError> {
        let shared = Arc::new(Shared {
            program: program.to_owned(),
            environment: environment.clone(),
            settings,
            tell,
            is_owner,
            now: Mutex::default(),
            changed: Condvar::new(),
        });
        let ours = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("pool".to_owned()).spawn(move || fill(&ours));
        let filler = thread.map_err(|error| LiveError::Start { why: error.to_string() })?;
        Ok(Self { shared, filler: Mutex::new(Some(filler)) })
    }

    /// Creates a sandbox for an owner: one that is ready if there is one, else a new one.
    ///
    /// # Errors
    /// As [`create()`].
    pub fn create(&self, owner: &str, request: &Request) -> Result<Result<Created, Refusal>, LiveError> {
        // What cannot be read is refused by the start, with every reason; what no pool can hold starts cold.
        let shape = Shape::of(owner, request).filter(|_| self.shared.settings.count > 0);
        let proof = shape.as_ref().and_then(|shape| Proof::now(&shape.request, &self.shared.environment));
        let shape = shape.zip(proof);
        let ready = shape.as_ref().and_then(|(shape, proof)| self.ready(shape, proof, request));
        let was_ready = ready.is_some();
        let created = match ready {
            Some(created) => created,
            None => create(request, &self.shared.program, &self.shared.environment)?,
        };
        if created.is_ok() {
            self.count(shape.map(|(shape, _)| shape), was_ready);
        }
        Ok(created)
    }

    /// One that is ready and is what is asked for. Who asks waits for one that does not answer, and not for the next as well.
    fn ready(&self, shape: &Shape, proof: &Proof, request: &Request) -> Option<Result<Created, Refusal>> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let taken = self.take(self.next(shape)?, proof, request);
            if taken.is_some() {
                return taken;
            }
        }
        None
    }

    /// One was created. What is refused is no wish that could be made ready.
    fn count(&self, shape: Option<Shape>, was_ready: bool) {
        let mut now = self.shared.locked();
        let of_its_kind = if was_ready { &mut now.taken } else { &mut now.cold };
        *of_its_kind = of_its_kind.saturating_add(1);
        if let Some(shape) = shape {
            if was_ready {
                now.demand.lasted(&shape);
            }
            now.demand.asked(shape, Instant::now(), self.shared.settings.count);
        }
        drop(now);
        // Not before: what is made ready takes the processors from who waits.
        self.shared.changed.notify_one();
    }

    /// One that is ready for this shape.
    fn next(&self, shape: &Shape) -> Option<Spare> {
        self.shared.locked().demand.take(shape, Instant::now())
    }

    /// Takes one, if it is what is asked for; else it is ended.
    fn take(&self, spare: Spare, proof: &Proof, request: &Request) -> Option<Result<Created, Refusal>> {
        if spare.since.elapsed() > self.shared.settings.age || !proof.is_of(&spare) {
            spare.bury();
            return None;
        }
        let Request { name, labels, idle_ms, .. } = request;
        // One that is gone was ended meanwhile: the host's memory, or somebody by a signal. One that fails is none that was asked for.
        let taken = spare.take(Taking { name: name.clone(), labels: labels.clone(), idle_ms: *idle_ms }).ok()?;
        (!taken.as_ref().is_err_and(Refusal::is_ours)).then_some(taken)
    }

    /// Ends what is ready, and makes nothing ready any more; returns when nothing of it is left. Who asks then starts cold.
    pub fn stop(&self) {
        self.shared.locked().stops = true;
        self.shared.changed.notify_all();
        if let Some(filler) = self.filler.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Whatever became of it, it fills nothing any more.
            drop(filler.join());
        }
        let spares = self.shared.locked().demand.all();
        // All hear it before one is waited for.
        let children: Vec<_> = spares.into_iter().map(Spare::leave).collect();
        children.iter().for_each(spare::reap);
    }

    /// How it is doing.
    #[must_use]
    pub fn status(&self) -> Status {
        let now = self.shared.locked();
        let (ready, memory) = now.demand.ready();
        let wanted = now.demand.wanted(Instant::now(), self.shared.settings.count);
        Status { ready, wanted, memory, taken: now.taken, cold: now.cold, trouble: now.trouble.clone() }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Keeps a pool filled, one at a time, until it stops.
fn fill(shared: &Shared) {
    while let Some((shape, old)) = due(shared) {
        old.into_iter().map(Spare::leave).collect::<Vec<_>>().iter().for_each(spare::reap);
        let Some(shape) = shape else { continue };
        if let Some(why) = short(shared, &shape) {
            shared.hindered(Some(why));
            pause(shared);
            continue;
        }
        let made = Spare::make(&shape.request, &shared.program, &shared.environment);
        let not_made = made.as_ref().err().cloned();
        shared.locked().demand.made(&shape, made, Instant::now());
        match not_made {
            None => shared.hindered(None),
            Some(NotMade::Hindered(why)) => shared.hindered(Some(why)),
            // That is nothing of the pool's: others are made ready, and who asks for it is told by the start.
            Some(NotMade::Refused(why)) => {
                let whose = show_text(&shape.owner);
                (shared.tell)(&format!("nothing is made ready any more of what {whose} asked for: {why}"));
            }
        }
    }
}

/// What is to be made, and what is ended; waits until there is something. None when it stops.
fn due(shared: &Shared) -> Option<(Option<Shape>, Vec<Spare>)> {
    let mut now = shared.locked();
    loop {
        if now.stops {
            return None;
        }
        let mut gone = now.demand.owners();
        drop(now);
        weigh(shared);
        // Whoever is asked may wait for a file: not while others wait for the pool.
        gone.retain(|owner| !(shared.is_owner)(owner));
        now = shared.locked();
        let at = Instant::now();
        let mut old = now.demand.of_these(&gone);
        old.extend(now.demand.surplus(at, shared.settings));
        let next = now.demand.next(at, (shared.settings.count, shared.settings.memory));
        if next.is_some() || !old.is_empty() {
            return Some((next, old));
        }
        if now.stops {
            return None;
        }
        let pause = if now.demand.is_calm(at) { LOOK } else { demand::CALM };
        now = shared.changed.wait_timeout(now, pause).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Looks at those that were not looked at for a while: their memory, and the files behind them. Nobody waits for that.
fn weigh(shared: &Shared) {
    let due = shared.locked().demand.due(Instant::now());
    for look in due {
        let (memory, is_stale) = (look.memory(), look.is_stale());
        shared.locked().demand.weighed(look.pid, (memory, is_stale), Instant::now());
    }
}

/// Waits a while, or until it stops.
fn pause(shared: &Shared) {
    let now = shared.locked();
    if !now.stops {
        drop(shared.changed.wait_timeout(now, LOOK));
    }
}

/// Why nothing is made ready now.
fn short(shared: &Shared, next: &Shape) -> Option<String> {
    let room = Headroom::read();
    if room.memory.is_some_and(|free| free < FREE_MEMORY) {
        return Some(format!("the host has less than {} MiB of memory left", FREE_MEMORY >> 20));
    }
    if room.processes.is_some_and(|(there, most)| there > most.saturating_sub(most / 4)) {
        return Some("three quarters of the processes that the host may have exist".to_owned());
    }
    let memory = shared.locked().demand.with_one_more(next, Instant::now());
    let most = shared.settings.memory;
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    (memory >= most)
        .then(|| format!("with one more what is ready holds {} MiB, and {} are the most", mib(memory), mib(most)))
}
