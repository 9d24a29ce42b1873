//! The `sql` guard against a real PostgreSQL: what passes reads listed tables, changes nothing, calls nobody's code and gives
//! the rows of the original text; most of what is called hostile is as bad as it says.
//!
//! The server is Debian's, started by an unprivileged user in a folder of its own, reached by a socket there. Where it is not
//! installed this is skipped by name and nothing is counted as passed; so it has its own `main`.
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test without the harness: it starts a server and its client, waits for them, and prints what it counted"
)]

#[path = "sql/corpus.rs"]
mod corpus;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use corpus::{HOSTILE, Statement, TABLES, allowed, read};

/// Owner of the tables; no superuser, so that hostile statements stay in the database.
const OWNER: &str = "app";
/// May read the listed tables and nothing else.
const READER: &str = "reader";
const NOBODY: u32 = 65_534;

const SCHEMA: &str = "
    CREATE TABLE customers (id int PRIMARY KEY, name varchar(40), secret text);
    INSERT INTO customers VALUES (1, 'Anna', 'alpha'), (2, 'Bert', 'beta'), (3, 'Ünïcode', 'gamma');
    CREATE TABLE orders (id int PRIMARY KEY, customer_id int, total int, status varchar(10), note text, data jsonb, placed timestamptz);
    INSERT INTO orders VALUES
        (1, 1, 12, 'paid', 'x', '{\"a\": 1, \"b\": [2], \"tags\": [\"t\", \"u\"]}', '2024-01-15'),
        (2, 1, 20, 'open', NULL, '{\"a\": 2, \"tags\": []}', '2024-02-15'),
        (3, 2, 5, 'paid', 'y', '{}', '2024-02-20'),
        (4, NULL, 7, 'void', NULL, NULL, NULL);
    CREATE TABLE categories (id int PRIMARY KEY, parent_id int);
    INSERT INTO categories VALUES (1, NULL), (2, 1), (3, 2);
    CREATE TABLE secrets (id int PRIMARY KEY, token text);
    INSERT INTO secrets VALUES (1, 'canary');
    CREATE VIEW all_secrets AS SELECT * FROM secrets;
    CREATE SEQUENCE counter;
    GRANT SELECT ON customers, orders, categories TO reader;";

