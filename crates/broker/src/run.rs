//! The state of one run, shared by all tasks of the broker's one thread.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use egress::authority;
use egress::denial::{Reason, To};
use egress::judge::{Connect, FIRST_HIGH, LookUp, MAX_CONNECTIONS, Reading, Route, Rules};
use egress::names::{Names, Pair};
use egress::wire::{Denied, FromBroker, Head, MAX_TEXT, MAX_WHOSE, Scope, Usage};
use policy::value::{Protocol, Proxy, Target};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore, oneshot};

use crate::listeners::{Listener, Listeners};
use crate::meter::Meter;
use crate::observed::Observed;
use crate::proxy::Credentials;
use crate::records::Records;
use crate::resolver::Resolver;
use crate::secrets::Secrets;
use crate::tls::Tls;

/// Connections for look-ups at once.
const MAX_LOOKUP_CONNECTIONS: usize = 64;
/// Bytes of unfinished heads of requests, of all connections together, beyond what each has for itself. Each byte is held more than
/// once while a head is read, and whoever ends none is to take a small part of the broker's memory.
pub(crate) const MAX_HEADS: usize = 8 << 20;
/// Questions to a person at once.
const MAX_ASKS: usize = 64;
/// How long a person has for an answer.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a connection that may not be is held while the engine looks which program has it.
const LOOK: Duration = Duration::from_secs(2);

pub(crate) struct Run {
    rules: RefCell<Rc<Rules>>,
    pub(crate) names: RefCell<Names>,
    pub(crate) listeners: Listeners,
    pub(crate) secrets: Secrets,
    pub(crate) records: Records,
    observed: Observed,
    pub(crate) meter: Arc<Meter>,
    pub(crate) resolver: Rc<Resolver>,
    /// The proxy of the start: rules without a network need not name it, and those after them must.
    pub(crate) proxy: Option<Proxy>,
    /// By what the proxy of `net.proxy` knows us.
    pub(crate) credentials: Option<Credentials>,
    /// What opens TLS, where rules need it.
    pub(crate) tls: Option<Tls>,
    open: RefCell<BTreeMap<u64, Rc<Open>>>,
    /// The run has ended: its connections end as those of any program that has.
    pub(crate) has_ended: Cell<bool>,
    asks: RefCell<HashMap<u64, PendingApproval>>,
    /// Answers that hold for the whole run.
    answered: RefCell<HashMap<ApprovalRequest, bool>>,
    /// Destinations about which the engine was asked whose connection it is, and who waits for its look.
    looked: RefCell<HashSet<SocketAddr>>,
    looks: RefCell<HashMap<u64, oneshot::Sender<()>>>,
    next: Cell<u64>,
    connections: Cell<u64>,
    pub(crate) lookups: Cell<u64>,
    /// Connections for look-ups; the next waits.
    pub(crate) lookup_connections: Semaphore,
    /// Room for heads of requests that do not end yet.
    pub(crate) heads: Arc<Semaphore>,
}

/// A connection that is open.
#[derive(Debug)]
pub(crate) struct Open {
    to: To,
    port: u16,
    /// Of datagrams, and where a rule says that it really is.
    datagrams: Option<Option<SocketAddr>>,
    /// A person allowed it; rules did not.
    asked: Cell<bool>,
    /// How it is treated, once that is judged.
    way: Cell<Option<Route>>,
    /// Where it really leads, once it is connected; HTTP/2 may need several connections outside.
    real: RefCell<BTreeSet<SocketAddr>>,
    /// It is to be cut.
    pub(crate) cut: Notify,
}

/// What a person is asked about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApprovalRequest {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The request; none: the connection.
    pub(crate) request: Option<Head>,
}

struct PendingApproval {
    asked: ApprovalRequest,
    answer: oneshot::Sender<bool>,
}

/// A connection's place among those that are open; gone with it.
pub(crate) struct OpenSlot {
    run: Rc<Run>,
    id: u64,
    pub(crate) open: Rc<Open>,
}

impl Drop for OpenSlot {
    fn drop(&mut self) {
        self.run.open.borrow_mut().remove(&self.id);
        self.run.used(&self.open.to, self.open.port);
    }
}

