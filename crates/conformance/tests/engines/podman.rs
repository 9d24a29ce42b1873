//! podman's service.

use crate::exchanged::{Change, OwnEngine};

const PODMAN: OwnEngine = OwnEngine {
    name: "podman",
    socket: "/run/podman/podman.sock",
    aside: "/run/podman/aside.sock",
    prefix: "/v4.0.0/libpod",
};

#[test]
fn what_the_engine_makes_otherwise_or_says_otherwise_ends_the_run() {
    let Some(_alone) = PODMAN.alone() else { return };
    PODMAN.each_ends_the_run(&[
        Change::Order("/privileged", || true.into()),
        Change::Order("/read_only_filesystem", || false.into()),
        Change::Order("/netns/nsmode", || "host".into()),
        Change::Order("/pidns/nsmode", || "host".into()),
        Change::Order("/ipcns/nsmode", || "host".into()),
        Change::Order("/utsns/nsmode", || "host".into()),
        Change::Order("/userns/nsmode", || "host".into()),
        Change::Order("/idmappings/UIDMap/0/host_id", || 0.into()),
        Change::Order("/cap_add", || serde_json::json!(["CAP_SYS_PTRACE"])),
        Change::Order("/rootfs", || "/".into()),
        Change::Answer("/HostConfig/Privileged", || true.into()),
        Change::Answer("/Mounts", || serde_json::json!([{ "Source": "/" }])),
        // Another process than the container's first.
        Change::Answer("/State/Pid", || std::process::id().into()),
    ]);
}

#[test]
fn a_killed_supervisor_leaves_nothing_that_the_next_start_does_not_take() {
    let Some(_alone) = PODMAN.alone() else { return };
    PODMAN.a_killed_supervisor_leaves_nothing();
}
