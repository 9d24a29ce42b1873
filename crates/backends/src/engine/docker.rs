//! A container of Docker's: what guides ask for, of an unprivileged user without any capability, in whose container there is nothing but
//! the guest. The guest makes a user namespace of its own there, for Docker's interface has none for one container.

use std::path::{Path, PathBuf};

use guest::config::{ENTRY_SOCKET, NAMESPACES_SOCKET};
use serde_json::{Value, json};
use sys::proc::{Namespace, Process};

use super::container::{LABEL, Order, name};
use crate::host::Daemon;
use crate::host::engine::Api;

/// What no call of a container's first process or of anything below it is: all of it is root's of the whole host. The run's own filter
/// is the guest's, and comes on top of it.
const DENIED: [&str; 15] = [
    "acct",
    "create_module",
    "delete_module",
    "finit_module",
    "init_module",
    "ioperm",
    "iopl",
    "kexec_file_load",
    "kexec_load",
    "nfsservctl",
    "open_by_handle_at",
    "reboot",
    "swapoff",
    "swapon",
    "uselib",
];

/// Of the group that the engine makes: the runtime begins in it, and the container's first process stays there. The run's own limits
/// are those of the run's group.
const MEMORY: u64 = 64 << 20;
const TASKS: u64 = 32;

/// What a container is to be.
#[derive(Clone, Debug)]
pub(super) struct ContainerSpec<'a> {
    pub(super) run: &'a str,
    pub(super) daemon: &'a Daemon,
    /// The image, by the engine's own name of it.
    pub(super) image: String,
    /// The folder of the host in which the guest and its socket are.
    pub(super) folder: &'a Path,
    /// The first program, in its root.
    pub(super) program: &'a str,
    /// Who its first process is, of users and of groups.
    pub(super) ids: [u32; 2],
    pub(super) no_new_privs: bool,
    /// Limits that everything in it begins with: the kernel's numbers.
    pub(super) limits: Vec<(u32, u64)>,
}

impl ContainerSpec<'_> {
    fn user(&self) -> String {
        let [user, group] = self.ids;
        format!("{user}:{group}")
    }

    /// What it sees of the host: where from, and where.
    fn binds(&self) -> [(PathBuf, &str); 3] {
        let socket = text(ENTRY_SOCKET);
        let from = |name: &str| self.folder.join(name.trim_start_matches('/'));
        [(from(self.program), self.program), (from(socket), socket), (from(socket), text(NAMESPACES_SOCKET))]
    }

    fn security(&self) -> Vec<String> {
        let filter = json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [{ "names": DENIED, "action": "SCMP_ACT_ERRNO" }],
        });
        // The profiles of engines let nobody mount; what the guest does instead is what holds on `native`.
        let always = ["apparmor=unconfined".to_owned(), "label=disable".to_owned(), format!("seccomp={filter}")];
        self.no_new_privs.then(|| "no-new-privileges".to_owned()).into_iter().chain(always).collect()
    }

    /// At the start the guest has descriptors up to high numbers, and writes files: what limits these it sets itself, later.
    fn ulimits(&self) -> Vec<Value> {
        let one = |(number, value): &(u32, u64)| {
            let (name, least) = named(*number)?;
            let value = i64::try_from(*value).unwrap_or(i64::MAX).max(least);
            Some(json!({ "Name": name, "Soft": value, "Hard": value }))
        };
        self.limits.iter().filter_map(one).collect()
    }

    /// Zero is no limit: what the engine says that it cannot hold is not asked of it.
    fn bounds(&self) -> [u64; 3] {
        let bounds = self.daemon.bounds;
        let of = |held: bool, limit: u64| if held { limit } else { 0 };
        [of(bounds.memory, MEMORY), of(bounds.memory && bounds.swap, MEMORY), of(bounds.pids, TASKS)]
    }
}

