//! The vm tier. A machine takes seconds to start, so what is enforced inside is looked at in one run for each caller,
//! and each case reads its own lines of it. What is refused starts nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use conformance::case::VM;
use conformance::{Case, CaseError, CaseResult, Cell, Fixture, Who, check};
use policy::ClauseId;
use policy::control::Emulator;

macro_rules! cases {
    ($($clause:ident: $sentence:literal => $cell:expr;)+) => {
        pub(crate) const CASES: &[Case] = &[
            $(Case { clause: ClauseId::$clause, backends: VM, sentence: $sentence, cell: $cell },)+
        ];
    };
}

const fn refused(values: &'static [&'static str], id: &'static str) -> Cell {
    Cell::Refused(values, id)
}

const fn enforced(proof: fn(&Fixture) -> CaseResult) -> Cell {
    Cell::Enforced(proof)
}

cases! {
    Tier: "programs run on a kernel of their own, without capability, privilege or namespaces" => enforced(tier);
    Tier: "too little memory for a machine is refused" => refused(&["limits.memory=64M"], "limits.memory/less-than-a-machine");
    Backend: "the backend of the policy is the one that runs" => enforced(|scene| says(scene, "backend", scene.backend().name));
    Threat: "against tenants that are hostile to each other the tier has a plan" => enforced(tenants);
    Enforcer: "`kernel` refuses a limit that only sampling holds" =>
        refused(&["enforcer=kernel", "limits.cpu_time=5s"], "enforcer/kernel-demanded");
    FsRoot: "the root is the named folder, read-only" => enforced(root);
    FsRoot: "the host's own tree is refused" => refused(&["fs.root=host"], "fs.root/not-in-a-machine");
    FsRead: "a grant is refused" => refused(&["fs.read=[\"/usr/share\"]"], "fs.read/not-in-a-machine");
    FsWrite: "a grant for writing is refused" => refused(&["fs.write=[\"/srv\"]"], "fs.write/not-in-a-machine");
    FsHide: "hiding is refused" =>
        refused(&["fs.hide=[\"**/.env\"]", "workspace={path=\".\",mode=\"copy\"}"], "fs.hide/not-in-a-machine");
    FsSockets: "no unix socket but a pair can be made" => enforced(|scene| says(scene, "unix", "closed"));
    FsSockets: "sockets of the host are refused" => refused(&["fs.sockets=true"], "fs.sockets/not-in-a-machine");
    FsLandlock: "a layer of Landlock is refused" => refused(&["fs.landlock=1"], "fs.landlock/not-in-a-machine");
    FsExec: "a list of executables is refused" => refused(&["fs.exec=[\"/usr/bin/true\"]"], "fs.exec/not-in-a-machine");
    FsNoexec: "what was written is not executed" => enforced(|scene| says(scene, "written", "closed"));
    FsTmp: "/tmp ends at its size" => enforced(|scene| at_most(scene, "tmp", 8));
    FsShm: "/dev/shm ends at its size" => enforced(|scene| at_most(scene, "shm", 2));
    FsRun: "/run ends at its size" => enforced(|scene| at_most(scene, "run", 1));
    FsProtect: "control files of a copy wait for `apply`" => enforced(
        |scene| planned(scene, "workspace={path=\".\",mode=\"copy\"}", "fs.protect", "supervisor:apply"));
    Workspace: "what was written in a copy comes back as changes, and the host is as it was" => enforced(workspace);
    Workspace: "of a read-only one a machine has a copy that cannot be written" => enforced(
        |scene| planned(scene, "workspace={path=\".\",mode=\"ro\"}", "workspace", "vm:mountns:ro+copy"));
    Workspace: "a workspace that is written straight is refused" =>
        refused(&["workspace={path=\".\",mode=\"rw\"}"], "workspace/not-in-a-machine");
    Workspace: "a layer over the host's folder is refused" =>
        refused(&["workspace={path=\".\",mode=\"overlay\"}"], "workspace/not-in-a-machine");
    LimitsWall: "the machine ends at the limit" => enforced(wall);
    LimitsCpuTime: "the machine's time ends it" => enforced(cpu_time);
    LimitsCpus: "the emulator has no more than its share" => Cell::Controller(
        "cpu", &["limits.cpus=0.5"], "limits.cpus/no-controller", |scene| planned(scene, "limits.cpus=0.5", "limits.cpus", "cpu"));
    LimitsCpuset: "the emulator has its cores alone" => Cell::Controller(
        "cpuset", &["limits.cpuset=\"0\""], "limits.cpuset/no-controller",
        |scene| planned(scene, "limits.cpuset=\"0\"", "limits.cpuset", "cpuset"));
    LimitsMemory: "the machine has no more memory than the limit" => enforced(memory);
    LimitsMemory: "more than the host has is refused" =>
        refused(&["limits.memory=64T"], "limits.memory/more-than-the-host");
    LimitsPids: "no more processes than the limit can be made" => enforced(|scene| at_most(scene, "pids", 8));
    LimitsOpenFiles: "descriptors are limited" => enforced(|scene| says(scene, "open_files", "200"));
    LimitsOpenFiles: "fewer than the agent needs are refused" =>
        refused(&["limits.open_files=32"], "limits.open_files/less-than-a-machine");
    LimitsFileSize: "a file ends at its size" => enforced(|scene| says(scene, "file_size", "1048576"));
    LimitsDisk: "all that can be written together is bounded" => enforced(disk);
    LimitsFiles: "inodes are bounded" => enforced(|scene| at_most(scene, "files", 500));
    LimitsOutput: "output is cut" => enforced(output);
    LimitsOver: "output over the limit is cut, and the run goes on" => enforced(output);
    LimitsIoRead: "reading from disks is held by the emulator's group" => Cell::Controller(
        "io", &["limits.io_read=1M/s"], "limits.io_read/no-controller",
        |scene| planned(scene, "limits.io_read=1M/s", "limits.io_read", "io"));
    LimitsIoWrite: "writing to disks is held by the emulator's group" => Cell::Controller(
        "io", &["limits.io_write=1M/s"], "limits.io_write/no-controller",
        |scene| planned(scene, "limits.io_write=1M/s", "limits.io_write", "io"));
    LimitsIdle: "a single run does not idle" => refused(&["limits.idle=5s"], "limits.idle/no-live");
    LimitsWarn: "usage of its programs is not known" =>
        refused(&["limits.warn={memory=\"10M\"}"], "limits.warn/not-in-a-machine");
    LimitsKill: "usage of its programs is not known" =>
        refused(&["limits.kill={memory=\"10M\"}"], "limits.kill/not-in-a-machine");
    NetMode: "there is no network device, and no IP socket can be made" => enforced(network);
    NetBandwidth: "where nobody leaves, no rate is passed" => enforced(|scene| unmetered(scene, "net.bandwidth"));
    NetBandwidth: "on `lo` nobody meters" =>
        refused(&["net.mode=loopback", "net.bandwidth=1M/s"], "net.bandwidth/no-broker");
    NetBytes: "where nobody leaves, no amount is passed" => enforced(|scene| unmetered(scene, "net.bytes"));
    NetBytes: "on `lo` nobody meters" => refused(&["net.mode=loopback", "net.bytes=1G"], "net.bytes/no-broker");
    NetConnections: "where nobody leaves, no number is passed" => enforced(|scene| unmetered(scene, "net.connections"));
    NetConnections: "on `lo` nobody meters" =>
        refused(&["net.mode=loopback", "net.connections=64"], "net.connections/no-broker");
    EnvPass: "nothing of the caller's environment goes in but what is named" => enforced(pass);
    EnvSet: "a set variable is there" => enforced(|scene| says(scene, "set", "of-the-policy"));
    Inputs: "an input is checked, then a variable" => enforced(|scene| says(scene, "input", "42"));
    Secrets: "a secret is refused without a broker" => refused(
        &["secrets={canary={from=\"env:CONFORM_CANARY\",hosts=[\"example.org\"]}}"], "secrets/no-broker");
    ProcessUser: "the program has the user's name and id" => enforced(|scene| says(scene, "user", "1000 1000 ann"));
    ProcessHostname: "the program sees the host name of the policy" => enforced(|scene| says(scene, "hostname", "elsewhere"));
    ProcessUmask: "files have the mask" => enforced(|scene| says(scene, "umask", "0027"));
    ProcessTty: "a terminal is refused when it is planned" =>
        enforced(|scene| unplanned(scene, "process.tty=true", "process.tty/not-in-a-machine"));
    ProcessLabel: "a label is refused" =>
        refused(&["process.label=apparmor:some"], "process.label/not-in-a-machine");
    ProcessDevices: "a device of the host is refused" =>
        refused(&["process.devices=[\"kvm\"]"], "process.devices/not-in-a-machine");
    SyscallsProfile: "the filter is on" => enforced(|scene| says(scene, "seccomp", "2 1"));
    SyscallsAllow: "a call can be opened" => enforced(|scene| says(scene, "allowed", "open"));
    SyscallsDeny: "a call can be closed" => enforced(|scene| says(scene, "denied", "closed"));
    LanguageModules: "a clause of interpreters is refused" =>
        refused(&["language.modules=[\"math\"]"], "language/needs-language");
    LanguageSteps: "a clause of interpreters is refused" => refused(&["language.steps=1000"], "language/needs-language");
    LanguageRecursion: "a clause of interpreters is refused" =>
        refused(&["language.recursion=100"], "language/needs-language");
    Commands: "judged commands are refused when they are planned" =>
        enforced(|scene| unplanned(scene, "commands={presets=[\"inspect\"]}", "commands/not-in-a-machine"));
    Tools: "the gate stands before whoever calls a tool" => enforced(tools);
    AuditPath: "the run is in the log" => enforced(|scene| logged(scene, "\"run.planned\"", true));
    AuditRedact: "what matches is in no record" => enforced(|scene| logged(scene, "of-the-policy", false));
    AuditContent: "arguments are a hash" => enforced(|scene| logged(scene, "fill()", false));
    AuditSync: "the end is in the log" => enforced(|scene| logged(scene, "\"run.ended\"", true));
}

