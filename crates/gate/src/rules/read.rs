//! From the parser's tree to ours: names and functions are resolved, patterns compiled, types looked at, each flaw with
//! the bytes that it is about.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, SourceInfo, operators as op};
use cel::{Env, Program};
use policy::diagnostic::{did_you_mean, quote};
use regex::RegexBuilder;
use serde_json::Value as Json;

use super::inference::{FieldSchema, field, math_types, types_of};
use super::tree::{Each, Function, Kind, Literal, Math, Name, Node, Order, Types};
use super::{CelError, Uses};

/// Deepest nesting of `all`, `map` and the like in each other's conditions.
const MAX_EACH: usize = 2;
/// Most bytes of a compiled pattern.
const PATTERN: usize = 1 << 18;

/// What was read.
pub(super) struct Read {
    pub(super) root: Node,
    pub(super) uses: Uses,
    pub(super) hints: Vec<CelError>,
}

/// Parses a text that [`super::scan`] found bearable.
pub(super) fn parse(text: &str) -> Result<Program, CelError> {
    static ENV: OnceLock<Arc<Env>> = OnceLock::new();
    // Without macros: `has`, `all`, ... stay calls, and are resolved here.
    let env = ENV.get_or_init(|| Arc::new(Env::default().with_optional_support(false)));
    env.compile(text).map_err(|errors| unreadable(text, &errors))
}

/// Reads what was parsed of a text.
pub(super) fn read(text: &str, schema: Option<&Json>, program: &Program) -> Result<Read, CelError> {
    let mut reader = Reader {
        text,
        source: program.source_info(),
        schema,
        locals: Vec::new(),
        each: 0,
        uses: Uses::default(),
        hints: Vec::new(),
    };
    let root = reader.read(program.expression())?;
    if !root.types.meets(Types::BOOL) {
        let what = format!("the condition is {}, not true or false", root.types.describe());
        return Err(flaw(&root.node, what, "only `true` makes a rule count", "compare it with something"));
    }
    Ok(Read { root: root.node, uses: reader.uses, hints: reader.hints })
}

/// A part that was read, with what is known of its value.
struct Typed<'s> {
    node: Node,
    types: Types,
    schema: Option<&'s Json>,
}

struct Reader<'r> {
    text: &'r str,
    source: &'r SourceInfo,
    schema: Option<&'r Json>,
    locals: Vec<(String, Option<&'r Json>)>,
    each: usize,
    uses: Uses,
    hints: Vec<CelError>,
}

fn flaw(node: &Node, what: impl Into<String>, why: &str, fix: &str) -> CelError {
    at(node.range.clone(), what, why, fix)
}

fn at(range: Range<usize>, what: impl Into<String>, why: &str, fix: &str) -> CelError {
    CelError { range, what: what.into(), why: why.to_owned(), fix: fix.to_owned() }
}

/// The parser's first complaint, at its place.
fn unreadable(text: &str, errors: &cel::ParseErrors) -> CelError {
    let (place, message) = match errors.errors.first() {
        Some(error) => (error.pos, error.msg.as_str()),
        None => ((1, 0), "it cannot be read"),
    };
    let line = usize::try_from(place.0).unwrap_or(1).saturating_sub(1);
    let begin: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = text.get(begin..).unwrap_or_default();
    let column = usize::try_from(place.1).unwrap_or(0).saturating_sub(1);
    let start = begin + rest.char_indices().nth(column).map_or(rest.len(), |(at, _)| at);
    let end = text.get(start..).and_then(|rest| rest.chars().next()).map_or(start, |c| start + c.len_utf8());
    let first = message.lines().next().unwrap_or_default();
    let what = format!("the condition is no CEL: {}", first.chars().take(160).collect::<String>());
    at(
        start..end,
        what,
        "it cannot be read as an expression",
        "write it as in `args.amount > 100.0 && agent != 'root'`",
    )
}

