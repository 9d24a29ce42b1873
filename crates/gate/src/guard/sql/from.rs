//! What stands in `FROM`: tables, queries, functions that stand for tables, joins.

use std::ops::Range;

use policy::guards::SqlDialect;
use sqlparser::ast::{
    Ident, Join, JoinConstraint, JoinOperator, ObjectName, TableAlias, TableFactor, TableFunctionArgs, TableWithJoins,
};

use super::rules::{Columns, parts};
use super::scope::{Kind, Source};
use super::{Refusal, Walk};

type CheckResult = Result<(), Refusal>;

impl Walk<'_> {
    /// Two rounds: a condition of an early join may name a table that comes later, which some databases look up before
    /// those of the query outside. So all tables are known before the first condition is judged.
    pub(super) fn tables(&mut self, items: &mut [TableWithJoins]) -> CheckResult {
        items.iter_mut().try_for_each(|item| self.table_with_joins(item))?;
        let mut at = 0;
        items.iter_mut().try_for_each(|item| self.conditions(item, &mut at))
    }

    fn table_with_joins(&mut self, item: &mut TableWithJoins) -> CheckResult {
        let TableWithJoins { relation, joins } = item;
        self.factor(relation)?;
        for Join { relation, global, join_operator: _ } in joins {
            if *global {
                return Err(Refusal::node("`GLOBAL JOIN`", "it is of another database"));
            }
            self.factor(relation)?;
        }
        Ok(())
    }

    /// The second round; `at` is the place of the next table among the sources.
    fn conditions(&mut self, item: &mut TableWithJoins, at: &mut usize) -> CheckResult {
        let TableWithJoins { relation, joins } = item;
        let first = *at;
        self.arguments(relation, at)?;
        for Join { relation, global: _, join_operator } in joins {
            let before = *at;
            self.arguments(relation, at)?;
            let constraint = match join_operator {
                JoinOperator::Join(constraint)
                | JoinOperator::Inner(constraint)
                | JoinOperator::Left(constraint)
                | JoinOperator::LeftOuter(constraint)
                | JoinOperator::Right(constraint)
                | JoinOperator::RightOuter(constraint)
                | JoinOperator::FullOuter(constraint)
                | JoinOperator::CrossJoin(constraint)
                | JoinOperator::StraightJoin(constraint) => constraint,
                _ => return Err(Refusal::node("a join of another database", "it is not judged")),
            };
            self.constraint(constraint, first..before, before..*at)?;
        }
        Ok(())
    }

    /// Arguments of functions that stand for tables.
    fn arguments(&mut self, factor: &mut TableFactor, at: &mut usize) -> CheckResult {
        if let TableFactor::NestedJoin { table_with_joins, alias: _ } = factor {
            return self.conditions(table_with_joins, at);
        }
        *at += 1;
        match factor {
            TableFactor::Table { args: Some(TableFunctionArgs { args, settings: _ }), .. }
            | TableFactor::Function { args, .. } => args.iter_mut().try_for_each(|arg| self.argument(arg)),
            TableFactor::UNNEST { array_exprs, .. } => {
                array_exprs.iter_mut().try_for_each(|array| self.expression(array))
            }
            _ => Ok(()),
        }
    }

    fn constraint(&mut self, constraint: &mut JoinConstraint, left: Range<usize>, right: Range<usize>) -> CheckResult {
        let postgres = self.rules.dialect == SqlDialect::PostgreSql;
        let own = "it calls whatever `=` the connection finds for the types of the columns";
        match constraint {
            JoinConstraint::On(condition) => self.expression(condition),
            JoinConstraint::None => Ok(()),
            JoinConstraint::Natural if self.rules.columns_listed => {
                Err(Refusal::node("`NATURAL JOIN`", "it compares columns that are not named"))
            }
            JoinConstraint::Natural if postgres => Err(Refusal::node("`NATURAL JOIN`", own)),
            JoinConstraint::Using(_) if postgres => {
                let mut refusal = Refusal::node("`USING (...)`", own);
                refusal.instead = "ON a.x = b.x".to_owned();
                Err(refusal)
            }
            JoinConstraint::Natural => Ok(()),
            JoinConstraint::Using(columns) => {
                columns.iter().try_for_each(|column| self.shared(column, left.clone(), right.clone()))
            }
        }
    }

    /// A column of `USING` must be one that may be named, on both sides.
    fn shared(&self, column: &ObjectName, left: Range<usize>, right: Range<usize>) -> CheckResult {
        let [name] = parts(column)?[..] else {
            return Err(Refusal::name(&column.to_string(), "in `USING` stand names alone"));
        };
        let key = self.rules.column_key(name)?;
        let Some(scope) = self.scopes.selects.last() else { return Ok(()) };
        let fits = |source: &Source| source.has(&key) || source.is_open();
        let (left, right) = (scope.sources.get(left), scope.sources.get(right));
        let both = left.is_some_and(|list| list.iter().any(fits)) && right.is_some_and(|list| list.iter().any(fits));
        if !self.rules.columns_listed || both {
            return Ok(());
        }
        Err(Refusal::column(&key, "it is not among the listed columns of both tables", "ON a.x = b.x"))
    }

    fn factor(&mut self, factor: &mut TableFactor) -> CheckResult {
        self.seen.factors += 1;
        match factor {
            TableFactor::Table {
                name,
                alias,
                args,
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
            } => {
                if sample.is_some() {
                    return Err(Refusal::node("`TABLESAMPLE`", "its method may be somebody's own"));
                }
                let foreign = !with_hints.is_empty()
                    || version.is_some()
                    || !partitions.is_empty()
                    || json_path.is_some()
                    || !index_hints.is_empty();
                if foreign || (*with_ordinality && args.is_none()) {
                    return Err(Refusal::node("a clause of another database behind a table", "it is not judged"));
                }
                match args {
                    Some(TableFunctionArgs { args: _, settings: None }) => self.call(name, alias.as_ref()),
                    Some(TableFunctionArgs { args: _, settings: Some(_) }) => {
                        Err(Refusal::node("`SETTINGS`", "it is of another database"))
                    }
                    None => self.named(name, alias.as_ref()),
                }
            }
            TableFactor::Derived { lateral, subquery, alias, sample } => {
                if sample.is_some() {
                    return Err(Refusal::node("`TABLESAMPLE`", "its method may be somebody's own"));
                }
                // Without LATERAL the tables beside it cannot be named in it.
                let beside = self.scopes.here().map(|scope| std::mem::take(&mut scope.sources)).unwrap_or_default();
                if *lateral && let Some(scope) = self.scopes.here() {
                    scope.sources.clone_from(&beside);
                }
                let outputs = self.query(subquery)?;
                if let Some(scope) = self.scopes.here() {
                    scope.sources = beside;
                }
                self.derived(alias.as_ref(), None, outputs)
            }
            TableFactor::Function { lateral: _, name, args: _, with_ordinality: _, alias } => {
                self.call(name, alias.as_ref())
            }
            TableFactor::UNNEST { alias, array_exprs: _, with_offset, with_offset_alias, with_ordinality: _ } => {
                if *with_offset || with_offset_alias.is_some() || self.rules.dialect != SqlDialect::PostgreSql {
                    return Err(Refusal::node("`UNNEST`", "it is of another database"));
                }
                self.function_source(alias.as_ref(), &Ident::new("unnest"), Vec::new())
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => self.table_with_joins(table_with_joins),
            _ => Err(Refusal::node("something in `FROM` that is no table", "it is not judged")),
        }
    }

    /// A named query, or a table that may be named.
    fn named(&mut self, name: &mut ObjectName, alias: Option<&TableAlias>) -> CheckResult {
        let last = parts(name)?.last().map(|last| (*last).clone());
        let Some(last) = last else { return Err(Refusal::name("", "it is empty")) };
        if name.0.len() == 1 {
            let key = self.rules.key(&last)?;
            if let Some(outputs) = self.scopes.with(&key, self.rules)? {
                return self.derived(alias, Some(&last), outputs);
            }
        }
        let (columns, printed) = self.rules.table(name)?;
        *name = printed;
        let renamed = alias.is_some_and(|alias| !alias.columns.is_empty());
        if renamed && columns != Columns::All {
            let shown = format!("{last} (...)");
            return Err(Refusal::column(&shown, "a list of aliases renames columns that are not named", "AS for each"));
        }
        let kind = if renamed { Kind::Derived(None) } else { Kind::Base(columns) };
        self.add(alias, Some(&last), kind)
    }

    fn derived(
        &mut self,
        alias: Option<&TableAlias>,
        name: Option<&Ident>,
        outputs: Option<Vec<String>>,
    ) -> CheckResult {
        let renamed = alias.map(|alias| &alias.columns).filter(|columns| !columns.is_empty());
        let outputs = match renamed {
            Some(columns) => {
                let names = columns.iter().map(|column| self.rules.column_key(&column.name));
                let names = names.collect::<Result<Vec<_>, _>>()?;
                // Names that are given cover the first columns; the others keep theirs.
                outputs
                    .map(|outputs| names.iter().cloned().chain(outputs.into_iter().skip(names.len())).collect())
                    .or(Some(names))
            }
            None => outputs,
        };
        self.add(alias, name, Kind::Derived(outputs))
    }

    /// A function that stands for a table.
    fn call(&mut self, name: &ObjectName, alias: Option<&TableAlias>) -> CheckResult {
        let outputs = self.rules.table_function(name)?;
        match parts(name)?.last() {
            Some(last) => self.function_source(alias, &(*last).clone(), outputs),
            None => Err(Refusal::name("", "it is empty")),
        }
    }

    fn function_source(&mut self, alias: Option<&TableAlias>, name: &Ident, mut outputs: Vec<String>) -> CheckResult {
        outputs.push("ordinality".to_owned());
        // A single value is called as the function is, or as its alias.
        outputs.push(name.value.to_ascii_lowercase());
        if let Some(alias) = alias {
            outputs.push(self.rules.column_key(&alias.name)?);
            for column in &alias.columns {
                if let Some(data_type) = &column.data_type {
                    self.cast_type(data_type)?;
                }
                outputs.push(self.rules.column_key(&column.name)?);
            }
        }
        self.add(alias, Some(name), Kind::Derived(Some(outputs)))
    }

    fn add(&mut self, alias: Option<&TableAlias>, name: Option<&Ident>, kind: Kind) -> CheckResult {
        let alias = match (alias, name) {
            (Some(TableAlias { explicit: _, name, columns: _, at: None }), _) | (None, Some(name)) => name.clone(),
            (Some(TableAlias { at: Some(_), .. }), _) => {
                return Err(Refusal::node("an alias with `AT`", "it is of another database"));
            }
            (None, None) => Ident::new(""),
        };
        let key = if alias.value.is_empty() { String::new() } else { self.rules.key(&alias)? };
        let Some(scope) = self.scopes.here() else { return Ok(()) };
        if !key.is_empty() && scope.sources.iter().any(|other| other.key == key) {
            return Err(Refusal::name(&key, "two tables of one query have this name: give them aliases"));
        }
        scope.sources.push(Source { key, alias, kind });
        Ok(())
    }
}
