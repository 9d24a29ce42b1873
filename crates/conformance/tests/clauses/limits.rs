//! Limits on amounts: each ends the run with its own reason, or is held by the kernel without ending it.

use std::time::Duration;

use conformance::case::{BOTH, CONTAINER, EVERY, LINUX, TREES};
use conformance::live::until;
use conformance::{Case, CaseResult, Cell, Ended, Fixture, Tier, check};
use policy::ClauseId;

pub(crate) const CASES: &[Case] = &[
    Case {
        clause: ClauseId::LimitsWall,
        backends: EVERY,
        sentence: "the run ends in time",
        cell: Cell::Enforced(wall),
    },
    Case {
        clause: ClauseId::LimitsCpuTime,
        backends: LINUX,
        sentence: "processor time of all children together ends the run",
        cell: Cell::Enforced(cpu_time),
    },
    Case {
        clause: ClauseId::LimitsCpuTime,
        backends: BOTH,
        sentence: "children that are gone still count",
        cell: Cell::Enforced(cpu_time_of_the_dead),
    },
    Case {
        clause: ClauseId::LimitsCpus,
        backends: LINUX,
        sentence: "a busy tree gets its share and no more",
        cell: Cell::Controller("cpu", &["limits.cpus=0.05"], "limits.cpus/no-controller", cpus),
    },
    Case {
        clause: ClauseId::LimitsCpuset,
        backends: EVERY,
        sentence: "the tree runs on the named core alone",
        cell: Cell::Controller("cpuset", &["limits.cpuset=0"], "limits.cpuset/no-controller", cpuset),
    },
    Case {
        clause: ClauseId::LimitsMemory,
        backends: EVERY,
        sentence: "memory of one process ends the run and is not called a signal",
        cell: Cell::Enforced(memory),
    },
    Case {
        clause: ClauseId::LimitsMemory,
        backends: LINUX,
        sentence: "the peak in the report is what the limit counts, a file that is mapped many times once",
        cell: Cell::Enforced(peak_of_mapped_file),
    },
    Case {
        clause: ClauseId::LimitsMemory,
        backends: EVERY,
        sentence: "memory of children counts together",
        cell: Cell::Enforced(memory_of_children),
    },
    Case {
        clause: ClauseId::LimitsMemory,
        backends: EVERY,
        sentence: "an anonymous file counts",
        cell: Cell::Enforced(memory_of_memfd),
    },
    Case {
        clause: ClauseId::LimitsMemory,
        backends: EVERY,
        sentence: "an anonymous shared mapping counts",
        cell: Cell::Enforced(memory_of_shared_mapping),
    },
    Case {
        clause: ClauseId::LimitsMemory,
        backends: TREES,
        sentence: "what is written to /tmp counts",
        cell: Cell::Enforced(memory_of_tmpfs),
    },
    Case {
        clause: ClauseId::LimitsMemory,
        backends: CONTAINER,
        sentence: "what waits for connections that nobody accepts counts, and so do messages of netlink",
        cell: Cell::Enforced(memory_of_sockets),
    },
    Case {
        clause: ClauseId::LimitsPids,
        backends: LINUX,
        sentence: "processes stop at the limit",
        cell: Cell::Enforced(pids),
    },
    Case { clause: ClauseId::LimitsPids, backends: LINUX, sentence: "threads count", cell: Cell::Enforced(threads) },
    Case {
        clause: ClauseId::LimitsOpenFiles,
        backends: EVERY,
        sentence: "descriptors stop at the limit",
        cell: Cell::Enforced(open_files),
    },
    Case {
        clause: ClauseId::LimitsFileSize,
        backends: EVERY,
        sentence: "a file stops at its size",
        cell: Cell::Enforced(file_size),
    },
    Case {
        clause: ClauseId::LimitsFileSize,
        backends: EVERY,
        sentence: "a file takes no room behind its size",
        cell: Cell::Enforced(room_of_a_file),
    },
    Case {
        clause: ClauseId::LimitsDisk,
        backends: EVERY,
        sentence: "bytes in all that is writable stop at the limit",
        cell: Cell::Enforced(disk),
    },
    Case {
        clause: ClauseId::LimitsFiles,
        backends: EVERY,
        sentence: "files in all that is writable stop at the limit",
        cell: Cell::Enforced(files),
    },
    Case {
        clause: ClauseId::LimitsDisk,
        backends: BOTH,
        sentence: "`prefer` weakens it, and plan, report and log say so",
        cell: Cell::Enforced(preferred),
    },
];

