//! The corpus: statements as data, and the guards that judge them, compiled from a policy as users write one.

use std::collections::BTreeMap;
use std::path::Path;

use gate::guard::Compiled;
use policy::{Caller, Format, Layers};
use serde::Deserialize;
use serde_json::Value as Json;

pub(crate) const BENIGN: &str = include_str!("benign.toml");
pub(crate) const HOSTILE: &str = include_str!("hostile.toml");

/// What the tables of the corpus are; the same in every database, but for types.
pub(crate) const TABLES: &[(&str, &[&str])] = &[
    ("customers", &["id", "name"]),
    ("orders", &["id", "customer_id", "total", "status", "note", "data", "placed"]),
    ("categories", &["id", "parent_id"]),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Statement {
    pub(crate) sql: String,
    #[serde(default)]
    only: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) columns: bool,
    /// Why the guard without columns refuses it, by database.
    #[serde(default)]
    plain: BTreeMap<String, String>,
    /// Why it is refused although it is harmless, by database.
    #[serde(default)]
    refused: BTreeMap<String, String>,
    #[serde(default = "yes")]
    pub(crate) rows: bool,
}

const fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    statement: Vec<Statement>,
}

pub(crate) fn read(text: &str) -> Vec<Statement> {
    toml::from_str::<File>(text).unwrap().statement
}

impl Statement {
    pub(crate) fn is_for(&self, database: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|name| name == database))
    }

    /// Why it is refused all the same by the guard with or without columns.
    pub(crate) fn false_refusal(&self, database: &str, columns: bool) -> Option<&str> {
        let plain = self.plain.get(database).filter(|_| !columns);
        self.refused.get(database).or(plain).map(String::as_str)
    }
}

/// The guard of a database, from a policy document.
pub(crate) fn guard(database: &str, columns: bool) -> Compiled {
    let tables: Vec<String> = TABLES.iter().map(|(table, _)| format!("{table:?}")).collect();
    let listed =
        TABLES.iter().flat_map(|(table, columns)| columns.iter().map(move |column| format!("\"{table}.{column}\"")));
    let listed =
        if columns { format!(", columns = [{}]", listed.collect::<Vec<_>>().join(", ")) } else { String::new() };
    compile(&format!("{{ kind = \"sql\", dialect = {database:?}, tables = [{}]{listed} }}", tables.join(", ")))
}

/// A guard as it is written in a policy.
pub(crate) fn compile(guard: &str) -> Compiled {
    let text = format!(
        "version = 1\n[[tools.tool]]\nname = \"t\"\ndecision = \"allow\"\neffect = \"read\"\nguards.q = {guard}\n"
    );
    let mut layers = Layers::new(Caller { dir: "/".into(), home: None, profiles: Vec::new() });
    let no_file = |_: &Path| Err::<String, String>("no such file".to_owned());
    layers.document("policy.toml", &text, Format::Toml, Path::new("/"), &no_file);
    let loaded = layers.finish().unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let tools = loaded.policy.tools.as_ref().unwrap();
    let (_, guard) = tools.entries.first().unwrap().guards.first().unwrap();
    Compiled::new(&guard.value, &loaded.documents).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// The printed statement, or the reason in one line.
pub(crate) fn judge(guard: &Compiled, sql: &str) -> Result<String, String> {
    match guard.pass(&Json::String(sql.to_owned())) {
        Ok(printed) => Ok(printed.as_str().unwrap().to_owned()),
        Err(blocked) => Err(format!("{}: {}: {}", blocked.id, blocked.what, blocked.why)),
    }
}

/// The statements that pass, as text and as printed, for a database; every decision must be the expected one.
pub(crate) fn allowed(database: &str, columns: bool) -> Vec<(Statement, String)> {
    let guard = guard(database, columns);
    let (mut passed, mut wrong) = (Vec::new(), Vec::new());
    for statement in read(BENIGN).into_iter().filter(|s| s.is_for(database) && (s.columns || !columns)) {
        match (judge(&guard, &statement.sql), statement.false_refusal(database, columns)) {
            (Ok(printed), None) => {
                // The gate judges what guards made of a value once more: it must stay as it is.
                if judge(&guard, &printed).as_ref() != Ok(&printed) {
                    let again = judge(&guard, &printed);
                    wrong.push(format!("does not come back: {}\n    {printed}\n    {again:?}", statement.sql));
                }
                passed.push((statement, printed));
            }
            (Err(_), Some(_)) => {}
            (Ok(printed), Some(why)) => {
                wrong.push(format!("passes now, was refused ({why}): {} -> {printed}", statement.sql))
            }
            (Err(why), None) => wrong.push(format!("refused: {}\n    {why}", statement.sql)),
        }
    }
    assert!(
        wrong.is_empty(),
        "{database}, columns {columns}: {} of the benign half:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    passed
}