impl Open {
    /// It was judged: so it is treated, and whether a person allowed it.
    pub(crate) fn judged(&self, way: Route, asked: bool) {
        self.way.set(Some(way));
        self.asked.set(asked);
    }

    /// It leads there.
    pub(crate) fn leads_to(&self, real: SocketAddr) {
        self.real.borrow_mut().insert(real);
    }

    /// Whether it is still as these rules would have it.
    fn fits(&self, run: &Run, before: &Rules, rules: &Rules) -> bool {
        // What was allowed as a request may go on for long: an upgrade, an upload. Nor does a person's word outlive a rule.
        let same = |way: Route| way.reading != Reading::Requests || rules.judges_as(before, &self.to, self.port);
        let way = match run.connect(rules, &self.to, self.port) {
            Connect::Way(way) => !self.asked.get() && self.way.get().is_none_or(|before| before == way) && same(way),
            Connect::Ask => self.asked.get(),
            Connect::Denied(_) => false,
        };
        let way = match self.datagrams {
            Some(pin) => rules.datagrams(&self.to, self.port) == Ok(pin),
            None => way,
        };
        let pinned =
            self.datagrams.is_some_and(|pin| pin.is_some()) || self.way.get().is_some_and(|way| way.pin.is_some());
        let real = self.real.borrow().iter().all(|real| leads_well(rules, *real, pinned).is_ok());
        way && real
    }
}

/// The addresses of a name, with a port.
fn both(pair: Pair, port: u16) -> [SocketAddr; 2] {
    [IpAddr::V4(pair.v4), IpAddr::V6(pair.v6)].map(|address| SocketAddr::new(address, port))
}

/// Whether it may lead there; of what a rule pins denials alone are asked.
pub(crate) fn leads_well(rules: &Rules, real: SocketAddr, is_pinned: bool) -> Result<(), Reason> {
    if is_pinned { rules.not_denied(real.ip(), real.port()) } else { rules.outside(real.ip(), real.port()) }
}

impl Run {
    pub(crate) fn new(
        (rules, tls, secrets): (Rules, Option<Tls>, Secrets),
        observed: Observed,
        (resolver, credentials): (Resolver, Option<Credentials>),
        listeners: Listeners,
    ) -> Rc<Self> {
        let meter = Arc::new(Meter::new(rules.net()));
        let proxy = rules.net().proxy.clone();
        Rc::new(Self {
            rules: RefCell::new(Rc::new(rules)),
            names: RefCell::default(),
            listeners,
            secrets,
            records: Records::default(),
            observed,
            meter,
            resolver: Rc::new(resolver),
            proxy,
            credentials,
            tls,
            open: RefCell::default(),
            has_ended: Cell::new(false),
            asks: RefCell::default(),
            answered: RefCell::default(),
            looked: RefCell::default(),
            looks: RefCell::default(),
            next: Cell::new(1),
            connections: Cell::new(0),
            lookups: Cell::new(0),
            lookup_connections: Semaphore::new(MAX_LOOKUP_CONNECTIONS),
            heads: Arc::new(Semaphore::new(MAX_HEADS)),
        })
    }

    /// The rules as they are now.
    pub(crate) fn rules(&self) -> Rc<Rules> {
        Rc::clone(&self.rules.borrow())
    }

    /// Whether a connection may be made, and how it is treated: where secrets may be for it, requests are read one by one.
    pub(crate) fn connect(&self, rules: &Rules, to: &To, port: u16) -> Connect {
        match rules.connect(to, port) {
            Connect::Way(way) => Connect::Way(self.read_for_secrets(way, to, port)),
            other @ (Connect::Ask | Connect::Denied(_)) => other,
        }
    }

    /// The same way, with its requests read where secrets may be for them.
    pub(crate) fn read_for_secrets(&self, way: Route, to: &To, port: u16) -> Route {
        if self.secrets.is_for(to, port) { Route { reading: Reading::Requests, ..way } } else { way }
    }

