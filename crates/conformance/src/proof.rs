//! Cases, the cells they fill, how each is proven, and the count.

use policy::ClauseId;

use crate::case::{BY_CRUN, BY_DOCKER, BY_PODMAN};
use crate::{BackendId, CaseError, CaseResult, Fixture, Tier, Who, check};

/// What is to hold.
#[derive(Clone, Copy, Debug)]
pub enum Cell {
    /// The probe is stopped inside, its control is not.
    Enforced(fn(&Fixture) -> CaseResult),
    /// With these values (`clause=value`) the run is refused with 126, for this reason, and nothing is run.
    Refused(&'static [&'static str], &'static str),
    /// Enforced where this cgroup controller can be used, else refused for this reason with these values.
    Controller(&'static str, &'static [&'static str], &'static str, fn(&Fixture) -> CaseResult),
}

/// One sentence about one clause.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Clause.
    pub clause: ClauseId,
    /// Of which backends.
    pub backends: &'static [BackendId],
    /// What holds.
    pub sentence: &'static str,
    /// The proof.
    pub cell: Cell,
}

/// What a cell turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellResult {
    /// The probe was stopped.
    Enforced,
    /// The run was refused.
    Refused,
}

/// The count at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Cells where the probe was stopped.
    pub enforced: usize,
    /// Cells where the run was refused.
    pub refused: usize,
    /// Cells that this host cannot show.
    pub skipped: usize,
    /// Cells that do not hold.
    pub failed: usize,
}

impl Case {
    /// Proves it.
    ///
    /// # Errors
    /// Why it does not hold.
    pub fn prove(&self, scene: &Fixture) -> Result<CellResult, CaseError> {
        // The tier is root's: for everybody else each of its cells is that refusal.
        if (scene.tier, scene.who) == (Tier::Gvisor, Who::Rootless) {
            return refused(scene, &[], "gvisor/needs-root").map(|()| CellResult::Refused);
        }
        if (scene.backend(), scene.who) == (BY_CRUN, Who::Rootless) {
            return refused(scene, &[], "crun/needs-root").map(|()| CellResult::Refused);
        }
        if (scene.backend(), scene.who) == (BY_PODMAN, Who::Rootless) {
            return refused(scene, &[], "podman/needs-root").map(|()| CellResult::Refused);
        }
        if (scene.backend(), scene.who) == (BY_DOCKER, Who::Rootless) {
            return refused(scene, &[], "docker/needs-root").map(|()| CellResult::Refused);
        }
        match self.cell {
            Cell::Enforced(proof) => proof(scene).map(|()| CellResult::Enforced),
            Cell::Refused(values, id) => refused(scene, values, id).map(|()| CellResult::Refused),
            Cell::Controller(name, values, id, proof) => {
                let planned = scene.plan(values)?;
                // Refused for something else, the proof names what that tier lacks beside it.
                if planned.code == Some(126) && planned.refusals().iter().any(|found| found == id) {
                    // Root on a host that has the controller must get it: a refusal would be a lost capability.
                    let there = backends::Capabilities::probe().controller(name).is_some();
                    check(scene.who == Who::Rootless || !there, || {
                        format!("`{name}` is there and was refused: {}", planned.said())
                    })?;
                    return refused(scene, values, id).map(|()| CellResult::Refused);
                }
                proof(scene).map(|()| CellResult::Enforced)
            }
        }
    }
}

/// A module that does nothing.
const WAT: &str = r#"(module (func (export "_start")))"#;

/// The run is refused with the reason, and its command leaves no mark.
fn refused(scene: &Fixture, values: &[&str], id: &str) -> CaseResult {
    let mark = scene.work().join("ran");
    let script = format!("touch {}", mark.display());
    let ended = match scene.tier {
        Tier::Language => scene.interpreted(values, ("print('ran')", "print('ran')"), WAT)?,
        Tier::Process | Tier::Container | Tier::Gvisor | Tier::Vm => {
            scene.run(&Fixture::values(values), &["/bin/sh", "-c", &script])?
        }
    };
    let ids = ended.refusals();
    check(ended.code == Some(126) && ids.iter().any(|found| found == id), || {
        format!("expected 126 with `{id}`, got {:?} with {ids:?}: {}", ended.code, ended.said())
    })?;
    let printed = ended.out().lines().any(|line| line == "ran");
    check(!crate::fixture::there(&mark) && !printed, || "it was refused and ran all the same".to_owned())
}
