//! The network of machines: hosts by name through the broker of the sandbox around the emulator. As elsewhere of machines, one run
//! for each caller says what the cases look at, and one more what its limits hold.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::OnceLock;

use conformance::case::{FIRECRACKER, QEMU};
use conformance::{Case, CaseError, CaseResult, Cell, Fixture, Who, check};
use policy::ClauseId;

use super::network::{seen, tunnel};
use super::vm::{alone, make_root, planned_with};

macro_rules! cases {
    ($($clause:ident: $sentence:literal => $cell:expr;)+) => {
        pub(crate) const CASES: &[Case] = &[
            $(Case { clause: ClauseId::$clause, backends: QEMU, sentence: $sentence, cell: $cell },)+
        ];
    };
}

cases! {
    NetMode: "allow: the machine's one device leads to the broker, and to nothing of the host" => Cell::Enforced(unreached);
    NetAllow: "a host of the rules is reached, on a high port as well, and its own loopback is the machine's" => Cell::Enforced(reached);
    NetUnknown: "what no rule has is refused at once, and told" => Cell::Enforced(unknown);
    NetPresets: "the names of a preset are resolved" => Cell::Enforced(|scene| says(scene, "preset", "1"));
    NetDeny: "what is denied is not resolved, whatever allows it" => Cell::Enforced(denied);
    NetPrograms: "which program a connection is of nobody can hold" => Cell::Refused(
        &["net.mode=allow", "net.programs={\"/usr/bin/git\" = [\"example.org\"]}"], "net.programs/not-held");
    NetDns: "names are asked of the broker, and of nobody else" => Cell::Enforced(names);
    NetCa: "more roots are trusted inside" => Cell::Enforced(|scene| says(scene, "roots", "1 0"));
    NetProxy: "a name without an address goes by the proxy" => Cell::Enforced(|scene| says(scene, "proxied", "hello"));
    NetBandwidth: "allow: the broker meters what passes" => Cell::Enforced(
        |scene| planned_with(scene, &["net.mode=allow", "net.bandwidth=1M/s"], "net.bandwidth", "broker:net"));
    NetBytes: "when the bytes are used up no more pass, and the run goes on" => Cell::Enforced(volume);
    NetConnections: "so many connections at once, and one more is refused" => Cell::Enforced(connections);
    Secrets: "a secret is put into requests outside, and is not inside" => Cell::Enforced(|scene| says(scene, "secret", "seen 0 0"));
}

const fn without(clause: ClauseId) -> Case {
    let cell = Cell::Refused(&["net.mode=allow", "net.allow=[\"example.org\"]"], "net.mode/no-device");
    Case { clause, backends: FIRECRACKER, sentence: "a machine without a network device reaches no host", cell }
}

/// Where machines have no network.
pub(crate) const WITHOUT: &[Case] = &[
    without(ClauseId::NetAllow),
    without(ClauseId::NetUnknown),
    without(ClauseId::NetPresets),
    without(ClauseId::NetDeny),
    without(ClauseId::NetPrograms),
    without(ClauseId::NetDns),
    without(ClauseId::NetCa),
    without(ClauseId::NetProxy),
];

/// What a run said: its lines by their first word, what was refused, and everything for errors.
#[derive(Clone, Debug)]
struct RunOutput {
    lines: BTreeMap<String, String>,
    violations: Vec<String>,
    said: String,
}

type Cells = [OnceLock<Result<RunOutput, String>>; 2];
static REACH: Cells = [OnceLock::new(), OnceLock::new()];
static LIMITS: Cells = [OnceLock::new(), OnceLock::new()];

