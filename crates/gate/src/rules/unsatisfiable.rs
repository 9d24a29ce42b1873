//! Conditions that can never be true: a rule that never fires looks like protection and is none.
//!
//! What is found: constants; comparisons of one argument (or counter) with literals that exclude each other or what its
//! schema allows. What is not found is not said to be sound.

use serde_json::Value as Json;

use super::eval::Eval;
use super::tree::{Kind, Literal, Name, Node, Order};
use super::value::V;
use super::{CelError, Counters, EvalContext, Uses};

/// Refuses a condition that cannot be true.
pub(super) fn check(root: &Node, text: &str, schema: Option<&Json>, uses: Uses) -> Result<(), CelError> {
    let whole = 0..text.len();
    if let (false, Some(answer)) = (uses.args || uses.counters || uses.now, constant(root)) {
        let flaw = |what: String, why: &str| CelError {
            range: whole,
            what,
            why: why.to_owned(),
            fix: "write a condition over `args`, `session`, `agent`, `counters` or `now`".to_owned(),
        };
        return match answer {
            Ok(true) => Ok(()),
            Ok(false) => Err(flaw("the condition is never true".to_owned(), "it does not depend on the call")),
            Err(why) => Err(flaw(format!("the condition always fails: {why}"), "it does not depend on the call")),
        };
    }
    if is_never(root, schema) {
        return Err(CelError {
            range: root.range.clone(),
            what: "the condition is never true".to_owned(),
            why: "its comparisons exclude each other, or what the schema allows".to_owned(),
            fix: "look at the bounds, and at `&&` that should be `||`".to_owned(),
        });
    }
    Ok(())
}

/// Evaluates what depends on nothing; none if it depends on something.
fn constant(node: &Node) -> Option<Result<bool, String>> {
    if depends(node) {
        return None;
    }
    let null = Json::Null;
    let facts = EvalContext { args: &null, session: "", agent: "", counters: Counters::default(), now: 0 };
    Some(match Eval::new(&facts).run(node) {
        Ok(V::Bool(truth)) => Ok(truth),
        Ok(other) => Err(format!("it is {}", other.kind())),
        Err(stop) => Err(stop.why.into_owned()),
    })
}

fn depends(node: &Node) -> bool {
    match &node.kind {
        Kind::Literal(_) => false,
        Kind::Name(_) | Kind::Local(_) => true,
        Kind::Field(of, _) | Kind::Has(of, _) | Kind::Not(of) | Kind::Negative(of) | Kind::Matches(of, _) => {
            depends(of)
        }
        Kind::Index(pair)
        | Kind::And(pair)
        | Kind::Or(pair)
        | Kind::Math(_, pair)
        | Kind::Order(_, pair)
        | Kind::Equal(_, pair)
        | Kind::In(pair) => pair.iter().any(depends),
        Kind::If(parts) => parts.iter().any(depends),
        Kind::List(items) | Kind::Call(_, items) => items.iter().any(depends),
        Kind::Map(entries) => entries.iter().any(|(key, value)| depends(key) || depends(value)),
        // Its own variable is bound inside; whether the rest depends is not looked at.
        Kind::Each(..) => true,
    }
}

fn is_never(node: &Node, schema: Option<&Json>) -> bool {
    if let Some(answer) = constant(node) {
        return answer != Ok(true);
    }
    match &node.kind {
        Kind::And(_) => {
            let mut parts = Vec::new();
            flatten(node, &mut parts);
            parts.iter().any(|part| !matches!(part.kind, Kind::And(_)) && is_never(part, schema))
                || clash(&parts, schema)
        }
        Kind::Or(pair) => pair.iter().all(|part| is_never(part, schema)),
        Kind::Order(..) | Kind::Equal(true, _) | Kind::In(_) => clash(&[node], schema),
        Kind::Literal(_)
        | Kind::Name(_)
        | Kind::Local(_)
        | Kind::Field(..)
        | Kind::Has(..)
        | Kind::Index(_)
        | Kind::Not(_)
        | Kind::Negative(_)
        | Kind::If(_)
        | Kind::Math(..)
        | Kind::Equal(false, _)
        | Kind::List(_)
        | Kind::Map(_)
        | Kind::Call(..)
        | Kind::Matches(..)
        | Kind::Each(..) => false,
    }
}

