//! Whether a machine was started here, and whether on KVM: it takes seconds, and says the same until the host starts anew, or kernel,
//! emulator or this version are others.

use backends::{KvmRecord, kvm_file};
use policy::control::Emulator;
use rustix::fs::{Mode, OFlags};
use sandbox::Capabilities;
use sandbox::state::State;
use serde_json::{Value, json};

/// The file in the state folder, of machines by this emulator.
const fn file(emulator: Emulator) -> &'static str {
    match emulator {
        Emulator::Qemu => "machine-started.json",
        Emulator::Firecracker => "machine-started-firecracker.json",
    }
}

/// No file that we wrote is larger.
const MAX_FILE: u64 = 4096;

/// What a start holds for.
#[derive(Debug)]
pub struct StartRecord {
    emulator: Emulator,
    key: String,
}

impl StartRecord {
    /// On this host as it is; `None` where there are no machines, or nobody knows since when the host is up.
    #[must_use]
    pub fn on(host: &Capabilities, emulator: Emulator) -> Option<Self> {
        let since_boot = host.machine(emulator).ok()?.since_boot(host.euid)?;
        Some(Self { emulator, key: policy::json::digest(&json!([since_boot, host.kvm(emulator).is_ok()])) })
    }

    /// Whether it was one that is the same.
    #[must_use]
    pub fn is_known(&self, state: &State) -> bool {
        let bytes = state.root().read(file(self.emulator), MAX_FILE).ok();
        let kept = bytes.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        kept.is_some_and(|kept| kept.get("key").and_then(Value::as_str) == Some(self.key.as_str()))
    }

    /// Keeps that it was.
    ///
    /// # Errors
    /// The state folder cannot be written.
    pub fn keep(&self, state: &State) -> std::io::Result<()> {
        write(state, file(self.emulator), &json!({ "key": self.key }))
    }
}

/// Keeps how a machine was tried on KVM, for all later plans of this caller.
///
/// # Errors
/// The state folder cannot be written.
pub fn keep_kvm(emulator: Emulator, record: &KvmRecord, state: &State) -> std::io::Result<()> {
    write(state, kvm_file(emulator), &json!(record))
}

fn write(state: &State, name: &str, value: &Value) -> std::io::Result<()> {
    let mode = Mode::RUSR | Mode::WUSR;
    let mut file = state.root().open_file(name, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC, mode)?;
    std::io::Write::write_all(&mut file, value.to_string().as_bytes())
}
