"""Commands and terminals of a :class:`Sandbox`."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, Literal, overload

from . import _programs
from ._link import Link, drive
from ._programs import MAX_OUTPUT, Callback, Program, Starter
from ._results import CommandResult, ProcessInfo, PtySize
from .errors import FumehoodError

#: Bytes that wait for whoever iterates over a handle.
_WAITING = 1 << 20

Piece = tuple["str | None", "str | None", "bytes | None"]


class CommandHandle:
    """A command that runs. What it prints is read by a thread of its own, whether anybody looks or not. What goes wrong with that is
    raised by :meth:`wait`.
    """

    def __init__(self, link: Link, program: Program, tell: Mapping[str, Callable[[Any], Any] | None]) -> None:
        self._link, self._program, self._tell = link, program, tell
        self._changed = threading.Condition()
        self._waiting: deque[tuple[str, str | bytes]] = deque()
        self._waiting_bytes = 0
        self._looked_at = False
        self._over = self._disconnected = False
        self._failure: Exception | None = None
        threading.Thread(target=self._pump, name="fumehood-live", daemon=True).start()

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

    def _pump(self) -> None:
        try:
            while self._program.result is None and not self._over:
                for lane, piece in drive(self._program.next()):
                    self._take(lane, piece)
        except Exception as error:
            # Who listens no longer is told nothing of how the listening ended.
            if not self._disconnected:
                self._failure = self._failure or error
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _take(self, lane: str, piece: str | bytes) -> None:
        callback = self._tell.get(lane)
        if callback is not None:
            try:
                callback(piece)
            except Exception as error:
                # Told by `wait`; the command goes on, and must not stand still for it.
                self._failure = self._failure or error
        with self._changed:
            # Whoever looks is waited for; where nobody looks, the oldest goes.
            self._changed.wait_for(lambda: not self._looked_at or self._over or self._waiting_bytes < _WAITING)
            self._waiting.append((lane, piece))
            self._waiting_bytes += len(piece)
            while not self._looked_at and self._waiting_bytes > _WAITING and len(self._waiting) > 1:
                self._waiting_bytes -= len(self._waiting.popleft()[1])
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Piece]:
        """What it prints, as ``(stdout, stderr, pty)`` with ``None`` in two of them. Of what was printed before, the newest MiB."""
        self._looked_at = True
        try:
            while (one := self._next()) is not None:
                lane, piece = one
                yield (
                    piece if lane == "stdout" and isinstance(piece, str) else None,
                    piece if lane == "stderr" and isinstance(piece, str) else None,
                    piece if isinstance(piece, bytes) else None,
                )
        finally:
            self._stop_looking()

    def _next(self) -> tuple[str, str | bytes] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._over)
            if not self._waiting:
                return None
            one = self._waiting.popleft()
            self._waiting_bytes -= len(one[1])
            self._changed.notify_all()
            return one

    def _stop_looking(self) -> None:
        with self._changed:
            self._looked_at = False
            self._changed.notify_all()

    def wait(
        self,
        on_pty: Callable[[bytes], Any] | None = None,
        on_stdout: Callback | None = None,
        on_stderr: Callback | None = None,
    ) -> CommandResult:
        """Its result, when it has ended.

        Raises :class:`CommandExitException` for another exit code than 0, :class:`TimeoutException` or
        :class:`LimitExceeded` if a limit ended it, what one of the callbacks raised, and :class:`FumehoodError` with the code
        ``disconnected`` after :meth:`disconnect`.
        """
        tell: dict[str, Callable[[Any], Any] | None] = {"pty": on_pty, "stdout": on_stdout, "stderr": on_stderr}
        if any(tell.values()):
            self._looked_at = True
            while (one := self._next()) is not None:
                callback = tell[one[0]]
                if callback is not None:
                    callback(one[1])
        self._stop_looking()
        with self._changed:
            self._changed.wait_for(lambda: self._over)
        if self._failure is not None:
            raise self._failure
        if self._program.result is None:
            raise FumehoodError("this handle was disconnected: connect to the command again", code="disconnected")
        return self._program.result.check()

    def kill(self) -> bool:
        """Ends it and all that descends from it; ``False`` if it had ended."""
        return drive(_programs.kill(self._link, {"id": self.id}))

    def disconnect(self) -> None:
        """Listens no longer; the command goes on."""
        with self._changed:
            self._disconnected = self._over = True
            self._changed.notify_all()
        self._program.stream.drop()

    def send_stdin(self, data: str | bytes) -> None:
        """Writes to its input, which ``stdin=True`` gave it."""
        drive(_programs.send_input(self._link, {"id": self.id}, data))

    def close_stdin(self) -> None:
        """Closes its input."""
        drive(_programs.close_input(self._link, {"id": self.id}))


class Commands:
    """Commands of a sandbox: ``box.commands``. What asks for one that does not run raises :class:`ProcessNotFoundException`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._starter = Starter(link)

    @overload
    def run(
        self, cmd: str | Sequence[str], background: Literal[False] | None = None, envs: Mapping[str, str] | None = None,
        *, cwd: str | None = None, timeout: float | None = 60, on_stdout: Callback | None = None,
        on_stderr: Callback | None = None, stdin: bool | str | bytes | None = None, max_output: int = MAX_OUTPUT,
        check: bool = True, tag: str | None = None,
    ) -> CommandResult: ...

    @overload
    def run(
        self, cmd: str | Sequence[str], background: Literal[True], envs: Mapping[str, str] | None = None,
        *, cwd: str | None = None, timeout: float | None = 60, on_stdout: Callback | None = None,
        on_stderr: Callback | None = None, stdin: bool | str | bytes | None = None, max_output: int = MAX_OUTPUT,
        check: bool = True, tag: str | None = None,
    ) -> CommandHandle: ...

    def run(
        self, cmd: str | Sequence[str], background: bool | None = None, envs: Mapping[str, str] | None = None,
        *, cwd: str | None = None, timeout: float | None = 60, on_stdout: Callback | None = None,
        on_stderr: Callback | None = None, stdin: bool | str | bytes | None = None, max_output: int = MAX_OUTPUT,
        check: bool = True, tag: str | None = None,
    ) -> CommandResult | CommandHandle:
        """Runs a command: text by bash (sh where there is none), a list as a program and its arguments.

        ``timeout`` is in seconds; after it the command's whole tree is killed (``None`` or 0: never). ``envs`` are added to
        the sandbox's own. ``stdin`` is text or bytes for it to read, or ``True``: something is going to be written. Of each of
        stdout and stderr ``max_output`` bytes are kept. With ``background`` a handle comes back at once, and the command lives on
        without it. ``on_stdout`` and ``on_stderr`` hear text as it comes; of a command in the background, in another thread.

        Raises :class:`CommandExitException` for another exit code than 0 (127 no such program, 126 not executable),
        :class:`TimeoutException`, :class:`LimitExceeded`; with ``check=False`` these are results like any other.
        """
        tell = {"stdout": on_stdout, "stderr": on_stderr}
        more: dict[str, Any] = {
            "envs": envs, "cwd": cwd, "stdin": stdin, "timeout": timeout, "max_output": max_output, "tag": tag,
        }
        if background:
            return CommandHandle(self._link, drive(self._starter.start(cmd, background=True, **more)), tell)
        result = drive(self._starter.run(cmd, tell, **more))
        return result.check() if check else result

    def list(self) -> list[ProcessInfo]:
        """The commands that run."""
        return drive(_programs.listed(self._link))

    def kill(self, pid: int) -> bool:
        """Ends a command and all that descends from it; ``False`` if none such runs."""
        return drive(_programs.kill(self._link, {"pid": pid}))

    def send_stdin(self, pid: int, data: str | bytes) -> None:
        """Writes to a command's input. Raises :class:`ProcessNotFoundException`, or :class:`InvalidArgumentException` without one."""
        drive(_programs.send_input(self._link, {"pid": pid}, data))

    def close_stdin(self, pid: int) -> None:
        """Closes a command's input."""
        drive(_programs.close_input(self._link, {"pid": pid}))

    def connect(self, pid: int, *, max_output: int = MAX_OUTPUT) -> CommandHandle:
        """Listens to a command that runs, from now on; of each lane ``max_output`` bytes are kept. Raises :class:`ProcessNotFoundException`."""
        program = drive(_programs.attach(self._link, {"pid": pid}, max_output=max_output))
        return CommandHandle(self._link, program, {})


