//! From a recorded plan to a payload that runs: journal, preparation, start, verification, *go*.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use backends::{Capabilities, FoundPaths, Launch, Prepared, Running, TMP_SLOT, Verified};
use policy::control::{Control, Variables};
use policy::value::Tier;
use policy::{ClauseId, Plan};

use super::broker::{self, Keeper};
use super::commands::Forced;
use super::earlier::Earlier;
use super::git_layers::GitLayers;
use super::guard::{Guard, Protected};
use super::host_resources::HostResources;
use super::launch;
use super::options::{Options, Stdin, Stdio};
use super::planning::Planned;
use super::record::Recorded;
use super::streams::{Budget, Input, StdStreams, Stream};
use super::terminal::Terminal;
use super::unsupervised;
use super::watches::{Armed, Watches};
use super::workspace::Layer;
use crate::environment::Environment;
use crate::error::Error;
use crate::fault::{Fault, show_bytes, show_path};
use crate::gc::CONTROL_FILE;
use crate::image::{Demanded, LeasedTree};
use crate::state::{Dir, Journal, Resource};
use crate::workload::Workload;

/// Everything that is needed to start, and a journal that knows of it. The order of the fields is the order in which it
/// ends.
pub(super) struct PreparedRun {
    prepared: Box<dyn Prepared>,
    program: String,
    /// What the proof demands beside what the plan says.
    found: FoundPaths,
    protected: Option<Protected>,
    git: Option<GitLayers>,
    broker: Option<broker::PreparedBroker>,
    resources: HostResources,
    image: Option<Demanded>,
    watches: Watches,
    armed: Armed,
}

/// A payload that runs, and all that belongs to it.
pub(super) struct Stage {
    pub(super) running: Box<dyn Running>,
    /// It goes after the guest, whose sockets it has.
    pub(super) broker: Option<Keeper>,
    /// As it was asked for; for messages.
    pub(super) program: String,
    pub(super) std_streams: StdStreams,
    pub(super) layer: Option<Layer>,
    /// `/tmp` of a live sandbox in a container.
    pub(super) tmp: Option<Dir>,
    pub(super) protected: Option<Protected>,
    pub(super) git: Option<GitLayers>,
    pub(super) started: Instant,
    pub(super) watches: Watches,
    /// It goes after the guest and its groups.
    pub(super) resources: HostResources,
    /// What keeps its root tree in the store.
    pub(super) image: Option<LeasedTree>,
}

/// A guest whose posture equals the plan, and which waits for *go*. The order of the fields is the order in which it ends.
pub(super) struct VerifiedRun {
    verified: Box<dyn Verified>,
    broker: Option<Keeper>,
    program: String,
    /// The workspace's folder on the host.
    root: Option<PathBuf>,
    layer: Option<Layer>,
    tmp: Option<Dir>,
    protected: Option<Protected>,
    git: Option<GitLayers>,
    watches: Watches,
    resources: HostResources,
    image: Option<LeasedTree>,
}

impl VerifiedRun {
    /// The guest's process, by its number outside.
    pub(super) fn pid(&self) -> i32 {
        self.verified.pid()
    }

    /// Whether it is an interpreter that still waits for its program.
    pub(super) fn takes_program(&self) -> bool {
        self.verified.takes_program()
    }

    /// Gives the interpreter that it is this program.
    pub(super) fn give(&mut self, program: Vec<u8>) -> Result<(), Error> {
        Ok(self.verified.give(program)?)
    }
}

/// What is to be run, as it was judged.
pub(super) struct RunRequest<'a> {
    pub(super) what: Workload,
    pub(super) forced: Forced,
    pub(super) options: &'a Options,
    pub(super) environment: &'a Environment,
}

