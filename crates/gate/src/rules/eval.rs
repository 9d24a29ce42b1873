//! Evaluation: each step and each byte that is gone through is paid for, so that a decision ends in a few milliseconds at
//! the latest. What fails is an error, and `&&`, `||`, `all` and `exists` absorb errors as CEL says: `false && error` is
//! false. No fuel is the one error that nothing absorbs.

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

use jiff::Timestamp;

use super::EvalContext;
use super::call::call;
use super::tree::{Each, Kind, Math, Name, Node, Order};
use super::value::{Entries, Fuel, List, V, compare, equal, exact};

/// Steps of one evaluation; a step is some tens of nanoseconds.
const FUEL: u32 = 100_000;

/// Why evaluation ended without a value.
#[derive(Debug)]
pub(super) struct EvalError {
    pub(super) range: Range<usize>,
    pub(super) why: Cow<'static, str>,
    /// Whether it is the end of the fuel.
    is_final: bool,
}

impl EvalError {
    pub(super) fn soft(node: &Node, why: impl Into<Cow<'static, str>>) -> Self {
        Self { range: node.range.clone(), why: why.into(), is_final: false }
    }

    fn fuel(node: &Node) -> Self {
        Self { range: node.range.clone(), why: Cow::Borrowed("it takes too long with these arguments"), is_final: true }
    }
}

type EvalResult<'a> = Result<V<'a>, EvalError>;

/// One evaluation.
pub(super) struct Eval<'a> {
    facts: EvalContext<'a>,
    fuel: Fuel,
    locals: Vec<V<'a>>,
}

impl<'a> Eval<'a> {
    pub(super) fn new(facts: &EvalContext<'a>) -> Self {
        Self { facts: *facts, fuel: Fuel(FUEL), locals: Vec::new() }
    }

    pub(super) fn run(&mut self, node: &'a Node) -> EvalResult<'a> {
        self.pay(node, 0)?;
        match &node.kind {
            Kind::Literal(literal) => Ok(V::literal(literal)),
            Kind::Name(name) => self.name(node, *name),
            Kind::Local(index) => {
                self.locals.get(*index).cloned().ok_or_else(|| EvalError::soft(node, "it has no value"))
            }
            Kind::Field(of, name) => self.field(node, of, name),
            Kind::Has(of, name) => self.has(node, of, name),
            Kind::Index(pair) => self.index(node, pair),
            Kind::And(pair) => self.both(node, pair, false),
            Kind::Or(pair) => self.both(node, pair, true),
            Kind::Not(of) => self.truth(of).map(|truth| V::Bool(!truth)),
            Kind::Negative(of) => self.negative(node, of),
            Kind::If(parts) => {
                let [condition, then, otherwise] = parts.as_ref();
                if self.truth(condition)? { self.run(then) } else { self.run(otherwise) }
            }
            Kind::Math(math, pair) => self.math(node, *math, pair),
            Kind::Order(order, pair) => self.order(node, *order, pair),
            Kind::Equal(wanted, pair) => self.equal(node, *wanted, pair),
            Kind::In(pair) => self.is_in(node, pair),
            Kind::List(items) => self.list(node, items),
            Kind::Map(entries) => self.map(node, entries),
            Kind::Call(function, values) => {
                let values = values.iter().map(|value| self.run(value)).collect::<Result<Vec<_>, _>>()?;
                self.paid(node, |fuel| call(*function, &values, fuel))
            }
            Kind::Matches(of, pattern) => match self.run(of)? {
                V::Text(text) => {
                    // The engine is linear; a byte costs it more than a comparison does.
                    self.pay(node, text.len().saturating_mul(2))?;
                    Ok(V::Bool(pattern.is_match(&text)))
                }
                other => Err(EvalError::soft(of, format!("it is {}, not text", other.kind()))),
            },
            Kind::Each(each, range, bodies) => self.each(node, *each, range, bodies),
        }
    }

    fn pay(&mut self, node: &Node, size: usize) -> Result<(), EvalError> {
        self.fuel.pay(size).ok_or_else(|| EvalError::fuel(node))
    }

    /// Runs what pays for itself; it answers an error text, or nothing when the fuel is used up.
    fn paid<T>(
        &mut self,
        node: &Node,
        run: impl FnOnce(&mut Fuel) -> Option<Result<T, String>>,
    ) -> Result<T, EvalError> {
        match run(&mut self.fuel) {
            Some(done) => done.map_err(|why| EvalError::soft(node, why)),
            None => Err(EvalError::fuel(node)),
        }
    }

    fn truth(&mut self, node: &'a Node) -> Result<bool, EvalError> {
        match self.run(node)? {
            V::Bool(truth) => Ok(truth),
            other => Err(EvalError::soft(node, format!("it is {}, not true or false", other.kind()))),
        }
    }

    fn name(&self, node: &Node, name: Name) -> EvalResult<'a> {
        let count = |count: u64| Ok(V::Int(i64::try_from(count).unwrap_or(i64::MAX)));
        match name {
            Name::Args => Ok(V::json(self.facts.args)),
            Name::Session => Ok(V::Text(Cow::Borrowed(self.facts.session))),
            Name::Agent => Ok(V::Text(Cow::Borrowed(self.facts.agent))),
            Name::Now => i64::try_from(self.facts.now)
                .ok()
                .and_then(|ms| Timestamp::from_millisecond(ms).ok())
                .map(V::Time)
                .ok_or_else(|| EvalError::soft(node, "the clock is out of range")),
            Name::CountTool => count(self.facts.counters.tool),
            Name::CountSession => count(self.facts.counters.session),
            Name::CountTotal => count(self.facts.counters.total),
        }
    }

