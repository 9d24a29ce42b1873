"""A sandbox of a server: what a supervisor is asked for, as requests of ``/v1``."""

from __future__ import annotations

import base64
import json
import time
import urllib.parse
import weakref
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

from ._frames import LANE_ERR, LANE_OUT, Failure, Incoming, Kind, ProtocolError, encode_json
from ._http import Answer, Server, Upload, code_of, object_of, part
from ._link import REQUEST_TIMEOUT, Link, Stream
from ._loop import Looped
from ._threads import Threaded
from .errors import ConnectionLost, FumehoodError, SandboxNotFoundException, SandboxNotRunningException, UnsupportedException

#: Longest event, bytes: a line of a kernel stands in one.
_MAX_EVENT = 96 << 20
#: Bytes of input in one request; a server takes 1 MiB.
_INPUT = 512 * 1024
_CHUNK = 256 * 1024
#: Seconds between two looks at a sandbox whose end is waited for.
_EVERY = 0.5


class Ask(NamedTuple):
    """A request below a sandbox."""

    method: str
    path: str
    body: bytes = b""
    kind: str = "application/json"


class HttpLink(Link):
    """Each request is one of HTTP, on a connection of its own."""

    def __init__(self, server: Server, sandbox_id: str) -> None:
        self.server, self.base = server, f"/v1/sandboxes/{part(sandbox_id)}"
        self._open: weakref.WeakSet[_HttpStream] = weakref.WeakSet()
        self._closed = False

    def open(self, words: Mapping[str, Any]) -> Stream:
        if self._closed:
            raise SandboxNotRunningException("this connection is closed", code="closed")
        made = self._made(words)
        self._open.add(made)
        return made

    def _made(self, words: Mapping[str, Any]) -> _HttpStream:
        asked = dict(words)
        op = str(asked.pop("op"))
        if op in _PROGRAMS:
            return _Program(self, _PROGRAMS[op](asked), asked.get("program"))
        if op in _EVENTS:
            return _Events(self, _EVENTS[op](asked))
        if op == "read":
            return _Read(self, f"/files?{_query(asked, 'path')}")
        if op == "write":
            return _Write(self, _written(asked))
        if op == "list":
            return _Listed(self, Ask("GET", f"/files/list?{_query(asked, 'path', 'depth')}"))
        if op == "wait":
            return _Wait(self)
        if op == "timeout":
            return _Later(self, asked)
        if op in _CALLS:
            return _Once(self, _CALLS[op](asked))
        raise UnsupportedException(f"a server has no request for `{op}`", code="unsupported")

    async def info(self) -> dict[str, Any]:
        """All about the sandbox, also when it has ended."""
        return await self.server.json("GET", self.base)

    async def json(self, ask: Ask, timeout: float | None) -> dict[str, Any]:
        answer = await self.server.ask(ask.method, self.base + ask.path, ask.body, kind=ask.kind, timeout=timeout)
        data = await answer.whole(timeout)
        return object_of(data) if data.strip() else {}

    async def told(self, error: FumehoodError) -> FumehoodError:
        """The same error, or that the sandbox is no longer one that answers."""
        if not isinstance(error, (SandboxNotFoundException, ConnectionLost)) or isinstance(error, ProtocolError):
            return error
        try:
            info = await self.info()
        except FumehoodError:
            return error
        state = info.get("state")
        if state == "ended":
            return SandboxNotRunningException(f"the sandbox has ended: {info.get('message') or info.get('reason')}", code="ended")
        if state == "paused":
            return SandboxNotRunningException("the sandbox is paused, which ends what is listened to; programs go on later", code="paused")
        return error

    async def close(self) -> None:
        self._closed = True
        for stream in list(self._open):
            stream.drop()


class BlockingHttpLink(Threaded, HttpLink):
    """For threads."""


class LoopHttpLink(Looped, HttpLink):
    """For an event loop."""


def _query(asked: Mapping[str, Any], *names: str) -> str:
    given = {name: asked[name] for name in names if asked.get(name) is not None}
    shown = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
    return urllib.parse.urlencode(shown)


