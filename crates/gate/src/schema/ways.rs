//! Whether a schema lets anything in at the end of a way: what it certainly refuses there, no guard could ever judge.

use serde_json::{Map, Value as Json};

use super::Schema;
use super::survey::{IN_PLACE_LISTS, in_place, lookup};

/// Steps of one question; more are taken by no schema that people wrote, and what needs more is taken for refused.
const MAX_STEPS: u32 = 20_000;
/// How many ways are named in a message, and how deep they go.
const MAX_KNOWN: usize = 20;
const MAX_DEPTH: usize = 4;

/// One step into the arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A member of an object.
    Name(String),
    /// Every element of a list.
    Each,
}

/// The names of members with which a way can begin, each with the rest of the way: `user.email` is the member `email` of `user`,
/// and a member that is called `user.email`.
pub(crate) fn beginnings(way: &[Step]) -> impl Iterator<Item = (String, &[Step])> {
    let mut rest = way;
    let mut name: Option<String> = None;
    std::iter::from_fn(move || {
        let (Step::Name(part), below) = rest.split_first()? else { return None };
        let whole = name.take().map_or_else(|| part.clone(), |name| format!("{name}.{part}"));
        name = Some(whole.clone());
        rest = below;
        Some((whole, below))
    })
}

impl Schema {
    /// Whether arguments that fit can have anything at the end of a way. False only where the schema refuses it, as it is
    /// judged: closed.
    pub(crate) fn lets_in(&self, way: &[Step]) -> bool {
        let mut look = PathSearch { root: &self.closed, left: MAX_STEPS };
        look.may(&self.closed, way).unwrap_or(false)
    }

    /// Ways to what the schema names, for people.
    pub(crate) fn known(&self) -> Vec<String> {
        let mut known = PathLister { root: &self.closed, list: Vec::new(), left: MAX_STEPS };
        known.below(&self.closed, "", MAX_DEPTH);
        known.list
    }
}

struct PathSearch<'s> {
    root: &'s Json,
    left: u32,
}

impl<'s> PathSearch<'s> {
    /// None if the question takes too long.
    fn may(&mut self, schema: &'s Json, way: &[Step]) -> Option<bool> {
        self.left = self.left.checked_sub(1)?;
        let Json::Object(map) = schema else { return Some(*schema != Json::Bool(false)) };
        let root = self.root;
        let target = map.get("$ref").and_then(Json::as_str).and_then(|target| lookup(root, target));
        if let Some(target) = target
            && !self.may(target, way)?
        {
            return Some(false);
        }
        for branch in map.get("allOf").and_then(Json::as_array).into_iter().flatten() {
            if !self.may(branch, way)? {
                return Some(false);
            }
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(branches) = map.get(key).and_then(Json::as_array)
                && !self.any(branches, way)?
            {
                return Some(false);
            }
        }
        match way {
            [] => Some(true),
            [Step::Each, ..] if !is(map, "array") => Some(false),
            [Step::Each, rest @ ..] => self.each(map, rest),
            [Step::Name(_), ..] if !is(map, "object") => Some(false),
            [Step::Name(_), ..] => self.member(schema, map, way),
        }
    }

    fn any(&mut self, schemas: &'s [Json], way: &[Step]) -> Option<bool> {
        for schema in schemas {
            if self.may(schema, way)? {
                return Some(true);
            }
        }
        Some(false)
    }

    fn each(&mut self, map: &'s Map<String, Json>, rest: &[Step]) -> Option<bool> {
        if let Some(first) = map.get("prefixItems").and_then(Json::as_array)
            && self.any(first, rest)?
        {
            return Some(true);
        }
        map.get("items").map_or(Some(true), |items| self.may(items, rest))
    }

    fn member(&mut self, schema: &'s Json, map: &'s Map<String, Json>, way: &[Step]) -> Option<bool> {
        for (name, rest) in beginnings(way) {
            if self.one_member(schema, map, &name, rest)? {
                return Some(true);
            }
        }
        Some(false)
    }

