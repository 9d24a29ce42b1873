//! What a runtime built, against the bundle: beside the evidence of every control, which is the native backend's.

use std::collections::BTreeMap;
use std::path::Path;

use guest::config::Attrs;
use sys::proc::{Mount, Process};

use super::bundle::Bundle;
use super::linux::Linux;
use crate::native::start::Started;
use crate::native::verify::{Evident, Point, must, options, uppermost};

/// `/dev/null`.
const NULL: (u32, u32) = (1, 3);

/// Where mounts may be, and with which options.
pub(super) fn points(bundle: &Bundle) -> BTreeMap<String, Point> {
    let name = |path: &Path| sys::proc::shown(path.as_os_str().as_encoded_bytes());
    let point = |options: Vec<&'static str>| Point { needed: true, options, ..Point::default() };
    let mut all = BTreeMap::from([("/".to_owned(), point(options(Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV)))]);
    for (at, write, noexec) in bundle.mounts() {
        let mut attrs = Attrs::NOSUID | Attrs::NODEV;
        attrs = if write { attrs } else { attrs | Attrs::RDONLY };
        attrs = if noexec { attrs | Attrs::NOEXEC } else { attrs };
        let whole = bundle.shown.iter().any(|shown| shown.at == at && shown.whole);
        all.insert(name(&at), Point { whole, ..point(options(attrs)) });
    }
    let Some(linux) = bundle.whose.linux() else { return all };
    for own in &linux.own {
        all.insert(name(&own.at), point(own.must_have()));
    }
    for (at, _) in &linux.devices {
        all.insert(name(at), Point { device: true, ..point(vec!["ro"]) });
    }
    for at in &linux.read_only {
        all.insert(name(at), point(vec!["ro"]));
    }
    for at in &linux.masked {
        all.insert(name(at), Point { device: true, ..Point::default() });
    }
    all
}

/// Everything that is otherwise than the bundle says.
pub(super) fn lacks(started: &Started, bundle: &Bundle) -> Vec<String> {
    let told = |error: sys::error::Error| vec![format!("the guest's process could not be looked at: {error}")];
    let guest = match Process::open(started.child.guest) {
        Ok(guest) => guest,
        Err(error) => return told(error),
    };
    let runtime = match Process::open(started.child.child.pid) {
        Ok(runtime) => runtime,
        Err(error) => return told(error),
    };
    let (Some(linux), Some(mounts)) = (bundle.whose.linux(), started.seen.mounts.as_deref()) else {
        return vec!["the mounts were never final".to_owned()];
    };
    let seen = Observation { guest, runtime, mounts };
    let mut all = vec![seen.ids(linux)];
    all.extend(bundle.shown.iter().enumerate().map(|(index, shown)| seen.same(bundle, index, &shown.at)));
    all.extend(linux.devices.iter().map(|(at, numbers)| seen.device(at, *numbers)));
    all.extend(linux.masked.iter().map(|at| seen.masked(at)));
    all.extend(bundle.shown.iter().filter(|shown| shown.whole).map(|shown| seen.below(&shown.at, shown.write)));
    all.into_iter().filter_map(Result::err).collect()
}

struct Observation<'a> {
    guest: Process,
    runtime: Process,
    mounts: &'a [Mount],
}

impl Observation<'_> {
    /// Exactly the ids of the bundle are mapped.
    fn ids(&self, linux: &Linux) -> Evident {
        for (file, own) in [("uid_map", linux.owner.0), ("gid_map", linux.owner.1)] {
            let text = self.guest.small_text(file).map_err(|error| error.to_string())?;
            let mut found: Vec<Vec<u32>> = text
                .lines()
                .map(|line| line.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect())
                .collect();
            found.sort();
            let planned: Vec<Vec<u32>> =
                linux.maps(own).into_iter().map(|(inside, outside)| vec![inside, outside, 1]).collect();
            must(found == planned, || format!("{file} is {found:?}"))?;
        }
        Ok(())
    }

    /// What the program sees at a place is what the supervisor mounted for it.
    fn same(&self, bundle: &Bundle, index: usize, at: &Path) -> Evident {
        let told = |error: sys::error::Error| format!("{} could not be looked at: {error}", at.display());
        let identity = |process: &Process, path: &Path| {
            process.place_at(&path.to_string_lossy()).and_then(sys::paths::identity).map_err(told)
        };
        let (inside, outside) = (identity(&self.guest, at)?, identity(&self.runtime, &bundle.shown_folder(index))?);
        must((inside.device, inside.inode) == (outside.device, outside.inode), || {
            format!("{} is another file than the one that was judged", at.display())
        })
    }

    fn device(&self, at: &Path, numbers: (u32, u32)) -> Evident {
        let found = self.guest.place_at(&at.to_string_lossy()).and_then(sys::paths::character_device);
        let found = found.map_err(|error| format!("{} could not be looked at: {error}", at.display()))?;
        must(found == Some(numbers), || format!("{} is another device: {found:?}", at.display()))
    }

    /// An empty device or an empty folder lies over it, each on a mount that can only be read, or the kernel has no such file.
    fn masked(&self, at: &Path) -> Evident {
        let place = at.to_string_lossy();
        let Ok(found) = self.guest.place_at(&place) else { return Ok(()) };
        let device = sys::paths::character_device(found).map_err(|error| error.to_string())?;
        let mount = uppermost(self.mounts, &place).ok_or_else(|| format!("{place} is not hidden"))?;
        must(mount.has("ro") && (device == Some(NULL) || mount.kind == "tmpfs"), || {
            format!("{place} is hidden by a {} that is {}", mount.kind, mount.options)
        })
    }

    /// What is mounted below a tree that is shown can do no more than the tree.
    fn below(&self, at: &Path, write: bool) -> Evident {
        let all: &[&str] = if write { &["nosuid", "nodev"] } else { &["ro", "nosuid", "nodev"] };
        let within = |mount: &&Mount| Path::new(&mount.point).starts_with(at);
        self.mounts.iter().filter(within).try_for_each(|mount| {
            must(all.iter().all(|option| mount.has(option)), || format!("{} is {}", mount.point, mount.options))
        })
    }
}