def _written(asked: Mapping[str, Any]) -> str:
    more = {"path": asked["path"]}
    if asked.get("mode") is not None:
        more["mode"] = f"{asked['mode']:o}"
    if asked.get("metadata") is not None:
        more["metadata"] = json.dumps(asked["metadata"])
    return f"/files?{_query(more, *more)}"


def _seconds(asked: Mapping[str, Any]) -> float | None:
    return None if asked.get("timeout_ms") is None else asked["timeout_ms"] / 1000


def _body(**fields: Any) -> bytes:
    return encode_json({name: value for name, value in fields.items() if value is not None})


def _process(asked: Mapping[str, Any]) -> str:
    """Which program: ``p1``, a pid or a tag."""
    [(key, value)] = asked["which"].items()
    return f"/processes/{part(f'tag:{value}' if key == 'tag' else value)}"


def _exec(asked: Mapping[str, Any]) -> Ask:
    program = asked["program"]
    body = _body(
        cmd=program["argv"], env=program.get("env"), cwd=program.get("cwd"), tty=program.get("tty"),
        stdin=program.get("stdin") or None, timeout=_seconds(asked), detach=asked.get("detach") or None, tag=asked.get("tag"),
    )
    return Ask("POST", "/exec", body)


def _execute(asked: Mapping[str, Any]) -> Ask:
    body = _body(
        code=asked["code"], context=asked.get("context"), language=asked.get("language"), env=asked.get("env"), timeout=_seconds(asked),
    )
    return Ask("POST", "/code", body)


def _input(asked: Mapping[str, Any]) -> Ask:
    return Ask("POST", f"{_process(asked)}/stdin", base64.b64decode(asked["bytes"]), "application/octet-stream")


def _context(asked: Mapping[str, Any]) -> str:
    return f"/contexts/{part(asked['id'])}"


_Asking = Callable[[Mapping[str, Any]], Ask]

#: Requests whose stream is that of a program.
_PROGRAMS: dict[str, _Asking] = {
    "exec": _exec,
    "python": lambda asked: Ask("POST", "/exec", _body(python=asked["code"], timeout=_seconds(asked))),
    "attach": lambda asked: Ask("GET", f"{_process(asked)}/attach"),
}
#: Others that are answered by events.
_EVENTS: dict[str, _Asking] = {
    "execute": _execute,
    "watch": lambda asked: Ask("GET", f"/files/watch?{_query(asked, 'path', 'recursive')}"),
}
#: Those that are answered by their result alone.
_CALLS: dict[str, _Asking] = {
    "info": lambda asked: Ask("GET", ""),
    "kill": lambda asked: Ask("DELETE", ""),
    "pause": lambda asked: Ask("POST", "/pause"),
    "resume": lambda asked: Ask("POST", "/resume"),
    "snapshot": lambda asked: Ask("POST", "/snapshots", _body(**asked)),
    "programs": lambda asked: Ask("GET", "/processes"),
    "signal": lambda asked: Ask("POST", f"{_process(asked)}/signal", _body(signal=asked["number"], tree=asked.get("tree"))),
    "input": _input,
    "close_input": lambda asked: Ask("POST", f"{_process(asked)}/stdin?close=true"),
    "resize": lambda asked: Ask("POST", f"{_process(asked)}/resize", _body(**asked["size"])),
    "stat": lambda asked: Ask("GET", f"/files/stat?{_query(asked, 'path')}"),
    "mkdir": lambda asked: Ask("POST", "/files/mkdir", _body(path=asked["path"])),
    "move": lambda asked: Ask("POST", "/files/move", encode_json({"from": asked["from"], "to": asked["to"]})),
    "remove": lambda asked: Ask("DELETE", f"/files?{_query(asked, 'path')}"),
    "contexts": lambda asked: Ask("GET", "/contexts"),
    "context_create": lambda asked: Ask("POST", "/contexts", _body(**asked)),
    "context_restart": lambda asked: Ask("POST", f"{_context(asked)}/restart"),
    "context_remove": lambda asked: Ask("DELETE", _context(asked)),
    "context_interrupt": lambda asked: Ask("POST", f"{_context(asked)}/interrupt"),
}


