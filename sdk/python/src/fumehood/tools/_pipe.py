"""The ``fumehood`` program at the other end of a pipe, and the lines between us."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import weakref
from typing import Any, Callable, Mapping, Sequence

from .._binary import find_program as _find_program
from ..errors import FumehoodError, ProgramNotFoundException

#: Called with a parked call; its answer is true, false, or ``(answer, why)``. ``None`` leaves the answer to others.
Answerer = Callable[[Mapping[str, Any]], "bool | tuple[bool, str] | None"]

#: Called with each line about one id; ``None`` when there will be no more, because the gate is gone.
Sink = Callable[["dict[str, Any] | None"], None]


class GatewayError(FumehoodError):
    """The gate could not be started, or is gone. Nothing runs without it."""


class Pipe:
    """One process. Threads and event loops share it; each call has its own sink."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None, answerer: Answerer | None) -> None:
        self._answerer = answerer
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._sinks: dict[int, Sink] = {}
        self._next = 0
        self._pid = os.getpid()
        self._gone: str | None = None
        self._errors: list[str] = []
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=None if env is None else dict(env),
                # A Ctrl-C at the terminal is for the agent: the gate must outlive it to answer.
                start_new_session=True,
            )
        except OSError as error:
            raise GatewayError(f"{command[0]} cannot be started: {error}") from error
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        listener = threading.Thread(target=self._listen_to_errors, args=(self._process.stderr,), daemon=True)
        listener.start()
        first = self._stdout.readline()
        if not first:
            code = self._process.wait()
            listener.join(timeout=5)
            raise GatewayError(f"the gate did not start (exit code {code}):\n{''.join(self._errors).strip()}")
        self.hello: dict[str, Any] = json.loads(first)
        threading.Thread(target=self._read, name="fumehood", daemon=True).start()
        self._finalizer = weakref.finalize(self, _end, self._process)

    def _listen_to_errors(self, stream: Any) -> None:
        for line in stream:
            if len(self._errors) < 200:
                self._errors.append(line.decode("utf-8", "replace"))

    def _read(self) -> None:
        try:
            for line in self._stdout:
                self._take(json.loads(line))
        except (OSError, ValueError) as error:
            self._gone = f"the gate cannot be understood: {error}"
        with self._lock:
            if self._gone is None:
                self._gone = f"the gate ended:\n{''.join(self._errors).strip()}"
            sinks, self._sinks = list(self._sinks.values()), {}
        for sink in sinks:
            sink(None)

    def _take(self, line: dict[str, Any]) -> None:
        if "asked" in line:
            threading.Thread(target=self._answer, args=(line["asked"],), daemon=True).start()
            return
        with self._lock:
            sink = self._sinks.get(line.get("id") or 0)
        if sink is not None:
            sink(line)

    def _answer(self, call: Mapping[str, Any]) -> None:
        said = self._answerer(call) if self._answerer else None
        if said is None:
            return
        approve, why = said if isinstance(said, tuple) else (said, "")
        # Only a real `True` agrees: a truthy object is somebody's mistake.
        answer = {"op": "answer", "approval": call["id"], "approve": approve is True, "why": why}
        try:
            self.open(lambda _: None, answer)
        except GatewayError:
            pass  # The call is gone with the gate.

    def open(self, sink: Sink, line: Mapping[str, Any]) -> int:
        """Sends a line under a new id; lines about that id go to ``sink`` until :meth:`close_id`."""
        with self._lock:
            self._check()
            self._next += 1
            number = self._next
            self._sinks[number] = sink
        try:
            self.send({"id": number, **line})
        except BaseException:
            self.close_id(number)
            raise
        return number

    def close_id(self, number: int) -> None:
        with self._lock:
            self._sinks.pop(number, None)

    def send(self, line: Mapping[str, Any]) -> None:
        text = json.dumps(line, allow_nan=False, separators=(",", ":"))
        data = text.encode("utf-8") + b"\n"
        with self._write_lock:
            self._check()
            try:
                self._stdin.write(data)
                self._stdin.flush()
            except OSError as error:
                raise GatewayError(self._gone or f"the gate is gone: {error}") from error

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise GatewayError("a Gateway does not survive a fork: make one in each process")
        if self._gone is not None:
            raise GatewayError(self._gone)

    @property
    def gone(self) -> str:
        return self._gone or "the gate is gone"

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        if self._gone is None:
            self._gone = "this Gateway is closed"
        self._finalizer()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Closing its stdin ends the gate; one that does not end is killed."""
    try:
        if process.stdin:
            process.stdin.close()
    except OSError:
        pass
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def find_program(program: str | os.PathLike[str] | None) -> str:
    """The ``fumehood`` to start, as everywhere in this package."""
    try:
        return _find_program(program)
    except ProgramNotFoundException as error:
        raise GatewayError(str(error)) from error
