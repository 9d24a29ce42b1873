use std::path::{Path, PathBuf};

use sandbox::PolicyLayer;
use serde_json::{Value as Json, json};

use super::document::{ContainerSpec, read};
use super::fields::Refused;

/// What `podman run --network none --read-only` and `ctr run --read-only` write, as far as both do.
fn document() -> Json {
    json!({
        "ociVersion": "1.0.2-dev",
        "process": {
            "user": { "uid": 0, "gid": 0, "umask": 18, "additionalGids": [0, 10] },
            "args": ["/bin/true"],
            "env": ["PATH=/usr/bin:/bin", "HOME=/root"],
            "cwd": "/",
            "capabilities": { "bounding": ["CAP_CHOWN"] },
            "noNewPrivileges": true,
            "rlimits": [
                { "type": "RLIMIT_NOFILE", "hard": 1_048_576, "soft": 1024 },
                { "type": "RLIMIT_NPROC", "hard": 4096, "soft": 4096 },
            ],
        },
        "root": { "path": "rootfs", "readonly": true },
        "hostname": "box",
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"] },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=65536k"] },
            { "destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "ro"] },
            {
                "destination": "/dev/pts", "type": "devpts", "source": "devpts",
                "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
            },
            { "destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue" },
            { "destination": "/dev/shm", "type": "bind", "source": "/x/shm", "options": ["bind", "rw", "rprivate"] },
            { "destination": "/etc/hosts", "type": "bind", "source": "/x/hosts", "options": ["bind"] },
            { "destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["rw", "nosuid", "nodev", "rprivate", "tmpcopyup", "size=16m"] },
            { "destination": "/var/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777", "size=8m"] },
            { "destination": "/data", "type": "bind", "source": "/srv/data", "options": ["rbind", "ro", "rprivate"] },
        ],
        "annotations": { "io.kubernetes.cri.container-type": "sandbox" },
        "linux": {
            "namespaces": [
                { "type": "pid" }, { "type": "network" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" },
                { "type": "cgroup" },
            ],
            "resources": {
                "devices": [{ "allow": false, "access": "rwm" }],
                "memory": { "limit": 134_217_728, "swap": 268_435_456 },
                "cpu": { "quota": 50_000, "period": 100_000, "cpus": "0" },
                "pids": { "limit": 2048 },
            },
            "cgroupsPath": "/engine/box",
            "sysctl": { "net.ipv4.ping_group_range": "0 0" },
            "maskedPaths": ["/proc/kcore", "/sys/firmware", "/proc/never-was"],
            "readonlyPaths": ["/proc/sys", "/proc/bus"],
        },
    })
}

/// What the host has: nothing of the root, and no process of its numbers.
fn there(path: &Path) -> bool {
    path.starts_with("/proc") && !["/proc/never-was", "/proc/4194303/maps"].iter().any(|none| path == Path::new(none))
}

fn asked(document: &Json) -> Result<ContainerSpec, Refused> {
    read(document, Path::new("/b"), &there)
}

