//! Schemas of the tools themselves, as they were last seen.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value as Json;

use crate::schema::{Author, Schema, SchemaError};

/// More tools than this are held by no gateway; then all are forgotten and read again.
const MAX: usize = 20_000;

type CompiledSchema = Result<Arc<Schema>, Arc<Vec<SchemaError>>>;

/// By tool: the schema as written, and what became of it.
#[derive(Debug, Default)]
pub(super) struct SchemaCache {
    tools: RwLock<HashMap<String, (Json, CompiledSchema)>>,
}

impl SchemaCache {
    /// The schema of a tool, checked and closed once for each of its versions.
    pub(super) fn get(&self, tool: &str, schema: &Json) -> CompiledSchema {
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