fn limited(ended: &Ended, limit: &str) -> CaseResult {
    check(ended.code == Some(124) && ended.limit() == limit && ended.text("/outcome/kind") == "limit", || {
        format!("expected the limit `{limit}`: {}", ended.said())
    })
}

fn wall(scene: &Fixture) -> CaseResult {
    let control = scene.shell(&["limits.wall=60s"], "sleep 1; echo over")?;
    check(control.out() == "over", || control.said())?;
    let ended = scene.shell(&["limits.wall=300ms"], "sleep 50; echo over")?;
    limited(&ended, "wall")?;
    // Our own clock is the observer; a busy machine takes its time to start and to end it.
    check(ended.took.as_millis() >= 300 && ended.took.as_secs() < 30, || format!("it took {:?}", ended.took))
}

/// Without a control group a program could hide time from whoever samples it: refused where it is hostile.
const MISTAKES: &str = "threat=mistakes";

/// Four children that compute for a while each.
const BUSY: &str = "
import os, time
for _ in range(4):
    if os.fork() == 0:
        end = time.process_time() + 0.8
        while time.process_time() < end: pass
        os._exit(0)
for _ in range(4): os.wait()
print('over')
";

fn cpu_time(scene: &Fixture) -> CaseResult {
    let control = scene.control_python(BUSY)?;
    check(control.out() == "over", || control.said())?;
    // Each stays below, together they do not.
    let ended = scene.python(&["limits.cpu_time=1s", MISTAKES], BUSY)?;
    limited(&ended, "cpu_time")?;
    let used = ended.number("/usage/cpu_user") + ended.number("/usage/cpu_system");
    // All of it would be more than 3.2 s.
    check((0.9..2.4).contains(&used), || format!("{used} s were used"))
}

/// Each child is gone before anybody looks twice; together they do not stay below.
fn cpu_time_of_the_dead(scene: &Fixture) -> CaseResult {
    let code = "
import os, time
for _ in range(50):
    if os.fork() == 0:
        end = time.process_time() + 0.04
        while time.process_time() < end: pass
        os._exit(0)
    os.wait()
print('over')";
    let control = scene.control_python(code)?;
    check(control.out() == "over", || control.said())?;
    limited(&scene.python(&["limits.cpu_time=700ms", MISTAKES], code)?, "cpu_time")
}

/// Two children that compute; the share of a core that they had while they did.
const SHARE: &str = "
import os, time
begun = time.monotonic()
for _ in range(2):
    if os.fork() == 0:
        end = time.process_time() + 0.15
        while time.process_time() < end: pass
        os._exit(0)
for _ in range(2): os.wait()
times = os.times()
print((times.children_user + times.children_system) / (time.monotonic() - begun))
";

fn cpus(scene: &Fixture) -> CaseResult {
    let share = |ended: &Ended| ended.out().parse().unwrap_or(f64::NAN);
    // So small a share that even a busy machine gives more to who is not held to it.
    let free = until(Duration::from_secs(60), || scene.control_python(SHARE).is_ok_and(|ended| share(&ended) > 0.12));
    check(free, || "this host gives nobody more than an eighth of a core: nothing could be shown".to_owned())?;
    let ended = scene.python(&["limits.cpus=0.05"], SHARE)?;
    check((0.0..0.09).contains(&share(&ended)), || ended.said())
}