/// The document with another value at a JSON pointer.
fn with(pointer: &str, value: Json) -> Json {
    let mut document = document();
    let (above, name) = pointer.rsplit_once('/').unwrap();
    let place = document.pointer_mut(above).unwrap();
    match place {
        Json::Array(items) => items.push(value),
        Json::Object(fields) => {
            fields.insert(name.to_owned(), value);
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => panic!("{pointer}"),
    }
    document
}

#[test]
fn a_document_becomes_a_policy_and_a_program() {
    let asked = asked(&document()).unwrap();
    assert_eq!(asked.root, PathBuf::from("/b/rootfs"));
    assert_eq!((asked.user.clone(), asked.group.as_deref()), (("root".to_owned(), 0), Some("/engine/box")));
    assert_eq!((asked.cwd.as_path(), asked.argv.as_slice()), (Path::new("/"), &["/bin/true".to_owned()][..]));
    for wanted in [
        "process.hostname=\"box\"",
        "process.umask=\"0022\"",
        "limits.memory=134217728B",
        "limits.cpus=0.500",
        "limits.cpuset=\"0\"",
        "limits.pids=2048",
        "limits.open_files=1048576",
        "fs.tmp=8388608B",
        "fs.shm=16777216B",
        "fs.run=4194304B",
        "net.mode=loopback",
        "fs.read=[{ from = \"/srv/data\", to = \"/data\" }]",
    ] {
        assert!(asked.layers.contains(&PolicyLayer::Set(wanted.to_owned())), "{wanted}: {:#?}", asked.layers);
    }
    let flag = PolicyLayer::Flag { name: "--env".to_owned(), value: "HOME=/root".to_owned() };
    assert!(asked.layers.contains(&flag));
}

/// As containerd's own document has it, with `--memory-limit`: its 64 MiB of `/dev/shm` and of `/run` are more than that.
#[test]
fn places_in_memory_are_no_more_than_the_limit_of_memory() {
    let mut document = document();
    let places = ["/dev/shm", "/run"]
        .map(|at| json!({ "destination": at, "type": "tmpfs", "source": "shm", "options": ["size=65536k"] }));
    document["mounts"] = json!(places);
    for (memory, wanted) in [
        (34_603_008_u64, ["fs.shm=17167383B", "fs.run=17167383B", "fs.tmp=268240B", "limits.disk=34603006B"]),
        (135_266_304, ["fs.shm=67108864B", "fs.run=67108864B", "fs.tmp=1048576B", "limits.disk=135266304B"]),
    ] {
        document["linux"]["resources"]["memory"] = json!({ "limit": memory });
        let asked = asked(&document).unwrap();
        for wanted in wanted {
            assert!(asked.layers.contains(&PolicyLayer::Set(wanted.to_owned())), "{wanted}: {:#?}", asked.layers);
        }
    }
}

/// Each with the field that the refusal names.
fn refused(rows: &[(&str, Json, &str)]) {
    for (pointer, value, field) in rows {
        let refused = asked(&with(pointer, value.clone())).map(|_| ()).expect_err(pointer);
        assert_eq!(refused.field, *field, "{pointer} {value}: {}", refused.why);
        assert!(!refused.why.is_empty());
    }
}

#[test]
fn what_is_not_held_is_refused_by_its_name() {
    refused(&[
        ("/process/terminal", json!(true), "process.terminal"),
        ("/process/user/gid", json!(7), "process.user.gid"),
        ("/process/user/uid", json!(-1), "process.user.uid"),
        ("/process/cwd", json!("/a/../b"), "process.cwd"),
        ("/process/args", json!([]), "process.args"),
        ("/process/env", json!(["=x"]), "process.env"),
        ("/process/oomScoreAdj", json!(100), "process.oomScoreAdj"),
        ("/process/ioPriority", json!({ "class": "IOPRIO_CLASS_RT" }), "process.ioPriority"),
        ("/process/rlimits/-", json!({ "type": "RLIMIT_RTPRIO", "hard": 1, "soft": 1 }), "process.rlimits[2].type"),
        ("/process/rlimits/-", json!({ "type": "RLIMIT_NOFILE", "hard": 64, "soft": 64 }), "process.rlimits[2].type"),
        ("/process/rlimits/-", json!({ "type": "RLIMIT_FSIZE", "hard": 0, "soft": 0 }), "process.rlimits[2].hard"),
        ("/process/rlimits", json!([{ "type": "RLIMIT_NOFILE", "hard": 7, "soft": 7 }]), "process.rlimits[0].hard"),
        ("/process/rlimits", json!([{ "type": "RLIMIT_NPROC", "hard": 0, "soft": 0 }]), "process.rlimits[0].hard"),
        ("/root/readonly", json!(false), "root.readonly"),
        ("/hooks", json!({ "prestart": [{ "path": "/bin/x" }] }), "hooks"),
        ("/domainname", json!("example"), "domainname"),
        ("/vm", json!({ "kernel": "x" }), "vm"),
        ("/ociVersion", json!("2.0"), "ociVersion"),
        ("/ociVersion", json!("1.999.evil"), "ociVersion"),
        ("/ociVersion", json!("1."), "ociVersion"),
        ("/ociVersion", json!("1.0.2.5"), "ociVersion"),
        ("/process/capabilities", json!({ "effective": ["CAP_EVIL"] }), "process.capabilities.effective"),
        ("/process/capabilities", json!({ "inheritable": ["chown"] }), "process.capabilities.inheritable"),
        ("/process/capabilities", json!({ "bounding": 5 }), "process.capabilities.bounding"),
        ("/process/capabilities", json!({ "every": ["CAP_CHOWN"] }), "process.capabilities.every"),
        ("/process/capabilities", json!(["CAP_CHOWN"]), "process.capabilities"),
        ("/process/noNewPrivileges", json!("yes"), "process.noNewPrivileges"),
    ]);
    assert_eq!(asked(&json!([])).unwrap_err().field, "config.json");
}

#[test]
fn mounts_that_are_not_held_are_refused() {
    refused(&[
        ("/mounts/-", json!({ "destination": "/sys", "type": "sysfs", "options": ["rw"] }), "mounts[10].options"),
        (
            "/mounts/-",
            json!({ "destination": "/w", "type": "bind", "source": "/w", "options": ["bind"] }),
            "mounts[10].options",
        ),
        (
            "/mounts/-",
            json!({ "destination": "/w", "type": "bind", "source": "w", "options": ["bind", "ro"] }),
            "mounts[10].source",
        ),
        ("/mounts/-", json!({ "destination": "/proc", "type": "proc", "options": ["ro"] }), "mounts[10].options"),
        (
            "/mounts/-",
            json!({ "destination": "/proc", "type": "proc", "options": ["hidepid=2"] }),
            "mounts[10].options",
        ),
        ("/mounts/-", json!({ "destination": "/tmp", "type": "tmpfs", "options": ["ro"] }), "mounts[10].options"),
        (
            "/mounts/-",
            json!({ "destination": "/tmp", "type": "tmpfs", "options": ["nr_inodes=5"] }),
            "mounts[10].options",
        ),
        ("/mounts/-", json!({ "destination": "/tmp", "type": "tmpfs", "options": ["mode=700"] }), "mounts[10].options"),
        ("/mounts/-", json!({ "destination": "/run", "type": "tmpfs", "options": ["uid=5"] }), "mounts[10].options"),
        ("/mounts/-", json!({ "destination": "/tmp", "type": "tmpfs", "options": ["exec"] }), "mounts[10].options"),
        ("/mounts/-", json!({ "destination": "/dev", "type": "tmpfs", "options": ["ro"] }), "mounts[10].options"),
        (
            "/mounts/-",
            json!({ "destination": "/dev/shm", "type": "bind", "options": ["bind", "ro"] }),
            "mounts[10].options",
        ),
        (
            "/mounts/-",
            json!({ "destination": "/etc/hosts", "type": "bind", "options": ["bind", "rshared"] }),
            "mounts[10].options",
        ),
        (
            "/mounts/-",
            json!({ "destination": "/w", "type": "bind", "source": "/w", "options": ["bind", "ro", "noexec"] }),
            "mounts[10].options",
        ),
        ("/mounts/-", json!({ "destination": "/x", "type": "tmpfs" }), "mounts[10].destination"),
        ("/mounts/-", json!({ "destination": "/x", "type": "overlay" }), "mounts[10].type"),
        ("/mounts/-", json!({ "destination": "../x", "type": "tmpfs" }), "mounts[10].destination"),
        ("/mounts/-", json!({ "destination": "/tmp", "type": "tmpfs", "options": ["size=50%"] }), "mounts[10].options"),
    ]);
}

/// `/dev/null` as engines list it, with other values.
fn null(more: &Json) -> Json {
    let mut device =
        json!({ "path": "/dev/null", "type": "c", "major": 1, "minor": 3, "fileMode": 438, "uid": 0, "gid": 0 });
    device.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!([device])
}

#[test]
fn what_of_linux_is_not_held_is_refused() {
    let closes_mkdir = json!([{ "names": ["mkdir"], "action": "SCMP_ACT_ERRNO" }]);
    refused(&[
        ("/linux/namespaces/-", json!({ "type": "user" }), "linux.namespaces[6].type"),
        ("/linux/namespaces/-", json!({ "type": "network", "path": "/run/netns/x" }), "linux.namespaces[6].path"),
        ("/linux/namespaces", json!([{ "type": "pid" }]), "linux.namespaces"),
        ("/linux/devices", json!([{ "path": "/dev/fuse", "type": "c" }]), "linux.devices[0].path"),
        ("/linux/devices", null(&json!({ "type": "b" })), "linux.devices[0].type"),
        ("/linux/devices", null(&json!({ "type": "" })), "linux.devices[0].type"),
        ("/linux/devices", null(&json!({ "major": 8 })), "linux.devices[0].major"),
        ("/linux/devices", null(&json!({ "minor": 5 })), "linux.devices[0].minor"),
        ("/linux/devices", null(&json!({ "minor": null })), "linux.devices[0].minor"),
        ("/linux/devices", null(&json!({ "fileMode": 0 })), "linux.devices[0].fileMode"),
        ("/linux/devices", null(&json!({ "uid": 77 })), "linux.devices[0].uid"),
        ("/linux/devices", null(&json!({ "gid": 6 })), "linux.devices[0].gid"),
        ("/linux/devices", null(&json!({ "other": 1 })), "linux.devices[0].other"),
        ("/linux/sysctl", json!({ "kernel.shmmax": "1" }), "linux.sysctl"),
        ("/linux/maskedPaths", json!(["/proc/uptime"]), "linux.maskedPaths"),
        ("/linux/readonlyPaths", json!(["/proc/uptime"]), "linux.readonlyPaths"),
        // In the root alone.
        ("/linux/maskedPaths", json!(["/secret"]), "linux.maskedPaths"),
        ("/linux/maskedPaths", json!(["/sys/../secret"]), "linux.maskedPaths"),
        ("/linux/maskedPaths", json!(["/proc/kcore/../../secret"]), "linux.maskedPaths"),
        ("/linux/maskedPaths", json!(["/proc/4194303/maps"]), "linux.maskedPaths"),
        ("/linux/readonlyPaths", json!(["/secret"]), "linux.readonlyPaths"),
        ("/linux/rootfsPropagation", json!("shared"), "linux.rootfsPropagation"),
        ("/linux/cgroupsPath", json!("a.slice:b:c"), "linux.cgroupsPath"),
        ("/linux/cgroupsPath", json!("/a/../b"), "linux.cgroupsPath"),
        ("/linux/cgroupsPath", json!("/"), "linux.cgroupsPath"),
        ("/linux/cgroupsPath", json!("//"), "linux.cgroupsPath"),
        ("/linux/uidMappings", json!([{ "containerID": 0, "hostID": 5, "size": 1 }]), "linux.uidMappings"),
        // Each asks by its name alone.
        ("/linux/netDevices", json!({ "eth0": {} }), "linux.netDevices"),
        ("/linux/resources/rdma", json!({ "mlx5_0": { "hcaHandles": 0 } }), "linux.resources.rdma"),
        ("/linux/resources/unified", json!({ "memory.swap.max": "" }), "linux.resources.unified"),
        ("/linux/resources/blockIO", json!({ "weight": 10 }), "linux.resources.blockIO"),
        ("/linux/resources/memory", json!({ "swap": 268_435_456 }), "linux.resources.memory.swap"),
        ("/linux/resources/memory/reservation", json!(5), "linux.resources.memory.reservation"),
        ("/linux/resources/cpu/shares", json!(2), "linux.resources.cpu.shares"),
        ("/linux/seccomp", json!({ "defaultAction": "SCMP_ACT_NOTIFY" }), "linux.seccomp.defaultAction"),
        ("/linux/seccomp", json!({ "defaultAction": "SCMP_ACT_ERRNO" }), "linux.seccomp.syscalls"),
        // Lists of engines from before it was there do not name it.
        (
            "/linux/seccomp",
            json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "names": ["close_range"], "action": "SCMP_ACT_ERRNO" }] }),
            "linux.seccomp.syscalls",
        ),
        // Whatever it lists, a filter without a default is none that engines agree on.
        ("/linux/seccomp", json!({}), "linux.seccomp.defaultAction"),
        ("/linux/seccomp", json!({ "syscalls": closes_mkdir }), "linux.seccomp.defaultAction"),
        ("/linux/seccomp", json!({ "defaultAction": "", "syscalls": closes_mkdir }), "linux.seccomp.defaultAction"),
        ("/linux/seccomp", json!({ "defaultAction": null, "syscalls": closes_mkdir }), "linux.seccomp.defaultAction"),
        ("/linux/seccomp", json!({ "defaultAction": "SCMP_ACT_ALLOW", "flags": ["X"] }), "linux.seccomp.flags"),
        (
            "/linux/seccomp",
            json!({ "defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/x" }),
            "linux.seccomp.listenerPath",
        ),
    ]);
}

