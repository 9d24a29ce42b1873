//! Secrets, end to end: read outside, used outside, and nothing of them inside, in what is printed or in what is kept.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::Fixture;

pub(crate) const VALUE: &str = "canary-0123456789abcdef";

/// What the server was sent.
pub(crate) type Sent = Arc<Mutex<Vec<String>>>;

/// A server of HTTP/1.1 on the machine's own loopback that says back what it is asked; its port.
pub(crate) fn echoing() -> (u16, Sent) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, sent) = (listener.local_addr().unwrap().port(), Sent::default());
    let all = Arc::clone(&sent);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let all = Arc::clone(&all);
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                    head.push(byte[0]);
                }
                let head = String::from_utf8(head).unwrap();
                let answer =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{head}", head.len());
                all.lock().unwrap().push(head);
                drop(stream.write_all(answer.as_bytes()));
            });
        }
    });
    (port, sent)
}

/// Flags of a policy with one secret for `served.test`, port 80, and what stands after it in its table.
fn flags(port: u16, from: &str, more: &str) -> Vec<String> {
    let rule = |host: &str| format!("{{ host = \"{host}\", ports = [80], address = \"127.0.0.1:{port}\" }}");
    let rules = format!("net.allow=[{}, {}]", rule("served.test"), rule("other.test"));
    let secret = format!("secrets={{ api = {{ from = \"{from}\", hosts = [\"served.test\"], ports = [80]{more} }} }}");
    let sets = ["net.mode=allow", &rules, &secret, "syscalls.profile=default", "limits.memory=512M"];
    sets.into_iter().flat_map(|set| ["--set".to_owned(), set.to_owned()]).collect()
}

fn run(fixture: &Fixture, first: &[&str], flags: &[String], last: &[&str]) -> super::CommandOutput {
    let own = |list: &[&str]| list.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    fixture.run(&[own(first), flags.to_vec(), own(last)].concat())
}

/// Calls `look(what, data)` for what a program inside can read of itself and others: environment, arguments, files.
pub(super) const READ_ALL: &str = "
import glob, os
for name in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline'):
    try: look(name, open(name, 'rb').read())
    except OSError: pass
for top in ['/tmp', '/run', '/home', '/etc', '/dev/shm', '/var']:
    for folder, _, files in os.walk(top):
        for name in files:
            path = os.path.join(folder, name)
            try:
                if os.path.isfile(path) and os.path.getsize(path) < 1 << 22: look(path, open(path, 'rb').read())
            except OSError: pass
";

/// Looks for the value in all of that, and in memory. The pattern does not fit itself.
fn scan() -> String {
    format!("{LOOK}{READ_ALL}{MEMORY}")
}

const LOOK: &str = "
import re
form = re.compile(rb'canary-[0-9a-f]{16}')
found = set()
def look(what, data):
    if form.search(data): found.add(what)";

const MEMORY: &str = "
for maps in glob.glob('/proc/[0-9]*/maps'):
    try:
        with open(maps) as lines, open(maps[:-4] + 'mem', 'rb', 0) as memory:
            for line in lines:
                if 'r' not in line.split()[1] or '[v' in line: continue
                first, last = (int(part, 16) for part in line.split()[0].split('-'))
                if last - first > 1 << 26: continue
                try:
                    memory.seek(first); look(maps, memory.read(last - first))
                except (OSError, ValueError, OverflowError): pass
    except OSError: pass
";

/// Asks `served.test` and `other.test`, says back the token's variable and the answers, then looks for the value.
const ASK: &str = "
import os, urllib.request as u
token = os.environ['TOKEN']
print('stands in' if token.startswith('fumehood-') and len(token) == 41 else 'odd')
for host in ['served.test', 'other.test']:
    request = u.Request('http://%s/x' % host, headers={'Authorization': 'Bearer ' + token})
    body = u.urlopen(request, timeout=9).read().decode()
    print('Bearer ***' in body, token in body)
";

#[test]
fn a_secret_is_used_outside_and_is_nowhere_inside() {
    let (fixture, (port, sent)) = (Fixture::new().with("API_TOKEN", VALUE), echoing());
    let flags = flags(port, "env:API_TOKEN", ", env = \"TOKEN\"");
    let code = format!("{ASK}{}\nprint(sorted(found))", scan());
    let said = run(&fixture, &["run", "--json"], &flags, &["--", "python3", "-c", &code]);
    let report = said.json();
    assert_eq!(report["stdout"], "stands in\nTrue False\nFalse True\n[]\n", "{report}");
    let got = sent.lock().unwrap().clone();
    assert!(got[0].contains(&format!("uthorization: Bearer {VALUE}\r\n")), "{got:?}");
    assert!(!got[1].contains("canary") && got[1].contains("Bearer fumehood-"), "{got:?}");
    // Neither what is printed nor what is kept has it.
    assert!(!format!("{said:?}").contains(VALUE), "{said:?}");
    assert_eq!(keeping(&fixture.state()), Vec::<String>::new());
    let plan = run(&fixture, &["plan", "--json"], &flags, &["--", "true"]);
    let clauses = plan.json()["clauses"].as_array().unwrap().clone();
    let clause = clauses.iter().find(|one| one["clause"] == "secrets").unwrap();
    assert!(clause.to_string().contains("broker:secrets") && !plan.out.contains(VALUE), "{plan:?}");
    // The scan finds it where it is: given by `env.set`.
    let code = format!("{}\nprint(len(found) > 1)", scan());
    let shown =
        fixture.run(&["run", "-q", "--set", &format!("env.set={{X=\"{VALUE}\"}}"), "--", "python3", "-c", &code]);
    assert_eq!((shown.code, shown.out.as_str()), (0, "True\n"), "{shown:?}");
}

