//! The mapping of a create body, field by field: what becomes of it, and what is refused by its name.

use std::path::Path;

use policy::value::Policy;
use sandbox::{Environment, PolicyLayer};
use serde_json::{Value as Json, json};

use super::body::{BodyContext, ContainerSpec, Refused, map};
use super::{CEILING, DockerError, yes};
use crate::app;
use crate::backend::Image;
use crate::ceiling::beyond;
use crate::request::Query;

fn image() -> Image {
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    Image {
        digest: format!("sha256:{}", "a".repeat(64)),
        entrypoint: words(&["/entry"]),
        cmd: words(&["serve"]),
        workdir: Some("/srv".to_owned()),
        env: words(&["OF_IMAGE=1"]),
        people: vec![("root".to_owned(), 0), ("app".to_owned(), 700), ("nobody".to_owned(), 65534)],
        ..Image::default()
    }
}

fn environment(state: &Path) -> Environment {
    Environment {
        state: sandbox::state::Places { fumehood_state: Some(state.into()), ..Default::default() },
        cwd: Some("/".into()),
        ..Environment::default()
    }
}

fn ceiling(more: &[&str]) -> Policy {
    let folder = tempfile::tempdir().unwrap();
    let environment = environment(folder.path());
    let layers: Vec<_> = CEILING.iter().chain(more).map(|text| PolicyLayer::Set((*text).to_owned())).collect();
    app::load(&layers, &environment).unwrap().policy
}

fn mapped_below(body: &Json, ceiling: &Policy) -> Result<ContainerSpec, Refused> {
    let image = image();
    let has = |path: &str| path == "/srv";
    let context =
        BodyContext { image: &image, ceiling, empty: Path::new("/state/empty"), has: &has, hostname: "0123456789ab" };
    map(body.as_object().unwrap(), &context)
}

fn mapped(body: &Json) -> Result<ContainerSpec, Refused> {
    mapped_below(body, &ceiling(&[]))
}

/// The values of a clause, in the order of the layers.
fn clause(mapped: &ContainerSpec, clause: &str) -> Vec<String> {
    let value = |layer: &PolicyLayer| match layer {
        PolicyLayer::Set(text) => Some(text.split_once('=').filter(|(name, _)| *name == clause)?.1.to_owned()),
        PolicyLayer::Flag { name, value } => (name == clause).then(|| value.clone()),
        PolicyLayer::Document(_) => None,
    };
    mapped.layers.iter().filter_map(value).collect()
}

