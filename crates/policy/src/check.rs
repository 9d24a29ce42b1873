//! What the clauses say together: contradictions are mistakes, oddities are lints.

use std::path::Path;

use crate::clause::ClauseId;
use crate::diagnostic::quote;
use crate::document::{Node, SourceSpan};
use crate::lint::Lint;
use crate::load::is_the_workspace;
use crate::read::{Reader, fault, over};
use crate::scale_tmpfs;
use crate::units::Bytes;
use crate::value::{
    Grant, NetMode, NetRule, Policy, Root, SecretSource, Sockets, TOOLS, Target, Threat, Tier, TierChoice, Unknown,
    WorkspaceMode, host_matches,
};

/// Looks at the whole policy.
pub(crate) fn together(reader: &mut Reader<'_>, tree: &Node, policy: &Policy, lints: &mut Vec<Lint>) {
    let mut check = Check { reader, tree, policy, lints };
    check.workspace();
    check.hide();
    check.targets();
    check.disk();
    check.inputs();
    check.secrets();
    check.own_name();
    check.addresses();
    check.lint_limits();
    check.lint_grants();
    check.lint_rest();
}

struct Check<'c, 'r> {
    reader: &'c mut Reader<'r>,
    tree: &'c Node,
    policy: &'c Policy,
    lints: &'c mut Vec<Lint>,
}

impl Check<'_, '_> {
    fn wrong(&mut self, path: &str, id: &'static str, what: String, why: &str, fix: impl Into<String>) {
        let nowhere = SourceSpan { source: u16::MAX, start: 0, end: 0 };
        // Grants may have their other spelling.
        let spelt = || self.tree.at(&path.replace("fs.", "fs.dangerous-"));
        let place = self.tree.at(path).or_else(spelt).map_or(nowhere, |node| node.place);
        self.reader.note(path, place, fault(id, what, why, fix));
    }

    fn lint(&mut self, clause: ClauseId, id: &'static str, what: impl Into<String>, why: &str, fix: &str) {
        let (what, why, fix) = (what.into(), why.to_owned(), fix.to_owned());
        self.lints.push(Lint { id, clause, what, at: String::new(), why, fix });
    }

    /// A workspace is a grant, and as dangerous as one; there the spelling is a grant of the same path.
    fn workspace(&mut self) {
        let Some(path) = self.policy.workspace.path.clone() else { return };
        let Some(why) = self.reader.danger(&path) else { return };
        let (list, word) = match self.policy.workspace.mode {
            WorkspaceMode::Rw => (&self.policy.fs.write, "dangerous-write"),
            WorkspaceMode::None | WorkspaceMode::Ro | WorkspaceMode::Overlay | WorkspaceMode::Copy => {
                (&self.policy.fs.read, "dangerous-read")
            }
        };
        if list.iter().any(|grant| grant.dangerous && grant.from == path) {
            return;
        }
        let shown = path.to_string_lossy();
        let what = format!("the workspace is {}", quote(&shown));
        let fix = format!("take a folder below it, or add --{word} {shown}");
        let place = if self.tree.at("workspace.path").is_some() { "workspace.path" } else { "workspace.mode" };
        self.wrong(place, "grant/dangerous", what, &why, fix);
    }

    fn hide(&mut self) {
        let mode = self.policy.workspace.mode;
        let fs = &self.policy.fs;
        let held = match mode {
            WorkspaceMode::Overlay | WorkspaceMode::Copy => true,
            // What is found in grants is covered.
            WorkspaceMode::None => !fs.read.is_empty() || !fs.write.is_empty(),
            WorkspaceMode::Ro | WorkspaceMode::Rw => false,
        };
        if fs.hide.is_empty() || held {
            return;
        }
        let what = format!("`fs.hide` with workspace mode `{mode}`");
        let why = "what is hidden is left out of a layer or a copy of ours; a plain view of the host has neither, and a file made later would show";
        self.wrong("fs.hide", "hide/mode", what, why, "use workspace mode \"overlay\" or \"copy\", or grant less");
    }

