//! Whether a machine was started here: it takes seconds, and says the same until the host starts anew, or kernel, emulator or
//! this version are others.

use rustix::fs::{Mode, OFlags};
use sandbox::Capabilities;
use sandbox::state::State;
use serde_json::{Value, json};

/// The file in the state folder.
const FILE: &str = "machine-started.json";
/// No file that we wrote is larger.
const MAX_FILE: u64 = 4096;

/// What a start holds for.
#[derive(Debug)]
pub struct StartRecord {
    key: String,
}

impl StartRecord {
    /// On this host as it is; `None` where there are no machines, or nobody knows since when the host is up.
    #[must_use]
    pub fn on(host: &Capabilities) -> Option<Self> {
        let emulation = host.machine().ok()?;
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let (version, digest) = (&emulation.version, emulation.kernel.digest());
        let program = emulation.identity().ok()?;
        let facts = json!([env!("CARGO_PKG_VERSION"), boot.trim(), host.euid, version, program, digest]);
        Some(Self { key: policy::json::digest(&facts) })
    }

    /// Whether it was one that is the same.
    #[must_use]
    pub fn is_known(&self, state: &State) -> bool {
        let bytes = state.root().read(FILE, MAX_FILE).ok();
        let kept = bytes.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        kept.is_some_and(|kept| kept.get("key").and_then(Value::as_str) == Some(self.key.as_str()))
    }

    /// Keeps that it was.
    ///
    /// # Errors
    /// The state folder cannot be written.
    pub fn keep(&self, state: &State) -> std::io::Result<()> {
        let (text, mode) = (json!({ "key": self.key }).to_string(), Mode::RUSR | Mode::WUSR);
        let mut file = state.root().open_file(FILE, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC, mode)?;
        std::io::Write::write_all(&mut file, text.as_bytes())
    }
}