#[test]
fn each_field_becomes_a_clause() {
    let host = |field: &str, value: Json| json!({ "HostConfig": { field: value } });
    let root = format!("\"image:sha256:{}\"", "a".repeat(64));
    let rows = [
        (host("Memory", json!(64 << 20)), "limits.memory", "\"67108864B\""),
        (json!({ "HostConfig": { "Memory": 64 << 20, "MemorySwap": 64 << 20 } }), "limits.memory", "\"67108864B\""),
        (host("NanoCpus", json!(1_500_000_000)), "limits.cpus", "1.500"),
        (json!({ "HostConfig": { "CpuQuota": 50_000, "CpuPeriod": 100_000 } }), "limits.cpus", "0.500"),
        (host("CpuQuota", json!(25_000)), "limits.cpus", "0.250"),
        (host("CpusetCpus", json!("0-1,3")), "limits.cpuset", "\"0-1,3\""),
        (host("PidsLimit", json!(64)), "limits.pids", "64"),
        (host("Ulimits", json!([{ "Name": "nofile", "Soft": 64, "Hard": 128 }])), "limits.open_files", "64"),
        (host("Ulimits", json!([{ "Name": "nofile", "Soft": 16, "Hard": 16 }])), "limits.open_files", "16"),
        (host("Ulimits", json!([{ "Name": "nproc", "Soft": 9, "Hard": 9 }])), "limits.pids", "9"),
        (host("Ulimits", json!([{ "Name": "fsize", "Soft": 512, "Hard": 512 }])), "limits.file_size", "\"512B\""),
        (host("Ulimits", json!([{ "Name": "cpu", "Soft": 5, "Hard": 5 }])), "limits.cpu_time", "\"5s\""),
        (host("ShmSize", json!(8 << 20)), "fs.shm", "\"8388608B\""),
        (host("Tmpfs", json!({ "/tmp": "size=64m,noexec" })), "fs.tmp", "\"67108864B\""),
        (host("Tmpfs", json!({ "/run": "size=1M" })), "fs.run", "\"1048576B\""),
        (host("Binds", json!(["/data:/in:ro"])), "fs.read", "[{ from = \"/data\", to = \"/in\" }]"),
        (host("Binds", json!(["/data:/out"])), "fs.write", "[{ from = \"/data\", to = \"/out\" }]"),
        (
            host("Mounts", json!([{ "Type": "bind", "Source": "/data", "Target": "/in", "ReadOnly": true }])),
            "fs.read",
            "[{ from = \"/data\", to = \"/in\" }]",
        ),
        (host("NetworkMode", json!("none")), "net.mode", "loopback"),
        (host("NetworkMode", json!("default")), "net.mode", "loopback"),
        (json!({ "NetworkDisabled": true }), "net.mode", "none"),
        (json!({ "User": "1000:1000" }), "process.user", "\"user\""),
        (json!({ "User": "nobody" }), "process.user", "\"nobody\""),
        (json!({ "User": "700:app" }), "process.user", "\"app\""),
        (json!({ "Hostname": "box" }), "process.hostname", "\"box\""),
        (json!({}), "process.hostname", "\"0123456789ab\""),
        (json!({ "Env": ["A=b=c", "GONE"] }), "--env", "A=b=c"),
        (
            json!({ "WorkingDir": "/work/" }),
            "workspace",
            "{ path = \"/state/empty\", at = \"/work\", mode = \"copy\" }",
        ),
        (
            json!({ "WorkingDir": "/work", "HostConfig": { "ReadonlyRootfs": true } }),
            "workspace",
            "{ path = \"/state/empty\", at = \"/work\", mode = \"ro\" }",
        ),
        (json!({ "HostConfig": { "ReadonlyRootfs": true, "Tmpfs": { "/tmp": "" } } }), "fs.noexec", "true"),
        (json!({ "HostConfig": { "ReadonlyRootfs": true, "Tmpfs": { "/tmp": "exec" } } }), "fs.noexec", "false"),
        (json!({}), "fs.noexec", "false"),
        // Asked of one place it is held for all.
        (host("Tmpfs", json!({ "/tmp": "noexec" })), "fs.noexec", "true"),
        (json!({ "HostConfig": { "Tmpfs": { "/tmp": "noexec" }, "Binds": ["/srv/data:/data"] } }), "fs.noexec", "true"),
        (json!({}), "fs.root", root.as_str()),
    ];
    for (body, name, value) in rows {
        let mapped = mapped(&body).unwrap_or_else(|refused| panic!("{body}: {refused:?}"));
        assert_eq!(clause(&mapped, name), [value], "{body}");
    }
}

