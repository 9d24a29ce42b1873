//! The broker of a run: a process of its own, confined by the process tier, which alone holds the sandbox's sockets.
//!
//! It is started beside the sandbox and ends after it. What it says is kept as records and believed in nothing else; when it
//! ends early, its sockets close and the network inside is gone: that is told, and never silent.

mod bounds;
mod holders;
mod java;
mod keeper;
mod plan;
mod questions;
mod records;
mod rules;
mod trust;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use backends::{Capabilities, FoundPaths, Launch, OwnProgram, Prepared, Running, Started, Stdio};
use egress::judge::NotBuilt;
use egress::wire::{self, FromBroker, Hidden, Opening, Orders, SocketKind, ToBroker};
use policy::control::{Control, Inlet};
use policy::plan::Reason;
use policy::{ClauseId, Plan, Refusal};
use zeroize::Zeroizing;

pub(super) use keeper::Keeper;
pub(super) use records::Summary;
pub(super) use rules::Rules;
pub(super) use trust::{Trust, foreseen as trust_foreseen, of as trust};

use bounds::Bounds;
use questions::Questions;

use super::asker::Asker;
use super::host_resources::HostResources;
use super::record::{Denials, Recorded};
use super::secrets::LockedSecrets;
use crate::environment::Environment;
use crate::error::Error;
use crate::fault::{Fault, show_text};
use crate::state::Resource;

/// The first word of our own executable by which it becomes the broker; nobody else says it.
pub const WORD: &str = "__broker";
/// What is told when the broker ends before the run.
pub(super) const LOST: &str = "the broker of the network has ended: nothing can be reached any more";
/// How long the broker may take from its orders to being ready.
const READY: Duration = Duration::from_secs(20);

/// A folder that goes when this does. The broker may write nothing into it; it is where it stands.
#[derive(Debug)]
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is in the journal.
        drop(super::workspace::remove_tree(&self.0));
    }
}

/// What goes with a broker until it holds its orders.
struct BrokerParts {
    bounds: Bounds,
    folder: Folder,
    run: String,
    secrets: LockedSecrets,
    opening: Option<Opening>,
    asker: Option<Arc<dyn Asker>>,
    denials: Arc<Denials>,
}

/// A broker that could be started.
pub(super) struct PreparedBroker {
    prepared: Box<dyn Prepared>,
    parts: BrokerParts,
}

/// A broker on its way.
pub(super) struct StartingBroker {
    started: Box<dyn Started>,
    parts: BrokerParts,
}

/// A broker that was verified as any run and waits for its orders.
pub(super) struct WaitingBroker {
    running: Box<dyn Running>,
    parts: BrokerParts,
}

/// Whether a plan has one.
fn is_planned(plan: &Plan) -> bool {
    plan.controls().any(|control| *control == Control::Broker)
}

/// What whoever reads the plan or the report should know where no name can be looked up, in words. A machine has our own file.
pub(super) fn unresolved(plan: &Plan) -> Option<String> {
    let known = !is_planned(plan) || plan.tier == policy::value::Tier::Vm || backends::names_resolver(&plan.policy);
    (!known).then(|| {
        "programs inside cannot look names up: `/etc/resolv.conf` of the root names no resolver but the sandbox's own loopback, where \
         none is; write `nameserver 198.18.0.1` into it (any address leads to the broker)"
            .to_owned()
    })
}

/// What the report says of whom programs trust and of what they look up.
pub(super) fn notes(plan: &Plan, trust: Option<&Trust>) -> Vec<String> {
    trust.and_then(|trust| trust.note.clone()).into_iter().chain(unresolved(plan)).collect()
}

/// Refuses what the broker itself says that it cannot hold, clause by clause as a plan does.
pub(super) fn refuse(plan: &Plan) -> Result<(), Error> {
    let parts = egress::judge::not_built(&plan.policy.net).into_iter().filter(|_| is_planned(plan));
    let refused: Vec<Reason> = parts.map(|part| reason(plan, part)).collect();
    if refused.is_empty() {
        return Ok(());
    }
    Err(Error::Unheld(Refusal { tier: plan.tier.to_string(), demanded: plan.entries.len(), refused }))
}

fn reason(plan: &Plan, part: NotBuilt) -> Reason {
    let NotBuilt { key, rule, why, fix } = part;
    let clause = ClauseId::from_path(key).unwrap_or(ClauseId::NetAllow);
    Reason {
        id: "net/not-built".to_owned(),
        clause,
        what: rule.map_or_else(|| format!("`{key}`"), |rule| format!("the rule of `{key}` for `{rule}`")),
        at: plan
            .entries
            .iter()
            .find(|entry| entry.clause == clause)
            .map_or_else(String::new, |entry| entry.origin.clone()),
        why: why.to_owned(),
        fix: fix.to_owned(),
        weaker: None,
    }
}

