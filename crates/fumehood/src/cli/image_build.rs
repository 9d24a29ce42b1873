//! `fumehood image build`: the steps are the store's; what an image wants to be run is run here, each in a sandbox of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use images::{Build, Listed, Run, Steps, Store};
use policy::planning::policy_digest;
use policy::value::{Image, NetMode, Root, StoredImage, Tier, TierChoice, WorkspaceMode};
use policy::{ClauseId, Loaded, Origins, OutcomeKind};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sandbox::fault::{show_path, show_text};
use sandbox::state::{Cross, Dir, errno_of};
use sandbox::{Capabilities, Options, PolicyLayer, Sink, Stdin, Stdio, Workload};
use serde_json::json;
use sys::signals::{STOPPING, Signals};

use super::args::{Flag, Positionals, To, usage};
use super::ask::request;
use super::flags::POLICY;
use super::image::{failure, made, missing, store};
use super::spec::{Call, Spec};
use crate::environment::Environment;
use crate::load;
use crate::ui::{Failure, Palette};

pub(super) const BUILD: Spec = Spec {
    path: &["image", "build"],
    about: "Build an image of a Dockerfile; RUN is a sandboxed run",
    usage: "-t REF [FLAGS] DIR",
    more: "Known: FROM (images of the store, scratch, other stages), RUN, COPY, ADD of files, ENV, ARG, USER, WORKDIR, CMD, ENTRYPOINT,\n\
           LABEL, EXPOSE; anything else is refused with its line. Steps are taken from an earlier build where nothing changed.\n\
           RUN has the network of `--allow-host` or of the policy (`-p`), which is none otherwise. It is user 0 inside and you outside;\n\
           changes of owners answer that they were made, and every file is yours.\n\
           Exit code 0; 126 if the Dockerfile or a policy is refused, 125 if a step fails; then no image is kept.",
    tables: &[
        &[
            Flag::new("tag", Some("REF"), To::Ours, "The name of the image").short(b't'),
            Flag::new("file", Some("FILE"), To::Ours, "The Dockerfile (DIR/Dockerfile)").short(b'f'),
            Flag::new(
                "build-arg",
                Some("NAME[=VALUE]"),
                To::Ours,
                "A value for ARG; without one, that of your variable",
            )
            .many(),
            Flag::new("target", Some("STAGE"), To::Ours, "Build this stage, and not the last one"),
            Flag::new("no-cache", None, To::Ours, "Do every step, also those that were done before"),
            Flag::new("quiet", None, To::Ours, "Say nothing of the steps").short(b'q'),
        ],
        POLICY,
    ],
    words: Positionals::Mixed(1),
    hidden: false,
    run: build,
};

/// What RUN may do where no document and no flag says otherwise.
const BUILD_DEFAULTS: &[&str] = &[
    "fs.noexec=false",
    "fs.protect=false",
    "fs.sockets=own",
    "fs.tmp=512M",
    "limits.wall=30m",
    "limits.memory=4G",
    "limits.disk=1G",
    "limits.file_size=1G",
    "limits.pids=1024",
    "limits.open_files=1024",
    "limits.output=64M",
    "net.mode=loopback",
    "syscalls.profile=image-build",
];
/// Nobody counts what is written to the tree while it is written.
const PREFERRED: [&str; 2] = ["limits.disk", "limits.files"];
/// Which names a step with the network can ask for, in the tree's `etc`.
const RESOLV: &str = "resolv.conf";
/// Largest one that is kept for the time of a step.
const MAX_RESOLV: u64 = 64 << 10;
/// Where programs are looked for that an image says nothing of.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn build(call: &mut Call<'_>) -> Result<u8, Failure> {
    let text = |name: &str| call.parsed.value(name).map(|value| value.to_string_lossy().into_owned());
    let folder = call.parsed.words.first().map(PathBuf::from);
    let folder = folder.ok_or_else(|| missing("DIR is missing", "`fumehood image build -t REF DIR`"))?;
    let name = text("tag").ok_or_else(|| missing("-t REF is missing", "give the image a name, as `-t work:1`"))?;
    let wanted = Build {
        folder,
        file: text("file").map(PathBuf::from),
        name,
        args: arguments(call),
        target: text("target"),
        anew: call.parsed.has("no-cache"),
    };
    let asked = request(call, Workload::Nothing)?.layers;
    let screen = std::io::stderr().as_fd().try_clone_to_owned().map_err(|error| unseen(&error))?;
    let quiet = call.parsed.has("quiet") || call.json;
    let image = built(&store(call)?, &wanted, Builds { asked, environment: call.environment, screen, quiet })?;
    if call.json {
        return call.console.json(&json!({ "schema": 1, "images": [image] })).map(|_| 0);
    }
    made(call, &[image])
}

/// For whom an image is built, under which layers, and where its steps are shown.
pub(super) struct Builds<'a> {
    pub(super) asked: Vec<PolicyLayer>,
    pub(super) environment: &'a Environment,
    pub(super) screen: OwnedFd,
    pub(super) quiet: bool,
}

