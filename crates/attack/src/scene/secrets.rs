//! Scenes whose judge is a secret that must not come out.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::rc::Rc;

use ::probe::{ipc, net};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::{Layout, Scene, SceneVerdict, by_token};
use crate::confined::{Observed, ProbeCall};
use crate::probe::Try;

/// A secret, and what carries it.
struct Secret {
    token: String,
    what: &'static str,
    fds: Vec<(Rc<OwnedFd>, i32)>,
    stdin: Option<Rc<OwnedFd>>,
    directory: Option<PathBuf>,
    env: bool,
    /// A grant at its own path would show what is looked for, as the user asked.
    ungranted: bool,
    /// Host files to remove at the end.
    remove: Vec<PathBuf>,
    segment: Option<i32>,
    queue: Option<String>,
}

impl Secret {
    fn new(layout: &Layout<'_>, what: &'static str) -> Self {
        Self {
            token: layout.token.clone(),
            what,
            fds: Vec::new(),
            stdin: None,
            directory: None,
            env: false,
            ungranted: false,
            remove: Vec::new(),
            segment: None,
            queue: None,
        }
    }
}

impl Scene for Secret {
    fn arrange(&mut self, call: &mut ProbeCall) {
        call.fds.extend(self.fds.iter().cloned());
        call.stdin.clone_from(&self.stdin);
        call.directory.clone_from(&self.directory);
        if self.ungranted {
            call.read.clear();
        }
        if self.env {
            call.env.push(("FUMEHOOD_ATTACK_TOKEN".to_owned(), self.token.clone().into()));
        }
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        by_token(observed, tries, &self.token, self.what)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        for path in &self.remove {
            if std::fs::remove_file(path).is_err() {
                // Somebody else removed it: what counts is that it is gone.
                continue;
            }
        }
        if let Some(key) = self.segment {
            let _gone = ipc::remove_segment(key);
        }
        if let Some(Ok(name)) = self.queue.as_deref().map(std::ffi::CString::new) {
            let _gone = ipc::remove_queue(&name);
        }
    }
}

type SceneResult = io::Result<Box<dyn Scene>>;

/// A file outside every grant; links in the workspace point to it.
pub(super) fn canary(layout: &mut Layout<'_>, detail: &str) -> SceneResult {
    if detail == "hidden" {
        let token = layout.token.clone();
        layout.stage.file("ws/.env", token)?;
    }
    if detail == "hidden-grant" {
        layout.stage.file("granted/.env", &layout.token)?;
    }
    if detail == "closed" {
        return closed(layout);
    }
    if detail == "appears" {
        let path = layout.workspace.join("sub/.env");
        return Ok(Box::new(Appears { secret: Secret::new(layout, "a file that came later"), path }));
    }
    if detail == "link-chain" {
        symlink("link-to-secret", layout.workspace.join("second"))?;
    }
    Ok(Box::new(Secret::new(layout, "the secret of a file that nobody granted")))
}

/// A file of root in a workspace of somebody else, who may not read it: the program inside has that user's rights.
fn closed(layout: &mut Layout<'_>) -> SceneResult {
    let path = layout.stage.file("ws/closed.txt", &layout.token)?;
    rustix::fs::chown(&path, Some(rustix::fs::Uid::ROOT), Some(rustix::fs::Gid::ROOT))?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
    Ok(Box::new(Secret::new(layout, "a file that is closed to the owner of the workspace")))
}

/// The host makes a file while the probe runs.
struct Appears {
    secret: Secret,
    path: PathBuf,
}

impl Scene for Appears {
    fn watch(&mut self, moment: &crate::confined::Moment<'_>) {
        if !moment.tasks.is_empty() && self.path.symlink_metadata().is_err() {
            // Everybody may read it, so that its owner is not what stops a probe. One that cannot be made leaves the
            // control without a leak, and the row without a verdict.
            let made = std::fs::write(&self.path, &self.secret.token);
            drop(made.and_then(|()| std::fs::set_permissions(&self.path, PermissionsExt::from_mode(0o644))));
        }
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        self.secret.judge(observed, tries)
    }
}

/// A file whose very size is the secret.
pub(super) fn size(layout: &mut Layout<'_>, _: &str) -> SceneResult {
    let bytes = 100_003 + layout.token.bytes().map(u64::from).sum::<u64>() * 7;
    let path = layout.stage.file("ungranted/sized", "")?;
    std::fs::OpenOptions::new().write(true).open(&path)?.set_len(bytes)?;
    let mut scene = Secret::new(layout, "the size of a file that nobody granted");
    scene.token = format!("size={bytes}");
    Ok(Box::new(scene))
}

/// The environment of whoever starts the sandbox.
pub(super) fn environment(layout: &mut Layout<'_>, _: &str) -> SceneResult {
    let mut scene = Secret::new(layout, "a variable of the caller");
    scene.env = true;
    Ok(Box::new(scene))
}

