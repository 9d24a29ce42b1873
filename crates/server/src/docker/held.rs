//! What a container has, in the fields in which Docker's clients read it: what the body asked for where that is so, and what is held
//! instead where it is not.

use serde_json::{Value as Json, json};

use super::body::Fields;

/// A place in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: String,
    pub(super) size: u64,
    /// Where it is known to be always the same.
    pub(super) mode: Option<u32>,
}

/// Limits, places and the user as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// As Docker would name him, and his number.
    pub(super) user: String,
    pub(super) uid: u32,
    pub(super) memory: u64,
    pub(super) pids: u32,
    /// Thousandths of a processor.
    pub(super) cpus: Option<u64>,
    pub(super) cpuset: Option<String>,
    pub(super) open_files: u32,
    pub(super) file_size: u64,
    /// Seconds.
    pub(super) cpu_time: Option<u64>,
    pub(super) shm: u64,
    pub(super) places: Vec<Place>,
    pub(super) noexec: bool,
}

impl Held {
    /// `HostConfig` of a body, with what is so.
    pub(super) fn shown(&self, mut host: Fields) -> Fields {
        // As the body says it, where it does: a quota and its period are the same amount.
        let by_quota = host.get("CpuQuota").and_then(Json::as_i64).is_some_and(|quota| quota != 0);
        if let Some(cpus) = self.cpus.filter(|_| !by_quota) {
            host.insert("NanoCpus".to_owned(), json!(cpus.saturating_mul(1_000_000)));
        }
        if let Some(cpuset) = &self.cpuset {
            host.insert("CpusetCpus".to_owned(), json!(cpuset));
        }
        for (field, value) in [
            ("Memory", json!(self.memory)),
            ("MemorySwap", json!(self.memory)),
            ("PidsLimit", json!(self.pids)),
            ("Ulimits", self.ulimits()),
            ("ShmSize", json!(self.shm)),
            ("Tmpfs", self.tmpfs()),
            ("ReadonlyRootfs", json!(true)),
            ("NetworkMode", json!("none")),
            ("IpcMode", json!("private")),
            ("CgroupnsMode", json!("private")),
            ("CapDrop", json!(["ALL"])),
            ("SecurityOpt", json!(["no-new-privileges"])),
        ] {
            host.insert(field.to_owned(), value);
        }
        // Docker's word for none at all, and there are some.
        host.retain(|field, _| !matches!(field.as_str(), "MaskedPaths" | "ReadonlyPaths"));
        host
    }

    fn ulimits(&self) -> Json {
        let one = |(name, value): (&str, u64)| json!({ "Name": name, "Soft": value, "Hard": value });
        let held = [("core", 0), ("fsize", self.file_size), ("nofile", u64::from(self.open_files))];
        held.into_iter().chain(self.cpu_time.map(|seconds| ("cpu", seconds))).map(one).collect()
    }

    fn tmpfs(&self) -> Json {
        let one = |place: &Place| {
            let noexec = if self.noexec { ",noexec" } else { "" };
            let mode = place.mode.map_or_else(String::new, |mode| format!(",mode={mode:o}"));
            let uid = self.uid;
            (place.at.clone(), json!(format!("rw,nosuid,nodev{noexec},size={}{mode},uid={uid},gid={uid}", place.size)))
        };
        Json::Object(self.places.iter().map(one).collect())
    }
}