    /// Two things cannot be shown in one place.
    fn targets(&mut self) {
        let (read, write) = (&self.policy.fs.read, &self.policy.fs.write);
        let mut seen: Vec<&Grant> = Vec::new();
        let mut clashes = Vec::new();
        for grant in read.iter().chain(write) {
            match seen.iter().find(|known| known.to == grant.to) {
                Some(known) if known.from != grant.from => clashes.push((*known, grant)),
                Some(_) => {}
                None => seen.push(grant),
            }
        }
        let clashes: Vec<String> = clashes
            .iter()
            .map(|(a, b)| format!("{} and {} are both shown at {}", shown(&a.from), shown(&b.from), shown(&a.to)))
            .collect();
        let path = if read.is_empty() { "fs.write" } else { "fs.read" };
        for what in clashes {
            self.wrong(path, "grant/clash", what, "one would cover the other", "give one another `to`");
        }
        if moves(self.policy.tier) {
            self.over_ours(path);
        }
        self.over_workspace(path);
    }

    /// A grant in the workspace's place, or over it. One of the workspace itself says what that shows already, unless it could be
    /// written where the workspace is not.
    fn over_workspace(&mut self, path: &str) {
        let policy = self.policy;
        let workspace = &policy.workspace;
        let Some(root) = workspace.path.as_ref().filter(|_| workspace.mode != WorkspaceMode::None) else { return };
        let place = match &workspace.at {
            Some(at) => at,
            None if moves(policy.tier) => root,
            None => return,
        };
        // A tree at its own path may have its workspace in it.
        let under = |grant: &&Grant| *place == grant.to || (workspace.at.is_some() && place.starts_with(&grant.to));
        let fs = &policy.fs;
        let itself = |grant: &&Grant| !is_the_workspace(workspace, grant);
        let written = fs.write.iter().filter(|grant| workspace.mode != WorkspaceMode::Rw || itself(grant));
        if let Some(grant) = fs.read.iter().filter(itself).chain(written).find(under) {
            let (what, why, fix) = if is_the_workspace(workspace, grant) {
                let what =
                    format!("{} is granted for writing, and the workspace in mode `{}`", shown(root), workspace.mode);
                (
                    what,
                    "what is written would go to the host at once by the one, and not by the other",
                    "drop the grant, or use `-w PATH:rw`",
                )
            } else {
                let what = format!("{} is shown at {}, over the workspace", shown(&grant.from), shown(&grant.to));
                (what, "one would cover the other", "give one another place")
            };
            self.wrong(path, "grant/clash", what, why, fix);
        }
    }

    /// What is not said to be shown elsewhere is shown at its own path, and there may be something of ours.
    fn over_ours(&mut self, path: &str) {
        let policy = self.policy;
        let workspace = policy
            .workspace
            .path
            .as_ref()
            .map(|from| (from, policy.workspace.at.as_ref().unwrap_or(from), "workspace"));
        let grants = policy.fs.read.iter().chain(&policy.fs.write).map(|grant| (&grant.from, &grant.to, path));
        let covers: Vec<(String, &str, &str)> = grants
            .chain(workspace)
            .filter_map(|(from, to, path)| {
                over(to).map(|ours| (format!("{} is shown at {}", shown(from), shown(to)), ours, path))
            })
            .collect();
        let elsewhere = workspace.filter(|(from, at, _)| from != at && policy.fs.root == Root::Host);
        if let Some((from, at, path)) = elsewhere
            && let Some(tools) = TOOLS.iter().find(|tools| at.starts_with(tools))
        {
            let what = format!("{} is shown at {}", shown(from), shown(at));
            let why = format!(
                "`{tools}` inside is the host's, with the programs of every run, and no place can be made in it"
            );
            self.wrong(path, "path/ours", what, &why, "give it another `at`");
        }
        for (what, ours, path) in covers {
            let why = format!("`{ours}` inside is made by fumehood");
            let fix = if path == "workspace" {
                "give it another `at`"
            } else {
                "show it elsewhere: { from = ..., to = \"/host/...\" }, FROM:TO in a flag"
            };
            self.wrong(path, "path/ours", what, &why, fix);
        }
    }

