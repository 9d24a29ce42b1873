//! After the end: usage, violations, what changed, the report, and the removal of all that the run made.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use backends::{Running, Sample};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use guest::frames::ExecFailure;
use policy::report::{Digest, EnforcerLine, PolicyRef, Warning, WorkspaceReport};
use policy::value::{Root, Tier};
use policy::{ClauseId, Outcome, OutcomeKind, Plan, Policy, Report, Usage, Violation};
use serde_json::{Value, json};

use super::begin::Stage;
use super::broker::{Keeper, Summary};
use super::elsewhere::{self, outside};
use super::git_layers::GitLayers;
use super::guard::Protected;
use super::host_resources::HostResources;
use super::outcome;
use super::record::Recorded;
use super::streams::{CapturedStream, Last, Stream};
use super::supervise::Watched;
use super::terminal::Terminal;
use super::trees::Trees;
use super::violations::{self, Counters};
use super::workspace::Layer;
use crate::error::Error;
use crate::fault::{Fault, show_path, show_text};

/// How a run ended.
#[derive(Debug)]
pub struct Finished {
    /// What was planned.
    pub plan: Plan,
    /// The report.
    pub report: Report,
    /// What was kept of stdout.
    pub stdout: CapturedStream,
    /// What was kept of stderr.
    pub stderr: CapturedStream,
    /// How what was handed on to the caller ends: stdout (or the terminal), and stderr.
    pub last: [Last; 2],
    /// Why the program could not be executed.
    pub not_started: Option<Fault>,
    /// What failed when the program had run: told beside the report, of which it takes nothing away.
    pub failed: Vec<Fault>,
}

/// What came of a step after the end; what failed is kept for the report.
fn told<T: Default>(step: Result<T, Error>, failed: &mut Vec<Fault>) -> T {
    step.unwrap_or_else(|stop| {
        failed.extend(stop.into_faults());
        T::default()
    })
}

/// What the kernel counted and how the program ended.
fn counters(watched: &Watched) -> Counters {
    Counters {
        pids_refused: watched.sample.pids_refused,
        oom_kills: watched.sample.oom_kills,
        sigsys: watched.facts.signal == Some(31),
        sigxfsz: watched.facts.signal == Some(25),
        full: watched.full.clone(),
    }
}

