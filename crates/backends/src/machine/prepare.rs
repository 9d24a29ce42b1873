//! From a plan to everything that a machine is made of: kernel, initial file system and image, in the run's own folder, and the
//! prepared sandbox of the emulator.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use agent::frame::VERSION;
use agent::machine::{self, Attempt, FsSize, Machine, Network, Workspace};
use agent::words::Program;
use guest::config::OwnedProbe as Probe;
use policy::Plan;
use policy::control::{Accelerator, Emulator};
use policy::value::{Device, Grant, Root};

use super::live::Origin;
use super::machine_cache::{self, MachineCache};
use super::outer::planned;
use super::{firecracker, image, outer, start};
use crate::StartError;
use crate::backend::{self, Backend as _, Launch, Remembered, Stdio};
use crate::cpio::Archive;
use crate::etc;
use crate::host::{Capabilities, Emulation, Missing};
use crate::native::Container;
use crate::native::blueprint::{Blueprint, HostTree, TreeAccess};
use crate::native::{environment, filter};
use crate::sizes::Size;

/// Everything that a start needs.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) emulator: Box<dyn backend::Prepared>,
    /// The emulator's own plan.
    pub(super) outer: Plan,
    pub(super) plan: Plan,
    pub(super) emulation: Emulation,
    pub(super) words: Vec<OsString>,
    pub(super) machine: Machine,
    /// None where the agent itself is what is asked for.
    pub(super) program: Option<Program>,
    /// The filter that the machine's init puts on.
    pub(super) filter: filter::Built,
    /// Files that are shown read-only: name and content.
    pub(super) files: Vec<(String, Vec<u8>)>,
    /// What it begins with instead of a boot.
    pub(super) kept: Option<File>,
    /// Where that is kept for others.
    pub(super) keeps: Option<MachineCache>,
    /// What it begins with is all that a live sandbox was, and it goes on from there.
    pub(super) goes_on: bool,
    /// What others can go on from.
    pub(super) origin: Origin,
    /// The copy of a workspace that goes in.
    pub(super) workspace: Option<Copied>,
    /// What it was built from: the controls as they were applied.
    pub(super) blueprint: Blueprint,
    /// Bytes of memory of the machine.
    pub(super) memory: u64,
}

/// A copy of the workspace, which the caller makes before the start.
#[derive(Debug)]
pub(super) struct Copied {
    /// The workspace, canonical.
    from: PathBuf,
    /// Where the copy is made.
    copy: PathBuf,
    /// The empty file of its image.
    image: PathBuf,
    /// The file into which it comes back.
    back: PathBuf,
}

impl Copied {
    /// Of what is planned, in the run's own folder.
    fn of(shown: &HostTree, blueprint: &Blueprint, folder: &Path) -> Result<Self, StartError> {
        let resolved = blueprint.resolve("workspace", &shown.from)?;
        if !resolved.dir {
            return Err(StartError::NotADirectory { clause: "workspace", path: shown.from.clone() });
        }
        Ok(Self {
            from: resolved.path,
            copy: folder.join("workspace"),
            image: folder.join(outer::WORKSPACE),
            back: folder.join("workspace-changes"),
        })
    }

    /// Makes the image of the copy as it is now; an empty file for what comes back.
    pub(super) fn make(&self) -> Result<std::fs::File, StartError> {
        image::Planned::of("workspace", machine::WORKSPACE_LABEL, &self.copy)?.make(&self.image)?;
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(&self.back);
        file.map_err(|error| StartError::system("making the file for the workspace's changes", error.to_string()))
    }
}

