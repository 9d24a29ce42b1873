//! PostgreSQL alone: prints calls and operators with their schema, and constants without settings.
//!
//! An unqualified call takes the function whose types fit best, wherever `search_path` finds it: `lower(name)` on a `varchar`
//! calls somebody's `public.lower(varchar)` before the built-in `lower(text)`. The same holds for operators, and so for everything
//! that the grammar makes of them: `IN`, `BETWEEN`, `LIKE`, `CASE x WHEN`, `NULLIF`. They are written out here as what they mean.

use policy::guards::SqlDialect;
use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    Ident, ObjectName, ObjectNamePart, Statement, TableFactor, TableFunctionArgs, UnaryOperator, Value, ValueWithSpan,
};
use sqlparser::tokenizer::Span;

use super::Refusal;
use super::rules::{Rules, parts};
use super::visitor::{Node, Visitor, through};

/// Nodes that rewriting may make: lists and ranges write their operand again.
const MAX_NODES: usize = 20_000;

/// Rewrites a judged statement in place.
pub(super) fn statement(statement: &mut Statement, rules: &Rules) -> Result<(), Refusal> {
    debug_assert!(rules.dialect == SqlDialect::PostgreSql);
    through(statement, &mut Qualify { rules, made: 0 })
}

/// `=` before ANY and ALL, which the parser does not read as `OPERATOR(...)`: put there once the text has been read back.
pub(super) fn comparisons(statement: &mut Statement) -> Result<(), Refusal> {
    through(statement, &mut Comparisons)
}

struct Comparisons;

impl Visitor for Comparisons {
    fn after(&mut self, node: Node<'_>) -> Result<(), Refusal> {
        if let Node::Expr(Expr::AnyOp { compare_op, .. } | Expr::AllOp { compare_op, .. }) = node
            && !matches!(compare_op, BinaryOperator::PGCustomBinaryOperator(_))
        {
            *compare_op = own(&compare_op.to_string());
        }
        Ok(())
    }
}

struct Qualify<'r> {
    rules: &'r Rules,
    made: usize,
}

impl Visitor for Qualify<'_> {
    fn after(&mut self, node: Node<'_>) -> Result<(), Refusal> {
        match node {
            Node::Value(value) => constant(value),
            Node::Factor(factor) => self.factor(factor),
            Node::Expr(expr) => {
                let taken = std::mem::replace(expr, null());
                *expr = self.write(taken)?;
            }
            Node::Statement | Node::Query | Node::Ident(_) => {}
        }
        Ok(())
    }
}

/// A backslash means itself or an escape by a setting; in E'' it is always an escape.
fn constant(value: &mut ValueWithSpan) {
    if let Value::SingleQuotedString(text) = &mut value.value
        && text.contains('\\')
    {
        value.value = Value::EscapedStringLiteral(std::mem::take(text));
    }
}

