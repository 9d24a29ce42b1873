//! A folder that is replaced by a link after it was judged, and before it is shown: a caller who may write beside it can do that at
//! any moment.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use sandbox::{Capabilities, Environment, Error, Inputs, Options, PolicyLayer, Stdio, Workload};

/// What `cat` says of `file` in `sub`, whose policy shows `sub` by this clause of this tier; `meddle` is done between plan and
/// start.
fn printed(root: &Path, clause: (&str, &str), no_links: bool, meddle: impl FnOnce()) -> Result<String, Error> {
    let state = tempfile::tempdir().unwrap();
    let variables = [("PATH", "/usr/bin:/bin".into()), ("FUMEHOOD_STATE", state.path().join("state"))];
    let env: BTreeMap<OsString, OsString> =
        variables.into_iter().map(|(name, value)| (name.into(), value.into_os_string())).collect();
    let environment = Environment::new(Some("/".into()), env, rustix::process::geteuid().as_raw());
    let host = Capabilities::probe();
    let (tier, clause) = clause;
    let sub = root.join("sub");
    let shown = match clause {
        "workspace" => format!("workspace={{ path = {:?}, mode = \"ro\" }}", sub.to_str().unwrap()),
        _ => format!("{clause}=[{:?}]", sub.to_str().unwrap()),
    };
    // Nothing bounds what is written to a host without a quota.
    let set = [format!("tier={tier}"), shown, "prefer=[\"limits.disk\", \"limits.files\"]".to_owned()];
    let layers: Vec<_> = set.into_iter().map(PolicyLayer::Set).collect();
    let loaded = sandbox::load(&layers, &environment, Inputs::Now)?;
    // A workspace is where the program begins.
    let file = if clause == "workspace" { "file".into() } else { sub.join("file") };
    let argv = ["cat".into(), file.into_os_string()].to_vec();
    let planned = sandbox::plan(loaded, Workload::Argv(argv), &host)?;
    meddle();
    let options = Options { no_links, ..Options::new(Stdio::kept()) };
    let finished = sandbox::start(planned, &environment, &host, options)?.wait()?;
    let said = [finished.stdout.bytes, finished.stderr.bytes].concat();
    Ok(String::from_utf8(said).unwrap())
}

/// `sub` with a file, beside it `other` with one of the same name.
fn tree() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (name, text) in [("sub", "judged"), ("other", "elsewhere")] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("file"), text).unwrap();
    }
    folder
}

fn swap(root: &Path) {
    fs::rename(root.join("sub"), root.join("aside")).unwrap();
    symlink(root.join("other"), root.join("sub")).unwrap();
}

#[test]
fn what_became_a_link_after_it_was_judged_is_refused_and_not_followed() {
    for clause in [
        ("container", "fs.read"),
        ("container", "fs.write"),
        ("container", "workspace"),
        ("process", "fs.read"),
        ("process", "workspace"),
    ] {
        let folder = tree();
        let root = folder.path().canonicalize().unwrap();
        let refused = printed(&root, clause, true, || swap(&root)).unwrap_err();
        let Error::Refused(faults) = &refused else { panic!("{clause:?}: {refused:?}") };
        assert_eq!((faults[0].id, &*faults[0].place), ("run/path", &*format!("`{}`", clause.1)), "{clause:?}");
        assert!(faults[0].why.contains("leads through a link"), "{clause:?}: {faults:?}");
    }
}

#[test]
fn without_that_demand_the_link_is_followed_and_with_it_a_plain_folder_is_shown() {
    for clause in [("container", "fs.read"), ("container", "workspace"), ("process", "fs.read")] {
        let folder = tree();
        let root = folder.path().canonicalize().unwrap();
        assert_eq!(printed(&root, clause, true, || {}).unwrap(), "judged", "{clause:?}");
        assert_eq!(printed(&root, clause, false, || swap(&root)).unwrap(), "elsewhere", "{clause:?}");
    }
}

/// The attack: a dangerous place by another mount (`mount --bind`). The tests have a mount namespace of their own.
#[test]
fn a_second_mount_of_a_dangerous_place_is_as_dangerous() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let (home, other) = (root.join("home"), root.join("other"));
    for name in ["home/.ssh/keys", "home/work/plain", "other"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    let variables = [("HOME", home.clone()), ("FUMEHOOD_STATE", root.join("state"))];
    let env: BTreeMap<OsString, OsString> =
        variables.into_iter().map(|(name, value)| (name.into(), value.into_os_string())).collect();
    let environment = Environment::new(Some("/".into()), env, rustix::process::geteuid().as_raw());
    let why = |clause: &str, path: &Path| {
        let set = PolicyLayer::Set(format!("fs.{clause}=[{:?}]", path.to_str().unwrap()));
        match sandbox::load(&[set], &environment, Inputs::Now) {
            Ok(_) => None,
            Err(Error::Mistakes(mistakes)) => {
                Some(mistakes.list.into_iter().map(|mistake| mistake.id).collect::<String>())
            }
            Err(other) => panic!("{other:?}"),
        }
    };
    for (shown, below) in [("", ""), ("", ".ssh/keys"), (".ssh", ""), (".ssh/keys", "")] {
        rustix::mount::mount_bind(home.join(shown), &other).unwrap();
        let path = other.join(below);
        assert_eq!(why("read", &path).as_deref(), Some("grant/dangerous"), "{shown} {below}");
        assert_eq!(why("dangerous-read", &path), None, "{shown} {below}");
        rustix::mount::unmount(&other, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
    rustix::mount::mount_bind(home.join("work/plain"), &other).unwrap();
    assert_eq!(why("read", &other), None);
    rustix::mount::unmount(&other, rustix::mount::UnmountFlags::DETACH).unwrap();
}
