//! A gateway with fake servers behind it, and a client before it that speaks raw messages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use gate::Caller;
use gate::Gate;
use gateway::Broker;
use gateway::approvals::Approvals;
use gateway::limits::Ledger;
use gateway::mcp::servers::{Server, Transport};
use gateway::mcp::upstream::{Launched, ServerLauncher};
use gateway::mcp::{Gateway, GatewayPolicy, pinning};
use gateway::record::{Event, Record};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio_util::sync::CancellationToken;

/// Longer than anything here may take, on a machine that does other things as well.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// Long enough for what must not happen.
pub(crate) const QUIET: Duration = Duration::from_millis(700);

/// Everything of one server is allowed, as reading.
pub(crate) const ALL: &str = r#"
[[tools.tool]]
name = "a.*"
decision = "allow"
effect = "read"
[[tools.tool]]
name = "b.*"
decision = "allow"
effect = "read"
"#;

/// A folder with logs of servers, and a policy.
pub(crate) struct Stage {
    pub(crate) dir: tempfile::TempDir,
    policy: String,
    servers: BTreeMap<String, Vec<String>>,
    far: Vec<Server>,
    strict_pins: bool,
    pub(crate) record: Written,
}

/// What was written down.
#[derive(Clone, Default)]
pub(crate) struct Written(pub Arc<std::sync::Mutex<Vec<Event>>>);

impl Record for Written {
    fn append(&self, event: &Event) -> Result<(), String> {
        self.0.lock().unwrap().push(event.clone());
        Ok(())
    }
}

impl Written {
    pub(crate) fn of(&self, kind: &str) -> Vec<Json> {
        self.0.lock().unwrap().iter().filter(|event| event.kind == kind).map(|event| event.body.clone()).collect()
    }
}

struct Direct;

impl ServerLauncher for Direct {
    fn launch(&self, server: &Server) -> Result<Launched, String> {
        let Transport::Command { command, args } = &server.transport else { return Err("no command".to_owned()) };
        let env = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("PYTHONDONTWRITEBYTECODE", "1")];
        let mut program = tokio::process::Command::new(command);
        program.args(args).env_clear().envs(env).current_dir("/").kill_on_drop(true).process_group(0);
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = program.spawn().map_err(|error| format!("it could not be started: {error}").to_lowercase())?;
        Launched::of(child)
    }
}

impl Stage {
    /// One server `a`, and what the policy says beside it.
    pub(crate) fn new(policy: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let stage = Self {
            dir,
            policy: policy.to_owned(),
            servers: BTreeMap::new(),
            far: Vec::new(),
            strict_pins: false,
            record: Written::default(),
        };
        stage.server("a", &[])
    }

    /// One server more, with arguments of the fake.
    pub(crate) fn server(mut self, name: &str, args: &[&str]) -> Self {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.servers.insert(name.to_owned(), args);
        self
    }

    /// One server more, which is written as a call of `npx` and never says a word.
    pub(crate) fn npx(mut self, name: &str) -> Self {
        let npx = self.path("npx");
        std::fs::write(&npx, "#!/bin/sh\nexec sleep 60\n").unwrap();
        std::fs::set_permissions(&npx, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let args = ["-y", "@example/server"].map(str::to_owned).to_vec();
        self.far.push(Server {
            name: name.to_owned(),
            transport: Transport::Command { command: npx.display().to_string(), args },
            env: BTreeMap::new(),
            policy: "strict".into(),
            from: "test".into(),
            fetched: None,
        });
        self
    }

    /// A server behind HTTP instead of all others.
    pub(crate) fn http(mut self, name: &str, url: &str, token: &str) -> Self {
        let headers = BTreeMap::from([("Authorization".to_owned(), format!("Bearer {token}"))]);
        let transport = Transport::Url { url: url.to_owned(), headers };
        self.servers.clear();
        self.far.push(Server {
            name: name.to_owned(),
            transport,
            env: BTreeMap::new(),
            policy: "strict".into(),
            from: "test".into(),
            fetched: None,
        });
        self
    }

    pub(crate) fn strict_pins(mut self) -> Self {
        self.strict_pins = true;
        self
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// What reached a server.
    pub(crate) fn log(&self, server: &str) -> Vec<Json> {
        let text = std::fs::read_to_string(self.path(&format!("{server}.log"))).unwrap_or_default();
        // The last line may be written just now.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Calls that reached a server.
    pub(crate) fn calls(&self, server: &str) -> Vec<Json> {
        self.log(server).into_iter().filter(|message| message["method"] == "tools/call").collect()
    }

    /// Waits until so many calls have reached a server.
    pub(crate) async fn reached(&self, server: &str, calls: usize) {
        self.comes(|| self.calls(server).len() >= calls).await;
    }

    /// Waits until something holds.
    pub(crate) async fn comes(&self, holds: impl Fn() -> bool) {
        let looks = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, looks).await.expect("it comes in time");
    }

    pub(crate) fn gateway(&self) -> Arc<Gateway> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/upstream.py");
        let mut text = format!("version = 1\n{}", self.policy);
        for (name, args) in &self.servers {
            let mut all = vec![script.display().to_string(), self.path(&format!("{name}.log")).display().to_string()];
            all.extend(args.iter().cloned());
            text.push_str(&format!("\n[mcp.servers.{name}]\ncommand = \"/usr/bin/python3\"\nargs = {}\n", json!(all)));
        }
        let mut layers =
            policy::Layers::new(policy::Caller { dir: self.dir.path().into(), ..policy::Caller::default() });
        layers.policy("./p.toml", &|_: &Path| Ok(text.clone()));
        let loaded = layers.finish().unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
        let tools = loaded.policy.tools.as_ref().unwrap();
        let (gate, _) = Gate::new(tools, &loaded.documents).unwrap();
        let state = self.dir.path().join("state");
        std::fs::create_dir_all(&state).unwrap();
        std::fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let approvals = Approvals::open(&state).unwrap();
        let ledger = Ledger::open(&state.join("limits")).unwrap();
        let broker = Broker::new(gate, ledger, approvals, Arc::new(self.record.clone()));
        let GatewayPolicy { mut servers, allow } = GatewayPolicy::of(tools, &loaded.documents, &Nothing).unwrap();
        servers.extend(self.far.iter().cloned());
        Arc::new(Gateway {
            servers,
            allow,
            broker: Arc::new(broker),
            pinning: pinning(self.dir.path(), "test".to_owned(), self.strict_pins),
            launch: Arc::new(Direct),
            eager: false,
        })
    }

    /// A client that has not said anything.
    pub(crate) fn client(&self) -> Client {
        Client::of(self.gateway())
    }

    /// A client that has made its handshake.
    pub(crate) async fn met(&self, capabilities: Json) -> Client {
        let mut client = self.client();
        client.handshake(capabilities).await;
        client
    }
}

struct Nothing;

impl gateway::mcp::servers::Surroundings for Nothing {
    fn read(&self, path: &Path) -> Result<String, String> {
        std::fs::read_to_string(path).map_err(|error| error.to_string())
    }
    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

/// A client that speaks raw messages over a pair of streams.
pub(crate) struct Client {
    write: WriteHalf<DuplexStream>,
    read: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    /// What came while something else was waited for.
    pub(crate) heard: Vec<Json>,
    next: i64,
    pub(crate) stop: CancellationToken,
    serving: Option<tokio::task::JoinHandle<()>>,
}

impl Client {
    pub(crate) fn of(gateway: Arc<Gateway>) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (read, write) = tokio::io::split(theirs);
        let stop = CancellationToken::new();
        let (caller, ends) =
            (Caller { agent: "test".into(), session: format!("s{:p}", &stop), key: None }, stop.clone());
        let serving = tokio::spawn(async move {
            gateway::mcp::stdio::serve(&gateway, caller, read, write, ends).await;
        });
        let (read, write) = tokio::io::split(ours);
        let read = BufReader::new(read).lines();
        Self { write, read, heard: Vec::new(), next: 1, stop, serving: Some(serving) }
    }

