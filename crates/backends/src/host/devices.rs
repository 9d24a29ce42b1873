//! Devices of this host: which nodes belong to one, and whether a run could open them.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::PathBuf;

use policy::value::Device;

use super::{Capabilities, Missing};

/// `/dev/kvm` (Documentation/admin-guide/devices.txt).
const KVM: (u32, u32) = (10, 232);
/// The driver's own, and the node of all its devices.
const NVIDIA: u32 = 195;
const NVIDIA_CONTROL: u32 = 255;
/// More GPUs than any machine has.
const MAX_GPUS: u8 = 64;
/// Memory that processor and GPU share, by the name that the kernel lists; its number is given when the driver is loaded.
const UVM: &str = "nvidia-uvm";
/// Where a driver's libraries lie, by the distribution.
const LIBRARIES: [&str; 4] = [sys::arch::LIBRARY_FOLDER, "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64"];
const LIBRARY: &str = "libcuda.so.1";

/// Where the kernel, the driver and the distribution put what a device is of.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Of the nodes.
    nodes: PathBuf,
    /// The list of drivers.
    drivers: PathBuf,
    /// Of a driver's libraries.
    libraries: Vec<PathBuf>,
}

impl Places {
    /// Those of every Linux.
    pub(super) fn of_host() -> Self {
        let libraries = LIBRARIES.iter().map(PathBuf::from).collect();
        Self { nodes: PathBuf::from("/dev"), drivers: PathBuf::from("/proc/devices"), libraries }
    }

    /// All of it in a folder: `dev`, `devices` and `lib`.
    #[cfg(test)]
    pub(super) fn below(folder: &std::path::Path) -> Self {
        Self { nodes: folder.join("dev"), drivers: folder.join("devices"), libraries: vec![folder.join("lib")] }
    }

    fn node(&self, name: &str, (major, minor): (u32, u32)) -> Node {
        Node { at: self.nodes.join(name), major, minor }
    }

    fn gpu(&self, number: u8) -> Node {
        self.node(&format!("nvidia{number}"), (NVIDIA, u32::from(number)))
    }

    /// With the nodes that every program of a GPU opens, where the driver's libraries are.
    fn of_driver(&self, mut nodes: Vec<Node>) -> Result<Vec<Node>, Missing> {
        nodes.push(self.node("nvidiactl", (NVIDIA, NVIDIA_CONTROL)));
        let listed = std::fs::read_to_string(&self.drivers).unwrap_or_default();
        let major = major_of(&listed, UVM).ok_or_else(|| Missing {
            id: "process.devices/not-here",
            why: format!("the kernel lists no driver `{UVM}`"),
            fix: "load the driver: `nvidia-modprobe -u -c 0`".to_owned(),
        })?;
        nodes.push(self.node(UVM, (major, 0)));
        if !self.libraries.iter().any(|folder| folder.join(LIBRARY).exists()) {
            let all: Vec<_> = self.libraries.iter().map(|folder| folder.display().to_string()).collect();
            return Err(Missing {
                id: "process.devices/no-libraries",
                why: format!("the driver's library `{LIBRARY}` is in none of {}", all.join(", ")),
                fix: "install the driver's libraries, of the version that the kernel has (`cat /proc/driver/nvidia/version`)"
                    .to_owned(),
            });
        }
        Ok(nodes)
    }
}

/// A node of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    /// Its place.
    pub at: PathBuf,
    /// The driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

impl Capabilities {
    /// The nodes of a device, each there, of its driver, and open to whom a run is.
    ///
    /// # Errors
    /// What is missing, and the remedy.
    pub fn device(&self, device: Device) -> Result<Vec<Node>, Missing> {
        let places = &self.devices;
        let kvm = || vec![places.node("kvm", KVM)];
        if self.is_assumed() {
            return Ok(match device {
                Device::Kvm => kvm(),
                Device::Nvidia(number) => vec![places.gpu(number)],
                Device::AllNvidia => vec![places.gpu(0)],
            });
        }
        let nodes = match device {
            Device::Kvm => kvm(),
            Device::Nvidia(number) => places.of_driver(vec![places.gpu(number)])?,
            Device::AllNvidia => {
                let all = (0..MAX_GPUS).map(|number| places.gpu(number));
                let all: Vec<Node> = all.filter(|node| node.at.symlink_metadata().is_ok()).collect();
                places.of_driver(if all.is_empty() { vec![places.gpu(0)] } else { all })?
            }
        };
        nodes.iter().try_for_each(|node| self.is_open(node, device))?;
        Ok(nodes)
    }

