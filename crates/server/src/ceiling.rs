//! Whether a policy stays below the ceiling of a key: each clause says what "no more than" means for it.
//!
//! A key without a ceiling still reaches nothing of the host: files, variables and secrets of the host are given by a ceiling
//! or not at all.

use std::path::{Path, PathBuf};

use axum::http::StatusCode;
use policy::ClauseId;
use policy::value::{
    Audit, EnforcerDemand, Env, Fs, Grant, Language, Limits, Net, NetMode, NetRule, Over, Policy, Process, Proxy, Root,
    Sockets, Syscalls, Tier, TierChoice, Unknown, Workspace, WorkspaceMode,
};

use crate::answer::Problem;

/// What the caller may not ask for.
struct Beyond<'a> {
    found: Vec<Problem>,
    /// Folders of the server's own, and files, which this policy may read as they are: the empty one first, then its template's.
    ours: &'a [PathBuf],
}

/// Every clause in which a policy goes beyond the ceiling; without one, beyond what reaches nothing of the host. `ours` are
/// the folders of the host that the server itself shows inside; a workspace is a copy of the first of them.
pub(crate) fn beyond(ceiling: Option<&Policy>, asked: &Policy, ours: &[PathBuf]) -> Vec<Problem> {
    let mut beyond = Beyond { found: Vec::new(), ours };
    match ceiling {
        Some(ceiling) => beyond.than(ceiling, asked),
        None => beyond.than_nothing_of_the_host(asked),
    }
    beyond.found
}

