//! The network: none at all, an own loopback, or what only a broker could allow.

use std::net::TcpListener;

use conformance::case::{BROKERED, CONTAINER, EVERY, LINUX, PROCESS, TREES};
use conformance::{Case, CaseResult, Cell, Fixture, check};
use policy::ClauseId;

use servers::{answer, page, with_rule, with_server};
pub(crate) use servers::{seen, tunnel};

mod servers;

pub(crate) const CASES: &[Case] = &[
    Case {
        clause: ClauseId::NetMode,
        backends: EVERY,
        sentence: "none: no socket of any internet family can be made, and a listener of the host hears nobody",
        cell: Cell::Enforced(none),
    },
    Case {
        clause: ClauseId::NetMode,
        backends: TREES,
        sentence: "loopback: its own works, the host's hears nobody",
        cell: Cell::Enforced(loopback),
    },
    Case {
        clause: ClauseId::NetMode,
        backends: PROCESS,
        sentence: "loopback is refused: it would be the host's",
        cell: Cell::Refused(&["net.mode=loopback"], "net.mode/loopback-needs-container"),
    },
    Case {
        clause: ClauseId::NetMode,
        backends: PROCESS,
        sentence: "allow is refused: every connection would be the host's",
        cell: Cell::Refused(&["net.mode=allow"], "net.mode/allow-needs-container"),
    },
    Case {
        clause: ClauseId::NetMode,
        backends: BROKERED,
        sentence: "allow: a host by name is reached where a rule says that it is, and no other place by any way",
        cell: Cell::Enforced(allow),
    },
    Case {
        clause: ClauseId::NetAllow,
        backends: BROKERED,
        sentence: "a host of the rules is reached, and another name, port or address is refused at once",
        cell: Cell::Enforced(allow),
    },
    Case {
        clause: ClauseId::NetAllow,
        backends: PROCESS,
        sentence: "rules need a network namespace of their own",
        cell: Cell::Refused(&["net.mode=allow", "net.allow=[\"example.org:443\"]"], "net.mode/allow-needs-container"),
    },
    Case {
        clause: ClauseId::NetAllow,
        backends: BROKERED,
        sentence: "methods and paths hold for each request",
        cell: Cell::Enforced(requests),
    },
    Case {
        clause: ClauseId::NetAllow,
        backends: BROKERED,
        sentence: "datagrams reach a host whose rule says UDP, and no other place",
        cell: Cell::Enforced(datagrams),
    },
    Case {
        clause: ClauseId::NetAllow,
        backends: CONTAINER,
        sentence: "no proxy of HTTP passes datagrams on",
        cell: Cell::Refused(
            &[
                "net.mode=allow",
                "net.proxy=http://proxy.example.org:3128",
                "net.allow=[{ host = \"example.org\", ports = [123], protocol = \"udp\" }]",
            ],
            "net.allow/udp-by-proxy",
        ),
    },
    Case {
        clause: ClauseId::Secrets,
        backends: BROKERED,
        sentence: "a secret is put into requests outside, and is not inside",
        cell: Cell::Enforced(secret),
    },
    Case {
        clause: ClauseId::NetDns,
        backends: EVERY,
        sentence: "no name is resolved, and no question leaves",
        cell: Cell::Enforced(dns),
    },
    Case {
        clause: ClauseId::NetBandwidth,
        backends: PROCESS,
        sentence: "the broker needs a network namespace",
        cell: Cell::Refused(&["net.mode=allow", "net.bandwidth=1M/s"], "net.mode/allow-needs-container"),
    },
    Case {
        clause: ClauseId::NetBandwidth,
        backends: BROKERED,
        sentence: "what programs inside say to each other nobody meters",
        cell: Cell::Refused(&["net.mode=loopback", "net.bandwidth=1M/s"], "net.bandwidth/no-broker"),
    },
    Case {
        clause: ClauseId::NetBandwidth,
        backends: LINUX,
        sentence: "without a network no socket can be made, and so the limit holds",
        cell: Cell::Enforced(no_byte),
    },
    Case {
        clause: ClauseId::NetBandwidth,
        backends: BROKERED,
        sentence: "allow: no more goes in a time than the rate, out and in",
        cell: Cell::Enforced(bandwidth),
    },
    Case {
        clause: ClauseId::NetBytes,
        backends: PROCESS,
        sentence: "the broker needs a network namespace",
        cell: Cell::Refused(&["net.mode=allow", "net.bytes=1G"], "net.mode/allow-needs-container"),
    },
    Case {
        clause: ClauseId::NetBytes,
        backends: BROKERED,
        sentence: "what programs inside say to each other nobody meters",
        cell: Cell::Refused(&["net.mode=loopback", "net.bytes=1G"], "net.bytes/no-broker"),
    },
    Case {
        clause: ClauseId::NetBytes,
        backends: LINUX,
        sentence: "without a network no socket can be made, and so the limit holds",
        cell: Cell::Enforced(no_byte),
    },
    Case {
        clause: ClauseId::NetConnections,
        backends: PROCESS,
        sentence: "the broker needs a network namespace",
        cell: Cell::Refused(&["net.mode=allow", "net.connections=64"], "net.mode/allow-needs-container"),
    },
    Case {
        clause: ClauseId::NetConnections,
        backends: BROKERED,
        sentence: "what programs inside say to each other nobody meters",
        cell: Cell::Refused(&["net.mode=loopback", "net.connections=64"], "net.connections/no-broker"),
    },
    Case {
        clause: ClauseId::NetConnections,
        backends: LINUX,
        sentence: "without a network no socket can be made, and so the limit holds",
        cell: Cell::Enforced(no_byte),
    },
    Case {
        clause: ClauseId::NetConnections,
        backends: BROKERED,
        sentence: "so many connections at once, and one more is refused",
        cell: Cell::Enforced(connections),
    },
    Case {
        clause: ClauseId::NetBytes,
        backends: BROKERED,
        sentence: "when the bytes are used up no more pass, and the run goes on",
        cell: Cell::Enforced(volume),
    },
    Case {
        clause: ClauseId::NetDeny,
        backends: BROKERED,
        sentence: "what is denied is not reached, whatever allows it",
        cell: Cell::Enforced(deny),
    },
    Case {
        clause: ClauseId::NetPresets,
        backends: BROKERED,
        sentence: "the names of a preset are resolved, and no other",
        cell: Cell::Enforced(presets),
    },
    Case {
        clause: ClauseId::NetUnknown,
        backends: BROKERED,
        sentence: "what no rule has is refused at once, and told",
        cell: Cell::Enforced(allow),
    },
    Case {
        clause: ClauseId::NetPresets,
        backends: PROCESS,
        sentence: "it needs a network namespace of its own",
        cell: Cell::Refused(&["net.mode=allow", "net.presets=[\"pypi\"]"], "net.mode/allow-needs-container"),
    },
    Case {
        clause: ClauseId::NetDeny,
        backends: PROCESS,
        sentence: "it needs a network namespace of its own",
        cell: Cell::Refused(&["net.mode=allow", "net.deny=[\"upload.example.org\"]"], "net.mode/allow-needs-container"),
    },
    Case {
        clause: ClauseId::NetUnknown,
        backends: PROCESS,
        sentence: "it needs a network namespace of its own",
        cell: Cell::Refused(&["net.mode=allow", "net.unknown=deny"], "net.mode/allow-needs-container"),
    },
    Case {
        clause: ClauseId::NetPrograms,
        backends: PROCESS,
        sentence: "it needs a network namespace of its own",
        cell: Cell::Refused(
            &["net.mode=allow", "net.programs={\"/usr/bin/git\" = [\"example.org\"]}"],
            "net.mode/allow-needs-container",
        ),
    },
    Case {
        clause: ClauseId::NetCa,
        backends: BROKERED,
        sentence: "more roots are trusted inside, and no other of that file",
        cell: Cell::Enforced(roots),
    },
    Case {
        clause: ClauseId::NetProxy,
        backends: PROCESS,
        sentence: "it needs a network namespace of its own",
        cell: Cell::Refused(
            &["net.mode=allow", "net.proxy=http://proxy.example.org:3128"],
            "net.mode/allow-needs-container",
        ),
    },
    Case {
        clause: ClauseId::NetUnknown,
        backends: CONTAINER,
        sentence: "ask: a person is asked about a host that no rule names, and without an answer it is not reached",
        cell: Cell::Enforced(asked),
    },
    Case {
        clause: ClauseId::NetPrograms,
        backends: BROKERED,
        sentence: "which program a connection is of nobody can hold",
        cell: Cell::Refused(
            &["net.mode=allow", "net.programs={\"/usr/bin/git\" = [\"example.org\"]}"],
            "net.programs/not-held",
        ),
    },
    Case {
        clause: ClauseId::NetCa,
        backends: PROCESS,
        sentence: "it needs a network namespace of its own",
        cell: Cell::Refused(&["net.mode=allow", "net.ca=[\"/etc/corp.pem\"]"], "net.mode/allow-needs-container"),
    },
    Case {
        clause: ClauseId::NetProxy,
        backends: BROKERED,
        sentence: "a name is reached by the proxy and not without, and what `address` pins goes straight there",
        cell: Cell::Enforced(proxied),
    },
    Case {
        clause: ClauseId::NetDeny,
        backends: CONTAINER,
        sentence: "addresses cannot be denied to names that a proxy resolves",
        cell: Cell::Refused(
            &[
                "net.mode=allow",
                "net.allow=[\"example.org\"]",
                "net.proxy=http://proxy.example.org:3128",
                "net.deny=[\"192.0.2.0/24\"]",
            ],
            "net.deny/by-proxy",
        ),
    },
];