impl Qualify<'_> {
    fn factor(&self, factor: &mut TableFactor) {
        match factor {
            TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => self.name(name),
            TableFactor::UNNEST { alias, array_exprs, with_ordinality, .. } => {
                let args =
                    array_exprs.drain(..).map(|expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))).collect();
                *factor = TableFactor::Table {
                    name: catalogue("unnest"),
                    alias: alias.take(),
                    args: Some(TableFunctionArgs { args, settings: None }),
                    with_hints: Vec::new(),
                    version: None,
                    with_ordinality: *with_ordinality,
                    partitions: Vec::new(),
                    json_path: None,
                    sample: None,
                    index_hints: Vec::new(),
                };
            }
            _ => {}
        }
    }

    fn name(&self, name: &mut ObjectName) {
        let key = match parts(name).as_deref() {
            Ok([only]) => only.value.to_ascii_lowercase(),
            Ok(_) | Err(_) => return,
        };
        if self.rules.is_built_in(&key) && !self.rules.lists.grammar.contains(&key) {
            *name = catalogue(&key);
        }
    }

    #[expect(
        clippy::too_many_lines,
        reason = "one arm for each construct of the grammar that calls an operator or a function"
    )]
    fn write(&mut self, expr: Expr) -> Result<Expr, Refusal> {
        match expr {
            Expr::BinaryOp { left, op: op @ (BinaryOperator::And | BinaryOperator::Or), right } => {
                Ok(Expr::BinaryOp { left, op, right })
            }
            Expr::BinaryOp { left, op: BinaryOperator::PGCustomBinaryOperator(names), right } => {
                let name = names.last().cloned().unwrap_or_default();
                Ok(nested(binary(*left, &name, *right)))
            }
            Expr::BinaryOp { left, op, right } => Ok(nested(binary(*left, &op.to_string(), *right))),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } if !matches!(*expr, Expr::Value(_)) => {
                let minus_one = Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(number("1")) };
                Ok(nested(binary(*expr, "*", nested(minus_one))))
            }
            Expr::UnaryOp { op: UnaryOperator::Plus, expr } => Ok(*expr),
            Expr::Like { negated, any: _, expr, pattern, escape_char } => {
                let pattern = escaped("like_escape", *pattern, escape_char.map(|escape| *escape));
                Ok(nested(binary(*expr, if negated { "!~~" } else { "~~" }, pattern)))
            }
            Expr::ILike { negated, any: _, expr, pattern, escape_char } => {
                let pattern = escaped("like_escape", *pattern, escape_char.map(|escape| *escape));
                Ok(nested(binary(*expr, if negated { "!~~*" } else { "~~*" }, pattern)))
            }
            Expr::SimilarTo { negated, expr, pattern, escape_char } => {
                let mut args = vec![*pattern];
                args.extend(escape_char.map(|escape| *escape));
                Ok(nested(binary(*expr, if negated { "!~" } else { "~" }, call("similar_to_escape", args))))
            }
            Expr::Between { mut expr, negated, low, high } => {
                self.again(&mut expr, 1)?;
                let (from, to) = (binary((*expr).clone(), ">=", *low), binary(*expr, "<=", *high));
                Ok(not(negated, nested(and(nested(from), nested(to)))))
            }
            Expr::InList { mut expr, list, negated } => {
                self.again(&mut expr, list.len().saturating_sub(1))?;
                let equal = list.into_iter().map(|item| nested(binary((*expr).clone(), "=", item))).collect();
                let Some(any) = balanced(equal) else {
                    return Err(Refusal::node("an empty list behind IN", "it is of another database"));
                };
                Ok(not(negated, nested(any)))
            }
            Expr::InSubquery { expr, subquery, negated } => {
                let (left, right) = (Box::new(atom(*expr)), Box::new(Expr::Subquery(subquery)));
                Ok(nested(if negated {
                    Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right }
                } else {
                    Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, is_some: false }
                }))
            }
            Expr::AnyOp { left, compare_op, right, is_some: _ } => {
                Ok(nested(Expr::AnyOp { left: Box::new(atom(*left)), compare_op, right, is_some: false }))
            }
            Expr::AllOp { left, compare_op, right } => {
                Ok(nested(Expr::AllOp { left: Box::new(atom(*left)), compare_op, right }))
            }
            Expr::IsDistinctFrom(left, right) => self.distinct(*left, *right, false),
            Expr::IsNotDistinctFrom(left, right) => self.distinct(*left, *right, true),
            Expr::Case { case_token, end_token, operand: Some(mut operand), conditions, else_result } => {
                self.again(&mut operand, conditions.len().saturating_sub(1))?;
                let equal =
                    |when: CaseWhen| CaseWhen { condition: binary((*operand).clone(), "=", when.condition), ..when };
                let conditions = conditions
                    .into_iter()
                    .map(equal)
                    .map(|when| CaseWhen { condition: nested(when.condition), ..when });
                Ok(Expr::Case { case_token, end_token, operand: None, conditions: conditions.collect(), else_result })
            }
            Expr::Substring { expr, substring_from, substring_for, special: _, shorthand: _ } => {
                let args = std::iter::once(expr).chain(substring_from).chain(substring_for);
                Ok(call("substring", args.map(|arg| *arg).collect()))
            }
            Expr::Ceil { expr, .. } => Ok(call("ceil", vec![*expr])),
            Expr::Floor { expr, .. } => Ok(call("floor", vec![*expr])),
            Expr::Function(function) => self.function(function),
            Expr::Nested(inner) if matches!(*inner, Expr::Nested(_)) => Ok(*inner),
            other => Ok(other),
        }
    }

    fn function(&mut self, mut function: Function) -> Result<Expr, Refusal> {
        let is_word = matches!(function.args, FunctionArguments::None);
        let nullif =
            parts(&function.name)?.iter().map(|name| name.value.to_ascii_lowercase()).eq(["nullif".to_owned()]);
        if nullif {
            let FunctionArguments::List(FunctionArgumentList { mut args, .. }) = function.args else {
                return Err(Refusal::node("`NULLIF` without arguments", "it takes two"));
            };
            let [FunctionArg::Unnamed(FunctionArgExpr::Expr(left)), FunctionArg::Unnamed(FunctionArgExpr::Expr(right))] =
                args.as_mut_slice()
            else {
                return Err(Refusal::node("`NULLIF` with other arguments", "it takes two"));
            };
            self.again(left, 1)?;
            return Ok(case(vec![(nested(binary(left.clone(), "=", right.clone())), null())], left.clone()));
        }
        if !is_word {
            self.name(&mut function.name);
        }
        Ok(Expr::Function(function))
    }

    /// `CASE WHEN both are null THEN same WHEN one is null THEN different ELSE a <> b END`
    fn distinct(&mut self, mut left: Expr, mut right: Expr, negated: bool) -> Result<Expr, Refusal> {
        self.again(&mut left, 3)?;
        self.again(&mut right, 3)?;
        let null_of = |expr: &Expr| Expr::IsNull(Box::new(atom(expr.clone())));
        let both = and(null_of(&left), null_of(&right));
        let one =
            Expr::BinaryOp { left: Box::new(null_of(&left)), op: BinaryOperator::Or, right: Box::new(null_of(&right)) };
        let compared = nested(binary(left, if negated { "=" } else { "<>" }, right));
        Ok(case(vec![(both, truth(negated)), (one, truth(!negated))], compared))
    }

    /// Counts what is written several times, before it is. `expr` stays as it is.
    fn again(&mut self, expr: &mut Expr, times: usize) -> Result<(), Refusal> {
        let mut there = super::Counts::default();
        through(expr, &mut there)?;
        if times > 0 {
            through(expr, &mut Stable { rules: self.rules })?;
        }
        self.made = self.made.saturating_add(there.expressions.saturating_mul(times));
        if self.made > MAX_NODES {
            return Err(Refusal::text(
                "the statement",
                "it becomes too long when its ranges and lists are written out",
            ));
        }
        Ok(())
    }
}