/// Code of somebody else that fits the types of the corpus better than the built-ins, and leaves a trace when it runs.
const TRAPS: &str = "
    CREATE TABLE trap (what text);
    CREATE FUNCTION fell(what text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN INSERT INTO public.trap VALUES (what); END $$;
    CREATE FUNCTION lower(a varchar) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM public.fell('lower'); RETURN 'trapped'; END $$;
    CREATE FUNCTION upper(a varchar) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM public.fell('upper'); RETURN 'trapped'; END $$;
    CREATE FUNCTION length(a varchar) RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM public.fell('length'); RETURN 0; END $$;
    CREATE FUNCTION \"substring\"(a varchar, b int, c int) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM public.fell('substring'); RETURN ''; END $$;
    CREATE FUNCTION substr(a varchar, b int, c int) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM public.fell('substr'); RETURN ''; END $$;
    CREATE FUNCTION same(a varchar, b varchar) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM public.fell('same'); RETURN true; END $$;
    CREATE FUNCTION alike(a varchar, b text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM public.fell('alike'); RETURN true; END $$;
    CREATE FUNCTION joined(a varchar, b text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM public.fell('joined'); RETURN ''; END $$;
    CREATE OPERATOR = (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = same);
    CREATE OPERATOR <> (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = same);
    CREATE OPERATOR === (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = same);
    CREATE OPERATOR ~~ (LEFTARG = varchar, RIGHTARG = text, FUNCTION = alike);
    CREATE OPERATOR ~~* (LEFTARG = varchar, RIGHTARG = text, FUNCTION = alike);
    CREATE OPERATOR ~ (LEFTARG = varchar, RIGHTARG = text, FUNCTION = alike);
    CREATE OPERATOR || (LEFTARG = varchar, RIGHTARG = text, FUNCTION = joined);
    CREATE FUNCTION wipe(c customers) RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM public.fell('wipe'); RETURN 1; END $$;
    CREATE FUNCTION wipe(c record) RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM public.fell('wipe'); RETURN 1; END $$;
    CREATE FUNCTION wipe_orders() RETURNS int LANGUAGE plpgsql AS $$ BEGIN DELETE FROM public.orders; RETURN 1; END $$;
    CREATE PROCEDURE wipe() LANGUAGE sql AS $$ DELETE FROM public.orders $$;
    CREATE SCHEMA evil;
    CREATE TABLE evil.customers (id int);
    CREATE FUNCTION evil.count(a int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM public.fell('count'); RETURN 1; END $$;
    CREATE DOMAIN evil AS text CHECK (public.fell(VALUE) IS NOT NULL);";

/// What shows in a transaction that a statement did more than read listed tables; a line for each.
fn facts() -> String {
    let tables: Vec<String> = TABLES.iter().map(|(table, _)| format!("'public.{table}'::regclass")).collect();
    format!(
        "SELECT 'xid' FROM (SELECT pg_current_xact_id_if_assigned() AS x) s WHERE x IS NOT NULL
         UNION ALL SELECT 'reads ' || l.relation::regclass FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
            WHERE l.pid = pg_backend_pid() AND c.relkind IN ('r', 'v', 'm', 'S', 'p', 'f')
            AND l.relation NOT IN ({}, 'pg_locks'::regclass, 'pg_class'::regclass, 'public.trap'::regclass)
         UNION ALL SELECT 'lock ' || mode FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation' AND mode <> 'AccessShareLock'
         UNION ALL SELECT 'advisory' FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'
         UNION ALL SELECT 'listens' FROM pg_listening_channels()
         UNION ALL SELECT 'path ' || current_setting('search_path') WHERE current_setting('search_path') <> '\"$user\", public'
         UNION ALL SELECT 'trap ' || what FROM public.trap;",
        tables.join(", ")
    )
}

/// Everything that stays.
const STATE: &str = "
    SELECT md5(string_agg(t::text, '|' ORDER BY t::text)) FROM (
        SELECT concat('c', c) AS t FROM customers c UNION ALL SELECT concat('o', o) FROM orders o
        UNION ALL SELECT concat('s', s) FROM secrets s UNION ALL SELECT concat('n', last_value, is_called) FROM counter
        UNION ALL SELECT concat('k', relname, relkind, relacl, relfilenode) FROM pg_class WHERE oid > 16000
        UNION ALL SELECT concat('l', oid) FROM pg_largeobject_metadata
        UNION ALL SELECT concat('p', proname) FROM pg_proc WHERE oid > 16000
        UNION ALL SELECT concat('d', attrelid, attname) FROM pg_attribute WHERE attrelid > 16000
        UNION ALL SELECT concat('t', what) FROM trap
        UNION ALL SELECT concat('g', tablename, attname) FROM pg_stats WHERE schemaname = 'public'
    ) x";

struct Server {
    folder: tempfile::TempDir,
    bin: PathBuf,
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The folder goes with it; nothing has to be written down.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The newest installed server.
fn installed() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|entry| entry.path().join("bin"));
    versions.filter(|bin| bin.join("initdb").exists() && bin.join("psql").exists()).max()
}

/// A server refuses to be root's.
fn unprivileged(program: &Path) -> Command {
    if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]).arg(program);
        return command;
    }
    Command::new(program)
}

