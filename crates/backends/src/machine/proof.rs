//! The evidence of every control of a machine's plan, before *go*.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use policy::control::{Accelerator, Control, Emulator, Filter, Machine};
use policy::value::Root;
use sys::proc::{Mount, Process, Status};

use super::firecracker;
use super::inside::Inside;
use super::outer::SHOWN;
use super::start::Rest;

/// Between two looks for a process.
const AGAIN: Duration = Duration::from_millis(10);

/// Evidence, or why there is none.
type Evident = Result<(), String>;

fn must(holds: bool, found: impl FnOnce() -> String) -> Evident {
    if holds { Ok(()) } else { Err(found()) }
}

/// Every control without evidence. `guest`: the first process of the sandbox around the emulator.
pub(super) fn lacks(rest: &Rest, inside: &Inside, guest: i32, armed: &[Control]) -> Vec<String> {
    let emulator = emulator(rest, guest);
    let proof = Proof { rest, inside, armed, emulator };
    let mut lacks = Vec::new();
    for entry in &rest.plan.entries {
        let missing = entry.controls.iter().filter_map(|control| Some((control, proof.evidence(control).err()?)));
        lacks.extend(missing.map(|(control, why)| format!("`{}` by {}: {why}", entry.clause, control.name())));
    }
    lacks.dedup();
    lacks
}

/// The emulator's process: the one below the first of its sandbox that has exactly these words.
pub(super) fn found(words: &[OsString], guest: i32, until: Instant) -> Result<i32, String> {
    let wanted: Vec<u8> = words.iter().flat_map(|word| [word.as_encoded_bytes(), b"\0"].concat()).collect();
    loop {
        let tree = sys::proc::tree(guest).map_err(|error| error.to_string())?;
        let says = |pid: &i32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words == wanted);
        match tree.into_iter().find(says) {
            Some(pid) => return Ok(pid),
            None if Instant::now() >= until => return Err("no process has the emulator's words".to_owned()),
            None => drop(sys::channel::wait(&[], Some(AGAIN))),
        }
    }
}

/// The emulator as the host's kernel shows it: exactly our words, confined in each of its threads.
fn emulator(rest: &Rest, guest: i32) -> Evident {
    let pid = found(&rest.words, guest, Instant::now())?;
    let said = |path: PathBuf| std::fs::read_to_string(path).map_err(|error| error.to_string());
    let around = said(format!("/proc/{guest}/status").into())?;
    let around = sys::proc::parse_status(&around).ok_or("the status of its sandbox cannot be read")?;
    let mut threads = Vec::new();
    let listed = std::fs::read_dir(format!("/proc/{pid}/task")).map_err(|error| error.to_string())?;
    for entry in listed {
        // A thread may end while we look.
        let Ok(text) = said(entry.map_err(|error| error.to_string())?.path().join("status")) else { continue };
        threads.push(sys::proc::parse_status(&text).ok_or("its status cannot be read")?);
    }
    let program = rest.blueprint.machine.emulator.map(|(program, ..)| program).ok_or("no emulator is planned")?;
    confined(program, &around, &threads)?;
    runs_on(rest, pid)?;
    told(rest, program, pid)?;
    Process::open(pid).map(drop).map_err(|error| error.to_string())
}

/// Each thread has no privilege, and a filter of the emulator's own over those of the sandbox, which its first process has as well.
fn confined(program: Emulator, around: &Status, threads: &[Status]) -> Evident {
    must(!threads.is_empty(), || "it has no threads".to_owned())?;
    for status in threads {
        bare(status)?;
        let own = match (status.seccomp_filters, around.seccomp_filters) {
            (Some(all), Some(sandbox)) => all > sandbox && sandbox > 0,
            // A kernel before 5.9 counts none: QEMU was told by a word to have one, or to fail. A build of Firecracker may have none.
            (_, _) => program == Emulator::Qemu,
        };
        must(status.seccomp == 2 && own, || {
            let (found, sandbox) = (status.seccomp_filters, around.seccomp_filters);
            format!("a thread of it has {found:?} filters, of which {sandbox:?} are of the sandbox around it")
        })?;
    }
    Ok(())
}

