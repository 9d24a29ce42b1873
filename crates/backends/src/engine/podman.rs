//! A container of podman's: with id maps of its own, in whose user namespace its first process has what the guest needs.

use std::path::Path;

use serde_json::{Value, json};

use super::container::{LABEL, Order, OwnNamespaces, name};
use crate::host::engine::Api;
use crate::host::podman;

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

impl Order for ContainerSpec<'_> {
    fn api(&self) -> Api {
        podman::API
    }

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

    fn expected(&self) -> Vec<(&'static str, Value)> {
        let texts = |values: &[&str]| Value::from(values.to_vec());
        vec![
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
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::container::differs;
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
        assert_eq!(differs(&wanted, &faithful()), Vec::<String>::new());
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
            let found = differs(&wanted, &said);
            assert!(found.len() == 1 && found[0].contains(at), "{at}: {found:?}");
        }
        assert!(!differs(&wanted, &json!({})).is_empty());
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
