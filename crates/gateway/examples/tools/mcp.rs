//! What the gateway adds to a call over MCP: the same server directly and through it, turn by turn in one run.
//!
//! Three processes, as in life: client, gateway, server, each on pipes. The gateway has the whole broker behind it (schema, a
//! condition, a rate, a record that is written). The server is as quick as one can be, so that the hop is what shows. No
//! sandbox is round it: what that costs a start is measured elsewhere, and a call does not pass through it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gate::Gate;
use gateway::Broker;
use gateway::approvals::Approvals;
use gateway::limits::Ledger;
use gateway::mcp::servers::{Server, Transport};
use gateway::mcp::upstream::{Launched, ServerLauncher};
use gateway::mcp::{Gateway, GatewayPolicy, pinning};
use gateway::record::{Event, Record};
use serde_json::{Value as Json, json};

use crate::{loaded, row, us};

const POLICY: &str = r#"
version = 1
[[tools.tool]]
name = "a.echo"
decision = "allow"
effect = "write"
schema = { type = "object", required = ["text"], properties = { text = { type = "string", maxLength = 400 } } }
rules = [{ when = "args.text.contains('secret')", message = "not that" }]
rate = { calls = 100000000, per = "60s", by = "session" }
"#;
/// Calls of each kind, one after the other.
const ALONE: usize = 4000;
/// Calls of each kind for each number of callers.
const TOGETHER: usize = 10_000;

/// The server: answers each line at once.
pub(crate) fn server() {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let message: Json = serde_json::from_str(&line.unwrap()).unwrap();
        let Some(id) = message.get("id") else { continue };
        let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        let result = match message["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "echo", "version": "1"},
            }),
            Some("tools/list") => {
                json!({"tools": [{"name": "echo", "description": "says it again", "inputSchema": schema}]})
            }
            Some("tools/call") => {
                json!({"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]})
            }
            _ => {
                let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}});
                writeln!(out, "{error}").unwrap();
                continue;
            }
        };
        writeln!(out, "{}", json!({"jsonrpc": "2.0", "id": id, "result": result})).unwrap();
    }
}

/// A line for each decision and each end, as an audit log has, without its chain of hashes.
struct Lines(Mutex<std::fs::File>);

impl Record for Lines {
    fn append(&self, event: &Event) -> Result<(), String> {
        let line = json!({"kind": event.kind, "body": event.body}).to_string() + "\n";
        self.0.lock().unwrap().write_all(line.as_bytes()).map_err(|error| error.to_string())
    }
}

struct Itself;

impl ServerLauncher for Itself {
    fn launch(&self, _: &Server) -> Result<Launched, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut program = tokio::process::Command::new(program);
        program.arg("server").env_clear().current_dir("/").kill_on_drop(true).process_group(0);
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Launched::of(program.spawn().map_err(|error| error.to_string())?)
    }
}

struct Nothing;

