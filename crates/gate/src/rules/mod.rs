//! Conditions of rules, in CEL.
//!
//! The text is read by the `cel` library, and evaluated here, on the arguments as they are: nothing is converted, and each
//! step costs fuel, so that no expression and no argument makes a decision take long. (The library's own evaluation has
//! no limit of steps or memory, and its parser ends the process on a long chain of operators: lengths are looked at
//! before it sees the text.) Tests compare the two evaluations.
//!
//! Beyond CEL: a number of JSON is neither integer nor floating, so arithmetic between the two is done in floating point.
//! Not there: unsigned numbers, bytes, optional values, messages, and patterns that are not literal.
//!
//! What cannot be evaluated (a missing argument, a wrong type, no fuel) is a [`Failure`], and a failure is a denial.

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a value of any other type is an error, and an error denies: types to come are covered"
)]
mod call;
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a value of any other type is an error, and an error denies: types to come are covered"
)]
mod eval;
mod inference;
mod read;
mod scan;
#[cfg(test)]
mod tests;
mod time;
mod tree;
mod unsatisfiable;
mod value;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use policy::diagnostic::quote;
use serde_json::Value as Json;

use eval::{Eval, EvalError};
use tree::Node;
use value::V;

pub use scan::{MAX_BYTES, MAX_NESTED, MAX_OPERATORS};

/// What a condition may look at.
#[derive(Clone, Copy, Debug)]
pub struct EvalContext<'a> {
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
pub struct CelError {
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
    /// What happened, with the part of the expression where it did.
    pub what: String,
}

/// A condition that was read and found sound.
#[derive(Clone, Debug)]
pub struct Condition {
    text: String,
    root: Node,
    uses: Uses,
    hints: Vec<CelError>,
}

/// What a condition looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// `args`: it takes no part in the filtering of lists.
    pub args: bool,
    /// `counters`.
    pub counters: bool,
    /// `now`.
    pub now: bool,
}

/// Expressions that were parsed: a policy says the same of many tools, and parsing is most of what loading it takes.
#[derive(Debug, Default)]
pub struct Pool {
    parsed: HashMap<String, cel::Program>,
}

impl Pool {
    fn parsed(&mut self, text: &str) -> Result<&cel::Program, CelError> {
        match self.parsed.entry(text.to_owned()) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(read::parse(text)?)),
        }
    }
}

/// What fits any stack, in operators.
const SMALL: usize = 24;
/// Enough for everything below the caps, several times.
const STACK: usize = 64 << 20;

/// The parser needs some kilobytes of stack for each operator; a long expression gets a stack of its own.
fn read_on_a_stack(text: &str, schema: Option<&Json>, size: usize, pool: &mut Pool) -> Result<read::Read, CelError> {
    if size <= SMALL {
        return read::read(text, schema, pool.parsed(text)?);
    }
    crate::stack::run(STACK, || read::read(text, schema, &read::parse(text)?)).unwrap_or_else(|error| {
        Err(CelError {
            range: 0..text.len(),
            what: "the condition could not be read".to_owned(),
            why: error.to_string(),
            fix: "write a shorter one".to_owned(),
        })
    })
}

impl Condition {
    /// Reads and checks an expression. `schema` is that of the arguments, where it is known.
    ///
    /// # Errors
    /// The first [`CelError`]: no CEL, too long, an unknown name, types that cannot meet, not a yes or no, never true.
    pub fn compile(text: &str, schema: Option<&Json>) -> Result<Self, CelError> {
        Self::compile_in(&mut Pool::default(), text, schema)
    }

    /// As [`Condition::compile`], by the parsed expressions of a pool.
    ///
    /// # Errors
    /// As [`Condition::compile`].
    pub fn compile_in(pool: &mut Pool, text: &str, schema: Option<&Json>) -> Result<Self, CelError> {
        let read = read_on_a_stack(text, schema, scan::check(text)?, pool)?;
        unsatisfiable::check(&read.root, text, schema, read.uses)?;
        Ok(Self { text: text.to_owned(), root: read.root, uses: read.uses, hints: read.hints })
    }

    /// Whether it is true.
    ///
    /// # Errors
    /// [`Failure`]: it is neither true nor false.
    pub fn holds(&self, facts: &EvalContext<'_>) -> Result<bool, Failure> {
        match Eval::new(facts).run(&self.root) {
            Ok(V::Bool(truth)) => Ok(truth),
            Ok(other) => {
                Err(self.failure(&EvalError::soft(&self.root, format!("it is {}, not true or false", other.kind()))))
            }
            Err(stop) => Err(self.failure(&stop)),
        }
    }

    /// The expression.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What it looks at.
    #[must_use]
    pub const fn uses(&self) -> Uses {
        self.uses
    }

    /// What is allowed and yet most likely not meant: patterns without anchors.
    #[must_use]
    pub fn hints(&self) -> &[CelError] {
        &self.hints
    }

    fn failure(&self, stop: &EvalError) -> Failure {
        let part = self.text.get(stop.range.clone()).unwrap_or(&self.text);
        Failure { what: format!("{}: {}", quote(part), stop.why) }
    }
}
