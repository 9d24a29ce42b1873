//! Queries: `WITH`, `SELECT`, set operations, order. Structures are taken apart by all of their fields, so that a field that the parser
//! learns later does not pass unseen.

use std::collections::BTreeMap;

use policy::guards::SqlDialect;
use sqlparser::ast::{
    Cte, Distinct, Expr, Fetch, GroupByExpr, GroupByWithModifier, Ident, LimitClause, NamedWindowDefinition,
    NamedWindowExpr, Offset, OrderBy, OrderByExpr, OrderByKind, OrderByOptions, OrderBySort, Parens, Query, Select,
    SelectFlavor, SelectItem, SelectItemQualifiedWildcardKind, SelectModifiers, SetExpr, SetOperator, SetQuantifier,
    Values, WildcardAdditionalOptions, With,
};

use super::rules::parts;
use super::scope::{Frame, Scope};
use super::{Refusal, Walk};

/// Names of columns, where all of them are known.
pub(super) type Outputs = Option<Vec<String>>;

type CheckResult = Result<(), Refusal>;

fn node(what: &str, why: &str) -> CheckResult {
    Err(Refusal::node(what, why))
}

impl Walk<'_> {
    pub(super) fn query(&mut self, query: &mut Query) -> Result<Outputs, Refusal> {
        self.seen.queries += 1;
        let Query {
            with,
            body,
            order_by,
            limit_clause,
            fetch,
            locks,
            for_clause,
            settings,
            format_clause,
            pipe_operators,
        } = query;
        if !locks.is_empty() {
            node("a lock (`FOR UPDATE`, `FOR SHARE`)", "it stops others from writing, and writes itself")?;
        }
        if for_clause.is_some() || settings.is_some() || format_clause.is_some() || !pipe_operators.is_empty() {
            node("a clause of another database", "it is not judged")?;
        }
        let framed = with.is_some();
        if let Some(with) = with {
            self.with(with)?;
        }
        let (outputs, scope) = self.body(body)?;
        self.scopes.selects.push(scope);
        if let Some(order) = order_by {
            self.order_by(order)?;
        }
        if let Some(limit) = limit_clause {
            self.limit(limit)?;
        }
        if let Some(Fetch { with_ties: _, percent: _, quantity: Some(quantity) }) = fetch {
            self.expression(quantity)?;
        }
        self.scopes.selects.pop();
        if framed {
            self.scopes.withs.pop();
        }
        Ok(outputs)
    }

    fn with(&mut self, with: &mut With) -> CheckResult {
        let With { with_token: _, recursive, cte_tables } = with;
        let rules = self.rules;
        let mut later = cte_tables.iter().map(|cte| rules.key(&cte.alias.name)).collect::<Result<Vec<_>, _>>()?;
        later.reverse();
        self.scopes.withs.push(Frame { recursive: *recursive, known: Vec::new(), later });
        for cte in cte_tables {
            let Cte { alias, query, from, materialized: _, closing_paren_token: _ } = cte;
            if from.is_some() || alias.at.is_some() || alias.columns.iter().any(|column| column.data_type.is_some()) {
                node("a clause of another database in `WITH`", "it is not judged")?;
            }
            let key = self.rules.key(&alias.name)?;
            let names = alias.columns.iter().map(|column| self.rules.column_key(&column.name));
            let names = names.collect::<Result<Vec<_>, _>>()?;
            let named = (!names.is_empty()).then_some(names);
            if let Some(frame) = self.scopes.withs.last_mut() {
                frame.later.pop();
                if frame.recursive {
                    frame.known.push((key.clone(), named.clone().or_else(|| said(query, self.rules))));
                }
            }
            let outputs = self.query(query)?;
            if let Some(frame) = self.scopes.withs.last_mut() {
                frame.known.retain(|(known, _)| *known != key);
                frame.known.push((key, named.or(outputs)));
            }
        }
        Ok(())
    }

    fn body(&mut self, body: &mut SetExpr) -> Result<(Outputs, Scope), Refusal> {
        match body {
            SetExpr::Select(select) => self.select(select),
            SetExpr::Query(query) => {
                let outputs = self.query(query)?;
                Ok((outputs.clone(), outputs_only(outputs)))
            }
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                let known = matches!(op, SetOperator::Union | SetOperator::Except | SetOperator::Intersect);
                let plain =
                    matches!(set_quantifier, SetQuantifier::All | SetQuantifier::Distinct | SetQuantifier::None);
                if !known || !plain {
                    node("a set operation of another database", "it is not judged")?;
                }
                let (outputs, _) = self.body(left)?;
                self.body(right)?;
                Ok((outputs.clone(), outputs_only(outputs)))
            }
            SetExpr::Values(Values { explicit_row: _, value_keyword, rows }) => {
                if *value_keyword {
                    node("`VALUE`", "it is a clause of another statement")?;
                }
                let width = rows.first().map_or(0, |row| row.content.len());
                self.scopes.selects.push(Scope::default());
                for Parens { opening_token: _, content, closing_token: _ } in rows {
                    content.iter_mut().try_for_each(|value| self.expression(value))?;
                }
                self.scopes.selects.pop();
                let outputs = Some((1..=width).map(|at| format!("column{at}")).collect::<Vec<_>>());
                Ok((outputs.clone(), outputs_only(outputs)))
            }
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                Err(Refusal::node("a statement that writes, inside of a query", "it changes data wherever it stands"))
            }
            SetExpr::Table(_) => Err(Refusal::node("`TABLE name`", "it names every column")),
        }
    }

    fn select(&mut self, select: &mut Select) -> Result<(Outputs, Scope), Refusal> {
        refuse_foreign(select)?;
        self.scopes.selects.push(Scope::default());
        self.tables(&mut select.from)?;
        if let Some(condition) = &mut select.selection {
            self.expression(condition)?;
        }
        let mut outputs = Some(Vec::new());
        let mut named = BTreeMap::new();
        for item in &mut select.projection {
            self.item(item, &mut outputs, &mut named)?;
        }
        if let Some(scope) = self.scopes.here() {
            scope.outputs = named;
        }
        match &mut select.distinct {
            Some(Distinct::On(list)) => list.iter_mut().try_for_each(|expr| self.sort_key(expr))?,
            Some(Distinct::All | Distinct::Distinct) | None => {}
        }
        self.group_by(&mut select.group_by)?;
        if let Some(condition) = &mut select.having {
            self.expression(condition)?;
        }
        for NamedWindowDefinition(_, window) in &mut select.named_window {
            match window {
                NamedWindowExpr::NamedWindow(_) => {
                    node("a window that is another's name", "it is of another database")?
                }
                NamedWindowExpr::WindowSpec(window) => self.window(window)?,
            }
        }
        let scope = self.scopes.selects.pop().unwrap_or_default();
        Ok((outputs, scope))
    }

    fn item(
        &mut self,
        item: &mut SelectItem,
        outputs: &mut Outputs,
        named: &mut BTreeMap<String, Expr>,
    ) -> Result<(), Refusal> {
        match item {
            SelectItem::UnnamedExpr(expr) => {
                self.expression(expr)?;
                if let Some(name) = output_name(expr, self.rules) {
                    named.insert(name.clone(), expr.clone());
                    outputs.iter_mut().for_each(|list| list.push(name.clone()));
                }
                Ok(())
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                self.expression(expr)?;
                let name = self.rules.column_key(alias)?;
                named.insert(name.clone(), expr.clone());
                outputs.iter_mut().for_each(|list| list.push(name.clone()));
                Ok(())
            }
            SelectItem::Wildcard(options) => {
                plain_star(options)?;
                let sources = self.scopes.here().map(|scope| scope.sources.clone()).unwrap_or_default();
                for source in &sources {
                    self.star(source, outputs)?;
                }
                Ok(())
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                plain_star(options)?;
                let [alias] = parts(name)?[..] else {
                    return node("a `*` of a schema's table", "give the table an alias");
                };
                let key = self.rules.key(alias)?;
                let Some(source) = self.scopes.source(&key).cloned() else {
                    return Err(Refusal::name(&key, "no table of the statement is called so here"));
                };
                self.star(&source, outputs)
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::Expr(_), _) => {
                node("a `*` of a value", "it names fields that are not listed")
            }
            SelectItem::ExprWithAliases { .. } => node("several names for one value", "it is of another database"),
        }
    }

    fn star(&self, source: &super::scope::Source, outputs: &mut Outputs) -> CheckResult {
        if !source.takes_star() {
            let why = "it names columns that are not listed";
            return Err(Refusal::column(&format!("{}.*", source.key), why, "the columns by name"));
        }
        match &source.kind {
            super::scope::Kind::Derived(Some(known)) => {
                outputs.iter_mut().for_each(|list| list.extend(known.iter().cloned()));
            }
            super::scope::Kind::Derived(None) | super::scope::Kind::Base(_) => *outputs = None,
        }
        Ok(())
    }

    fn group_by(&mut self, group: &mut GroupByExpr) -> CheckResult {
        match group {
            GroupByExpr::All(_) => node("`GROUP BY ALL`", "it is of another database"),
            GroupByExpr::Expressions(list, modifiers) => {
                if modifiers.iter().any(|modifier| !matches!(modifier, GroupByWithModifier::Rollup)) {
                    node("a modifier of `GROUP BY`", "it is of another database")?;
                }
                list.iter_mut().try_for_each(|expr| self.expression(expr))
            }
        }
    }

    fn order_by(&mut self, order: &mut OrderBy) -> CheckResult {
        let OrderBy { kind, interpolate } = order;
        if interpolate.is_some() {
            node("`INTERPOLATE`", "it is of another database")?;
        }
        match kind {
            OrderByKind::All(_) => node("`ORDER BY ALL`", "it is of another database"),
            OrderByKind::Expressions(list) => list.iter_mut().try_for_each(|item| {
                order_options(item)?;
                self.sort_key(&mut item.expr)
            }),
        }
    }

    /// A bare name here is an output before it is a column.
    fn sort_key(&mut self, expr: &mut Expr) -> CheckResult {
        if let Expr::Identifier(name) = expr {
            let key = self.rules.column_key(name)?;
            if self.scopes.here().is_some_and(|scope| scope.outputs.contains_key(&key)) {
                self.seen.expressions += 1;
                return Ok(());
            }
        }
        self.expression(expr)
    }

    /// In windows and aggregates names are columns only.
    pub(super) fn sort(&mut self, list: &mut [OrderByExpr]) -> CheckResult {
        list.iter_mut().try_for_each(|item| {
            order_options(item)?;
            self.expression(&mut item.expr)
        })
    }

    fn limit(&mut self, limit: &mut LimitClause) -> CheckResult {
        match limit {
            LimitClause::LimitOffset { limit, offset, limit_by } => {
                if !limit_by.is_empty() {
                    node("`LIMIT BY`", "it is of another database")?;
                }
                if let Some(limit) = limit {
                    self.expression(limit)?;
                }
                if let Some(Offset { value, rows: _ }) = offset {
                    self.expression(value)?;
                }
                Ok(())
            }
            LimitClause::OffsetCommaLimit { offset, limit } => {
                self.expression(offset)?;
                self.expression(limit)
            }
        }
    }
}

