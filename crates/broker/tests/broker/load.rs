//! Programs that ask for much and mean nothing: the broker stays small, and whoever means it is served.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use egress::wire::ToBroker;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection, StreamOwned};
use serde_json::json;

use crate::stage::{WORLD, address, connect, exchange, staged, wait, web};
use crate::tls::{Client, ask, ask_two, client, provider, serve, serve_two, two_of};
use crate::{HOST, full, resident};

/// What the broker may take for all of it, in KiB: a quarter of what it has.
const MAX_TAKEN: u64 = 64 << 10;
/// How long who means it may wait for an answer meanwhile.
const SOON: Duration = Duration::from_secs(2);

/// Heads that never end, as long as they may be: each keeps its own place, and what they are made of is bounded.
#[test]
fn heads_that_never_end_take_little_and_hold_nobody_up() {
    staged("load::heads_that_never_end_take_little_and_hold_nobody_up", |stage| {
        stage.server((WORLD, 80), web);
        let rule = json!({"host": HOST, "ports": [80], "methods": ["GET"]});
        let mut engine = stage.broker(&json!({"allow": [rule]}));
        engine.ready();
        let get = format!("GET /x HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        let served = || {
            let begun = Instant::now();
            let said = stage.program(|| exchange(connect(HOST, 80), get.as_bytes(), false)).unwrap();
            assert!(said.starts_with("HTTP/1.1 200") && begun.elapsed() < SOON, "{:?}: {said}", begun.elapsed());
        };
        served();
        let before = resident();
        let head = format!("GET /x HTTP/1.1\r\nHost: {HOST}\r\nX-Long: {}", "a".repeat(62 << 10));
        let mut slow: Vec<TcpStream> = stage.program(|| {
            let at = address(HOST);
            let open = |_| {
                let mut stream = TcpStream::connect((at, 80)).unwrap();
                stream.set_write_timeout(Some(SOON)).unwrap();
                // One that is refused meanwhile is told so by a reset.
                drop(stream.write_all(head.as_bytes()));
                stream
            };
            (0..1000).map(open).collect()
        });
        served();
        // A byte now and then keeps them waiting.
        for _ in 0..5 {
            for stream in &mut slow {
                drop(stream.write_all(b"a"));
            }
            served();
        }
        let taken = resident().saturating_sub(before);
        println!("{taken} KiB for {} heads", slow.len());
        assert!(taken < MAX_TAKEN, "{taken} KiB");
        // A head that ends is an ordinary request, however slowly it came; those that were too many were refused, and told so.
        let mut said = |at: usize| {
            let mut said = String::new();
            slow[at].set_read_timeout(Some(SOON)).unwrap();
            drop(slow[at].write_all(b"\r\nConnection: close\r\n\r\n"));
            slow[at].read_to_string(&mut said).map(|_| said)
        };
        assert!(said(0).is_ok_and(|said| said.starts_with("HTTP/1.1 200")));
        assert!(!said(999).is_ok_and(|said| said.starts_with("HTTP/1.1 200")));
        let denied = engine.denied("net.allow/malformed");
        assert!(denied.why.contains("does not end") && denied.host == HOST, "{denied:?}");
        // When they are gone a long head is an ordinary request again.
        drop(slow);
        let long = format!("{head}\r\nConnection: close\r\n\r\n");
        let again = (0..20).any(|_| {
            wait(Duration::from_millis(100));
            let said = stage.program(|| exchange(connect(HOST, 80), long.as_bytes(), false));
            said.is_ok_and(|said| said.starts_with("HTTP/1.1 200"))
        });
        assert!(again);
        engine.end();
    });
}

