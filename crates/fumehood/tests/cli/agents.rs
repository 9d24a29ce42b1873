//! Coding agents: stand-ins that behave as those do. The real ones are started by `scripts/clients`.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::Fixture;
use super::net::question;
use super::net_tls::{Tls, tls_server};

const KEY: &str = "sk-canary-0123456789abcdef";

/// Reads its settings, asks its API with its key, and edits a file, as an agent does.
const STAND_IN: &str = r#"#!/usr/bin/env python3
import json, os, sys, urllib.request as u, urllib.error as e
home = os.path.expanduser('~')
print('theme', json.load(open(home + '/.claude/settings.json'))['theme'])
print('hooks', [name for name in ('slack', 'sig', 'docs') if name in open(home + '/.claude/settings.json').read()])
print('login', os.path.exists(home + '/.claude/.credentials.json'))
key = os.environ['ANTHROPIC_API_KEY']
print('stands in', key.startswith('fumehood-'))
request = u.Request('https://api.anthropic.com/v1/messages', data=b'{}', headers={'x-api-key': key, 'content-type': 'application/json'})
answer = u.urlopen(request, timeout=20).read().decode()
print('answer', answer, key in answer)
try: u.urlopen('https://elsewhere.invalid/', timeout=9)
except e.URLError: print('elsewhere closed')
open(home + '/.claude/settings.json', 'w').write('changed')
open('made.txt', 'w').write('made\n')
print('args', sys.argv[1:])
"#;

/// An API that says back the key that it was sent in this header, and what it was sent.
fn api(host: &str, header: &'static str) -> (u16, String, Arc<Mutex<Vec<String>>>) {
    let sent = Arc::<Mutex<Vec<String>>>::default();
    let all = Arc::clone(&sent);
    let (port, pem) = tls_server(host, move |mut stream: Tls| {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let named = |line: &str| line.to_lowercase().strip_prefix(header)?.strip_prefix(": ").map(str::to_owned);
        let key = head.lines().find_map(named);
        let body = key.unwrap_or_default();
        all.lock().unwrap().push(head);
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        drop(stream.write_all(answer.as_bytes()));
        drop(stream.flush());
    });
    (port, pem, sent)
}