/// Writes the journal and prepares.
pub(super) fn begin(
    plan: &Plan,
    wanted: RunRequest<'_>,
    recorded: &Recorded,
    host: &Capabilities,
) -> Result<PreparedRun, Error> {
    let (policy, RunRequest { what, forced, options, environment }) = (&plan.policy, wanted);
    // First, so that nothing is made for a run that is refused for one.
    let secrets = super::secrets::read(plan, environment)?;
    let image = crate::image::demand(plan, environment.images, &environment.state)?;
    let mut resources = journal(recorded, plan)?;
    super::elsewhere::note(plan, &what, environment).into_iter().for_each(|note| resources.tell(note));
    let bundled = backends::of(plan)?.wants_folder();
    let bundle = bundled.then(|| own_folder(&mut resources, recorded, HostResources::own_bundle)).transpose()?;
    let tmp = match plan.tier {
        // What a machine is made of lies there.
        Tier::Language | Tier::Process | Tier::Vm => Some(own_folder(&mut resources, recorded, HostResources::own)?),
        Tier::Gvisor | Tier::Container => None,
    };
    let live = matches!(what, Workload::Agent(_));
    let program = match plan.tier {
        Tier::Language => launch::interpreted(what, environment)?,
        Tier::Process | Tier::Container | Tier::Gvisor | Tier::Vm => {
            launch::program(what, policy, plan.tier, tmp.as_deref())?
        }
    };
    let named = program.argv.first().map(|name| show_bytes(name.as_encoded_bytes())).unwrap_or_default();
    let trust = broker::trust(plan)?;
    broker::notes(plan, trust.as_ref()).into_iter().for_each(|note| resources.tell(note));
    let guard = Guard::make(plan, &mut resources)?;
    resources.keep_room(&recorded.state, !live && (guard.layers.is_some() || super::trees::is_layered(plan)));
    let found = FoundPaths { protect: guard.protect, covered: super::covers::covered(plan, guard.protected.as_ref())? };
    let mut launch = Launch {
        run: recorded.id.to_string(),
        argv: program.argv,
        program: program.own,
        show: guard.show,
        git: guard.git,
        protect: found.protect.clone(),
        covered: found.covered.clone(),
        files: Vec::new(),
        trust: trust.as_ref().map(|trust| trust.inside.clone()),
        laid: options.earlier.is_some(),
        no_links: options.no_links,
        passed: passed(plan, environment).chain(super::secrets::variables(policy, &secrets.secrets)).collect(),
        forced,
        stdio: inner(&options.stdio),
        term: environment.variable("TERM").filter(|_| has_terminal(plan)).map(OsString::from),
        tmp: tmp.clone().or(bundle),
        cache: crate::state::cache(environment.euid),
        machines: machines(plan.tier, recorded),
        memory: options.memory.clone(),
        #[cfg(feature = "mutation")]
        mutation: backends::Mutation { without: options.without().to_vec(), ..backends::Mutation::default() },
    };
    let mut written = None;
    if let Some((name, bytes)) = program.file {
        match &tmp {
            Some(tmp) if plan.tier == Tier::Process => {
                write_file(&tmp.join("fumehood"), &name, &bytes)?;
                written = Some(name);
            }
            // An interpreter is handed it.
            Some(_) | None => launch.files.push((name, bytes)),
        }
    }
    options.change(&mut launch);
    let prepared = backends::of(plan)?.prepare(plan, host, &launch)?;
    if let Some(tmp) = &tmp {
        hand_over(tmp, written.as_deref(), prepared.owner(), host)?;
    }
    for path in prepared.groups(host) {
        resources.note(&Resource::Cgroup(path))?;
    }
    let (asker, watches) = (options.asker.clone(), Watches { live, ..Watches::of(plan, options.without()) });
    let broker = broker::begin((plan, secrets), (environment, asker), host, (&mut resources, recorded, trust))?;
    let armed = Armed::none(options.without().to_vec());
    let (protected, git, program) = (guard.protected, guard.layers, named);
    Ok(PreparedRun { prepared, program, found, protected, git, broker, resources, image, watches, armed })
}

