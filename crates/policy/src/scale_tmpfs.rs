//! `--disk 40M` upon a preset: its `/tmp` and friends become smaller, so that the whole fits.
//!
//! Only what a preset gave shrinks, and only because somebody asked for less. What somebody wrote stays, and a
//! contradiction between two wishes is a mistake.

use crate::clause::ClauseId;
use crate::document::{Kind, Node, Source};
use crate::load::Origins;
use crate::units::Bytes;
use crate::value::{Policy, WorkspaceMode};

const PAGE: u64 = 4096;
const LEAST: u64 = 64 << 10;
const LEAST_OF_A_LAYER: u64 = 16 << 10;

/// What a layer or a copy of the workspace needs beside the other parts: with nothing left none can be made.
pub(crate) const fn least_of_a_layer(mode: WorkspaceMode) -> u64 {
    match mode {
        WorkspaceMode::Overlay | WorkspaceMode::Copy => LEAST_OF_A_LAYER,
        WorkspaceMode::None | WorkspaceMode::Ro | WorkspaceMode::Rw => 0,
    }
}

/// Whether a value was given by a document or a flag, and not by a preset.
pub(crate) fn wished(sources: &[Source], tree: &Node, path: &str) -> bool {
    let source = tree.at(path).and_then(|node| sources.get(usize::from(node.place.source)));
    source.is_some_and(|source| source.kind != Kind::Preset)
}

/// Shrinks the parts of the disk that come from presets; the clauses whose values changed.
pub(crate) fn shrink(policy: &mut Policy, sources: &[Source], tree: &Node) -> Vec<ClauseId> {
    let fs = &mut policy.fs;
    let Some(disk) = policy.limits.disk else { return Vec::new() };
    let fixed = fs.tmp.0.saturating_add(fs.shm.0).saturating_add(fs.run.0);
    let layer = least_of_a_layer(policy.workspace.mode);
    if fixed.saturating_add(layer) <= disk.0 || !wished(sources, tree, "limits.disk") {
        return Vec::new();
    }
    let parts = [(ClauseId::FsTmp, &mut fs.tmp), (ClauseId::FsShm, &mut fs.shm), (ClauseId::FsRun, &mut fs.run)];
    let (firm, soft): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(id, _)| wished(sources, tree, id.path()));
    let firm: u64 = firm.iter().fold(0, |sum, (_, size)| sum.saturating_add(size.0));
    let mut left = disk.0.saturating_sub(firm);
    if layer > 0 {
        // Half of it stays for the workspace.
        left /= 2;
    }
    // By size; where that gives one less than it works with, each gets so much first, and the rest is shared by size.
    let share = |size: u64, least: u64| {
        let firm = |size: u64| least.min(size);
        let kept: u64 = soft.iter().map(|(_, size)| firm(size.0)).sum();
        let whole: u64 = soft.iter().map(|(_, size)| size.0.saturating_sub(firm(size.0))).sum();
        let rest = u128::from(left.checked_sub(kept)?);
        let part = u128::from(size.saturating_sub(firm(size))) * rest / u128::from(whole.max(1));
        Some(firm(size).saturating_add(u64::try_from(part).ok()? / PAGE * PAGE))
    };
    let shares = |least: u64| soft.iter().map(|(_, size)| share(size.0, least)).collect::<Option<Vec<u64>>>();
    let fits = |shares: &[u64]| shares.iter().zip(&soft).all(|(share, (_, size))| *share >= LEAST.min(size.0));
    let Some(shares) = shares(0).filter(|all| fits(all)).or_else(|| shares(LEAST)) else { return Vec::new() };
    let shrunk = soft.into_iter().zip(shares).map(|((id, size), share)| {
        *size = Bytes(share.min(size.0));
        id
    });
    shrunk.collect()
}

/// Says in the origin that a value was made to fit.
pub(crate) fn tell(origins: &mut Origins, shrunk: &[ClauseId]) {
    let why = origins.of(ClauseId::LimitsDisk).to_owned();
    for id in shrunk {
        if let Some(origin) = origins.list.get_mut(*id as usize) {
            origin.push_str(&format!(", made to fit {why}"));
        }
    }
}
