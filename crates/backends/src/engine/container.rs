//! One container of the engine: what is asked for, what the engine says that it is, and its removal.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::host::podman::http::{Failure, Method, ask};
use crate::native::start::Outer;

/// Names the run that a container is for.
const LABEL: &str = "fumehood.run";
/// What the guest needs in the container's own user namespace until it drops them for good, as on the native backend.
const CAPABILITIES: [&str; 12] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_ADMIN",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_ADMIN",
    "CAP_SYS_CHROOT",
    "CAP_SYS_RESOURCE",
];

/// What a container is to be.
#[derive(Clone, Debug)]
pub(super) struct ContainerSpec<'a> {
    pub(super) run: &'a str,
    /// Its root on the host.
    pub(super) root: &'a Path,
    /// The runtime that makes it.
    pub(super) runtime: &'a Path,
    /// The first program, in its root.
    pub(super) program: &'a str,
    /// Ids inside and what they are outside: of users, then of groups.
    pub(super) maps: [Vec<(u32, u32)>; 2],
    /// Namespaces of its own, and else the host's.
    pub(super) own: OwnNamespaces,
    pub(super) no_new_privs: bool,
}

/// Which namespaces are the container's own.
#[expect(clippy::struct_excessive_bools, reason = "a set of kinds, each asked for or not")]
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnNamespaces {
    pub(super) user: bool,
    pub(super) pid: bool,
    pub(super) net: bool,
    pub(super) ipc: bool,
    pub(super) uts: bool,
}

impl ContainerSpec<'_> {
    fn document(&self) -> Value {
        let mode = |own: bool, name: &str| json!({ "nsmode": if own { name } else { "host" } });
        let map = |map: &Vec<(u32, u32)>| -> Vec<Value> {
            let one = |(inside, outside): &(u32, u32)| json!({ "container_id": inside, "host_id": outside, "size": 1 });
            map.iter().map(one).collect()
        };
        let [users, groups] = &self.maps;
        let mut all = json!({
            "name": name(self.run),
            "labels": { LABEL: self.run },
            "rootfs": self.root.to_string_lossy(),
            "read_only_filesystem": true,
            "oci_runtime": self.runtime.to_string_lossy(),
            "command": [self.program],
            "env": {},
            "env_host": false,
            "httpproxy": false,
            "terminal": false,
            // A pipe, which nobody writes to: without it the engine's monitor gives the runtime the host's /dev/null, and the runtime
            // gives that to the container's root.
            "stdin": true,
            "systemd": "false",
            "sdnotifyMode": "ignore",
            "log_configuration": { "driver": "none" },
            "stop_timeout": 0,
            "user": "0:0",
            "work_dir": "/",
            "privileged": false,
            "cap_drop": ["ALL"],
            "cap_add": CAPABILITIES,
            "no_new_privileges": self.no_new_privs,
            // The filter is the guest's own.
            "seccomp_profile_path": "unconfined",
            // The profiles of engines let nobody mount; what the guest does instead is what holds on `native`.
            "apparmor_profile": "unconfined",
            "selinux_opts": ["disable"],
            // The guest mounts the kernel's file systems anew, which it may only where nothing of them is masked.
            "unmask": ["ALL"],
            "userns": mode(self.own.user, "private"),
            "pidns": mode(self.own.pid, "private"),
            "ipcns": mode(self.own.ipc, "private"),
            "utsns": mode(self.own.uts, "private"),
            "netns": mode(self.own.net, "none"),
            "cgroupns": mode(false, "private"),
            // Groups are the supervisor's.
            "cgroups_mode": "disabled",
            "use_image_hosts": true,
            "use_image_resolve_conf": true,
        });
        if let (true, Some(all)) = (self.own.user, all.as_object_mut()) {
            all.insert("idmappings".to_owned(), json!({ "UIDMap": map(users), "GIDMap": map(groups) }));
        }
        all
    }

    /// Everything that the engine says otherwise of the container than it was asked for.
    fn differs(&self, said: &Value) -> Vec<String> {
        let texts = |values: &[&str]| Value::from(values.to_vec());
        let wanted = [
            ("/Config/User", Value::from("0:0")),
            ("/Config/Labels/fumehood.run", Value::from(self.run)),
            ("/HostConfig/Privileged", Value::from(false)),
            ("/HostConfig/ReadonlyRootfs", Value::from(true)),
            ("/HostConfig/PidMode", Value::from(if self.own.pid { "private" } else { "host" })),
            ("/HostConfig/NetworkMode", Value::from(if self.own.net { "none" } else { "host" })),
            ("/HostConfig/UTSMode", Value::from(if self.own.uts { "private" } else { "host" })),
            ("/HostConfig/Cgroups", Value::from("disabled")),
            ("/HostConfig/RestartPolicy/Name", Value::from("")),
            ("/Rootfs", Value::from(self.root.to_string_lossy())),
            ("/Mounts", Value::from(Vec::<Value>::new())),
            ("/BoundingCaps", texts(&CAPABILITIES)),
            ("/State/Status", Value::from("running")),
        ];
        wanted
            .into_iter()
            .filter_map(|(at, wanted)| {
                let found = said.pointer(at);
                let same = match (found, &wanted) {
                    // No list and an empty one are one.
                    (None | Some(Value::Null), Value::Array(list)) => list.is_empty(),
                    (Some(Value::Array(found)), Value::Array(wanted)) => sorted(found) == sorted(wanted),
                    (found, wanted) => found == Some(wanted),
                };
                (!same).then(|| {
                    let found = found.map_or_else(|| "nothing".to_owned(), Value::to_string);
                    format!("podman says of the container that `{at}` is {found}, and {wanted} was asked for")
                })
            })
            .collect()
    }
}

