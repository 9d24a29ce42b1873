//! Scenes whose judge is the state of the host afterwards.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ::probe::ipc;
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use sha2::{Digest as _, Sha256};

use super::{Layout, Scene, SceneVerdict, by_errno};
use crate::confined::{Observed, ProbeCall};
use crate::probe::Try;
use crate::survey;

type SceneResult = io::Result<Box<dyn Scene>>;

/// One file, by all that can be changed of it. The time of the last reading is not a change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileState {
    mode: u32,
    owner: (u32, u32),
    inode: u64,
    links: u64,
    size: u64,
    modified: (i64, i64),
    attribute: Vec<u8>,
    content: Vec<u8>,
}

/// Every file below `path`, links not followed.
fn survey_files(path: &Path, into: &mut BTreeMap<PathBuf, FileState>) {
    let Ok(meta) = path.symlink_metadata() else { return };
    let mut attribute = vec![0; 64];
    let length = rustix::fs::lgetxattr(path, c"user.fumehood", attribute.as_mut_slice()).unwrap_or(0);
    attribute.truncate(length);
    let content = if meta.is_file() {
        std::fs::read(path).map(|bytes| Sha256::digest(bytes).to_vec()).unwrap_or_default()
    } else if meta.is_symlink() {
        std::fs::read_link(path).map(|to| to.into_os_string().into_encoded_bytes()).unwrap_or_default()
    } else {
        Vec::new()
    };
    let facts = FileState {
        mode: meta.mode(),
        owner: (meta.uid(), meta.gid()),
        inode: meta.ino(),
        // The links of a folder are its folders, which are listed themselves.
        links: if meta.is_dir() { 0 } else { meta.nlink() },
        size: if meta.is_dir() { 0 } else { meta.size() },
        modified: (meta.mtime(), meta.mtime_nsec()),
        attribute,
        content,
    };
    into.insert(path.to_path_buf(), facts);
    if meta.is_dir() {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            survey_files(&entry.path(), into);
        }
    }
}

/// Files of the host that must stay as they are.
pub(super) struct Unchanged {
    roots: Vec<PathBuf>,
    before: BTreeMap<PathBuf, FileState>,
}

impl Unchanged {
    pub(super) fn of(roots: Vec<PathBuf>) -> Self {
        let mut before = BTreeMap::new();
        for root in &roots {
            survey_files(root, &mut before);
        }
        Self { roots, before }
    }
}

impl Scene for Unchanged {
    fn judge(&mut self, _observed: &Observed, tries: &[Try]) -> SceneVerdict {
        let mut after = BTreeMap::new();
        for root in &self.roots {
            survey_files(root, &mut after);
        }
        let mut changed: Vec<String> = Vec::new();
        for path in self.before.keys().chain(after.keys()) {
            if self.before.get(path) != after.get(path) {
                changed.push(path.file_name().unwrap_or_default().to_string_lossy().into_owned());
            }
        }
        changed.sort();
        changed.dedup();
        if !changed.is_empty() {
            changed.truncate(4);
            return SceneVerdict::Possible(format!("changed on the host: {}", changed.join(", ")));
        }
        if tries.is_empty() {
            return SceneVerdict::Unclear("the probe said nothing".to_owned());
        }
        SceneVerdict::Stopped(
            "content, mode, owner, inode, links and times of the host's files are the same".to_owned(),
        )
    }
}

/// What was granted for reading, and what was not granted.
pub(super) fn unchanged(layout: &mut Layout<'_>, _: &str) -> SceneResult {
    layout.stage.file("granted/second", "second\n")?;
    Ok(Box::new(Unchanged::of(vec![layout.granted.clone(), layout.stage.join("ungranted")])))
}

/// The workspace, as the host sees it: whole, or one name in it.
pub(super) fn workspace(layout: &mut Layout<'_>, detail: &str) -> SceneResult {
    let mut names: Vec<PathBuf> = Vec::new();
    for name in detail.split(',').filter(|name| !name.is_empty()) {
        names.push(layout.workspace.join(name));
    }
    if names.is_empty() {
        names.push(layout.workspace.clone());
    }
    Ok(Box::new(Unchanged::of(names)))
}

/// Names that must not come to be on the host.
struct Absent {
    paths: Vec<PathBuf>,
}

