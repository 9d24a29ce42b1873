"""Programs in a live sandbox: how they are asked for, and what is kept of what they print."""

from __future__ import annotations

import base64
import codecs
from collections import deque
from typing import Any, Callable, Mapping, Sequence

from ._frames import LANE_ERR, Incoming, Kind
from ._link import REQUEST_TIMEOUT, Expired, Link, Stream, ok, reply
from ._names import utf8
from ._results import CommandResult, ProcessInfo, PtySize, Record, shaped
from ._times import milliseconds
from .errors import (
    FumehoodError,
    InvalidArgumentException,
    NotFoundException,
    PermissionDeniedException,
    ProcessNotFoundException,
    TimeoutException,
    Violation,
)

#: Bytes of each of stdout and stderr that are kept.
MAX_OUTPUT = 10 << 20
#: Seconds beyond a command's own timeout in which the supervisor must tell its end.
_GRACE = 30.0
#: Bytes in one ``input`` request, before base64.
_INPUT = 128 * 1024

#: The exit codes that a shell gives where a program could not be started.
_UNSTARTED = {"not_found": 127, "not_executable": 126, "denied": 126}

Callback = Callable[[str], Any]


def program(
    cmd: str | Sequence[str],
    *,
    shell: str = "/bin/bash",
    envs: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stdin: bool = False,
    size: PtySize | None = None,
) -> dict[str, Any]:
    """A ``Program``: text goes to a shell, a list is a program and its arguments."""
    argv = [shell, "-c", cmd] if isinstance(cmd, str) else list(cmd)
    if not argv or not all(isinstance(word, str) for word in argv):
        raise InvalidArgumentException("a command is text for a shell, or a list of words that begins with a program")
    made: dict[str, Any] = {"argv": argv, "stdin": stdin}
    if envs:
        made["env"] = dict(envs)
    if cwd is not None:
        made["cwd"] = cwd
    if size is not None:
        made["tty"] = {"rows": size.rows, "cols": size.cols}
    return made


class Kept:
    """A lane as it is kept: its first and its last bytes, and how many are missing between them."""

    def __init__(self, most: int) -> None:
        if most < 0:
            raise InvalidArgumentException("max_output is a number of bytes, 0 or more")
        self._head = bytearray()
        self._most_head = most - most // 2
        self._tail: deque[bytes] = deque()
        self._in_tail = 0
        self._most_tail = most // 2
        self.dropped = 0

    def add(self, data: bytes) -> None:
        room = self._most_head - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        self._tail.append(data)
        self._in_tail += len(data)
        while self._in_tail > self._most_tail:
            excess = self._in_tail - self._most_tail
            first = self._tail.popleft()
            if len(first) > excess:
                self._tail.appendleft(first[excess:])
            gone = min(excess, len(first))
            self._in_tail -= gone
            self.dropped += gone

    def text(self) -> str:
        head = self._head.decode("utf-8", "replace") if self.dropped else ""
        tail = b"".join(self._tail)
        if not self.dropped:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        return f"{head}\n[fumehood: {self.dropped} bytes were cut here]\n{tail.decode('utf-8', 'replace')}"


class Output:
    """Both lanes of one program, as they come."""

    def __init__(self, max_output: int) -> None:
        self._kept = {lane: Kept(max_output) for lane in ("stdout", "stderr")}
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {lane: make("replace") for lane in ("stdout", "stderr")}
        #: Bytes that the supervisor left out because we did not keep up.
        self.lost = 0

    def take(self, incoming: Incoming) -> tuple[str, str]:
        """The lane, and its text as far as characters are whole."""
        lane = "stderr" if incoming.lane == LANE_ERR else "stdout"
        self._kept[lane].add(incoming.value)
        return lane, self._decoders[lane].decode(incoming.value)

    def rest(self) -> list[tuple[str, str]]:
        """What is left of characters that never became whole."""
        rest = ((lane, decoder.decode(b"", True)) for lane, decoder in self._decoders.items())
        return [(lane, text) for lane, text in rest if text]

    @property
    def stdout(self) -> str:
        return self._kept["stdout"].text()

    @property
    def stderr(self) -> str:
        return self._kept["stderr"].text()

    @shaped
    def result(self, report: Mapping[str, Any]) -> CommandResult:
        """Of a ``Report``, with what was kept."""
        code, signal = report.get("code"), report.get("signal")
        outcome, limit = str(report.get("outcome") or "failed"), report.get("limit")
        exit_code = int(code) if code is not None else 128 + int(signal) if signal is not None else 124
        message = str(report.get("message") or "")
        kept = sum(kept.dropped for kept in self._kept.values())
        usage = {name: report[name] for name in ("wall", "cpu_user", "cpu_system", "memory_peak", "output") if name in report}
        return CommandResult(
            stdout=self.stdout,
            stderr=self.stderr,
            exit_code=exit_code,
            error=None if outcome == "exited" and exit_code == 0 else message,
            outcome=outcome,
            limit=None if limit is None else str(limit),
            dropped=kept + self.lost + int(report.get("dropped") or 0),
            usage=Record(usage),
            violations=Violation.of(report.get("violations")) + Violation.of({**hint, "seen": "output"} for hint in report.get("hints") or ()),
        )

    def never(self, exit_code: int, message: str) -> CommandResult:
        """Of a program that could not be started, as a shell would say it."""
        return CommandResult(self.stdout, f"{self.stderr}{message}\n", exit_code, message, outcome="refused")