impl gateway::mcp::servers::Surroundings for Nothing {
    fn read(&self, _: &Path) -> Result<String, String> {
        Err("no such file".to_owned())
    }
    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

/// The gateway, on the standard streams of this process.
pub(crate) fn gateway(folder: &Path) {
    let policy = loaded(POLICY);
    let tools = policy.policy.tools.as_ref().unwrap();
    let (gate, _) = Gate::new(tools, &policy.documents).unwrap();
    let record = Lines(Mutex::new(std::fs::File::create(folder.join("record")).unwrap()));
    let approvals = Approvals::open(folder).unwrap();
    let ledger = Ledger::open(&folder.join("limits")).unwrap();
    let broker = Broker::new(gate, ledger, approvals, Arc::new(record));
    let transport = Transport::Command { command: "itself".to_owned(), args: Vec::new() };
    let (name, its, from) = ("a".into(), "strict".into(), "bench".into());
    let server = Server { name, transport, env: BTreeMap::new(), policy: its, from, fetched: None };
    let gateway = Gateway {
        servers: vec![server],
        allow: GatewayPolicy::of(tools, &policy.documents, &Nothing).unwrap().allow,
        broker: Arc::new(broker),
        pinning: pinning(folder, "bench".to_owned(), false),
        launch: Arc::new(Itself),
        eager: false,
    };
    gateway::mcp::run::over_stdio(gateway, "bench").unwrap();
}

struct Client {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    tool: &'static str,
    next: u64,
    line: String,
}

impl Client {
    #[expect(clippy::disallowed_methods, reason = "an example starts itself, with nothing in its environment")]
    fn start(role: &str, folder: &Path, tool: &'static str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(role).arg(folder).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = Self { child, to, from, tool, next: 0, line: String::new() };
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}});
        client.send("initialize", &hello);
        client.answer();
        client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client.send("tools/list", &json!({}));
        let listed = client.answer();
        assert_eq!(listed["result"]["tools"][0]["name"], tool, "{listed}");
        client
    }

    fn say(&mut self, message: &Json) {
        let mut line = message.to_string();
        line.push('\n');
        self.to.as_ref().unwrap().write_all(line.as_bytes()).unwrap();
    }

    fn send(&mut self, method: &str, params: &Json) {
        self.next += 1;
        self.say(&json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}));
    }

    fn answer(&mut self) -> Json {
        loop {
            self.line.clear();
            assert!(self.from.read_line(&mut self.line).unwrap() > 0, "the other side ended");
            let message: Json = serde_json::from_str(&self.line).unwrap();
            if message.get("id").is_some() {
                return message;
            }
        }
    }

    fn call(&mut self) {
        self.send("tools/call", &json!({"name": self.tool, "arguments": {"text": "hello there"}}));
    }

    fn heard(&mut self) {
        let answer = self.answer();
        assert_eq!(answer["result"]["content"][0]["text"], "hello there", "{answer}");
    }

    /// Calls in a second, with so many on the way at any time.
    fn rate(&mut self, callers: usize) -> f64 {
        let begun = Instant::now();
        (0..callers).for_each(|_| self.call());
        for number in 0..TOGETHER {
            self.heard();
            if number + callers < TOGETHER {
                self.call();
            }
        }
        f64::from(u32::try_from(TOGETHER).unwrap()) / begun.elapsed().as_secs_f64()
    }

    fn end(mut self) {
        drop(self.to.take());
        self.child.wait().unwrap();
    }
}

/// Prints what it finds, as rows.
pub(crate) fn measure(folder: &Path, out: &mut Vec<String>) {
    let state = |name: &str| -> PathBuf {
        let folder = folder.join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        folder
    };
    let mut direct = Client::start("server", folder, "echo");
    let mut through = Client::start("gateway", &state("gateway"), "a__echo");
    let mut times: [Vec<Duration>; 2] = [Vec::with_capacity(ALONE), Vec::with_capacity(ALONE)];
    for _ in 0..ALONE {
        for (client, times) in [&mut direct, &mut through].into_iter().zip(&mut times) {
            let begun = Instant::now();
            client.call();
            client.heard();
            times.push(begun.elapsed());
        }
    }
    let mut middle = Vec::new();
    for (what, times) in ["MCP call, directly", "MCP call, through the gateway"].iter().zip(&mut times) {
        times.sort_unstable();
        out.push(row(what, times, ""));
        middle.push(times.get(times.len() / 2).copied().unwrap());
    }
    let more = middle[1].saturating_sub(middle[0]);
    out.push(format!("| **MCP call: what the gateway adds, at p50** | {} | | | 1.0 ms |", us(more)));
    for callers in [1, 8, 32] {
        let (alone, ours) = (direct.rate(callers), through.rate(callers));
        out.push(format!(
            "| **MCP calls a second, {callers} on the way**: directly {alone:.0} | {ours:.0} | | | 2,000 |"
        ));
    }
    direct.end();
    through.end();
}