/// Prepares a plan. What the machine is made of lies in the run's own folder, which the caller made and takes away; without one
/// nothing is made, and nothing can be started.
pub(super) fn prepare(plan: &Plan, host: &Capabilities, launch: &Launch) -> Result<Prepared, StartError> {
    let missing = |missing: crate::host::Missing| StartError::system("looking for the emulator", missing.why);
    let blueprint = Blueprint::of_machine(plan, launch);
    let (emulator, accelerator, _against) = planned(blueprint.machine.emulator, "an emulator")?;
    let emulation = host.machine(emulator).map_err(missing)?.clone();
    let refused = |what: &str| Err(not_in_a_machine(what));
    if launch.laid || !launch.show.is_empty() || !launch.git.is_empty() || !launch.covered.is_empty() {
        return refused("a file or folder of the host");
    }
    let live = launch.stdio == Stdio::Socket;
    if launch.program.is_some() != live || matches!(launch.stdio, Stdio::Terminal(..)) {
        return refused("a terminal or a program of ours");
    }
    let root = root(&blueprint)?;
    if blueprint.machine.network.is_some() {
        image::own_etc(root)?;
    }
    let memory = planned(blueprint.machine.memory, "memory")?;
    let built = planned(filter::build(&blueprint)?, "a filter")?;
    let remembered = launch.memory.as_deref();
    // What another one was has the root with which that one began.
    let machine_id = remembered.map_or_else(|| image::machine_id(root), |other| other.machine_id.clone());
    let machine = Machine { attempts: attempts(&built), machine_id, ..inside(&blueprint, launch)? };
    let image = match remembered {
        Some(other) => RootImage::Copy(other),
        None => RootImage::Made(image::Planned::of("fs.root", machine::ROOT_LABEL, root)?),
    };
    let made = launch.tmp.as_deref().map(|folder| lay_down(folder, &emulation, &image, &blueprint));
    let workspace = made.transpose()?.flatten();
    runs_on(accelerator, host)?;
    let outer = outer::plan(&blueprint, &emulation, host)?;
    let mut words = outer::emulator_argv(&blueprint, &emulation, workspace.is_some())?;
    let origin = Origin {
        kind: kind((&emulation, &words), &machine, (&built.program, &launch.files))?,
        root: launch.tmp.as_deref().unwrap_or_else(|| Path::new("")).join(outer::ROOT),
        machine_id: machine.machine_id.clone(),
        memory,
        alone: workspace.is_none(),
    };
    let (kept, keeps) = match remembered {
        Some(other) => (Some(going_on(other, &origin)?), None),
        None => waiting(launch, &emulation, &words),
    };
    if kept.is_some() {
        words.extend(outer::PREPARED.map(OsString::from));
    }
    let around = around(launch, &words, (emulator, workspace.is_some()));
    let emulator = Container.prepare(&outer, host, &around)?;
    // The agent of a live sandbox is there already: it is the machine's init.
    let program = if live { None } else { Some(program(launch)?) };
    let trusted = launch.trust.iter().flat_map(crate::Trust::files);
    let (plan, files) = (plan.clone(), launch.files.iter().cloned().chain(trusted).collect());
    Ok(Prepared {
        emulator,
        outer,
        plan,
        emulation,
        words,
        machine,
        program,
        filter: built,
        files,
        kept,
        keeps,
        goes_on: remembered.is_some(),
        origin,
        workspace,
        memory,
        blueprint,
    })
}

/// What was planned on KVM has it, or does not run.
fn runs_on(accelerator: Accelerator, host: &Capabilities) -> Result<(), StartError> {
    match accelerator {
        Accelerator::Tcg => Ok(()),
        Accelerator::Kvm => host.device(Device::Kvm).map(drop).map_err(|Missing { id: _, why, fix }| {
            let why = format!("it was planned on KVM, and runs on nothing else instead: {why}");
            StartError::Kvm { why, fix }
        }),
    }
}

fn not_in_a_machine(what: &str) -> StartError {
    StartError::Internal(format!("{what} cannot go into a machine"))
}

