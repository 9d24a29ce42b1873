//! Requests of HTTP without TLS, judged one by one.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::stage::{WORLD, connect, exchange, staged, wait, web};
use crate::{HOST, hello, named, reset};

#[test]
fn requests_go_to_the_host_that_they_name() {
    staged("requests::requests_go_to_the_host_that_they_name", |stage| {
        stage.server((WORLD, 80), web);
        let mut engine = stage.broker(&json!({"allow": [{"host": "*.at-93-184-216-34.example"}]}));
        engine.ready();
        let get = |host: &str| format!("GET /x HTTP/1.1\r\nHost: {host}\r\nX-One: 1\r\nConnection: close\r\n\r\n");
        let said = stage.program(|| exchange(connect(HOST, 80), get(HOST).as_bytes(), false).unwrap());
        assert!(said.starts_with("HTTP/1.1 200 OK") && said.contains("\"X-One: 1\""), "{said}");
        assert!(said.contains("GET /x HTTP/1.1") && !said.contains("Connection"), "{said}");
        // The same in absolute form, and by HTTP/1.0.
        for asked in [
            format!("GET http://{HOST}/x HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n"),
            format!("GET /x HTTP/1.0\r\nHost: {HOST}\r\n\r\n"),
        ] {
            let said = stage.program(|| exchange(connect(HOST, 80), asked.as_bytes(), false).unwrap());
            assert!(said.contains("200 OK") && said.contains("GET /x HTTP/1.1"), "{said}");
        }
        // Another host: also as the second request of a connection whose first was right.
        let keep = format!("GET /1 HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
        for asked in [get("b.at-93-184-216-34.example"), format!("{keep}{}", get("evil.example"))] {
            let said = stage.program(|| exchange(connect(HOST, 80), asked.as_bytes(), false).unwrap());
            let (_, body) = said.rsplit_once("\r\n\r\n").unwrap();
            assert!(said.contains("HTTP/1.1 403 Forbidden") && !body.contains("GET"), "{said}");
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(body["id"], "net.allow/host-header");
        }
        assert_eq!(engine.denied("net.allow/host-header").clause, "net.allow");
        // What two readers could take differently reaches nobody.
        let length = "Content-Length: 3\r\nTransfer-Encoding: chunked";
        for bad in [
            format!("POST /bad HTTP/1.1\r\nHost: {HOST}\r\n{length}\r\n\r\n0\r\n\r\n"),
            format!("{keep}GET /bad HTTP/1.1\r\nHost: {HOST}\r\nX: a\r\n b\r\n\r\n"),
            format!("GET /bad HTTP/1.1\r\nHost: {HOST}\nX: y\r\n\r\n"),
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        ] {
            let said = stage.program(|| exchange(connect(HOST, 80), bad.as_bytes(), false).unwrap());
            assert!(said.contains("403 Forbidden") && said.contains("net.allow/malformed"), "{bad}: {said}");
            assert!(!said.contains("GET /bad") && !said.contains("POST /bad"), "{said}");
        }
        engine.end();
    });
}

#[test]
fn methods_and_paths_are_judged_for_each_request() {
    staged("requests::methods_and_paths_are_judged_for_each_request", |stage| {
        stage.server((WORLD, 80), web);
        let rule = |host: &str| json!({"host": host, "ports": [80], "methods": ["GET"], "paths": ["/open/**"]});
        let whole = "whole.at-93-184-216-34.example";
        let mut engine = stage.broker(&json!({"allow": [rule(HOST), {"host": whole, "ports": [80]}]}));
        engine.ready();
        let ask = |host: &str, line: &str, more: &str| format!("{line} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n");
        let said = |host: &str, asked: String| stage.program(|| exchange(connect(host, 80), asked.as_bytes(), false));
        let close = "Connection: close\r\n";
        let passed = said(HOST, ask(HOST, "GET /open/a?b=/shut", close)).unwrap();
        assert!(passed.starts_with("HTTP/1.1 200 OK") && passed.contains("GET /open/a?b=/shut"), "{passed}");
        for (line, id) in [
            ("GET /shut", "net.allow/path"),
            ("GET /open/../shut", "net.allow/path"),
            ("GET /open/%2e%2e/shut", "net.allow/path"),
            ("GET /open/..%2fshut", "net.allow/path"),
            ("GET /open/a%2fb", "net.allow/path"),
            ("GET //open/a", "net.allow/path"),
            ("GET /OPEN/a", "net.allow/path"),
            ("DELETE /open/a", "net.allow/method"),
            ("get /open/a", "net.allow/method"),
            ("HEAD /open/a", "net.allow/method"),
        ] {
            // Also as the second request of a connection whose first was right.
            for before in ["", &ask(HOST, "GET /open/a", "")] {
                let ended = said(HOST, format!("{before}{}", ask(HOST, line, close))).unwrap();
                // To HEAD an answer has no body, and so no id.
                assert!(
                    ended.contains("403 Forbidden") && (line.starts_with("HEAD") || ended.contains(id)),
                    "{line}: {ended}"
                );
                assert!(!ended.contains(&format!("\"{line}")), "{line}: {ended}");
            }
            // The same goes through where the rules name the host as a whole.
            let free = said(whole, ask(whole, line, close)).unwrap();
            assert!(free.starts_with("HTTP/1.1 200 OK"), "{line}: {free}");
        }
        let sly = format!(
            "X-HTTP-Method-Override: DELETE\r\nX_Original_URL: /shut\r\nX.HTTP.Method.Override: DELETE\r\n\
             Forwarded: for=192.0.2.1;host=\"a/shut\"\r\nDestination: /shut\r\nX-Script-Name: /shut\r\n\
             Script_Name: /shut\r\nPATH_INFO: /shut\r\n{close}"
        );
        let stripped = said(HOST, ask(HOST, "GET /open/a", &sly)).unwrap();
        assert!(
            stripped.contains("200 OK") && !stripped.contains("DELETE") && !stripped.contains("/shut"),
            "{stripped}"
        );
        let free = said(whole, ask(whole, "GET /open/a", &sly)).unwrap();
        assert!(free.contains("DELETE") && free.contains("/shut"), "{free}");
        // A second path is refused: without it the request would mean another thing.
        let copied = ask(HOST, "GET /open/a", &format!("X-Amz-Copy-Source: /b/shut\r\n{close}"));
        let refused = said(HOST, copied.clone()).unwrap();
        assert!(refused.contains("403 Forbidden") && refused.contains("net.allow/path"), "{refused}");
        assert!(said(whole, copied.replace(HOST, whole)).unwrap().contains("/b/shut"));
        // Who sends a large body to its end before reading is told all the same, and asks again on the same connection.
        let body = "a".repeat(30 << 20);
        let length = format!("Content-Length: {}\r\n", body.len());
        let large = |more: &str| ask(HOST, "POST /shut", &format!("{length}{more}")) + &body;
        for asked in [large(close), large("") + &ask(HOST, "GET /open/a", close)] {
            let ended = said(HOST, asked.clone()).unwrap();
            assert!(ended.contains("403 Forbidden") && ended.contains("net.allow/"), "{ended}");
            assert_eq!(ended.contains("200 OK"), asked.contains("GET /open/a"), "{ended}");
        }
        // TLS is opened, or is none: nothing is passed on unseen.
        let tls = |host: &str, close: bool| stage.program(|| exchange(connect(host, 80), &hello(&named(host)), close));
        assert!(reset(tls(HOST, false)));
        assert!(tls(whole, true).is_ok());
        engine.end();
    });
}

#[test]
fn bodies_and_websockets_go_through() {
    staged("requests::bodies_and_websockets_go_through", |stage| {
        stage.server((WORLD, 80), |mut stream| {
            let mut held = Vec::new();
            let mut buffer = [0; 4096];
            while !held.ends_with(b"0\r\n\r\n") {
                let count = stream.read(&mut buffer).unwrap();
                assert!(count > 0, "{}", String::from_utf8_lossy(&held));
                held.extend_from_slice(&buffer[..count]);
            }
            let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
            stream.write_all(chunked.as_bytes()).unwrap();
        });
        stage.server((WORLD, 443), web);
        let mut engine = stage.broker(&json!({"allow": [{"host": HOST}]}));
        engine.ready();
        let post = format!(
            "POST / HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        );
        // The body of a GET, too: search engines are asked so.
        for asked in [post.clone(), post.replace("POST", "GET")] {
            let said = stage.program(|| exchange(connect(HOST, 80), asked.as_bytes(), false).unwrap());
            assert!(said.contains("200 OK") && said.contains("hello"), "{asked}: {said}");
        }
        // On 443 what is no TLS is judged as HTTP; a WebSocket is agreed on, and then anything goes.
        let asked = format!("GET / HTTP/1.1\r\nHost: {HOST}:443\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        let said = stage.program(|| {
            let mut stream = connect(HOST, 443);
            stream.write_all(asked.as_bytes()).unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\nhi") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            exchange(stream, b"\x81\x00\r\n\r\nanything", true).unwrap()
        });
        assert!(said.ends_with("anything"), "{said}");
        engine.end();
    });
}

/// An encoded slash reaches a server by a rule that says so alone, as it was written, and what climbs with it by none.
#[test]
fn encoded_slashes_go_where_a_rule_says_so() {
    staged("requests::encoded_slashes_go_where_a_rule_says_so", |stage| {
        stage.server((WORLD, 80), web);
        let rule = |host: &str, said: bool| json!({"host": host, "ports": [80], "methods": ["GET"], "paths": ["/@*", "/@*/*", "/one/*"], "encoded_slashes": said});
        let other = "other.at-93-184-216-34.example";
        let mut engine = stage.broker(&json!({"allow": [rule(HOST, true), rule(other, false)]}));
        engine.ready();
        let get = |host: &str, path: &str| {
            let asked = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            stage.program(|| exchange(connect(host, 80), asked.as_bytes(), false).unwrap())
        };
        let said = get(HOST, "/@scope%2fname");
        assert!(said.starts_with("HTTP/1.1 200 OK") && said.contains("\"GET /@scope%2fname HTTP/1.1\""), "{said}");
        for (host, path) in [
            (other, "/@scope%2fname"),
            (HOST, "/@scope%2f..%2fname"),
            (HOST, "/@scope%2f%2e%2e"),
            (HOST, "/@scope/%2e%2e/name"),
            (HOST, "/one/a%2fb"),
            (HOST, "/@scope%252fname"),
        ] {
            let said = get(host, path);
            assert!(said.starts_with("HTTP/1.1 403") && said.contains("net.allow/path"), "{path}: {said}");
            assert!(!said.contains("\"GET "), "{path}: {said}");
        }
        assert!(get(other, "/@scope/name").starts_with("HTTP/1.1 200 OK"));
        engine.end();
    });
}

/// Behind a WebSocket anything can be said: a rule that judges requests lets one be opened only where it says so.
#[test]
fn a_websocket_is_opened_where_a_rule_says_so() {
    staged("requests::a_websocket_is_opened_where_a_rule_says_so", |stage| {
        stage.server((WORLD, 80), web);
        let rule = |host: &str, said: bool| json!({"host": host, "ports": [80], "methods": ["GET"], "websocket": said});
        let (silent, whole) = ("silent.at-93-184-216-34.example", "whole.at-93-184-216-34.example");
        let rules = json!({"allow": [rule(HOST, true), rule(silent, false), {"host": whole, "ports": [80]}]});
        let mut engine = stage.broker(&rules);
        engine.ready();
        let open = |host: &str| {
            let asked = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
            stage.program(|| {
                let mut stream = connect(host, 80);
                stream.write_all(asked.as_bytes()).unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    head.push(byte[0]);
                }
                // What no rule has, had it been read.
                let hidden = format!("DELETE /hidden HTTP/1.1\r\nHost: {host}\r\n\r\n");
                String::from_utf8(head).unwrap() + &exchange(stream, hidden.as_bytes(), true).unwrap()
            })
        };
        for host in [HOST, whole] {
            let said = open(host);
            assert!(said.starts_with("HTTP/1.1 101") && said.contains("DELETE /hidden"), "{host}: {said}");
        }
        let said = open(silent);
        assert!(said.starts_with("HTTP/1.1 403") && said.contains("net.allow/websocket"), "{said}");
        // The request after it was read as one, and judged.
        assert!(!said.contains("101") && said.contains("net.allow/method"), "{said}");
        assert_eq!(engine.denied("net.allow/websocket").host, silent);
        // Without asking for it the same request goes.
        let plain = format!("GET / HTTP/1.1\r\nHost: {silent}\r\nConnection: close\r\n\r\n");
        let said = stage.program(|| exchange(connect(silent, 80), plain.as_bytes(), false).unwrap());
        assert!(said.starts_with("HTTP/1.1 200 OK"), "{said}");
        engine.end();
    });
}

