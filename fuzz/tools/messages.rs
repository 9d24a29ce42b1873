//! MCP: a client that says anything, and a server that answers anything, around a gateway that is real.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gate::{Caller, json};
use gateway::Broker;
use gateway::approvals::Approvals;
use gateway::limits::Ledger;
use gateway::mcp::servers::{Server, Transport};
use gateway::mcp::upstream::ServerLauncher;
use gateway::mcp::upstream::process::Launched;
use gateway::mcp::wire::{self, Id, Message};
use gateway::mcp::{Gateway, GatewayPolicy, pinning, stdio};
use gateway::record::{Event, Record};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio_util::sync::CancellationToken;

pub(crate) const TOKENS: &[&str] = &[
    "{\"jsonrpc\":\"2.0\",",
    "\"id\":1,",
    "\"id\":\"1\",",
    "\"id\":null,",
    "\"id\":1.5,",
    "\"method\":\"tools/list\"",
    "\"method\":\"tools/call\"",
    "\"method\":\"ping\"",
    "\"method\":\"initialize\"",
    "\"method\":\"notifications/cancelled\"",
    "\"method\":\"notifications/progress\"",
    "\"method\":\"sampling/createMessage\"",
    "\"method\":\"roots/list\"",
    "\"method\":\"resources/read\"",
    "\"method\":\"prompts/get\"",
    "\"method\":\"completion/complete\"",
    "\"method\":\"logging/setLevel\"",
    "\"method\":\"server/discover\"",
    "\"method\":\"subscriptions/listen\"",
    "\"params\":{",
    "\"params\":[",
    "\"_meta\":{\"progressToken\":1}",
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"}",
    "\"requestId\":1",
    "\"cursor\":\"x\"",
    "\"name\":\"a__echo\"",
    "\"arguments\":{",
    "\"requestState\":\"x\"",
    "\"result\":{",
    "\"error\":{\"code\":-32000}",
    "\"content\":[{\"type\":\"text\",\"text\":\"\\u001b[2J\"}]",
    "\"isError\":true",
    "\"structuredContent\":{",
    "\"nextCursor\":\"n\"",
    "\"tools\":[",
    "\"inputSchema\":{\"type\":\"object\"}",
    "\"$ref\":\"#\"",
    "\"$ref\":\"http://x/\"",
    "\"resultType\":\"input_required\"",
    "\u{202e}",
    "\n",
    "}\n{",
    "]",
    "}}",
    "[",
];

/// What divides the client's lines from the server's.
const BORDER: &str = "\n====\n";
/// Longer than any conversation takes, on a machine that does other things as well.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer that fits every question of the gateway.
fn answer(id: u64) -> String {
    let tool = json!({"name": "echo", "description": "says it again", "inputSchema": {"type": "object", "properties": {"x": {}}}});
    let result = json!({
        "protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": true}}, "serverInfo": {"name": "s", "version": "1"},
        "tools": [tool], "content": [{"type": "text", "text": "hi"}],
    });
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let info = json!({"name": "c", "version": "1"});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}});
    let done = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
    let call = json!({"jsonrpc": "2.0", "id": "three", "method": "tools/call", "params": {"name": "a__echo", "arguments": {"x": 1}, "_meta": {"progressToken": "p"}}});
    let ping = json!({"jsonrpc": "2.0", "id": 4, "method": "ping"});
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": info, "io.modelcontextprotocol/clientCapabilities": {}});
    let stateless = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {"_meta": meta}});
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "three"}});
    let met = format!("{hello}\n{done}\n");
    // The gateway asks for the newer revision first: the answer to that is skipped.
    let server = (1..8).map(answer).collect::<Vec<_>>().join("\n");
    let asks = json!({"jsonrpc": "2.0", "id": 9, "method": "sampling/createMessage", "params": {"messages": []}});
    let client = |method: &str, params: Json| {
        format!("{met}{}", json!({"jsonrpc": "2.0", "id": 6, "method": method, "params": params}))
    };
    let resource = json!({"uri": "a://x", "cursor": "c"});
    // A server takes its time to start and to end: few of the seeds have one.
    [
        format!("{met}{list}\n{call}\n{ping}"),
        format!("{stateless}\n{ping}"),
        format!("{ping}\n{ping}\n{call}\n{cancel}"),
        client("resources/list", json!({})),
        client("resources/read", resource.clone()),
        client("resources/templates/list", resource),
        client("prompts/get", json!({"name": "x", "arguments": {"a": "b"}})),
        client(
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": "b"}}),
        ),
        client("logging/setLevel", json!({"level": "debug"})),
        client("tools/list", json!({"cursor": "x", "_meta": {"progressToken": 7}})),
        format!("{met}{list}\n{call}{BORDER}{server}"),
        format!("{met}{list}{BORDER}{asks}\n{server}"),
    ]
    .map(String::into_bytes)
    .to_vec()
}

