//! What is laid out on the host for one run of a probe, and who judges it from outside.
//!
//! A scene is named in a row as `kind` or `kind:detail`. Each run, confined or not, gets a fresh one.

mod again;
mod grants;
mod host;
mod listeners;
mod neighbour;
mod others;
mod posture;
mod resolver;
mod secrets;
mod shared;
mod usage;
mod web;
mod world;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use sandbox::Environment;

use crate::confined::{Confined, Moment, Observed, ProbeCall};
use crate::probe::Try;
use crate::stage::{Stage, random};

pub use neighbour::stay as neighbour_stay;

/// What the outside saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SceneVerdict {
    /// It was possible.
    Possible(String),
    /// It was stopped.
    Stopped(String),
    /// Neither can be said.
    Unclear(String),
}

/// Another run of the same sandbox.
#[derive(Clone, Debug)]
pub struct Other {
    /// What it tries.
    pub probe: &'static str,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// It has ended before this one begins; else it lives beside it.
    pub before: bool,
}

/// One laid-out scene.
pub trait Scene {
    /// Another run, before this one or beside it.
    fn other(&self) -> Option<Other> {
        None
    }

    /// What became of the run before this one.
    fn before(&mut self, observed: &Observed) {
        let _unasked = observed;
    }

    /// What it means that the sandbox refused to run the probe: nothing, but where the refusal is what holds.
    fn refused(&self, why: &str) -> Option<SceneVerdict> {
        let _unsaid = why;
        None
    }

    /// Changes the call: descriptors, environment, standard input, working directory.
    fn arrange(&mut self, call: &mut ProbeCall) {
        let _unchanged = call;
    }

    /// Looks, while the probe runs.
    fn watch(&mut self, moment: &Moment<'_>) {
        let _not_needed = moment;
    }

    /// Says what was seen, after the end.
    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict;
}

/// What every scene begins with.
#[derive(Debug)]
pub struct Layout<'a> {
    /// The folder of this run.
    pub stage: &'a Stage,
    /// Random text: whoever has it has been where it was.
    pub token: String,
    /// The workspace on the host.
    pub workspace: PathBuf,
    /// A folder granted for reading.
    pub granted: PathBuf,
    /// A file that nobody granted.
    pub secret: PathBuf,
    /// What `{name}` in the arguments stands for.
    pub words: BTreeMap<&'static str, String>,
    /// The probe's program.
    pub program: &'a Path,
    /// Whether we are root.
    pub root: bool,
    /// The probe runs unconfined.
    pub bare: bool,
    /// Limits of the row that are held by watching, with the overshoot that the plan names.
    pub sampled: BTreeMap<String, String>,
    /// The caller.
    pub environment: Environment,
}

impl<'a> Layout<'a> {
    /// Lays out what every scene begins with.
    ///
    /// # Errors
    /// A file or folder could not be made.
    pub fn make(stage: &'a Stage, program: &'a Path, root: bool, inside: &dyn Confined) -> io::Result<Self> {
        let token = random()?;
        let workspace = stage.folder("ws")?;
        stage.file("ws/file", "plain\n")?;
        stage.folder("ws/sub")?;
        for folder in ["ws/.git", "ws/.git/hooks", "ws/.git/refs", "ws/.git/objects"] {
            stage.folder(folder)?;
        }
        stage.file("ws/.git/HEAD", "ref: refs/heads/main\n")?;
        stage.file("ws/.git/config", "[core]\n\trepositoryformatversion = 0\n")?;
        let granted = stage.folder("granted")?;
        stage.file("granted/file", "readable\n")?;
        stage.folder("ungranted")?;
        let secret = stage.file("ungranted/secret.txt", &token)?;
        stage.folder("ws-beside")?;
        stage.file("ws-beside/secret.txt", &token)?;
        symlink(&secret, workspace.join("link-to-secret"))?;
        let seen = inside.workspace_seen(&workspace);
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let words = BTreeMap::from([
            ("token", token.clone()),
            ("secret", text(&secret)),
            ("ungranted", text(&stage.join("ungranted"))),
            ("beside", text(&stage.join("ws-beside/secret.txt"))),
            ("seen-beside", format!("{}-beside/secret.txt", seen.display())),
            ("ws", text(&seen)),
            ("granted", text(&granted)),
            ("name", format!("fumehood-{}", random()?)),
            ("key", (i32::from_str_radix(token.get(..7).unwrap_or("1"), 16).unwrap_or(1) | 1).to_string()),
            ("program", text(program)),
        ]);
        let (environment, bare) = (Environment::default(), inside.name() == "none");
        Ok(Self {
            stage,
            token,
            workspace,
            granted,
            secret,
            words,
            program,
            root,
            bare,
            sampled: BTreeMap::new(),
            environment,
        })
    }

