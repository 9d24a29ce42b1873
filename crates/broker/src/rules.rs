//! Conditions of rules, in CEL.

use std::ops::Range;

use serde_json::Value as Json;

/// What a condition may look at.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// `args`: the arguments, validated and as the tool will get them.
    pub args: &'a Json,
    /// `session`.
    pub session: &'a str,
    /// `agent`.
    pub agent: &'a str,
    /// `counters`.
    pub counters: Counters,
    /// `now`: milliseconds since the epoch, a timestamp inside.
    pub now: u64,
}

/// How many calls there were before this one, those that are still running included. Calls that were denied do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// `counters.tool`: of this tool in this session.
    pub tool: u64,
    /// `counters.session`: of all tools in this session.
    pub session: u64,
    /// `counters.total`: of everybody since the gateway was started.
    pub total: u64,
}

/// Why an expression is no condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Which bytes of the expression.
    pub range: Range<usize>,
    /// What is wrong.
    pub what: String,
    /// Why.
    pub why: String,
    /// What to write instead.
    pub fix: String,
}

/// Why a condition could not be evaluated: the call is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What happened, `args.amount` does not exist.
    pub what: String,
}