impl<'r> Reader<'r> {
    fn read(&mut self, expr: &'r IdedExpr) -> Result<Typed<'r>, CelError> {
        let own = self.range(expr.id);
        match &expr.expr {
            Expr::Literal(value) => literal(value, own),
            Expr::Ident(name) => self.name(name, own),
            Expr::Select(select) => self.select(select, own),
            Expr::Call(call) => self.call(call, own),
            Expr::List(list) => {
                let mut items = Vec::with_capacity(list.elements.len());
                for item in &list.elements {
                    items.push(self.read(item)?.node);
                }
                Ok(known(Kind::List(items), own, Types::LIST))
            }
            Expr::Map(map) => {
                let mut entries = Vec::with_capacity(map.entries.len());
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { return Err(unknown(own, "a message")) };
                    let key = self.read(&entry.key)?;
                    let keys = Types::TEXT.or(Types::INT).or(Types::BOOL);
                    if !key.types.meets(keys) {
                        let what = format!("{} cannot be a key", key.types.describe());
                        return Err(flaw(&key.node, what, "keys are text, integers, true or false", "use text"));
                    }
                    entries.push((key.node, self.read(&entry.value)?.node));
                }
                Ok(known(Kind::Map(entries), own, Types::MAP))
            }
            Expr::Struct(_) => Err(unknown(own, "a message")),
            Expr::Comprehension(_) | Expr::Unspecified => Err(unknown(own, "this")),
        }
    }

    /// A part without a place is the whole.
    fn range(&self, id: u64) -> Range<usize> {
        let Some((start, stop)) = self.source.offset_for(id) else { return 0..self.text.len() };
        let byte = |place: u32| self.text.floor_char_boundary(usize::try_from(place).unwrap_or(usize::MAX));
        let start = byte(start);
        start..byte(stop.saturating_add(1)).max(start)
    }

    /// The parser's place of a call is its bracket.
    fn call_range(&self, call: &CallExpr, own: Range<usize>) -> Range<usize> {
        let before = self.text.get(..own.start).unwrap_or_default().trim_end();
        match before.strip_suffix(call.func_name.as_str()) {
            Some(before) => before.len()..own.end,
            None => own,
        }
    }

