//! What a statement may name: the shipped lists of a dialect, and the tables, columns and functions of the guard.

use std::collections::{BTreeMap, BTreeSet};

use policy::diagnostic::{did_you_mean, quote};
use policy::guards::{SqlDialect, SqlGuard};
use serde::Deserialize;
use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};

use super::Refusal;
use crate::guard::Flaws;

/// Names longer than this are cut by PostgreSQL, so that two of them are one.
const MAX_NAME: usize = 63;

/// One file of `resources/sql`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lists {
    functions: BTreeSet<String>,
    pub(super) grammar: BTreeSet<String>,
    pub(super) bare: BTreeSet<String>,
    pub(super) operators: BTreeSet<String>,
    pub(super) types: BTreeSet<String>,
    volatile: BTreeSet<String>,
    effects: BTreeSet<String>,
    tables: BTreeMap<String, Vec<String>>,
}

const POSTGRESQL: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../resources/sql/postgresql.toml"));
const SQLITE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../resources/sql/sqlite.toml"));
const MYSQL: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../resources/sql/mysql.toml"));
const GENERIC: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../resources/sql/generic.toml"));

/// Columns of a table that may be named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    /// The guard lists no columns at all.
    All,
    /// `table.*` among listed ones.
    Any,
    /// These.
    Some(BTreeSet<String>),
}

/// A table that may be named.
#[derive(Clone, Debug)]
pub(super) struct Table {
    schema: Option<String>,
    name: String,
    pub(super) columns: Columns,
}

/// Everything that may be named.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) dialect: SqlDialect,
    pub(super) read_only: bool,
    pub(super) lists: Lists,
    tables: Vec<Table>,
    functions: BTreeSet<String>,
    /// Whether the guard lists columns.
    pub(super) columns_listed: bool,
}

impl Rules {
    pub(super) fn new(guard: &SqlGuard, flaws: &mut Flaws<'_>) -> Option<Self> {
        let text = match guard.dialect {
            SqlDialect::PostgreSql => POSTGRESQL,
            SqlDialect::Sqlite => SQLITE,
            SqlDialect::MySql => MYSQL,
            SqlDialect::Generic => GENERIC,
        };
        // The file is part of the program, and a test reads each of them.
        let lists: Lists = toml::from_str(text).ok()?;
        let mut functions = BTreeSet::new();
        for function in &guard.functions {
            let name = function.value.to_lowercase();
            if guard.read_only && lists.effects.contains(&name) {
                let what = format!("{} is listed in `functions`", quote(&function.value));
                let why = "it changes, waits for or runs something, and this guard only lets read";
                flaws.note(function.at, "guards/sql-effect", what, why, "remove it, or write read_only = false");
            }
            functions.insert(name);
        }
        let columns_listed = !guard.columns.is_empty();
        let fold = |name: &str| match guard.dialect {
            SqlDialect::Sqlite => name.to_ascii_lowercase(),
            SqlDialect::PostgreSql | SqlDialect::MySql | SqlDialect::Generic => name.to_owned(),
        };
        let tables = guard.tables.iter().map(|table| {
            let (schema, name) = match table.value.split_once('.') {
                Some((schema, name)) => (Some(fold(schema)), fold(name)),
                None => (None, fold(&table.value)),
            };
            Table { schema, name, columns: columns_of(guard, &table.value) }
        });
        let tables = tables.collect();
        let (dialect, read_only) = (guard.dialect, guard.read_only);
        Some(Self { dialect, read_only, lists, tables, functions, columns_listed })
    }

    /// Quotes that make a name in this database, whatever its settings.
    pub(super) const fn quotes(&self, mark: char) -> bool {
        match self.dialect {
            SqlDialect::PostgreSql | SqlDialect::Generic => mark == '"',
            SqlDialect::Sqlite => matches!(mark, '"' | '`' | '['),
            SqlDialect::MySql => mark == '`',
        }
    }

