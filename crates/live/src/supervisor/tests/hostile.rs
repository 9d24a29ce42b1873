//! What an agent may not say, each of which ends the sandbox, and clients that do not keep to it.

use agent::frame::{Kind, Lane, WINDOW};
use agent::words::{Code, Entry, Exited, Request, Started};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::fake::{entry, ok};
use super::*;
use crate::wire::{credit, data, encode};
use crate::words::EndReason;

fn started() -> Vec<u8> {
    serde_json::to_vec(&Started { pid: 9 }).unwrap()
}

fn reply(stream: u32) -> Vec<u8> {
    encode(Kind::Reply, stream, &started()).unwrap()
}

async fn ends(hostile: Hostile, ask: &impl serde::Serialize) -> Info {
    let live = live(With { hostile: Some(hostile), ..With::default() }).await;
    let client = live.client().await;
    let mut stream = client.open(ask).unwrap();
    let told = async { while !matches!(stream.next().await, Some(Incoming::End(_))) {} };
    tokio::time::timeout(LONG, told).await.expect("the request has no end");
    live.over().await
}

#[tokio::test]
async fn each_breach_of_the_protocol_ends_the_sandbox_and_says_which() {
    let breaches: &[(Hostile, &str)] = &[
        (|_| encode(Kind::Event, 77, b"{}").unwrap(), "not open"),
        (|s| [reply(s), reply(s)].concat(), "second reply"),
        (|s| [data(s, Lane::Out, b"x").unwrap(), reply(s)].concat(), "too late"),
        (|s| encode(Kind::Reply, s, b"{\"pid\":\"nine\"}").unwrap(), "no reply"),
        (|s| encode(Kind::Reply, s, b"{\"pid\":9,\"more\":1}").unwrap(), "no reply"),
        (|s| encode(Kind::Reply, s, b"{").unwrap(), "no reply"),
        (|s| encode(Kind::Event, s, b"{}").unwrap(), "no event"),
        (|s| data(s, Lane::In, b"x").unwrap(), "nobody asked"),
        (|s| encode(Kind::Data, s, b"\x07x").unwrap(), "lane"),
        (|s| credit(s, 1).unwrap(), "credit"),
        (|s| encode(Kind::Open, s, b"{}").unwrap(), "only the supervisor"),
        (|s| encode(Kind::Control, s, b"{}").unwrap(), "only the supervisor"),
        (|s| encode(Kind::Cancel, s, b"").unwrap(), "only the supervisor"),
        (|s| encode(Kind::End, s, b"{\"fine\":1}").unwrap(), "no result"),
        (|s| encode(Kind::End, s, &ok(Exited::default())).unwrap(), "never started"),
        (
            |s| {
                let end = encode(Kind::End, s, &ok(Exited { code: Some(0), ..Exited::default() })).unwrap();
                [reply(s), end.clone(), end].concat()
            },
            "not open",
        ),
        (|s| [encode(Kind::Eof, s, b"").unwrap(), data(s, Lane::Out, b"x").unwrap()].concat(), "nobody asked"),
        (|s| [vec![1, 0, 0, 0], vec![9], s.to_le_bytes().to_vec()].concat(), "length"),
        (|_| vec![5, 0, 0, 0, 99, 1, 0, 0, 0], "kind 99"),
    ];
    for (hostile, why) in breaches {
        let info = ends(*hostile, &Ask::Exec(exec(&["sleep"]))).await;
        let message = info.message.unwrap();
        assert_eq!(info.reason, Some(EndReason::Agent), "{why}");
        assert!(message.contains(why), "{message} should say {why}");
    }
}