/// What says nothing is no wish.
#[test]
fn empty_fields_of_any_name_change_nothing() {
    let same = asked(&document()).unwrap();
    for (pointer, value) in [
        ("/hooks", json!({ "prestart": [] })),
        ("/process/oomScoreAdj", json!(0)),
        ("/linux/uidMappings", json!([])),
        ("/linux/intelRdt", json!({})),
        ("/linux/netDevices", json!({})),
        ("/linux/resources/hugepageLimits", json!(null)),
        ("/linux/resources/cpu/shares", json!(1024)),
        ("/linux/devices", null(&json!({}))),
        ("/linux/devices", null(&json!({ "path": "/dev/tty", "major": 5, "minor": 0, "gid": 5 }))),
        ("/linux/devices", json!([{ "path": "/dev/zero", "type": "u", "major": 1, "minor": 5 }])),
        ("/process/capabilities", json!({ "bounding": [], "effective": ["CAP_SYS_ADMIN", "CAP_CHECKPOINT_RESTORE"] })),
        ("/ociVersion", json!("1.2.1")),
    ] {
        assert_eq!(asked(&with(pointer, value)), Ok(same.clone()), "{pointer}");
    }
}

fn denied(seccomp: Json) -> Option<String> {
    let layers = asked(&with("/linux/seccomp", seccomp)).unwrap().layers;
    layers.into_iter().find_map(|layer| match layer {
        PolicyLayer::Set(text) => text.strip_prefix("syscalls.deny=").map(str::to_owned),
        PolicyLayer::Document(_) | PolicyLayer::Flag { .. } => None,
    })
}