/// Builds an image.
///
/// # Errors
/// Why none was kept.
pub(super) fn built(store: &Store, wanted: &Build, builds: Builds<'_>) -> Result<Listed, Failure> {
    let Builds { asked, environment, screen, quiet } = builds;
    let loaded = policy(&layers(asked, environment)?, environment)?;
    let mut steps = Sandboxed {
        digest: policy_digest(&loaded.policy),
        loaded,
        environment,
        host: Capabilities::probe_with(environment.services()),
        screen: File::from(screen),
        quiet,
        stopped: None,
        told: false,
    };
    let done = store.build(wanted, &mut steps);
    match (done, steps.stopped) {
        (Ok(image), _) => Ok(image),
        // Why a run was refused says more than that the step failed.
        (Err(_), Some(stop)) => Err(stop),
        (Err(error), None) => Err(failure(&error)),
    }
}

fn unseen(error: &std::io::Error) -> Failure {
    let what = "nothing of the build could be shown".to_owned();
    let fix = "free a descriptor, and try again".to_owned();
    Failure::own(usage("usage/build-screen", what, error.to_string().to_lowercase(), fix))
}

/// The caller's layers, and what a build has where they say nothing: it stands among the flags, which win over documents.
fn layers(asked: Vec<PolicyLayer>, environment: &Environment) -> Result<Vec<PolicyLayer>, Failure> {
    let (said, nobody) = (load::policy(&asked, environment)?.origins, Origins::default());
    let open = |set: &&&str| {
        let clause = ClauseId::ALL.iter().find(|id| set.split('=').next() == Some(id.path()));
        clause.is_none_or(|id| said.of(*id) == nobody.of(*id))
    };
    let defaults = BUILD_DEFAULTS.iter().filter(open).map(|set| PolicyLayer::Set((*set).to_owned()));
    let prefer = |clause: &&str| PolicyLayer::Flag { name: "--prefer".to_owned(), value: (*clause).to_owned() };
    Ok(defaults.chain(PREFERRED.iter().map(prefer)).chain(asked).collect())
}

/// Values of `--build-arg`.
fn arguments(call: &Call<'_>) -> BTreeMap<String, String> {
    let given = call.parsed.flags.iter().filter(|(flag, _)| flag.long == "build-arg");
    let words = given.filter_map(|(_, value)| Some(value.as_ref()?.to_string_lossy().into_owned()));
    let pair = |word: String| match word.split_once('=') {
        Some((name, value)) => Some((name.to_owned(), value.to_owned())),
        None => call.environment.variable(&word).map(|value| (word.clone(), value.to_string_lossy().into_owned())),
    };
    words.filter_map(pair).collect()
}

/// The policy of RUN, before anything of a step is in it.
fn policy(layers: &[PolicyLayer], environment: &Environment) -> Result<Loaded, Failure> {
    let loaded = load::policy(layers, environment)?;
    let policy = &loaded.policy;
    let alone = policy.workspace.mode == WorkspaceMode::None && policy.fs.root == Root::Host;
    if alone && policy.commands.is_none() && policy.tier == TierChoice::Fixed(Tier::Container) {
        return Ok(loaded);
    }
    Err(Failure::own(usage(
        "usage/build-policy",
        "the policy of a build has a workspace, a root, commands or another tier".to_owned(),
        "RUN sees the tree that is built, and nothing else is its workspace or root; only the container tier can show it"
            .to_owned(),
        "name a policy without `workspace`, `fs.root`, `commands` and `tier`; files come in by COPY".to_owned(),
    )))
}

/// Runs steps, and shows them.
struct Sandboxed<'a> {
    /// The policy of RUN, before anything of a step is in it.
    loaded: Loaded,
    digest: String,
    environment: &'a Environment,
    host: Capabilities,
    /// Where steps and their output are shown.
    screen: File,
    quiet: bool,
    /// Why the last run did not begin.
    stopped: Option<Failure>,
    told: bool,
}

impl Steps for Sandboxed<'_> {
    fn begins(&mut self, line: usize, text: &str, kept: bool) {
        if !self.quiet {
            let kept = if kept { " (kept)" } else { "" };
            self.say(&format!("{line}: {}{kept}", show_text(text)));
        }
    }

    fn tells(&mut self, words: &str) {
        self.say(&format!("fumehood: {}", show_text(words)));
    }

    fn run(&mut self, run: &Run<'_>) -> Result<(), String> {
        match self.ended(run) {
            Ok(ended) => ended,
            Err(stop) => {
                let words = stop.text(Palette::PLAIN, 100);
                self.stopped = Some(stop);
                Err(words)
            }
        }
    }

    fn policy(&self) -> String {
        self.digest.clone()
    }
}