impl Scene for Absent {
    fn judge(&mut self, _observed: &Observed, tries: &[Try]) -> SceneVerdict {
        let there: Vec<_> = self.paths.iter().filter(|path| path.symlink_metadata().is_ok()).collect();
        if let Some(first) = there.first() {
            return SceneVerdict::Possible(format!("`{}` came to be on the host", first.display()));
        }
        if tries.is_empty() {
            return SceneVerdict::Unclear("the probe said nothing".to_owned());
        }
        SceneVerdict::Stopped("none of the names came to be on the host".to_owned())
    }
}

impl Drop for Absent {
    fn drop(&mut self) {
        for path in &self.paths {
            if std::fs::remove_file(path).is_err() {
                // It was never made, which is the good case.
                continue;
            }
        }
    }
}

/// New names in the folders `detail`, as `{new}` tells the probe.
pub(super) fn absent(layout: &mut Layout<'_>, detail: &str) -> SceneResult {
    let name = layout.words.get("name").cloned().unwrap_or_default();
    let paths: Vec<PathBuf> = detail.split(',').map(|folder| Path::new(folder).join(&name)).collect();
    let list: Vec<_> = paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    layout.words.insert("new", list.join("\t"));
    Ok(Box::new(Absent { paths }))
}

/// A program that belongs to another ordinary user and has the set-uid bit: who runs it should stay who they are.
pub(super) fn set_id(layout: &mut Layout<'_>, _: &str) -> SceneResult {
    const OTHER: u32 = 65533;
    if !layout.root {
        return Err(io::Error::other("only root can make a program of another user"));
    }
    let path = layout.granted.join("set-id");
    std::fs::copy(layout.program, &path)?;
    let (uid, gid) = (rustix::fs::Uid::from_raw(OTHER), rustix::fs::Gid::from_raw(OTHER));
    rustix::fs::chown(&path, Some(uid), Some(gid))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o6755))?;
    layout.words.insert("set-id", path.to_string_lossy().into_owned());
    Ok(Box::new(Raised { said: format!("euid={OTHER}") }))
}

struct Raised {
    said: String,
}

impl Scene for Raised {
    fn judge(&mut self, _observed: &Observed, tries: &[Try]) -> SceneVerdict {
        if tries.iter().any(|t| t.text == self.said) {
            return SceneVerdict::Possible("the program ran as its owner".to_owned());
        }
        if tries.is_empty() {
            return SceneVerdict::Unclear("the probe said nothing".to_owned());
        }
        let ran = tries.iter().any(|t| t.text.starts_with("euid="));
        SceneVerdict::Stopped(if ran { "it ran without its owner's rights".to_owned() } else { super::answers(tries) })
    }
}

/// Objects of the kernel that a run must not leave behind.
struct Left {
    key: i32,
    queue: std::ffi::CString,
}

impl Scene for Left {
    fn judge(&mut self, _observed: &Observed, tries: &[Try]) -> SceneVerdict {
        let segment = ipc::remove_segment(self.key);
        let queue = ipc::remove_queue(&self.queue);
        if segment || queue {
            return SceneVerdict::Possible("it is still there after the end".to_owned());
        }
        if tries.is_empty() {
            return SceneVerdict::Unclear("the probe said nothing".to_owned());
        }
        SceneVerdict::Stopped("nothing is there after the end".to_owned())
    }
}

/// Whether what the probe makes with `{key}` or `{name}` outlives it.
pub(super) fn left_objects(layout: &mut Layout<'_>, _: &str) -> SceneResult {
    let key = layout.words.get("key").and_then(|key| key.parse().ok()).unwrap_or(1);
    let name = format!("/{}", layout.words.get("name").cloned().unwrap_or_default());
    Ok(Box::new(Left { key, queue: std::ffi::CString::new(name).map_err(io::Error::other)? }))
}

