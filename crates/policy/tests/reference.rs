//! The table of rows, and what is made of it.

use std::path::{Path, PathBuf};

use policy::rows::ROWS;
use policy::{Caller, ClauseId, Format, Layers, Loaded, Mistakes};

fn load(text: &str) -> Result<Loaded, Mistakes> {
    let caller = Caller {
        dir: PathBuf::from("/srv/work"),
        home: Some(PathBuf::from("/home/ann")),
        profiles: vec!["default".to_owned()],
    };
    let mut layers = Layers::new(caller);
    let none = |_: &Path| Err("no such file".to_owned());
    layers.document("p.toml", &format!("version = 1\n{text}\n"), Format::Toml, Path::new("/srv"), &none);
    layers.finish()
}

#[test]
fn every_clause_has_its_row_in_order() {
    let rows: Vec<ClauseId> = ROWS.iter().map(|row| row.clause).collect();
    assert_eq!(rows, ClauseId::ALL);
}

#[test]
fn valid_examples_are_read_and_demand_something() {
    for row in ROWS {
        let loaded = load(row.valid).unwrap_or_else(|mistakes| panic!("{}: {mistakes}", row.clause));
        // What switches a demand off has no value to show.
        let off = matches!(row.valid, "fs.noexec = false" | "fs.protect = false");
        assert_eq!(loaded.policy.clause(row.clause).is_none(), off, "{}", row.clause);
        assert!(
            loaded.origins.of(row.clause).starts_with("p.toml:"),
            "{}: {}",
            row.clause,
            loaded.origins.of(row.clause)
        );
    }
}

#[test]
fn invalid_examples_are_refused_at_their_clause_with_all_four_parts() {
    for row in ROWS {
        let mistakes = load(row.invalid).expect_err(row.clause.path());
        for mistake in &mistakes.list {
            assert_eq!(mistake.clause, Some(row.clause), "{mistake}");
            assert!(!mistake.what.is_empty() && !mistake.why.is_empty() && !mistake.fix.is_empty(), "{mistake}");
            assert_eq!(mistake.at.name, "p.toml");
            assert!(mistake.at.line_column.is_some_and(|(line, _)| line > 1), "{mistake}");
        }
    }
}

#[test]
fn the_page_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/policy.md");
    let page = policy::reference::page();
    if std::env::var_os("FUMEHOOD_WRITE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/reference/policy.md is stale: FUMEHOOD_WRITE=1 cargo test -p fumehood-policy --test reference"
    );
}

#[test]
fn the_schema_knows_every_clause_and_nothing_else() {
    let schema = policy::schema::schema();
    for row in ROWS {
        let path = row.clause.path().replace('.', "/properties/");
        assert!(schema.pointer(&format!("/properties/{path}")).is_some(), "{}", row.clause);
    }
    assert_eq!(schema["additionalProperties"], false);
}
