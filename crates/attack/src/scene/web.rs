//! Scenes with a server on the host that rules allow in part: what it must not hear, or must not give back, is the token.
//!
//! Confined, a name of the rules leads to it by the broker; unconfined, its own address does. In both the probe first asks for
//! something that is allowed: where the server does not hear that, nothing is concluded.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use sys::pidfd;

use super::resolver::{self, Answers};
use super::world::{self, World};
use super::{Layout, Scene, SceneVerdict, leaked};
use crate::confined::{Moment, Observed, ProbeCall};
use crate::probe::{Try, rest};
use crate::survey;

/// The name that rules allow.
const NAME: &str = "allowed.test";
/// A name that leads to the same server, for which no secret is.
const OTHER: &str = "other.test";
/// What the allowed try says.
pub(crate) const HELLO: &str = "hello-of-the-probe";
/// A name that a rule allows wherever it is, and that moves.
const MOVING: &str = "moving.test";
/// A name that a rule allows wherever it is, and that is where a row wants it.
const LEADS: &str = "leads.test";
/// The server name in a hello of TLS, with what stands before it (RFC 6066, 3).
const HELLO_OF_TLS: &str = "\0\0\u{c}allowed.test";
/// Where a resolver would be: inside every address is the broker's.
const RESOLVER: &str = "192.0.2.53:53";
/// Where the broker answers names, at a port of the web.
const BROKER: &str = "198.18.0.1:80";
/// What stands for a name in a sandbox that has looked up more of them, at a port of the web.
const THEIRS: &str = "198.18.0.77:80";
/// A name below which a rule allows all, none of which is there.
const MANY: &str = "many.test";
/// How many of its names the probe asks for, and more of them than may be asked for outside in the time that it takes.
const ASKED: usize = 1000;
const TOO_MANY: usize = 800;
/// Connections that a server begins for requests that were taken back, and more of them than one that is shared would make.
const TOO_MANY_BEGUN: usize = 100;
/// SIGKILL and SIGSTOP.
const KILL: i32 = 9;
const STOP: i32 = 19;
/// The variable of whoever starts the sandbox that holds the secret.
const SOURCE: &str = "FUMEHOOD_ATTACK_KEY";
/// Most bytes of one connection.
const MAX_CONNECTION: usize = 256 << 10;
/// What ends a connection after its answer.
const CLOSE: &[u8] = b"Connection: close";
/// A `HelloRetryRequest` of TLS 1.3 (RFC 8446, 4.1.3), by its random.
const AGAIN: &[u8] = b"\x16\x03\x03\x00\x2c\x02\x00\x00\x28\x03\x03\
    \xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91\
    \xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c\
    \x00\x13\x01\x00\x00\x00";
/// How long a connection may be quiet.
const QUIET: Duration = Duration::from_millis(700);

/// What a server heard.
pub(super) type Heard = Arc<Mutex<Vec<u8>>>;

/// Who judges.
enum Judge {
    /// The server must not hear the token.
    Heard,
    /// The server has heard the token, and the probe must not.
    GivenBack,
    /// A question must not be answered.
    Answered,
    /// The same as [`Judge::Heard`], once the resolver has said where the name is now.
    Told(Arc<AtomicBool>),
    /// A server must not be begun a connection with for each request that was taken back.
    Begun,
    /// The same as [`Judge::Heard`], once the broker got this signal.
    Ended { signal: i32, sent: bool },
    /// A resolver must not hear as many names with the token as are asked for.
    Named(Heard),
}

struct Web {
    heard: Heard,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    token: String,
    judge: Judge,
    set: Vec<(String, String)>,
    secret: bool,
    /// What names the resolvers, for whoever starts the sandbox.
    resolvers: Option<PathBuf>,
    /// The network of whoever starts the sandbox, if not the machine's.
    world: Option<World>,
}

impl Drop for Web {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // A server that broke heard nothing more.
            if thread.join().is_err() {}
        }
    }
}

impl Scene for Web {
    fn arrange(&mut self, call: &mut ProbeCall) {
        call.set.extend(self.set.iter().cloned());
        if self.secret {
            call.env.push((SOURCE.to_owned(), self.token.clone().into()));
        }
        call.resolvers.clone_from(&self.resolvers);
        call.network = self.world.as_ref().map(World::inside);
    }