/// What Firecracker reads at its start is, in its own tree, what was planned: its words are a file.
fn told(rest: &Rest, program: Emulator, pid: i32) -> Evident {
    if program == Emulator::Qemu {
        return Ok(());
    }
    let wanted = firecracker::config(&rest.blueprint, rest.blueprint.workspace.is_some());
    let wanted = wanted.map_err(|error| error.to_string())?;
    let read = std::fs::read(format!("/proc/{pid}/root{SHOWN}/{}", firecracker::CONFIG));
    must(read.map_err(|error| error.to_string())? == wanted, || "its file tells it something else".to_owned())
}

/// Whether what runs the machine's instructions is what was planned, by the emulator's descriptors.
fn runs_on(rest: &Rest, pid: i32) -> Evident {
    let listed = std::fs::read_dir(format!("/proc/{pid}/fd")).map_err(|error| error.to_string())?;
    // It may close one while we look.
    let names = listed.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let accelerator = rest.blueprint.machine.emulator.map(|(_, accelerator, _)| accelerator);
    of_kvm(accelerator, super::outer::processors(&rest.blueprint), names)
}

/// KVM gives who opened it one descriptor for the machine and one for each processor, which has its number in the machine as its name,
/// also where it was copied; nobody else has any of it.
fn of_kvm(planned: Option<Accelerator>, wanted: u64, names: impl Iterator<Item = PathBuf>) -> Evident {
    let (mut device, mut machines, mut processors) = (0_u64, 0_u64, BTreeSet::new());
    for name in names {
        match name.to_string_lossy().as_ref() {
            "/dev/kvm" => device = device.saturating_add(1),
            "anon_inode:kvm-vm" => machines = machines.saturating_add(1),
            name if name.starts_with("anon_inode:kvm-vcpu") => drop(processors.insert(name.to_owned())),
            _ => {}
        }
    }
    let processors = u64::try_from(processors.len()).unwrap_or(u64::MAX);
    let holds = match planned {
        Some(Accelerator::Kvm) => device >= 1 && machines == 1 && processors == wanted,
        Some(Accelerator::Tcg) => (device, machines, processors) == (0, 0, 0),
        None => false,
    };
    must(holds, || format!("of KVM it holds {device} devices, {machines} machines and {processors} processors"))
}

/// No capability, and none to be had.
fn bare(status: &Status) -> Evident {
    let all = &status.capabilities;
    let sets = [all.inheritable, all.permitted, all.effective, all.bounding, all.ambient];
    must(status.no_new_privs, || "no_new_privs is not set".to_owned())?;
    must(sets == [0; 5], || "it has capabilities".to_owned())
}

/// All that is known of a machine that waits.
struct Proof<'a> {
    rest: &'a Rest,
    inside: &'a Inside,
    armed: &'a [Control],
    emulator: Evident,
}

