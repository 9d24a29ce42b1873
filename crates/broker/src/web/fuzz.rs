//! Hostile bytes of HTTP through the readers and the judge, as a program's connection has them: what is let through is what the rule
//! says, however it was framed. The engine is that of all targets (`fuzz/`).

#[path = "../../../../fuzz/engine.rs"]
mod engine;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use egress::denial::To;
use egress::judge::{Connect, Rules};
use engine::fuzz;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::guard::{FramingState, Guarded};
use super::server::Tasks;
use super::wire::Shared;
use super::{reader_of_one, reader_of_two, request};
use crate::listeners::Listeners;
use crate::observed::Observed;
use crate::reach::Aim;
use crate::resolver::Resolver;
use crate::run::Run;

const NAME: &str = "a.example";
/// No input keeps a connection longer: its program has ended.
const LATE: Duration = Duration::from_secs(10);

/// Turns of all tasks in which what was sent is read: none of them waits for anything else.
const TURNS: usize = 64;

/// A request that was let through, as the server would have it: method, whom it names, path, and the bytes of its body.
type Let = (Method, Vec<String>, String, usize);

fn aim() -> Aim {
    let net = serde_json::json!({ "mode": "allow", "allow": [
        { "host": NAME, "ports": [80], "methods": ["GET", "POST"], "paths": ["/public/**"] },
    ] });
    let rules = Rules::read(&net).unwrap();
    let to = To::Name(NAME.to_owned());
    let Connect::Way(way) = rules.connect(&to, 80) else { panic!("the rule has it") };
    let resolver = Resolver::new(PathBuf::from("/nowhere"));
    let parts = (rules, None, Default::default());
    let listeners = Listeners::new(Default::default(), Default::default(), Duration::MAX);
    let run = Run::new(parts, Observed::new(false), (resolver, None), listeners);
    let open = Rc::clone(&run.place(&to, 80).unwrap().open);
    Aim { to, port: 80, way, asked: false, open }
}

/// What of these bytes goes on to the server.
fn judged(bytes: &[u8], two: bool) -> Vec<Let> {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    }
    RUNTIME.with(|runtime| {
        tokio::task::LocalSet::new().block_on(runtime, async {
            let let_through = Rc::new(RefCell::new(Vec::new()));
            let (program, ours) = tokio::io::duplex(1 << 16);
            let served = tokio::task::spawn_local(serve(ours, Rc::clone(&let_through), two));
            let (mut answers, mut asks) = tokio::io::split(program);
            let bytes = bytes.to_vec();
            let said = tokio::task::spawn_local(async move {
                // Who is refused is not read on.
                drop(asks.write_all(&bytes).await);
                // Requests of HTTP/2 that are on their way end with their connection.
                for _ in 0..TURNS {
                    tokio::task::yield_now().await;
                }
                drop(asks.shutdown().await);
            });
            let read = tokio::task::spawn_local(async move { answers.read_to_end(&mut Vec::new()).await });
            tokio::time::timeout(LATE, served).await.expect("it comes to an end").unwrap();
            said.abort();
            read.abort();
            let_through.take()
        })
    })
}

async fn serve(io: DuplexStream, let_through: Rc<RefCell<Vec<Let>>>, two: bool) {
    let aim = Rc::new(aim());
    let rules = Rc::new(rules_of(&aim));
    let service = hyper::service::service_fn(move |mut asked: Request<hyper::body::Incoming>| {
        let (aim, rules, let_through) = (Rc::clone(&aim), Rc::clone(&rules), Rc::clone(&let_through));
        async move {
            let mut answer = Response::new(Full::new(bytes::Bytes::new()));
            if request::judge(&rules, &aim, &asked).is_err() {
                *answer.status_mut() = http::StatusCode::FORBIDDEN;
                return Ok::<_, hyper::Error>(answer);
            }
            request::prepare(&mut asked, aim.way.reading);
            let hosts = asked.headers().get_all("host").iter().map(|host| host.to_str().unwrap().to_owned()).collect();
            let (method, path) = (asked.method().clone(), asked.uri().path().to_owned());
            let body = asked.into_body().collect().await?.to_bytes();
            let_through.borrow_mut().push((method, hosts, path, body.len()));
            Ok(answer)
        }
    });
    let io = Shared::new(Box::new(io));
    // How it ended is the program's to learn.
    if two {
        let tasks = Tasks::default();
        let connection = reader_of_two(tasks.clone()).serve_connection(TokioIo::new(io), service);
        drop(tokio::time::timeout(Duration::from_millis(500), connection).await);
        tasks.end();
    } else {
        let guarded = Guarded::new(io, Arc::new(FramingState::default()));
        drop(reader_of_one().serve_connection(TokioIo::new(guarded), service).with_upgrades().await);
    }
}