/// The folder of the host that is the root.
fn root(blueprint: &Blueprint) -> Result<&Path, StartError> {
    match &blueprint.root {
        Some(Root::Dir(folder)) => Ok(folder),
        Some(Root::Image(image)) => match &image.found {
            Ok(found) => Ok(&found.tree),
            Err(_) => Err(not_in_a_machine("an image that is not there")),
        },
        Some(Root::Host | Root::Empty) | None => Err(not_in_a_machine("a root that is no folder")),
    }
}

/// Where the image of the root comes from.
enum RootImage<'a> {
    /// The folder of the host.
    Made(image::Planned<'a>),
    /// The machine that it goes on from.
    Copy(&'a Remembered),
}

/// Puts what the machine is made of into the run's own folder, but the copy of its workspace, which comes later.
fn lay_down(
    folder: &Path,
    emulation: &Emulation,
    image: &RootImage<'_>,
    blueprint: &Blueprint,
) -> Result<Option<Copied>, StartError> {
    let files = emulation.kernel.files();
    let (kernel, mut initial) = files.map_err(|why| StartError::system("reading the kernel", why))?;
    initial.extend(own_archive());
    write(&folder.join(outer::KERNEL), &kernel)?;
    write(&folder.join(outer::INITIAL), &initial)?;
    let root = folder.join(outer::ROOT);
    image::place(&root)?;
    match image {
        RootImage::Made(image) => image.make(&root)?,
        RootImage::Copy(other) => copied(other, &root)?,
    }
    if emulation.emulator == Emulator::Firecracker {
        let config = firecracker::config(blueprint, blueprint.workspace.is_some())?;
        write(&folder.join(firecracker::CONFIG), &config)?;
    }
    let Some(shown) = &blueprint.workspace else { return Ok(None) };
    let copied = Copied::of(shown, blueprint, folder)?;
    image::place(&copied.image)?;
    Ok(Some(copied))
}

/// One that waits for a run of this kind, and where one is kept; what cannot be kept is no error: it boots.
fn waiting(launch: &Launch, emulation: &Emulation, words: &[OsString]) -> (Option<File>, Option<MachineCache>) {
    // Firecracker takes no orders, of which one would be to write down what waits.
    let writes = emulation.emulator == Emulator::Qemu;
    let folder = launch.machines.as_deref().filter(|_| writes && launch.tmp.is_some());
    let keeps = folder.and_then(|folder| MachineCache::of(folder, emulation, words).ok());
    (keeps.as_ref().and_then(MachineCache::find), keeps)
}

/// The digest of what a machine must have in common with another one to go on from what that was: what the emulator is told and is,
/// and all that the first process was told.
fn kind(
    (emulation, words): (&Emulation, &[OsString]),
    machine: &Machine,
    (filter, files): (&[u8], &[(String, Vec<u8>)]),
) -> Result<String, StartError> {
    let failed = |error: std::io::Error| StartError::system("looking at the emulator", error.to_string());
    let told = serde_json::to_vec(&(machine, filter, files)).map_err(|error| failed(error.into()))?;
    let told = OsString::from_vec(told);
    machine_cache::kind(emulation, &[words, &[told]].concat()).map_err(failed)
}

/// The state from which it goes on.
fn going_on(other: &Remembered, origin: &Origin) -> Result<File, StartError> {
    if other.kind != origin.kind {
        return Err(StartError::OtherMachine);
    }
    let open = other.state.try_clone().and_then(|mut state| state.rewind().map(|()| state));
    open.map_err(|error| StartError::system("reading what the machine was", error.to_string()))
}

/// The image of the root of the machine that it goes on from.
fn copied(other: &Remembered, to: &Path) -> Result<(), StartError> {
    let copy = || {
        let mut from = other.root.try_clone()?;
        from.rewind()?;
        let mut to = File::options().write(true).open(to)?;
        std::io::copy(&mut from, &mut to)
    };
    copy().map(drop).map_err(|error| StartError::system("copying the root of the machine", error.to_string()))
}

/// How the emulator is started.
fn around(launch: &Launch, words: &[OsString], (emulator, workspace): (Emulator, bool)) -> Launch {
    let (more, stdio) = match emulator {
        Emulator::Qemu => (None, Stdio::Sockets),
        Emulator::Firecracker => (Some(firecracker::CONFIG), Stdio::NoInput),
    };
    let all = [outer::KERNEL, outer::INITIAL, outer::ROOT].into_iter().chain(workspace.then_some(outer::WORKSPACE));
    let all: Vec<&str> = all.chain(more).collect();
    let grant = |folder: &Path, name: &str| Grant {
        from: folder.join(name),
        to: Path::new(outer::SHOWN).join(name),
        dangerous: false,
    };
    let show = launch.tmp.iter().flat_map(|folder| all.iter().map(|name| grant(folder, name)));
    Launch {
        run: launch.run.clone(),
        argv: words.to_vec(),
        program: None,
        show: show.collect(),
        git: Vec::new(),
        protect: Vec::new(),
        covered: Vec::new(),
        files: Vec::new(),
        trust: None,
        laid: false,
        no_links: false,
        passed: std::collections::BTreeMap::new(),
        forced: Vec::new(),
        stdio,
        term: None,
        tmp: None,
        cache: launch.cache.clone(),
        machines: None,
        memory: None,
        #[cfg(feature = "mutation")]
        mutation: launch.mutation.clone(),
    }
}

/// What the init makes of the machine.
fn inside(blueprint: &Blueprint, launch: &Launch) -> Result<Machine, StartError> {
    let place = |size: Option<Size>, what: &str| {
        let Size { bytes, inodes } = planned(size, what)?;
        Ok::<FsSize, StartError>(FsSize { bytes, inodes })
    };
    // What the init does to every machine, asked or not.
    let always = [
        (blueprint.inner_limits, "an end of namespaces"),
        (blueprint.no_new_privs, "no_new_privs"),
        (blueprint.drop_capabilities, "an end of capabilities"),
        (blueprint.clear_groups, "an end of groups"),
    ];
    for (part, what) in always {
        planned(part.then_some(()), what)?;
    }
    let workspace = blueprint.workspace.as_ref().map(|shown| shown_inside(shown, blueprint)).transpose()?;
    let (user, id) = planned(blueprint.user.clone(), "a user")?;
    let certificates = blueprint
        .certificates
        .iter()
        .flatten()
        .map(|path| path.to_str().map(str::to_owned).ok_or_else(|| not_text("the path of a file of certificates")));
    let variables = environment::build(blueprint, launch, &format!("/home/{user}"), "/tmp");
    Ok(Machine {
        version: VERSION,
        user,
        id,
        hostname: planned(blueprint.hostname.clone(), "a host name")?,
        umask: planned(blueprint.umask, "a mask")?,
        noexec: blueprint.noexec,
        loopback: blueprint.loopback(),
        network: blueprint.machine.network.map(|ipv6| Network { ipv6, resolver: etc::RESOLVER.to_owned() }),
        tmp: place(blueprint.tmp, "/tmp")?,
        shm: place(blueprint.shm, "/dev/shm")?,
        run: place(blueprint.run, "/run")?,
        rlimits: blueprint.rlimits.iter().map(|(resource, value)| (resource.number(), *value)).collect(),
        environment: variables.iter().map(text).collect::<Result<_, _>>()?,
        cwd: workspace.as_ref().map_or_else(|| begins_at(blueprint), |workspace| workspace.at.clone()),
        workspace,
        certificates: certificates.collect::<Result<_, _>>()?,
        machine_id: None,
        attempts: Vec::new(),
    })
}

/// What the init tries when the filter is on.
fn attempts(filter: &filter::Built) -> Vec<Attempt> {
    let calls = filter.probes.iter().filter_map(|probe| {
        let Probe::Call { number, args, errno } = probe else { return None };
        Some(Attempt { number: *number, args: *args, errno: *errno })
    });
    calls.collect()
}

/// Where programs start without a workspace: where the image says, if it has such a folder.
fn begins_at(blueprint: &Blueprint) -> String {
    let found = match &blueprint.root {
        Some(Root::Image(image)) => image.found.as_ref().ok(),
        Some(Root::Dir(_) | Root::Host | Root::Empty) | None => None,
    };
    let wanted = found.and_then(|found| {
        let at = found.workdir.as_deref()?;
        let there = found.tree.join(at.strip_prefix("/").ok()?).symlink_metadata().is_ok_and(|meta| meta.is_dir());
        at.to_str().filter(|_| there)
    });
    wanted.unwrap_or("/tmp").to_owned()
}

/// Where the copy of a workspace is inside, and how large it may be.
fn shown_inside(shown: &HostTree, blueprint: &Blueprint) -> Result<Workspace, StartError> {
    let at = shown.at.to_str().ok_or_else(|| not_text("the place of the workspace"))?.to_owned();
    let (size, write) = match shown.how {
        TreeAccess::Copy(Size { bytes, inodes }) => (FsSize { bytes, inodes }, true),
        // Nobody writes to it: its content is all that it holds, and cannot be more than there is memory.
        TreeAccess::ReadOnly => {
            let bytes = planned(blueprint.machine.memory, "memory")?;
            (FsSize { bytes, inodes: bytes / 4096 }, false)
        }
        TreeAccess::Writable | TreeAccess::Overlay(_) | TreeAccess::CopyInFolder => {
            return Err(StartError::Internal("the workspace is planned in a way that no machine has".to_owned()));
        }
    };
    Ok(Workspace { at, size, write })
}

/// The part of the initial file system that is ours: the same for all machines, which are told what they are to become.
fn own_archive() -> Vec<u8> {
    let mut archive = Archive::default();
    archive.file(machine::PROGRAM, 0o755, agent::ELF);
    archive.finish()
}

fn program(launch: &Launch) -> Result<Program, StartError> {
    let argv = launch.argv.iter().map(|word| word.to_str().map(str::to_owned).ok_or_else(|| not_text("an argument")));
    Ok(Program { argv: argv.collect::<Result<_, _>>()?, stdin: launch.stdio != Stdio::NoInput, ..Program::default() })
}

fn text(value: &CString) -> Result<String, StartError> {
    value.to_str().map(str::to_owned).map_err(|_bytes| not_text("a variable"))
}

fn not_text(what: &str) -> StartError {
    StartError::system(
        "describing the program to the machine",
        format!("{what} is not UTF-8, and the agent takes text alone"),
    )
}

/// A new file that everybody may read, whatever the caller's mask: its folder is the run's alone.
fn write(path: &Path, bytes: &[u8]) -> Result<(), StartError> {
    let file = std::fs::File::options().write(true).create_new(true).mode(0o444).open(path);
    let written = file.and_then(|mut file| {
        file.write_all(bytes)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o444))
    });
    written.map_err(|error| {
        StartError::system("writing what the machine starts from", format!("{}: {error}", path.display()))
    })
}

impl backend::Prepared for Prepared {
    fn workspace(&self) -> Option<&Path> {
        self.workspace.as_ref().map(|copied| copied.from.as_path())
    }

    fn maps(&self, path: &Path) -> bool {
        self.emulator.maps(path)
    }

    fn copy_to(&self) -> Option<&Path> {
        self.workspace.as_ref().map(|copied| copied.copy.as_path())
    }

    fn owner(&self) -> (u32, u32) {
        self.emulator.owner()
    }

    fn groups(&self, host: &Capabilities) -> Vec<PathBuf> {
        self.emulator.groups(host)
    }

    fn start(self: Box<Self>, host: &Capabilities) -> Result<Box<dyn backend::Started>, StartError> {
        Ok(Box::new(start::start(*self, host)?))
    }
}
