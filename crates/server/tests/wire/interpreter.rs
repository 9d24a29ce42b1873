//! E2B's code interpreter, over a supervisor whose contexts follow a script: its kernels are tried in `live`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use agent::frame::{Frame, Kind, Lane, first, put, put_data};
use agent::words::Failure;
use live::client::Client;
use live::words::Info;
use serde_json::{Value, json};
use server::answer::Problem;
use server::backend::{BoxFuture, SandboxRequest, Sandboxes};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::stage::{Caller, HttpReply, Stage, info, stage_over};

const ID: &str = "abcdefghijklmnopqrst";
const NEW: &str = "0123456789abcdef0123456789abcdef";

/// One sandbox; how many executions were given up.
#[derive(Debug, Default)]
struct Scripted {
    cancelled: Arc<AtomicUsize>,
    private: bool,
    /// The key that it is of.
    owner: Arc<OnceLock<String>>,
}

impl Scripted {
    fn info(&self) -> Info {
        shown(self.private, &self.owner)
    }
}

fn shown(private: bool, owner: &OnceLock<String>) -> Info {
    let mut wanted = SandboxRequest { template: "code-interpreter-v1".to_owned(), ..SandboxRequest::default() };
    if private {
        wanted.labels.insert("fumehood.ports".to_owned(), "private".to_owned());
    }
    wanted.labels.insert("fumehood.key".to_owned(), owner.get().cloned().unwrap_or_default());
    info(ID, &wanted)
}

impl Sandboxes for Scripted {
    fn list(&self, _ended: bool) -> BoxFuture<'_, Result<Vec<Info>, Failure>> {
        let all = vec![self.info()];
        Box::pin(async move { Ok(all) })
    }

    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Info>, Failure>> {
        let found = (id == ID).then(|| self.info());
        Box::pin(async move { Ok(found) })
    }

    fn create(&self, _wanted: SandboxRequest) -> BoxFuture<'_, Result<Info, Vec<Problem>>> {
        panic!("nothing is created here")
    }

    fn connect<'a>(&'a self, _id: &'a str) -> BoxFuture<'a, Result<Client, Failure>> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        tokio::spawn(supervise(theirs, Arc::clone(&self.cancelled), self.info()));
        let client = Client::over(ours);
        Box::pin(async move { Ok(client) })
    }
}

async fn supervise(mut socket: UnixStream, cancelled: Arc<AtomicUsize>, shown: Info) {
    let mut buffer = Vec::new();
    loop {
        while let Some((frame, length)) = first(&buffer).unwrap() {
            let mut said = Vec::new();
            match frame.kind {
                Kind::Open => {
                    let ask: Value = serde_json::from_slice(frame.payload).unwrap();
                    match ask["op"].as_str() {
                        Some("timeout") => end(&mut said, frame.stream, &json!({ "ok": shown })),
                        _ => said = answer(frame.stream, &ask),
                    }
                }
                Kind::Cancel => drop(cancelled.fetch_add(1, Ordering::Relaxed)),
                Kind::Reply | Kind::Event | Kind::Data | Kind::Eof | Kind::Control | Kind::Credit | Kind::End => {}
            }
            buffer.drain(..length);
            if said == b"gone" {
                return;
            }
            socket.write_all(&said).await.unwrap();
        }
        if socket.read_buf(&mut buffer).await.unwrap() == 0 {
            return;
        }
    }
}

