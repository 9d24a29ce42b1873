"""A connection to a supervisor, as the requests in this package see it.

Every request is written once, as a coroutine over :class:`Link`. The asynchronous half awaits it in an event loop; the other
half runs it with :func:`drive`, over a link whose methods block the calling thread and never suspend.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from typing import Any, Callable, Coroutine, Mapping, TypeVar

from ._frames import Failure, Incoming, Kind, ProtocolError
from .errors import FumehoodError, NotFoundException, SandboxNotRunningException, TimeoutException, of_failure

T = TypeVar("T")

#: Seconds that a supervisor may take to say anything.
REQUEST_TIMEOUT = 60.0
#: Longest path of a unix socket (unix(7)), bytes.
_LONGEST_PATH = 107


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    coroutine.close()
    raise RuntimeError("a blocking link suspended")


class Expired(Exception):
    """Nothing came in time; the stream goes on."""


class Stream(ABC):
    """One request, until its end."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether its end has come in, taken or not."""

    @abstractmethod
    async def next(self, timeout: float | None) -> Incoming:
        """What comes next; raises :class:`Expired` after ``timeout`` seconds, and what ended the connection."""

    @abstractmethod
    async def send(self, data: bytes | memoryview, timeout: float | None) -> bool:
        """Sends data as the other side takes it; ``False`` if the request has ended instead."""

    @abstractmethod
    async def finish(self) -> None:
        """Says that nothing more is sent."""

    @abstractmethod
    def drop(self) -> None:
        """Gives it up, if it has not ended."""


class Link(ABC):
    """Any number of requests at once over one connection."""

    #: The workspace, or the working folder of an image; empty where there is none; ``None``: nobody asked yet.
    start: str | None = None
    #: Whether ``/workspace`` is another name of that folder alone; ``None``: nobody asked yet.
    aside: bool | None = None

    @abstractmethod
    def open(self, words: Mapping[str, Any]) -> Stream:
        """Asks."""

    @abstractmethod
    async def tell(self, callback: Callable[[Any], Any], value: Any) -> None:
        """Calls somebody's function; here it may be a coroutine, if this is a link of an event loop."""

    @abstractmethod
    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs something beside the caller."""

    @abstractmethod
    async def close(self) -> None:
        """Ends the connection; requests that are open are lost."""

    async def call(
        self,
        words: Mapping[str, Any],
        *,
        timeout: float | None = REQUEST_TIMEOUT,
        missing: type[FumehoodError] = NotFoundException,
    ) -> dict[str, Any]:
        """Asks for what is answered by its result alone."""
        stream = self.open(words)
        try:
            return await result(stream, timeout, missing)
        finally:
            stream.drop()


async def result(
    stream: Stream, timeout: float | None, missing: type[FumehoodError] = NotFoundException
) -> dict[str, Any]:
    """The result of a request; events and data before it are left out."""
    while True:
        incoming = await within(stream, timeout)
        if incoming.kind is Kind.END:
            return ok(incoming, missing)


async def reply(
    stream: Stream, timeout: float | None, missing: type[FumehoodError] = NotFoundException
) -> dict[str, Any]:
    """What is known at once; raises what it ended with instead."""
    incoming = await within(stream, timeout)
    if incoming.kind is Kind.REPLY:
        value: dict[str, Any] = incoming.value
        return value
    if incoming.kind is Kind.END:
        ok(incoming, missing)
    raise ProtocolError("no reply before the first event")


async def within(stream: Stream, timeout: float | None) -> Incoming:
    """What comes next, or a timeout as callers see it."""
    try:
        return await stream.next(timeout)
    except Expired:
        raise TimeoutException(f"the supervisor of the sandbox said nothing for {timeout:g} s") from None


def ok(incoming: Incoming, missing: type[FumehoodError] = NotFoundException) -> dict[str, Any]:
    """The result in an ``END``."""
    if isinstance(incoming.value, Failure):
        raise of_failure(*incoming.value, missing=missing)
    value: dict[str, Any] = incoming.value
    return value


def connect_socket(path: str) -> socket.socket:
    """A blocking connection to a socket at a path of any length."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        if len(os.fsencode(path)) <= _LONGEST_PATH:
            made.connect(path)
        else:
            folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                made.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
            finally:
                os.close(folder)
    except OSError as error:
        made.close()
        raise SandboxNotRunningException(f"no supervisor answers at {path}: {error.strerror}", code="ended") from error
    return made