fn sorted(list: &[Value]) -> Vec<String> {
    let mut all: Vec<String> = list.iter().map(Value::to_string).collect();
    all.sort();
    all
}

fn name(run: &str) -> String {
    format!("fumehood-{run}")
}

/// A container that exists. Dropping it removes it, with whatever still runs in it.
#[derive(Debug)]
pub(super) struct Container {
    id: String,
}

impl Outer for Container {}

impl Drop for Container {
    fn drop(&mut self) {
        // Whoever drops it has no reader: what is left carries the run's label, and `gc` takes it.
        drop(self.remove());
    }
}

impl Container {
    /// Makes it, without starting it.
    ///
    /// # Errors
    /// The engine refuses; in words.
    pub(super) fn make(wanted: &ContainerSpec<'_>) -> Result<Self, String> {
        let made = ask(Method::Post, "/containers/create", Some(&wanted.document())).map_err(|why| why.to_string())?;
        let id = made.get("Id").and_then(Value::as_str).filter(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let id = id.ok_or("podman made a container and says no name of it")?;
        Ok(Self { id: id.to_owned() })
    }

    /// Starts its first process; that one's number.
    ///
    /// # Errors
    /// The engine refuses, or what it says of the container is not what was wanted; in words.
    pub(super) fn start(&self, wanted: &ContainerSpec<'_>) -> Result<i32, Vec<String>> {
        let told = |failure: Failure| vec![failure.to_string()];
        ask(Method::Post, &format!("/containers/{}/start", self.id), None).map_err(told)?;
        let said = ask(Method::Get, &format!("/containers/{}/json", self.id), None).map_err(told)?;
        let differs = wanted.differs(&said);
        if !differs.is_empty() {
            return Err(differs);
        }
        let pid = said.pointer("/State/Pid").and_then(Value::as_i64).and_then(|pid| i32::try_from(pid).ok());
        pid.filter(|pid| *pid > 1).ok_or_else(|| vec!["podman says no process of the container".to_owned()])
    }

    fn remove(&self) -> Result<(), Failure> {
        remove(&self.id)
    }
}

/// The engine refuses to remove a container whose last process ends just then: it asks again, for as long as this.
const REMOVED: Duration = Duration::from_secs(2);

#[expect(clippy::disallowed_methods, reason = "the engine has no descriptor that says when")]
fn remove(id: &str) -> Result<(), Failure> {
    let until = Instant::now() + REMOVED;
    loop {
        match ask(Method::Delete, &format!("/containers/{id}?force=true&timeout=0"), None) {
            Ok(_) | Err(Failure::Unknown) => return Ok(()),
            Err(Failure::Other(_)) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Err(failure) => return Err(failure),
        }
    }
}

/// Removes the containers that carry a run's label, whatever runs in them; how many.
///
/// # Errors
/// One is still there; in words.
pub(super) fn end_labelled(run: &str) -> Result<usize, String> {
    // Only root has such runs, and nobody else may ask root's service.
    if sys::caller::euid() != 0 {
        return Ok(0);
    }
    // A name that is no run's would be a filter of another kind.
    if !run.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Ok(0);
    }
    let filter = format!("%7B%22label%22%3A%5B%22{LABEL}%3D{run}%22%5D%7D");
    let all = match ask(Method::Get, &format!("/containers/json?all=true&filters={filter}"), None) {
        Ok(all) => all,
        // Where nobody serves there is nobody to ask, and most runs never had a container.
        Err(Failure::Nobody(_)) => return Ok(0),
        Err(failure) => return Err(failure.to_string()),
    };
    let ids: Vec<&str> = all.as_array().into_iter().flatten().filter_map(|one| one.get("Id")?.as_str()).collect();
    ids.iter().try_for_each(|id| remove(id)).map_err(|failure| failure.to_string())?;
    Ok(ids.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(maps: [Vec<(u32, u32)>; 2]) -> ContainerSpec<'static> {
        ContainerSpec {
            run: "r1",
            root: Path::new("/tmp/r1/root"),
            runtime: Path::new("/usr/bin/crun"),
            program: "/.fumehood",
            maps,
            own: OwnNamespaces { user: true, pid: true, net: true, ipc: true, uts: true },
            no_new_privs: true,
        }
    }