    /// As root a run is a user who is nobody on the host: what opens the node to its owner or a group does not count.
    fn is_open(&self, node: &Node, device: Device) -> Result<(), Missing> {
        const OTHERS: u32 = 0o006;
        let at = node.at.display();
        let meta = node.at.symlink_metadata().map_err(|error| Missing {
            id: "process.devices/not-here",
            why: format!("{at} is not here: {}", error.to_string().to_lowercase()),
            fix: match device {
                Device::Kvm => "load the module (`modprobe kvm_intel` or `kvm_amd`), and allow nested machines where this is one".to_owned(),
                Device::Nvidia(_) | Device::AllNvidia => {
                    "load the driver (`nvidia-modprobe -u -c 0` makes its nodes), or name a GPU that `nvidia-smi -L` lists".to_owned()
                }
            },
        })?;
        let numbers = sys::caller::device_numbers(meta.rdev());
        if !meta.file_type().is_char_device() || numbers != (node.major, node.minor) {
            return Err(Missing {
                id: "process.devices/not-the-device",
                why: format!("{at} is not the device {}:{} that its driver makes", node.major, node.minor),
                fix: "remove what lies there, and let the driver make its node anew".to_owned(),
            });
        }
        let open = if self.root() { meta.mode() & OTHERS == OTHERS } else { sys::caller::may_open(&node.at) };
        if open {
            return Ok(());
        }
        Err(Missing {
            id: "process.devices/not-open",
            why: format!(
                "{at} has the mode {:04o}, which does not open it to whom a run is{}",
                meta.mode() & 0o7777,
                if self.root() { ": as root that is a user who is nobody else on this host" } else { "" }
            ),
            fix: format!(
                "`chmod 0666 {at}`, for good by a rule of udev; or {}",
                match group_of(&meta).filter(|_| !self.root()) {
                    Some(group) => format!("join its group `{group}` (`usermod -aG {group} USER`, then log in again)"),
                    None => "run fumehood as an ordinary user who may open it".to_owned(),
                }
            ),
        })
    }
}

/// The name of the group to which a node is open, where it is.
fn group_of(meta: &std::fs::Metadata) -> Option<String> {
    const GROUP: u32 = 0o060;
    let text = std::fs::read_to_string("/etc/group").ok().filter(|_| meta.mode() & GROUP == GROUP)?;
    let named = |line: &str| {
        let mut parts = line.split(':');
        let (name, number) = (parts.next()?, parts.nth(1)?);
        (number.parse() == Ok(meta.gid())).then(|| name.to_owned())
    };
    text.lines().find_map(named)
}

/// The number that a driver of characters has in `/proc/devices`.
fn major_of(listed: &str, name: &str) -> Option<u32> {
    let characters = listed.split("Block devices:").next()?;
    characters.lines().filter_map(|line| line.trim().split_once(' ')).find(|(_, found)| *found == name)?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::major_of;

    #[test]
    fn drivers_are_told_by_their_whole_name_among_those_of_characters() {
        let listed =
            "Character devices:\n  1 mem\n195 nvidia\n508 nvidia-uvm\n\nBlock devices:\n  7 loop\n 99 nvidia-x\n";
        assert_eq!(major_of(listed, "nvidia-uvm"), Some(508));
        assert_eq!(
            (major_of(listed, "nvidia-x"), major_of(listed, "uvm"), major_of(listed, "loop")),
            (None, None, None)
        );
    }
}
