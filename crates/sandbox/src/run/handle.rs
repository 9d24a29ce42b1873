//! A sandbox that runs, as its caller holds it.
//!
//! A thread of its own supervises it, so that no limit waits for the caller: who started it may do something else, or end
//! its thread. The two speak by orders and a socket pair, which wakes the supervisor and tells the caller of its end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use backends::Sample;
use policy::report::{Usage, WorkspaceReport};
use policy::value::Net;
use policy::{Millis, Violation};
use sys::channel::Interest;

use super::broker::Rules;
use super::end::{Finished, usage};
use super::frozen::{Reply, Task};
use super::now::{UsageNow, UsageSample};
use super::wall::Deadline;
use crate::changes::{Applied, ChangesError, Request};
use crate::error::Error;
use crate::fault::Fault;
use crate::snapshot::{Snapshot, Writer};

/// What a caller asks of a supervisor.
#[derive(Debug)]
pub(super) enum Order {
    Signal(u8),
    Resize(u16, u16),
    /// `limits.wall` is another from now on.
    Wall,
    /// Everything stands still, or goes on; how that went.
    Freeze(bool, Sender<Result<(), String>>),
    /// Something with its files, while everything stands still.
    WhileFrozen(Task),
    Kill,
}

/// The supervisor's side.
#[derive(Debug)]
pub(super) struct Mailbox {
    wake: OwnedFd,
    orders: Receiver<Order>,
    now: Arc<Now>,
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.now.say_whether_it_began(false);
    }
}

/// What a caller may look at.
#[derive(Debug)]
struct Now {
    started: Instant,
    /// How long after that it was nobody's, once it is somebody's.
    waited: OnceLock<Duration>,
    /// What the supervisor saw last; none before its first look.
    last: Mutex<Option<UsageSample>>,
    /// Somebody asked for its end, which a long look at its files does not hold up.
    killed: Arc<AtomicBool>,
    /// When it must have ended.
    deadline: Arc<Deadline>,
    /// Whether its program runs, or ran; none until that is known.
    began: Mutex<Option<bool>>,
    known: Condvar,
}

impl Now {
    /// Only the first answer counts.
    fn say_whether_it_began(&self, began: bool) {
        self.began.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(began);
        self.known.notify_all();
    }
}

/// Something of the caller that is waited for by a supervisor in the caller's own thread.
pub struct Visitor<'a> {
    /// Readable when there is something for it.
    pub fd: BorrowedFd<'a>,
    /// Called then.
    pub ready: &'a mut dyn FnMut(&Handle),
}

impl std::fmt::Debug for Visitor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Visitor").field("fd", &self.fd).finish_non_exhaustive()
    }
}

/// A program that runs longer than that is worth a supervisor that is small meanwhile, and some pages mapped anew at its end.
const LONG: Duration = Duration::from_millis(200);

/// Where a supervisor hears of orders.
#[derive(Debug)]
pub(super) struct OrderSource<'a> {
    mailbox: Mailbox,
    /// Somebody may still send an order.
    connected: bool,
    visitor: Option<(Visitor<'a>, Handle)>,
    /// A program that does nothing else has given back what only its start needed.
    given_back: bool,
}