    fn one_member(&mut self, schema: &'s Json, map: &'s Map<String, Json>, name: &str, rest: &[Step]) -> Option<bool> {
        let listed = map.get("propertyNames").and_then(|names| names.get("enum")).and_then(Json::as_array);
        if listed.is_some_and(|listed| !listed.iter().any(|known| known == name)) {
            return Some(false);
        }
        let named = named(map, name);
        if !named.is_empty() {
            // All of them speak of it.
            for part in named {
                if !self.may(part, rest)? {
                    return Some(false);
                }
            }
            return Some(true);
        }
        if let Some(more) = map.get("additionalProperties") {
            return self.may(more, rest);
        }
        match map.get("unevaluatedProperties") {
            Some(more) if !self.evaluated(schema, name)? => self.may(more, rest),
            Some(_) | None => Some(true),
        }
    }

    /// Whether a schema beside this one, about the same value, speaks of a member.
    fn evaluated(&mut self, schema: &'s Json, name: &str) -> Option<bool> {
        for beside in in_place(self.root, schema) {
            self.left = self.left.checked_sub(1)?;
            let Json::Object(map) = beside else { continue };
            let speaks = !named(map, name).is_empty()
                || map.contains_key("additionalProperties")
                || map.contains_key("unevaluatedProperties");
            if speaks || self.evaluated(beside, name)? {
                return Some(true);
            }
        }
        Some(false)
    }
}

/// Whether a value of this type may come.
fn is(map: &Map<String, Json>, wanted: &str) -> bool {
    match map.get("type") {
        Some(Json::String(kind)) => kind == wanted,
        Some(Json::Array(kinds)) => kinds.iter().any(|kind| kind == wanted),
        Some(Json::Null | Json::Bool(_) | Json::Number(_) | Json::Object(_)) | None => true,
    }
}

/// What `properties` and `patternProperties` say of a member.
fn named<'s>(map: &'s Map<String, Json>, name: &str) -> Vec<&'s Json> {
    let own = map.get("properties").and_then(Json::as_object).and_then(|all| all.get(name));
    let patterns = map.get("patternProperties").and_then(Json::as_object).into_iter().flatten();
    let fits = |pattern: &str| {
        let made = regex::RegexBuilder::new(pattern).size_limit(super::MAX_PATTERN).build();
        made.is_ok_and(|pattern| pattern.is_match(name))
    };
    own.into_iter().chain(patterns.filter(|(pattern, _)| fits(pattern)).map(|(_, part)| part)).collect()
}

struct PathLister<'s> {
    root: &'s Json,
    list: Vec<String>,
    left: u32,
}

impl<'s> PathLister<'s> {
    fn below(&mut self, schema: &'s Json, at: &str, depth: usize) {
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        let Json::Object(map) = schema else { return };
        let dot = if at.is_empty() { "" } else { "." };
        for (name, part) in map.get("properties").and_then(Json::as_object).into_iter().flatten() {
            self.note(format!("{at}{dot}{name}"), part, depth);
        }
        if let Some(items) = map.get("items").filter(|_| !at.is_empty()) {
            self.note(format!("{at}[]"), items, depth);
        }
        let root = self.root;
        let branches = IN_PLACE_LISTS.iter().filter_map(|key| map.get(*key)).filter_map(Json::as_array).flatten();
        let target = map.get("$ref").and_then(Json::as_str).and_then(|target| lookup(root, target));
        for beside in branches.chain(target) {
            self.below(beside, at, depth);
        }
    }

    fn note(&mut self, way: String, part: &'s Json, depth: usize) {
        if let Some(depth) = depth.checked_sub(1) {
            self.below(part, &way, depth);
        }
        if self.list.len() < MAX_KNOWN && !self.list.contains(&way) {
            self.list.push(way);
        }
    }
}
