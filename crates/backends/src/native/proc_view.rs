//! What of the fresh `/proc` is hidden or read-only.
//!
//! Files that only root may read need no mask: the payload is never root outside. What is here is readable by anybody
//! and tells of the host, or would reach its devices.

use std::path::Path;

/// Masked paths, and whether each is a directory; a missing one is nothing to do.
pub(crate) const MASKED: &[(&str, bool)] = &[
    ("/proc/acpi", true),           // devices of the host
    ("/proc/asound", true),         // devices of the host
    ("/proc/bus", true),            // pci and input devices of the host
    ("/proc/cmdline", false),       // kernel command line: disk ids, tokens of cloud images
    ("/proc/driver", true),         // devices of the host
    ("/proc/fs", true),             // mounted file systems of the host
    ("/proc/interrupts", false),    // a clock for side channels
    ("/proc/irq", true),            // devices of the host
    ("/proc/kcore", false),         // memory of the kernel, where a setup made it readable
    ("/proc/key-users", false),     // other users of the host
    ("/proc/keys", false),          // keys of other users that grant view
    ("/proc/latency_stats", false), // load of the host
    ("/proc/partitions", false),    // disks of the host
    ("/proc/diskstats", false),     // disks of the host
    ("/proc/sched_debug", false),   // processes of the host
    ("/proc/scsi", true),           // disks of the host
    ("/proc/swaps", false),         // disks of the host
    ("/proc/sysrq-trigger", false), // acts on the host
    ("/proc/timer_list", false),    // addresses and processes of the host
    ("/proc/sys/kernel/random/boot_id", false),
];

/// Read-only subtrees.
pub(crate) const READ_ONLY: &[&str] = &["/proc/sys"];

/// Whether nothing of a path below `/proc` is shown in the container tier.
#[must_use]
pub fn hides_of_proc(path: &Path) -> bool {
    MASKED.iter().any(|(masked, _)| path.starts_with(masked))
}

/// Whether a path below `/proc` can only be read in the container tier.
#[must_use]
pub fn keeps_of_proc(path: &Path) -> bool {
    READ_ONLY.iter().any(|kept| path.starts_with(kept))
}
