//! Hosts by name, end to end: programs that know of no proxy, servers of this machine pinned by `address`, and the broker
//! between them.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;

use super::Fixture;

pub(super) const BODY: &str = "served by name";

/// A server of HTTP/1.1 on the machine's own loopback, for as long as the test process lives; its port.
pub(super) fn served() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                answer(stream.unwrap());
            });
        }
    });
    port
}

/// Answers one request.
pub(super) fn answer(mut stream: impl std::io::Read + std::io::Write) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        head.push(byte[0]);
    }
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{BODY}", BODY.len());
    drop(stream.write_all(answer.as_bytes()));
    drop(stream.flush());
}

/// Flags by which `served.test`, port 80, is that server.
pub(super) fn flags(port: u16) -> Vec<String> {
    let rule = format!("net.allow=[{{ host = \"served.test\", ports = [80], address = \"127.0.0.1:{port}\" }}]");
    ["--set", "net.mode=allow", "--set", &rule, "--set", "syscalls.profile=default", "--memory", "512M"]
        .map(str::to_owned)
        .to_vec()
}

pub(super) fn words(first: &[&str], flags: &[String], last: &[&str]) -> Vec<String> {
    let own = |list: &[&str]| list.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    [own(first), flags.to_vec(), own(last)].concat()
}