    pub(crate) async fn raw(&mut self, text: &str) {
        self.write.write_all(text.as_bytes()).await.unwrap();
        self.write.write_all(b"\n").await.unwrap();
    }

    pub(crate) async fn send(&mut self, message: Json) {
        self.raw(&message.to_string()).await;
    }

    /// The next message; `None` if nothing comes in time.
    pub(crate) async fn next_within(&mut self, time: Duration) -> Option<Json> {
        match tokio::time::timeout(time, self.read.next_line()).await {
            Ok(line) => line.unwrap().map(|line| serde_json::from_str(&line).unwrap()),
            Err(_) => None,
        }
    }

    pub(crate) async fn next(&mut self) -> Json {
        self.next_within(PATIENCE).await.expect("a message in time")
    }

    /// The first message that fits; what comes before it is kept in `heard`.
    pub(crate) async fn until(&mut self, fits: impl Fn(&Json) -> bool) -> Json {
        loop {
            let message = self.next().await;
            if fits(&message) {
                return message;
            }
            self.heard.push(message);
        }
    }

    /// Sends a request; its id.
    pub(crate) async fn ask(&mut self, method: &str, params: Json) -> i64 {
        let id = self.next;
        self.next += 1;
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    pub(crate) async fn answer(&mut self, id: i64) -> Json {
        let is_it = |message: &Json| message["id"] == id && message.get("method").is_none();
        if let Some(at) = self.heard.iter().position(is_it) {
            return self.heard.remove(at);
        }
        self.until(|message| message["id"] == id && message.get("method").is_none()).await
    }

    pub(crate) async fn request(&mut self, method: &str, params: Json) -> Json {
        let id = self.ask(method, params).await;
        self.answer(id).await
    }

    pub(crate) async fn handshake(&mut self, capabilities: Json) -> Json {
        let info = json!({"name": "raw", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info});
        let answer = self.request("initialize", params).await;
        self.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        answer
    }

    pub(crate) async fn call(&mut self, name: &str, arguments: Json) -> Json {
        self.request("tools/call", json!({"name": name, "arguments": arguments})).await
    }

    pub(crate) async fn tools(&mut self) -> Vec<String> {
        let answer = self.request("tools/list", json!({})).await;
        answer["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Parameters that describe themselves.
    pub(crate) fn described(mut params: Json, capabilities: &Json) -> Json {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        });
        params
    }

    /// Says that nothing more will come, and goes on listening.
    pub(crate) async fn hang_up(&mut self) {
        self.write.shutdown().await.unwrap();
    }

    /// Ends the conversation; done when nothing of it runs any more.
    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        let serving = self.serving.take().unwrap();
        tokio::time::timeout(PATIENCE, serving).await.expect("the session ends in time").unwrap();
    }
}

/// The text of a result.
pub(crate) fn text(answer: &Json) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {answer}"))
}

pub(crate) fn is_error(answer: &Json) -> bool {
    answer["result"]["isError"] == true
}
