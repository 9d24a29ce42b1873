//! `/v1/sandboxes/ID/terminal`.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderName;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::page::visitor;
use crate::stage::{Caller, Stage, stage};

type Socket = WebSocketStream<TcpStream>;

async fn connect(stage: &Stage, path: &str, headers: &[(&str, &str)]) -> Result<Socket, u16> {
    let mut request = format!("{}{path}", stage.base.replace("http://", "ws://")).into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    let tcp = TcpStream::connect(stage.base.trim_start_matches("http://")).await.unwrap();
    match tokio_tungstenite::client_async(request, tcp).await {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(response)) => Err(response.status().as_u16()),
        Err(other) => panic!("{other}"),
    }
}

/// What comes until the connection ends, or `enough`: what was shown, and what was told.
async fn read(socket: &mut Socket, enough: impl Fn(&str) -> bool) -> (String, Vec<Value>) {
    let (mut shown, mut told) = (String::new(), Vec::new());
    while let Ok(Some(Ok(message))) = tokio::time::timeout(Duration::from_secs(20), socket.next()).await {
        match message {
            Message::Binary(bytes) => shown.push_str(&String::from_utf8_lossy(&bytes)),
            Message::Text(text) => told.push(serde_json::from_str(&text).unwrap()),
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => {}
        }
        if enough(&shown) {
            break;
        }
    }
    (shown, told)
}

async fn sandbox(caller: &Caller) -> String {
    let made = caller.json("POST", "/v1/sandboxes", json!({})).await.json();
    format!("/v1/sandboxes/{}/terminal", made["id"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_typed_goes_in_what_is_shown_comes_out_and_the_end_is_told() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let path = sandbox(&caller).await;
    let key = caller.headers[0].1.clone();
    let asked = format!("{path}?cmd=sh&cmd=-c&cmd=echo+ready;read+line;stty+size;exit+7&rows=30&cols=100");
    let mut socket = connect(&stage, &asked, &[("x-api-key", &key)]).await.unwrap();
    let (shown, told) = read(&mut socket, |shown| shown.contains("ready")).await;
    // It began as a GET, and is recorded as what started a program.
    let events = caller.send("GET", "/v1/audit", "").await.json();
    let mut bodies = events["events"].as_array().unwrap().iter().map(|event| &event["body"]);
    let route = "/v1/sandboxes/{id}/terminal";
    assert!(bodies.any(|body| body["route"] == route && body["status"] == 101), "{events}");
    assert!(shown.contains("ready") && told[0]["started"]["pid"].as_u64().unwrap() > 0, "{told:?}");
    socket.send(Message::Text(r#"{"resize":{"rows":40,"cols":120}}"#.into())).await.unwrap();
    socket.send(Message::Binary(b"x\n".as_slice().into())).await.unwrap();
    let (shown, told) = read(&mut socket, |_| false).await;
    assert!(shown.contains("40 120"), "{shown}");
    assert_eq!(told.last().unwrap()["ended"]["code"], 7, "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_reads_nothing_is_shown_all_the_same() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let path = sandbox(&caller).await;
    let key = caller.headers[0].1.clone();
    let asked = format!(
        "{path}?cmd=sh&cmd=-c&cmd=stty+raw+-echo;echo+ready;sleep+1;head+-c+3000000+/dev/zero+|+tr+'%5C0'+y;echo+last"
    );
    let mut socket = connect(&stage, &asked, &[("x-api-key", &key)]).await.unwrap();
    read(&mut socket, |shown| shown.contains("ready")).await;
    let (mut to, mut from) = socket.split();
    // More than all that waits on the way: the sender stands still, and is let go when the program ends.
    let typing = tokio::spawn(async move {
        for _ in 0..400 {
            if to.send(Message::Binary(vec![b'z'; 60_000].into())).await.is_err() {
                return;
            }
        }
    });
    let mut count = 0;
    while let Some(Ok(message)) = tokio::time::timeout(Duration::from_secs(60), from.next()).await.unwrap() {
        if let Message::Binary(bytes) = message {
            count += bytes.iter().filter(|byte| **byte == b'y').count();
        }
    }
    assert_eq!(count, 3_000_000);
    typing.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_opened_by_a_key_or_by_our_own_page() {
    let stage = stage().await;
    let visitor = visitor(&stage, "one").await;
    let path = sandbox(&visitor.page).await;
    let asked = format!("{path}?cmd=cat");
    let (cookie, half) = (visitor.cookie.as_str(), format!("fumehood.terminal, fumehood.page.{}", visitor.half));
    let protocols = ("sec-websocket-protocol", half.as_str());
    let own = [("cookie", cookie), ("origin", stage.base.as_str()), protocols];
    let mut socket = connect(&stage, &asked, &own).await.unwrap();
    let (_, told) = read(&mut socket, |_| true).await;
    assert!(told[0]["started"].is_object());
    for (headers, status) in [
        (vec![("cookie", cookie), ("origin", "http://evil.example"), protocols], 403),
        (vec![("cookie", cookie), ("origin", "http://127.0.0.1:1"), protocols], 403),
        (vec![("cookie", cookie), protocols], 403),
        (
            vec![("cookie", cookie), ("origin", stage.base.as_str()), ("sec-websocket-protocol", "fumehood.terminal")],
            401,
        ),
        (vec![("origin", stage.base.as_str()), protocols], 401),
        (vec![], 401),
    ] {
        assert_eq!(connect(&stage, &asked, &headers).await.unwrap_err(), status, "{headers:?}");
    }
    // With the session the terminal ends.
    visitor.page.send("DELETE", "/page/session", "").await;
    let (_, told) = read(&mut socket, |_| false).await;
    assert!(told.is_empty() && connect(&stage, &asked, &own).await.is_err(), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_for_and_makes_no_sense_is_refused() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let path = sandbox(&caller).await;
    let key = caller.headers[0].1.clone();
    for bad in ["rows=0", "cols=70000", "rows=x", "user=root"] {
        assert_eq!(connect(&stage, &format!("{path}?{bad}"), &[("x-api-key", &key)]).await.unwrap_err(), 400, "{bad}");
    }
    assert_eq!(caller.send("GET", &path, "").await.status, 400, "no WebSocket");
    let other = Caller::new(&stage, "two").headers[0].1.clone();
    assert_eq!(connect(&stage, &path, &[("x-api-key", &other)]).await.unwrap_err(), 404);
    let mut socket = connect(&stage, &format!("{path}?cmd=cat"), &[("x-api-key", &key)]).await.unwrap();
    socket.send(Message::Text("{}".into())).await.unwrap();
    let (_, told) = read(&mut socket, |_| false).await;
    assert_eq!(told.last().unwrap()["failed"]["id"], "serve/invalid");
}