#[test]
fn clients_without_a_proxy_reach_the_named_host_and_no_other() {
    let (fixture, flags) = (Fixture::new(), flags(served()));
    let python = "import urllib.request as u; print(u.urlopen('http://served.test/x', timeout=9).read().decode())";
    let clients: [&[&str]; 3] =
        [&["python3", "-c", python], &["curl", "-sS", "http://served.test/"], &["wget", "-qO-", "http://served.test/"]];
    let there = |name: &str| ["/usr/bin", "/bin"].iter().any(|folder| Path::new(folder).join(name).exists());
    let mut tried = 0;
    for client in clients.into_iter().filter(|client| there(client[0])) {
        let said = fixture.run(&words(&["run", "-q"], &flags, &[&["--"], client].concat()));
        assert_eq!((said.code, said.out.trim_end()), (0, BODY), "{client:?}: {said:?}");
        tried += 1;
    }
    assert!(tried > 0, "no client is installed");
    let code = "
import socket
for to in [('other.test', 80), ('192.0.2.1', 80), ('169.254.169.254', 80), ('127.0.0.1', 80), ('::1', 80), ('served.test', 443)]:
    try: socket.create_connection(to, 9).recv(1); print('reached', to)
    except OSError as error: pass
try: socket.socket(2, 2, 1); print('ping')
except OSError: pass
print('done')";
    let said = fixture.run(&words(&["run", "--json"], &flags, &["--", "python3", "-c", code]));
    let report = said.json();
    assert_eq!(report["stdout"], "done\n", "{report}");
    let ids: Vec<&str> =
        report["violations"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    for id in ["net.allow/unknown-name", "net.allow/unknown-address"] {
        assert!(ids.contains(&id), "{id} in {report}");
    }
    assert!(report["violations"].as_array().unwrap().iter().any(|one| one["seen"] == "broker"), "{report}");
    // An address that was never handed out is told with the program that connected to it, and nothing else is.
    let python = std::fs::canonicalize("/usr/bin/python3").unwrap();
    for one in report["violations"].as_array().unwrap() {
        let by = (one["id"] == "net.allow/unknown-address").then(|| python.to_str().unwrap());
        assert_eq!(one["program"].as_str(), by, "{report}");
    }
    let used = &report["usage"]["net"];
    assert!(
        used["connections"] == 0 && used["lookups"].as_u64() > Some(0) && used["denied"].as_u64() > Some(1),
        "{report}"
    );
    let shown = fixture.run(&["audit", "show", "--net"]);
    assert!(shown.out.contains("egress.denied") && !shown.out.contains("run.planned"), "{shown:?}");
    assert_eq!(fixture.run(&["audit", "verify"]).code, 0);
}

#[test]
fn the_login_of_a_proxy_is_told_nowhere() {
    let fixture = Fixture::new();
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let by = format!("net.proxy=http://us-er:pass-word@127.0.0.1:{}", proxy.local_addr().unwrap().port());
    let asked = std::thread::spawn(move || {
        let mut stream = proxy.accept().unwrap().0;
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
            head.push(byte[0]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        answer(stream);
        String::from_utf8(head).unwrap()
    });
    let flags = ["--set", "net.mode=allow", "--set", "net.allow=[\"only.test:80\"]", "--set", &by, "--set"];
    let flags = words(&flags, &["syscalls.profile=default".to_owned()], &["--memory", "512M"]);
    let python = "import urllib.request as u; print(u.urlopen('http://only.test/', timeout=9).read().decode())";
    let ran = fixture.run(&words(&["run", "--json"], &flags, &["--", "python3", "-c", python]));
    assert_eq!(ran.json()["stdout"], format!("{BODY}\n"), "{ran:?}");
    // It was sent, so that what follows could have shown it.
    assert!(asked.join().unwrap().contains("Proxy-Authorization: Basic dXMtZXI6cGFzcy13b3Jk\r\n"));
    let planned = fixture.run(&words(&["plan"], &flags, &["--", "true"]));
    assert!(planned.out.contains("http://***@127.0.0.1:"), "{planned:?}");
    assert!(planned.out.contains("a name leads where the proxy resolves it to"), "{planned:?}");
    let checked = fixture.run(&words(&["net", "check"], &flags[..flags.len() - 2], &["http://only.test/"]));
    assert!(checked.code == 0 && checked.out.contains("by the proxy http://127.0.0.1:"), "{checked:?}");
    let pinned = "net.allow=[{ host = \"only.test\", address = \"127.0.0.1:1\" }]";
    let pinned = fixture.run(&["net", "check", "--set", "net.mode=allow", "--set", pinned, "--set", &by, "only.test"]);
    assert!(pinned.code == 0 && !pinned.out.contains("proxy"), "{pinned:?}");
    let shown = fixture.run(&words(&["policy", "show"], &flags[..flags.len() - 2], &[]));
    let audit = fixture.run(&["audit", "show"]);
    let wrong = fixture.run(&["policy", "show", "--set", &format!("{by}x")]);
    assert_eq!(wrong.code, 126, "{wrong:?}");
    for said in [ran, planned, checked, shown, audit, wrong] {
        let all = format!("{said:?}");
        assert!(!all.contains("pass-word") && !all.contains("cGFzcy13b3Jk"), "{all}");
    }
}

/// Processes that are brokers now.
fn brokers() -> Vec<i32> {
    let pid = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let is =
        |pid: &i32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words == b"fumehood\0__broker\0");
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(pid).filter(is).collect()
}

/// The broker of a run; tests run beside this one: ours is below our child.
fn broker_of(child: &std::process::Child) -> i32 {
    let ours = |pid: &i32| {
        let parent = |pid: i32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<i32>().ok()
        };
        std::iter::successors(Some(*pid), |pid| parent(*pid)).any(|pid| u32::try_from(pid) == Ok(child.id()))
    };
    brokers().into_iter().find(ours).unwrap()
}

/// The files of the control group of a process that say how much memory it may have, and has; none where it has no such group.
fn memory_of(pid: i32) -> Option<[std::path::PathBuf; 2]> {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let found = groups.lines().find_map(|line| {
        let (of, path) = line.split_once(':')?.1.split_once(':')?;
        let path = path.trim_start_matches('/').to_owned();
        let names = |root: &str, names: [&str; 2]| Some(names.map(|name| Path::new(root).join(&path).join(name)));
        match of {
            "memory" => names("/sys/fs/cgroup/memory", ["memory.limit_in_bytes", "memory.usage_in_bytes"]),
            "" => names("/sys/fs/cgroup", ["memory.max", "memory.current"]).filter(|files| files[0].exists()),
            _ => None,
        }
    });
    found.filter(|files| std::fs::read_to_string(&files[0]).is_ok_and(|limit| limit.trim() == "268435456"))
}