/// A listener of the host hears nobody where the network has limits and no mode.
fn no_byte(scene: &Fixture) -> CaseResult {
    let (listener, code) = listener()?;
    let limits = ["syscalls.profile=default", "net.bandwidth=1M/s", "net.bytes=1G", "net.connections=64"];
    let ended = scene.python(&limits, &code)?;
    check(ended.code == Some(1) && listener.accept().is_err(), || ended.said())?;
    let planned = scene.plan(&limits)?;
    check(planned.code == Some(0) && planned.out().contains("\"net.bytes\""), || planned.said())?;
    scene.control_python(&code)?;
    check(listener.accept().is_ok(), || "the control was not heard".to_owned())
}

fn listener() -> Result<(TcpListener, String), conformance::CaseError> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let code = format!("import socket; socket.create_connection(('127.0.0.1', {port}), 3).sendall(b'x')");
    Ok((listener, code))
}

fn none(scene: &Fixture) -> CaseResult {
    let (listener, code) = listener()?;
    let ended = scene.python(&["syscalls.profile=default"], &code)?;
    check(ended.code == Some(1) && listener.accept().is_err(), || ended.said())?;
    scene.control_python(&code)?;
    check(listener.accept().is_ok(), || "the control was not heard".to_owned())?;
    // Families that lead out: IPv4, IPv6, MPTCP, packet, netlink, vsock, SMC.
    let families = "
import socket
made = []
for family, kind, protocol in [(2,1,0), (2,2,0), (2,1,262), (10,1,0), (10,2,0), (17,3,0), (16,3,0), (40,1,0), (43,1,0)]:
    try: socket.socket(family, kind, protocol); made.append(family)
    except OSError: pass
print(made)";
    let control = scene.control_python(families)?;
    check(control.out().starts_with("[2, 2"), || control.said())?;
    let ended = scene.python(&["syscalls.profile=default"], families)?;
    check(ended.out() == "[]", || ended.said())
}

