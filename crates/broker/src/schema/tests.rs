use serde_json::json;

use super::*;

fn schema(value: Json) -> Schema {
    Schema::new(&value, Author::Policy).unwrap()
}

#[test]
#[ignore = "prints times"]
fn times() {
    let make = |n: usize| {
        json!({"type": "object", "required": ["to"], "properties": {
        "to": {"type": "string", "maxLength": 200}, "subject": {"type": "string", "pattern": "^[a-z]+$"}, format!("x{n}"): {"type": "integer", "minimum": 0, "maximum": n}}})
    };
    let start = std::time::Instant::now();
    let all: Vec<Schema> = (0..1000).map(|n| schema(make(n))).collect();
    println!("prepare {:?}", start.elapsed());
    let start = std::time::Instant::now();
    for schema in &all {
        schema.build().unwrap();
    }
    println!("build {:?}", start.elapsed());
    let start = std::time::Instant::now();
    for n in 0..1000 {
        survey::survey(&make(n));
    }
    println!("survey {:?}", start.elapsed());
    let start = std::time::Instant::now();
    for n in 0..1000 {
        tell::meta(&make(n));
    }
    println!("meta {:?}", start.elapsed());
    let args = json!({"to": "a", "subject": "abc"});
    let start = std::time::Instant::now();
    for schema in &all {
        schema.check(&args).unwrap();
    }
    println!("check {:?}", start.elapsed());
}
