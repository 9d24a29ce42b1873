//! What emulates machines on this host: QEMU with its software processor, or Firecracker; and the prepared kernel.

use std::path::{Path, PathBuf};
use std::time::Duration;

use policy::control::Emulator;
use serde_json::json;
use sys::arch::{EMULATOR, EMULATOR_PACKAGE, NAME};

use super::Missing;
use super::faults::{Fault, known, release};
use super::kernel::Kernel;

/// Where `mke2fs` is.
const MKE2FS: [&str; 2] = ["/usr/sbin/mke2fs", "/sbin/mke2fs"];
/// How long it may take to say its version.
const SAYS: Duration = Duration::from_secs(20);
/// Oldest version whose options we know.
const LEAST: (u32, u32) = (7, 2);

/// What makes images, where it is.
pub(crate) fn mke2fs() -> Option<&'static Path> {
    MKE2FS.iter().map(Path::new).find(|path| path.exists())
}

/// That there is something that does.
pub(super) fn makes_images() -> Result<(), Missing> {
    mke2fs().map(drop).ok_or_else(|| Missing {
        id: "tier/no-mke2fs",
        why: "there is no `mke2fs`, which makes the image of a machine's root".to_owned(),
        fix: "install it: apt-get install e2fsprogs".to_owned(),
    })
}

/// What emulates machines here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emulation {
    /// Which emulator it is.
    pub emulator: Emulator,
    /// The emulator.
    pub program: PathBuf,
    /// Its version.
    pub version: String,
    /// The kernel that was prepared.
    pub kernel: Kernel,
}

impl Emulation {
    /// For hosts that are only spoken of.
    pub(crate) fn assumed() -> Self {
        Self {
            emulator: Emulator::Qemu,
            program: EMULATOR.into(),
            version: "7.2.22".to_owned(),
            kernel: Kernel::assumed(),
        }
    }

    /// What a program can do by faults of this release that are mended since.
    pub fn faults(&self) -> impl Iterator<Item = Fault> {
        // One that nobody can read is as old as can be.
        let table = match self.emulator {
            Emulator::Qemu => FAULTS,
            Emulator::Firecracker => super::firecracker::FAULTS,
        };
        known(table, release(&self.version).unwrap_or_default())
    }

    /// Which file the emulator is: another one of the same version is another.
    ///
    /// # Errors
    /// It is gone.
    pub fn identity(&self) -> std::io::Result<[i64; 5]> {
        use std::os::unix::fs::MetadataExt as _;
        let meta = self.program.metadata()?;
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        Ok([number(meta.dev()), number(meta.ino()), number(meta.size()), meta.mtime(), meta.ctime()])
    }

    /// The digest of what a start of a machine by this caller says something about: it is another one when the host started anew, or
    /// kernel, emulator or this version are others. `None` where nobody knows since when the host is up.
    #[must_use]
    pub fn since_boot(&self, euid: u32) -> Option<String> {
        let (boot, program) = (sys::machine::boot_id().ok()?, self.identity().ok()?);
        let facts = json!([env!("CARGO_PKG_VERSION"), boot, euid, self.version, program, self.kernel.digest()]);
        Some(policy::json::digest(&facts))
    }

    /// Asks the host.
    pub(crate) fn probe() -> Result<Self, Missing> {
        let program = Path::new(EMULATOR).canonicalize().map_err(|_none| Missing {
            id: "tier/no-qemu",
            why: format!("there is no `{EMULATOR}`"),
            fix: format!("install QEMU for {NAME}: apt-get install --no-install-recommends {EMULATOR_PACKAGE}"),
        })?;
        makes_images()?;
        let version = version(&program)?;
        Ok(Self { emulator: Emulator::Qemu, program, version, kernel: Kernel::read()? })
    }
}

/// The table of them: `number releases words`.
const FAULTS: &str = include_str!("../../../../resources/qemu-faults.txt");

/// `QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)`; asked with the software processor, which is a module in Debian.
fn version(program: &Path) -> Result<String, Missing> {
    let unusable = |why: String| Missing {
        id: "tier/no-qemu",
        why: format!("`{}` cannot be used: {why}", program.display()),
        fix: "install QEMU 7.2 or later: apt-get install --no-install-recommends qemu-system-x86".to_owned(),
    };
    let asked = |argument: &str| {
        let output = sys::command::Command::new(program).arg(argument).arg("help").output(&[], 1 << 16, SAYS);
        output
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .map_err(|error| unusable(error.to_string()))
    };
    if !asked("-accel")?.lines().any(|line| line.trim() == "tcg") {
        return Err(unusable("it has no software processor (tcg)".to_owned()));
    }
    let text = sys::command::Command::new(program).arg("-version").output(&[], 1 << 12, SAYS);
    let text = text.map_err(|error| unusable(error.to_string()))?.stdout;
    let text = String::from_utf8_lossy(&text).into_owned();
    let said = text.lines().next().and_then(|line| line.strip_prefix("QEMU emulator version ")).unwrap_or_default();
    let version = said.split_whitespace().next().unwrap_or_default();
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok());
    let found = numbers.next().flatten().zip(numbers.next().flatten());
    if found.is_some_and(|found| found >= LEAST) {
        return Ok(version.to_owned());
    }
    Err(unusable(format!("it says version `{version}`, and 7.2 is the oldest that is known")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        super::super::faults::assert_read(FAULTS);
        let old = Emulation { version: "7.2.4".to_owned(), ..Emulation::assumed() };
        assert_eq!(old.faults().map(|fault| fault.id).collect::<Vec<_>>(), ["CVE-2024-3446"]);
        let unknown = Emulation { version: "x".to_owned(), ..Emulation::assumed() };
        assert_eq!(unknown.faults().count(), known(FAULTS, [0; 3]).count());
    }
}
