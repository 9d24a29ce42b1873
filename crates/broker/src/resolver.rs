//! Asks the machine's resolvers where a name is, outside: `/etc/resolv.conf`, no search domains, no hosts file.
//!
//! Our own few lines, since a static binary has no getaddrinfo and all that is wanted are addresses. Each question has a socket
//! (and so a port) and a number of its own, and only an answer from the resolver that was asked, with both, is taken.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use egress::dns::{self, LookupResult};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::{sleep, sleep_until, timeout, timeout_at};

use crate::bucket::Bucket;
use crate::outside;

/// Everything about one name, at most.
const ALL: Duration = Duration::from_millis(2500);
/// How long the other family's answer is waited for once one has addresses that could be reached (RFC 8305, "Resolution Delay"):
/// many resolvers answer A at once and drop AAAA.
const OTHER: Duration = Duration::from_millis(50);
/// One try of one resolver.
const ONE: Duration = Duration::from_millis(800);
/// Tries of all resolvers, one after the other.
const ROUNDS: usize = 2;
/// Questions outside at once: a program that looks up much waits, and does not flood the machine's resolver.
const AT_ONCE: usize = 32;
/// Names that are remembered.
const MAX_KEPT: usize = 4096;
/// How long an answer is good, whatever it says: one that is good for no time would be asked for twice by each connection, and a
/// program that looks up much would have its rate used up by it.
const TTL: std::ops::RangeInclusive<u32> = 5..=300;
/// How long it is good that there is no such name.
const NO_NAME: u32 = 5;
/// Names that are asked for outside, a second and at once. What is asked for is said to whoever answers for the name, so that
/// without an end a rule for `**.x` would carry anything out; a program that means it needs few names, and each once.
const ASKED_A_SECOND: u64 = 50;
const ASKED_AT_ONCE: u64 = 100;

/// What is told when nobody answered by then.
const LATE: &str = "no resolver answered in time";

/// What was answered for one family of addresses, or why nothing was.
type Answer = Result<LookupResult, String>;

/// Where a name is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resolved {
    /// There; never empty.
    Addresses(Vec<IpAddr>),
    /// The name is not there, or has no address.
    NoName,
    /// It could not be found out: why.
    Failed(String),
    /// Nobody was asked: too many names were, for now.
    TooMany,
}

#[derive(Debug)]
pub(crate) struct Resolver {
    file: PathBuf,
    /// Those that the file named when it could last be read.
    known: RefCell<Vec<SocketAddr>>,
    /// By name, until when; without an address there is no such name.
    kept: RefCell<HashMap<String, (Vec<IpAddr>, Instant)>>,
    /// Names that are being asked for.
    asking: RefCell<HashMap<String, Rc<OnceCell<Resolved>>>>,
    slots: Semaphore,
    /// How many names may be asked for.
    rate: RefCell<Bucket>,
}

impl Resolver {
    /// Asks the resolvers that this file names.
    pub(crate) fn new(file: PathBuf) -> Self {
        let rate = RefCell::new(Bucket::new(ASKED_A_SECOND, ASKED_AT_ONCE, Instant::now()));
        let (known, kept, asking) = (RefCell::default(), RefCell::default(), RefCell::default());
        Self { file, known, kept, asking, slots: Semaphore::new(AT_ONCE), rate }
    }

    /// Where a name is; answers are kept for as long as they say, within bounds.
    pub(crate) async fn find(self: &Rc<Self>, name: &str) -> Resolved {
        if let Some((addresses, until)) = self.kept.borrow().get(name)
            && *until > Instant::now()
        {
            return if addresses.is_empty() { Resolved::NoName } else { Resolved::Addresses(addresses.clone()) };
        }
        // Programs ask for both kinds of addresses at the same time: one question outside, which counts once.
        let asking = Rc::clone(self.asking.borrow_mut().entry(name.to_owned()).or_default());
        let resolved = asking.get_or_init(|| self.asked(name)).await.clone();
        self.asking.borrow_mut().remove(name);
        resolved
    }

    async fn asked(&self, name: &str) -> Resolved {
        if !self.rate.borrow_mut().take(Instant::now()) {
            return Resolved::TooMany;
        }
        let until = tokio::time::Instant::now() + ALL;
        match timeout_at(until, self.slots.acquire()).await {
            Ok(Ok(_slot)) => self.told(name, both(&self.servers(), name, until).await),
            Ok(Err(_closed)) => Resolved::Failed("the broker ends".to_owned()),
            Err(_late) => Resolved::Failed(LATE.to_owned()),
        }
    }