fn loopback(scene: &Fixture) -> CaseResult {
    let (listener, code) = listener()?;
    let values = ["syscalls.profile=default", "net.mode=loopback"];
    let ended = scene.python(&values, &code)?;
    check(ended.code == Some(1) && listener.accept().is_err(), || ended.said())?;
    scene.control_python(&code)?;
    check(listener.accept().is_ok(), || "the control was not heard".to_owned())?;
    let own = "
import socket
server = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(server.getsockname(), 3)
peer, _ = server.accept()
client.sendall(b'own'); print(peer.recv(9).decode())";
    let ended = scene.python(&values, own)?;
    check(ended.out() == "own", || ended.said())
}

fn dns(scene: &Fixture) -> CaseResult {
    // A server for names, as a program would ask it; the host's own configuration is not touched.
    let server = std::net::UdpSocket::bind("127.0.0.1:0")?;
    server.set_nonblocking(true)?;
    let port = server.local_addr()?.port();
    let code = format!("import socket; socket.socket(2, 2).sendto(b'question', ('127.0.0.1', {port}))");
    let ended = scene.python(&["syscalls.profile=default"], &code)?;
    let mut bytes = [0; 64];
    check(ended.code == Some(1) && server.recv(&mut bytes).is_err(), || ended.said())?;
    scene.control_python(&code)?;
    check(conformance::live::until(std::time::Duration::from_secs(30), || server.recv(&mut bytes).is_ok()), || {
        "the control was not heard".to_owned()
    })?;
    let lookup =
        scene.python(&["syscalls.profile=default"], "import socket; socket.getaddrinfo('example.org', 443)")?;
    check(lookup.code == Some(1), || lookup.said())
}