    /// A name as the database compares tables and aliases.
    pub(super) fn key(&self, ident: &Ident) -> Result<String, Refusal> {
        if ident.value.is_empty() || ident.value.chars().any(char::is_control) {
            return Err(Refusal::name(&ident.value, "it is empty or has control characters"));
        }
        if ident.value.starts_with('@') {
            return Err(Refusal::name(&ident.value, "variables of the session are not data"));
        }
        if ident.quote_style.is_some_and(|mark| !self.quotes(mark)) {
            return Err(Refusal::name(
                &ident.value,
                "quotes of another database make text of it, or a name, by settings",
            ));
        }
        let lower = || ident.value.to_ascii_lowercase();
        match self.dialect {
            SqlDialect::PostgreSql if ident.value.len() > MAX_NAME => {
                Err(Refusal::name(&ident.value, "PostgreSQL cuts names after 63 bytes"))
            }
            SqlDialect::PostgreSql if ident.quote_style.is_none() => Ok(lower()),
            SqlDialect::Sqlite => Ok(lower()),
            SqlDialect::PostgreSql | SqlDialect::MySql | SqlDialect::Generic => Ok(ident.value.clone()),
        }
    }

    /// A name as the database compares columns.
    pub(super) fn column_key(&self, ident: &Ident) -> Result<String, Refusal> {
        let key = self.key(ident)?;
        Ok(if self.dialect == SqlDialect::MySql { key.to_ascii_lowercase() } else { key })
    }

    /// The listed table that a name means, and the name as it is to be printed.
    pub(super) fn table(&self, name: &ObjectName) -> Result<(Columns, ObjectName), Refusal> {
        let parts = parts(name)?;
        let keys = parts.iter().map(|part| self.key(part)).collect::<Result<Vec<_>, _>>()?;
        let found = match keys.as_slice() {
            [table] => {
                let plain = self.tables.iter().find(|known| known.schema.is_none() && known.name == *table);
                let mut qualified = self.tables.iter().filter(|known| known.schema.is_some() && known.name == *table);
                match (plain, qualified.next(), qualified.next()) {
                    (Some(known), _, _) => Some((known.columns.clone(), name.clone())),
                    // Which schema a bare name means depends on the connection; what was judged is written out.
                    (None, Some(known), None) => Some((known.columns.clone(), self.written(known))),
                    (None, None, _) | (None, Some(_), Some(_)) => None,
                }
            }
            [schema, table] => {
                let main = self.dialect == SqlDialect::Sqlite && schema == "main";
                let fits = |known: &&Table| {
                    let same = known.schema.as_ref().map_or(main, |listed| listed == schema);
                    same && known.name == *table
                };
                self.tables.iter().find(fits).map(|known| (known.columns.clone(), name.clone()))
            }
            _ => None,
        };
        found.ok_or_else(|| self.no_table(name))
    }

    fn written(&self, table: &Table) -> ObjectName {
        let parts = table.schema.iter().chain(std::iter::once(&table.name));
        ObjectName::from(parts.map(|part| self.quoted(part)).collect::<Vec<_>>())
    }

    /// A name in the quotes of the dialect, so that it means itself.
    pub(super) fn quoted(&self, name: &str) -> Ident {
        let mark = if self.dialect == SqlDialect::MySql { '`' } else { '"' };
        Ident::with_quote(mark, name)
    }

    fn no_table(&self, name: &ObjectName) -> Refusal {
        let known: Vec<String> = self.tables.iter().map(Table::shown).collect();
        let shown = name.to_string();
        let last = shown.rsplit('.').next().unwrap_or(&shown).to_owned();
        let listed = self.tables.iter().any(|known| known.schema.is_none() && known.name == last);
        let why = if shown.contains('.') && listed {
            "it is listed without a schema, and which schema that is only the connection knows"
        } else {
            "it is not among the tables that may be named; views, catalogues and table-valued functions are tables too"
        };
        let near = did_you_mean(&last, known.iter().map(String::as_str));
        let instead = match (near, known.as_slice()) {
            (_, []) => "a statement without tables".to_owned(),
            (Some(near), _) => format!("{}, if that is meant", quote(near)),
            (None, known) => {
                format!("one of {}", known.iter().take(12).map(|name| quote(name)).collect::<Vec<_>>().join(", "))
            }
        };
        Refusal {
            id: "tools.guard/sql-table",
            what: format!("the table {}", quote(&shown)),
            why: why.to_owned(),
            instead,
        }
    }

