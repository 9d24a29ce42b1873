//! One row per clause: from here come the reference, the JSON Schema, flags, and the seeds of tests.

mod files;
mod limits;
mod others;

use crate::clause::ClauseId;

/// The shape of a value in documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One of these words.
    Words(&'static [&'static str]),
    /// `256M`.
    Size,
    /// `50M/s`.
    Rate,
    /// `30s`.
    Time,
    /// A whole number in a range.
    Whole(u64, u64),
    /// A number of cores.
    Cores,
    /// `0-1,3`, or a list of numbers.
    Cpuset,
    /// true or false.
    Truth,
    /// true, false, or this word.
    TruthOr(&'static str),
    /// One text.
    Text,
    /// A list of texts.
    Texts,
    /// `host`, `empty`, `dir:PATH`, `image:REF`.
    Root,
    /// Paths, or `{ from, to }`.
    Grants,
    /// `{ path, at, mode }`.
    Workspace,
    /// `{ cpu_percent, memory, for }`.
    Threshold,
    /// Hosts, or `{ host | cidr, ports, protocol, methods, paths, address, tls }`.
    Rules,
    /// Hosts, or `{ host | cidr, ports }`.
    Denials,
    /// Lists of hosts by path.
    HostsOf,
    /// Names and texts.
    EnvSet,
    /// Declarations by name.
    Inputs,
    /// `{ from, hosts, ports, methods, paths, as, env }` by name.
    Secrets,
    /// Octal, as text.
    Umask,
    /// `{ default, tool }`, with `mcp` beside it.
    Tools,
    /// A table that is described elsewhere.
    Free,
}

/// What a clause is, promises, and looks like.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Clause.
    pub clause: ClauseId,
    /// Its flag, if it has one beside `--set`.
    pub flag: Option<&'static str>,
    /// Shape of its value.
    pub shape: Shape,
    /// Whether `none` lifts it.
    pub lift: bool,
    /// The value when nothing is said.
    pub default: &'static str,
    /// What it promises.
    pub promise: &'static str,
    /// What it does not promise; empty = nothing that a reader would expect.
    pub not_promised: &'static str,
    /// A document that says it, without `version`.
    pub valid: &'static str,
    /// A document whose value is refused.
    pub invalid: &'static str,
}

/// The row of a flag.
#[must_use]
pub fn row_of_flag(flag: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.flag == Some(flag))
}

/// Every row, in `ClauseId` order.
pub const ROWS: &[Row] = &joined([files::ROWS, limits::ROWS, others::ROWS]);

/// How many clauses there are.
const COUNT: usize = ClauseId::ALL.len();

/// The parts as one table; one that does not fit the clauses is an error of the build.
#[expect(clippy::indexing_slicing, reason = "it runs while building: what is out of bounds is no program")]
const fn joined(parts: [&[Row]; 3]) -> [Row; COUNT] {
    let mut all = [files::ROWS[0]; COUNT];
    let (mut part, mut at) = (0, 0);
    while part < parts.len() {
        let mut row = 0;
        while row < parts[part].len() {
            all[at] = parts[part][row];
            at += 1;
            row += 1;
        }
        part += 1;
    }
    assert!(at == COUNT, "a row for each clause");
    all
}
