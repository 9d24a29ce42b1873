use serde_json::json;

use super::*;

fn schema(value: impl std::borrow::Borrow<Json>) -> Schema {
    Schema::new(value.borrow(), Author::Policy).unwrap_or_else(|flaws| panic!("{flaws:?}"))
}

fn fits(schema: &Schema, args: impl std::borrow::Borrow<Json>) -> bool {
    schema.check(args.borrow()).is_ok()
}

#[test]
fn plain_objects_are_closed_at_every_depth() {
    let one = schema(json!({"properties": {
        "a": {"type": "object", "properties": {"x": {}}},
        "b": {"type": "array", "items": {"type": "object", "properties": {"y": {}}}},
        "c": {"type": "object"},
        "d": {"type": "object", "additionalProperties": {"type": "integer"}},
        "e": {"type": "object", "additionalProperties": true},
        "f": {},
    }}));
    for (args, good) in [
        (json!({"a": {"x": 1}, "b": [{"y": 1}], "c": {}, "d": {"n": 1}, "e": {"any": 1}, "f": {"any": 1}}), true),
        (json!({"g": 1}), false),
        (json!({"a": {"x": 1, "z": 1}}), false),
        (json!({"b": [{"y": 1}, {"z": 1}]}), false),
        (json!({"c": {"z": 1}}), false),
        (json!({"d": {"n": "1"}}), false),
    ] {
        assert_eq!(fits(&one, args.clone()), good, "{args}");
    }
}

#[test]
fn joined_objects_are_closed_above_their_parts() {
    let one = schema(json!({
        "allOf": [{"properties": {"a": {}}}, {"$ref": "#/$defs/b"}],
        "properties": {"c": {}},
        "$defs": {"b": {"properties": {"b": {"type": "object", "properties": {"x": {}}}}}},
    }));
    assert!(fits(&one, json!({"a": 1, "b": {"x": 1}, "c": 1})));
    assert!(!fits(&one, json!({"a": 1, "z": 1})));
    assert!(!fits(&one, json!({"b": {"z": 1}})));
}

#[test]
fn branches_are_closed_one_by_one_so_that_none_lets_in_what_another_names() {
    for word in ["anyOf", "oneOf"] {
        let one = schema(json!({ word: [
            {"properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}, "required": ["kind", "x"]},
            {"properties": {"kind": {"const": "b"}, "y": {"type": "integer"}}, "required": ["kind"]},
        ]}));
        assert!(fits(&one, json!({"kind": "a", "x": 1})), "{word}");
        assert!(fits(&one, json!({"kind": "b", "y": 1})), "{word}");
        // `y` is known to the schema, but not to the branch that this value is: nothing would have judged it.
        assert!(!fits(&one, json!({"kind": "a", "x": 1, "y": "anything"})), "{word}");
    }
}

#[test]
fn closing_never_makes_a_value_fit_that_did_not() {
    // As written, this fits two branches and so none; with both closed it would fit one.
    let written = json!({"properties": {"v": {"oneOf": [
        {"type": "object", "properties": {"a": {}, "b": {}}},
        {"type": "object", "properties": {"a": {}}},
    ]}}});
    let one = schema(written);
    assert!(!fits(&one, json!({"v": {"a": 1, "b": 1}})));
    assert!(!fits(&one, json!({"v": {"a": 1}})));
}

#[test]
fn generated_schemas_of_other_drafts_are_read() {
    // As pydantic, zod and typescript write them.
    let one = schema(json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://example.org/x",
        "type": "object",
        "properties": {
            "pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": false},
            "who": {"anyOf": [{"$ref": "#/definitions/User"}, {"type": "null"}]},
            "also": {"allOf": [{"$ref": "#/definitions/User"}]},
        },
        "dependencies": {"who": ["pair"]},
        "definitions": {"User": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
    }));
    for (args, good) in [
        (json!({"pair": ["a", 1], "who": {"name": "x"}}), true),
        (json!({"pair": ["a", 1], "who": null}), true),
        (json!({"pair": ["a", 1, 2]}), false),
        (json!({"pair": [1, "a"]}), false),
        (json!({"who": null}), false),
        (json!({"pair": ["a", 1], "who": {"name": "x", "admin": true}}), false),
        (json!({"also": {"name": "x"}}), true),
        (json!({"also": {"name": "x", "admin": true}}), false),
    ] {
        assert_eq!(fits(&one, args.clone()), good, "{args}");
    }
}