    fn name(&mut self, name: &str, own: Range<usize>) -> Result<Typed<'r>, CelError> {
        if let Some(index) = self.locals.iter().rposition(|(local, _)| local == name) {
            let schema = self.locals.get(index).and_then(|(_, schema)| *schema);
            let types = schema.map_or(Types::ANY, types_of);
            return Ok(Typed { node: Node { kind: Kind::Local(index), range: own }, types, schema });
        }
        match name {
            "args" => {
                self.uses.args = true;
                let node = Node { kind: Kind::Name(Name::Args), range: own };
                Ok(Typed { node, types: Types::MAP, schema: self.schema })
            }
            "session" => Ok(known(Kind::Name(Name::Session), own, Types::TEXT)),
            "agent" => Ok(known(Kind::Name(Name::Agent), own, Types::TEXT)),
            "now" => {
                self.uses.now = true;
                Ok(known(Kind::Name(Name::Now), own, Types::TIME))
            }
            "counters" => Err(at(
                own,
                "`counters` alone is no value",
                "it has parts",
                "`counters.tool`, `counters.session` or `counters.total`",
            )),
            other => {
                let names = ["args", "session", "agent", "counters", "now"];
                let near = did_you_mean(other, names);
                let fix = match near {
                    Some(near) => format!("`{near}`?"),
                    None => format!("`args.{}` is an argument of that name", other.escape_debug()),
                };
                Err(at(
                    own,
                    format!("{} is not known", quote(other)),
                    "a condition sees `args`, `session`, `agent`, `counters` and `now`",
                    &fix,
                ))
            }
        }
    }

    fn select(&mut self, select: &'r SelectExpr, own: Range<usize>) -> Result<Typed<'r>, CelError> {
        let operand = &select.operand;
        let is_counters = matches!(&operand.expr, Expr::Ident(name) if name == "counters");
        if is_counters && !self.locals.iter().any(|(local, _)| local == "counters") {
            let own = join(&self.range(operand.id), &(own.start..self.end_of_word(own.end, &select.field)));
            let name = match select.field.as_str() {
                "tool" => Name::CountTool,
                "session" => Name::CountSession,
                "total" => Name::CountTotal,
                other => {
                    let what = format!("{} is no counter", quote(other));
                    return Err(at(own, what, "there are `tool`, `session` and `total`", "name one of them"));
                }
            };
            self.uses.counters = true;
            return Ok(known(Kind::Name(name), own, Types::INT));
        }
        let of = self.read(operand)?;
        let end = self.end_of_word(own.end, &select.field);
        let range = of.node.range.start.min(own.start)..end;
        let schema = self.field(&of, &select.field, &range)?;
        let name: Arc<str> = select.field.as_str().into();
        if select.test {
            return Ok(known(Kind::Has(Box::new(of.node), name), range, Types::BOOL));
        }
        let types = schema.map_or(Types::JSON, types_of);
        Ok(Typed { node: Node { kind: Kind::Field(Box::new(of.node), name), range }, types, schema })
    }

    /// The parser's place of `a.b` is the dot.
    fn end_of_word(&self, from: usize, word: &str) -> usize {
        let rest = self.text.get(from..).unwrap_or_default();
        let blanks = rest.len() - rest.trim_start().len();
        if rest.trim_start().starts_with(word) { from + blanks + word.len() } else { from }
    }

    fn field(&self, of: &Typed<'r>, name: &str, range: &Range<usize>) -> Result<Option<&'r Json>, CelError> {
        if !of.types.meets(Types::MAP) {
            let what = format!("{} has no fields", of.types.describe());
            return Err(flaw(&of.node, what, "a field is one of a map", "look at its schema"));
        }
        let Some(schema) = of.schema else { return Ok(None) };
        match field(schema, name) {
            FieldSchema::Schema(found) => Ok(Some(found)),
            FieldSchema::Unknown => Ok(None),
            FieldSchema::Missing => {
                let names = schema.get("properties").and_then(Json::as_object);
                let names = || names.into_iter().flat_map(|names| names.keys().map(String::as_str));
                let fix = match did_you_mean(name, names()) {
                    Some(near) => format!("`{near}`?"),
                    None => format!(
                        "name one of the schema: {}",
                        names().take(12).map(quote).collect::<Vec<_>>().join(", ")
                    ),
                };
                let what = format!("the schema has no {}", quote(name));
                Err(at(
                    range.clone(),
                    what,
                    "an argument that the schema does not name is refused before rules are asked",
                    &fix,
                ))
            }
        }
    }

    fn call(&mut self, call: &'r CallExpr, own: Range<usize>) -> Result<Typed<'r>, CelError> {
        let name = call.func_name.as_str();
        let parts = call.args.as_slice();
        let own = self.call_range(call, own);
        match (name, call.target.as_deref(), parts) {
            (op::LOGICAL_AND, None, [a, b]) => self.logic(Kind::And, a, b),
            (op::LOGICAL_OR, None, [a, b]) => self.logic(Kind::Or, a, b),
            (op::LOGICAL_NOT, None, [of]) => {
                let of = self.want(of, Types::BOOL)?;
                let range = join(&own, &of.node.range);
                Ok(known(Kind::Not(Box::new(of.node)), range, Types::BOOL))
            }
            (op::NEGATE, None, [of]) => {
                let of = self.want(of, Types::NUMBER.or(Types::SPAN))?;
                let (range, types) = (join(&own, &of.node.range), of.types.and(Types::NUMBER.or(Types::SPAN)));
                Ok(known(Kind::Negative(Box::new(of.node)), range, types))
            }
            (op::CONDITIONAL, None, [a, b, c]) => self.conditional(a, b, c),
            (op::INDEX, None, [of, key]) => self.index(of, key, &own),
            (op::IN, None, [a, b]) => {
                let (a, b) = (self.read(a)?, self.want(b, Types::LIST.or(Types::MAP))?);
                let range = join(&a.node.range, &b.node.range);
                Ok(known(Kind::In(Box::new([a.node, b.node])), range, Types::BOOL))
            }
            (op::EQUALS | op::NOT_EQUALS, None, [a, b]) => self.equality(name == op::EQUALS, a, b),
            ("has", None, [of]) => self.has(of, &own),
            ("matches", Some(of), [pattern]) | ("matches", None, [of, pattern]) => self.matches(of, pattern, &own),
            _ => {
                if let ([a, b], None, Some(math)) = (parts, call.target.as_deref(), math(name)) {
                    return self.math(math, a, b);
                }
                if let ([a, b], None, Some(order)) = (parts, call.target.as_deref(), order(name)) {
                    return self.order(order, a, b);
                }
                if let (Some(over), Some(each)) = (call.target.as_deref(), each(name, parts.len())) {
                    return self.each(each, over, parts, &own);
                }
                self.function(call, own)
            }
        }
    }

    fn want(&mut self, expr: &'r IdedExpr, types: Types) -> Result<Typed<'r>, CelError> {
        let found = self.read(expr)?;
        if found.types.meets(types) {
            return Ok(found);
        }
        let what = format!("it is {}, where {} is needed", found.types.describe(), types.describe());
        Err(flaw(&found.node, what, "it would fail, and so deny, each time", "compare or convert it"))
    }

    fn logic(
        &mut self,
        kind: fn(Box<[Node; 2]>) -> Kind,
        a: &'r IdedExpr,
        b: &'r IdedExpr,
    ) -> Result<Typed<'r>, CelError> {
        let (a, b) = (self.want(a, Types::BOOL)?, self.want(b, Types::BOOL)?);
        let range = join(&a.node.range, &b.node.range);
        Ok(known(kind(Box::new([a.node, b.node])), range, Types::BOOL))
    }

    fn conditional(&mut self, a: &'r IdedExpr, b: &'r IdedExpr, c: &'r IdedExpr) -> Result<Typed<'r>, CelError> {
        let (a, b, c) = (self.want(a, Types::BOOL)?, self.read(b)?, self.read(c)?);
        let (range, types) = (join(&a.node.range, &c.node.range), b.types.or(c.types));
        Ok(known(Kind::If(Box::new([a.node, b.node, c.node])), range, types))
    }

    fn index(&mut self, of: &'r IdedExpr, key: &'r IdedExpr, own: &Range<usize>) -> Result<Typed<'r>, CelError> {
        let (of, key) = (self.want(of, Types::LIST.or(Types::MAP))?, self.read(key)?);
        let range = join(&join(&of.node.range, own), &key.node.range);
        if let Kind::Literal(Literal::Text(name)) = &key.node.kind {
            let schema = if of.types.meets(Types::LIST) { None } else { self.field(&of, name, &range)? };
            let types = schema.map_or(Types::ANY, types_of);
            let kind = Kind::Index(Box::new([of.node, key.node]));
            return Ok(Typed { node: Node { kind, range }, types, schema });
        }
        let schema = of.schema.and_then(|schema| schema.get("items"));
        let types = schema.map_or(Types::ANY, types_of);
        Ok(Typed { node: Node { kind: Kind::Index(Box::new([of.node, key.node])), range }, types, schema })
    }

    fn equality(&mut self, wanted: bool, a: &'r IdedExpr, b: &'r IdedExpr) -> Result<Typed<'r>, CelError> {
        let (a, b) = (self.read(a)?, self.read(b)?);
        let range = join(&a.node.range, &b.node.range);
        // 1 and 1.0 are equal.
        let broad = |types: Types| if types.meets(Types::NUMBER) { types.or(Types::NUMBER) } else { types };
        if !broad(a.types).meets(broad(b.types)) {
            let what = format!("{} never equals {}", a.types.describe(), b.types.describe());
            let always = if wanted { "this is false each time" } else { "this is true each time" };
            return Err(at(range, what, always, "compare values of one type"));
        }
        Ok(known(Kind::Equal(wanted, Box::new([a.node, b.node])), range, Types::BOOL))
    }

    fn math(&mut self, math: Math, a: &'r IdedExpr, b: &'r IdedExpr) -> Result<Typed<'r>, CelError> {
        let (a, b) = (self.read(a)?, self.read(b)?);
        let range = join(&a.node.range, &b.node.range);
        let types = math_types(math, a.types, b.types);
        if types.is_none() {
            let what = format!("{} and {} do not go together here", a.types.describe(), b.types.describe());
            return Err(at(
                range,
                what,
                "it would fail, and so deny, each time",
                "convert one, as in `string(args.n)`",
            ));
        }
        Ok(known(Kind::Math(math, Box::new([a.node, b.node])), range, types))
    }

    fn order(&mut self, order: Order, a: &'r IdedExpr, b: &'r IdedExpr) -> Result<Typed<'r>, CelError> {
        let (a, b) = (self.read(a)?, self.read(b)?);
        let range = join(&a.node.range, &b.node.range);
        let kinds = [Types::NUMBER, Types::TEXT, Types::BOOL, Types::TIME, Types::SPAN];
        if !kinds.into_iter().any(|kind| a.types.meets(kind) && b.types.meets(kind)) {
            let what = format!("{} and {} have no order", a.types.describe(), b.types.describe());
            return Err(at(range, what, "it would fail, and so deny, each time", "compare values of one type"));
        }
        Ok(known(Kind::Order(order, Box::new([a.node, b.node])), range, Types::BOOL))
    }

    fn has(&mut self, of: &'r IdedExpr, own: &Range<usize>) -> Result<Typed<'r>, CelError> {
        if !matches!(&of.expr, Expr::Select(select) if !select.test) {
            return Err(at(own.clone(), "`has` wants a field", "it asks whether a map has it", "`has(args.name)`"));
        }
        let found = self.read(of)?;
        let Kind::Field(of, name) = found.node.kind else {
            return Err(at(own.clone(), "`has` wants a field", "counters are always there", "leave `has` out"));
        };
        Ok(known(Kind::Has(of, name), join(own, &found.node.range), Types::BOOL))
    }

    fn matches(&mut self, of: &'r IdedExpr, pattern: &'r IdedExpr, own: &Range<usize>) -> Result<Typed<'r>, CelError> {
        let (of, pattern) = (self.want(of, Types::TEXT)?, self.want(pattern, Types::TEXT)?);
        let Kind::Literal(Literal::Text(text)) = &pattern.node.kind else {
            let why = "a pattern that the caller could write cannot be looked at beforehand";
            return Err(flaw(&pattern.node, "the pattern is not literal", why, "write it in quotes"));
        };
        let compiled =
            RegexBuilder::new(text).size_limit(PATTERN).dfa_size_limit(PATTERN).build().map_err(|error| {
                let error = error.to_string();
                let last = error.lines().last().unwrap_or_default().trim().to_owned();
                flaw(
                    &pattern.node,
                    format!("the pattern cannot be used: {last}"),
                    "it is read by a linear engine",
                    "no look-around, no back-references, not too many repetitions",
                )
            })?;
        let is_anchored =
            (text.starts_with('^') || text.starts_with("\\A")) && (text.ends_with('$') || text.ends_with("\\z"));
        if !is_anchored {
            self.hints.push(flaw(
                &pattern.node,
                "the pattern has no anchors",
                "it matches anywhere in the text",
                "`^...$` if the whole text is meant",
            ));
        }
        let range = join(&join(own, &of.node.range), &pattern.node.range);
        Ok(known(Kind::Matches(Box::new(of.node), compiled), range, Types::BOOL))
    }

    fn each(
        &mut self,
        each: Each,
        over: &'r IdedExpr,
        parts: &'r [IdedExpr],
        own: &Range<usize>,
    ) -> Result<Typed<'r>, CelError> {
        let over = self.want(over, Types::LIST.or(Types::MAP))?;
        let Some((variable, bodies)) = parts.split_first() else { return Err(unknown(own.clone(), "this")) };
        let Expr::Ident(name) = &variable.expr else {
            let range = self.range(variable.id);
            return Err(at(
                range,
                "the first part is the name of a variable",
                "each element gets it in turn",
                "`args.to.all(x, x != '')`",
            ));
        };
        if self.each >= MAX_EACH {
            let why = "the work grows with the length of each list, multiplied";
            return Err(at(
                own.clone(),
                format!("more than {MAX_EACH} of these in each other"),
                why,
                "split it into several rules",
            ));
        }
        let schema = over.schema.filter(|_| !over.types.meets(Types::MAP)).and_then(|schema| schema.get("items"));
        self.each += 1;
        self.locals.push((name.clone(), schema));
        let mut nodes = Vec::with_capacity(bodies.len());
        let mut range = join(&over.node.range, own);
        for (index, body) in bodies.iter().enumerate() {
            let is_value = each == Each::Map && index + 1 == bodies.len();
            let body = if is_value { self.read(body)? } else { self.want(body, Types::BOOL)? };
            range = join(&range, &body.node.range);
            nodes.push(body.node);
        }
        self.locals.pop();
        self.each -= 1;
        let types = if matches!(each, Each::Filter | Each::Map) { Types::LIST } else { Types::BOOL };
        Ok(known(Kind::Each(each, Box::new(over.node), nodes), range, types))
    }

    fn function(&mut self, call: &'r CallExpr, own: Range<usize>) -> Result<Typed<'r>, CelError> {
        let on_receiver = call.target.is_some();
        let values = call.target.as_deref().into_iter().chain(&call.args);
        let count = values.clone().count();
        let name = call.func_name.as_str();
        let Some(function) = Function::find(name, count, on_receiver) else {
            let near = did_you_mean(name, Function::NAMES.iter().copied());
            let fix = near.map_or_else(
                || "use a function of CEL on numbers, text, lists and times".to_owned(),
                |near| {
                    format!(
                        "`{near}`?{}",
                        if near == name { " It is called on a value, or with another number of values." } else { "" }
                    )
                },
            );
            return Err(at(
                own,
                format!("{} is not known here", quote(name)),
                "it is no function that conditions have",
                &fix,
            ));
        };
        let (wanted, out) = function.types();
        let (mut range, mut nodes) = (own, Vec::with_capacity(count));
        for (value, wanted) in values.zip(wanted) {
            let value = self.want(value, wanted)?;
            range = join(&range, &value.node.range);
            if function.is_of_time()
                && nodes.len() == 1
                && let Kind::Literal(Literal::Text(zone)) = &value.node.kind
                && super::time::offset(zone).is_none()
            {
                let why = "names of time zones are not known: their rules change";
                return Err(flaw(&value.node, format!("{} is no offset", quote(zone)), why, "`UTC` or `+02:00`"));
            }
            nodes.push(value.node);
        }
        if let ([Node { kind: Kind::Literal(Literal::Text(text)), .. }], Function::Timestamp | Function::Duration) =
            (nodes.as_slice(), function)
        {
            let made = if function == Function::Timestamp {
                super::time::timestamp(text).map(Literal::Time)
            } else {
                super::time::duration(text).map(Literal::Span)
            };
            let Some(made) = made else {
                let what = format!("{} is no {name}", quote(text));
                return Err(at(
                    range,
                    what,
                    "it would fail, and so deny, each time",
                    "`timestamp('2026-11-22T08:00:00Z')`, `duration('1h30m')`",
                ));
            };
            return Ok(known(Kind::Literal(made), range, out));
        }
        Ok(known(Kind::Call(function, nodes), range, out))
    }
}