#[test]
fn a_broker_that_is_exhausted_takes_the_network_along_and_is_told_of() {
    let (fixture, flags) = (Fixture::new(), flags(served()));
    let flags = words(&["--set", "limits.open_files=4096"], &flags, &[]);
    let code = "
import socket, sys, time
held = []
def head():
    s = socket.create_connection(('served.test', 80), 9); held.append(s); s.settimeout(9)
    s.sendall(b'GET / HTTP/1.1\\r\\nHost: served.test\\r\\nX-Long: ' + b'a' * 40000)
head(); print('reached', flush=True); sys.stdin.readline()
try:
    for _ in range(1400): head()
except OSError: pass
end = time.monotonic() + 30
while time.monotonic() < end:
    try: socket.create_connection(('198.18.0.1', 53), 9).close()
    except ConnectionRefusedError: print('refused', flush=True); time.sleep(0.5); sys.exit(7)
    except OSError: pass
    time.sleep(0.05)
print('still there', len(held))";
    let mut child = fixture
        .command(&words(&["run", "--report", "r.json"], &flags, &["--", "python3", "-c", code]))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "reached\n");
    let group = memory_of(broker_of(&child));
    let root = rustix::process::geteuid().is_root();
    assert!(group.is_some() || !root || !Path::new("/sys/fs/cgroup/memory").exists(), "its group bounds its memory");
    // A program needs less to exhaust less; the kernel is the same.
    if let Some([limit, usage]) = &group {
        let used: u64 = std::fs::read_to_string(usage).unwrap().trim().parse().unwrap();
        std::fs::write(limit, (used + (4 << 20)).to_string()).unwrap();
    }
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    child.wait().unwrap();
    if group.is_none() {
        return println!("skip: no group bounds the broker's memory here");
    }
    assert_eq!(rest, "refused\n");
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(fixture.path("work/r.json")).unwrap()).unwrap();
    assert_eq!(report["outcome"]["code"], 7, "the run itself goes on: {report}");
    assert!(report["warnings"].to_string().contains("it needed more memory than 256M"), "{report}");
    assert!(fixture.run(&["audit", "show", "--net"]).out.contains("egress.ended"));
}

/// What a connection that is open sees, and then others, when the broker of a run with these flags gets this signal; and the run's
/// warnings.
fn after(signal: rustix::process::Signal, more: &[&str]) -> String {
    let (fixture, flags) = (Fixture::new(), words(more, &flags(served()), &[]));
    let code = "
import socket, sys, time
open_one = socket.create_connection(('served.test', 80), 9); open_one.settimeout(40); print('reached', flush=True)
try: print('open', open_one.recv(1))
except ConnectionError as error: print('open reset')
end = time.monotonic() + 20
while time.monotonic() < end:
    try: socket.create_connection(('198.18.0.1', 53), 9).close()
    except ConnectionRefusedError: break
    except OSError: pass
    time.sleep(0.05)
names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); names.settimeout(9)
try: names.connect(('198.18.0.1', 53)); names.send(b'a' * 30); names.recv(1)
except ConnectionRefusedError: print('refused', flush=True); time.sleep(0.5); sys.exit(7)";
    let mut child = fixture
        .command(&words(&["run", "--report", "r.json"], &flags, &["--", "python3", "-c", code]))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "reached\n");
    let pid = rustix::process::Pid::from_raw(broker_of(&child)).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    child.wait().unwrap();
    // An end would be taken for the whole.
    assert_eq!(rest, "open reset\nrefused\n");
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(fixture.path("work/r.json")).unwrap()).unwrap();
    assert_eq!(report["outcome"]["code"], 7, "the run itself goes on: {report}");
    assert!(report["warnings"].as_array().unwrap().iter().any(|one| one["clause"] == "net.mode"), "{report}");
    assert!(fixture.run(&["audit", "show", "--net"]).out.contains("egress.ended"));
    report["warnings"].to_string()
}

#[test]
fn a_broker_that_is_killed_takes_the_network_along_and_is_told_of() {
    after(rustix::process::Signal::KILL, &[]);
}

/// gVisor sends to another namespace, which lives on without the broker's sockets and refuses.
#[test]
fn without_a_broker_what_is_inside_gvisor_is_refused_and_does_not_hang() {
    let by = ["--tier=gvisor", "--set=backend=runsc"];
    let fixture = Fixture::new();
    let planned = fixture.run(&[&["plan"], &by[..], &["--", "true"]].concat());
    if planned.code != 0 {
        return println!("skip: no gvisor here: {}", planned.err);
    }
    after(rustix::process::Signal::KILL, &by);
}

