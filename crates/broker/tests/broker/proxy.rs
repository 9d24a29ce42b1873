//! The way out by a proxy: what goes by it, what does not, and what its refusals come to.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use egress::wire::{FromBroker, ToBroker};
use serde_json::{Value, json};

use crate::stage::{PRIVATE, Stage, WORLD, connect, echo, exchange, full, staged, web};

/// A name that nobody but the proxy can resolve.
const ONLY: &str = "only.proxy.example";

/// What a proxy was asked.
type Heads = Arc<Mutex<Vec<String>>>;

/// A proxy on a private address; `answer` is what it says, before it serves what `then` does.
fn proxy(stage: &Stage, answer: &'static str, then: fn(TcpStream)) -> Heads {
    let heads = Heads::default();
    let asked = Arc::clone(&heads);
    stage.server((PRIVATE, 3128), move |mut stream| {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
            head.push(byte[0]);
        }
        asked.lock().unwrap().push(String::from_utf8(head).unwrap());
        if stream.write_all(answer.as_bytes()).is_ok() {
            then(stream);
        }
    });
    heads
}

fn rules(more: &Value) -> Value {
    let mut rules = json!({"proxy": "http://10.9.9.9:3128", "allow": [
        {"host": ONLY, "ports": [22, 80]},
        {"host": "pinned.example", "ports": [80], "address": "93.184.216.34:80"},
        {"cidr": "93.184.216.34/32", "ports": [80]},
    ]});
    rules.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    rules
}

