//! `fumehood mcp fetch` of servers that are written as `docker run IMAGE`: pulled from a registry of this machine, pinned, and
//! started by the gateway with what the entry's options ask for and the policy gives.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use policy::json::sha256_hex;
use serde_json::{Value as Json, json};

use crate::Fixture;
use crate::image_runs::{Member, layer, saved};
use crate::mcp::{Client, text};

/// An MCP server for a shell: its one tool tells the variables and arguments that it has, a file, and what a host answers.
const SERVER: &str = r#"#!/bin/sh
while read -r line; do
  id=${line#*\"id\":}; id=${id%%[,\}]*}
  say() { echo "{\"jsonrpc\":\"2.0\",\"id\":$id,$1}"; }
  case "$line" in
  *'"initialize"'*) say '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
  *'"tools/list"'*) say '"result":{"tools":[{"name":"look","description":"looks","inputSchema":{"type":"object"}}]}' ;;
  *'"tools/call"'*) say "\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"NAMED $WORD,$TOKEN,$DOCKER_HOST,$* $(cat /data/file 2>&1) $(busybox wget -qO- http://served.test/word 2>&1 | busybox head -n1) $(id -un)\"}]}" ;;
  *'"id"'*) say '"error":{"code":-32601,"message":"no"}' ;;
  esac
done
"#;

/// Where the image of the tests lies in its registry.
pub(crate) const REPOSITORY: &str = "mcp/server";

type Answers = Arc<Mutex<BTreeMap<String, (&'static str, Vec<u8>)>>>;

/// A registry at the loopback.
pub(crate) struct Registry {
    pub(crate) host: String,
    answers: Answers,
}

impl Registry {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (host, answers) = (listener.local_addr().unwrap().to_string(), Answers::default());
        let served = Arc::clone(&answers);
        std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| answer(&stream, &served)));
        Self { host, answers }
    }

    /// Gives an image whose server calls itself `named` the tag `1`; its digest.
    pub(crate) fn push(&self, named: &str) -> String {
        let script = SERVER.replace("NAMED", named);
        let layer = layer(vec![Member::File("server", script.as_bytes(), 0o755)]);
        let of = |bytes: &[u8]| format!("sha256:{}", sha256_hex(bytes));
        let config = config(&of(&layer)).to_string().into_bytes();
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let part = |media: &str, bytes: &[u8]| json!({ "mediaType": media, "digest": of(bytes), "size": bytes.len() });
        let manifest = json!({
            "schemaVersion": 2, "mediaType": kind, "config": part("application/vnd.oci.image.config.v1+json", &config),
            "layers": [part("application/vnd.oci.image.layer.v1.tar", &layer)],
        });
        let manifest = manifest.to_string().into_bytes();
        let digest = of(&manifest);
        let mut answers = self.answers.lock().unwrap();
        for blob in [config, layer] {
            answers.insert(format!("/v2/{REPOSITORY}/blobs/{}", of(&blob)), ("application/octet-stream", blob));
        }
        for name in ["1", &digest] {
            answers.insert(format!("/v2/{REPOSITORY}/manifests/{name}"), (kind, manifest.clone()));
        }
        digest
    }

    pub(crate) fn image(&self) -> String {
        format!("{}/{REPOSITORY}:1", self.host)
    }
}

fn config(layer: &str) -> Json {
    let arch = if std::env::consts::ARCH == "x86_64" { "amd64" } else { "arm64" };
    json!({
        "architecture": arch, "os": "linux", "rootfs": { "type": "layers", "diff_ids": [layer] },
        "config": { "Entrypoint": ["/server", "always"], "Cmd": ["unsaid"], "Env": ["WORD=of-the-image", "PATH=/bin"] },
    })
}

fn answer(mut stream: &TcpStream, answers: &Answers) {
    let mut lines = BufReader::new(stream).lines();
    let Some(Ok(first)) = lines.next() else { return };
    // To the end of its head.
    lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
    let path = first.split(' ').nth(1).unwrap_or_default();
    let (status, (kind, body)) = match answers.lock().unwrap().get(path) {
        Some(found) => ("200 OK", found.clone()),
        None => ("404 Not Found", ("application/json", b"{}".to_vec())),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).is_err() {
        // A client that went away has what it wanted.
    }
}

