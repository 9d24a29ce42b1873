//! What the guest has to do, as one sealed block of bytes.
//!
//! The supervisor fills a `Config` and calls `encode`; the guest maps the bytes and reads them through a [`View`]
//! that borrows and never allocates. Types that hold text are generic over how they hold it, so that both sides share
//! one definition: `Op<CString, Vec<u8>>` is built, `Op<&CStr, &[u8]>` is read.
//!
//! Layout: magic, version, then the fields in the order of [`View`], little-endian, every list and text with its
//! length first, every text with its NUL at the end.

#[cfg(feature = "std")]
mod builder;
mod landlock;
mod list;
mod op;
mod probe;
mod source;
mod view;

#[cfg(feature = "std")]
pub(crate) use builder::Put;
#[cfg(feature = "std")]
pub use builder::{Config, OwnedLandlock, OwnedOp, OwnedProbe, OwnedRule, OwnedSource};
pub use landlock::{Landlock, LandlockView, Port, Rule};
pub use list::List;
pub use op::{Attrs, Lowers, MAX_LOWERS, Op};
pub use probe::Probe;
pub use source::{Identity, Source};
pub use view::{Malformed, View};

/// First bytes of a config.
pub const MAGIC: [u8; 4] = *b"FHgc";
/// Version of the layout; the guest refuses any other.
pub const VERSION: u32 = 10;
/// Where a guest that an engine started finds its control socket: in its root, since nothing is handed on to it.
pub const ENTRY_SOCKET: &core::ffi::CStr = c"/.socket";
/// Where it is connected to first, if the engine made no user namespace for it: by that it is told which namespaces it makes itself.
pub const NAMESPACES_SOCKET: &core::ffi::CStr = c"/.namespaces";
/// Longest config that is read and not mapped, bytes.
pub const MAX_CONFIG: usize = 4 << 20;
/// Most sources that a config may have.
pub const MAX_SOURCES: usize = 512;
/// Most descriptors that may be passed out.
pub const MAX_EXPORTS: usize = 16;
/// Most sockets that may be passed out.
pub const MAX_INLETS: usize = 1024;
/// Most probes.
pub const MAX_PROBES: usize = 72;

/// How the sandbox is held together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Namespaces: the guest is pid 1 of its own pid namespace and builds its own root.
    #[default]
    Container,
    /// No namespaces: the guest is a subreaper, and Landlock's signal scope bounds what it may kill.
    Process,
    /// A runtime of containers built namespaces, root and mounts: the guest is pid 1 of what it was started in, came in by
    /// its standard input (`runtime_entry`), and has no capability from the beginning. Its kernel is not Linux.
    Bundle,
    /// As [`Mode::Bundle`], on Linux: it came in by descriptor 3, and drops the few capabilities that it was started with
    /// when its own steps are done.
    Runtime,
}

/// A socket that is made in the sandbox's network namespace and passed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inlet {
    /// Of IPv6, else of IPv4.
    pub ipv6: bool,
    /// Of UDP, else of TCP.
    pub udp: bool,
    /// The port to which it is bound on all addresses, listening if TCP; 0 = it is not bound.
    pub port: u16,
}

/// User and group id, inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Rows and columns of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// One resource limit; hard and soft are the same, so that nothing inside can raise it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rlimit {
    /// `RLIMIT_*`.
    pub resource: u32,
    /// Limit.
    pub value: u64,
}