fn text(name: &'static std::ffi::CStr) -> &'static str {
    name.to_str().unwrap_or_default()
}

/// The engine's name of a resource, and the least that a start needs of it.
const fn named(number: u32) -> Option<(&'static str, i64)> {
    Some(match number {
        4 => ("core", 0),
        7 => ("nofile", 4096),
        8 => ("memlock", 0),
        11 => ("sigpending", 0),
        12 => ("msgqueue", 0),
        13 => ("nice", 0),
        14 => ("rtprio", 0),
        _other => return None,
    })
}

impl Order for ContainerSpec<'_> {
    fn api(&self) -> Api {
        self.daemon.api
    }

    /// The name is for people, who ask the engine what runs.
    fn creation(&self) -> String {
        format!("/containers/create?name={}", name(self.run))
    }

    fn document(&self) -> Value {
        let [memory, swap, tasks] = self.bounds();
        let mounts = self.binds().map(|(from, to)| {
            json!({
                "Type": "bind", "Source": from.to_string_lossy(), "Target": to, "ReadOnly": true,
                "BindOptions": { "Propagation": "private", "NonRecursive": true },
            })
        });
        json!({
            "Image": self.image,
            "Labels": { LABEL: self.run },
            "Entrypoint": [self.program],
            "Cmd": [],
            "Env": [],
            "User": self.user(),
            "WorkingDir": "/",
            "Tty": false,
            // A pipe, which nobody writes to, and no node of the host.
            "OpenStdin": true,
            "NetworkDisabled": true,
            "HostConfig": {
                "Runtime": self.daemon.runtime.0,
                "Privileged": false,
                "ReadonlyRootfs": true,
                "CapDrop": ["ALL"],
                "CapAdd": [],
                "SecurityOpt": self.security(),
                "NetworkMode": "none",
                "IpcMode": "private",
                "PidMode": "",
                "UTSMode": "",
                // Where the daemon maps all containers alike, not this one.
                "UsernsMode": "host",
                "CgroupnsMode": "private",
                "Memory": memory,
                "MemorySwap": swap,
                "PidsLimit": tasks,
                "Ulimits": self.ulimits(),
                "RestartPolicy": { "Name": "no" },
                "AutoRemove": false,
                "Init": false,
                "LogConfig": { "Type": "none" },
                "Mounts": mounts,
                "Devices": [],
                // The guest mounts the kernel's file systems anew, which it may only where nothing of them is masked.
                "MaskedPaths": [],
                "ReadonlyPaths": [],
            },
        })
    }

    fn expected(&self) -> Vec<(&'static str, Value)> {
        let [memory, swap, tasks] = self.bounds();
        let none = || Value::from(Vec::<Value>::new());
        let seen = self.binds().map(|(from, to)| {
            json!({
                "Type": "bind", "Source": from.to_string_lossy(), "Destination": to, "Mode": "", "RW": false,
                "Propagation": "private",
            })
        });
        let unheld = |limit: u64| if limit == 0 { Value::Null } else { Value::from(limit) };
        vec![
            ("/Image", Value::from(self.image.as_str())),
            ("/Path", Value::from(self.program)),
            ("/Args", none()),
            ("/Config/User", Value::from(self.user())),
            ("/Config/Env", none()),
            ("/Config/Tty", Value::from(false)),
            ("/Config/Labels/fumehood.run", Value::from(self.run)),
            ("/HostConfig/Runtime", Value::from(self.daemon.runtime.0.as_str())),
            ("/HostConfig/Privileged", Value::from(false)),
            ("/HostConfig/ReadonlyRootfs", Value::from(true)),
            ("/HostConfig/CapDrop", json!(["ALL"])),
            ("/HostConfig/CapAdd", none()),
            ("/HostConfig/SecurityOpt", Value::from(self.security())),
            ("/HostConfig/NetworkMode", Value::from("none")),
            ("/HostConfig/IpcMode", Value::from("private")),
            ("/HostConfig/PidMode", Value::from("")),
            ("/HostConfig/UTSMode", Value::from("")),
            ("/HostConfig/UsernsMode", Value::from("host")),
            ("/HostConfig/CgroupnsMode", Value::from("private")),
            ("/HostConfig/Memory", Value::from(memory)),
            ("/HostConfig/MemorySwap", Value::from(swap)),
            ("/HostConfig/PidsLimit", unheld(tasks)),
            ("/HostConfig/Ulimits", Value::from(self.ulimits())),
            ("/HostConfig/RestartPolicy/Name", Value::from("no")),
            ("/HostConfig/AutoRemove", Value::from(false)),
            ("/HostConfig/LogConfig/Type", Value::from("none")),
            ("/HostConfig/Binds", none()),
            ("/HostConfig/Devices", none()),
            ("/HostConfig/MaskedPaths", none()),
            ("/HostConfig/ReadonlyPaths", none()),
            ("/Mounts", Value::from(seen.to_vec())),
            ("/State/Status", Value::from("running")),
        ]
    }
}