pub(crate) struct Stage {
    folder: tempfile::TempDir,
    policy: policy::Loaded,
    /// It outlives the inputs, and so does its folder.
    broker: Arc<Broker>,
    _state: tempfile::TempDir,
}

/// A server that answers each line with the next of its file, and ends when it has none or nobody asks.
struct Replay(PathBuf);

impl ServerLauncher for Replay {
    fn launch(&self, _: &Server) -> Result<Launched, String> {
        if !self.0.exists() {
            return Err("there is no such server today".to_owned());
        }
        let script =
            "exec 3<\"$1\"; while read -t 0.1 -r _; do IFS= read -r line <&3 || exit; printf '%s\\n' \"$line\"; done";
        let mut program = tokio::process::Command::new("/bin/bash");
        program.args(["--noprofile", "--norc", "-c", script, "bash"]).arg(&self.0).env_clear().current_dir("/");
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        Launched::of(program.spawn().map_err(|error| error.to_string().to_lowercase())?)
    }
}

struct Forgets;

impl Record for Forgets {
    fn append(&self, _: &Event) -> Result<(), String> {
        Ok(())
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        let policy = super::loaded(
            "version = 1\n[[tools.tool]]\nname = \"a.echo\"\ndecision = \"allow\"\neffect = \"write\"\nresult = { max = \"4K\" }\n",
        );
        let tools = policy.policy.tools.as_ref().unwrap();
        let (gate, _) = gate::Gate::new(tools, &policy.documents).unwrap();
        let state = tempfile::tempdir().unwrap();
        // The store takes no folder that others can enter.
        std::fs::set_permissions(state.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let approvals = Approvals::open(state.path()).unwrap();
        let ledger = Ledger::open(&state.path().join("limits")).unwrap();
        let broker = Arc::new(Broker::new(gate, ledger, approvals, Arc::new(Forgets)));
        Self { folder: tempfile::tempdir().unwrap(), policy, broker, _state: state }
    }

    fn gateway(&self, answers: Option<&str>) -> Arc<Gateway> {
        let file = self.folder.path().join("answers");
        match answers {
            Some(text) => std::fs::write(&file, text).unwrap(),
            None => drop(std::fs::remove_file(&file)),
        }
        let tools = self.policy.policy.tools.as_ref().unwrap();
        let allow = GatewayPolicy::of(tools, &self.policy.documents, &Nothing).unwrap().allow;
        let transport = Transport::Command { command: "replay".to_owned(), args: Vec::new() };
        let (env, policy, from) = (BTreeMap::new(), "strict".into(), "test".into());
        let server = Server { name: "a".into(), transport, env, policy, from, fetched: None };
        // Pins of one input are no matter of the next.
        drop(std::fs::remove_dir_all(self.folder.path().join("pins")));
        let pins = tempfile::tempdir_in(self.folder.path()).unwrap().keep();
        Arc::new(Gateway {
            servers: vec![server],
            allow,
            broker: Arc::clone(&self.broker),
            pinning: pinning(&pins, "test".to_owned(), false),
            launch: Arc::new(Replay(file)),
            eager: false,
        })
    }

    pub(crate) fn read(&self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let (client, server) = match text.split_once(BORDER) {
            Some((client, server)) => (client, Some(server)),
            None => (&*text, None),
        };
        client.lines().chain(server.into_iter().flat_map(str::lines)).for_each(message);
        let gateway = self.gateway(server);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            converse(gateway, client).await;
            // Nothing of a session runs on when it is over.
            let begun = Instant::now();
            while tokio::runtime::Handle::current().metrics().num_alive_tasks() > 0 {
                assert!(begun.elapsed() < PATIENCE, "tasks of the session are left");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        for entry in std::fs::read_dir(self.folder.path()).unwrap().flatten() {
            if entry.path().is_dir() {
                std::fs::remove_dir_all(entry.path()).unwrap();
            }
        }
    }
}

struct Nothing;

impl gateway::mcp::servers::Surroundings for Nothing {
    fn read(&self, _: &std::path::Path) -> Result<String, String> {
        Err("no such file".to_owned())
    }
    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

/// What is read as a message is written as the same message.
fn message(line: &str) {
    let Ok(value) = json::read(line) else { return };
    let Ok(message) = Message::read(value) else { return };
    let written = match message.clone() {
        Message::Request { id, method, params } => wire::request(&id, &method, params),
        Message::Notification { method, params } => wire::notification(&method, params),
        Message::Response { id, outcome } => wire::response(&id, outcome),
    };
    let again = Message::read(json::read(&written.to_string()).unwrap()).unwrap();
    assert_eq!(again, message, "{line}");
}

/// Requests that must be answered, and whether that may be by an error only.
fn asked(client: &str) -> HashMap<Id, usize> {
    let mut asked: HashMap<Id, usize> = HashMap::new();
    for line in client.lines() {
        let Some(Ok(Message::Request { id, .. })) = json::read(line.trim_end_matches('\r')).ok().map(Message::read)
        else {
            continue;
        };
        *asked.entry(id).or_default() += 1;
    }
    asked
}

async fn converse(gateway: Arc<Gateway>, client: &str) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let (read, write) = tokio::io::split(theirs);
    let stop = CancellationToken::new();
    let ends = stop.clone();
    let caller = Caller { agent: "test".into(), session: "s".into(), key: None };
    let serving = tokio::spawn(async move { stdio::serve(&gateway, caller, read, write, ends).await });
    let (read, mut write) = tokio::io::split(ours);
    write.write_all(client.as_bytes()).await.unwrap();
    write.write_all(b"\n").await.unwrap();
    let asked = asked(client);
    // What waits for news, and what was cancelled, may stay without an answer.
    let may_stay =
        client.contains("subscriptions/") || client.contains("notifications/cancelled") || client.contains("\\u");
    let mut answered: HashMap<Id, usize> = HashMap::new();
    let mut lines = BufReader::new(read).lines();
    let begun = Instant::now();
    while may_stay || asked.iter().any(|(id, _)| !answered.contains_key(id)) {
        let left = if may_stay { Duration::from_millis(100) } else { PATIENCE.saturating_sub(begun.elapsed()) };
        let Ok(line) = tokio::time::timeout(left, lines.next_line()).await else { break };
        let Some(line) = line.unwrap() else { break };
        let value = json::read(&line).unwrap_or_else(|flaw| panic!("we wrote {line:?}: {flaw}"));
        if value.get("id").is_some_and(Json::is_null) {
            assert!(value.get("error").is_some(), "{line}");
            continue;
        }
        match Message::read(value).unwrap_or_else(|malformed| panic!("we wrote {line:?}: {malformed:?}")) {
            Message::Response { id, outcome } => {
                if let Ok(result) = outcome {
                    fits(&result);
                }
                *answered.entry(id).or_default() += 1;
            }
            Message::Request { method, .. } => panic!("nobody allowed it, and we ask the client: {method}"),
            Message::Notification { .. } => {}
        }
    }
    // What cannot be read is complained about under its id, so lines count that have it and are no request.
    for (id, times) in answered.iter().filter(|_| !client.contains("\\u")) {
        let written = id.to_json().to_string();
        let most = client.lines().filter(|line| line.contains(&written)).count();
        assert!(*times <= most, "{id:?} was asked {most} times and answered {times} times");
    }
    if !may_stay {
        let silent: Vec<&Id> = asked.keys().filter(|id| !answered.contains_key(*id)).collect();
        assert!(silent.is_empty(), "no answer to {silent:?} in {:?}", begun.elapsed());
    }
    stop.cancel();
    drop((write, lines));
    tokio::time::timeout(PATIENCE, serving).await.expect("the session ends").unwrap();
}

/// What reaches a client: tools of the policy, and text that does nothing to a terminal.
fn fits(result: &Json) {
    for tool in result.get("tools").and_then(Json::as_array).into_iter().flatten() {
        assert_eq!(tool["name"], "a__echo", "{tool}");
        assert!(tool["inputSchema"].is_object(), "{tool}");
    }
    for part in result.get("content").and_then(Json::as_array).into_iter().flatten() {
        let Some(text) = part.get("text").and_then(Json::as_str) else { continue };
        assert!(text.len() <= 8 << 10, "{} bytes", text.len());
        let acts = |c: char| c.is_control() && !matches!(c, '\n' | '\t') || gateway::mcp::text::hides(c);
        assert!(!text.chars().any(acts), "{text:?}");
    }
}
