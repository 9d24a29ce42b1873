//! A small world for one broker: its own network namespace, one for the sandbox, and one where the servers are.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use egress::dns::{self, LookupResult};
use egress::wire::{self, Denied, FromBroker, Orders, Secrets, Socket, SocketKind, ToBroker, Usage};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

/// Where servers are in the world outside.
pub(crate) const WORLD: [u8; 4] = [93, 184, 216, 34];
/// The broker's own address there.
pub(crate) const OWN: [u8; 4] = [93, 184, 216, 1];
/// A private address in the world outside.
pub(crate) const PRIVATE: [u8; 4] = [10, 9, 9, 9];
const STAGED: &str = "FUMEHOOD_BROKER_STAGED";
const LATE: Duration = Duration::from_secs(8);

/// Runs `body` in namespaces of its own: the test program starts itself again there, for this test alone.
pub(crate) fn staged(test: &str, body: impl FnOnce(&Stage)) {
    if std::env::var_os(STAGED).is_some() {
        return body(&Stage::new());
    }
    let own = std::env::current_exe().unwrap();
    let ended = command("unshare")
        .args(["--user", "--map-root-user", "--net", "--"])
        .arg(own)
        .args(["--exact", test, "--nocapture"])
        .env(STAGED, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
}

#[expect(clippy::disallowed_methods, reason = "namespaces are made by the tools that everybody has")]
fn command(program: &str) -> Command {
    Command::new(program)
}

pub(crate) struct Stage {
    world: Namespace,
    pub(crate) sandbox: Namespace,
    resolvers: tempfile::NamedTempFile,
    /// The machine's resolver, and how many names it was asked for.
    pub(crate) resolver: SocketAddr,
    asked: Arc<AtomicUsize>,
    /// Who vouches for servers outside.
    pub(crate) authority: crate::tls::World,
    /// The authority of the run that was begun last, as programs inside trust it.
    pub(crate) trusted: std::cell::RefCell<Option<String>>,
    /// What the next broker is given for its proxy.
    pub(crate) login: std::cell::RefCell<Option<String>>,
    /// The next broker is given no sockets of IPv6, as on a machine without it.
    pub(crate) no_six: std::cell::Cell<bool>,
    /// The next broker is a process of its own, by [`serve_apart`] of this test.
    pub(crate) apart: std::cell::Cell<Option<&'static str>>,
}

/// Where the resolvers of a broker that is a process of its own are named.
const APART: &str = "FUMEHOOD_BROKER_APART";

/// Is the broker of a test whose stage wants it apart; whether this process was begun for that.
pub(crate) fn serve_apart() -> bool {
    let Some(file) = std::env::var_os(APART) else { return false };
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    broker::serve_with(socket, std::path::Path::new(&file), broker::UNUSED).unwrap();
    true
}

/// A network namespace, held by a process that waits.
pub(crate) struct Namespace {
    holder: Child,
    file: File,
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.holder.kill().unwrap();
        self.holder.wait().unwrap();
    }
}

impl Namespace {
    /// `setup` runs inside, then the namespace is held.
    fn new(setup: &str) -> Self {
        let mut holder = command("unshare")
            .args(["--net", "--", "sh", "-c", &format!("{setup}; echo ready; exec sleep 300")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 6];
        holder.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        let file = File::open(format!("/proc/{}/ns/net", holder.id())).unwrap();
        Self { holder, file }
    }

    /// Does something in it, in a thread of its own.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let moved = || {
                move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                work()
            };
            scope.spawn(moved).join().unwrap()
        })
    }
}

