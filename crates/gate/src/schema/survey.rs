//! One walk over a schema before anything is built of it: its size, its references, its patterns.

use std::collections::{BTreeMap, BTreeSet};

use policy::diagnostic::{did_you_mean, quote};
use serde_json::{Map, Value as Json};

use super::{Author, SchemaError};

pub(super) const MAX_DEPTH: usize = 64;
const MAX_NODES: usize = 20_000;
/// References that follow one another about the same value.
const MAX_CHAIN: usize = 64;

/// Keywords whose value is a schema about the same value.
pub(super) const IN_PLACE: &[&str] = &["not", "if", "then", "else"];
/// Keywords whose value is a list of schemas about the same value.
pub(super) const IN_PLACE_LISTS: &[&str] = &["allOf", "anyOf", "oneOf"];
/// Keywords whose value is a schema about parts of the value.
pub(super) const PARTS: &[&str] =
    &["items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "contains", "propertyNames"];
/// Keywords whose value is a table of schemas.
const TABLES: &[&str] = &["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"];

/// The other keywords that a check obeys, or that say something to people only.
const OTHER: &[&str] = &[
    "$anchor",
    "$comment",
    "$id",
    "$ref",
    "$schema",
    "const",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "default",
    "dependentRequired",
    "deprecated",
    "description",
    "enum",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "prefixItems",
    "readOnly",
    "required",
    "title",
    "type",
    "uniqueItems",
    "writeOnly",
];
/// The formats that the validator knows.
pub(super) const FORMATS: &[&str] = &[
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "iri",
    "iri-reference",
    "json-pointer",
    "regex",
    "relative-json-pointer",
    "time",
    "uri",
    "uri-reference",
    "uri-template",
    "uuid",
];

/// What a walk found.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) flaws: Vec<SchemaError>,
    /// Whether there are references.
    pub(super) refs: bool,
    /// Pointers to patterns without anchors.
    pub(super) loose: Vec<String>,
    nodes: usize,
    patterns: BTreeSet<String>,
    /// Whether words that say nothing are mistakes: in what the policy wrote, and not in what tools bring.
    strict: bool,
}

/// Every schema directly below one, with its pointer from there.
pub(super) fn children(map: &Map<String, Json>) -> Vec<(String, &Json)> {
    let mut list = Vec::new();
    for (key, value) in map {
        let key = key.as_str();
        if IN_PLACE.contains(&key) || PARTS.contains(&key) {
            list.push((format!("/{key}"), value));
        } else if IN_PLACE_LISTS.contains(&key) || key == "prefixItems" {
            let items = value.as_array().into_iter().flatten().enumerate();
            list.extend(items.map(|(index, item)| (format!("/{key}/{index}"), item)));
        } else if TABLES.contains(&key) {
            let entries = value.as_object().into_iter().flatten();
            list.extend(entries.map(|(name, item)| (format!("/{key}/{}", escaped(name)), item)));
        }
    }
    list
}

