//! From a recorded plan to a payload that runs: journal, preparation, start, verification, *go*.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use backends::Capabilities;
use backends::native::{self, Birth, Launch, Prepared, Running, Stdio};
use policy::Policy;
use policy::value::{Tier, WorkspaceMode};

use super::Manner;
use super::early;
use super::guard::{Guard, Protected};
use super::home::Home;
use super::launch;
use super::planning::Planned;
use super::record::Recorded;
use super::streams::{Budget, Input, Stream};
use super::terminal::Terminal;
use super::watch::{Carried, Stop, Watch, Watched, own};
use super::workspace::Layer;
use crate::cli::{Request, World};
use crate::fault::{Fault, show_bytes};
use crate::state::Thing;
use crate::ui::{Failure, Voice};

/// Everything that is needed to start, and a journal that knows of it. The order of the fields is the order in which it
/// ends.
pub(super) struct Begun {
    birth: Option<Birth>,
    prepared: Prepared,
    program: String,
    home: Home,
    signals: Option<sys::signals::Signals>,
    protected: Option<Protected>,
    request: Io,
}

/// What the request says about streams.
pub(super) struct Io {
    json: bool,
    terminal: bool,
    input: bool,
}

impl Io {
    pub(super) const fn of(request: &Request, policy: &Policy, world: &World) -> Self {
        let input = request.interactive || !world.stdin_terminal;
        Self { json: request.json, terminal: policy.process.tty, input }
    }
}

/// A payload that runs, and all that belongs to it.
pub(super) struct Stage {
    pub(super) running: Running,
    /// As it was asked for; for messages.
    pub(super) program: String,
    pub(super) carried: Carried,
    pub(super) layer: Option<Layer>,
    pub(super) protected: Option<Protected>,
    pub(super) started: Instant,
    signals: sys::signals::Signals,
    /// Last: it goes after the guest and its groups.
    pub(super) home: Home,
}

/// Writes the journal and prepares.
pub(super) fn begin(
    planned: &Planned,
    (request, forced): (Request, super::commands::Forced),
    world: &World,
    recorded: &Recorded,
    host: &Capabilities,
    early: Option<early::Begun>,
) -> Result<Begun, Failure> {
    let policy = &planned.plan.policy;
    // In this order, since they go in the other one when something fails.
    let (mut home, signals, birth) = match early {
        Some(early::Begun { birth, signals, home }) => (home, Some(signals), Some(birth)),
        None => (early::open(&recorded.state, &recorded.id, policy)?, None, None),
    };
    let io = Io::of(&request, policy, world);
    let tmp = match planned.plan.tier {
        Tier::Process => Some(own_folder(&mut home, recorded)?),
        Tier::Language | Tier::Container | Tier::Gvisor | Tier::Vm => None,
    };
    let program = launch::program(request.what, policy, planned.plan.tier, tmp.as_deref())?;
    let named = program.argv.first().map(|name| show_bytes(name.as_encoded_bytes())).unwrap_or_default();
    let guard = Guard::make(policy, planned.plan.tier, &mut home)?;
    let mut launch = Launch {
        run: recorded.id.to_string(),
        argv: program.argv,
        show: guard.show,
        git: guard.git,
        placeholders: guard.placeholders,
        protect: guard.protect,
        files: Vec::new(),
        passed: passed(policy, world),
        forced,
        stdio: stdio(&io),
        term: world.variable("TERM").filter(|_| io.terminal).map(OsString::from),
        tmp: tmp.clone(),
        cache: crate::state::cache(world.euid),
    };
    let mut written = None;
    if let Some((name, bytes)) = program.file {
        match &tmp {
            Some(tmp) => {
                write_file(&tmp.join("fumehood"), &name, &bytes)?;
                written = Some(name);
            }
            None => launch.files.push((name, bytes)),
        }
    }
    let prepared = native::prepare(&planned.plan, host, &launch)?;
    if let Some(tmp) = &tmp {
        hand_over(tmp, written.as_deref(), prepared.owner(), host)?;
    }
    // One that is not what the plan asks for is ended here, its groups with it.
    let birth = birth.filter(|birth| birth.fits(&prepared));
    if birth.is_none() {
        for path in prepared.groups(host) {
            home.note(&Thing::Cgroup(path))?;
        }
    }
    Ok(Begun { birth, prepared, program: named, home, signals, protected: guard.protected, request: io })
}