/// Lets so much time pass; a scope of threads may have left a token that ends a single wait at once.
pub(crate) fn wait(time: Duration) {
    let until = std::time::Instant::now() + time;
    while let Some(left) = until.checked_duration_since(std::time::Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

fn shell(script: &str) {
    let ended = command("sh").args(["-ec", script]).output().unwrap();
    assert!(ended.status.success(), "{script}: {}", String::from_utf8_lossy(&ended.stderr));
}

impl Stage {
    fn new() -> Self {
        let world = Namespace::new("ip link set lo up");
        let sandbox = Namespace::new(
            "ip link set lo up; ip route add local default dev lo; ip -6 route add local default dev lo",
        );
        let pid = world.holder.id();
        shell(&format!(
            "ip link set lo up; ip link add out type veth peer name far netns {pid}; ip link set out up
             ip addr add 93.184.216.1/24 dev out; ip addr add 2606:2800:220::1/64 dev out nodad
             nsenter --net --target {pid} -- sh -ec 'ip link set far up; ip addr add 93.184.216.34/24 dev far
             ip addr add 10.9.9.9/32 dev far; ip addr add 2606:2800:220::34/64 dev far nodad'
             ip route add 10.9.9.9/32 dev out",
        ));
        let asked = Arc::<AtomicUsize>::default();
        let at = resolver(&asked);
        let mut resolvers = tempfile::NamedTempFile::new().unwrap();
        writeln!(resolvers, "search nowhere.example\nnameserver {at}").unwrap();
        let authority = crate::tls::World::new();
        Self {
            world,
            sandbox,
            resolvers,
            resolver: at,
            asked,
            authority,
            trusted: std::cell::RefCell::default(),
            login: std::cell::RefCell::default(),
            no_six: std::cell::Cell::default(),
            apart: std::cell::Cell::default(),
        }
    }

    /// How many names the machine's resolver was asked for, each for its addresses of both kinds.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// The machine asks another resolver as well, which says the same.
    pub(crate) fn another_resolver(&self) {
        writeln!(self.resolvers.as_file(), "nameserver {}", resolver(&self.asked)).unwrap();
    }

    /// What sent to the world outside is lost from now on, and comes back from nowhere.
    pub(crate) fn world_is_gone(&self) {
        shell(&format!("nsenter --net --target {} -- ip link set far down", self.world.holder.id()));
    }

    /// A server outside; each connection is handed to `serve` in a thread of its own.
    pub(crate) fn server(&self, at: ([u8; 4], u16), serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) {
        self.server_at(at.into(), serve);
    }

    pub(crate) fn server_at(&self, at: SocketAddr, serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) {
        let listener = self.world.inside(|| TcpListener::bind(at).unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let serve = serve.clone();
                std::thread::spawn(move || serve(stream.unwrap()));
            }
        });
    }

    /// A server of datagrams outside, which says back what it is sent, and to whom that was.
    pub(crate) fn datagrams(&self, at: ([u8; 4], u16)) {
        // Who is gone is nobody's loss.
        self.datagrams_to(at, |socket, bytes, from| drop(socket.send_to(bytes, from)));
    }

    /// A server of datagrams outside.
    pub(crate) fn datagrams_to(
        &self,
        at: ([u8; 4], u16),
        serve: impl Fn(&UdpSocket, &[u8], SocketAddr) + Send + 'static,
    ) {
        let socket = self.world.inside(|| UdpSocket::bind(SocketAddr::from(at)).unwrap());
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok((count, from)) = socket.recv_from(&mut buffer) {
                serve(&socket, &buffer[..count], from);
            }
        });
    }

    /// A server outside that keeps its connections, in one thread.
    pub(crate) fn server_in_turn(&self, at: ([u8; 4], u16), serve: impl Fn(TcpStream) + Send + 'static) {
        let listener = self.world.inside(|| TcpListener::bind(SocketAddr::from(at)).unwrap());
        std::thread::spawn(move || listener.incoming().for_each(|stream| serve(stream.unwrap())));
    }

    /// A broker with these rules.
    pub(crate) fn broker(&self, net: &Value) -> Engine {
        self.broker_with(net, &[22, 80, 443])
    }

    pub(crate) fn broker_with(&self, net: &Value, ports: &[u16]) -> Engine {
        self.broker_holding(net, ports, Secrets::default())
    }

    /// A broker for which a name is long unused after this time.
    pub(crate) fn broker_forgetting(&self, net: &Value, unused: Duration) -> Engine {
        self.begun(net, &[22, 80, 443], Secrets::default(), unused)
    }

    /// A broker that holds secrets.
    pub(crate) fn broker_holding(&self, net: &Value, ports: &[u16], secrets: Secrets) -> Engine {
        self.begun(net, ports, secrets, broker::UNUSED)
    }

    fn begun(&self, net: &Value, ports: &[u16], secrets: Secrets, unused: Duration) -> Engine {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = self.resolvers.path().to_owned();
        let (mut broker, mut process) = (None, None);
        match self.apart.take() {
            Some(test) => process = Some(apart(test, theirs, &file)),
            None => {
                let serve = move || broker::serve_with(theirs.into(), &file, unused).map_err(|e| e.to_string());
                broker = Some(std::thread::spawn(serve));
            }
        }
        let mut sockets = self.sandbox.inside(|| sockets(ports));
        let is_six = |kind| matches!(kind, SocketKind::Tcp6 | SocketKind::Udp6 | SocketKind::SpareTcp6);
        sockets.retain(|(socket, _)| !self.no_six.get() || !is_six(socket.kind));
        let mut engine = Engine { socket: ours, bytes: Vec::new(), broker, process, passed: Vec::new() };
        let hosts = secrets.table.as_object().into_iter().flat_map(|table| table.values());
        let hosts = hosts.flat_map(|secret| secret["hosts"].as_array().unwrap()).map(|host| host.as_str().unwrap());
        let rules = egress::judge::Rules::read(&full(net)).ok();
        let names = rules.as_ref().map(|rules| egress::authority::names(rules.net(), hosts)).unwrap_or_default();
        let opening = (!names.is_empty()).then(|| egress::authority::make(names, self.authority.pem()).unwrap());
        self.trusted.replace(opening.as_ref().map(|opening| opening.certificate.clone()));
        let named = sockets.iter().map(|(socket, _)| *socket).collect();
        let (version, run, net) = (wire::VERSION, "r-test".to_owned(), full(net));
        let login = self.login.borrow().clone();
        let proxy_login = login.map(|login| egress::wire::Hidden(zeroize::Zeroizing::new(login)));
        let orders = Orders { version, run, net, sockets: named, opening, secrets, proxy_login, observe: false };
        let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(|(_, fd)| fd.as_fd()).collect();
        engine.send_with(&ToBroker::Orders(Box::new(orders)), &fds);
        drop(sockets);
        engine
    }

    /// Does something as a program in the sandbox.
    pub(crate) fn program<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.sandbox.inside(work)
    }
}