    /// What the answers of both families come to.
    fn told(&self, name: &str, families: [Option<Answer>; 2]) -> Resolved {
        let (mut addresses, mut ttl, mut why) = (Vec::new(), u32::MAX, None);
        for family in families {
            match family {
                Some(Ok(LookupResult::Addresses(some, seconds))) => {
                    ttl = if some.is_empty() { ttl } else { ttl.min(seconds) };
                    addresses.extend(some);
                }
                Some(Ok(LookupResult::NoName)) => {}
                Some(Ok(LookupResult::Cut)) => why = Some("an answer by TCP was cut".to_owned()),
                Some(Ok(LookupResult::Failed(code))) => why = Some(format!("the resolver answered with code {code}")),
                Some(Err(text)) => why = Some(text),
                None => why = Some(LATE.to_owned()),
            }
        }
        match (addresses.is_empty(), why) {
            (false, why) => {
                // What one family did not say is asked for again soon.
                let ttl = if why.is_some() { *TTL.start() } else { ttl };
                self.keep(name, &addresses, ttl);
                Resolved::Addresses(addresses)
            }
            (true, None) => {
                self.keep(name, &[], NO_NAME);
                Resolved::NoName
            }
            (true, Some(why)) => Resolved::Failed(why),
        }
    }

    fn keep(&self, name: &str, addresses: &[IpAddr], ttl: u32) {
        let mut kept = self.kept.borrow_mut();
        let now = Instant::now();
        if kept.len() >= MAX_KEPT {
            kept.retain(|_, (_, until)| *until > now);
        }
        if kept.len() < MAX_KEPT {
            let good = Duration::from_secs(u64::from(ttl.clamp(*TTL.start(), *TTL.end())));
            kept.insert(name.to_owned(), (addresses.to_vec(), now + good));
        }
    }

    /// Read anew each time: a machine that moves to another network writes another file. Where it can no longer be read (it was
    /// replaced, and the broker was granted the one before), the last that it named are asked on.
    fn servers(&self) -> Vec<SocketAddr> {
        let mut text = String::new();
        let read = std::fs::File::open(&self.file).and_then(|file| file.take(1 << 16).read_to_string(&mut text));
        if read.is_ok() {
            *self.known.borrow_mut() = named(&text);
        }
        let servers = self.known.borrow().clone();
        // What a resolver library takes where the file names none.
        if servers.is_empty() { vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 53))] } else { servers }
    }
}

/// The resolvers of a `resolv.conf`, at most three as its manual has it. `ADDRESS:PORT` is ours, for tests.
fn named(text: &str) -> Vec<SocketAddr> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()).flatten()
    });
    let server = |word: &str| {
        let address = word.parse::<IpAddr>().map(|address| SocketAddr::from((address, 53)));
        address.or_else(|_| word.parse::<SocketAddr>()).ok()
    };
    lines.filter_map(server).take(3).collect()
}

/// What the resolvers say of both families, IPv6 first. Each is asked in rounds of its own, so that one which nobody answers for
/// costs the other no more than [`OTHER`].
async fn both(servers: &[SocketAddr], name: &str, until: tokio::time::Instant) -> [Option<Answer>; 2] {
    let (mut v6, mut v4) = (pin!(of_kind(servers, name, dns::AAAA)), pin!(of_kind(servers, name, dns::A)));
    let mut found = [None, None];
    while let [of_v6, of_v4] = &mut found
        && (of_v6.is_none() || of_v4.is_none())
    {
        let reaches = [&*of_v6, &*of_v4].into_iter().flatten().any(is_way);
        tokio::select! {
            answer = &mut v6, if of_v6.is_none() => *of_v6 = Some(answer),
            answer = &mut v4, if of_v4.is_none() => *of_v4 = Some(answer),
            () = sleep(OTHER), if reaches => break,
            () = sleep_until(until) => break,
        }
    }
    found
}

/// Whether one could be connected to what was answered: where the machine has no route for a family, the other is waited for.
fn is_way(answer: &Answer) -> bool {
    let Ok(LookupResult::Addresses(addresses, _)) = answer else { return false };
    addresses.iter().any(|address| outside::source(*address).is_some())
}

