//! What the gvisor tier refuses by name, and what it alone must show.

use std::time::Duration;

use conformance::case::GVISOR;
use conformance::live::until;
use conformance::{Case, CaseResult, Cell, Fixture, check};
use policy::ClauseId;
use sys::proc::{Namespace, Process};

use crate::process::{call, number};

const fn refused(clause: ClauseId, values: &'static [&'static str], id: &'static str) -> Case {
    Case { clause, backends: GVISOR, sentence: "what gVisor cannot hold is refused", cell: Cell::Refused(values, id) }
}

pub(crate) const CASES: &[Case] = &[
    Case {
        clause: ClauseId::Tier,
        backends: GVISOR,
        sentence: "another kernel answers, whose processes the host holds by filter, namespaces, ids and group",
        cell: Cell::Enforced(own_kernel),
    },
    Case {
        clause: ClauseId::Tier,
        backends: GVISOR,
        sentence: "inside there is no device and no process of the host's, and nobody has a capability",
        cell: Cell::Enforced(inside),
    },
    Case {
        clause: ClauseId::Backend,
        backends: GVISOR,
        sentence: "the backend of the policy is the one that runs",
        cell: Cell::Enforced(by_name),
    },
    refused(ClauseId::Backend, &["backend=native"], "backend/other-tier"),
    refused(ClauseId::Threat, &["tier=auto", "threat=multi-tenant", "fs.landlock=1"], "fs.landlock/gvisor"),
    refused(ClauseId::Enforcer, &["enforcer=kernel", "limits.cpu_time=5s"], "enforcer/kernel-demanded"),
    refused(ClauseId::FsWrite, &["fs.write=[\".\"]"], "fs.write/gvisor"),
    refused(ClauseId::FsHide, &["fs.hide=[\"**/.env\"]", "workspace.path=.", "workspace.mode=copy"], "fs.hide/gvisor"),
    refused(ClauseId::FsSockets, &["fs.sockets=true"], "fs.sockets/gvisor"),
    refused(ClauseId::FsLandlock, &["fs.landlock=1"], "fs.landlock/gvisor"),
    refused(ClauseId::FsExec, &["fs.exec=[\"/bin/sh\"]"], "fs.exec/gvisor"),
    refused(ClauseId::Workspace, &["workspace.path=.", "workspace.mode=rw"], "workspace/gvisor"),
    refused(ClauseId::Workspace, &["workspace.path=.", "workspace.mode=overlay"], "workspace/gvisor"),
    Case {
        clause: ClauseId::LimitsCpuTime,
        backends: GVISOR,
        sentence: "processor time of all children together ends the run",
        cell: Cell::Enforced(cpu_time),
    },
    Case {
        clause: ClauseId::LimitsCpus,
        backends: GVISOR,
        sentence: "a busy tree gets its share of the host's processors and no more",
        cell: Cell::Enforced(cpus),
    },
    Case {
        clause: ClauseId::LimitsPids,
        backends: GVISOR,
        sentence: "processes stop at the limit, which gVisor's kernel holds",
        cell: Cell::Enforced(pids),
    },
    refused(ClauseId::LimitsMemory, SMALL, "limits.memory/gvisor"),
    refused(ClauseId::LimitsIoRead, &["limits.io_read=4M/s"], "limits.io/gvisor"),
    refused(ClauseId::LimitsIoWrite, &["limits.io_write=4M/s", "threat=mistakes"], "limits.io/gvisor"),
    Case {
        clause: ClauseId::ProcessUmask,
        backends: GVISOR,
        sentence: "new files have the mode that it leaves",
        cell: Cell::Enforced(umask),
    },
    Case {
        clause: ClauseId::SyscallsAllow,
        backends: GVISOR,
        sentence: "a named call works beside the profile's",
        cell: Cell::Enforced(allow),
    },
    Case {
        clause: ClauseId::NetMode,
        backends: GVISOR,
        sentence: "allow: gVisor's kernel has one interface, to nobody but the broker, and no address and no socket of the host's stack",
        cell: Cell::Enforced(one_interface),
    },
    Case {
        clause: ClauseId::ProcessTty,
        backends: GVISOR,
        sentence: "a terminal is refused when it is planned",
        cell: Cell::Enforced(terminal),
    },
    refused(ClauseId::ProcessLabel, &["process.label=apparmor:fumehood"], "process.label/gvisor"),
    refused(ClauseId::ProcessDevices, &["process.devices=[\"kvm\"]"], "process.devices/gvisor"),
    Case {
        clause: ClauseId::Commands,
        backends: GVISOR,
        sentence: "a list of executables is refused when it is planned",
        cell: Cell::Enforced(commands),
    },
];