pub(super) fn stdio(io: &Io) -> Stdio {
    if io.terminal {
        let (rows, cols) = Terminal::size_of(std::io::stdin()).unwrap_or((24, 80));
        return Stdio::Terminal(rows, cols);
    }
    if io.input { Stdio::Pipes } else { Stdio::NoInput }
}

fn passed(policy: &Policy, world: &World) -> BTreeMap<OsString, OsString> {
    policy
        .env
        .pass
        .iter()
        .filter_map(|name| world.variable(name).map(|value| (OsString::from(name), value.to_owned())))
        .collect()
}

/// A 0700 folder for a run of the process tier. Its name is the run's id, which is random, and it must not exist.
fn own_folder(home: &mut Home, recorded: &Recorded) -> Result<PathBuf, Failure> {
    use std::os::unix::fs::DirBuilderExt as _;
    let path = Path::new("/tmp").join(format!("fumehood-{}", recorded.id));
    home.note(&Thing::Temp(path.clone()))?;
    home.own(path.clone());
    std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(|e| {
        refused(Fault {
            id: "run/no-tmp",
            what: format!("`{}` cannot be made", path.display()),
            place: "the folder where this run writes".to_owned(),
            why: e.to_string().to_lowercase(),
            fix: "make room in /tmp, or use `--tier container`".to_owned(),
        })
    })?;
    Ok(path)
}

fn write_file(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), Failure> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = std::fs::DirBuilder::new().mode(0o700).create(folder);
    made.and_then(|()| std::fs::write(folder.join(name), bytes)).map_err(|e| {
        Failure::own(Fault {
            id: "run/no-tmp",
            what: format!("`{name}` cannot be written"),
            place: folder.display().to_string(),
            why: e.to_string().to_lowercase(),
            fix: "make room in /tmp, or use `--tier container`".to_owned(),
        })
    })
}

/// As root the payload is somebody else: the folder and what is in it become theirs.
fn hand_over(tmp: &Path, file: Option<&str>, (uid, gid): (u32, u32), host: &Capabilities) -> Result<(), Failure> {
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
        Failure::own(Fault {
            id: "run/no-tmp",
            what: format!("`{}` cannot be given to the run's user", tmp.display()),
            place: "the folder where this run writes".to_owned(),
            why: e.to_string().to_lowercase(),
            fix: "use `--tier container`".to_owned(),
        })
    })
}

impl Begun {
    /// Starts the guest, verifies its posture, and lets the payload go.
    pub(super) fn start(self, planned: &Planned, recorded: &Recorded, host: &Capabilities) -> Result<Stage, Failure> {
        let policy = &planned.plan.policy;
        // Before the guest is there: it inherits the mask, and no signal of the caller may fall between.
        let signals = match self.signals {
            Some(signals) => signals,
            None => sys::signals::Signals::take(&sys::signals::FORWARDED).map_err(own_failure)?,
        };
        let mut layer = None;
        let root = self.prepared.workspace().map(Path::to_owned);
        let owner = self.prepared.owner();
        if let (Some(to), Some(root)) = (self.prepared.copy_to(), &root) {
            layer = Some(super::workspace::copy_to_folder(root, to, policy, owner, host)?);
        }
        let mut started = native::start(self.prepared, host, self.birth)?;
        // While the guest is busy with itself.
        recorded.plan(planned)?;
        if started.exports() {
            let mut made = Layer::new(started.layer()?, root.clone().unwrap_or_default());
            if policy.workspace.mode == WorkspaceMode::Copy {
                made.fill(policy, owner, host)?;
                made.hide(policy, owner, host)?;
                started.filled()?;
            } else {
                made.hide(policy, owner, host)?;
            }
            layer = Some(made);
        }
        let verified = started.confined()?.verify()?;
        let mut running = verified.go()?;
        let carried = carry(&mut running, policy, &self.request)?;
        // While the program runs: its start does not wait for it.
        let mut home = self.home;
        root.iter()
            .flat_map(|root| super::mounts::unseen(policy, planned.plan.tier, root))
            .for_each(|note| home.tell(note));
        layer.iter().flat_map(Layer::not_copied).for_each(|note| home.tell(note));
        Ok(Stage {
            running,
            carried,
            home,
            program: self.program,
            layer,
            protected: self.protected,
            started: Instant::now(),
            signals,
        })
    }
}