/// Files below a folder in which the value is.
fn keeping(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            found.extend(keeping(&path));
        } else if std::fs::read(&path).is_ok_and(|bytes| bytes.windows(VALUE.len()).any(|w| w == VALUE.as_bytes())) {
            found.push(path.display().to_string());
        }
    }
    found
}

#[test]
fn files_and_commands_are_sources_too_also_of_a_live_sandbox() {
    let (fixture, (port, sent)) = (Fixture::new().with("PATH", "/usr/bin:/bin").with("API_TOKEN", VALUE), echoing());
    std::fs::write(fixture.path("token"), format!("{VALUE}\n")).unwrap();
    let file = format!("file:{}", fixture.path("token").display());
    let ask = "import urllib.request as u; print('***' in u.urlopen('http://served.test/', timeout=9).read().decode())";
    for from in [file.as_str(), &format!("command:cat {}", fixture.path("token").display())] {
        sent.lock().unwrap().clear();
        let said = run(&fixture, &["run", "-q"], &flags(port, from, ""), &["--", "python3", "-c", ask]);
        assert_eq!((said.code, said.out.as_str()), (0, "True\n"), "{from}: {said:?}");
        assert!(sent.lock().unwrap()[0].contains(VALUE), "{from}");
    }
    let created = run(&fixture, &["create"], &flags(port, "env:API_TOKEN", ", env = \"TOKEN\""), &[]);
    assert_eq!(created.code, 0, "{created:?}");
    let id = created.out.trim_end();
    let code = format!("{ASK}{}\nprint(sorted(found))", scan());
    sent.lock().unwrap().clear();
    let said = fixture.run(&["exec", id, "--", "python3", "-c", &code]);
    assert_eq!(said.out, "stands in\nTrue False\nFalse True\n[]\n", "{said:?}");
    assert!(sent.lock().unwrap()[0].contains(VALUE));
    assert_eq!(keeping(&fixture.state()), Vec::<String>::new());
    assert_eq!(fixture.run(&["kill", id]).code, 0);
}

#[test]
fn a_secret_that_cannot_be_read_or_used_is_refused_by_its_name() {
    let fixture = Fixture::new().with("PATH", "/usr/bin:/bin").with("EMPTY", "").with("SHORT", "canary");
    let fixture = fixture.with("LINES", &format!("{VALUE}\n{VALUE}"));
    std::fs::write(fixture.path("work/token"), VALUE).unwrap();
    let below = fixture.path("work/token").display().to_string();
    let folder = fixture.path("work").display().to_string();
    // Its other name is inside.
    std::fs::write(fixture.path("linked"), VALUE).unwrap();
    std::fs::hard_link(fixture.path("linked"), fixture.path("work/linked")).unwrap();
    let linked = fixture.path("linked").display().to_string();
    for (from, why) in [
        ("env:UNSET", "is not set"),
        ("env:EMPTY", "is empty"),
        ("env:SHORT", "is shorter than 8 bytes"),
        ("env:LINES", "has more than one line"),
        (&format!("file:{below}-none"), "cannot be read"),
        (&format!("file:{folder}"), "which the policy shows inside"),
        (&format!("file:{below}"), "which the policy shows inside"),
        (&format!("file:{linked}"), "has 2 names (hard links)"),
        ("file:/dev/null", "is no regular file"),
        ("command:false", "which failed"),
        ("command:no-such-program-here", "which is not found"),
        ("command:true", "is empty"),
    ] {
        let said = run(&fixture, &["run", "-q", "-w", "."], &flags(1, from, ""), &["--", "true"]);
        assert_eq!(said.code, 126, "{from}: {said:?}");
        assert!(said.err.contains("`secrets.api` cannot be used") && said.err.contains(why), "{from}: {said:?}");
        assert!(said.err.contains("fix: ") && !said.err.contains("canary"), "{from}: {said:?}");
        // A plan reads nothing.
        let plan = run(&fixture, &["plan", "-w", "."], &flags(1, from, ""), &["--", "true"]);
        assert_eq!(plan.code, 0, "{from}: {plan:?}");
    }
    assert_eq!(keeping(&fixture.state()), Vec::<String>::new());
    // What a policy says that would bring one inside, or could not be held.
    let set = |more: &str| [flags(1, "env:SHORT", more), vec!["--set".into(), "env.pass=[\"SHORT\"]".into()]].concat();
    for (flags, id) in [
        (set(""), "`SHORT` is the source of `secrets.api`"),
        (flags(1, "env:UNSET", ", env = \"A\""), ""),
        (flags(1, "env:UNSET", ", as = \"placeholder\""), "secrets/no-placeholder"),
    ] {
        let plan = run(&fixture, &["plan"], &flags, &["--", "true"]);
        let refused = !id.is_empty();
        assert_eq!(plan.code == 126, refused, "{id}: {plan:?}");
        assert!(format!("{plan:?}").contains(id), "{id}: {plan:?}");
    }
}