/// Ends a run: everything that it made is gone when this returns.
pub(super) fn report(stage: Stage, watched: &Watched, plan: Plan, recorded: &Recorded) -> Finished {
    let mut failed = Vec::new();
    let wall = stage.started.elapsed().saturating_sub(watched.apart).as_secs_f64();
    let within = left(&stage, watched);
    let Stage { mut running, broker, std_streams, mut resources, layer, mut protected, git, program, image, .. } =
        stage;
    let layer = layer.and_then(|layer| brought(layer, (&mut *running, within), (&plan, &mut resources), &mut failed));
    // What is shown of the host can be read back only when nobody writes to it any more; else the end may take its time
    // while the report is made.
    let mut running = Some(running);
    running.iter_mut().for_each(|running| running.begin_end());
    protected.iter_mut().for_each(Protected::ending);
    if layer.is_some() || protected.is_some() || git.is_some() {
        running.take().into_iter().for_each(<dyn Running>::end);
    }
    let net = broker.map(Keeper::finish);
    // The layer of a container is one of the places of limited size; without those it lies in the folder of the run.
    let layer_used = layer.as_ref().map_or(0, Layer::used);
    // What a machine starts from lies in its folder, and nothing that it writes.
    let writes = plan.tier == Tier::Process;
    let folder = resources.tmp().filter(|_| writes).map_or(0, super::workspace::written);
    // Of what is written to files of the host nobody can say whose it was.
    let counted = watched.written.max(layer_used).max(folder);
    let disk = (!plan.policy.writes_to_host()).then_some(counted);
    resources.free_room();
    let mut workspace = match layer {
        Some(layer) => told(layer.read_back(recorded, &plan), &mut failed),
        None => WorkspaceReport::default(),
    };
    workspace.notes = resources.take_notes();
    let slipped = guarded(protected, git, recorded, &plan, (&mut workspace, &mut failed));
    let produced = std_streams.budget.produced();
    let mut streams = std_streams.streams.into_iter();
    let (out, mut err) = (streams.next(), streams.next());
    let hints = err.as_mut().map(|stream| stream.hints().to_vec()).unwrap_or_default();
    let lost = |(name, stream): (_, &Option<Stream>)| Some(not_handed_on(name, stream.as_ref()?.lost()?));
    failed.extend([("stdout", &out), ("stderr", &err)].into_iter().find_map(lost));
    let shown = std_streams.terminal.as_ref().map(Terminal::last);
    let [out_last, err_last] = [&out, &err].map(|stream| stream.as_ref().map(Stream::last).unwrap_or_default());
    let last = [shown.unwrap_or(out_last), err_last];
    let mut stdout = out.map(Stream::into_kept).unwrap_or_default();
    stdout.dropped = stdout.dropped.saturating_add(std_streams.terminal.as_ref().map_or(0, Terminal::dropped));
    let stderr = err.map(Stream::into_kept).unwrap_or_default();
    let mut list = stopped(watched, &counters(watched), &hints, &plan.policy);
    list.extend(slipped);
    list.extend(net.iter().flat_map(Summary::violations));
    let (outcome, not_started) = end_of(watched, &program, &plan.policy);
    let mut report = Report {
        schema: 1,
        run: recorded.id.to_string(),
        policy: PolicyRef { name: plan.policy.name.clone(), digest: plan.policy_digest().to_owned() },
        plan: Digest { digest: plan.digest().to_owned() },
        tier: plan.tier.as_str().to_owned(),
        backend: plan.backend.to_owned(),
        outcome,
        usage: Usage {
            net: net.as_ref().map(Summary::usage),
            ..usage(&watched.sample, watched.reaped, wall, disk, produced)
        },
        secrets: net.as_ref().map(|net| net.used(&plan.policy)).unwrap_or_default(),
        enforcers: plan.entries.iter().map(line).collect(),
        weakened: plan.weakened.clone(),
        warnings: watched.warnings.iter().map(|what| warning(what)).chain(net.iter().flat_map(of_broker)).collect(),
        violations: list,
        workspace,
        audit: policy::report::AuditPointer::default(),
    };
    report.audit = told(recorded.ended(&report), &mut failed);
    running.into_iter().for_each(<dyn Running>::end);
    drop(resources);
    drop(image);
    Finished { plan, report, stdout, stderr, last, not_started, failed }
}

/// What is left of the limit of wall time: what is handed over at the end is within it too.
fn left(stage: &Stage, watched: &Watched) -> Option<Duration> {
    let wall = stage.watches.wall.map(|wall| Duration::from_millis(wall.0).saturating_sub(stage.started.elapsed()));
    // Nobody looks any more: what is left is what all processors at once would use up.
    let cpu = stage.watches.cpu_time.map(|(limit, _)| {
        let used = Duration::from_micros(watched.sample.user_us.saturating_add(watched.sample.system_us));
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Duration::from_millis(limit.0).saturating_sub(used) / u32::try_from(processors).unwrap_or(u32::MAX)
    });
    wall.into_iter().chain(cpu).min()
}

/// The layer with what became of it elsewhere; none where that cannot be known.
fn brought(
    mut layer: Layer,
    (running, within): (&mut dyn Running, Option<Duration>),
    (plan, resources): (&Plan, &mut HostResources),
    failed: &mut Vec<Fault>,
) -> Option<Layer> {
    let workspace = Trees::of(plan).workspace;
    let at = workspace.as_ref().map_or(Path::new("/"), |(grant, _)| &grant.to);
    let taken = match running.bring_back(within) {
        Ok(None) => return Some(layer),
        Ok(Some(came)) => {
            let before = layer.notes().len();
            let taken = layer.brought(came, at, plan);
            layer.notes().into_iter().skip(before).for_each(|note| resources.tell(note));
            taken
        }
        Err(why) => Err(super::workspace::lost(&why)),
    };
    match taken {
        Ok(()) => Some(layer),
        Err(stop) => {
            failed.extend(stop.into_faults());
            None
        }
    }
}

/// What was stopped inside: what the kernel shows, why the run was ended, and hints of the program's own words.
fn stopped(watched: &Watched, counters: &Counters, hints: &[u8], policy: &Policy) -> Vec<Violation> {
    let mut list = violations::from_kernel(counters, policy);
    if let Some((limit, message)) = &watched.facts.ended_for
        && let Some(end) = violations::from_end(*limit, message)
        && !list.iter().any(|known| known.clause == end.clause)
    {
        list.push(end);
    }
    if watched.facts.interpreted {
        list.extend(watched.facts.signal.and_then(|signal| violations::from_interpreter(signal, hints, policy)));
    }
    let known: Vec<_> = list.iter().map(|violation| violation.clause).collect();
    // What the kernel shows needs no hint.
    let hints = violations::from_output(hints, policy).into_iter().filter(|hint| !known.contains(&hint.clause));
    list.extend(hints);
    list
}

