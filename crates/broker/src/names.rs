//! Answers the look-ups of programs inside, by UDP and TCP.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use egress::denial::{Reason, To};
use egress::dns::{self, Answer, NoQuestion, Question};
use egress::judge::LookUp;
use egress::names::is_given;
use sys::datagram::ReceivedDatagram;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::resolver::Resolved;
use crate::run::Run;

/// Look-ups at once; who comes after is told to come again.
const AT_ONCE: usize = 128;
/// How long a connection for look-ups may be quiet.
const QUIET: Duration = Duration::from_secs(10);
/// What is looked up where it is no name of a host.
const NO_HOST_NAME: &str = "a name that no host has";
/// Most bytes of a question.
const MAX_QUESTION: usize = 4096;

/// What is answered.
enum DnsAnswer {
    Addresses(Vec<IpAddr>),
    Pointer(String),
    Nothing,
    NoName,
    Denied(String),
    /// Not now.
    Refused(String),
    Failed(String),
}

/// Serves one socket of datagrams until the run ends.
///
/// # Errors
/// The socket broke, or cannot say whom a datagram was for.
pub(crate) async fn datagrams(run: Rc<Run>, socket: OwnedFd, slots: Arc<Semaphore>) -> std::io::Result<()> {
    let socket = Rc::new(datagram_socket(socket)?);
    let mut buffer = vec![0; MAX_QUESTION];
    loop {
        let Some(came) = next_datagram(&socket, &mut buffer).await? else { continue };
        let bytes = buffer.get(..came.count).unwrap_or_default();
        let question = match dns::question(bytes) {
            Ok(question) => question,
            Err(NoQuestion::Silence) => continue,
            Err(NoQuestion::Answer(answer)) => {
                drop(sys::datagram::send(&*socket, &answer, came.from, came.to));
                continue;
            }
        };
        if is_loopback(&came) {
            // Said at once, so that nobody waits for a resolver that is not there.
            let none =
                dns::answer(&question, &Answer::Refused("no resolver is on the sandbox's own loopback"), question.udp);
            drop(sys::datagram::send(&*socket, &none, came.from, came.to));
            continue;
        }
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            let busy = dns::answer(&question, &Answer::Failed("too many look-ups at once"), question.udp);
            drop(sys::datagram::send(&*socket, &busy, came.from, came.to));
            continue;
        };
        let (run, socket) = (Rc::clone(&run), Rc::clone(&socket));
        tokio::task::spawn_local(async move {
            let said = answered(&run, &question, question.udp).await;
            // Who does not take it asks again.
            drop(sys::datagram::send(&*socket, &said, came.from, came.to));
            drop(slot);
        });
    }
}

/// A socket of datagrams for the runtime, which says whom each was for.
///
/// # Errors
/// It cannot.
pub(crate) fn datagram_socket(socket: OwnedFd) -> std::io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::from(socket);
    let v6 = socket.local_addr()?.is_ipv6();
    sys::datagram::ask_for_destination(&socket, v6).map_err(std::io::Error::other)?;
    // An answer leaves from the address that was asked, which the sandbox has by its route alone.
    if v6 {
        rustix::net::sockopt::set_ipv6_freebind(&socket, true)?;
    }
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

/// The next datagram, in `buffer`; none: there was nothing after all.
///
/// # Errors
/// The socket broke.
pub(crate) async fn next_datagram(socket: &UdpSocket, buffer: &mut [u8]) -> std::io::Result<Option<ReceivedDatagram>> {
    socket.readable().await?;
    let receive = || sys::datagram::receive(socket, buffer).map_err(|error| std::io::Error::from(error.errno));
    // An error may be of a datagram before: nobody took its answer.
    Ok(socket.try_io(Interest::READABLE, receive).ok())
}

/// Whether a datagram was for the sandbox's own loopback, which is its own.
pub(crate) fn is_loopback(came: &ReceivedDatagram) -> bool {
    came.to.to_canonical().is_loopback()
}

/// Serves one connection of look-ups, one after the other.
pub(crate) async fn connection(run: &Rc<Run>, mut stream: TcpStream) {
    while let Ok(Ok(length)) = timeout(QUIET, stream.read_u16()).await {
        let mut bytes = vec![0; usize::from(length).min(MAX_QUESTION)];
        if usize::from(length) > MAX_QUESTION
            || !matches!(timeout(QUIET, stream.read_exact(&mut bytes)).await, Ok(Ok(_)))
        {
            return;
        }
        let answer = match dns::question(&bytes) {
            Ok(question) => answered(run, &question, usize::from(u16::MAX)).await,
            Err(NoQuestion::Silence) => return,
            Err(NoQuestion::Answer(answer)) => answer,
        };
        let length = u16::try_from(answer.len()).unwrap_or_default().to_be_bytes();
        if stream.write_all(&[&length, answer.as_slice()].concat()).await.is_err() {
            return;
        }
    }
}