fn secret(scene: &Fixture) -> CaseResult {
    let code = "
import http.client, os
c = http.client.HTTPConnection('served.test', PORT, timeout=9); c.request('GET', '/'); said = c.getresponse().read().decode()
print(said.startswith('seen'), 'canary-' + 'of-the-caller' in said + str(os.environ))";
    let (code, other) = (code.replace("PORT", "80"), code.replace("PORT", "7001"));
    let from = "from=\"env:CONFORM_CANARY\",hosts=[\"served.test\"],ports=[80, 7001]";
    let held = format!("secrets={{canary={{{from}}}}}");
    let ended = with_rule(scene, seen, "", &[&held], &code)?;
    check(ended.out() == "True False", || ended.said())?;
    // On a port of its own a secret goes over TLS alone.
    let plain = with_rule(scene, seen, "", &[&held], &other)?;
    check(plain.out() == "False False", || plain.said())?;
    // Without it the same server is sent nothing; and what a program has itself is said back.
    let none = with_rule(scene, seen, "", &[], &code)?;
    check(none.out() == "False False", || none.said())?;
    let own = with_rule(scene, seen, "", &["env.pass=[\"CONFORM_CANARY\"]"], &code)?;
    check(own.out() == "False True", || own.said())
}

fn requests(scene: &Fixture) -> CaseResult {
    let code = "
import http.client
def ask(method, path):
    c = http.client.HTTPConnection('served.test', 7001, timeout=9); c.request(method, path); r = c.getresponse(); r.read()
    return r.status
print([ask(*what) for what in [('GET', '/open/x'), ('GET', '/shut'), ('GET', '/open/%2e%2e/shut'), ('PUT', '/open/x')]])";
    let narrow = ", methods = [\"GET\"], paths = [\"/open/**\"]";
    let ended = with_rule(scene, page, narrow, &[], code)?;
    check(ended.out() == "[200, 403, 403, 403]", || ended.said())?;
    for id in ["net.allow/path", "net.allow/method"] {
        check(ended.violations().contains(&id), || ended.said())?;
    }
    let free = with_rule(scene, page, "", &[], code)?;
    check(free.out() == "[200, 200, 200, 200]", || free.said())
}

/// Roots of `net.ca` are in the bundle inside; what else is in their file is not.
fn roots(scene: &Fixture) -> CaseResult {
    let certificate = "-----BEGIN CERTIFICATE-----\nZnVtZWhvb2QncyBvd24=\n-----END CERTIFICATE-----\n";
    let pem = scene.file("corp.pem", &format!("-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n{certificate}"))?;
    let code = "
import os
bundle = open(os.environ.get('SSL_CERT_FILE', '/etc/ssl/certs/ca-certificates.crt')).read()
print('ZnVtZWhvb2QncyBvd24=' in bundle, 'c2VjcmV0' in bundle)";
    let with = format!("net.ca=[\"{}\"]", pem.display());
    let ended = with_rule(scene, page, "", &[&with], code)?;
    check(ended.out() == "True False", || ended.said())?;
    let without = with_rule(scene, page, "", &[], code)?;
    check(without.out() == "False False", || without.said())
}

