//! What a sandbox that is ready was proven with, and what is asked for: they must be the same.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use policy::planning::policy_digest;
use policy::value::{NetMode, Policy, Root, TOOLS, Tier, WorkspaceMode};
use policy::{Loaded, value::Fs};
use sandbox::{Environment, Inputs, PolicyLayer, load, system_stores};
use sys::proc::{Mount, Process};

use super::spare::Spare;
use crate::create::Request;

/// A path of the host that a policy names, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PathStamp {
    path: PathBuf,
    /// Device and inode.
    file: (u64, u64),
    /// Its mode, owner and group: whether a start could read it.
    rights: (u32, u32, u32),
    /// Its last change, where its content was copied.
    changed: Option<(i64, i64)>,
    /// Numbers and places of what is mounted there and below: a start shows none of it, or is refused.
    mounts: Vec<(u64, String)>,
}

/// The files of the host behind a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Files(Vec<PathStamp>);

/// What is asked for, read now.
#[derive(Debug)]
pub(super) struct Proof {
    loaded: Loaded,
    pub(super) files: Files,
}

impl Proof {
    /// Of a request; none where it cannot be read, or no sandbox can be made ready for it.
    pub(super) fn now(request: &Request, environment: &Environment) -> Option<Self> {
        let layers: Vec<PolicyLayer> = request.layers.iter().cloned().map(PolicyLayer::from).collect();
        let loaded = load(&layers, environment, Inputs::Now).ok()?;
        let files = Files::of(&loaded.policy)?;
        Some(Self { loaded, files })
    }

    /// Name and digest of the policy on a tier, as `Info` has it; none of a tier that has no live sandboxes.
    pub(super) fn policy_on(&self, tier: &str) -> Option<String> {
        let tier = [Tier::Container, Tier::Process].into_iter().find(|one| one.as_str() == tier)?;
        let policy = self.loaded.policy_on(tier);
        Some(format!("{} {}", policy.name, policy_digest(&policy)))
    }

    /// Whether a sandbox was made ready with exactly this.
    pub(super) fn is_of(&self, spare: &Spare) -> bool {
        self.files == spare.files && self.policy_on(&spare.parked.tier).as_ref() == Some(&spare.parked.policy)
    }
}

impl Files {
    /// Those that a policy names. None where what a start makes of them could differ from what it would make of them later:
    /// a workspace that is not an empty copy, what is written to the host, what is searched for names to hide,
    /// inputs and secrets, which are read at the start.
    pub(super) fn of(policy: &Policy) -> Option<Self> {
        let Fs { root, read, write, hide, .. } = &policy.fs;
        let given = !policy.inputs.is_empty() || !policy.secrets.is_empty();
        if !write.is_empty() || !hide.is_empty() || given {
            return None;
        }
        let mounted = Process::own().and_then(|own| own.mounts()).ok()?;
        let one = |path: &Path| one(path, &mounted);
        let read_then = |path: &Path| read_then(path, &mounted);
        let mut named = Vec::new();
        match (policy.workspace.mode, &policy.workspace.path) {
            (WorkspaceMode::None, _) => {}
            (WorkspaceMode::Copy, Some(path)) => named.push(empty(read_then(path)?)?),
            (WorkspaceMode::Copy | WorkspaceMode::Ro | WorkspaceMode::Rw | WorkspaceMode::Overlay, _) => return None,
        }
        match root {
            Root::Empty => {}
            Root::Host => named.extend(TOOLS.iter().chain(&["/etc"]).filter_map(|path| one(Path::new(path)))),
            // Which names it has was read.
            Root::Dir(path) => named.push(read_then(path)?),
            // Its digest is in that of the policy, and its tree is read for each that is made ready.
            Root::Image(_) => {}
        }
        for grant in read {
            named.push(one(&grant.from)?);
        }
        for path in &policy.net.ca {
            named.push(read_then(path)?);
        }
        // Whom its network trusts was read when it was made ready. What is not there is no part of it, and is once it comes.
        named.extend(policy.documents.0.iter().filter_map(|path| read_then(path)));
        if policy.net.mode == NetMode::Allow {
            named.extend(system_stores().filter_map(read_then));
        }
        Some(Self(named))
    }