    fn watch(&mut self, moment: &Moment<'_>) {
        if let Judge::Ended { signal, sent: sent @ false } = &mut self.judge
            && has(&self.heard, HELLO)
        {
            *sent = broker_of(moment.child).is_some_and(|broker| {
                pidfd::open(broker).is_ok_and(|broker| pidfd::send_signal(&broker, *signal).is_ok())
            });
        }
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        let has = |text: &str| has(&self.heard, text);
        match &self.judge {
            Judge::Answered => match tries.split_first() {
                Some((first, rest)) if first.possible && !rest.is_empty() => super::by_errno(rest),
                Some(_) | None => SceneVerdict::Unclear("what is allowed was not answered".to_owned()),
            },
            Judge::Named(names) if !has(HELLO) || !self::has(names, &self.token) => {
                SceneVerdict::Unclear("what is allowed was not heard, or no name was".to_owned())
            }
            Judge::Named(names) => {
                let names = count(names, &self.token);
                by_number(names, TOO_MANY, format!("a resolver heard {names} of {ASKED} names"))
            }
            Judge::Begun => self.begun(tries),
            Judge::Heard | Judge::Told(_) | Judge::Ended { .. } if has(&self.token) => {
                SceneVerdict::Possible("the server heard the token".to_owned())
            }
            Judge::Heard | Judge::Told(_) | Judge::Ended { .. } if !has(HELLO) => {
                SceneVerdict::Unclear("what is allowed did not reach the server".to_owned())
            }
            Judge::Told(told) if !told.load(Ordering::Acquire) => {
                SceneVerdict::Unclear("the resolver was not asked where the name is now".to_owned())
            }
            Judge::Ended { sent: false, .. } => {
                SceneVerdict::Unclear("there was no broker that could be signalled".to_owned())
            }
            Judge::Heard | Judge::Told(_) | Judge::Ended { .. } => {
                SceneVerdict::Stopped("the server heard what is allowed, and not the token".to_owned())
            }
            Judge::GivenBack if !has(&self.token) => {
                SceneVerdict::Unclear("the server did not get the secret".to_owned())
            }
            Judge::GivenBack if CODINGS.iter().any(|coding| came(observed, tries, &coded(coding, &self.token))) => {
                SceneVerdict::Possible("the secret came back in another coding".to_owned())
            }
            Judge::GivenBack if leaked(observed, &self.token) || in_chunks(tries, &self.token) => {
                SceneVerdict::Possible("the secret came back".to_owned())
            }
            Judge::GivenBack => SceneVerdict::Stopped("the server had the secret, and it did not come back".to_owned()),
        }
    }
}

/// Makes the server `detail`, its rules, and the words that lead to it: `{web}` where rules are, `{at}` its port.
pub(super) fn make(layout: &mut Layout<'_>, detail: &str) -> io::Result<Box<dyn Scene>> {
    let mut scene = Web {
        heard: Heard::default(),
        over: Arc::default(),
        threads: Vec::new(),
        token: layout.token.clone(),
        judge: Judge::Heard,
        set: Vec::new(),
        secret: false,
        resolvers: None,
        world: None,
    };
    let at = if matches!(detail, "addresses" | "moves:own") { "0.0.0.0:0" } else { "127.0.0.1:0" };
    let (detail, word) = detail.split_once(':').unwrap_or((detail, ""));
    let listener = if detail == "leads" { scene.elsewhere(layout, word)? } else { TcpListener::bind(at)? };
    let port = listener.local_addr()?.port();
    scene.serve(listener, &layout.token, detail == "resets")?;
    let (inside, rules) = scene.rules(detail, word, port)?;
    scene.set.insert(0, ("net.mode".to_owned(), "allow".to_owned()));
    scene.set.insert(1, ("net.allow".to_owned(), format!("[{}]", rules.join(", "))));
    let resolver = match detail {
        "questions" | "denied-questions" => scene.resolver(Answers::One)?,
        "moves" => scene.moving(layout, word)?,
        "many" => scene.listening(layout)?,
        _ => String::new(),
    };
    let bare = layout.bare;
    let here = scene.world.as_ref().map_or_else(|| format!("127.0.0.1:{port}"), |world| world.server().to_string());
    let word = |confined: String, control: &str| if bare { control.to_owned() } else { confined };
    layout.words.extend([
        ("web", word(format!("{NAME}:{inside}"), &here)),
        ("other", word(format!("{OTHER}:80"), &here)),
        ("other-dotted", word(format!("{OTHER}.:80"), &here)),
        ("other-case", word("oThEr.TEST:80".to_owned(), &here)),
        ("web-81", word(format!("{NAME}:81"), &here)),
        ("opened", word(format!("{NAME}:443"), &here)),
        ("how", word("streams".to_owned(), "connections")),
        ("leads", format!("{LEADS}:80")),
        ("broker", word(BROKER.to_owned(), &here)),
        ("theirs", word(THEIRS.to_owned(), &here)),
        ("many", MANY.to_owned()),
        ("at", port.to_string()),
        ("host", own_name()),
        ("resolver", word(RESOLVER.to_owned(), &resolver)),
        // Unconfined the program has the value itself; inside it asks with what it has.
        ("value", word("nothing".to_owned(), &layout.token)),
        ("moving", MOVING.to_owned()),
        ("hello", HELLO.to_owned()),
    ]);
    Ok(Box::new(scene))
}