/// What a connection says first, or why there is none.
const TRY: &str = "
import socket, time
def attempt(host, port):
    try:
        began = time.monotonic()
        with socket.create_connection((host, port), 5) as s:
            return s.recv(5).decode() or 'closed'
    except socket.gaierror: return 'no name'
    except (ConnectionResetError, BrokenPipeError): return 'reset'
    except ConnectionRefusedError: return 'refused'
    except OSError as e: return type(e).__name__
";

fn allow(scene: &Fixture) -> CaseResult {
    let code = format!(
        "{TRY}
print([attempt(*to) for to in [
    ('served.test', 7001), ('served.test', 7002), ('other.test', 7001), ('192.0.2.1', 443), ('169.254.169.254', 80)]])
s = socket.create_server(('127.0.0.1', 7001)); print(attempt('localhost', 7001) and 'own')"
    );
    // The own server accepts nothing: its backlog does, and nothing is said.
    let code = code.replace("attempt('localhost', 7001) and 'own'", "'own'");
    let ended = with_server(scene, &[], &code)?;
    let said = ended.out();
    // On port 443 nobody listens, so the kernel refuses; on 80 the broker does.
    check(said.contains("['hello', 'refused', 'no name', 'refused', 'reset']") && said.contains("own"), || {
        ended.said()
    })?;
    check(ended.violations().iter().any(|id| id.starts_with("net.allow/")), || ended.said())
}

fn connections(scene: &Fixture) -> CaseResult {
    let code = format!(
        "{TRY}
first = socket.create_connection(('served.test', 7001)); print(first.recv(5).decode())
print(attempt('served.test', 7001))
first.close(); time.sleep(0.3); print(attempt('served.test', 7001))"
    );
    let ended = with_server(scene, &["net.connections=1"], &code)?;
    let lines: Vec<String> = ended.out().lines().map(str::to_owned).collect();
    let refused = matches!(lines.get(1).map(String::as_str), Some("reset" | "closed" | "refused"));
    check(lines.len() == 3 && refused && lines.first() == lines.last(), || ended.said())
}

/// A second's worth goes at once, and one buffer; the rest of it takes its time, however fast the machine is.
fn bandwidth(scene: &Fixture) -> CaseResult {
    let code = "
import socket, threading, time
s = socket.create_connection(('served.test', 7001), 30); all, got = b'x' * 640 * 1024, 5
s.recv(5); began = time.monotonic()
def send(): s.sendall(all); s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
while part := s.recv(65536): got += len(part)
took = time.monotonic() - began
print(got == 5 + len(all), took > 0.8 * (2 * len(all) - (384 + 128) * 1024) / (384 * 1024))";
    // 1,280 KiB in both directions, of which 512 go at once.
    let ended = with_server(scene, &["net.bandwidth=384K/s"], code)?;
    check(ended.out() == "True True", || ended.said())?;
    let free = with_server(scene, &[], code)?;
    check(free.out().starts_with("True "), || free.said())
}

fn volume(scene: &Fixture) -> CaseResult {
    let code = "
import socket
s = socket.create_connection(('served.test', 7001), 5); got = 0
try:
    for _ in range(64):
        s.sendall(b'x' * 1024); got += len(s.recv(4096))
        if not got: break
except OSError as e: pass
print('goes on', got < 32768)";
    let ended = with_server(scene, &["net.bytes=16K"], code)?;
    check(ended.out() == "goes on True", || ended.said())?;
    let free = with_server(scene, &[], code)?;
    check(free.out() == "goes on False", || free.said())
}

fn datagrams(scene: &Fixture) -> CaseResult {
    let server = std::net::UdpSocket::bind("127.0.0.1:0")?;
    let port = server.local_addr()?.port();
    // Ends with the test's process.
    std::thread::spawn(move || {
        let mut bytes = [0; 64];
        while let Ok((count, from)) = server.recv_from(&mut bytes) {
            drop(bytes.get(..count).map(|bytes| server.send_to(bytes, from)));
        }
    });
    let code = "
import socket
def ask(host, port):
    s = socket.socket(2, 2); s.settimeout(1)
    try: s.connect((host, port)); s.send(b'tick'); return s.recv(9).decode()
    except socket.gaierror: return 'no name'
    except ConnectionRefusedError: return 'refused'
    except TimeoutError: return 'dropped'
print([ask(*to) for to in [('clock.test', 123), ('served.test', 123), ('other.test', 123), ('clock.test', 443), ('192.0.2.1', 123)]])";
    let rule =
        format!(" }}, {{ host = \"clock.test\", ports = [123], protocol = \"udp\", address = \"127.0.0.1:{port}\"");
    let ended = with_rule(scene, answer, &rule, &[], code)?;
    check(ended.out() == "['tick', 'dropped', 'no name', 'refused', 'dropped']", || ended.said())?;
    check(ended.violations().iter().any(|id| id.starts_with("net.allow/unknown")), || ended.said())?;
    let without = with_rule(scene, answer, "", &[], code)?;
    check(without.out() == "['no name', 'refused', 'no name', 'no name', 'refused']", || without.said())
}