const SMALL: &[&str] = &["limits.memory=24M", "limits.disk=11M", "fs.tmp=6M", "fs.shm=2M", "fs.run=2M"];

/// As the host sees it: no process is the program; those of gVisor are confined.
fn own_kernel(scene: &Fixture) -> CaseResult {
    let ours = Process::own()?;
    let live = scene.start_passing(&["limits.wall=1m"], "echo up; exec sleep 30")?;
    live.says("up")?;
    let (mut kernel, mut server) = (None, None);
    for pid in live.below() {
        let process = Process::open(pid)?;
        let words = process.small_text("cmdline").unwrap_or_default();
        kernel = kernel.or_else(|| words.starts_with("runsc-sandbox").then_some(pid));
        server = server.or_else(|| words.starts_with("runsc-gofer").then_some(pid));
        check(!words.starts_with("sleep"), || "the program is a process of the host".to_owned())?;
    }
    for (what, pid) in [("kernel", kernel), ("file server", server)] {
        let process = Process::open(pid.ok_or_else(|| format!("there is no {what}"))?)?;
        let status = process.status()?;
        check(status.seccomp == 2 && status.no_new_privs, || format!("the {what} has {status:?}"))?;
        for kind in [Namespace::Mount, Namespace::Net] {
            check(process.namespace(kind)? != ours.namespace(kind)?, || format!("the {what} shares {kind:?}"))?;
        }
        let mine = process.cgroups()?.iter().any(|group| group.path.contains("fumehood/"));
        check(mine, || format!("the {what} is in no group of ours"))?;
        check(what != "kernel" || !status.uid.contains(&0), || "the kernel is root".to_owned())?;
    }
    // The control: unconfined the same program is a process that anybody can list.
    let bare = scene.bare_start(&["/bin/sleep", "30"])?;
    // Between two programs of one process its words are empty.
    let mut words = String::new();
    let listed = until(Duration::from_secs(5), || {
        words = Process::open(bare.pid()).and_then(|bare| bare.small_text("cmdline")).unwrap_or_default();
        words.contains("sleep")
    });
    check(listed, || format!("the control failed, so the probe proves nothing: {words}"))?;
    live.signal(15)?;
    bare.signal(15)?;
    live.end().and(bare.end()).map(drop)
}

/// As the host sees it, in the network namespace of gVisor's kernel.
fn one_interface(scene: &Fixture) -> CaseResult {
    /// What stands before `:` in each line behind the heading.
    fn names(process: &Process, file: &str, heading: usize) -> Result<Vec<String>, conformance::CaseError> {
        let text = process.small_text(file)?;
        let name = |line: &str| line.split(':').next().unwrap_or_default().trim().to_owned();
        Ok(text.lines().skip(heading).map(name).collect())
    }
    let values = ["net.mode=allow", "net.allow=[\"example.org\"]", "limits.wall=1m"];
    let live = scene.start_passing(&values, "echo up; exec sleep 30")?;
    live.says("up")?;
    let is = |pid: &i32| {
        Process::open(*pid)
            .is_ok_and(|one| one.small_text("cmdline").is_ok_and(|text| text.starts_with("runsc-sandbox")))
    };
    let kernel = live.below().into_iter().find(is).ok_or_else(|| "there is no kernel".to_owned())?;
    let (kernel, ours) = (Process::open(kernel)?, Process::own()?);
    check(kernel.namespace(Namespace::Net)? != ours.namespace(Namespace::Net)?, || "it is ours".to_owned())?;
    let devices = names(&kernel, "net/dev", 2)?;
    let real: Vec<&String> = devices.iter().filter(|name| *name != "lo").collect();
    check(real.iter().any(|name| *name == "eth0") && !devices.contains(&"broker0".to_owned()), || {
        format!("{devices:?}")
    })?;
    // gVisor has the address, and the host's stack there none by which anything could leave.
    for (file, heading) in
        [("net/route", 1), ("net/tcp", 1), ("net/udp", 1), ("net/tcp6", 1), ("net/udp6", 1), ("net/raw", 1)]
    {
        check(names(&kernel, file, heading)?.is_empty(), || format!("{file} is not empty"))?;
    }
    // The control: what is in a namespace is seen so.
    let _listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let shown = std::fs::read_to_string("/proc/self/net/tcp")?;
    check(shown.lines().count() > 1, || "the control failed, so the probe proves nothing".to_owned())?;
    let packet = names(&kernel, "net/packet", 1)?;
    check(packet.len() == 1, || format!("gVisor has {} sockets on its interface", packet.len()))?;
    live.signal(15)?;
    live.end().map(drop)
}