impl Server {
    fn start(bin: PathBuf) -> Result<Self, String> {
        let folder =
            tempfile::Builder::new().prefix("fumehood-pg").tempdir_in("/tmp").map_err(|error| error.to_string())?;
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY)).map_err(|error| error.to_string())?;
        }
        let data = folder.path().join("data");
        let mut init = unprivileged(&bin.join("initdb"));
        init.arg("-D").arg(&data).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        let made = init.current_dir(folder.path()).output().map_err(|error| format!("initdb: {error}"))?;
        if !made.status.success() {
            return Err(format!("initdb: {}", String::from_utf8_lossy(&made.stderr)));
        }
        let mut start = unprivileged(&bin.join("postgres"));
        start.arg("-D").arg(&data).arg("-k").arg(folder.path()).args(["-c", "listen_addresses=", "-c", "fsync=off"]);
        start.args(["-c", "autovacuum=off", "-c", "shared_buffers=16MB", "-c", "statement_timeout=2s"]);
        let start = start.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = start.spawn().map_err(|error| format!("postgres: {error}"))?;
        let server = Self { folder, bin, child };
        for _ in 0..600 {
            if server.psql("postgres", "postgres", "SELECT 1").is_ok() {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err("postgres did not answer within a minute".to_owned())
    }

    fn client(&self, user: &str, database: &str) -> Command {
        let mut command = Command::new(self.bin.join("psql"));
        command.args(["-X", "-A", "-t", "-q", "-U", user, "-d", database, "-h"]).arg(self.folder.path());
        command
    }

    /// One text as it is, as a simple query: also several statements.
    fn psql(&self, user: &str, database: &str, text: &str) -> Result<String, String> {
        let out = self.client(user, database).args(["-v", "ON_ERROR_STOP=1", "-c", text]).output();
        let out = out.map_err(|error| error.to_string())?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if out.status.success() { Ok(said(&out.stdout)) } else { Err(said(&out.stderr)) }
    }

    /// Many statements in one session, divided by lines of `@@`.
    fn script(&self, user: &str, database: &str, script: &str) -> (Vec<String>, String) {
        let mut command = self.client(user, database);
        let child =
            command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let mut input = child.stdin.take().unwrap();
        let text = script.to_owned();
        let writer = std::thread::spawn(move || drop(input.write_all(text.as_bytes())));
        let out = child.wait_with_output().unwrap();
        writer.join().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        (said.split("@@\n").skip(1).map(str::to_owned).collect(), String::from_utf8_lossy(&out.stderr).into_owned())
    }

    fn database(&self, name: &str, traps: bool) {
        self.psql("postgres", "postgres", &format!("CREATE DATABASE {name} OWNER {OWNER}")).unwrap();
        self.psql("postgres", name, &format!("GRANT ALL ON SCHEMA public TO {OWNER}")).unwrap();
        self.psql(OWNER, name, SCHEMA).unwrap();
        if traps {
            self.psql(OWNER, name, TRAPS).unwrap();
            self.psql(OWNER, name, "GRANT SELECT ON trap TO reader").unwrap();
        }
    }
}

fn sorted(rows: &str) -> Vec<String> {
    let mut rows: Vec<String> = rows.lines().map(str::to_owned).collect();
    rows.sort();
    rows
}

/// What passes: the same rows as the text where nobody set traps, no effect, nothing beyond the listed tables.
fn allowed_statements(server: &Server, columns: bool) -> Result<usize, String> {
    let list: Vec<(Statement, String)> = allowed("postgresql", columns);
    let texts = |pick: &dyn Fn(&(Statement, String)) -> String| -> String {
        list.iter().map(|entry| format!("\\echo @@\n{};\n", pick(entry).trim().trim_end_matches(';'))).collect()
    };
    let (plain, said) = server.script(READER, "plain", &texts(&|(statement, _)| statement.sql.clone()));
    if !said.is_empty() || plain.len() != list.len() {
        return Err(format!("an original does not run: {said}"));
    }
    let before = server.psql(OWNER, "trapped", STATE)?;
    let facts = facts();
    let script = texts(&|(_, printed)| format!("BEGIN;\n{printed};\n\\echo @@\n{facts}\nCOMMIT"));
    let (pairs, said) = server.script(READER, "trapped", &script);
    if !said.is_empty() || pairs.len() != list.len() * 2 {
        return Err(format!("a printed statement does not run: {said}"));
    }
    let mut wrong = Vec::new();
    for (((statement, printed), original), pair) in list.iter().zip(&plain).zip(pairs.chunks(2)) {
        let [rows, facts] = pair else { continue };
        if !facts.trim().is_empty() {
            wrong.push(format!("{printed}\n    does more than read: {facts:?}"));
        }
        if statement.rows && sorted(rows) != sorted(original) {
            wrong.push(format!("{}\n    {printed}\n    {original:?}\n    {rows:?}", statement.sql));
        }
    }
    if server.psql(OWNER, "trapped", STATE)? != before {
        wrong.push("the database is not as it was".to_owned());
    }
    if wrong.is_empty() { Ok(list.len()) } else { Err(wrong.join("\n")) }
}

/// The control: the same statements as they were written fall into the traps.
fn originals_fall_into_traps(server: &Server) -> Result<usize, String> {
    let texts: String =
        allowed("postgresql", true).iter().map(|(statement, _)| format!("{};\n", statement.sql)).collect();
    server.script(READER, "control", &texts);
    let fell = server.psql(OWNER, "control", "SELECT count(*) FROM trap")?;
    match fell.trim().parse::<usize>() {
        Ok(count) if count > 10 => Ok(count),
        _ => {
            Err(format!("the original texts ran somebody's code {} times only: the traps are no control", fell.trim()))
        }
    }
}