    /// tmp, shm and run take their sizes, the workspace the rest; in memory all but what is written to the host.
    fn disk(&mut self) {
        let fs = &self.policy.fs;
        let fixed = fs.tmp.0.saturating_add(fs.shm.0).saturating_add(fs.run.0);
        let disk = self.policy.limits.disk;
        let parts = fixed.saturating_add(scale_tmpfs::least_of_a_layer(self.policy.workspace.mode));
        if let Some(disk) = disk.filter(|disk| disk.0 < parts) {
            let what = format!("`fs.tmp`, `fs.shm` and `fs.run` take {}, and `limits.disk` is {disk}", Bytes(fixed));
            let why = if disk.0 < fixed {
                "all that is writable together cannot be less than its parts"
            } else {
                "nothing is left for what is changed in the workspace"
            };
            let fix = format!("limits.disk = \"{}\" or more, or make the parts smaller", Bytes(parts));
            let path = self.wish(&["limits.disk", "fs.tmp", "fs.shm", "fs.run"]).unwrap_or("limits.disk");
            return self.wrong(path, "disk/parts", what, why, fix);
        }
        let in_memory = match self.policy.tier {
            TierChoice::Fixed(tier) => tier == Tier::Container,
            TierChoice::Auto => self.policy.threat == Threat::Hostile,
        };
        let Some(memory) = self.policy.limits.memory.filter(|_| in_memory) else { return };
        let host = self.policy.workspace.mode == WorkspaceMode::Rw || !self.policy.fs.write.is_empty();
        let held = if host { fixed } else { disk.map_or(fixed, |disk| disk.0.max(fixed)) };
        let why = "in the container tier what is written lies in memory and counts against it";
        if let Some(path) = self.wish(&["limits.disk", "fs.tmp", "fs.shm", "fs.run"]).filter(|_| held > memory.0) {
            let what = format!("{} can be written, and `limits.memory` is {memory}", Bytes(held));
            let why = format!("{why}: the limit could never be reached");
            let fix = format!("raise limits.memory above {}, or lower {path} to {}", Bytes(held), Bytes(memory.0 / 2));
            self.wrong(path, "disk/memory", what, &why, fix);
        } else if held > memory.0 / 2 {
            let what = format!("{} can be written, and `limits.memory` is {memory}", Bytes(held));
            self.lint(ClauseId::LimitsDisk, "disk/half", what, why, "raise limits.memory, or lower limits.disk");
        }
    }

