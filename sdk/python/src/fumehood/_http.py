"""``fumehood serve`` over HTTP/1.1: requests, and answers in pieces. Each request is on a connection of its own."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ._frames import ProtocolError, encode_json
from ._link import REQUEST_TIMEOUT, Expired
from ._wire import Address, Dial, Wire
from .errors import (
    ConnectionLost,
    FumehoodError,
    InvalidArgumentException,
    PermissionDeniedException,
    Reason,
    Refused,
    SandboxNotFoundException,
    TimeoutException,
    TooManyException,
    of_failure,
)

#: Longest answer of JSON, longest head, and longest line that says how long a piece is, bytes.
_MAX_ANSWER = 64 << 20
_MAX_HEAD = 64 * 1024
_MAX_SIZE_LINE = 4096
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: |\Z)")
#: What a request takes that makes a sandbox, seconds.
CREATE_TIMEOUT = 120.0


class Answer:
    """The answer to a request: its head, and its body as it comes. A wait that expires loses nothing."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._rest = bytearray()
        self._text = bytearray()
        self.status = 0
        self.headers: dict[str, str] = {}
        #: What is to come: ``size`` of a piece, its ``data``, the ``gap`` behind it, the ``trailer``, or nothing (``over``).
        self._at = "over"
        self._chunked = False
        #: Bytes of the body or piece; ``None``: up to the end of the connection.
        self._left: int | None = 0

    async def head(self, timeout: float | None) -> None:
        """Reads the head."""
        while True:
            status, *lines = (await self._up_to(b"\r\n\r\n", _MAX_HEAD, timeout)).split(b"\r\n")
            found = _STATUS.match(status)
            if found is None:
                raise ProtocolError("an answer that is not HTTP/1.1")
            self.status = int(found[1])
            # One of 100 and above is not the answer yet.
            if self.status >= 200:
                break
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon or not name or name != name.strip():
                raise ProtocolError("an answer with a header that is none")
            self.headers[name.decode("latin-1").lower()] = value.strip().decode("latin-1")
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length")
        if length is not None and not (length.isascii() and length.isdecimal()):
            raise ProtocolError("an answer whose length is no number")
        self._left = None if self._chunked or length is None else int(length)
        empty = self.status in (204, 304) or self._left == 0
        self._at = "over" if empty else "size" if self._chunked else "data"

    async def read(self, timeout: float | None) -> bytes:
        """The next bytes of the body; empty at its end."""
        while self._at not in ("data", "over"):
            await self._step(timeout)
        if self._at == "over":
            return b""
        if not self._rest and not await self._more(timeout):
            if self._left is not None:
                raise _cut_off()
            self._at = "over"
            return b""
        count = len(self._rest) if self._left is None else min(len(self._rest), self._left)
        data = bytes(self._rest[:count])
        del self._rest[:count]
        if self._left is not None:
            self._left -= count
            if self._left == 0:
                self._at = "gap" if self._chunked else "over"
        return data

    async def _step(self, timeout: float | None) -> None:
        """One line of what stands around the pieces of a body."""
        line = await self._up_to(b"\r\n", _MAX_SIZE_LINE, timeout)
        if self._at == "size":
            digits = line.partition(b";")[0].strip()
            if not re.fullmatch(rb"[0-9a-fA-F]{1,8}", digits):
                raise ProtocolError("a piece whose length is no number")
            self._left = int(digits, 16)
            self._at = "data" if self._left else "trailer"
        elif self._at == "gap":
            if line:
                raise ProtocolError("a piece that is longer than it says")
            self._at = "size"
        elif not line:
            self._at = "over"

    async def _up_to(self, mark: bytes, most: int, timeout: float | None) -> bytes:
        at = self._rest.find(mark)
        while at < 0:
            if len(self._rest) > most:
                raise ProtocolError(f"a head of more than {most} bytes")
            if not await self._more(timeout):
                raise _cut_off()
            at = self._rest.find(mark)
        found = bytes(self._rest[:at])
        del self._rest[: at + len(mark)]
        return found

    async def _more(self, timeout: float | None) -> bool:
        try:
            data = await self._wire.receive(timeout)
        except (OSError, ValueError) as error:
            raise _broken(error) from error
        self._rest += data
        return bool(data)

    async def until(self, mark: bytes, most: int, timeout: float | None) -> bytes | None:
        """What comes before ``mark``; ``None`` at the end of the body, where what has no mark is left out."""
        start = 0
        while (at := self._text.find(mark, max(0, start - len(mark)))) < 0:
            if len(self._text) > most:
                raise ProtocolError(f"an event of more than {most} bytes")
            start = len(self._text)
            data = await self.read(timeout)
            if not data:
                return None
            self._text += data
        found = bytes(self._text[:at])
        del self._text[: at + len(mark)]
        return found

    async def whole(self, timeout: float | None) -> bytes:
        """All of the body; ends the connection."""
        parts: list[bytes] = []
        count = 0
        try:
            while data := await self.read(timeout):
                count += len(data)
                if count > _MAX_ANSWER:
                    raise ProtocolError(f"an answer of more than {_MAX_ANSWER} bytes")
                parts.append(data)
        except Expired:
            raise TimeoutException(f"the server said nothing for {timeout:g} s") from None
        finally:
            self.close()
        return b"".join(parts)

    def close(self) -> None:
        """Hears no more of it."""
        self._at = "over"
        self._wire.cut()


