//! One row: the control, then the confined run, then the verdict.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sandbox::Environment;
use serde::Serialize;

use crate::bare::Bare;
use crate::confined::{Confined, Observed, ProbeCall};
use crate::probe::{Try, rest};
use crate::promise::Promises;
use crate::row::{Group, Oracle, Row};
use crate::scene::{self, Layout, Scene, SceneVerdict};
use crate::stage::{Stage, random};
use crate::survey;

/// What is said of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was stopped, and works unconfined.
    Held,
    /// It was possible, and the policy promises that it is not.
    Escaped,
    /// The policy or tier does not promise it.
    NotPromised,
    /// Nothing can be concluded.
    Skipped,
}

impl Outcome {
    /// For people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Escaped => "ESCAPED",
            Self::NotPromised => "not promised",
            Self::Skipped => "skipped",
        }
    }
}

/// One line of the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Row.
    pub id: String,
    /// Its group.
    pub group: Group,
    /// Its title.
    pub title: String,
    /// What is said.
    pub result: Outcome,
    /// Whether policy and tier promise it.
    pub promised: bool,
    /// What the unconfined control showed.
    pub control: String,
    /// Who judged.
    pub oracle: Oracle,
    /// Why.
    pub why: String,
}

impl Verdict {
    /// Of a row that was not tried yet.
    pub(crate) fn untried(row: &Row) -> Self {
        Self {
            id: row.id.clone(),
            group: row.group(),
            title: row.title.clone(),
            result: Outcome::Skipped,
            promised: true,
            control: "not run".to_owned(),
            oracle: row.oracle,
            why: String::new(),
        }
    }
}

/// Where and with what rows are tried.
#[derive(Debug)]
pub struct TrialSetup {
    /// Folder for stages.
    pub base: PathBuf,
    /// The copy of our program that everybody may execute.
    pub program: PathBuf,
    /// Whether we are root.
    pub root: bool,
    /// What is promised.
    pub promises: Promises,
    /// The caller.
    pub environment: Environment,
}

/// A run is killed after this; the probes themselves end earlier.
const LIMIT: Duration = Duration::from_secs(8);

/// Tries one row.
#[must_use]
pub fn judge(row: &Row, setup: &TrialSetup, inside: &dyn Confined) -> Verdict {
    let mut verdict = Verdict::untried(row);
    if let Some(why) = setup.promises.missing(row) {
        verdict.promised = false;
        verdict.result = Outcome::NotPromised;
        verdict.why = why;
        return verdict;
    }
    let (control, possible) = match once(row, setup, &Bare) {
        Ok((SceneVerdict::Possible(why), tries)) => (why, through(&tries)),
        Ok((SceneVerdict::Stopped(why) | SceneVerdict::Unclear(why), _)) => {
            verdict.control = why;
            verdict.why = format!("control did not work here: {}", verdict.control);
            return verdict;
        }
        Err(why) => {
            verdict.control = why.to_string();
            verdict.why = format!("control could not be run: {why}");
            return verdict;
        }
    };
    verdict.control = control;
    match once(row, setup, inside) {
        Err(why) => verdict.why = format!("could not be run: {why}"),
        Ok((sight, tries)) => {
            let sight = compared(row, sight, &tries, &possible);
            (verdict.result, verdict.why) = match sight {
                SceneVerdict::Possible(why) => (Outcome::Escaped, why),
                SceneVerdict::Stopped(why) => (Outcome::Held, why),
                SceneVerdict::Unclear(why) => (Outcome::Skipped, why),
            };
        }
    }
    verdict
}

/// The names of what was possible.
fn through(tries: &[Try]) -> Vec<String> {
    tries.iter().filter(|t| t.possible).map(|t| t.name.clone()).collect()
}

/// An errno says something only of a try that worked unconfined.
fn compared(row: &Row, sight: SceneVerdict, tries: &[Try], possible: &[String]) -> SceneVerdict {
    if row.oracle != Oracle::Errno || !matches!(sight, SceneVerdict::Stopped(_)) {
        return sight;
    }
    let comparable = tries.iter().filter(|t| possible.contains(&t.name)).count();
    if comparable == 0 {
        return SceneVerdict::Unclear("nothing that was tried here works unconfined".to_owned());
    }
    sight
}

