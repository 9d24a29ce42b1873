//! The runtime on this host: where it is, which version, on which platform it runs programs.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sys::command::Command;

use crate::host::Missing;

/// Where an administrator or a distribution puts it. Root executes it, so that no other folder counts.
const PLACES: [&str; 4] = ["/usr/local/bin/runsc", "/usr/local/sbin/runsc", "/usr/bin/runsc", "/usr/sbin/runsc"];
/// How long it may take to say its version or its flags.
const ANSWER: Duration = Duration::from_secs(10);
/// Most that it may say.
const MOST: usize = 64 << 10;
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
    pub(super) says_platform: bool,
    /// Its newer releases put a layer over the root unless they are told not to.
    pub(super) layers_root: bool,
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
        let there = PLACES.iter().map(Path::new).find(|path| path.exists());
        let Some(path) = there else {
            return Err(missing("gvisor/no-runsc", format!("there is no {}", PLACES.join(", no "))));
        };
        let path = &trusted(path).map_err(|why| missing("gvisor/runsc-not-trusted", why))?;
        let unusable = |why: String| missing("gvisor/runsc-unusable", why);
        let said = ask(path, "--version").map_err(unusable)?;
        let (version, date) =
            version(&said).ok_or_else(|| unusable(format!("{} says no version that is known", path.display())))?;
        let flags = ask(path, "flags").map_err(unusable)?;
        let platform = platform(&flags).ok_or_else(|| unusable(format!("{} names no platform", path.display())))?;
        let says_platform = !flags.contains(&format!("(default \"{platform}\")"));
        let layers_root = flags.contains("-overlay2 ");
        Ok(Self { path: path.to_owned(), version, date, platform, says_platform, layers_root })
    }

    /// What a program can do by faults of this release that are mended since, in words.
    pub(crate) fn faults(&self) -> Option<String> {
        let one = |fault: Known| format!("{} ({}, mended in release {})", fault.what, fault.id, fault.mended);
        let all: Vec<String> = known_faults(self.date).map(one).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// Where it lies without links. Root runs it: nobody else may be able to write it, or a folder on the way to it.
fn trusted(path: &Path) -> Result<PathBuf, String> {
    let real = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
    for one in real.ancestors() {
        let meta = one.symlink_metadata().map_err(|error| format!("{}: {error}", one.display()))?;
        if meta.uid() != 0 || meta.mode() & 0o022 != 0 {
            return Err(format!("{} can be written by others than root", one.display()));
        }
    }
    Ok(real)
}

fn ask(path: &Path, word: &str) -> Result<String, String> {
    let answer = Command::new(path).arg(word).output(b"", MOST, ANSWER).map_err(|error| error.to_string())?;
    if answer.timed_out {
        return Err(format!("`{} {word}` did not answer within {} s", path.display(), ANSWER.as_secs()));
    }
    Ok(String::from_utf8_lossy(&[answer.stdout, answer.stderr].concat()).into_owned())
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

/// A fault of releases before a day, that is mended since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its public number.
    pub id: &'static str,
    /// The first release without it, as its day.
    pub mended: u32,
    /// What it lets through.
    pub what: &'static str,
}

/// The table of them: `number day words`.
const FAULTS: &str = include_str!("../../../../resources/runsc-faults.txt");

/// Those that a release of this day has.
pub fn known_faults(date: u32) -> impl Iterator<Item = Known> {
    let one = |line: &'static str| {
        let mut words = line.splitn(3, ' ');
        Some(Known { id: words.next()?, mended: words.next()?.parse().ok()?, what: words.next()? })
    };
    FAULTS.lines().filter(|line| !line.starts_with('#')).filter_map(one).filter(move |fault| date < fault.mended)
}

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
    fn what_others_can_replace_is_not_run_and_a_link_is_followed_once() {
        let folder = tempfile::tempdir().unwrap();
        let (link, written) = (folder.path().join("runsc"), folder.path().join("written"));
        std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
        std::fs::write(&written, "").unwrap();
        // The temporary folder is everybody's.
        let judged = (trusted(&link), trusted(&written));
        assert_eq!(judged.0, Ok(Path::new("/bin/sh").canonicalize().unwrap()));
        assert!(judged.1.is_err_and(|why| why.contains("can be written by others")));
    }

    #[test]
    fn every_fault_of_the_table_is_read() {
        let lines = FAULTS.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count();
        assert!(lines > 0 && known_faults(0).count() == lines);
        assert_eq!(known_faults(u32::MAX).count(), 0);
        let old = Engine { date: 20_221_219, ..Engine::assumed() }.faults();
        assert!(old.is_some_and(|words| words.contains("CVE-2025-2713")));
        assert_eq!(Engine { date: u32::MAX, ..Engine::assumed() }.faults(), None);
    }
}