/// It holds the sockets and answers nobody: programs would wait for ever.
#[test]
fn a_broker_that_is_stopped_is_ended_and_told_of() {
    let warnings = after(rustix::process::Signal::STOP, &[]);
    assert!(warnings.contains("it said nothing for 15 s"), "{warnings}");
}

#[test]
fn a_live_sandbox_reaches_its_hosts_until_it_ends_and_nothing_is_left() {
    let (fixture, flags) = (Fixture::new(), flags(served()));
    let created = fixture.run(&words(&["create"], &flags, &[]));
    let id = created.out.trim_end().to_owned();
    assert_eq!(created.code, 0, "{created:?}");
    let python = "import urllib.request as u; print(u.urlopen('http://served.test/x', timeout=9).read().decode())";
    for _ in 0..2 {
        let said = fixture.run(&["exec", &id, "--", "python3", "-c", python]);
        assert_eq!((said.code, said.out.trim_end()), (0, BODY), "{said:?}");
    }
    assert_eq!(fixture.run(&["kill", &id]).code, 0);
    assert!(std::fs::read_dir(fixture.state().join("runs")).unwrap().next().is_none(), "a journal is left");
}

/// A server that says a word and then nothing, until the other side is gone; its port.
fn silent() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                drop(stream.write_all(b"hello"));
                drop(stream.read(&mut [0]));
            });
        }
    });
    port
}

/// What begins as a sandbox is now begins under its rules as they are now: hosts, and with what asking them ends.
fn a_fork_begins_so(fixture: &Fixture, id: &str, asked: [(&str, i32); 2]) {
    let forked = fixture.run(&["fork", id]);
    assert_eq!(forked.code, 0, "{forked:?}");
    let fork = forked.out.trim_end();
    for (name, code) in asked {
        let ask = format!("import urllib.request as u; u.urlopen('http://{name}/x', timeout=9).read()");
        let said = fixture.run(&["exec", fork, "--", "python3", "-c", &ask]);
        assert_eq!(said.code, code, "{name}: {said:?}");
    }
    assert_eq!(fixture.run(&["kill", fork]).code, 0);
}