fn install(fixture: &Fixture, name: &str, text: &str) {
    let bin = fixture.path("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::write(bin.join(name), text).unwrap();
    std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn fixture() -> Fixture {
    let fixture = Fixture::new();
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", fixture.path("bin").display());
    fixture.with("PATH", &path).with("ANTHROPIC_API_KEY", KEY)
}

/// Folders outside with what an agent of this fixture was given: the copy of its settings names the fixture.
fn left(fixture: &Fixture) -> Vec<std::path::PathBuf> {
    let home = fixture.dir.path().to_str().unwrap();
    let is_ours = |path: &std::path::PathBuf| {
        let copied = ["settings/.aider.conf.yml", "settings/.claude/settings.json"];
        path.to_string_lossy().contains("/fumehood-agent-")
            && copied.iter().any(|name| std::fs::read_to_string(path.join(name)).is_ok_and(|text| text.contains(home)))
    };
    std::fs::read_dir("/tmp").unwrap().flatten().map(|entry| entry.path()).filter(is_ours).collect()
}

#[test]
fn an_agent_works_with_its_key_outside_and_a_copy_of_its_settings() {
    let (fixture, (port, pem, sent)) = (fixture(), api("api.anthropic.com", "x-api-key"));
    install(&fixture, "claude", STAND_IN);
    std::fs::create_dir(fixture.path(".claude")).unwrap();
    let settings = fixture.path(".claude/settings.json");
    let home = fixture.dir.path().display();
    let hooks = r#""a":"https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX","b":"https://h.test/?sig=Zq83LmX0vTa7""#;
    let text = format!(
        "{{\"theme\":\"dark\",\"home\":\"{home}\",\"apiKeyHelper\":\"cat ~/key\",{hooks},\"c\":\"https://docs.h.test/x\"}}"
    );
    std::fs::write(&settings, text).unwrap();
    std::fs::write(fixture.path(".claude/.credentials.json"), KEY).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("corp.pem"), pem).unwrap();
    let ca = format!("net.ca=[\"{}\"]", folder.path().join("corp.pem").display());
    let rule = format!("net.allow=[{{ host = \"api.anthropic.com\", ports = [443], address = \"127.0.0.1:{port}\" }}]");
    let said =
        fixture.run(&["agent", "--json", "--memory", "512M", "--set", &rule, "--set", &ca, "claude", "-p", "do it"]);
    assert_eq!(said.code, 0, "{said:?}");
    let report = said.json();
    let stars = "*".repeat(KEY.len());
    let wanted = format!(
        "theme dark\nhooks ['docs']\nlogin False\nstands in True\nanswer {stars} False\nelsewhere closed\nargs ['-p', 'do it']\n"
    );
    assert_eq!(report["stdout"], wanted, "{report}");
    assert!(sent.lock().unwrap()[0].to_lowercase().contains(&format!("x-api-key: {KEY}\r\n")), "{sent:?}");
    assert!(!format!("{said:?}").contains(KEY), "{said:?}");
    assert!(std::fs::read_to_string(&settings).unwrap().contains("dark"), "the caller's own settings stay");
    assert!(!fixture.path("work/made.txt").exists(), "what it changes waits");
    let diff = fixture.run(&["diff"]);
    assert!(diff.code == 1 && diff.out.contains("made.txt"), "{diff:?}");
    assert_eq!(fixture.run(&["apply"]).code, 0);
    assert!(fixture.path("work/made.txt").exists());
    assert_eq!(left(&fixture), Vec::<std::path::PathBuf>::new(), "the copy is gone");
}

/// Asks its API as the others do, with the key that it was given, and says what came of it.
const OTHERS: &str = r#"#!/usr/bin/env python3
import os, sys, urllib.request as u, urllib.error as e
host, header, form, variable = HOW
key = os.environ[variable]
request = u.Request('https://' + host + '/v1/x', data=b'{}', headers={header: form.replace('{}', key)})
answer = u.urlopen(request, timeout=20).read().decode()
print(key.startswith('fumehood-'), '***' in answer, key in answer)
try: u.urlopen('https://api.anthropic.com/', timeout=9)
except e.URLError: print('another vendor is closed')
"#;

#[test]
fn each_agent_asks_its_own_api_with_a_key_that_is_not_inside() {
    for (agent, host, header, form, variable) in [
        ("gemini", "generativelanguage.googleapis.com", "x-goog-api-key", "{}", "GEMINI_API_KEY"),
        ("aider", "api.openai.com", "authorization", "Bearer {}", "OPENAI_API_KEY"),
        ("codex", "api.openai.com", "authorization", "Bearer {}", "OPENAI_API_KEY"),
        ("opencode", "generativelanguage.googleapis.com", "x-goog-api-key", "{}", "GOOGLE_GENERATIVE_AI_API_KEY"),
    ] {
        let (port, pem, sent) = api(host, header);
        let fixture = Fixture::new();
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", fixture.path("bin").display());
        let fixture = fixture.with("PATH", &path).with(variable, KEY);
        let how = format!("HOW = {:?}\nhost, header", (host, header, form, variable));
        install(
            &fixture,
            agent,
            &OTHERS.replace("host, header, form, variable = HOW", &format!("{how}, form, variable = HOW")),
        );
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("corp.pem"), pem).unwrap();
        let ca = format!("net.ca=[\"{}\"]", folder.path().join("corp.pem").display());
        let rule = format!("net.allow=[{{ host = \"{host}\", ports = [443], address = \"127.0.0.1:{port}\" }}]");
        let said = fixture.run(&["agent", "--json", "--memory", "512M", "--set", &rule, "--set", &ca, agent]);
        assert_eq!(said.code, 0, "{agent}: {said:?}");
        let report = said.json();
        assert_eq!(report["stdout"], "True True False\nanother vendor is closed\n", "{agent}: {report}");
        assert_eq!(report["secrets"].as_object().unwrap().values().collect::<Vec<_>>(), [1], "{agent}: {report}");
        let wanted = format!("{header}: {}", form.replace("{}", KEY)).to_lowercase();
        assert!(sent.lock().unwrap()[0].to_lowercase().contains(&wanted), "{agent}: {sent:?}");
        assert!(!format!("{said:?}").contains(KEY), "{agent}: {said:?}");
    }
}

