"""Commands and terminals of an :class:`AsyncSandbox`; what is not said here is as in ``_sync_commands``."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Callable, Literal, overload

from . import _programs
from ._link import Link
from ._programs import MAX_OUTPUT, Callback, Program, Starter
from ._results import CommandResult, ProcessInfo, PtySize
from .errors import FumehoodError

#: Bytes that wait for whoever iterates over a handle.
_WAITING = 1 << 20

Piece = tuple["str | None", "str | None", "bytes | None"]


class AsyncCommandHandle:
    """A command that runs. What it prints is read by a task of its own, whether anybody looks or not."""

    def __init__(self, link: Link, program: Program, tell: Mapping[str, Callable[[Any], Any] | None]) -> None:
        self._link, self._program, self._tell = link, program, tell
        self._changed = asyncio.Condition()
        self._waiting: deque[tuple[str, str | bytes]] = deque()
        self._waiting_bytes = 0
        self._looked_at = False
        self._over = self._disconnected = False
        self._failure: Exception | None = None
        self._task = asyncio.create_task(self._pump(), name="fumehood-live")

    @property
    def pid(self) -> int:
        """Its pid inside."""
        return self._program.pid

    @property
    def id(self) -> str:
        """Its word for the command line, e.g. ``fumehood logs ID p1``."""
        return self._program.id

    @property
    def stdout(self) -> str:
        """What it has printed so far."""
        return self._program.output.stdout

    @property
    def stderr(self) -> str:
        """What it has printed to stderr so far."""
        return self._program.output.stderr

    @property
    def exit_code(self) -> int | None:
        """Its exit code, when it has ended."""
        result = self._program.result
        return None if result is None else result.exit_code

    @property
    def error(self) -> str | None:
        """How it ended, in one sentence, unless with exit code 0."""
        result = self._program.result
        return None if result is None else result.error

    async def _pump(self) -> None:
        try:
            while self._program.result is None and not self._over:
                for lane, piece in await self._program.next():
                    await self._take(lane, piece)
        except Exception as error:
            # Who listens no longer is told nothing of how the listening ended.
            if not self._disconnected:
                self._failure = self._failure or error
        finally:
            self._over = True
        async with self._changed:
            self._changed.notify_all()

    async def _take(self, lane: str, piece: str | bytes) -> None:
        callback = self._tell.get(lane)
        if callback is not None:
            try:
                await self._link.tell(callback, piece)
            except Exception as error:
                # Told by `wait`; the command goes on, and must not stand still for it.
                self._failure = self._failure or error
        async with self._changed:
            # Whoever looks is waited for; where nobody looks, the oldest goes.
            await self._changed.wait_for(lambda: not self._looked_at or self._over or self._waiting_bytes < _WAITING)
            self._waiting.append((lane, piece))
            self._waiting_bytes += len(piece)
            while not self._looked_at and self._waiting_bytes > _WAITING and len(self._waiting) > 1:
                self._waiting_bytes -= len(self._waiting.popleft()[1])
            self._changed.notify_all()

    async def __aiter__(self) -> AsyncIterator[Piece]:
        """What it prints, as ``(stdout, stderr, pty)`` with ``None`` in two of them. Of what was printed before, the newest MiB."""
        self._looked_at = True
        try:
            while (one := await self._next()) is not None:
                lane, piece = one
                yield (
                    piece if lane == "stdout" and isinstance(piece, str) else None,
                    piece if lane == "stderr" and isinstance(piece, str) else None,
                    piece if isinstance(piece, bytes) else None,
                )
        finally:
            await self._stop_looking()

    async def _next(self) -> tuple[str, str | bytes] | None:
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._waiting) or self._over)
            if not self._waiting:
                return None
            one = self._waiting.popleft()
            self._waiting_bytes -= len(one[1])
            self._changed.notify_all()
            return one

    async def _stop_looking(self) -> None:
        async with self._changed:
            self._looked_at = False
            self._changed.notify_all()

    async def wait(self) -> CommandResult:
        """Its result, when it has ended.

        Raises :class:`CommandExitException` for another exit code than 0, :class:`TimeoutException` or
        :class:`LimitExceeded` if a limit ended it, what one of the callbacks raised, and :class:`FumehoodError` with the code
        ``disconnected`` after :meth:`disconnect`.
        """
        await self._stop_looking()
        await asyncio.shield(self._task)
        if self._failure is not None:
            raise self._failure
        if self._program.result is None:
            raise FumehoodError("this handle was disconnected: connect to the command again", code="disconnected")
        return self._program.result.check()

    async def kill(self) -> bool:
        """Ends it and all that descends from it; ``False`` if it had ended."""
        return await _programs.kill(self._link, {"id": self.id})

    async def disconnect(self) -> None:
        """Listens no longer; the command goes on."""
        self._disconnected = self._over = True
        self._program.stream.drop()
        async with self._changed:
            self._changed.notify_all()

    async def send_stdin(self, data: str | bytes) -> None:
        """Writes to its input, which ``stdin=True`` gave it."""
        await _programs.send_input(self._link, {"id": self.id}, data)

    async def close_stdin(self) -> None:
        """Closes its input."""
        await _programs.close_input(self._link, {"id": self.id})


class AsyncCommands:
    """Commands of a sandbox: ``box.commands``."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._starter = Starter(link)

    @overload
    async def run(
        self, cmd: str | Sequence[str], background: Literal[False] | None = None, envs: Mapping[str, str] | None = None,
        *, cwd: str | None = None, timeout: float | None = 60, on_stdout: Callback | None = None,
        on_stderr: Callback | None = None, stdin: bool | str | bytes | None = None, max_output: int = MAX_OUTPUT,
        check: bool = True, tag: str | None = None,
    ) -> CommandResult: ...

    @overload
    async def run(
        self, cmd: str | Sequence[str], background: Literal[True], envs: Mapping[str, str] | None = None,
        *, cwd: str | None = None, timeout: float | None = 60, on_stdout: Callback | None = None,
        on_stderr: Callback | None = None, stdin: bool | str | bytes | None = None, max_output: int = MAX_OUTPUT,
        check: bool = True, tag: str | None = None,
    ) -> AsyncCommandHandle: ...

    async def run(
        self, cmd: str | Sequence[str], background: bool | None = None, envs: Mapping[str, str] | None = None,
        *, cwd: str | None = None, timeout: float | None = 60, on_stdout: Callback | None = None,
        on_stderr: Callback | None = None, stdin: bool | str | bytes | None = None, max_output: int = MAX_OUTPUT,
        check: bool = True, tag: str | None = None,
    ) -> CommandResult | AsyncCommandHandle:
        """Runs a command: text by bash (sh where there is none), a list as a program and its arguments.

        ``timeout`` is in seconds; after it the command's whole tree is killed (``None`` or 0: never). ``envs`` are added to
        the sandbox's own. ``stdin`` is text or bytes for it to read, or ``True``: something is going to be written. Of each of
        stdout and stderr ``max_output`` bytes are kept. With ``background`` a handle comes back at once, and the command lives on
        without it. ``on_stdout`` and ``on_stderr`` hear text as it comes; they may be coroutines.

        Raises :class:`CommandExitException` for another exit code than 0 (127 no such program, 126 not executable),
        :class:`TimeoutException`, :class:`LimitExceeded`; with ``check=False`` these are results like any other.
        """
        tell = {"stdout": on_stdout, "stderr": on_stderr}
        more: dict[str, Any] = {
            "envs": envs, "cwd": cwd, "stdin": stdin, "timeout": timeout, "max_output": max_output, "tag": tag,
        }
        if background:
            return AsyncCommandHandle(self._link, await self._starter.start(cmd, background=True, **more), tell)
        result = await self._starter.run(cmd, tell, **more)
        return result.check() if check else result

    async def list(self) -> list[ProcessInfo]:
        """The commands that run."""
        return await _programs.listed(self._link)

    async def kill(self, pid: int) -> bool:
        """Ends a command and all that descends from it; ``False`` if none such runs."""
        return await _programs.kill(self._link, {"pid": pid})

    async def send_stdin(self, pid: int, data: str | bytes) -> None:
        """Writes to a command's input. Raises :class:`ProcessNotFoundException`, or :class:`InvalidArgumentException` without one."""
        await _programs.send_input(self._link, {"pid": pid}, data)

    async def close_stdin(self, pid: int) -> None:
        """Closes a command's input."""
        await _programs.close_input(self._link, {"pid": pid})

    async def connect(self, pid: int, *, max_output: int = MAX_OUTPUT) -> AsyncCommandHandle:
        """Listens to a command that runs, from now on. Raises :class:`ProcessNotFoundException`."""
        program = await _programs.attach(self._link, {"pid": pid}, max_output=max_output)
        return AsyncCommandHandle(self._link, program, {})


