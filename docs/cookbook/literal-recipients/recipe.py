"""`Literal` recipients and tables: Python enforces no hint, the gate does."""

import pathlib
import sqlite3
import sys
from typing import Literal

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from held import HERE, denied, passes_naive, shown

from fumehood.tools import Gateway

Recipient = Literal["ann@company.com", "bob@company.com"]
Table = Literal["orders", "products"]
told = []
rows = sqlite3.connect(":memory:")
rows.executescript("CREATE TABLE orders(n); INSERT INTO orders VALUES (1); CREATE TABLE secrets(n); INSERT INTO secrets VALUES (1), (2);")


def naive_count(table: Table) -> int:
    return rows.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


passes_naive("`secrets`, where the hint says orders or products", naive_count("secrets") == 2)  # type: ignore[arg-type]
passes_naive("a query in place of a name", naive_count("orders, secrets") == 2)  # type: ignore[arg-type]

with Gateway(HERE / "policy.toml") as gate:

    @gate.tool(effect="write")
    def notify(to: Recipient, text: str) -> str:
        told.append(to)
        return f"told {to}"

    @gate.tool(effect="read")
    def count_rows(table: Table) -> int:
        return rows.execute(f"SELECT count(*) FROM {table}").fetchone()[0]

    shown("ann is told", notify("ann@company.com", "hello") == "told ann@company.com")
    shown("orders are counted", count_rows("orders") == 1)
    for to in ("eve@evil.example", "ANN@company.com", "ann@company.com ", ["ann@company.com"], None):
        denied(f"to {to!r}", lambda to=to: notify(to, "hello"))
    for table in ("secrets", "orders, secrets", "orders; DROP TABLE orders", "Orders", ""):
        denied(f"table {table!r}", lambda table=table: count_rows(table))
    denied("a JSON text with the name twice", lambda: gate.call("count_rows", '{"table": "orders", "table": "secrets"}'))
    shown("nobody else was told", told == ["ann@company.com"])