    fn number(&self) -> u64 {
        let number = self.next.get();
        self.next.set(number.saturating_add(1));
        number
    }

    /// What is said now and then, and at the end.
    pub(crate) fn counts(&self) -> Vec<FromBroker> {
        let mut frames = self.records.counts(self.usage());
        frames.extend(self.secrets.used().map(|secrets| FromBroker::Used { secrets }));
        frames
    }

    fn usage(&self) -> Usage {
        let (sent, received) = self.meter.counts();
        let open = u64::try_from(self.open.borrow().len()).unwrap_or(u64::MAX);
        Usage { sent, received, open, connections: self.connections.get(), lookups: self.lookups.get() }
    }

    /// Records a denial.
    pub(crate) fn denied(&self, reason: &Reason, to: &To, port: u16) -> Denied {
        self.records.denied(reason, to, port)
    }

    /// Records a datagram that may not go.
    pub(crate) fn denied_datagram(&self, reason: &Reason, to: &To, port: u16) -> Denied {
        self.records.denied_datagram(reason, to, port)
    }

    /// What may be reached could not be, outside.
    pub(crate) fn unreached(&self, to: &To, port: u16, why: &str) {
        self.records.unreached(to, port, why);
    }

    /// Counts a connection that was passed on.
    pub(crate) fn passed(&self) {
        self.connections.set(self.connections.get().saturating_add(1));
    }

    /// Whether somebody asked what is let through.
    pub(crate) const fn is_observed(&self) -> bool {
        self.observed.is_asked()
    }

    /// Something was let through.
    pub(crate) fn seen(&self, to: &To, port: u16, request: Option<(&str, &str)>) {
        self.observed.see(&self.records, (to, port), request);
    }

    /// Whom an address inside stands for.
    pub(crate) fn meant(&self, address: IpAddr) -> To {
        self.names.borrow().of(address).map_or(To::Address(address), |name| To::Name(name.to_owned()))
    }

    /// A place among the open connections; the reason where there is none.
    pub(crate) fn place(self: &Rc<Self>, to: &To, port: u16) -> Result<OpenSlot, Reason> {
        self.place_of((to, port), None)
    }

    /// The same for datagrams to where a rule may say that it really is.
    pub(crate) fn place_for_datagrams(
        self: &Rc<Self>,
        at: (&To, u16),
        pin: Option<SocketAddr>,
    ) -> Result<OpenSlot, Reason> {
        self.place_of(at, Some(pin))
    }

    fn place_of(
        self: &Rc<Self>,
        (to, port): (&To, u16),
        datagrams: Option<Option<SocketAddr>>,
    ) -> Result<OpenSlot, Reason> {
        let most = self.rules().net().connections.unwrap_or(MAX_CONNECTIONS);
        let open = self.open.borrow().len();
        if u32::try_from(open).unwrap_or(u32::MAX) >= most {
            return Err(Reason::Connections(most));
        }
        if self.meter.is_used() {
            return Err(Reason::Bytes);
        }
        let id = self.number();
        let open = Rc::new(Open {
            to: to.clone(),
            port,
            datagrams,
            asked: Cell::new(false),
            way: Cell::new(None),
            real: RefCell::default(),
            cut: Notify::new(),
        });
        self.open.borrow_mut().insert(id, Rc::clone(&open));
        self.used(to, port);
        Ok(OpenSlot { run: Rc::clone(self), id, open })
    }

    /// The addresses of a name; connections to its high ports are accepted from now on.
    ///
    /// # Errors
    /// There are too many names, or no listener can be had for it.
    pub(crate) fn give(&self, name: &str) -> Result<Pair, Reason> {
        let given = self.names.borrow_mut().give(name);
        let Some((pair, _)) = given else { return Err(Reason::Names) };
        let (rules, mut listeners) = (self.rules(), Vec::new());
        let named = rules.ports(&To::Name(name.to_owned()));
        if named.is_empty() {
            listeners = self.listen_for_unnamed(&rules, pair);
        }
        for port in named {
            let own = rules.exact().any(|one| one == (name, port));
            for at in both(pair, port) {
                let listener = if own { self.listeners.listen(at, 0) } else { self.listen_shared(&rules, at) };
                listeners.extend(listener.map_err(|error| Reason::Listener(error.to_string()))?);
            }
        }
        self.listeners.serve(listeners);
        Ok(pair)
    }

