//! Our own sandbox with the user's own policy, started in this process as any caller of the library starts it.
//!
//! A few rows are about the process of whoever starts a sandbox: its descriptors, its standard input, its terminal, its groups,
//! its mounts, its environment as the kernel shows it. For those the caller is a process that was made so, and the only one
//! there is outside a test is our command line.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sandbox::fault::Fault;
use sandbox::{Capabilities, Environment, Error, Inputs, Options, PolicyLayer, Sandbox, Stdio, Workload};
use serde_json::Value;

use crate::confined::{Confined, Moment, Observed, ProbeCall};
use crate::machine::MachineRoot;
use crate::{bare, launch, survey};

/// A machine takes seconds to start, and emulates what the probe does.
const MACHINE: Duration = Duration::from_secs(90);

/// Runs the probe under a policy.
#[derive(Debug)]
pub struct Ours {
    /// The user's policy, but for the workspace.
    pub layers: Vec<PolicyLayer>,
    /// The tier of the plan shows paths where they are.
    pub process_tier: bool,
    /// The tier of the plan is a machine, which is shown nothing but its root and a workspace.
    pub machine: bool,
    /// How the policy shows a workspace.
    pub mode: String,
    /// The caller: it places our state folder, what the policy names is named from where it stands, and the policy may take
    /// variables from it.
    pub environment: Environment,
    /// What is known of this host.
    pub host: Capabilities,
}

impl ProbeCall {
    /// Whether it says something of the process of whoever starts the sandbox.
    fn is_about_its_caller(&self) -> bool {
        let told = self.stdin.is_some() || self.directory.is_some();
        let told = told || self.mount.is_some() || self.resolvers.is_some() || self.network.is_some();
        told || self.terminal || self.groups || !self.fds.is_empty() || !self.env.is_empty()
    }
}

impl Confined for Ours {
    fn name(&self) -> &'static str {
        "fumehood"
    }

    fn workspace_seen(&self, _host: &Path) -> PathBuf {
        // Without mounts a copy lies where the supervisor put it: the program is started in it.
        PathBuf::from(if self.process_tier { "." } else { "/workspace" })
    }

    fn run(&self, call: &ProbeCall, watch: &mut dyn FnMut(&Moment<'_>)) -> Result<Observed, Fault> {
        let made = self.machine.then(|| MachineRoot::make(call, self.environment.euid == 0)).transpose();
        let root = made.map_err(|error| launch::own("the root of the machine cannot be made", of(&error)))?;
        let layers = self.layers(call, root.as_ref().map(MachineRoot::path));
        let limit = if self.machine { call.limit.max(MACHINE) } else { call.limit };
        let call = &ProbeCall { limit, ..call.clone() };
        let observed = if call.is_about_its_caller() {
            self.by_command_line(&layers, call, watch)?
        } else {
            self.here(&layers, call, watch)?
        };
        let kind = observed.report.pointer("/outcome/kind").and_then(Value::as_str).unwrap_or("no report");
        if !matches!(kind, "exited" | "signalled" | "limit") && !observed.timed_out {
            return Err(refused(kind, &observed));
        }
        Ok(observed)
    }
}

impl Ours {
    /// The user's policy with what this call needs.
    fn layers(&self, call: &ProbeCall, root: Option<&Path>) -> Vec<PolicyLayer> {
        let mut layers = self.layers.clone();
        let flag = |name: &str, value: String| PolicyLayer::Flag { name: name.to_owned(), value };
        let text = |path: &Path| path.to_string_lossy().into_owned();
        match root {
            // All that would be granted is in it.
            Some(root) => layers.push(PolicyLayer::Set(format!("fs.root=dir:{}", text(root)))),
            None => layers.extend(call.read.iter().chain([&call.program]).map(|path| flag("--read", text(path)))),
        }
        layers.extend(call.write.iter().map(|path| flag("--write", text(path))));
        if !call.write.is_empty() {
            // What is written straight to the host has no quota here; that is another promise than the one that is tried.
            layers.extend(["limits.disk", "limits.files"].map(|clause| flag("--prefer", clause.to_owned())));
        }
        if let Some(workspace) = &call.workspace {
            layers.push(flag("--workspace", format!("{}:{}", text(workspace), self.mode)));
            // Where a workspace is seen may be said otherwise by the policy: the probe is told one place.
            let at = if self.process_tier { "same" } else { "/workspace" };
            layers.push(PolicyLayer::Set(format!("workspace.at={at}")));
        }
        layers.extend(call.set.iter().map(|(clause, value)| PolicyLayer::Set(format!("{clause}={value}"))));
        // A probe's streams are pipes, whatever the policy says of terminals.
        layers.push(PolicyLayer::Set("process.tty=false".to_owned()));
        layers
    }

