//! Where connections are accepted inside: on the sockets that wait at the start, and on high ports at the addresses of names, each
//! with a spare socket. Spares are few, so that a name which is long unused gives its own back to the next.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use egress::judge::FIRST_HIGH;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::sockets::{self, Spares};

/// Names that are asked for their socket before the next one is refused: a program may keep each of them busy for a moment.
const MAX_TRIES: usize = 4;

/// A socket that connections are accepted on, until it is closed.
#[derive(Clone)]
pub(crate) struct Listener {
    pub(crate) socket: Rc<TcpListener>,
    pub(crate) closed: Rc<Notify>,
}

impl From<TcpListener> for Listener {
    fn from(socket: TcpListener) -> Self {
        Self { socket: Rc::new(socket), closed: Rc::default() }
    }
}

/// What a spare listens on.
#[derive(Clone)]
struct Bound {
    listener: Listener,
    /// When its name was last looked up or connected to there.
    used: Instant,
}

/// Those that a spare listens on, as they were.
pub(crate) struct Before(HashMap<SocketAddr, Bound>);

pub(crate) struct Listeners {
    spares: RefCell<Spares>,
    bound: RefCell<HashMap<SocketAddr, Bound>>,
    /// Ports on which the guest's sockets wait, for all addresses; whether they are of datagrams.
    everywhere: HashSet<(bool, u16)>,
    /// There are sockets of IPv6: where the machine has none, no program connects by it.
    has_v6: bool,
    /// How long a name is to be unused before its sockets are another's.
    unused: Duration,
    /// Those that nobody accepts on yet.
    unserved: RefCell<Vec<Listener>>,
    more: Notify,
}

impl Listeners {
    pub(crate) fn new(spares: Spares, everywhere: HashSet<(bool, u16)>, unused: Duration) -> Self {
        let (has_v6, bound, unserved) = (spares.has_v6(), RefCell::default(), RefCell::default());
        Self { spares: RefCell::new(spares), bound, everywhere, has_v6, unused, unserved, more: Notify::new() }
    }

    /// Whether the guest listens on a port for all addresses.
    pub(crate) fn is_everywhere(&self, udp: bool, port: u16) -> bool {
        self.everywhere.contains(&(udp, port))
    }

    /// Whether a connection to this address and port is accepted.
    pub(crate) fn is_heard(&self, at: SocketAddr) -> bool {
        at.port() < FIRST_HIGH || self.is_everywhere(false, at.port()) || self.bound.borrow().contains_key(&at)
    }

    /// Something was for this address and port.
    pub(crate) fn used(&self, at: SocketAddr) {
        if let Some(bound) = self.bound.borrow_mut().get_mut(&at) {
            bound.used = Instant::now();
        }
    }

    /// Listens on an address inside with a high port, once, unless so many spare sockets or fewer are left.
    ///
    /// # Errors
    /// There are no more, or a program inside holds that port on all addresses.
    pub(crate) fn listen(&self, at: SocketAddr, kept: usize) -> io::Result<Option<Listener>> {
        self.used(at);
        // Where the guest listens for all addresses nothing is left to listen on.
        if self.is_heard(at) || (at.is_ipv6() && !self.has_v6) {
            return Ok(None);
        }
        let listener = Listener::from(self.spares.borrow_mut().listen(at, kept)?);
        self.bound.borrow_mut().insert(at, Bound { listener: listener.clone(), used: Instant::now() });
        Ok(Some(listener))
    }

    /// The same, taking a socket from what is long unused and may end, where no more than `kept` are left.
    ///
    /// # Errors
    /// As [`Listeners::listen`].
    pub(crate) fn listen_instead(
        &self,
        at: SocketAddr,
        kept: usize,
        may_end: impl Fn(SocketAddr) -> bool,
    ) -> io::Result<Option<Listener>> {
        if !self.is_heard(at) && self.spares.borrow().left(at) <= kept {
            self.take_back(at, may_end);
        }
        self.listen(at, kept)
    }

    /// Ends the listener of the same family that is unused for longest, and makes a spare socket of it.
    fn take_back(&self, like: SocketAddr, may_end: impl Fn(SocketAddr) -> bool) {
        let now = Instant::now();
        let mut unused: Vec<(Instant, SocketAddr)> = self
            .bound
            .borrow()
            .iter()
            .filter(|(at, bound)| at.is_ipv4() == like.is_ipv4() && now.duration_since(bound.used) >= self.unused)
            .map(|(at, bound)| (bound.used, *at))
            .collect();
        unused.sort_unstable();
        for (_, at) in unused.into_iter().filter(|(_, at)| may_end(*at)).take(MAX_TRIES) {
            let Some(listener) = self.bound.borrow().get(&at).map(|bound| bound.listener.clone()) else { continue };
            if self.spares.borrow_mut().renew(&listener.socket, at).is_ok() {
                self.bound.borrow_mut().remove(&at);
                listener.closed.notify_one();
                return;
            }
        }
    }

    /// What spares listen on now, so that it can be again.
    pub(crate) fn before(&self) -> Before {
        Before(self.bound.borrow().clone())
    }

    /// Those that came since are closed by who has them; as bound they would never be listened on again.
    pub(crate) fn again(&self, Before(bound): Before) {
        *self.bound.borrow_mut() = bound;
    }

    /// Hands new listeners to whoever accepts.
    pub(crate) fn serve(&self, listeners: Vec<Listener>) {
        self.unserved.borrow_mut().extend(listeners);
        self.more.notify_one();
    }

    /// Listeners that nobody accepts on yet, once there are any.
    pub(crate) async fn unserved(&self) -> Vec<Listener> {
        loop {
            let listeners = self.unserved.take();
            if !listeners.is_empty() {
                return listeners;
            }
            self.more.notified().await;
        }
    }
}

/// A socket that waits already.
///
/// # Errors
/// It does not listen.
pub(crate) fn waiting(fd: std::os::fd::OwnedFd) -> io::Result<Listener> {
    sockets::listener(fd).map(Listener::from)
}