/// The journal of a run. What dead runs left is removed before anything of this one runs: also a run that will be killed has
/// swept. The look costs one readdir when there is nothing; a leftover that cannot be removed is no reason not to run, and
/// `gc` tells of it.
fn journal(recorded: &Recorded, plan: &Plan) -> Result<HostResources, Error> {
    let (state, now) = (&recorded.state, jiff::Timestamp::now());
    let swept = crate::gc::sweep(state, now, crate::gc::Scope::Start).unwrap_or_default();
    recorded.swept(&swept);
    let workspace = super::trees::source(plan);
    let mut resources = HostResources::new(Journal::begin(state, recorded.id.clone(), workspace.as_deref(), now)?);
    // What is moved away in a tree of the user's is told, by whichever run did it.
    for found in swept.removed.iter().filter(|found| found.what == CONTROL_FILE) {
        resources.tell(format!(
            "the control file {} was put aside: run {} made it, and was killed before it could be",
            show_path(&found.path),
            found.run
        ));
    }
    Ok(resources)
}

/// Where prepared machines are. Without such a folder each one boots, which is slower and as safe.
fn machines(tier: Tier, recorded: &Recorded) -> Option<PathBuf> {
    let wanted = tier == Tier::Vm && recorded.state.machines().is_ok();
    wanted.then(|| recorded.state.path().join("machines"))
}

/// What `env.pass` names and the caller has. What stands for secrets is passed by other clauses, and is none of the caller's.
fn passed<'a>(plan: &'a Plan, environment: &'a Environment) -> impl Iterator<Item = (OsString, OsString)> + 'a {
    let of = |control: &'a Control| {
        let named = super::trees::held(control);
        if let Control::Environment(Variables::Passed(names)) = named { &names[..] } else { &[] }
    };
    let clauses = plan.entries.iter().filter(|entry| entry.clause == ClauseId::EnvPass);
    let names = clauses.flat_map(|entry| entry.controls.iter()).flat_map(of);
    names.filter_map(|name| environment.value(name).map(|value| (OsString::from(name), value.to_owned())))
}

/// Whether the program has a terminal.
fn has_terminal(plan: &Plan) -> bool {
    plan.controls().any(|control| matches!(control, Control::Terminal { .. }))
}

/// A 0700 folder of a run: in the process tier the run writes in it, where a runtime of containers is started the backend does. Its name is the run's id, which is random, and it must not exist.
fn own_folder(
    resources: &mut HostResources,
    recorded: &Recorded,
    own: fn(&mut HostResources, PathBuf),
) -> Result<PathBuf, Error> {
    let path = Path::new("/tmp").join(format!("fumehood-{}", recorded.id));
    resources.note(&Resource::Temp(path.clone()))?;
    own(resources, path.clone());
    make_folder(&path).map(|()| path)
}

/// A folder that must not exist yet.
pub(super) fn make_folder(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().mode(0o700).create(path).map_err(|e| {
        Error::refused(Fault {
            id: "run/no-tmp",
            what: format!("`{}` cannot be made", path.display()),
            place: "the folder where this run writes".to_owned(),
            why: e.to_string().to_lowercase(),
            fix: "make room in /tmp, or use `--tier container`".to_owned(),
        })
    })
}

fn write_file(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = std::fs::DirBuilder::new().mode(0o700).create(folder);
    made.and_then(|()| std::fs::write(folder.join(name), bytes)).map_err(|e| {
        Error::failed(Fault {
            id: "run/no-tmp",
            what: format!("`{name}` cannot be written"),
            place: folder.display().to_string(),
            why: e.to_string().to_lowercase(),
            fix: "make room in /tmp, or use `--tier container`".to_owned(),
        })
    })
}

/// As root the payload is somebody else: the folder and what is in it become theirs.
pub(super) fn hand_over(
    tmp: &Path,
    file: Option<&str>,
    (uid, gid): (u32, u32),
    host: &Capabilities,
) -> Result<(), Error> {
    if !host.root() {
        return Ok(());
    }
    let give = |path: &Path| std::os::unix::fs::lchown(path, Some(uid), Some(gid));
    let all = || -> std::io::Result<()> {
        if let Some(name) = file {
            let folder = tmp.join("fumehood");
            give(&folder.join(name))?;
            give(&folder)?;
        }
        give(tmp)
    };
    all().map_err(|e| {
        Error::failed(Fault {
            id: "run/no-tmp",
            what: format!("`{}` cannot be given to the run's user", tmp.display()),
            place: "the folder where this run writes".to_owned(),
            why: e.to_string().to_lowercase(),
            fix: "use `--tier container`".to_owned(),
        })
    })
}