/// The same, to change them.
pub(super) fn each_child_mut(map: &mut Map<String, Json>, change: &mut dyn FnMut(&mut Json)) {
    for (key, value) in map.iter_mut() {
        let key = key.as_str();
        if IN_PLACE.contains(&key) || PARTS.contains(&key) {
            change(value);
        } else if IN_PLACE_LISTS.contains(&key) || key == "prefixItems" {
            value.as_array_mut().into_iter().flatten().for_each(&mut *change);
        } else if TABLES.contains(&key) {
            value.as_object_mut().into_iter().flatten().for_each(|(_, item)| change(item));
        }
    }
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Looks through a schema.
pub(super) fn survey(schema: &Json, author: Author) -> Survey {
    let mut survey = Survey { strict: author == Author::Policy, ..Survey::default() };
    if schema.get("type").is_some_and(|kind| kind != "object") {
        let why = "arguments are an object";
        survey.flaw(
            "tools.schema/not-object",
            "/type",
            "the schema is not about an object",
            why,
            "write \"type\": \"object\"",
        );
    }
    survey.walk(schema, schema, "", 0);
    if survey.flaws.is_empty()
        && let Some(pointer) = endless(schema)
    {
        let what = "the schema refers to itself about the same value";
        survey.flaw(
            "tools.schema/endless",
            &pointer,
            what,
            "no check of it would end",
            "refer to it below `properties` or `items`",
        );
    }
    survey
}

impl Survey {
    fn flaw(&mut self, id: &'static str, pointer: &str, what: impl Into<String>, why: impl Into<String>, fix: &str) {
        let (what, why) = (what.into(), why.into());
        self.flaws.push(SchemaError { id, pointer: pointer.to_owned(), what, why, fix: fix.to_owned() });
    }

    fn walk(&mut self, root: &Json, schema: &Json, at: &str, depth: usize) {
        self.nodes += 1;
        if depth > MAX_DEPTH || self.nodes > MAX_NODES {
            if !self.flaws.iter().any(|flaw| flaw.id == "tools.schema/size") {
                let why = "a schema has at most 20000 parts, 64 deep";
                self.flaw("tools.schema/size", at, "the schema is too large", why, "divide the tool");
            }
            return;
        }
        let Json::Object(map) = schema else { return };
        self.references(root, map, at);
        if self.strict {
            self.check_keywords(map, at);
        }
        if let Some(Json::String(pattern)) = map.get("pattern") {
            self.pattern(pattern, &format!("{at}/pattern"));
        }
        for name in map.get("patternProperties").and_then(Json::as_object).into_iter().flat_map(Map::keys) {
            self.pattern(name, &format!("{at}/patternProperties/{}", escaped(name)));
        }
        for (pointer, child) in children(map) {
            self.walk(root, child, &format!("{at}{pointer}"), depth + 1);
        }
    }

    fn references(&mut self, root: &Json, map: &Map<String, Json>, at: &str) {
        for key in ["$dynamicRef", "$recursiveRef", "$dynamicAnchor", "$recursiveAnchor", "$id", "id", "$vocabulary"] {
            // `id` was the name of a schema in draft 4 only; as anything but text it is no keyword.
            if map
                .get(key)
                .is_some_and(|value| key != "id" || value.as_str().is_some_and(|id| id.contains([':', '/', '#'])))
            {
                let what = format!("the schema uses `{key}`");
                let why = "what it refers to would depend on where it is read from";
                self.flaw(
                    "tools.schema/reference",
                    &format!("{at}/{key}"),
                    what,
                    why,
                    "refer by `$ref` and a pointer: \"#/$defs/name\"",
                );
            }
        }
        let Some(target) = map.get("$ref") else { return };
        self.refs = true;
        let pointer = format!("{at}/$ref");
        let Some(target) = target.as_str() else { return };
        if !target.starts_with('#') {
            let what = format!("the schema refers to {}", quote(target));
            let why = "nothing remote is read: what stands there could change, and asking for it tells others";
            self.flaw(
                "tools.schema/remote",
                &pointer,
                what,
                why,
                "copy it below `$defs` and refer by \"#/$defs/name\"",
            );
        } else if lookup(root, target).is_none() {
            let what = format!("the schema refers to {}", quote(target));
            self.flaw(
                "tools.schema/reference",
                &pointer,
                what,
                "nothing stands there",
                "a reference is \"#\" or a pointer: \"#/$defs/name\"",
            );
        }
    }

    /// JSON Schema passes over words that it does not know: a misspelt bound would hold nothing.
    fn check_keywords(&mut self, map: &Map<String, Json>, at: &str) {
        let groups = [IN_PLACE, IN_PLACE_LISTS, PARTS, TABLES, OTHER];
        let known = |key: &str| groups.iter().any(|group| group.contains(&key));
        for key in map.keys().filter(|key| !known(key) && !key.starts_with("x-")) {
            let fix = match did_you_mean(key, groups.iter().copied().flatten().copied()) {
                Some(near) => format!("did you mean {}?", quote(near)),
                None if key == "file" => "a schema in a file is { file = \"x.json\" } and nothing else".to_owned(),
                None => "remove it; what is for people only begins with `x-`".to_owned(),
            };
            let what = format!("{} is no keyword of JSON Schema", quote(key));
            let why = "it would be passed over, and nothing be checked";
            self.flaw("tools.schema/keyword", &format!("{at}/{}", escaped(key)), what, why, &fix);
        }
        let Some(Json::String(format)) = map.get("format") else { return };
        if !FORMATS.contains(&format.as_str()) {
            let fix = match did_you_mean(format, FORMATS.iter().copied()) {
                Some(near) => format!("did you mean {}?", quote(near)),
                None => format!("one of {}, or a `pattern`", quote(&FORMATS.join(", "))),
            };
            let what = format!("{} is no format that is checked", quote(format));
            self.flaw("tools.schema/keyword", &format!("{at}/format"), what, "any text would fit it", &fix);
        }
    }

    fn pattern(&mut self, pattern: &str, at: &str) {
        let anchored = ["^", "\\A"].iter().any(|start| pattern.starts_with(start))
            && ["$", "\\z"].iter().any(|end| pattern.ends_with(end));
        // `^a|b$` is anchored at neither end of either.
        if !anchored || pattern.contains('|') && !pattern.contains('(') {
            self.loose.push(at.to_owned());
        }
        if !self.patterns.insert(pattern.to_owned()) {
            return;
        }
        if let Err(error) = jsonschema_pattern(pattern) {
            let what = format!("{} is not a pattern", quote(pattern));
            self.flaw("tools.schema/pattern", at, what, error, "look-around and back references do not exist here");
        }
    }
}

/// Whether a pattern can be read by the linear engine. Cheap: it is parsed, and compiled at its first use.
fn jsonschema_pattern(pattern: &str) -> Result<(), String> {
    if pattern.len() > 4096 {
        return Err("a pattern has at most 4096 bytes".to_owned());
    }
    regex::RegexBuilder::new(pattern).size_limit(super::MAX_PATTERN).build().map(|_| ()).map_err(|error| {
        error.to_string().lines().last().unwrap_or_default().trim().trim_start_matches("error: ").to_owned()
    })
}

/// What a reference names.
pub(super) fn lookup<'s>(root: &'s Json, reference: &str) -> Option<&'s Json> {
    let pointer = reference.strip_prefix('#')?;
    if pointer.is_empty() {
        return Some(root);
    }
    // A pointer in a fragment is percent-encoded; `%` in names of definitions is refused rather than guessed at.
    if pointer.contains('%') { None } else { root.pointer(pointer) }
}