#[tokio::test]
async fn more_than_its_window_is_a_breach_when_nobody_gave_it_more() {
    for (frames, breach) in [(4, false), (5, true)] {
        let flood: Hostile = if breach { |s| flood(s, 5) } else { |s| flood(s, 4) };
        let live = live(With { hostile: Some(flood), life: Some(Duration::from_secs(1)), ..With::default() }).await;
        // Over the bare socket, so that nobody gives credit.
        let mut socket = crate::place::connect(&live.home.socket_of(&live.id)).await.unwrap();
        let read = Request::Read { path: "/a".to_owned(), offset: 0, length: None };
        socket.write_all(&encode(Kind::Open, 1, &serde_json::to_vec(&read).unwrap()).unwrap()).await.unwrap();
        let info = live.over().await;
        assert_eq!(info.reason, Some(if breach { EndReason::Agent } else { EndReason::Timeout }), "{frames}");
        assert_eq!(info.message.unwrap().contains("window"), breach);
    }
}

fn flood(stream: u32, frames: usize) -> Vec<u8> {
    let mut bytes = encode(Kind::Reply, stream, &serde_json::to_vec(&entry()).unwrap()).unwrap();
    (0..frames).for_each(|_| bytes.extend(data(stream, Lane::Out, &[0; 60_000]).unwrap()));
    bytes
}

#[tokio::test]
async fn what_keeps_to_the_protocol_ends_nothing() {
    let fine: &[Hostile] = &[
        |s| [reply(s), encode(Kind::End, s, &ok(Exited { code: Some(0), ..Exited::default() })).unwrap()].concat(),
        |s| encode(Kind::End, s, b"{\"error\":{\"code\":\"denied\",\"message\":\"no\"}}").unwrap(),
        |s| {
            let windows = (0..4).flat_map(|_| data(s, Lane::Out, &[0; 60_000]).unwrap()).collect();
            let end = encode(Kind::End, s, &ok(Exited { code: Some(0), ..Exited::default() })).unwrap();
            [reply(s), windows, encode(Kind::Eof, s, b"").unwrap(), end].concat()
        },
    ];
    for hostile in fine {
        let live = live(With { hostile: Some(*hostile), ..With::default() }).await;
        let client = live.client().await;
        let mut stream = client.open(&Ask::Exec(exec(&["sleep"]))).unwrap();
        while !matches!(stream.next().await, Some(Incoming::End(_))) {}
        assert_eq!(client.call::<Info>(&Ask::Info {}).await.unwrap().state, State::Running);
        assert_eq!(kill(&client).await.reason, Some(EndReason::Killed));
    }
}

#[tokio::test]
async fn an_answer_of_another_request_is_a_breach_too() {
    let stat = Request::Stat { path: "/a".to_owned(), follow: false };
    let info = ends(|s| encode(Kind::End, s, &ok(Started { pid: 1 })).unwrap(), &stat).await;
    assert_eq!(info.reason, Some(EndReason::Agent));
    let read = Request::Read { path: "/a".to_owned(), offset: 0, length: None };
    let late: Hostile = |s| {
        let entry = serde_json::to_vec(&entry()).unwrap();
        let end = encode(Kind::End, s, &ok(())).unwrap();
        [encode(Kind::Reply, s, &entry).unwrap(), end, data(s, Lane::Out, b"x").unwrap()].concat()
    };
    assert!(ends(late, &read).await.message.unwrap().contains("not open"));
}

#[tokio::test]
async fn an_agent_that_says_nothing_or_goes_away_ends_the_sandbox() {
    tokio::time::pause();
    let (folder, state) = folder();
    let begun = begin(&folder, &state, With { mute: true, ..With::default() }).await;
    let Err(crate::LiveError::Start { why }) = begun else { panic!("it began") };
    assert!(why.contains("within 10 s"), "{why}");
    assert_eq!(Home::new(&state).unwrap().list(true).unwrap(), [], "nothing is left of it");
}

