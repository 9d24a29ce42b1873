//! What of the fresh `/proc` is hidden or read-only.
//!
//! Files that only root may read need no mask: the payload is never root outside. What is here is readable by anybody
//! and tells of the host, or would reach its devices.

/// Masked paths; a missing one is nothing to do.
pub(crate) const MASKED: &[&str] = &[
    "/proc/acpi",          // devices of the host
    "/proc/asound",        // devices of the host
    "/proc/bus",           // pci and input devices of the host
    "/proc/cmdline",       // kernel command line: disk ids, tokens of cloud images
    "/proc/driver",        // devices of the host
    "/proc/fs",            // mounted file systems of the host
    "/proc/interrupts",    // a clock for side channels
    "/proc/irq",           // devices of the host
    "/proc/kcore",         // memory of the kernel, where a setup made it readable
    "/proc/key-users",     // other users of the host
    "/proc/keys",          // keys of other users that grant view
    "/proc/latency_stats", // load of the host
    "/proc/partitions",    // disks of the host
    "/proc/diskstats",     // disks of the host
    "/proc/sched_debug",   // processes of the host
    "/proc/scsi",          // disks of the host
    "/proc/swaps",         // disks of the host
    "/proc/sysrq-trigger", // acts on the host
    "/proc/timer_list",    // addresses and processes of the host
    "/proc/sys/kernel/random/boot_id",
];

/// Read-only subtrees.
pub(crate) const READ_ONLY: &[&str] = &["/proc/sys"];
