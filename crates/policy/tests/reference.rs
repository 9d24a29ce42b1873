//! The table of rows, and what is made of it.

use std::path::{Path, PathBuf};

use policy::rows::ROWS;
use policy::{Caller, ClauseId, Diagnostics, Format, Layers, Loaded};

fn load(text: &str) -> Result<Loaded, Diagnostics> {
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
        assert_eq!(loaded.policy.demand(row.clause).is_none(), off, "{}", row.clause);
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
fn the_pages_are_fresh() -> std::io::Result<()> {
    fresh("policy.md", &policy::reference::page())?;
    fresh("tools.md", &policy::tool_rows::page())
}

fn fresh(name: &str, page: &str) -> std::io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("FUMEHOOD_WRITE").is_some() {
        std::fs::write(&path, page)?;
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/reference/{name} is stale: FUMEHOOD_WRITE=1 cargo test -p fumehood-policy --test reference"
    );
    Ok(())
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

/// A key that the reader does not know is refused with the list of those that it does: compared with the rows.
#[test]
fn the_rows_of_tools_are_the_keys_that_are_read() {
    use policy::tool_rows::{KEYS, KINDS};
    let table = |table: &str, unknown: &str| match table {
        "tools" => format!("tools = {{ {unknown} }}"),
        "tools.tool" => format!("tools.tool = [{{ name = 'a', {unknown} }}]"),
        "tools.tool.rules" | "tools.tool.examples" => {
            let key = table.rsplit('.').next().unwrap();
            format!("tools.tool = [{{ name = 'a', {key} = [{{ {unknown} }}] }}]")
        }
        "tools.tool.rate" | "tools.tool.budget" | "tools.tool.result" | "tools.tool.approval" => {
            let key = table.rsplit('.').next().unwrap();
            format!("tools.tool = [{{ name = 'a', {key} = {{ {unknown} }} }}]")
        }
        "mcp" => format!("mcp = {{ {unknown} }}"),
        "mcp.servers" => format!("mcp.servers.a = {{ {unknown} }}"),
        kind => format!("tools.tool = [{{ name = 'a', guards.x = {{ kind = '{kind}', {unknown} }} }}]"),
    };
    let mut tables: Vec<&str> = KEYS.iter().map(|key| key.table).collect();
    tables.dedup();
    assert_eq!(tables.len(), 10 + KINDS.len());
    for name in tables {
        let mistakes = load(&table(name, "qqqqqqqq = 1")).unwrap_err();
        let unknown = mistakes.list.iter().find(|mistake| mistake.id == "key/unknown").unwrap();
        let keys = unknown.fix.strip_prefix("keys here are ").unwrap();
        let read: std::collections::BTreeSet<&str> = keys.split(", ").map(|key| key.trim_matches('`')).collect();
        let rows = KEYS.iter().filter(|key| key.table == name).map(|key| key.name);
        let kind = KINDS.iter().any(|(kind, _)| *kind == name).then_some("kind");
        assert_eq!(rows.chain(kind).collect::<std::collections::BTreeSet<_>>(), read, "{name}");
    }
}
