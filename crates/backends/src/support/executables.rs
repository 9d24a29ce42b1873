//! `fs.exec`: a list of what may be executed shows nothing that the policy does not show anyway. A rule of Landlock for executing is
//! one for reading as well, and on the process tier there is nothing but these rules.

use std::path::{Path, PathBuf};

use policy::Support;
use policy::value::{Policy, Root, TOOLS};

use super::unmet;

/// The refusal of a list that names something elsewhere. It is the same whether anything is there or not: who asks learns nothing.
pub(super) fn refused(policy: &Policy, own_tree: bool) -> Option<Support> {
    let path = unshown(policy, own_tree)?;
    Some(unmet(
        "fs.exec/not-shown",
        format!("`{}` lies, or leads, where the policy shows nothing of the host under that path", path.display()),
        "name a program of the host's own folders (`/usr`), or grant its folder (`fs.read`, at the same path)",
    ))
}

/// The first entry of the list that lies in no place that the policy shows, or leads out of all of them. `own_tree`: what is shown
/// elsewhere than on the host is not there.
pub fn unshown(policy: &Policy, own_tree: bool) -> Option<&Path> {
    if policy.fs.root != Root::Host {
        // Nothing of the list is looked up on the host then.
        return None;
    }
    let list = policy.fs.exec.as_deref().unwrap_or_default();
    let mut places: Option<Vec<Place>> = None;
    list.iter().map(PathBuf::as_path).find(|path| {
        let is_named = |places: &[Place]| {
            of_the_host(path)
                || places.iter().any(|place| path.starts_with(&place.from) || path.starts_with(&place.real))
        };
        let is_shown = |places: &[Place]| {
            real(path).is_some_and(|real| is_tool(&real) || places.iter().any(|place| place.shows(&real, own_tree)))
        };
        let places = places.get_or_insert_with(|| places_of(policy));
        !(is_named(places) && is_shown(places))
    })
}

/// Whether what a list names at its start still lies in one of these, where the policy shows them; a link may be another one meanwhile.
pub(crate) fn lies_in<'a>(real: &Path, mut shown: impl Iterator<Item = &'a Path>) -> bool {
    is_tool(real) || shown.any(|from| from.canonicalize().is_ok_and(|from| real.starts_with(from)))
}

/// Something of the host's that is shown.
struct Place {
    from: PathBuf,
    real: PathBuf,
    to: PathBuf,
}

impl Place {
    fn shows(&self, path: &Path, own_tree: bool) -> bool {
        let Ok(below) = path.strip_prefix(&self.real) else { return false };
        let is_same = || if below == Path::new("") { self.to == path } else { self.to.join(below) == path };
        !own_tree || is_same()
    }
}

fn places_of(policy: &Policy) -> Vec<Place> {
    let grants = policy.fs.read.iter().chain(&policy.fs.write).map(|grant| (&grant.from, Some(&grant.to)));
    let workspace = policy.workspace.path.iter().map(|path| (path, policy.workspace_at()));
    let place = |(from, to): (&PathBuf, Option<&PathBuf>)| {
        Some(Place { from: from.clone(), real: from.canonicalize().ok()?, to: to.unwrap_or(from).clone() })
    };
    grants.chain(workspace).filter_map(place).collect()
}

/// A name below the host's own folders, links and all. In `/etc` lie the links by which one of several programs is chosen.
fn of_the_host(path: &Path) -> bool {
    super::is_of_the_system(path)
}

/// Whether a path without links lies in the host's own folders of programs.
fn is_tool(real: &Path) -> bool {
    TOOLS.iter().filter_map(|folder| Path::new(folder).canonicalize().ok()).any(|folder| real.starts_with(folder))
}

/// Where a path leads, if anything is there; else where it would lie. None behind a link that leads nowhere: whether that is so for want
/// of a file is not told.
fn real(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|above| match above.canonicalize() {
        Ok(real) => Some(
            path.strip_prefix(above).ok().map(|below| if below == Path::new("") { real } else { real.join(below) }),
        ),
        Err(_) if above.symlink_metadata().is_ok_and(|meta| meta.is_symlink()) => Some(None),
        Err(_) => None,
    })?
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::support::policy_of;

    /// The attack: a file of the host is a program of the list, and can be read for that.
    #[test]
    fn a_list_of_programs_shows_nothing_that_is_not_shown_anyway() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["closed", "work"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        std::fs::write(root.join("closed/key"), "").unwrap();
        std::fs::write(root.join("work/tool"), "").unwrap();
        for (to, name) in [
            ("closed/key", "work/out"),
            ("closed/none", "work/nowhere"),
            ("closed", "work/folder"),
            ("work/tool", "work/within"),
            ("work/tool", "way-in"),
            ("work", "entry"),
        ] {
            symlink(root.join(to), root.join(name)).unwrap();
        }
        let root = root.display().to_string();
        let refused = |path: &str, more: &str| {
            let policy =
                policy_of(&format!("{more}\n[fs]\nexec = ['/usr/bin/env', '{}']", path.replace("ROOT", &root)));
            let answers = [true, false].map(|own_tree| super::refused(&policy, own_tree).is_some());
            assert_eq!(answers[0], answers[1], "{path} {more}");
            answers[0]
        };
        let workspace = format!("[workspace]\npath = '{root}/work'\nat = 'same'\nmode = 'ro'");
        let linked = format!("[workspace]\npath = '{root}/entry'\nat = '{root}/work'\nmode = 'ro'");
        for more in ["", &workspace, &linked] {
            // One answer for what is there and what is not.
            for path in [
                "ROOT",
                "ROOT/closed",
                "ROOT/closed/key",
                "ROOT/closed/none",
                "ROOT/none/x",
                "/root/x",
                "/etc/passwd",
                "/",
            ] {
                assert!(refused(path, more), "{path} {more}");
            }
            for path in [
                "ROOT/work/out",
                "ROOT/work/nowhere",
                "ROOT/work/nowhere/x",
                "ROOT/work/folder/key",
                "ROOT/work/folder/none",
            ] {
                assert!(refused(path, more), "{path} {more}");
            }
            assert!(refused("ROOT/way-in", more), "by no name that is shown");
            for path in ["/usr/bin/true", "/bin/true", "/usr/bin", "/usr/bin/no-such-program"] {
                assert!(!refused(path, more), "{path} {more}");
            }
            for path in ["ROOT/work/tool", "ROOT/work/within", "ROOT/work"] {
                assert_eq!(refused(path, more), more.is_empty(), "{path} {more}");
            }
        }
        // Elsewhere inside: it is there on the process tier alone, which refuses such a grant by itself.
        let moved = policy_of(&format!(
            "[fs]\nexec = ['{root}/work/tool']\n[[fs.read]]\nfrom = '{root}/work'\nto = '/opt/work'"
        ));
        assert_eq!((unshown(&moved, true).is_some(), unshown(&moved, false).is_some()), (true, false));
    }

    #[test]
    fn what_a_name_leads_to_at_the_start_is_judged_once_more() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let shown = [root.as_path()];
        assert!(lies_in(&root.join("tool"), shown.into_iter()) && lies_in(Path::new("/usr/bin/env"), [].into_iter()));
        assert!(!lies_in(Path::new("/root/key"), shown.into_iter()));
    }
}