/// What comes before an answer, without end: the program is told, and nobody else waits.
#[test]
fn an_answer_that_never_begins_holds_nobody_up() {
    staged("load::an_answer_that_never_begins_holds_nobody_up", |stage| {
        stage.server((WORLD, 80), |mut stream| {
            let mut head = [0; 1024];
            let read = stream.read(&mut head).unwrap_or(0);
            if head[..read].starts_with(b"GET /x") {
                drop(
                    stream.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
                );
                return;
            }
            let hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(1000);
            while stream.write_all(&hints).is_ok() {}
        });
        let rule = json!({"host": HOST, "ports": [80], "methods": ["GET"]});
        let mut engine = stage.broker(&json!({"allow": [rule]}));
        engine.ready();
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        let ask = |path: &str| stage.program(|| exchange(connect(HOST, 80), get(path).as_bytes(), false)).unwrap();
        let endless = ask("/hints");
        assert!(endless.starts_with("HTTP/1.1 502") && endless.contains("without end"), "{endless}");
        let mut flooded: Vec<TcpStream> = stage.program(|| {
            let at = address(HOST);
            (0..6).map(|_| TcpStream::connect((at, 80)).unwrap()).collect()
        });
        for stream in &mut flooded {
            stream.write_all(get("/hints").as_bytes()).unwrap();
        }
        let begun = Instant::now();
        let said = ask("/x");
        assert!(said.starts_with("HTTP/1.1 200") && begun.elapsed() < SOON, "{:?}: {said}", begun.elapsed());
        drop(flooded);
        engine.end();
    });
}

/// The same of HTTP/2, where the heads are frames; a few of them are as ever.
#[test]
fn an_answer_of_http_2_that_never_begins_is_told_and_holds_nobody_up() {
    staged("load::an_answer_of_http_2_that_never_begins_is_told_and_holds_nobody_up", |stage| {
        let (config, begun) = (two_of(&stage.authority.server(HOST, |_| {})), Arc::new(AtomicUsize::new(0)));
        stage.server((WORLD, 443), move |stream| {
            let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
            let hint = frame(1, 4, 1, b"\x08\x03103");
            drop(stream.write_all(&frame(4, 0, 0, &[])));
            // The request comes behind the client's own beginning.
            let mut heard = Vec::new();
            while !heard.windows(9).any(|head| head[..2] == [0, 0] && head[3] == 1 && head[5..] == [0, 0, 0, 1]) {
                let mut buffer = [0; 4096];
                let Ok(count @ 1..) = stream.read(&mut buffer) else { return };
                heard.extend_from_slice(&buffer[..count]);
            }
            if begun.fetch_add(1, Ordering::SeqCst) > 0 {
                drop(stream.write_all(&[hint.repeat(3), frame(1, 5, 1, b"\x88")].concat()));
                drop(stream.read(&mut [0; 64]));
                return;
            }
            let hints = hint.repeat(1000);
            while stream.write_all(&hints).is_ok() {}
        });
        let rule = json!({"host": HOST, "ports": [443], "methods": ["GET"]});
        let mut engine = stage.broker(&json!({"allow": [rule]}));
        engine.ready();
        let trusted = stage.trusted.borrow().clone().unwrap();
        let begun = Instant::now();
        let get = || stage.program(|| ask_two(&trusted, &[("GET", &format!("https://{HOST}/v1/a"))])).remove(0);
        let (endless, other) = (get(), get());
        assert!(endless.0 == 502 && endless.1.contains("without end"), "{endless:?}");
        assert!(other.0 == 200 && begun.elapsed() < 2 * SOON, "{:?}: {other:?}", begun.elapsed());
        engine.end();
    });
}

/// A program of HTTP/2 that trusts the run's authority.
fn two(trusted: &str) -> Client {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connection = ClientConnection::new(Arc::new(config), HOST.to_owned().try_into().unwrap()).unwrap();
    StreamOwned::new(connection, connect(HOST, 443))
}

fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), body].concat()
}

/// A request that is whole, in one frame: its fields are literals, and of no table.
fn request(stream: u32) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let fields = [&[0x82, 0x87, 0x04][..], &text("/v1/a"), &[0x01], &text(HOST)].concat();
    frame(1, 0x05, stream, &fields)
}

/// Asks and takes it back, so many times in each piece, until nobody listens any more; how many were asked for.
fn asks_and_takes_back(trusted: &str, count: u32, in_piece: u32) -> u32 {
    let mut program = two(trusted);
    program.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    program.write_all(&frame(4, 0, 0, &[])).unwrap();
    program.sock.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    program.sock.set_write_timeout(Some(SOON)).unwrap();
    for first in (0..count).step_by(usize::try_from(in_piece).unwrap()) {
        let numbers = (first..first + in_piece).map(|number| 2 * number + 1);
        let piece: Vec<u8> =
            numbers.flat_map(|stream| [request(stream), frame(3, 0, stream, &8_u32.to_be_bytes())].concat()).collect();
        if program.write_all(&piece).and_then(|()| program.flush()).is_err() {
            return first;
        }
        // What is said is read, so that nobody waits for us.
        match program.read(&mut [0; 16 << 10]) {
            Ok(0) => return first,
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return first,
            Ok(_) | Err(_) => {}
        }
    }
    count
}