@shaped
def _identity(running: Mapping[str, Any]) -> tuple[str, int, bool]:
    return str(running["id"]), int(running["pid"]), bool((running.get("program") or {}).get("tty"))


class Program:
    """A program whose stream is ours: it was started here, or is listened to."""

    def __init__(self, link: Link, stream: Stream, running: Mapping[str, Any], max_output: int, timeout: float | None) -> None:
        self.link, self.stream = link, stream
        self.id, self.pid, self.tty = _identity(running)
        self.output = Output(max_output)
        self.result: CommandResult | None = None
        self._timeout = None if timeout is None else timeout + _GRACE

    async def next(self) -> list[tuple[str, str | bytes]]:
        """What it printed next, in lanes ``stdout``, ``stderr`` and ``pty``; sets ``result`` at its end."""
        try:
            incoming = await self.stream.next(self._timeout)
        except Expired:
            self.stream.drop()
            raise TimeoutException("the supervisor did not end the command after its timeout") from None
        if incoming.kind is Kind.DATA:
            lane, text = self.output.take(incoming)
            return [("pty", incoming.value)] if self.tty else [(lane, text)] if text else []
        if incoming.kind is Kind.EVENT:
            self.output.lost += int(incoming.value.get("lost") or 0)
            return []
        if incoming.kind is Kind.END:
            report = ok(incoming, ProcessNotFoundException)
            rest: list[tuple[str, str | bytes]] = [] if self.tty else [*self.output.rest()]
            self.result = self.output.result(report)
            return rest
        return []

    async def until_end(self, tell: Mapping[str, Callable[[Any], Any] | None]) -> CommandResult:
        """Its result; ``tell`` hears what it prints."""
        while self.result is None:
            for lane, piece in await self.next():
                callback = tell.get(lane)
                if callback is not None:
                    await self.link.tell(callback, piece)
        return self.result


async def start(
    link: Link,
    words: Mapping[str, Any],
    *,
    timeout: float | None,
    detach: bool,
    max_output: int,
    tag: str | None = None,
) -> Program:
    """Starts a program; ``timeout`` is its life in seconds."""
    asked: dict[str, Any] = {"op": "exec", "program": dict(words), "detach": detach}
    timeout = timeout or None
    if timeout is not None:
        asked["timeout_ms"] = max(1, milliseconds(timeout))
    if tag is not None:
        asked["tag"] = tag
    stream = link.open(asked)
    try:
        return Program(link, stream, await reply(stream, REQUEST_TIMEOUT), max_output, timeout)
    except BaseException:
        stream.drop()
        raise


async def attach(link: Link, which: Mapping[str, Any], *, max_output: int) -> Program:
    """Listens to a program from now on."""
    stream = link.open({"op": "attach", "which": dict(which)})
    try:
        running = await reply(stream, REQUEST_TIMEOUT, ProcessNotFoundException)
        return Program(link, stream, running, max_output, None)
    except BaseException:
        stream.drop()
        raise


async def listed(link: Link) -> list[ProcessInfo]:
    """The commands that run."""
    answer = await link.call({"op": "programs"})
    return [_process(one) for one in answer.get("programs") or () if one.get("report") is None]


@shaped
def _process(running: Mapping[str, Any]) -> ProcessInfo:
    asked = running.get("program") or {}
    argv = [str(word) for word in asked.get("argv") or ("",)]
    return ProcessInfo(
        pid=int(running["pid"]),
        tag=running.get("tag"),
        cmd=argv[0],
        args=argv[1:],
        envs=dict(asked.get("env") or {}),
        cwd=asked.get("cwd"),
        id=str(running.get("id") or ""),
    )


async def kill(link: Link, which: Mapping[str, Any]) -> bool:
    """Ends a program and all that descends from it; ``False`` if none such runs."""
    try:
        await link.call(
            {"op": "signal", "which": dict(which), "number": 9, "tree": True}, missing=ProcessNotFoundException
        )
    except ProcessNotFoundException:
        return False
    return True