/// One secret for GETs below `/public` of one host and port.
fn secret() -> String {
    format!(
        "{{ k = {{ from = \"env:{SOURCE}\", hosts = [\"{NAME}\"], ports = [80], methods = [\"GET\"], paths = [\"/public/**\"], \
         as = {{ header = \"X-Key\" }}, env = \"KEY\" }} }}"
    )
}

/// The machine's own name, which may lead to an address of its own.
fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl Web {
    /// At which port inside the server is, and the rules that lead to it; what else the policy says, and who judges.
    fn rules(&mut self, detail: &str, word: &str, port: u16) -> io::Result<(u16, Vec<String>)> {
        let rule = |name: &str, inside: u16, more: &str| {
            format!("{{ host = \"{name}\", ports = [{inside}], address = \"127.0.0.1:{port}\"{more} }}")
        };
        let all = match detail {
            "requests" => (80, vec![rule(NAME, 80, ", methods = [\"GET\"], paths = [\"/public/**\"]")]),
            "names" => (80, vec![rule(NAME, 80, "")]),
            "tls" => (443, vec![rule(NAME, 443, "")]),
            "quic" => {
                self.datagrams(port)?;
                (443, vec![rule(NAME, 443, "")])
            }
            "addresses" => {
                self.datagrams(port)?;
                let range = |cidr: &str| format!("{{ cidr = \"{cidr}\", ports = [{port}] }}");
                (port, vec![rule(NAME, port, ""), range("192.0.2.0/24")])
            }
            "few" | "little" => {
                let limit = if detail == "few" { ("net.connections", "4") } else { ("net.bytes", "100K") };
                self.set.push((limit.0.to_owned(), limit.1.to_owned()));
                (9000, vec![rule(NAME, 9000, "")])
            }
            "denied" => {
                self.set.push(("net.deny".to_owned(), format!("[{{ host = \"{OTHER}\" }}]")));
                (80, vec![rule(NAME, 80, ""), rule(OTHER, 80, "")])
            }
            "secret" | "secret-elsewhere" => {
                if detail == "secret" {
                    self.judge = Judge::GivenBack;
                }
                self.secret = true;
                self.set.push(("secrets".to_owned(), secret()));
                (80, vec![rule(NAME, 80, ""), rule(OTHER, 80, ""), rule(NAME, 81, "")])
            }
            "questions" | "denied-questions" => {
                self.judge = Judge::Answered;
                let mut rules = vec![rule(NAME, 80, "")];
                if detail == "denied-questions" {
                    rules.push(rule("**.wild.test", 80, ""));
                    self.set.push(("net.deny".to_owned(), "[{ host = \"other.wild.test\" }]".to_owned()));
                }
                (80, rules)
            }
            "ended" => {
                let signal = if word == "stopped" { STOP } else { KILL };
                self.judge = Judge::Ended { signal, sent: false };
                (80, vec![rule(NAME, 80, "")])
            }
            "leads" => {
                // By what a rule says the same address is reached, and by what a resolver says it is not.
                let at = self.world.as_ref().map(|world| world.server().to_string()).unwrap_or_default();
                let pinned = format!("{{ host = \"{NAME}\", ports = [80], address = \"{at}\" }}");
                (80, vec![pinned, format!("{{ host = \"{LEADS}\", ports = [80] }}")])
            }
            "resets" => {
                self.judge = Judge::Begun;
                (80, vec![rule(NAME, 80, ""), rule(NAME, 443, ", methods = [\"GET\"]")])
            }
            "many" => (80, vec![rule(NAME, 80, ""), format!("{{ host = \"**.{MANY}\", ports = [80] }}")]),
            "moves" => (80, vec![rule(NAME, 80, ""), format!("{{ host = \"{MOVING}\", ports = [{port}] }}")]),
            _ => return Err(io::Error::other(format!("no server `{detail}`"))),
        };
        Ok(all)
    }

    /// What it means that requests were asked for over HTTP/2 and taken back.
    fn begun(&self, tries: &[Try]) -> SceneVerdict {
        let begun = count(&self.heard, HELLO_OF_TLS);
        if !has(&self.heard, HELLO) || begun == 0 || !tries.last().is_some_and(|last| last.possible) {
            return SceneVerdict::Unclear("what is allowed did not reach the server, or no requests did".to_owned());
        }
        by_number(begun, TOO_MANY_BEGUN, format!("the server was begun {begun} connections with"))
    }

    /// Answers whoever comes, until the scene is over; `silent`: not in TLS.
    fn serve(&mut self, listener: TcpListener, token: &str, silent: bool) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let (heard, over, token) = (Arc::clone(&self.heard), Arc::clone(&self.over), token.to_owned());
        let thread = std::thread::Builder::new().spawn(move || {
            std::thread::scope(|scope| {
                while !over.load(Ordering::Acquire) {
                    match listener.accept() {
                        Ok((stream, _)) => drop(scope.spawn(|| answer(stream, &heard, (&token, silent), &over))),
                        Err(_) => rest(Duration::from_millis(5)),
                    }
                }
            });
        })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Hears datagrams at the same port.
    fn datagrams(&mut self, port: u16) -> io::Result<()> {
        let socket = UdpSocket::bind(("127.0.0.1", port))?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let (heard, over) = (Arc::clone(&self.heard), Arc::clone(&self.over));
        self.threads.push(std::thread::Builder::new().spawn(move || {
            let mut text = [0; 2048];
            while !over.load(Ordering::Acquire) {
                let length = socket.recv(&mut text).unwrap_or(0);
                hear(&heard, text.get(..length).unwrap_or_default());
            }
        })?);
        Ok(())
    }

    /// A resolver with these answers; its address.
    fn resolver(&mut self, answers: Answers) -> io::Result<String> {
        let (at, thread) = resolver::serve("127.0.0.1:0", answers, Arc::clone(&self.over))?;
        self.threads.push(thread);
        Ok(at.to_string())
    }

    /// A resolver that has the name at `to` once it was asked before, in the place of the machine's own for whoever starts the sandbox.
    fn moving(&mut self, layout: &Layout<'_>, to: &str) -> io::Result<String> {
        let to = match to {
            "own" => own_address()?,
            to => to.parse().map_err(|why| io::Error::other(format!("`{to}`: {why}")))?,
        };
        let told = Arc::<AtomicBool>::default();
        self.judge = Judge::Told(Arc::clone(&told));
        self.in_place(layout, Answers::Moving { to, told })
    }

    /// A resolver that has no name, and hears which are asked for.
    fn listening(&mut self, layout: &Layout<'_>) -> io::Result<String> {
        let names = Heard::default();
        self.judge = Judge::Named(Arc::clone(&names));
        self.in_place(layout, Answers::None(names))
    }

    /// A network in which every name is at `to`, for whoever starts the sandbox; what waits at any of its addresses.
    fn elsewhere(&mut self, layout: &Layout<'_>, to: &str) -> io::Result<TcpListener> {
        if !layout.root {
            return Err(io::Error::other("only root can start a sandbox in another network"));
        }
        let to = to.parse().map_err(|why| io::Error::other(format!("`{to}`: {why}")))?;
        let told = Arc::<AtomicBool>::default();
        let (world, listener, resolver) = World::make(to, (&told, &self.over))?;
        self.threads.push(resolver);
        self.judge = Judge::Told(told);
        self.resolvers = Some(layout.stage.file("resolv.conf", format!("nameserver {}\n", world::RESOLVER))?);
        self.world = Some(world);
        Ok(listener)
    }

    /// A resolver in the place of the machine's own for whoever starts the sandbox.
    fn in_place(&mut self, layout: &Layout<'_>, answers: Answers) -> io::Result<String> {
        if !layout.root {
            return Err(io::Error::other("only root can put another resolver in the place of the machine's"));
        }
        let at = self.resolver(answers)?;
        self.resolvers = Some(layout.stage.file("resolv.conf", format!("nameserver {at}\n"))?);
        Ok(at)
    }
}

