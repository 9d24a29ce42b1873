//! The `sql` guard against its corpus, and against what a real SQLite does with what passes.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    reason = "a test fails loudly, and reads how long it may run"
)]

mod corpus;
mod random;
mod sqlite;

use corpus::{BENIGN, HOSTILE, allowed, compile, guard, judge, read};

const DATABASES: &[&str] = &["postgresql", "sqlite", "mysql", "generic"];

#[test]
fn the_corpus_has_at_least_three_hundred_statements_half_of_them_hostile() {
    let (benign, hostile) = (read(BENIGN).len(), read(HOSTILE).len());
    assert!(benign >= 150 && hostile >= 150, "{benign} benign, {hostile} hostile");
}

#[test]
fn no_hostile_statement_passes_in_any_database_and_a_naive_check_lets_many_through() {
    let mut passed = Vec::new();
    let mut naively = 0;
    for database in DATABASES {
        for statement in read(HOSTILE).iter().filter(|s| s.is_for(database)) {
            for columns in [true, false] {
                if !columns && statement.columns {
                    continue;
                }
                naively += usize::from(columns && naive(&statement.sql));
                if let Ok(printed) = judge(guard_of(database, columns), &statement.sql) {
                    passed.push(format!("{database}, columns {columns}: {:?} -> {printed}", statement.sql));
                }
            }
        }
    }
    assert!(passed.is_empty(), "{} pass:\n{}", passed.len(), passed.join("\n"));
    assert!(naively > 200, "the naive check stops all but {naively}: it is no control");
}

#[test]
fn every_benign_statement_passes_but_those_that_are_named() {
    for database in ["postgresql", "sqlite", "mysql"] {
        for columns in [true, false] {
            let passed = allowed(database, columns);
            let all = read(BENIGN).into_iter().filter(|s| s.is_for(database) && (s.columns || !columns));
            let refused: Vec<String> = all
                .filter_map(|s| s.false_refusal(database, columns).map(|why| format!("  {why}: {}", s.sql)))
                .collect();
            println!("{database}, columns {columns}: {} pass, {} refused though harmless", passed.len(), refused.len());
            println!("{}", refused.join("\n"));
        }
    }
}

#[test]
fn what_was_printed_is_judged_to_be_the_same() {
    for database in ["postgresql", "sqlite", "mysql"] {
        let guard = guard(database, true);
        for (statement, printed) in allowed(database, true) {
            // Comparisons with ANY are spelled as the parser does not read them back.
            if printed.contains(") ANY") || printed.contains(") ALL") {
                continue;
            }
            assert_eq!(judge(&guard, &printed), Ok(printed.clone()), "{database}: {}", statement.sql);
        }
    }
}

#[test]
fn a_guard_that_lets_write_changes_listed_columns_of_listed_tables_only() {
    let guard = compile(
        r#"{ kind = "sql", dialect = "sqlite", read_only = false, statements = 2, tables = ["orders"],
             columns = ["orders.id", "orders.note"] }"#,
    );
    for sql in [
        "INSERT INTO orders (id, note) VALUES (9, 'x')",
        "INSERT INTO orders (id, note) VALUES (9, 'x') ON CONFLICT (id) DO UPDATE SET note = excluded.note RETURNING id",
        "UPDATE orders SET note = 'x' WHERE id = 9; DELETE FROM orders WHERE id = 9",
    ] {
        assert!(judge(&guard, sql).is_ok(), "{sql}: {:?}", judge(&guard, sql));
    }
    for sql in [
        "INSERT INTO orders VALUES (9, 'x')",
        "INSERT INTO orders (id, total) VALUES (9, 1)",
        "UPDATE orders SET total = 1",
        "UPDATE orders SET note = total",
        "UPDATE orders SET note = (SELECT token FROM secrets)",
        "DELETE FROM customers",
        "DELETE FROM orders WHERE total = 1",
        "DELETE FROM orders RETURNING *",
        "DROP TABLE orders",
        "SELECT 1; SELECT 2; SELECT 3",
        "WITH x AS (DELETE FROM orders RETURNING id) SELECT id FROM x",
    ] {
        assert!(judge(&guard, sql).is_err(), "{sql}");
    }
}

