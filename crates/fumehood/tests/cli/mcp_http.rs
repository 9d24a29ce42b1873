//! MCP servers behind `fumehood tools serve`: over HTTP and over the pipe, and servers that are reached with headers.
#![expect(
    clippy::disallowed_methods,
    reason = "a far server and grep are no sandboxes; they are started as anybody would"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value as Json, json};

use crate::Fixture;

fn fixture() -> Fixture {
    crate::mcp::with_server(Fixture::new(), "s.count", "")
}

/// A gate over HTTP; it ends with this.
struct Door {
    child: Child,
    address: String,
    token: String,
}

impl Door {
    fn open(fixture: &Fixture, more: &[&str]) -> Self {
        let args = [&["tools", "serve", "-p", "p.toml", "--listen", "127.0.0.1:0"], more].concat();
        let mut child = fixture.command(&args).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = told.next().unwrap().unwrap();
        let address = first.strip_prefix("listening on http://").unwrap_or_else(|| panic!("{first}")).to_owned();
        let second = told.next().unwrap().unwrap();
        let file = second.split(" token in ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        let token = std::fs::read_to_string(file.trim_matches(['`', '\''])).unwrap().trim().to_owned();
        Self { child, address, token }
    }

    fn ask(&self, line: &str, session: Option<&str>, body: &str) -> (u16, Json) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let session = session.map(|name| format!("Fumehood-Session: {name}\r\n")).unwrap_or_default();
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n{session}\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        (status, serde_json::from_str(body).unwrap_or_else(|_| json!(body)))
    }

