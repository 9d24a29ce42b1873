//! Docker's daemon.

use serde_json::{Value, json};

use crate::exchanged::{Change, OwnEngine};

const DOCKER: OwnEngine =
    OwnEngine { name: "docker", socket: "/run/docker.sock", aside: "/run/aside.sock", prefix: "/v1.41" };

#[test]
fn what_the_engine_makes_otherwise_or_says_otherwise_ends_the_run() {
    let Some(_alone) = DOCKER.alone() else { return };
    DOCKER.each_ends_the_run(&[
        Change::Order("/User", || "0:0".into()),
        // Another runtime than the one whose faults were looked up.
        Change::Order("/HostConfig/Runtime", || "runc".into()),
        Change::Order("/HostConfig/Privileged", || true.into()),
        Change::Order("/HostConfig/ReadonlyRootfs", || false.into()),
        Change::Order("/HostConfig/PidMode", || "host".into()),
        Change::Order("/HostConfig/IpcMode", || "host".into()),
        Change::Order("/HostConfig/UTSMode", || "host".into()),
        Change::Order("/HostConfig/CgroupnsMode", || "host".into()),
        Change::Order("/HostConfig/CapAdd", || json!(["SYS_PTRACE"])),
        Change::Order("/HostConfig/SecurityOpt", || json!([])),
        Change::Order("/HostConfig/Memory", || (32 << 20).into()),
        Change::Order("/HostConfig/Ulimits", || json!([])),
        Change::Order("/HostConfig/Mounts", || json!([])),
        Change::Order("/HostConfig/RestartPolicy/Name", || "always".into()),
        Change::Answer("/HostConfig/Privileged", || true.into()),
        Change::Answer("/HostConfig/UsernsMode", || "".into()),
        Change::Answer("/Mounts", || json!([{ "Source": "/" }])),
        Change::Answer("/Image", || "sha256:0".into()),
        // Another process than the container's first.
        Change::Answer("/State/Pid", || std::process::id().into()),
    ]);
}

#[test]
fn what_the_engine_says_does_not_hide_what_the_kernel_says() {
    let Some(_alone) = DOCKER.alone() else { return };
    let same: fn(&Value) -> Value = Value::clone;
    DOCKER.each_ends_the_run(&[
        Change::Lie("/User", || "0:0".into(), "/Config/User", same),
        Change::Lie("/User", || "65534:0".into(), "/Config/User", same),
        Change::Lie("/HostConfig/CapAdd", || json!(["SYS_PTRACE"]), "/HostConfig/CapAdd", same),
        Change::Lie(
            "/HostConfig/SecurityOpt",
            || json!(["seccomp=unconfined", "no-new-privileges"]),
            "/HostConfig/SecurityOpt",
            same,
        ),
        Change::Lie("/HostConfig/SecurityOpt", || json!(["seccomp=unconfined"]), "/HostConfig/SecurityOpt", same),
        Change::Lie("/HostConfig/PidMode", || "host".into(), "/HostConfig/PidMode", same),
        Change::Lie("/HostConfig/IpcMode", || "host".into(), "/HostConfig/IpcMode", same),
        Change::Lie("/HostConfig/UTSMode", || "host".into(), "/HostConfig/UTSMode", same),
    ]);
}

#[test]
fn a_killed_supervisor_leaves_nothing_that_the_next_start_does_not_take() {
    let Some(_alone) = DOCKER.alone() else { return };
    DOCKER.a_killed_supervisor_leaves_nothing();
}