#[test]
fn a_filter_closes_what_ours_leaves_open() {
    assert_eq!(denied(json!({ "defaultAction": "SCMP_ACT_ALLOW" })), None);
    let rule = |names: &[&str], action: &str, args: Json| json!({ "names": names, "action": action, "args": args });
    let closes =
        |rules: Vec<Json>| denied(json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules })).unwrap_or_default();
    assert_eq!(closes(vec![rule(&["mkdir", "ptrace_never"], "SCMP_ACT_ERRNO", json!([]))]), "[\"mkdir\"]");
    // Closed for some arguments of which nobody here knows whether ours lets them through.
    let argument = json!([{ "index": 0, "value": 1, "op": "SCMP_CMP_EQ" }]);
    assert_eq!(closes(vec![rule(&["mkdir"], "SCMP_ACT_ERRNO", argument)]), "[\"mkdir\"]");
    // AF_VSOCK and AF_UNIX are closed here anyway, AF_INET is not.
    let family = |number: u64| json!([{ "index": 0, "value": number, "op": "SCMP_CMP_EQ" }]);
    assert_eq!(closes(vec![rule(&["socket"], "SCMP_ACT_ERRNO", family(40))]), "");
    assert_eq!(closes(vec![rule(&["socket"], "SCMP_ACT_ERRNO", family(1))]), "");
    assert_eq!(closes(vec![rule(&["socket"], "SCMP_ACT_ERRNO", family(2))]), "[\"socket\"]");
    // New namespaces by clone(2) are closed here anyway.
    let plain = json!([{ "index": 0, "value": 0x7e02_0000_u64, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ" }]);
    let mut open: Vec<&str> = sys::seccomp::names::all().filter(|name| !["clone", "mkdir"].contains(name)).collect();
    open.sort_unstable();
    let rules = vec![rule(&open, "SCMP_ACT_ALLOW", json!([])), rule(&["clone"], "SCMP_ACT_ALLOW", plain)];
    let strict = json!({ "defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules });
    assert_eq!(denied(strict).as_deref(), Some("[\"mkdir\"]"));
}

/// Each closes arguments that no sample stands for, so that the call is closed.
#[test]
fn a_call_is_closed_where_the_samples_do_not_decide_its_rules() {
    let of = |index: u64, value: u64, op: &str| json!({ "index": index, "value": value, "op": op });
    let masked =
        |mask: u64, value: u64| json!({ "index": 0, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ" });
    let rows = [
        // By its type, or a protocol of which nobody knows whether ours opens it.
        ("socket", "SCMP_ACT_ERRNO", vec![json!([of(1, 2, "SCMP_CMP_EQ")])], true),
        ("socket", "SCMP_ACT_ERRNO", vec![json!([of(2, 6, "SCMP_CMP_EQ")])], true),
        ("socket", "SCMP_ACT_ERRNO", vec![json!([of(2, 9, "SCMP_CMP_LT")])], true),
        ("socket", "SCMP_ACT_ERRNO", vec![json!([of(0, 40, "SCMP_CMP_EQ"), of(0, 2, "SCMP_CMP_EQ")])], true),
        ("socket", "SCMP_ACT_ERRNO", vec![json!([of(0, 16, "SCMP_CMP_EQ"), of(2, 9, "SCMP_CMP_EQ")])], false),
        ("socket", "SCMP_ACT_ERRNO", vec![json!([of(0, 40, "SCMP_CMP_GE")])], false),
        ("clone", "SCMP_ACT_ERRNO", vec![json!([masked(0x101, 0x101)])], true),
        ("clone", "SCMP_ACT_ERRNO", vec![json!([of(0, 0x4111, "SCMP_CMP_EQ")])], true),
        // Two flags, each of which one of the rules opens, and both of which none does.
        ("clone", "SCMP_ACT_ALLOW", vec![json!([masked(0x100, 0)]), json!([masked(0x200, 0)])], true),
        ("clone", "SCMP_ACT_ALLOW", vec![json!([masked(0x7e02_0000, 0)])], false),
        ("clone", "SCMP_ACT_ALLOW", vec![json!([masked(0x400, 0)])], true),
        ("personality", "SCMP_ACT_ALLOW", vec![json!([of(0, 0, "SCMP_CMP_EQ")])], true),
        (
            "personality",
            "SCMP_ACT_ALLOW",
            vec![json!([of(0, 0, "SCMP_CMP_EQ")]), json!([of(0, 0xffff_ffff, "SCMP_CMP_EQ")])],
            false,
        ),
    ];
    for (name, action, args, closed) in rows {
        let rule = |args: &Json| json!({ "names": [name], "action": action, "args": args });
        let mut rules: Vec<Json> = args.iter().map(rule).collect();
        let opens = action == "SCMP_ACT_ALLOW";
        let default = if opens { "SCMP_ACT_ERRNO" } else { "SCMP_ACT_ALLOW" };
        if opens {
            let others: Vec<&str> = sys::seccomp::names::all().filter(|other| *other != name).collect();
            rules.push(json!({ "names": others, "action": action }));
        }
        let filter = json!({ "defaultAction": default, "syscalls": rules });
        if closed && backends::needs_call(name) {
            let refused = asked(&with("/linux/seccomp", filter)).unwrap_err();
            assert!(refused.why.contains(name), "{name} {action} {args:?}: {refused:?}");
            continue;
        }
        let told = denied(filter);
        let wanted = closed.then(|| format!("[\"{name}\"]"));
        assert_eq!(told, wanted, "{name} {action} {args:?}");
    }
}

/// One rule opens a call, and another closes it: engines do not agree on which counts.
#[test]
fn a_call_that_is_opened_and_closed_is_closed() {
    let all: Vec<&str> = sys::seccomp::names::all().collect();
    let rules = json!([
        { "names": all, "action": "SCMP_ACT_ALLOW" },
        { "names": ["mkdir"], "action": "SCMP_ACT_KILL" },
    ]);
    let told = denied(json!({ "defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules }));
    assert_eq!(told.as_deref(), Some("[\"mkdir\"]"));
}