#[test]
fn a_schema_that_refers_to_itself_below_a_property_is_held_at_every_depth() {
    let one = schema(json!({
        "properties": {"tree": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}},
    }));
    assert!(fits(&one, json!({"tree": {"name": "a", "children": [{"name": "b", "children": []}]}})));
    assert!(!fits(&one, json!({"tree": {"name": "a", "children": [{"name": "b", "evil": 1}]}})));
    assert!(!fits(&one, json!({"tree": {"name": "a", "children": [{"name": 7}]}})));
}

#[test]
fn gw_05_no_value_makes_a_check_long() {
    // Each level has two branches that look alike until their end: a naive validator takes 2^60 steps.
    let one = schema(json!({
        "properties": {"e": {"$ref": "#/$defs/e"}},
        "$defs": {"e": {"anyOf": [
            {"type": "object", "properties": {"next": {"$ref": "#/$defs/e"}, "a": {"const": 1}}, "required": ["a"]},
            {"type": "object", "properties": {"next": {"$ref": "#/$defs/e"}, "b": {"const": 1}}, "required": ["b"]},
        ]}},
    }));
    let mut value = json!({"c": 1});
    for _ in 0..60 {
        value = json!({"next": value});
    }
    let start = std::time::Instant::now();
    let misfits = one.check(&json!({"e": value})).unwrap_err();
    assert_eq!(misfits.first().map(|misfit| misfit.id), Some("tools.schema/work"));
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    assert!(fits(&one, json!({"e": {"a": 1, "next": {"b": 1}}})));
    // Catastrophic for an engine that backtracks.
    let one = schema(json!({"properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}));
    let start = std::time::Instant::now();
    assert!(!fits(&one, json!({"x": format!("{}b", "a".repeat(100_000))})));
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

#[test]
fn a_dollar_is_the_end_of_the_text_and_not_a_last_line_break() {
    let one = schema(json!({"properties": {"x": {"pattern": "^[0-9]{5}$"}}}));
    assert!(fits(&one, json!({"x": "12345"})));
    assert!(!fits(&one, json!({"x": "12345\n"})));
}

#[test]
fn gw_04_bounds_are_exact() {
    let one =
        schema(json!({"properties": {"n": {"type": "number", "maximum": 0.3, "minimum": -9_007_199_254_740_992i64}}}));
    assert!(fits(&one, json!({"n": 0.3})));
    assert!(!fits(&one, json!({"n": 0.300_000_000_000_000_04})));
    assert!(fits(&one, json!({"n": -9_007_199_254_740_992i64})));
    let one = schema(json!({"properties": {"n": {"type": "number", "multipleOf": 0.01}}}));
    assert!(fits(&one, json!({"n": 19.99})) && fits(&one, json!({"n": 0.07})));
    assert!(!fits(&one, json!({"n": 19.995})));
}

#[test]
fn hostile_schemas_are_refused_and_cost_nothing() {
    let refused = |value: Json| Schema::new(&value, Author::Tool).unwrap_err().first().map(|flaw| flaw.id);
    let mut deep = json!({});
    for _ in 0..100 {
        deep = json!({"properties": {"x": deep}});
    }
    assert_eq!(refused(deep), Some("tools.schema/size"));
    let chain: serde_json::Map<String, Json> = (0..5000)
        .map(|n| (format!("d{n}"), json!({"$ref": format!("#/$defs/d{}", n + 1)})))
        .chain([("d5000".to_owned(), json!({}))])
        .collect();
    assert_eq!(refused(json!({"$ref": "#/$defs/d0", "$defs": chain})), Some("tools.schema/endless"));
    let wide: serde_json::Map<String, Json> = (0..30_000).map(|n| (format!("p{n}"), json!({}))).collect();
    assert_eq!(refused(json!({"properties": wide})), Some("tools.schema/size"));
    assert_eq!(refused(json!({"properties": {"x": {"pattern": "a{60000}{60000}"}}})), Some("tools.schema/pattern"));
    assert_eq!(refused(json!({"properties": {"x": {"$id": "http://evil.example/x"}}})), Some("tools.schema/reference"));
    assert_eq!(refused(json!({"$dynamicRef": "#x"})), Some("tools.schema/reference"));
    assert_eq!(refused(json!({"type": ["object", "null"]})), Some("tools.schema/not-object"));
    // A property may be called as a keyword is.
    assert!(
        Schema::new(&json!({"properties": {"$ref": {"type": "string"}, "$id": {}, "pattern": {}}}), Author::Tool)
            .is_ok()
    );
}

#[test]
fn doubling_schemas_are_bounded() {
    let defs: serde_json::Map<String, Json> = (0..24)
        .map(|n| {
            (
                format!("d{n}"),
                json!({"anyOf": [{"$ref": format!("#/$defs/d{}", n + 1)}, {"$ref": format!("#/$defs/d{}", n + 1)}]}),
            )
        })
        .chain([("d24".to_owned(), json!({"type": "string"}))])
        .collect();
    let one = Schema::new(&json!({"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs}), Author::Tool).unwrap();
    let start = std::time::Instant::now();
    assert!(one.check(&json!({"x": 1})).is_err());
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

#[test]
fn a_pool_holds_equal_schemas_once() {
    let pool = Pool::default();
    let one = pool.get(&json!({"type": "object", "properties": {"a": {}}}), Author::Policy).unwrap();
    let two = pool.get(&json!({"properties": {"a": {}}, "type": "object"}), Author::Policy).unwrap();
    assert!(Arc::ptr_eq(&one, &two));
}

#[test]
fn formats_of_a_policy_must_exist_and_are_checked() {
    let one = schema(json!({"properties": {"at": {"type": "string", "format": "date-time"}}}));
    assert!(!fits(&one, json!({"at": "yesterday"})));
    let odd = json!({"properties": {"at": {"type": "string", "format": "datetiem"}}});
    assert!(Schema::new(&odd, Author::Policy).is_err());
    assert!(Schema::new(&odd, Author::Tool).unwrap().build().is_ok());
}

#[test]
fn a_word_that_would_be_passed_over_is_a_mistake_in_a_policy_and_none_in_a_tool() {
    for (value, at, near) in [
        (json!({"properties": {"n": {"maximun": 5}}}), "/properties/n/maximun", "`maximum`"),
        (json!({"items": {}, "proprties": {}}), "/proprties", "`properties`"),
        (json!({"file": "s.json", "type": "object"}), "/file", "a file"),
        (json!({"$defs": {"d": {"nullable": true}}}), "/$defs/d/nullable", "`x-`"),
        (json!({"properties": {"n": {"format": "emial"}}}), "/properties/n/format", "`email`"),
        (json!({"properties": {"n": {"format": "int64"}}}), "/properties/n/format", "`pattern`"),
    ] {
        let flaws = Schema::new(&value, Author::Policy).unwrap_err();
        let [flaw] = flaws.as_slice() else { panic!("{flaws:?}") };
        assert_eq!((flaw.id, flaw.pointer.as_str()), ("tools.schema/keyword", at));
        assert!(flaw.fix.contains(near), "{}", flaw.fix);
        assert!(Schema::new(&value, Author::Tool).is_ok(), "{value}");
    }
    // Names of properties, values and notes are no keywords.
    let fine = json!({
        "x-note": 1, "$comment": "c", "title": "t", "properties": {"maximun": {"enum": [{"file": 1}], "default": {"a": 1}}},
    });
    assert!(Schema::new(&fine, Author::Policy).is_ok());
}

#[test]
fn every_format_on_the_list_is_one_that_the_validator_checks() {
    for format in survey::FORMATS {
        let one = schema(json!({"properties": {"a": {"type": "string", "format": format}}}));
        assert!(!fits(&one, json!({"a": "\u{1} no {"})), "{format}");
    }
}