/// Lays the scene out, runs the probe, asks the scene.
fn once(row: &Row, setup: &TrialSetup, inside: &dyn Confined) -> io::Result<(SceneVerdict, Vec<Try>)> {
    let stage = Stage::make(&setup.base, setup.root)?;
    let mut layout = Layout::make(&stage, &setup.program, setup.root, inside)?;
    let sampled = |clause: &String| {
        let overshoot = setup.promises.sampled.get(clause)?;
        let name = clause.strip_prefix("limits.").unwrap_or(clause);
        let limit = if ["files", "fs.tmp"].contains(&name) { "disk" } else { name };
        // What cannot be looked into ends a run by its memory, whatever else is counted.
        Some([(limit.to_owned(), overshoot.clone()), ("memory".to_owned(), overshoot.clone())])
    };
    layout.sampled = row.clauses.iter().filter_map(sampled).flatten().collect();
    let state = setup.environment.state.state().ok().map(|(path, _)| path);
    layout.words.insert("state-folders", folders(state.as_deref()));
    layout.environment = setup.environment.clone();
    let mut scene = scene::make(&row.scene, &mut layout)?;
    let mut call = call(row, setup, &layout)?;
    scene.arrange(&mut call);
    let observed = match scene.other() {
        None => run(inside, &call, scene.as_mut()),
        Some(other) => beside(inside, &call, scene.as_mut(), &other)?,
    };
    let observed = match observed {
        Ok(observed) => observed,
        Err(fault) => {
            let why = said(&fault);
            return scene.refused(&why).map(|sight| (sight, Vec::new())).ok_or_else(|| io::Error::other(why));
        }
    };
    let tries = scene::tries(&observed);
    if observed.timed_out && !row.scene.starts_with("wall") {
        return Ok((SceneVerdict::Unclear(format!("no end after {} s", observed.wall.as_secs())), tries));
    }
    Ok((scene.judge(&observed, &tries), tries))
}

/// Folders of our state by inode, since the same name inside may be another folder.
fn folders(state: Option<&Path>) -> String {
    use std::os::unix::fs::MetadataExt as _;
    let below = ["", "audit", "runs", "changes", "keys"].iter().filter_map(|name| Some(state?.join(name)));
    let known = below.filter_map(|path| Some(format!("{}:{}", std::fs::metadata(&path).ok()?.ino(), path.display())));
    known.collect::<Vec<_>>().join("\t")
}

fn said(fault: &sandbox::fault::Fault) -> String {
    format!("{}: {}", fault.what, fault.why)
}

fn run(inside: &dyn Confined, call: &ProbeCall, scene: &mut dyn Scene) -> Result<Observed, sandbox::fault::Fault> {
    inside.run(call, &mut |moment| scene.watch(moment))
}

/// With another run of the same sandbox, which has ended before or lives meanwhile.
fn beside(
    inside: &dyn Confined,
    call: &ProbeCall,
    scene: &mut dyn Scene,
    other: &scene::Other,
) -> io::Result<Result<Observed, sandbox::fault::Fault>> {
    let marker = random()?;
    let mut argv: Vec<OsString> = vec!["__probe".into(), marker.clone().into(), other.probe.into()];
    argv.extend(other.args.iter().cloned());
    let (program, workspace, directory) = (call.program.clone(), call.workspace.clone(), call.directory.clone());
    let (set, control) = (call.set.clone(), call.control);
    let elsewhere = move || {
        let call =
            ProbeCall { program, argv, workspace, directory, set, control, limit: LIMIT, ..ProbeCall::default() };
        inside.run(&call, &mut |_| ())
    };
    if other.before {
        return Ok(match elsewhere() {
            Ok(before) => {
                scene.before(&before);
                run(inside, call, scene)
            }
            Err(fault) => Err(fault),
        });
    }
    std::thread::scope(|scope| {
        let other = scope.spawn(elsewhere);
        // It is there, and has had the time to hold what it holds.
        let until = Instant::now() + Duration::from_secs(4);
        while survey::tasks(&marker).is_empty() && Instant::now() < until && !other.is_finished() {
            rest(Duration::from_millis(20));
        }
        rest(Duration::from_millis(400));
        let observed = run(inside, call, scene);
        match other.join() {
            Ok(Ok(_)) => Ok(observed),
            Ok(Err(fault)) => Ok(Err(fault)),
            Err(_) => Err(io::Error::other("the other run was lost")),
        }
    })
}

fn call(row: &Row, setup: &TrialSetup, layout: &Layout<'_>) -> io::Result<ProbeCall> {
    let mut argv: Vec<OsString> = vec!["__probe".into(), random()?.into(), row.probe.clone().into()];
    argv.extend(row.args.iter().flat_map(|argument| layout.fill(argument)).map(OsString::from));
    let demanded = |clause: &String| setup.promises.clauses.contains_key(clause);
    let set = row.set.iter().filter(|(clause, _)| demanded(clause));
    let set = set.map(|(clause, value)| (clause.clone(), layout.fill(value).concat())).collect();
    Ok(ProbeCall {
        program: setup.program.clone(),
        argv,
        workspace: Some(layout.workspace.clone()),
        read: vec![layout.granted.clone()],
        write: Vec::new(),
        set,
        env: Vec::new(),
        fds: Vec::new(),
        stdin: None,
        directory: None,
        terminal: false,
        groups: false,
        mount: None,
        resolvers: None,
        network: None,
        control: row.control,
        limit: LIMIT,
    })
}

/// A folder that everybody may pass through, with a copy of a program in it.
///
/// # Errors
/// There is no such folder, or no room.
pub fn program(stage: &Stage, from: &Path) -> io::Result<PathBuf> {
    let folder = stage.folder("bin")?;
    let path = folder.join("fumehood");
    std::fs::copy(from, &path)?;
    stage.hand_over(&path, 0o755)?;
    stage.hand_over(&folder, 0o755)?;
    Ok(path)
}
