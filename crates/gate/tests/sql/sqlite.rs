//! What a real SQLite does: its authorizer says what a statement touches, its content says what it changed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

use crate::corpus::{HOSTILE, TABLES, allowed, read};

const SCHEMA: &str = "
    CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, secret TEXT);
    INSERT INTO customers VALUES (1, 'Anna', 'alpha'), (2, 'Bert', 'beta'), (3, 'Ünïcode', 'gamma');
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, total INTEGER, status TEXT, note TEXT, data TEXT, placed TEXT);
    INSERT INTO orders VALUES
        (1, 1, 12, 'paid', 'x', '{\"a\": 1, \"b\": [2], \"tags\": [\"t\", \"u\"]}', '2024-01-15'),
        (2, 1, 20, 'open', NULL, '{\"a\": 2, \"tags\": []}', '2024-02-15'),
        (3, 2, 5, 'paid', 'y', '{}', '2024-02-20'),
        (4, NULL, 7, 'void', NULL, NULL, NULL);
    CREATE INDEX by_customer ON orders (customer_id);
    CREATE TABLE categories (id INTEGER PRIMARY KEY, parent_id INTEGER);
    INSERT INTO categories VALUES (1, NULL), (2, 1), (3, 2);
    CREATE TABLE secrets (id INTEGER PRIMARY KEY, token TEXT);
    INSERT INTO secrets VALUES (1, 'canary');
    CREATE VIEW all_secrets AS SELECT * FROM secrets;";

/// What a statement touched that a reader of the listed tables does not.
type Accesses = Arc<Mutex<BTreeSet<String>>>;

fn database() -> (Connection, Accesses) {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(SCHEMA).unwrap();
    connection.create_scalar_function("wipe_orders", 0, FunctionFlags::SQLITE_UTF8, |_| Ok(1)).unwrap();
    let seen = Accesses::default();
    (connection, seen)
}

/// Notes all that is beyond reading listed columns, and forbids nothing but other files.
#[expect(clippy::wildcard_enum_match_arm, reason = "whatever else it does is noted")]
fn watch(connection: &mut Connection, seen: &Accesses, columns: bool) {
    let notes = Arc::clone(seen);
    let hook = move |context: AuthContext<'_>| {
        let (note, answer) = match context.action {
            AuthAction::Select | AuthAction::Recursive => (None, Authorization::Allow),
            AuthAction::Read { table_name, column_name } => {
                (unlisted(table_name, column_name, columns), Authorization::Allow)
            }
            AuthAction::Function { function_name } => {
                let acts = ["load_extension", "wipe_orders", "readfile", "writefile", "fts3_tokenizer"];
                (acts.contains(&function_name).then(|| format!("calls {function_name}")), Authorization::Allow)
            }
            AuthAction::Attach { .. } => (Some("attaches a file".to_owned()), Authorization::Deny),
            action => (Some(format!("{action:?}")), Authorization::Allow),
        };
        notes.lock().unwrap().extend(note);
        answer
    };
    connection.authorizer(Some(hook)).unwrap();
}

fn unlisted(table: &str, column: &str, columns: bool) -> Option<String> {
    let Some((_, listed)) = TABLES.iter().find(|(name, _)| *name == table) else {
        // What stands for a table: `json_each`.
        return (!["json_each", "json_tree"].contains(&table)).then(|| format!("reads {table}.{column}"));
    };
    let fits = !columns || column.is_empty() || listed.contains(&column);
    (!fits).then(|| format!("reads {table}.{column}"))
}

fn rows(connection: &Connection, sql: &str) -> Result<Vec<String>, rusqlite::Error> {
    let mut statement = connection.prepare(sql)?;
    let count = statement.column_count();
    let mut rows = statement.query([])?;
    let mut out = Vec::new();
    while let Some(row) = rows.next()? {
        let values: Result<Vec<String>, _> =
            (0..count).map(|at| row.get_ref(at).map(|value| format!("{value:?}"))).collect();
        out.push(values?.join(" | "));
    }
    Ok(out)
}

/// Everything in the main database, and the settings that a statement could change.
fn state(connection: &mut Connection) -> Vec<String> {
    connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>).unwrap();
    let mut all = rows(connection, "SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2").unwrap();
    let tables: Vec<String> =
        rows(connection, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1")
            .unwrap();
    for table in tables {
        let name = table.trim_start_matches("Text(").to_owned();
        let name: String = decoded(&name);
        all.extend(rows(connection, &format!("SELECT * FROM \"{name}\" ORDER BY 1")).unwrap());
    }
    for pragma in ["user_version", "application_id", "writable_schema", "database_list", "foreign_keys"] {
        all.extend(rows(connection, &format!("PRAGMA {pragma}")).unwrap());
    }
    all.push(format!("{}", connection.is_autocommit()));
    all
}

/// `[99, 117])` as text: how a text value is shown.
fn decoded(shown: &str) -> String {
    let numbers = shown.trim_matches(|c| "[])".contains(c)).split(", ").filter_map(|n| n.parse::<u8>().ok());
    String::from_utf8(numbers.collect()).unwrap()
}

#[test]
fn what_passes_reads_listed_columns_changes_nothing_and_gives_the_same_rows() {
    for columns in [true, false] {
        for (statement, printed) in allowed("sqlite", columns) {
            let (mut connection, seen) = database();
            let before = state(&mut connection);
            let original = rows(&connection, &statement.sql).unwrap_or_else(|e| panic!("{}: {e}", statement.sql));
            watch(&mut connection, &seen, columns);
            let mut answer = rows(&connection, &printed).unwrap_or_else(|e| panic!("{printed}: {e}"));
            let beyond = seen.lock().unwrap().clone();
            assert!(beyond.is_empty(), "{printed}: {beyond:?}");
            assert_eq!(state(&mut connection), before, "{printed}");
            assert!(connection.prepare(&printed).unwrap().readonly(), "{printed}");
            let mut original = original;
            original.sort();
            answer.sort();
            assert!(!statement.rows || original == answer, "{}\n{printed}\n{original:?}\n{answer:?}", statement.sql);
        }
    }
}

#[test]
fn most_of_the_hostile_half_is_as_bad_as_it_says() {
    let (mut proven, mut not) = (0, Vec::new());
    for statement in read(HOSTILE).iter().filter(|s| s.is_for("sqlite")) {
        let (mut connection, seen) = database();
        let before = state(&mut connection);
        watch(&mut connection, &seen, statement.columns);
        let ran = connection.execute_batch(&statement.sql);
        let asked = rows(&connection, &statement.sql);
        let beyond = seen.lock().unwrap().clone();
        if !beyond.is_empty() || state(&mut connection) != before {
            proven += 1;
        } else {
            not.push(format!("  {:?}: {ran:?} {}", statement.sql, asked.is_ok()));
        }
    }
    println!(
        "SQLite: {proven} proven, {} not (they do not run here, or only hide others):\n{}",
        not.len(),
        not.join("\n")
    );
    assert!(proven >= 60, "only {proven} are proven");
}

/// What a statement touches beyond the listed tables and columns, and whether it can be prepared at all.
pub(crate) fn beyond(sql: &str, columns: bool) -> (BTreeSet<String>, bool) {
    thread_local! {
        static DATABASE: std::cell::RefCell<(Connection, Accesses)> = std::cell::RefCell::new(database());
    }
    DATABASE.with_borrow_mut(|(connection, seen)| {
        seen.lock().unwrap().clear();
        watch(connection, seen, columns);
        let prepared = connection.prepare(sql).is_ok();
        (seen.lock().unwrap().clone(), prepared)
    })
}
