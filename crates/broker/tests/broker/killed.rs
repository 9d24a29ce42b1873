//! How connections end: one that came to its end says so, whole; one whose broker was killed in its midst says nothing of the kind.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::json;

use crate::HOST;
use crate::stage::{Stage, WORLD, connect, serve_apart, staged, wait};
use crate::tls::client;

/// More than anybody reads at once, and less than the kernel's buffers take.
const MUCH: usize = 300_000;
/// An answer without a length: its end is the connection's.
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";

/// A server that speaks for as long as anybody listens, and tells how that ended for it.
fn endless(stage: &Stage, port: u16) -> Receiver<Result<usize, ErrorKind>> {
    let (told, heard) = channel();
    stage.server_in_turn((WORLD, port), move |mut stream| {
        // Whoever speaks HTTP is asked first.
        stream.read_exact(&mut [0; 10]).unwrap();
        let (told, listens) = (Sender::clone(&told), stream.try_clone().unwrap());
        let writer = std::thread::spawn(move || {
            let (mut stream, mut head) = (stream, HEAD);
            loop {
                if let Err(error) = stream.write_all(head) {
                    return error.kind();
                }
                head = b"and more\n";
                wait(Duration::from_millis(2));
            }
        });
        std::thread::spawn(move || {
            let read = to_the_end(listens);
            // A reset is told once, to whoever asks first; behind an end a writer is told something else.
            let wrote = writer.join().unwrap();
            told.send(if wrote == ErrorKind::ConnectionReset { Err(wrote) } else { read }).unwrap();
        });
    });
    heard
}

/// How much was read until the end, or what the end was instead.
fn to_the_end(mut stream: impl Read) -> Result<usize, ErrorKind> {
    let (mut count, mut buffer) = (0, vec![0; 1 << 16]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(count),
            Ok(read) => count += read,
            Err(error) => return Err(error.kind()),
        }
    }
}

/// Hears some of what an endless server says.
fn some(mut stream: impl Read + Write) {
    stream.write_all(format!("GET / HTTP/1.0\r\nHost: {HOST}\r\n\r\n").as_bytes()).unwrap();
    stream.read_exact(&mut [0; 100]).unwrap();
}

#[test]
fn what_a_killed_broker_leaves_is_reset_on_both_sides() {
    const NAME: &str = "killed::what_a_killed_broker_leaves_is_reset_on_both_sides";
    if serve_apart() {
        return;
    }
    staged(NAME, |stage| {
        let servers = [22, 80].map(|port| endless(stage, port));
        let config = stage.authority.server(HOST, |_| ());
        stage.server((WORLD, 443), move |stream| {
            let connection = rustls::ServerConnection::new(std::sync::Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream);
            let mut head = HEAD;
            while stream.write_all(head).is_ok() {
                head = b"and more\n";
                wait(Duration::from_millis(2));
            }
        });
        let reads = json!({"host": HOST, "ports": [80, 443], "methods": ["GET"]});
        stage.apart.set(Some(NAME));
        let mut engine = stage.broker_with(&json!({"allow": [{"host": HOST, "ports": [22]}, reads]}), &[22, 80, 443]);
        engine.ready();
        let trusted = stage.trusted.borrow().clone().unwrap();
        let (mut passed, mut plain, mut opened) =
            stage.program(|| (connect(HOST, 22), connect(HOST, 80), client(&trusted, HOST, HOST)));
        some(&mut passed);
        some(&mut plain);
        some(&mut opened);
        for stream in [&passed, &plain, opened.get_ref()] {
            stream.set_nonblocking(true).unwrap();
            assert_eq!(stream.peek(&mut [0]).map_err(|error| error.kind()).unwrap_or(1), 1, "it has ended by itself");
            stream.set_nonblocking(false).unwrap();
        }
        engine.kill();
        let reset = Err(ErrorKind::ConnectionReset);
        assert_eq!([to_the_end(passed), to_the_end(plain), to_the_end(opened)], [reset; 3]);
        for (port, heard) in [22, 80].into_iter().zip(servers) {
            assert_eq!(heard.recv_timeout(Duration::from_secs(8)).unwrap(), reset, "the server at {port}");
        }
    });
}

#[test]
fn what_comes_to_its_own_end_is_whole_and_no_reset() {
    staged("killed::what_comes_to_its_own_end_is_whole_and_no_reset", |stage| {
        let (told, heard) = channel();
        for port in [22, 80] {
            let told = Sender::clone(&told);
            stage.server_in_turn((WORLD, port), move |mut stream: TcpStream| {
                stream.read_exact(&mut [0; 10]).unwrap();
                stream.write_all(&[HEAD, &[b'a'; MUCH]].concat()).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                told.send(to_the_end(stream)).unwrap();
            });
        }
        let reads = json!({"host": HOST, "ports": [80], "methods": ["GET"]});
        let mut engine = stage.broker(&json!({"allow": [{"host": HOST, "ports": [22]}, reads]}));
        engine.ready();
        for port in [22, 80] {
            let mut stream = stage.program(|| connect(HOST, port));
            stream.write_all(format!("GET / HTTP/1.0\r\nHost: {HOST}\r\n\r\n").as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // By now the broker has said all of it, and has closed.
            assert!(heard.recv_timeout(Duration::from_secs(8)).unwrap().is_ok(), "the server at {port}");
            wait(Duration::from_millis(100));
            let read = to_the_end(&stream);
            assert!(read.is_ok_and(|count| count > MUCH), "{port}: {read:?}");
        }
        engine.end();
    });
}

#[test]
fn what_was_said_before_the_end_of_a_run_arrives_after_it() {
    staged("killed::what_was_said_before_the_end_of_a_run_arrives_after_it", |stage| {
        const PORTS: [u16; 2] = [22, 25];
        let servers = PORTS.map(|port| {
            let ((told, heard), (go, goes)) = (channel(), channel());
            stage.server_in_turn((WORLD, port), move |stream| {
                // Slow to read: most of it waits in the broker's kernel.
                goes.recv().unwrap();
                told.send(to_the_end(stream)).unwrap();
            });
            (go, heard)
        });
        let mut engine = stage.broker_with(&json!({"allow": [{"host": HOST, "ports": PORTS}]}), &PORTS);
        engine.ready();
        let [closed, _open] = PORTS.map(|port| {
            let mut stream = stage.program(|| connect(HOST, port));
            stream.write_all(&[b'a'; MUCH]).unwrap();
            stream
        });
        drop(closed);
        // Until the broker has taken all of it.
        wait(Duration::from_millis(500));
        engine.end();
        for ((go, heard), port) in servers.into_iter().zip(PORTS) {
            go.send(()).unwrap();
            assert_eq!(heard.recv_timeout(Duration::from_secs(8)).unwrap(), Ok(MUCH), "the server at {port}");
        }
    });
}
