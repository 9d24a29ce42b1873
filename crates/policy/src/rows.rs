//! One row per clause.

use crate::clause::ClauseId;

/// One row per clause that has a flag of its own.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Clause.
    pub clause: ClauseId,
    /// Flag.
    pub flag: Option<&'static str>,
}

/// Every row.
pub const ROWS: &[Row] = &[
    Row { clause: ClauseId::Tier, flag: Some("--tier") },
    Row { clause: ClauseId::LimitsMemory, flag: Some("--memory") },
    Row { clause: ClauseId::LimitsCpus, flag: Some("--cpus") },
    Row { clause: ClauseId::LimitsPids, flag: Some("--pids") },
    Row { clause: ClauseId::LimitsWall, flag: Some("--timeout") },
    Row { clause: ClauseId::LimitsCpuTime, flag: Some("--cpu-time") },
    Row { clause: ClauseId::LimitsDisk, flag: Some("--disk") },
    Row { clause: ClauseId::LimitsOutput, flag: Some("--output-limit") },
    Row { clause: ClauseId::NetMode, flag: Some("--net") },
];

/// The row of a flag that replaces one clause.
#[must_use]
pub fn row_of_flag(flag: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.flag == Some(flag))
}