#[test]
fn rules_of_a_live_sandbox_are_replaced_and_what_no_longer_fits_is_cut() {
    let (fixture, web, quiet) = (Fixture::new(), served(), silent());
    let rule = |name: &str, port: u16, at: u16| {
        format!("{{ host = \"{name}\", ports = [{port}], address = \"127.0.0.1:{at}\" }}")
    };
    let allow = |rules: &[String]| vec!["--set".to_owned(), format!("net.allow=[{}]", rules.join(", "))];
    let both = [flags(web), allow(&[rule("served.test", 80, web), rule("quiet.test", 22, quiet)])].concat();
    let created = fixture.run(&words(&["create"], &both, &[]));
    assert_eq!(created.code, 0, "{created:?}");
    let id = created.out.trim_end().to_owned();
    let set = |flags: &[String]| fixture.run(&words(&["net", "set", "--set", "net.mode=allow"], flags, &[&id]));
    let fetch = |name: &str| {
        let code =
            format!("import urllib.request as u; print(u.urlopen('http://{name}/x', timeout=9).read().decode())");
        fixture.run(&["exec", &id, "--", "python3", "-c", &code])
    };
    assert_eq!(fetch("served.test").code, 0);
    assert_ne!(fetch("other.test").code, 0, "without the rule it is not reached");

    // One that holds a connection, told when it is cut.
    let code = "
import socket
s = socket.create_connection(('quiet.test', 22), 9); s.settimeout(30)
print(s.recv(5).decode(), flush=True)
try: print('end' if s.recv(1) == b'' else 'more')
except ConnectionResetError: print('end')
except TimeoutError: print('still open')";
    let mut child = fixture
        .command(&["exec", &id, "--", "python3", "-c", code])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "hello\n");

    // What cannot be held changes nothing: neither what is open nor what may be opened.
    for (bad, why) in [
        (allow(&[rule("served.test", 81, web)]), "port 81"),
        (allow(&["{ host = \"a.test\", ports = [443], methods = [\"GET\"] }".to_owned()]), "port 443"),
        // The run has no authority that programs inside would trust.
        (allow(&[rule("served.test", 80, web).replace(" }", ", methods = [\"GET\"] }")]), "TLS"),
        (["--set", "net.unknown=ask"].map(str::to_owned).to_vec(), "asked"),
        (["--set", "net.mode=loopback"].map(str::to_owned).to_vec(), "lo"),
        (["--set", "net.proxy=http://127.0.0.1:3128"].map(str::to_owned).to_vec(), "`net.proxy` is not as it was"),
        (["--set", "net.ca=[\"/etc/hostname\"]"].map(str::to_owned).to_vec(), "`net.ca` is not as it was"),
    ] {
        let said = set(&bad);
        assert!(said.code == 125 && said.err.contains(why), "{said:?}");
        assert!(said.err.contains("error: the rules of the network are as they were\n"), "{said:?}");
        super::net_live::is_refused_by_its_clause(&fixture, &bad, &id);
    }
    super::net_live::nothing_but_rules_is_taken(&fixture, &id);
    assert_eq!(fetch("served.test").code, 0);

    let other = set(&allow(&[rule("other.test", 80, web)]));
    assert!(other.code == 0 && other.out.trim_end().len() == 64, "{other:?}");
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(rest, "end\n", "what no longer fits is cut");
    assert_ne!(fetch("served.test").code, 0);
    let said = fetch("other.test");
    assert_eq!((said.code, said.out.trim_end()), (0, BODY), "{said:?}");
    a_fork_begins_so(&fixture, &id, [("served.test", 1), ("other.test", 0)]);
    let none = fixture.run(&["net", "set", "--net", "none", &id]);
    assert_eq!(none.code, 0, "{none:?}");
    assert_ne!(fetch("other.test").code, 0, "closed");

    assert_eq!(fixture.run(&["kill", &id]).code, 0);
    let shown = fixture.run(&["audit", "show", "--net"]).out;
    assert!(shown.contains("egress.rules"), "{shown}");
    let info = fixture.run(&["info", "--json", &id]).json();
    let told = info["report"]["warnings"].as_array().unwrap().iter().any(|one| one["clause"] == "net.allow");
    assert!(told, "{info}");
}

/// Where two programs have a connection nobody can say whose it is, and none is named.
#[test]
fn a_connection_of_two_programs_is_nobodys() {
    let (fixture, flags) = (Fixture::new(), flags(served()));
    let code = "
import socket, subprocess
s = socket.socket(); s.bind(('', 0))
# The other program has the socket before it is connected.
other = subprocess.Popen(['sleep', '60'], pass_fds=[s.fileno()])
s.connect(('192.0.2.1', 80))
try: s.recv(1)
except OSError: print('stopped')
other.kill()";
    let said = fixture.run(&words(&["run", "--json"], &flags, &["--", "python3", "-c", code]));
    let report = said.json();
    assert_eq!(report["stdout"], "stopped\n", "{report}");
    let found = report["violations"].as_array().unwrap().iter().find(|one| one["id"] == "net.allow/unknown-address");
    assert_eq!(found.unwrap()["program"], "unknown", "{report}");
    let code = "import socket\ntry: socket.create_connection(('192.0.2.1', 80), 9).recv(1)\nexcept OSError: pass";
    let said = fixture.run(&words(&["run"], &flags, &["--", "python3", "-c", code]));
    assert!(said.err.contains("connecting to 192.0.2.1:80 by /usr/"), "{said:?}");
}

