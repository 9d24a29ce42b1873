"""One run: a program, a script or code in a sandbox that ends with it."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ._binary import Answer, Policies, acall, call, clauses, find_program
from ._names import utf8, word
from ._results import Record, RunResult
from .errors import InvalidArgumentException, Violation

#: Bytes of code that may go as an argument, where stdin is the program's own (Linux takes 128 KiB).
_CODE_ARGUMENT = 100_000


def run(
    code: str | Sequence[str],
    *,
    language: str | None = None,
    policy: Policies | None = None,
    workspace: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    envs: Mapping[str, str] | None = None,
    stdin: str | bytes | None = None,
    flags: Sequence[str] = (),
    check: bool = False,
    binary: str | os.PathLike[str] | None = None,
) -> RunResult:
    """Runs code of a ``language`` (``python``, ``bash``, ...), or a program given as a list, in a sandbox of its own.

    ``policy`` is a preset, a file, a mapping (the document itself), or a list of them; without it ``strict`` holds.
    ``workspace`` is a folder, with a mode if wanted: ``".:ro"``. ``timeout`` is ``limits.wall`` in seconds. ``envs`` are set
    inside. ``stdin`` is what the program reads; without it, nothing. ``flags`` are further arguments of ``fumehood run``.

    A limit that ends the run is a result, not an exception: see ``outcome``. With ``check`` everything but exit code 0 raises
    as :meth:`RunResult.check`.

    Raises :class:`Refused` if no plan can hold the policy, :class:`FumehoodError` if Fumehood itself failed.
    """
    tail, given = _what(code, language, stdin)
    # Said, since the command line takes the user's own default where nothing is named.
    with clauses("strict" if policy is None else policy, workspace, timeout, envs, flags) as arguments:
        answer = call([find_program(binary), "run", "--json", *arguments, *tail], given)
    return _result(answer, check)


async def arun(
    code: str | Sequence[str],
    *,
    language: str | None = None,
    policy: Policies | None = None,
    workspace: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    envs: Mapping[str, str] | None = None,
    stdin: str | bytes | None = None,
    flags: Sequence[str] = (),
    check: bool = False,
    binary: str | os.PathLike[str] | None = None,
) -> RunResult:
    """As :func:`run`, in an event loop; ``timeout`` is in seconds too, and the same is raised."""
    tail, given = _what(code, language, stdin)
    # Said, since the command line takes the user's own default where nothing is named.
    with clauses("strict" if policy is None else policy, workspace, timeout, envs, flags) as arguments:
        answer = await acall([find_program(binary), "run", "--json", *arguments, *tail], given)
    return _result(answer, check)


def _what(code: str | Sequence[str], language: str | None, stdin: str | bytes | None) -> tuple[list[str], bytes | None]:
    """The end of the command line, and what is written to it."""
    given = utf8(stdin, "stdin") if isinstance(stdin, str) else stdin
    if not isinstance(code, str):
        if language is not None:
            raise InvalidArgumentException("a list is a program and its arguments, which has no language", code="invalid")
        return ["--", *(word(one, "code") for one in code)], given
    if language is None:
        raise InvalidArgumentException('text is code of a language: name it, e.g. language="python"', code="invalid")
    if given is None:
        return ["--lang", language, "-"], utf8(code, "code")
    if len(utf8(code, "code")) > _CODE_ARGUMENT:
        raise InvalidArgumentException(f"code that reads stdin is at most {_CODE_ARGUMENT} bytes long", code="invalid")
    return ["--lang", language, "--code", code], given


def _result(answer: Answer, check: bool) -> RunResult:
    report = answer.json()
    workspace = report.get("workspace") or {}
    made = RunResult(
        stdout=_text(report, "stdout"),
        stderr=_text(report, "stderr"),
        exit_code=answer.code,
        outcome=Record(report.get("outcome") or {}),
        violations=Violation.of(report.get("violations")),
        usage=Record(report.get("usage") or {}),
        changes=[Record(one) for one in workspace.get("changes") or () if isinstance(one, Mapping)],
        report=report,
    )
    return made.check() if check else made


def _text(report: Mapping[str, Any], lane: str) -> str:
    encoded = report.get(f"{lane}_base64")
    if encoded is not None:
        return base64.b64decode(encoded).decode("utf-8", "replace")
    return str(report.get(lane) or "")
