//! The backends of this version, and which of them a plan is for.

use policy::Plan;
use policy::control::{Emulator, Source};

use crate::StartError;
use crate::backend::Backend;
use crate::engine::EngineBackend;
use crate::gvisor::Gvisor;
use crate::machine::Machines;
use crate::native::{Container, Language, Process};
use crate::oci::Crun;

/// The backends of this version, weakest tier first.
pub const ALL: &[&dyn Backend] = &[
    &Language(Source::Python),
    &Language(Source::JavaScript),
    &Language(Source::Wasm),
    &Process,
    &Container,
    &Crun,
    &EngineBackend::Podman,
    &EngineBackend::Docker,
    &Gvisor,
    &Machines(Emulator::Qemu),
    &Machines(Emulator::Firecracker),
];

/// The backend that made a plan.
///
/// # Errors
/// This version has none of that name on that tier.
pub fn of(plan: &Plan) -> Result<&'static dyn Backend, StartError> {
    let made = |backend: &&&dyn Backend| backend.tier() == plan.tier && backend.name() == plan.backend;
    let unknown =
        || StartError::Internal(format!("no backend `{}` on tier `{}` is known", plan.backend, plan.tier.as_str()));
    ALL.iter().find(made).copied().ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use policy::ClauseId;
    use policy::value::Tier;

    use super::*;
    use crate::host::{Assumed, Capabilities};

    /// The default policy on the tier of a backend.
    fn strict(backend: &dyn Backend) -> policy::Loaded {
        let caller = policy::Caller { dir: PathBuf::from("/srv"), home: None, profiles: vec!["default".to_owned()] };
        let mut layers = policy::Layers::new(caller);
        // No folder of the host goes into a machine but as an image.
        let root = if backend.tier() == Tier::Vm { "fs.root = \"dir:/srv\"\n" } else { "" };
        let text = format!("version = 1\ntier = \"{}\"\n{root}", backend.tier().as_str());
        let none = |_: &Path| Err("no such file".to_owned());
        layers.document("case", &text, policy::Format::Toml, Path::new("/srv"), &none);
        layers.finish().unwrap_or_else(|mistakes| panic!("{mistakes}"))
    }

    /// The plan of the default policy; `name` is that of whoever answers.
    fn plan(backend: &dyn Backend, name: &'static str, host: &Capabilities) -> Result<Plan, policy::Refusal> {
        let loaded = strict(backend);
        let policy = loaded.policy_on(backend.tier()).into_owned();
        let answers = |clause: ClauseId| backend.support(clause, &policy, host);
        policy::make_plan(&loaded, policy::Candidate { tier: backend.tier(), backend: name, answers: &answers })
    }

    #[test]
    fn what_a_probe_misses_refuses_the_tier() {
        let (whole, without) = (Capabilities::assumed(Assumed::Groups), Capabilities::without_proc());
        for backend in ALL {
            assert_eq!(backend.probe(&whole), Ok(()), "{backend:?}");
            assert!(plan(*backend, backend.name(), &whole).is_ok(), "{backend:?}");
            let missing = backend.probe(&without).unwrap_err();
            let refusal = plan(*backend, backend.name(), &without).unwrap_err();
            let reason = refusal.refused.iter().find(|reason| reason.id == missing.id);
            let reason = reason.unwrap_or_else(|| panic!("{backend:?}: {refusal:?}"));
            assert_eq!((reason.clause, &reason.fix), (ClauseId::Tier, &missing.fix), "{backend:?}");
        }
    }

    #[test]
    fn a_plan_is_held_by_the_backend_that_made_it_and_by_no_other() {
        let host = Capabilities::assumed(Assumed::Groups);
        for backend in ALL {
            let found = of(&plan(*backend, backend.name(), &host).unwrap()).unwrap();
            assert_eq!((found.tier(), found.name()), (backend.tier(), backend.name()));
            let unknown = of(&plan(*backend, "elsewhere", &host).unwrap()).unwrap_err();
            assert!(matches!(unknown, StartError::Internal(_)), "{unknown:?}");
        }
    }
}
