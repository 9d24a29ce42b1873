//! Whether machines here run on KVM.
//!
//! # Promises
//! They do where a machine of ours has started on it since this host is up: of this caller, with this emulator and this kernel. That
//! `/dev/kvm` opens proves nothing: there are kinds of KVM on which an ordinary kernel never reaches its first byte.
//! # Must not
//! Try it: that takes up to a minute, and only who was asked to does.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use policy::control::{Accelerator, Emulator};
use policy::value::Device;
use serde::{Deserialize, Serialize};

use super::{CAREFUL, Capabilities, Missing};

/// The file in the state folder that tells how a machine by this emulator was tried.
#[must_use]
pub const fn kvm_file(emulator: Emulator) -> &'static str {
    match emulator {
        Emulator::Qemu => "machine-kvm.json",
        Emulator::Firecracker => "machine-kvm-firecracker.json",
    }
}

/// No file that we wrote is larger.
const MAX_RECORD: u64 = 4096;
/// Longest part of a reason that is kept, in letters.
const MAX_WHY: usize = 500;
/// Where a host's kernel says which kinds of KVM it has.
const MODULES: &str = "/sys/module";
/// What every reason is said under.
const ID: &str = "machine/no-kvm";

/// How a machine on KVM was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvmRecord {
    /// See [`super::Emulation::since_boot`].
    key: String,
    /// Why it did not hold.
    failed: Option<String>,
}

/// What is known of it.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// Where that is kept.
    state: Option<PathBuf>,
    /// It is being tried now by this one.
    tries: Option<Emulator>,
    qemu: OnceLock<Result<(), Missing>>,
    firecracker: OnceLock<Result<(), Missing>>,
}

impl Gate {
    pub(super) fn new(state: Option<PathBuf>, tries: Option<Emulator>) -> Self {
        Self { state, tries, ..Self::default() }
    }

    const fn found(&self, emulator: Emulator) -> &OnceLock<Result<(), Missing>> {
        match emulator {
            Emulator::Qemu => &self.qemu,
            Emulator::Firecracker => &self.firecracker,
        }
    }
}

impl Capabilities {
    /// What runs the instructions of machines here that QEMU emulates.
    #[must_use]
    pub fn accelerator(&self) -> Accelerator {
        if self.kvm(Emulator::Qemu).is_ok() { Accelerator::Kvm } else { Accelerator::Tcg }
    }

    /// Whether machines by this emulator run on KVM.
    ///
    /// # Errors
    /// Why they do not, and the remedy.
    pub fn kvm(&self, emulator: Emulator) -> Result<(), Missing> {
        self.kvm.found(emulator).get_or_init(|| self.look(emulator)).clone()
    }

    fn look(&self, emulator: Emulator) -> Result<(), Missing> {
        if self.is_assumed() {
            // An assumed host has what the one needs that starts on nothing else.
            return if emulator == Emulator::Firecracker { Ok(()) } else { Err(untried()) };
        }
        self.kvm_to_try(emulator)?;
        if self.kvm.tries == Some(emulator) {
            return Ok(());
        }
        let record = self.kvm.state.as_ref().and_then(|folder| read(&folder.join(kvm_file(emulator)), self.euid));
        let key = self.machine(emulator)?.since_boot(self.euid);
        judged(record.filter(|record| Some(&record.key) == key.as_ref()))
    }

    /// Whether there is a KVM on which a machine by this emulator could be tried.
    ///
    /// # Errors
    /// What is missing, and the remedy.
    pub fn kvm_to_try(&self, emulator: Emulator) -> Result<(), Missing> {
        self.machine(emulator)?;
        self.device(Device::Kvm).map_err(|missing| Missing { id: ID, ..missing })?;
        kind(Path::new(MODULES))
    }

