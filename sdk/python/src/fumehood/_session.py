"""Interpreters that stay: a bash and a Python in a live sandbox, asked again and again, which keep what they were told.

What they answer is believed in nothing but as text: a program in there can forge it, and fools only whoever asked it to run.
"""

from __future__ import annotations

import json
import secrets
import shlex
import time
from dataclasses import dataclass
from typing import Any, Sequence

from ._frames import LANE_OUT, Kind
from ._link import REQUEST_TIMEOUT, Expired, Stream, drive, ok, reply
from ._programs import Kept, program
from ._sync import Sandbox
from .errors import FumehoodError, ProcessNotFoundException, TimeoutException

#: Bytes of one answer that are kept.
MAX_ANSWER = 256 * 1024
#: In which the end of an answer is looked for.
_WINDOW = 4096


class SessionEnded(FumehoodError):
    """The interpreter ended (``exit``, a crash, a limit); ``text`` is what it had printed. The next call starts a new one."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message, code="session_ended")
        self.text = text


class Dialogue:
    """A program that reads requests and prints, after each answer, a line that was agreed on."""

    def __init__(self, box: Sandbox, argv: Sequence[str], envs: dict[str, str] | None = None) -> None:
        words = {"op": "exec", "program": program(list(argv), envs=envs, stdin=True), "detach": False}
        self._stream: Stream = box._link.open(words)
        self._side = bytearray()
        try:
            drive(reply(self._stream, REQUEST_TIMEOUT))
        except BaseException:
            self._stream.drop()
            raise

    def ask(self, text: str, token: str, timeout: float | None) -> tuple[str, str]:
        """What it printed, and the rest of the line that ``token`` begins.

        Raises :class:`TimeoutException` after which it is dead, or :class:`SessionEnded`.
        """
        until = None if timeout is None else time.monotonic() + timeout
        kept, window, mark = Kept(MAX_ANSWER), b"", token.encode("ascii")
        self._side.clear()
        try:
            drive(self._stream.send(text.encode("utf-8"), timeout))
            while True:
                data = self._next(kept, until)
                window = (window + data)[-_WINDOW - len(data) :]
                found = window.rfind(mark)
                if found >= 0 and b"\n" in window[found:]:
                    break
        except Expired:
            self.end()
            raise TimeoutException(f"it did not answer within {timeout:g} s, and was ended:\n{kept.text()}") from None
        except BaseException:
            self.end()
            raise
        said, _, rest = kept.text().rpartition(token)
        return said, rest.partition("\n")[0].strip()

    def side_line(self, timeout: float) -> bytes:
        """The line that it wrote to stderr; the two pipes of a program are read one by one, so that it may come later."""
        until = time.monotonic() + timeout
        while b"\n" not in self._side:
            try:
                self._next(Kept(0), until, side=True)
            except Expired:
                break
        return bytes(self._side).partition(b"\n")[0]

    def _next(self, kept: Kept, until: float | None, *, side: bool = False) -> bytes:
        """The next bytes of its stdout; with ``side``, of anything."""
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            incoming = drive(self._stream.next(left))
            if incoming.kind is Kind.END:
                report = ok(incoming, ProcessNotFoundException)
                raise SessionEnded(f"the session has ended: {report.get('message')}", kept.text())
            if incoming.kind is not Kind.DATA:
                continue
            data: bytes = incoming.value
            if incoming.lane == LANE_OUT:
                kept.add(data)
                return data
            if len(self._side) < 16 * MAX_ANSWER:
                self._side += data
            if side:
                return data

    def end(self) -> None:
        """Ends it, and all that it started."""
        self._stream.drop()


class BashSession:
    """A bash that keeps its folder, its variables and its functions from one command to the next."""

    def __init__(self, box: Sandbox, timeout: float | None = 120) -> None:
        self._box, self._timeout = box, timeout
        self._dialogue: Dialogue | None = None

    def run(self, command: str) -> tuple[str, int]:
        """What a command printed (stdout and stderr, as they came, without the last newlines) and its exit code. It reads an empty file.

        Raises :class:`TimeoutException` (seconds as given at first) or :class:`SessionEnded`; the next call starts anew.
        """
        if self._dialogue is None:
            self._dialogue = Dialogue(self._box, ["/bin/bash", "--norc", "--noprofile"])
        token = f"fumehood-{secrets.token_hex(16)}"
        # One word for `eval`: what does not parse is an error of its own, and not the end of the session.
        asked = f"eval {shlex.quote(command)} </dev/null 2>&1; printf '\\n%s %d\\n' {token} $?\n"
        try:
            said, code = self._dialogue.ask(asked, token, self._timeout)
        except BaseException:
            self._dialogue = None
            raise
        return said.rstrip("\n"), int(code) if code.isdecimal() else 1

    def restart(self) -> None:
        """Ends it; the next command finds a new one."""
        if self._dialogue is not None:
            self._dialogue.end()
        self._dialogue = None


@dataclass(frozen=True)
class Execution:
    """What some Python code did."""

    #: What it printed, to stdout and stderr.
    logs: str
    #: The value of its last expression, if it is JSON; else its ``repr``. ``None`` without one.
    result: Any
    #: Name, text and traceback of what it raised.
    error: str | None
    message: str | None
    traceback: str | None


_DRIVER = r"""
import ast, json, os, sys, traceback
asks, tells = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace")
null = os.open(os.devnull, os.O_RDONLY)
os.dup2(null, 0); os.dup2(1, 2)
space = {"__name__": "__main__", "__builtins__": __builtins__}
for line in asks:
    asked, said = json.loads(line), {}
    try:
        tree = ast.parse(asked["code"], "<code>")
        last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<code>", "exec"), space)
        if last is not None:
            value = eval(compile(last, "<code>", "eval"), space)
            try:
                said["result"] = json.loads(json.dumps(value))
            except Exception:
                said["result"] = repr(value)
    except BaseException as error:
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__ and error.__traceback__.tb_next))
        said = {"error": type(error).__name__, "message": str(getattr(error, "value", error)), "traceback": trace}
    try:
        sys.stdout.flush(); sys.stderr.flush()
    except Exception:
        pass
    tells.write(json.dumps(said) + "\n"); tells.flush()
    os.write(1, ("\n%s\n" % asked["token"]).encode())