impl<'a> OrderSource<'a> {
    pub(super) const fn new(mailbox: Mailbox, visitor: Option<(Visitor<'a>, Handle)>) -> Self {
        Self { mailbox, connected: true, visitor, given_back: false }
    }

    /// What to wait for.
    pub(super) fn wants(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let visitor = self.visitor.as_ref().map(|(visitor, _)| visitor.fd);
        visitor.into_iter().chain(self.connected.then(|| self.mailbox.wake.as_fd()))
    }

    /// One of them is ready.
    pub(super) fn listen(&mut self) {
        if let Some((visitor, handle)) = &mut self.visitor {
            (visitor.ready)(handle);
        }
        let mut bytes = [0; 64];
        self.connected = match sys::channel::receive(&self.mailbox.wake, &mut bytes, true) {
            Ok(received) => received.count > 0,
            Err(error) => error.is_again(),
        };
    }

    /// The next order.
    pub(super) fn next(&self) -> Option<Order> {
        self.mailbox.orders.try_recv().ok()
    }

    /// Waits until a reader takes more; `false` if the caller asked for the end first, which no program is left to hself.
    pub(super) fn has_room(&mut self, fd: BorrowedFd<'_>) -> bool {
        loop {
            let ready = {
                let orders = self.wants().map(|fd| Interest { fd, write: false });
                let interests: Vec<_> = std::iter::once(Interest { fd, write: true }).chain(orders).collect();
                sys::channel::wait(&interests, None)
            };
            let Ok(ready) = ready else { return true };
            if ready.iter().skip(1).any(|ready| *ready) {
                self.listen();
                if std::iter::from_fn(|| self.next()).any(|order| !matches!(order, Order::Resize(..))) {
                    return false;
                }
            }
            if ready.first() == Some(&true) {
                return true;
            }
        }
    }

    /// How long it was nobody's.
    pub(super) fn waited(&self) -> Duration {
        self.mailbox.now.waited.get().copied().unwrap_or_default()
    }

    /// Set when somebody asks for the end.
    pub(super) fn killed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.mailbox.now.killed)
    }

    /// The program runs.
    pub(super) fn began(&self) {
        self.mailbox.now.say_whether_it_began(true);
    }

    /// When it must have ended.
    pub(super) fn deadline(&self) -> Arc<Deadline> {
        Arc::clone(&self.mailbox.now.deadline)
    }

    /// What callers are told of usage until the next time.
    pub(super) fn tell(&mut self, sample: Sample, (output, disk): (u64, Option<u64>)) {
        let Now { started, last, waited: _, killed: _, deadline: _, began: _, known: _ } = &*self.mailbox.now;
        if self.visitor.is_some() && !self.given_back && started.elapsed() > LONG {
            self.given_back = true;
            sys::memory::unmap_program();
        }
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(UsageSample::after(last.take(), *started, Instant::now(), sample).with(output, disk));
    }
}

/// What can be asked of a sandbox by anybody who has this, from any thread. It keeps nothing alive.
#[derive(Clone, Debug)]
pub struct Handle {
    orders: Sender<Order>,
    wake: Arc<OwnedFd>,
    now: Arc<Now>,
    id: Arc<str>,
    pid: i32,
    rules: Option<Rules>,
}