class Pty:
    """Terminals of a sandbox: ``box.pty``. What asks for one that does not run raises :class:`ProcessNotFoundException`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def create(
        self, size: PtySize, cwd: str | None = None, envs: Mapping[str, str] | None = None, timeout: float | None = 60,
        *, cmd: Sequence[str] = ("/bin/bash", "-i", "-l"), on_data: Callable[[bytes], Any] | None = None,
    ) -> CommandHandle:
        """Starts a shell at a terminal; ``timeout`` is in seconds (``None`` or 0: never).

        Raises :class:`UnsupportedException` where the sandbox has no terminals.
        """
        words = _programs.program(list(cmd), envs={"TERM": "xterm-256color", **(envs or {})}, cwd=cwd, size=size)
        program = drive(_programs.start(self._link, words, timeout=timeout, detach=True, max_output=MAX_OUTPUT))
        return CommandHandle(self._link, program, {"pty": on_data})

    def connect(self, pid: int, *, on_data: Callable[[bytes], Any] | None = None) -> CommandHandle:
        """Listens to a terminal, from now on."""
        program = drive(_programs.attach(self._link, {"pid": pid}, max_output=MAX_OUTPUT))
        return CommandHandle(self._link, program, {"pty": on_data})

    def send_stdin(self, pid: int, data: bytes) -> None:
        """Types."""
        drive(_programs.send_input(self._link, {"pid": pid}, data))

    def resize(self, pid: int, size: PtySize) -> None:
        """Gives it another size."""
        drive(_programs.resize(self._link, {"pid": pid}, size))

    def kill(self, pid: int) -> bool:
        """Ends it and all that descends from it; ``False`` if none such runs."""
        return drive(_programs.kill(self._link, {"pid": pid}))


