//! Schemas of the tools themselves, as they were last seen.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value as Json;

use crate::schema::{Author, Flaw, Schema};

/// More tools than this are held by no gateway; then all are forgotten and read again.
const MAX: usize = 20_000;

type Made = Result<Arc<Schema>, Arc<Vec<Flaw>>>;

/// By tool: the schema as written, and what became of it.
#[derive(Debug, Default)]
pub(super) struct Known {
    tools: RwLock<HashMap<String, (Json, Made)>>,
}

impl Known {
    /// The schema of a tool, checked and closed once for each of its versions.
    pub(super) fn get(&self, tool: &str, schema: &Json) -> Made {
        let known = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((written, made)) = known.get(tool)
            && written == schema
        {
            return made.clone();
        }
        drop(known);
        let made = Schema::new(schema, Author::Tool).map(Arc::new).map_err(Arc::new);
        let mut known = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX {
            known.clear();
        }
        known.insert(tool.to_owned(), (schema.clone(), made.clone()));
        made
    }
}
