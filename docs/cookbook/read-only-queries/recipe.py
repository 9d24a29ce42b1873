"""Read-only queries: the guard judges the tree of the statement; SQLite itself says what each attack would have done."""

import pathlib
import sqlite3
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from held import HERE, denied, passes_naive, shown

from fumehood.tools import Gateway


def fresh() -> sqlite3.Connection:
    base = sqlite3.connect(":memory:", isolation_level=None)
    base.executescript(
        "CREATE TABLE orders(id, total); INSERT INTO orders VALUES (1, 10), (2, 20);"
        "CREATE TABLE products(id); CREATE TABLE secrets(key); INSERT INTO secrets VALUES ('k');"
    )
    return base


def naive(sql: str) -> bool:
    words = sql.upper().replace("\n", " ").split()
    writes = {"DROP", "UPDATE", "INSERT", "ALTER"}
    return words[0] in ("SELECT", "WITH") and not writes & set(words) and ";" not in sql


BEHIND = "WITH x AS (SELECT 1) DELETE FROM orders"
COMMENT = "SELECT key FROM/**/secrets"
UPSERT = "WITH x(a, b) AS (SELECT 3, 30) REPLACE/**/INTO orders SELECT a, b FROM x"
base = fresh()
passes_naive("a delete behind WITH", naive(BEHIND))
base.execute(BEHIND)
passes_naive("and the rows are gone", base.execute("SELECT count(*) FROM orders").fetchone() == (0,))
passes_naive("another table behind a comment", naive(COMMENT) and base.execute(COMMENT).fetchone() == ("k",))
base.execute(UPSERT)
passes_naive("a REPLACE behind WITH", naive(UPSERT) and base.execute("SELECT id FROM orders").fetchone() == (3,))

base = fresh()
with Gateway(HERE / "policy.toml") as gate:

    @gate.tool(effect="read")
    def query(sql: str) -> list[list]:
        return [list(row) for row in base.execute(sql)]

    shown("a sum is answered", query("SELECT sum(total) FROM orders WHERE id < 10") == [[30]])
    shown("a join is answered", query("SELECT o.id FROM orders o LEFT JOIN products p ON p.id = o.id ORDER BY o.id") == [[1], [2]])
    attacks = [BEHIND, COMMENT, UPSERT, "SELECT * FROM secrets", "SELECT 1; DELETE FROM orders", "DELETE FROM orders",
               "SELECT * FROM sqlite_master", "SELECT * FROM 'secrets'", "SELECT id FROM orders WHERE id IN secrets",
               "SELECT load_extension('x')", "ATTACH 'x' AS y", "PRAGMA writable_schema = 1",
               "SELECT * FROM orders UNION SELECT key, 1 FROM secrets", "EXPLAIN DELETE FROM orders", "SELECT readfile('/etc/passwd')"]
    for sql in attacks:
        denied(repr(sql), lambda sql=sql: query(sql))
shown("the tables are whole", base.execute("SELECT count(*) FROM orders").fetchone() == (2,))
