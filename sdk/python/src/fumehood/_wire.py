"""Connections that carry bytes: for threads, whose coroutines block instead of suspending, and for event loops."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterator
from typing import Callable, NamedTuple

from ._link import Expired
from .errors import TimeoutException

_CHUNK = 256 * 1024


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int
    #: Whether it speaks TLS; its certificate is checked against this machine's roots.
    tls: bool


class Wire(ABC):
    """One connection."""

    @abstractmethod
    async def send(self, data: bytes, timeout: float | None) -> None:
        """Sends all of it; raises ``OSError``, or :class:`TimeoutException` where nothing is taken for ``timeout`` seconds."""

    @abstractmethod
    async def receive(self, timeout: float | None) -> bytes:
        """What comes next, empty at the end; raises :class:`Expired` after ``timeout`` seconds, and then may be asked again."""

    @abstractmethod
    def cut(self) -> None:
        """Ends it, also under somebody who waits for it."""


#: Connects; ``timeout`` is in seconds. Raises ``OSError``.
Dial = Callable[[Address, "float | None"], Awaitable[Wire]]


def _stuck() -> TimeoutException:
    return TimeoutException("the server takes no more of what is sent to it")


class BlockingWire(Wire):
    """For threads. Only ``cut`` may be called beside another call."""

    def __init__(self, made: socket.socket) -> None:
        self._socket = made
        self._lock = threading.Lock()
        self._busy = self._is_cut = False

    @classmethod
    async def dial(cls, at: Address, timeout: float | None) -> Wire:
        made = socket.create_connection((at.host, at.port), timeout)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return cls(ssl.create_default_context().wrap_socket(made, server_hostname=at.host) if at.tls else made)
        except BaseException:
            made.close()
            raise

    async def send(self, data: bytes, timeout: float | None) -> None:
        with self._at_work(timeout):
            try:
                self._socket.sendall(data)
            except TimeoutError as error:
                raise _stuck() from error

    async def receive(self, timeout: float | None) -> bytes:
        with self._at_work(timeout):
            try:
                return self._socket.recv(_CHUNK)
            except (TimeoutError, BlockingIOError, ssl.SSLWantReadError) as error:
                raise Expired from error

    @contextlib.contextmanager
    def _at_work(self, timeout: float | None) -> Iterator[None]:
        with self._lock:
            if self._is_cut:
                raise OSError(errno.ECONNABORTED, "this connection was given up")
            self._busy = True
        try:
            self._socket.settimeout(timeout)
            yield
        finally:
            with self._lock:
                self._busy = False
                if self._is_cut:
                    self._socket.close()

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            if not self._busy:
                self._socket.close()
                return
        # Whoever waits for it wakes up, and closes it: its number may not be another's before.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


class LoopWire(Wire):
    """For the event loop that made it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        # A wait that expires leaves it running: what it brings is there for the next one.
        self._reading: asyncio.Task[bytes] | None = None

    @classmethod
    async def dial(cls, at: Address, timeout: float | None) -> Wire:
        context = ssl.create_default_context() if at.tls else None
        opening = asyncio.open_connection(at.host, at.port, ssl=context, limit=_CHUNK)
        try:
            return cls(*await asyncio.wait_for(opening, timeout))
        except asyncio.TimeoutError as error:
            raise OSError(errno.ETIMEDOUT, "no connection in time") from error

    async def send(self, data: bytes, timeout: float | None) -> None:
        self._writer.write(data)
        try:
            await asyncio.wait_for(self._writer.drain(), timeout)
        except asyncio.TimeoutError as error:
            raise _stuck() from error

    async def receive(self, timeout: float | None) -> bytes:
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._reader.read(_CHUNK))
        done, _ = await asyncio.wait((self._reading,), timeout=timeout)
        if not done:
            raise Expired
        reading, self._reading = self._reading, None
        if reading.cancelled():
            # By `cut`; whoever waits here was not cancelled itself.
            raise OSError(errno.ECONNABORTED, "this connection was given up")
        return reading.result()

    def cut(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._writer.transport.abort()