const TELL: &str = "
tell() { echo \"$@\"; }
is() { key=$1; shift; if \"$@\" >/dev/null 2>&1 </dev/null; then tell $key open; else tell $key closed; fi; }
ask() { printf 'GET / HTTP/1.1\\r\\nHost: served.test\\r\\n\\r\\n' | nc -w 20 served.test 7001; }
";

const SCRIPT: &str = "
tell devices $(tail -n +3 /proc/net/dev | cut -d: -f1)
tell resolver $(head -n 1 /etc/resolv.conf)
is legitimate cat /etc/passwd
is resolver_written sh -c 'echo nameserver 192.0.2.53 >/etc/resolv.conf'
tell high $(ask | head -c 12)
tell low $(wget -q -O - http://served.test/ | head -c 4)
nc -l -p 7001 </dev/null >/tmp/own & sleep 1; echo mine | nc -w 5 127.0.0.1 7001; tell own $(cat /tmp/own)
is other_port nc -w 20 served.test 7002
is other_name nc -w 20 other.test 7001
is address wget -q -O - http://192.0.2.1/
is metadata wget -q -O - http://169.254.169.254/
is host nc -w 20 127.0.0.1 HOST
is gateway nc -w 20 198.18.0.1 HOST
is of_host nc -w 20 served.test HOST
tell preset $(nslookup -type=a pypi.org | grep -c 'Address.* 198.18.1.')
tell denied $(nslookup -type=a denied.test | grep -c 'Address.* 198.18.1.')
tell named $(nslookup -type=a served.test | grep -c 'Address.* 198.18.1.') $(nslookup -type=a other.test | grep -c 'Address.* 198.18.1.')
tell roots $(grep -c 'ZnVtZWhvb2QncyBvd24=' $SSL_CERT_FILE) $(grep -c c2VjcmV0 $SSL_CERT_FILE)
tell proxied $(nc -w 20 only.test 22 </dev/null | head -c 5)
tell secret $(wget -q -O - http://served.test/ | head -c 4) $(wget -q -O - http://served.test/ | grep -c canary-of) $(env | grep -c canary-of)
";

const LIMITED: &str = "
(sleep 6) | nc served.test 7001 >/dev/null & sleep 2
tell second $(ask | wc -c); wait
tell third $(ask | head -c 12)
dd if=/dev/zero bs=1024 count=64 2>/dev/null | nc -w 20 served.test 7001 >/dev/null
tell used $(ask | wc -c)
";

/// A server of the host for as long as the test's process lives; its port.
fn server(answer: fn(std::net::TcpStream)) -> Result<u16, CaseError> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        listener.incoming().flatten().for_each(|stream| drop(std::thread::spawn(move || answer(stream))));
    });
    Ok(port)
}

fn look(scene: &Fixture, more: &[&str], script: &str) -> Result<RunOutput, CaseError> {
    let (root, port, proxy) = (make_root(scene)?, server(seen)?, server(tunnel)?);
    let pem = scene.file(
        "corp.pem",
        "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----BEGIN CERTIFICATE-----\nZnVtZWhvb2QncyBvd24=\n-----END CERTIFICATE-----\n",
    )?;
    let rules = format!(
        "net.allow=[{{ host = \"served.test\", ports = [80, 7001], address = \"127.0.0.1:{port}\" }}, \
         {{ host = \"only.test\", ports = [22] }}, \"denied.test\"]"
    );
    let (ca, by) =
        (format!("net.ca=[\"{}\"]", pem.display()), format!("net.proxy=http://u:pass-word@127.0.0.1:{proxy}"));
    let values = [
        root.as_str(),
        "limits.wall=5m",
        "limits.memory=192M",
        "net.mode=allow",
        "net.presets=[\"pypi\"]",
        "net.unknown=deny",
        "net.deny=[\"denied.test\"]",
        "secrets={canary={from=\"env:CONFORM_CANARY\",hosts=[\"served.test\"],ports=[80]}}",
        &rules,
        &ca,
        &by,
    ];
    let script = format!("{TELL}{}", script.replace("HOST", &port.to_string()));
    let ended = scene.shell(&[&values[..], more].concat(), &script)?;
    let split = |line: &str| {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        (word.to_owned(), rest.to_owned())
    };
    let violations = ended.violations().into_iter().map(str::to_owned).collect();
    let lines = ended.out().lines().map(split).collect();
    // The attack, without what stands around the machine: the host's server hears whoever is on the host.
    let control = scene.control_shell(&format!("/bin/busybox nc -w 5 127.0.0.1 {port} </dev/null"))?;
    check(control.code == Some(0), || control.said())?;
    Ok(RunOutput { lines, violations, said: ended.said() })
}

fn cell(cells: &'static Cells, scene: &Fixture, more: &[&str], script: &str) -> Result<&'static RunOutput, CaseError> {
    let at = usize::from(scene.who == Who::Rootless);
    let cell = cells.get(at).ok_or("there are two callers")?;
    let found = cell.get_or_init(|| {
        let _alone = alone();
        look(scene, more, script).map_err(|error| error.to_string())
    });
    found.as_ref().map_err(|why| why.clone().into())
}

fn reach(scene: &Fixture) -> Result<&'static RunOutput, CaseError> {
    cell(&REACH, scene, &[], SCRIPT)
}

fn limited(scene: &Fixture) -> Result<&'static RunOutput, CaseError> {
    cell(&LIMITS, scene, &["net.connections=1", "net.bytes=16K"], LIMITED)
}

fn line_is(seen: &RunOutput, word: &str, wanted: &str) -> CaseResult {
    let found = seen.lines.get(word).map_or("(nothing)", String::as_str);
    check(found == wanted, || format!("`{word}` is `{found}`; {}", seen.said))
}

fn says(scene: &Fixture, word: &str, wanted: &str) -> CaseResult {
    let seen = reach(scene)?;
    line_is(seen, "legitimate", "open")?;
    line_is(seen, word, wanted)
}

fn unreached(scene: &Fixture) -> CaseResult {
    let devices = reach(scene)?.lines.get("devices").map_or("", String::as_str);
    let mut devices: Vec<&str> = devices.split(' ').collect();
    devices.sort_unstable();
    check(devices == ["eth0", "lo"], || format!("{devices:?}"))?;
    // What is reached shows that the others could be.
    says(scene, "low", "seen")?;
    ["address", "metadata", "host", "gateway", "of_host"].iter().try_for_each(|word| says(scene, word, "closed"))
}

fn reached(scene: &Fixture) -> CaseResult {
    says(scene, "high", "HTTP/1.1 200")?;
    says(scene, "own", "mine")?;
    ["other_port", "other_name"].iter().try_for_each(|word| says(scene, word, "closed"))
}

fn unknown(scene: &Fixture) -> CaseResult {
    let seen = reach(scene)?;
    ["net.allow/unknown-name", "net.allow/unknown-address"]
        .iter()
        .try_for_each(|id| check(seen.violations.iter().any(|found| found == id), || seen.said.clone()))
}

fn denied(scene: &Fixture) -> CaseResult {
    says(scene, "denied", "0")?;
    says(scene, "preset", "1")
}

fn names(scene: &Fixture) -> CaseResult {
    says(scene, "resolver", "nameserver 198.18.0.1")?;
    says(scene, "resolver_written", "closed")?;
    says(scene, "named", "1 0")
}

fn connections(scene: &Fixture) -> CaseResult {
    let seen = limited(scene)?;
    line_is(seen, "second", "0")?;
    line_is(seen, "third", "HTTP/1.1 200")
}

fn volume(scene: &Fixture) -> CaseResult {
    let seen = limited(scene)?;
    line_is(seen, "third", "HTTP/1.1 200")?;
    line_is(seen, "used", "0")
}