impl Sandboxed<'_> {
    fn say(&self, line: &str) {
        if (&self.screen).write_all(format!("{line}\n").as_bytes()).is_err() {
            // Nobody looks.
        }
    }

    fn ended(&mut self, run: &Run<'_>) -> Result<Result<(), String>, Failure> {
        let mut loaded = self.loaded.clone();
        let named = loaded.policy.net.mode == NetMode::Allow;
        within(&mut loaded, run);
        let argv = run.argv.iter().map(Into::into).collect();
        let planned = sandbox::plan(loaded, Workload::Argv(argv), &self.host)?;
        if !self.told {
            self.told = true;
            for weakened in &planned.plan.weakened {
                self.say(&format!("fumehood: weakened: {}: {}", weakened.clause, show_text(&weakened.got)));
            }
        }
        let screen = || self.screen.as_fd().try_clone_to_owned();
        let sink = |fd: std::io::Result<_>| fd.map_or(Sink::Keep, Sink::Descriptor);
        let stdio = Stdio::Streams { stdin: Stdin::Nothing, stdout: sink(screen()), stderr: sink(screen()) };
        let how = Options { asker: Some(crate::approvals::asker(self.environment)), ..Options::new(stdio) };
        let names = named.then(|| Names::lay(run.root)).transpose().map_err(|errno| unwritten(run.root, errno))?;
        // Who is stopped from the terminal holds no limit: that waits until the step has ended.
        let stopping = Signals::take(&STOPPING);
        let finished = sandbox::start(planned, self.environment, &self.host, how)?.wait()?;
        drop(stopping);
        // Where the step did not begin the tree is thrown away.
        names.map_or(Ok(()), Names::end).map_err(|errno| unwritten(run.root, errno))?;
        let outcome = &finished.report.outcome;
        if outcome.kind == OutcomeKind::Exited && outcome.code == Some(0) {
            return Ok(Ok(()));
        }
        Ok(Err(outcome.message.clone()))
    }
}

/// The tree that is built becomes the root, and its user and variables the run's.
fn within(loaded: &mut Loaded, run: &Run<'_>) {
    let (name, number) = run.user.clone().unwrap_or_else(|| ("root".to_owned(), 0));
    let home = if number == 0 { "/root".to_owned() } else { format!("/home/{name}") };
    let policy = &mut loaded.policy;
    policy.name = "image build".to_owned();
    policy.process.user = name;
    policy.fs.root = Root::Image(Image {
        name: "build".to_owned(),
        found: Ok(StoredImage {
            tree: run.root.to_owned(),
            user: Some(number),
            workdir: Some(PathBuf::from(run.workdir)),
            built: true,
            ..StoredImage::default()
        }),
    });
    let env = &mut policy.env.set;
    env.entry("PATH".to_owned()).or_insert_with(|| PATH.to_owned());
    env.entry("HOME".to_owned()).or_insert(home);
    env.extend(run.env.clone());
}

/// A `resolv.conf` in the tree for as long as a step has the network: who answers there is the broker. A step may do anything
/// to the folder; what is done here is done in the folder itself, and through no link.
struct Names {
    etc: Dir,
    before: Option<(Vec<u8>, Mode)>,
}

impl Names {
    fn lay(root: &Path) -> Result<Self, Errno> {
        let etc = Dir::open(root)?.enter("etc", Cross::No)?;
        let before = match etc.stat(RESOLV)? {
            None => None,
            Some(stat) => Some((etc.read(RESOLV, MAX_RESOLV)?, Mode::from_raw_mode(stat.st_mode & 0o777))),
        };
        let names = Self { etc, before };
        names.put(Some((b"nameserver 198.18.0.1\noptions edns0\n", Mode::from_raw_mode(0o644))))?;
        Ok(names)
    }

    /// Puts back what was there.
    fn end(self) -> Result<(), Errno> {
        self.put(self.before.as_ref().map(|(bytes, mode)| (bytes.as_slice(), *mode)))
    }

    /// Whatever has the name goes, and the folder keeps its mode.
    fn put(&self, file: Option<(&[u8], Mode)>) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&self.etc)?.st_mode & 0o7777);
        rustix::fs::fchmod(&self.etc, mode | Mode::RWXU)?;
        self.etc.remove_tree(RESOLV)?;
        if let Some((bytes, mode)) = file {
            let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            let mut file = self.etc.open_file(RESOLV, new, Mode::RUSR | Mode::WUSR)?;
            file.write_all(bytes).map_err(|error| errno_of(&error))?;
            rustix::fs::fchmod(&file, mode)?;
        }
        rustix::fs::fchmod(&self.etc, mode)
    }
}

fn unwritten(root: &Path, errno: Errno) -> Failure {
    let why = match errno {
        Errno::LOOP | Errno::INVAL => "it is a link, or no file".to_owned(),
        Errno::FBIG => format!("it is larger than {} KiB", MAX_RESOLV >> 10),
        errno => errno.to_string().to_lowercase(),
    };
    Failure::own(usage(
        "usage/build-names",
        format!("{} cannot be ours for the time of a step", show_path(&root.join("etc").join(RESOLV))),
        why,
        "make it a file in a step before this one, or build without `--allow-host`".to_owned(),
    ))
}