#[test]
fn each_field_that_widens_is_refused_by_its_name() {
    let host = |field: &str, value: Json| (json!({ "HostConfig": { field: value } }), format!("HostConfig.{field}"));
    let rows = [
        host("Privileged", json!(true)),
        host("CapAdd", json!(["SYS_ADMIN"])),
        host("PidMode", json!("host")),
        host("IpcMode", json!("host")),
        host("UTSMode", json!("host")),
        host("UsernsMode", json!("host")),
        host("CgroupnsMode", json!("host")),
        host("NetworkMode", json!("host")),
        host("NetworkMode", json!("bridge")),
        host("NetworkMode", json!("container:abc")),
        host("Devices", json!([{ "PathOnHost": "/dev/kvm" }])),
        host("DeviceRequests", json!([{ "Count": -1 }])),
        host("SecurityOpt", json!(["seccomp=unconfined"])),
        host("SecurityOpt", json!(["apparmor=unconfined"])),
        host("SecurityOpt", json!(["no-new-privileges:false"])),
        host("OomKillDisable", json!(true)),
        host("OomScoreAdj", json!(-500)),
        host("PortBindings", json!({ "80/tcp": [{ "HostPort": "80" }] })),
        host("PublishAllPorts", json!(true)),
        host("VolumesFrom", json!(["other"])),
        host("Binds", json!(["data:/in"])),
        host("Binds", json!(["/data:/in:z"])),
        host("Binds", json!(["/data:/"])),
        host("Binds", json!(["/a/../etc:/in"])),
        host("Mounts", json!([{ "Type": "volume", "Source": "data", "Target": "/in" }])),
        host(
            "Mounts",
            json!([{ "Type": "bind", "Source": "/a", "Target": "/b", "BindOptions": { "Propagation": "shared" } }]),
        ),
        host("Tmpfs", json!({ "/tmp": "suid" })),
        host("Tmpfs", json!({ "/a": "", "/b": "" })),
        host("Tmpfs", json!({ "/tmp": "exec", "/run": "noexec" })),
        host("MemorySwap", json!(-1)),
        host("MemorySwap", json!(1 << 30)),
        host("Memory", json!(-5)),
        host("MemoryReservation", json!(1 << 20)),
        host("CpuShares", json!(512)),
        host("CpusetCpus", json!("all")),
        host("Ulimits", json!([{ "Name": "memlock", "Soft": -1, "Hard": -1 }])),
        host("Ulimits", json!([{ "Name": "core", "Soft": 1, "Hard": 1 }])),
        host("RestartPolicy", json!({ "Name": "always" })),
        host("LogConfig", json!({ "Type": "syslog" })),
        host("Runtime", json!("kata")),
        // The tier is the ceiling's.
        host("Runtime", json!("runsc")),
        host("StorageOpt", json!({ "size": "1G" })),
        host("Sysctls", json!({ "net.ipv4.ip_forward": "1" })),
        host("ExtraHosts", json!(["a:127.0.0.1"])),
        host("Dns", json!(["8.8.8.8"])),
        host("GroupAdd", json!(["0"])),
        host("SomethingNew", json!(1)),
        (json!({ "User": "root" }), "User".to_owned()),
        (json!({ "User": "0:0" }), "User".to_owned()),
        (json!({ "User": "4242" }), "User".to_owned()),
        (json!({ "User": "app:root" }), "User".to_owned()),
        (json!({ "Volumes": { "/data": {} } }), "Volumes".to_owned()),
        (json!({ "Healthcheck": { "Test": ["CMD", "true"] } }), "Healthcheck".to_owned()),
        (json!({ "MacAddress": "02:42:ac:11:00:02" }), "MacAddress".to_owned()),
        (json!({ "WorkingDir": "work" }), "WorkingDir".to_owned()),
        (json!({ "StopSignal": "SIGNOTHING" }), "StopSignal".to_owned()),
        (
            json!({ "NetworkingConfig": { "EndpointsConfig": { "mine": {} } } }),
            "NetworkingConfig.EndpointsConfig.mine".to_owned(),
        ),
        (json!({ "Unheard": "of" }), "Unheard".to_owned()),
    ];
    refused(&rows);
}

/// Each with the field that the refusal names.
fn refused(rows: &[(Json, String)]) {
    for (body, field) in rows {
        assert_eq!(&mapped(body).unwrap_err().field, field, "{body}");
    }
}

