//! Whether a policy stays below the ceiling of a key: each clause says what "no more than" means for it.
//!
//! A key without a ceiling still reaches nothing of the host: files, variables and secrets of the host are given by a ceiling
//! or not at all.

mod names;
mod places;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use axum::http::StatusCode;
use policy::ClauseId;
use policy::value::{
    Audit, EnforcerDemand, Env, Fs, Grant, Language, Limits, Net, NetMode, NetRule, Over, Policy, Process, Proxy, Root,
    Sockets, Syscalls, Threat, Tier, TierChoice, Unknown, Workspace, WorkspaceMode,
};
use sandbox::{PolicyLayer, WritablePlaces};

use crate::answer::Problem;
use names::Names;

/// Why something is beyond a ceiling.
const WHY: &str = "each key has a ceiling, and a policy may only stay below it";
/// The same of paths of the host.
const WHY_PLACE: &str = "each key has a ceiling: a path of the host counts as what its links lead to, must be there, and \
                         shows nothing that the ceiling hides; below a ceiling with `fs.hide` or `fs.exec` things are seen \
                         where that shows them";
/// The same of files of a template.
const WHY_PROGRAM: &str = "each key has a ceiling: a file of the template, or a folder of the server's, would be seen in the place \
                           of a program that the ceiling lets be executed";
/// The same of rules for the network.
const WHY_RULE: &str =
    "each key has a ceiling: a rule must be one of its rules, or one of them with fewer ports, methods or paths";

/// What the caller may not ask for.
struct CeilingProblems<'a> {
    found: Vec<Problem>,
    /// Folders of the server's own, and files, which this policy may read as they are: the empty one first, then its template's.
    ours: &'a [PathBuf],
}

/// What came of a policy below a ceiling.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CeilingResult {
    /// Every clause in which it goes beyond.
    pub(crate) found: Vec<Problem>,
    /// What names that which was judged, where links lead from what was asked for to there: these go on top of the policy's own, so
    /// that a link that is another one meanwhile does not count.
    pub(crate) layers: Vec<PolicyLayer>,
}

/// Judges a policy by the ceiling; without one, by what reaches nothing of the host. `ours` are the folders of the host that the
/// server itself shows inside; a workspace is a copy of the first of them.
///
/// Below a ceiling no path of the host that the policy and the layers name has a link: whoever starts it refuses one that has.
pub(crate) fn beyond(ceiling: Option<&Policy>, asked: &Policy, ours: &[PathBuf]) -> CeilingResult {
    let Some(ceiling) = ceiling else {
        let mut beyond = CeilingProblems { found: Vec::new(), ours };
        beyond.than_nothing_of_the_host(asked);
        return CeilingResult { found: beyond.found, layers: Vec::new() };
    };
    let led = places::led(asked);
    let ours: Vec<PathBuf> = ours.iter().map(|path| places::real(path).unwrap_or_default()).collect();
    let mut beyond = CeilingProblems { found: Vec::new(), ours: &ours };
    beyond.than(ceiling, &led);
    CeilingResult { found: beyond.found, layers: places::layers(asked, &led) }
}

/// A ceiling whose workspace is where it leads, as that of every sandbox below it.
pub(crate) fn led(ceiling: Policy) -> Policy {
    let path = ceiling.workspace.path.map(|path| places::real(&path).unwrap_or(path));
    Policy { workspace: Workspace { path, ..ceiling.workspace }, ..ceiling }
}

/// A file that decides what a ceiling says (a document of it, whom it trusts) and lies where the ceiling lets programs write, and that
/// place: they would say what they may.
#[must_use]
pub fn written(ceiling: &Policy) -> Option<(PathBuf, PathBuf)> {
    let places = WritablePlaces::of(ceiling);
    let met = |document: &PathBuf| Some((document.clone(), places.met_by(document)?.clone()));
    ceiling.documents.0.iter().find_map(met)
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
    let mut beyond = CeilingProblems { found: Vec::new(), ours: &[] };
    match ceiling {
        Some(ceiling) => beyond.net(ceiling, asked),
        None => beyond.net_than_nothing_of_the_host(asked),
    }
    beyond.found
}

