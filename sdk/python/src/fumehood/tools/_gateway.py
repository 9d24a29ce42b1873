"""The gate, as a program sees it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import queue
from typing import Any, Callable, Iterator, Mapping, ParamSpec, Sequence, TypeVar, overload

from .._binary import file_of
from ._pipe import Answerer, GatewayError, Pipe, find_program
from ._schema import plain
from ._tool import Effect, Tool
from ._verdict import Denied, Verdict

P = ParamSpec("P")
R = TypeVar("R")

#: Given out where a name reaches no function of ours: the gate then runs the tool itself, or says that nothing does.
_NOWHERE: Tool[..., Any] | None = None


class ToolFailed(RuntimeError):
    """The call was allowed, and the tool that the gate ran did not answer."""


class Gateway:
    """Starts the gate under a policy and guards tools with it. Use it as a context manager.

    ``policy`` is a file, a preset, a mapping (the document itself), or a list of them, later ones over earlier. ``answers``
    is called in a thread of its own with each parked call that ``approval.by = "anyone"`` lets a program answer; the others, and
    all without it, people answer by ``fumehood approvals``.
    ``program`` is the ``fumehood`` to start, else ``$FUMEHOOD_BIN``, else the one that was
    installed with this Python, else the one on the path.
    """

    def __init__(
        self,
        policy: str | os.PathLike[str] | Mapping[str, Any] | Sequence[str | os.PathLike[str] | Mapping[str, Any]],
        *,
        agent: str = "local",
        answers: Answerer | None = None,
        program: str | os.PathLike[str] | None = None,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        one = isinstance(policy, (str, os.PathLike, Mapping))
        policies: Sequence[Any] = [policy] if one else policy  # type: ignore[assignment]
        if not policies:
            raise ValueError("a Gateway without a policy would allow nothing: name one")
        self._tools: dict[str, Tool[..., Any]] = {}
        self._listed: list[dict[str, Any]] | None = None
        self._session: contextvars.ContextVar[str | None] = contextvars.ContextVar("fumehood_session", default=None)
        with contextlib.ExitStack() as files:
            command = [find_program(program), "tools", "serve", "--stdio", "--agent", agent]
            for inner in policies:
                command += ["--policy", file_of(inner, files)]
            command += ["--answers"] if answers else []
            self._pipe = Pipe([*command, *arguments], env, answers)

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the gate. Tools that belong to it run no more."""
        self._pipe.close()

    @property
    def tools(self) -> Mapping[str, Tool[..., Any]]:
        """The functions behind this gate, by name."""
        return dict(self._tools)

    @contextlib.contextmanager
    def session(self, name: str) -> Iterator[None]:
        """Calls inside belong to this conversation: limits, approvals and the record keep conversations apart."""
        token = self._session.set(name)
        try:
            yield
        finally:
            self._session.reset(token)

    def end_session(self, name: str) -> None:
        """This conversation is over: MCP servers that were started for it end, and what conditions counted of it is forgotten.

        Limits by session stand until their windows end. Leaving ``with gate.session(...)`` ends nothing: a conversation has many turns.
        """
        self._ask("", {"op": "end", "session": name})

    def add(self, tool: Tool[P, R]) -> Tool[P, R]:
        """Puts a tool behind this gate."""
        if tool.gateway is not None and tool.gateway is not self:
            raise ValueError(f"{tool.name} belongs to another Gateway")
        if self._tools.get(tool.name, tool) is not tool:
            raise ValueError(f"another tool is called {tool.name}")
        line: dict[str, Any] = {"op": "register", "tool": tool.name, "schema": tool.schema}
        if tool.defaults:
            line["defaults"] = tool.defaults
        if tool.effect is not None:
            line["effect"] = tool.effect
        self._ask(tool.name, line)
        self._tools[tool.name] = tool
        tool.gateway = self
        return tool

    @overload
    def tool(self, function: Callable[P, R], /) -> Tool[P, R]: ...

    @overload
    def tool(
        self, name: str | None = None, /, *, description: str | None = None, effect: Effect | None = None
    ) -> Callable[[Callable[P, R]], Tool[P, R]]: ...

    def tool(self, function: Any = None, /, *, description: str | None = None, effect: Effect | None = None) -> Any:
        """Makes a guarded function: ``@gate.tool`` or ``@gate.tool("mail.send", effect="write")``."""
        if callable(function):
            return self.add(Tool(function))

        def make(inner: Callable[P, R]) -> Tool[P, R]:
            return self.add(Tool(inner, function, description=description, effect=effect))

        return make

    def check(self, name: str, args: Mapping[str, Any] | str | None = None) -> Verdict:
        """What would become of a call. Nothing is counted and nobody is asked. Text is JSON as a model wrote it."""
        line = self._ask(name, {"op": "check", **self._call(name, args)})
        return Verdict.of(line["verdict"])

    def call(self, name: str, args: Mapping[str, Any] | str | None = None) -> Any:
        """Makes a call through the gate: by the function of this name, else by what the gate itself can run.

        Raises :class:`Denied`, whatever the function raises, or :class:`GatewayError`; in the last case nothing ran.
        """
        tool = self._tools.get(name, _NOWHERE)
        if tool is not None and tool.is_async:
            raise TypeError(f"{name} is an async function: use acall")
        lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        number = self._pipe.open(lines.put, self._line(name, args, tool))
        try:
            line = lines.get()
            raised: BaseException | None = None
            if line is not None and "run" in line and tool is not None:
                answer: dict[str, Any]
                try:
                    answer = {"value": plain(tool._function(**tool.build(line["run"]["args"])))}
                except BaseException as error:
                    raised = error
                    answer = {"failure": _words(error)}
                self._ran(number, answer, raised)
                line = lines.get()
            return self._outcome(name, line, raised)
        finally:
            self._pipe.close_id(number)

    async def acall(self, name: str, args: Mapping[str, Any] | str | None = None) -> Any:
        """As :meth:`call`, for event loops: an async function is awaited, another runs in a thread. Cancelling takes it back."""
        tool = self._tools.get(name, _NOWHERE)
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

        def sink(line: dict[str, Any] | None) -> None:
            with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits.
                loop.call_soon_threadsafe(lines.put_nowait, line)

        number = self._pipe.open(sink, self._line(name, args, tool))
        try:
            line = await lines.get()
            raised: BaseException | None = None
            if line is not None and "run" in line and tool is not None:
                answer: dict[str, Any]
                try:
                    values = tool.build(line["run"]["args"])
                    done = await tool._function(**values) if tool.is_async else await asyncio.to_thread(tool._function, **values)
                    answer = {"value": plain(done)}
                except asyncio.CancelledError:
                    raise
                except BaseException as error:
                    raised = error
                    answer = {"failure": _words(error)}
                self._ran(number, answer, raised)
                line = await lines.get()
            return self._outcome(name, line, raised)
        except asyncio.CancelledError:
            with contextlib.suppress(GatewayError):
                self._pipe.send({"id": number, "op": "cancel"})
            raise
        finally:
            self._pipe.close_id(number)

    async def acheck(self, name: str, args: Mapping[str, Any] | str | None = None) -> Verdict:
        """As :meth:`check`, without holding the event loop."""
        return await asyncio.to_thread(contextvars.copy_context().run, self.check, name, args)

    def listed(self) -> list[dict[str, Any]]:
        """The tools that the gate itself can run or knows by its policy, as it shows them."""
        self._listed = list(self._ask("", {"op": "tools"})["tools"])
        return list(self._listed)

    def _of_servers(self, fresh: bool) -> list[dict[str, Any]]:
        """The tools that the gate runs itself: those of MCP servers and commands. Asked for once, unless ``fresh``."""
        listed = self.listed() if fresh or self._listed is None else self._listed
        return [one for one in listed if one.get("implemented") and one["name"] not in self._tools]

    def _call(self, name: str, args: Mapping[str, Any] | str | None) -> dict[str, Any]:
        line: dict[str, Any] = {"tool": name}
        if isinstance(args, str):
            line["text"] = args
        else:
            line["args"] = {key: plain(value) for key, value in (args or {}).items()}
        session = self._session.get()
        if session is not None:
            line["session"] = session
        return line

    def _line(self, name: str, args: Mapping[str, Any] | str | None, tool: Tool[..., Any] | None) -> dict[str, Any]:
        return {"op": "call", **self._call(name, args), "here": tool is not None}

    def _ran(self, number: int, answer: dict[str, Any], raised: BaseException | None) -> None:
        try:
            self._pipe.send({"id": number, "op": "ran", **answer})
        except (ValueError, TypeError) as error:  # NaN, or a lone surrogate: the gate must hear that there is no value.
            self._pipe.send({"id": number, "op": "ran", "failure": _words(error)})

    def _ask(self, name: str, line: Mapping[str, Any]) -> dict[str, Any]:
        lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        number = self._pipe.open(lines.put, line)
        try:
            got = lines.get()
        finally:
            self._pipe.close_id(number)
        if got is None:
            raise GatewayError(self._pipe.gone)
        if "problem" in got:
            raise Denied(name, Verdict.of_problem(got["problem"]))
        return got

    def _outcome(self, name: str, line: dict[str, Any] | None, raised: BaseException | None) -> Any:
        if line is None:
            raise GatewayError(self._pipe.gone) from raised
        if raised is not None and not isinstance(raised, Exception):
            raise raised
        if "problem" in line:
            raise Denied(name, Verdict.of_problem(line["problem"])) from raised
        called = line["called"]
        verdict = Verdict.of(called)
        if "value" in called:
            return called["value"]
        if "failure" in called:
            if raised is not None:
                with contextlib.suppress(AttributeError):  # What the model may be told of it.
                    raised.fumehood_failure = called["failure"]  # type: ignore[attr-defined]
                raise raised
            raise ToolFailed(called["failure"])
        if "result" in called:
            return called["result"]
        raise Denied(name, verdict) from raised


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