/// A program that waits to be told to go on is told so, and its body arrives; what is denied is denied before it.
#[test]
fn a_body_that_waits_to_be_asked_for_is_asked_for() {
    staged("requests::a_body_that_waits_to_be_asked_for_is_asked_for", |stage| {
        stage.server((WORLD, 80), |mut stream| {
            let (mut held, mut buffer) = (Vec::new(), [0; 4096]);
            while !held.ends_with(b"the body") {
                let count = stream.read(&mut buffer).unwrap();
                assert!(count > 0, "{}", String::from_utf8_lossy(&held));
                held.extend_from_slice(&buffer[..count]);
            }
            let said = format!("{:?}", String::from_utf8(held).unwrap());
            let answer =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{said}", said.len());
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let rule = json!({"host": HOST, "ports": [80], "methods": ["PUT"], "paths": ["/open"]});
        let mut engine = stage.broker(&json!({"allow": [rule]}));
        engine.ready();
        let begin = |path: &str| {
            let head = format!(
                "PUT {path} HTTP/1.1\r\nHost: {HOST}\r\nExpect: 100-continue\r\nContent-Length: 8\r\nConnection: close\r\n\r\n"
            );
            stage.program(|| {
                let mut stream = connect(HOST, 80);
                stream.write_all(head.as_bytes()).unwrap();
                let (mut said, mut byte) = (Vec::new(), [0]);
                while !said.ends_with(b"\r\n\r\n") {
                    stream.read_exact(&mut byte).unwrap();
                    said.push(byte[0]);
                }
                (stream, String::from_utf8(said).unwrap())
            })
        };
        let (stream, said) = begin("/open");
        assert_eq!(said, "HTTP/1.1 100 Continue\r\n\r\n");
        let said = exchange(stream, b"the body", false).unwrap();
        assert!(said.starts_with("HTTP/1.1 200 OK") && said.ends_with("\\r\\n\\r\\nthe body\""), "{said}");
        let (_, said) = begin("/shut");
        assert!(said.starts_with("HTTP/1.1 403"), "{said}");
        engine.end();
    });
}

/// Many clients read an answer when they have sent all: so also one of ours instead of a server's.
#[test]
fn a_body_for_a_server_that_is_not_there_is_heard_out() {
    staged("requests::a_body_for_a_server_that_is_not_there_is_heard_out", |stage| {
        let mut engine = stage.broker(&json!({"allow": [{"host": HOST, "ports": [80], "paths": ["/**"]}]}));
        engine.ready();
        let body = vec![b'x'; 3 << 20];
        let head = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {}\r\n\r\n", body.len());
        let (first, rest) = body.split_at(1000);
        stage.program(|| {
            let mut stream = connect(HOST, 80);
            stream.write_all(&[head.as_bytes(), first].concat()).unwrap();
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).unwrap();
            let said = String::from_utf8_lossy(&buffer[..count]).into_owned();
            assert!(said.starts_with("HTTP/1.1 502") && said.contains("no denial"), "{said}");
            // One that ends the connection would be seen by now.
            wait(Duration::from_millis(100));
            stream.write_all(rest).unwrap();
        });
        engine.end();
    });
}

/// One request of a kept connection, and its answer; nothing where the connection ended instead.
fn asked(stream: &mut TcpStream, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n").unwrap();
    answered(stream)
}

/// One answer of these servers.
fn answered(stream: &mut TcpStream) -> String {
    let (mut said, mut buffer) = (String::new(), [0; 4096]);
    while !said.ends_with('!') && !said.ends_with('}') {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => said.push_str(&String::from_utf8_lossy(&buffer[..count])),
            Ok(_) | Err(_) => break,
        }
    }
    said
}

