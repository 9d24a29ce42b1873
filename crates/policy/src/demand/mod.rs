//! What a policy asks for, clause by clause. Only what demands something is there: a limit that is not set does not
//! appear, so a backend never has to decide whether `None` means "no limit" or "not said".

mod json;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::clause::ClauseId;
use crate::json::canonical;
use crate::units::{Bytes, BytesPerSecond};
use crate::value::{Grant, NetMode, Policy, Target, Threshold, Workspace, WorkspaceMode};

/// Says a value of a policy in one line.
type Line = fn(&Policy) -> Option<String>;

impl Policy {
    /// Whether a tree of the host is shown writable without a layer of ours between.
    #[must_use]
    pub fn writes_to_host(&self) -> bool {
        self.workspace.mode == WorkspaceMode::Rw || !self.fs.write.is_empty() || self.fs.root.is_built()
    }

    /// Whether programs inside are to trust more than their root does: the authority by which requests are read, or what `net.ca` has.
    #[must_use]
    pub fn adds_trust(&self) -> bool {
        let opens = self.net.opened().any(|rule| matches!(rule.to, Target::Host(_)));
        self.net.mode == NetMode::Allow && (opens || !self.secrets.is_empty() || !self.net.ca.is_empty())
    }

    /// Where commands run, as they see it: the workspace, else the folder for temporary files.
    #[must_use]
    pub fn commands_at(&self) -> PathBuf {
        self.workspace_at().cloned().unwrap_or_else(|| PathBuf::from("/tmp"))
    }

    /// Where the program sees the workspace; nowhere without one.
    #[must_use]
    pub fn workspace_at(&self) -> Option<&PathBuf> {
        self.workspace.place()
    }

    /// Every demand, in `ClauseId` order.
    pub fn demands(&self) -> impl Iterator<Item = (ClauseId, Value)> {
        ClauseId::ALL.iter().filter_map(|&id| Some((id, self.demand(id)?)))
    }

    /// What a clause demands, for people: units as in documents.
    #[must_use]
    pub fn demand_text(&self, id: ClauseId) -> Option<String> {
        let value = self.demand(id)?;
        Some(match &value {
            Value::String(text) => text.clone(),
            Value::Number(number) => self.in_units(id, number.as_u64()).unwrap_or_else(|| canonical(&value)),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                self.in_words(id).unwrap_or_else(|| canonical(&value))
            }
        })
    }

    /// An amount with its unit.
    fn in_units(&self, id: ClauseId, amount: Option<u64>) -> Option<String> {
        use ClauseId as Of;
        let limits = &self.limits;
        let times =
            [(Of::LimitsWall, limits.wall), (Of::LimitsCpuTime, limits.cpu_time), (Of::LimitsIdle, limits.idle)];
        if let Some((_, time)) = times.into_iter().find(|(of, _)| *of == id) {
            return time.map(|time| time.to_string());
        }
        if matches!(id, Of::LimitsIoRead | Of::LimitsIoWrite | Of::NetBandwidth) {
            return amount.map(|rate| BytesPerSecond(rate).to_string());
        }
        let is_size = matches!(id, Of::FsTmp | Of::FsShm | Of::FsRun | Of::NetBytes)
            || matches!(id, Of::LimitsMemory | Of::LimitsFileSize | Of::LimitsOutput | Of::LimitsDisk);
        amount.filter(|_| is_size).map(|size| Bytes(size).to_string())
    }

    /// A list or a group of values in one line.
    fn in_words(&self, id: ClauseId) -> Option<String> {
        let lines: [(ClauseId, Line); 8] = [
            (ClauseId::FsRead, |of| Some(grants_text(&of.fs.read))),
            (ClauseId::FsWrite, |of| Some(grants_text(&of.fs.write))),
            (ClauseId::FsExec, |of| of.fs.exec.as_deref().map(paths_text)),
            (ClauseId::Workspace, |of| Some(workspace_text(&of.workspace))),
            (ClauseId::LimitsWarn, |of| of.limits.warn.as_ref().map(threshold_text)),
            (ClauseId::LimitsKill, |of| of.limits.kill.as_ref().map(threshold_text)),
            (ClauseId::NetPresets, |of| Some(of.net.presets.keys().map(String::as_str).collect::<Vec<_>>().join(", "))),
            (ClauseId::NetCa, |of| Some(paths_text(&of.net.ca))),
        ];
        lines.into_iter().find(|(of, _)| *of == id).and_then(|(_, line)| line(self))
    }
}

impl Workspace {
    /// Where the program sees it; nowhere in mode `none`.
    #[must_use]
    pub fn place(&self) -> Option<&PathBuf> {
        let path = self.path.as_ref().filter(|_| self.mode != WorkspaceMode::None)?;
        Some(self.at.as_ref().unwrap_or(path))
    }
}

fn paths_text(list: &[PathBuf]) -> String {
    list.iter().map(|path| Path::to_string_lossy(path)).collect::<Vec<_>>().join(", ")
}

fn grants_text(list: &[Grant]) -> String {
    let one = |grant: &Grant| {
        let from = grant.from.to_string_lossy();
        if grant.from == grant.to { from.into_owned() } else { format!("{from} at {}", grant.to.to_string_lossy()) }
    };
    list.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn workspace_text(workspace: &Workspace) -> String {
    let path = workspace.path.as_deref().map(|path| path.to_string_lossy()).unwrap_or_default();
    match &workspace.at {
        Some(at) => format!("{path} at {} ({})", at.to_string_lossy(), workspace.mode),
        None => format!("{path} ({})", workspace.mode),
    }
}

fn threshold_text(threshold: &Threshold) -> String {
    let percent = threshold.cpu_percent.map(|n| format!("cpu above {n}%"));
    let memory = threshold.memory.map(|n| format!("memory above {n}"));
    let parts: Vec<String> = percent.into_iter().chain(memory).collect();
    format!("{} for {}", parts.join(" or "), threshold.lasting)
}
