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