fn cpuset(scene: &Fixture) -> CaseResult {
    let code = "import os; print(len(os.sched_getaffinity(0)))";
    let control = scene.control_python(code)?;
    check(control.out() != "1", || "this host has one core: nothing could be shown".to_owned())?;
    let ended = scene.python(&["limits.cpuset=0"], code)?;
    check(ended.code == Some(0) && ended.out() == "1", || ended.said())
}

/// Takes memory in 2 MiB pieces.
const TAKE: &str = "
def take(mib, to, pause=0.002):
    import time
    for _ in range(mib // 2):
        to.append(bytearray(b'x') * (2 << 20))
        time.sleep(pause)
";

/// The same code for a run that is to end by itself, and for one that a limit is to end: that one holds what it took for
/// so long that a sampler on a busy machine looks too.
fn brief_and_held(code: &str) -> (String, String) {
    (code.replace("HOLD", "0"), code.replace("HOLD", "20"))
}

fn memory(scene: &Fixture) -> CaseResult {
    let code = format!("{TAKE}\nkept = []; take(96, kept, 0.02); import time; time.sleep(HOLD); print('over')");
    let (brief, held) = brief_and_held(&code);
    let control = scene.control_python(&brief)?;
    check(control.out() == "over", || control.said())?;
    let room = scene.python(&["limits.memory=192M", "limits.disk=84M"], &brief)?;
    check(room.out() == "over", || room.said())?;
    let ended = scene.python(&SMALL, &held)?;
    limited(&ended, "memory")?;
    let held = ended.number("/usage/memory_peak");
    // What sampling lets through is named in the plan; it is a few pieces, not the whole.
    check(held <= f64::from(90 << 20), || format!("the peak was {held}"))
}

/// Its resident set is 192 MiB then, and nothing ends it.
fn peak_of_mapped_file(scene: &Fixture) -> CaseResult {
    let code = "
import mmap, os, time
with open(os.path.join(os.environ.get('TMPDIR', '/tmp'), 'f'), 'w+b') as file:
    for _ in range(16):
        file.write(bytes(1 << 20))
    file.flush()
    maps = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) for _ in range(12)]
    print(sum(one[at] for one in maps for at in range(0, 16 << 20, 4096)), flush=True)
    time.sleep(1)
";
    let ended =
        scene.python(&["limits.memory=128M", "limits.disk=60M", "fs.tmp=40M", "fs.shm=4M", "fs.run=4M"], code)?;
    check(ended.out() == "0", || ended.said())?;
    let peak = ended.number("/usage/memory_peak");
    check(peak >= f64::from(16 << 20) && peak <= f64::from(128 << 20), || format!("the peak was {peak}"))
}

const SMALL: [&str; 5] = ["limits.memory=64M", "limits.disk=30M", "fs.tmp=20M", "fs.shm=4M", "fs.run=4M"];

fn memory_of_children(scene: &Fixture) -> CaseResult {
    let code = format!(
        "{TAKE}
import os, time
for _ in range(4):
    if os.fork() == 0:
        kept = []; take(24, kept); time.sleep(HOLD); os._exit(0)
print([os.wait()[1] for _ in range(4)])"
    );
    let (brief, held) = brief_and_held(&code);
    let control = scene.control_python(&brief)?;
    check(control.out() == "[0, 0, 0, 0]", || control.said())?;
    // Each has 24 of 64 MiB, together 96.
    limited(&scene.python(&SMALL, &held)?, "memory")
}