fn get(host: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

#[test]
fn names_go_by_the_proxy_and_what_is_pinned_does_not() {
    staged("proxy::names_go_by_the_proxy_and_what_is_pinned_does_not", |stage| {
        let heads = proxy(stage, "HTTP/1.1 200 ok\r\nContent-Length: 9\r\n\r\n", web);
        stage.server((WORLD, 80), web);
        stage.login.replace(Some("user:pass".to_owned()));
        let mut engine = stage.broker(&rules(&json!({})));
        engine.ready();
        let said = |host: &str| stage.program(|| exchange(connect(host, 80), get(host).as_bytes(), false).unwrap());
        assert!(said(ONLY).starts_with("HTTP/1.1 200 OK"));
        let expected =
            format!("CONNECT {ONLY}:80 HTTP/1.1\r\nHost: {ONLY}:80\r\nProxy-Authorization: Basic dXNlcjpwYXNz\r\n\r\n");
        assert_eq!(*heads.lock().unwrap(), [expected]);
        // Pinned by `address`, and an address of a range: straight there.
        assert!(said("pinned.example").starts_with("HTTP/1.1 200 OK"));
        let direct = stage.program(|| {
            let to = TcpStream::connect((std::net::Ipv4Addr::from(WORLD), 80)).unwrap();
            exchange(to, get("93.184.216.34").as_bytes(), true)
        });
        assert!(direct.unwrap().starts_with("HTTP/1.1 200 OK"));
        assert_eq!(heads.lock().unwrap().len(), 1, "the proxy was asked for neither");
        // What no rule has does not come to the proxy either.
        let record = engine_denies(stage, &mut engine);
        assert_eq!((record.as_str(), heads.lock().unwrap().len()), ("net.allow/unknown-name", 1));
        engine.end();
    });
}

fn engine_denies(stage: &Stage, engine: &mut crate::stage::Engine) -> String {
    stage.program(|| crate::stage::look_up("denied.example", egress::dns::A));
    engine.denied("net.allow/unknown-name").id
}

#[test]
fn a_banner_behind_the_answer_is_the_servers() {
    staged("proxy::a_banner_behind_the_answer_is_the_servers", |stage| {
        // One write: head and banner come together.
        proxy(stage, "HTTP/1.0 200 Connection established\r\nVia: x\r\n\r\nSSH-2.0-", echo);
        let mut engine = stage.broker(&rules(&json!({})));
        engine.ready();
        let said = stage.program(|| exchange(connect(ONLY, 22), b"hello", true).unwrap());
        assert_eq!(said, "SSH-2.0-banner\nhello");
        engine.end();
    });
}

/// What a program sees of a proxy that answers so: the status of HTTP, and whether another port was reset; both in time.
fn seen(test: &str, answer: &'static str, then: fn(TcpStream)) {
    staged(test, |stage| {
        proxy(stage, answer, then);
        let mut engine = stage.broker(&rules(&json!({})));
        engine.ready();
        let begun = Instant::now();
        let said = stage.program(|| exchange(connect(ONLY, 80), get(ONLY).as_bytes(), false).unwrap());
        assert!(said.starts_with("HTTP/1.1 502 "), "{said}");
        assert!(said.contains("no denial") && !said.contains("secret-phrase"), "{said}");
        // Where the proxy is, is not told inside.
        assert!(said.contains("cannot be reached") && !said.contains("10.9.9.9") && !said.contains("3128"), "{said}");
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        let begun = Instant::now();
        let other = stage.program(|| exchange(connect(ONLY, 22), b"hello", false));
        assert!(other.is_err(), "{other:?}");
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        assert!(!engine.end().iter().any(|frame| matches!(frame, FromBroker::Denied(_))), "it is no denial");
    });
}

#[test]
fn a_refusal_is_a_502_or_a_reset() {
    seen("proxy::a_refusal_is_a_502_or_a_reset", "HTTP/1.1 403 secret-phrase\r\nContent-Length: 0\r\n\r\n", drop);
}

#[test]
fn a_login_that_is_asked_for_is_told() {
    seen(
        "proxy::a_login_that_is_asked_for_is_told",
        "HTTP/1.1 407 secret-phrase\r\nProxy-Authenticate: Basic\r\n\r\n",
        drop,
    );
}

#[test]
fn an_answer_that_is_none_is_told() {
    seen("proxy::an_answer_that_is_none_is_told", "SSH-2.0-secret-phrase\r\n\r\n", drop);
}

#[test]
fn silence_is_told_in_time() {
    seen("proxy::silence_is_told_in_time", "", |mut stream| drop(stream.read(&mut [0])));
}

#[test]
fn an_answer_without_end_is_bounded() {
    seen("proxy::an_answer_without_end_is_bounded", "HTTP/1.1 200 ok\r\n", |mut stream| {
        while stream.write_all(b"X-Secret-Phrase: 1\r\n").is_ok() {}
    });
}

#[test]
fn the_proxy_stays_that_of_the_start() {
    staged("proxy::the_proxy_stays_that_of_the_start", |stage| {
        let heads = proxy(stage, "HTTP/1.1 200 ok\r\n\r\n", web);
        let mut engine = stage.broker(&rules(&json!({})));
        engine.ready();
        let open = stage.program(|| connect(ONLY, 80));
        for other in [json!({"proxy": "http://10.9.9.9:3129"}), json!({"proxy": null})] {
            let mut net = full(&rules(&other));
            net.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            engine.send(&ToBroker::Rules { net });
            let why =
                engine.wait(|frame| if let FromBroker::Refused { why } = frame { Some(why.clone()) } else { None });
            assert!(why.contains("`net.proxy` is another one"), "{why}");
        }
        // The same proxy with other rules: what still fits is not cut, though it leads to a private address.
        engine.send(&ToBroker::Rules { net: full(&rules(&json!({"deny": [{"host": "x.example"}]}))) });
        engine.ready();
        let said = stage.program(move || exchange(open, get(ONLY).as_bytes(), false).unwrap());
        assert!(said.starts_with("HTTP/1.1 200 OK"), "{said}");
        assert_eq!(heads.lock().unwrap().len(), 1);
        // No network needs no proxy; who has one again needs that of the start.
        engine.send(&ToBroker::Rules { net: serde_json::to_value(policy::value::Net::closed().document()).unwrap() });
        engine.ready();
        let mut net = full(&rules(&json!({"proxy": null})));
        net.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        engine.send(&ToBroker::Rules { net });
        engine.wait(|frame| matches!(frame, FromBroker::Refused { .. }).then_some(()));
        engine.send(&ToBroker::Rules { net: full(&rules(&json!({}))) });
        engine.ready();
        engine.end();
    });
}

/// As many have one there; no resolver is asked where that is.
#[test]
fn a_proxy_of_this_machine_is_found_by_the_name_of_its_loopback() {
    staged("proxy::a_proxy_of_this_machine_is_found_by_the_name_of_its_loopback", |stage| {
        for (host, at) in [("localhost", "127.0.0.1:0"), ("proxy.LOCALHOST", "[::1]:0")] {
            let listener = std::net::TcpListener::bind(at).unwrap();
            let port = listener.local_addr().unwrap().port();
            std::thread::spawn(move || {
                let mut stream = listener.accept().unwrap().0;
                while stream.read(&mut [0; 4096]).unwrap() == 4096 {}
                stream.write_all(b"HTTP/1.1 200 ok\r\n\r\n").unwrap();
                web(stream);
            });
            let mut engine = stage.broker(&rules(&json!({"proxy": format!("http://{host}:{port}")})));
            engine.ready();
            let said = stage.program(|| exchange(connect(ONLY, 80), get(ONLY).as_bytes(), false).unwrap());
            assert!(said.starts_with("HTTP/1.1 200 OK"), "{host}: {said}");
            assert_eq!(stage.asked(), 0, "{host}");
            engine.end();
        }
    });
}