    /// The record of a machine that was tried on KVM by this caller, of which `failed` says why it did not hold; `None` where nobody
    /// knows since when the host is up.
    #[must_use]
    pub fn kvm_record(&self, emulator: Emulator, failed: Option<&str>) -> Option<KvmRecord> {
        let failed = failed.map(|why| why.chars().take(MAX_WHY).collect());
        Some(KvmRecord { key: self.machine(emulator).ok()?.since_boot(self.euid)?, failed })
    }
}

/// A kind of KVM that only kernels made for it run on is no use: an ordinary one never reaches its first byte there.
fn kind(modules: &Path) -> Result<(), Missing> {
    let there = |name: &str| modules.join(name).exists();
    if !there("kvm_pvm") || there("kvm_intel") || there("kvm_amd") {
        return Ok(());
    }
    Err(Missing {
        id: ID,
        why: "the KVM of this host is of the kind `kvm_pvm`, on which an ordinary kernel never starts".to_owned(),
        fix: "a host whose processor has virtualization (modules `kvm_intel` or `kvm_amd`); where this one is a machine itself, have nested machines allowed".to_owned(),
    })
}

fn judged(record: Option<KvmRecord>) -> Result<(), Missing> {
    let Some(KvmRecord { key: _, failed }) = record else { return Err(untried()) };
    failed.map_or(Ok(()), |why| {
        Err(Missing {
            id: ID,
            why: format!("a machine on KVM was tried, and did not hold: {why}"),
            fix: "`fumehood doctor --tier vm` tries it again; where this host is a machine itself, its own host must allow nested machines"
                .to_owned(),
        })
    })
}

fn untried() -> Missing {
    Missing {
        id: ID,
        why: "no machine was tried on KVM since this host is up, by this caller with this kernel and this emulator"
            .to_owned(),
        fix: "`fumehood doctor --tier vm` tries one".to_owned(),
    }
}

/// A record that only the caller can have written.
fn read(path: &Path, euid: u32) -> Option<KvmRecord> {
    let file = OpenOptions::new().read(true).custom_flags(CAREFUL).open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.uid() != euid || meta.mode() & 0o077 != 0 {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_RECORD).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_what_was_tried_and_held_counts() {
        let record = |failed: Option<&str>| KvmRecord { key: "k".to_owned(), failed: failed.map(str::to_owned) };
        assert_eq!(judged(Some(record(None))), Ok(()));
        let failed = judged(Some(record(Some("nothing came")))).unwrap_err();
        assert!(failed.why.ends_with("did not hold: nothing came"), "{failed:?}");
        let untried = judged(None).unwrap_err();
        assert!(untried.fix.contains("fumehood doctor --tier vm"), "{untried:?}");
    }

    #[test]
    fn a_kind_that_runs_no_ordinary_kernel_is_named_and_not_tried() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(kind(folder.path()), Ok(()));
        std::fs::create_dir(folder.path().join("kvm_pvm")).unwrap();
        assert!(kind(folder.path()).unwrap_err().why.contains("kvm_pvm"));
        std::fs::create_dir(folder.path().join("kvm_amd")).unwrap();
        assert_eq!(kind(folder.path()), Ok(()));
    }

    #[test]
    fn a_record_that_others_could_have_written_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(kvm_file(Emulator::Qemu));
        let kept = KvmRecord { key: "k".to_owned(), failed: None };
        std::fs::write(&path, serde_json::to_vec(&kept).unwrap()).unwrap();
        let mode = |mode: u32| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let euid = sys::caller::euid();
        mode(0o600);
        assert_eq!(read(&path, euid), Some(kept));
        assert_eq!(read(&path, euid + 1), None);
        mode(0o620);
        assert_eq!(read(&path, euid), None);
        let link = folder.path().join("link");
        mode(0o600);
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(read(&link, euid), None);
    }

    #[test]
    fn on_a_host_that_was_not_asked_machines_run_on_the_software_processor() {
        let host = Capabilities::assumed(crate::Assumed::Groups);
        assert_eq!(host.accelerator(), Accelerator::Tcg);
        assert_eq!(host.kvm(Emulator::Qemu).unwrap_err().id, ID);
    }
}