fn memory_of_memfd(scene: &Fixture) -> CaseResult {
    let code = "
import os, time
for _ in range(12):
    fd = os.memfd_create('x')
    for _ in range(4): os.write(fd, b'x' * (2 << 20)); time.sleep(0.002)
time.sleep(HOLD)
print('over')";
    let (brief, held) = brief_and_held(code);
    let control = scene.control_python(&brief)?;
    check(control.out() == "over", || control.said())?;
    let ended = scene.python(&SMALL, &held)?;
    // A profile without memfd_create is as good: then nothing was taken at all.
    if ended.err().contains("Function not implemented") || ended.err().contains("not permitted") {
        return Ok(());
    }
    limited(&ended, "memory")
}

fn memory_of_shared_mapping(scene: &Fixture) -> CaseResult {
    let code = "
import mmap, time
m = mmap.mmap(-1, 96 << 20)
for at in range(0, 96 << 20, 2 << 20):
    m[at:at + (2 << 20)] = b'x' * (2 << 20); time.sleep(0.002)
time.sleep(HOLD)
print('over')";
    let (brief, held) = brief_and_held(code);
    let control = scene.control_python(&brief)?;
    check(control.out() == "over", || control.said())?;
    let ended = scene.python(&SMALL, &held)?;
    // Where nobody counts by a control group, memory that shows in no file cannot be had.
    if ended.code == Some(1) && ended.said().contains("PermissionError") { Ok(()) } else { limited(&ended, "memory") }
}

fn memory_of_tmpfs(scene: &Fixture) -> CaseResult {
    let code = format!(
        "{TAKE}
import os
with open('/tmp/fill', 'wb', 0) as f:
    for _ in range(28): f.write(b'x' * (1 << 20))
kept = []; take(40, kept)
import time; time.sleep(HOLD)
print('over')"
    );
    let (brief, held) = brief_and_held(&code);
    let values = ["limits.memory=64M", "limits.disk=32M", "fs.tmp=30M", "fs.shm=1M", "fs.run=1M"];
    let wide = ["limits.memory=192M", "limits.disk=32M", "fs.tmp=30M", "fs.shm=1M", "fs.run=1M"];
    let room = scene.python(&wide, &brief)?;
    check(room.out() == "over", || room.said())?;
    limited(&scene.python(&values, &held)?, "memory")
}

/// `COUNT` connections to one who accepts none, each with 48 kB.
const UNACCEPTED: &str = "
import socket, time
listener = socket.create_server(('127.0.0.1', 0), backlog=4096)
for _ in range(COUNT):
    client = socket.create_connection(listener.getsockname())
    client.sendall(b'x' * 48000)
    client.close()
time.sleep(HOLD)
print('over')";

/// Messages that nobody reads: answers to `COUNT` requests of a kind that there is not, each in a socket of its own.
const NETLINK: &str = "
import socket, struct, time
kept = []
for _ in range(COUNT):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.bind((0, 0)); s.setblocking(False); kept.append(s)
    request = struct.pack('=IHHII', 16 + 16000, 99, 5, 1, 0) + bytes(16000)
    try:
        for _ in range(40): s.send(request)
    except OSError: pass
time.sleep(HOLD)
print('over')";

/// The kernel charges no control group for either (and names it nowhere).
fn memory_of_sockets(scene: &Fixture) -> CaseResult {
    for code in [UNACCEPTED, NETLINK] {
        let (brief, held) = brief_and_held(&code.replace("COUNT", "600"));
        let control = scene.control_python(&brief)?;
        check(control.out() == "over", || control.said())?;
        let small = SMALL.into_iter().chain(["net.mode=loopback", "limits.open_files=1024"]);
        limited(&scene.python(&small.collect::<Vec<_>>(), &held)?, "memory")?;
        // A server that is slow to accept, and a program that asks for its addresses.
        let (few, _) = brief_and_held(&code.replace("COUNT", "20"));
        let small = SMALL.into_iter().chain(["net.mode=loopback"]).collect::<Vec<_>>();
        let room = scene.python(&small, &few)?;
        check(room.out() == "over", || room.said())?;
    }
    Ok(())
}