/// The question about this host, once it waits.
#[expect(clippy::disallowed_methods, reason = "the store has no descriptor that a test could wait on")]
pub(super) fn question(fixture: &Fixture, host: &str) -> serde_json::Value {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let calls = fixture.run(&["approvals", "ls", "--json"]).json();
        if let Some(call) = calls["calls"].as_array().unwrap().iter().find(|call| call["host"] == host) {
            return call.clone();
        }
        assert!(std::time::Instant::now() < end, "nobody is asked about {host}: {calls}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn a_person_is_asked_about_a_host_that_no_rule_names() {
    let fixture = Fixture::new();
    let code = "
import socket, threading
def reach(name, times, port):
    for _ in range(times):
        try:
            s = socket.create_connection((name, port), 40); s.settimeout(40)
            s.sendall(f'GET / HTTP/1.1\\r\\nHost: {name}:{port}\\r\\n\\r\\n'.encode()); s.recv(1)
        except OSError: pass
all = [('no.invalid', 2, 443), ('yes.invalid', 2, 443), ('nobody.invalid', 1, 5432)]
tasks = [threading.Thread(target=reach, args=a) for a in all]
[t.start() for t in tasks]; [t.join() for t in tasks]";
    let flags =
        ["--set", "net.mode=allow", "--set", "net.unknown=ask", "--set", "syscalls.profile=default"].map(str::to_owned);
    let words = words(&["run", "--timeout", "60s", "--report", "r.json"], &flags, &["--", "python3", "-c", code]);
    let mut child = fixture.command(&words).spawn().unwrap();
    let (no, yes) = (question(&fixture, "no.invalid"), question(&fixture, "yes.invalid"));
    assert_eq!((&no["port"], &no["tool"]), (&serde_json::json!(443), &serde_json::json!("net:connect")));
    assert_eq!(question(&fixture, "nobody.invalid")["port"], 5432, "no port of the web, and none of a rule");
    let id = |call: &serde_json::Value| call["id"].as_str().unwrap().to_owned();
    let wide = fixture.run(&["approvals", "approve", &id(&yes), "--remember", "tool"]);
    assert_ne!(wide.code, 0, "a destination is its host and port: {wide:?}");
    assert_eq!(fixture.run(&["approvals", "deny", &id(&no)]).code, 0);
    let once = fixture.run(&["approvals", "approve", &id(&yes), "--remember", "session"]);
    assert_eq!(once.code, 0, "{once:?}");
    child.wait().unwrap();
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(fixture.path("work/r.json")).unwrap()).unwrap();
    let stopped: Vec<&str> = report["violations"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["id"] == "net.unknown/answered")
        .map(|one| one["what"].as_str().unwrap())
        .collect();
    for host in ["no.invalid", "nobody.invalid"] {
        assert!(stopped.iter().any(|what| what.contains(host)), "{host} in {report}");
    }
    assert!(!stopped.iter().any(|what| what.contains("yes.invalid")), "{report}");
    let all = fixture.run(&["approvals", "ls", "--all", "--json"]).json();
    let of = |host: &str| all["calls"].as_array().unwrap().iter().filter(|call| call["host"] == host).count();
    assert_eq!((of("yes.invalid"), of("no.invalid")), (1, 1), "an answer for the run asks no second time: {all}");
    assert!(fixture.run(&["audit", "show", "--net"]).out.contains("egress.asked"));
}

#[test]
fn a_sandbox_without_a_broker_takes_no_rules() {
    let fixture = Fixture::new();
    let id = fixture.run(&["create"]).out.trim_end().to_owned();
    let said = fixture.run(&["net", "set", "--allow-host", "example.org", &id]);
    assert!(said.code == 125 && said.err.contains("`net.mode` of sandbox"), "{said:?}");
    assert_eq!(fixture.run(&["kill", &id]).code, 0);
}

/// A rule with a method and a path holds for plain HTTP, request by request; `net check` says the same.
#[test]
fn methods_and_paths_hold_for_plain_http() {
    let (fixture, port) = (Fixture::new(), served());
    let narrow = format!(
        "net.allow=[{{ host = \"served.test\", ports = [80], address = \"127.0.0.1:{port}\", methods = [\"GET\"], paths = [\"/x/**\"] }}]"
    );
    let flags: Vec<String> =
        flags(port).into_iter().map(|one| if one.starts_with("net.allow") { narrow.clone() } else { one }).collect();
    let code = "
import urllib.request as u, urllib.error as e
for method, path in [('GET', '/x/y'), ('GET', '/y'), ('POST', '/x/y')]:
    try: print(u.urlopen(u.Request('http://served.test' + path, method=method), timeout=9).status)
    except e.HTTPError as error: print(error.code)";
    let said = fixture.run(&words(&["run", "--json"], &flags, &["--", "python3", "-c", code]));
    let report = said.json();
    assert_eq!(report["stdout"], "200\n403\n403\n", "{report}");
    for (word, code) in [("http://served.test/x/y", 0), ("http://served.test/y", 1), ("https://served.test:80/x/y", 0)]
    {
        let only: Vec<String> = vec!["--set".into(), "net.mode=allow".into(), "--set".into(), narrow.clone()];
        let checked = fixture.run(&words(&["net", "check"], &only, &[word]));
        assert_eq!(checked.code, code, "{word}: {checked:?}");
    }
}