/// Docker holds each of these in its own way, and nothing here does.
#[test]
fn each_field_that_is_not_held_as_it_is_meant_is_refused_by_its_name() {
    let host = |field: &str, value: Json| (json!({ "HostConfig": { field: value } }), format!("HostConfig.{field}"));
    refused(&[
        // A port that the daemon would choose, and other tables and lists in which the key or the item is the wish.
        host("PortBindings", json!({ "80/tcp": [{ "HostIp": "", "HostPort": "" }] })),
        host("PortBindings", json!({ "80/tcp": null })),
        host("Sysctls", json!({ "net.ipv4.ip_unprivileged_port_start": "" })),
        host("StorageOpt", json!({ "size": "" })),
        host("Annotations", json!({ "run.oci.keep_original_groups": "" })),
        host("GroupAdd", json!([""])),
        host("Devices", json!([{}])),
        host("LogConfig", json!({ "Type": "", "Config": { "max-size": "" } })),
        host("Tmpfs", json!({ "/": "" })),
        host("Tmpfs", json!({ "/tmp": "mode=0700" })),
        host("Tmpfs", json!({ "/tmp": "mode=x" })),
        host("Tmpfs", json!({ "/run": "mode=1777" })),
        host("Tmpfs", json!({ "/data": "mode=1777" })),
        host("Tmpfs", json!({ "/tmp": "uid=0" })),
        host("Tmpfs", json!({ "/tmp": "gid=5" })),
        host("Tmpfs", json!({ "/tmp": "uid=" })),
        host("Ulimits", json!([{ "Name": "nofile", "Soft": 15, "Hard": 64 }])),
        host("Ulimits", json!([{ "Name": "nofile", "Soft": 64 }, { "Name": "NOFILE", "Soft": 128 }])),
        host("CapDrop", json!(["NONSENSE"])),
        // What is there cannot be taken away.
        (json!({ "Env": ["PATH"] }), "Env".to_owned()),
        (json!({ "Env": ["OF_IMAGE"] }), "Env".to_owned()),
        (json!({ "Env": ["A=1", "A"] }), "Env".to_owned()),
        (json!({ "Env": ["A=\u{0}"] }), "Env".to_owned()),
        (
            json!({ "NetworkingConfig": { "EndpointsConfig": { "default": { "DriverOpts": { "a": "" } } } } }),
            "NetworkingConfig.EndpointsConfig.default".to_owned(),
        ),
    ]);
}

/// Of another kind than it should be, a field is not taken for one that says nothing.
#[test]
fn a_field_of_another_kind_is_refused_by_its_name() {
    let host = |field: &str, value: Json| (json!({ "HostConfig": { field: value } }), format!("HostConfig.{field}"));
    let rows = [
        host("RestartPolicy", json!("always")),
        host("LogConfig", json!("syslog")),
        (
            json!({ "HostConfig": { "Mounts": [
                { "Type": "bind", "Source": "/data", "Target": "/in", "ReadOnly": "true" }
            ] } }),
            "HostConfig.Mounts.ReadOnly".to_owned(),
        ),
        (json!({ "Volumes": ["/data"] }), "Volumes".to_owned()),
        (json!({ "NetworkingConfig": { "Other": 1 } }), "NetworkingConfig.Other".to_owned()),
    ];
    refused(&rows);
}

#[test]
fn what_says_nothing_is_accepted() {
    let body = json!({
        "Image": "x", "AttachStdout": true, "Domainname": "", "OnBuild": null, "Volumes": { "/in": {} },
        "Healthcheck": { "Test": ["NONE"] },
        "NetworkingConfig": { "EndpointsConfig": { "default": { "IPAMConfig": null, "Links": null, "Aliases": null } } },
        "HostConfig": {
            "Privileged": false, "CapAdd": null, "CapDrop": ["all", "cap_chown", "NET_RAW"], "PidMode": "", "IpcMode": "private", "Devices": [],
            "SecurityOpt": ["no-new-privileges:true"], "OomKillDisable": false, "PortBindings": {}, "Init": true,
            "RestartPolicy": { "Name": "no", "MaximumRetryCount": 0 }, "LogConfig": { "Type": "", "Config": {} },
            "Tmpfs": { "/tmp": "mode=01777,uid=1000,gid=1000", "/run": "mode=755" }, "MemorySwappiness": -1, "ConsoleSize": [24, 80], "Binds": ["/data:/in"], "NetworkMode": "default",
            "Ulimits": [{ "Name": "core", "Soft": 0, "Hard": 0 }], "BlkioDeviceReadBps": null,
        },
    });
    let mapped = mapped(&body).unwrap();
    assert!(mapped.warnings.iter().any(|told| told.starts_with("no network")), "{:?}", mapped.warnings);
    assert!(mapped.warnings.iter().any(|told| told.contains("not root")), "{:?}", mapped.warnings);
}