/// Starts forty sleepers; prints how many there were.
const FORK: &str = "
import os, time, signal
made = []
for _ in range(40):
    try: pid = os.fork()
    except OSError as e:
        print('errno', e.errno); break
    if pid == 0:
        time.sleep(50); os._exit(0)
    made.append(pid)
if len(made) == 40: time.sleep(HOLD)
print(len(made), flush=True)
for pid in made: os.kill(pid, 9)
";

fn held_at(scene: &Fixture, ended: &Ended, most: usize) -> CaseResult {
    // Sampled, the run ends; by the kernel, the next start fails and is told.
    if ended.limit() == "pids" {
        return limited(ended, "pids");
    }
    let made: usize = ended.out().lines().last().and_then(|line| line.parse().ok()).unwrap_or(usize::MAX);
    check(ended.code == Some(0) && made <= most, || format!("{} {made}: {}", scene.who.as_str(), ended.said()))?;
    check(ended.violations().contains(&"limits.pids/refused") || scene.who == conformance::Who::Rootless, || {
        format!("no violation was told: {}", ended.said())
    })
}

fn pids(scene: &Fixture) -> CaseResult {
    let (brief, held) = brief_and_held(FORK);
    let control = scene.control_python(&brief)?;
    check(control.out() == "40", || control.said())?;
    let room = scene.python(&["limits.pids=60"], &brief)?;
    check(room.out() == "40", || room.said())?;
    held_at(scene, &scene.python(&["limits.pids=10"], &held)?, 9)
}

fn threads(scene: &Fixture) -> CaseResult {
    let code = "
import threading, time
stop = threading.Event(); n = 0
try:
    for n in range(40): threading.Thread(target=stop.wait, daemon=True).start()
    n = 40
except RuntimeError as e: print('error', e)
if n == 40: time.sleep(HOLD)
print(n, flush=True); stop.set()";
    let (brief, held) = brief_and_held(code);
    let control = scene.control_python(&brief)?;
    check(control.out() == "40", || control.said())?;
    held_at(scene, &scene.python(&["limits.pids=10"], &held)?, 10)
}

fn open_files(scene: &Fixture) -> CaseResult {
    let code = "
import os
n = 0
try:
    for n in range(200): os.dup(0)
    n = 200
except OSError as e: print('errno', e.errno)
print(n)";
    let control = scene.control_python(code)?;
    check(control.out() == "200", || control.said())?;
    let ended = scene.python(&["limits.open_files=32"], code)?;
    check(ended.out().starts_with("errno 24\n") && ended.out() != "200", || ended.said())
}

fn file_size(scene: &Fixture) -> CaseResult {
    let write = |folder: &str| {
        format!(
            "
import os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = {folder} + '/large'
try:
    with open(path, 'wb', 0) as f:
        for _ in range(4): f.write(b'x' * (1 << 20))
except OSError as e: print('errno', e.errno)
print(os.path.getsize(path))"
        )
    };
    let control = scene.control_python(&write(&format!("'{}'", scene.work().display())))?;
    check(control.out() == "4194304", || control.said())?;
    let ended = scene.python(&["limits.file_size=1M"], &write("os.environ['TMPDIR']"))?;
    check(ended.out() == "errno 27\n1048576", || ended.said())
}

