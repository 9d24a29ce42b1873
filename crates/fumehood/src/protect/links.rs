//! Hard links: another name of a control file in the workspace is the same file, and as protected.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Result;

use super::list::Shape;
use super::plan::{Bind, ProtectPlan, parent_of};
use crate::state::{Cross, Dir};

/// How many entries are looked at for another name.
const MOST_ENTRIES: usize = 100_000;

/// A control file with more names than one: how many are left to be found.
struct Linked {
    path: PathBuf,
    left: u64,
    category: String,
    why: String,
}

impl ProtectPlan {
    /// Binds every other name of a bound file too. What is not found within the workspace lies outside, where nobody
    /// inside can reach it, unless the search was cut short.
    pub(super) fn other_names(&mut self, below: &Dir) -> Result<()> {
        let mut linked = BTreeMap::new();
        for bind in self.binds.iter().filter(|bind| bind.kind == Shape::File) {
            let Some((parent, name)) = parent_of(below, &bind.path)? else { continue };
            let Some(stat) = parent.stat(name)? else { continue };
            if stat.st_nlink > 1 {
                let (category, why) = (bind.category.clone(), format!("another name of a control file: {}", bind.why));
                let one = Linked { path: bind.path.clone(), left: stat.st_nlink, category, why };
                linked.entry((stat.st_dev, stat.st_ino)).or_insert(one);
            }
        }
        if linked.is_empty() {
            return Ok(());
        }
        let mut entries = MOST_ENTRIES;
        let mut queue = vec![PathBuf::new()];
        while let Some(at) = queue.pop() {
            let here = if at.as_os_str().is_empty() { Path::new(".") } else { &at };
            let Ok(dir) = below.enter(here, Cross::No) else { continue };
            for name in dir.names().unwrap_or_default() {
                let Some(left) = entries.checked_sub(1) else {
                    self.linked = linked.into_values().filter(|one| one.left > 0).map(|one| one.path).collect();
                    return Ok(());
                };
                entries = left;
                let Ok(Some(stat)) = dir.stat(&name) else { continue };
                if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                    queue.push(at.join(&name));
                    continue;
                }
                let Some(one) = linked.get_mut(&(stat.st_dev, stat.st_ino)) else { continue };
                one.left = one.left.saturating_sub(1);
                let (path, category, why) = (at.join(&name), one.category.clone(), one.why.clone());
                if self.binds.iter().all(|bind| bind.path != path) {
                    self.binds.push(Bind { path, kind: Shape::File, category, why });
                }
            }
        }
        Ok(())
    }
}