class Upload:
    """A request whose body is sent in pieces."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def send(self, piece: bytes, timeout: float | None) -> bool:
        """Sends a piece; ``False`` if it was answered before it had all: the answer says why."""
        try:
            await self._wire.send(b"%x\r\n%s\r\n" % (len(piece), piece), timeout)
        except OSError:
            return False
        return True

    async def answer(self, timeout: float | None) -> Answer:
        """Ends it, and waits for the answer."""
        try:
            await self._wire.send(b"0\r\n\r\n", timeout)
        except OSError:
            pass  # As above.
        return await _answered(self._wire, timeout)

    def close(self) -> None:
        """Gives it up: the server takes nothing of it."""
        self._wire.cut()


@dataclass(frozen=True)
class Server:
    """Where a server is, the key that it knows us by (``fumehood keys add``), and how to connect."""

    url: str
    key: str = field(repr=False)
    dial: Dial = field(repr=False)

    async def ask(
        self, method: str, path: str, body: bytes = b"", *, accept: str = "application/json",
        kind: str = "application/json", timeout: float | None = REQUEST_TIMEOUT,
    ) -> Answer:
        """An answer whose status is below 300; raises what else it says."""
        head = self._head(method, path, {"Accept": accept, "Content-Type": kind, "Content-Length": str(len(body))})
        wire = await self._connected(timeout)
        try:
            await wire.send(head + body, timeout)
        except OSError as error:
            wire.cut()
            raise _broken(error) from error
        except BaseException:
            wire.cut()
            raise
        return await _answered(wire, timeout)

    async def upload(self, path: str, timeout: float | None) -> Upload:
        """A ``PUT`` of bytes."""
        more = {"Accept": "application/json", "Content-Type": "application/octet-stream", "Transfer-Encoding": "chunked"}
        head = self._head("PUT", path, more)
        wire = await self._connected(timeout)
        try:
            await wire.send(head, timeout)
        except OSError as error:
            wire.cut()
            raise _broken(error) from error
        return Upload(wire)

    async def json(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout: float | None = REQUEST_TIMEOUT
    ) -> dict[str, Any]:
        """The object that is answered."""
        sent = b"" if body is None else encode_json(body)
        return object_of(await (await self.ask(method, path, sent, timeout=timeout)).whole(timeout))

    async def create(self, asked: Mapping[str, Any]) -> str:
        """The id of a new sandbox. It is started once, whatever becomes of the answer."""
        body = {name: value for name, value in asked.items() if value is not None}
        return _id_of(await self.json("POST", "/v1/sandboxes", body, timeout=CREATE_TIMEOUT))

    async def fork(self, sandbox_id: str) -> str:
        """The id of another sandbox that begins as this one is."""
        made = (await self.json("POST", f"/v1/sandboxes/{part(sandbox_id)}/fork", {}, timeout=CREATE_TIMEOUT)).get("sandboxes")
        if not isinstance(made, list) or not made:
            raise ProtocolError("a fork that names no sandbox")
        return _id_of(made[0])

    async def list(self, ended: bool) -> list[Mapping[str, Any]]:
        """What it knows of the key's sandboxes, with ``ended`` also of those that have ended."""
        found = (await self.json("GET", f"/v1/sandboxes{'?all=true' if ended else ''}")).get("sandboxes")
        return [one for one in found or () if isinstance(one, dict)]

    def _head(self, method: str, path: str, more: Mapping[str, str]) -> bytes:
        address = self._address()
        host = f"[{address.host}]" if ":" in address.host else address.host
        base = urllib.parse.urlsplit(self.url).path.rstrip("/")
        headers = {"Host": f"{host}:{address.port}", "X-API-Key": self.key, "Connection": "close", **more}
        lines = [f"{method} {base}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        if " " in base or not all(line.isascii() and line.isprintable() for line in lines):
            raise InvalidArgumentException("the url or the key of the server has characters that no address or key has", code="invalid")
        return "\r\n".join([*lines, "", ""]).encode("ascii")

    def _address(self) -> Address:
        try:
            parts = urllib.parse.urlsplit(self.url)
            port = parts.port
        except ValueError as error:
            raise InvalidArgumentException(f"{self.url} is no address of a server: {error}", code="invalid") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidArgumentException(f"{self.url} is no address of a server: http://HOST:PORT, or https", code="invalid")
        return Address(parts.hostname, port or (443 if parts.scheme == "https" else 80), parts.scheme == "https")

    async def _connected(self, timeout: float | None) -> Wire:
        try:
            return await self.dial(self._address(), timeout)
        except (OSError, ValueError) as error:
            raise _broken(error) from error


async def _answered(wire: Wire, timeout: float | None) -> Answer:
    answer = Answer(wire)
    try:
        await answer.head(timeout)
        if answer.status >= 300:
            raise _problem(answer.status, await answer.whole(REQUEST_TIMEOUT))
    except Expired:
        wire.cut()
        raise TimeoutException(f"the server did not answer within {timeout:g} s") from None
    except BaseException:
        wire.cut()
        raise
    return answer


def part(text: Any) -> str:
    """Text as one part of a path, or as a value of a query."""
    return urllib.parse.quote(str(text), safe="")


def _id_of(made: Any) -> str:
    if not isinstance(made, dict) or "id" not in made:
        raise ProtocolError("an answer that names no sandbox")
    return str(made["id"])


def object_of(data: bytes) -> dict[str, Any]:
    """JSON as an object."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"an answer that is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ProtocolError("an answer that is no object")
    return value


def _broken(error: Exception) -> ConnectionLost:
    return ConnectionLost(f"the server cannot be reached, or went away: {error!r}", code="unreachable")


def _cut_off() -> ConnectionLost:
    return ConnectionLost("the server broke its answer off: the sandbox may be gone", code="unreachable")


def code_of(problem: Mapping[str, Any]) -> str:
    """The word for a problem's id, as a supervisor has it."""
    return str(problem.get("id") or "").removeprefix("serve/").replace("-", "_")


def _problem(status: int, data: bytes) -> FumehoodError:
    """The exception for a problem of RFC 9457, with the server's record."""
    try:
        said = object_of(data)
    except ProtocolError:
        return FumehoodError(f"the server answered {status}: {data[:500].decode('utf-8', 'replace')}", code="server")
    if isinstance(said.get("conflicts"), list):
        return FumehoodError(f"nothing was applied: {_conflicts(said['conflicts'])}", code="conflict")
    reasons = Reason.of({**one, "fix": one.get("instead")} for one in said.get("refused") or () if isinstance(one, dict))
    code = code_of(said)
    words = "; ".join(str(said[name]) for name in ("title", "detail", "instead") if said.get(name))
    if code == "no_such_sandbox":
        return SandboxNotFoundException(words, code="not_found")
    if reasons and (code in ("not_enforceable", "beyond_ceiling") or "/" in code):
        return Refused(reasons)
    if status in (429, 503):
        return TooManyException(words, code="too_many")
    if status in (401, 403):
        return PermissionDeniedException(words, code=code or "denied")
    return of_failure(code or "server", words or f"the server answered {status}")


def _conflicts(found: list[Any]) -> str:
    return "; ".join(f"{one.get('path')}: {one.get('why')}" for one in found if isinstance(one, dict)) or "there is nothing to take"