fn rules_of(aim: &Aim) -> Rules {
    let host = aim.to.to_string();
    let rule = serde_json::json!({ "host": host, "ports": [80], "methods": ["GET", "POST"], "paths": ["/public/**"] });
    Rules::read(&serde_json::json!({ "mode": "allow", "allow": [rule] })).unwrap()
}

fn holds(all: &[Let]) {
    for (method, hosts, path, _) in all {
        assert!(method == Method::GET || method == Method::POST, "{method}");
        assert!(
            matches!(hosts.as_slice(), [host] if host.trim_end_matches('.').trim_end_matches(":80").trim_end_matches('.').eq_ignore_ascii_case(NAME)),
            "{hosts:?}"
        );
        let plain = egress::http::path::plain(path).expect("one reading");
        assert!(plain.starts_with("/public/") || plain == "/public", "{path}");
    }
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), body].concat()
}

/// Headers without a table and without compression.
fn headers(list: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    list.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

fn begun(frames: &[Vec<u8>]) -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &[]), frames.concat()].concat()
}

fn asked<'a>(method: &'a str, authority: &'a str, path: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![(":method", method), (":scheme", "https"), (":authority", authority), (":path", path)]
}

#[test]
fn http_1_through_the_judge() {
    let get = "GET /public/x HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let seeds = [
        get.to_owned(),
        format!("{get}DELETE /public/x HTTP/1.1\r\nHost: a.example\r\n\r\n"),
        format!("POST /public/x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabc{get}"),
        format!(
            "POST /public/x HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n{get}"
        ),
        "GET http://a.example/public/../x HTTP/1.1\r\nHost: b.example\r\n\r\n".to_owned(),
        "GET /public/%2e%2e/x HTTP/1.1\r\nHost: a.example:80\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
            .to_owned(),
    ];
    let seeds: Vec<Vec<u8>> = seeds.into_iter().map(String::into_bytes).collect();
    let counts: Vec<usize> = seeds.iter().map(|seed| judged(seed, false).len()).collect();
    assert_eq!(counts, [1, 1, 2, 2, 0, 0], "what is allowed goes through, and nothing else");
    let tokens = [
        "\r\n",
        "Host: a.example\r\n",
        "Host: b.example\r\n",
        "/public/",
        "/../",
        "%2f",
        "POST ",
        "DELETE ",
        "Content-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\n",
        "0\r\n\r\n",
        " HTTP/1.1\r\n",
        "\t",
        ";",
    ];
    fuzz("http1", &seeds, &tokens, |bytes| holds(&judged(bytes, false)));
}

#[test]
fn http_2_through_the_judge() {
    let get = headers(&asked("GET", NAME, "/public/x"));
    let (first, rest) = get.split_at(9);
    let mut two_hosts = asked("GET", NAME, "/public/x");
    two_hosts.push(("host", "b.example"));
    let trailers = headers(&[("x-back", "1"), (":path", "/private")]);
    let seeds = [
        begun(&[frame(1, 5, 1, &get)]),
        begun(&[frame(1, 5, 1, &get), frame(1, 5, 3, &headers(&asked("DELETE", NAME, "/public/x")))]),
        begun(&[frame(1, 4, 1, &headers(&asked("POST", NAME, "/public/x"))), frame(0, 1, 1, b"body")]),
        begun(&[frame(1, 1, 1, first), frame(9, 4, 1, rest)]),
        begun(&[frame(1, 5, 1, &headers(&asked("GET", "b.example", "/public/x")))]),
        begun(&[frame(1, 5, 1, &headers(&asked("GET", NAME, "/public/../x")))]),
        begun(&[frame(1, 5, 1, &headers(&two_hosts))]),
        begun(&[frame(1, 4, 1, &headers(&asked("POST", NAME, "/public/x"))), frame(1, 5, 1, &trailers)]),
        begun(&[frame(1, 5, 1, &headers(&asked("CONNECT", "b.example:22", "/")))]),
    ];
    let counts: Vec<usize> = seeds.iter().map(|seed| judged(seed, true).len()).collect();
    assert_eq!(counts, [1, 1, 1, 1, 0, 0, 0, 0, 0], "what is allowed goes through, and nothing else");
    let tokens = [
        ":method",
        ":path",
        ":authority",
        NAME,
        "b.example",
        "/public/",
        "/../",
        "host",
        "\0\0\u{4}\u{8}",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    fuzz("http2", &seeds, &tokens, |bytes| holds(&judged(bytes, true)));
}
