//! The runtime on this host: where it is, which version, on which platform it runs programs.

use std::path::PathBuf;

use super::Missing;
use super::faults::{Fault, known};
use super::program::{ProgramMissing, ask, find};

const FIX: &str = "`apt-get install runsc` (Debian), or gVisor's own release as /usr/local/bin/runsc; or use the weaker `--tier container`";

/// `runsc` on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// The program.
    pub path: PathBuf,
    /// As it says it, e.g. `0.0~20221219.0`.
    pub version: String,
    /// The day of its release as a number, 20221219.
    pub date: u32,
    /// What runs programs and stops them at each system call.
    pub platform: &'static str,
    /// It is not the one that this release takes unasked, which its processes are not told by a word.
    pub(crate) says_platform: bool,
    /// Its newer releases put a layer over the root unless they are told not to.
    pub(crate) layers_root: bool,
}

impl Engine {
    /// One that is only spoken of, for pages that must read the same everywhere.
    pub(crate) fn assumed() -> Self {
        Self {
            path: PathBuf::from("/usr/bin/runsc"),
            version: "release-20250401.0".to_owned(),
            date: 20_250_401,
            platform: "systrap",
            says_platform: false,
            layers_root: true,
        }
    }

    /// Looks for it and asks it.
    ///
    /// # Errors
    /// It is not there, others than root can write it, or it does not answer.
    pub(crate) fn find() -> Result<Self, Missing> {
        let missing = |id, why: String| Missing { id, why, fix: FIX.to_owned() };
        let path = &find("runsc").map_err(|lack| match lack {
            ProgramMissing::Nowhere(why) => missing("gvisor/no-runsc", why),
            ProgramMissing::NotTrusted(why) => missing("gvisor/runsc-not-trusted", why),
        })?;
        let unusable = |why: String| missing("gvisor/runsc-unusable", why);
        // Each answer takes it 10 ms or so, of which most is its own start.
        let (said, flags) = std::thread::scope(|scope| {
            let flags = scope.spawn(|| ask(path, "flags"));
            (ask(path, "--version"), flags.join())
        });
        let said = said.map_err(unusable)?;
        let (version, date) =
            version(&said).ok_or_else(|| unusable(format!("{} says no version that is known", path.display())))?;
        let flags =
            flags.unwrap_or_else(|_| Err(format!("{} could not be asked", path.display()))).map_err(unusable)?;
        let platform = platform(&flags).ok_or_else(|| unusable(format!("{} names no platform", path.display())))?;
        let says_platform = !flags.contains(&format!("(default \"{platform}\")"));
        let layers_root = flags.contains("-overlay2 ");
        Ok(Self { path: path.to_owned(), version, date, platform, says_platform, layers_root })
    }

    /// What a program can do by faults of this release that are mended since.
    pub fn faults(&self) -> impl Iterator<Item = Fault> {
        known(FAULTS, [self.date, 0, 0])
    }

    /// The same in words.
    pub(crate) fn told_faults(&self) -> Option<String> {
        let one = |fault: Fault| format!("{} ({}, mended in release {})", fault.what, fault.id, fault.mended);
        let all: Vec<String> = self.faults().map(one).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// The version, and the eight digits of its day.
fn version(said: &str) -> Option<(String, u32)> {
    let version = said.lines().find_map(|line| line.strip_prefix("runsc version "))?.trim();
    let date = version.split(|c: char| !c.is_ascii_digit()).find(|digits| digits.len() == 8)?;
    Some((version.to_owned(), date.parse().ok()?))
}

/// The best that this release has and that needs nothing of the host.
fn platform(flags: &str) -> Option<&'static str> {
    let line = flags.lines().find(|line| line.contains("which platform to use"))?;
    ["systrap", "ptrace"].into_iter().find(|platform| line.contains(platform))
}

/// The table of them, by the day of a release.
const FAULTS: &str = include_str!("../../../../resources/runsc-faults.txt");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_debian_and_of_gvisor_are_read() {
        let debian = "runsc version 0.0~20221219.0\nspec: 1.0.2-dev\n";
        assert_eq!(version(debian), Some(("0.0~20221219.0".to_owned(), 20_221_219)));
        let own = "runsc version release-20240401.0\nspec: 1.1.0-rc.1\n";
        assert_eq!(version(own), Some(("release-20240401.0".to_owned(), 20_240_401)));
        assert_eq!(version("runc version 1.1.5\n"), None);
    }

    #[test]
    fn the_platform_is_one_that_the_release_has() {
        let old = "    specifies which platform to use: ptrace (default), kvm. (default \"ptrace\")";
        let new = "    specifies which platform to use: systrap (default), ptrace, kvm. (default \"systrap\")";
        assert_eq!((platform(old), platform(new), platform("")), (Some("ptrace"), Some("systrap"), None));
    }

    #[test]
    fn every_fault_of_the_table_is_read() {
        super::super::faults::assert_read(FAULTS);
        let old = Engine { date: 20_221_219, ..Engine::assumed() }.told_faults();
        assert!(old.is_some_and(|words| words.contains("CVE-2025-2713")));
        assert_eq!(Engine { date: u32::MAX, ..Engine::assumed() }.told_faults(), None);
    }
}
