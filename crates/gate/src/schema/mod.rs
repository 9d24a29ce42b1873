//! JSON Schema of arguments: 2020-12, closed, linear, without anything remote.
//!
//! *Promises*: what the schema does not name is refused, unless it says otherwise itself; patterns run on a linear engine;
//! no reference leaves the schema; no schema and no value make a check long. *Does not promise*: that a schema of an
//! upstream says what its tool does. A schema of another draft is read as 2020-12, the old spellings translated.

mod cost;
mod messages;
mod older;
mod strict;
mod survey;
mod ways;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value as Json;

pub use messages::Misfit;
pub(crate) use ways::{Step, beginnings};

/// The draft that schemas are shown in.
pub(crate) const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Largest compiled pattern.
const MAX_PATTERN: usize = 1 << 18;

/// Why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaError {
    /// Stable id.
    pub id: &'static str,
    /// JSON Pointer to the part of the schema.
    pub pointer: String,
    /// What is wrong.
    pub what: String,
    /// Why.
    pub why: String,
    /// What to write instead.
    pub fix: String,
}

/// Who wrote a schema: a policy is held to keywords and formats that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Author {
    /// The policy.
    Policy,
    /// The tool.
    Tool,
}

/// A schema that was checked and closed; its validator is built when it is first needed.
#[derive(Debug)]
pub struct Schema {
    closed: Json,
    /// As written, where closing could turn "fits two of them" into "fits one".
    open: Option<Json>,
    author: Author,
    /// Whether the work of a check has to be counted beforehand.
    counted: bool,
    loose: Vec<String>,
    built: OnceLock<Result<Built, String>>,
}

#[derive(Debug)]
struct Built {
    closed: Validator,
    open: Option<Validator>,
}

impl Schema {
    /// Checks and closes a schema.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn new(schema: &Json, author: Author) -> Result<Self, Vec<SchemaError>> {
        let schema = older::translated(schema);
        let survey = survey::survey(&schema, author);
        if !survey.flaws.is_empty() {
            return Err(survey.flaws);
        }
        let flaws = messages::meta(&schema);
        if !flaws.is_empty() {
            return Err(flaws);
        }
        let closed = strict::close(&schema);
        let counted = survey.refs || closed.unevaluated;
        let open = closed.exclusive.then_some(schema);
        let (closed, loose) = (closed.schema, survey.loose);
        Ok(Self { closed, open, author, counted, loose, built: OnceLock::new() })
    }

    /// As it is judged: closed.
    #[must_use]
    pub const fn closed(&self) -> &Json {
        &self.closed
    }

    /// JSON Pointers to patterns without anchors: they fit any text that has the match somewhere.
    #[must_use]
    pub fn loose(&self) -> &[String] {
        &self.loose
    }

    /// Builds the validator now.
    ///
    /// # Errors
    /// Why it cannot be built.
    pub fn build(&self) -> Result<(), SchemaError> {
        self.built().map(|_| ()).map_err(|why| SchemaError {
            id: "tools.schema/unusable",
            pointer: String::new(),
            what: "the schema cannot be compiled".to_owned(),
            why,
            fix: "write it as JSON Schema 2020-12; patterns have no look-around and no back references".to_owned(),
        })
    }

    fn built(&self) -> Result<&Built, String> {
        let make = || {
            let closed = compile(&self.closed, self.author)?;
            let open = self.open.as_ref().map(|open| compile(open, self.author)).transpose()?;
            Ok(Built { closed, open })
        };
        self.built.get_or_init(make).as_ref().map_err(Clone::clone)
    }

    /// Checks arguments. Nothing is coerced and nothing is filled in.
    ///
    /// # Errors
    /// Each part that does not fit; at least one.
    pub fn check(&self, args: &Json) -> Result<(), Vec<Misfit>> {
        let built = self.built().map_err(|why| vec![messages::unusable(&why)])?;
        if self.counted && !cost::is_bounded(&self.closed, args) {
            return Err(vec![messages::too_long()]);
        }
        let fits = built.closed.is_valid(args) && built.open.as_ref().is_none_or(|open| open.is_valid(args));
        if fits {
            return Ok(());
        }
        let closed = built.closed.iter_errors(args);
        let open = built.open.iter().flat_map(|open| open.iter_errors(args));
        let misfits: Vec<Misfit> =
            closed.chain(open).take(20).map(|error| messages::misfit(&error, &self.closed)).collect();
        // A check that failed and tells nothing is a failed check.
        Err(if misfits.is_empty() { vec![messages::unusable("the validator says no more")] } else { misfits })
    }
}

fn compile(schema: &Json, author: Author) -> Result<Validator, String> {
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN).dfa_size_limit(MAX_PATTERN * 4))
        .should_validate_formats(true)
        .should_ignore_unknown_formats(author == Author::Tool)
        .offline()
        .build(schema)
        .map_err(|error| messages::one_line(&error.to_string()))
}

/// Schemas by what they say: a thousand tools with one schema hold it once.
#[derive(Debug, Default)]
pub struct Pool {
    known: Mutex<HashMap<(Author, String), Arc<Schema>>>,
}

impl Pool {
    /// The schema, made or known.
    ///
    /// # Errors
    /// As [`Schema::new`].
    pub fn get(&self, schema: &Json, author: Author) -> Result<Arc<Schema>, Vec<SchemaError>> {
        let key = (author, policy::json::canonical(schema));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(schema) = known.get(&key) {
            return Ok(Arc::clone(schema));
        }
        let made = Arc::new(Schema::new(schema, author)?);
        known.insert(key, Arc::clone(&made));
        Ok(made)
    }
}

#[cfg(test)]
mod tests;