/// Prepares the broker of a plan, if it has one.
pub(super) fn begin(
    (plan, secrets): (&Plan, LockedSecrets),
    (environment, asker): (&Environment, Option<Arc<dyn Asker>>),
    host: &Capabilities,
    (resources, recorded, trust): (&mut HostResources, &Recorded, Option<Trust>),
) -> Result<Option<PreparedBroker>, Error> {
    if !is_planned(plan) {
        return Ok(None);
    }
    let program = environment.broker.as_deref().ok_or_else(no_program)?;
    let own = plan::plan(program, (&plan.policy, !secrets.secrets.is_empty()), host)?;
    let run = format!("{}-net", recorded.id);
    let path = Path::new("/tmp").join(format!("fumehood-{run}"));
    resources.note(&Resource::Temp(path.clone()))?;
    super::begin::make_folder(&path)?;
    let folder = Folder(path.clone());
    let launch = Launch {
        run,
        argv: ["fumehood", WORD].map(Into::into).to_vec(),
        program: Some(OwnProgram::File(program.to_owned())),
        show: Vec::new(),
        files: Vec::new(),
        trust: None,
        git: Vec::new(),
        protect: Vec::new(),
        covered: Vec::new(),
        laid: false,
        no_links: false,
        passed: std::collections::BTreeMap::new(),
        forced: Vec::new(),
        stdio: Stdio::Socket,
        term: None,
        tmp: Some(path.clone()),
        cache: None,
        machines: None,
        memory: None,
        #[cfg(feature = "mutation")]
        mutation: backends::Mutation::default(),
    };
    let prepared = backends::of(&own)?.prepare(&own, host, &launch)?;
    super::begin::hand_over(&path, None, prepared.owner(), host)?;
    for group in prepared.groups(host) {
        resources.note(&Resource::Cgroup(group))?;
    }
    let opening = trust.and_then(|trust| trust.opening);
    let bounds = Bounds::of(&own);
    let (run, denials) = (recorded.id.to_string(), recorded.denials());
    let parts = BrokerParts { bounds, folder, run, secrets, opening, asker, denials };
    Ok(Some(PreparedBroker { prepared, parts }))
}

impl PreparedBroker {
    /// Starts it; it confines itself while the sandbox is made.
    pub(super) fn start(self, host: &Capabilities) -> Result<StartingBroker, Error> {
        let Self { prepared, parts } = self;
        Ok(StartingBroker { started: prepared.start(host)?, parts })
    }
}

impl StartingBroker {
    /// Verifies it as any run, and lets it go: it begins while the sandbox's sockets are made.
    pub(super) fn go(self) -> Result<WaitingBroker, Error> {
        let Self { started, parts } = self;
        let running = started.verify(&parts.bounds.armed(), &FoundPaths::default())?.go()?;
        Ok(WaitingBroker { running, parts })
    }
}

impl WaitingBroker {
    /// Gives it its orders with the sandbox's sockets, and waits until it holds them.
    pub(super) fn ready(self, plan: &Plan, sockets: &[OwnedFd]) -> Result<Keeper, Error> {
        let Self { mut running, parts } = self;
        let BrokerParts { bounds, folder, run, secrets, opening, asker, denials } = parts;
        let socket = running.take_streams().socket.ok_or_else(|| failed("it has no socket to us"))?;
        let net = plan.policy.net.document();
        let questions = Questions::new(plan, &run, asker);
        let observe = questions.observes();
        let authority = opening.as_ref().map(|opening| opening.digest().map_err(|why| failed(&why))).transpose()?;
        // The values are wiped with the orders, when these are sent; and then no longer locked.
        let LockedSecrets { pages: _pages, secrets, marks } = secrets;
        let mut to_hold = (!secrets.is_empty()).then(|| secrets.digest());
        let (version, named) = (wire::VERSION, named(plan));
        let login = plan.policy.net.proxy.as_ref().and_then(|proxy| proxy.login.as_ref());
        let proxy_login = login.map(|login| Hidden(Zeroizing::new(login.0.clone())));
        let orders = Orders { version, run, net: net.clone(), sockets: named, opening, secrets, proxy_login, observe };
        send(&socket, &ToBroker::Orders(Box::new(orders)), sockets)?;
        let mut incoming = Incoming::default();
        let until = Instant::now() + READY;
        loop {
            match incoming.next()? {
                Some(FromBroker::Holds { digest }) if to_hold.as_ref() == Some(&digest) => to_hold = None,
                Some(FromBroker::Holds { digest: _ }) => return Err(failed("it holds other secrets than these")),
                Some(FromBroker::Ready { .. }) if to_hold.is_some() => {
                    return Err(failed("it does not hold the secrets"));
                }
                Some(FromBroker::Ready { digest, authority: said }) if digest == wire::digest(&net) => {
                    if said != authority {
                        return Err(failed("it opens TLS by another authority than the run's"));
                    }
                    break;
                }
                Some(FromBroker::Ready { .. }) => return Err(failed("it judges by other rules than these")),
                Some(FromBroker::Failed { what, why }) => {
                    return Err(failed(&format!("{}: {}", show_text(&what), show_text(&why))));
                }
                Some(
                    FromBroker::Denied(_)
                    | FromBroker::Seen(_)
                    | FromBroker::Usage(_)
                    | FromBroker::Used { .. }
                    | FromBroker::Alive {}
                    | FromBroker::Told {}
                    | FromBroker::Ask { .. }
                    | FromBroker::Whose { .. }
                    | FromBroker::Unreached { .. }
                    | FromBroker::Refused { .. },
                ) => {
                    return Err(failed("it speaks before it is ready"));
                }
                None => {}
            }
            wait(&*running, &socket, until)?;
            if !incoming.read(&socket) {
                return Err(failed("it ended before it was ready"));
            }
        }
        Keeper::new((running, bounds), socket, (incoming, folder), (&plan.policy, marks), (questions, denials))
    }
}

