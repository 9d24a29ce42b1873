//! `[commands]`: lines are judged by the broker, and the kernel holds what they come to.

use std::path::{Path, PathBuf};

use policy::Support;
use policy::control::Control;
use policy::value::{Policy, Root, TOOLS, WorkspaceMode};

use super::{held, held_with, shown, unmet};
use crate::host::Capabilities;

/// Whether a path lies in one of the system's own folders, of which every program may read what it needs.
pub(crate) fn is_of_the_system(path: &Path) -> bool {
    TOOLS.iter().chain(&["/etc"]).any(|folder| path.starts_with(folder))
}

/// The places that a policy lists, as the program sees them.
pub(crate) struct Lists {
    write: Vec<PathBuf>,
    /// None: all that is shown.
    read: Option<Vec<PathBuf>>,
}

/// Lines are judged by the broker; the list of executables is held by the kernel too, as `fs.exec`, and what may be read and written
/// to.
/// `noexec`: what keeps written files from being executed, which the dynamic loader would do with what it reads.
/// `unheld`: why this tier's kernel rules would not hold these lists, if so.
pub(crate) fn held_by(
    policy: &Policy,
    host: &Capabilities,
    noexec: Control,
    unheld: impl FnOnce(&Policy, &Lists) -> Option<Support>,
) -> Support {
    let Some(commands) = &policy.commands else { return Support::NotAsked };
    if matches!(policy.fs.root, Root::Empty | Root::Image(_)) {
        return unmet(
            "commands/no-tree",
            "programs are looked up before the run: an empty root has none, and in an image they are not looked up yet",
            "use `fs.root = \"host\"` or `\"dir:PATH\"`",
        );
    }
    if !commands.exec {
        return held(Control::CommandGate);
    }
    if !matches!(policy.fs.root, Root::Host) {
        return unmet(
            "commands/no-kernel-list",
            "the kernel's list of executables is made for the host's own tree",
            "use `fs.root = \"host\"`, or say `commands.exec = false`: then the broker alone judges",
        );
    }
    if host.landlock == 0 {
        return unmet(
            "commands/no-kernel-list",
            "this kernel has no Landlock, which holds the list of executables",
            "boot a kernel with Landlock, or say `commands.exec = false`: then the broker alone judges",
        );
    }
    let at = policy.commands_at();
    let lists = Lists { write: commands.write_folders(&at), read: commands.read_folders(&at) };
    if let Some(unheld) = unheld(policy, &lists) {
        return unheld;
    }
    let (abi, files) = (host.landlock, policy.fs.exec.clone().unwrap_or_default());
    let read = lists.read.map(|folders| Control::ReadFolders { abi, folders });
    let write = Control::WriteFolders { abi, folders: lists.write };
    let lists = [Control::Executables { abi, files }].into_iter().chain(read).chain([write, noexec]);
    held_with(Control::CommandGate, lists)
}

/// What is done with a place, in words, and which list names where it may be done.
#[derive(Clone, Copy)]
enum Done {
    Read,
    Written,
}

impl Done {
    const fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::Read => ("read", "commands.read"),
            Self::Written => ("written to", "commands.write"),
        }
    }
}

/// Container tier: a tree of the host that is not listed, and is shown within a place that is written to or read anyhow: rights of
/// Landlock add up along a path.
pub(crate) fn within_own(policy: &Policy, lists: &Lists) -> Option<Support> {
    let is_own = |at: &Path| shown::is_own(policy, at);
    let writable = policy.workspace.mode != WorkspaceMode::Ro;
    let written = policy.fs.write.iter().map(|grant| &grant.to).chain(policy.workspace_at().filter(|_| writable));
    let written = unlisted(written, &lists.write, is_own).map(|place| (place, Done::Written));
    let read = || {
        let list = lists.read.as_ref()?;
        let open = |at: &Path| is_own(at) || is_of_the_system(at);
        unlisted(shown(policy), list, open).map(|place| (place, Done::Read))
    };
    let (place, done) = written.or_else(read)?;
    let (done, list) = done.describe();
    Some(unmet(
        "commands/within-own",
        format!("`{}` lies in a place of the run's own or of the system, all of which can be {done}", place.display()),
        format!("show it elsewhere (`workspace.at`, `FROM:TO`), name it in `{list}`, or say `commands.exec = false`"),
    ))
}

/// Process tier: the copy of a workspace lies in the run's own folder, and a grant can lie in the system's: rights of Landlock add up
/// along a path.
pub(crate) fn within_folder(policy: &Policy, lists: &Lists) -> Option<Support> {
    let copied = policy.workspace.mode == WorkspaceMode::Copy;
    let every =
        |list, done| unlisted(policy.workspace_at().filter(|_| copied).into_iter(), list, |_| true).map(|_| done);
    let read = lists.read.as_ref();
    let done = every(&lists.write, Done::Written).or_else(|| every(read?, Done::Read));
    if let Some((done, list)) = done.map(Done::describe) {
        return Some(unmet(
            "commands/within-own",
            format!("the copy of the workspace lies in the run's own folder, all of which can be {done}"),
            format!("use `--tier container`, name the workspace in `{list}`, or say `commands.exec = false`"),
        ));
    }
    let place = unlisted(shown(policy), read?, is_of_the_system)?;
    Some(unmet(
        "commands/within-own",
        format!("`{}` lies in a folder of the system, of which every program reads what it needs", place.display()),
        "name it in `commands.read`, or say `commands.exec = false`",
    ))
}