class _HttpStream(Stream):
    def __init__(self, link: HttpLink) -> None:
        self._link = link
        self._over = False

    @property
    def ended(self) -> bool:
        return self._over

    async def next(self, timeout: float | None) -> Incoming:
        try:
            incoming = await self._next(timeout)
        except FumehoodError as error:
            given_up, self._over = self._over, True
            # Who asked knows what was not found; the sandbox itself is another matter.
            if error.code == "not_found" and not isinstance(error, SandboxNotFoundException):
                return Incoming(Kind.END, Failure(error.code, str(error)))
            raise error if given_up else await self._link.told(error)
        self._over = self._over or incoming.kind is Kind.END
        return incoming

    async def _next(self, timeout: float | None) -> Incoming:
        raise NotImplementedError

    async def send(self, data: bytes | memoryview, timeout: float | None) -> bool:
        raise UnsupportedException("nothing more can be sent with this request", code="unsupported")

    async def finish(self) -> None:
        """Nothing is sent with most of them."""

    def drop(self) -> None:
        self._over = True


class _Once(_HttpStream):
    def __init__(self, link: HttpLink, ask: Ask) -> None:
        super().__init__(link)
        self._ask = ask

    async def _next(self, timeout: float | None) -> Incoming:
        return Incoming(Kind.END, await self._link.json(self._ask, timeout))


class _Listed(_Once):
    """What is in a folder comes at once, as one event."""

    _told = False

    async def _next(self, timeout: float | None) -> Incoming:
        if self._told:
            return Incoming(Kind.END, {})
        self._told = True
        return Incoming(Kind.EVENT, await self._link.json(self._ask, timeout))


class _Later(_HttpStream):
    """Another end of its life."""

    def __init__(self, link: HttpLink, asked: Mapping[str, Any]) -> None:
        super().__init__(link)
        self._asked = asked

    async def _next(self, timeout: float | None) -> Incoming:
        milliseconds = self._asked["ms"]
        if self._asked.get("only_later"):
            info = await self._link.info()
            ends = info.get("ends_ms")
            if ends is None or ends >= time.time() * 1000 + milliseconds:
                return Incoming(Kind.END, info)
        ask = Ask("POST", "/timeout", _body(timeout=milliseconds / 1000))
        return Incoming(Kind.END, await self._link.json(ask, timeout))


class _Receiving(_HttpStream):
    """An answer that comes in pieces."""

    def __init__(self, link: HttpLink, ask: Ask, accept: str) -> None:
        super().__init__(link)
        self._ask, self._accept = ask, accept
        self._answer: Answer | None = None

    async def _begun(self, timeout: float | None) -> Answer:
        if self._answer is None:
            ask, link = self._ask, self._link
            answer = await link.server.ask(
                ask.method, link.base + ask.path, ask.body, accept=self._accept, kind=ask.kind, timeout=timeout
            )
            if self._over:
                answer.close()
            self._answer = answer
        return self._answer

    def drop(self) -> None:
        super().drop()
        if self._answer is not None:
            self._answer.close()


class _Read(_Receiving):
    """The bytes of a file."""

    def __init__(self, link: HttpLink, path: str) -> None:
        super().__init__(link, Ask("GET", path), "application/octet-stream, application/problem+json")

    async def _next(self, timeout: float | None) -> Incoming:
        if self._answer is None:
            await self._begun(timeout)
            return Incoming(Kind.REPLY, {})
        data = await self._answer.read(timeout)
        if data:
            return Incoming(Kind.DATA, data)
        self.drop()
        return Incoming(Kind.END, {})