/// Why no machine by this backend can be had here.
pub(crate) fn missing(backend: &str) -> Option<String> {
    let emulator = Emulator::ALL.into_iter().find(|emulator| emulator.backend() == backend)?;
    let busybox = PathBuf::from("/bin/busybox").exists();
    let lacks = backends::Capabilities::probe().machine(emulator).err().map(|missing| missing.why);
    let elsewhere = match emulator {
        Emulator::Qemu => None,
        // Each case has a state folder of its own, in which KVM was not tried.
        Emulator::Firecracker => Some("machines by it are looked at by `scripts/vm kvm`".to_owned()),
    };
    lacks.or(elsewhere).or_else(|| (!busybox).then(|| "there is no `/bin/busybox`".to_owned()))
}

/// What the one run said.
#[derive(Clone, Debug)]
struct RunOutput {
    lines: BTreeMap<String, String>,
    log: String,
    said: String,
}

/// One emulator at a time: each takes a whole processor.
static ALONE: Mutex<()> = Mutex::new(());

/// Whoever has this starts one.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

static SEEN: [OnceLock<Result<RunOutput, String>>; 2] = [OnceLock::new(), OnceLock::new()];

/// Each line a word and what was found. What can be written is filled last, since it then stays full.
const SCRIPT: &str = "
tell() { echo \"$@\"; }
is() { key=$1; shift; if \"$@\" >/dev/null 2>&1; then tell $key open; else tell $key closed; fi; }
field() { grep ^$1: /proc/self/status | tr -d '\\t' | cut -d: -f2; }
tell kernel $(cat /proc/sys/kernel/osrelease)
tell privilege $(field NoNewPrivs) $(field CapEff) $(field CapBnd) $(cat /proc/sys/user/max_user_namespaces)
tell user $(id -u) $(id -g) $(id -un)
tell hostname $(cat /proc/sys/kernel/hostname)
tell umask $(umask)
tell seccomp $(field Seccomp) $(field Seccomp_filters)
tell set $MARK
tell input $INPUT_COUNT
tell canary $(env | grep -c canary-of-the-caller)
tell devices $(tail -n +3 /proc/net/dev | cut -d: -f1)
tell memory $(grep MemTotal /proc/meminfo | tr -dc 0-9)
tell open_files $(ulimit -n)
tell id $(wc -c </etc/machine-id)
is id_written sh -c 'echo other >/etc/machine-id'
tell entries $(ls / | tr '\\n' ' ')
is root touch /bin/new
is image touch /etc/new
is inet nc -l -p 9999 -w 1
is unix nc -lU /tmp/socket -w 1
echo '#!/bin/sh' >/tmp/true; chmod 755 /tmp/true; is written /tmp/true; rm -f /tmp/true
is reading cat /tmp/..
is legitimate cat /etc/passwd
tell given $(pwd) $(cat given); echo changed >given; echo new >new; rm gone; chmod 600 kept
is denied mkdir /tmp/folder
is allowed chmod 700 /tmp/.home
dd if=/dev/zero of=/tmp/one bs=4096 count=1000 2>/dev/null; tell file_size $(wc -c </tmp/one); rm -f /tmp/one
tell pids $( (for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 2 & echo started; done) 2>/dev/null | grep -c started)
n=0; while [ $n -lt 1500 ] && echo -n 2>/dev/null >/run/$n; do n=$((n + 1)); done; m=0
while [ $m -lt 1500 ] && echo -n 2>/dev/null >/dev/shm/$m; do m=$((m + 1)); done; k=0
while [ $k -lt 1500 ] && echo -n 2>/dev/null >/tmp/$k; do k=$((k + 1)); done
l=0; while [ $l -lt 1500 ] && echo -n 2>/dev/null >$l; do l=$((l + 1)); done; tell files $((n + m + k + l))
rm -f /run/[0-9]* /dev/shm/[0-9]* /tmp/[0-9]* [0-9]*
fill() { n=0; while [ $n -lt 40 ] && dd if=/dev/zero of=$1/f$n bs=1048576 count=1 2>/dev/null; do n=$((n + 1)); done; echo $n; }
tell tmp $(fill /tmp); tell shm $(fill /dev/shm); tell run $(fill /run); tell workspace $(fill .); rm -f f[0-9]*
tell end $(head -c 200000 /dev/zero | tr '\\0' x)
";

/// A root of busybox's in the fixture's work folder.
pub(super) fn make_root(scene: &Fixture) -> Result<String, CaseError> {
    let root = scene.work().join("root");
    let value = format!("fs.root=dir:{}", root.display());
    if root.exists() {
        return Ok(value);
    }
    std::fs::create_dir_all(root.join("bin"))?;
    std::fs::create_dir_all(root.join("etc"))?;
    std::fs::copy("/bin/busybox", root.join("bin/busybox"))?;
    let names = "sh cat chmod cp cut dd env grep head id ls mkdir nc nslookup rm sleep tail touch tr true wc wget";
    for name in names.split(' ') {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(name))?;
    }
    std::fs::write(root.join("etc/machine-id"), "0123456789abcdef0123456789abcdef\n")?;
    std::fs::write(root.join("etc/passwd"), "ann:x:1000:1000::/home/ann:/bin/sh\n")?;
    Ok(value)
}

fn look(scene: &Fixture) -> Result<RunOutput, CaseError> {
    let root = make_root(scene)?;
    let folder = scene.work().join("project");
    std::fs::create_dir(&folder)?;
    for name in ["given", "gone", "kept"] {
        std::fs::write(folder.join(name), "of the host\n")?;
    }
    let backend = format!("backend={}", scene.backend().name);
    let workspace = format!("workspace={{path=\"{}\",mode=\"copy\"}}", folder.display());
    let values = [
        root.as_str(),
        workspace.as_str(),
        backend.as_str(),
        "limits.wall=5m",
        "limits.memory=192M",
        "limits.pids=8",
        "limits.open_files=200",
        "limits.file_size=1M",
        "limits.disk=12M",
        "limits.files=500",
        "limits.output=64K",
        "fs.tmp=8M",
        "fs.shm=2M",
        "fs.run=1M",
        "process.user=ann",
        "process.hostname=elsewhere",
        "process.umask=\"0027\"",
        "env.set={MARK=\"of-the-policy\"}",
        "inputs={count={type=\"integer\"}}",
        "syscalls.deny=[\"mkdir\"]",
        "syscalls.allow=[\"fchmodat2\"]",
        "audit.redact=[\"of-the-policy\"]",
    ];
    let mut flags = Fixture::values(&values);
    flags.extend(["--input", "count=42"].map(Into::into));
    let ended = scene.run(&flags, &["/bin/sh", "-c", SCRIPT])?;
    let mut lines: BTreeMap<String, String> = ended
        .out()
        .lines()
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .map(|(word, rest)| (word.to_owned(), rest.to_owned()))
        .collect();
    lines.insert("backend".to_owned(), ended.text("/backend").to_owned());
    let changes = ended.report.pointer("/workspace/changes").and_then(serde_json::Value::as_array);
    let text =
        |value: &serde_json::Value, key| value.get(key).and_then(|it| it.as_str()).unwrap_or_default().to_owned();
    let changes = changes.into_iter().flatten().map(|one| format!("{} {}", text(one, "change"), text(one, "path")));
    lines.insert("changes".to_owned(), changes.collect::<Vec<_>>().join(", "));
    let host = ["given", "gone", "kept"].map(|name| std::fs::read_to_string(folder.join(name)).unwrap_or_default());
    lines.insert("host".to_owned(), host.concat());
    let mut log = String::new();
    for entry in std::fs::read_dir(scene.state().join("audit"))? {
        log.push_str(&String::from_utf8_lossy(&std::fs::read(entry?.path())?));
    }
    Ok(RunOutput { lines, log, said: ended.said() })
}

fn seen(scene: &Fixture) -> Result<&'static RunOutput, CaseError> {
    let at = usize::from(scene.who == Who::Rootless);
    let cell = SEEN.get(at).ok_or("there are two callers")?;
    let found = cell.get_or_init(|| {
        let _alone = alone();
        look(scene).map_err(|error| error.to_string())
    });
    found.as_ref().map_err(|why| why.clone().into())
}