/// Descriptors that whoever starts the sandbox holds: a folder, a file, or memory.
pub(super) fn descriptors(layout: &mut Layout<'_>, detail: &str) -> SceneResult {
    let mut scene = Secret::new(layout, "what an inherited descriptor shows");
    let fd = match detail {
        "file" => rustix::fs::open(&layout.secret, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?,
        "memory" => {
            let fd = rustix::fs::memfd_create("held", MemfdFlags::CLOEXEC)?;
            let mut file = std::fs::File::from(fd);
            file.write_all(layout.token.as_bytes())?;
            io::Seek::rewind(&mut file)?;
            file.into()
        }
        "pipe" => {
            let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
            rustix::io::write(&write, layout.token.as_bytes())?;
            read
        }
        _ => rustix::fs::open(layout.stage.join("ungranted"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?,
    };
    scene.fds.push((Rc::new(fd), 9));
    Ok(Box::new(scene))
}

/// A working directory outside every grant.
pub(super) fn directory(layout: &mut Layout<'_>, _: &str) -> SceneResult {
    let mut scene = Secret::new(layout, "a file of the caller's working directory");
    scene.directory = Some(layout.stage.join("ungranted"));
    Ok(Box::new(scene))
}

/// A descriptor that is passed through standard input, where that is a socket.
pub(super) fn passed_descriptor(layout: &mut Layout<'_>, _: &str) -> SceneResult {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let folder = rustix::fs::open(layout.stage.join("ungranted"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    net::send_descriptor(&ours, b"x", std::os::fd::AsFd::as_fd(&folder))?;
    let mut scene = Secret::new(layout, "a folder passed in by a socket");
    scene.stdin = Some(Rc::new(theirs));
    // Ours stays open, so that the other end waits for no end of file; it is never passed on.
    scene.fds.clear();
    scene.directory = None;
    Ok(Box::new(FolderBySocket { scene, _peer: ours }))
}

struct FolderBySocket {
    scene: Secret,
    _peer: OwnedFd,
}

impl Scene for FolderBySocket {
    fn arrange(&mut self, call: &mut ProbeCall) {
        self.scene.arrange(call);
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        self.scene.judge(observed, tries)
    }
}

/// A file in a folder of the host that sandboxes tend to share.
pub(super) fn elsewhere(layout: &mut Layout<'_>, detail: &str) -> SceneResult {
    let name = layout.words.get("name").cloned().unwrap_or_default();
    let path = PathBuf::from(detail).join(name);
    // A new name: never over a file of somebody else.
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
    file.write_all(layout.token.as_bytes())?;
    let mut scene = Secret::new(layout, "a file of a folder that everybody may use");
    scene.remove.push(path.clone());
    layout.stage.hand_over(&path, 0o644)?;
    layout.words.insert("shared", path.to_string_lossy().into_owned());
    Ok(Box::new(scene))
}

/// Something that is true of this host alone.
pub(super) fn fact(layout: &mut Layout<'_>, detail: &str) -> SceneResult {
    let text = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned());
    let fact = match detail {
        "hostname" => text("/proc/sys/kernel/hostname")?,
        "machine-id" => text("/etc/machine-id")?,
        "boot-id" => text("/proc/sys/kernel/random/boot_id")?,
        "kernel-command-line" => text("/proc/cmdline")?,
        "stage" => layout.stage.path().file_name().unwrap_or_default().to_string_lossy().into_owned(),
        "user" => last_user()?,
        "interface" => interface()?,
        "uptime" => text("/proc/stat")?.lines().find(|line| line.starts_with("btime")).unwrap_or_default().to_owned(),
        "cgroup" => text("/proc/self/cgroup")?.lines().max_by_key(|line| line.len()).unwrap_or_default().to_owned(),
        "mac" => std::fs::read_to_string(format!("/sys/class/net/{}/address", interface()?))?.trim().to_owned(),
        _ => return Err(io::Error::other("no such fact")),
    };
    let plain = fact.rsplit(':').next().unwrap_or_default();
    if fact.len() < 2 || (detail == "cgroup" && plain.len() < 3) {
        return Err(io::Error::other("this host has no such fact to hide"));
    }
    let mut scene = Secret::new(layout, "a fact of this host");
    scene.ungranted = detail == "stage";
    // JSON escapes what it prints: the comparison is with the escaped form.
    scene.token = serde_json::to_string(&fact).map_err(io::Error::other)?.trim_matches('"').to_owned();
    Ok(Box::new(scene))
}

/// A user that only this host has: the last one of its list, if it is none of those that every system has.
fn last_user() -> io::Result<String> {
    let users = std::fs::read_to_string("/etc/passwd")?;
    let own = users.lines().rfind(|line| !line.starts_with("root:") && !line.starts_with("nobody:"));
    own.map(str::to_owned).ok_or_else(|| io::Error::other("this host has no users"))
}

/// A network interface that only this host has.
fn interface() -> io::Result<String> {
    let names = std::fs::read_dir("/sys/class/net")?.flatten().filter_map(|e| e.file_name().into_string().ok());
    names
        .filter(|name| name != "lo" && std::fs::symlink_metadata(format!("/sys/class/net/{name}/address")).is_ok())
        .min()
        .ok_or_else(|| io::Error::other("this host has no network interface"))
}

/// System V memory of somebody outside.
pub(super) fn segment(layout: &mut Layout<'_>, _: &str) -> SceneResult {
    let key = layout.words.get("key").and_then(|key| key.parse().ok()).unwrap_or(1);
    ipc::make_segment(key, 4096, layout.token.as_bytes())?;
    let mut scene = Secret::new(layout, "System V memory of the host");
    scene.segment = Some(key);
    Ok(Box::new(scene))
}

/// A message queue of somebody outside: to open it is to read it.
pub(super) fn queue(layout: &mut Layout<'_>, _: &str) -> SceneResult {
    let name = format!("/{}", layout.words.get("name").cloned().unwrap_or_default());
    let text = std::ffi::CString::new(name.clone()).map_err(io::Error::other)?;
    // The umask must not decide who may open it.
    rustix::fs::fchmod(ipc::open_queue(&text, true)?, Mode::from_raw_mode(0o666))?;
    let mut scene = Secret::new(layout, "a message queue of the host");
    scene.queue = Some(name);
    Ok(Box::new(Opened { scene }))
}

struct Opened {
    scene: Secret,
}

impl Scene for Opened {
    fn judge(&mut self, _observed: &Observed, tries: &[Try]) -> SceneVerdict {
        let _until_here = &self.scene;
        super::by_errno(tries)
    }
}