impl Handle {
    /// The id of the run, under which audit log, changes and journal know it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The guest's process, by its number outside.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits until its program runs, or never will, so long at most; none where that is not known then.
    #[must_use]
    pub fn has_begun(&self, within: Duration) -> Option<bool> {
        let began = self.now.began.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.now.known.wait_timeout_while(began, within, |began| began.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sends a signal to the program, whose own handler runs. One that has ended gets nothing.
    pub fn signal(&self, number: u8) {
        self.order(Order::Signal(number));
    }

    /// Gives the program's terminal another size.
    pub fn resize(&self, rows: u16, columns: u16) {
        self.order(Order::Resize(rows, columns));
    }

    /// Ends everything inside at once.
    pub fn kill(&self) {
        self.now.killed.store(true, Ordering::Relaxed);
        self.order(Order::Kill);
        self.now.deadline.end_now();
    }

    /// What is used, as the supervisor last saw it: it looks every 100 ms, and every 20 ms where a limit is held by that.
    #[must_use]
    pub fn usage(&self) -> UsageNow {
        let waited = self.now.waited.get().copied().unwrap_or_default();
        let wall = self.elapsed().saturating_sub(waited).as_secs_f64();
        let with_net = |used| Usage { net: self.rules.as_ref().map(Rules::used), ..used };
        let Some(seen) = self.seen() else {
            return UsageNow::unseen(with_net(usage(&Sample::default(), (0, 0), wall, None, 0)));
        };
        let so_far = usage(&seen.sample, (0, 0), wall, seen.disk, seen.output);
        UsageNow::of(&seen, with_net(so_far))
    }

    fn seen(&self) -> Option<UsageSample> {
        *self.now.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Out-of-memory kills inside, as far as the kernel counted them when the supervisor last looked.
    #[must_use]
    pub fn out_of_memory(&self) -> u64 {
        self.seen().map_or(0, |seen| seen.sample.oom_kills)
    }

    /// It is somebody's from now on: the time before counts for no usage. Only the first call counts.
    pub fn taken(&self) {
        // A second owner would have what the first one used.
        let _first = self.now.waited.set(self.elapsed());
    }

    /// How long it has run.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.now.started.elapsed()
    }

    /// The same, by which the rules of the network can be replaced.
    pub(super) fn with_rules(self, rules: Option<Rules>) -> Self {
        Self { rules, ..self }
    }

    /// Replaces the rules of the network; connections that no longer fit are cut. The digest of the new ones, by which the broker
    /// said that it judges now.
    ///
    /// # Errors
    /// It has no broker, or these rules cannot be held where it runs: those before hold then. A broker that does not answer is
    /// ended, and the network with it.
    pub fn replace_rules(&self, net: &Net) -> Result<String, Error> {
        let none = || {
            Error::refused(Fault {
                id: "net/no-rules",
                what: "it reaches no host, and none can be allowed while it runs".to_owned(),
                place: "net.mode".to_owned(),
                why: "it was started without `net.mode = \"allow\"`, so it has no broker".to_owned(),
                fix: "create another one with `--net allow`".to_owned(),
            })
        };
        self.rules.as_ref().ok_or_else(none)?.replace(net)
    }

    /// The secret of the policy whose value stands in a text: that must not come inside.
    #[must_use]
    pub fn secret_in(&self, text: &[u8]) -> Option<&str> {
        self.rules.as_ref()?.secret_in(text)
    }

    /// What its broker stopped so far, one for each kind with its count, as far as the broker has said it: of more of a kind once a
    /// second, or when it is asked ([`Handle::count`]).
    #[must_use]
    pub fn violations(&self) -> Arc<[Violation]> {
        self.rules.as_ref().map_or_else(|| Arc::from([]), Rules::violations)
    }

    /// Has its broker say what it counted, and calls `done` when [`Handle::violations`] has all of it; `done` is dropped where the
    /// broker ends before. `false` where it has none: nothing is counted.
    pub fn count(&self, done: Box<dyn FnOnce() + Send>) -> bool {
        self.rules.as_ref().map(|rules| rules.count(done)).is_some()
    }

    /// Whether its broker has ended before it: nothing is reached from inside any more.
    #[must_use]
    pub fn has_lost_network(&self) -> bool {
        self.rules.as_ref().is_some_and(Rules::are_lost)
    }

    /// Ends it so long after its start, instead of what `limits.wall` of the policy says.
    pub fn set_wall(&self, wall: Duration) {
        self.now.deadline.set(Millis(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)));
        self.order(Order::Wall);
    }

    /// Stops everything inside at once, or lets it go on; limits of time go on counting.
    ///
    /// # Errors
    /// In words: there is no freezer, something inside does not stop, or the sandbox has ended.
    pub fn freeze(&self, frozen: bool) -> Result<(), String> {
        let (done, answer) = channel();
        self.order(Order::Freeze(frozen, done));
        answer.recv().unwrap_or_else(|_ended| Err("the sandbox has ended".to_owned()))
    }

    /// Keeps what it changed in its workspace so far under the id of the run, as at its end: then [`crate::changes::diff`]
    /// shows it. Everything inside stands still meanwhile. At the end what there is then takes its place.
    ///
    /// # Errors
    /// It has no layer, cannot be frozen, or was ended; or the changes cannot be kept.
    pub fn changes(&self) -> Result<WorkspaceReport, Error> {
        self.while_frozen(Task::Changes)
    }

    /// Takes changes to the host, as they are now, while everything inside stands still. What the sandbox sees of them does
    /// not change by that, and the next changes are told against what was taken.
    ///
    /// # Errors
    /// As [`Handle::changes`], and as [`crate::changes::apply`]; nothing was applied then. A conflict is no error.
    pub fn apply(&self, request: Request) -> Result<Applied, Error> {
        self.while_frozen(|reply| Task::Apply(request, reply))
    }

    /// Makes a snapshot of its workspace, home folder and `/tmp`, all of one moment: everything inside stands still while
    /// they are read. `writer` must be of this run.
    ///
    /// # Errors
    /// As [`Handle::changes`]: what a sandbox writes to the host's own folder is no part of a snapshot, so that one is
    /// refused. And the snapshot's own; nothing is left of it then.
    pub fn snapshot(&self, writer: Writer) -> Result<Snapshot, Error> {
        let filled = self.while_frozen(|reply| Task::Snapshot(Box::new(writer), reply))?;
        Ok(filled.finish()?)
    }

    fn while_frozen<T>(&self, task: impl FnOnce(Reply<T>) -> Task) -> Result<T, Error> {
        let (reply, answer) = channel();
        self.order(Order::WhileFrozen(task(reply)));
        answer.recv().unwrap_or_else(|_ended| Err(ChangesError::Ended { run: self.id.to_string() }.into()))
    }

    fn order(&self, order: Order) {
        // A sandbox that has ended hears nothing.
        if self.orders.send(order).is_ok() && sys::channel::send(&*self.wake, &[0]).is_err() {}
    }
}

/// A sandbox that runs. Dropping it ends everything inside, and does not wait for that: [`Sandbox::wait`] does.
#[derive(Debug)]
pub struct Sandbox {
    handle: Handle,
    supervisor: Option<JoinHandle<Finished>>,
    socket: Option<OwnedFd>,
}

impl Sandbox {
    pub(super) const fn new(handle: Handle, supervisor: JoinHandle<Finished>, socket: Option<OwnedFd>) -> Self {
        Self { handle, supervisor: Some(supervisor), socket }
    }