impl PreparedRun {
    /// Starts the guest, and verifies its posture.
    pub(super) fn confine(
        self,
        planned: &Planned,
        recorded: &Recorded,
        host: &Capabilities,
        earlier: Option<&Earlier>,
    ) -> Result<VerifiedRun, Error> {
        let plan = &planned.plan;
        // Before the guest, so that it goes after it.
        let Self { prepared, program, found, mut protected, mut git, broker, mut resources, image, watches, mut armed } =
            self;
        let mut layer = None;
        let root = prepared.workspace().map(Path::to_owned);
        let owner = prepared.owner();
        if let (Some(to), Some(root)) = (prepared.copy_to().map(Path::to_owned), &root) {
            let copied = |control: &Control| matches!(control, Control::Copy { size: None, .. });
            armed.each(plan, copied, |_| {
                let mut made = super::workspace::copy_to_folder(root, &to, plan, owner, host)?;
                earlier.map_or(Ok(()), |earlier| made.go_on(earlier, owner, host))?;
                if super::trees::is_read_only(plan) {
                    // Nobody writes to it, and nothing of it is read back.
                    made.notes().into_iter().for_each(|note| resources.tell(note));
                } else {
                    layer = Some(made);
                }
                Ok::<(), Error>(())
            })?;
        }
        let broker = broker.map(|broker| broker.start(host)).transpose()?;
        let mut started = prepared.start(host)?;
        // While the guest is busy with itself.
        armed.each(plan, |control| matches!(control, Control::Audit), |_| recorded.plan(planned))?;
        if let Some(protected) = protected.as_mut().filter(|_| watches.protected) {
            protected.watch(recorded)?;
        }
        let (tmp, mut layers): (Vec<_>, Vec<_>) =
            started.layers()?.into_iter().partition(|(slot, _)| *slot == TMP_SLOT);
        let tmp = tmp.into_iter().next().map(|(_, fd)| Dir::from(fd));
        if let Some(git) = &mut git {
            git.made(layers);
        } else if let Some((_, fd)) = layers.pop() {
            let mut made = Layer::new(fd, root.clone().unwrap_or_default());
            let copy = plan.controls().any(|control| matches!(control, Control::Copy { size: Some(_), .. }));
            if copy {
                made.fill(plan, owner, host)?;
            }
            if let Some(earlier) = earlier.filter(|_| copy || started.waits()) {
                made.go_on(earlier, owner, host)?;
            }
            let hidden = |control: &Control| matches!(control, Control::Hide(_));
            armed.each(plan, hidden, |control| {
                if let Control::Hide(globs) = control { made.hide(globs, plan, owner, host) } else { Ok(()) }
            })?;
            if copy || started.waits() {
                started.filled()?;
            }
            layer = Some(made);
        }
        if let Some(earlier) = earlier.filter(|_| layer.as_ref().is_none_or(|layer| !layer.goes_on())) {
            return Err(earlier.no_place(plan.tier));
        }
        let broker = brokered(broker, &mut *started, plan, &mut armed)?;
        there_already(&mut armed, planned, layer.is_some());
        armed.watches(&watches, resources.tmp().is_some(), protected.is_some());
        let image = image.map(Demanded::proven).transpose()?.map(|(demanded, leased)| {
            armed.there(plan, |control| *control == demanded);
            leased
        });
        let verified = started.verify(armed.controls(), &found)?;
        Ok(VerifiedRun { verified, broker, program, root, layer, tmp, protected, git, watches, resources, image })
    }
}