impl CeilingProblems<'_> {
    fn is_ours(&self, path: &Path) -> bool {
        path != Path::new("") && self.ours.iter().any(|ours| path == ours)
    }

    /// Whether it is an image that a template of the server has as its root.
    fn is_our_root(&self, root: &Root) -> bool {
        let Root::Image(image) = root else { return false };
        // Those of a ceiling's judgement are where their links lead.
        let is_ours = |tree: &Path| self.is_ours(tree) || places::real(tree).is_some_and(|tree| self.is_ours(&tree));
        image.found.as_ref().is_ok_and(|found| is_ours(&found.tree))
    }

    fn is_empty_one(&self, path: &Path) -> bool {
        path != Path::new("") && self.ours.first().is_some_and(|empty| path == empty)
    }

    fn hold(&mut self, clause: ClauseId, is_below: bool) {
        self.hold_because(clause, is_below, WHY);
    }

    fn hold_because(&mut self, clause: ClauseId, is_below: bool, why: &str) {
        if is_below {
            return;
        }
        let what = format!("`{clause}` goes beyond what this key may ask for");
        let instead = "ask for less, or use a key with a higher ceiling (`fumehood keys add -p`)";
        let problem = Problem::new(StatusCode::FORBIDDEN, "serve/beyond-ceiling", what, why, instead);
        self.found.push(problem.about(clause.path()));
    }

    /// Each clause is named: one that is new, and reaches the host, is not forgotten here.
    fn than_nothing_of_the_host(&mut self, asked: &Policy) {
        let Policy {
            name: _,
            tier,
            backend: _,
            threat,
            enforcer: _,
            prefer: _,
            fs,
            workspace,
            limits: _,
            net,
            env,
            inputs: _,
            secrets,
            process,
            syscalls,
            language: _,
            commands: _,
            tools: _,
            audit,
            documents: _,
        } = asked;
        self.files_than_nothing_of_the_host(fs);
        self.hold(ClauseId::FsExec, sandbox::unshown_program(asked, false).is_none());
        let Syscalls { profile: _, allow, deny: _ } = syscalls;
        self.hold(ClauseId::SyscallsAllow, allow.is_empty());
        let Workspace { path, at: _, mode } = workspace;
        let is_copied = |path: &Path| self.is_empty_one(path) && *mode != WorkspaceMode::Rw;
        self.hold(ClauseId::Workspace, path.as_deref().is_none_or(is_copied));
        let Env { pass, set: _, git_identity } = env;
        self.hold(ClauseId::EnvPass, pass.is_empty() && !git_identity);
        self.hold(ClauseId::Secrets, secrets.is_empty());
        self.net_than_nothing_of_the_host(net);
        let Process { user: _, hostname: _, umask: _, tty: _, label: _, devices } = process;
        self.hold(ClauseId::ProcessDevices, devices.is_empty());
        let Audit { path, redact: _, content: _, sync: _ } = audit;
        self.hold(ClauseId::AuditPath, path.is_none());
        // Without a tree of its own a program changes modes and times of files that nobody granted.
        self.hold(ClauseId::Tier, is_tier_at_least(Tier::Container, (*tier, *threat)));
    }

    fn files_than_nothing_of_the_host(&mut self, asked: &Fs) {
        let Fs {
            root,
            read,
            write,
            hide: _,
            sockets,
            landlock: _,
            exec: _,
            noexec: _,
            tmp: _,
            shm: _,
            run: _,
            protect: _,
        } = asked;
        self.hold(ClauseId::FsRoot, matches!(root, Root::Host | Root::Empty) || self.is_our_root(root));
        self.hold(ClauseId::FsRead, read.iter().all(|grant| self.is_ours(&grant.from)));
        self.hold(ClauseId::FsWrite, write.is_empty());
        self.hold(ClauseId::FsSockets, *sockets != Sockets::Host);
    }

    /// An `address` and a proxy may lead to what listens on the host, or beside it.
    fn net_than_nothing_of_the_host(&mut self, asked: &Net) {
        let Net {
            mode: _,
            presets: _,
            allow: _,
            deny: _,
            unknown: _,
            programs: _,
            dns: _,
            ca,
            proxy,
            bandwidth: _,
            bytes: _,
            connections: _,
        } = asked;
        self.hold(ClauseId::NetAllow, asked.rules().all(|rule| rule.address.is_none()));
        self.hold(ClauseId::NetCa, ca.is_empty());
        self.hold(ClauseId::NetProxy, proxy.is_none());
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
        self.hold(ClauseId::Tier, is_tier_at_least(weakest(*tier, *threat), (asked.tier, asked.threat)));
        self.hold(ClauseId::Backend, backend.is_none() || asked.backend == *backend);
        self.hold(ClauseId::Threat, asked.threat >= *threat);
        self.hold(ClauseId::Enforcer, *enforcer == EnforcerDemand::Any || asked.enforcer == EnforcerDemand::Kernel);
        if let Some(more) = asked.prefer.difference(prefer).next() {
            self.hold(*more, false);
        }
        self.files(fs, &asked.fs);
        self.workspace((workspace, &Names::of(fs)), &asked.workspace);
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
        let is_below = asked.root == *root || asked.root == Root::Empty || self.is_our_root(&asked.root);
        self.hold(ClauseId::FsRoot, is_below);
        let names = Names::of(ceiling);
        let is_in = |grant: &Grant, most: &Grant| places::is_in(grant, most, &names);
        let may_read = |grant: &Grant| read.iter().chain(write).any(|most| is_in(grant, most));
        let may = asked.read.iter().all(|grant| self.is_ours(&grant.from) || may_read(grant));
        self.hold_because(ClauseId::FsRead, may, WHY_PLACE);
        let mut ours = asked.read.iter().filter(|grant| self.is_ours(&grant.from));
        let may = ours.all(|grant| places::is_apart(exec.as_deref().unwrap_or_default(), &grant.to));
        self.hold_because(ClauseId::FsExec, may, WHY_PROGRAM);
        let may = asked.write.iter().all(|grant| write.iter().any(|most| is_in(grant, most)));
        self.hold_because(ClauseId::FsWrite, may, WHY_PLACE);
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

    fn workspace(&mut self, (ceiling, names): (&Workspace, &Names<'_>), asked: &Workspace) {
        let Workspace { path: most, at: top, mode } = ceiling;
        let Workspace { path, at, mode: wish } = asked;
        let is_below = |path: &Path| {
            // Without a place of its own it is seen where it is.
            let at = at.as_deref().unwrap_or(path);
            if self.is_empty_one(path) {
                return *wish != WorkspaceMode::Rw && names.let_empty(top.as_deref(), at);
            }
            let Some(most) = most.as_deref().and_then(places::real) else { return false };
            let Ok(below) = path.strip_prefix(&most) else { return false };
            let top = top.as_deref().unwrap_or(&most);
            rank_of_mode(*wish) <= rank_of_mode(*mode)
                && names.let_workspace(below, (top, &places::joined(top, below)), at)
        };
        let is_below = *wish == WorkspaceMode::None || path.as_deref().is_some_and(is_below);
        self.hold_because(ClauseId::Workspace, is_below, WHY_PLACE);
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
        let allowed = |rule: &NetRule| ceiling.rules().any(|most| is_rule_within(rule, most));
        self.hold_because(ClauseId::NetAllow, asked.allow.iter().all(allowed), WHY_RULE);
        self.hold_because(ClauseId::NetPresets, asked.presets.values().flatten().all(allowed), WHY_RULE);
        self.hold(ClauseId::NetDeny, deny.iter().all(|denial| asked.deny.contains(denial)));
        self.hold(ClauseId::NetUnknown, *unknown == Unknown::Ask || asked.unknown == Unknown::Deny);
        self.hold(ClauseId::NetPrograms, programs.is_empty() || *programs == asked.programs);
        self.hold(ClauseId::NetCa, asked.ca.iter().all(|file| ca.contains(file)));
        self.hold(
            ClauseId::NetProxy,
            asked.mode != NetMode::Allow || is_proxy_of(proxy.as_ref(), asked.proxy.as_ref()),
        );
        // Nothing is carried without a network by name, and a policy may not say so much of it there.
        let carries = asked.mode == NetMode::Allow;
        self.hold(ClauseId::NetBandwidth, !carries || at_most(*bandwidth, asked.bandwidth));
        self.hold(ClauseId::NetBytes, !carries || at_most(*bytes, asked.bytes));
        self.hold(ClauseId::NetConnections, !carries || at_most(*connections, asked.connections));
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

/// Whether a rule is the ceiling's, or lets less of the same through: fewer ports, methods or paths, by a person's answer.
fn is_rule_within(rule: &NetRule, most: &NetRule) -> bool {
    let NetRule { to, ports, protocol, methods, paths, address, tls, asks, encoded_slashes, websocket: _ } = rule;
    // A list without items is one of all.
    let among = |asked: &[String], most: &[String]| {
        most.is_empty() || (!asked.is_empty() && asked.iter().all(|one| most.contains(one)))
    };
    (to, protocol, address, tls) == (&most.to, &most.protocol, &most.address, &most.tls)
        && ports.iter().all(|port| most.ports.contains(port))
        && among(methods, &most.methods)
        && among(paths, &most.paths)
        && (*asks || !most.asks)
        // A rule that judges no path lets every spelling of one through.
        && (!encoded_slashes || most.encoded_slashes || most.paths.is_empty())
        && (!rule.opens_websockets() || most.opens_websockets())
}

/// The weakest tier that a choice may come to: `auto` takes none that is not meant against the threat.
const fn weakest(tier: TierChoice, threat: Threat) -> Tier {
    match tier {
        TierChoice::Fixed(tier) => tier,
        TierChoice::Auto => threat.least_tier(),
    }
}

fn is_tier_at_least(least: Tier, (tier, threat): (TierChoice, Threat)) -> bool {
    let is_taken = weakest(tier, threat) >= least;
    // The language tier has every control of the process tier, and an interpreter before them.
    is_taken || (tier == TierChoice::Auto && least == Tier::Process)
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