/// What the supervisor says to a request; of executions, what their code names.
fn answer(stream: u32, ask: &Value) -> Vec<u8> {
    let mut said = Vec::new();
    let mut line = |text: &str| assert!(put_data(&mut said, stream, Lane::Out, text.as_bytes()));
    let context = |id: &str, language: &Value, cwd: &Value| json!({ "id": id, "language": language, "cwd": cwd, "default": false, "busy": false });
    let fails = |code: &str, message: &str| json!({ "error": { "code": code, "message": message } });
    let executed = json!({ "ok": { "context": NEW } });
    let ended = match ask["op"].as_str().unwrap() {
        "contexts" if ask["defaults"] != json!(["python", "javascript"]) => fails("failed", "without the usual ones"),
        "contexts" => json!({ "ok": { "contexts": [context(NEW, &json!("python"), &json!("/home/user"))] } }),
        "context_create" if ask["language"] == "java" => fails("unsupported", "the sandbox cannot execute java"),
        "context_create" => {
            let language = ask["language"].as_str().unwrap_or("python");
            json!({ "ok": context(NEW, &json!(language), &ask["cwd"]) })
        }
        "context_restart" | "context_remove" if ask["id"] != NEW => fails("not_found", "Context x not found"),
        "context_restart" => json!({ "ok": context(NEW, &json!("python"), &json!("/")) }),
        "context_remove" => json!({ "ok": null }),
        "execute" => match ask["code"].as_str().unwrap() {
            "echo" => {
                line("{\"type\":\"number_of_executions\",\"execution_count\":1}\n");
                line(&format!("{{\"type\":\"result\",\"asked\":{ask}}}\n"));
                line("{\"type\":\"end_of_");
                line("execution\"}\n");
                executed
            }
            "hang" => {
                line("{\"type\":\"number_of_executions\",\"execution_count\":1}\n");
                return said;
            }
            "wait" => return said,
            "both" => fails("invalid", "Only one of context_id or language can be provided"),
            "unknown" => fails("not_found", "Context x not found"),
            "aborted" => {
                line("{\"type\":\"number_of_executions\",\"execution_count\":1}\n");
                fails("cancelled", "the context was removed")
            }
            _ => return b"gone".to_vec(),
        },
        other => panic!("{other}"),
    };
    end(&mut said, stream, &ended);
    said
}

fn end(said: &mut Vec<u8>, stream: u32, ended: &Value) {
    let words = serde_json::to_vec(ended).unwrap();
    assert!(put(said, Frame { kind: Kind::End, stream, payload: &words }));
}

async fn scripted(private: bool) -> (Stage, Caller, Value, Arc<AtomicUsize>) {
    let sandboxes = Scripted { private, ..Scripted::default() };
    let (cancelled, owner) = (Arc::clone(&sandboxes.cancelled), Arc::clone(&sandboxes.owner));
    let stage = stage_over(|_| Arc::new(sandboxes)).await;
    let caller = Caller::new(&stage, "one");
    owner.set(stage.keys.list().unwrap()[0].mark()).unwrap();
    let made = caller.json("POST", &format!("/sandboxes/{ID}/connect"), json!({ "timeout": 60 })).await;
    let shown = if made.status < 300 { made.json() } else { panic!("{}", String::from_utf8_lossy(&made.body)) };
    let inside = caller.inside(&shown).with("e2b-sandbox-port", "49999");
    (stage, inside, shown, cancelled)
}

fn code(code: &str) -> Value {
    json!({ "code": code, "context_id": null, "language": null, "env_vars": null })
}

