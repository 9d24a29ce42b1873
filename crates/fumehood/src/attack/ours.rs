//! Our own sandbox, by the front door: `fumehood run --json` with the user's own policy.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::attack::confined::{Confined, Moment, Observed, ProbeCall};
use crate::attack::{bare, launch};
use sandbox::fault::Fault;

/// Runs the probe under a policy.
#[derive(Clone, Debug)]
pub struct Ours {
    /// Our own program.
    pub program: PathBuf,
    /// The user's flags that make the policy.
    pub policy: Vec<OsString>,
    /// The tier of the plan.
    pub tier: String,
    /// How the policy shows a workspace.
    pub mode: String,
    /// Where the user stands: what the flags name is named from there.
    pub cwd: PathBuf,
    /// The caller's environment: it places our state folder, and the policy may take variables from it.
    pub env: Vec<(String, OsString)>,
}

impl Confined for Ours {
    fn name(&self) -> &'static str {
        "fumehood"
    }

    fn workspace_seen(&self, _host: &Path) -> PathBuf {
        // Without mounts a copy lies where the supervisor put it: the program is started in it.
        PathBuf::from(if self.tier == "process" { "." } else { "/workspace" })
    }

    fn run(&self, call: &ProbeCall, watch: &mut dyn FnMut(&Moment<'_>)) -> Result<Observed, Fault> {
        let mut argv: Vec<OsString> = vec![self.program.clone().into(), "run".into(), "--json".into()];
        argv.extend(self.policy.iter().cloned());
        for path in call.read.iter().chain([&call.program]) {
            argv.extend(["--read".into(), path.into()]);
        }
        for path in &call.write {
            argv.extend(["--write".into(), path.into()]);
        }
        if !call.write.is_empty() {
            // What is written straight to the host has no quota here; that is another promise than the one that is tried.
            argv.extend(["--prefer", "limits.disk", "--prefer", "limits.files"].map(OsString::from));
        }
        if let Some(workspace) = &call.workspace {
            let mut shown = workspace.clone().into_os_string();
            shown.push(format!(":{}", self.mode));
            argv.extend(["--workspace".into(), shown]);
            // Where a workspace is seen may be said otherwise by the policy: the probe is told one place.
            let at = if self.tier == "process" { "same" } else { "/workspace" };
            argv.extend(["--set".into(), format!("workspace.at={at}").into()]);
        }
        for (clause, value) in &call.set {
            argv.extend(["--set".into(), format!("{clause}={value}").into()]);
        }
        // A probe's streams are pipes, whatever the policy says of terminals.
        argv.extend(["--set".into(), "process.tty=false".into()]);
        argv.extend(["--".into(), call.program.clone().into()]);
        argv.extend(call.argv.iter().cloned());
        let mut call = call.clone();
        call.env.extend(self.env.iter().cloned());
        let mut observed = bare::run_in(&call, argv, call.directory.as_deref().unwrap_or(&self.cwd), watch)?;
        let report: Value = serde_json::from_slice(&observed.stdout).unwrap_or(Value::Null);
        let kind = report.pointer("/outcome/kind").and_then(Value::as_str).unwrap_or("no report");
        if !matches!(kind, "exited" | "signalled" | "limit") && !observed.timed_out {
            return Err(refused(kind, &report, &observed));
        }
        if let Some(text) = report.get("stdout").and_then(Value::as_str) {
            observed.stdout = text.as_bytes().to_vec();
        }
        // What stands outside the report is our own words; both are searched for canaries.
        if let Some(text) = report.get("stderr").and_then(Value::as_str) {
            observed.stderr.extend_from_slice(text.as_bytes());
        }
        observed.report = report;
        Ok(observed)
    }
}

fn refused(kind: &str, report: &Value, observed: &Observed) -> Fault {
    let mut fault = launch::own("the sandbox did not run the probe", rustix::io::Errno::PERM);
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