impl VerifiedRun {
    /// Lets the payload go.
    pub(super) fn go(self, plan: &Plan, stdio: Stdio) -> Result<Stage, Error> {
        let Self { verified, broker, program, root, layer, tmp, protected, git, watches, mut resources, image } = self;
        if let Some(broker) = &broker {
            broker.is_of(verified.pid());
        }
        let mut running = verified.go()?;
        let std_streams = carry(&mut *running, &watches, stdio)?;
        // While the program runs: its start does not wait for it.
        let unseen = |root: &PathBuf| crate::mounts::unseen(&plan.policy, plan.tier, root);
        root.iter().flat_map(unseen).for_each(|note| resources.tell(note));
        layer.iter().flat_map(Layer::notes).for_each(|note| resources.tell(note));
        let started = Instant::now();
        Ok(Stage {
            running,
            broker,
            std_streams,
            resources,
            image,
            program,
            layer,
            tmp,
            protected,
            git,
            started,
            watches,
        })
    }
}

/// Gives the sandbox's sockets to the broker, which counts as armed when it holds them and said by which rules it judges.
fn brokered(
    broker: Option<broker::StartingBroker>,
    started: &mut dyn backends::Started,
    plan: &Plan,
    armed: &mut Armed,
) -> Result<Option<Keeper>, Error> {
    let mut broker = broker.map(broker::StartingBroker::go).transpose()?;
    let (sockets, mut keeper) = (started.sockets()?, None);
    armed.each(
        plan,
        |control| *control == Control::Broker,
        |_| {
            keeper = broker.take().map(|broker| broker.ready(plan, &sockets)).transpose()?;
            Ok::<(), Error>(())
        },
    )?;
    // It is ready only with the secrets of the plan, and by rules that name its proxy.
    let ready = keeper.is_some();
    armed.there(plan, |control| ready && matches!(control, Control::Secrets | Control::Proxy));
    Ok(keeper)
}

/// Arms what is in place without anything more to be done.
fn there_already(armed: &mut Armed, planned: &Planned, layered: bool) {
    let by_gate = planned.judged.by_gate;
    armed.there(&planned.plan, |control| {
        // What is written lies in the layer, and nothing but `apply` takes it out of there.
        (layered && *control == Control::ProtectedAtApply)
            || (by_gate && *control == Control::CommandGate)
            // A run has no channel to a tool: its streams are all that leads out.
            || *control == Control::ToolGate
    });
}

/// The streams as the backend makes them.
pub(super) const fn inner(stdio: &Stdio) -> backends::Stdio {
    match stdio {
        Stdio::Terminal(screen) => backends::Stdio::Terminal(screen.size.0, screen.size.1),
        Stdio::Socket => backends::Stdio::Socket,
        Stdio::Streams { stdin: Stdin::Nothing, stdout: _, stderr: _ } => backends::Stdio::NoInput,
        Stdio::Streams { stdin: Stdin::Bytes(_) | Stdin::Descriptor(_), stdout: _, stderr: _ } => {
            backends::Stdio::Pipes
        }
    }
}

fn carry(running: &mut dyn Running, watches: &Watches, stdio: Stdio) -> Result<StdStreams, Error> {
    let inner = running.take_streams();
    let budget = Budget::new(watches.output.map(|(limit, _)| limit.0));
    let mut std_streams = StdStreams { input: None, streams: Vec::new(), terminal: None, socket: None, budget };
    match stdio {
        Stdio::Terminal(screen) => {
            let master = inner.terminal.ok_or_else(|| unsupervised(&"no terminal came out of the sandbox"))?;
            std_streams.terminal = Some(Terminal::new(master, screen).map_err(|error| unsupervised(&error))?);
        }
        Stdio::Socket => std_streams.socket = inner.socket,
        Stdio::Streams { stdin, stdout, stderr } => {
            std_streams.socket = inner.socket;
            std_streams.input = inner.input.map(|to| Input::new(stdin, to));
            let outputs = [(inner.output, stdout), (inner.errors, stderr)];
            std_streams
                .streams
                .extend(outputs.into_iter().filter_map(|(source, sink)| Some(Stream::new(source?, sink))));
        }
    }
    Ok(std_streams)
}