fn refused(fault: Fault) -> Failure {
    Failure::Faults { code: 126, faults: vec![fault] }
}

fn own_failure(error: impl std::fmt::Display) -> Failure {
    Failure::own(Fault {
        id: "run/descriptors",
        what: error.to_string(),
        place: "before the program was started".to_owned(),
        why: "nothing was run".to_owned(),
        fix: "raise the limit of open files (ulimit -n)".to_owned(),
    })
}

fn carry(running: &mut Running, policy: &Policy, io: &Io) -> Result<Carried, Failure> {
    let streams = std::mem::take(&mut running.streams);
    let mut carried = Carried {
        input: None,
        streams: Vec::new(),
        terminal: None,
        budget: Budget::new(policy.limits.output.map(|bytes| bytes.0)),
    };
    if let Some(master) = streams.terminal {
        let (input, output) =
            (own(std::io::stdin()).map_err(own_failure)?, own(std::io::stdout()).map_err(own_failure)?);
        carried.terminal = Some(Terminal::new(master, input, output).map_err(own_failure)?);
        return Ok(carried);
    }
    if let Some(to) = streams.input {
        // A caller without stdin is a caller with nothing to say.
        let source = own(std::io::stdin().as_fd()).ok().filter(|_| io.input);
        let mut input = Input::new(source, to);
        input.close_at_end();
        carried.input = Some(input);
    }
    for (source, sink) in [(streams.output, own(std::io::stdout())), (streams.errors, own(std::io::stderr()))] {
        let Some(source) = source else { continue };
        carried.streams.push(match sink {
            Ok(sink) if !io.json => Stream::passing(source, sink),
            Ok(_) | Err(_) => Stream::keeping(source),
        });
    }
    Ok(carried)
}

impl Stage {
    /// The guest's pid outside.
    pub(super) const fn pid(&self) -> i32 {
        self.running.pid()
    }

    /// Watches until nothing runs any more.
    pub(super) fn watch(&mut self, policy: &Policy, recorded: &Recorded, voice: Voice, manner: &Manner) -> Watched {
        let mut warned = |words: &str| {
            recorded.threshold(words);
            if !manner.quiet && !manner.json {
                voice.say(&format!("fumehood: usage: {words}"));
            }
        };
        let tmp = self.home.tmp().map(Path::to_owned);
        let protected = self.protected.as_ref();
        let mut extra = |running: &Running, alive: bool| {
            if let Some(words) = protected.and_then(Protected::lost) {
                return Some(Stop::Lost(words));
            }
            let unlinked = if alive { running.unlinked_bytes() } else { 0 };
            let (limit, words) = super::workspace::over_limit(tmp.as_deref()?, unlinked, policy)?;
            Some(Stop::Limit(limit, words))
        };
        let watched = self.home.tmp().is_some();
        let signals = Some(&self.signals);
        Watch::new(policy, &mut self.running, &mut self.carried, signals, &mut warned, (watched, &mut extra)).run()
    }
}
