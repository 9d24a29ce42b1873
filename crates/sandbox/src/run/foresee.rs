//! What a start on this host would refuse or leave out, looked at for `plan` without starting, making or recording
//! anything: the paths of the policy, who the run is, what git and the protected files of the workspace need.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use backends::{Capabilities, Launch, Prepared, StartError, Stdio};
use policy::Plan;
use policy::control::Emulator;
use policy::value::{Tier, WorkspaceMode};

use super::guard::Guard;
use super::host_resources::HostResources;
use crate::changes::MOUNTED;
use crate::error::Error;
use crate::mounts::{self, Mounts};

/// What whoever reads the plan should know of the workspace and of whom the run trusts, in words.
///
/// # Errors
/// What a start would refuse.
pub fn foresee(plan: &Plan, host: &Capabilities) -> Result<Vec<String>, Error> {
    let policy = &plan.policy;
    let mut resources = HostResources::of_nothing();
    let guard = Guard::make(plan, &mut resources)?;
    let launch = Launch {
        run: String::new(),
        argv: Vec::new(),
        program: None,
        show: guard.show,
        files: Vec::new(),
        trust: None,
        git: guard.git,
        protect: guard.protect,
        covered: super::covers::covered(plan, guard.protected.as_ref())?,
        laid: false,
        no_links: false,
        passed: BTreeMap::new(),
        forced: Vec::new(),
        stdio: Stdio::NoInput,
        term: None,
        tmp: (plan.tier.on_host_tree() || backends::of(plan)?.wants_folder()).then(|| PathBuf::from("/tmp")),
        cache: None,
        machines: None,
        memory: None,
        #[cfg(feature = "mutation")]
        mutation: backends::Mutation::default(),
    };
    let prepared = backends::of(plan)?.prepare(plan, host, &launch)?;
    let by_qemu = plan.tier == Tier::Vm && plan.backend == Emulator::Qemu.backend();
    if let Some(missing) = by_qemu.then(|| host.kvm(Emulator::Qemu).err()).flatten() {
        resources.tell(format!(
            "the machine runs on QEMU's software processor, not on KVM: {}; {}",
            missing.why, missing.fix
        ));
    }
    let mounts = Mounts::default();
    layers(plan, &*prepared, host, &mounts)?;
    let of_names = super::broker::unresolved(plan);
    for note in super::broker::trust_foreseen(plan).into_iter().chain(of_names).chain(with_mounts(plan, host, &mounts))
    {
        resources.tell(note);
    }
    if let Some(root) = prepared.workspace() {
        for note in mounts.unseen(policy, plan.tier, root) {
            resources.tell(note);
        }
        if policy.workspace.mode == WorkspaceMode::Copy {
            for at in mounts.below(root) {
                resources.tell(mounts::not_copied(&at, MOUNTED));
            }
        }
    }
    Ok(resources.take_notes())
}

/// Where a granted folder is shown as it is, so is what is mounted below it.
fn with_mounts(plan: &Plan, host: &Capabilities, mounts: &Mounts) -> Vec<String> {
    if plan.tier != Tier::Container || host.layers_reads(&plan.policy) {
        return Vec::new();
    }
    let folders = plan.policy.fs.read.iter().filter_map(|grant| grant.from.canonicalize().ok());
    let shown = |folder: PathBuf| {
        let first = mounts.below(&folder).into_iter().next()?;
        Some(format!("`{}` is shown with what is mounted below it, as `{}`", folder.display(), first.display()))
    };
    folders.filter_map(shown).collect()
}

/// The kernel layers nothing over a tree below which something is mounted, unless the tree is cloned for other ids.
fn layers(plan: &Plan, prepared: &dyn Prepared, host: &Capabilities, mounts: &Mounts) -> Result<(), Error> {
    let policy = &plan.policy;
    if plan.tier != Tier::Container {
        return Ok(());
    }
    let refused = |path: &Path| {
        let first = mounts.below(path).into_iter().next()?;
        let why = format!("file systems are mounted below it, as `{}`", path.join(first).display());
        Some(Error::from(StartError::Layer { path: path.to_owned(), why }))
    };
    let shown = if host.layers_reads(&plan.policy) { &policy.fs.read[..] } else { &[] };
    let folders = shown.iter().filter_map(|grant| grant.from.canonicalize().ok()).filter(|path| path.is_dir());
    let workspace = match policy.workspace.mode {
        WorkspaceMode::Overlay => prepared.workspace(),
        WorkspaceMode::Ro if host.layers_reads(&plan.policy) => prepared.workspace(),
        WorkspaceMode::Ro | WorkspaceMode::None | WorkspaceMode::Rw | WorkspaceMode::Copy => None,
    };
    let workspace = workspace.filter(|path| !prepared.maps(path)).map(Path::to_owned);
    folders.chain(workspace).find_map(|path| refused(&path)).map_or(Ok(()), Err)
}
