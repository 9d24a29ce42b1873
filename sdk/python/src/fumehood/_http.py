"""A sandbox of a server: the same requests over ``/v1`` of ``fumehood serve``, as far as it has them."""

from __future__ import annotations

import asyncio
import base64
import http.client
import inspect
import json
import socket
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from typing import Any, Callable, Coroutine, Mapping

from ._frames import LANE_ERR, LANE_OUT, Failure, Incoming, Kind, ProtocolError
from ._link import REQUEST_TIMEOUT, Expired, Link, Stream, drive
from .errors import (
    ConnectionLost,
    FumehoodError,
    InvalidArgumentException,
    Reason,
    Refused,
    SandboxNotFoundException,
    TooManyException,
    UnsupportedException,
    of_failure,
)

#: Longest answer of JSON, and longest line of an event stream, bytes.
_MAX_ANSWER = 64 << 20
_MAX_LINE = 4 << 20
_CHUNK = 64 * 1024


@dataclass(frozen=True)
class Server:
    """Where a server is, and the key that it knows us by (``fumehood keys add``)."""

    url: str
    key: str = field(repr=False)

    def request(
        self, method: str, path: str, body: bytes | None = None, *, timeout: float | None = REQUEST_TIMEOUT,
        headers: Mapping[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        """An answer whose status is below 300; raises what else it says."""
        connection = self.connection(timeout)
        try:
            connection.request(method, self.path(path), body, self.headers(headers))
            return self.answered(connection)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _broken(error) from error

    def connection(self, timeout: float | None) -> http.client.HTTPConnection:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidArgumentException(f"{self.url} is no address of a server: http://HOST:PORT, or https", code="invalid")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.hostname, parts.port, timeout=timeout)

    def path(self, path: str) -> str:
        return urllib.parse.urlsplit(self.url).path.rstrip("/") + path

    def headers(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {"X-API-Key": self.key, "Accept": "application/json", "Content-Type": "application/json", **(more or {})}

    def answered(self, connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        response = connection.getresponse()
        if response.status >= 300:
            data = response.read(_MAX_ANSWER)
            connection.close()
            raise _problem(response.status, data)
        return response

    def json(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout: float | None = REQUEST_TIMEOUT) -> dict[str, Any]:
        """The object that is answered."""
        with self.request(method, path, None if body is None else json.dumps(body).encode(), timeout=timeout) as response:
            return _object(_whole(response))

    def create(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """A new sandbox. It is started once, whatever becomes of the answer."""
        body = {name: value for name, value in asked.items() if value is not None}
        return self.json("POST", "/v1/sandboxes", body, timeout=120)

    def fork(self, sandbox_id: str) -> str:
        """The id of another sandbox that begins as this one is."""
        answer = self.json("POST", f"/v1/sandboxes/{_part(sandbox_id)}/fork", {}, timeout=120)
        made = answer.get("sandboxes")
        if not isinstance(made, list) or not made or not isinstance(made[0], dict) or "id" not in made[0]:
            raise ProtocolError("a fork that names no sandbox")
        return str(made[0]["id"])

    def list(self) -> list[Mapping[str, Any]]:
        found = self.json("GET", "/v1/sandboxes").get("sandboxes")
        return [one for one in found or () if isinstance(one, dict)]


def _whole(response: http.client.HTTPResponse) -> bytes:
    try:
        data = response.read(_MAX_ANSWER + 1)
    except (OSError, http.client.HTTPException) as error:
        raise _broken(error) from error
    if len(data) > _MAX_ANSWER:
        raise ProtocolError("an answer of more than 64 MiB")
    return data


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"an answer that is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ProtocolError("an answer that is no object")
    return value


def _broken(error: Exception) -> ConnectionLost:
    return ConnectionLost(f"the server cannot be reached, or went away: {error!r}", code="unreachable")


def _problem(status: int, data: bytes) -> FumehoodError:
    """The exception for a problem of RFC 9457, with the server's record."""
    try:
        said = _object(data)
    except ProtocolError:
        return FumehoodError(f"the server answered {status}: {data[:500].decode('utf-8', 'replace')}", code="server")
    reasons = Reason.of({**one, "fix": one.get("instead")} for one in said.get("refused") or () if isinstance(one, dict))
    code = str(said.get("id") or "").removeprefix("serve/").replace("-", "_")
    words = "; ".join(str(said[name]) for name in ("title", "detail", "instead") if said.get(name))
    if code == "no_such_sandbox":
        return SandboxNotFoundException(words, code="not_found")
    if status in (429, 503):
        return TooManyException(words, code="too_many")
    if reasons and (code == "not_enforceable" or "/" in code):
        return Refused(reasons)
    return of_failure(code or "server", words or f"the server answered {status}")


class HttpLink(Link):
    """Each request is one of HTTP, on a connection of its own; coroutines block instead of suspending."""

    #: The whole input goes with an ``exec``.
    takes_input_at_once = True

    def __init__(self, server: Server, sandbox_id: str) -> None:
        self._server, self._id = server, urllib.parse.quote(sandbox_id, safe="")
        self._base = f"/v1/sandboxes/{self._id}"
        self._token: str | None = None

    def open(self, words: Mapping[str, Any]) -> Stream:
        asked = dict(words)
        op = str(asked.pop("op"))
        if op == "exec":
            return _Exec(self._server, f"{self._base}/exec", _exec_body(asked))
        if op == "python":
            body = {"python": asked["code"], "timeout": asked["timeout_ms"] / 1000 if asked.get("timeout_ms") else None}
            return _Exec(self._server, f"{self._base}/exec", {name: value for name, value in body.items() if value is not None})
        if op == "read":
            if asked.get("offset") or asked.get("length") is not None:
                raise UnsupportedException("a server gives whole files", code="unsupported")
            return _Read(self._server, self._files(asked))
        if op == "write":
            if asked.get("mode") is not None or asked.get("metadata") is not None:
                raise UnsupportedException("a server keeps neither mode nor metadata", code="unsupported")
            return _Write(self._server, self._files(asked))
        if op == "execute":
            return _Execute(self._server, self._interpreter(), asked)
        return _Once(self._call(op, asked))

    def _interpreter(self) -> dict[str, str]:
        """Headers that lead to the sandbox's code interpreter, as E2B's clients send them."""
        if self._token is None:
            self._token = str(self._server.json("GET", f"/sandboxes/{self._id}").get("envdAccessToken") or "")
        return {"E2b-Sandbox-Id": self._id, "E2b-Sandbox-Port": "49999", "X-Access-Token": self._token}

    def _contexts(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        sent = None if body is None else json.dumps(body).encode()
        with self._server.request(method, path, sent, timeout=120, headers=self._interpreter()) as response:
            data = _whole(response)
        try:
            return json.loads(data) if data.strip() else {}
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"an answer that is no JSON: {error}") from error

    def _files(self, asked: Mapping[str, Any]) -> str:
        return f"{self._base}/files?{urllib.parse.urlencode({'path': asked['path']})}"

    def _call(self, op: str, asked: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
        json_of = self._server.json
        calls: dict[str, Callable[[], dict[str, Any]]] = {
            "info": lambda: json_of("GET", self._base),
            "kill": lambda: json_of("DELETE", self._base, timeout=None),
            "pause": lambda: json_of("POST", f"{self._base}/pause", {}),
            "resume": lambda: json_of("POST", f"{self._base}/resume", {}),
            "timeout": lambda: self._timeout(asked),
            "snapshot": lambda: json_of("POST", f"{self._base}/snapshots", asked, timeout=None),
            "programs": lambda: json_of("GET", f"{self._base}/processes"),
            "remove": lambda: json_of("DELETE", self._files(asked)),
            "contexts": lambda: {"contexts": self._contexts("GET", "/contexts")},
            "context_create": lambda: dict(self._contexts("POST", "/contexts", asked)),
            "context_restart": lambda: dict(self._contexts("POST", f"/contexts/{_part(asked['id'])}/restart", {})),
            "context_remove": lambda: dict(self._contexts("DELETE", f"/contexts/{_part(asked['id'])}")),
        }
        if op not in calls:
            what = f"a server has no `{op}` yet: do it by a command (`box.commands.run`), or connect on its own machine"
            raise UnsupportedException(what, code="unsupported")
        return calls[op]

    def _timeout(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        if asked.get("only_later"):
            info = self._server.json("GET", self._base)
            ends = info.get("ends_ms")
            if ends is None or ends >= time.time() * 1000 + asked["ms"]:
                return info
        return self._server.json("POST", f"{self._base}/timeout", {"timeout": asked["ms"] / 1000})

    async def tell(self, callback: Callable[[Any], Any], value: Any) -> None:
        callback(value)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        threading.Thread(target=drive, args=(coroutine,), name="fumehood-live", daemon=True).start()

    async def close(self) -> None:
        """Nothing stays open between requests."""


def _part(text: Any) -> str:
    return urllib.parse.quote(str(text), safe="")


def _exec_body(asked: Mapping[str, Any]) -> dict[str, Any]:
    program = asked["program"]
    if program.get("tty"):
        raise UnsupportedException("a server has no terminals yet: use a command", code="unsupported")
    if program.get("stdin") and not isinstance(asked.get("input"), str):
        raise UnsupportedException("with a server, `stdin` is text that is given at once", code="unsupported")
    timeout = asked.get("timeout_ms")
    body = {
        "cmd": program["argv"], "env": program.get("env"), "cwd": program.get("cwd"), "stdin": asked.get("input"),
        "timeout": None if timeout is None else timeout / 1000, "detach": asked.get("detach") or None,
    }
    return {name: value for name, value in body.items() if value is not None}


class _HttpStream(Stream):
    def __init__(self) -> None:
        self._over = False

    @property
    def ended(self) -> bool:
        return self._over

    async def send(self, data: bytes | memoryview, timeout: float | None) -> bool:
        raise UnsupportedException("nothing more can be sent with this request", code="unsupported")

    def put(self, kind: Kind, words: Mapping[str, Any] | None = None) -> None:
        if kind is Kind.CANCEL:
            self._over = True


def _ended(work: Callable[[], dict[str, Any]]) -> Incoming:
    """An end, with the sandbox's own failures as such: who asked knows what was not found."""
    try:
        return Incoming(Kind.END, work())
    except FumehoodError as error:
        if type(error) is SandboxNotFoundException or error.code != "not_found":
            raise
        return Incoming(Kind.END, Failure(error.code, str(error)))


class _Once(_HttpStream):
    def __init__(self, work: Callable[[], dict[str, Any]]) -> None:
        super().__init__()
        self._work = work

    async def next(self, timeout: float | None) -> Incoming:
        self._over = True
        return _ended(self._work)


class _Receiving(_HttpStream):
    """A response that comes in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self._response: http.client.HTTPResponse | None = None
        self._socket: socket.socket | None = None

    def _start(self, server: Server, *args: Any, headers: Mapping[str, str], timeout: float | None) -> http.client.HTTPResponse:
        connection = server.connection(timeout)
        try:
            method, path, body = args
            connection.request(method, server.path(path), body, server.headers(headers))
            # The response takes the socket away from its connection where it is closed at the end.
            self._socket = connection.sock
            self._response = server.answered(connection)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _broken(error) from error
        return self._response

    def _wait(self, timeout: float | None) -> None:
        if self._socket is not None:
            self._socket.settimeout(timeout)

    def put(self, kind: Kind, words: Mapping[str, Any] | None = None) -> None:
        if kind is not Kind.CANCEL or self._over:
            return
        self._over = True
        if self._socket is not None:
            # Ends a read in another thread too.
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        if self._response is not None:
            self._response.close()


class _Read(_Receiving):
    def __init__(self, server: Server, path: str) -> None:
        super().__init__()
        self._server, self._path = server, path

    async def next(self, timeout: float | None) -> Incoming:
        if self._response is None:
            try:
                self._start(self._server, "GET", self._path, None, headers={"Accept": "*/*"}, timeout=timeout)
            except FumehoodError as error:
                failed = error

                def again() -> dict[str, Any]:
                    raise failed

                self._over = True
                return _ended(again)
            # What the file is, is not told.
            return Incoming(Kind.REPLY, {})
        self._wait(timeout)
        try:
            data = self._response.read(_CHUNK)
        except TimeoutError as error:
            raise Expired from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _broken(error) from error
        if data:
            return Incoming(Kind.DATA, data)
        self._over = True
        self._response.close()
        return Incoming(Kind.END, {})


class _Exec(_Receiving):
    def __init__(self, server: Server, path: str, body: Mapping[str, Any]) -> None:
        super().__init__()
        self._server, self._path, self._body = server, path, json.dumps(body).encode()

    async def next(self, timeout: float | None) -> Incoming:
        if self._response is None:
            headers = {"Accept": "text/event-stream"}
            self._start(self._server, "POST", self._path, self._body, headers=headers, timeout=timeout)
        self._wait(timeout)
        name, data = "", b""
        while line := self._line():
            key, _, value = line.rstrip(b"\r\n").partition(b": ")
            if key == b"event":
                name = value.decode("ascii", "replace")
            elif key == b"data":
                data += value
            elif not key and name:
                return self._event(name, data)
        self._over = True
        raise ConnectionLost("the server ended the command's events before the command: the sandbox may be gone", code="ended")

    def _line(self) -> bytes:
        assert self._response is not None
        try:
            line = self._response.readline(_MAX_LINE)
        except TimeoutError as error:
            raise Expired from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _broken(error) from error
        if len(line) >= _MAX_LINE:
            raise ProtocolError("an event of more than 4 MiB")
        return line

    def _event(self, name: str, data: bytes) -> Incoming:
        if name in ("stdout", "stderr"):
            try:
                raw = base64.b64decode(json.loads(data), validate=True)
            except (ValueError, TypeError) as error:
                raise ProtocolError(f"output that is no base64: {error}") from error
            return Incoming(Kind.DATA, raw, LANE_ERR if name == "stderr" else LANE_OUT)
        value = _object(data)
        if name == "started":
            return Incoming(Kind.REPLY, value)
        if name == "ended":
            self._over = True
            return Incoming(Kind.END, value)
        if name == "failed":
            self._over = True
            code = str(value.get("id") or "failed").removeprefix("serve/").replace("-", "_")
            return Incoming(Kind.END, Failure(code, str(value.get("what") or "it failed")))
        return Incoming(Kind.EVENT, {})


class _Execute(_Receiving):
    """Code that the interpreter executes: its answer is lines. The time limit is ours; hanging up interrupts the code."""

    def __init__(self, server: Server, headers: Mapping[str, str], asked: Mapping[str, Any]) -> None:
        super().__init__()
        body = {"code": asked["code"], "context_id": asked.get("context"), "language": asked.get("language"), "env_vars": asked.get("env")}
        self._server, self._headers = server, dict(headers)
        self._body = json.dumps({name: value for name, value in body.items() if value is not None}).encode()
        limit = asked.get("timeout_ms")
        self._limit = None if limit is None else limit / 1000
        self._until = None if self._limit is None else time.monotonic() + self._limit

    async def next(self, timeout: float | None) -> Incoming:
        if self._over:
            return Incoming(Kind.END, {})
        left = None if self._until is None else max(0.001, self._until - time.monotonic())
        wait = timeout if left is None else left if timeout is None else min(left, timeout)
        try:
            if self._response is None:
                self._start(self._server, "POST", "/execute", self._body, headers=self._headers, timeout=wait)
                assert self._response is not None
            self._wait(wait)
            line = self._response.readline()
        except (TimeoutError, ConnectionLost) as error:
            if self._until is not None and time.monotonic() >= self._until:
                return self._timed_out()
            if isinstance(error, ConnectionLost):
                raise
            raise Expired from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _broken(error) from error
        if line:
            return Incoming(Kind.DATA, line, LANE_OUT)
        self._over = True
        self._response.close()
        return Incoming(Kind.END, {})

    def _timed_out(self) -> Incoming:
        self.put(Kind.CANCEL)
        value = f"the code ran longer than {self._limit:g} s, and was interrupted"
        line = json.dumps({"type": "error", "name": "TimeoutError", "value": value, "traceback": ""})
        return Incoming(Kind.DATA, line.encode() + b"\n", LANE_OUT)


class _Write(_HttpStream):
    def __init__(self, server: Server, path: str) -> None:
        super().__init__()
        self._server, self._path = server, path
        self._connection: http.client.HTTPConnection | None = None

    async def send(self, data: bytes | memoryview, timeout: float | None) -> bool:
        connection = self._opened(timeout)
        try:
            for at in range(0, len(data), _CHUNK):
                piece = bytes(data[at : at + _CHUNK])
                connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        except OSError:
            # It answered before it had all: the answer says why.
            return False
        return True

    def _opened(self, timeout: float | None) -> http.client.HTTPConnection:
        if self._connection is None:
            connection = self._server.connection(timeout)
            try:
                connection.putrequest("PUT", self._server.path(self._path))
                more = {"Content-Type": "application/octet-stream", "Transfer-Encoding": "chunked"}
                for name, value in self._server.headers(more).items():
                    connection.putheader(name, value)
                connection.endheaders()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                raise _broken(error) from error
            self._connection = connection
        return self._connection

    async def next(self, timeout: float | None) -> Incoming:
        connection = self._opened(timeout)
        self._over = True

        def answer() -> dict[str, Any]:
            try:
                try:
                    connection.send(b"0\r\n\r\n")
                except OSError:
                    pass
                with self._server.answered(connection) as response:
                    return _object(_whole(response))
            except (OSError, http.client.HTTPException) as error:
                raise _broken(error) from error
            finally:
                connection.close()

        return _ended(answer)

    def put(self, kind: Kind, words: Mapping[str, Any] | None = None) -> None:
        if kind is Kind.CANCEL and not self._over:
            self._over = True
            if self._connection is not None:
                self._connection.close()


class ThreadedLink(Link):
    """The same for event loops: what blocks does so in a thread."""

    takes_input_at_once = True

    def __init__(self, server: Server, sandbox_id: str) -> None:
        self._inner = HttpLink(server, sandbox_id)
        self._beside: set[asyncio.Task[None]] = set()

    def open(self, words: Mapping[str, Any]) -> Stream:
        return _Threaded(self._inner.open(words))

    async def tell(self, callback: Callable[[Any], Any], value: Any) -> None:
        said = callback(value)
        if inspect.isawaitable(said):
            await said

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def close(self) -> None:
        """Nothing stays open between requests."""


class _Threaded(Stream):
    def __init__(self, inner: Stream) -> None:
        self._inner = inner

    @property
    def ended(self) -> bool:
        return self._inner.ended

    async def next(self, timeout: float | None) -> Incoming:
        return await asyncio.to_thread(lambda: drive(self._inner.next(timeout)))

    async def send(self, data: bytes | memoryview, timeout: float | None) -> bool:
        return await asyncio.to_thread(lambda: drive(self._inner.send(data, timeout)))

    def put(self, kind: Kind, words: Mapping[str, Any] | None = None) -> None:
        self._inner.put(kind, words)