    fn field(&mut self, node: &'a Node, of: &'a Node, name: &str) -> EvalResult<'a> {
        match self.run(of)? {
            V::Map(entries) => entries.field(name).ok_or_else(|| EvalError::soft(node, "it does not exist")),
            other => Err(EvalError::soft(of, format!("it is {}, which has no fields", other.kind()))),
        }
    }

    fn has(&mut self, _node: &Node, of: &'a Node, name: &str) -> EvalResult<'a> {
        match self.run(of)? {
            V::Map(entries) => Ok(V::Bool(entries.field(name).is_some())),
            other => Err(EvalError::soft(of, format!("it is {}, which has no fields", other.kind()))),
        }
    }

    fn index(&mut self, node: &'a Node, pair: &'a [Node; 2]) -> EvalResult<'a> {
        let [of, key] = pair;
        match (self.run(of)?, self.run(key)?) {
            (V::Map(entries), key) => {
                self.pay(node, if matches!(entries, Entries::Made(_)) { entries.len() } else { 0 })?;
                entries.at(&key).ok_or_else(|| EvalError::soft(node, "it does not exist"))
            }
            (V::List(list), place @ (V::Int(_) | V::Double(_))) => {
                let place = if let V::Double(double) = place {
                    super::value::whole(double).filter(|whole| exact(*whole) == Some(double))
                } else if let V::Int(int) = place {
                    Some(int)
                } else {
                    None
                };
                let item = place.and_then(|place| list.get(usize::try_from(place).ok()?));
                item.ok_or_else(|| EvalError::soft(node, format!("the list has {} elements", list.len())))
            }
            (V::List(_), other) => Err(EvalError::soft(key, format!("it is {}, not a place in a list", other.kind()))),
            (other, _) => Err(EvalError::soft(of, format!("it is {}, which has no elements", other.kind()))),
        }
    }

    /// `decisive`: which truth of either side settles it.
    fn both(&mut self, node: &'a Node, pair: &'a [Node; 2], decisive: bool) -> EvalResult<'a> {
        let [left, right] = pair;
        let first = self.truth(left);
        match first {
            Ok(truth) if truth == decisive => return Ok(V::Bool(decisive)),
            Err(stop) if stop.is_final => return Err(stop),
            Ok(_) | Err(_) => {}
        }
        self.pay(node, 0)?;
        match (first, self.truth(right)) {
            (_, Ok(truth)) if truth == decisive => Ok(V::Bool(decisive)),
            (_, Err(stop)) if stop.is_final => Err(stop),
            (Err(stop), _) | (Ok(_), Err(stop)) => Err(stop),
            (Ok(_), Ok(_)) => Ok(V::Bool(!decisive)),
        }
    }

    fn negative(&mut self, node: &'a Node, of: &'a Node) -> EvalResult<'a> {
        match self.run(of)? {
            V::Int(int) => int.checked_neg().map(V::Int).ok_or_else(|| EvalError::soft(node, "it overflows")),
            V::Double(double) => Ok(V::Double(-double)),
            V::Span(span) => span.checked_neg().map(V::Span).ok_or_else(|| EvalError::soft(node, "it overflows")),
            other => Err(EvalError::soft(of, format!("it is {}, not a number", other.kind()))),
        }
    }

    fn math(&mut self, node: &'a Node, math: Math, pair: &'a [Node; 2]) -> EvalResult<'a> {
        let [left, right] = pair;
        let (a, b) = (self.run(left)?, self.run(right)?);
        let size = |value: &V<'_>| match value {
            V::Text(text) => text.len(),
            V::List(list) => list.len().saturating_mul(32),
            V::Null | V::Bool(_) | V::Int(_) | V::Double(_) | V::Map(_) | V::Time(_) | V::Span(_) => 0,
        };
        // A new text or list is made of both.
        self.pay(node, size(&a).saturating_add(size(&b)))?;
        arithmetic(math, a, b).map_err(|why| EvalError::soft(node, why))
    }

    fn order(&mut self, node: &'a Node, order: Order, pair: &'a [Node; 2]) -> EvalResult<'a> {
        let [left, right] = pair;
        let (a, b) = (self.run(left)?, self.run(right)?);
        if let (V::Text(a), V::Text(b)) = (&a, &b) {
            self.pay(node, a.len().min(b.len()))?;
        }
        let nan = |value: &V<'_>| matches!(value, V::Double(double) if double.is_nan());
        let Some(found) = compare(&a, &b) else {
            let numbers = matches!((&a, &b), (V::Int(_) | V::Double(_), V::Int(_) | V::Double(_)));
            if numbers && (nan(&a) || nan(&b)) {
                return Ok(V::Bool(false));
            }
            return Err(EvalError::soft(node, format!("{} and {} have no order", a.kind(), b.kind())));
        };
        Ok(V::Bool(match order {
            Order::Less => found.is_lt(),
            Order::LessOrEqual => found.is_le(),
            Order::Greater => found.is_gt(),
            Order::GreaterOrEqual => found.is_ge(),
        }))
    }

    fn equal(&mut self, node: &'a Node, wanted: bool, pair: &'a [Node; 2]) -> EvalResult<'a> {
        let [left, right] = pair;
        let (a, b) = (self.run(left)?, self.run(right)?);
        let found = self.paid(node, |fuel| equal(&a, &b, fuel).map(Ok))?;
        Ok(V::Bool(found == wanted))
    }

    fn is_in(&mut self, node: &'a Node, pair: &'a [Node; 2]) -> EvalResult<'a> {
        let [left, right] = pair;
        let value = self.run(left)?;
        match self.run(right)? {
            V::List(list) => {
                for item in (0..list.len()).filter_map(|at| list.get(at)) {
                    if self.paid(node, |fuel| equal(&item, &value, fuel).map(Ok))? {
                        return Ok(V::Bool(true));
                    }
                }
                Ok(V::Bool(false))
            }
            V::Map(entries) => {
                self.pay(node, entries.len())?;
                Ok(V::Bool(entries.at(&value).is_some()))
            }
            other => Err(EvalError::soft(right, format!("it is {}, not a list or a map", other.kind()))),
        }
    }

    fn list(&mut self, node: &'a Node, items: &'a [Node]) -> EvalResult<'a> {
        self.pay(node, items.len())?;
        let made = items.iter().map(|item| self.run(item)).collect::<Result<Vec<_>, _>>()?;
        Ok(V::List(List::Made(Rc::new(made))))
    }

    fn map(&mut self, node: &'a Node, entries: &'a [(Node, Node)]) -> EvalResult<'a> {
        let mut made: Vec<(V<'a>, V<'a>)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            self.pay(node, made.len())?;
            let at = self.run(key)?;
            if !matches!(at, V::Text(_) | V::Int(_) | V::Bool(_)) {
                return Err(EvalError::soft(key, format!("it is {}, which cannot be a key", at.kind())));
            }
            if made.iter().any(|(other, _)| super::value::same(other, &at)) {
                return Err(EvalError::soft(key, "it is a key twice"));
            }
            let value = self.run(value)?;
            made.push((at, value));
        }
        Ok(V::Map(Entries::Made(Rc::new(made))))
    }

    fn each(&mut self, node: &'a Node, each: Each, range: &'a Node, bodies: &'a [Node]) -> EvalResult<'a> {
        let over = self.run(range)?;
        let count = match &over {
            V::List(list) => list.len(),
            V::Map(entries) => entries.len(),
            other => return Err(EvalError::soft(range, format!("it is {}, not a list or a map", other.kind()))),
        };
        let mut round = Round { found: 0, kept: Vec::new(), stop: None };
        for at in 0..count {
            let item = match &over {
                V::List(list) => list.get(at),
                V::Map(entries) => entries.key(at),
                V::Null | V::Bool(_) | V::Int(_) | V::Double(_) | V::Text(_) | V::Time(_) | V::Span(_) => None,
            };
            let Some(item) = item else { break };
            self.locals.push(item.clone());
            let ended = self.one(node, each, item, bodies, &mut round);
            self.locals.pop();
            if ended? {
                return Ok(V::Bool(each == Each::Exists));
            }
        }
        match each {
            Each::All | Each::Exists => match round.stop {
                Some(stop) => Err(stop),
                None => Ok(V::Bool(each == Each::All)),
            },
            Each::ExistsOne => Ok(V::Bool(round.found == 1)),
            Each::Filter | Each::Map => Ok(V::List(List::Made(Rc::new(round.kept)))),
        }
    }

    /// One element; whether it settles the whole.
    fn one(
        &mut self,
        node: &'a Node,
        each: Each,
        item: V<'a>,
        bodies: &'a [Node],
        round: &mut Round<'a>,
    ) -> Result<bool, EvalError> {
        self.pay(node, 0)?;
        match (each, bodies) {
            (Each::All | Each::Exists, [condition]) => match self.truth(condition) {
                Ok(truth) => return Ok(truth == (each == Each::Exists)),
                Err(stop) if stop.is_final => return Err(stop),
                // A later element may still settle it.
                Err(stop) => round.stop = round.stop.take().or(Some(stop)),
            },
            (Each::ExistsOne, [condition]) => round.found += u32::from(self.truth(condition)?),
            (Each::Filter, [condition]) => {
                if self.truth(condition)? {
                    round.kept.push(item);
                }
            }
            (Each::Map, [value]) => round.kept.push(self.run(value)?),
            (Each::Map, [condition, value]) => {
                if self.truth(condition)? {
                    round.kept.push(self.run(value)?);
                }
            }
            (Each::All | Each::Exists | Each::ExistsOne | Each::Filter | Each::Map, [..]) => {
                return Err(EvalError::soft(node, "it has the wrong number of parts"));
            }
        }
        Ok(false)
    }
}

