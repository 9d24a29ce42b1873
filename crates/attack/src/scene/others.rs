//! Scenes around one run: what runs before and beside it, what moves on the host while it starts and when its changes are
//! taken over, and what the supervisor itself keeps.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ::probe::ipc;
use jiff::Timestamp;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, XattrFlags};
use sandbox::Environment;
use sandbox::changes::{self, ChangesError, Guarded, Request};
use sandbox::protect::list;
use sandbox::state::{RunId, State};
use serde_json::Value;

use super::{Layout, Other, Scene, SceneVerdict, by_errno, by_token};
use crate::confined::{Moment, Observed, ProbeCall};
use crate::probe::Try;

type SceneResult = io::Result<Box<dyn Scene>>;

/// Another run of the same sandbox, before this one or beside it.
struct Run {
    token: String,
    name: String,
    key: i32,
    other: Other,
}

/// `before`: it has ended. `beside`: it lives.
pub(super) fn run(layout: &mut Layout<'_>, detail: &str) -> SceneResult {
    let word = |name: &str| layout.words.get(name).cloned().unwrap_or_default();
    let (name, key) = (word("name"), word("key"));
    let before = detail == "before";
    let mut args: Vec<OsString> = [&layout.token, &name, &key].map(OsString::from).to_vec();
    if !before {
        args.push("5000".into());
    }
    let other = Other { probe: if before { "leave" } else { "hold-secret" }, args, before };
    Ok(Box::new(Run { token: layout.token.clone(), name, key: key.parse().unwrap_or(1), other }))
}

impl Scene for Run {
    fn other(&self) -> Option<Other> {
        Some(self.other.clone())
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        by_token(observed, tries, &self.token, "a secret of another run")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // What the unconfined control has left on the host.
        for folder in ["/tmp", "/var/tmp", "/dev/shm", "/run", "/run/lock"] {
            if fs::remove_file(Path::new(folder).join(&self.name)).is_err() {
                // It was not made there.
            }
        }
        let _gone = ipc::remove_segment(self.key);
    }
}

/// Exchanges two names again and again, until it is dropped; then each is where it was.
struct Toggle {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Toggle {
    fn start(one: PathBuf, other: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut swapped = false;
            while !ended.load(Ordering::Relaxed) || swapped {
                if rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).is_err() {
                    return;
                }
                swapped = !swapped;
                crate::probe::rest(Duration::from_micros(200));
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Toggle {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            // It ended by itself, which was the aim.
        }
    }
}

/// A folder of the workspace that is a link to what nobody granted every other moment.
struct Moving {
    token: String,
    paths: (PathBuf, PathBuf),
    toggle: Option<Toggle>,
}

/// While the run starts and lasts.
pub(super) fn moving(layout: &mut Layout<'_>, _: &str) -> SceneResult {
    let (sub, door) = door(layout)?;
    Ok(Box::new(Moving { token: layout.token.clone(), paths: (sub, door), toggle: None }))
}

fn door(layout: &Layout<'_>) -> io::Result<(PathBuf, PathBuf)> {
    let door = layout.stage.folder("doors")?.join("door");
    symlink(layout.stage.join("ungranted"), &door)?;
    Ok((layout.workspace.join("sub"), door))
}

impl Scene for Moving {
    fn arrange(&mut self, _call: &mut ProbeCall) {
        self.toggle = Some(Toggle::start(self.paths.0.clone(), self.paths.1.clone()));
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        self.toggle = None;
        by_token(observed, tries, &self.token, "a file behind a folder that became a link")
    }
}

/// The same, while the changes of the run are applied.
struct Applied {
    planted: PathBuf,
    paths: (PathBuf, PathBuf),
    toggle: Option<Toggle>,
    changes: Changes,
}

/// `apply`, with the folder moving.
pub(super) fn applied(layout: &mut Layout<'_>, _: &str) -> SceneResult {
    let (sub, door) = door(layout)?;
    let planted = layout.stage.join("ungranted/planted");
    let changes = Changes::of(layout);
    Ok(Box::new(Applied { planted, paths: (sub, door), toggle: None, changes }))
}

impl Scene for Applied {
    fn arrange(&mut self, _call: &mut ProbeCall) {
        self.toggle = Some(Toggle::start(self.paths.0.clone(), self.paths.1.clone()));
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        let there = |path: &Path| path.symlink_metadata().is_ok();
        if let Some(run) = run_of(observed) {
            // A folder that is a link at this moment is a conflict, and nothing is applied: it is tried again.
            let mut applied = self.changes.apply(run, None);
            for _ in 0..11 {
                if applied.as_ref().is_ok_and(|applied| *applied) {
                    break;
                }
                applied = self.changes.apply(run, None);
            }
            if let Err(why) = applied {
                self.toggle = None;
                return SceneVerdict::Unclear(format!("the changes could not be applied: {why}"));
            }
        }
        self.toggle = None;
        if there(&self.planted) {
            return SceneVerdict::Possible("a file came to be where the link led".to_owned());
        }
        if tries.is_empty() {
            return SceneVerdict::Unclear("the probe said nothing".to_owned());
        }
        SceneVerdict::Stopped("nothing came to be where the link led".to_owned())
    }
}

fn run_of(observed: &Observed) -> Option<&str> {
    observed.report.get("run").and_then(Value::as_str)
}

/// The changes of a run, in the state folder of whoever attacks.
struct Changes {
    caller: Environment,
}

impl Changes {
    fn of(layout: &Layout<'_>) -> Self {
        Self { caller: layout.environment.clone() }
    }