/// Streams that are asked for and taken back at once (rapid reset, CVE-2023-44487): in bulk the connection is ended; one by one they
/// are requests like others.
#[test]
fn requests_that_are_taken_back_at_once_take_little_and_hold_nobody_up() {
    staged("load::requests_that_are_taken_back_at_once_take_little_and_hold_nobody_up", |stage| {
        let heard = Arc::new(AtomicUsize::new(0));
        let (answer, counted) = (serve_two(&stage.authority.server(HOST, |_| {})), Arc::clone(&heard));
        stage.server((WORLD, 443), move |stream| {
            counted.fetch_add(1, Ordering::SeqCst);
            answer(stream);
        });
        let calm = "calm.at-93-184-216-34.example";
        stage.server((WORLD, 8443), serve(&stage.authority.server(calm, |_| {})));
        let rule = json!({"host": HOST, "ports": [443], "methods": ["GET"], "paths": ["/v1/**"]});
        let pinned = json!({"host": calm, "ports": [443], "methods": ["GET"], "address": "93.184.216.34:8443"});
        let mut engine = stage.broker(&json!({"allow": [rule, pinned]}));
        engine.ready();
        let trusted = stage.trusted.borrow().clone().unwrap();
        let trusted = trusted.as_str();
        let before = resident();
        let asked = stage.program(|| asks_and_takes_back(trusted, 100_000, 1000));
        assert!(asked < 100_000, "in bulk the connection is ended, not served");
        assert!(heard.load(Ordering::SeqCst) <= 2, "{heard:?} connections outside");
        // In pieces of all sizes at once, while another program means it.
        stage.program(|| {
            std::thread::scope(|scope| {
                let ask_often = |in_piece| scope.spawn(move || asks_and_takes_back(trusted, 1000, in_piece));
                let asked = [1, 1, 10, 50, 100, 1000].map(ask_often);
                let get = format!("GET /x HTTP/1.1\r\nHost: {calm}\r\n\r\n");
                let mut kept = client(trusted, calm, calm);
                for _ in 0..40 {
                    let begun = Instant::now();
                    let said = ask(&mut kept, &get).unwrap();
                    assert!(
                        said.starts_with("HTTP/1.1 200") && begun.elapsed() < SOON,
                        "{:?}: {said}",
                        begun.elapsed()
                    );
                    wait(Duration::from_millis(50));
                }
                println!("{:?} were asked for", asked.map(|one| one.join().unwrap()));
            });
        });
        let taken = resident().saturating_sub(before);
        println!("{taken} KiB, {heard:?} connections outside");
        assert!(taken < MAX_TAKEN, "{taken} KiB");
        // A connection that was begun for one that was taken back is the next one's: a server begins few of them.
        assert!(heard.load(Ordering::SeqCst) < 30, "{heard:?} connections outside");
        // Whoever asks and waits is answered, on a connection of the same kind.
        let said = stage.program(|| {
            let mut program = two(trusted);
            let begin = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[]), &request(1)].concat();
            program.write_all(&begin).unwrap();
            let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
            while !String::from_utf8_lossy(&said).contains("GET https://") {
                let count = program.read(&mut buffer).unwrap();
                assert!(count > 0, "{}", String::from_utf8_lossy(&said));
                said.extend_from_slice(&buffer[..count]);
            }
            String::from_utf8_lossy(&said).into_owned()
        });
        assert!(said.contains("/v1/a"), "{said}");
        engine.end();
    });
}