#[test]
fn an_entrypoint_takes_the_images_command_away() {
    let argv = |body: Json| mapped(&body).map(|mapped| mapped.program.argv.join(" "));
    assert_eq!(argv(json!({})).unwrap(), "/entry serve");
    assert_eq!(argv(json!({ "Cmd": ["x", "y"] })).unwrap(), "/entry x y");
    assert_eq!(argv(json!({ "Entrypoint": ["sh"], "Cmd": ["-c", "true"] })).unwrap(), "sh -c true");
    assert_eq!(argv(json!({ "Entrypoint": "sh" })).unwrap(), "sh");
    assert_eq!(argv(json!({ "Entrypoint": [""] })).unwrap_err().field, "Cmd");
}

#[test]
fn a_program_begins_where_docker_has_it() {
    let cwd = |body: Json| mapped(&body).unwrap().program.cwd.unwrap();
    assert_eq!(cwd(json!({})), "/srv");
    assert_eq!(cwd(json!({ "WorkingDir": "/work//x/" })), "/work/x");
    let bound = mapped(&json!({ "WorkingDir": "/in/deep", "HostConfig": { "Binds": ["/data:/in"] } })).unwrap();
    assert_eq!(clause(&bound, "workspace"), Vec::<String>::new());
}

#[test]
fn what_nobody_says_is_the_ceilings() {
    let low = ceiling(&[
        "limits.memory=128M",
        "fs.tmp=32M",
        "fs.run=4M",
        "limits.pids=8",
        "limits.cpus=0.5",
        "fs.shm=4M",
        "net.mode=none",
    ]);
    let mapped = mapped_below(&json!({}), &low).unwrap();
    let rows = [
        ("limits.memory", "\"134217728B\""),
        ("limits.pids", "8"),
        ("limits.cpus", "0.500"),
        ("fs.shm", "\"4194304B\""),
        ("net.mode", "none"),
    ];
    for (name, value) in rows {
        assert_eq!(clause(&mapped, name), [value]);
    }
}

#[test]
fn places_fit_into_memory() {
    for memory in [16_u64 << 20, 64 << 20, 128 << 20, 1 << 30] {
        let body = json!({ "WorkingDir": "/work", "HostConfig": {
            "Memory": memory, "ShmSize": memory, "Tmpfs": { "/tmp": format!("size={memory}") },
        } });
        let mapped = mapped(&body).unwrap();
        let size = |name| clause(&mapped, name).concat().trim_matches(['"', 'B']).parse::<u64>().unwrap();
        assert!(size("limits.disk") <= memory, "{memory}");
        assert_eq!(size("fs.tmp"), memory / 2);
        assert!(mapped.warnings.iter().any(|told| told.starts_with("/tmp ends at")), "{:?}", mapped.warnings);
    }
}

#[test]
fn a_place_that_ends_earlier_than_was_asked_is_told_by_its_name_and_where_it_ends() {
    let told = |tmpfs: Json, ceiling: &Policy| {
        let mapped = mapped_below(&json!({ "HostConfig": { "Memory": 256 << 20, "Tmpfs": tmpfs } }), ceiling).unwrap();
        mapped.warnings.into_iter().filter(|told| told.contains(" ends at ")).collect::<Vec<_>>()
    };
    let why = "what is written there counts as memory";
    assert_eq!(told(json!({ "/t": "size=100g" }), &ceiling(&[])), [format!("/t ends at 32M: {why}")]);
    let small = ceiling(&["limits.disk=96M", "fs.tmp=64M", "fs.shm=16M", "fs.run=4M"]);
    assert_eq!(told(json!({ "/t": "size=100g" }), &small), [format!("/t ends at 12M: {why}")]);
    assert_eq!(told(json!({ "/t": "size=8m", "/tmp": "size=4m" }), &small), [""; 0]);
}