/// A broker that is this test program, begun anew.
fn apart(test: &str, socket: UnixStream, resolvers: &std::path::Path) -> Child {
    command(std::env::current_exe().unwrap().to_str().unwrap())
        .args(["--exact", test])
        .env(APART, resolvers)
        .stdin(OwnedFd::from(socket))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// The table of a policy, as the engine sends it.
pub(crate) fn full(net: &Value) -> Value {
    let mut all = json!({"mode": "allow"});
    all.as_object_mut().unwrap().extend(net.as_object().unwrap().clone());
    all
}

fn bound(family: AddressFamily, kind: SocketType, port: Option<u16>) -> OwnedFd {
    let fd = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    if family == AddressFamily::INET6 {
        rustix::net::sockopt::set_ipv6_v6only(&fd, true).unwrap();
    }
    if let Some(port) = port {
        // A test may have one broker after the other.
        rustix::net::sockopt::set_socket_reuseaddr(&fd, true).unwrap();
        let any: IpAddr = if family == AddressFamily::INET { [0; 4].into() } else { [0_u16; 8].into() };
        rustix::net::bind(&fd, &SocketAddr::new(any, port)).unwrap();
        if kind == SocketType::STREAM {
            rustix::net::listen(&fd, 128).unwrap();
        }
    }
    fd
}

fn sockets(ports: &[u16]) -> Vec<(Socket, OwnedFd)> {
    let mut made = Vec::new();
    let mut add = |kind, family, transport, port: Option<u16>| {
        made.push((Socket { kind, port: port.unwrap_or(0) }, bound(family, transport, port)));
    };
    for port in ports.iter().copied().chain([53]) {
        add(SocketKind::Tcp4, AddressFamily::INET, SocketType::STREAM, Some(port));
        add(SocketKind::Tcp6, AddressFamily::INET6, SocketType::STREAM, Some(port));
    }
    add(SocketKind::Udp4, AddressFamily::INET, SocketType::DGRAM, Some(53));
    add(SocketKind::Udp6, AddressFamily::INET6, SocketType::DGRAM, Some(53));
    for port in [123, 9999] {
        add(SocketKind::Udp4, AddressFamily::INET, SocketType::DGRAM, Some(port));
        add(SocketKind::Udp6, AddressFamily::INET6, SocketType::DGRAM, Some(port));
    }
    for _ in 0..5 {
        add(SocketKind::SpareTcp4, AddressFamily::INET, SocketType::STREAM, None);
        add(SocketKind::SpareTcp6, AddressFamily::INET6, SocketType::STREAM, None);
    }
    made
}

/// Where a name says that it is: `at-93-184-216-34` (several times for several), `six-` with 32 digits; once it was asked for, `then-`.
fn said(name: &str, asked: usize) -> Vec<IpAddr> {
    let labels = |mark: &'static str| name.split('.').filter_map(move |label| label.strip_prefix(mark));
    let four = |at: &str| at.replace('-', ".").parse::<IpAddr>().ok();
    let six = |at: &str| u128::from_str_radix(at, 16).ok().map(|bits| IpAddr::from(std::net::Ipv6Addr::from(bits)));
    let then: Vec<IpAddr> = labels("then-").filter_map(four).collect();
    if asked > 0 && !then.is_empty() {
        return then;
    }
    labels("at-").filter_map(four).chain(labels("six-").filter_map(six)).collect()
}

/// A resolver of the machine, and where it is.
fn resolver(counted: &Arc<AtomicUsize>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (at, counted) = (socket.local_addr().unwrap(), Arc::clone(counted));
    std::thread::spawn(move || resolve(&socket, &counted));
    at
}

/// Answers: a name is where it says, for no time; `gone.…` is not there, `mute.…` has no answer, `mute-a.…` and
/// `mute-aaaa.…` have none of that kind.
fn resolve(socket: &UdpSocket, counted: &AtomicUsize) {
    let (mut buffer, mut asked) = ([0; 2048], std::collections::HashMap::new());
    while let Ok((count, from)) = socket.recv_from(&mut buffer) {
        let Ok(question) = dns::question(&buffer[..count]) else { continue };
        let name = question.name.clone().unwrap();
        counted.fetch_add(usize::from(question.kind == dns::A), Ordering::SeqCst);
        assert!(!name.contains("nowhere") && !name.contains("denied"), "asked outside for {name}");
        let times = asked.entry((name.clone(), question.kind)).or_insert(0);
        let addresses = said(&name, *times);
        *times += 1;
        let mut answer = match name.split('.').next().unwrap() {
            "mute" => continue,
            "mute-a" if question.kind == dns::A => continue,
            "mute-aaaa" if question.kind == dns::AAAA => continue,
            "gone" => dns::answer(&question, &dns::Answer::NoName, 512),
            _ if addresses.is_empty() => dns::answer(&question, &dns::Answer::NoName, 512),
            _ => dns::answer(&question, &dns::Answer::Addresses(&addresses), 512),
        };
        // Good for no time: the class, and then the time that the writer gives.
        let timed: Vec<usize> = answer
            .windows(6)
            .enumerate()
            .filter(|(_, six)| *six == [0, 1, 0, 0, 0, 60])
            .map(|(at, _)| at + 5)
            .collect();
        for at in timed {
            answer[at] = 0;
        }
        socket.send_to(&answer, from).unwrap();
    }
}

/// The engine's side.
pub(crate) struct Engine {
    pub(crate) socket: UnixStream,
    bytes: Vec<u8>,
    pub(crate) broker: Option<std::thread::JoinHandle<Result<(), String>>>,
    /// The broker, where it is a process of its own.
    process: Option<Child>,
    /// Frames that nobody waited for yet.
    passed: Vec<FromBroker>,
}

impl Engine {
    pub(crate) fn send(&mut self, frame: &ToBroker) {
        self.socket.write_all(&wire::encode(frame).unwrap()).unwrap();
    }

    fn send_with(&mut self, frame: &ToBroker, fds: &[BorrowedFd<'_>]) {
        let bytes = wire::encode(frame).unwrap();
        let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(250))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(fds)));
        let parts = [std::io::IoSlice::new(&bytes)];
        let sent = rustix::net::sendmsg(&self.socket, &parts, &mut control, rustix::net::SendFlags::empty()).unwrap();
        self.socket.write_all(&bytes[sent..]).unwrap();
    }

    /// The next frame; `None`: the broker closed.
    pub(crate) fn next(&mut self) -> Option<FromBroker> {
        self.socket.set_read_timeout(Some(LATE)).unwrap();
        loop {
            if let Some((frame, length)) = wire::decode(&self.bytes).unwrap() {
                self.bytes.drain(..length);
                return Some(frame);
            }
            let mut buffer = [0; 4096];
            match self.socket.read(&mut buffer).expect("the broker says something in time") {
                0 => return None,
                count => self.bytes.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// Waits for a frame; what comes before it can still be waited for.
    pub(crate) fn wait<T>(&mut self, wanted: impl Fn(&FromBroker) -> Option<T>) -> T {
        if let Some((at, found)) = self.passed.iter().enumerate().find_map(|(at, f)| wanted(f).map(|found| (at, found)))
        {
            self.passed.remove(at);
            return found;
        }
        loop {
            let frame = self.next().expect("the broker is there");
            if let FromBroker::Failed { what, why } = &frame {
                panic!("{what}: {why}");
            }
            match wanted(&frame) {
                Some(found) => return found,
                None => self.passed.push(frame),
            }
        }
    }

    pub(crate) fn ready(&mut self) -> &mut Self {
        self.wait(|frame| matches!(frame, FromBroker::Ready { .. }).then_some(()));
        self
    }

    /// Waits for a denial of this kind.
    pub(crate) fn denied(&mut self, id: &str) -> Denied {
        self.wait(|frame| match frame {
            FromBroker::Denied(denied) if denied.id == id => Some(denied.clone()),
            _ => None,
        })
    }

    /// Ends it: what it counted when it last said so.
    pub(crate) fn used(mut self) -> Usage {
        let mut frames = std::mem::take(&mut self.passed);
        frames.extend(self.end());
        let counted = |frame: &FromBroker| if let FromBroker::Usage(usage) = frame { Some(*usage) } else { None };
        frames.iter().rev().find_map(counted).expect("it counts what it does")
    }

    pub(crate) fn end(mut self) -> Vec<FromBroker> {
        self.send(&ToBroker::End {});
        let mut frames = Vec::new();
        while let Some(frame) = self.next() {
            frames.push(frame);
        }
        self.broker.take().unwrap().join().unwrap().unwrap();
        frames
    }

    /// Kills a broker that is a process of its own.
    pub(crate) fn kill(mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

/// Looks a name up as a program does: by UDP, at the resolver that `resolv.conf` names.
pub(crate) fn look_up(name: &str, kind: u16) -> LookupResult {
    look_up_at("198.18.0.1:53".parse().unwrap(), name, kind)
}

pub(crate) fn look_up_at(server: SocketAddr, name: &str, kind: u16) -> LookupResult {
    let socket = UdpSocket::bind(if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).unwrap();
    socket.set_read_timeout(Some(LATE)).unwrap();
    socket.connect(server).unwrap();
    let question = dns::ask(77, name, kind);
    socket.send(&question).unwrap();
    let mut buffer = [0; 2048];
    let count = socket.recv(&mut buffer).expect("every look-up is answered");
    dns::found(&question, &buffer[..count]).expect("an answer to this question")
}

/// The address inside of a name that may be looked up.
pub(crate) fn address(name: &str) -> IpAddr {
    match look_up(name, dns::A) {
        LookupResult::Addresses(addresses, _) if addresses.len() == 1 => addresses[0],
        other => panic!("{name}: {other:?}"),
    }
}

pub(crate) fn connect(name: &str, port: u16) -> TcpStream {
    let stream = TcpStream::connect((address(name), port)).unwrap();
    stream.set_read_timeout(Some(LATE)).unwrap();
    stream
}

/// Sends, closes its half where `close`, and reads to the end.
pub(crate) fn exchange(mut stream: TcpStream, bytes: &[u8], close: bool) -> std::io::Result<String> {
    stream.write_all(bytes)?;
    if close {
        stream.shutdown(std::net::Shutdown::Write)?;
    }
    let mut read = Vec::new();
    stream.read_to_end(&mut read)?;
    Ok(String::from_utf8_lossy(&read).into_owned())
}

/// A server of HTTP that says what it was asked, one request after the other.
pub(crate) fn web(mut stream: impl std::io::Read + std::io::Write) {
    let mut held = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = held.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            let mut buffer = [0; 4096];
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(count) => held.extend_from_slice(&buffer[..count]),
            }
        };
        let head = String::from_utf8_lossy(&held[..end]).into_owned();
        held.drain(..end);
        let body = format!("{:?}", head.lines().collect::<Vec<_>>());
        if head.contains("websocket") {
            let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi";
            stream.write_all(switched.as_bytes()).unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            stream.write_all(&rest).unwrap();
            return;
        }
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Sends back what comes, after a banner; closes when the other side has.
pub(crate) fn echo(mut stream: TcpStream) {
    stream.write_all(b"banner\n").unwrap();
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count) = stream.read(&mut buffer) {
        if count == 0 || stream.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}