/// A policy with one server, whose command has these options before the image and arguments after it.
fn policy(fixture: &Fixture, image: &str, options: &[&str], args: &[&str]) {
    let words: Vec<&str> = [&["run", "-i", "--rm"][..], options, &[image], args].concat();
    let text = format!(
        "version = 1\n[[tools.tool]]\nname = \"s.look\"\ndecision = \"allow\"\neffect = \"read\"\n\
         [mcp.servers.s]\ncommand = \"docker\"\nargs = {}\npolicy = \"./sandbox.toml\"\n\
         env = {{ TOKEN = \"t0ken\", DOCKER_HOST = \"tcp://x\" }}\n",
        json!(words)
    );
    std::fs::write(fixture.path("work/p.toml"), text).unwrap();
    sandbox(fixture, "");
}

/// The server's own policy.
fn sandbox(fixture: &Fixture, more: &str) {
    std::fs::write(fixture.path("work/sandbox.toml"), format!("version = 1\n{more}\n")).unwrap();
}

fn fetch(fixture: &Fixture, more: &[&str]) -> crate::CommandOutput {
    fixture.run(&[&["mcp", "fetch", "s", "-p", "p.toml", "--plain-http"], more].concat())
}

/// What the server's tool says.
fn looked(fixture: &Fixture) -> String {
    let mut client = Client::new(fixture, &["mcp", "gateway", "-p", "p.toml"]);
    assert_eq!(client.tools(), ["s__look"]);
    let said = text(&client.call("s__look", &json!({}))).to_owned();
    assert_eq!(client.end(), 0);
    said
}

/// Another command is another server, whose tools are held until somebody says that they are to be trusted.
fn forgotten(fixture: &Fixture) {
    let mut client = Client::new(fixture, &["mcp", "gateway", "-p", "p.toml"]);
    assert!(client.tools().is_empty());
    assert_eq!(client.end(), 0);
    assert_eq!(fixture.run(&["mcp", "pins", "reset", "s"]).code, 0);
}

fn offers(fixture: &Fixture) -> crate::CommandOutput {
    fixture.run(&["tools", "ls", "-p", "p.toml", "--server", "s"])
}

#[test]
fn a_server_that_is_an_image_is_pulled_once_and_started_through_the_gateway() {
    let (fixture, registry) = (Fixture::new(), Registry::new());
    let digest = registry.push("one");
    policy(&fixture, &registry.image(), &["--init", "-e", "TOKEN", "--network", "none", "-u", "app"], &[]);
    let before = offers(&fixture);
    assert!(before.code == 125 && before.err.contains("`fumehood mcp fetch s -p POLICY`"), "the control: {before:?}");
    let noted = fixture.run(&["mcp", "gateway", "-p", "p.toml", "--lazy"]);
    assert!(noted.err.contains("`docker` fetches") && noted.err.contains("`fumehood mcp fetch s"), "{noted:?}");

    let fetched = fetch(&fixture, &["--json"]);
    assert_eq!(fetched.code, 0, "{fetched:?}");
    let fetched = fetched.json();
    assert_eq!(fetched["digest"], json!(digest));
    assert_eq!(fetched["program"], json!(["/server", "always", "unsaid"]));
    assert_eq!((&fetched["unmet"], &fetched["unset"]), (&json!([]), &json!([])));
    // What Docker's own variables say goes in as little as with Docker.
    let said = looked(&fixture);
    assert!(said.starts_with("one of-the-image,t0ken,,always unsaid "), "{said}");
    assert!(said.ends_with(" app"), "{said}");
    assert!(offers(&fixture).out.contains("s.look"));

    // Whatever the registry is: it is not asked again.
    registry.answers.lock().unwrap().clear();
    assert!(looked(&fixture).starts_with("one "));
    // Arguments of the entry stand in place of the image's.
    policy(&fixture, &registry.image(), &["-e", "WORD=of the entry", "-e", "NONE"], &["said", "--privileged"]);
    forgotten(&fixture);
    let said = looked(&fixture);
    assert!(said.starts_with("one of the entry,,,always said --privileged "), "{said}");
    policy(&fixture, &registry.image(), &["--entrypoint", "/bin/sh"], &["/server", "mine"]);
    forgotten(&fixture);
    let said = looked(&fixture);
    assert!(said.starts_with("one of-the-image,,,mine "), "{said}");
}