    /// Whether each of them is the one that it was.
    pub(super) fn are_still_there(&self) -> bool {
        let Ok(mounted) = Process::own().and_then(|own| own.mounts()) else { return false };
        let now = |then: &PathStamp| match then.changed {
            Some(_) => read_then(&then.path, &mounted),
            None => one(&then.path, &mounted),
        };
        self.0.iter().all(|then| now(then).as_ref() == Some(then))
    }
}

fn one(path: &Path, mounted: &[Mount]) -> Option<PathStamp> {
    stamp(path, &path.metadata().ok()?, mounted)
}

fn stamp(path: &Path, meta: &Metadata, mounted: &[Mount]) -> Option<PathStamp> {
    let (file, rights) = ((meta.dev(), meta.ino()), (meta.mode(), meta.uid(), meta.gid()));
    Some(PathStamp { path: path.to_owned(), file, rights, changed: None, mounts: mounts(path, mounted)? })
}

/// What is mounted at a path or below it.
fn mounts(path: &Path, mounted: &[Mount]) -> Option<Vec<(u64, String)>> {
    let real = path.canonicalize().ok()?;
    let below = mounted.iter().filter(|mount| Path::new(&mount.point).starts_with(&real));
    Some(below.map(|mount| (mount.id, mount.point.clone())).collect())
}

/// What was read of it is in the sandbox that is ready: a later change is not, and moves its time.
fn read_then(path: &Path, mounted: &[Mount]) -> Option<PathStamp> {
    let meta = path.metadata().ok()?;
    Some(PathStamp { changed: Some((meta.ctime(), meta.ctime_nsec())), ..stamp(path, &meta, mounted)? })
}