fn flatten<'n>(node: &'n Node, parts: &mut Vec<&'n Node>) {
    if let Kind::And(pair) = &node.kind {
        pair.iter().for_each(|part| flatten(part, parts));
    } else {
        parts.push(node);
    }
}

/// What one argument may still be.
#[derive(Debug)]
struct ArgumentRange<'n> {
    path: Vec<&'n str>,
    /// Bound, and whether it is part of the range.
    low: (f64, bool),
    high: (f64, bool),
    one_of: Option<Vec<Json>>,
    numbers_only: bool,
}

impl ArgumentRange<'_> {
    fn above(&mut self, bound: f64, included: bool) {
        if bound > self.low.0 || bound >= self.low.0 && !included {
            self.low = (bound, included);
        }
    }

    fn below(&mut self, bound: f64, included: bool) {
        if bound < self.high.0 || bound <= self.high.0 && !included {
            self.high = (bound, included);
        }
    }

    fn only(&mut self, values: Vec<Json>) {
        self.one_of = Some(match self.one_of.take() {
            Some(known) => known.into_iter().filter(|known| values.iter().any(|value| same(known, value))).collect(),
            None => values,
        });
    }

    fn admits(&self, number: f64) -> bool {
        let above = number > self.low.0 || self.low.1 && number >= self.low.0;
        let below = number < self.high.0 || self.high.1 && number <= self.high.0;
        above && below
    }

    fn is_empty(&self) -> bool {
        if let Some(values) = &self.one_of {
            // What is compared by order must be a number to be true at all.
            return !values.iter().any(|value| match value.as_f64() {
                Some(number) => self.admits(number),
                None => !self.numbers_only,
            });
        }
        let crossed = self.low.0 > self.high.0 || self.low.0 >= self.high.0 && !(self.low.1 && self.high.1);
        self.numbers_only && crossed
    }
}

fn clash(parts: &[&Node], schema: Option<&Json>) -> bool {
    let mut rooms: Vec<ArgumentRange<'_>> = Vec::new();
    for part in parts {
        let Some((path, demand)) = demand(part) else { continue };
        let at = match rooms.iter().position(|room| room.path == path) {
            Some(at) => at,
            None => {
                rooms.push(room(path, schema));
                rooms.len() - 1
            }
        };
        let Some(room) = rooms.get_mut(at) else { continue };
        match demand {
            Demand::Above(bound, included) => {
                room.numbers_only = true;
                room.above(bound, included);
            }
            Demand::Below(bound, included) => {
                room.numbers_only = true;
                room.below(bound, included);
            }
            Demand::OneOf(values) => room.only(values),
        }
    }
    rooms.iter().any(ArgumentRange::is_empty)
}

enum Demand {
    Above(f64, bool),
    Below(f64, bool),
    OneOf(Vec<Json>),
}

/// A comparison of one path with literals.
fn demand(node: &Node) -> Option<(Vec<&str>, Demand)> {
    match &node.kind {
        Kind::Order(order, pair) => {
            let [left, right] = pair.as_ref();
            let (path, bound, order) = if let Some((path, bound)) = path(left).zip(number(right)) {
                (path, bound, *order)
            } else {
                (path(right)?, number(left)?, turned(*order))
            };
            let demand = match order {
                Order::Less => Demand::Below(bound, false),
                Order::LessOrEqual => Demand::Below(bound, true),
                Order::Greater => Demand::Above(bound, false),
                Order::GreaterOrEqual => Demand::Above(bound, true),
            };
            Some((path, demand))
        }
        Kind::Equal(true, pair) => {
            let [left, right] = pair.as_ref();
            let (path, value) =
                if let Some(found) = path(left).zip(literal(right)) { found } else { (path(right)?, literal(left)?) };
            Some((path, Demand::OneOf(vec![value])))
        }
        Kind::In(pair) => {
            let [left, right] = pair.as_ref();
            let Kind::List(items) = &right.kind else { return None };
            Some((path(left)?, Demand::OneOf(items.iter().map(literal).collect::<Option<_>>()?)))
        }
        Kind::Literal(_)
        | Kind::Name(_)
        | Kind::Local(_)
        | Kind::Field(..)
        | Kind::Has(..)
        | Kind::Index(_)
        | Kind::And(_)
        | Kind::Or(_)
        | Kind::Not(_)
        | Kind::Negative(_)
        | Kind::If(_)
        | Kind::Math(..)
        | Kind::Equal(false, _)
        | Kind::List(_)
        | Kind::Map(_)
        | Kind::Call(..)
        | Kind::Matches(..)
        | Kind::Each(..) => None,
    }
}

