//! What the gvisor tier refuses by name, and what it alone must show.

use conformance::case::GVISOR;
use conformance::{Case, Cell, Fixture, Held, check};
use policy::ClauseId;
use sys::proc::{Namespace, Process};

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
    refused(ClauseId::Threat, &["tier=auto", "threat=multi-tenant", "fs.landlock=1"], "fs.landlock/gvisor"),
    refused(ClauseId::Enforcer, &["enforcer=kernel", "limits.cpu_time=5s"], "enforcer/kernel-demanded"),
    refused(ClauseId::FsRoot, &["fs.root=image:debian"], "fs.root/no-images"),
    refused(ClauseId::FsWrite, &["fs.write=[\".\"]"], "fs.write/gvisor"),
    refused(ClauseId::FsHide, &["fs.hide=[\"**/.env\"]", "workspace.path=.", "workspace.mode=copy"], "fs.hide/gvisor"),
    refused(ClauseId::FsSockets, &["fs.sockets=true"], "fs.sockets/gvisor"),
    refused(ClauseId::FsLandlock, &["fs.landlock=1"], "fs.landlock/gvisor"),
    refused(ClauseId::FsExec, &["fs.exec=[\"/bin/sh\"]"], "fs.exec/gvisor"),
    refused(ClauseId::Workspace, &["workspace.path=.", "workspace.mode=rw"], "workspace/gvisor"),
    refused(ClauseId::Workspace, &["workspace.path=.", "workspace.mode=overlay"], "workspace/gvisor"),
    refused(ClauseId::LimitsMemory, &["limits.memory=64M", "limits.disk=30M", "fs.tmp=8M"], "limits.memory/gvisor"),
    refused(ClauseId::NetMode, ALLOW, "net.mode/gvisor"),
    refused(ClauseId::NetAllow, ALLOW, "net/gvisor"),
    refused(ClauseId::NetDeny, &["net.mode=allow", "net.deny=[\"example.org\"]"], "net/gvisor"),
    refused(ClauseId::NetPresets, &["net.mode=allow", "net.presets=[\"pypi\"]"], "net/gvisor"),
    refused(ClauseId::NetUnknown, &["net.mode=allow", "net.unknown=ask"], "net/gvisor"),
    refused(ClauseId::NetCa, &["net.mode=allow", "net.ca=[\"/etc/ssl/certs/ca-certificates.crt\"]"], "net/gvisor"),
    refused(ClauseId::NetPrograms, &["net.mode=allow", PROGRAMS], "net/gvisor"),
    refused(ClauseId::NetProxy, &["net.mode=allow", "net.proxy=http://proxy.example.org:3128"], "net/gvisor"),
    refused(ClauseId::NetBandwidth, &["net.mode=loopback", "net.bandwidth=1M/s"], "net/gvisor"),
    refused(ClauseId::NetBytes, &["net.mode=loopback", "net.bytes=1G"], "net/gvisor"),
    refused(ClauseId::NetConnections, &["net.mode=loopback", "net.connections=64"], "net/gvisor"),
    refused(ClauseId::Secrets, &[SECRET], "secrets/gvisor"),
    refused(ClauseId::ProcessTty, &["process.tty=true"], "process.tty/gvisor"),
    refused(ClauseId::ProcessLabel, &["process.label=apparmor:fumehood"], "process.label/gvisor"),
    refused(ClauseId::Commands, &["commands={presets=[\"inspect\"]}"], "commands/no-kernel-list"),
];

const ALLOW: &[&str] = &["net.mode=allow", "net.allow=[\"example.org\"]"];
const PROGRAMS: &str = "net.programs={\"/usr/bin/git\"=[\"example.org\"]}";
const SECRET: &str = "secrets={canary={from=\"env:CONFORM_CANARY\",hosts=[\"example.org\"]}}";

/// As the host sees it: no process is the program; those of gVisor are confined.
fn own_kernel(scene: &Fixture) -> Held {
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
    let words = Process::open(bare.pid())?.small_text("cmdline")?;
    check(words.contains("sleep"), || format!("the control failed, so the probe proves nothing: {words}"))?;
    live.signal(15)?;
    bare.signal(15)?;
    live.end().and(bare.end()).map(drop)
}

fn inside(scene: &Fixture) -> Held {
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