/// The address by which this machine is reached from others, which counts as its own or as private.
fn own_address() -> io::Result<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // Nothing is sent: only a way is looked up.
    socket.connect("192.0.2.1:9")?;
    socket.local_addr().map(|at| at.ip())
}

/// The broker of a run that this process supervises, itself or by a child.
fn broker_of(supervisor: i32) -> Option<i32> {
    let parent = |pid: i32| survey::task(pid)?.field("PPid")?.parse::<i32>().ok();
    let below = |pid: i32| std::iter::successors(Some(pid), |pid| parent(*pid)).take(16).any(|pid| pid == supervisor);
    let is_broker = |pid: &i32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(1).is_some_and(|word| word == sandbox::run::BROKER_WORD.as_bytes())
    };
    survey::pids().into_iter().find(|pid| is_broker(pid) && below(*pid))
}

fn count(heard: &Heard, text: &str) -> usize {
    let heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
    heard.windows(text.len()).filter(|part| *part == text.as_bytes()).count()
}

fn has(heard: &Heard, text: &str) -> bool {
    count(heard, text) > 0
}

/// What it means that there were so many, where this is too many.
fn by_number(number: usize, too_many: usize, said: String) -> SceneVerdict {
    if number >= too_many { SceneVerdict::Possible(said) } else { SceneVerdict::Stopped(said) }
}

