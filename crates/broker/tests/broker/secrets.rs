//! Secrets: put into the requests that they are for, nowhere else, and not in what comes back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use egress::wire::{FromBroker, Hidden, Secrets};
use serde_json::{Value, json};

use crate::stage::{Engine, Stage, WORLD, connect, exchange, staged};
use crate::tls;

const HOST: &str = "a.at-93-184-216-34.example";
const OTHER: &str = "b.at-93-184-216-34.example";
const VALUE: &str = "s3cr3t/value+one";
const CODED: &str = "s3cr3t%2Fvalue%2Bone";
const STAND_IN: &str = "fumehood-0123456789abcdef";

fn secrets(put: &Value) -> Secrets {
    let one = json!({
        "from": "env:TOKEN", "hosts": [HOST], "ports": [80], "methods": ["GET", "POST"], "paths": ["/v1/**"], "as": put,
        "env": "TOKEN",
    });
    Secrets {
        table: json!({ "api": one }),
        values: BTreeMap::from([("api".to_owned(), Hidden(VALUE.to_owned().into()))]),
        placeholders: BTreeMap::from([("api".to_owned(), STAND_IN.to_owned())]),
    }
}

/// What the servers were sent.
type Sent = Arc<Mutex<Vec<String>>>;

/// A broker with one secret, and a server on two ports for all hosts. It keeps what it is sent; on `/v1/pieces` it says that in
/// chunks of five bytes, on `/v1/coded` as if it were compressed, on `/v1/wide` as if it were UTF-16, else whole, in a header and in the reason as well.
fn scene(stage: &Stage, put: &Value) -> (Engine, Sent) {
    let sent = Sent::default();
    for port in [80, 8080] {
        let sent = Arc::clone(&sent);
        stage.server((WORLD, port), move |stream| serve(stream, &sent));
    }
    let rules = [HOST, OTHER].map(|host| json!({ "host": host, "ports": [80, 8080] }));
    let secrets = secrets(put);
    let digest = secrets.digest();
    assert!(!format!("{secrets:?}").contains("s3cr3t"), "shown by Debug");
    let mut engine = stage.broker_holding(&json!({ "allow": rules }), &[80, 443], secrets);
    engine.wait(|frame| matches!(frame, FromBroker::Holds { digest: said } if *said == digest).then_some(()));
    engine.ready();
    (engine, sent)
}

