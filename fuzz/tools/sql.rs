//! Statements: what passes the guard is printed in one form, and a real SQLite says that it reads listed columns only.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, Mutex};

use gate::guard::Compiled;
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use serde_json::Value as Json;

pub(crate) const TOKENS: &[&str] = &[
    "SELECT ",
    " FROM customers",
    " FROM secrets",
    " WHERE ",
    " UNION SELECT ",
    "WITH x AS (SELECT id FROM orders) ",
    " JOIN orders USING (id)",
    "(SELECT ",
    "customers.",
    "secret",
    " AS ",
    "*",
    "count(",
    "lower(",
    "json_each(",
    "pragma_table_info('secrets')",
    "; DROP TABLE orders",
    "--",
    "/*",
    "*/",
    "/*!",
    "'",
    "\"",
    "`",
    "[",
    "]",
    "$$",
    "E'\\'",
    "U&\"",
    "::text",
    " COLLATE ",
    " RETURNING ",
    " LIMIT 1",
    " ORDER BY 1",
    "INSERT INTO orders ",
    "DELETE FROM ",
    "PRAGMA ",
    "ATTACH ",
    "EXPLAIN ",
    " INTO x",
    " FOR UPDATE",
    "rowid",
    "sqlite_master",
    "((((((((",
    "))))))))",
    " NOT ",
    " - - -",
    " CASE WHEN ",
    " END",
    " OVER (",
    "\u{0}",
    "\u{a0}",
    "0x41",
    "1e999",
    " OR 1=1",
    " EXCEPT ",
    " IN customers",
];

const TABLES: &[(&str, &[&str])] = &[
    ("customers", &["id", "name"]),
    ("orders", &["id", "customer_id", "total", "status", "note", "data", "placed"]),
    ("categories", &["id", "parent_id"]),
];

struct Guards {
    name: &'static str,
    columns: bool,
    guard: Compiled,
}

static GUARDS: LazyLock<Vec<Guards>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for name in ["sqlite", "postgresql", "mysql", "generic"] {
        for columns in [true, false] {
            let tables: Vec<String> = TABLES.iter().map(|(table, _)| format!("{table:?}")).collect();
            let listed =
                TABLES.iter().flat_map(|(table, all)| all.iter().map(move |column| format!("\"{table}.{column}\"")));
            let listed = listed.collect::<Vec<_>>().join(", ");
            let listed = if columns { format!(", columns = [{listed}]") } else { String::new() };
            let text = format!("{{ kind = \"sql\", dialect = {name:?}, tables = [{}]{listed} }}", tables.join(", "));
            all.push(Guards { name, columns, guard: super::guard(&text) });
        }
    }
    all
});

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = super::corpus(include_str!("../../crates/gate/tests/sql/benign.toml"), &["sql"]);
    seeds.extend(super::corpus(include_str!("../../crates/gate/tests/sql/hostile.toml"), &["sql"]));
    seeds
}

pub(crate) fn read(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    for Guards { name, columns, guard } in GUARDS.iter() {
        let printed = match guard.pass(&Json::String(text.clone())) {
            Ok(printed) => printed,
            Err(blocked) => {
                assert!(blocked.id.starts_with("tools.guard/sql") && !blocked.what.is_empty(), "{blocked:?}");
                continue;
            }
        };
        let printed = printed.as_str().expect("a statement").to_owned();
        // Comparisons with ANY are spelled as the parser does not read them back.
        if !printed.contains(") ANY") && !printed.contains(") ALL") {
            let again = guard.pass(&Json::String(printed.clone()));
            assert_eq!(again, Ok(Json::String(printed.clone())), "{name}: {text:?}");
        }
        if *name == "sqlite" {
            let beyond = beyond(&printed, *columns);
            assert!(beyond.is_empty(), "{text:?}\n{printed}\n{beyond:?}");
        }
    }
}

const SCHEMA: &str = "
    CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, secret TEXT);
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, total INTEGER, status TEXT, note TEXT, data TEXT, placed TEXT);
    CREATE TABLE categories (id INTEGER PRIMARY KEY, parent_id INTEGER);
    CREATE TABLE secrets (id INTEGER PRIMARY KEY, token TEXT);
    CREATE VIEW all_secrets AS SELECT * FROM secrets;";

type Seen = Arc<Mutex<BTreeSet<String>>>;

/// What a statement would touch beyond listed tables and columns, as SQLite's own authorizer sees it.
fn beyond(sql: &str, columns: bool) -> BTreeSet<String> {
    thread_local! {
        static DATABASE: RefCell<(Connection, Seen)> = RefCell::new({
            let connection = Connection::open_in_memory().unwrap();
            connection.execute_batch(SCHEMA).unwrap();
            (connection, Seen::default())
        });
    }
    DATABASE.with_borrow_mut(|(connection, seen)| {
        seen.lock().unwrap().clear();
        let notes = Arc::clone(seen);
        connection
            .authorizer(Some(move |context: AuthContext<'_>| {
                let (note, answer) = touches(&context, columns);
                notes.lock().unwrap().extend(note);
                answer
            }))
            .unwrap();
        drop(connection.prepare(sql));
        seen.lock().unwrap().clone()
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "whatever else it does is noted")]
fn touches(context: &AuthContext<'_>, columns: bool) -> (Option<String>, Authorization) {
    match context.action {
        AuthAction::Select | AuthAction::Recursive => (None, Authorization::Allow),
        AuthAction::Function { function_name } => {
            let acts = ["load_extension", "readfile", "writefile", "fts3_tokenizer"];
            (acts.contains(&function_name).then(|| format!("calls {function_name}")), Authorization::Allow)
        }
        AuthAction::Read { table_name, column_name } => {
            let note = match TABLES.iter().find(|(name, _)| name.eq_ignore_ascii_case(table_name)) {
                None => !["json_each", "json_tree"].iter().any(|name| name.eq_ignore_ascii_case(table_name)),
                Some((_, listed)) => {
                    columns
                        && !column_name.is_empty()
                        && !listed.iter().any(|name| name.eq_ignore_ascii_case(column_name))
                }
            };
            (note.then(|| format!("reads {table_name}.{column_name}")), Authorization::Allow)
        }
        AuthAction::Attach { .. } => (Some("attaches a file".to_owned()), Authorization::Deny),
        action => (Some(format!("{action:?}")), Authorization::Allow),
    }
}