    fn state(&self) -> io::Result<State> {
        State::open(&self.caller.state).map_err(|error| io::Error::other(error.fault().why))
    }

    /// Takes them all, as `fumehood apply` does; whether there was no conflict. `digest`: only what was looked at.
    fn apply(&self, run: &str, digest: Option<String>) -> io::Result<bool> {
        let request = Request { paths: None, digest, guarded: Guarded::Refuse, leaving_links: false };
        match changes::apply(&self.state()?, &id(run)?, &request, list(), Timestamp::now()) {
            // What changed nothing has nothing to be taken.
            Ok(changes::Applied::Done { .. }) | Err(ChangesError::None { .. }) => Ok(true),
            Ok(changes::Applied::Conflicts(_)) => Ok(false),
            Err(error) => Err(io::Error::other(error.fault().why)),
        }
    }

    /// The digest of them all, as `fumehood diff` shows it.
    fn digest(&self, run: &str) -> io::Result<String> {
        let shown = changes::diff(&self.state()?, &id(run)?, None, list(), &[]);
        Ok(shown.map_err(|error| io::Error::other(error.fault().why))?.digest)
    }

    /// Where they are kept.
    fn kept(&self, run: &str) -> Option<PathBuf> {
        Some(self.caller.state.state().ok()?.0.join("changes").join(run))
    }
}

fn id(run: &str) -> io::Result<RunId> {
    run.parse().map_err(|_unknown| io::Error::other("no run of this id"))
}

/// Changes that somebody alters after they were looked at.
struct Reviewed {
    planted: PathBuf,
    changes: Changes,
}

/// `diff`, then another content, then `apply --digest`.
pub(super) fn reviewed(layout: &mut Layout<'_>, _: &str) -> SceneResult {
    let planted = layout.workspace.join("planted");
    Ok(Box::new(Reviewed { planted, changes: Changes::of(layout) }))
}

impl Scene for Reviewed {
    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        if let Some(run) = run_of(observed)
            && let Err(why) = self.altered(run)
        {
            return SceneVerdict::Unclear(format!("it could not be altered after the look: {why}"));
        }
        if self.planted.symlink_metadata().is_ok() {
            return SceneVerdict::Possible("what nobody has looked at is in the workspace".to_owned());
        }
        if tries.is_empty() {
            return SceneVerdict::Unclear("the probe said nothing".to_owned());
        }
        SceneVerdict::Stopped("what was altered after the look was not taken".to_owned())
    }
}

impl Reviewed {
    fn altered(&self, run: &str) -> io::Result<()> {
        let digest = self.changes.digest(run)?;
        let blobs = self.changes.kept(run).ok_or_else(|| io::Error::other("no state"))?.join("blobs");
        let mut altered = 0;
        for entry in fs::read_dir(blobs)?.flatten() {
            // In place: whoever keeps a descriptor or the right to write could do the same.
            fs::OpenOptions::new().write(true).truncate(true).open(entry.path())?;
            altered += 1;
        }
        if altered == 0 || digest.is_empty() {
            return Err(io::Error::other("there was nothing to look at"));
        }
        // That it is refused is what is hoped for.
        drop(self.changes.apply(run, Some(digest)));
        Ok(())
    }
}