    /// In this process.
    fn here(
        &self,
        layers: &[PolicyLayer],
        call: &ProbeCall,
        watch: &mut dyn FnMut(&Moment<'_>),
    ) -> Result<Observed, Fault> {
        let argv = std::iter::once(call.program.clone().into()).chain(call.argv.iter().cloned()).collect();
        let sandbox = match self.start(layers, argv) {
            Ok(sandbox) => sandbox,
            // As the report of a run says it that was refused.
            Err(stop) => return Ok(Observed { report: stop.to_json(), ..Observed::default() }),
        };
        let (begun, mut timed_out) = (Instant::now(), false);
        while !ended(&sandbox).map_err(|errno| launch::own("the probe was lost", errno))? {
            let since = begun.elapsed();
            watch(&Moment { since, tasks: &survey::tasks(call.marker()), child: own_pid() });
            if since > call.limit && !timed_out {
                timed_out = true;
                sandbox.kill();
            }
        }
        let finished = sandbox.wait().map_err(|stop| lost(&stop))?;
        let (wall, code) = (begun.elapsed(), Some(finished.report.outcome.exit_code()));
        let report = finished.to_json();
        let [stdout, stderr] = [finished.stdout, finished.stderr].map(|kept| kept.bytes);
        Ok(Observed { stdout, stderr, code, timed_out, wall, report })
    }

    fn start(&self, layers: &[PolicyLayer], argv: Vec<OsString>) -> Result<Sandbox, Error> {
        let loaded = sandbox::load(layers, &self.environment, Inputs::Now)
            .map_err(|stop| sandbox::run::refused(stop, None, &self.environment))?;
        let planned = sandbox::run::plan_recorded(loaded, Workload::Argv(argv), &self.host, &self.environment)?;
        sandbox::start(planned, &self.environment, &self.host, Options::new(Stdio::kept()))
    }

    /// By a process that is such a caller.
    fn by_command_line(
        &self,
        layers: &[PolicyLayer],
        call: &ProbeCall,
        watch: &mut dyn FnMut(&Moment<'_>),
    ) -> Result<Observed, Fault> {
        let mut argv: Vec<OsString> =
            [call.program.as_os_str(), "run".as_ref(), "--json".as_ref()].map(Into::into).to_vec();
        for layer in layers {
            let (name, value) = match layer {
                PolicyLayer::Document(value) => ("--policy", value),
                PolicyLayer::Flag { name, value } => (name.as_str(), value),
                PolicyLayer::Set(assignment) => ("--set", assignment),
            };
            argv.push(format!("{name}={value}").into());
        }
        argv.extend(["--".into(), call.program.clone().into()]);
        argv.extend(call.argv.iter().cloned());
        let mut call = call.clone();
        let env = self.environment.env.iter();
        call.env.extend(env.map(|(name, value)| (name.to_string_lossy().into_owned(), value.clone())));
        let stands = call.directory.as_deref().or(self.environment.cwd.as_deref()).unwrap_or(Path::new("/"));
        let mut observed = bare::run_in(&call, argv, stands, watch)?;
        observed.report = serde_json::from_slice(&observed.stdout).unwrap_or(Value::Null);
        if let Some(text) = observed.report.get("stdout").and_then(Value::as_str) {
            observed.stdout = text.as_bytes().to_vec();
        }
        // What stands outside the report is our own words; both are searched for canaries.
        if let Some(text) = observed.report.get("stderr").and_then(Value::as_str) {
            observed.stderr.extend_from_slice(text.as_bytes());
        }
        Ok(observed)
    }
}

/// Waits a moment for the end of a sandbox; whether it has come.
fn ended(sandbox: &Sandbox) -> Result<bool, Errno> {
    let fd = sandbox.ended();
    let moment = Timespec::try_from(launch::PERIOD).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
    let mut polled = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    match poll(&mut polled, Some(&moment)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

fn lost(stop: &Error) -> Fault {
    let mut fault = launch::own("the probe was lost", Errno::IO);
    fault.why = reasons(stop);
    fault
}

fn refused(kind: &str, observed: &Observed) -> Fault {
    let mut fault = launch::own("the sandbox did not run the probe", Errno::PERM);
    let report = &observed.report;
    let said = String::from_utf8_lossy(&observed.stderr);
    let reasons = report.get("refused").or_else(|| report.get("errors")).and_then(Value::as_array);
    let reasons: Vec<String> = reasons
        .into_iter()
        .flatten()
        .filter_map(|reason| Some(format!("{}: {}", reason.get("id")?.as_str()?, reason.get("why")?.as_str()?)))
        .collect();
    let message = report.pointer("/outcome/message").and_then(Value::as_str).unwrap_or_default();
    fault.why = [kind, message, &reasons.join("; "), said.lines().next().unwrap_or_default()]
        .iter()
        .filter(|part| !part.is_empty())
        .copied()
        .collect::<Vec<_>>()
        .join(": ");
    fault
}

/// Every reason of a stop, in one line.
pub(crate) fn reasons(stop: &Error) -> String {
    let value = stop.to_json();
    let part = |reason: &Value, name| reason.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let all = value.get("refused").or_else(|| value.get("errors")).and_then(Value::as_array);
    let said = all.into_iter().flatten().map(|one| format!("{}: {}", part(one, "what"), part(one, "why")));
    said.collect::<Vec<_>>().join("; ")
}