/// FALLOC_FL_KEEP_SIZE takes blocks that `limits.file_size` does not see.
fn room_of_a_file(scene: &Fixture) -> CaseResult {
    let reserve = |folder: &str| {
        format!(
            "
import ctypes, os
call = ctypes.CDLL(None, use_errno=True).fallocate
call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
fd = os.open({folder} + '/reserved', os.O_CREAT | os.O_RDWR)
def room(mode, length):
    return ctypes.get_errno() if call(fd, mode, 0, length) else 0
print(room(1, 8 << 20), room(0, 1 << 19), room(3, 4096), os.fstat(fd).st_blocks // 2048)"
        )
    };
    let control = scene.control_python(&reserve(&format!("'{}'", scene.work().display())))?;
    check(control.out() == "0 0 0 7" || control.out() == "0 0 0 8", || control.said())?;
    let ended = scene.python(&["limits.file_size=1M"], &reserve("os.environ['TMPDIR']"))?;
    // gVisor has no hole to punch.
    check(["95 0 0 0", "95 0 95 0"].contains(&ended.out().as_str()), || ended.said())
}

/// Everything together, in every place that can be written.
fn fill(scene: &Fixture, piece: &str) -> String {
    let places = match scene.tier {
        Tier::Container | Tier::Gvisor | Tier::Vm => "['/tmp', '/dev/shm', '/run']",
        Tier::Language | Tier::Process => "[os.environ['TMPDIR'], os.environ['HOME']]",
    };
    format!(
        "
import os, time
done = failed = 0
for place in {places}:
    try:
        for n in range(60):
            {piece}
            done += 1
            time.sleep(0.004)
    except OSError as e:
        failed = 1; print('errno', e.errno)
if not failed: time.sleep(HOLD)
print(done, flush=True)"
    )
}

fn held_together(scene: &Fixture, ended: &Ended, most: u32) -> CaseResult {
    match scene.tier {
        Tier::Container | Tier::Gvisor | Tier::Vm => {
            let done: u32 = ended.out().lines().last().and_then(|line| line.parse().ok()).unwrap_or(u32::MAX);
            check(ended.out().contains("errno 28") && done <= most, || ended.said())
        }
        Tier::Language | Tier::Process => limited(ended, "disk"),
    }
}

fn disk(scene: &Fixture) -> CaseResult {
    let code = fill(scene, "open(place + '/f%d' % n, 'wb', 0).write(b'x' * (1 << 19))");
    let (brief, held) = brief_and_held(&code);
    let wide =
        scene.python(&["limits.disk=200M", "limits.memory=512M", "fs.tmp=100M", "fs.shm=40M", "fs.run=40M"], &brief)?;
    check(wide.code == Some(0) && !wide.out().contains("errno"), || wide.said())?;
    let ended = scene.python(&["limits.disk=20M", "fs.tmp=12M", "fs.shm=4M", "fs.run=4M"], &held)?;
    held_together(scene, &ended, 40)
}

fn files(scene: &Fixture) -> CaseResult {
    let (brief, held) = brief_and_held(&fill(scene, "open(place + '/f%d' % n, 'w').close()"));
    let wide = scene.python(&["limits.files=100000"], &brief)?;
    check(wide.code == Some(0) && !wide.out().contains("errno"), || wide.said())?;
    let ended = scene.python(&["limits.files=40"], &held)?;
    held_together(scene, &ended, 40)
}

fn preferred(scene: &Fixture) -> CaseResult {
    let out = scene.dir("out")?;
    let grant = format!("fs.write=[\"{}\"]", out.display());
    let prefer = "prefer=[\"limits.disk\",\"limits.files\"]";
    let script = format!("echo 1 > {}/new", out.display());
    let refused = scene.shell(&[&grant], &script)?;
    check(refused.code == Some(126), || refused.said())?;
    let ended = scene.shell(&[&grant, prefer], &script)?;
    let told = |text: &str| text.contains("weakened") && text.contains("limits.disk") && text.contains("limits.files");
    check(ended.code == Some(0) && told(&ended.report.to_string()), || ended.said())?;
    let passing = scene.start_passing(&[&grant, prefer], &script)?.end()?;
    check(told(&String::from_utf8_lossy(&passing.stderr)), || format!("stderr is silent: {}", passing.said()))?;
    let planned = scene.plan(&[&grant, prefer])?;
    check(told(&planned.out()), || planned.said())?;
    check(told(&conformance::fixture::text(&scene.state().join("audit/audit.jsonl"))?), || {
        "the log is silent".to_owned()
    })
}