#[test]
fn another_image_under_the_same_name_is_shown_and_not_taken_until_it_is_accepted() {
    let (fixture, registry) = (Fixture::new(), Registry::new());
    let first = registry.push("one");
    policy(&fixture, &registry.image(), &[], &[]);
    assert_eq!(fetch(&fixture, &[]).code, 0);
    assert_eq!(fetch(&fixture, &[]).code, 0, "the same again is the same");
    let second = registry.push("two");
    let said = fetch(&fixture, &[]);
    assert!(
        said.code == 126 && said.err.contains(&first) && said.err.contains(&format!("--accept {second}")),
        "{said:?}"
    );
    assert!(looked(&fixture).starts_with("one "), "it stays as it was");
    let said = fetch(&fixture, &["--accept", &first]);
    assert!(said.code == 126 && said.err.contains(&second), "the registry has another one: {said:?}");
    // Names in the store are given by whoever imports and pulls: none of them is the pin.
    let other = layer(vec![Member::File("server", SERVER.replace("NAMED", "three").as_bytes(), 0o755)]);
    let says = config("")["config"].clone();
    saved(&fixture.path("other.tar"), &registry.image(), &other, &says);
    assert_eq!(fixture.run(&["image", "import", fixture.path("other.tar").to_str().unwrap()]).code, 0);
    assert_eq!(fixture.run(&["image", "pull", &registry.image(), "--plain-http"]).code, 0);
    assert!(looked(&fixture).starts_with("one "));

    assert_eq!(fetch(&fixture, &["--accept", &second]).code, 0);
    assert!(looked(&fixture).starts_with("two "));
    // An image that is gone is fetched again, the pinned one alone.
    assert_eq!(fixture.run(&["image", "rm", &second]).code, 0);
    let gone = offers(&fixture);
    assert!(gone.code == 125 && gone.err.contains("`fumehood mcp fetch s"), "{gone:?}");
    registry.push("four");
    assert_eq!(fetch(&fixture, &[]).code, 126);
    registry.push("two");
    assert_eq!(fetch(&fixture, &[]).code, 0);
    assert!(looked(&fixture).starts_with("two "));
    // What is pinned is of this very image.
    let pins = crate::files_below(&fixture.state().join("mcp-images"));
    std::fs::write(&pins[0], std::fs::read_to_string(&pins[0]).unwrap().replace("server:1", "server:2")).unwrap();
    let said = offers(&fixture);
    assert!(said.err.contains("the pin of another image"), "{said:?}");
}

#[test]
fn folders_of_an_entry_are_granted_by_the_policy_alone() {
    let (fixture, registry) = (Fixture::new(), Registry::new());
    registry.push("one");
    let folder = fixture.path("work/data");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("file"), "CANARY").unwrap();
    let bind = format!("{}:/data:ro", folder.display());
    policy(&fixture, &registry.image(), &["-v", &bind, "-w", "/srv"], &[]);
    let said = fetch(&fixture, &[]);
    let line = format!("fs.read = [{{ from = \"{}\", to = \"/data\" }}]", folder.display())
        .replace(fixture.dir.path().to_str().unwrap(), "$DIR");
    assert!(said.code == 0 && said.err.contains(&line) && said.err.contains("at = \"/srv\""), "{said:?}");
    let asked = offers(&fixture);
    assert!(asked.code == 125 && asked.err.contains(&line), "not without them: {asked:?}");

    let granted = format!("fs.read = [{{ from = \"{}\", to = \"/data\" }}]", folder.display());
    sandbox(&fixture, &granted);
    assert!(offers(&fixture).err.contains("at = \"/srv\""), "each is asked for");
    policy(&fixture, &registry.image(), &["-v", &bind], &[]);
    assert!(offers(&fixture).code == 125);
    sandbox(&fixture, &granted);
    assert!(looked(&fixture).contains("CANARY"), "the control: it is what the policy grants");
    // What is to be written is not granted for reading.
    policy(&fixture, &registry.image(), &["-v", &bind.replace(":ro", "")], &[]);
    sandbox(&fixture, &granted);
    assert!(offers(&fixture).err.contains("fs.write = "), "{:?}", offers(&fixture));
    // Another root of the policy's is not replaced in silence.
    policy(&fixture, &registry.image(), &[], &[]);
    sandbox(&fixture, "fs.root = \"empty\"");
    assert!(offers(&fixture).err.contains("names another root"), "{:?}", offers(&fixture));
}