fn refuse_foreign(select: &Select) -> CheckResult {
    let Select {
        select_token: _,
        optimizer_hints,
        distinct: _,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection: _,
        exclude,
        into,
        from: _,
        lateral_views,
        prewhere,
        selection: _,
        connect_by,
        group_by: _,
        cluster_by,
        distribute_by,
        sort_by,
        having: _,
        named_window: _,
        qualify,
        window_before_qualify: _,
        value_table_mode,
        flavor,
    } = select;
    if into.is_some() {
        node("`SELECT INTO`", "it makes a table, a file or a variable")?;
    }
    if !optimizer_hints.is_empty() || select_modifiers.as_ref().is_some_and(SelectModifiers::is_any_set) {
        node("a hint", "some hints set variables")?;
    }
    let foreign = top.is_some()
        || exclude.is_some()
        || !lateral_views.is_empty()
        || prewhere.is_some()
        || !connect_by.is_empty()
        || !cluster_by.is_empty()
        || !distribute_by.is_empty()
        || !sort_by.is_empty()
        || qualify.is_some()
        || value_table_mode.is_some()
        || !matches!(flavor, SelectFlavor::Standard);
    if foreign { node("a clause of another database", "it is not judged") } else { Ok(()) }
}

fn order_options(item: &OrderByExpr) -> CheckResult {
    let OrderByExpr { expr: _, options: OrderByOptions { sort, nulls_first: _ }, with_fill } = item;
    if matches!(sort, Some(OrderBySort::Using(_))) {
        node("`ORDER BY ... USING`", "the operator may be somebody's own")?;
    }
    if with_fill.is_some() { node("`WITH FILL`", "it is of another database") } else { Ok(()) }
}