/// Everything that is otherwise with the container's first process than it was asked for, as the kernel has it.
///
/// # Errors
/// It could not be looked at.
pub(super) fn first_lacks(pid: i32, wanted: &ContainerSpec<'_>) -> sys::error::Result<Vec<String>> {
    let (first, own) = (Process::open(pid)?, Process::own()?);
    let status = first.status()?;
    let caps = status.capabilities;
    let held = caps.inheritable | caps.permitted | caps.effective | caps.ambient | caps.bounding;
    let [user, group] = wanted.ids;
    let guest = wanted.folder.join(wanted.program.trim_start_matches('/'));
    let runs = first.program().and_then(sys::paths::identity)?;
    let is = sys::paths::open_place(&guest).and_then(sys::paths::identity)?;
    let mut all: Vec<(bool, String)> = vec![
        (held == 0, format!("its capability sets together are {held:#x}")),
        (
            status.uid == [user; 4] && status.gid == [group; 4],
            format!("it is user {:?} and group {:?}", status.uid, status.gid),
        ),
        (status.groups.iter().all(|one| *one == group), format!("it has the supplementary groups {:?}", status.groups)),
        (status.no_new_privs == wanted.no_new_privs, "its no_new_privs is otherwise".to_owned()),
        (status.seccomp == 2, format!("its seccomp mode is {}", status.seccomp)),
        (status.pids.last() == Some(&1) && status.pids.len() > 1, format!("its numbers are {:?}", status.pids)),
        ((runs.device, runs.inode) == (is.device, is.inode), "it executes another file than the guest".to_owned()),
    ];
    for kind in [Namespace::Mount, Namespace::Pid, Namespace::Net, Namespace::Ipc, Namespace::Uts] {
        all.push((first.namespace(kind)? != own.namespace(kind)?, format!("its namespace {kind:?} is the host's")));
    }
    let lacks = all.into_iter().filter(|(holds, _)| !holds);
    Ok(lacks.map(|(_, why)| format!("of the container's first process: {why}")).collect())
}

#[cfg(test)]
mod tests {
    use super::super::container::differs;
    use super::*;

    fn order(daemon: &Daemon) -> ContainerSpec<'_> {
        ContainerSpec {
            run: "r1",
            daemon,
            image: "sha256:1".to_owned(),
            folder: Path::new("/tmp/r1/root"),
            program: "/.fumehood",
            ids: [7, 8],
            no_new_privs: true,
            limits: vec![(7, 64), (1, 1), (4, 0)],
        }
    }

    /// What an engine says that did what it was told.
    fn faithful(order: &ContainerSpec<'_>) -> Value {
        let mut said = json!({ "State": { "Status": "running", "Pid": 7 } });
        for (at, value) in order.expected() {
            let mut place = &mut said;
            for part in at.trim_start_matches('/').split('/') {
                place = &mut place[part];
            }
            *place = value;
        }
        said
    }

    #[test]
    fn the_order_is_of_a_user_without_anything_in_a_root_with_nothing() {
        let daemon = Daemon::assumed();
        let asked = order(&daemon).document();
        let host = &asked["HostConfig"];
        assert_eq!((&asked["User"], &host["CapDrop"], &host["CapAdd"]), (&json!("7:8"), &json!(["ALL"]), &json!([])));
        assert_eq!((&host["NetworkMode"], &host["ReadonlyRootfs"]), (&json!("none"), &json!(true)));
        assert_eq!((&host["Memory"], &host["MemorySwap"]), (&json!(MEMORY), &json!(MEMORY)));
        assert_eq!(
            host["Ulimits"],
            json!([{ "Name": "nofile", "Soft": 4096, "Hard": 4096 }, { "Name": "core", "Soft": 0, "Hard": 0 }])
        );
        let security = host["SecurityOpt"].as_array().unwrap();
        assert!(security.contains(&json!("no-new-privileges")), "{security:?}");
        let filter = security.iter().find_map(|one| one.as_str()?.strip_prefix("seccomp=")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(filter).unwrap()["syscalls"][0]["action"], "SCMP_ACT_ERRNO");
        let privileges = ContainerSpec { no_new_privs: false, ..order(&daemon) }.document();
        assert_ne!(privileges["HostConfig"]["SecurityOpt"], host["SecurityOpt"]);
    }

    #[test]
    fn what_the_engine_changed_is_found_field_by_field() {
        let daemon = Daemon::assumed();
        let order = order(&daemon);
        assert_eq!(differs(&order, &faithful(&order)), Vec::<String>::new());
        for (at, _) in order.expected() {
            let mut said = faithful(&order);
            *said.pointer_mut(at).unwrap() = json!("otherwise");
            let found = differs(&order, &said);
            assert!(found.len() == 1 && found[0].contains(at), "{at}: {found:?}");
        }
    }

    #[test]
    fn what_the_daemon_cannot_hold_is_not_asked_of_it() {
        let daemon = Daemon { bounds: crate::host::docker::Bounds::default(), ..Daemon::assumed() };
        let order = order(&daemon);
        assert_eq!(order.document()["HostConfig"]["Memory"], json!(0));
        let mut said = faithful(&order);
        said["HostConfig"]["PidsLimit"] = Value::Null;
        assert_eq!(differs(&order, &said), Vec::<String>::new());
    }
}