#[test]
fn processes_without_end_are_not_to_be_had_and_that_is_told() {
    let told = |pids: i64| {
        let mapped = mapped(&json!({ "HostConfig": { "PidsLimit": pids } })).unwrap();
        let warns = mapped.warnings.iter().any(|told| told.starts_with("PidsLimit below zero is 512"));
        (clause(&mapped, "limits.pids").concat(), warns)
    };
    assert_eq!(told(-1), ("512".to_owned(), true));
    assert_eq!([told(0), told(64)], [("512".to_owned(), false), ("64".to_owned(), false)]);
}

/// Empty, a list of paths to mask or to hold read-only takes Docker's own away; none of its paths is seen here.
#[test]
fn lists_of_masked_paths_are_the_ones_of_every_sandbox_also_where_they_are_emptied() {
    let told = |paths: Json| {
        let body = json!({ "HostConfig": { "MaskedPaths": paths, "ReadonlyPaths": paths } });
        let told = mapped(&body).unwrap().warnings;
        ["MaskedPaths", "ReadonlyPaths"].map(|field| told.iter().any(|told| told.starts_with(field)))
    };
    assert_eq!([told(json!([])), told(Json::Null)], [[true; 2], [false; 2]]);
    let some = mapped(&json!({ "HostConfig": { "MaskedPaths": ["/proc/acpi"] } })).unwrap_err();
    assert_eq!(some.field, "HostConfig.MaskedPaths");
}

#[test]
fn booleans_are_read_in_every_clients_way() {
    let read = |text: &str| yes(&Query::of(&format!("/?a={text}").parse().unwrap()), "a");
    assert!(["1", "true", "True"].iter().all(|text| read(text) == Ok(true)));
    assert!(["0", "false", "False", ""].iter().all(|text| read(text) == Ok(false)));
    assert!(read("maybe").is_err());
}

/// What `inspect` shows of a body, below this ceiling: its table `HostConfig`, and the user.
fn shown(body: &Json, ceiling: &Policy) -> (Json, String) {
    let mapped = mapped_below(body, ceiling).unwrap();
    let host = body.get("HostConfig").and_then(Json::as_object).cloned().unwrap_or_default();
    (Json::Object(mapped.held.shown(host)), mapped.held.user)
}

