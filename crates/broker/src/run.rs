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
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, oneshot};

use crate::meter::Meter;
use crate::observed::Observed;
use crate::proxy::Credentials;
use crate::records::Records;
use crate::resolver::Resolver;
use crate::secrets::Secrets;
use crate::sockets::Spares;
use crate::tls::Tls;

/// Connections for look-ups at once.
const MAX_LOOKUP_CONNECTIONS: usize = 64;
/// Questions to a person at once.
const MAX_ASKS: usize = 64;
/// How long a person has for an answer.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a connection that may not be is held while the engine looks which program has it.
const LOOK: Duration = Duration::from_secs(2);

pub(crate) struct Run {
    rules: RefCell<Rc<Rules>>,
    pub(crate) names: RefCell<Names>,
    spares: RefCell<Spares>,
    /// What spares listen on.
    bound: RefCell<HashSet<SocketAddr>>,
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
    asks: RefCell<HashMap<u64, PendingApproval>>,
    /// Answers that hold for the whole run.
    answered: RefCell<HashMap<ApprovalRequest, bool>>,
    /// Destinations about which the engine was asked whose connection it is, and who waits for its look.
    looked: RefCell<HashSet<SocketAddr>>,
    looks: RefCell<HashMap<u64, oneshot::Sender<()>>>,
    next: Cell<u64>,
    connections: Cell<u64>,
    pub(crate) lookups: Cell<u64>,
    /// Ports on which the guest's sockets wait, for all addresses; whether they are of datagrams.
    listening: HashSet<(bool, u16)>,
    /// Listeners that nobody accepts on yet.
    unserved: RefCell<Vec<TcpListener>>,
    more_listeners: Notify,
    /// Connections for look-ups; the next waits.
    pub(crate) lookup_connections: Semaphore,
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
pub(crate) struct Place {
    run: Rc<Run>,
    id: u64,
    pub(crate) open: Rc<Open>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.run.open.borrow_mut().remove(&self.id);
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

/// Whether it may lead there; of what a rule pins denials alone are asked.
pub(crate) fn leads_well(rules: &Rules, real: SocketAddr, is_pinned: bool) -> Result<(), Reason> {
    if is_pinned { rules.not_denied(real.ip(), real.port()) } else { rules.outside(real.ip(), real.port()) }
}

impl Run {
    pub(crate) fn new(
        (rules, tls, secrets): (Rules, Option<Tls>, Secrets),
        observed: Observed,
        (resolver, credentials): (Resolver, Option<Credentials>),
        spares: Spares,
        listening: HashSet<(bool, u16)>,
    ) -> Rc<Self> {
        let meter = Arc::new(Meter::new(rules.net()));
        let proxy = rules.net().proxy.clone();
        Rc::new(Self {
            rules: RefCell::new(Rc::new(rules)),
            names: RefCell::default(),
            spares: RefCell::new(spares),
            bound: RefCell::default(),
            secrets,
            records: Records::default(),
            observed,
            meter,
            resolver: Rc::new(resolver),
            proxy,
            credentials,
            tls,
            open: RefCell::default(),
            asks: RefCell::default(),
            answered: RefCell::default(),
            looked: RefCell::default(),
            looks: RefCell::default(),
            next: Cell::new(1),
            connections: Cell::new(0),
            lookups: Cell::new(0),
            listening,
            unserved: RefCell::default(),
            more_listeners: Notify::new(),
            lookup_connections: Semaphore::new(MAX_LOOKUP_CONNECTIONS),
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
    pub(crate) fn place(self: &Rc<Self>, to: &To, port: u16) -> Result<Place, Reason> {
        self.place_of((to, port), None)
    }

    /// The same for datagrams to where a rule may say that it really is.
    pub(crate) fn place_for_datagrams(
        self: &Rc<Self>,
        at: (&To, u16),
        pin: Option<SocketAddr>,
    ) -> Result<Place, Reason> {
        self.place_of(at, Some(pin))
    }

    fn place_of(
        self: &Rc<Self>,
        (to, port): (&To, u16),
        datagrams: Option<Option<SocketAddr>>,
    ) -> Result<Place, Reason> {
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
        Ok(Place { run: Rc::clone(self), id, open })
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
        if named.is_empty() && self.observed.is_asked() {
            listeners = self.listen_for_unnamed(&rules, pair);
        }
        for port in named {
            let own = rules.exact().any(|one| one == (name, port));
            let kept = if own { 0 } else { self.kept(&rules) };
            for address in [IpAddr::V4(pair.v4), IpAddr::V6(pair.v6)] {
                let listener = self.listen(SocketAddr::new(address, port), kept);
                listeners.extend(listener.map_err(|error| Reason::Listener(error.to_string()))?);
            }
        }
        self.serve(listeners);
        Ok(pair)
    }

    /// Hands new listeners to whoever accepts.
    pub(crate) fn serve(&self, listeners: Vec<TcpListener>) {
        self.unserved.borrow_mut().extend(listeners);
        self.more_listeners.notify_one();
    }

    /// Listeners that nobody accepts on yet, once there are any.
    pub(crate) async fn unserved(&self) -> Vec<TcpListener> {
        loop {
            let listeners = self.unserved.take();
            if !listeners.is_empty() {
                return listeners;
            }
            self.more_listeners.notified().await;
        }
    }

    /// Spare sockets, of each family, that are for the names of rules without a wildcard: other names leave them.
    fn kept(&self, rules: &Rules) -> usize {
        let (names, bound) = (self.names.borrow(), self.bound.borrow());
        let waits = |(name, port): &(&str, u16)| {
            let at = names.given(name).map(|pair| SocketAddr::new(IpAddr::V4(pair.v4), *port));
            !self.is_heard(*port) && at.is_none_or(|at| !bound.contains(&at))
        };
        rules.exact().filter(waits).collect::<BTreeSet<_>>().len()
    }

    /// Listeners for the high ports of other names' rules, as far as there are sockets: who learns is to hear of them.
    fn listen_for_unnamed(&self, rules: &Rules, pair: Pair) -> Vec<TcpListener> {
        let ports: BTreeSet<u16> = rules.net().rules().flat_map(|rule| rule.ports.iter().copied()).collect();
        let at = |port| [IpAddr::V4(pair.v4), IpAddr::V6(pair.v6)].map(|address| SocketAddr::new(address, port));
        let kept = self.kept(rules);
        ports.into_iter().flat_map(at).filter_map(|at| self.listen(at, kept).ok().flatten()).collect()
    }

    /// Whether the guest listens on a port of connections for all addresses (low ports, and those of ranges).
    fn is_heard(&self, port: u16) -> bool {
        port < FIRST_HIGH || self.listening.contains(&(false, port))
    }

    /// Listens on an address inside with a high port, once, unless so many spare sockets or fewer are left.
    fn listen(&self, at: SocketAddr, kept: usize) -> std::io::Result<Option<TcpListener>> {
        // Where the guest listens for all addresses nothing is left to listen on.
        if self.is_heard(at.port()) || self.bound.borrow().contains(&at) {
            return Ok(None);
        }
        let listener = self.spares.borrow_mut().listen(at, kept)?;
        self.bound.borrow_mut().insert(at);
        Ok(Some(listener))
    }

    /// Listeners for the high ports of rules with ranges: one address has its own, more have all addresses. All, or none.
    ///
    /// # Errors
    /// There are no spare sockets, or the port is taken inside.
    pub(crate) fn listen_for_ranges(&self, rules: &Rules) -> std::io::Result<Vec<TcpListener>> {
        let before = self.bound.borrow().clone();
        let listeners = self.each_range(rules);
        if listeners.is_err() {
            // Those that were had are closed with this; as bound they would never be listened on again.
            *self.bound.borrow_mut() = before;
        }
        listeners
    }

    fn each_range(&self, rules: &Rules) -> std::io::Result<Vec<TcpListener>> {
        let mut listeners = Vec::new();
        for rule in rules.net().rules().filter(|rule| rule.protocol == Protocol::Tcp) {
            let Target::Cidr(range) = &rule.to else { continue };
            let any = if range.first.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0_u16; 8]) };
            let address = if range.is_single() { range.first } else { any };
            for port in &rule.ports {
                listeners.extend(self.listen(SocketAddr::new(address, *port), 0)?);
            }
        }
        Ok(listeners)
    }

    /// A port of these rules on which nobody listens: the kernel refuses it, and it cannot be had later. High ports of connections
    /// are not of these: names have their own.
    pub(crate) fn unheard(&self, rules: &Rules) -> Option<String> {
        let heard = |udp: bool, port: u16| (!udp && port >= FIRST_HIGH) || self.listening.contains(&(udp, port));
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

    /// Takes other rules, and cuts what no longer fits them.
    pub(crate) fn replace(&self, rules: Rules) {
        self.meter.limit(rules.net());
        let before = self.rules();
        *self.rules.borrow_mut() = Rc::new(rules);
        let rules = self.rules();
        for open in self.open.borrow().values().filter(|open| !open.fits(self, &before, &rules)) {
            open.cut.notify_one();
        }
    }

    /// Cuts everything.
    pub(crate) fn cut_all(&self) {
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
        self.lookups.set(self.lookups.get().saturating_add(1));
        self.rules().look_up(name)
    }
}