impl Proof<'_> {
    fn evidence(&self, control: &Control) -> Evident {
        match control {
            Control::Machine(part) => self.part(part),
            Control::InMachine(inner) => self.inner(inner),
            // Verified as a control of the emulator's own sandbox.
            Control::Cgroup { .. } | Control::LocalRoutes { .. } | Control::Inlets(_) => self.outer(control),
            Control::Watch(_)
            | Control::Broker
            | Control::Proxy
            | Control::Secrets
            | Control::Audit
            | Control::ToolGate
            | Control::ProtectedAtApply
            | Control::ImageTree(_)
            | Control::Copy { size: None, .. } => must(self.armed.contains(control), || "nobody set it up".to_owned()),
            Control::Namespace(_)
            | Control::Root(_)
            | Control::Device { .. }
            | Control::User { .. }
            | Control::Hostname(_)
            | Control::NoInnerNamespaces
            | Control::NoNewPrivs
            | Control::NoCapabilities
            | Control::NoGroups
            | Control::KeptGroups(_)
            | Control::RunMark
            | Control::NoDescriptors
            | Control::Undumpable
            | Control::Session
            | Control::Keyring
            | Control::SignalScope
            | Control::PayloadScope
            | Control::Umask(_)
            | Control::Terminal { .. }
            | Control::Label(_)
            | Control::Mount { .. }
            | Control::ReadOnlyOverlay
            | Control::Overlay { .. }
            | Control::Copy { size: Some(_), .. }
            | Control::Tmpfs { .. }
            | Control::Certificates { .. }
            | Control::Hide(_)
            | Control::Covered(_)
            | Control::ProtectedMounts
            | Control::NoexecMounts
            | Control::NoexecRules(_)
            | Control::Executables { .. }
            | Control::ReadFolders { .. }
            | Control::WriteFolders { .. }
            | Control::Landlock(_)
            | Control::Rule { .. }
            | Control::Filter(_)
            | Control::Rlimit { .. }
            | Control::EachFile(_)
            | Control::OwnKernel { .. }
            | Control::Veth
            | Control::Environment(_)
            | Control::Interpreter(_)
            | Control::HostNetwork
            | Control::CommandGate => Err("it is nothing that a machine has".to_owned()),
        }
    }

    /// A control of the emulator's own sandbox, each of which was verified before the emulator was let go.
    fn outer(&self, control: &Control) -> Evident {
        must(self.rest.outer.controls().any(|own| own == control), || {
            "the emulator's sandbox has no such control".to_owned()
        })
    }

    fn part(&self, part: &Machine) -> Evident {
        match part {
            Machine::Emulator { program, version, accelerator, against } => {
                self.emulator.clone()?;
                must(*version == self.rest.version, || format!("it is version {}", self.rest.version))?;
                let applied = self.rest.blueprint.machine.emulator;
                must(applied == Some((*program, *accelerator, *against)), || {
                    format!("what runs it, and against whom its sandbox holds, is {applied:?}")
                })
            }
            Machine::Kernel { release, digest } => {
                must(*digest == self.rest.digest, || "it was started from another kernel".to_owned())?;
                must(*release == self.inside.release && *release == self.rest.release, || {
                    format!("inside it is {}", self.inside.release)
                })
            }
            Machine::Memory(bytes) => {
                must(self.inside.memory <= *bytes, || format!("inside it is {}", self.inside.memory))
            }
            Machine::NoNetwork => {
                self.emulator.clone()?;
                must(self.inside.devices == ["lo"], || format!("it has {}", self.inside.devices.join(", ")))
            }
            Machine::Network { .. } => {
                self.emulator.clone()?;
                self.outer(&Control::Machine(part.clone()))?;
                must(self.rest.joined, || "its frames are carried to nobody".to_owned())?;
                let mut devices: Vec<&str> = self.inside.devices.iter().map(String::as_str).collect();
                devices.sort_unstable();
                must(devices == [sys::bare::DEVICE, "lo"], || format!("it has {}", devices.join(", ")))
            }
        }
    }

    /// What the machine's kernel holds.
    #[expect(clippy::too_many_lines, reason = "a table: one arm per control")]
    fn inner(&self, control: &Control) -> Evident {
        let (inside, machine) = (self.inside, &self.rest.machine);
        let status = &inside.status;
        match control {
            Control::Root(planned) => self.root(planned),
            Control::User { name, id } => {
                let ids = status.uid == [*id; 4] && status.gid == [*id; 4];
                must(ids && inside.hello.user == *name, || format!("it is uid {} {}", status.uid[0], inside.hello.user))
            }
            Control::Hostname(name) => must(inside.hostname == *name, || format!("it is {}", inside.hostname)),
            Control::Umask(mask) => must(status.umask == Some(*mask), || format!("it is {:?}", status.umask)),
            Control::NoInnerNamespaces => {
                must(inside.namespaces == "0", || format!("{} can be made", inside.namespaces))
            }
            Control::NoNewPrivs => must(status.no_new_privs, || "it is not set".to_owned()),
            Control::NoCapabilities => bare(status),
            Control::NoGroups => must(status.groups.is_empty(), || format!("it has {:?}", status.groups)),
            Control::Filter(part) => self.filter(part),
            Control::Rlimit { resource, value } => {
                // Some are as low where nobody asked.
                let asked = machine.rlimits.contains_key(&resource.number());
                let found = inside.limit(resource.number());
                must(asked && found.is_some_and(|found| found <= *value), || format!("it is {found:?}"))
            }
            Control::Tmpfs { at, bytes, inodes } => self.tmpfs(at, *bytes, *inodes),
            Control::Copy { from, at, size: Some((bytes, inodes)) } => {
                self.workspace(from, at, true)?;
                self.tmpfs(&at.to_string_lossy(), *bytes, *inodes)
            }
            Control::Mount { from, at, write: false } => self.workspace(from, at, false),
            Control::NoexecMounts => self.noexec(),
            Control::Certificates { at } => {
                must(at.len() == machine.certificates.len(), || "they are shown elsewhere".to_owned())?;
                at.iter().try_for_each(|at| self.certificates(&at.to_string_lossy()))
            }
            Control::Environment(variables) => {
                let home = format!("/home/{}", machine.user);
                let agents = inside.hello.home == home && inside.hello.user == machine.user;
                must(agents && self.rest.blueprint.variables.contains(variables), || "it has another".to_owned())
            }
            Control::Namespace(_)
            | Control::ImageTree(_)
            | Control::Device { .. }
            | Control::KeptGroups(_)
            | Control::RunMark
            | Control::NoDescriptors
            | Control::Undumpable
            | Control::Session
            | Control::Keyring
            | Control::SignalScope
            | Control::PayloadScope
            | Control::Terminal { .. }
            | Control::Label(_)
            | Control::Mount { write: true, .. }
            | Control::ReadOnlyOverlay
            | Control::Overlay { .. }
            | Control::Copy { size: None, .. }
            | Control::Hide(_)
            | Control::Covered(_)
            | Control::ProtectedMounts
            | Control::ProtectedAtApply
            | Control::NoexecRules(_)
            | Control::Executables { .. }
            | Control::ReadFolders { .. }
            | Control::WriteFolders { .. }
            | Control::Landlock(_)
            | Control::Rule { .. }
            | Control::Cgroup { .. }
            | Control::EachFile(_)
            | Control::Watch(_)
            | Control::OwnKernel { .. }
            | Control::Veth
            | Control::LocalRoutes { .. }
            | Control::Inlets(_)
            | Control::Broker
            | Control::Proxy
            | Control::Secrets
            | Control::Machine(_)
            | Control::InMachine(_)
            | Control::Interpreter(_)
            | Control::HostNetwork
            | Control::Audit
            | Control::CommandGate
            | Control::ToolGate => Err("it is nothing that a machine's kernel is asked for".to_owned()),
        }
    }

    /// One read-only root, the image's entries read-only on it, its machine id covered, and no mount that was not planned.
    fn root(&self, planned: &Root) -> Evident {
        // Its content was read whole when its image was made: of what, that must be the plan's.
        let made = &self.rest.blueprint.root;
        must(made.as_ref() == Some(planned), || format!("the root is made of {made:?}"))?;
        let root = self.inside.mount("/")?;
        must(root.kind == "tmpfs" && root.has("ro") && root.has("nodev") && root.has("nosuid"), || {
            format!("the root is {} {}", root.kind, root.options)
        })?;
        let id = self.rest.machine.machine_id.as_ref().map(|file| format!("/{file}"));
        // A file of the initial file system, which no program sees else.
        let covers = |mount: &Mount| mount.kind == "rootfs" && mount.has("ro") && mount.has("nosuid");
        if let Some(id) = &id {
            let covered = self.inside.mount(id)?;
            must(covers(covered), || format!("the machine id is {} {}", covered.kind, covered.options))?;
        }
        for mount in &self.inside.mounts {
            let image = mount.kind == "ext4" && mount.source == "/dev/vda";
            let sealed = mount.has("ro") && mount.has("nosuid") && (mount.has("nodev") || mount.point == "/dev");
            let ours = match mount.point.as_str() {
                "/" => true,
                "/proc" => mount.kind == "proc" && mount.has("nosuid") && mount.has("nodev"),
                "/dev" => mount.kind == "tmpfs" && sealed,
                "/tmp" | "/run" | "/dev/shm" => mount.kind == "tmpfs" && mount.has("nosuid") && mount.has("nodev"),
                agent::machine::OURS => mount.kind == "tmpfs" && sealed,
                at if self.rest.machine.workspace.as_ref().is_some_and(|workspace| workspace.at == at) => {
                    mount.kind == "tmpfs" && mount.has("nosuid") && mount.has("nodev")
                }
                at if self.rest.machine.certificates.iter().any(|place| place == at) => mount.kind == "tmpfs" && sealed,
                at => sealed && (image || (covers(mount) && id.as_deref() == Some(at))),
            };
            must(ours, || format!("{} at {} was not planned", mount.kind, mount.point))?;
        }
        Ok(())
    }

    /// What is trusted is read there, and nobody writes it.
    fn certificates(&self, at: &str) -> Evident {
        let wanted =
            self.rest.files.iter().find(|(name, _)| name == agent::machine::CERTIFICATES).map(|(_, bytes)| bytes);
        must(self.inside.mount(at)?.has("ro"), || format!("{at} can be written to"))?;
        must(wanted.is_some() && self.inside.certificates.get(at) == wanted, || format!("{at} has others"))
    }

    /// The kernel's answer to one attempted call: the init starts no agent where one is otherwise than it was told.
    fn answer(&self, number: u32, args: &[u64; 6]) -> Option<i32> {
        let tried = self.rest.machine.attempts.iter().find(|tried| tried.number == number && tried.args == *args);
        tried.map(|tried| tried.errno)
    }

    /// One filter is on, calls of each kind were tried under it, and it closes and opens what the plan says.
    fn filter(&self, part: &Filter) -> Evident {
        let (status, built) = (&self.inside.status, &self.rest.filter);
        must(status.seccomp == 2 && status.seccomp_filters.unwrap_or(1) == 1, || "the filter is not on".to_owned())?;
        let tried = |refused: bool| self.rest.machine.attempts.iter().any(|tried| (tried.errno != 0) == refused);
        must(tried(true) && tried(false), || "no call was tried".to_owned())?;
        match part {
            Filter::Profile(name) => {
                let built = self.rest.blueprint.profile.as_deref();
                must(built == Some(name), || format!("its rules are those of {}", built.unwrap_or("none")))
            }
            Filter::Allow(names) => built.named(names, true, |number, args| self.answer(number, args)),
            Filter::Deny(names) => built.named(names, false, |number, args| self.answer(number, args)),
            Filter::NoUnix => must(built.closes_unix(), || "unix sockets can be made".to_owned()),
            Filter::NoInet => must(built.closes_inet(), || "sockets of IP can be made".to_owned()),
            Filter::SharedFiles { .. }
            | Filter::SharedPids
            | Filter::Links
            | Filter::Visible
            | Filter::CountedMemory => Err("it is nothing that a machine's filter is asked for".to_owned()),
        }
    }

    /// The copy of the workspace is where the agent starts programs, and can be written to only if that is planned.
    fn workspace(&self, from: &Path, at: &Path, write: bool) -> Evident {
        let copied = self.rest.blueprint.workspace.as_ref().map(|shown| shown.from.as_path());
        must(copied == Some(from), || format!("what was copied is {copied:?}"))?;
        let at = at.to_string_lossy();
        let mount = self.inside.mount(&at)?;
        must(mount.kind == "tmpfs" && mount.has("nosuid") && mount.has("nodev"), || {
            format!("it is {} {}", mount.kind, mount.options)
        })?;
        must(mount.has("ro") != write, || format!("it is {}", mount.options))?;
        must(self.inside.hello.cwd == at, || format!("programs start in {}", self.inside.hello.cwd))
    }

    fn tmpfs(&self, at: &str, bytes: u64, inodes: u64) -> Evident {
        let mount = self.inside.mount(at)?;
        let option = |name: &str| mount.super_options.split(',').find_map(|option| option.strip_prefix(name));
        let size = option("size=").and_then(|size| size.strip_suffix('k')).and_then(|size| size.parse::<u64>().ok());
        let rounded = bytes.next_multiple_of(4096) / 1024;
        let count = option("nr_inodes=").and_then(|count| count.parse::<u64>().ok());
        must(mount.kind == "tmpfs" && size == Some(rounded) && count == Some(inodes), || {
            format!("it is {} with {}", mount.kind, mount.super_options)
        })
    }

    fn noexec(&self) -> Evident {
        let open = self.inside.mounts.iter().find(|mount| mount.has("rw") && !mount.has("noexec"));
        must(open.is_none(), || format!("{} has no noexec", open.map_or("", |mount| &mount.point)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process with so many filters.
    fn status(mode: u8, filters: Option<u32>) -> Status {
        let filters = filters.map_or(String::new(), |count| format!("Seccomp_filters:\t{count}\n"));
        let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map(|set| format!("{set}:\t0\n")).concat();
        let text = std::fs::read_to_string("/proc/self/status").unwrap();
        let ours = |line: &&str| ["Cap", "Seccomp", "NoNewPrivs"].iter().any(|name| line.starts_with(name));
        let others: String = text.lines().filter(|line| !ours(line)).map(|line| format!("{line}\n")).collect();
        let text = format!("{others}{sets}NoNewPrivs:\t1\nSeccomp:\t{mode}\n{filters}");
        sys::proc::parse_status(&text).unwrap()
    }

    #[test]
    fn every_thread_has_a_filter_of_the_emulators_own_or_there_is_no_evidence() {
        let of = |program, around: Option<u32>, threads: &[(u8, Option<u32>)]| {
            let threads: Vec<Status> = threads.iter().map(|(mode, filters)| status(*mode, *filters)).collect();
            confined(program, &status(2, around), &threads).is_ok()
        };
        let (one, two) = ((2, Some(1)), (2, Some(2)));
        for program in Emulator::ALL {
            assert!(of(program, Some(1), &[two, two]));
            // That of the sandbox alone, on one thread or all; none; no thread; a sandbox without one, where the first is not the second.
            assert!(
                !of(program, Some(1), &[two, one]) && !of(program, Some(1), &[one]) && !of(program, Some(2), &[two])
            );
            assert!(
                !of(program, Some(1), &[two, (0, Some(0))])
                    && !of(program, Some(1), &[])
                    && !of(program, Some(0), &[two])
            );
        }
        assert!(of(Emulator::Qemu, None, &[(2, None)]) && !of(Emulator::Qemu, None, &[(0, None)]));
        assert!(!of(Emulator::Firecracker, None, &[(2, None)]), "nobody counts them");
    }

    #[test]
    fn a_thread_with_a_privilege_is_missed() {
        let odd = Status { no_new_privs: false, ..status(2, Some(2)) };
        assert!(confined(Emulator::Firecracker, &status(2, Some(1)), &[odd]).is_err());
    }

    #[test]
    fn an_emulator_runs_on_what_was_planned_or_there_is_no_evidence() {
        let (tcg, kvm) = (Some(Accelerator::Tcg), Some(Accelerator::Kvm));
        let all = ["/dev/null", "/dev/kvm", "anon_inode:kvm-vm", "anon_inode:kvm-vcpu:0", "anon_inode:kvm-vcpu:1"];
        let of = |planned, wanted, names: &[&str]| of_kvm(planned, wanted, names.iter().map(PathBuf::from)).is_ok();
        assert!(of(kvm, 2, &all));
        // A copy of one of them is no other one.
        assert!(of(kvm, 2, &[&all[..], &all[3..4]].concat()) && !of(kvm, 2, &[&all[..4], &all[3..4]].concat()));
        assert!(of(tcg, 2, &["/dev/null", "anon_inode:[eventfd]"]));
        // Fewer processors or more, none at all, the device alone, and KVM where none was planned.
        assert!(!of(kvm, 3, &all) && !of(kvm, 1, &all) && !of(kvm, 0, &["/dev/kvm", "anon_inode:kvm-vm"][..1]));
        assert!(!of(kvm, 1, &["/dev/null"]) && !of(kvm, 1, &["/dev/kvm"]));
        assert!(!of(tcg, 2, &all) && !of(tcg, 1, &["/dev/kvm"]) && !of(None, 1, &[]));
    }
}
