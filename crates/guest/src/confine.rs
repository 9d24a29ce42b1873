//! The guest from its first instruction to its last: an ordered list of named steps, one function each.
//!
//! The order is a contract (each step can make the next impossible): see `Step`. A step that fails ends everything
//! with a frame that names it; no step is ever left out because it would not work.

use sys::bare::{self, CloseList, Errno, Fd, Owned, Stack, Within, Witness};

use crate::config::{Ids, MAX_SOURCES, Mode, Op, Probe, Source, View};
use crate::fault::{At as _, Fault, Taken};
use crate::frames::{FromGuest, ProbeErrnos, ToGuest};
use crate::identity::same;
use crate::link::Link;
use crate::paths::Decimal;
use crate::ready::Ready;
use crate::runtime_entry::{CONFIG, CONTROL, Entry};
use crate::state::{Guest, Terminal};
use crate::step::Step;
use crate::{child, init, layers, links, network, posture, runtime_entry};

/// What the guest itself still calls once the filter is on, for whoever writes filters: each must be allowed.
pub const CALLS_AFTER_SECCOMP: &[&str] = &[
    // probes and posture
    "openat",
    "socket",
    "kill",
    "close",
    "prctl", // PR_GET_SECCOMP only
    // go, frames, the loop of init
    "recvmsg",
    "sendmsg",
    "ppoll",
    "read",
    "wait4",
    "close_range",
    // the payload's start: CLONE_VM | CLONE_VFORK | SIGCHLD
    "clone",
    "setsid",
    "landlock_restrict_self",
    "umask",
    "chdir",
    "rt_sigprocmask",
    "execve",
    "statx",
    // with a terminal: TIOCSCTTY, TIOCGPGRP, TIOCSWINSZ
    "ioctl",
    "dup3", // with a terminal, and where the guest stays: streams in their places
    "exit_group",
];

type Action = fn(&mut Guest<'_>) -> Taken;

/// The steps, in the order in which they are taken.
const ORDER: &[(Step, Action)] = &[
    (Step::Descriptors, descriptors),
    (Step::Session, session),
    (Step::Mapped, mapped),
    (Step::CgroupNamespace, cgroup_namespace),
    (Step::Sources, sources),
    (Step::CreationIds, creation_ids),
    (Step::Mounts, mounts),
    (Step::Exports, exports),
    (Step::Pivot, pivot),
    (Step::Hostname, hostname),
    (Step::Loopback, loopback),
    (Step::Network, network::network),
    (Step::InnerLimits, inner_limits),
    (Step::Label, label),
    (Step::Priority, priority),
    (Step::Terminal, terminal),
    (Step::Rlimits, rlimits),
    (Step::Umask, umask),
    (Step::Keyring, keyring),
    (Step::Ids, ids),
    (Step::Capabilities, capabilities),
    (Step::NoNewPrivs, no_new_privs),
    (Step::Links, links::links),
    (Step::Dumpable, dumpable),
    (Step::PayloadScope, payload_scope),
    (Step::Landlock, landlock),
    (Step::SignalScope, signal_scope),
    (Step::Seccomp, seccomp),
    (Step::Probes, probes),
    (Step::Posture, send_posture),
    (Step::Go, go),
];

/// The guest's whole life; its exit code. The code says only whether it did its work: the payload's end is in the
/// frames.
#[must_use]
pub fn run() -> i32 {
    let link = Link::new(Fd::new(CONTROL));
    let came_in = match runtime_entry::enter() {
        Ok(Entry::WasFirst) => return 0,
        Ok(entry) => entry == Entry::CameIn,
        // The control socket is not in its place yet.
        Err(fault) => return fail(Link::new(Fd::new(0)), Step::Config, fault),
    };
    let view = match read_config(link, came_in) {
        Ok(view) => view,
        Err(fault) => return fail(link, Step::Config, fault),
    };
    let mut guest = Guest::new(view, link);
    for (step, action) in ORDER {
        if let Err(fault) = action(&mut guest) {
            return fail(guest.link, *step, fault);
        }
    }
    match child::start(&mut guest) {
        Ok(payload) => init::run(&mut guest, payload),
        Err(child::StartFailure::Step(step, fault)) => fail(guest.link, step, fault),
        Err(child::StartFailure::Exec(errno, which)) => {
            let frame = FromGuest::ExecFailed { errno: errno.number(), which };
            guest.link.answer(guest.first, &frame).map_or(125, |()| 0)
        }
    }
}

fn fail(link: Link, step: Step, fault: Fault) -> i32 {
    // Nobody to tell it to is no reason to go on.
    let _told = link.tell(&FromGuest::Failed { step, errno: fault.errno, detail: fault.detail }, &[]);
    125
}

/// The config may still be on its way: until it is sealed, the supervisor has said nothing on the socket either.
fn read_config(link: Link, came_in: bool) -> Taken<View<'static>> {
    let bytes = if came_in {
        // Another kernel than the one that sealed it need not know of seals.
        runtime_entry::read_all(Fd::new(CONFIG))?
    } else {
        match bare::map_sealed(Fd::new(CONFIG)) {
            Err(Errno::EPERM) => {
                while bare::poll_readable([link.socket(), link.socket()]) == Err(Errno::EINTR) {}
                bare::map_sealed(Fd::new(CONFIG))?
            }
            mapped => mapped?,
        }
    };
    let view = View::new(bytes).or_else(|malformed| Err(Errno::EPROTO).at(malformed.at))?;
    if view.argv.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    bare::close(Fd::new(CONFIG));
    Ok(view)
}