fn line<'a>(seen: &'a RunOutput, word: &str) -> &'a str {
    seen.lines.get(word).map_or("(nothing)", String::as_str)
}

fn says(scene: &Fixture, word: &str, wanted: &str) -> CaseResult {
    let seen = seen(scene)?;
    // What is legitimate works in the same run: closed doors are no proof where all are.
    check(line(seen, "legitimate") == "open", || seen.said.clone())?;
    check(line(seen, word) == wanted, || format!("`{word}` is `{}`; {}", line(seen, word), seen.said))
}

/// As many as were had: some, and no more than that.
fn at_most(scene: &Fixture, word: &str, most: u64) -> CaseResult {
    let seen = seen(scene)?;
    let found = line(seen, word).parse::<u64>().unwrap_or(u64::MAX);
    let some = found > 0 || word == "run";
    check(some && found <= most, || format!("`{word}` is `{}`; {}", line(seen, word), seen.said))
}

fn tier(scene: &Fixture) -> CaseResult {
    let ours = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let seen = seen(scene)?;
    check(line(seen, "kernel") != ours.trim() && line(seen, "kernel").contains('.'), || seen.said.clone())?;
    says(scene, "privilege", "1 0000000000000000 0000000000000000 0")
}

fn tenants(scene: &Fixture) -> CaseResult {
    let root = make_root(scene)?;
    let planned = scene.plan(&[&root, "threat=multi-tenant"])?;
    check(planned.code == Some(0), || planned.said())
}