#[test]
fn inspect_says_what_is_so_where_the_body_asks_for_more_or_nothing() {
    let body = json!({ "HostConfig": {
        "Memory": 64 << 20, "PidsLimit": -1, "Ulimits": [{ "Name": "nofile", "Soft": 100, "Hard": 1000 }], "ShmSize": 1 << 30,
        "Tmpfs": { "/tmp": "size=640m", "/data": "size=1m" }, "NetworkMode": "default", "MaskedPaths": [], "Binds": ["/data:/in"],
        "CpuQuota": 25_000,
    } });
    let (host, user) = shown(&body, &ceiling(&[]));
    let limit = |name: &str, value: u64| json!({ "Name": name, "Soft": value, "Hard": value });
    for (field, value) in [
        ("Memory", json!(64 << 20)),
        ("MemorySwap", json!(64 << 20)),
        ("PidsLimit", json!(512)),
        ("Ulimits", json!([limit("core", 0), limit("fsize", 1 << 30), limit("nofile", 100)])),
        ("ShmSize", json!(16 << 20)),
        ("NetworkMode", json!("none")),
        ("ReadonlyRootfs", json!(true)),
        ("MaskedPaths", Json::Null),
        ("CpuQuota", json!(25_000)),
        ("NanoCpus", Json::Null),
        ("Binds", json!(["/data:/in"])),
    ] {
        assert_eq!(host.get(field).unwrap_or(&Json::Null), &value, "{field}");
    }
    let places = |host: &Json| {
        let mut at: Vec<String> = host["Tmpfs"].as_object().unwrap().keys().cloned().collect();
        at.sort_unstable();
        at
    };
    assert_eq!(host["Tmpfs"]["/tmp"], "rw,nosuid,nodev,size=33554432,mode=1777,uid=1000,gid=1000");
    assert_eq!(host["Tmpfs"]["/data"], "rw,nosuid,nodev,size=1048576,uid=1000,gid=1000");
    assert_eq!((places(&host).join(" "), user.as_str()), ("/data /run /tmp".to_owned(), "1000"));
    // Where the body says nothing, the ceiling does, or we do.
    let low = ceiling(&[
        "limits.memory=128M",
        "fs.tmp=32M",
        "fs.run=4M",
        "fs.shm=4M",
        "limits.pids=8",
        "limits.cpus=0.5",
        "limits.cpuset=0",
        "limits.cpu_time=5s",
    ]);
    let (host, _) =
        shown(&json!({ "User": "app", "HostConfig": { "ReadonlyRootfs": true }, "WorkingDir": "/work" }), &low);
    assert_eq!(
        [&host["Memory"], &host["PidsLimit"], &host["NanoCpus"]],
        [&json!(128 << 20), &json!(8), &json!(500_000_000)]
    );
    assert_eq!((&host["CpusetCpus"], &host["Ulimits"][3]), (&json!("0"), &limit("cpu", 5)));
    assert_eq!(places(&host).join(" "), "/run /tmp", "a working directory that was made is read-only then");
    assert_eq!(host["Tmpfs"]["/run"], "rw,nosuid,nodev,noexec,size=4194304,mode=755,uid=700,gid=700");
    assert_eq!(shown(&json!({}), &ceiling(&[])).0["Memory"], json!(2_u64 << 30));
    assert_eq!(shown(&json!({ "User": "1000:1000" }), &ceiling(&[])).1, "1000:1000");
}

/// What a policy refuses names the field of the body, and what can be written there; no clause, and no flag of ours.
#[test]
fn a_refusal_of_the_policy_names_docker_s_field_and_what_to_do() {
    let ceiling = ceiling(&["limits.memory=128M", "fs.tmp=32M", "fs.run=4M", "fs.shm=4M"]);
    let folder = tempfile::tempdir().unwrap();
    let environment = environment(folder.path());
    let told = |body: Json| {
        let mut layers = mapped_below(&body, &ceiling).unwrap().layers;
        layers.retain(|layer| !matches!(layer, PolicyLayer::Set(text) if text.starts_with("fs.root=")));
        let judged = app::load(&layers, &environment).map(|loaded| beyond(Some(&ceiling), &loaded.policy, &[]).found);
        DockerError::from(judged.unwrap_or_else(|problems| problems)).1
    };
    for (body, field) in [
        (json!({ "HostConfig": { "Memory": 1 } }), "HostConfig.Memory: "),
        (json!({ "HostConfig": { "Memory": 256 << 20 } }), "HostConfig.Memory: it goes beyond "),
        (json!({ "HostConfig": { "PidsLimit": 1_u64 << 40 } }), "HostConfig.PidsLimit: "),
        (json!({ "HostConfig": { "Binds": ["/etc:/host:ro"] } }), "HostConfig.Binds: "),
        (json!({ "HostConfig": { "Binds": ["/:/host"] } }), "HostConfig.Binds: "),
        (json!({ "Hostname": "a b" }), "Hostname: "),
        (json!({ "Env": ["A B=1"] }), "Env: "),
    ] {
        let told = told(body);
        assert!(told.starts_with(&format!("fumehood refuses {field}")), "{told}");
        let ours = ["limits.", "fs.", "env.", "process.", "`fumehood", "--set", "keys add", "dangerous-"];
        assert!(!ours.iter().any(|word| told.contains(word)), "{told}");
    }
}