fn hear(heard: &Heard, bytes: &[u8]) {
    heard.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
}

/// Reads what comes and answers each head, until nobody says anything more.
fn answer(mut stream: TcpStream, heard: &Heard, (token, silent): (&str, bool), over: &AtomicBool) {
    let ready = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(Duration::from_millis(100))));
    if ready.is_err() {
        return;
    }
    let (mut all, mut answered, mut last) = (Vec::new(), 0, Instant::now());
    let mut part = [0; 4096];
    while !over.load(Ordering::Acquire) && last.elapsed() < QUIET && all.len() < MAX_CONNECTION {
        match stream.read(&mut part) {
            Ok(0) => return,
            Ok(length) => {
                let came = part.get(..length).unwrap_or_default();
                hear(heard, came);
                all.extend_from_slice(came);
                last = Instant::now();
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
        while let Some(end) = head_end(all.get(answered..).unwrap_or_default()) {
            let head = all.get(answered..answered + end).unwrap_or_default();
            if stream.write_all(&reply(head, token)).is_err() {
                return;
            }
            answered += end;
            if head.windows(CLOSE.len()).any(|part| part == CLOSE) {
                return;
            }
        }
        // A hello of TLS is answered with the wish for another, so that nobody waits and a second one is said.
        if answered == 0 && !silent && all.first() == Some(&0x16) && stream.write_all(AGAIN).is_err() {
            return;
        }
    }
}

/// Whether a text came out, as it is or as the text of a try (whose line escapes a backslash).
fn came(observed: &Observed, tries: &[Try], text: &str) -> bool {
    leaked(observed, text) || tries.iter().any(|one| one.text.contains(text))
}

/// Whether the token came in chunks of five bytes, which a reader of HTTP joins.
fn in_chunks(tries: &[Try], token: &str) -> bool {
    let joined = |text: &str| text.replace("\r\n5\r\n", "").replace("\r\n4\r\n", "");
    tries.iter().any(|one| joined(&one.text).contains(token))
}

/// Codings in which a server can say a key back.
const CODINGS: [&str; 9] = [
    "base64",
    "base64-after-one",
    "base64-after-two",
    "base64-of-basic",
    "base64-url",
    "hex",
    "hex-large",
    "percent",
    "json-numbers",
];

/// A key in one of them; as it is in all others.
fn coded(coding: &str, key: &str) -> String {
    let each = |digits: fn(u8) -> String| key.bytes().map(digits).collect();
    match coding {
        "base64" => STANDARD.encode(key),
        "base64-after-one" => STANDARD.encode(format!("x{key}")),
        "base64-after-two" => STANDARD.encode(format!("xy{key}")),
        "base64-of-basic" => STANDARD.encode(format!("user:{key}")),
        "base64-url" => URL_SAFE_NO_PAD.encode(format!("??>{key}")),
        "hex" => each(|byte| format!("{byte:02x}")),
        "hex-large" => each(|byte| format!("{byte:02X}")),
        "percent" => each(|byte| format!("%{byte:02X}")),
        "json-numbers" => each(|byte| format!("\\u{byte:04x}")),
        _ => key.to_owned(),
    }
}

fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|part| part == b"\r\n\r\n").map(|at| at + 4)
}