/// What an agent was given lies outside in a folder; who is killed leaves it, and the next start takes it away.
#[test]
fn what_a_killed_agent_leaves_the_next_start_takes_away() {
    let fixture = fixture();
    install(&fixture, "aider", "#!/bin/sh\nexec sleep 60\n");
    std::fs::write(fixture.path(".aider.conf.yml"), format!("# {}\n", fixture.dir.path().display())).unwrap();
    let mut agent = fixture.command(&["agent", "--memory", "512M", "aider"]);
    let mut agent = agent.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let begun = std::time::Instant::now();
    while left(&fixture).is_empty() {
        assert!(begun.elapsed().as_secs() < 30, "no folder was made");
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert_eq!(left(&fixture).len(), 1);
    let said = fixture.run(&["run", "-q", "--", "true"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(left(&fixture), Vec::<std::path::PathBuf>::new());
}

#[test]
fn without_a_key_it_is_said_and_without_the_agent_it_is_refused() {
    let fixture = Fixture::new();
    let said = fixture.run(&["agent", "codex"]);
    assert!(said.code == 126 && said.err.contains("npm install -g @openai/codex"), "{said:?}");
    let unknown = fixture.run(&["agent", "claud"]);
    assert!(unknown.code == 125 && unknown.err.contains("fumehood agent claude"), "{unknown:?}");
    let listed = fixture.run(&["agent", "ls", "--json"]);
    assert!(listed.code == 0 || listed.code == 125, "{listed:?}");
    let fixture = super::agents::fixture();
    install(&fixture, "aider", "#!/bin/sh\necho \"${OPENAI_API_KEY-none} $1\"\n");
    let said = fixture.run(&["agent", "--no-key", "--memory", "512M", "aider", "--", "--version"]);
    assert_eq!((said.code, said.out.as_str()), (0, "none --version\n"), "{said:?}");
    let listed = fixture.run(&["agent", "--json", "ls"]).json();
    let aider = &listed["agents"][0];
    assert!(aider["name"] == "aider" && aider["program"].as_str().unwrap().ends_with("bin/aider"), "{listed}");
    let fixture = Fixture::new().with("PATH", &format!("{}:/usr/bin:/bin", fixture.path("bin").display()));
    let said = fixture.run(&["agent", "--memory", "512M", "aider"]);
    let told = ["has no key", "ANTHROPIC_API_KEY or OPENAI_API_KEY", "fumehood agent aider", "--no-key"];
    assert!(said.code == 126 && told.iter().all(|one| said.err.contains(one)), "{said:?}");
    for own in [["--no-key", "--memory=512M"], ["--set=limits.memory=512M", "--set=limits.pids=64"]] {
        let said = fixture.run(&[&["agent"], &own[..], &["aider"]].concat());
        assert!(said.code == 0 && said.err.contains("has no key"), "{said:?}");
    }
    // A login that is there is named, and not copied.
    let fixture = Fixture::new();
    let path = format!("{}:/usr/bin:/bin", fixture.path("bin").display());
    let fixture = fixture.with("PATH", &path);
    install(&fixture, "claude", "#!/bin/sh\nls -A \"$HOME/.claude\"\n");
    std::fs::create_dir_all(fixture.path(".claude")).unwrap();
    std::fs::write(fixture.path(".claude/.credentials.json"), "{}").unwrap();
    let said = fixture.run(&["agent", "claude"]);
    assert!(said.code == 126 && said.err.contains("`~/.claude/.credentials.json` is not copied"), "{said:?}");
    let said = fixture.run(&["agent", "--no-key", "--memory", "512M", "claude"]);
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{said:?}");
}

/// What its settings say it can read: a secret whose file is among them would be inside.
#[test]
fn a_secrets_file_among_the_settings_is_refused() {
    let fixture = fixture();
    install(&fixture, "claude", "#!/bin/sh\necho began\n");
    std::fs::create_dir_all(fixture.path(".claude")).unwrap();
    for (name, code) in [(".claude/note.md", 126), ("elsewhere", 0)] {
        std::fs::write(fixture.path(name), "canary-0123456789\n").unwrap();
        let from = fixture.path(name);
        let secret = format!(
            "secrets.x={{ from = \"file:{}\", hosts = [\"h.test\"], as = {{ header = \"Authorization\" }} }}",
            from.display()
        );
        let rule = "net.allow=[{ host = \"api.anthropic.com\", ports = [443] }, { host = \"h.test\", ports = [443] }]";
        let said = fixture.run(&["agent", "--memory", "512M", "--set", rule, "--set", &secret, "claude"]);
        assert_eq!(said.code, code, "{name}: {said:?}");
        assert_eq!(said.out.contains("began"), code == 0, "{name}: {said:?}");
        assert!(code == 0 || said.err.contains("lies in `$DIR/.claude`"), "{name}: {said:?}");
    }
}

/// A repository behind git's own server; answers one request of a connection.
#[expect(clippy::disallowed_methods, reason = "git's own server is a program")]
fn git(root: &Path, mut stream: Tls) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let field = |name: &str| {
        let line =
            head.lines().find_map(|line| line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name)));
        line.map(|(_, value)| value.to_owned()).unwrap_or_default()
    };
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut body = vec![0; field("content-length").parse().unwrap_or(0)];
    stream.read_exact(&mut body).unwrap();
    let mut served = std::process::Command::new("git");
    served.arg("http-backend").env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("GIT_HTTP_EXPORT_ALL", "1");
    served
        .env("GIT_PROJECT_ROOT", root)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("REQUEST_METHOD", method);
    served.env("CONTENT_TYPE", field("content-type")).env("HTTP_CONTENT_ENCODING", field("content-encoding"));
    served.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "safe.directory").env("GIT_CONFIG_VALUE_0", "*");
    served.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut served = served.spawn().unwrap();
    served.stdin.take().unwrap().write_all(&body).unwrap();
    let said = served.wait_with_output().unwrap().stdout;
    let end = said.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
    let (fields, body) = (String::from_utf8_lossy(&said[..end]), &said[end + 4..]);
    let status = fields.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
    let head = format!("HTTP/1.1 {status}\r\n{fields}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    drop(stream.write_all(&[head.as_bytes(), body].concat()));
    drop(stream.flush());
}

