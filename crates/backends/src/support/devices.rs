//! Devices of the host, which the container tier of the native backend can show.

use policy::Support;
use policy::control::Control;
use policy::value::{Device, Policy, Root};

use super::{unmet, when};
use crate::host::Capabilities;

/// Every node of the devices that the policy gives.
pub(super) fn given(policy: &Policy, host: &Capabilities) -> Support {
    let wanted = &policy.process.devices;
    let is_gpu = |device: &Device| matches!(device, Device::Nvidia(_) | Device::AllNvidia);
    if wanted.iter().any(is_gpu) && policy.fs.root != Root::Host {
        return unmet(
            "process.devices/other-root",
            "the libraries of a GPU's driver lie in the host's own tree, of the driver's very version, and this root is another",
            "use `fs.root = \"host\"`",
        );
    }
    let mut nodes = Vec::new();
    for device in wanted {
        match host.device(*device) {
            Ok(found) => nodes.extend(found),
            Err(missing) => return unmet(missing.id, missing.why, missing.fix),
        }
    }
    nodes.sort();
    nodes.dedup();
    let mut shown = nodes.into_iter().map(|node| Control::Device { at: node.at, major: node.major, minor: node.minor });
    shown.next().map_or(Support::NotAsked, |first| super::held_with(first, shown))
}

/// The answer of the other backends of the tier.
pub(super) fn only_native(policy: &Policy, id: &'static str) -> Support {
    when(!policy.process.devices.is_empty(), || {
        unmet(
            id,
            "no device of the host is shown by this backend yet, beside those that every container has",
            "remove `process.devices`, or use `backend = \"native\"`",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use rustix::fs::{CWD, FileType, Mode};
    use rustix::io::Errno;

    use super::*;
    use crate::support::policy_of;

    /// A host with two GPUs, whose nodes are as its driver makes them; `None` for who cannot make nodes.
    fn gpus() -> Option<tempfile::TempDir> {
        let folder = tempfile::tempdir().unwrap();
        for name in ["dev", "lib"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        for (name, major, minor) in
            [("nvidia0", 195, 0), ("nvidia1", 195, 1), ("nvidiactl", 195, 255), ("nvidia-uvm", 508, 0)]
        {
            match node(folder.path(), name, (major, minor)) {
                Err(Errno::PERM) => return None,
                made => made.unwrap(),
            }
        }
        std::fs::write(folder.path().join("devices"), "Character devices:\n195 nvidia\n508 nvidia-uvm\n").unwrap();
        std::fs::write(folder.path().join("lib/libcuda.so.1"), "").unwrap();
        Some(folder)
    }

    fn node(folder: &Path, name: &str, (major, minor): (u32, u32)) -> rustix::io::Result<()> {
        let at = folder.join("dev").join(name);
        drop(std::fs::remove_file(&at));
        let number = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(CWD, &at, FileType::CharacterDevice, Mode::from_raw_mode(0o666), number)?;
        std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o666)).unwrap();
        Ok(())
    }

    /// What is planned for these devices: names with their numbers, or the id of the refusal.
    fn planned(folder: &Path, devices: &str) -> Result<Vec<String>, &'static str> {
        let policy = policy_of(&format!("process.devices = [{devices}]"));
        match given(&policy, &Capabilities::with_devices(folder)) {
            Support::Held(controls) => Ok(controls.iter().map(|control| shown(control, folder)).collect()),
            Support::Unmet(unmet) => Err(unmet.id),
            Support::NotAsked => panic!("it is asked"),
        }
    }

    fn shown(control: &Control, folder: &Path) -> String {
        let Control::Device { at, major, minor } = control else { panic!("{control:?}") };
        format!("{} {major}:{minor}", at.strip_prefix(folder.join("dev")).unwrap().display())
    }

    #[test]
    fn a_gpu_is_planned_with_its_drivers_nodes_and_refused_where_one_of_them_is_not_right() {
        const DRIVER: [&str; 2] = ["nvidia-uvm 508:0", "nvidiactl 195:255"];
        let Some(folder) = gpus() else {
            eprintln!("skip: the nodes of a GPU: only root makes nodes");
            return;
        };
        let (at, folder) = (|name: &str| folder.path().join(name), folder.path());
        let sorted = |devices: &str| {
            planned(folder, devices).map(|mut all| {
                all.sort();
                all
            })
        };
        assert_eq!(sorted("'nvidia:1'").unwrap(), [DRIVER[0], "nvidia1 195:1", DRIVER[1]]);
        let both = sorted("'nvidia:all'").unwrap();
        assert_eq!(both, [DRIVER[0], "nvidia0 195:0", "nvidia1 195:1", DRIVER[1]]);
        assert_eq!(sorted("'nvidia:0', 'nvidia:1'").unwrap(), both, "each node once");
        assert_eq!(planned(folder, "'nvidia:2'"), Err("process.devices/not-here"));
        // A file in the place of a node, and the node of another device.
        std::fs::remove_file(at("dev/nvidia1")).unwrap();
        std::fs::write(at("dev/nvidia1"), "").unwrap();
        assert_eq!(planned(folder, "'nvidia:all'"), Err("process.devices/not-the-device"));
        assert!(planned(folder, "'nvidia:0'").is_ok());
        node(folder, "nvidia-uvm", (509, 0)).unwrap();
        assert_eq!(planned(folder, "'nvidia:0'"), Err("process.devices/not-the-device"));
        node(folder, "nvidia-uvm", (508, 0)).unwrap();
        // Open to its owner alone, whom a run is not.
        std::fs::set_permissions(at("dev/nvidiactl"), std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(planned(folder, "'nvidia:0'"), Err("process.devices/not-open"));
        std::fs::set_permissions(at("dev/nvidiactl"), std::fs::Permissions::from_mode(0o666)).unwrap();
        std::fs::remove_file(at("lib/libcuda.so.1")).unwrap();
        assert_eq!(planned(folder, "'nvidia:0'"), Err("process.devices/no-libraries"));
        std::fs::write(at("lib/libcuda.so.1"), "").unwrap();
        std::fs::write(at("devices"), "Character devices:\n195 nvidia\n").unwrap();
        assert_eq!(planned(folder, "'nvidia:0'"), Err("process.devices/not-here"));
    }
}