fn descriptors(guest: &mut Guest<'_>) -> Taken {
    let named = || {
        let sources = guest.view.sources.iter().filter_map(|source| match source {
            Source::Fd(number) => Some(number),
            Source::Path { .. } => None,
        });
        sources.chain(guest.view.program)
    };
    let last = named().fold(CONFIG, u32::max);
    let most = CONFIG.saturating_add(u32::try_from(MAX_SOURCES).unwrap_or(u32::MAX));
    if last > most || named().any(|number| number <= CONFIG) {
        return Err(Errno::EBADF.into());
    }
    runtime_entry::take_program(guest.view.mode, guest.view.program)?;
    if !guest.view.close_descriptors {
        return Ok(());
    }
    bare::close_range(last.saturating_add(1), bare::LAST_FD)?;
    for number in (CONFIG..last).filter(|number| named().all(|name| name != *number)) {
        bare::close(Fd::new(number));
    }
    Ok(())
}

fn session(guest: &mut Guest<'_>) -> Taken {
    bare::block_all(true)?;
    // What the supervisor ignores (SIGPIPE, for one) the payload would ignore as well. It sees afterwards whether any is
    // left, in our status.
    bare::default_signals(guest.view.ignored)?;
    bare::set_umask(0);
    guest.children = Some(bare::children_fd()?);
    if guest.view.new_session {
        match bare::new_session() {
            Err(Errno::EPERM) if bare::session()? == bare::pid() => {}
            made => drop(made?),
        }
    }
    match guest.view.mode {
        // Whoever is not init here could neither reap orphans nor kill them all.
        Mode::Container | Mode::Bundle | Mode::Runtime if bare::pid() != 1 => Err(Fault { errno: 0, detail: 1 }),
        Mode::Container | Mode::Bundle | Mode::Runtime => Ok(()),
        Mode::Process => bare::become_subreaper().map_err(Fault::from),
    }
}

fn mapped(guest: &mut Guest<'_>) -> Taken {
    if guest.view.wait_mapped {
        guest.inbox.wait_for(guest.link, ToGuest::Mapped)?;
    }
    Ok(())
}

/// The supervisor put us into the run's group before it said anything.
fn cgroup_namespace(guest: &mut Guest<'_>) -> Taken {
    if guest.view.new_cgroup {
        bare::new_cgroup_namespace()?;
    }
    Ok(())
}

/// Whether the tree is the guest's work, and no runtime's.
fn builds_root(guest: &Guest<'_>) -> bool {
    match guest.view.mode {
        Mode::Container | Mode::Process => !guest.view.ops.is_empty(),
        Mode::Bundle | Mode::Runtime => false,
    }
}