fn known<'s>(kind: Kind, range: Range<usize>, types: Types) -> Typed<'s> {
    Typed { node: Node { kind, range }, types, schema: None }
}

fn unknown(range: Range<usize>, thing: &str) -> CelError {
    at(
        range,
        format!("{thing} cannot be used in a condition"),
        "conditions know JSON, times and durations",
        "write it with those",
    )
}

fn join(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    a.start.min(b.start)..a.end.max(b.end)
}

fn literal<'s>(value: &LiteralValue, own: Range<usize>) -> Result<Typed<'s>, CelError> {
    let (literal, types) = match value {
        LiteralValue::Boolean(truth) => (Literal::Bool(*truth.inner()), Types::BOOL),
        LiteralValue::Double(double) => (Literal::Double(*double.inner()), Types::DOUBLE),
        LiteralValue::Int(int) => (Literal::Int(*int.inner()), Types::INT),
        LiteralValue::Null => (Literal::Null, Types::NULL),
        LiteralValue::String(text) => (Literal::Text(text.inner().into()), Types::TEXT),
        LiteralValue::Bytes(_) => return Err(unknown(own, "a value of bytes")),
        LiteralValue::UInt(_) => {
            let why = "numbers of JSON are integers or floating, never unsigned";
            return Err(at(own, "an unsigned number cannot be used in a condition", why, "leave the `u` out"));
        }
    };
    Ok(known(Kind::Literal(literal), own, types))
}

