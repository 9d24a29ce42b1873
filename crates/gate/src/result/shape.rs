//! Structured content against the tool's own schema of it. Compiled once for each schema.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jsonschema::{PatternOptions, Validator};
use serde_json::Value as Json;

/// Schemas of which compiled forms are kept; beyond it all are made anew.
const MAX: usize = 1024;
/// Most bytes of a schema.
const MAX_SCHEMA: usize = 256 << 10;

/// Compiled schemas of results.
#[derive(Debug, Default)]
pub struct Shapes {
    known: Mutex<HashMap<String, Result<Arc<Validator>, String>>>,
}

impl Shapes {
    /// Why a value does not fit a schema; none if it does.
    pub(super) fn flaw(&self, schema: &Json, value: &Json) -> Option<String> {
        match self.compiled(schema) {
            Err(why) => Some(format!("the tool's schema of its results cannot be used: {why}")),
            Ok(validator) => {
                let error = validator.iter_errors(value).next()?;
                let place = error.instance_path().to_string();
                let place = if place.is_empty() { "it".to_owned() } else { format!("`{place}`") };
                Some(format!("{place} does not fit the tool's own schema of its results"))
            }
        }
    }

    fn compiled(&self, schema: &Json) -> Result<Arc<Validator>, String> {
        let text = schema.to_string();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&text) {
            return found.clone();
        }
        if known.len() >= MAX {
            known.clear();
        }
        let made = if text.len() > MAX_SCHEMA {
            Err("it is too large".to_owned())
        } else {
            let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
            options.build(schema).map(Arc::new).map_err(|error| error.to_string().chars().take(200).collect())
        };
        known.insert(text, made.clone());
        made
    }
}