    /// The socket to the agent, of a start with [`super::Stdio::Socket`]; once.
    pub const fn take_socket(&mut self) -> Option<OwnedFd> {
        self.socket.take()
    }

    /// What can be asked of it by others.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The id of the run.
    #[must_use]
    pub fn id(&self) -> &str {
        self.handle.id()
    }

    /// As [`Handle::has_begun`].
    #[must_use]
    pub fn has_begun(&self, within: Duration) -> Option<bool> {
        self.handle.has_begun(within)
    }

    /// As [`Handle::signal`].
    pub fn signal(&self, number: u8) {
        self.handle.signal(number);
    }

    /// As [`Handle::resize`].
    pub fn resize(&self, rows: u16, columns: u16) {
        self.handle.resize(rows, columns);
    }

    /// As [`Handle::usage`].
    #[must_use]
    pub fn usage(&self) -> UsageNow {
        self.handle.usage()
    }

    /// As [`Handle::kill`].
    pub fn kill(&self) {
        self.handle.kill();
    }

    /// A descriptor that is readable when it has ended, for a caller that waits for something else as well.
    #[must_use]
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.handle.wake.as_fd()
    }

    /// Waits for the end: nothing of it is left on the host then, but what `diff` shows.
    ///
    /// # Errors
    /// The supervisor itself failed.
    pub fn wait(mut self) -> Result<Finished, Error> {
        let ended = self.supervisor.take().map(JoinHandle::join);
        let lost = || {
            Error::failed(Fault {
                id: "run/lost",
                what: "the supervisor of the run ended before it".to_owned(),
                place: "the supervisor's thread".to_owned(),
                why: "a fault of our own; everything inside was ended".to_owned(),
                fix: "please report this with `fumehood doctor --json`".to_owned(),
            })
        };
        ended.and_then(Result::ok).ok_or_else(lost)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if self.supervisor.is_some() {
            self.kill();
        }
    }
}

/// The two sides of a sandbox that was started just now.
pub(super) fn sides(id: &str, pid: i32, started: Instant) -> Result<(Handle, Mailbox), sys::error::Error> {
    let (ours, theirs) = sys::channel::pair()?;
    // One that is full wakes the other side already.
    sys::channel::set_nonblocking(&ours)?;
    let (sender, orders) = channel();
    let (waited, last) = (OnceLock::new(), Mutex::default());
    let (killed, deadline, began, known) = Default::default();
    let now = Arc::new(Now { started, waited, last, killed, deadline, began, known });
    let handle =
        Handle { orders: sender, wake: Arc::new(ours), now: Arc::clone(&now), id: id.into(), pid, rules: None };
    Ok((handle, Mailbox { wake: theirs, orders, now }))
}
