//! Places inside on which nothing can be mounted: a link of ours lies there, or what lies there is a file and what is to be shown a
//! folder, or the other way round.

use std::path::{Path, PathBuf};

use policy::value::{Grant, Policy, Root, TOOLS, WorkspaceMode};
use policy::{ClauseId, Support};

use super::unmet;
use crate::etc;

/// The refusal of a clause that shows something where it cannot be shown.
pub(super) fn taken(policy: &Policy, clause: ClauseId) -> Option<Support> {
    let workspace = workspace(policy);
    let grants = if clause == ClauseId::FsRead {
        policy.fs.read.iter()
    } else if clause == ClauseId::FsWrite {
        policy.fs.write.iter()
    } else {
        workspace.as_slice().iter()
    };
    let why = grants.filter_map(|grant| why(policy, grant)).next()?;
    let fix = "show it elsewhere: FROM:TO in a flag, `to` in a document, `workspace.at`";
    Some(unmet("place/taken", why, fix))
}

fn why(policy: &Policy, Grant { from, to, .. }: &Grant) -> Option<String> {
    let home = Path::new("/home").join(&policy.process.user);
    let links = [home.as_path(), Path::new("/var/tmp")];
    if links.contains(&to.as_path()) {
        return Some(format!(
            "`{}` inside is a link into `/tmp`, so that one limit holds both: what lies below it can be shown, and nothing instead of it",
            to.display()
        ));
    }
    let folder = from.metadata().ok()?.is_dir();
    let there = links.iter().any(|link| link.starts_with(to)) || there(policy, to)?.metadata().ok()?.is_dir();
    (folder != there).then(|| {
        let kind = |folder: bool| if folder { "folder" } else { "file" };
        format!(
            "`{}` is a {}, and at `{}` inside is a {}: one cannot be mounted on the other",
            from.display(),
            kind(folder),
            to.display(),
            kind(there)
        )
    })
}

fn workspace(policy: &Policy) -> Option<Grant> {
    let from = policy.workspace.path.clone().filter(|_| policy.workspace.mode != WorkspaceMode::None)?;
    let to = policy.workspace.at.clone().unwrap_or_else(|| from.clone());
    Some(Grant { from, to, dangerous: false })
}

/// What of the host is seen at a place inside: by the innermost of what lies around it.
fn there(policy: &Policy, to: &Path) -> Option<PathBuf> {
    let host = policy.fs.root == Root::Host;
    let tools = TOOLS.iter().map(PathBuf::from);
    let own = tools.chain(etc_entry(to)).filter(|_| host).map(|place| (place.clone(), place));
    let grants = policy.fs.read.iter().chain(&policy.fs.write).map(|grant| (grant.to.clone(), grant.from.clone()));
    // What a layer hides is not there, and which that is depends on what is in the folder.
    let hides = |_: &Grant| policy.fs.hide.is_empty();
    let workspace = workspace(policy).filter(hides).map(|grant| (grant.to, grant.from));
    let around = own.chain(grants).chain(workspace).filter_map(|(at, from)| {
        let depth = at.components().count();
        match to.strip_prefix(&at).ok()? {
            // A grant is not around itself; of the root's own trees the top is there as well.
            top if top == Path::new("") => (at == from).then_some((depth, from)),
            below => Some((depth, from.join(below))),
        }
    });
    around.max_by_key(|(depth, _)| *depth).map(|(_, there)| there)
}

/// The entry of `/etc` around a place, if a run has it.
fn etc_entry(to: &Path) -> Option<PathBuf> {
    let name = to.strip_prefix("/etc").ok()?.components().next()?.as_os_str().to_str()?.to_owned();
    let shown = !etc::shown(std::slice::from_ref(&name)).is_empty() || etc::SYNTHETIC.contains(&name.as_str());
    shown.then(|| Path::new("/etc").join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::policy_of;

    fn refused(text: &str, clause: ClauseId) -> Option<String> {
        match taken(&policy_of(text), clause)? {
            Support::Unmet(unmet) => Some(unmet.why),
            other @ (Support::NotAsked | Support::Held(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_is_shown_instead_of_the_home_folder_and_below_it_anything() {
        for to in ["/home/user", "/var/tmp"] {
            for from in ["/usr/share", "/etc/services"] {
                let grant = format!("[{{ from = '{from}', to = '{to}' }}]");
                assert!(refused(&format!("fs.read = {grant}"), ClauseId::FsRead).is_some(), "{from} {to}");
                assert!(refused(&format!("fs.write = {grant}"), ClauseId::FsWrite).is_some(), "{from} {to}");
                assert_eq!(refused(&format!("fs.read = {grant}"), ClauseId::FsWrite), None);
                let below = format!("fs.read = [{{ from = '{from}', to = '{to}/x' }}]");
                assert_eq!(refused(&below, ClauseId::FsRead), None, "{from} {to}");
            }
            let workspace = format!("[workspace]\npath = '/usr/share'\nat = '{to}'");
            assert!(refused(&workspace, ClauseId::Workspace).unwrap().contains("a link into `/tmp`"));
        }
        assert_eq!(refused("[workspace]\npath = '/usr/share'\nat = '/home/user/x'", ClauseId::Workspace), None);
        let other = "[process]\nuser = 'me'\n[[fs.read]]\nfrom = '/usr/share'\nto = '/home/user'";
        assert_eq!(refused(other, ClauseId::FsRead), None, "it is the home folder of nobody");
    }

    #[test]
    fn a_file_is_not_shown_on_a_folder_nor_a_folder_on_a_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let (root, file) = (dir.path().display().to_string(), dir.path().join("file").display().to_string());
        let read = |from: &str, to: &str, more: &str| {
            refused(&format!("{more}\n[[fs.read]]\nfrom = '{from}'\nto = '{to}'"), ClauseId::FsRead).is_some()
        };
        for to in ["/home", "/var", "/usr/local", "/usr", "/etc/ssl"] {
            assert!(read(&file, to, ""), "a file at {to}");
            assert!(!read(&root, to, ""), "a folder at {to}");
        }
        assert!(read(&root, "/etc/hosts", "") && !read(&file, "/etc/hosts", ""));
        assert!(!read(&file, "/srv/x", "") && !read(&root, "/srv/x", ""), "nothing is there");
        assert!(!read(&file, "/usr/local", "[fs]\nroot = 'empty'"), "nor is there in another root");
        let ws = format!("[workspace]\npath = '{root}'\nmode = 'ro'");
        assert!(read(&root, "/workspace/file", &ws) && read(&file, "/workspace/sub", &ws));
        assert!(!read(&file, "/workspace/file", &ws) && !read(&root, "/workspace/sub", &ws));
        let hidden = format!("[workspace]\npath = '{root}'\n[fs]\nhide = ['file']");
        assert!(!read(&root, "/workspace/file", &hidden), "what is hidden is not there");
        let nested = format!("[[fs.read]]\nfrom = '{root}'\nto = '/a'");
        assert!(read(&root, "/a/file", &nested) && !read(&file, "/a/file", &nested));
    }
}
