"""A link for event loops: a task reads, whoever asks awaits."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections import deque
from typing import Any, Callable, Coroutine, Mapping

from ._frames import (
    MAX_DATA,
    MAX_STREAMS,
    Decoder,
    Frame,
    Incoming,
    Kind,
    ProtocolError,
    StreamState,
    encode,
    encode_credit,
    encode_data,
    encode_words,
)
from ._link import Expired, Link, Stream, connect_socket
from .errors import ConnectionLost, FumehoodError, SandboxNotRunningException, TimeoutException, TooManyException

_CHUNK = 256 * 1024


#: Work beside callers; the loop itself holds its tasks weakly.
_BESIDE: set[asyncio.Task[None]] = set()


class Looped(Link):
    """A link of the event loop that made it, and of no other."""

    async def tell(self, callback: Callable[[Any], Any], value: Any) -> None:
        said = callback(value)
        if inspect.isawaitable(said):
            await said

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        _BESIDE.add(task)
        task.add_done_callback(_BESIDE.discard)


class LoopLink(Looped):
    """To a supervisor."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._pid = os.getpid()
        self._open: dict[int, LoopStream] = {}
        self._last = 0
        self._gone: FumehoodError | None = None
        self._task = asyncio.create_task(self._read(), name="fumehood-live")

    @classmethod
    async def connect(cls, path: str) -> LoopLink:
        made = await asyncio.to_thread(connect_socket, path)
        made.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=made, limit=_CHUNK))

    def open(self, words: Mapping[str, Any]) -> LoopStream:
        self.check()
        if len(self._open) >= MAX_STREAMS:
            raise TooManyException(f"{MAX_STREAMS} requests are open on this connection", code="too_many")
        self._last = self._last % 0xFFFFFFFF + 1
        while self._last in self._open:
            self._last = self._last % 0xFFFFFFFF + 1
        frame = encode_words(Kind.OPEN, self._last, words)
        opened = self._open[self._last] = LoopStream(self, self._last)
        self._writer.write(frame)
        return opened

    def check(self) -> None:
        if os.getpid() != self._pid:
            raise ConnectionLost("an AsyncSandbox does not survive a fork: connect in each process", code="fork")
        if self._gone is not None:
            raise self._gone

    def write(self, frame: bytes) -> None:
        if self._gone is None:
            self._writer.write(frame)

    async def drain(self) -> None:
        try:
            await self._writer.drain()
        except OSError as error:
            raise self._lose(_gone(f"the supervisor takes nothing any more: {error.strerror}")) from error

    async def close(self) -> None:
        self._lose(SandboxNotRunningException("this connection is closed", code="closed"))
        self._task.cancel()
        self._writer.close()

    async def _read(self) -> None:
        decoder = Decoder()
        why: FumehoodError
        try:
            while data := await self._reader.read(_CHUNK):
                for frame in decoder.feed(data):
                    self._take(frame)
            torn = " within a frame" if decoder.torn else ""
            why = _gone(f"the connection to the supervisor ended{torn}: the sandbox is gone")
        except OSError as error:
            why = _gone(f"the connection to the supervisor broke: {error.strerror}")
        except FumehoodError as error:
            why = error
        self._lose(why)
        self._writer.close()

    def _take(self, frame: Frame) -> None:
        opened = self._open.get(frame.stream)
        if opened is None:
            raise ProtocolError(f"a frame for stream {frame.stream}, which is not open")
        if opened.take(frame):
            self._open.pop(frame.stream, None)

    def _lose(self, why: FumehoodError) -> FumehoodError:
        why = self._gone = self._gone or why
        lost, self._open = list(self._open.values()), {}
        for opened in lost:
            opened.lose(why)
        return why


def _gone(message: str) -> SandboxNotRunningException:
    return SandboxNotRunningException(message, code="ended")


class LoopStream(Stream):
    """A request of a :class:`LoopLink`."""

    def __init__(self, link: LoopLink, number: int) -> None:
        self._link = link
        self._state = StreamState(number)
        self._came: deque[Incoming] = deque()
        self._lost: FumehoodError | None = None
        self._changed = asyncio.Event()

    def take(self, frame: Frame) -> bool:
        """Whether it is over."""
        incoming = self._state.take(frame)
        if incoming is not None:
            self._came.append(incoming)
        self._changed.set()
        return self._state.closed

    def lose(self, why: FumehoodError) -> None:
        self._lost = why
        self._changed.set()

    @property
    def ended(self) -> bool:
        return self._state.ended or self._lost is not None

    async def next(self, timeout: float | None) -> Incoming:
        await self._wait(lambda: bool(self._came) or self.ended, timeout)
        incoming = self._waiting()
        if incoming is None:
            raise self._lost or ProtocolError("nothing comes after the end")
        return incoming

    def _waiting(self) -> Incoming | None:
        if not self._came:
            return None
        incoming = self._came.popleft()
        credit = self._state.taken(incoming)
        if credit and not self.ended:
            self._link.write(encode_credit(self._state.number, credit))
        return incoming

    async def _wait(self, is_so: Callable[[], bool], timeout: float | None) -> None:
        if is_so():
            return
        try:
            await asyncio.wait_for(self._until(is_so), timeout)
        except asyncio.TimeoutError:
            raise Expired from None

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._changed.clear()
            await self._changed.wait()
        # Somebody else may wait for something else on this stream.
        self._changed.set()

    async def send(self, data: bytes | memoryview, timeout: float | None) -> bool:
        rest = memoryview(data)
        while rest:
            try:
                await self._wait(lambda: self._state.credit > 0 or self.ended, timeout)
            except Expired:
                raise TimeoutException("the sandbox takes no more of what is sent to it") from None
            if self.ended:
                return False
            count = min(len(rest), MAX_DATA - 1, self._state.credit)
            self._state.credit -= count
            self._link.write(encode_data(self._state.number, rest[:count]))
            await self._link.drain()
            rest = rest[count:]
        return not self.ended

    async def finish(self) -> None:
        self._put(Kind.EOF)

    def drop(self) -> None:
        self._state.dropped = True
        self._came.clear()
        self._put(Kind.CANCEL)

    def _put(self, kind: Kind) -> None:
        if not self._state.closed and self._lost is None:
            self._link.write(encode(kind, self._state.number))
