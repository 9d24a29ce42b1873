//! Kinds of statements: queries, plain EXPLAIN of them, and, where the guard lets write, changes of rows of one listed table.

use sqlparser::ast::{
    Assignment, AssignmentTarget, ConflictTarget, Delete, DescribeAlias, DoUpdate, Expr, FromTable, Ident, Insert,
    ObjectName, OnConflict, OnConflictAction, OnInsert, OrderByExpr, SelectItem, Statement, TableAliasWithoutColumns,
    TableFactor, TableObject, TableWithJoins, Update,
};

use super::rules::{Columns, parts};
use super::scope::{Kind, Scope, Source};
use super::{Refusal, Walk};

type CheckResult = Result<(), Refusal>;

impl Walk<'_> {
    pub(super) fn statement(&mut self, statement: &mut Statement) -> CheckResult {
        self.seen.statements += 1;
        match statement {
            Statement::Query(query) => self.query(query).map(drop),
            // Without ANALYZE in any spelling: it only plans.
            Statement::Explain {
                describe_alias: DescribeAlias::Explain,
                analyze: false,
                verbose: _,
                query_plan: _,
                estimate: false,
                statement,
                format: None,
                options: None,
            } => {
                let Statement::Query(query) = statement.as_mut() else {
                    return Err(Refusal::node("EXPLAIN of something that is no query", "it is not judged"));
                };
                self.seen.statements += 1;
                self.query(query).map(drop)
            }
            Statement::Insert(insert) if !self.rules.read_only => self.insert(insert),
            Statement::Update(update) if !self.rules.read_only => self.update(update),
            Statement::Delete(delete) if !self.rules.read_only => self.delete(delete),
            other => {
                let word: String = other.to_string().split_whitespace().next().unwrap_or_default().to_uppercase();
                let why = if self.rules.read_only {
                    "only queries are allowed"
                } else {
                    "only SELECT, INSERT, UPDATE and DELETE are allowed"
                };
                Err(Refusal::node(&format!("the statement `{word}`"), why))
            }
        }
    }

    fn insert(&mut self, insert: &mut Insert) -> CheckResult {
        let Insert {
            insert_token: _,
            optimizer_hints,
            or: _,
            ignore: _,
            into: _,
            table,
            table_alias,
            columns,
            overwrite,
            source,
            assignments,
            partitioned,
            after_columns,
            has_table_keyword,
            on,
            returning,
            output,
            replace_into: _,
            priority,
            insert_alias,
            settings,
            format_clause,
            multi_table_insert_type,
            multi_table_into_clauses,
            multi_table_when_clauses,
            multi_table_else_clause,
        } = insert;
        let foreign = !optimizer_hints.is_empty()
            || *overwrite
            || !assignments.is_empty()
            || partitioned.is_some()
            || !after_columns.is_empty()
            || *has_table_keyword
            || output.is_some()
            || priority.is_some()
            || insert_alias.is_some()
            || settings.is_some()
            || format_clause.is_some()
            || multi_table_insert_type.is_some()
            || !multi_table_into_clauses.is_empty()
            || !multi_table_when_clauses.is_empty()
            || multi_table_else_clause.is_some();
        let TableObject::TableName(name) = table else { return Err(foreign_clause()) };
        if foreign {
            return Err(foreign_clause());
        }
        let alias = table_alias.as_ref().map(|TableAliasWithoutColumns { explicit: _, alias }| alias.clone());
        let target = self.target(name, alias)?;
        if columns.is_empty() && !target.is_open() {
            return Err(Refusal::column(
                "INSERT without columns",
                "it writes columns that are not listed",
                "the columns by name",
            ));
        }
        columns.iter().try_for_each(|column| self.written(column, &target))?;
        if let Some(query) = source {
            self.query(query)?;
        }
        self.scopes.selects.push(Scope { sources: vec![target.clone()], outputs: Default::default() });
        match on {
            Some(OnInsert::OnConflict(conflict)) => self.conflict(conflict, &target)?,
            Some(_) => return Err(foreign_clause()),
            None => {}
        }
        self.returning(returning.as_mut())?;
        self.scopes.selects.pop();
        Ok(())
    }

    fn conflict(&mut self, conflict: &mut OnConflict, target: &Source) -> CheckResult {
        let OnConflict { conflict_target, action } = conflict;
        match conflict_target {
            Some(ConflictTarget::Columns(columns)) => {
                columns.iter().try_for_each(|column| self.column(column, target))?
            }
            Some(ConflictTarget::OnConstraint(_)) | None => {}
        }
        let OnConflictAction::DoUpdate(DoUpdate { assignments, selection }) = action else { return Ok(()) };
        let excluded = Source { key: "excluded".to_owned(), alias: Ident::new("excluded"), kind: target.kind.clone() };
        // A bare name is the row that is there; the new one is named.
        self.scopes.selects.insert(0, Scope { sources: vec![excluded], outputs: Default::default() });
        self.assign(assignments, target)?;
        if let Some(selection) = selection {
            self.expression(selection)?;
        }
        self.scopes.selects.remove(0);
        Ok(())
    }

    fn update(&mut self, update: &mut Update) -> CheckResult {
        let Update {
            update_token: _,
            optimizer_hints,
            table,
            assignments,
            from,
            selection,
            returning,
            output,
            or: _,
            order_by,
            limit,
        } = update;
        if !optimizer_hints.is_empty() || from.is_some() || output.is_some() {
            return Err(foreign_clause());
        }
        let target = self.one_table(table)?;
        self.scopes.selects.push(Scope { sources: vec![target.clone()], outputs: Default::default() });
        self.assign(assignments, &target)?;
        self.narrowed(selection.as_mut(), order_by, limit.as_mut())?;
        self.returning(returning.as_mut())?;
        self.scopes.selects.pop();
        Ok(())
    }

    fn delete(&mut self, delete: &mut Delete) -> CheckResult {
        let Delete {
            delete_token: _,
            optimizer_hints,
            tables,
            from,
            using,
            selection,
            returning,
            output,
            order_by,
            limit,
        } = delete;
        if !optimizer_hints.is_empty() || !tables.is_empty() || using.is_some() || output.is_some() {
            return Err(foreign_clause());
        }
        let (FromTable::WithFromKeyword(list) | FromTable::WithoutKeyword(list)) = from;
        let [table] = list.as_mut_slice() else {
            return Err(Refusal::node("DELETE from several tables", "one table is judged"));
        };
        let target = self.one_table(table)?;
        self.scopes.selects.push(Scope { sources: vec![target], outputs: Default::default() });
        self.narrowed(selection.as_mut(), order_by, limit.as_mut())?;
        self.returning(returning.as_mut())?;
        self.scopes.selects.pop();
        Ok(())
    }

    /// Which rows of its table a statement is about.
    fn narrowed(
        &mut self,
        selection: Option<&mut Expr>,
        order_by: &mut [OrderByExpr],
        limit: Option<&mut Expr>,
    ) -> CheckResult {
        if let Some(selection) = selection {
            self.expression(selection)?;
        }
        self.sort(order_by)?;
        limit.map_or(Ok(()), |limit| self.expression(limit))
    }

    fn one_table(&mut self, table: &mut TableWithJoins) -> Result<Source, Refusal> {
        let TableWithJoins { relation, joins } = table;
        let TableFactor::Table {
            name,
            alias,
            args: None,
            with_hints,
            version: None,
            with_ordinality: false,
            partitions,
            json_path: None,
            sample: None,
            index_hints,
        } = relation
        else {
            return Err(Refusal::node("a change of something that is no table", "it is not judged"));
        };
        let renamed = alias.as_ref().is_some_and(|alias| !alias.columns.is_empty() || alias.at.is_some());
        if !joins.is_empty() || !with_hints.is_empty() || !partitions.is_empty() || !index_hints.is_empty() || renamed {
            return Err(foreign_clause());
        }
        self.seen.factors += 1;
        self.target(name, alias.as_ref().map(|alias| alias.name.clone()))
    }

    fn target(&self, name: &mut ObjectName, alias: Option<Ident>) -> Result<Source, Refusal> {
        let last = parts(name)?.last().map(|last| (*last).clone());
        let (columns, printed) = self.rules.table(name)?;
        *name = printed;
        let alias = alias.or(last).unwrap_or_else(|| Ident::new(""));
        Ok(Source { key: self.rules.key(&alias)?, alias, kind: Kind::Base(columns) })
    }

    fn assign(&mut self, assignments: &mut [Assignment], target: &Source) -> CheckResult {
        for Assignment { target: place, value } in assignments {
            match place {
                AssignmentTarget::ColumnName(name) => self.written(name, target)?,
                AssignmentTarget::Tuple(names) => names.iter().try_for_each(|name| self.written(name, target))?,
            }
            self.expression(value)?;
        }
        Ok(())
    }

    fn written(&self, name: &ObjectName, target: &Source) -> CheckResult {
        let [column] = parts(name)?[..] else {
            return Err(Refusal::name(&name.to_string(), "a column that is written is named alone"));
        };
        self.column(column, target)
    }

    fn column(&self, column: &Ident, target: &Source) -> CheckResult {
        let key = self.rules.column_key(column)?;
        match &target.kind {
            Kind::Base(Columns::Some(known)) if !known.contains(&key) => {
                Err(Refusal::column(&key, "it is not among the listed columns", "columns that the guard lists"))
            }
            Kind::Base(_) | Kind::Derived(_) => Ok(()),
        }
    }

    fn returning(&mut self, items: Option<&mut Vec<SelectItem>>) -> CheckResult {
        let Some(items) = items else { return Ok(()) };
        let mut select: Vec<&mut Expr> = Vec::new();
        for item in items {
            match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, alias: _ } => select.push(expr),
                SelectItem::Wildcard(_)
                    if self.scopes.here().is_some_and(|scope| scope.sources.iter().all(Source::takes_star)) => {}
                SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(_, _) | SelectItem::ExprWithAliases { .. } => {
                    return Err(Refusal::column(
                        "RETURNING *",
                        "it names columns that are not listed",
                        "the columns by name",
                    ));
                }
            }
        }
        select.into_iter().try_for_each(|expr| self.expression(expr))
    }
}

fn foreign_clause() -> Refusal {
    Refusal::node("a clause of another kind of change", "one table is changed, by plain values and conditions")
}