async def send_input(link: Link, which: Mapping[str, Any], data: str | bytes) -> None:
    """Writes to a program's input, after what was written before."""
    raw = utf8(data, "data") if isinstance(data, str) else bytes(data)
    for at in range(0, len(raw), _INPUT):
        text = base64.b64encode(raw[at : at + _INPUT]).decode("ascii")
        await link.call({"op": "input", "which": dict(which), "bytes": text}, missing=ProcessNotFoundException)


async def close_input(link: Link, which: Mapping[str, Any]) -> None:
    """Closes a program's input."""
    await link.call({"op": "close_input", "which": dict(which)}, missing=ProcessNotFoundException)


async def resize(link: Link, which: Mapping[str, Any], size: PtySize) -> None:
    """Gives a program's terminal another size."""
    words = {"op": "resize", "which": dict(which), "size": {"rows": size.rows, "cols": size.cols}}
    await link.call(words, missing=ProcessNotFoundException)


async def feed(program: Program, data: bytes, close: bool) -> None:
    """Writes to a program's input, and may close it. That it ended before is told by its own stream."""
    try:
        if await program.stream.send(data, None) and close:
            await program.stream.finish()
    except FumehoodError:
        pass


#: Bytes of arguments that fit into a request with all that is around them.
_FITS = 192 * 1024
#: Runs the program whose arguments, so many, come first on its input, each with a NUL behind it.
_WIDE = """mapfile -d '' -t -n "$1" a && exec "${a[@]}\""""


def _wide(words: Sequence[str]) -> bytes:
    """Arguments that are too many for one request, as input of :data:`_WIDE`; empty where they fit."""
    if sum(len(word) for word in words) * 4 < _FITS:
        return b""
    try:
        raw = [word.encode("utf-8") for word in words]
    except UnicodeEncodeError:
        return b""
    if sum(len(word) + 8 for word in raw) < _FITS or any(b"\0" in word for word in raw):
        return b""
    return b"".join(word + b"\0" for word in raw)


class Starter:
    """Starts commands: by bash, or by sh where there is no bash."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._shell = "/bin/bash"

    async def start(
        self,
        cmd: str | Sequence[str],
        *,
        background: bool,
        envs: Mapping[str, str] | None,
        cwd: str | None,
        stdin: bool | str | bytes | None,
        timeout: float | None,
        max_output: int,
        tag: str | None,
    ) -> Program:
        """A command that runs; raises what kept it from being started."""
        given = utf8(stdin, "stdin") if isinstance(stdin, str) else stdin if isinstance(stdin, bytes) else None
        reads = given is not None or stdin is True
        wide = b"" if isinstance(cmd, str) else _wide(cmd)
        if wide:
            cmd = ["/bin/bash", "-c", _WIDE if reads else f"{_WIDE} </dev/null", "bash", str(len(cmd))]
        more: dict[str, Any] = {"timeout": timeout, "detach": background, "max_output": max_output, "tag": tag}

        def asked() -> dict[str, Any]:
            return program(cmd, shell=self._shell, envs=envs, cwd=cwd, stdin=reads or bool(wide))

        try:
            made = await start(self.link, asked(), **more)
        except NotFoundException:
            if not isinstance(cmd, str) or self._shell == "/bin/sh":
                raise
            self._shell = "/bin/sh"
            made = await start(self.link, asked(), **more)
        if wide or given is not None:
            feeding = feed(made, wide + (given or b""), stdin is not True)
            if stdin is True:
                # What is written later comes behind it.
                await feeding
            else:
                self.link.spawn(feeding)
        return made

    async def run(self, cmd: str | Sequence[str], tell: Mapping[str, Callable[[Any], Any] | None], **more: Any) -> CommandResult:
        """A command from its start to its end, whatever that is."""
        try:
            made = await self.start(cmd, background=False, **more)
        except (NotFoundException, PermissionDeniedException) as error:
            return Output(0).never(_UNSTARTED[error.code], str(error))
        try:
            return await made.until_end(tell)
        finally:
            # What is given up before its end is killed.
            made.stream.drop()


async def python(link: Link, code: str, timeout: float | None, max_output: int) -> CommandResult:
    """Code that keeps no state, in the Python that waits."""
    words: dict[str, Any] = {"op": "python", "code": code}
    if timeout is not None:
        words["timeout_ms"] = max(1, milliseconds(timeout))
    stream = link.open(words)
    try:
        running = await reply(stream, REQUEST_TIMEOUT)
        return await Program(link, stream, running, max_output, timeout).until_end({})
    finally:
        # What is given up before its end is killed.
        stream.drop()
