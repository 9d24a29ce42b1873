//! From layers of documents and flags to a plan, or every reason why not.

use backends::{Backend, Capabilities, StartError};
use policy::value::Tier;
use policy::{Candidate, Choice, Clause, Loaded, Plan};

use crate::cli::load;
use crate::cli::{Request, World};
use crate::fault::{Fault, show_text};
use crate::state::StateError;
use crate::ui::Failure;

/// A plan, and what was said about it.
#[derive(Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Why this tier.
    pub why: String,
    /// Legal, but probably not meant.
    pub lints: Vec<policy::lint::Lint>,
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        Self::Faults { code: 126, faults: vec![error.fault()] }
    }
}

impl From<crate::audit::AuditError> for Failure {
    fn from(error: crate::audit::AuditError) -> Self {
        Self::Faults { code: 126, faults: vec![error.fault()] }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let code = if error.is_refusal() { 126 } else { 125 };
        let (id, fix) = match &error {
            StartError::Path { .. } => ("run/path", "check the path, or take it out of the policy".to_owned()),
            StartError::Special { .. } => {
                ("run/special-file", "grant the directory around it with `fs.sockets`, or nothing".to_owned())
            }
            StartError::NotADirectory { .. } => ("run/not-a-directory", "name a directory".to_owned()),
            StartError::Namespaces { .. } => {
                ("run/namespaces", "`fumehood doctor` names the setting; or use the weaker `--tier process`".to_owned())
            }
            StartError::Posture(_) => {
                ("run/posture", "nothing was run; please report this with `fumehood doctor --json`".to_owned())
            }
            StartError::Mapping { .. } => (
                "run/workspace-of-root",
                "give it to an ordinary user (chown), use `--tier container`, or workspace mode `copy`".to_owned(),
            ),
            StartError::Label { .. } => (
                "run/label",
                "load the profile in enforce mode (`apparmor_parser -r FILE`, `aa-enforce NAME`), or the policy module of the type; or remove `process.label`".to_owned(),
            ),
            StartError::Layer { .. } => (
                "run/no-layer",
                "of a workspace: mode `copy` or `rw`; of a grant: name the folders in it one by one, or set `fs.sockets = true`, which shows it without a layer, and with it the host's unix sockets".to_owned(),
            ),
            StartError::Profile { .. } => ("run/profile", "change `syscalls.allow` or `syscalls.deny`".to_owned()),
            StartError::NotTheDevice { .. } => ("run/device", "repair /dev of this host".to_owned()),
            StartError::System { .. } | StartError::Guest { .. } | StartError::Internal(_) => {
                ("run/start", "`fumehood doctor` may know why".to_owned())
            }
        };
        let fault = Fault {
            id,
            what: show_text(&error.to_string()),
            place: "before the program was started".to_owned(),
            why: "nothing was run".to_owned(),
            fix,
        };
        Self::Faults { code, faults: vec![fault] }
    }
}

/// Plans on this host.
///
/// # Errors
/// Mistakes, or every clause that cannot be held.
pub fn plan(request: Request, world: &World, host: &Capabilities) -> Result<Planned, Failure> {
    let mut loaded = load::policy(&request.layers, world)?;
    super::commands::judge(&mut loaded, request.what)?;
    choose(&loaded, host)
}

/// One backend's answers.
type Ask<'a> = Box<dyn Fn(&Clause<'_>) -> policy::Support + 'a>;

/// Puts a policy to the backends of this host.
///
/// # Errors
/// Every clause that cannot be held.
pub fn choose(loaded: &Loaded, host: &Capabilities) -> Result<Planned, Failure> {
    let backends = backends::all();
    let answers: Vec<(Tier, &'static str, Ask<'_>)> = backends
        .iter()
        .map(|backend| {
            let policy = loaded.policy_on(backend.tier()).into_owned();
            let backend: &'static dyn Backend = *backend;
            let ask = move |clause: &Clause<'_>| backend.support(clause, &policy, host);
            (backend.tier(), backend.name(), Box::new(ask) as Ask<'_>)
        })
        .collect();
    let candidates: Vec<Candidate<'_>> =
        answers.iter().map(|(tier, backend, ask)| Candidate { tier: *tier, backend, answers: ask }).collect();
    match policy::choose(loaded, &candidates) {
        Ok(Choice { plan, why }) => Ok(Planned { plan, why, lints: loaded.lints.clone() }),
        Err(refusal) => Err(Failure::Refused(refusal)),
    }
}
