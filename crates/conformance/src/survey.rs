//! What is on the host: processes, mounts, control groups, namespaces, our folders. Taken before and after, the
//! difference is what was left behind.

use std::collections::BTreeSet;
use std::path::Path;

/// Where the caller's own groups lie deep, those of runs lie below them.
const MAX_DEPTH: usize = 8;

/// Everything of one moment, in words that name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey(BTreeSet<String>);

impl Survey {
    /// Looks at all that this process can see.
    #[must_use]
    pub fn take() -> Self {
        let mut all = BTreeSet::new();
        processes(&mut all);
        if let Ok(own) = sys::proc::Process::own()
            && let Ok(mounts) = own.mounts()
        {
            all.extend(mounts.iter().map(|mount| format!("mount {mount:?}")));
        }
        if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
            // The look itself opens one.
            all.insert(format!("descriptors {}", entries.count()));
        }
        groups(Path::new("/sys/fs/cgroup"), 0, &mut all);
        if let Ok(entries) = std::fs::read_dir("/tmp") {
            let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
            all.extend(names.filter(|name| name.starts_with("fumehood-r-")).map(|name| format!("folder /tmp/{name}")));
        }
        Self(all)
    }

    /// What is here and was not in `before`.
    #[must_use]
    pub fn beyond(&self, before: &Self) -> Vec<String> {
        self.0.difference(&before.0).cloned().collect()
    }
}

/// Processes by number, start and name; a namespace is seen by the processes in it.
fn processes(all: &mut BTreeSet<String>) {
    let Ok(entries) = std::fs::read_dir("/proc") else { return };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(process) = sys::proc::Process::open(pid) else { continue };
        // What is dead and waits to be reaped by the first process of this namespace, which is no init here, holds nothing.
        if process.status().is_ok_and(|status| matches!(status.state, 'Z' | 'X')) {
            continue;
        }
        let name = process.small_text("comm").unwrap_or_default();
        all.insert(format!("process {pid} {}", name.trim_end()));
        for kind in sys::proc::Namespace::ALL {
            if let Ok(inode) = process.namespace(kind) {
                all.insert(format!("namespace {kind:?} {inode}"));
            }
        }
    }
}

/// Control groups of ours, in every hierarchy.
fn groups(folder: &Path, depth: usize, all: &mut BTreeSet<String>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if depth < MAX_DEPTH && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if path.components().any(|part| part.as_os_str() == "fumehood") && !path.ends_with("fumehood") {
                all.insert(format!("group {}", path.display()));
            }
            groups(&path, depth + 1, all);
        }
    }
}
