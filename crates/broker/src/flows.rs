//! Datagrams of programs inside: a flow for each sender and destination, judged when it begins, and over when it is quiet.
//!
//! What may not go is dropped, as a network would: nobody can be told. Nothing of it is read.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use egress::denial::{Reason, To};
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::meter::Direction;
use crate::names;
use crate::reach;
use crate::run::{OpenSlot, Run, leads_well};
use crate::stop::ConnectionEnd;

/// A flow on which nothing went for so long is over.
const QUIET: Duration = Duration::from_secs(60);
/// Datagrams of one flow that wait to be sent.
const MAX_WAITING: usize = 64;
/// Bytes that wait in all flows of one port.
const MAX_BYTES: usize = 4 << 20;
/// The longest datagram.
const MAX_DATAGRAM: usize = 1 << 16;

thread_local! {
    static SHARED: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_DATAGRAM]);
}

/// Who sent it inside, and to which address.
type Key = (SocketAddr, IpAddr);
/// A datagram, and its place among the bytes that wait.
type Datagram = (Vec<u8>, OwnedSemaphorePermit);
type Flows = Rc<RefCell<HashMap<Key, Sender<Datagram>>>>;

/// One flow.
struct Flow {
    run: Rc<Run>,
    inside: Rc<UdpSocket>,
    key: Key,
    to: To,
    port: u16,
    pin: Option<SocketAddr>,
    place: OpenSlot,
}

/// Serves one port of datagrams until the run ends.
///
/// # Errors
/// The socket broke, or cannot say whom a datagram was for.
pub(crate) async fn serve(run: Rc<Run>, port: u16, socket: OwnedFd) -> io::Result<()> {
    let inside = Rc::new(names::datagram_socket(socket)?);
    let (flows, bytes) = (Flows::default(), Arc::new(Semaphore::new(MAX_BYTES)));
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        let Some(came) = names::next_datagram(&inside, &mut buffer).await?.filter(|came| !names::is_loopback(came))
        else {
            continue;
        };
        let datagram = buffer.get(..came.count).unwrap_or_default().to_vec();
        let room = u32::try_from(datagram.len()).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&bytes).try_acquire_many_owned(room) else { continue };
        let key = (came.from, came.to);
        let known = flows.borrow().get(&key).cloned();
        if let Some(flow) = known {
            // One that does not take it in time loses it.
            drop(flow.try_send((datagram, room)));
            continue;
        }
        let to = run.meant(came.to.to_canonical());
        match begun(&run, &to, port) {
            Err(reason) => drop(run.denied_datagram(&reason, &to, port)),
            Ok((pin, place)) => {
                let (sender, waiting) = channel(MAX_WAITING);
                drop(sender.try_send((datagram, room)));
                flows.borrow_mut().insert(key, sender);
                let flow = Flow { run: Rc::clone(&run), inside: Rc::clone(&inside), key, to, port, pin, place };
                let flows = Rc::clone(&flows);
                tokio::task::spawn_local(async move {
                    flow.pass(waiting).await;
                    flows.borrow_mut().remove(&key);
                });
            }
        }
    }
}

/// Whether a flow may be, where it really leads if a rule says so, and its place among what is open.
fn begun(run: &Rc<Run>, to: &To, port: u16) -> Result<(Option<SocketAddr>, OpenSlot), Reason> {
    let pin = run.rules().datagrams(to, port)?;
    Ok((pin, run.place_for_datagrams((to, port), pin)?))
}

impl Flow {
    /// Passes datagrams both ways until it is quiet, cut, or may no more.
    async fn pass(self, waiting: Receiver<Datagram>) {
        let ended = tokio::select! {
            biased;
            () = self.place.open.cut.notified() => return,
            ended = self.both_ways(waiting) => ended,
        };
        match ended {
            Ok(()) | Err(ConnectionEnd::Broken) => {}
            Err(ConnectionEnd::Denied(reason)) => drop(self.run.denied_datagram(&reason, &self.to, self.port)),
            Err(ConnectionEnd::Failed(why)) => self.run.unreached(&self.to, self.port, &why),
        }
    }

    async fn both_ways(&self, mut waiting: Receiver<Datagram>) -> Result<(), ConnectionEnd> {
        let late = |_| Err(ConnectionEnd::Failed(format!("{} cannot be reached in time", self.to)));
        let server = timeout(reach::WAY_OUT, self.outside()).await.unwrap_or_else(late)?;
        let real = server.peer_addr()?;
        // Rules that came while its name was looked up hold for it, too.
        leads_well(&self.run.rules(), real, self.pin.is_some()).map_err(ConnectionEnd::Denied)?;
        self.place.open.leads_to(real);
        self.run.passed();
        loop {
            tokio::select! {
                datagram = waiting.recv() => match datagram {
                    Some((bytes, _room)) => self.out(&server, &bytes).await?,
                    None => return Ok(()),
                },
                ready = server.readable() => {
                    ready?;
                    self.run.meter.wait().await;
                    self.back(&server)?;
                }
                () = sleep(QUIET) => return Ok(()),
            }
            tokio::task::consume_budget().await;
        }
    }

    /// A socket that is connected to where it really leads, judged anew.
    async fn outside(&self) -> Result<UdpSocket, ConnectionEnd> {
        let addresses = reach::addresses(&self.run, (&self.to, self.port), self.pin).await?;
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            let any: SocketAddr = if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
            let socket = UdpSocket::bind(any).await?;
            match socket.connect(address).await {
                Ok(()) => return Ok(socket),
                Err(error) => last = error,
            }
        }
        Err(ConnectionEnd::Failed(last.to_string()))
    }

    /// Sends one to the server.
    async fn out(&self, server: &UdpSocket, bytes: &[u8]) -> Result<(), ConnectionEnd> {
        self.run.meter.wait().await;
        self.room(bytes.len())?;
        self.run.meter.count(Direction::Out, bytes.len());
        if let Err(error) = server.send(bytes).await {
            self.unsent(&error);
        }
        Ok(())
    }

    /// Hands on what the server sent.
    fn back(&self, server: &UdpSocket) -> Result<(), ConnectionEnd> {
        SHARED.with_borrow_mut(|buffer| {
            let count = match server.try_recv(buffer) {
                Ok(count) => count,
                Err(error) => {
                    self.unsent(&error);
                    return Ok(());
                }
            };
            self.room(count)?;
            let (to, from) = self.key;
            let bytes = buffer.get(..count).unwrap_or_default();
            // Who does not take it loses it.
            drop(sys::datagram::send(&*self.inside, bytes, to, from));
            self.run.meter.count(Direction::In, count);
            Ok(())
        })
    }

    /// That nobody was there for the one before, or that it is too long, is no end of a flow, and told.
    fn unsent(&self, error: &io::Error) {
        if error.kind() != io::ErrorKind::WouldBlock {
            self.run.unreached(&self.to, self.port, &format!("a datagram did not arrive: {error}"));
        }
    }

    /// Whether so many bytes may still go.
    fn room(&self, count: usize) -> Result<(), ConnectionEnd> {
        if self.run.meter.is_used() || self.run.meter.room(count) < count {
            Err(ConnectionEnd::Denied(Reason::Bytes))
        } else {
            Ok(())
        }
    }
}
