//! What the bundle of a runtime on Linux says beside its mounts: namespaces, ids, capabilities, what of /proc is hidden.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use guest::config::OwnedOp as Op;
use policy::control::Namespace;
use serde_json::{Value, json};

/// What the guest needs until its own steps are done: SETPCAP to give up the rest for good, NET_BIND_SERVICE and NET_ADMIN for
/// its loopback and the sockets that the broker gets, SYS_RESOURCE for the limits of its namespaces.
const CAPABILITIES: [&str; 4] = ["CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_NET_ADMIN", "CAP_SYS_RESOURCE"];
/// Set apart from every id that a run has outside: the root of the runtime, who owns what it makes.
const ABOVE_RUNS: u32 = 0x0100_0000;
/// Below it only the folder in which the guest writes its limits may be written to.
const SYSCTL: &str = "/proc/sys";
const LIMITS: &str = "user";

/// A file system of the kernel's.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) at: PathBuf,
    pub(crate) kind: &'static str,
    options: Vec<String>,
}

impl Own {
    /// The options that are attributes of a mount, as the kernel lists them.
    pub(super) fn must_have(&self) -> Vec<&'static str> {
        ["ro", "nosuid", "nodev", "noexec"]
            .into_iter()
            .filter(|word| self.options.iter().any(|one| one == word))
            .collect()
    }
}

/// A document's part.
#[derive(Clone, Debug)]
pub(crate) struct Linux {
    pub(crate) namespaces: Vec<Namespace>,
    /// uid and gid inside.
    pub(crate) inside: u32,
    /// uid and gid outside.
    pub(crate) owner: (u32, u32),
    /// Who is root inside while the runtime works there, outside; nobody afterwards.
    root: u32,
    pub(crate) no_new_privs: bool,
    pub(crate) own: Vec<Own>,
    pub(crate) masked: Vec<PathBuf>,
    pub(crate) read_only: Vec<PathBuf>,
    /// Names in `/dev`, with their numbers, which the runtime shows unasked.
    pub(crate) devices: Vec<(PathBuf, (u32, u32))>,
}

fn path(text: &std::ffi::CStr) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(text.to_bytes()))
}

impl Linux {
    pub(crate) fn new(
        namespaces: Vec<Namespace>,
        inside: u32,
        owner: (u32, u32),
        unused: u32,
        no_new_privs: bool,
    ) -> Self {
        let dev = Own {
            at: PathBuf::from("/dev"),
            kind: "tmpfs",
            options: ["nosuid", "noexec", "ro", "mode=755", "size=65536", "nr_inodes=64"].map(str::to_owned).to_vec(),
        };
        let (masked, read_only, devices) = (Vec::new(), Vec::new(), Vec::new());
        let root = unused | ABOVE_RUNS;
        Self { namespaces, inside, owner, root, no_new_privs, own: vec![dev], masked, read_only, devices }
    }

    /// Takes what the runtime or the kernel makes; whether it was that.
    pub(super) fn takes(&mut self, op: &Op) -> bool {
        let own = |at: &std::ffi::CStr, kind, options: &[&str]| Own {
            at: path(at),
            kind,
            options: options.iter().map(|option| (*option).to_owned()).collect(),
        };
        match op {
            Op::Proc { path: at } => self.own.push(own(at, "proc", &["nosuid", "nodev", "noexec"])),
            Op::Mqueue { path: at } => self.own.push(own(at, "mqueue", &["nosuid", "nodev", "noexec"])),
            Op::Devpts { path: at, max } => {
                let most = format!("max={max}");
                let options = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", &most];
                self.own.push(own(at, "devpts", &options));
            }
            Op::Device { path: at, major, minor } => self.devices.push((path(at), (*major, *minor))),
            Op::Mask { path: at, .. } if path(at).starts_with("/proc") => self.masked.push(path(at)),
            Op::ReadOnly { path: at, .. } if path(at) == Path::new(SYSCTL) => self.read_only.extend(sysctl()),
            Op::Root { .. }
            | Op::Dir { .. }
            | Op::File { .. }
            | Op::Symlink { .. }
            | Op::Bind { .. }
            | Op::BindInner { .. }
            | Op::Overlay { .. }
            | Op::Tmpfs { .. }
            | Op::Fill { .. }
            | Op::Mask { .. }
            | Op::ReadOnly { .. }
            | Op::Pin { .. }
            | Op::SetAttr { .. } => return false,
        }
        true
    }