fn sources(guest: &mut Guest<'_>) -> Taken {
    if builds_root(guest) {
        bare::make_all_private()?;
    }
    for (at, source) in guest.view.sources.iter().enumerate() {
        let mount = match source {
            Source::Fd(number) => Owned::adopt(Fd::new(number)),
            Source::Path { path, is } => {
                let found = bare::open_path(Fd::CWD, path, Within::Anywhere).at(at)?;
                same(found.fd(), is).at(at)?;
                bare::clone_mount(found.fd(), true).at(at)?
            }
        };
        guest.tree.keep_source(at, mount).at(at)?;
    }
    Ok(())
}

fn creation_ids(guest: &mut Guest<'_>) -> Taken {
    match guest.view.mode {
        Mode::Container => take_ids(guest),
        // In the host's tree nothing is created; the ids change when everything that needs root is done.
        Mode::Process | Mode::Bundle | Mode::Runtime => Ok(()),
    }
}

fn take_ids(guest: &Guest<'_>) -> Taken {
    /// A change of uid leaves the capabilities alone: they are dropped by name, later.
    const NO_SETUID_FIXUP: u32 = 4;
    if guest.view.clear_groups {
        bare::clear_groups().at(0)?;
    }
    if let Some(Ids { uid, gid }) = guest.view.ids {
        if may_set_caps()? {
            bare::set_securebits(NO_SETUID_FIXUP).at(1)?;
        }
        bare::set_group(gid).at(2)?;
        bare::set_user(uid).at(3)?;
    }
    Ok(())
}

fn may_set_caps() -> bare::Result<bool> {
    const CAP_SETPCAP: u64 = 1 << 8;
    let [_, _, effective] = bare::capabilities()?;
    Ok(effective & CAP_SETPCAP != 0)
}

fn mounts(guest: &mut Guest<'_>) -> Taken {
    for (at, op) in guest.view.ops.iter().enumerate() {
        match (guest.view.mode, op) {
            // The root stands, and what the runtime mounted is empty.
            (Mode::Bundle | Mode::Runtime, Op::Dir { path, mode }) => bare::make_dir(Fd::CWD, path, mode).at(at)?,
            (Mode::Bundle | Mode::Runtime, _) => return Err(Errno::EINVAL).at(at),
            (Mode::Container | Mode::Process, op) => guest.tree.apply(&op).at(at)?,
        }
    }
    Ok(())
}

fn exports(guest: &mut Guest<'_>) -> Taken {
    if !guest.tree.slots.is_empty() {
        let fds = guest.tree.exported();
        let fds = fds.get(..guest.tree.slots.len()).unwrap_or(&[]);
        guest.link.tell(&FromGuest::Mounted(guest.tree.slots), fds)?;
    }
    if guest.tree.must_be_filled() || guest.view.wait_filled {
        guest.inbox.wait_for(guest.link, ToGuest::Filled)?;
        guest.tree.filled()?;
    }
    Ok(())
}

fn pivot(guest: &mut Guest<'_>) -> Taken {
    if !builds_root(guest) {
        return Ok(());
    }
    bare::change_dir_to(guest.tree.root()?).at(0)?;
    bare::pivot_here().at(1)?;
    // The scratch folder lies on the old root, so it is what lies uppermost here; the old root comes after it.
    if guest.tree.has_scratch() {
        bare::detach_here().at(2)?;
    }
    bare::detach_here().at(2)?;
    bare::change_dir(c"/").at(3)?;
    bare::set_attributes(guest.tree.root()?, crate::config::Attrs::RDONLY.bits(), false).at(4)?;
    guest.tree.close();
    Ok(())
}

fn hostname(guest: &mut Guest<'_>) -> Taken {
    if !guest.view.hostname.is_empty() {
        bare::set_hostname(guest.view.hostname)?;
    }
    Ok(())
}

fn loopback(guest: &mut Guest<'_>) -> Taken {
    if guest.view.loopback {
        bare::loopback_up()?;
    }
    Ok(())
}

/// Limits of our own user namespace, files of /proc/sys/user. Instances of inotify are few on the host and shared by
/// all processes of a user: 64 are enough for an editor and a build, and not enough to take them all.
const INNER_LIMITS: &[(&core::ffi::CStr, u64)] = &[
    (c"max_user_namespaces", 0),
    (c"max_mnt_namespaces", 0),
    (c"max_pid_namespaces", 0),
    (c"max_net_namespaces", 0),
    (c"max_ipc_namespaces", 0),
    (c"max_uts_namespaces", 0),
    (c"max_cgroup_namespaces", 0),
    (c"max_time_namespaces", 0),
    (c"max_inotify_instances", 64),
    (c"max_inotify_watches", 16384),
];