/// What is said to a request: `/public/KIND` says how the key that came with it is given back.
fn reply(head: &[u8], token: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(head);
    let key = if text.contains(token) { token } else { "" };
    let path = text.split(' ').nth(1).unwrap_or_default();
    let kind = path.rsplit('/').next().unwrap_or_default().split('?').next().unwrap_or_default();
    let plain = |more: &str, body: &str| {
        format!("HTTP/1.1 200 OK\r\n{more}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    };
    let halves = key.split_at(key.len() / 2);
    match kind {
        "header" => plain(&format!("X-Back: {key}\r\n"), "x"),
        "header-name" => plain(&format!("X-{key}: 1\r\n"), "x"),
        "cookie" => plain(&format!("Set-Cookie: k={key}\r\n"), "x"),
        "reason" => format!("HTTP/1.1 200 {key}\r\nContent-Length: 1\r\n\r\nx").into_bytes(),
        "location" => {
            format!("HTTP/1.1 302 Found\r\nLocation: http://{OTHER}/{key}\r\nContent-Length: 0\r\n\r\n").into_bytes()
        }
        "body" => plain("", &format!("<{key}>")),
        "json" => plain("Content-Type: application/json\r\n", &format!("{{\"k\":\"{key}\"}}")),
        "error" => format!("HTTP/1.1 401 No\r\nContent-Length: {}\r\n\r\n{key}", key.len()).into_bytes(),
        "chunked" => {
            let chunk = |part: &str| format!("{:x}\r\n{part}\r\n", part.len());
            let chunks: String = key.as_bytes().chunks(5).map(|part| chunk(&String::from_utf8_lossy(part))).collect();
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n").into_bytes()
        }
        "trailer" => format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Back\r\n\r\n1\r\nx\r\n0\r\nX-Back: {key}\r\n\r\n"
        )
        .into_bytes(),
        "long" => plain("", &format!("{}{key}{}", "x".repeat(30_000), "y".repeat(30_000))),
        "twice" => plain("", &format!("{key}{key}{}", halves.0)),
        "early" => format!("HTTP/1.1 103 Early Hints\r\nLink: <{key}>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").into_bytes(),
        "compressed" => plain("Content-Encoding: gzip\r\n", key),
        "upgraded" => format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n{key}").into_bytes(),
        coding if CODINGS.contains(&coding) && !key.is_empty() => plain("", &format!("<{}>", coded(coding, key))),
        _ => plain("", "ok"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_back_has_the_key_in_it() {
        for kind in ["header", "reason", "location", "body", "json", "error", "trailer", "long", "early", "compressed"]
        {
            let head = format!("GET /public/{kind} HTTP/1.1\r\nX-Key: secret-token\r\n\r\n");
            let said = reply(head.as_bytes(), "secret-token");
            assert!(String::from_utf8_lossy(&said).contains("secret-token"), "{kind}");
        }
        for coding in CODINGS {
            let head = format!("GET /public/{coding} HTTP/1.1\r\nX-Key: secret-token\r\n\r\n");
            let said = String::from_utf8_lossy(&reply(head.as_bytes(), "secret-token")).into_owned();
            let form = coded(coding, "secret-token");
            assert!(said.contains(&form) && form != "secret-token", "{coding}: {said}");
        }
    }
}