    fn faithful() -> Value {
        json!({
            "Rootfs": "/tmp/r1/root",
            "Mounts": [],
            "BoundingCaps": CAPABILITIES,
            "State": { "Status": "running", "Pid": 7 },
            "Config": { "User": "0:0", "Labels": { LABEL: "r1" } },
            "HostConfig": {
                "Privileged": false, "ReadonlyRootfs": true, "PidMode": "private", "NetworkMode": "none",
                "UTSMode": "private", "Cgroups": "disabled", "RestartPolicy": { "Name": "" },
            },
        })
    }

    #[test]
    fn what_the_engine_changed_is_found_field_by_field() {
        let wanted = wanted([vec![(0, 9), (1000, 7)], vec![(0, 9), (1000, 8)]]);
        assert_eq!(wanted.differs(&faithful()), Vec::<String>::new());
        for (at, other) in [
            ("/HostConfig/Privileged", json!(true)),
            ("/HostConfig/NetworkMode", json!("bridge")),
            ("/HostConfig/PidMode", json!("host")),
            ("/HostConfig/ReadonlyRootfs", json!(false)),
            ("/HostConfig/Cgroups", json!("enabled")),
            ("/Config/User", json!("")),
            ("/Rootfs", json!("/")),
            ("/Mounts", json!([{ "Source": "/" }])),
            ("/BoundingCaps", json!(["CAP_SYS_PTRACE"])),
            ("/State/Status", json!("exited")),
        ] {
            let mut said = faithful();
            *said.pointer_mut(at).unwrap() = other;
            let found = wanted.differs(&said);
            assert!(found.len() == 1 && found[0].contains(at), "{at}: {found:?}");
        }
        assert!(!wanted.differs(&json!({})).is_empty());
    }

    #[test]
    fn the_order_drops_everything_and_maps_both_kinds_of_ids() {
        let order = wanted([vec![(0, 9), (1000, 7)], vec![(0, 9), (1000, 8)]]).document();
        assert_eq!(order.pointer("/cap_drop/0"), Some(&json!("ALL")));
        assert_eq!(order.pointer("/netns/nsmode"), Some(&json!("none")));
        assert_eq!(order.pointer("/stdin"), Some(&json!(true)), "else it is the host's /dev/null");
        assert_eq!(order.pointer("/idmappings/UIDMap/1/host_id"), Some(&json!(7)));
        assert_eq!(order.pointer("/idmappings/GIDMap/1/host_id"), Some(&json!(8)));
    }
}