fn inner_limits(guest: &mut Guest<'_>) -> Taken {
    if !guest.view.inner_limits {
        return Ok(());
    }
    let folder = match (guest.tree.limits.take(), guest.view.mode) {
        (Some(folder), _) => folder,
        (None, Mode::Runtime) => bare::open_path(Fd::CWD, c"/proc/sys/user", Within::Anywhere)?,
        (None, Mode::Container | Mode::Process | Mode::Bundle) => return Err(Errno::ENOENT.into()),
    };
    let mut open = CloseList::default();
    for (at, (name, value)) in INNER_LIMITS.iter().enumerate() {
        let file = bare::open_write(folder.fd(), name, Within::Beneath).at(at)?;
        bare::write_all(file.fd(), Decimal::new(*value).as_c_str().to_bytes()).at(at)?;
        open.add(file);
    }
    for (at, (name, value)) in INNER_LIMITS.iter().enumerate() {
        let file = bare::open_read(folder.fd(), name, Within::Beneath).at(at)?;
        let mut bytes = [0; 24];
        let length = bare::read_some(file.fd(), &mut bytes).at(at)?;
        let wanted = Decimal::new(*value);
        // The kernel ends the number with a newline.
        if bytes.get(..length).and_then(|text| text.strip_suffix(b"\n")) != Some(wanted.as_c_str().to_bytes()) {
            return Err(Fault { errno: 0, detail: u32::try_from(at).unwrap_or(u32::MAX) });
        }
        open.add(file);
    }
    guest.inner_limits = true;
    Ok(())
}

/// The label of whatever this task, or a child of it, executes next: the guest executes nothing, so that it falls to the
/// payload alone, in the execve itself. Set while /proc can still be written to; execve fails where it cannot be given.
fn label(guest: &mut Guest<'_>) -> Taken {
    if guest.view.label.is_empty() {
        return Ok(());
    }
    let proc = guest.tree.proc.as_ref().ok_or(Errno::ENOENT).at(0)?;
    let own = Decimal::new(u64::from(bare::pid().unsigned_abs()));
    let folder = bare::open_path(proc.fd(), own.as_c_str(), Within::Beneath).at(0)?;
    let file = bare::open_write(folder.fd(), guest.view.label_file, Within::Beneath).at(0)?;
    bare::write_all(file.fd(), guest.view.label).at(1)?;
    guest.label = Some(bare::open_read(folder.fd(), guest.view.label_file, Within::Beneath).at(2)?);
    Ok(())
}

fn priority(guest: &mut Guest<'_>) -> Taken {
    if let Some(value) = guest.view.oom_score_adj {
        // The change of ids made us undumpable, and our files in /proc somebody else's; that comes back for good below.
        bare::set_dumpable(true)?;
        let file = match &guest.tree.proc {
            Some(proc) => {
                let own = Decimal::new(u64::from(bare::pid().unsigned_abs()));
                let folder = bare::open_path(proc.fd(), own.as_c_str(), Within::Beneath)?;
                bare::open_write(folder.fd(), c"oom_score_adj", Within::Beneath)?
            }
            None => open_own_oom_score()?,
        };
        let value = u64::try_from(value).or(Err(Errno::EINVAL))?;
        bare::write_all(file.fd(), Decimal::new(value).as_c_str().to_bytes())?;
    }
    guest.tree.proc = None;
    guest.tree.limits = None;
    if let Some(nice) = guest.view.nice {
        bare::set_nice(nice).at(1)?;
    }
    Ok(())
}

fn open_own_oom_score() -> bare::Result<Owned> {
    let own = Decimal::new(u64::from(bare::pid().unsigned_abs()));
    let proc = bare::open_path(Fd::CWD, c"/proc", Within::Anywhere)?;
    let folder = bare::open_path(proc.fd(), own.as_c_str(), Within::Beneath)?;
    bare::open_write(folder.fd(), c"oom_score_adj", Within::Beneath)
}

