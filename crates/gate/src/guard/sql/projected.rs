//! PostgreSQL without listed columns: `alias.name` calls a function of that name where the table has no such column, so it
//! cannot pass as it is. Here each table is replaced by a query of the columns that the statement names of it:
//! `customers AS c` becomes `(SELECT id, name FROM customers) AS c`. There the names stand alone, and a name alone is never a call;
//! outside of it `c.name` is a column that is certainly there. PostgreSQL plans both in the same way.
//!
//! *Does not promise*: an error for a column that a table of a sub-query does not have, where the query around has one of that name:
//! then it is that one, as it is for every bare name. Statements that write are therefore left as they are.
//!
//! Only where all columns of a statement are named with their table: what a bare name or a `*` means is not known.

use std::collections::{BTreeMap, BTreeSet};

use sqlparser::ast::{Expr, Ident, ObjectName, Query, SelectItem, SetExpr, Statement, TableAlias, TableFactor};
use sqlparser::dialect::PostgreSqlDialect;

use super::Refusal;
use super::rules::{Rules, parts};
use super::visitor::{Node, Visitor, through};

/// Rewrites a statement; false if it cannot be, and is as it was.
pub(super) fn columns(statement: &mut Statement, rules: &Rules) -> Result<bool, Refusal> {
    let Statement::Query(query) = &*statement else { return Ok(false) };
    // A query that names itself may not stand in a query of its own.
    if query.with.as_ref().is_some_and(|with| with.recursive) {
        return Ok(false);
    }
    let stars = statement.to_string().to_lowercase().replace("count(*)", "");
    let (columns, tables) = (BTreeMap::new(), BTreeMap::new());
    let mut named = NamedColumns { rules, outputs: outputs(query, rules), columns, tables, unclear: false };
    if stars.contains('*') {
        return Ok(false);
    }
    through(statement, &mut named)?;
    if named.unclear || named.columns.is_empty() {
        return Ok(false);
    }
    through(statement, &mut Replace { rules, columns: &named.columns })?;
    Ok(true)
}

/// The names that the outermost query gives to what it returns.
fn outputs(query: &Query, rules: &Rules) -> BTreeSet<String> {
    let SetExpr::Select(select) = query.body.as_ref() else { return BTreeSet::new() };
    let alias = |item: &SelectItem| {
        let SelectItem::ExprWithAlias { alias, .. } = item else { return None };
        rules.column_key(alias).ok()
    };
    select.projection.iter().filter_map(alias).collect()
}

/// Which columns are named of which table.
struct NamedColumns<'r> {
    rules: &'r Rules,
    outputs: BTreeSet<String>,
    columns: BTreeMap<String, BTreeMap<String, Ident>>,
    tables: BTreeMap<String, String>,
    unclear: bool,
}

impl Visitor for NamedColumns<'_> {
    fn before(&mut self, node: &Node<'_>) -> Result<(), Refusal> {
        match node {
            Node::Expr(Expr::Identifier(name)) => {
                self.unclear |= !self.outputs.contains(&self.rules.column_key(name)?);
            }
            Node::Expr(Expr::CompoundIdentifier(names)) => {
                if let [alias, column] = names.as_slice() {
                    let (table, key) = (self.rules.key(alias)?, self.rules.column_key(column)?);
                    self.columns.entry(table).or_default().insert(key, column.clone());
                } else {
                    self.unclear = true;
                }
            }
            Node::Factor(TableFactor::Table { name, alias, args: None, .. }) => {
                let key = key(name, alias.as_ref(), self.rules)?;
                let table = name.to_string();
                // One name for two tables in different places: whose columns are meant is not looked into.
                self.unclear |= self.tables.insert(key, table.clone()).is_some_and(|other| other != table);
            }
            Node::Statement | Node::Query | Node::Factor(_) | Node::Expr(_) | Node::Value(_) | Node::Ident(_) => {}
        }
        Ok(())
    }
}

fn key(name: &ObjectName, alias: Option<&TableAlias>, rules: &Rules) -> Result<String, Refusal> {
    match (alias, parts(name)?.last()) {
        (Some(alias), _) => rules.key(&alias.name),
        (None, Some(last)) => rules.key(last),
        (None, None) => Err(Refusal::name("", "it is empty")),
    }
}

struct Replace<'r> {
    rules: &'r Rules,
    columns: &'r BTreeMap<String, BTreeMap<String, Ident>>,
}

impl Visitor for Replace<'_> {
    fn after(&mut self, node: Node<'_>) -> Result<(), Refusal> {
        let Node::Factor(factor) = node else { return Ok(()) };
        let TableFactor::Table { name, alias, args: None, .. } = &*factor else { return Ok(()) };
        let renames = alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
        let known = self.columns.get(&key(name, alias.as_ref(), self.rules)?);
        let Some(known) = known.filter(|_| !renames && factor_is_plain(factor)) else { return Ok(()) };
        let shown = match (alias, parts(name)?.last()) {
            (Some(alias), _) => alias.name.to_string(),
            (None, Some(last)) => last.to_string(),
            (None, None) => return Ok(()),
        };
        let list: Vec<String> = known.values().map(ToString::to_string).collect();
        let text = format!("SELECT 1 FROM (SELECT {} FROM {name}) AS {shown}", list.join(", "));
        let mut parsed = super::parse(&text, &PostgreSqlDialect {}, super::MAX_DEPTH)?;
        if let Some(Statement::Query(query)) = parsed.pop()
            && let SetExpr::Select(mut select) = *query.body
            && let Some(made) = select.from.pop()
        {
            *factor = made.relation;
        }
        Ok(())
    }
}

/// Whether a table has nothing behind it that the replacement would lose: then printing it shows no more than its names.
fn factor_is_plain(factor: &TableFactor) -> bool {
    let TableFactor::Table { name, alias, .. } = factor else { return false };
    let names = match alias {
        Some(alias) if alias.explicit => format!("{name} AS {}", alias.name),
        Some(alias) => format!("{name} {}", alias.name),
        None => name.to_string(),
    };
    factor.to_string() == names
}
