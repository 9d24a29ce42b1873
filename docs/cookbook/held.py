"""What the recipes share: a line for each thing that was shown, and a failure for each that was not."""

from __future__ import annotations

import pathlib
import sys
from typing import Any, Callable

HERE = pathlib.Path(sys.argv[0]).resolve().parent
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "sdk" / "python" / "src"))

from fumehood.tools import Denied  # noqa: E402


def shown(what: str, is_so: bool) -> None:
    if not is_so:
        sys.exit(f"NOT SHOWN: {what}")
    print(f"held: {what}")


def passes_naive(what: str, is_so: bool) -> None:
    """The attack is real: the check that guides print lets it through."""
    if not is_so:
        sys.exit(f"NOT SHOWN: the naive check stops {what}")
    print(f"naive check passes: {what}")


def denied(what: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except Denied as reason:
        print(f"held: {what} is denied ({reason.id})")
    else:
        sys.exit(f"NOT SHOWN: {what} went through")