    /// Lets the runtime, which is root in its own user namespace alone, walk through a folder that is otherwise ours.
    pub(super) fn lets_in(&self, folder: &Path) -> std::io::Result<()> {
        std::os::unix::fs::chown(folder, None, Some(self.root))?;
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o710))
    }

    /// The file systems of the kernel's.
    pub(super) fn mounts(&self) -> Vec<Value> {
        let mut own: Vec<&Own> = self.own.iter().collect();
        own.sort_by_key(|own| own.at.components().count());
        let one = |own: &&Own| json!({ "destination": own.at.to_string_lossy(), "type": own.kind, "source": own.kind, "options": own.options });
        own.iter().map(one).collect()
    }

    /// Ids inside, and what they are outside, in order.
    pub(super) fn maps(&self, own: u32) -> Vec<(u32, u32)> {
        if self.inside == 0 { vec![(0, own)] } else { vec![(0, self.root), (self.inside, own)] }
    }

    pub(super) fn capabilities(&self) -> Vec<&'static str> {
        CAPABILITIES.to_vec()
    }

    /// In the order in which the runtime takes them, after all that it mounts. It binds the host's nodes as mounts that can be written to,
    /// by which a node's owner could change it; so do they become read-only, and what hides a file within a tree that was bound anew.
    /// The kernel asks no mount about what is written to a device.
    fn read_only_paths(&self) -> impl Iterator<Item = &PathBuf> {
        let within = move |at: &&PathBuf| self.read_only.iter().any(|tree| at.starts_with(tree));
        let hidden = self.masked.iter().filter(within);
        self.read_only.iter().chain(hidden).chain(self.devices.iter().map(|(at, _)| at))
    }

    pub(super) fn document(&self) -> Value {
        let kind = |kind: &Namespace| match kind {
            Namespace::User => "user",
            Namespace::Mount => "mount",
            Namespace::Pid => "pid",
            Namespace::Net => "network",
            Namespace::Ipc => "ipc",
            Namespace::Uts => "uts",
            Namespace::Cgroup => "cgroup",
            Namespace::Time => "time",
        };
        let kinds: Vec<Value> = self.namespaces.iter().map(|one| json!({ "type": kind(one) })).collect();
        let maps = |own: u32| -> Vec<Value> {
            let one = |(inside, outside): (u32, u32)| json!({ "containerID": inside, "hostID": outside, "size": 1 });
            self.maps(own).into_iter().map(one).collect()
        };
        json!({
            "namespaces": kinds,
            "uidMappings": maps(self.owner.0),
            "gidMappings": maps(self.owner.1),
            "maskedPaths": texts(self.masked.iter()),
            "readonlyPaths": texts(self.read_only_paths()),
        })
    }
}

fn texts<'a>(list: impl Iterator<Item = &'a PathBuf>) -> Vec<String> {
    list.map(|one| one.to_string_lossy().into_owned()).collect()
}

/// What this kernel has below `/proc/sys`, but for the limits of namespaces: those the guest writes, and nobody after it, for
/// only `CAP_SYS_RESOURCE` may.
fn sysctl() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(SYSCTL) else { return vec![PathBuf::from(SYSCTL)] };
    let names = entries.filter_map(|entry| entry.ok().map(|entry| entry.file_name()));
    names.filter(|name| name != LIMITS).map(|name| Path::new(SYSCTL).join(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_of_a_device_is_made_read_only_and_so_is_what_hides_a_file_below_such_a_tree() {
        let mut linux = Linux::new(Vec::new(), 1000, (1000, 1000), 7, true);
        linux.read_only = vec![PathBuf::from("/proc/sys/kernel")];
        for path in [c"/proc/keys", c"/proc/sys/kernel/random/boot_id"] {
            assert!(linux.takes(&Op::Mask { path: path.into(), dir: false }));
        }
        for (path, minor) in [(c"/dev/null", 3), (c"/dev/zero", 5)] {
            assert!(linux.takes(&Op::Device { path: path.into(), major: 1, minor }));
        }
        let document = linux.document();
        assert_eq!(document["maskedPaths"], json!(["/proc/keys", "/proc/sys/kernel/random/boot_id"]));
        let read_only = ["/proc/sys/kernel", "/proc/sys/kernel/random/boot_id", "/dev/null", "/dev/zero"];
        assert_eq!(document["readonlyPaths"], json!(read_only));
    }
}