fn proxied(scene: &Fixture) -> CaseResult {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        listener.incoming().flatten().for_each(|stream| drop(std::thread::spawn(|| tunnel(stream))))
    });
    let code = format!(
        "{TRY}\nprint([attempt(*to) for to in [('only.test', 22), ('other.test', 22), ('served.test', 7001)]])"
    );
    let by = format!("net.proxy=http://u:pass-word@127.0.0.1:{port}");
    let only = " }, { host = \"only.test\", ports = [22]";
    let ended = with_rule(scene, answer, only, &[&by], &code)?;
    check(ended.out() == "['hello', 'no name', 'hello']", || ended.said())?;
    // The login is nowhere in what is told.
    check(!ended.report.to_string().contains("pass-word"), || "the login is told".to_owned())?;
    let without = with_rule(scene, answer, only, &[], &code)?;
    check(without.out() == "['no name', 'no name', 'hello']", || without.said())
}

fn deny(scene: &Fixture) -> CaseResult {
    let code = format!("{TRY}\nprint(attempt('served.test', 7001))");
    let ended = with_server(scene, &["net.deny=[\"served.test\"]"], &code)?;
    check(ended.out() == "no name", || ended.said())?;
    let open = with_server(scene, &["net.deny=[\"other.test\"]"], &code)?;
    check(open.out() == "hello", || open.said())
}

fn asked(scene: &Fixture) -> CaseResult {
    let code = "
import socket, time
began = time.monotonic()
try:
    s = socket.create_connection(('unnamed.invalid', 443), 45); s.settimeout(45); s.sendall(b'x'); print('answered', s.recv(1))
except OSError: print('refused', 10 < time.monotonic() - began < 40)";
    let values = ["syscalls.profile=default", "net.mode=allow", "limits.wall=60s"];
    let waits = scene.python(&[&values[..], &["net.unknown=ask"]].concat(), code)?;
    let told = waits.violations().iter().any(|id| id.contains("net.unknown/answered"));
    check(waits.out() == "refused True" && told, || waits.said())?;
    let at_once = scene.python(&[&values[..], &["net.unknown=deny"]].concat(), code)?;
    check(at_once.out() == "refused False", || at_once.said())
}

fn presets(scene: &Fixture) -> CaseResult {
    let code = "
import socket
def name(host):
    try: return socket.getaddrinfo(host, 443, socket.AF_INET)[0][4][0].startswith('198.1')
    except socket.gaierror: return False
print(name('pypi.org'), name('example.org'))";
    let values = ["syscalls.profile=default", "net.mode=allow", "net.presets=[\"pypi\"]"];
    let refused = |ended: &conformance::Ended, name: &str| {
        let list = ended.report.get("violations").and_then(serde_json::Value::as_array);
        let is = |one: &serde_json::Value, key: &str, wanted: &str| one.get(key).is_some_and(|text| text == wanted);
        list.into_iter()
            .flatten()
            .any(|one| is(one, "id", "net.allow/unknown-name") && is(one, "what", &format!("looking up {name}")))
    };
    // Where the machine itself has no resolver, the name is known and nobody can say where it is.
    let ended = scene.python(&values, code)?;
    check(!refused(&ended, "pypi.org") && refused(&ended, "example.org"), || ended.said())?;
    check(ended.out().ends_with("False"), || ended.said())?;
    let [without @ .., _] = values;
    let ended = scene.python(&without, code)?;
    check(refused(&ended, "pypi.org") && ended.out() == "False False", || ended.said())
}