fn terminal(guest: &mut Guest<'_>) -> Taken {
    let Some(size) = guest.view.tty else { return Ok(()) };
    let master = match (bare::open_device(c"/dev/pts/ptmx"), guest.view.mode) {
        // The host's own may be closed to all (`ptmxmode=000`, as systemd mounts it), with a node elsewhere that is not.
        (Err(_), Mode::Process) => bare::open_device(c"/dev/ptmx")?,
        (opened, Mode::Process | Mode::Container | Mode::Bundle | Mode::Runtime) => opened?,
    };
    bare::unlock_terminal(master.fd())?;
    let slave = bare::terminal_of(master.fd())?;
    bare::set_terminal_size(slave.fd(), size.rows, size.cols)?;
    guest.link.tell(&FromGuest::Terminal, &[master.fd()])?;
    guest.terminal = Some(Terminal { master, slave: Some(slave) });
    Ok(())
}

fn rlimits(guest: &mut Guest<'_>) -> Taken {
    for limit in guest.view.rlimits.iter() {
        bare::set_limit(limit.resource, limit.value)
            .map_err(|errno| Fault { errno: errno.number(), detail: limit.resource })?;
    }
    Ok(())
}

/// The last file of ours was made with the mounts: from here on it is the payload's.
fn umask(guest: &mut Guest<'_>) -> Taken {
    bare::set_umask(guest.view.umask);
    Ok(())
}

fn keyring(guest: &mut Guest<'_>) -> Taken {
    if guest.view.new_keyring {
        // One that was revoked or has expired cannot be named, and is left all the same.
        let before = bare::session_keyring().ok();
        bare::join_new_keyring()?;
        guest.keyring_replaced = Some(bare::session_keyring()?) != before;
    }
    Ok(())
}

fn ids(guest: &mut Guest<'_>) -> Taken {
    // In a container they were taken before anything was made; the posture tells them.
    if guest.view.mode != Mode::Process {
        return Ok(());
    }
    take_ids(guest)?;
    let Some(Ids { uid, gid }) = guest.view.ids else { return Ok(()) };
    if bare::users()? != [uid; 3] || bare::groups()? != [gid; 3] {
        return Err(Fault { errno: 0, detail: 4 });
    }
    Ok(())
}

fn capabilities(guest: &mut Guest<'_>) -> Taken {
    // In a bundle there is none to drop, and a kernel that is not Linux need not know the questions; the posture tells.
    if !guest.view.drop_capabilities || guest.view.mode == Mode::Bundle {
        return Ok(());
    }
    /// NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE on, KEEP_CAPS off, all four locked.
    const LOCKED: u32 = 0xef;
    // Without privilege there is nothing to give away; no_new_privs keeps it so, and the posture tells it as it is.
    if matches!(guest.view.mode, Mode::Container | Mode::Runtime) || may_set_caps()? {
        bare::drop_bounding().at(0)?;
        bare::set_securebits(LOCKED).at(1)?;
    }
    bare::clear_ambient().at(2)?;
    bare::drop_capabilities().at(3)
}

fn no_new_privs(guest: &mut Guest<'_>) -> Taken {
    if guest.view.no_new_privs {
        bare::set_no_new_privs()?;
    }
    match guest.view.mode {
        // Without capabilities and a way to get any: from here on nothing can mount. The supervisor looks while we go on.
        Mode::Container | Mode::Runtime => guest.link.tell(&FromGuest::Settled, &[]).map_err(Fault::from),
        Mode::Process | Mode::Bundle => Ok(()),
    }
}

fn dumpable(guest: &mut Guest<'_>) -> Taken {
    bare::set_dumpable(!guest.view.undumpable)?;
    // A change of ids clears it. In the process tier our death would leave the payload alone: there the end of the
    // control socket is the sign, and the guest kills all before it goes.
    let signal = match guest.view.mode {
        Mode::Container | Mode::Runtime => bare::SIGKILL.unsigned_abs(),
        Mode::Process | Mode::Bundle => 0,
    };
    bare::set_death_signal(signal).map_err(Fault::from)
}