fn root(scene: &Fixture) -> CaseResult {
    says(scene, "root", "closed")?;
    says(scene, "image", "closed")?;
    // Two machines of one image are not the same machine.
    says(scene, "id", "0")?;
    says(scene, "id_written", "closed")?;
    says(scene, "entries", "bin dev etc home proc run tmp workspace")
}

fn workspace(scene: &Fixture) -> CaseResult {
    says(scene, "given", "/workspace of the host")?;
    says(scene, "changes", "modified given, removed gone, modified kept, added new")?;
    says(scene, "host", "of the host\nof the host\nof the host\n")
}

fn network(scene: &Fixture) -> CaseResult {
    says(scene, "devices", "lo")?;
    says(scene, "inet", "closed")
}

fn memory(scene: &Fixture) -> CaseResult {
    let seen = seen(scene)?;
    let found = line(seen, "memory").parse::<u64>().unwrap_or(u64::MAX);
    check(found > 64 << 10 && found <= 192 << 10, || format!("{found} KiB; {}", seen.said))
}

fn disk(scene: &Fixture) -> CaseResult {
    let seen = seen(scene)?;
    let all = ["tmp", "shm", "run", "workspace"]
        .iter()
        .map(|word| line(seen, word).parse::<u64>().unwrap_or(99))
        .sum::<u64>();
    check(all > 0 && all <= 12, || format!("{all} MiB; {}", seen.said))
}