async fn of_kind(servers: &[SocketAddr], name: &str, kind: u16) -> Answer {
    let mut why = String::new();
    for _ in 0..ROUNDS {
        for server in servers {
            match timeout(ONE, exchange(*server, name, kind)).await {
                // A resolver that could not may have a neighbour that can.
                Ok(Ok(LookupResult::Failed(code))) => why = format!("the resolver answered with code {code}"),
                Ok(Ok(found)) => return Ok(found),
                // Programs inside are told this: which resolvers the machine has is not theirs to know.
                Ok(Err(error)) => why = format!("a resolver of the machine: {error}"),
                Err(_) => why = "a resolver of the machine did not answer".to_owned(),
            }
        }
    }
    Err(why)
}

async fn exchange(server: SocketAddr, name: &str, kind: u16) -> std::io::Result<LookupResult> {
    let mut id = [0; 2];
    if !sys::random::fill(&mut id) {
        return Err(std::io::Error::other("there are no random numbers"));
    }
    let question = dns::ask(u16::from_ne_bytes(id), name, kind);
    let any: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(&question).await?;
    let mut buffer = vec![0; dns::MAX_UDP];
    loop {
        let count = socket.recv(&mut buffer).await?;
        match dns::found(&question, buffer.get(..count).unwrap_or_default()) {
            Some(LookupResult::Cut) => return by_tcp(server, &question).await,
            Some(found) => return Ok(found),
            // Somebody else's guess; the right one may still come.
            None => {}
        }
    }
}

async fn by_tcp(server: SocketAddr, question: &[u8]) -> std::io::Result<LookupResult> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).unwrap_or_default().to_be_bytes();
    stream.write_all(&[&length, question].concat()).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    dns::found(question, &answer).ok_or_else(|| std::io::Error::other("an answer that is none to the question"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_are_read_and_search_domains_are_not() {
        let text = "# me\nsearch corp.example\nnameserver 10.0.0.2\nnameserver  fd00::53 # x\noptions ndots:5\nnameserver x\n\
                    nameserver 127.0.0.1:5353\nnameserver 9.9.9.9\n";
        let shown: Vec<String> = named(text).iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.0.0.2:53", "[fd00::53]:53", "127.0.0.1:5353"]);
        assert_eq!(named("nameservers 1.1.1.1\n"), []);
    }

    /// One family alone is an answer, and not a lasting one: the other may have been late.
    #[test]
    fn what_one_family_did_not_say_is_asked_for_again_soon() {
        let resolver = Resolver::new(PathBuf::from("/nowhere"));
        let address: IpAddr = "192.0.2.7".parse().unwrap();
        let said = || Some(Ok(LookupResult::Addresses(vec![address], 300)));
        let none = || Some(Ok(LookupResult::Addresses(Vec::new(), 0)));
        for (name, families, seconds) in [
            ("late.example", [None, said()], 5),
            ("other.example", [said(), None], 5),
            ("mute.example", [Some(Err("mute".to_owned())), said()], 5),
            ("whole.example", [none(), said()], 300),
        ] {
            assert_eq!(resolver.told(name, families), Resolved::Addresses(vec![address]), "{name}");
            let (_, until) = resolver.kept.borrow()[name];
            let kept = until.saturating_duration_since(Instant::now()).as_secs_f64();
            assert!((f64::from(seconds) - 1.0..=f64::from(seconds)).contains(&kept), "{name}: {kept}");
        }
        assert_eq!(resolver.told("gone.example", [none(), Some(Ok(LookupResult::NoName))]), Resolved::NoName);
        for families in [[None, none()], [none(), None], [None, None]] {
            assert_eq!(resolver.told("none.example", families), Resolved::Failed(LATE.to_owned()), "nobody knows");
        }
    }

    #[test]
    fn a_file_that_is_gone_leaves_the_resolvers_that_it_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let resolver = Resolver::new(file.path().to_owned());
        let shown = || resolver.servers().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown(), ["127.0.0.1:53"]);
        for server in ["192.0.2.1", "192.0.2.2"] {
            std::fs::write(file.path(), format!("nameserver {server}\n")).unwrap();
            assert_eq!(shown(), [format!("{server}:53")]);
        }
        std::fs::remove_file(file.path()).unwrap();
        assert_eq!(shown(), ["192.0.2.2:53"]);
    }
}