fn inside(scene: &Fixture) -> CaseResult {
    let code = "import os
print(open('/proc/self/status').read())
print('devices', [name for name in ('kmsg', 'mem', 'sda', 'vda', 'kvm') if os.path.exists('/dev/' + name)])
print('pids', sorted(int(name) for name in os.listdir('/proc') if name.isdigit()))";
    let ended = scene.python(&[], code)?;
    let shown = ended.out();
    let none = ["CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "devices []"];
    check(none.iter().all(|line| shown.contains(line)), || ended.said())?;
    check(shown.contains("pids [1, 2]"), || ended.said())?;
    let control = scene.control_python(code)?;
    check(!control.out().contains("pids [1, 2]"), || "the control failed, so the probe proves nothing".to_owned())
}

/// Three children, each with so many additions: inside, time is what another kernel counts, and says nothing of the host's.
const ADD: &str = "
import os
for _ in range(3):
    if os.fork() == 0:
        n = 0
        for i in range(12_000_000): n += i
        os._exit(0)
for _ in range(3): os.wait()
print('over')";

fn cpu_time(scene: &Fixture) -> CaseResult {
    let control = scene.control_python(ADD)?;
    check(control.out() == "over", || control.said())?;
    let ended = scene.python(&["limits.cpu_time=600ms", "limits.wall=1m", "threat=mistakes"], ADD)?;
    check(ended.code == Some(124) && ended.limit() == "cpu_time", || ended.said())
}

fn cpus(scene: &Fixture) -> CaseResult {
    const BUSY: &str = "
import time
end = time.monotonic() + 4
while time.monotonic() < end: pass
print('over')";
    let share = |ended: &conformance::Ended| {
        (ended.number("/usage/cpu_user") + ended.number("/usage/cpu_system")) / ended.number("/usage/wall")
    };
    // gVisor's own start is in it: so small a share that even a busy machine gives more to who is not held to it.
    let free = scene.python(&["limits.wall=1m"], BUSY)?;
    check(share(&free) > 0.3, || format!("this host gives nobody a third of a core: {}", free.said()))?;
    let ended = scene.python(&["limits.wall=1m", "limits.cpus=0.1"], BUSY)?;
    check(ended.out() == "over" && share(&ended) < 0.2, || ended.said())
}

fn pids(scene: &Fixture) -> CaseResult {
    let code = "
import os, time
n = 0
try:
    for n in range(40):
        if os.fork() == 0: time.sleep(1); os._exit(0)
    n = 40
except OSError as e: print('errno', e.errno)
print(n)";
    let control = scene.control_python(code)?;
    check(control.out() == "40", || control.said())?;
    let room = scene.python(&["limits.pids=60"], code)?;
    check(room.out() == "40", || room.said())?;
    let ended = scene.python(&["limits.pids=10"], code)?;
    check(ended.out() == "errno 11\n9", || ended.said())
}

fn by_name(scene: &Fixture) -> CaseResult {
    let ended = scene.shell(&["backend=runsc"], "exit 5")?;
    check(ended.code == Some(5) && ended.text("/backend") == "runsc", || ended.said())
}

fn planned(scene: &Fixture, value: &str, id: &str) -> CaseResult {
    let ended = scene.plan(&[value])?;
    check(ended.code == Some(126) && ended.refusals().iter().any(|found| found == id), || ended.said())?;
    let without = scene.plan(&[])?;
    check(without.code == Some(0), || without.said())
}

fn terminal(scene: &Fixture) -> CaseResult {
    planned(scene, "process.tty=true", "process.tty/gvisor")
}

fn commands(scene: &Fixture) -> CaseResult {
    planned(scene, "commands={presets=[\"inspect\"]}", "commands/no-kernel-list")
}

fn umask(scene: &Fixture) -> CaseResult {
    let code = "import os
os.close(os.open('file', os.O_CREAT | os.O_WRONLY, 0o666))
print(oct(os.stat('file').st_mode))";
    for (umask, mode) in [("0022", "0o100644"), ("0077", "0o100600")] {
        let ended = scene.python(&[&format!("process.umask={umask}")], code)?;
        check(ended.out() == mode, || format!("with {umask}: {}", ended.said()))?;
    }
    Ok(())
}

fn allow(scene: &Fixture) -> CaseResult {
    let code = call(number("inotify_init1")?, ", 0");
    let control = scene.control_python(&code)?;
    check(control.out() == "0", || control.said())?;
    let without = scene.python(&[], &code)?;
    check(without.out() == "38" || without.out() == "1", || without.said())?;
    let ended = scene.python(&["syscalls.allow=[\"inotify_init1\"]"], &code)?;
    check(ended.out() == "0", || ended.said())
}