fn landlock(guest: &mut Guest<'_>) -> Taken {
    if guest.view.mode == Mode::Process {
        let witness = Witness::start()?;
        // The control: without the layer the signal would get through.
        bare::kill(witness.pid(), 0)?;
        guest.witness = Some(witness);
    }
    if let Some(layer) = &guest.view.landlock {
        guest.device_refused = layers::put_on(layer)?;
        guest.layers = 1;
    }
    Ok(())
}

fn signal_scope(guest: &mut Guest<'_>) -> Taken {
    let Some(witness) = &guest.witness else { return Ok(()) };
    let reached = bare::kill(witness.pid(), 0);
    witness.dismiss();
    let [real, effective, saved] = bare::users()?;
    match reached {
        // Never as root: should the scope not hold after all, everything on the machine would be in reach.
        Err(Errno::EPERM) if real != 0 && effective != 0 && saved != 0 => {
            guest.scope_proven = true;
            Ok(())
        }
        Err(Errno::EPERM) => Err(Fault { errno: 0, detail: 1 }),
        Ok(()) | Err(_) => Err(Fault { errno: 0, detail: 0 }),
    }
}

/// A child puts on the payload's layer, as the payload will, and tries what the layer is there to prevent.
fn payload_scope(guest: &mut Guest<'_>) -> Taken {
    // Gathered before our own layer: its rules may name what that one hides.
    guest.payload_layer = match &guest.view.payload_layer {
        Some(layer) => Some((layers::gather(layer)?, layer.flags)),
        None => None,
    };
    if !guest.view.prove_payload_scope {
        return Ok(());
    }
    let (own, layer) = (bare::pid(), guest.payload_layer.as_ref());
    let mut answer = Err(Errno::ENOSYS);
    let mut stack = Stack::new()?;
    let pid = {
        let answer = &mut answer;
        let mut work = || {
            let restricted = layer.map_or(Ok(()), |(ruleset, flags)| ruleset.restrict_self(*flags));
            *answer = restricted.map(|()| Errno::of(&bare::kill(own, 0)));
            0
        };
        bare::spawn_in_our_memory(&mut stack, &mut work)?
    };
    bare::reap(pid)?;
    guest.payload_scope_proven = answer? == Errno::EPERM.number();
    Ok(())
}

fn seccomp(guest: &mut Guest<'_>) -> Taken {
    // Asked now, since the filter need not allow the questions.
    let label = posture::label(guest.label.take())?;
    guest.posture = posture::gather(guest)?;
    guest.posture.label = label;
    if !guest.view.seccomp.is_empty() {
        bare::set_filter(guest.view.seccomp)?;
    }
    Ok(())
}

fn probes(guest: &mut Guest<'_>) -> Taken {
    let mut errnos = ProbeErrnos::default();
    for (at, probe) in guest.view.probes.iter().enumerate() {
        let errno = match probe {
            Probe::OpenMustFail(path) | Probe::OpenMustWork(path) => Errno::of(&bare::open_as_anybody(path, false)),
            Probe::ReadDirMustFail(path) => Errno::of(&bare::open_as_anybody(path, true)),
            Probe::SocketMustFail { family, kind, protocol } => bare::socket_errno(family, kind, protocol),
            Probe::SignalMustFail(pid) => Errno::of(&bare::kill(pid, 0)),
            Probe::Call { number, args, errno: _ } => bare::attempt(number, &args).at(at)?,
        };
        if !errnos.push(errno) {
            return Err(Errno::E2BIG).at(at);
        }
    }
    guest.posture.probes = errnos;
    Ok(())
}

fn send_posture(guest: &mut Guest<'_>) -> Taken {
    guest.posture.seccomp_mode = bare::seccomp_mode().unwrap_or_else(|errno| errno.number().saturating_neg());
    guest.link.tell(&FromGuest::Posture(guest.posture), &[]).map_err(Fault::from)
}

fn go(guest: &mut Guest<'_>) -> Taken {
    guest.ready = Some(Ready::new(&guest.view)?);
    if guest.view.stay {
        guest.inbox.enlarge()?;
    }
    guest.first.request = guest.inbox.wait_for(guest.link, ToGuest::Go)?;
    // It shares our memory and none of our controls, so it must be gone before the payload is there.
    match guest.witness.take() {
        Some(witness) => witness.reap().map_err(Fault::from),
        None => Ok(()),
    }
}