    /// Whether a function may be called: a bare built-in of the lists, or one that the guard names.
    pub(super) fn function(&self, name: &ObjectName) -> Result<String, Refusal> {
        let shown = name.to_string();
        let parts = parts(name)?;
        let refused = |why: &str| {
            let known = self.lists.functions.iter().chain(&self.functions).map(String::as_str);
            let instead = did_you_mean(&shown, known).map_or_else(
                || "a built-in function that only looks at its arguments".to_owned(),
                |near| format!("{}, if that is meant", quote(near)),
            );
            let what = format!("the function {}", quote(&shown));
            Refusal { id: "tools.guard/sql-function", what, why: why.to_owned(), instead }
        };
        let last = match parts.as_slice() {
            [only] => only,
            [schema, last] if self.dialect == SqlDialect::PostgreSql && self.key(schema)? == "pg_catalog" => last,
            _ => return Err(refused("functions of a schema are somebody's own: only built-ins may be called")),
        };
        let key = match self.dialect {
            SqlDialect::PostgreSql => self.key(last)?,
            SqlDialect::Sqlite | SqlDialect::MySql | SqlDialect::Generic => last.value.to_ascii_lowercase(),
        };
        if self.lists.functions.contains(&key) || self.functions.contains(&key) {
            return Ok(key);
        }
        if parts.len() == 1 && self.lists.grammar.contains(&key) {
            return Ok(key);
        }
        Err(refused(if self.lists.effects.contains(&key) {
            "it changes, waits for or runs something, even where only reading is allowed"
        } else {
            "it is not on the list of functions that only look at their arguments"
        }))
    }

    /// Whether a function comes with the database, so that it has a place in its catalogue.
    pub(super) fn is_built_in(&self, key: &str) -> bool {
        self.lists.functions.contains(key) || self.lists.tables.contains_key(key)
    }

    /// Whether a call gives the same value each time that it is written.
    pub(super) fn is_stable(&self, name: &ObjectName) -> bool {
        let key = parts(name).ok().and_then(|mut parts| parts.pop()).map(|last| last.value.to_ascii_lowercase());
        let known = |key: &String| {
            self.lists.functions.contains(key) || self.lists.grammar.contains(key) || self.lists.bare.contains(key)
        };
        key.is_some_and(|key| known(&key) && !self.lists.volatile.contains(&key))
    }

    /// The columns of a function that stands for a table.
    pub(super) fn table_function(&self, name: &ObjectName) -> Result<Vec<String>, Refusal> {
        let parts = parts(name)?;
        let last = parts.last().map(|last| last.value.to_ascii_lowercase()).unwrap_or_default();
        let Some(columns) = self.lists.tables.get(&last) else { return self.function(name).map(|_| Vec::new()) };
        let in_catalogue = match parts.as_slice() {
            [schema, _] if self.dialect == SqlDialect::PostgreSql => self.key(schema)? == "pg_catalog",
            others => others.len() == 1,
        };
        if in_catalogue { Ok(columns.clone()) } else { self.function(name).map(|_| Vec::new()) }
    }
}

impl Table {
    fn shown(&self) -> String {
        self.schema.as_ref().map_or_else(|| self.name.clone(), |schema| format!("{schema}.{}", self.name))
    }
}

fn columns_of(guard: &SqlGuard, table: &str) -> Columns {
    if guard.columns.is_empty() {
        return Columns::All;
    }
    let lower = guard.dialect == SqlDialect::Sqlite || guard.dialect == SqlDialect::MySql;
    let listed = guard.columns.iter().filter_map(|column| column.value.rsplit_once('.'));
    let names = listed.filter(|(of, _)| *of == table).map(|(_, name)| name);
    let names: BTreeSet<String> =
        names.map(|name| if lower { name.to_ascii_lowercase() } else { name.to_owned() }).collect();
    if names.contains("*") { Columns::Any } else { Columns::Some(names) }
}

/// The identifiers of a dotted name; names that are computed are refused.
pub(super) fn parts(name: &ObjectName) -> Result<Vec<&Ident>, Refusal> {
    let plain = name.0.iter().map(|part| match part {
        ObjectNamePart::Identifier(ident) => Ok(ident),
        ObjectNamePart::Function(_) => Err(Refusal::name(&name.to_string(), "a name that is computed is no name")),
    });
    plain.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_lists_are_read_and_no_harmless_function_is_among_those_with_effects() {
        for text in [POSTGRESQL, SQLITE, MYSQL, GENERIC] {
            let lists: Lists = toml::from_str(text).unwrap();
            assert!(lists.functions.is_disjoint(&lists.effects));
            assert!(lists.grammar.is_disjoint(&lists.functions));
            assert!(lists.tables.keys().all(|name| !lists.effects.contains(name)));
        }
    }
}