/// Waits for a word of the broker.
fn wait(running: &dyn Running, socket: &OwnedFd, until: Instant) -> Result<(), Error> {
    let interests = [socket.as_fd(), running.frames()].map(|fd| sys::channel::Interest { fd, write: false });
    let ready = sys::channel::wait_until(&interests, Some(until)).map_err(|error| failed(&error.to_string()))?;
    if ready.iter().any(|ready| *ready) { Ok(()) } else { Err(failed("it was not ready in time")) }
}

/// The sockets of a plan, as they are told.
fn named(plan: &Plan) -> Vec<wire::Socket> {
    let inlets =
        plan.controls().filter_map(|control| if let Control::Inlets(list) = control { Some(list) } else { None });
    let kind = |inlet: &Inlet| match (inlet.port, inlet.udp, inlet.ipv6) {
        (0, false, false) => SocketKind::SpareTcp4,
        (0, false, true) => SocketKind::SpareTcp6,
        (_, false, false) => SocketKind::Tcp4,
        (_, false, true) => SocketKind::Tcp6,
        (_, true, false) => SocketKind::Udp4,
        (_, true, true) => SocketKind::Udp6,
    };
    inlets.flatten().map(|inlet| wire::Socket { kind: kind(inlet), port: inlet.port }).collect()
}

/// Sends a frame, with descriptors beside its first bytes.
fn send(socket: &OwnedFd, frame: &ToBroker, descriptors: &[OwnedFd]) -> Result<(), Error> {
    let bytes = wire::encode_hidden(frame).map_err(|error| failed(&error.to_string()))?;
    let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut rest = bytes.as_slice();
    let told = |error: sys::error::Error| failed(&error.to_string());
    for some in descriptors.chunks(sys::channel::MAX_DESCRIPTORS) {
        // A byte for each batch; the last ones go without.
        let Some((first, more)) = rest.split_at_checked(1) else { return Err(failed("too many sockets")) };
        let sent = sys::channel::send_some(socket, first, some).map_err(told)?;
        rest = if sent == 1 { more } else { return Err(failed("it takes nothing")) };
    }
    sys::channel::send(socket, rest).map_err(told)
}

/// What came of the broker and is not read yet.
#[derive(Debug, Default)]
struct Incoming {
    bytes: Vec<u8>,
}

impl Incoming {
    /// The next frame that is whole, its texts bounded.
    fn next(&mut self) -> Result<Option<FromBroker>, Error> {
        let decoded = wire::decode::<FromBroker>(&self.bytes).map_err(|error| failed(&error.to_string()))?;
        let Some((frame, length)) = decoded else { return Ok(None) };
        self.bytes.drain(..length);
        Ok(Some(frame.bounded()))
    }

    /// Takes what is there; `false` when no more can come.
    fn read(&mut self, socket: &OwnedFd) -> bool {
        let mut buffer = [0; 1 << 14];
        match sys::channel::receive(socket, &mut buffer, true) {
            Ok(received) if received.count == 0 => false,
            Ok(received) => {
                self.bytes.extend_from_slice(buffer.get(..received.count).unwrap_or_default());
                true
            }
            Err(error) => error.is_again(),
        }
    }
}

fn failed(why: &str) -> Error {
    Error::failed(Fault {
        id: "net/broker",
        what: "the broker of the network does not do what it is to".to_owned(),
        place: "the process that holds the sandbox's sockets".to_owned(),
        why: why.to_owned(),
        fix: "run it again; `net.mode = \"none\"` needs no broker".to_owned(),
    })
}

fn no_program() -> Error {
    Error::failed(Fault {
        id: "net/no-program",
        what: "the broker of the network has no program".to_owned(),
        place: "`net.mode`".to_owned(),
        why: "fumehood's own executable is the broker, and its path is not known here (was it removed or replaced?)"
            .to_owned(),
        fix: "start fumehood again from its new place; in a library, set `Environment::broker`".to_owned(),
    })
}
