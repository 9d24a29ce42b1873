//! Ports inside, and processes.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use agent::words::{Code, Processes, Request};

use crate::client::{Agent, program};

#[test]
fn bytes_go_both_ways_and_each_side_ends_its_own() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(listener) = TcpListener::bind(address) else {
            println!("skip: no {address} here");
            continue;
        };
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let mut all = Vec::new();
            connection.read_to_end(&mut all).unwrap();
            connection.write_all(&all).unwrap();
            all.len()
        });
        let mut agent = Agent::new();
        let stream = agent.open(&Request::Port { port });
        agent.until("the connection", |agent| agent.streams[&stream].reply.is_some());
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|number| u8::try_from(number % 253).unwrap()).collect();
        agent.send(stream, &bytes);
        agent.eof(stream);
        let heard = agent.end(stream);
        heard.result::<()>().unwrap();
        assert!(heard.out == bytes && heard.eof);
        assert_eq!(server.join().unwrap(), bytes.len());
    }
}

#[test]
fn a_port_at_which_nobody_listens_is_closed() {
    let mut agent = Agent::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    assert_eq!(agent.fails(&Request::Port { port }), Code::Closed);
    assert_eq!(agent.fails(&Request::Port { port: 0 }), Code::Invalid);
}

#[test]
fn a_server_that_hangs_up_ends_the_stream() {
    let mut agent = Agent::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let stream = agent.open(&Request::Port { port });
    let (mut connection, _) = listener.accept().unwrap();
    connection.write_all(b"bye").unwrap();
    drop(connection);
    agent.until("the end of its data", |agent| agent.streams[&stream].eof);
    agent.eof(stream);
    let heard = agent.end(stream);
    heard.result::<()>().unwrap();
    assert_eq!(heard.text(), "bye");
}

#[test]
fn processes_are_shown_with_their_arguments() {
    let mut agent = Agent::new();
    let (stream, pid) = agent.start(program(&["sleep", "1234"]));
    let (found, sleeper) = loop {
        let found: Processes = agent.ask(&Request::Processes {}).unwrap();
        let sleeper = found.processes.iter().find(|process| process.pid == pid).unwrap().clone();
        // Its memory is the program's own before its arguments are shown there.
        if !sleeper.argv.is_empty() {
            break (found, sleeper);
        }
    };
    assert_eq!(sleeper.argv, ["sleep", "1234"]);
    assert!(sleeper.rss > 0 && sleeper.parent > 1, "{sleeper:?}");
    assert!(found.processes.is_sorted_by_key(|process| process.pid));
    agent.cancel(stream);
    agent.end(stream);
}
