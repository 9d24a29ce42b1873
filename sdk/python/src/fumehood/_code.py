"""Code that a context of a sandbox executes, and what comes of it. Names follow E2B's code interpreter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator

from ._frames import LANE_OUT, Kind, ProtocolError
from ._link import REQUEST_TIMEOUT, Link, ok, within
from ._results import shaped
from ._times import milliseconds
from .errors import TooManyException

#: Seconds that code may run unless something else is said, as in E2B.
TIMEOUT = 300.0
#: Longest line of an answer, and most bytes of one, bytes. A supervisor sends no more than 16 MiB and its own words.
_MAX_LINE = 64 << 20
_MAX_ANSWER = 256 << 20
_SHOWN = ("text", "html", "markdown", "svg", "png", "jpeg", "pdf", "latex", "json", "javascript", "data", "chart")


@dataclass
class Result:
    """One value that code showed: the same thing in each form that it has."""

    #: Whether it is the value of the last expression, and not shown by ``display``.
    is_main_result: bool = False
    text: str | None = None
    html: str | None = None
    markdown: str | None = None
    svg: str | None = None
    #: Base64, as are ``jpeg`` and ``pdf``.
    png: str | None = None
    jpeg: str | None = None
    pdf: str | None = None
    latex: str | None = None
    json: Any = None
    javascript: str | None = None
    #: A table, column by column.
    data: Any = None
    #: What a chart shows: ``type``, ``title``, ``elements``, ...
    chart: Any = None
    #: Forms that have no name here, by type of media.
    extra: dict[str, Any] = field(default_factory=dict)

    def formats(self) -> Iterator[str]:
        """The names of the forms that it has."""
        yield from (name for name in _SHOWN if getattr(self, name) is not None)
        yield from self.extra

    def __str__(self) -> str:
        return self.text if self.text is not None else f"Result({', '.join(self.formats())})"

    # What a notebook shows of it: pictures and text. Code that nobody trusts makes these, so that its HTML and scripts are
    # given as data, and never to a page.

    def _repr_png_(self) -> str | None:
        return self.png

    def _repr_jpeg_(self) -> str | None:
        return self.jpeg

    def __repr__(self) -> str:
        return self.text if self.text is not None else f"Result({', '.join(self.formats())})"


@dataclass
class ExecutionError:
    """What code raised."""

    name: str
    value: str
    traceback: str


@dataclass
class Logs:
    """What code printed, piece by piece."""

    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)


@dataclass
class OutputMessage:
    """A piece that code printed."""

    line: str
    #: When, by the clock inside (ISO 8601).
    timestamp: str = ""
    error: bool = False

    def __str__(self) -> str:
        return self.line


@dataclass
class Execution:
    """What came of code. That code failed is told by ``error``, and is no exception."""

    results: list[Result] = field(default_factory=list)
    logs: Logs = field(default_factory=Logs)
    error: ExecutionError | None = None
    execution_count: int | None = None
    #: The context that executed it.
    context: str = ""
    #: Bytes of output beyond the limit of an execution, which nobody was given.
    truncated: int = 0
    #: The kernel had ended before: variables of earlier code are gone.
    restarted: bool = False

    @property
    def text(self) -> str | None:
        """The value of the last expression."""
        return next((result.text for result in self.results if result.is_main_result), None)


@dataclass
class Context:
    """A kernel of a sandbox, and its variables."""

    id: str
    language: str
    cwd: str


Listener = Callable[[Any], Any]


@shaped
def context_of(data: Mapping[str, Any]) -> Context:
    """A context of the protocol."""
    return Context(id=str(data["id"]), language=str(data["language"]), cwd=str(data["cwd"]))


def wanted(
    code: str, language: str | None, context: Context | str | None, envs: Mapping[str, str] | None, timeout: float | None
) -> dict[str, Any]:
    """The request."""
    asked: dict[str, Any] = {"op": "execute", "code": code}
    if context is not None:
        asked["context"] = context.id if isinstance(context, Context) else context
    if language is not None:
        asked["language"] = language
    if envs:
        asked["env"] = dict(envs)
    if timeout is not None:
        asked["timeout_ms"] = max(1, milliseconds(timeout))
    return asked


async def execute(link: Link, asked: Mapping[str, Any], tell: Mapping[str, Listener | None]) -> Execution:
    """Executes code, and tells listeners (``stdout``, ``stderr``, ``result``, ``error``) what comes of it, as it comes."""
    made, rest, size = Execution(), bytearray(), 0
    stream = link.open(asked)
    try:
        while True:
            # A kernel says that it lives every 5 s, once it does.
            incoming = await within(stream, REQUEST_TIMEOUT + 30)
            if incoming.kind is Kind.END:
                _ended(made, ok(incoming))
                return made
            if incoming.kind is not Kind.DATA or incoming.lane != LANE_OUT:
                continue
            size += len(incoming.value)
            rest += incoming.value
            lines: list[bytes] = []
            if b"\n" in incoming.value:
                *lines, last = bytes(rest).split(b"\n")
                rest = bytearray(last)
            if len(rest) > _MAX_LINE or size > _MAX_ANSWER:
                raise TooManyException("an execution said more than 256 MiB, or a line of more than 64 MiB", code="too_many")
            for line in lines:
                said = _take(made, line)
                if said is not None and (listener := tell.get(said[0])) is not None:
                    await link.tell(listener, said[1])
    finally:
        # What is given up is interrupted.
        stream.drop()


@shaped
def _ended(made: Execution, data: Mapping[str, Any]) -> None:
    made.context = str(data.get("context") or "")
    made.truncated = int(data.get("truncated") or 0)
    made.restarted = bool(data.get("restarted"))


def _take(made: Execution, line: bytes) -> tuple[str, Any] | None:
    """One line of an answer: who is to hear what."""
    if not line.strip():
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a line that is no JSON: {error}") from error
    return _read(made, data)


@shaped
def _read(made: Execution, data: Mapping[str, Any]) -> tuple[str, Any] | None:
    kind = data["type"]
    if kind in ("stdout", "stderr"):
        text = str(data["text"])
        (made.logs.stderr if kind == "stderr" else made.logs.stdout).append(text)
        return kind, OutputMessage(text, str(data.get("timestamp") or ""), kind == "stderr")
    if kind == "result":
        forms = {name: data.get(name) for name in _SHOWN}
        result = Result(is_main_result=bool(data.get("is_main_result")), extra=dict(data.get("extra") or {}), **forms)
        made.results.append(result)
        return kind, result
    if kind == "error":
        made.error = ExecutionError(str(data["name"]), str(data["value"]), str(data["traceback"]))
        return kind, made.error
    if kind == "number_of_executions":
        made.execution_count = int(data["execution_count"])
    return None


async def create_context(link: Link, cwd: str | None, language: str | None, timeout: float) -> Context:
    asked = {"op": "context_create", "cwd": cwd, "language": language}
    return context_of(await link.call({name: value for name, value in asked.items() if value is not None}, timeout=timeout))


async def list_contexts(link: Link) -> list[Context]:
    found = (await link.call({"op": "contexts"})).get("contexts")
    return [context_of(one) for one in found or ()]


async def of_context(link: Link, op: str, context: Context | str, timeout: float) -> None:
    """``restart``, ``remove`` or ``interrupt``."""
    await link.call({"op": f"context_{op}", "id": context.id if isinstance(context, Context) else context}, timeout=timeout)
