//! `tier`, `backend`, `threat`, `enforcer`: which class of isolation, chosen how, and who may hold the limits.

use conformance::case::{BOTH, CONTAINER, CONTAINERS, EVERY, GVISOR, LINUX, PROCESS};
use conformance::{Case, CaseResult, Cell, Fixture, Tier, Who, check};
use policy::ClauseId;
use sys::proc::{Namespace, Process};

pub(crate) const CASES: &[Case] = &[
    Case {
        clause: ClauseId::Tier,
        backends: CONTAINERS,
        sentence: "the payload lives in namespaces of its own, as the host sees it",
        cell: Cell::Enforced(namespaces),
    },
    Case {
        clause: ClauseId::Tier,
        backends: LINUX,
        sentence: "the kernel shows a filter, no new privileges, no capability and no root",
        cell: Cell::Enforced(posture),
    },
    Case {
        clause: ClauseId::Backend,
        backends: EVERY,
        sentence: "the backend of the policy is the one that runs",
        cell: Cell::Enforced(by_name),
    },
    Case {
        clause: ClauseId::Backend,
        backends: EVERY,
        sentence: "a backend that this version has not is refused",
        cell: Cell::Refused(&["backend=runc"], "backend/not-built"),
    },
    Case {
        clause: ClauseId::Threat,
        backends: PROCESS,
        sentence: "against mistakes `auto` takes the process tier",
        cell: Cell::Enforced(against_mistakes),
    },
    Case {
        clause: ClauseId::Threat,
        backends: CONTAINER,
        sentence: "against somebody hostile `auto` takes the container tier",
        cell: Cell::Enforced(against_hostile),
    },
    Case {
        clause: ClauseId::Threat,
        backends: GVISOR,
        sentence: "against tenants that are hostile to each other `auto` takes the gvisor tier, by a release without known faults",
        cell: Cell::Enforced(against_tenants),
    },
    Case {
        clause: ClauseId::Threat,
        backends: BOTH,
        sentence: "what only a stronger tier could hold is refused",
        cell: Cell::Refused(&["tier=auto", "threat=multi-tenant", "fs.landlock=1"], "fs.landlock/gvisor"),
    },
    Case {
        clause: ClauseId::Enforcer,
        backends: LINUX,
        sentence: "`kernel` refuses a limit that only sampling holds",
        cell: Cell::Refused(&["enforcer=kernel", "limits.cpu_time=5s"], "enforcer/kernel-demanded"),
    },
];

const SLEEP: &str = "echo up; exec sleep 30";

fn namespaces(scene: &Fixture) -> CaseResult {
    let ours = Process::own()?;
    let live = scene.start_passing(&["limits.wall=1m"], SLEEP)?;
    live.says("up")?;
    let payload = Process::open(live.payload()?)?;
    let bare = scene.bare_start(&["/bin/sh", "-c", SLEEP])?;
    bare.says("up")?;
    let control = Process::open(bare.pid())?;
    for kind in [
        Namespace::Cgroup,
        Namespace::Ipc,
        Namespace::Mount,
        Namespace::Net,
        Namespace::Pid,
        Namespace::User,
        Namespace::Uts,
    ] {
        // Its own tree's namespace links are closed to others once it is not dumpable: as root they are not.
        let Ok(inside) = payload.namespace(kind) else { continue };
        check(inside != ours.namespace(kind)?, || format!("{kind:?} is the host's"))?;
        check(control.namespace(kind)? == ours.namespace(kind)?, || format!("{kind:?}: the control left the host's"))?;
    }
    check(payload.namespace(Namespace::Mount).is_ok(), || "no namespace of the payload could be seen".to_owned())?;
    end(live)?;
    end(bare)
}

fn posture(scene: &Fixture) -> CaseResult {
    let live = scene.start_passing(&["limits.wall=1m"], SLEEP)?;
    live.says("up")?;
    let status = Process::open(live.payload()?)?.status()?;
    let bare = scene.bare_start(&["/bin/sh", "-c", SLEEP])?;
    bare.says("up")?;
    let control = Process::open(bare.pid())?.status()?;
    check(status.no_new_privs && status.seccomp == 2, || format!("{status:?}"))?;
    // Without any capability nobody can empty the bounding set (capabilities(7)); no_new_privs makes it mean nothing.
    let mut capabilities = status.capabilities;
    if (scene.tier, scene.who) == (Tier::Process, Who::Rootless) {
        capabilities.bounding = 0;
    }
    check(capabilities == sys::proc::Capabilities::default(), || format!("{status:?}"))?;
    check(status.uid.iter().chain(&status.gid).all(|id| *id != 0), || format!("root outside: {status:?}"))?;
    check(!status.groups.contains(&0), || format!("root's group: {status:?}"))?;
    check(!control.no_new_privs && control.seccomp == 0, || format!("the control is confined: {control:?}"))?;
    end(live)?;
    end(bare)
}

fn end(live: conformance::Live) -> CaseResult {
    // A killed one would leave its groups to a start that never comes.
    live.signal(15)?;
    live.end().map(drop)
}

fn by_name(scene: &Fixture) -> CaseResult {
    let name = scene.backend().name;
    let ended = scene.shell(&[&format!("backend={name}")], "exit 5")?;
    check(ended.code == Some(5) && ended.text("/backend") == name, || ended.said())
}

fn against_mistakes(scene: &Fixture) -> CaseResult {
    auto(scene, "mistakes", Tier::Process)
}

fn against_hostile(scene: &Fixture) -> CaseResult {
    auto(scene, "hostile", Tier::Container)
}

fn against_tenants(scene: &Fixture) -> CaseResult {
    let host = backends::Capabilities::probe();
    if host.runsc().is_ok_and(|engine| engine.faults().next().is_none()) {
        return auto(scene, "multi-tenant", Tier::Gvisor);
    }
    // A release with known faults is refused to them, and told to everybody else.
    let refused = scene.plan(&["threat=multi-tenant"])?;
    check(refused.refusals() == ["gvisor/known-faults"], || refused.said())?;
    let told = scene.plan(&["threat=hostile"])?;
    check(told.code == Some(0) && told.out().contains("mended in release"), || told.said())
}

fn auto(scene: &Fixture, threat: &str, tier: Tier) -> CaseResult {
    let threat = format!("threat={threat}");
    let ended = scene.shell(&["tier=auto", &threat], "exit 5")?;
    check(ended.code == Some(5) && ended.text("/tier") == tier.as_str(), || ended.said())
}