/// What the supervisor keeps of a run, against what the run may have.
struct KeptChanges {
    most: u64,
    changes: Changes,
}

/// `MIB`.
pub(super) fn kept(layout: &mut Layout<'_>, detail: &str) -> SceneResult {
    Ok(Box::new(KeptChanges { most: detail.parse::<u64>().unwrap_or(0) << 20, changes: Changes::of(layout) }))
}

impl Scene for KeptChanges {
    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        let said = tries.iter().filter_map(|t| t.text.strip_prefix("mib=")?.parse::<u64>().ok()).max();
        let Some(said) = said else { return SceneVerdict::Unclear("the probe made nothing".to_owned()) };
        let bytes = match run_of(observed) {
            None => said << 20,
            Some(run) => self.changes.kept(run).map_or(0, |path| bytes_below(&path, 0)),
        };
        let words =
            format!("{} MiB kept of {said} MiB that it seems to have, limit {} MiB", bytes >> 20, self.most >> 20);
        if bytes > self.most { SceneVerdict::Possible(words) } else { SceneVerdict::Stopped(words) }
    }
}

/// Bytes as they would be read, which is what is kept.
fn bytes_below(path: &Path, depth: usize) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    let sizes = entries.flatten().filter_map(|entry| {
        let meta = entry.metadata().ok()?;
        Some(if meta.is_dir() && depth < 8 { bytes_below(&entry.path(), depth + 1) } else { meta.size() })
    });
    sizes.sum()
}

/// What is recorded of a run that was given a secret.
struct Recorded {
    token: String,
    /// The file in `/proc/PID` in which the program has it.
    kept_in: &'static str,
    seen: bool,
}

/// The secret stands in an argument, as `{token}`, or by `variable` in one that the policy sets.
pub(super) fn recorded(layout: &mut Layout<'_>, way: &str) -> SceneResult {
    let kept_in = if way == "variable" { "environ" } else { "cmdline" };
    Ok(Box::new(Recorded { token: layout.token.clone(), kept_in, seen: false }))
}

/// The variable of [`recorded`].
const VARIABLE: &str = "FUMEHOOD_ATTACK_RECORDED";

impl Scene for Recorded {
    fn arrange(&mut self, call: &mut ProbeCall) {
        if self.kept_in == "environ" {
            let value = format!("of-{}", self.token);
            call.set.push((format!("env.set.{VARIABLE}"), value.clone()));
            // The control has no policy, and it from its caller.
            call.env.push((VARIABLE.to_owned(), value.into()));
        }
    }

    fn watch(&mut self, moment: &Moment<'_>) {
        let holds = |text: String| text.contains(&self.token);
        self.seen |= moment.tasks.iter().any(|task| task.read(self.kept_in).is_some_and(holds));
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        let Some(file) = observed.report.pointer("/audit/file").and_then(Value::as_str) else {
            return if self.seen {
                SceneVerdict::Possible(format!("the secret stood in `{}` of the process", self.kept_in))
            } else {
                SceneVerdict::Unclear("the probe was not seen".to_owned())
            };
        };
        let Ok(log) = fs::read(file) else { return SceneVerdict::Unclear("the log cannot be read".to_owned()) };
        let mut report = observed.report.clone();
        if let Some(map) = report.as_object_mut() {
            // What the program itself printed is its own.
            map.retain(|name, _| !name.starts_with("stdout") && !name.starts_with("stderr"));
        }
        let texts = [String::from_utf8_lossy(&log).into_owned(), report.to_string()];
        let plain = self.token.as_bytes();
        let forms = [self.token.clone(), policy::json::hex(plain), self.token.chars().rev().collect()];
        for (text, place) in texts.iter().zip(["audit log", "report"]) {
            if forms.iter().any(|form| text.contains(form)) {
                return SceneVerdict::Possible(format!("the secret stands in the {place}"));
            }
        }
        if tries.is_empty() {
            return SceneVerdict::Unclear("the probe said nothing".to_owned());
        }
        SceneVerdict::Stopped("the secret stands in neither log nor report".to_owned())
    }
}

/// What a program is told of where it is.
struct Denials {
    token: String,
}