/// Whether it is the ceiling's proxy. Documents have no login: without one, none of another is asked for.
fn is_proxy_of(ceiling: Option<&Proxy>, asked: Option<&Proxy>) -> bool {
    match (ceiling, asked) {
        (None, None) => true,
        (Some(most), Some(asked)) => {
            most.place() == asked.place() && asked.login.as_ref().is_none_or(|login| most.login.as_ref() == Some(login))
        }
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// The same of the rules of a network alone.
pub(crate) fn beyond_net(ceiling: Option<&Net>, asked: &Net) -> Vec<Problem> {
    let mut beyond = Beyond { found: Vec::new(), ours: &[] };
    match ceiling {
        Some(ceiling) => beyond.net(ceiling, asked),
        None => beyond.net_than_nothing_of_the_host(asked),
    }
    beyond.found
}

impl Beyond<'_> {
    fn is_ours(&self, path: &Path) -> bool {
        self.ours.iter().any(|ours| path == ours)
    }

    fn is_empty_one(&self, path: &Path) -> bool {
        self.ours.first().is_some_and(|empty| path == empty)
    }

    fn hold(&mut self, clause: ClauseId, is_below: bool) {
        if is_below {
            return;
        }
        let what = format!("`{clause}` goes beyond what this key may ask for");
        let why = "each key has a ceiling, and a policy may only stay below it";
        let instead = "ask for less, or use a key with a higher ceiling (`fumehood keys add -p`)";
        let problem = Problem::new(StatusCode::FORBIDDEN, "serve/beyond-ceiling", what, why, instead);
        self.found.push(problem.about(clause.path()));
    }

    fn than_nothing_of_the_host(&mut self, asked: &Policy) {
        self.hold(ClauseId::FsRoot, matches!(asked.fs.root, Root::Host | Root::Empty));
        self.hold(ClauseId::FsRead, asked.fs.read.iter().all(|grant| self.is_ours(&grant.from)));
        self.hold(ClauseId::FsWrite, asked.fs.write.is_empty());
        self.hold(ClauseId::FsSockets, asked.fs.sockets != Sockets::Host);
        self.hold(ClauseId::Workspace, asked.workspace.path.as_deref().is_none_or(|path| self.is_empty_one(path)));
        self.hold(ClauseId::EnvPass, asked.env.pass.is_empty() && !asked.env.git_identity);
        self.hold(ClauseId::Secrets, asked.secrets.is_empty());
        self.net_than_nothing_of_the_host(&asked.net);
        self.hold(ClauseId::AuditPath, asked.audit.path.is_none());
        self.hold(ClauseId::Tier, is_tier_at_least(TierChoice::Fixed(Tier::Process), asked.tier));
    }

    /// An `address` and a proxy may lead to what listens on the host, or beside it.
    fn net_than_nothing_of_the_host(&mut self, asked: &Net) {
        self.hold(ClauseId::NetAllow, asked.rules().all(|rule| rule.address.is_none()));
        self.hold(ClauseId::NetCa, asked.ca.is_empty());
        self.hold(ClauseId::NetProxy, asked.proxy.is_none());
    }

    fn than(&mut self, ceiling: &Policy, asked: &Policy) {
        let Policy {
            name: _,
            tier,
            backend,
            threat,
            enforcer,
            prefer,
            fs,
            workspace,
            limits,
            net,
            env,
            inputs: _,
            secrets,
            process,
            syscalls,
            language,
            commands,
            tools: _,
            audit,
            documents: _,
        } = ceiling;
        self.hold(ClauseId::Tier, is_tier_at_least(*tier, asked.tier));
        self.hold(ClauseId::Backend, backend.is_none() || asked.backend == *backend);
        self.hold(ClauseId::Threat, asked.threat >= *threat);
        self.hold(ClauseId::Enforcer, *enforcer == EnforcerDemand::Any || asked.enforcer == EnforcerDemand::Kernel);
        if let Some(more) = asked.prefer.difference(prefer).next() {
            self.hold(*more, false);
        }
        self.files(fs, &asked.fs);
        self.workspace(workspace, &asked.workspace);
        self.limits(limits, &asked.limits);
        self.net(net, &asked.net);
        self.env(env, &asked.env);
        let known = asked.secrets.iter().all(|(name, secret)| secrets.get(name) == Some(secret));
        self.hold(ClauseId::Secrets, known);
        let Process { user: _, hostname: _, umask: _, tty: _, label, devices } = process;
        self.hold(ClauseId::ProcessLabel, label.is_none() || *label == asked.process.label);
        let among = asked.process.devices.iter().all(|device| devices.contains(device));
        self.hold(ClauseId::ProcessDevices, among);
        self.language(language, &asked.language);
        self.syscalls(syscalls, &asked.syscalls);
        self.hold(ClauseId::Commands, commands.is_none() || *commands == asked.commands);
        self.audit(audit, &asked.audit);
    }

    fn files(&mut self, ceiling: &Fs, asked: &Fs) {
        let Fs { root, read, write, hide, sockets, landlock, exec, noexec, tmp, shm, run, protect } = ceiling;
        self.hold(ClauseId::FsRoot, asked.root == *root || asked.root == Root::Empty);
        let all: Vec<&Grant> = read.iter().chain(write).collect();
        let may = asked.read.iter().all(|grant| self.is_ours(&grant.from) || is_in(grant, &all));
        self.hold(ClauseId::FsRead, may);
        let writable: Vec<&Grant> = write.iter().collect();
        self.hold(ClauseId::FsWrite, asked.write.iter().all(|grant| is_in(grant, &writable)));
        self.hold(ClauseId::FsHide, hide.iter().all(|glob| asked.hide.contains(glob)));
        self.hold(ClauseId::FsSockets, rank_of_sockets(asked.sockets) <= rank_of_sockets(*sockets));
        self.hold(ClauseId::FsLandlock, asked.landlock >= *landlock);
        let allowed = exec
            .as_ref()
            .is_none_or(|most| asked.exec.as_ref().is_some_and(|list| list.iter().all(|path| most.contains(path))));
        self.hold(ClauseId::FsExec, allowed);
        self.hold(ClauseId::FsNoexec, !noexec || asked.noexec);
        self.hold(ClauseId::FsTmp, asked.tmp <= *tmp);
        self.hold(ClauseId::FsShm, asked.shm <= *shm);
        self.hold(ClauseId::FsRun, asked.run <= *run);
        self.hold(ClauseId::FsProtect, !protect || asked.protect);
    }

    fn workspace(&mut self, ceiling: &Workspace, asked: &Workspace) {
        let Workspace { path, at: _, mode } = ceiling;
        let is_below = asked.mode == WorkspaceMode::None
            || (asked.path.as_deref().is_some_and(|path| self.is_empty_one(path)) && asked.mode != WorkspaceMode::Rw)
            || (rank_of_mode(asked.mode) <= rank_of_mode(*mode)
                && path.as_ref().is_some_and(|most| asked.path.as_ref().is_some_and(|path| path.starts_with(most))));
        self.hold(ClauseId::Workspace, is_below);
    }

    fn limits(&mut self, ceiling: &Limits, asked: &Limits) {
        let Limits {
            // How long it lives is asked for beside the policy, and compared there.
            wall: _,
            cpu_time,
            cpus,
            cpuset,
            memory,
            pids,
            open_files,
            file_size,
            disk,
            files,
            output,
            over,
            io_read,
            io_write,
            idle,
            warn: _,
            kill,
        } = ceiling;
        self.hold(ClauseId::LimitsCpuTime, at_most(*cpu_time, asked.cpu_time));
        self.hold(ClauseId::LimitsCpus, at_most(*cpus, asked.cpus));
        let cores = cpuset
            .as_ref()
            .is_none_or(|most| asked.cpuset.as_ref().is_some_and(|cores| cores.iter().all(|core| most.contains(core))));
        self.hold(ClauseId::LimitsCpuset, cores);
        self.hold(ClauseId::LimitsMemory, at_most(*memory, asked.memory));
        self.hold(ClauseId::LimitsPids, at_most(*pids, asked.pids));
        self.hold(ClauseId::LimitsOpenFiles, at_most(*open_files, asked.open_files));
        self.hold(ClauseId::LimitsFileSize, at_most(*file_size, asked.file_size));
        self.hold(ClauseId::LimitsDisk, at_most(*disk, asked.disk));
        self.hold(ClauseId::LimitsFiles, at_most(*files, asked.files));
        self.hold(ClauseId::LimitsOutput, at_most(*output, asked.output));
        self.hold(ClauseId::LimitsOver, *over == Over::Cut || asked.over == Over::Kill);
        self.hold(ClauseId::LimitsIoRead, at_most(*io_read, asked.io_read));
        self.hold(ClauseId::LimitsIoWrite, at_most(*io_write, asked.io_write));
        self.hold(ClauseId::LimitsIdle, at_most(*idle, asked.idle));
        self.hold(ClauseId::LimitsKill, kill.is_none() || *kill == asked.kill);
    }

    fn net(&mut self, ceiling: &Net, asked: &Net) {
        let Net {
            mode,
            presets: _,
            allow: _,
            deny,
            unknown,
            programs,
            dns: _,
            ca,
            proxy,
            bandwidth,
            bytes,
            connections,
        } = ceiling;
        self.hold(ClauseId::NetMode, rank_of_net(asked.mode) <= rank_of_net(*mode));
        // The same rule, of the same ports or of some of them.
        let within = |rule: &NetRule, most: &NetRule| {
            rule.ports.iter().all(|port| most.ports.contains(port))
                && *rule == NetRule { ports: rule.ports.clone(), ..most.clone() }
        };
        let allowed = |rule: &NetRule| ceiling.rules().any(|most| within(rule, most));
        self.hold(ClauseId::NetAllow, asked.allow.iter().all(allowed));
        self.hold(ClauseId::NetPresets, asked.presets.values().flatten().all(allowed));
        self.hold(ClauseId::NetDeny, deny.iter().all(|denial| asked.deny.contains(denial)));
        self.hold(ClauseId::NetUnknown, *unknown == Unknown::Ask || asked.unknown == Unknown::Deny);
        self.hold(ClauseId::NetPrograms, programs.is_empty() || *programs == asked.programs);
        self.hold(ClauseId::NetCa, asked.ca.iter().all(|file| ca.contains(file)));
        self.hold(
            ClauseId::NetProxy,
            asked.mode != NetMode::Allow || is_proxy_of(proxy.as_ref(), asked.proxy.as_ref()),
        );
        self.hold(ClauseId::NetBandwidth, at_most(*bandwidth, asked.bandwidth));
        self.hold(ClauseId::NetBytes, at_most(*bytes, asked.bytes));
        self.hold(ClauseId::NetConnections, at_most(*connections, asked.connections));
    }

    fn env(&mut self, ceiling: &Env, asked: &Env) {
        let Env { pass, set: _, git_identity } = ceiling;
        let passed = asked.pass.iter().all(|name| pass.contains(name)) && (*git_identity || !asked.git_identity);
        self.hold(ClauseId::EnvPass, passed);
    }

    fn language(&mut self, ceiling: &Language, asked: &Language) {
        let Language { modules, steps, recursion } = ceiling;
        let within = |most: &Vec<String>| asked.modules.iter().flatten().all(|name| most.contains(name));
        self.hold(ClauseId::LanguageModules, modules.as_ref().is_none_or(within));
        self.hold(ClauseId::LanguageSteps, at_most(*steps, asked.steps));
        self.hold(ClauseId::LanguageRecursion, at_most(*recursion, asked.recursion));
    }

    fn syscalls(&mut self, ceiling: &Syscalls, asked: &Syscalls) {
        let Syscalls { profile, allow, deny } = ceiling;
        self.hold(ClauseId::SyscallsProfile, asked.profile == *profile || asked.profile == "strict");
        self.hold(ClauseId::SyscallsAllow, asked.allow.iter().all(|call| allow.contains(call)));
        self.hold(ClauseId::SyscallsDeny, deny.iter().all(|call| asked.deny.contains(call)));
    }

    fn audit(&mut self, ceiling: &Audit, asked: &Audit) {
        let Audit { path, redact, content, sync } = ceiling;
        self.hold(ClauseId::AuditPath, asked.path == *path);
        self.hold(ClauseId::AuditRedact, redact.iter().all(|pattern| asked.redact.contains(pattern)));
        self.hold(ClauseId::AuditContent, asked.content == *content);
        self.hold(ClauseId::AuditSync, asked.sync == *sync);
    }
}

/// Without a limit is more than any.
fn at_most<T: PartialOrd>(ceiling: Option<T>, asked: Option<T>) -> bool {
    ceiling.is_none_or(|most| asked.is_some_and(|asked| asked <= most))
}

fn is_in(grant: &Grant, grants: &[&Grant]) -> bool {
    grants.iter().any(|most| grant.from.starts_with(&most.from) && (most.dangerous || !grant.dangerous))
}

fn is_tier_at_least(least: TierChoice, asked: TierChoice) -> bool {
    match (least, asked) {
        (TierChoice::Auto, _) => true,
        (TierChoice::Fixed(least), TierChoice::Fixed(asked)) => asked >= least,
        // The language tier has every control of the process tier, and an interpreter before them.
        (TierChoice::Fixed(least), TierChoice::Auto) => least <= Tier::Process,
    }
}

const fn rank_of_sockets(sockets: Sockets) -> u8 {
    match sockets {
        Sockets::Pairs => 0,
        Sockets::Own => 1,
        Sockets::Host => 2,
    }
}

const fn rank_of_mode(mode: WorkspaceMode) -> u8 {
    match mode {
        WorkspaceMode::None => 0,
        WorkspaceMode::Ro => 1,
        // Both see all of it and change nothing.
        WorkspaceMode::Overlay | WorkspaceMode::Copy => 2,
        WorkspaceMode::Rw => 3,
    }
}

const fn rank_of_net(mode: NetMode) -> u8 {
    match mode {
        NetMode::None => 0,
        NetMode::Loopback => 1,
        NetMode::Allow => 2,
    }
}