#[test]
fn a_function_that_the_guard_names_passes_and_one_with_effects_is_refused_at_load() {
    let named = compile(r#"{ kind = "sql", dialect = "postgresql", tables = ["t"], functions = ["similarity"] }"#);
    assert_eq!(judge(&named, "SELECT similarity(a, b) FROM t").unwrap(), "SELECT similarity(a, b) FROM t");
    assert!(judge(&named, "SELECT public.similarity(a, b) FROM t").is_err());
    let refused = std::panic::catch_unwind(|| {
        compile(r#"{ kind = "sql", dialect = "postgresql", tables = ["t"], functions = ["pg_sleep"] }"#)
    });
    let said = refused.unwrap_err().downcast::<String>().unwrap();
    assert!(said.contains("`pg_sleep` is listed in `functions`") && said.contains("policy.toml:6:"), "{said}");
}

#[test]
fn a_listed_schema_is_printed_and_an_unlisted_one_refused() {
    let guard = compile(r#"{ kind = "sql", dialect = "postgresql", tables = ["sales.orders"] }"#);
    assert_eq!(judge(&guard, "SELECT id FROM orders").unwrap(), "SELECT id FROM \"sales\".\"orders\"");
    assert!(judge(&guard, "SELECT id FROM sales.orders").is_ok());
    assert!(judge(&guard, "SELECT id FROM public.orders").is_err());
}

#[test]
fn deep_and_long_statements_are_refused_and_end_nothing() {
    let guard = guard("postgresql", false);
    let chains = [
        format!("SELECT {}1", "1 + ".repeat(20_000)),
        format!("SELECT {}1{}", "(".repeat(20_000), ")".repeat(20_000)),
        format!("SELECT {}1", "- ".repeat(3_000)),
        format!("SELECT {}true", "NOT ".repeat(3_000)),
        format!("SELECT 1 {}", "UNION SELECT 1 ".repeat(2_000)),
        format!("SELECT 1 FROM {}customers{}", "(SELECT * FROM ".repeat(500), ") t".repeat(500)),
        format!("SELECT {}1{}", "CASE WHEN true THEN ".repeat(500), " END".repeat(500)),
        format!("SELECT 1 IN ({}1)", "1, ".repeat(30_000)),
        format!("SELECT {}id{} FROM customers", "((".repeat(20), " BETWEEN 1 AND 2) BETWEEN 1 AND 2)".repeat(20)),
        format!("SELECT 1{}", "::int".repeat(5_000)),
        format!("SELECT ARRAY{}1{}", "[".repeat(5_000), "]".repeat(5_000)),
        "SELECT 'x".to_owned(),
        "x".repeat(1 << 20),
    ];
    for sql in chains {
        assert!(judge(&guard, &sql).is_err(), "{}", &sql[..40.min(sql.len())]);
    }
    // Short ones are judged on the caller's stack.
    for sql in [format!("SELECT {}1{}", "(".repeat(95), ")".repeat(95)), format!("SELECT 1{}", "+1".repeat(120))] {
        assert!(sql.len() < 256 && judge(&guard, &sql).is_ok(), "{sql}");
    }
    let fits = format!("SELECT id FROM customers WHERE id IN ({}1)", "1, ".repeat(1_000));
    assert!(judge(&guard, &fits).is_ok(), "{:?}", judge(&guard, &fits));
    let long = format!("SELECT 1{}", " + 1".repeat(390));
    assert!(judge(&guard, &long).is_ok(), "{:?}", judge(&guard, &long));
}

fn guard_of(database: &str, columns: bool) -> &'static gate::guard::Compiled {
    use std::collections::BTreeMap;
    use std::sync::{LazyLock, Mutex};
    static GUARDS: LazyLock<Mutex<BTreeMap<(String, bool), &'static gate::guard::Compiled>>> =
        LazyLock::new(Mutex::default);
    let mut guards = GUARDS.lock().unwrap();
    guards.entry((database.to_owned(), columns)).or_insert_with(|| Box::leak(Box::new(guard(database, columns))))
}

#[test]
fn a_bare_name_is_printed_with_the_one_table_that_may_be_meant() {
    for database in DATABASES {
        let printed = judge(
            guard_of(database, true),
            "SELECT 1 FROM (SELECT id AS secret FROM orders) AS o WHERE EXISTS (SELECT secret FROM customers)",
        );
        // Unqualified it would be `customers.secret`.
        let wanted =
            "SELECT 1 FROM (SELECT orders.id AS secret FROM orders) AS o WHERE EXISTS (SELECT o.secret FROM customers)";
        assert_eq!(printed.as_deref(), Ok(wanted), "{database}");
    }
}

/// A check that many people write: it begins as a query, and there is no semicolon and no word that writes.
fn naive(sql: &str) -> bool {
    let lower = sql.trim().to_lowercase();
    let writes = ["insert ", "update ", "delete ", "drop ", "alter ", "create "];
    (lower.starts_with("select") || lower.starts_with("with"))
        && !lower.contains(';')
        && !writes.iter().any(|w| lower.contains(w))
}

#[test]
fn without_listed_columns_qualified_names_are_columns_and_never_calls() {
    let plain = corpus::guard("postgresql", false);
    for (given, printed) in [
        (
            "SELECT customers.wipe FROM customers",
            "SELECT customers.wipe FROM (SELECT wipe FROM customers) AS customers",
        ),
        (
            "SELECT c.name AS n FROM customers AS c ORDER BY n",
            "SELECT c.name AS n FROM (SELECT name FROM customers) AS c ORDER BY n",
        ),
        (
            "SELECT c.name, count(*) FROM customers c LEFT JOIN orders o ON o.id = c.id GROUP BY c.name",
            "SELECT c.name, pg_catalog.count(*) FROM (SELECT id, name FROM customers) AS c LEFT JOIN \
             (SELECT id FROM orders) AS o ON (o.id OPERATOR(pg_catalog.=) c.id) GROUP BY c.name",
        ),
    ] {
        assert_eq!(corpus::judge(&plain, given).as_deref(), Ok(printed), "{given}");
        assert_eq!(corpus::judge(&plain, printed).as_deref(), Ok(printed), "it comes back: {given}");
    }
    for given in [
        "SELECT c.name, total FROM customers c JOIN orders o ON o.id = c.id",
        "SELECT c.name, o.* FROM customers c JOIN orders o ON o.id = c.id",
        "SELECT c.wipe FROM customers c WHERE EXISTS (SELECT 1 FROM orders c WHERE c.total = 1)",
        "SELECT (c).wipe FROM customers c JOIN orders o ON o.id = c.id",
        "SELECT s.token FROM secrets s JOIN orders o ON o.id = s.id",
        "WITH RECURSIVE t AS (SELECT k.id FROM categories k UNION ALL SELECT k.id FROM categories k JOIN t ON t.id = k.parent_id) SELECT t.id FROM t",
        "DELETE FROM orders o USING customers c WHERE c.wipe = o.id",
    ] {
        assert!(corpus::judge(&plain, given).is_err(), "{given}");
    }
}