/// As many a server: it reads no body, and goes on with what comes next on a connection that is kept.
fn leaves_bodies_unread(mut stream: TcpStream, told: &std::sync::mpsc::Sender<String>) {
    let (mut held, mut byte) = (Vec::new(), [0]);
    while stream.read(&mut byte).unwrap_or_default() == 1 {
        held.push(byte[0]);
        if !held.ends_with(b"\r\n\r\n") {
            continue;
        }
        let head = String::from_utf8(std::mem::take(&mut held)).unwrap();
        told.send(head.lines().next().unwrap().to_owned()).unwrap();
        let is_last = head.to_ascii_lowercase().contains("connection: close");
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nyes!").is_err() || is_last {
            return;
        }
    }
}

#[test]
fn a_body_that_a_server_leaves_unread_is_no_request() {
    staged("requests::a_body_that_a_server_leaves_unread_is_no_request", |stage| {
        let within = format!("DELETE /shut HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
        let whole = format!("GET /open/1 HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {}\r\n\r\n{within}", within.len());
        let (told, heard) = std::sync::mpsc::channel();
        let ours = told.clone();
        stage.server((WORLD, 80), move |stream| leaves_bodies_unread(stream, &ours));
        let mut engine =
            stage.broker(&json!({"allow": [{"host": HOST, "ports": [80], "methods": ["GET"], "paths": ["/open/**"]}]}));
        engine.ready();
        let mut stream = stage.program(|| connect(HOST, 80));
        stream.write_all(whole.as_bytes()).unwrap();
        assert!(answered(&mut stream).starts_with("HTTP/1.1 200"));
        assert!(asked(&mut stream, "/open/2").starts_with("HTTP/1.1 200"));
        engine.end();
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), ["GET /open/1 HTTP/1.1", "GET /open/2 HTTP/1.1"]);
        // The same server without a broker.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.write_all(whole.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        leaves_bodies_unread(listener.accept().unwrap().0, &told);
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), ["GET /open/1 HTTP/1.1", "DELETE /shut HTTP/1.1"]);
    });
}