    /// The first of some clauses that was not given by a preset.
    fn wish<'p>(&self, paths: &[&'p str]) -> Option<&'p str> {
        paths.iter().find(|path| scale_tmpfs::wished(self.reader.sources, self.tree, path)).copied()
    }

    fn inputs(&mut self) {
        let taken: Vec<String> =
            self.policy.inputs.keys().map(|name| format!("INPUT_{}", name.to_ascii_uppercase())).collect();
        let twice =
            taken.iter().find(|name| self.policy.env.set.contains_key(*name) || self.policy.env.pass.contains(name));
        if let Some(name) = twice.cloned() {
            let what = format!("`{name}` is both an input and a variable of `env`");
            self.wrong("env", "input/clash", what, "inputs become INPUT_NAME", "keep one");
        }
    }

    fn lint_limits(&mut self) {
        let limits = &self.policy.limits;
        let unlimited: Vec<ClauseId> = [
            (ClauseId::LimitsWall, limits.wall.is_none()),
            (ClauseId::LimitsMemory, limits.memory.is_none()),
            (ClauseId::LimitsPids, limits.pids.is_none()),
            (ClauseId::LimitsDisk, limits.disk.is_none()),
            (ClauseId::LimitsOutput, limits.output.is_none()),
        ]
        .into_iter()
        .filter_map(|(id, absent)| absent.then_some(id))
        .collect();
        let never = |threshold: Option<crate::value::Threshold>| {
            threshold.and_then(|t| t.memory).zip(limits.memory).is_some_and(|(watched, most)| watched >= most)
        };
        let (warn, kill) = (never(limits.warn), never(limits.kill));
        let large_file = limits.file_size.zip(limits.disk).is_some_and(|(file, disk)| file > disk)
            && self.wish(&["limits.file_size"]).is_some();
        let idle = limits.idle.zip(limits.wall).is_some_and(|(idle, wall)| idle > wall);
        for id in unlimited {
            self.lint(
                id,
                "limit/none",
                format!("`{id}` is none"),
                "the run can take all that the host has",
                "set a limit",
            );
        }
        if warn {
            self.lint(
                ClauseId::LimitsWarn,
                "threshold/never",
                "`limits.warn` watches as much memory as `limits.memory` allows",
                "it never speaks",
                "watch less",
            );
        }
        if kill {
            self.lint(
                ClauseId::LimitsKill,
                "threshold/never",
                "`limits.kill` watches as much memory as `limits.memory` allows",
                "it never acts",
                "watch less",
            );
        }
        if large_file {
            self.lint(
                ClauseId::LimitsFileSize,
                "limit/unreachable",
                "`limits.file_size` is above `limits.disk`",
                "it is never reached",
                "lower it",
            );
        }
        if idle {
            self.lint(
                ClauseId::LimitsIdle,
                "limit/unreachable",
                "`limits.idle` is above `limits.wall`",
                "it is never reached",
                "lower it",
            );
        }
    }

    fn lint_grants(&mut self) {
        let reader = &*self.reader;
        let tame = |grant: &&Grant| grant.dangerous && reader.danger(&grant.from).is_none();
        let (read, write) = (&self.policy.fs.read, &self.policy.fs.write);
        let tamed: Vec<(ClauseId, String)> =
            (read.iter().filter(tame).map(|grant| (ClauseId::FsRead, shown(&grant.from))))
                .chain(write.iter().filter(tame).map(|grant| (ClauseId::FsWrite, shown(&grant.from))))
                .collect();
        let twice: Vec<String> = read
            .iter()
            .filter(|grant| write.iter().any(|other| other.to == grant.to))
            .map(|grant| shown(&grant.from))
            .collect();
        for (id, path) in tamed {
            self.lint(
                id,
                "grant/tame",
                format!("{path} is spelled dangerous and is not known to be"),
                "a habit of that spelling hides the day it matters",
                "use `read` or `write`",
            );
        }
        let workspace = &self.policy.workspace;
        let again = read.iter().chain(write).filter(|_| moves(self.policy.tier));
        let again = again.filter(|grant| !grant.dangerous).find(|grant| is_the_workspace(workspace, grant));
        let (mode, again) = (workspace.mode, again.map(|grant| shown(&grant.from)));
        if let Some(path) = again {
            self.lint(
                ClauseId::FsRead,
                "grant/workspace",
                format!("{path} is granted, and is the workspace in mode `{mode}`"),
                "the workspace is shown there, and its mode counts",
                "remove the grant; `-w PATH:ro` is a workspace that cannot be written",
            );
        }
        for path in twice {
            self.lint(
                ClauseId::FsRead,
                "grant/twice",
                format!("{path} is granted for reading and for writing"),
                "writing includes reading",
                "remove it from `read`",
            );
        }
        if self.policy.fs.sockets == Sockets::Host {
            self.lint(
                ClauseId::FsSockets,
                "fs/sockets",
                "`fs.sockets` is true",
                "programs behind sockets in granted folders act outside the sandbox, and named pipes in them are the host's: what is in one can be taken out, and below `/tmp`, `/run` or the home folder written to",
                "set it to `own` or false unless one of the host is needed",
            );
        }
    }

    /// What a secret stands for inside is its placeholder, and nothing else may be there under its name.
    fn secrets(&mut self) {
        let policy = self.policy;
        let mut taken: Vec<&String> = policy.env.set.keys().chain(&policy.env.pass).collect();
        for (name, secret) in &policy.secrets {
            let path = format!("secrets.{name}");
            for source in secret.sources() {
                let SecretSource::Env(variable) = source else { continue };
                if !policy.env.pass.contains(variable) {
                    continue;
                }
                let what = format!("`{variable}` is the source of `{path}`, and `env.pass` gives it to the program");
                let fix = format!("leave it out of `env.pass`; `{path}.env` shows a placeholder instead");
                self.wrong("env.pass", "secrets/inside", what, "a secret never goes inside", fix);
            }
            let Some(variable) = &secret.env else { continue };
            if taken.contains(&variable) {
                let what = format!("`{path}.env` is `{variable}`, which has another value already");
                let why = "a variable has one value: that of `env.pass`, `env.set` or one secret's placeholder";
                self.wrong(&path, "secrets/env-taken", what, why, "name it once");
            }
            taken.push(variable);
        }
    }

    /// The sandbox's own name is its loopback, and nobody asks where it is.
    fn own_name(&mut self) {
        let Policy { net, process, .. } = self.policy;
        let own =
            |rule: &&NetRule| matches!(&rule.to, Target::Host(host) if host.eq_ignore_ascii_case(&process.hostname));
        if net.mode == NetMode::Allow
            && let Some(rule) = net.rules().find(own)
        {
            let what = format!("`net.allow` names `{}`", rule.to);
            let why = "`process.hostname` is the same, so that inside it is the sandbox itself";
            let fix = "set another `process.hostname`, or name the host otherwise and by `address` where it really is";
            self.wrong("net.allow", "value/host", what, why, fix);
        }
    }

    /// A place is at one address, whichever of its rules a request fits.
    fn addresses(&mut self) {
        let net = &self.policy.net;
        let rules = || net.rules().filter(|rule| rule.address.is_some());
        let same = |one: &NetRule, other: &NetRule| {
            one.to == other.to
                && one.protocol == other.protocol
                && one.ports.iter().any(|port| other.ports.contains(port))
        };
        let two = rules().find_map(|one| {
            rules().find(|other| same(one, other) && one.address != other.address).map(|other| (one, other))
        });
        if let Some((one, other)) = two {
            let place = |rule: &NetRule| rule.address.map_or_else(String::new, |address| address.to_string());
            let what = format!("`{}` is at {} by one rule and at {} by another", one.to, place(one), place(other));
            let why = "where a connection leads is settled before any request on it is read";
            self.wrong("net.allow", "net/two-addresses", what, why, "name one address, or two hosts");
        }
    }

    fn lint_net(&mut self) {
        let net = &self.policy.net;
        let named = net.rules().next().is_some();
        let limited = net.bandwidth.is_some() || net.bytes.is_some() || net.connections.is_some();
        match net.mode {
            NetMode::None | NetMode::Loopback if named => {
                let what = format!("`net.allow` with `net.mode` `{}`", net.mode);
                self.lint(ClauseId::NetAllow, "net/unused", what, "nothing is allowed", "set net.mode = \"allow\"");
            }
            NetMode::None if limited => self.lint(
                ClauseId::NetMode,
                "net/unused",
                "limits of the network with `net.mode` `none`",
                "no byte leaves",
                "remove them, or set net.mode = \"allow\"",
            ),
            NetMode::Allow if !named && net.unknown == Unknown::Deny => self.lint(
                ClauseId::NetMode,
                "net/empty",
                "`net.mode` is `allow` and `net.allow` names no host",
                "nothing can be reached",
                "name hosts, or set net.mode = \"none\"",
            ),
            NetMode::None | NetMode::Loopback | NetMode::Allow => {}
        }
        if net.mode == NetMode::Allow && net.proxy.is_some() {
            let what = "`net.proxy` resolves the names of `net`";
            let (why, fix) = (
                "the broker does not see where a name leads: it may be a private address that the proxy reaches",
                "let the proxy refuse private addresses, or name places by `address`",
            );
            self.lint(ClauseId::NetProxy, "net/proxy-resolves", what, why, fix);
        }
        let several = |rule: &&NetRule| rule.address.is_some() && rule.ports.len() > 1;
        if let Some(rule) = net.allow.iter().find(several) {
            let what = format!("`{}` has several ports and one `address`", rule.to);
            let (why, fix) = ("all of them lead to the one port of the address", "write a rule for each port");
            self.lint(ClauseId::NetAllow, "net/one-address", what, why, fix);
        }
        self.lint_wider();
        self.lint_everybody();
        let meant = |rule: &NetRule, host: &str| match &rule.to {
            Target::Host(pattern) => pattern == host || host_matches(pattern, host),
            Target::Cidr(_) => false,
        };
        let plain = self.policy.secrets.iter().find(|(_, secret)| secret.ports.contains(&80));
        if let Some((name, _)) = plain {
            let what = format!("`secrets.{name}` is for port 80");
            let why = "there it goes over plain HTTP, and who stands on the way can read it";
            self.lint(ClauseId::Secrets, "secrets/plain", what, why, "leave port 80 out of its `ports`");
        }
        let unmet = self.policy.secrets.iter().find_map(|(name, secret)| {
            let fits = |rule: &NetRule| rule.ports.iter().any(|port| secret.ports.contains(port));
            let host = secret.hosts.iter().find(|host| !net.rules().any(|rule| fits(rule) && meant(rule, host)))?;
            let ports = secret.ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
            Some(format!("`secrets.{name}` is for `{host}` on port {ports}, which no rule of `net` names"))
        });
        if let Some(what) = unmet.filter(|_| net.mode == NetMode::Allow) {
            let (why, fix) = (
                "a secret is put into requests that are allowed, and allows none",
                "name the host and the port in `net.allow`",
            );
            self.lint(ClauseId::Secrets, "secrets/no-rule", what, why, fix);
        }
    }

    /// A range of all addresses, which is legal and means hosts of everybody.
    fn lint_everybody(&mut self) {
        let is_all = |rule: &&NetRule| matches!(&rule.to, Target::Cidr(range) if range.length == 0);
        let Some(to) = self.policy.net.rules().find(is_all).map(|rule| rule.to.to_string()) else { return };
        let what = format!("a rule allows `{to}`: every public address");
        let (why, fix) = ("what a program can read it can send to anybody", "name the hosts, or a smaller `cidr`");
        self.lint(ClauseId::NetAllow, "net/everybody", what, why, fix);
    }

    /// Rules about requests beside one that passes all of them: rules add up, so that these narrow nothing.
    fn lint_wider(&mut self) {
        let net = &self.policy.net;
        let wider = |narrow: &NetRule| {
            let same = |rule: &NetRule| match (&rule.to, &narrow.to) {
                (Target::Host(pattern), Target::Host(host)) => pattern == host || host_matches(pattern, host),
                (rule, narrow) => rule == narrow,
            };
            // Of whatever protocol: QUIC carries requests as datagrams, which nobody reads.
            let passes = |rule: &NetRule| !rule.is_opened() && same(rule);
            net.rules().any(|rule| passes(rule) && rule.ports.iter().any(|port| narrow.ports.contains(port)))
        };
        let found = |asks: bool| net.rules().find(|rule| rule.asks == asks && rule.is_opened() && wider(rule));
        let (asking, narrow) = (found(true).map(|rule| &rule.to), found(false).map(|rule| &rule.to));
        if let Some(to) = asking {
            let what = format!("a rule asks about requests to `{to}`, and another one allows all of them");
            let (why, fix) = ("rules add up, so nobody is asked", "leave out the wider rule, or the one that asks");
            self.lint(ClauseId::NetAllow, "net/not-asked", what, why, fix);
        }
        if let Some(to) = narrow {
            let what = format!("a rule has `methods` or `paths` for `{to}`, and another one allows all requests");
            let (why, fix) = (
                "rules add up, so neither is held",
                "leave out the wider rule (`tls = \"pass\"` and `protocol = \"udp\"` are such), or this one",
            );
            self.lint(ClauseId::NetAllow, "net/not-narrowed", what, why, fix);
        }
    }

    fn lint_rest(&mut self) {
        let policy = self.policy;
        if let TierChoice::Fixed(tier) = policy.tier
            && tier < policy.threat.least_tier()
        {
            let what = format!("tier `{tier}` against threat `{}`", policy.threat);
            let most = [Threat::Hostile, Threat::Mistakes].into_iter().find(|threat| threat.least_tier() <= tier);
            let fix = format!("take a stronger tier, or say threat = \"{}\"", most.unwrap_or(Threat::Mistakes));
            self.lint(ClauseId::Tier, "tier/threat", what, "the tier is not meant to hold against it", &fix);
        }
        self.lint_net();
        let names: Vec<(ClauseId, &String)> = (policy.env.pass.iter().map(|name| (ClauseId::EnvPass, name)))
            .chain(policy.env.set.keys().map(|name| (ClauseId::EnvSet, name)))
            .filter(|(_, name)| is_secret(name))
            .collect();
        for (id, name) in names {
            self.lint(
                id,
                "env/secret",
                format!("`{name}` looks like a secret"),
                "the program can read and repeat it",
                "use [secrets.NAME]: it never goes inside",
            );
        }
        for name in &policy.syscalls.allow {
            self.lint(
                ClauseId::SyscallsAllow,
                "syscalls/allow",
                format!("`{name}` is added to the system calls"),
                "the profile leaves out what it does not need",
                "remove it unless the program fails without",
            );
        }
        for id in &policy.prefer {
            if policy.demand(*id).is_none() {
                self.lint(
                    *id,
                    "prefer/unused",
                    format!("`{id}` is preferred and not demanded"),
                    "nothing can be weakened",
                    "remove it from `prefer`",
                );
            }
        }
    }
}

/// Whether the tier shows the host in a tree of its own.
const fn moves(tier: TierChoice) -> bool {
    match tier {
        TierChoice::Fixed(Tier::Language | Tier::Process) => false,
        TierChoice::Fixed(Tier::Container | Tier::Gvisor | Tier::Vm) | TierChoice::Auto => true,
    }
}

fn shown(path: &Path) -> String {
    quote(&path.to_string_lossy())
}

fn is_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "APIKEY", "PRIVATE_KEY", "ACCESS_KEY", "CREDENTIAL"]
        .iter()
        .any(|word| upper.contains(word))
}