/// What slipped in is put aside, and of git's folders what is harmless is taken over.
fn guarded(
    protected: Option<Protected>,
    git: Option<GitLayers>,
    recorded: &Recorded,
    plan: &Plan,
    (workspace, failed): (&mut WorkspaceReport, &mut Vec<Fault>),
) -> Vec<Violation> {
    let lost = protected.as_ref().is_some_and(Protected::is_untrusted);
    let mut list = told(super::guard::check(protected, recorded), failed);
    // Where a mount was taken away from outside, nobody can say what the layer was laid over.
    if let Some(git) = git.filter(|_| !lost) {
        let (taken, kept) = told(git.take_over(recorded, plan), failed);
        workspace.notes.extend(taken);
        list.extend(kept);
    }
    list
}

fn line(entry: &policy::Entry) -> EnforcerLine {
    EnforcerLine {
        clause: entry.clause,
        enforcer: entry.controls.enforcer(),
        strength: entry.controls.strength(),
        overshoot: entry.controls.overshoot(),
    }
}

/// The broker ended before the run did, judged by other rules than the plan has, or could not reach what it lets through.
fn of_broker(net: &Summary) -> impl Iterator<Item = Warning> {
    let lost = net.lost.as_ref().map(|why| (ClauseId::NetMode, format!("{}: {why}", super::broker::LOST)));
    let replaced = |digest: &String| {
        let what = format!("the rules were replaced while it ran; the last ones have the digest {}", show_text(digest));
        (ClauseId::NetAllow, what)
    };
    let unreached = net.unreached().map(|what| (ClauseId::NetAllow, what));
    let told = lost.into_iter().chain(net.rules.as_ref().map(replaced)).chain(unreached);
    told.map(|(clause, what)| Warning { clause, what })
}