fn output(scene: &Fixture) -> CaseResult {
    let seen = seen(scene)?;
    check(seen.said.len() < 150_000 && line(seen, "tmp") != "(nothing)", || format!("{} bytes", seen.said.len()))
}

fn pass(scene: &Fixture) -> CaseResult {
    says(scene, "canary", "0")
}

/// The run is in the log, and whether a text is.
fn logged(scene: &Fixture, text: &str, there: bool) -> CaseResult {
    let seen = seen(scene)?;
    check(seen.log.contains("\"run.planned\"") && seen.log.contains(text) == there, || {
        format!("`{text}` in the log: {}", !there)
    })
}

fn wall(scene: &Fixture) -> CaseResult {
    let root = make_root(scene)?;
    let _alone = alone();
    let ended = scene.shell(&[&root, "limits.wall=1s"], "sleep 60")?;
    check(ended.code == Some(124) && ended.limit() == "wall", || ended.said())
}

fn cpu_time(scene: &Fixture) -> CaseResult {
    let root = make_root(scene)?;
    let values = [root.as_str(), "threat=mistakes", "limits.wall=5m", "limits.cpu_time=20s"];
    let _alone = alone();
    let ended = scene.shell(&values, "while :; do :; done")?;
    check(ended.code == Some(124) && ended.limit() == "cpu_time", || ended.said())
}