/// A server may close a kept connection at any time: between two requests nobody sees it, and while one is on its way the program
/// does, as it would without a broker. A 502 is for one that never answered.
#[test]
fn a_kept_connection_may_be_closed_by_its_server() {
    staged("requests::a_kept_connection_may_be_closed_by_its_server", |stage| {
        let (told, heard) = std::sync::mpsc::channel();
        stage.server((WORLD, 80), move |mut stream| {
            let mut held = Vec::new();
            loop {
                let mut byte = [0];
                if stream.read(&mut byte).unwrap_or_default() == 0 {
                    break;
                }
                held.push(byte[0]);
                if !held.ends_with(b"\r\n\r\n") {
                    continue;
                }
                let head = String::from_utf8(std::mem::take(&mut held)).unwrap();
                if head.starts_with("GET /drop") {
                    break;
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nyes!").unwrap();
                if head.starts_with("GET /last") {
                    break;
                }
            }
            drop(stream);
            told.send(()).unwrap();
        });
        let mut engine = stage.broker(&json!({"allow": [{"host": HOST, "ports": [80], "methods": ["GET"]}]}));
        engine.ready();
        let mut stream = stage.program(|| connect(HOST, 80));
        assert!(asked(&mut stream, "/last").starts_with("HTTP/1.1 200"));
        heard.recv().unwrap();
        std::thread::park_timeout(std::time::Duration::from_millis(200));
        // By another connection outside, on the same one inside.
        assert!(asked(&mut stream, "/next").starts_with("HTTP/1.1 200"));
        assert_eq!(asked(&mut stream, "/drop"), "", "its end, and nothing that the server did not say");
        heard.recv().unwrap();
        let mut other = stage.program(|| connect(HOST, 80));
        assert!(asked(&mut other, "/drop").starts_with("HTTP/1.1 502"), "the first request of a connection");
        assert_eq!(engine.used().connections, 3);
    });
}

/// What is compressed is nobody's to look into: it goes through byte for byte, out and in, with the words about it.
#[test]
fn compressed_bodies_go_through_as_they_are() {
    staged("requests::compressed_bodies_go_through_as_they_are", |stage| {
        // Not even well-formed: who decodes it would break it.
        let body: Vec<u8> = [&[0x1F, 0x8B, 8, 0][..], &(0..=255).collect::<Vec<u8>>().repeat(40)].concat();
        let (told, heard) = std::sync::mpsc::channel();
        let said = body.clone();
        stage.server_in_turn((WORLD, 80), move |mut stream| {
            let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
            let end = loop {
                let count = stream.read(&mut buffer).unwrap();
                all.extend_from_slice(&buffer[..count]);
                if let Some(at) = all.windows(4).position(|four| four == b"\r\n\r\n")
                    && all.len() >= at + 4 + said.len()
                {
                    break at + 4;
                }
            };
            let sent = all.split_off(end);
            told.send((String::from_utf8(all).unwrap().to_lowercase(), sent)).unwrap();
            let length = said.len();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n").unwrap();
            stream.write_all(&said).unwrap();
        });
        let mut engine = stage.broker(&json!({"allow": [{"host": HOST, "ports": [80], "methods": ["POST"]}]}));
        engine.ready();
        let head = format!(
            "POST / HTTP/1.1\r\nHost: {HOST}\r\nAccept-Encoding: br, gzip\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let came = stage.program(|| {
            let mut stream = connect(HOST, 80);
            stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
            let mut came = Vec::new();
            stream.read_to_end(&mut came).unwrap();
            came
        });
        let (words, sent) = heard.recv().unwrap();
        assert!(words.contains("accept-encoding: br, gzip") && words.contains("content-encoding: gzip"), "{words}");
        assert!(sent == body, "{} of {} bytes", sent.len(), body.len());
        let (answer, back) = came.split_at(came.len() - body.len());
        assert!(back == body && String::from_utf8_lossy(answer).to_lowercase().contains("content-encoding: gzip"));
        engine.end();
    });
}