const MATH: [(&str, Math); 5] = [
    (op::ADD, Math::Add),
    (op::SUBSTRACT, Math::Subtract),
    (op::MULTIPLY, Math::Multiply),
    (op::DIVIDE, Math::Divide),
    (op::MODULO, Math::Remainder),
];

fn math(name: &str) -> Option<Math> {
    MATH.into_iter().find(|(known, _)| *known == name).map(|(_, math)| math)
}

const ORDER: [(&str, Order); 4] = [
    (op::LESS, Order::Less),
    (op::LESS_EQUALS, Order::LessOrEqual),
    (op::GREATER, Order::Greater),
    (op::GREATER_EQUALS, Order::GreaterOrEqual),
];

fn order(name: &str) -> Option<Order> {
    ORDER.into_iter().find(|(known, _)| *known == name).map(|(_, order)| order)
}

/// With how many parts.
const EACH: [(&str, usize, Each); 6] = [
    ("all", 2, Each::All),
    ("exists", 2, Each::Exists),
    ("exists_one", 2, Each::ExistsOne),
    ("filter", 2, Each::Filter),
    ("map", 2, Each::Map),
    ("map", 3, Each::Map),
];

fn each(name: &str, parts: usize) -> Option<Each> {
    EACH.into_iter().find(|(known, count, _)| (*known, *count) == (name, parts)).map(|(_, _, each)| each)
}