class AsyncPty:
    """Terminals of a sandbox: ``box.pty``."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def create(
        self, size: PtySize, cwd: str | None = None, envs: Mapping[str, str] | None = None, timeout: float | None = 60,
        *, cmd: Sequence[str] = ("/bin/bash", "-i", "-l"), on_data: Callable[[bytes], Any] | None = None,
    ) -> AsyncCommandHandle:
        """Starts a shell at a terminal; ``timeout`` is in seconds (``None`` or 0: never).

        Raises :class:`UnsupportedException` where the sandbox has no terminals.
        """
        words = _programs.program(list(cmd), envs={"TERM": "xterm-256color", **(envs or {})}, cwd=cwd, size=size)
        program = await _programs.start(self._link, words, timeout=timeout, detach=True, max_output=MAX_OUTPUT)
        return AsyncCommandHandle(self._link, program, {"pty": on_data})

    async def connect(self, pid: int, *, on_data: Callable[[bytes], Any] | None = None) -> AsyncCommandHandle:
        """Listens to a terminal, from now on."""
        program = await _programs.attach(self._link, {"pid": pid}, max_output=MAX_OUTPUT)
        return AsyncCommandHandle(self._link, program, {"pty": on_data})

    async def send_stdin(self, pid: int, data: bytes) -> None:
        """Types."""
        await _programs.send_input(self._link, {"pid": pid}, data)

    async def resize(self, pid: int, size: PtySize) -> None:
        """Gives it another size."""
        await _programs.resize(self._link, {"pid": pid}, size)

    async def kill(self, pid: int) -> bool:
        """Ends it and all that descends from it; ``False`` if none such runs."""
        return await _programs.kill(self._link, {"pid": pid})