/// Facts of this host as words, judged by errno: its disk, its devices, its own folders.
pub(super) fn errno(layout: &mut Layout<'_>, _: &str) -> SceneResult {
    let list = |paths: Vec<PathBuf>| -> String {
        let texts: Vec<_> = paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        texts.join("\t")
    };
    let disks: Vec<String> = std::fs::read_dir("/sys/class/block")
        .map(|entries| entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect())
        .unwrap_or_default();
    let mut devices: Vec<PathBuf> = disks.iter().take(6).map(|name| Path::new("/dev").join(name)).collect();
    devices.extend(["/dev/mem", "/dev/kmem", "/dev/port", "/dev/nvram", "/dev/cpu/0/msr"].map(PathBuf::from));
    layout.words.insert("devices", list(devices));
    if let Some(numbers) = disks.first().and_then(|n| std::fs::read_to_string(format!("/sys/class/block/{n}/dev")).ok())
    {
        layout.words.insert("disk", numbers.trim().to_owned());
    }
    let home = rustix::process::getuid().to_string();
    let home = std::fs::read_to_string("/etc/passwd")?
        .lines()
        .find_map(|line| {
            let fields: Vec<_> = line.split(':').collect();
            if *fields.get(2)? == home { Some((*fields.get(5)?).to_owned()) } else { None }
        })
        .unwrap_or_else(|| "/root".to_owned());
    layout.words.insert("home", home.clone());
    // Folders by inode, since the same name inside may be another folder.
    for (word, names) in [
        (
            "home-folders",
            vec![
                home.clone(),
                format!("{home}/.ssh"),
                format!("{home}/.config"),
                format!("{home}/.cache"),
                format!("{home}/.local"),
            ],
        ),
        (
            "start-folders",
            [
                "/etc/cron.d",
                "/etc/systemd/system",
                "/var/spool/cron",
                "/etc/profile.d",
                "/etc/udev/rules.d",
                "/etc/init.d",
            ]
            .map(str::to_owned)
            .to_vec(),
        ),
        ("path-folders", ["/usr/local/bin", "/usr/bin", "/usr/local/lib", "/opt"].map(str::to_owned).to_vec()),
        (
            "cache-folders",
            vec![
                format!("{home}/.cache"),
                format!("{home}/.cargo"),
                format!("{home}/.npm"),
                "/var/cache".to_owned(),
                "/var/tmp".to_owned(),
            ],
        ),
    ] {
        let known: Vec<_> =
            names.iter().filter_map(|name| Some(format!("{}:{name}", std::fs::metadata(name).ok()?.ino()))).collect();
        layout.words.insert(word, known.join("\t"));
    }
    Ok(Box::new(ByErrno))
}

struct ByErrno;

impl Scene for ByErrno {
    fn judge(&mut self, _observed: &Observed, tries: &[Try]) -> SceneVerdict {
        by_errno(tries)
    }
}

/// A terminal that the sandbox is started from: nothing may be typed into it.
struct Terminal {
    /// Its name must not be learnt.
    name: Option<String>,
    master: OwnedFd,
    slave: Rc<OwnedFd>,
    token: String,
}

impl Scene for Terminal {
    fn arrange(&mut self, call: &mut ProbeCall) {
        call.stdin = Some(Rc::clone(&self.slave));
        call.terminal = true;
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        if let Some(name) = &self.name {
            return super::by_token(observed, tries, name, "the name of the caller's terminal");
        }
        let mut typed = Vec::new();
        let mut part = [0; 4096];
        for fd in [&self.master, &*self.slave] {
            let ready = rustix::fs::fcntl_setfl(fd, OFlags::NONBLOCK).is_ok();
            let Ok(copy) = fd.try_clone() else { continue };
            let mut file = std::fs::File::from(copy);
            while ready && let Ok(length @ 1..) = file.read(&mut part) {
                typed.extend_from_slice(part.get(..length).unwrap_or_default());
            }
        }
        let wanted = self.token.as_bytes();
        if typed.windows(wanted.len()).any(|part| part == wanted) {
            return SceneVerdict::Possible("text stood in the terminal's input".to_owned());
        }
        if tries.is_empty() {
            return SceneVerdict::Unclear("the probe said nothing".to_owned());
        }
        SceneVerdict::Stopped(format!("the terminal's input stayed empty ({})", super::answers(tries)))
    }
}

/// A terminal of our own in the place of the caller's. `name`: it is asked for its name, else typed into.
pub(super) fn terminal(layout: &mut Layout<'_>, detail: &str) -> SceneResult {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty())?;
    let token = format!("t{}", layout.token.get(..8).unwrap_or_default());
    layout.words.insert("typed", token.clone());
    let name = (detail == "name").then(|| name.to_string_lossy().into_owned());
    Ok(Box::new(Terminal { name, master, slave: Rc::new(slave), token }))
}

/// How many processes carry a marker: for scenes that count after the end.
pub(super) fn alive(marker: &str) -> Vec<survey::Task> {
    survey::tasks(marker)
}