class _Events(_Receiving):
    """Server-sent events, as `crates/server/src/v1` says them."""

    def __init__(self, link: HttpLink, ask: Ask) -> None:
        super().__init__(link, ask, "text/event-stream")

    async def _next(self, timeout: float | None) -> Incoming:
        answer = await self._begun(timeout)
        while (event := await answer.until(b"\n\n", _MAX_EVENT, timeout)) is not None:
            fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if b": " in line)
            incoming = self._read(fields.get(b"event", b"").decode("ascii", "replace"), fields.get(b"data", b""))
            if incoming.kind is Kind.END:
                self.drop()
            return incoming
        raise ConnectionLost("the server ended the events before their end: the sandbox may be gone", code="unreachable")

    def _read(self, name: str, data: bytes) -> Incoming:
        if name in ("stdout", "stderr"):
            try:
                raw = base64.b64decode(json.loads(data), validate=True)
            except (ValueError, TypeError, RecursionError) as error:
                raise ProtocolError(f"output that is no base64: {error}") from error
            return Incoming(Kind.DATA, raw, LANE_ERR if name == "stderr" else LANE_OUT)
        if name == "line":
            return Incoming(Kind.DATA, data + b"\n", LANE_OUT)
        value = object_of(data)
        if name in ("started", "watching"):
            return Incoming(Kind.REPLY, value)
        if name == "ended":
            return Incoming(Kind.END, value)
        if name == "failed":
            return Incoming(Kind.END, Failure(code_of(value) or "failed", str(value.get("what") or "it failed")))
        return Incoming(Kind.EVENT, value)


class _Program(_Events):
    """A program, whose input goes in requests of its own."""

    def __init__(self, link: HttpLink, ask: Ask, program: Any) -> None:
        super().__init__(link, ask)
        self._program = program
        self._word = ""

    def _read(self, name: str, data: bytes) -> Incoming:
        incoming = super()._read(name, data)
        if incoming.kind is Kind.REPLY:
            self._word = str(incoming.value.get("id"))
            return incoming._replace(value={"program": self._program, **incoming.value})
        return incoming

    async def send(self, data: bytes | memoryview, timeout: float | None) -> bool:
        return all([await self._post("stdin", bytes(data[at : at + _INPUT]), timeout) for at in range(0, len(data), _INPUT)])

    async def finish(self) -> None:
        await self._post("stdin?close=true", b"", REQUEST_TIMEOUT)

    async def _post(self, what: str, body: bytes, timeout: float | None) -> bool:
        ask = Ask("POST", f"/processes/{part(self._word)}/{what}", body, "application/octet-stream")
        try:
            await self._link.json(ask, timeout)
        except FumehoodError as error:
            if error.code == "not_found":
                return False  # It has ended, which its own stream tells.
            raise
        return True


class _Write(_HttpStream):
    """A file that is sent in pieces."""

    def __init__(self, link: HttpLink, path: str) -> None:
        super().__init__(link)
        self._path = path
        self._upload: Upload | None = None

    async def _begun(self, timeout: float | None) -> Upload:
        if self._upload is None:
            self._upload = await self._link.server.upload(self._link.base + self._path, timeout)
        return self._upload

    async def send(self, data: bytes | memoryview, timeout: float | None) -> bool:
        upload = await self._begun(timeout)
        for at in range(0, len(data), _CHUNK):
            if not await upload.send(bytes(data[at : at + _CHUNK]), timeout):
                return False
        return True

    async def _next(self, timeout: float | None) -> Incoming:
        answer = await (await self._begun(timeout)).answer(timeout)
        return Incoming(Kind.END, object_of(await answer.whole(timeout)))

    def drop(self) -> None:
        super().drop()
        if self._upload is not None:
            self._upload.close()


class _Wait(_HttpStream):
    """The end of the sandbox. A pause breaks off what is listened to, so that it is asked again."""

    def __init__(self, link: HttpLink) -> None:
        super().__init__(link)
        self._looking: _Events | None = None

    async def _next(self, timeout: float | None) -> Incoming:
        while True:
            info = await self._link.info()
            if info.get("state") == "ended":
                return Incoming(Kind.END, info)
            self._looking = _Events(self._link, Ask("GET", f"/usage?every={_EVERY}"))
            try:
                while (await self._looking._next(timeout)).kind is not Kind.END:
                    pass
            except SandboxNotFoundException:
                raise
            except ConnectionLost as error:
                if isinstance(error, ProtocolError):
                    raise
            finally:
                self._looking.drop()

    def drop(self) -> None:
        super().drop()
        if self._looking is not None:
            self._looking.drop()