    fn count(&self, session: Option<&str>) -> String {
        let (status, body) = self.ask("POST /v1/tools/s.count:call", session, r#"{"args": {"n": 1}}"#);
        assert_eq!(status, 200, "{body}");
        body["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_call_over_http_reaches_an_mcp_server_which_is_started_for_that_and_not_for_a_denied_one() {
    let fixture = fixture();
    let door = Door::open(&fixture, &[]);
    let (status, body) = door.ask("POST /v1/tools/s.other:call", None, "");
    assert_eq!((status, &body["id"]), (403, &json!("tools.entry/none")), "{body}");
    assert_eq!(fixture.run(&["mcp", "pins", "ls"]).out, "nothing is pinned\n", "nothing was started");
    assert_eq!(door.count(None), "call 1");
    assert_eq!(door.count(None), "call 2", "the same server");
    let (_, body) = door.ask("POST /v1/tools/s.count:check", None, r#"{"args": {"n": "x"}}"#);
    assert_eq!(body["decision"], "deny", "the server's own schema is judged: {body}");
    let (status, body) = door.ask("POST /v1/tools/s.count:call", None, r#"{"args": {"n": "x"}}"#);
    assert_eq!((status, &body["decision"]), (403, &json!("deny")), "{body}");
    let (status, body) = door.ask("POST /v1/tools/s.count:check", None, r#"{"args": {"n": 2}}"#);
    assert_eq!((status, &body["decision"]), (200, &json!("allow")), "{body}");
    let (_, body) = door.ask("GET /v1/tools", None, "");
    assert_eq!(body["tools"].as_array().unwrap().len(), 1, "{body}");
    let tool = &body["tools"][0];
    assert_eq!((&tool["name"], &tool["implemented"]), (&json!("s.count"), &json!(true)), "{body}");
    assert_eq!(
        (&tool["description"], &tool["schema"]["properties"]["n"]["type"]),
        (&json!("what it does"), &json!("integer"))
    );
    assert_eq!(door.count(None), "call 3", "neither a check nor a list called it");
}

#[test]
fn each_conversation_has_servers_of_its_own_until_it_ends() {
    let fixture = fixture();
    let door = Door::open(&fixture, &[]);
    let session = |door: &Door| door.ask("POST /v1/sessions", None, "").1["session"].as_str().unwrap().to_owned();
    let (one, two) = (session(&door), session(&door));
    assert_eq!((door.count(Some(&one)), door.count(Some(&one))), ("call 1".to_owned(), "call 2".to_owned()));
    assert_eq!(door.count(Some(&two)), "call 1");
    assert_eq!(door.ask(&format!("POST /v1/sessions/{one}:end"), None, "").0, 200);
    assert_eq!(door.count(Some(&one)), "call 1", "its server ended with it");
    assert_eq!(door.count(Some(&two)), "call 2", "and no other");
    for strange in ["s-00-00:end", "x:end", ":end"] {
        assert_eq!(door.ask(&format!("POST /v1/sessions/{strange}"), None, "").0, 403, "{strange}");
    }
    assert_eq!(door.ask(&format!("POST /v1/sessions/{one}"), None, "").0, 404);
}

#[test]
fn a_tool_that_changed_is_held_back_over_http_too() {
    let fixture = fixture();
    assert_eq!(Door::open(&fixture, &[]).count(None), "call 1");
    std::fs::write(fixture.path("work/server/words"), "what it does, and mails it").unwrap();
    let door = Door::open(&fixture, &[]);
    for verb in ["check", "call"] {
        let (status, body) = door.ask(&format!("POST /v1/tools/s.count:{verb}"), None, "");
        assert_eq!((status, &body["id"]), (403, &json!("mcp.pin/changed")), "{body}");
    }
    let written = fixture.run(&["audit", "show", "--tools"]).out;
    assert_eq!(written.matches("mcp.pin/changed").count(), 1, "the call, and not the check: {written}");
    assert_eq!(door.ask("GET /v1/tools", None, "").1["tools"][0]["implemented"], false, "the policy names it still");
    assert_eq!(fixture.run(&["mcp", "pins", "accept", "s.count", "-p", "p.toml"]).code, 0);
    assert_eq!(door.count(None), "call 1");
}

#[test]
fn a_server_that_cannot_start_is_told_by_its_own_words_and_two_ways_to_a_tool_are_refused() {
    let fixture = fixture();
    let said =
        fixture.run(&["tools", "serve", "-p", "p.toml", "--listen", "127.0.0.1:0", "--tool", "s.count=/bin/cat"]);
    assert!(said.code == 125 && said.err.contains("would both run `s.count`"), "{said:?}");
    let policy = std::fs::read_to_string(fixture.path("work/p.toml")).unwrap();
    std::fs::write(fixture.path("work/p.toml"), policy.replace("python3", "no-such-program")).unwrap();
    let door = Door::open(&fixture, &[]);
    let (status, body) = door.ask("POST /v1/tools/s.count:call", None, "");
    assert_eq!((status, &body["id"]), (502, &json!("tools.http/server")), "{body}");
    assert!(body["why"].as_str().unwrap().contains("no-such-program"), "{body}");
}

#[test]
fn the_pipe_reaches_mcp_servers_and_ends_conversations() {
    let fixture = fixture();
    let mut command = fixture.command(&["tools", "serve", "-p", "p.toml", "--stdio"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    let hello = out.next().unwrap().unwrap();
    assert!(hello.contains("protocol"), "{hello}");
    let mut id = 0;
    let mut ask = |mut line: Json| {
        id += 1;
        line["id"] = json!(id);
        writeln!(stdin, "{line}").unwrap();
        serde_json::from_str::<Json>(&out.next().unwrap().unwrap()).unwrap()
    };
    let call = json!({"op": "call", "tool": "s.count", "args": {"n": 1}, "session": "a"});
    assert_eq!(ask(call.clone())["called"]["value"], "call 1");
    assert_eq!(ask(call.clone())["called"]["value"], "call 2");
    assert_eq!(ask(json!({"op": "check", "tool": "s.count", "args": {"n": "x"}}))["verdict"]["decision"], "deny");
    assert_eq!(ask(json!({"op": "call", "tool": "s.other"}))["called"]["decision"], "deny");
    assert_eq!(ask(json!({"op": "end", "session": "a"}))["ended"], true);
    assert_eq!(ask(call)["called"]["value"], "call 1");
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// A server behind HTTP that wants a token; it ends with this.
struct Far(Child);

impl Drop for Far {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn headers_of_a_far_server_come_from_variables_and_are_written_nowhere() {
    const TOKEN: &str = "far-token-5b1e77";
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../gateway/tests/peers/sessions.py");
    let mut far = Far(Command::new("/usr/bin/python3").args([script, TOKEN]).stdout(Stdio::piped()).spawn().unwrap());
    let mut port = String::new();
    BufReader::new(far.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let policy = format!(
        "version = 1\n[[tools.tool]]\nname = \"far.where\"\ndecision = \"allow\"\neffect = \"read\"\n[mcp.servers.far]\n\
         url = \"http://127.0.0.1:{}/mcp\"\nheaders = {{ Authorization = \"Bearer env:FAR_TOKEN\" }}\n",
        port.trim()
    );
    let with = |value: Option<&str>| {
        let fixture = value.map_or_else(Fixture::new, |value| Fixture::new().with("FAR_TOKEN", value));
        std::fs::write(fixture.path("work/p.toml"), &policy).unwrap();
        fixture
    };
    let call = |fixture: &Fixture| Door::open(fixture, &[]).ask("POST /v1/tools/far.where:call", None, "");
    let fixture = with(Some(TOKEN));
    let (status, body) = call(&fixture);
    assert_eq!((status, &body["result"]["content"][0]["text"]), (200, &json!("session-1")), "{body}");
    let found = Command::new("grep").args(["-rl", TOKEN]).arg(fixture.path("")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "", "neither state nor audit hold it");
    let (status, body) = call(&with(Some("wrong-9d2")));
    assert!(status == 502 && !body.to_string().contains("wrong-9d2"), "{status} {body}");

    let said = with(None).run(&["tools", "serve", "-p", "p.toml", "--listen", "127.0.0.1:0"]);
    assert!(said.code == 126 && said.err.contains("the variable `FAR_TOKEN` is not set"), "{said:?}");
    let said = with(Some("two\nlines-7c1")).run(&["mcp", "gateway", "-p", "p.toml"]);
    assert!(said.code == 126 && said.err.contains("holds what no header can"), "{said:?}");
    assert!(!said.err.contains("lines-7c1"), "{said:?}");
}

/// A tool that is a program and an MCP server behind one door: neither writes what the other is under, or what says who may call.
#[test]
fn neither_a_tool_nor_a_server_writes_what_the_other_is_under() {
    let fixture = Fixture::new();
    let under = |name: &str| {
        format!(
            "version = 1\nextends = \"./{name}\"\n[fs]\nroot = \"host\"\n[workspace]\npath = \".\"\nmode = \"rw\"\n\
             [limits]\ndisk = \"none\"\nfiles = \"none\"\n"
        )
    };
    let door = "version = 1\n[mcp.servers.w]\ncommand = \"sh\"\nargs = [\"write.sh\", \"server\"]\npolicy = \"./server.toml\"\n\
                [[tools.tool]]\nname = \"w.any\"\ndecision = \"allow\"\neffect = \"read\"\n\
                [[tools.tool]]\nname = \"mail.send\"\ndecision = \"allow\"\neffect = \"write\"\nschema = { type = \"object\" }\n";
    let documents = [
        ("p.toml", door.to_owned()),
        ("server.toml", under("below-server.toml")),
        ("below-server.toml", "version = 1\n".to_owned()),
        ("tool.toml", under("below-tool.toml")),
        ("below-tool.toml", "version = 1\n".to_owned()),
    ];
    let names = documents.each_ref().map(|(name, _)| *name).join(" ");
    let write = format!("for name in {names} by-$1; do (echo '#x' >> $name) 2>> said; done\necho '{{}}'\n");
    let tool = "import os, subprocess\nos.chdir('/workspace')\nsubprocess.run(['sh', 'write.sh', 'tool'])\n".to_owned();
    for (name, text) in documents.iter().chain(&[("write.sh", write), ("t.py", tool)]) {
        std::fs::write(fixture.path("work").join(name), text).unwrap();
    }
    let read = |name: &str| std::fs::read_to_string(fixture.path("work").join(name)).unwrap_or_default();
    let door = Door::open(&fixture, &["--tool", "mail.send=t.py", "--sandbox", "./tool.toml"]);
    let called =
        ["mail.send", "w.any"].map(|tool| door.ask(&format!("POST /v1/tools/{tool}:call"), None, r#"{"args": {}}"#));
    assert_eq!(called[0].0, 200, "{called:?}");
    for (name, text) in &documents {
        assert_eq!(&read(name), text, "{name}: {}", read("said"));
    }
    for name in ["by-tool", "by-server"] {
        assert!(read(name).starts_with("#x\n"), "the control: {name}: {called:?} {}", read("said"));
    }
}
