//! Where no live sandbox can be had, and where none can be kept as a snapshot: one answer for whoever chooses, starts or asks
//! for it.

use backends::Capabilities;
use policy::Plan;
use policy::value::{Tier, WorkspaceMode};

use super::frozen;
use crate::error::Error;
use crate::fault::Fault;

/// Whether the agent of a live sandbox can work in what is planned.
///
/// # Errors
/// Why it cannot.
pub fn could_live(plan: &Plan) -> Result<(), Error> {
    if plan.tier == Tier::Gvisor && plan.policy.syscalls.deny.iter().any(|name| name == "seccomp") {
        return Err(Error::refused(Fault {
            id: "live/gvisor",
            what: "a live sandbox on the gvisor tier needs the call `seccomp`".to_owned(),
            place: "`syscalls.deny`".to_owned(),
            why: "its agent knows what a command started by a mark, which it keeps by a filter; nothing was run"
                .to_owned(),
            fix: "leave `seccomp` out of `syscalls.deny`, or use `--tier container`".to_owned(),
        }));
    }
    if plan.policy.process.tty {
        return Err(Error::refused(Fault {
            id: "live/terminal",
            what: "a live sandbox has no terminal of its own".to_owned(),
            place: "`process.tty`".to_owned(),
            why: "each of its programs is given one where it is asked for; nothing was run".to_owned(),
            fix: "leave `process.tty` out, and ask for a terminal by `exec -t`".to_owned(),
        }));
    }
    if plan.tier == Tier::Vm && !matches!(plan.policy.workspace.mode, WorkspaceMode::None | WorkspaceMode::Ro) {
        return Err(Error::refused(Fault {
            id: "live/vm-workspace",
            what: "a live sandbox in a machine has no workspace that can be written to".to_owned(),
            place: "`workspace.mode`".to_owned(),
            why: "a machine hands its copy over when its only program has ended, and a live one has many; nothing was run"
                .to_owned(),
            fix: "use `-w PATH:ro` and `fumehood cp`, or `--tier container`".to_owned(),
        }));
    }
    Ok(())
}

/// Whether a live sandbox of this plan can be kept as a snapshot on this host, which a fork begins with.
///
/// # Errors
/// Why it cannot.
pub fn could_snapshot(plan: &Plan, host: &Capabilities) -> Result<(), Error> {
    could_live(plan)?;
    frozen::could_keep(plan)?;
    if plan.tier == Tier::Vm {
        // A machine's own kernel stops what is inside.
        return Ok(());
    }
    let missing = match host.cgroups() {
        Ok(groups) => groups.available().kill.as_ref().err().map(ToString::to_string),
        Err(why) => Some(why.clone()),
    };
    missing.map_or(Ok(()), |why| Err(frozen::not_frozen(&why)))
}
