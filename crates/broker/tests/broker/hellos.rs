//! The second client hello, which a server may ask for: judged as the first one was, and nothing of another name gets out.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::json;

use crate::stage::{Engine, Stage, WORLD, connect, staged};
use crate::{HOST, hello, named};

const OTHER: &str = "b.at-93-184-216-34.example";
/// The random of a server hello that asks for another client hello, and that of one that does not.
const RETRY: &[u8; 32] = b"\xCF\x21\xAD\x74\xE5\x9A\x61\x11\xBE\x1D\x8C\x02\x1E\x65\xB8\x91\xC2\xA2\x11\x16\x7A\xBB\x8C\x5E\x07\x9E\x09\xE2\xC8\xA8\x33\x9C";
const PLAIN: &[u8; 32] = &[7; 32];
/// Change of the cipher, as clients say it between two hellos; and a record of early data.
const BETWEEN: &[u8] = &[20, 3, 3, 0, 1, 1, 23, 3, 3, 0, 4, 22, 3, 1, 0];

/// A server hello.
fn server(random: &[u8; 32]) -> Vec<u8> {
    [&[22, 3, 3, 0, 44, 2, 0, 0, 40, 3, 3][..], random, &[0, 0x13, 1, 0, 0, 0]].concat()
}

/// A server that answers whatever comes first with this, and tells all that it heard.
fn serve(stage: &Stage, port: u16, random: &'static [u8; 32]) -> Receiver<Vec<u8>> {
    let (told, heard) = channel();
    stage.server_in_turn((WORLD, port), move |mut stream| {
        let mut all = vec![0; 4096];
        let count = stream.read(&mut all).unwrap();
        all.truncate(count);
        stream.write_all(&server(random)).unwrap();
        // A reset ends it as well.
        drop(stream.read_to_end(&mut all));
        told.send(all).unwrap();
    });
    heard
}

/// Says the pieces, each when the server has said something since the one before; whether it all went.
fn say(stage: &Stage, port: u16, pieces: &[&[u8]]) -> bool {
    stage.program(|| {
        let mut stream = connect(HOST, port);
        let Some((first, rest)) = pieces.split_first() else { return false };
        stream.write_all(first).unwrap();
        let mut said = vec![0; server(PLAIN).len()];
        let answered = stream.read_exact(&mut said).is_ok() && said.starts_with(&[22, 3, 3]);
        answered && rest.iter().all(|piece| stream.write_all(piece).is_ok()) && ends(stream)
    })
}

/// Whether the other side takes our end as one, and is no reset.
fn ends(mut stream: TcpStream) -> bool {
    stream.shutdown(Shutdown::Write).is_ok() && stream.read_to_end(&mut Vec::new()).is_ok()
}

fn begun(stage: &Stage) -> Engine {
    let net = json!({"allow": [{"host": "*.at-93-184-216-34.example", "ports": [22, 80, 443]}]});
    let mut engine = stage.broker(&net);
    engine.ready();
    engine
}

#[test]
fn a_second_hello_is_judged_as_the_first_was() {
    staged("hellos::a_second_hello_is_judged_as_the_first_was", |stage| {
        let heard = serve(stage, 443, RETRY);
        let unread = serve(stage, 22, RETRY);
        let mut engine = begun(stage);
        let (right, wrong) = (hello(&named(HOST)), hello(&named(OTHER)));
        let hidden = hello(&[named(HOST), vec![0xFE, 0x0D, 0, 0]].concat());
        // What is right goes through byte for byte, however it comes.
        let behind = [BETWEEN, &right, BETWEEN].concat();
        for pieces in [vec![&right[..], &behind], vec![&right, BETWEEN, &right[..9], &right[9..], BETWEEN]] {
            assert!(say(stage, 443, &pieces));
            assert_eq!(heard.recv().unwrap(), pieces.concat());
        }
        // Of another name, hidden, no hello, two in one record: nothing of it, at once or when it is asked for.
        let none = [22, 3, 1, 0, 4, 16, 0, 0, 0];
        let joined = [&[22, 3, 1][..], &u16::try_from(2 * (right.len() - 5)).unwrap().to_be_bytes()].concat();
        let joined = [&joined[..], &right[5..], &wrong[5..]].concat();
        for (second, id) in [
            (&wrong[..], "net.allow/server-name"),
            (&hidden, "net.allow/encrypted-hello"),
            (&none, "net.allow/malformed"),
            (&joined, "net.allow/malformed"),
        ] {
            for pieces in [vec![&right[..], BETWEEN, second], vec![&right[..], second]] {
                assert!(!say(stage, 443, &pieces), "{id}");
                let said = heard.recv().unwrap();
                assert!(pieces.concat().starts_with(&said) && said.len() <= right.len() + BETWEEN.len(), "{id}");
            }
            say(stage, 443, &[&[&right, BETWEEN, second].concat()]);
            assert_eq!(heard.recv().unwrap(), [&right, BETWEEN].concat(), "sent at once: {id}");
            assert_eq!(engine.denied(id).port, 443);
        }
        // In the record of the first one it is not even begun.
        let at_once = stage.program(|| {
            let mut stream = connect(HOST, 443);
            stream.write_all(&joined).unwrap();
            ends(stream)
        });
        assert!(!at_once && heard.recv_timeout(Duration::from_millis(300)).is_err());
        // On a port whose bytes are passed unread the same second hello gets out.
        assert!(say(stage, 22, &[&right, BETWEEN, &wrong]));
        assert_eq!(unread.recv().unwrap(), [&right, BETWEEN, &wrong].concat());
        engine.end();
    });
}

/// Where the server asks for none, what follows is a handshake that nobody can read, whatever it looks like (TLS 1.2).
#[test]
fn a_handshake_that_goes_on_is_passed() {
    staged("hellos::a_handshake_that_goes_on_is_passed", |stage| {
        let heard = serve(stage, 443, PLAIN);
        let engine = begun(stage);
        let (right, finished) = (hello(&named(HOST)), [22, 3, 3, 0, 40, 1, 255, 7, 7].to_vec());
        let rest = [BETWEEN, &finished, &[9; 36]].concat();
        for pieces in [vec![&right[..], &rest], vec![&right, &rest[..17], &rest[17..]]] {
            assert!(say(stage, 443, &pieces));
            assert_eq!(heard.recv().unwrap(), pieces.concat());
        }
        // What came before the answer was held, and goes on after it.
        let all = [&right[..], &rest].concat();
        assert!(say(stage, 443, &[&all]));
        assert_eq!(heard.recv().unwrap(), all);
        engine.end();
    });
}