    /// An argument with its `{names}` filled in; one that is exactly `{list}` may become several.
    #[must_use]
    pub fn fill(&self, argument: &str) -> Vec<String> {
        let mut text = argument.to_owned();
        for (name, value) in &self.words {
            let mark = format!("{{{name}}}");
            if text == mark {
                return value.split('\t').filter(|part| !part.is_empty()).map(str::to_owned).collect();
            }
            text = text.replace(&mark, value);
        }
        vec![text]
    }
}

/// Makes the scene of this name.
type SceneConstructor = fn(&mut Layout<'_>, &str) -> io::Result<Box<dyn Scene>>;

const SCENES: &[(&str, SceneConstructor)] = &[
    ("errno", |_, _| Ok(Box::new(Errno))),
    ("errno-host", host::errno),
    ("canary", secrets::canary),
    ("size", secrets::size),
    ("environment", secrets::environment),
    ("descriptors", secrets::descriptors),
    ("directory", secrets::directory),
    ("passed-descriptor", secrets::passed_descriptor),
    ("elsewhere", secrets::elsewhere),
    ("fact", secrets::fact),
    ("segment", secrets::segment),
    ("queue", secrets::queue),
    ("unchanged", host::unchanged),
    ("workspace", host::workspace),
    ("absent", host::absent),
    ("set-id", host::set_id),
    ("left-objects", host::left_objects),
    ("terminal", host::terminal),
    ("writable", grants::writable),
    ("named-controls", grants::named),
    ("submodule", grants::submodule),
    ("listener", listeners::make),
    ("named", listeners::named),
    ("usable", shared::usable),
    ("repository", shared::repository),
    ("announced", shared::announced),
    ("linked", shared::linked),
    ("neighbour", neighbour::make),
    ("survivors", neighbour::survivors),
    ("guest-killed", neighbour::guest_killed),
    ("posture", posture::make),
    ("run", others::run),
    ("again", again::make),
    ("moving", others::moving),
    ("applied", others::applied),
    ("reviewed", others::reviewed),
    ("kept", others::kept),
    ("recorded", others::recorded),
    ("denials", others::denials),
    ("folder-as-input", others::folder_as_input),
    ("overlay-marks", others::marks),
    ("linked-controls", others::links),
    ("mounted-below", others::below),
    ("number", usage::number),
    ("memory", usage::memory),
    ("tasks", usage::tasks),
    ("processor", usage::processor),
    ("watcher", usage::watcher),
    ("web", web::make),
    ("wall", usage::wall),
    ("output", usage::output),
];

/// Whether a scene of this name exists.
#[must_use]
pub fn known(name: &str) -> bool {
    let kind = name.split(':').next().unwrap_or_default();
    SCENES.iter().any(|(known, _)| *known == kind)
}

/// Lays out the scene of this name.
///
/// # Errors
/// What it needs cannot be made on this host.
pub fn make(name: &str, layout: &mut Layout<'_>) -> io::Result<Box<dyn Scene>> {
    let (kind, detail) = name.split_once(':').unwrap_or((name, ""));
    let make = SCENES.iter().find(|(known, _)| *known == kind);
    let (_, make) = make.ok_or_else(|| io::Error::other(format!("no scene `{kind}`")))?;
    make(layout, detail)
}

/// The errnos inside, beside those of the unconfined control.
struct Errno;

impl Scene for Errno {
    fn judge(&mut self, _observed: &Observed, tries: &[Try]) -> SceneVerdict {
        by_errno(tries)
    }
}

/// What the tries say of themselves.
fn by_errno(tries: &[Try]) -> SceneVerdict {
    let through: Vec<&str> = tries.iter().filter(|t| t.possible).map(|t| t.name.as_str()).take(4).collect();
    if !through.is_empty() {
        return SceneVerdict::Possible(format!("let through: {}", through.join(", ")));
    }
    if tries.is_empty() {
        return SceneVerdict::Unclear("the probe said nothing".to_owned());
    }
    let unrelated = |t: &&Try| matches!(t.errno, 12 | 22 | 23 | 24 | 28 | 95);
    if tries.iter().all(|t| unrelated(&t)) {
        return SceneVerdict::Unclear(format!("failed for another reason: {}", answers(tries)));
    }
    SceneVerdict::Stopped(answers(tries))
}

/// The answers in short: each errno once, with how often.
fn answers(tries: &[Try]) -> String {
    let mut counts: BTreeMap<i32, usize> = BTreeMap::new();
    for t in tries.iter().filter(|t| !t.possible) {
        *counts.entry(t.errno).or_default() += 1;
    }
    let parts = counts.iter().map(|(number, count)| {
        let name = name_of(*number);
        if *count > 1 { format!("{count} x {name}") } else { name }
    });
    parts.collect::<Vec<_>>().join(", ")
}

fn name_of(number: i32) -> String {
    const NAMES: [(i32, &str); 21] = [
        (1, "EPERM"),
        (2, "ENOENT"),
        (3, "ESRCH"),
        (9, "EBADF"),
        (11, "EAGAIN"),
        (12, "ENOMEM"),
        (13, "EACCES"),
        (14, "EFAULT"),
        (18, "EXDEV"),
        (20, "ENOTDIR"),
        (22, "EINVAL"),
        (24, "EMFILE"),
        (25, "ENOTTY"),
        (27, "EFBIG"),
        (28, "ENOSPC"),
        (30, "EROFS"),
        (38, "ENOSYS"),
        (93, "EPROTONOSUPPORT"),
        (97, "EAFNOSUPPORT"),
        (101, "ENETUNREACH"),
        (111, "ECONNREFUSED"),
    ];
    let name = NAMES.iter().find(|(errno, _)| *errno == number);
    name.map_or_else(|| format!("errno {number}"), |(_, name)| (*name).to_owned())
}

/// The lines that the probe wrote; what is no such line is none of it.
pub fn tries(observed: &Observed) -> Vec<Try> {
    let lines = observed.stdout.split(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// Whether the token came out, in any stream.
fn leaked(observed: &Observed, token: &str) -> bool {
    let wanted = token.as_bytes();
    let mut streams = [&observed.stdout, &observed.stderr].into_iter();
    streams.any(|stream| stream.windows(wanted.len()).any(|part| part == wanted))
}

/// The verdict about a token: what was not read was stopped, if the probe spoke at all.
fn by_token(observed: &Observed, tries: &[Try], token: &str, what: &str) -> SceneVerdict {
    if leaked(observed, token) {
        return SceneVerdict::Possible(format!("{what} came out"));
    }
    if tries.is_empty() && !leaked(observed, "\"name\"") {
        return SceneVerdict::Unclear("the probe said nothing".to_owned());
    }
    SceneVerdict::Stopped(format!("{what} did not come out ({})", answers(tries)))
}