/// A header that HTTP/2 says with one byte, and that a server of HTTP/1 is sent whole: counted is what it is sent.
#[test]
fn headers_that_are_short_inside_and_long_outside_count_as_they_are_sent() {
    const MAX_BYTES: u64 = 1 << 20;
    staged("load::headers_that_are_short_inside_and_long_outside_count_as_they_are_sent", |stage| {
        let heard = Arc::new(AtomicU64::new(0));
        let (config, counted) = (stage.authority.server(HOST, |_| {}), Arc::clone(&heard));
        stage.server((WORLD, 443), move |stream| {
            let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
            let (mut buffer, mut head) = ([0; 16 << 10], Vec::new());
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                counted.fetch_add(u64::try_from(count).unwrap(), Ordering::SeqCst);
                head.extend_from_slice(&buffer[..count]);
                if head.ends_with(b"\r\n\r\n") {
                    head.clear();
                    drop(stream.write_all(b"HTTP/1.1 204 None\r\n\r\n"));
                }
            }
        });
        let rule = json!({"host": HOST, "ports": [443], "methods": ["GET"]});
        let mut engine = stage.broker(&json!({"allow": [rule], "bytes": format!("{MAX_BYTES}B")}));
        engine.ready();
        let trusted = stage.trusted.borrow().clone().unwrap();
        let asked = stage.program(|| {
            let mut program = two(&trusted);
            program.sock.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            program.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
            program.write_all(&frame(4, 0, 0, &[])).unwrap();
            // The first has a header of 3900 bytes that is to be remembered, the others say it fifteen times by its number.
            let value = "a".repeat(3900);
            let long = [&[0x40, 1, b'x', 0x7f, 0xbd, 0x1d][..], value.as_bytes()].concat();
            let mut asks = |stream: u32, more: &[u8]| -> std::io::Result<()> {
                let fields = request(stream)[9..].to_vec();
                program.write_all(&frame(1, 0x05, stream, &[fields.as_slice(), more].concat()))?;
                program.flush()?;
                match program.read(&mut [0; 16 << 10]) {
                    Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
                    Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Err(error),
                    Ok(_) | Err(_) => Ok(()),
                }
            };
            asks(1, &long).unwrap();
            (1..200_u32).take_while(|number| asks(2 * number + 1, &[0xbe; 15]).is_ok()).count()
        });
        // Each is more than 58,000 bytes there: the limit is used up long before the last of them.
        let heard = heard.load(Ordering::SeqCst);
        println!("{asked} requests, {heard} bytes");
        assert!((MAX_BYTES / 2..=MAX_BYTES).contains(&heard), "{heard} bytes for {asked} requests");
        engine.denied("net.bytes/used");
        engine.end();
    });
}

/// Each request at once of a program of HTTP/2 has a connection of its own to a server of HTTP/1: fewer that may be open are
/// fewer of these too.
#[test]
fn connections_for_requests_at_once_are_cut_as_others_are() {
    staged("load::connections_for_requests_at_once_are_cut_as_others_are", |stage| {
        let open = Arc::new(AtomicUsize::new(0));
        let (config, counted) = (stage.authority.server(HOST, |_| {}), Arc::clone(&open));
        stage.server((WORLD, 443), move |stream| {
            let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
            let mut buffer = [0; 4096];
            if matches!(stream.read(&mut buffer), Ok(1..)) {
                counted.fetch_add(1, Ordering::SeqCst);
                // Nothing is answered; what it is told is that it is over.
                while matches!(stream.read(&mut buffer), Ok(1..)) {}
                counted.fetch_sub(1, Ordering::SeqCst);
            }
        });
        let net = |connections: u32| {
            let rule = json!({"host": HOST, "ports": [443], "methods": ["GET"], "paths": ["/v1/**"]});
            json!({"allow": [rule], "connections": connections})
        };
        let mut engine = stage.broker(&net(20));
        engine.ready();
        let trusted = stage.trusted.borrow().clone().unwrap();
        let _program = stage.program(|| {
            let mut program = two(&trusted);
            let requests = (0..6).flat_map(|number| request(2 * number + 1)).collect();
            let begin = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &[]), requests].concat();
            program.write_all(&begin).unwrap();
            program.flush().unwrap();
            program
        });
        let is = |count: usize| {
            let until = Instant::now() + Duration::from_secs(10);
            while open.load(Ordering::SeqCst) != count {
                assert!(Instant::now() < until, "{open:?} are open, and not {count}");
                wait(Duration::from_millis(10));
            }
        };
        is(6);
        engine.send(&ToBroker::Rules { net: full(&net(2)) });
        // The program's own counts as the first of them.
        is(2);
        engine.end();
    });
}