    /// Something was for this name and port: what listens for it is in use.
    fn used(&self, to: &To, port: u16) {
        let To::Name(name) = to else { return };
        let given = self.names.borrow().given(name);
        for at in given.into_iter().flat_map(|pair| both(pair, port)) {
            self.listeners.used(at);
        }
    }

    /// Spare sockets, of each family, that other names leave: those of rules without a wildcard, and one by which sockets that are
    /// long unused are taken back.
    fn kept(&self, rules: &Rules) -> usize {
        let names = self.names.borrow();
        let waits = |(name, port): &(&str, u16)| {
            let unknown = *port >= FIRST_HIGH && !self.listeners.is_everywhere(false, *port);
            let given = names.given(name).map(|pair| SocketAddr::new(IpAddr::V4(pair.v4), *port));
            given.map_or(unknown, |at| !self.listeners.is_heard(at))
        };
        rules.exact().filter(waits).collect::<BTreeSet<_>>().len().saturating_add(1)
    }

    /// Listens with a socket of the stock that names of wildcards and names without a rule share.
    fn listen_shared(&self, rules: &Rules, at: SocketAddr) -> std::io::Result<Option<Listener>> {
        self.listeners.listen_instead(at, self.kept(rules), |at| self.may_end(rules, at))
    }

    /// Whether what listens there may be another name's: nothing is open, and no rule has this name without a wildcard.
    fn may_end(&self, rules: &Rules, at: SocketAddr) -> bool {
        let names = self.names.borrow();
        let Some(name) = names.of(at.ip()) else { return false };
        let is_here = |open: &Rc<Open>| open.port == at.port() && matches!(&open.to, To::Name(to) if to == name);
        !rules.exact().any(|one| one == (name, at.port())) && !self.open.borrow().values().any(is_here)
    }

    /// Listeners for a name that no rule has, as far as there are sockets: a person is asked about what comes, or who learns hears of it.
    fn listen_for_unnamed(&self, rules: &Rules, pair: Pair) -> Vec<Listener> {
        let ports = rules.net().asked_ports().into_iter();
        ports.flat_map(|port| both(pair, port)).filter_map(|at| self.listen_shared(rules, at).ok().flatten()).collect()
    }

    /// Listeners for the high ports of rules with ranges: one address has its own, more have all addresses. All, or none.
    ///
    /// # Errors
    /// There are no spare sockets, or the port is taken inside.
    pub(crate) fn listen_for_ranges(&self, rules: &Rules) -> std::io::Result<Vec<Listener>> {
        let before = self.listeners.before();
        let listeners = self.each_range(rules);
        if listeners.is_err() {
            self.listeners.again(before);
        }
        listeners
    }

