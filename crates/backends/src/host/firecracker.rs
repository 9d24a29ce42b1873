//! Firecracker on this host: where it is, which version, and that it is a build whose filter of system calls is not empty.

use std::path::{Path, PathBuf};

use policy::control::Emulator;

use super::Missing;
use super::faults::release;
use super::kernel::Kernel;
use super::program::{ProgramMissing, ask, find, trusted};
use super::qemu::{Emulation, makes_images};

/// Its name in the folders of programs.
const NAME: &str = "firecracker";
/// The variable that names it elsewhere.
pub const FIRECRACKER_VARIABLE: &str = "FUMEHOOD_FIRECRACKER";
/// Oldest version whose words and filter we have seen.
const LEAST: [u32; 3] = [1, 16, 0];
/// Bytes of it that are read to see how it was linked.
const HEAD: u64 = 64 * 1024;

/// As it is found on this host; `named` by the caller, else in the folders of programs.
pub(super) fn probe(named: Option<&Path>) -> Result<Emulation, Missing> {
    let missing = |id, why: String| Missing { id, why, fix: fix() };
    let program = match named {
        Some(path) => trusted(path).map_err(|why| missing("firecracker/not-trusted", why)),
        None => find(NAME).map_err(|lack| match lack {
            ProgramMissing::Nowhere(why) => missing("firecracker/not-here", why),
            ProgramMissing::NotTrusted(why) => missing("firecracker/not-trusted", why),
        }),
    }?;
    let unusable = |why: String| missing("firecracker/unusable", format!("`{}`: {why}", program.display()));
    let head = head(&program).map_err(|error| unusable(error.to_string()))?;
    // Before it is asked anything: what is no build of the kind that we know is not run.
    is_static(&head).map_err(unusable)?;
    let said = ask(&program, "--version").map_err(unusable)?;
    let version = version(&said).map_err(unusable)?;
    makes_images()?;
    let kernel = Kernel::read()?.unpacked().ok_or_else(|| Missing {
        id: "tier/no-machine-kernel",
        why: "the kernel of machines was prepared by an older version, without the form in which Firecracker starts it"
            .to_owned(),
        fix: "prepare it again, as root: fumehood machine prepare".to_owned(),
    })?;
    Ok(Emulation { emulator: Emulator::Firecracker, program, version, kernel })
}

fn fix() -> String {
    format!(
        "install the static build (musl) of Firecracker {}.{} or later, owned by root, as /usr/local/bin/{NAME}, or name it by \
         {FIRECRACKER_VARIABLE}; or drop `backend`: machines by QEMU need neither",
        LEAST[0], LEAST[1]
    )
}

fn head(program: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(program)?.take(HEAD).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether a program for 64 bits needs no other file to run. Firecracker's makers build it so, and one that is linked against
/// glibc has an empty filter.
fn is_static(head: &[u8]) -> Result<(), String> {
    /// A program header that names the loader.
    const INTERPRETER: u32 = 3;
    let odd = || "it is no program of this processor's".to_owned();
    let number = |at: usize, length: usize| -> Option<u64> {
        let bytes = head.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0_u64, |number, byte| (number << 8) | u64::from(*byte)))
    };
    if head.get(..6) != Some(b"\x7fELF\x02\x01") {
        return Err(odd());
    }
    let table = number(32, 8).zip(number(54, 2)).zip(number(56, 2));
    let ((start, size), count) = table.ok_or_else(odd)?;
    for index in 0..count {
        let at = index.checked_mul(size).and_then(|at| at.checked_add(start)).and_then(|at| usize::try_from(at).ok());
        let kind = at.and_then(|at| number(at, 4)).ok_or_else(odd)?;
        if kind == u64::from(INTERPRETER) {
            return Err(
                "it is linked against libraries, and such a build has an empty filter of system calls".to_owned()
            );
        }
    }
    Ok(())
}

/// `Firecracker v1.16.1`.
fn version(said: &str) -> Result<String, String> {
    let version = said.lines().find_map(|line| line.strip_prefix("Firecracker v")).unwrap_or_default().trim();
    match release(version) {
        Some(found) if found >= LEAST => Ok(version.to_owned()),
        Some(_) => Err(format!("it is version {version}, and {}.{} is the oldest that is known", LEAST[0], LEAST[1])),
        None => Err("it says no version that is known".to_owned()),
    }
}

/// For hosts that are only spoken of.
pub(super) fn assumed() -> Emulation {
    Emulation {
        emulator: Emulator::Firecracker,
        program: PathBuf::from("/usr/local/bin").join(NAME),
        version: "1.16.1".to_owned(),
        kernel: Kernel::assumed(),
    }
}

/// The table of its faults: `number releases words`.
pub(super) const FAULTS: &str = include_str!("../../../../resources/firecracker-faults.txt");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_version_that_is_known_is_taken() {
        assert_eq!(version("Firecracker v1.16.1\n\n"), Ok("1.16.1".to_owned()));
        assert_eq!(version("noise\nFirecracker v1.17.0-dev\n"), Ok("1.17.0-dev".to_owned()));
        for said in
            ["Firecracker v1.15.1\n", "Firecracker v0.25.2\n", "Firecracker vx\n", "QEMU emulator version 7.2\n", ""]
        {
            assert!(version(said).is_err(), "{said}");
        }
    }

    #[test]
    fn every_line_of_the_table_is_read_and_none_is_of_a_release_that_is_taken() {
        super::super::faults::assert_read(FAULTS);
        let of = |version: &str| Emulation { version: version.to_owned(), ..assumed() }.faults().count();
        assert_eq!((of("1.16.0"), of("1.15.0"), of("1.14.4")), (0, 1, 0));
    }

    #[test]
    fn a_build_that_needs_libraries_is_none() {
        assert_eq!(is_static(agent::ELF), Ok(()));
        let linked = head(Path::new("/usr/bin/env")).unwrap();
        assert!(is_static(&linked).unwrap_err().contains("empty filter"));
        for odd in [&b"#!/bin/sh\n"[..], b"", b"\x7fELF\x01\x01", b"\x7fELF\x02\x01"] {
            assert!(is_static(odd).is_err());
        }
        // A table that lies behind all that was read.
        let cut = agent::ELF.get(..60).unwrap();
        assert!(is_static(cut).is_err());
    }

    #[test]
    fn what_is_not_there_or_can_be_replaced_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(NAME);
        for there in [false, true] {
            if there {
                std::fs::write(&file, agent::ELF).unwrap();
            }
            // The temporary folder is everybody's.
            let refused = probe(Some(&file)).unwrap_err();
            assert_eq!(refused.id, "firecracker/not-trusted");
            assert!(refused.fix.contains(FIRECRACKER_VARIABLE) && refused.fix.contains("musl"), "{refused:?}");
        }
        // Root's, and linked against libraries.
        let linked = probe(Some(Path::new("/usr/bin/env"))).unwrap_err();
        assert_eq!(linked.id, "firecracker/unusable");
    }
}