/// The name of the folder on the host.
pub(super) fn denials(layout: &mut Layout<'_>, _: &str) -> SceneResult {
    let token = layout.stage.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Box::new(Denials { token }))
}

impl Scene for Denials {
    fn arrange(&mut self, call: &mut ProbeCall) {
        // A grant at its own path would show what is looked for, as the user asked.
        call.read.clear();
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        let told = observed.report.get("violations").map(Value::to_string).unwrap_or_default();
        if told.contains(&self.token) {
            return SceneVerdict::Possible("a violation names a folder of the host".to_owned());
        }
        by_token(observed, tries, &self.token, "a folder's name on the host")
    }
}

/// A secret, and a standard input that is a folder of the host.
struct Folder {
    token: String,
    fd: Rc<OwnedFd>,
}

/// Standard input is the folder of the secret.
pub(super) fn folder_as_input(layout: &mut Layout<'_>, _: &str) -> SceneResult {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(layout.stage.join("ungranted"), flags, Mode::empty())?;
    Ok(Box::new(Folder { token: layout.token.clone(), fd: Rc::new(fd) }))
}

impl Scene for Folder {
    fn arrange(&mut self, call: &mut ProbeCall) {
        call.stdin = Some(Rc::clone(&self.fd));
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        by_token(observed, tries, &self.token, "a file of the folder that was standard input")
    }
}

/// A workspace that carries the marks of an overlay: whoever mounts one over it must not believe them.
struct Marks {
    token: String,
}

/// A redirect out of the workspace, a file without content of its own, and an opaque folder.
pub(super) fn marks(layout: &mut Layout<'_>, _: &str) -> SceneResult {
    let set = |path: &Path, name: &std::ffi::CStr, value: &[u8]| {
        rustix::fs::setxattr(path, name, value, XattrFlags::empty()).map_err(io::Error::from)
    };
    let out = format!("/../{}", "ungranted");
    let (redirected, copied) = (layout.stage.folder("ws/redirected")?, layout.stage.file("ws/copied", "")?);
    set(&redirected, c"user.overlay.redirect", out.as_bytes())?;
    set(&redirected, c"user.overlay.opaque", b"y")?;
    set(&copied, c"user.overlay.redirect", format!("{out}/secret.txt").as_bytes())?;
    set(&copied, c"user.overlay.metacopy", b"")?;
    Ok(Box::new(Marks { token: layout.token.clone() }))
}

impl Scene for Marks {
    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        by_token(observed, tries, &self.token, "what the marks lead to")
    }
}

/// Control files of the workspace that are links to switches of the kernel: what makes them read-only must not follow.
struct Links;

/// Links by the names that a supervisor protects.
pub(super) fn links(layout: &mut Layout<'_>, _: &str) -> SceneResult {
    for (name, target) in [
        (".vscode", "/proc/sys"),
        (".claude", "/proc"),
        (".envrc", "/proc/sysrq-trigger"),
        (".npmrc", "/proc/sys/kernel/core_pattern"),
        (".mcp.json", "/dev/null"),
    ] {
        symlink(target, layout.workspace.join(name))?;
    }
    Ok(Box::new(Links))
}

impl Scene for Links {
    fn judge(&mut self, _observed: &Observed, tries: &[Try]) -> SceneVerdict {
        by_errno(tries)
    }
}

/// Another file system below a grant.
struct Below {
    token: String,
    at: PathBuf,
}

/// `granted/mnt`, in a mount namespace of whoever starts the sandbox.
pub(super) fn below(layout: &mut Layout<'_>, _: &str) -> SceneResult {
    if !layout.root {
        return Err(io::Error::other("only root can mount another file system below a grant"));
    }
    let at = layout.stage.folder("granted/mnt")?;
    Ok(Box::new(Below { token: layout.token.clone(), at }))
}

impl Scene for Below {
    fn arrange(&mut self, call: &mut ProbeCall) {
        call.mount = Some((self.at.clone(), self.token.clone()));
    }

    fn refused(&self, why: &str) -> Option<SceneVerdict> {
        why.contains("run/no-layer")
            .then(|| SceneVerdict::Stopped("such a grant is refused, with the reason".to_owned()))
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        by_token(observed, tries, &self.token, "a file of another file system below the grant")
    }
}
