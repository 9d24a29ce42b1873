//! `kind = "sql"`: dialect, tables, columns and functions by their names in the database.

use super::{Reader, fault};
use crate::diagnostic::quote;
use crate::document::Node;
use crate::guards::{Guard, SqlDialect, SqlGuard};
use crate::span::{Span, Spanned};

const DIALECTS: &[(&str, SqlDialect)] = &[
    ("postgresql", SqlDialect::PostgreSql),
    ("sqlite", SqlDialect::Sqlite),
    ("mysql", SqlDialect::MySql),
    ("generic", SqlDialect::Generic),
];

impl Reader<'_> {
    pub(super) fn sql_guard(&mut self, path: &str, table: &Node) -> Option<Guard> {
        let Some(dialect) = table.get("dialect") else {
            let why = "one text is another statement in another database";
            let fix = "add dialect = \"postgresql\" (or sqlite, mysql, generic)";
            self.incomplete(path, table, "no `dialect`", why, fix);
            return None;
        };
        let dialect = self.keyword(&format!("{path}.dialect"), dialect, DIALECTS)?;
        let (tables, columns, functions) = (Vec::new(), Vec::new(), Vec::new());
        let mut guard = SqlGuard { dialect, statements: 1, read_only: true, tables, columns, functions };
        self.put(table, "statements", &mut guard.statements, |r, _, n| {
            r.small(&format!("{path}.statements"), n, 1, 16)
        });
        self.put(table, "read_only", &mut guard.read_only, |r, _, n| r.truth(&format!("{path}.read_only"), n));
        let names = |r: &mut Self, key: &str, n: &Node, parts, what| {
            r.spotted(&format!("{path}.{key}"), n, |text| dotted(text, parts, what))
        };
        self.put(table, "tables", &mut guard.tables, |r, key, n| {
            names(r, key, n, &(1..=2), "`table` or `schema.table`")
        });
        self.put(table, "columns", &mut guard.columns, |r, key, n| {
            names(r, key, n, &(2..=3), "`table.column` or `table.*`")
        });
        self.put(table, "functions", &mut guard.functions, |r, key, n| names(r, key, n, &(1..=1), "`function`"));
        self.orphans(path, &guard);
        Some(Guard::Sql(guard))
    }

    /// Columns of tables that are not listed would never be of use.
    fn orphans(&mut self, path: &str, guard: &SqlGuard) {
        for Spanned { value, at: Span(place) } in &guard.columns {
            let Some((table, _)) = value.rsplit_once('.') else { continue };
            if guard.tables.iter().all(|known| known.value != table) {
                let what = format!("`{path}.columns` has {}, and `tables` has no {}", quote(value), quote(table));
                let why = "a column can be named only where its table can";
                self.note(path, *place, fault("value/table", what, why, format!("add {table:?} to tables")));
            }
        }
    }
}

/// A name as the database keeps it, without quotes: its parts are told apart by dots.
fn dotted(
    text: &str,
    parts: &std::ops::RangeInclusive<usize>,
    what: &str,
) -> Result<(), (&'static str, String, String)> {
    // Only the last part of a column may be a star, alone: elsewhere it would be a name that nothing has.
    let plain = if what.contains(".*`") { text.strip_suffix(".*").unwrap_or(text) } else { text };
    if plain.contains('*') {
        let why = "a star is no name here, and would let nothing through".to_owned();
        return Err(("value/sql-name", why, "write each of them by its name".to_owned()));
    }
    let odd = |c: char| c.is_control() || "\"'`[];\\".contains(c);
    let bad = text.split('.').any(|part| part.is_empty() || part.trim() != part || part.len() > 128);
    if bad || text.chars().any(odd) || !parts.contains(&text.split('.').count()) {
        let why = format!("it is {what}, as the database keeps the name, without quotes");
        let fix = if what.contains("column") { "write it as `orders.id`" } else { "write it as `orders`" };
        return Err(("value/sql-name", why, fix.to_owned()));
    }
    Ok(())
}