/// The plan names the group that holds it; that the start reads it back is a proof of its own.
fn planned(scene: &Fixture, value: &str, clause: &str, controller: &str) -> CaseResult {
    planned_with(scene, &[value], clause, controller)
}

pub(super) fn planned_with(scene: &Fixture, values: &[&str], clause: &str, controller: &str) -> CaseResult {
    let root = make_root(scene)?;
    // On v1 what is written later by the kernel is nobody's: held against mistakes there.
    let planned = scene.plan(&[&[root.as_str(), "threat=mistakes"], values].concat())?;
    let all = planned.report.get("clauses").and_then(serde_json::Value::as_array);
    let named = all.into_iter().flatten().find(|one| one.get("clause").is_some_and(|name| name == clause));
    let by = named.and_then(|one| one.get("enforcer")).and_then(serde_json::Value::as_str).unwrap_or_default();
    check(by.ends_with(controller), || format!("{by}; {}", planned.said()))
}

/// The clause is in the plan, held by what keeps every byte inside; that this is so [`network`] sees.
fn unmetered(scene: &Fixture, clause: &str) -> CaseResult {
    let value = match clause {
        "net.bandwidth" => "1M/s",
        "net.bytes" => "1G",
        _ => "64",
    };
    planned(scene, &format!("{clause}={value}"), clause, "vm:no-network-device+vm:seccomp:socket")?;
    network(scene)
}

/// Refused for this reason, and planned without it. A run would first ask for a terminal, or judge its own command.
fn unplanned(scene: &Fixture, value: &str, id: &str) -> CaseResult {
    let root = make_root(scene)?;
    let ended = scene.plan(&[&root, value])?;
    check(ended.code == Some(126) && ended.refusals().iter().any(|found| found == id), || ended.said())?;
    let without = scene.plan(&[&root])?;
    check(without.code == Some(0), || without.said())
}

fn tools(scene: &Fixture) -> CaseResult {
    let root = make_root(scene)?;
    let planned = scene.plan(&[&root, "tools={default=\"deny\"}"])?;
    check(planned.code == Some(0), || planned.said())
}