/// Refuses a call whose value may be another the next time.
struct Stable<'r> {
    rules: &'r Rules,
}

impl Visitor for Stable<'_> {
    fn before(&mut self, node: &Node<'_>) -> Result<(), Refusal> {
        if let Node::Expr(Expr::Function(call)) = node
            && !self.rules.is_stable(&call.name)
        {
            let why = "here it would be written out twice, and give two values";
            return Err(Refusal::node("a function that gives another value each time", why));
        }
        Ok(())
    }
}

fn own(operator: &str) -> BinaryOperator {
    BinaryOperator::PGCustomBinaryOperator(vec!["pg_catalog".to_owned(), operator.to_owned()])
}

fn binary(left: Expr, operator: &str, right: Expr) -> Expr {
    let operator = if operator == "!=" { "<>" } else { operator };
    Expr::BinaryOp { left: Box::new(atom(left)), op: own(operator), right: Box::new(atom(right)) }
}

fn and(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::And, right: Box::new(right) }
}

fn nested(expr: Expr) -> Expr {
    if matches!(expr, Expr::Nested(_)) { expr } else { Expr::Nested(Box::new(expr)) }
}

fn not(negated: bool, expr: Expr) -> Expr {
    if negated { nested(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(expr) }) } else { expr }
}

/// Every operator has one precedence as `OPERATOR(...)`: operands that are not one thing get parentheses.
fn atom(expr: Expr) -> Expr {
    let one = matches!(
        expr,
        Expr::Identifier(_)
            | Expr::CompoundIdentifier(_)
            | Expr::Value(_)
            | Expr::TypedString(_)
            | Expr::Function(_)
            | Expr::Nested(_)
            | Expr::Subquery(_)
            | Expr::Tuple(_)
            | Expr::Array(_)
            | Expr::Case { .. }
    );
    if one { expr } else { nested(expr) }
}

/// A tree of OR that is as deep as its list is long only by logarithm.
fn balanced(mut list: Vec<Expr>) -> Option<Expr> {
    while list.len() > 1 {
        let mut next = Vec::with_capacity(list.len().div_ceil(2));
        let mut rest = list.into_iter();
        while let Some(left) = rest.next() {
            next.push(match rest.next() {
                Some(right) => {
                    nested(Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::Or, right: Box::new(right) })
                }
                None => left,
            });
        }
        list = next;
    }
    list.pop()
}

fn escaped(function: &str, pattern: Expr, escape: Option<Expr>) -> Expr {
    match escape {
        Some(escape) => call(function, vec![pattern, escape]),
        None => pattern,
    }
}

fn catalogue(name: &str) -> ObjectName {
    // Words that the parser reads as something of their own, schema or not, are read as names in quotes.
    let last =
        if ["ceil", "floor", "substring"].contains(&name) { Ident::with_quote('"', name) } else { Ident::new(name) };
    ObjectName(vec![ObjectNamePart::Identifier(Ident::new("pg_catalog")), ObjectNamePart::Identifier(last)])
}

fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))).collect();
    Expr::Function(Function {
        name: catalogue(name),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

fn case(conditions: Vec<(Expr, Expr)>, other: Expr) -> Expr {
    let conditions = conditions.into_iter().map(|(condition, result)| CaseWhen { condition, result });
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: conditions.collect(),
        else_result: Some(Box::new(other)),
    }
}

fn value(value: Value) -> Expr {
    Expr::Value(ValueWithSpan { value, span: Span::empty() })
}

fn null() -> Expr {
    value(Value::Null)
}

fn truth(on: bool) -> Expr {
    value(Value::Boolean(on))
}

fn number(text: &str) -> Expr {
    value(Value::Number(text.to_owned(), false))
}