fn lines(answer: &HttpReply) -> Vec<Value> {
    let text = std::str::from_utf8(&answer.body).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn until(cancelled: &AtomicUsize, wanted: usize) {
    let begun = Instant::now();
    while cancelled.load(Ordering::Relaxed) < wanted {
        assert!(begun.elapsed() < Duration::from_secs(10), "nothing was interrupted");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_an_execution_come_as_they_were_said() {
    let (_stage, inside, _, _) = scripted(false).await;
    let asked = json!({ "code": "echo", "context_id": null, "language": "python", "env_vars": { "A": "1" } });
    let answer = inside.json("POST", "/execute", asked).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/x-ndjson"));
    let lines = lines(&answer);
    assert_eq!(lines[0], json!({ "type": "number_of_executions", "execution_count": 1 }));
    let wanted =
        json!({ "op": "execute", "code": "echo", "language": "python", "cwd": "/home/user", "env": { "A": "1" } });
    assert_eq!(lines[1]["asked"], wanted);
    assert_eq!(lines[2..], [json!({ "type": "end_of_execution" })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_before_the_first_line_is_a_status_and_text() {
    let (_stage, inside, _, _) = scripted(false).await;
    for (asked, status, words) in [
        (code("both"), 400, "Only one of context_id or language can be provided"),
        (code("unknown"), 404, "Context x not found"),
        (json!({}), 400, "`code` is missing"),
        (json!({ "code": 7 }), 400, "`code` is no text"),
        (json!({ "code": "echo", "env_vars": { "A": 1 } }), 400, "`env_vars.A` is no text"),
        (code(&"x".repeat(300 * 1024)), 413, "the code is longer than 256 KiB"),
    ] {
        let answer = inside.json("POST", "/execute", asked).await;
        let text = String::from_utf8(answer.body).unwrap();
        assert_eq!(answer.status, status, "{text}");
        assert!(text.starts_with(words), "{text}");
    }
    let gone = inside.json("POST", "/execute", code("leave")).await;
    assert_eq!((gone.status, &gone.json()["message"]), (502, &json!("The sandbox was not found")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_after_the_first_line_is_an_error_and_an_end() {
    let (_stage, inside, _, _) = scripted(false).await;
    let lines = lines(&inside.json("POST", "/execute", code("aborted")).await);
    assert_eq!(
        (&lines[1]["name"], &lines[1]["value"]),
        (&json!("ExecutionAborted"), &json!("the context was removed"))
    );
    assert_eq!(lines[2], json!({ "type": "end_of_execution" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_interrupts_before_and_after_the_first_line() {
    let (_stage, inside, _, cancelled) = scripted(false).await;
    let mut response = inside.request("POST", "/execute", code("hang").to_string()).send().await.unwrap();
    assert!(response.chunk().await.unwrap().unwrap().starts_with(b"{\"type\":\"number_of_executions\""));
    assert_eq!(cancelled.load(Ordering::Relaxed), 0, "it goes on while somebody listens");
    drop(response);
    until(&cancelled, 1).await;
    let waiting = inside.request("POST", "/execute", code("wait").to_string()).timeout(Duration::from_millis(500));
    assert!(waiting.send().await.unwrap_err().is_timeout());
    until(&cancelled, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_kept_alive() {
    let (_stage, inside, _, _) = scripted(false).await;
    let begun = Instant::now();
    let mut response = inside.request("POST", "/execute", code("wait").to_string()).send().await.unwrap();
    for _ in 0..2 {
        assert_eq!(response.chunk().await.unwrap().unwrap().as_ref(), b"{\"type\":\"keepalive\"}\n");
    }
    assert!((9..20).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn contexts_are_made_listed_restarted_and_removed() {
    let (_stage, inside, _, _) = scripted(false).await;
    // Clients send no token with these.
    let bare = Caller {
        headers: inside.headers.iter().filter(|(name, _)| name != "x-access-token").cloned().collect(),
        ..inside
    };
    let made = bare.json("POST", "/contexts", json!({ "language": "python", "cwd": "data" })).await;
    assert_eq!((made.status, made.json()), (200, json!({ "id": NEW, "language": "python", "cwd": "/home/user/data" })));
    let all = bare.json("GET", "/contexts", Value::Null).await.json();
    assert_eq!(all, json!([{ "id": NEW, "language": "python", "cwd": "/home/user" }]));
    let java = bare.json("POST", "/contexts", json!({ "language": "java" })).await;
    assert_eq!((java.status, java.body.as_slice()), (501, &b"the sandbox cannot execute java"[..]));
    for (id, status) in [(NEW, 200), ("other", 404)] {
        assert_eq!(bare.json("POST", &format!("/contexts/{id}/restart"), Value::Null).await.status, status);
        assert_eq!(bare.json("DELETE", &format!("/contexts/{id}"), Value::Null).await.status, status);
    }
    let health = bare.json("GET", "/health", Value::Null).await;
    assert_eq!((health.status, health.body.as_slice()), (200, &b"OK"[..]));
    assert_eq!(bare.json("GET", "/elsewhere", Value::Null).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn code_wants_the_token_of_its_sandbox_and_private_ports_theirs() {
    let (_stage, inside, _, _) = scripted(false).await;
    for wrong in ["", "wrong"] {
        assert_eq!(inside.with("x-access-token", wrong).json("POST", "/execute", code("echo")).await.status, 401);
    }
    let (_stage, inside, made, _) = scripted(true).await;
    for (path, body) in [("/execute", code("echo")), ("/contexts", json!({}))] {
        assert_eq!(inside.json("POST", path, body.clone()).await.status, 403, "{path}");
        let token = made["trafficAccessToken"].as_str().unwrap();
        let may = inside.with("e2b-traffic-access-token", token);
        assert_eq!(may.json("POST", path, body).await.status, 200, "{path}");
    }
}
