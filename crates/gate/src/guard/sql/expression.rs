//! Values: every kind of node is named here, or it is refused.

use policy::diagnostic::quote;
use policy::guards::SqlDialect;
use sqlparser::ast::{
    AccessExpr, Array, BinaryOperator, CaseWhen, CastKind, CeilFloorKind, DataType, DateTimeField, Expr, Function,
    FunctionArg, FunctionArgExpr, FunctionArgOperator, FunctionArgumentClause, FunctionArgumentList, FunctionArguments,
    Ident, Interval, ObjectName, Query, SelectItem, SetExpr, Subscript, TypedString, UnaryOperator, Value, WindowFrame,
    WindowFrameBound, WindowSpec, WindowType,
};

use super::query::plain_star;
use super::rules::parts;
use super::scope::Bare;
use super::{Refusal, Walk};

type CheckResult = Result<(), Refusal>;

impl Walk<'_> {
    #[expect(clippy::too_many_lines, reason = "one line for each kind of node: the list is the rule")]
    pub(super) fn expression(&mut self, expr: &mut Expr) -> CheckResult {
        self.seen.expressions += 1;
        match expr {
            Expr::Identifier(name) => {
                let replaced = self.bare(name)?;
                if let Some(replaced) = replaced {
                    *expr = replaced;
                }
                Ok(())
            }
            Expr::CompoundIdentifier(names) => self.qualified(names),
            Expr::CompoundFieldAccess { root, access_chain } => {
                self.expression(root)?;
                access_chain.iter_mut().try_for_each(|access| self.access(access))
            }
            Expr::IsFalse(inner)
            | Expr::IsNotFalse(inner)
            | Expr::IsTrue(inner)
            | Expr::IsNotTrue(inner)
            | Expr::IsNull(inner)
            | Expr::IsNotNull(inner)
            | Expr::IsUnknown(inner)
            | Expr::IsNotUnknown(inner)
            | Expr::Nested(inner)
            | Expr::IsJson { expr: inner, kind: _, unique_keys: _, negated: _ }
            | Expr::IsNormalized { expr: inner, form: _, negated: _ }
            | Expr::Collate { expr: inner, collation: _ } => self.expression(inner),
            Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => self.both(left, right),
            Expr::InList { expr, list, negated: _ } => {
                self.expression(expr)?;
                self.all(list)
            }
            Expr::InSubquery { expr, subquery, negated: _ } => {
                self.expression(expr)?;
                self.query(subquery).map(drop)
            }
            Expr::Between { expr, negated: _, low, high } => {
                self.expression(expr)?;
                self.both(low, high)
            }
            Expr::BinaryOp { left, op, right } => {
                self.operator(op)?;
                self.both(left, right)
            }
            Expr::Like { negated: _, any: false, expr, pattern, escape_char }
            | Expr::ILike { negated: _, any: false, expr, pattern, escape_char }
            | Expr::SimilarTo { negated: _, expr, pattern, escape_char } => {
                self.both(expr, pattern)?;
                escape_char.as_mut().map_or(Ok(()), |escape| self.expression(escape))
            }
            Expr::RLike { negated: _, expr, pattern, regexp: _ } if self.rules.dialect == SqlDialect::MySql => {
                self.both(expr, pattern)
            }
            Expr::AnyOp { left, compare_op, right, is_some: _ } | Expr::AllOp { left, compare_op, right } => {
                self.operator(compare_op)?;
                self.both(left, right)
            }
            Expr::UnaryOp { op, expr } => {
                let known = match op {
                    UnaryOperator::Plus | UnaryOperator::Minus | UnaryOperator::Not => true,
                    UnaryOperator::BitwiseNot | UnaryOperator::BangNot => self.rules.dialect != SqlDialect::PostgreSql,
                    _ => false,
                };
                if !known {
                    return Err(operator(&op.to_string()));
                }
                self.expression(expr)
            }
            Expr::Convert { is_try: false, expr, data_type, charset: _, target_before_value: false, styles }
                if styles.is_empty() && self.rules.dialect == SqlDialect::MySql =>
            {
                data_type.as_ref().map_or(Ok(()), |data_type| self.cast_type(data_type))?;
                self.expression(expr)
            }
            Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, format: None } => {
                self.cast_type(data_type)?;
                self.expression(expr)
            }
            Expr::AtTimeZone { timestamp, time_zone } => self.both(timestamp, time_zone),
            Expr::Extract { field: _, syntax: _, expr } => self.expression(expr),
            Expr::Ceil { expr, field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) }
            | Expr::Floor { expr, field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
                self.expression(expr)
            }
            Expr::Position { expr, r#in } => self.both(expr, r#in),
            Expr::Substring { expr, substring_from, substring_for, special: _, shorthand: _ } => {
                self.expression(expr)?;
                self.some(substring_from.as_deref_mut())?;
                self.some(substring_for.as_deref_mut())
            }
            Expr::Trim { trim_where: _, trim_what, expr, trim_characters } => {
                self.some(trim_what.as_deref_mut())?;
                self.all(trim_characters.as_deref_mut().unwrap_or_default())?;
                self.expression(expr)
            }
            Expr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                self.both(expr, overlay_what)?;
                self.expression(overlay_from)?;
                self.some(overlay_for.as_deref_mut())
            }
            Expr::Value(value) => self.value(&mut value.value),
            Expr::TypedString(TypedString { data_type, value, uses_odbc_syntax: false }) => {
                self.cast_type(data_type)?;
                self.value(&mut value.value)
            }
            Expr::Function(call) => self.function(call),
            Expr::Case { case_token: _, end_token: _, operand, conditions, else_result } => {
                self.some(operand.as_deref_mut())?;
                for CaseWhen { condition, result } in conditions {
                    self.both(condition, result)?;
                }
                self.some(else_result.as_deref_mut())
            }
            Expr::Exists { subquery, negated: _ } => self.exists(subquery),
            Expr::Subquery(subquery) => self.query(subquery).map(drop),
            Expr::GroupingSets(lists) | Expr::Cube(lists) | Expr::Rollup(lists) => {
                lists.iter_mut().try_for_each(|list| self.all(list))
            }
            Expr::Tuple(list) | Expr::Array(Array { elem: list, named: true }) => self.all(list),
            Expr::Interval(Interval { value, .. }) => self.expression(value),
            other => {
                let shown: String = other.to_string().chars().take(80).collect();
                Err(Refusal::node(&format!("the expression {}", quote(&shown)), "its kind is not judged"))
            }
        }
    }

    /// `EXISTS (SELECT * ...)` looks at no column: it is judged and printed as `SELECT 1`.
    fn exists(&mut self, query: &mut Query) -> CheckResult {
        if let SetExpr::Select(select) = query.body.as_mut()
            && let [SelectItem::Wildcard(options)] = select.projection.as_slice()
            && plain_star(options).is_ok()
        {
            let one = Value::Number("1".to_owned(), false).with_empty_span();
            select.projection = vec![SelectItem::UnnamedExpr(Expr::Value(one))];
            // It was not there when the nodes were counted.
            self.seen.expressions = self.seen.expressions.saturating_sub(1);
        }
        self.query(query).map(drop)
    }

    fn both(&mut self, left: &mut Expr, right: &mut Expr) -> CheckResult {
        self.expression(left)?;
        self.expression(right)
    }

    fn all(&mut self, list: &mut [Expr]) -> CheckResult {
        list.iter_mut().try_for_each(|expr| self.expression(expr))
    }

    fn some(&mut self, expr: Option<&mut Expr>) -> CheckResult {
        expr.map_or(Ok(()), |expr| self.expression(expr))
    }

    /// A name alone: with what it is to be replaced.
    fn bare(&mut self, name: &Ident) -> Result<Option<Expr>, Refusal> {
        let key = self.rules.column_key(name)?;
        match self.scopes.bare(&key, self.rules)? {
            Bare::Plain => Ok(None),
            Bare::Of(alias) => Ok(Some(Expr::CompoundIdentifier(vec![alias, name.clone()]))),
            Bare::Unknown(why) => {
                // An output's name stands for what it is; a number would mean the output at that place.
                let output = self.scopes.here().and_then(|scope| scope.outputs.get(&key));
                match output {
                    Some(output) if !matches!(output, Expr::Value(_)) => {
                        Ok(Some(Expr::Nested(Box::new(output.clone()))))
                    }
                    Some(_) | None => Err(Refusal::column(&key, &why, "columns that the guard lists")),
                }
            }
        }
    }

    fn qualified(&self, names: &[Ident]) -> CheckResult {
        let [alias, column] = names else {
            let shown: Vec<String> = names.iter().map(ToString::to_string).collect();
            return Err(Refusal::name(
                &shown.join("."),
                "a column is named as `alias.column`: give the table an alias",
            ));
        };
        self.scopes.qualified(&self.rules.key(alias)?, &self.rules.column_key(column)?, self.rules)
    }

    /// `list[1]`, `list[1:2]`; `(row).field` calls functions.
    fn access(&mut self, access: &mut AccessExpr) -> CheckResult {
        match access {
            AccessExpr::Subscript(Subscript::Index { index }) => self.expression(index),
            AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride: None }) => {
                self.some(lower_bound.as_mut())?;
                self.some(upper_bound.as_mut())
            }
            AccessExpr::Subscript(Subscript::Slice { .. }) | AccessExpr::Dot(_) => Err(Refusal::node(
                "a field of a value",
                "PostgreSQL calls a function of that name where there is no such field",
            )),
        }
    }

    fn operator(&self, op: &BinaryOperator) -> CheckResult {
        if matches!(op, BinaryOperator::And | BinaryOperator::Or) {
            return Ok(());
        }
        let name = match op {
            BinaryOperator::PGCustomBinaryOperator(names) => {
                let [schema, name] = names.as_slice() else { return Err(operator(&names.join("."))) };
                if schema != "pg_catalog" {
                    return Err(operator(&names.join(".")));
                }
                name.clone()
            }
            op => op.to_string(),
        };
        if self.rules.lists.operators.contains(&name) { Ok(()) } else { Err(operator(&name)) }
    }

    pub(super) fn cast_type(&self, data_type: &DataType) -> CheckResult {
        let shown = data_type.to_string().to_lowercase();
        let mut plain = String::new();
        let mut depth = 0_u32;
        for c in shown.chars() {
            if c == '(' {
                depth += 1;
            } else if c == ')' {
                depth = depth.saturating_sub(1);
            } else if depth == 0 {
                plain.push(c);
            }
        }
        let words: Vec<&str> = plain.trim_end_matches("[]").split_whitespace().collect();
        if self.rules.lists.types.contains(&words.join(" ")) {
            return Ok(());
        }
        Err(Refusal::node(
            &format!("the type {}", quote(&shown)),
            "a cast to a type that is not on the list may run code",
        ))
    }

    fn value(&self, value: &mut Value) -> CheckResult {
        let dialect = self.rules.dialect;
        let odd = |what: &str, why: &str| Err(Refusal::text(what, why));
        match value {
            Value::Number(_, _) | Value::Boolean(_) | Value::Null => Ok(()),
            Value::SingleQuotedString(text) | Value::DoubleQuotedString(text)
                if text.contains('\\') && matches!(dialect, SqlDialect::MySql | SqlDialect::Generic) =>
            {
                odd("a backslash in text", "what it means depends on a setting of the connection")
            }
            Value::SingleQuotedString(_) => Ok(()),
            // Text in double quotes is a name under another setting.
            Value::DoubleQuotedString(text) if dialect == SqlDialect::MySql => {
                *value = Value::SingleQuotedString(std::mem::take(text));
                Ok(())
            }
            Value::EscapedStringLiteral(text) if dialect == SqlDialect::PostgreSql => {
                if text.contains('\0') {
                    odd("a NUL in text", "programs end the text there")
                } else {
                    Ok(())
                }
            }
            Value::DollarQuotedString(text) if dialect == SqlDialect::PostgreSql => {
                let text = std::mem::take(&mut text.value);
                *value = Value::SingleQuotedString(text);
                Ok(())
            }
            Value::HexStringLiteral(_) => Ok(()),
            Value::Placeholder(name) => {
                let numbered =
                    |mark: char| name.strip_prefix(mark).is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()));
                let fits = match dialect {
                    SqlDialect::PostgreSql => name.len() > 1 && numbered('$'),
                    SqlDialect::Sqlite => numbered('?') || name.starts_with(':'),
                    SqlDialect::MySql | SqlDialect::Generic => name == "?",
                };
                if fits { Ok(()) } else { odd("a placeholder of another database", "it is not judged") }
            }
            _ => odd("text in quotes of another database", "it is not judged"),
        }
    }

    fn function(&mut self, call: &mut Function) -> CheckResult {
        let Function { name, uses_odbc_syntax, parameters, args, within_group, filter, null_treatment: _, over } = call;
        if *uses_odbc_syntax || !matches!(parameters, FunctionArguments::None) {
            return Err(Refusal::node("a call of another database", "it is not judged"));
        }
        match args {
            FunctionArguments::None => self.bare_function(name)?,
            FunctionArguments::Subquery(query) => {
                if self.rules.function(name)? != "array" {
                    return Err(Refusal::node("a call with a query", "only `ARRAY(SELECT ...)` takes one"));
                }
                self.query(query)?;
            }
            FunctionArguments::List(FunctionArgumentList { duplicate_treatment: _, args, clauses }) => {
                self.rules.function(name)?;
                args.iter_mut().try_for_each(|arg| self.argument(arg))?;
                for clause in clauses {
                    match clause {
                        FunctionArgumentClause::IgnoreOrRespectNulls(_) => {}
                        FunctionArgumentClause::OrderBy(list) => self.sort(list)?,
                        FunctionArgumentClause::Separator(text) => self.value(&mut text.value)?,
                        _ => return Err(Refusal::node("a clause inside a call", "it is not judged")),
                    }
                }
            }
        }
        self.sort(within_group)?;
        self.some(filter.as_deref_mut())?;
        match over {
            Some(WindowType::WindowSpec(window)) => self.window(window),
            Some(WindowType::NamedWindow(_)) | None => Ok(()),
        }
    }

    /// `CURRENT_DATE`: a function without parentheses is a word of the grammar, or nothing that passes.
    fn bare_function(&self, name: &ObjectName) -> CheckResult {
        let [word] = parts(name)?[..] else {
            return self.rules.function(name).map(drop);
        };
        if word.quote_style.is_none() && self.rules.lists.bare.contains(&word.value.to_ascii_lowercase()) {
            return Ok(());
        }
        let mut refusal = Refusal::name(&word.value, "it is not on the list of words that only look at the time");
        refusal.id = "tools.guard/sql-function";
        Err(refusal)
    }

    pub(super) fn argument(&mut self, arg: &mut FunctionArg) -> CheckResult {
        let arg = match arg {
            FunctionArg::Unnamed(arg)
            | FunctionArg::Named {
                name: _,
                arg,
                operator: FunctionArgOperator::RightArrow | FunctionArgOperator::Assignment,
            } => arg,
            FunctionArg::ExprNamed {
                name: Expr::Identifier(_),
                arg,
                operator: FunctionArgOperator::RightArrow | FunctionArgOperator::Assignment,
            } => {
                self.seen.expressions += 1;
                arg
            }
            FunctionArg::Named { .. } | FunctionArg::ExprNamed { .. } => {
                return Err(Refusal::node("a named argument of another database", "it is not judged"));
            }
        };
        match arg {
            FunctionArgExpr::Expr(expr) => self.expression(expr),
            // `count(*)` names no column.
            FunctionArgExpr::Wildcard => Ok(()),
            FunctionArgExpr::QualifiedWildcard(name) => {
                let [alias] = parts(name)?[..] else {
                    return Err(Refusal::name(&name.to_string(), "give the table an alias"));
                };
                let key = self.rules.key(alias)?;
                match self.scopes.source(&key) {
                    Some(source) if source.takes_star() => Ok(()),
                    Some(_) => {
                        let why = "it names columns that are not listed";
                        Err(Refusal::column(&format!("{key}.*"), why, "the columns by name"))
                    }
                    None => Err(Refusal::name(&key, "no table of the statement is called so here")),
                }
            }
            FunctionArgExpr::WildcardWithOptions(_) => {
                Err(Refusal::node("a `*` with options", "it is of another database"))
            }
        }
    }

    pub(super) fn window(&mut self, window: &mut WindowSpec) -> CheckResult {
        let WindowSpec { window_name: _, partition_by, order_by, window_frame } = window;
        self.all(partition_by)?;
        self.sort(order_by)?;
        let Some(WindowFrame { units: _, start_bound, end_bound }) = window_frame else { return Ok(()) };
        for bound in std::iter::once(start_bound).chain(end_bound) {
            match bound {
                WindowFrameBound::CurrentRow => {}
                WindowFrameBound::Preceding(distance) | WindowFrameBound::Following(distance) => {
                    self.some(distance.as_deref_mut())?;
                }
            }
        }
        Ok(())
    }
}

fn operator(name: &str) -> Refusal {
    Refusal::node(&format!("the operator {}", quote(name)), "it is not on the list: an operator may be somebody's own")
}