/// A reference that leads back to itself without going into the value.
fn endless(root: &Json) -> Option<String> {
    let mut state: BTreeMap<*const Json, bool> = BTreeMap::new();
    let mut all = vec![(String::new(), root)];
    let mut index = 0;
    while let Some((pointer, schema)) = all.get(index).cloned() {
        index += 1;
        if circles(root, schema, &mut state, 0) {
            return Some(pointer);
        }
        if let Json::Object(map) = schema {
            all.extend(children(map).into_iter().map(|(below, child)| (format!("{pointer}{below}"), child)));
        }
    }
    None
}

/// Depth first over schemas about the same value; `false` marks one on the way, `true` one that is done.
fn circles(root: &Json, schema: &Json, state: &mut BTreeMap<*const Json, bool>, depth: usize) -> bool {
    // A chain of references that long is no schema either, and whoever follows it needs as much of a stack.
    if depth > MAX_CHAIN {
        return true;
    }
    match state.get(&std::ptr::from_ref(schema)) {
        Some(done) => return !done,
        None => state.insert(std::ptr::from_ref(schema), false),
    };
    let found = in_place(root, schema).into_iter().any(|next| circles(root, next, state, depth + 1));
    state.insert(std::ptr::from_ref(schema), true);
    found
}

/// The schemas that speak of the same value as this one.
pub(super) fn in_place<'s>(root: &'s Json, schema: &'s Json) -> Vec<&'s Json> {
    let Json::Object(map) = schema else { return Vec::new() };
    let mut list: Vec<&Json> = IN_PLACE.iter().filter_map(|key| map.get(*key)).collect();
    list.extend(IN_PLACE_LISTS.iter().filter_map(|key| map.get(*key)).filter_map(Json::as_array).flatten());
    list.extend(map.get("dependentSchemas").and_then(Json::as_object).into_iter().flat_map(|all| all.values()));
    list.extend(map.get("$ref").and_then(Json::as_str).and_then(|target| lookup(root, target)));
    list
}
