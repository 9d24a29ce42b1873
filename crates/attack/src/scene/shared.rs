//! Scenes about files that the host shares with a sandbox: its own programs must be able to use them, and a link in a workspace
//! grants nothing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, OFlags, flock, ioctl_getflags};

use super::host::Unchanged;
use super::{Layout, Scene, SceneVerdict, by_token};
use crate::confined::{Moment, Observed};
use crate::probe::Try;

/// A file granted for reading, which programs of the host lock, write to, and know the flags of.
struct Usable {
    path: PathBuf,
    how: HostUse,
    flags: Option<u32>,
    shut: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HostUse {
    Lock,
    Open,
    Flags,
}

/// `lock`, `open` or `flags`: what a program of the host does with it.
pub(super) fn usable(layout: &mut Layout<'_>, detail: &str) -> io::Result<Box<dyn Scene>> {
    let path = layout.stage.file("granted/shared", "readable\n")?;
    layout.words.insert("shared", path.to_string_lossy().into_owned());
    let how = match detail {
        "lock" => HostUse::Lock,
        "open" => HostUse::Open,
        _ => HostUse::Flags,
    };
    let flags = flags(&path);
    Ok(Box::new(Usable { path, how, flags, shut: None }))
}

/// The inode's flags, where the file system has any.
fn flags(path: &PathBuf) -> Option<u32> {
    let file = File::open(path).ok()?;
    ioctl_getflags(&file).ok().map(|flags| flags.bits())
}

impl Usable {
    /// What a program of the host does, without waiting.
    fn use_it(&self) -> io::Result<()> {
        match self.how {
            HostUse::Lock => {
                let file = File::open(&self.path)?;
                flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            }
            HostUse::Open => {
                let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
                OpenOptions::new().write(true).custom_flags(nonblocking).open(&self.path)?;
            }
            HostUse::Flags => {}
        }
        Ok(())
    }
}

impl Scene for Usable {
    fn watch(&mut self, moment: &Moment<'_>) {
        if self.shut.is_none()
            && !moment.tasks.is_empty()
            && let Err(error) = self.use_it()
        {
            self.shut = Some(error.to_string());
        }
    }

    fn judge(&mut self, _observed: &Observed, tries: &[Try]) -> SceneVerdict {
        if let Some(why) = &self.shut {
            return SceneVerdict::Possible(format!("a program of the host was shut out: {why}"));
        }
        if self.how == HostUse::Flags && flags(&self.path) != self.flags {
            return SceneVerdict::Possible("the flags of a file of the host were changed".to_owned());
        }
        if tries.is_empty() {
            return SceneVerdict::Unclear("the probe said nothing".to_owned());
        }
        SceneVerdict::Stopped(format!("programs of the host use it as before ({})", super::answers(tries)))
    }
}

/// Another repository of the same owner, to which a link that lies in the workspace leads.
struct Repository {
    token: String,
    unchanged: Unchanged,
}

/// The workspace's `.git` is a link to it; `description` in it has the secret.
pub(super) fn repository(layout: &mut Layout<'_>, _: &str) -> io::Result<Box<dyn Scene>> {
    let stage = layout.stage;
    let other = stage.folder("private")?;
    for folder in ["private/.git", "private/.git/refs", "private/.git/refs/heads", "private/.git/objects"] {
        stage.folder(folder)?;
    }
    stage.file("private/.git/HEAD", "ref: refs/heads/main\n")?;
    stage.file("private/.git/config", "[core]\n\trepositoryformatversion = 0\n")?;
    stage.file("private/.git/description", &layout.token)?;
    let link = layout.workspace.join(".git");
    std::fs::remove_dir_all(&link)?;
    symlink("../private/.git", &link)?;
    Ok(Box::new(Repository { token: layout.token.clone(), unchanged: Unchanged::of(vec![other]) }))
}

impl Scene for Repository {
    fn refused(&self, why: &str) -> Option<SceneVerdict> {
        why.contains(".git").then(|| SceneVerdict::Stopped("such a workspace is refused, with the reason".to_owned()))
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        match self.unchanged.judge(observed, tries) {
            SceneVerdict::Stopped(_) => by_token(observed, tries, &self.token, "a file of the other repository"),
            changed @ (SceneVerdict::Possible(_) | SceneVerdict::Unclear(_)) => changed,
        }
    }
}

/// A folder that nobody granted, in which a name comes and goes.
struct Announced {
    token: String,
    path: PathBuf,
}

/// The name is the secret.
pub(super) fn announced(layout: &mut Layout<'_>, _: &str) -> io::Result<Box<dyn Scene>> {
    let path = layout.stage.join("ungranted").join(&layout.token);
    Ok(Box::new(Announced { token: layout.token.clone(), path }))
}

impl Scene for Announced {
    fn watch(&mut self, moment: &Moment<'_>) {
        if !moment.tasks.is_empty()
            && std::fs::write(&self.path, b"x").and_then(|()| std::fs::remove_file(&self.path)).is_err()
        {
            // It comes and goes again at the next look.
        }
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        by_token(observed, tries, &self.token, "a name in a folder that nobody granted")
    }
}

/// A link in a folder of whoever the program is, which nobody else may list and nobody granted.
struct Linked {
    token: String,
}

/// Where it leads is the secret; there is nothing.
pub(super) fn linked(layout: &mut Layout<'_>, _: &str) -> io::Result<Box<dyn Scene>> {
    let folder = layout.stage.folder("ungranted/private")?;
    symlink(&layout.token, folder.join("link"))?;
    layout.stage.hand_over(&folder, 0o700)?;
    Ok(Box::new(Linked { token: layout.token.clone() }))
}

impl Scene for Linked {
    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        by_token(observed, tries, &self.token, "where a link in a folder that nobody granted leads")
    }
}