"""


class PythonSession:
    """A Python that keeps its variables from one piece of code to the next. It is no kernel: text alone comes back."""

    def __init__(self, box: Sandbox, timeout: float | None = 120, python: str = "python3") -> None:
        self._box, self._timeout, self._python = box, timeout, python
        self._dialogue: Dialogue | None = None

    def run(self, code: str) -> Execution:
        """Runs code. Raises as :meth:`BashSession.run`; what the code raises is in the result."""
        if self._dialogue is None:
            self._dialogue = Dialogue(self._box, [self._python, "-u", "-c", _DRIVER])
        token = f"fumehood-{secrets.token_hex(16)}"
        try:
            logs, _ = self._dialogue.ask(json.dumps({"code": code, "token": token}) + "\n", token, self._timeout)
            said = self._answer(self._dialogue.side_line(10))
        except BaseException:
            self._dialogue = None
            raise
        return Execution(logs.rstrip("\n"), said.get("result"), said.get("error"), said.get("message"), said.get("traceback"))

    def _answer(self, side: bytes) -> dict[str, Any]:
        try:
            said = json.loads(side)
        except ValueError as error:
            raise SessionEnded(f"the session answered what nobody understands: {error}", "") from error
        return said if isinstance(said, dict) else {}

    def restart(self) -> None:
        """Ends it; the next code finds a new one."""
        if self._dialogue is not None:
            self._dialogue.end()
        self._dialogue = None