const fn turned(order: Order) -> Order {
    match order {
        Order::Less => Order::Greater,
        Order::LessOrEqual => Order::GreaterOrEqual,
        Order::Greater => Order::Less,
        Order::GreaterOrEqual => Order::LessOrEqual,
    }
}

/// `args.a.b` is `["args", "a", "b"]`.
fn path(node: &Node) -> Option<Vec<&str>> {
    if let Kind::Field(of, name) = &node.kind {
        let mut path = path(of)?;
        path.push(name);
        return Some(path);
    }
    let Kind::Name(name) = &node.kind else { return None };
    match name {
        Name::Args => Some(vec!["args"]),
        Name::CountTool => Some(vec!["counters", "tool"]),
        Name::CountSession => Some(vec!["counters", "session"]),
        Name::CountTotal => Some(vec!["counters", "total"]),
        Name::Session => Some(vec!["session"]),
        Name::Agent => Some(vec!["agent"]),
        // Known when the rule is judged alone.
        Name::Now => None,
    }
}

fn literal(node: &Node) -> Option<Json> {
    let number = || number(node).and_then(serde_json::Number::from_f64).map(Json::Number);
    let Kind::Literal(literal) = &node.kind else { return number() };
    match literal {
        Literal::Null => Some(Json::Null),
        Literal::Bool(truth) => Some(Json::Bool(*truth)),
        Literal::Text(text) => Some(Json::String(text.to_string())),
        Literal::Int(_) | Literal::Double(_) | Literal::Time(_) | Literal::Span(_) => number(),
    }
}

/// Numbers that a double holds exactly; of others nothing is concluded.
fn number(node: &Node) -> Option<f64> {
    if let Kind::Negative(of) = &node.kind {
        return number(of).map(|number| -number);
    }
    let Kind::Literal(literal) = &node.kind else { return None };
    match literal {
        Literal::Int(int) => super::value::exact(*int),
        Literal::Double(double) => double.is_finite().then_some(*double),
        Literal::Null | Literal::Bool(_) | Literal::Text(_) | Literal::Time(_) | Literal::Span(_) => None,
    }
}

fn same(a: &Json, b: &Json) -> bool {
    let numbers = a.as_f64().zip(b.as_f64());
    numbers.map_or_else(|| a == b, |(a, b)| a.total_cmp(&b).is_eq() || a.abs() + b.abs() <= 0.0)
}

/// What the schema says of a path, or what counters are.
fn room<'n>(path: Vec<&'n str>, schema: Option<&Json>) -> ArgumentRange<'n> {
    let everything = (f64::NEG_INFINITY, f64::INFINITY);
    let (low, high) = ((everything.0, true), (everything.1, true));
    let mut room = ArgumentRange { path, low, high, one_of: None, numbers_only: false };
    match room.path.split_first() {
        Some((&"counters", _)) => room.above(0.0, true),
        Some((&"args", fields)) => {
            let shape = fields.iter().try_fold(schema, |schema, field| match super::inference::field(schema?, field) {
                super::inference::FieldSchema::Schema(schema) => Some(Some(schema)),
                super::inference::FieldSchema::Unknown | super::inference::FieldSchema::Missing => None,
            });
            if let Some(shape) = shape.flatten() {
                narrow(&mut room, shape);
            }
        }
        Some(_) | None => {}
    }
    room
}

fn narrow(room: &mut ArgumentRange<'_>, schema: &Json) {
    let number = |key| schema.get(key).and_then(Json::as_f64);
    if let Some(bound) = number("minimum") {
        room.above(bound, true);
    }
    if let Some(bound) = number("exclusiveMinimum") {
        room.above(bound, false);
    }
    if let Some(bound) = number("maximum") {
        room.below(bound, true);
    }
    if let Some(bound) = number("exclusiveMaximum") {
        room.below(bound, false);
    }
    if let Some(value) = schema.get("const") {
        room.only(vec![value.clone()]);
    }
    if let Some(Json::Array(values)) = schema.get("enum") {
        room.only(values.clone());
    }
}