/// Clones, commits and pushes.
const PUSHES: &str = "#!/bin/sh
cd /tmp && git clone -q https://github.com/a/kept k && cd k && echo fetched
git -c user.name=a -c user.email=a@b commit -q --allow-empty -m \"$1\"
git push -q origin HEAD:main && echo pushed || echo refused
";

/// An agent reads from GitHub as it likes; what it pushes waits for a person, and goes nowhere when that says no.
#[test]
#[expect(clippy::disallowed_methods, reason = "a repository is made by git itself")]
fn a_push_waits_for_a_person() {
    let (fixture, folder) = (fixture(), tempfile::tempdir().unwrap());
    let run = |words: &[&str]| {
        let mut git = std::process::Command::new("git");
        git.args(words).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_COUNT", "0");
        let said = git.output().unwrap();
        assert!(said.status.success(), "{words:?}: {said:?}");
        String::from_utf8(said.stdout).unwrap()
    };
    let (bare, seed) = (folder.path().join("a/kept"), folder.path().join("seed"));
    let (bare, seed) = (bare.to_str().unwrap(), seed.to_str().unwrap());
    run(&["init", "-q", "--bare", "-b", "main", bare]);
    run(&["-C", bare, "config", "http.receivepack", "true"]);
    run(&["init", "-q", "-b", "main", seed]);
    run(&["-C", seed, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first"]);
    run(&["-C", seed, "push", "-q", bare, "main"]);
    let root = folder.path().to_owned();
    let (port, pem) = tls_server("github.com", move |stream| git(&root, stream));
    std::fs::write(folder.path().join("corp.pem"), pem).unwrap();
    install(&fixture, "aider", PUSHES);
    let ca = format!("net.ca=[\"{}\"]", folder.path().join("corp.pem").display());
    // The rules of the presets `github-read` and `github-push`, with where the name is in this test.
    let rule =
        |what: &str| format!("{{ host = \"github.com\", ports = [443], address = \"127.0.0.1:{port}\", {what} }}");
    let rules = [
        "methods = [\"GET\", \"HEAD\"]",
        "methods = [\"POST\"], paths = [\"/*/*/git-upload-pack\"]",
        "methods = [\"POST\"], paths = [\"/*/*/git-receive-pack\"], decision = \"ask\"",
    ];
    let pin = format!("net.allow=[{}]", rules.map(rule).join(", "));
    let push = |message: &str, answer: &[&str]| {
        let ours = ["--set", "net.presets=[]", "--set", &pin, "--set", &ca];
        let flags = [&["agent", "--json", "--memory", "512M"][..], &ours, &["aider", message]].concat();
        let mut child = fixture.command(&flags);
        let child = child.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
        let asked = question(&fixture, "github.com");
        let shown = (asked["tool"].as_str(), asked["method"].as_str(), asked["path"].as_str());
        assert_eq!(shown, (Some("net:request"), Some("POST"), Some("/a/kept/git-receive-pack")), "{asked}");
        assert_eq!(run(&["-C", bare, "log", "--format=%s", "main"]).matches(message).count(), 0, "it waits");
        let words = [&["approvals", answer[0], asked["id"].as_str().unwrap()], &answer[1..]].concat();
        assert_eq!(fixture.run(&words).code, 0);
        fixture.said(&child.wait_with_output().unwrap()).json()
    };
    let report = push("agreed", &["approve"]);
    assert_eq!(report["stdout"], "fetched\npushed\n", "{report}");
    let report = push("against", &["deny", "--why", "not today"]);
    assert_eq!(report["stdout"], "fetched\nrefused\n", "{report}");
    assert!(report["stderr"].as_str().unwrap().contains("403"), "{report}");
    let told = report["violations"].as_array().unwrap().iter().find(|one| one["id"] == "net.allow/answered");
    assert_eq!(told.unwrap()["clause"], "net.allow", "{report}");
    assert_eq!(run(&["-C", bare, "log", "--format=%s", "main"]), "agreed\nfirst\n");
    let all = fixture.run(&["approvals", "ls", "--all", "--json"]).json();
    assert_eq!(all["calls"].as_array().unwrap().len(), 2, "nothing else is asked: {all}");
    assert!(fixture.run(&["audit", "show", "--net", "--json"]).out.contains("git-receive-pack"));
}