#[tokio::test]
async fn events_that_nobody_reads_end_their_request_and_nothing_else() {
    tokio::join!(
        behind(|s| {
            let entries = serde_json::to_vec(&agent::words::Entries { entries: vec![entry(); 1000] }).unwrap();
            (0..200).flat_map(|_| encode(Kind::Event, s, &entries).unwrap()).collect()
        }),
        // Half a million that say nothing.
        behind(|s| encode(Kind::Event, s, b"{\"entries\":[]}").unwrap().repeat(500_000)),
    );
}

/// An agent that tells so much, and a client that reads none of it for a while.
async fn behind(many: Hostile) {
    let live = live(With { hostile: Some(many), ..With::default() }).await;
    // Over the bare socket, so that nobody reads.
    let mut socket = crate::place::connect(&live.home.socket_of(&live.id)).await.unwrap();
    let list = serde_json::to_vec(&Request::List { path: "/".to_owned(), depth: 1 }).unwrap();
    socket.write_all(&encode(Kind::Open, 1, &list).unwrap()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(6)).await;
    let mut frames = crate::wire::Frames::new(socket);
    let reading = async {
        loop {
            let frame = frames.next().await.unwrap().unwrap();
            if frame.kind == Kind::End {
                return frame;
            }
        }
    };
    let end = tokio::time::timeout(4 * LONG, reading).await.expect("the request goes on");
    assert!(String::from_utf8(end.payload).unwrap().contains("too_many"));
    let client = live.client().await;
    assert_eq!(client.call::<Info>(&Ask::Info {}).await.unwrap().state, State::Running);
    kill(&client).await;
}

#[tokio::test]
async fn a_client_that_breaks_the_protocol_is_cut_and_the_sandbox_goes_on() {
    let live = live(With::default()).await;
    let exec = |words: &[&str]| serde_json::to_vec(&Ask::Exec(super::exec(words))).unwrap();
    let open = encode(Kind::Open, 1, &exec(&["deaf"])).unwrap();
    let window = usize::try_from(WINDOW).unwrap();
    let too_much: Vec<u8> = (0..=2 * window / 60_000).flat_map(|_| data(1, Lane::In, &[0; 60_000]).unwrap()).collect();
    let breaches = [
        [open.clone(), open.clone()].concat(),
        [open.clone(), data(1, Lane::Out, b"x").unwrap()].concat(),
        [open.clone(), encode(Kind::End, 1, b"{}").unwrap()].concat(),
        [open.clone(), too_much].concat(),
        vec![0xff; 64],
    ];
    for breach in breaches {
        let mut socket = crate::place::connect(&live.home.socket_of(&live.id)).await.unwrap();
        socket.write_all(&breach).await.unwrap();
        let cut = async { while socket.read(&mut [0; 4096]).await.is_ok_and(|count| count > 0) {} };
        tokio::time::timeout(LONG, cut).await.expect("it is not cut");
    }
    let client = live.client().await;
    assert_eq!(client.call::<Entry>(&Request::Stat { path: "/a".to_owned(), follow: false }).await.unwrap().size, 3);
    let Err(crate::client::Error::Failed(failure)) = client.call::<Info>(&serde_json::json!([])).await else {
        panic!("a request that is none was taken")
    };
    assert_eq!(failure.code, Code::Invalid);
    kill(&client).await;
}

#[tokio::test]
async fn no_more_than_128_are_connected_at_once() {
    let live = live(With::default()).await;
    let mut clients = Vec::new();
    for _ in 0..128 {
        let client = live.client().await;
        client.call::<Info>(&Ask::Info {}).await.unwrap();
        clients.push(client);
    }
    let one_more = live.client().await;
    assert!(
        matches!(one_more.call::<Info>(&Ask::Info {}).await, Err(crate::client::Error::Failed(f)) if f.code == Code::Ended)
    );
    drop(clients.pop());
    let again = async { while live.client().await.call::<Info>(&Ask::Info {}).await.is_err() {} };
    tokio::time::timeout(LONG, again).await.expect("nobody is let in any more");
    kill(&clients[0]).await;
}
