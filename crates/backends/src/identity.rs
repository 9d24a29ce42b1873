//! Who the run is, outside and inside.

/// uid and gid inside the container tier.
pub(crate) const INSIDE: u32 = 1000;
/// First of a range of ids that no distribution hands out (systemd's map ends at 0x6FFF_FFFF).
const UNUSED: u32 = 0x7000_0000;

/// The ids of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// uid outside.
    pub(crate) uid: u32,
    /// gid outside.
    pub(crate) gid: u32,
    /// What belongs to another user than this one is written through an id-mapped mount.
    pub(crate) maps: bool,
}

impl Identity {
    /// Whether files of this user must be shown with other numbers, so that they are the run's own.
    pub(crate) const fn must_map(&self, uid: u32) -> bool {
        self.maps && uid != self.uid
    }
}

/// An id of its own for each run, so that two runs cannot touch each other's files or signal each other.
pub(crate) fn unused(run: &str) -> u32 {
    // FNV-1a over the run id, which is random.
    let hash = run.bytes().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    UNUSED + (hash & 0x00ff_ffff)
}