/// A folder with nothing in it; any name that comes or goes changes its time.
fn empty(folder: PathStamp) -> Option<PathStamp> {
    let nothing = folder.path.read_dir().ok()?.next().is_none();
    nothing.then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(folder: &Path, layers: &[&str]) -> Option<Proof> {
        let layers = layers.iter().map(|set| crate::create::Layer::Set((*set).to_owned())).collect();
        let request = Request { layers, ..Request::default() };
        Proof::now(&request, &Environment::new(Some(folder.to_owned()), std::collections::BTreeMap::new(), 1000))
    }

    #[test]
    fn only_what_a_later_start_would_make_the_same_of_can_be_made_ready() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w");
        std::fs::create_dir(&path).unwrap();
        let text = path.to_str().unwrap();
        let workspace = |mode: &str| format!("workspace={{ path = \"{text}\", mode = \"{mode}\" }}");
        assert!(proof(folder.path(), &[]).is_some());
        assert!(proof(folder.path(), &[&workspace("copy")]).is_some(), "an empty copy");
        for mode in ["ro", "rw", "overlay"] {
            assert!(proof(folder.path(), &[&workspace(mode)]).is_none(), "{mode}");
        }
        assert!(proof(folder.path(), &[&format!("fs.write=[\"{text}\"]")]).is_none());
        assert!(proof(folder.path(), &["fs.hide=[\"**/.env\"]"]).is_none());
        assert!(proof(folder.path(), &["limits.memory=1"]).is_none(), "what is refused starts cold, and is told there");
        std::fs::write(path.join("file"), "").unwrap();
        assert!(proof(folder.path(), &[&workspace("copy")]).is_none(), "a copy of something");
    }

    #[test]
    fn another_policy_and_another_file_under_the_same_name_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tool");
        std::fs::write(&file, "1").unwrap();
        let read = format!("fs.read=[\"{}\"]", file.display());
        let before = proof(folder.path(), &[&read]).unwrap();
        let same = proof(folder.path(), &[&read]).unwrap();
        assert_eq!((&same.files, same.policy_on("container")), (&before.files, before.policy_on("container")));
        let other = proof(folder.path(), &[&read, "limits.pids=7"]).unwrap();
        assert_ne!(other.policy_on("container"), before.policy_on("container"));
        let next = folder.path().join("next");
        std::fs::write(&next, "2").unwrap();
        std::fs::rename(&next, &file).unwrap();
        assert_ne!(proof(folder.path(), &[&read]).unwrap().files, before.files);
        assert_eq!(before.policy_on("vm"), None);
    }

    #[test]
    fn what_was_read_of_certificates_and_of_a_root_is_another_when_it_was_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (root, file) = (folder.path().join("root"), folder.path().join("ca.pem"));
        std::fs::create_dir(&root).unwrap();
        std::fs::write(&file, "1").unwrap();
        let layers = [format!("fs.root=\"dir:{}\"", root.display()), format!("net.ca=[\"{}\"]", file.display())];
        let now = || proof(folder.path(), &layers.each_ref().map(String::as_str)).unwrap().files;
        let changed = |change: &dyn Fn()| {
            let before = now();
            assert_eq!(now(), before);
            // The clock of a file system is coarse.
            while now() == before {
                change();
            }
        };
        changed(&|| std::fs::write(&file, "2").unwrap());
        let name = root.join("bin");
        changed(&|| {
            std::fs::write(&name, "").unwrap();
            std::fs::remove_file(&name).unwrap();
        });
    }

    /// The password of a proxy is in no digest.
    #[test]
    fn a_document_with_another_login_of_a_proxy_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("template.toml");
        let write = |login: &str| {
            let net =
                format!("[net]\nmode = \"allow\"\nallow = [\"a.test\"]\nproxy = \"http://{login}@proxy.test:3128\"");
            std::fs::write(&path, format!("version = 1\n{net}\n")).unwrap();
        };
        let environment = Environment::new(Some(folder.path().to_owned()), std::collections::BTreeMap::new(), 1000);
        let layers = vec![crate::create::Layer::Document(path.to_str().unwrap().to_owned())];
        let now = || Proof::now(&Request { layers: layers.clone(), ..Request::default() }, &environment).unwrap();
        write("me:old");
        let before = now();
        assert!(before.files.are_still_there());
        // The clock of a file system is coarse.
        while before.files.are_still_there() {
            write("me:new");
        }
        let after = now();
        assert_eq!(after.policy_on("container"), before.policy_on("container"));
        assert_ne!(after.files, before.files, "so that what was made ready with the old one is not taken");
    }

    #[test]
    fn whom_the_network_trusts_is_another_when_its_store_was_changed() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.pem");
        let variables = [("SSL_CERT_FILE".into(), store.clone().into())].into();
        let environment = Environment::new(Some(folder.path().to_owned()), variables, 1000);
        let now = |net: &[&str]| {
            let layers = net.iter().map(|set| crate::create::Layer::Set((*set).to_owned())).collect();
            Proof::now(&Request { layers, ..Request::default() }, &environment).unwrap().files
        };
        let (hosts, none) = (&["net.mode=\"allow\"", "net.allow=[\"a.test\"]"], &["net.mode=\"none\""]);
        let (missing, closed) = (now(hosts), now(none));
        std::fs::write(&store, "1").unwrap();
        let before = now(hosts);
        assert_ne!(before, missing);
        // The clock of a file system is coarse.
        while now(hosts) == before {
            std::fs::write(&store, "2").unwrap();
        }
        assert_eq!(now(none), closed, "no network, no store");
    }

    #[test]
    fn a_folder_that_was_not_empty_meanwhile_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let now = || empty(read_then(folder.path(), &[])?);
        let before = now().unwrap();
        assert_eq!(now().unwrap(), before);
        let file = folder.path().join("file");
        // The clock of a file system is coarse.
        while now().is_none_or(|now| now == before) {
            std::fs::write(&file, "").unwrap();
            std::fs::remove_file(&file).unwrap();
        }
    }

    #[test]
    fn what_a_start_would_refuse_is_seen_rights_and_what_is_mounted_below() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let read = format!("fs.read=[\"{}\"]", folder.path().display());
        let before = proof(folder.path(), &[&read]).unwrap().files;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o500)).unwrap();
        assert_ne!(proof(folder.path(), &[&read]).unwrap().files, before);
        let real = folder.path().canonicalize().unwrap();
        let mounted = |id: u64, at: &str| {
            sys::proc::parse_mountinfo(&format!("{id} 1 0:1 / {}{at} rw - tmpfs none rw\n", real.display())).unwrap()
        };
        let below = |mounted: &[Mount]| mounts(folder.path(), mounted).unwrap().len();
        assert_eq!([below(&mounted(7, "/under")), below(&mounted(7, "")), below(&mounted(7, "-beside"))], [1, 1, 0]);
        assert_ne!(mounts(folder.path(), &mounted(7, "/under")), mounts(folder.path(), &mounted(8, "/under")));
    }
}