struct Round<'a> {
    found: u32,
    kept: Vec<V<'a>>,
    stop: Option<EvalError>,
}

fn arithmetic<'a>(math: Math, a: V<'a>, b: V<'a>) -> Result<V<'a>, String> {
    let overflow = || "it overflows".to_owned();
    match (a, b) {
        (V::Int(a), V::Int(b)) => integers(math, a, b).map(V::Int),
        (V::Double(a), V::Double(b)) => doubles(math, a, b).map(V::Double),
        (V::Int(a), V::Double(b)) => doubles(math, exact(a).ok_or_else(overflow)?, b).map(V::Double),
        (V::Double(a), V::Int(b)) => doubles(math, a, exact(b).ok_or_else(overflow)?).map(V::Double),
        (V::Text(a), V::Text(b)) if math == Math::Add => Ok(V::Text(a + b)),
        (V::List(a), V::List(b)) if math == Math::Add => {
            let items = (0..a.len()).filter_map(|at| a.get(at)).chain((0..b.len()).filter_map(|at| b.get(at)));
            Ok(V::List(List::Made(Rc::new(items.collect()))))
        }
        (V::Time(a), V::Span(b)) | (V::Span(b), V::Time(a)) if math == Math::Add => {
            a.checked_add(b).map(V::Time).map_err(|_beyond| overflow())
        }
        (V::Time(a), V::Span(b)) if math == Math::Subtract => {
            a.checked_sub(b).map(V::Time).map_err(|_beyond| overflow())
        }
        (V::Time(a), V::Time(b)) if math == Math::Subtract => Ok(V::Span(a.duration_since(b))),
        (V::Span(a), V::Span(b)) if math == Math::Add => a.checked_add(b).map(V::Span).ok_or_else(overflow),
        (V::Span(a), V::Span(b)) if math == Math::Subtract => a.checked_sub(b).map(V::Span).ok_or_else(overflow),
        (a, b) => Err(format!("{} and {} do not go together here", a.kind(), b.kind())),
    }
}

fn integers(math: Math, a: i64, b: i64) -> Result<i64, String> {
    let done = match math {
        Math::Add => a.checked_add(b),
        Math::Subtract => a.checked_sub(b),
        Math::Multiply => a.checked_mul(b),
        Math::Divide | Math::Remainder if b == 0 => return Err("it divides by zero".to_owned()),
        Math::Divide => a.checked_div(b),
        Math::Remainder => a.checked_rem(b),
    };
    done.ok_or_else(|| "it overflows".to_owned())
}

fn doubles(math: Math, a: f64, b: f64) -> Result<f64, String> {
    match math {
        Math::Add => Ok(a + b),
        Math::Subtract => Ok(a - b),
        Math::Multiply => Ok(a * b),
        Math::Divide => Ok(a / b),
        Math::Remainder => Err("a remainder is one of integers".to_owned()),
    }
}