/// What is stopped stands in the audit log while the sandbox lives, once for each kind; its end adds how often, where it was more.
#[test]
fn a_denial_is_recorded_when_it_happens() {
    let (fixture, flags) = (Fixture::new(), flags(served()));
    let created = fixture.run(&words(&["create"], &flags, &[]));
    let id = created.out.trim_end().to_owned();
    let look = |name: &str| {
        let code = format!("import socket\ntry: socket.gethostbyname('{name}')\nexcept OSError: print('stopped')");
        let said = fixture.run(&["exec", &id, "--", "python3", "-c", &code]);
        assert_eq!(said.out, "stopped\n", "{created:?} {said:?}");
    };
    let counts = |name: &str| -> Vec<u64> {
        let shown = fixture.run(&["audit", "show", "--net", "--json"]).json();
        let of = |event: &serde_json::Value| {
            let ours = event["kind"] == "egress.denied" && event["body"]["what"] == format!("looking up {name}");
            ours.then(|| event["body"]["count"].as_u64().unwrap())
        };
        shown["events"].as_array().unwrap().iter().filter_map(of).collect()
    };
    look("once.test");
    look("often.test");
    assert!((0..200).any(|_| !counts("often.test").is_empty()), "before it ends");
    assert_eq!((counts("once.test").len(), counts("often.test").len()), (1, 1));
    look("often.test");
    assert_eq!(fixture.run(&["kill", &id]).code, 0);
    // The library asks for both kinds of addresses, or for one: how often is not ours to say.
    let (once, often) = (counts("once.test"), counts("often.test"));
    assert!(often.len() == 2 && often[1] > often[0], "{often:?}");
    assert!(once.len() == usize::from(once.last() > once.first()) + 1, "{once:?}");
    assert_eq!(fixture.run(&["audit", "verify"]).code, 0);
}

/// A range of addresses has sockets for all of them, also at a port from 1024 on, beside a name at the same port.
#[test]
fn a_range_and_a_name_may_have_the_same_high_port() {
    let (fixture, port) = (Fixture::new(), served());
    let rules = format!(
        "net.allow=[{{ host = \"served.test\", ports = [8080], address = \"127.0.0.1:{port}\" }}, {{ cidr = \"192.0.2.0/24\", ports = [8080] }}]"
    );
    let flags = ["--set", "net.mode=allow", "--set", &rules, "--set", "syscalls.profile=default", "--memory", "512M"];
    let code = "import urllib.request as u; print(u.urlopen('http://served.test:8080/x', timeout=9).read().decode())";
    let said = fixture.run(&[&["run", "-q"], &flags[..], &["--", "python3", "-c", code]].concat());
    assert_eq!((said.code, said.out.trim_end()), (0, BODY), "{said:?}");
}

#[test]
fn a_question_of_a_run_that_ended_is_taken_back() {
    let fixture = Fixture::new();
    let code = "
import os, socket, sys, threading
threading.Thread(target=lambda: socket.create_connection(('late.invalid', 443), 40), daemon=True).start()
sys.stdin.read(); os._exit(3)";
    let flags =
        ["--set", "net.mode=allow", "--set", "net.unknown=ask", "--set", "syscalls.profile=default"].map(str::to_owned);
    let words = words(&["run", "--timeout", "60s"], &flags, &["--", "python3", "-c", code]);
    let mut child = fixture.command(&words).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let asked = question(&fixture, "late.invalid");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let approved = fixture.run(&["approvals", "approve", asked["id"].as_str().unwrap()]);
    assert_ne!(approved.code, 0, "nobody would hear it: {approved:?}");
    let open = fixture.run(&["approvals", "ls", "--json"]).json();
    assert!(open["calls"].as_array().unwrap().is_empty(), "{open}");
}