    fn each_range(&self, rules: &Rules) -> std::io::Result<Vec<Listener>> {
        let mut listeners = Vec::new();
        for rule in rules.net().rules().filter(|rule| rule.protocol == Protocol::Tcp) {
            let Target::Cidr(range) = &rule.to else { continue };
            let any = if range.first.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0_u16; 8]) };
            let address = if range.is_single() { range.first } else { any };
            for port in &rule.ports {
                listeners.extend(self.listeners.listen(SocketAddr::new(address, *port), 0)?);
            }
        }
        Ok(listeners)
    }

    /// A port of these rules on which nobody listens: the kernel refuses it, and it cannot be had later. High ports of connections
    /// are not of these: names have their own.
    pub(crate) fn unheard(&self, rules: &Rules) -> Option<String> {
        let heard = |udp: bool, port: u16| (!udp && port >= FIRST_HIGH) || self.listeners.is_everywhere(udp, port);
        rules.net().rules().find_map(|rule| {
            let udp = rule.protocol == Protocol::Udp;
            let port = rule.ports.iter().find(|port| !heard(udp, **port))?;
            Some(format!("port {port}{}", if udp { " of UDP" } else { "" }))
        })
    }

    /// Whether TLS can be opened for everything that these rules open: who trusts what is settled at the start.
    pub(crate) fn opens(&self, rules: &Rules) -> bool {
        let names = authority::names(rules.net(), self.secrets.hosts());
        names.is_empty() || self.tls.as_ref().is_some_and(|tls| tls.covers(&names))
    }

    /// SHA-256 of the certificate of the run's authority.
    pub(crate) fn authority(&self) -> Option<String> {
        self.tls.as_ref().map(|tls| tls.digest().to_owned())
    }

    /// Takes other rules, and cuts what no longer fits them: of what is more than may be open at once, what began last.
    pub(crate) fn replace(&self, rules: Rules) {
        self.meter.limit(rules.net());
        let before = self.rules();
        *self.rules.borrow_mut() = Rc::new(rules);
        let rules = self.rules();
        let mut room = rules.net().connections.unwrap_or(MAX_CONNECTIONS);
        for open in self.open.borrow().values() {
            if room > 0 && open.fits(self, &before, &rules) {
                room = room.saturating_sub(1);
            } else {
                open.cut.notify_one();
            }
        }
    }

    /// Cuts everything, at the end of the run.
    pub(crate) fn cut_all(&self) {
        self.has_ended.set(true);
        for open in self.open.borrow().values() {
            open.cut.notify_one();
        }
    }

    /// Asks a person; without an answer in time it is no.
    pub(crate) async fn ask(&self, asked: &ApprovalRequest) -> bool {
        if let Some(known) = self.answered.borrow().get(asked) {
            return *known;
        }
        // What would be cut on its way is not what a person would agree to.
        let fits = |head: &Head| head.method.len().max(head.path.len()) <= MAX_TEXT;
        if self.asks.borrow().len() >= MAX_ASKS || !asked.request.as_ref().is_none_or(fits) {
            return false;
        }
        let (id, (answer, answered)) = (self.number(), oneshot::channel());
        self.asks.borrow_mut().insert(id, PendingApproval { asked: asked.clone(), answer });
        let ApprovalRequest { host, port, request } = asked.clone();
        self.records.say(FromBroker::Ask { id, host, port, request });
        let allowed = tokio::time::timeout(ANSWER, answered).await;
        self.asks.borrow_mut().remove(&id);
        matches!(allowed, Ok(Ok(true)))
    }

    /// A person answered.
    pub(crate) fn answer(&self, id: u64, allow: bool, scope: Scope) {
        let Some(PendingApproval { asked, answer }) = self.asks.borrow_mut().remove(&id) else { return };
        if scope == Scope::Run {
            self.answered.borrow_mut().insert(asked, allow);
        }
        // Who asked may be gone by now.
        let _gone = answer.send(allow);
    }

    /// Has the engine look which program has a connection that may not be, and holds it meanwhile; once for each destination.
    pub(crate) async fn whose(&self, stream: &TcpStream) {
        let (Ok(from), Ok(to)) = (stream.peer_addr(), stream.local_addr()) else { return };
        let first = self.looked.borrow().len() < MAX_WHOSE && self.looked.borrow_mut().insert(to);
        if !first {
            return;
        }
        let (id, (done, looked)) = (self.number(), oneshot::channel());
        self.looks.borrow_mut().insert(id, done);
        self.records.say(FromBroker::Whose { id, from, to });
        // Where the engine is late the program stays unknown: the refusal does not wait for its name.
        let _late = tokio::time::timeout(LOOK, looked).await;
        self.looks.borrow_mut().remove(&id);
    }

    /// The engine looked.
    pub(crate) fn looked(&self, id: u64) {
        let Some(done) = self.looks.borrow_mut().remove(&id) else { return };
        // The connection may have been given up.
        let _gone = done.send(());
    }

    /// Judges a look-up.
    pub(crate) fn look_up(&self, name: &str) -> LookUp {
        self.count_look_up();
        self.rules().look_up(name)
    }

    /// Counts a look-up.
    pub(crate) fn count_look_up(&self) {
        self.lookups.set(self.lookups.get().saturating_add(1));
    }
}