fn warning(what: &str) -> Warning {
    Warning { clause: ClauseId::LimitsWarn, what: what.to_owned() }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds as seconds: 2^53 of them are 285 years")]
pub(super) fn usage(sample: &Sample, (user, system): (u64, u64), wall: f64, disk: Option<u64>, output: u64) -> Usage {
    let seconds = |micros: u64| micros as f64 / 1e6;
    // What another kernel inside calls time is no time of the host's: gVisor counts a task that waits for a processor.
    let (user, system) = if sample.uncounted_pids { (0, 0) } else { (user, system) };
    Usage {
        wall,
        cpu_user: seconds(sample.user_us.max(user)),
        cpu_system: seconds(sample.system_us.max(system)),
        // The guest has some, so that nobody has looked where there is none. What the kernel tells of the largest process at its end
        // is something else: pages of files once for each place where they are mapped, and all that others have of them as well.
        memory_peak: (sample.memory_peak > 0).then_some(sample.memory_peak),
        pids_peak: if sample.uncounted_pids { 0 } else { sample.pids_peak.max(1) },
        io_read: sample.io_read,
        io_written: sample.io_written,
        disk,
        output,
        net: None,
    }
}

fn not_handed_on(stream: &str, errno: rustix::io::Errno) -> Fault {
    Fault {
        id: "out/unwritable",
        what: format!("what the program wrote to {stream} could not all be handed on"),
        place: stream.to_owned(),
        why: errno.to_string().to_lowercase(),
        fix: "make room, or send it elsewhere".to_owned(),
    }
}

/// Whether its mode is that of a program.
fn may_be_executed(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Whether `fs.exec` names others, and not this one. A bare name is looked for inside only: there its last part tells.
fn unlisted(program: &str, policy: &Policy) -> bool {
    let Some(list) = &policy.fs.exec else { return false };
    let really = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let file = really(&outside(program.as_ref(), policy));
    let bare = !program.contains('/');
    !list.iter().any(|path| if bare { path.ends_with(program) } else { really(path) == file })
}

/// The file of the host that a program is, where that is known: with another root it is that root's own.
fn file(program: &str, policy: &Policy) -> Option<PathBuf> {
    let path = outside(program.as_ref(), policy);
    let granted = policy.fs.read.iter().chain(&policy.fs.write).any(|grant| path.starts_with(&grant.to));
    let of_root = path == Path::new(program) && !granted;
    match &policy.fs.root {
        Root::Dir(folder) if of_root => path.strip_prefix("/").ok().map(|rest| folder.join(rest)),
        Root::Image(_) | Root::Empty if of_root => None,
        Root::Host | Root::Dir(_) | Root::Image(_) | Root::Empty => Some(path),
    }
}

/// Exit code, what is wrong, and what to do.
fn not_executed(which: ExecFailure, program: &str, policy: &Policy) -> (i32, &'static str, String) {
    let (code, what, fix) = match which {
        ExecFailure::NotFound => {
            let end = elsewhere::away(policy, &outside(program.as_ref(), policy)).filter(|_| program.contains('/'));
            let fix = end.map(|end| {
                format!("it leads to {}: grant that folder with `--read`, with what it needs", show_path(&end))
            });
            let what = "the program is not there inside";
            return (127, what, fix.unwrap_or_else(|| in_root("name a program", policy)));
        }
        ExecFailure::NoInterpreter => {
            let what = "its interpreter (`#!` line or ELF loader) is not there inside";
            return (127, what, in_root("install it", policy));
        }
        ExecFailure::NotExecutable if file(program, policy).is_some_and(|file| file.is_dir()) => {
            (126, "it is a directory", "name a program in it; to look around, `fumehood shell`")
        }
        ExecFailure::NotExecutable if unlisted(program, policy) => (
            126,
            "it is there, and not among what may be executed (`fs.exec`)",
            "name it in `fs.exec`, with the interpreter of its `#!` line, or remove `fs.exec`",
        ),
        ExecFailure::NotExecutable
            if policy.fs.noexec && file(program, policy).is_some_and(|file| may_be_executed(&file)) =>
        {
            (
                126,
                "it is there, and nothing is executed from where one can write (`fs.noexec`)",
                "give it to its interpreter (`fumehood run -w . SCRIPT`, or `-- sh SCRIPT`), or allow it by `--set fs.noexec=false`",
            )
        }
        ExecFailure::NotExecutable => {
            (126, "it is there, but may not be executed", "chmod +x it, or see `fs.noexec` and `fs.exec` of the policy")
        }
        ExecFailure::Cwd => {
            (125, "the working directory cannot be entered", "check the owner and mode of the workspace")
        }
        ExecFailure::Resources => (
            125,
            "arguments and environment are too large, or memory is too small",
            "pass less, or raise `limits.memory`",
        ),
    };
    (code, what, fix.to_owned())
}

/// What to do about something that is not in the root tree of the policy.
fn in_root(what: &str, policy: &Policy) -> String {
    match &policy.fs.root {
        Root::Host => format!("{what} below /usr, or grant its folder with `--read` and name it in `PATH` (`--env PATH=..`)"),
        Root::Dir(folder) => {
            format!("{what} below {}, which is the root here, or grant its folder with `--read`", folder.display())
        }
        Root::Image(image) => {
            format!("{what} in the image `{}`, which is the root here, or grant its folder with `--read`", show_text(&image.name))
        }
        Root::Empty => {
            "this root is empty: grant the program with its libraries and their loader (`--read /usr --read /lib --read \
             /lib64`), or use `fs.root = \"host\"`"
                .to_owned()
        }
    }
}

/// The outcome; a program that could not be started is told apart by its message and its fault.
fn end_of(watched: &Watched, program: &str, policy: &Policy) -> (Outcome, Option<Fault>) {
    if let Some((errno, which)) = watched.exec {
        let (code, what, fix) = not_executed(which, program, policy);
        let why = std::io::Error::from_raw_os_error(errno).to_string().to_lowercase();
        let kind = if code == 125 { OutcomeKind::Failed } else { OutcomeKind::Refused };
        let fault = Fault {
            id: "run/not-started",
            what: format!("`{program}`: {what}"),
            place: "the program".to_owned(),
            why,
            fix,
        };
        let message = format!("nothing was run: `{program}`: {what}");
        let outcome = Outcome { kind, code: Some(code), signal: None, limit: None, message };
        return (outcome, Some(fault));
    }
    if let Some(failed) = &watched.failed {
        let outcome = Outcome {
            kind: OutcomeKind::Failed,
            code: Some(125),
            signal: None,
            limit: None,
            message: show_text(failed),
        };
        return (outcome, None);
    }
    (outcome::judge(&watched.facts), None)
}

impl Finished {
    /// Bytes of output that were not kept.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.stdout.dropped.saturating_add(self.stderr.dropped)
    }

    /// The report with what was kept of the output, and with what failed.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let dropped = self.dropped();
        let mut value = json!(self.report);
        if let Some(map) = value.as_object_mut() {
            for (name, kept) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
                match std::str::from_utf8(&kept.bytes) {
                    Ok(text) => map.insert(name.to_owned(), text.into()),
                    Err(_) => map.insert(format!("{name}_base64"), BASE64_STANDARD.encode(&kept.bytes).into()),
                };
                if let Some(at) = kept.cut_at {
                    map.insert(format!("{name}_cut_at"), at.into());
                }
            }
            map.insert("cut".to_owned(), (dropped > 0).into());
            map.insert("dropped".to_owned(), dropped.into());
            if !self.failed.is_empty() {
                map.insert("errors".to_owned(), json!(self.failed));
            }
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::{ExecFailure, not_executed};

    #[test]
    fn a_program_whose_link_leads_out_is_told_with_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("ws")).unwrap();
        std::fs::write(root.join("python"), "").unwrap();
        std::os::unix::fs::symlink("../python", root.join("ws/python")).unwrap();
        let caller = policy::Caller { dir: root.clone(), home: None, profiles: vec!["default".to_owned()] };
        let mut layers = policy::Layers::new(caller);
        layers.set("workspace.mode=\"overlay\"");
        layers.set(&format!("workspace.path={:?}", root.join("ws")));
        let policy = layers.finish().unwrap_or_else(|mistakes| panic!("{mistakes}")).policy;
        let fix = |program: &str| not_executed(ExecFailure::NotFound, program, &policy).2;
        assert!(
            fix("./python").contains(&format!("it leads to `{}`", root.join("python").display())),
            "{}",
            fix("./python")
        );
        assert!(
            fix("./none").contains("name a program below /usr") && fix("none").contains("name a program below /usr")
        );
    }

    #[test]
    fn with_another_root_a_file_of_the_host_says_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("bin")).unwrap();
        let caller = policy::Caller { dir: "/".into(), home: None, profiles: vec!["default".to_owned()] };
        let of = |root: &str| {
            let mut layers = policy::Layers::new(caller.clone());
            layers.set(&format!("fs.root=\"{root}\""));
            layers.finish().unwrap_or_else(|mistakes| panic!("{mistakes}")).policy
        };
        let what = |root: &str, program: &str| not_executed(ExecFailure::NotExecutable, program, &of(root)).1;
        let dir = format!("dir:{}", root.display());
        for (name, mode, is) in [("sh", 0o644, "may not be executed"), ("ls", 0o755, "where one can write")] {
            std::fs::write(root.join("bin").join(name), "").unwrap();
            std::fs::set_permissions(root.join("bin").join(name), PermissionsExt::from_mode(mode)).unwrap();
            let said = what(&dir, &format!("/bin/{name}"));
            assert!(said.contains(is), "{name}: {said}");
        }
        assert!(what(&dir, "/bin").contains("a directory") && !what(&dir, "/usr").contains("a directory"));
        assert!(what("host", "/usr").contains("a directory") && what("empty", "/usr").contains("may not be executed"));
    }

    #[test]
    fn a_program_that_the_list_leaves_out_is_not_said_to_lie_where_one_can_write() {
        let caller = policy::Caller { dir: "/".into(), home: None, profiles: Vec::new() };
        let mut layers = policy::Layers::new(caller);
        let none = |_: &std::path::Path| Err("no such file".to_owned());
        let text = "version = 1\nfs.exec = [\"/usr/bin/python3\"]\n";
        layers.document("own", text, policy::Format::Toml, std::path::Path::new("/"), &none);
        let loaded = layers.finish().unwrap_or_else(|mistakes| panic!("{mistakes}"));
        for (program, of_the_list) in [("/usr/bin/env", true), ("env", true), ("python3", false)] {
            let (code, what, fix) = not_executed(ExecFailure::NotExecutable, program, &loaded.policy);
            assert_eq!(code, 126);
            assert_eq!(what.contains("`fs.exec`"), of_the_list, "{program}: {what}");
            assert_eq!(fix.contains("name it in `fs.exec`"), of_the_list, "{program}: {fix}");
        }
    }
}
