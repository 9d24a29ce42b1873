//! What an earlier run of the same sandbox read, against what this one reads: of machines, which both begin with the memory of
//! one. Where the second did not begin so, the two have nothing in common, and that they differ says nothing.

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};

use super::{Layout, Other, Scene, SceneVerdict};
use crate::confined::Observed;
use crate::probe::Try;

/// A run before this one, and what it read.
struct Again {
    path: OsString,
    /// Where machines are kept.
    machines: Option<PathBuf>,
    /// What of them was opened since the run before.
    opened: Option<OwnedFd>,
    before: Option<String>,
}

/// `PATH`: something that each run should have of its own.
pub(super) fn make(layout: &mut Layout<'_>, path: &str) -> io::Result<Box<dyn Scene>> {
    let machines = layout.environment.state.state().ok().map(|(state, _)| state.join("machines"));
    Ok(Box::new(Again { path: path.into(), machines, opened: None, before: None }))
}

/// What the probe could read.
fn text_of(tries: &[Try]) -> Option<String> {
    tries.iter().find(|one| one.possible && !one.text.is_empty()).map(|one| one.text.clone())
}

/// Notes from now on which files of a folder are opened.
fn watch_opened(folder: &Path) -> io::Result<OwnedFd> {
    let opened = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    inotify::add_watch(&opened, folder, WatchFlags::OPEN | WatchFlags::ONLYDIR)?;
    Ok(opened)
}

/// Whether a run since then began with the memory of an earlier machine: it opened one, and keeps none itself, as one does that
/// boots.
fn began_with_memory(opened: &OwnedFd) -> bool {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = Reader::new(opened, &mut buffer);
    let (mut used, mut booted) = (false, false);
    while let Ok(event) = events.next() {
        // The folder itself has no name.
        let Some(name) = event.file_name() else { continue };
        let new = name.to_bytes().ends_with(b".new");
        (used, booted) = (used || !new, booted || new);
    }
    used && !booted
}

impl Scene for Again {
    fn other(&self) -> Option<Other> {
        Some(Other { probe: "read", args: vec![self.path.clone()], before: true })
    }

    fn before(&mut self, observed: &Observed) {
        self.before = text_of(&super::tries(observed));
        self.opened = self.machines.as_deref().and_then(|folder| watch_opened(folder).ok());
    }

    fn judge(&mut self, _observed: &Observed, tries: &[Try]) -> SceneVerdict {
        match (&self.before, text_of(tries)) {
            (Some(before), Some(now)) if *before == now => SceneVerdict::Possible("both runs read the same".to_owned()),
            (Some(_), Some(_)) if !self.opened.as_ref().is_some_and(began_with_memory) => {
                SceneVerdict::Unclear("the second machine did not begin with the memory of another".to_owned())
            }
            (Some(_), Some(_)) => SceneVerdict::Stopped("each run reads what is its own".to_owned()),
            (_, _) => SceneVerdict::Unclear("one of the runs read nothing".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_boots_is_no_second_one_of_the_same_memory() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("kind.digest");
        std::fs::write(&kept, "memory").unwrap();
        let opened = watch_opened(folder.path()).unwrap();
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_some());
        assert!(!began_with_memory(&opened), "it was looked for, and not used");
        std::fs::read(&kept).unwrap();
        assert!(began_with_memory(&opened));
        std::fs::read(&kept).unwrap();
        std::fs::write(folder.path().join("kind-1.new"), "memory").unwrap();
        assert!(!began_with_memory(&opened), "it could not be used, and the machine booted");
    }
}