#[test]
fn the_network_is_the_policys_and_none_where_the_entry_says_so() {
    let (fixture, registry) = (Fixture::new(), Registry::new());
    registry.push("one");
    registry.answers.lock().unwrap().insert("/word".to_owned(), ("text/plain", b"REACHED".to_vec()));
    let net = format!(
        "[net]\nmode = \"allow\"\nallow = [{{ host = \"served.test\", ports = [80], address = \"{}\" }}]",
        registry.host
    );
    for (option, reached) in [("bridge", true), ("none", false)] {
        policy(&fixture, &registry.image(), &["--network", option], &[]);
        sandbox(&fixture, &net);
        assert_eq!(fetch(&fixture, &[]).code, 0);
        let said = looked(&fixture);
        assert_eq!(said.contains("REACHED"), reached, "{option}: {said}");
    }
}

#[test]
fn what_no_policy_of_a_server_should_say_in_silence_is_refused_with_its_clause() {
    let fixture = Fixture::new();
    let options = ["--network", "host", "--privileged", "-m", "512m", "--shm-size=8m", "--pids-limit", "10"];
    let more = [
        "--cpus",
        "1.5",
        "--cpuset-cpus",
        "0-1",
        "--ulimit",
        "nofile=9",
        "--device",
        "/dev/kvm",
        "--add-host",
        "a:1.2.3.4",
    ];
    policy(&fixture, "mcp/server", &[&options[..], &more].concat(), &[]);
    let said = fixture.run(&["mcp", "fetch", "s", "-p", "p.toml", "--json"]);
    assert_eq!(said.code, 126, "{said:?}");
    let refused = said.json()["refused"].as_array().unwrap().clone();
    assert_eq!(refused.len(), 10, "{refused:?}");
    let mut clauses = 0;
    for one in &refused {
        // Each clause is one that a policy can have.
        for line in one["fix"].as_str().unwrap().split('`').filter(|part| part.contains(" = ")) {
            let mode = if line.starts_with("net.allow") { "net.mode = \"allow\"\n" } else { "" };
            let line = line.replace("ADDRESS", "192.0.2.1").replace("HOST", "host.test");
            std::fs::write(fixture.path("work/line.toml"), format!("version = 1\n{mode}{line}\n")).unwrap();
            let checked = fixture.run(&["policy", "check", "line.toml"]);
            assert!(checked.code == 0, "{line}: {checked:?}");
            clauses += 1;
        }
    }
    assert!(clauses >= 10, "{refused:?}");
    for (image, code, words) in [
        ("No/Such", 125, "Docker's rules"),
        ("a@sha256:12", 125, "Docker's rules"),
        ("--privileged", 126, "names no image"),
    ] {
        policy(&fixture, image, &["--"], &[]);
        let said = fetch(&fixture, &[]);
        assert!(said.code == code && said.err.contains(words), "{image}: {said:?}");
    }
    policy(&fixture, "mcp/none:1", &["--pull", "never"], &[]);
    let said = fetch(&fixture, &[]);
    assert!(said.code == 125 && said.err.contains("mcp/none:1"), "no registry is asked: {said:?}");
}

#[test]
fn an_image_of_the_store_is_taken_where_no_registry_is_to_be_asked() {
    let (fixture, script) = (Fixture::new(), SERVER.replace("NAMED", "own"));
    let layer = layer(vec![Member::File("server", script.as_bytes(), 0o755)]);
    saved(&fixture.path("own.tar"), "own:1", &layer, &config("")["config"]);
    assert_eq!(fixture.run(&["image", "import", fixture.path("own.tar").to_str().unwrap()]).code, 0);
    policy(&fixture, "own:1", &["--pull=never"], &[]);
    assert_eq!(fetch(&fixture, &[]).code, 0);
    assert!(looked(&fixture).starts_with("own "));
}
