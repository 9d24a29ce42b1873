"""`safe_execute_python_code`: `exec` with few builtins and a list of modules, as guides have it, and the language tier."""

import contextlib
import io
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from held import passes_naive, shown

from fumehood import run

ALLOWED = ["math", "json", "re"]


def safe_execute_python_code(code: str, allowed_modules: list[str] = ALLOWED) -> str:
    """As guides have it: no builtins but harmless ones, and an `__import__` that looks at a list."""

    def safe_import(name: str, *rest: object) -> object:
        if name not in allowed_modules:
            raise ImportError(f"{name} is not allowed")
        return __import__(name)

    builtins = {"print": print, "len": len, "range": range, "sum": sum, "str": str, "__import__": safe_import}
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {"__builtins__": builtins})
    return out.getvalue()


def execute(code: str, modules: list[str] = ALLOWED):
    """The same with Fumehood: an interpreter that has nothing of Python's own, behind the process tier."""
    allowed = "language.modules=[" + ", ".join(f'"{name}"' for name in modules) + "]"
    return run(code, language="python", policy="strict", timeout=5, flags=["--tier", "language", "--set", allowed])


CLASSES = """
for one in ().__class__.__base__.__subclasses__():
    if one.__name__ == "_wrap_close":
        print(one.__init__.__globals__["popen"]("echo reached").read())
"""
MODULE = "import json\nprint(json.codecs.builtins.open('/etc/passwd').read())"
LARGE = "print(len('x' * 300_000_000))"

passes_naive("a way to every class from `()`", "reached" in safe_execute_python_code(CLASSES))
passes_naive("a way to `open` from an allowed module", "root:" in safe_execute_python_code(MODULE))
passes_naive("a string of 300 MB", safe_execute_python_code(LARGE) == "300000000\n")

shown("`()` leads nowhere", execute(CLASSES).exit_code == 1 and "AttributeError" in execute(CLASSES).stderr)
shown("an allowed module leads nowhere", "root:" not in execute(MODULE).stdout and execute(MODULE).exit_code == 1)
large = execute(LARGE)
shown("a value has a limit", (large.outcome.kind, large.outcome.limit) == ("limit", "memory"))
other = execute("import os")
shown("another module is told as what it is", other.exit_code == 1 and other.violations[0].id == "language/subset")
shown("work is done", execute("import math, json\nprint(json.dumps([math.floor(2.5)]))").stdout == "[2]\n")
shown("and with the modules that one allows", execute("import datetime\nprint(datetime.date(2026, 1, 2).year)", ["datetime"]).stdout == "2026\n")
