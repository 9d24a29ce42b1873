"""Only the tools of a set. Names are compared byte for byte, so there is no second spelling."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from held import HERE, denied, passes_naive, shown

from fumehood.tools import Gateway

ran = []


def naive_prefix(name: str) -> bool:
    return name.startswith(("search", "read_file"))


def naive_denylist(name: str) -> bool:
    return name.strip().lower() not in {"delete_file", "run_shell"}


passes_naive("`search_and_delete`, by a prefix", naive_prefix("search_and_delete"))
passes_naive("`deIete_file` with a capital i, by a denylist", naive_denylist("deIete_file"))

with Gateway(HERE / "policy.toml") as gate:

    @gate.tool(effect="read")
    def search(query: str) -> list[str]:
        return [f"result for {query}"]

    @gate.tool
    def search_and_delete(query: str) -> str:
        ran.append(query)
        return "deleted"

    shown("`search` runs", search("tea") == ["result for tea"])
    denied("`search_and_delete`", lambda: search_and_delete("tea"))
    for name in ("deIete_file", "Search", "search ", "search\u200b", "sеarch", "search/../run_shell", "__proto__", ""):
        denied(repr(name), lambda name=name: gate.call(name, {"query": "tea"}))
    shown("nothing else ran", ran == [])
