//! `crun` on this host, and `runc` where an engine starts containers by it: where it is, and which release.

use std::path::{Path, PathBuf};

use super::Missing;
use super::faults::{Fault, Release, known, release};
use super::program::{ProgramMissing, ask, find, trusted};

const FIX: &str = "`apt-get install crun` (Debian), or `backend = \"native\"`, which needs no program";

/// A runtime on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// The program.
    pub path: PathBuf,
    /// As it says it, e.g. `1.8.1`.
    pub version: String,
    release: Release,
    /// The table of its faults.
    table: &'static str,
}

impl Runtime {
    /// One that is only spoken of, for pages that must read the same everywhere.
    pub(crate) fn assumed() -> Self {
        Self { path: PathBuf::from("/usr/bin/crun"), version: "1.20".to_owned(), release: [1, 20, 0], table: FAULTS }
    }

    /// Looks for it and asks it.
    ///
    /// # Errors
    /// It is not there, others than root can write it, or it does not answer.
    pub(crate) fn find() -> Result<Self, Missing> {
        let missing = |id, why: String| Missing { id, why, fix: FIX.to_owned() };
        let path = find("crun").map_err(|lack| match lack {
            ProgramMissing::Nowhere(why) => missing("crun/not-here", why),
            ProgramMissing::NotTrusted(why) => missing("crun/not-trusted", why),
        })?;
        let said = ask(&path, "--version").map_err(|why| missing("crun/unusable", why))?;
        let (version, release) = version("crun", &said)
            .ok_or_else(|| missing("crun/unusable", format!("{} says no version that is known", path.display())))?;
        Ok(Self { path, version, release, table: FAULTS })
    }

    /// The one that an engine calls by a path, or by a name that it looks for where programs are; `None`: neither `crun` nor `runc`, not
    /// there, others than root can write it, or it does not answer.
    pub(crate) fn called(by: &Path) -> Option<Self> {
        let name = by.file_name()?.to_str()?;
        let table = match name {
            "crun" => FAULTS,
            "runc" => FAULTS_OF_RUNC,
            _other => return None,
        };
        let path = if by.is_absolute() { trusted(by).ok()? } else { find(name).ok()? };
        let (version, release) = version(name, &ask(&path, "--version").ok()?)?;
        Some(Self { path, version, release, table })
    }

    /// What a program can do by faults of this release that are mended since.
    pub fn faults(&self) -> impl Iterator<Item = Fault> {
        known(self.table, self.release)
    }
}

fn version(name: &str, said: &str) -> Option<(String, Release)> {
    let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" version "));
    let version = line?.trim();
    Some((version.to_owned(), release(version)?))
}

/// The tables of them.
const FAULTS: &str = include_str!("../../../../resources/oci-faults.txt");
const FAULTS_OF_RUNC: &str = include_str!("../../../../resources/runc-faults.txt");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_numbers() {
        let debian = "crun version 1.8.1\ncommit: f8a096be060b22ccd3d5f3ebe44108517fbf6c30\nspec: 1.0.0\n";
        assert_eq!(version("crun", debian), Some(("1.8.1".to_owned(), [1, 8, 1])));
        assert_eq!(version("crun", "crun version 1.20\n"), Some(("1.20".to_owned(), [1, 20, 0])));
        assert_eq!(version("crun", "crun version 1.21.rc1-dirty\n").map(|(_, release)| release), Some([1, 21, 0]));
        assert_eq!(version("crun", "runc version 1.1.5\n"), None);
        assert_eq!(version("runc", "runc version 1.1.5+ds1\n").map(|(_, release)| release), Some([1, 1, 5]));
        assert_eq!(version("crun", "crun version unknown\n"), None);
    }

    #[test]
    fn every_fault_of_the_table_is_read_and_told_of_older_releases_alone() {
        super::super::faults::assert_read(FAULTS);
        super::super::faults::assert_read(FAULTS_OF_RUNC);
        for (release, faults) in [([1, 1, 5], 4), ([1, 1, 12], 3), ([1, 2, 8], 0), ([1, 3, 2], 3), ([1, 3, 3], 0)] {
            assert_eq!(known(FAULTS_OF_RUNC, release).count(), faults, "{release:?}");
        }
        let old: Vec<&str> = known(FAULTS, [1, 4, 3]).map(|fault| fault.id).collect();
        assert_eq!((old, known(FAULTS, [1, 4, 4]).count()), (vec!["CVE-2022-27650"], 0));
    }
}
