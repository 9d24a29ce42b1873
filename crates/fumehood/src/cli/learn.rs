//! `fumehood learn`: a run that is not limited by name, and the smallest rules that it would have needed.

use std::path::PathBuf;
use std::sync::Arc;

use super::args::{Flag, Positionals, To};
use super::ask::request;
use super::flags::{POLICY, RUN as PROGRAM, SAYING};
use super::spec::{Call, Spec};
use super::target::target;
use crate::learn::Learner;
use crate::load;
use crate::program::nothing;
use crate::run::run as start;
use crate::ui::Failure;
use sandbox::Workload;

const WRITE: &[Flag] = &[Flag::new(
    "save",
    Some("FILE"),
    To::Ours,
    "Write the proposed policy: over the one that was given, or as a new file",
)];

pub(super) const SPEC: Spec = Spec {
    path: &["learn"],
    about: "Run a program with every public host open, and propose the smallest policy for it",
    usage: "[FLAGS] [--save FILE] -- CMD ARGS... | [FLAGS] SCRIPT ARGS... | [FLAGS] --lang LANGUAGE (--code TEXT | -)",
    more: "The run is not limited by name, and says so; everything else of the policy holds. Private, loopback, link-local and metadata \
      addresses, addresses that no name was looked up for, and what `net.deny` names stay closed. A policy with `secrets` is refused. \
      What it reached is in the audit log (`egress.learned`), and proposed as a difference to the last policy document: hosts and ports, \
      and for plain HTTP (or TLS that a rule opens) methods and paths. Names are never joined into a pattern.\n\n\
      Heard are ports 80 and 443, those of the policy, and common ones of mail, databases, files and shells; and 8080 and 8443.\n\n\
      Exit codes: those of `fumehood run`; 126 also for a policy with secrets, 125 where the proposal cannot be made. With --json: the \
      report with `proposal` {allow, remarks, document}.\n\
      Example: `fumehood learn -p coding-agent --save agent.toml -- npm install`",
    tables: &[POLICY, PROGRAM, SAYING, WRITE],
    words: Positionals::EndFlags,
    hidden: false,
    run,
};

fn run(call: &mut Call<'_>) -> Result<u8, Failure> {
    let what = target(&mut call.parsed, std::io::stdin().lock())?;
    if matches!(what, Workload::Nothing) {
        return Err(nothing("no program was named"));
    }
    let write = call.parsed.value("save").map(PathBuf::from);
    let mut request = request(call, what)?;
    let given = std::mem::take(&mut request.layers);
    let learner = Learner::new(given.clone(), load::policy(&given, call.environment)?, call.environment, write)?;
    learner.begin()?;
    request.layers = learner.layers();
    call.console.eprint(&format!("fumehood: {}\n", crate::learn::NOT_LIMITED));
    request.learner = Some(Arc::new(learner));
    start(request, call.environment, call.console)
}