async fn answered(run: &Rc<Run>, question: &Question, at_most: usize) -> Vec<u8> {
    let said = say(run, question).await;
    let answer = match &said {
        DnsAnswer::Addresses(addresses) => Answer::Addresses(addresses),
        DnsAnswer::Pointer(name) => Answer::Pointer(name),
        DnsAnswer::Nothing => Answer::Nothing,
        DnsAnswer::NoName => Answer::NoName,
        DnsAnswer::Denied(why) => Answer::Denied(why),
        DnsAnswer::Refused(why) => Answer::Refused(why),
        DnsAnswer::Failed(why) => Answer::Failed(why),
    };
    dns::answer(question, &answer, at_most)
}

async fn say(run: &Rc<Run>, question: &Question) -> DnsAnswer {
    let Some(name) = question.name.as_deref().filter(|_| question.internet) else {
        // Bytes that a program chose are in no record: it is one for all of them.
        run.count_look_up();
        let record = run.denied(&Reason::NoHostName, &To::Name(NO_HOST_NAME.to_owned()), 0);
        return DnsAnswer::Denied(format!("{}: {}", record.id, record.why));
    };
    // `home.arpa` is a name of hosts as any other (RFC 8375).
    if name.ends_with(".in-addr.arpa") || name.ends_with(".ip6.arpa") {
        return pointer(run, question, name);
    }
    let denied = |reason: &Reason| {
        let record = run.denied(reason, &To::Name(name.to_owned()), 0);
        DnsAnswer::Denied(format!("{}: {}", record.id, record.why))
    };
    match run.look_up(name) {
        LookUp::Denied(reason) => denied(&reason),
        LookUp::Ask | LookUp::Known { pinned: true } => give(run, question, name),
        // The proxy resolves it.
        LookUp::Known { pinned: false } if run.rules().net().proxy.is_some() => give(run, question, name),
        // A name that is asked for outside carries words there as well as a byte does.
        LookUp::Known { pinned: false } if run.meter.is_used() => {
            let record = run.denied(&Reason::Bytes, &To::Name(name.to_owned()), 0);
            DnsAnswer::Refused(format!("{}: {}", record.id, record.why))
        }
        LookUp::Known { pinned: false } => match run.resolver.find(name).await {
            Resolved::NoName => DnsAnswer::NoName,
            Resolved::Failed(why) => {
                run.unreached(&To::Name(name.to_owned()), 0, &why);
                DnsAnswer::Failed(why)
            }
            Resolved::TooMany => {
                let record = run.denied(&Reason::Rate, &To::Name(name.to_owned()), 0);
                DnsAnswer::Refused(format!("{}: {}", record.id, record.why))
            }
            Resolved::Addresses(addresses) => match inside(run, name, &addresses) {
                Some(reason) => denied(&reason),
                None => give(run, question, name),
            },
        },
    }
}

/// Why none of a name's real addresses may be reached; a rule with `address` may still lead there by some port.
fn inside(run: &Run, name: &str, addresses: &[IpAddr]) -> Option<Reason> {
    let (rules, to) = (run.rules(), To::Name(name.to_owned()));
    let ports = rules.ports(&to);
    // What only datagrams are sent to is judged when they are.
    let mut last = None;
    for port in ports {
        let pinned = matches!(rules.connect(&to, port), egress::judge::Connect::Way(way) if way.pin.is_some());
        if pinned {
            return None;
        }
        for address in addresses {
            match rules.outside(*address, port) {
                Ok(()) => return None,
                Err(reason) => last = Some(reason),
            }
        }
    }
    last
}

/// The addresses inside that stand for a name; new ones get their listeners first.
fn give(run: &Run, question: &Question, name: &str) -> DnsAnswer {
    if question.kind != dns::A && question.kind != dns::AAAA {
        return DnsAnswer::Nothing;
    }
    match run.give(name) {
        Ok(pair) => DnsAnswer::Addresses(vec![IpAddr::V4(pair.v4), IpAddr::V6(pair.v6)]),
        Err(reason) => {
            let record = run.denied(&reason, &To::Name(name.to_owned()), 0);
            DnsAnswer::Denied(format!("{}: {}", record.id, record.why))
        }
    }
}

/// Names of addresses that we gave; of others nothing is known, and nobody is asked.
fn pointer(run: &Run, question: &Question, name: &str) -> DnsAnswer {
    let address = dns::reverse(name).filter(|address| is_given(*address));
    match address.and_then(|address| run.names.borrow().of(address).map(str::to_owned)) {
        Some(name) if question.kind == dns::PTR => DnsAnswer::Pointer(name),
        Some(_) => DnsAnswer::Nothing,
        None => DnsAnswer::NoName,
    }
}

/// Places for look-ups.
pub(crate) fn slots() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(AT_ONCE))
}