pub(super) fn plain_star(options: &WildcardAdditionalOptions) -> CheckResult {
    let WildcardAdditionalOptions {
        wildcard_token: _,
        opt_ilike,
        opt_exclude,
        opt_except,
        opt_replace,
        opt_rename,
        opt_alias,
    } = options;
    let plain = opt_ilike.is_none()
        && opt_exclude.is_none()
        && opt_except.is_none()
        && opt_replace.is_none()
        && opt_rename.is_none()
        && opt_alias.is_none();
    if plain { Ok(()) } else { node("a `*` with options", "it is of another database") }
}

/// Only the outputs may be named behind a set operation.
fn outputs_only(outputs: Outputs) -> Scope {
    let named = outputs.into_iter().flatten();
    Scope {
        sources: Vec::new(),
        outputs: named.map(|name| (name.clone(), Expr::Identifier(Ident::new(name)))).collect(),
    }
}

/// What the database calls an output without an alias.
fn output_name(expr: &Expr, rules: &super::Rules) -> Option<String> {
    let last = match expr {
        Expr::Identifier(name) => name,
        Expr::CompoundIdentifier(names) => names.last()?,
        Expr::Function(call) if rules.dialect == SqlDialect::PostgreSql => parts(&call.name).ok()?.pop()?,
        _ => return None,
    };
    rules.column_key(last).ok()
}

/// The outputs of the first part of a recursive query, as they are written.
fn said(query: &Query, rules: &super::Rules) -> Outputs {
    let mut body = &*query.body;
    while let SetExpr::SetOperation { left, .. } = body {
        body = left;
    }
    let SetExpr::Select(select) = body else { return None };
    let mut names = Vec::new();
    for item in &select.projection {
        match item {
            SelectItem::UnnamedExpr(expr) => names.extend(output_name(expr, rules)),
            SelectItem::ExprWithAlias { expr: _, alias } => names.push(rules.column_key(alias).ok()?),
            SelectItem::ExprWithAliases { .. } | SelectItem::QualifiedWildcard(_, _) | SelectItem::Wildcard(_) => {
                return None;
            }
        }
    }
    Some(names)
}