/// The hostile half, run as it is: changed state, or touched what a reader of the listed columns does not.
fn hostile_statements(server: &Server) -> Result<(usize, Vec<String>), String> {
    let (mut proven, mut not) = (0, Vec::new());
    let fresh = || {
        server.psql("postgres", "postgres", "DROP DATABASE IF EXISTS target WITH (FORCE)")?;
        server.psql("postgres", "postgres", &format!("CREATE DATABASE target TEMPLATE trapped OWNER {OWNER}"))
    };
    fresh()?;
    let clean = server.psql(OWNER, "target", STATE)?;
    for statement in read(HOSTILE).iter().filter(|s| s.is_for("postgresql")) {
        // What only a client understands, or cannot be an argument of one.
        if statement.sql.starts_with('\\') || statement.sql.contains('\0') {
            continue;
        }
        let ran = server.psql(OWNER, "target", &statement.sql);
        // A state that cannot be asked for is another one: a table is gone.
        let changed = server.psql(OWNER, "target", STATE).as_ref() != Ok(&clean);
        if changed {
            fresh()?;
        }
        let text = statement.sql.trim().trim_end_matches(';');
        let facts = facts();
        let (parts, _) = server.script(OWNER, "target", &format!("BEGIN;\n{text}\n;\n\\echo @@\n{facts}\nROLLBACK;\n"));
        let beyond = parts.first().is_some_and(|facts| !facts.trim().is_empty());
        // Columns leave no trace in locks: a role without the right to them does.
        let denied = statement.columns && ran.is_ok() && {
            let narrow = server.psql("narrow", "target", &statement.sql);
            narrow.is_err_and(|error| error.contains("permission denied"))
        };
        if changed || beyond || denied {
            proven += 1;
        } else {
            let why = ran.err().unwrap_or_default();
            not.push(format!("  {:?} {}", statement.sql, why.lines().next().unwrap_or_default()));
        }
        if server.psql(OWNER, "target", STATE).as_ref() != Ok(&clean) {
            fresh()?;
        }
    }
    if proven < 90 { Err(format!("only {proven} are proven:\n{}", not.join("\n"))) } else { Ok((proven, not)) }
}

fn main() -> ExitCode {
    let Some(bin) = installed() else {
        println!(
            "skip: the sql guard against PostgreSQL: no server below /usr/lib/postgresql (`scripts/setup test` installs it)"
        );
        println!("0 passed, 0 failed, 1 skipped");
        return ExitCode::SUCCESS;
    };
    let server = match Server::start(bin) {
        Ok(server) => server,
        Err(why) => {
            println!("PostgreSQL is installed and does not start: {why}\n0 passed, 1 failed, 0 skipped");
            return ExitCode::FAILURE;
        }
    };
    for role in [OWNER, READER, "narrow"] {
        server.psql("postgres", "postgres", &format!("CREATE ROLE {role} LOGIN")).unwrap();
    }
    // Two seconds are for the hostile: making a database, or a judged statement, may take longer on a busy machine.
    for role in ["postgres", READER] {
        server.psql("postgres", "postgres", &format!("ALTER ROLE {role} SET statement_timeout = '5min'")).unwrap();
    }
    server.database("plain", false);
    server.database("trapped", true);
    server.database("control", true);
    for (table, columns) in TABLES {
        server.psql(OWNER, "trapped", &format!("GRANT SELECT ({}) ON {table} TO narrow", columns.join(", "))).unwrap();
    }
    let results = [
        ("what passes with listed columns", allowed_statements(&server, true).map(|n| format!("{n} statements"))),
        ("what passes without", allowed_statements(&server, false).map(|n| format!("{n} statements"))),
        ("the same texts unjudged run foreign code", originals_fall_into_traps(&server).map(|n| format!("{n} times"))),
        (
            "the hostile half is hostile",
            hostile_statements(&server).map(|(n, not)| format!("{n} proven, {} not:\n{}", not.len(), not.join("\n"))),
        ),
    ];
    let failed = results.iter().filter(|(_, result)| result.is_err()).count();
    for (name, result) in &results {
        match result {
            Ok(said) => println!("ok: {name}: {said}"),
            Err(why) => println!("FAILED: {name}: {why}"),
        }
    }
    println!("{} passed, {failed} failed, 0 skipped", results.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