/// The first of these that no list names, and that lies in what is open to every program.
fn unlisted<'a>(
    mut places: impl Iterator<Item = &'a PathBuf>,
    list: &[PathBuf],
    open: impl Fn(&Path) -> bool,
) -> Option<&'a PathBuf> {
    places.find(|at| open(at) && !list.iter().any(|folder| at.starts_with(folder)))
}

/// All that the policy shows of the host's files.
fn shown(policy: &Policy) -> impl Iterator<Item = &PathBuf> {
    policy.fs.read.iter().chain(&policy.fs.write).map(|grant| &grant.to).chain(policy.workspace_at())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::policy_of;

    fn lists(write: &[&str], read: Option<&[&str]>) -> Lists {
        let list = |list: &[&str]| list.iter().map(PathBuf::from).collect();
        Lists { write: list(write), read: read.map(list) }
    }

    /// Why the lists are not held, if so.
    fn why(answer: Option<Support>) -> Option<String> {
        match answer? {
            Support::Unmet(unmet) => {
                assert_eq!(unmet.id, "commands/within-own");
                Some(unmet.fix)
            }
            Support::Held(_) | Support::NotAsked => panic!("only a refusal is an answer here"),
        }
    }

    /// A workspace that is shown where it lies can lie in a place of the run's own as well as one that is shown there.
    #[test]
    fn a_workspace_in_a_place_of_the_runs_own_is_known_wherever_it_is_shown() {
        let refused = |path: &str, at: Option<&str>, mode, folder: &str| {
            let mut policy = policy_of("");
            policy.workspace.path = Some(PathBuf::from(path));
            policy.workspace.at = at.map(PathBuf::from);
            policy.workspace.mode = mode;
            let written = why(within_own(&policy, &lists(&[folder], None)));
            let read = why(within_own(&policy, &lists(&["/"], Some(&[folder]))));
            assert!(written.is_none_or(|fix| fix.contains("`commands.write`")));
            (why(within_own(&policy, &lists(&[folder], None))).is_some(), read.is_some())
        };
        let overlay = WorkspaceMode::Overlay;
        assert_eq!(refused("/tmp/w", None, overlay, "/tmp/w/build"), (true, true), "shown where it lies");
        assert_eq!(refused("/srv/w", Some("/tmp/w"), overlay, "/tmp/w/build"), (true, true), "shown there");
        assert_eq!(refused("/tmp/w", Some("/srv/w"), overlay, "/srv/w/build"), (false, false), "shown elsewhere");
        assert_eq!(refused("/srv/w", None, overlay, "/srv/w/build"), (false, false));
        assert_eq!(refused("/tmp/w", None, overlay, "/tmp/w"), (false, false), "all of it is listed");
        assert_eq!(refused("/tmp/w", None, WorkspaceMode::Ro, "/tmp/w/build"), (false, true), "nothing is written");
        assert_eq!(refused("/tmp/w", None, WorkspaceMode::None, "/tmp/w/build"), (false, false), "nothing is shown");
    }

    #[test]
    fn a_grant_that_is_left_out_where_every_program_reads_is_refused_on_both_tiers() {
        let granted = |path: &str| policy_of(&format!("fs.read = [\"{path}\"]"));
        for within in ["/usr/share/x", "/etc/x", "/bin/x"] {
            let policy = granted(within);
            for asked in [within_own, within_folder] {
                let left_out = why(asked(&policy, &lists(&[], Some(&["/srv"]))));
                assert!(left_out.is_some_and(|fix| fix.contains("`commands.read`")), "{within}");
                assert_eq!(why(asked(&policy, &lists(&[], Some(&[within])))), None, "it is listed");
                assert_eq!(why(asked(&policy, &lists(&[], None))), None, "nothing is left out");
            }
        }
        let elsewhere = granted("/opt/data");
        assert_eq!(why(within_own(&elsewhere, &lists(&[], Some(&[])))), None);
        assert_eq!(why(within_folder(&elsewhere, &lists(&[], Some(&[])))), None);
        let own = granted("/run/x");
        assert!(why(within_own(&own, &lists(&[], Some(&[])))).is_some());
        assert_eq!(why(within_folder(&own, &lists(&[], Some(&[])))), None, "it has no such place");
    }

    #[test]
    fn a_copy_on_the_process_tier_is_read_and_written_whole() {
        let mut policy = policy_of("");
        policy.workspace.path = Some(PathBuf::from("/srv/w"));
        // Where it is not said, it is shown where it lies on this tier.
        policy.workspace.at = None;
        policy.workspace.mode = WorkspaceMode::Copy;
        let of = |write: &[&str], read: Option<&[&str]>| why(within_folder(&policy, &lists(write, read)));
        assert!(of(&["/srv/w/build"], None).is_some_and(|fix| fix.contains("`commands.write`")));
        assert!(of(&["/srv/w"], Some(&["/srv/w/src"])).is_some_and(|fix| fix.contains("`commands.read`")));
        assert_eq!(of(&["/srv/w"], Some(&["/srv/w"])), None);
        assert_eq!(of(&["/srv/w"], None), None);
    }
}