fn serve(mut stream: impl std::io::Read + std::io::Write, sent: &Sent) {
    let mut held = Vec::new();
    let whole = |held: &[u8]| {
        let text = String::from_utf8_lossy(held).into_owned();
        let (head, body) = text.split_once("\r\n\r\n")?;
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        let length = lines
            .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .map(|(_, n)| n.parse::<usize>().unwrap());
        (body.len() >= length.sum::<usize>()).then_some(text)
    };
    let asked = loop {
        if let Some(asked) = whole(&held) {
            break asked;
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => held.extend_from_slice(&buffer[..count]),
        }
    };
    sent.lock().unwrap().push(asked.clone());
    let line = asked.lines().next().unwrap();
    let body = asked.replace("\r\n", "|");
    let coded = match line {
        _ if line.contains("/v1/coded") => "Content-Encoding: br\r\n",
        _ if line.contains("/v1/wide") => "Content-Type: text/plain;charset=utf-16le\r\n",
        _ if line.contains("/v1/named") => "Content-Encoding: utf-8\r\n",
        _ => "",
    };
    let mut answer = if asked.contains("/v1/pieces") {
        let mut chunks = String::new();
        for piece in body.as_bytes().chunks(5) {
            chunks += &format!("{:x}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece));
        }
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n{chunks}0\r\n\r\n")
    } else {
        let length = body.len();
        format!(
            "HTTP/1.1 200 {body}\r\n{coded}X-Asked: {body}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
    };
    if line.contains("/v1/name") {
        answer = format!("HTTP/1.1 200 OK\r\n{CODED}: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    }
    // Who breaks off is told by the test.
    drop(stream.write_all(answer.as_bytes()));
}

/// Asks as a program inside: what the program is told, and what the server was sent.
fn ask(stage: &Stage, sent: &Sent, at: (&str, u16), line: &str, more: &str) -> (String, String) {
    let (host, port) = at;
    let asked = format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}");
    let asked = if more.contains("\r\n\r\n") { asked } else { format!("{asked}\r\n") };
    sent.lock().unwrap().clear();
    let said = stage.program(|| exchange(connect(host, port), asked.as_bytes(), false).unwrap());
    (said, sent.lock().unwrap().join("\n"))
}

#[test]
fn a_header_is_put_where_it_is_for_and_never_comes_back() {
    staged("secrets::a_header_is_put_where_it_is_for_and_never_comes_back", |stage| {
        let (mut engine, sent) = scene(stage, &json!({ "header": "X-Api", "format": "Bearer {}" }));
        let bearer = format!("bearer {VALUE}");
        let has = |text: &str| text.to_ascii_lowercase().contains(&bearer);
        for (line, more) in [
            ("GET /v1/a", ""),
            ("POST /v1/a", "Content-Length: 2\r\n\r\nhi"),
            ("GET /v1/a", "X-Api: mine\r\nx-api: again\r\n"),
            ("GET /v1/a", "Connection: x-api\r\nAccept-Encoding: br\r\nRange: bytes=0-\r\n"),
            ("GET /v1/a", "Range: bytes=0-3\r\nIf-Range: \"1\"\r\n"),
            ("GET /v1/pieces", ""),
            ("GET /v1/pieces/b", "X-Pad: 1\r\n"),
        ] {
            let (said, got) = ask(stage, &sent, (HOST, 80), line, more);
            assert!(has(&got) && got.to_ascii_lowercase().matches("x-api:").count() == 1, "{line} {more}: {got}");
            assert!(!got.contains("bytes=0-") && got.contains("identity"), "{got}");
            assert!(said.starts_with("HTTP/1.1 200") && !said.contains("s3cr3t"), "{line} {more}: {said}");
        }
        // The same server says back what it is sent where no secret is for it: it is the broker that takes it out.
        let own = format!("X-Api: Bearer {VALUE}\r\n");
        let (said, _) = ask(stage, &sent, (OTHER, 80), "GET /v1/a", &own);
        assert!(has(&said), "{said}");
        let (said, _) = ask(stage, &sent, (HOST, 80), "GET /elsewhere", &own);
        assert!(said.starts_with("HTTP/1.1 200") && !has(&said), "whoever sent it: {said}");
        // Another host, port, method or path.
        for (at, line) in [
            ((OTHER, 80), "GET /v1/a"),
            ((HOST, 8080), "GET /v1/a"),
            ((HOST, 80), "PUT /v1/a"),
            ((HOST, 80), "GET /v2/a"),
            ((HOST, 80), "GET /v1/../v2/a"),
            ((HOST, 80), "GET /v1/%2e%2e/a"),
        ] {
            let (_, got) = ask(stage, &sent, at, line, "");
            assert!(!got.contains("s3cr3t") && !got.to_ascii_lowercase().contains("x-api"), "{at:?} {line}: {got}");
        }
        // What cannot be searched does not come inside; elsewhere it does.
        let (said, got) = ask(stage, &sent, (HOST, 80), "GET /v1/coded", "");
        assert!(has(&got) && said.starts_with("HTTP/1.1 502") && said.contains("secrets/not-put"), "{said}");
        assert!(said.contains("not compressed"), "{said}");
        assert_eq!(engine.denied("secrets/not-put").clause, "secrets");
        let (said, _) = ask(stage, &sent, (OTHER, 80), "GET /v1/coded", "");
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
        let (said, got) = ask(stage, &sent, (HOST, 80), "GET /v1/a", upgrade);
        assert!(said.starts_with("HTTP/1.1 403") && got.is_empty(), "{said} {got}");
        assert!(said.contains("do without a WebSocket") && !said.contains("compressed"), "{said}");
        engine.end();
    });
}

/// What is no secret by its policy's word is put on, and neither what comes back nor how it is asked for is another one for it.
#[test]
fn a_public_header_is_put_and_answers_may_have_it() {
    staged("secrets::a_public_header_is_put_and_answers_may_have_it", |stage| {
        let (engine, sent) = scene(stage, &json!({ "header": "User-Agent", "format": "{}", "public": true }));
        let more = "User-Agent: mine\r\nAccept-Encoding: br\r\nRange: bytes=0-3\r\n";
        let (said, got) = ask(stage, &sent, (HOST, 80), "GET /v1/coded", more);
        assert!(said.starts_with("HTTP/1.1 200") && said.contains(VALUE), "{said}");
        assert!(got.contains(VALUE) && !got.contains("mine"), "{got}");
        assert!(got.contains(": br") && got.contains("bytes=0-3"), "{got}");
        let (said, got) = ask(stage, &sent, (OTHER, 80), "GET /v1/a", more);
        assert!(got.contains("mine") && !said.contains(VALUE), "{said} {got}");
        engine.end();
    });
}

/// What stands in an answer otherwise than it is searched for: in another charset, or in part. Nobody is to write a whole one in the
/// place of a part.
#[test]
fn an_answer_comes_whole_and_in_a_charset_in_which_it_is_searched() {
    staged("secrets::an_answer_comes_whole_and_in_a_charset_in_which_it_is_searched", |stage| {
        let (engine, sent) = scene(stage, &json!({ "header": "X-Api", "format": "Bearer {}" }));
        let wide = "Accept: text/plain;charset=utf-16le, */*\r\n";
        let (said, got) = ask(stage, &sent, (HOST, 80), "GET /v1/a", wide);
        assert!(said.starts_with("HTTP/1.1 200") && got.contains("text/plain, */*"), "{got}");
        let (said, _) = ask(stage, &sent, (HOST, 80), "GET /v1/wide", "");
        assert!(said.starts_with("HTTP/1.1 502") && said.contains("charset") && !said.contains("s3cr3t"), "{said}");
        let (said, got) = ask(
            stage,
            &sent,
            (HOST, 80),
            "POST /v1/a",
            "Content-Type: a/b;charset=cp037\r\nContent-Length: 2\r\n\r\nhi",
        );
        assert!(said.starts_with("HTTP/1.1 403") && got.is_empty(), "{said}");
        for range in ["Range: bytes=0-3", "Request_Range: bytes=4-"] {
            let (said, got) = ask(stage, &sent, (HOST, 80), "GET /v1/a", &format!("{range}\r\n"));
            assert!(said.starts_with("HTTP/1.1 403") && said.contains("ask for the whole"), "{said}");
            assert_eq!(got, "");
        }
        let (said, got) = ask(stage, &sent, (OTHER, 80), "GET /v1/wide", "Range: bytes=0-3\r\n");
        assert!(said.starts_with("HTTP/1.1 200") && got.contains("bytes=0-3"), "no secret is for it: {said}");
        // Nothing of an answer without a body is compressed, and the name of a charset is no coding.
        for line in ["HEAD /v1/coded", "GET /v1/named"] {
            let (said, _) = ask(stage, &sent, (HOST, 80), line, "");
            assert!(said.starts_with("HTTP/1.1 200") && !said.contains("s3cr3t"), "{line}: {said}");
        }
        engine.end();
    });
}

#[test]
fn a_placeholder_is_replaced_where_the_secret_is_for_and_stays_elsewhere() {
    staged("secrets::a_placeholder_is_replaced_where_the_secret_is_for_and_stays_elsewhere", |stage| {
        let (engine, sent) = scene(stage, &json!("placeholder"));
        let header = format!("Authorization: token {STAND_IN}\r\n");
        let query = format!("GET /v1/a?key={STAND_IN}&x=1");
        let json = format!("{{\"key\":\"{STAND_IN}\"}}");
        let typed = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{json}", json.len());
        let (one, two) = json.split_at(json.len() / 2);
        let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
        let chunked = format!("Transfer-Encoding: chunked\r\n\r\n{}{}0\r\n\r\n", chunk(one), chunk(two));
        let cases = [
            ("GET /v1/a", header.as_str(), VALUE),
            (query.as_str(), "", CODED),
            ("POST /v1/a", typed.as_str(), VALUE),
            ("POST /v1/a", chunked.as_str(), VALUE),
        ];
        for (line, more, form) in cases {
            let (said, got) = ask(stage, &sent, (HOST, 80), line, more);
            assert!(got.contains(form) && !got.contains(STAND_IN), "{line} {more}: {got}");
            assert!(said.starts_with("HTTP/1.1 200") && !said.contains("s3cr3t"), "{said}");
            for at in [(OTHER, 80), (HOST, 8080)] {
                let (_, got) = ask(stage, &sent, at, line, more);
                assert!(!got.contains("s3cr3t"), "{at:?} {line}: {got}");
                let whole = got.contains(STAND_IN) || more.contains("chunked");
                assert!(whole, "it stays what it is: {got}");
            }
        }
        // Where the program does not send it, nothing is put.
        let (_, got) = ask(stage, &sent, (HOST, 80), "GET /v1/a", "");
        assert!(!got.contains("s3cr3t"), "{got}");
        // An address that was asked for with the secret in it is no referrer that has it: inside it is a placeholder.
        let referer = format!("Referer: http://{HOST}/v1/a?key={STAND_IN}\r\n");
        let (_, got) = ask(stage, &sent, (OTHER, 80), "GET /", &referer);
        assert!(got.contains(STAND_IN) && !got.contains("s3cr3t"), "{got}");
        engine.end();
    });
}

/// Places for bodies that are read whole are few. Those that wait for one leave the connection to those that have one.
#[test]
fn bodies_that_wait_on_one_connection_hold_up_none_that_is_read() {
    staged("secrets::bodies_that_wait_on_one_connection_hold_up_none_that_is_read", |stage| {
        stage.server((WORLD, 443), tls::serve_two(&stage.authority.server(HOST, |_| {})));
        let mut held = secrets(&json!("placeholder"));
        held.table["api"]["ports"] = json!([443]);
        let mut engine = stage.broker_holding(&json!({ "allow": [{ "host": HOST }] }), &[80, 443], held);
        engine.ready();
        let trusted = stage.trusted.borrow().clone().unwrap();
        let begun = std::time::Instant::now();
        // The first have all places, and begin when the others have sent all that they may.
        let after = (0..80).map(|number| if number < 32 { 1000 } else { 100 });
        let said = stage.program(|| tls::post_two(&trusted, &format!("https://{HOST}/v1/a"), after));
        assert!(said.iter().all(|status| *status == 200), "{said:?}");
        assert!(begun.elapsed() < std::time::Duration::from_secs(15), "{:?}", begun.elapsed());
        engine.end();
    });
}

/// On port 443 it goes over TLS alone, to a server that was verified.
#[test]
fn over_tls_a_secret_goes_to_a_server_that_was_verified() {
    staged("secrets::over_tls_a_secret_goes_to_a_server_that_was_verified", |stage| {
        let sent = Sent::default();
        let configs = [(443, stage.authority.server(HOST, |_| {})), (9443, tls::self_signed(OTHER))];
        for (port, config) in configs {
            let sent = Arc::clone(&sent);
            stage.server((WORLD, port), move |stream| {
                let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
                serve(rustls::StreamOwned::new(connection, stream), &sent);
            });
        }
        let mut held = secrets(&json!({ "header": "X-Api", "format": "{}" }));
        held.table["api"]["ports"] = json!([443]);
        held.table["other"] = held.table["api"].clone();
        held.table["other"]["hosts"] = json!([OTHER]);
        held.table["other"]["env"] = json!("OTHER");
        held.values.insert("other".to_owned(), Hidden(VALUE.to_owned().into()));
        held.placeholders.insert("other".to_owned(), STAND_IN.to_owned());
        let rules = json!([{ "host": HOST }, { "host": OTHER, "address": "93.184.216.34:9443" }]);
        let mut engine = stage.broker_holding(&json!({ "allow": rules }), &[80, 443], held);
        engine.ready();
        let trusted = stage.trusted.borrow().clone().unwrap();
        let get = |host: &str| format!("GET /v1/a HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let ask = |host: &str| stage.program(|| tls::ask(&mut tls::client(&trusted, host, host), &get(host)).unwrap());
        let said = ask(OTHER);
        assert!(said.starts_with("HTTP/1.1 502"), "{said}");
        let said = ask(HOST);
        assert!(said.starts_with("HTTP/1.1 200") && !said.contains("s3cr3t"), "{said}");
        assert!(sent.lock().unwrap()[0].contains(VALUE));
        let used = engine.wait(|frame| {
            let FromBroker::Used { secrets } = frame else { return None };
            secrets.contains_key("api").then(|| secrets.clone())
        });
        assert_eq!(used, BTreeMap::from([("api".to_owned(), 1)]), "no server was sent the other");
        sent.lock().unwrap().clear();
        // Without TLS on this port it is put nowhere.
        let said = stage.program(|| exchange(connect(HOST, 443), get(HOST).as_bytes(), true));
        assert!(sent.lock().unwrap().is_empty(), "{said:?} {sent:?}");
        engine.end();
    });
}

/// The body, the method and the host are part of what is signed: the server would refuse another request with this signature.
/// What is longer than can be read first is refused, and nothing is signed without TLS.
#[test]
fn a_request_is_signed_over_tls_and_each_use_is_counted() {
    staged("secrets::a_request_is_signed_over_tls_and_each_use_is_counted", |stage| {
        let sent = Sent::default();
        let config = stage.authority.server(HOST, |_| {});
        let to = Arc::clone(&sent);
        stage.server((WORLD, 443), move |stream| {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            serve(rustls::StreamOwned::new(connection, stream), &to);
        });
        let one = json!({
            "kind": "aws-sigv4", "from": "env:KEY", "key_id": "env:ID", "hosts": [HOST], "region": "corp-1",
            "service": "queue", "paths": ["/v1/**"],
        });
        let held = Secrets {
            table: json!({ "aws": one }),
            values: BTreeMap::from([("aws".to_owned(), Hidden(format!("AKIDEXAMPLE:{VALUE}").into()))]),
            placeholders: BTreeMap::new(),
        };
        let mut engine = stage.broker_holding(&json!({ "allow": [{ "host": HOST }] }), &[80, 443], held);
        engine.ready();
        let trusted = stage.trusted.borrow().clone().unwrap();
        let ask = |line: &str, more: &str| {
            sent.lock().unwrap().clear();
            let text = format!("{line} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n{more}");
            let said = stage.program(|| tls::ask(&mut tls::client(&trusted, HOST, HOST), &text).unwrap());
            (said, sent.lock().unwrap().join("\n"))
        };
        let own = "Authorization: mine\r\nX-Amz-Date: 20000101T000000Z\r\n";
        let mut seen = Vec::new();
        for (line, more) in [
            ("GET /v1/a?b=1", format!("{own}\r\n")),
            ("POST /v1/a", format!("{own}Content-Length: 2\r\n\r\nhi")),
            ("POST /v1/a", "Transfer-Encoding: chunked\r\n\r\n2\r\nho\r\n0\r\n\r\n".to_owned()),
        ] {
            let (said, got) = ask(line, &more);
            let lower = got.to_ascii_lowercase();
            assert!(said.starts_with("HTTP/1.1 200") && !said.contains("s3cr3t"), "{said}");
            assert_eq!(lower.matches("authorization:").count(), 1, "{got}");
            assert!(!got.contains("mine") && !got.contains("20000101") && !got.contains("s3cr3t"), "{got}");
            assert!(got.contains("Credential=AKIDEXAMPLE/") && got.contains("/corp-1/queue/aws4_request, "), "{got}");
            let signature = got.split("Signature=").nth(1).unwrap().get(..64).unwrap().to_owned();
            assert!(!seen.contains(&signature), "one signature for two requests");
            seen.push(signature);
        }
        // Of what no server is sent none can say anything back: parts of an answer are parts, as boto3 asks for them.
        let (said, got) = ask("GET /v1/coded", &format!("{own}Range: bytes=4-7\r\n\r\n"));
        assert!(said.starts_with("HTTP/1.1 200") && got.contains("bytes=4-7"), "{said}");
        let (_, got) = ask("GET /v2/a", &format!("{own}\r\n"));
        assert!(got.contains("mine") && !got.contains("AWS4"), "its own stays where it is not for it: {got}");
        let (_, got) = ask("GET /v1/a?X-Amz-Signature=abc", "\r\n");
        assert!(!got.contains("AWS4"), "{got}");
        let long = "x".repeat((1 << 20) + 1);
        let (said, got) = ask("POST /v1/a", &format!("Content-Length: {}\r\n\r\n{long}", long.len()));
        assert!(said.starts_with("HTTP/1.1 403") && said.contains("1 MiB") && got.is_empty(), "{said}");
        let plain = format!("GET /v1/a HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        drop(stage.program(|| exchange(connect(HOST, 443), plain.as_bytes(), true)));
        assert!(sent.lock().unwrap().is_empty(), "signed without TLS");
        engine.wait(|frame| {
            let FromBroker::Used { secrets } = frame else { return None };
            (secrets.get("aws") == Some(&4)).then_some(())
        });
        engine.end();
    });
}

#[test]
fn a_password_is_put() {
    staged("secrets::a_password_is_put", |stage| {
        let (engine, sent) = scene(stage, &json!({ "basic": "me" }));
        let (said, got) = ask(stage, &sent, (HOST, 80), "GET /v1/a", "Authorization: Basic bWluZTptaW5l\r\n");
        assert!(got.contains("Basic bWU6czNjcjN0L3ZhbHVlK29uZQ==") && !got.contains("bWluZTptaW5l"), "{got}");
        assert!(!said.contains("s3cr3t") && !said.contains("czNjcjN0L3ZhbHVlK29u"), "{said}");
        engine.end();
    });
}

#[test]
fn a_parameter_is_put() {
    staged("secrets::a_parameter_is_put", |stage| {
        let (engine, sent) = scene(stage, &json!({ "query": "key" }));
        let (said, got) = ask(stage, &sent, (HOST, 80), "GET /v1/a?key=mine&x=1&k%65y=2", "");
        assert!(got.starts_with("GET /v1/a?x=1&key=s3cr3t%2Fvalue%2Bone HTTP/1.1"), "{got}");
        assert!(said.starts_with("HTTP/1.1 200") && !said.contains("s3cr3t"), "{said}");
        engine.end();
    });
}

#[test]
fn secrets_that_do_not_fit_their_table_are_refused_without_being_said() {
    staged("secrets::secrets_that_do_not_fit_their_table_are_refused_without_being_said", |stage| {
        let put = json!({ "header": "X-Api", "format": "{}" });
        let good = secrets(&put);
        let other = BTreeMap::from([("another".to_owned(), Hidden(VALUE.to_owned().into()))]);
        let short = BTreeMap::from([("api".to_owned(), Hidden("s3cr3t".to_owned().into()))]);
        for wrong in [
            Secrets { values: other, ..good.clone() },
            Secrets { values: short, ..good.clone() },
            Secrets { table: json!({ "api": { "from": VALUE, "hosts": [] } }), ..good },
            secrets(&json!({ "header": "Host", "format": "{}" })),
        ] {
            let mut engine = stage.broker_holding(&json!({}), &[80], wrong);
            let Some(FromBroker::Failed { what: _, why }) = engine.next() else { panic!("it took them") };
            assert!(why.contains("secret") && !why.contains("s3cr3t"), "{why}");
        }
    });
}
