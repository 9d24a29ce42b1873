"""A link for threads: one of its own reads; whoever asks sends, and waits."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
import weakref
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
from ._link import Expired, Link, Stream, connect_socket, drive
from .errors import ConnectionLost, FumehoodError, SandboxNotRunningException, TimeoutException, TooManyException

#: Seconds that a supervisor may take nothing of what we send; it reads always, so that one that does not is lost.
_SEND_TIMEOUT = 60
_CHUNK = 256 * 1024


class Threaded(Link):
    """A link whose coroutines block instead of suspending: use :func:`drive`."""

    async def tell(self, callback: Callable[[Any], Any], value: Any) -> None:
        callback(value)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        threading.Thread(target=drive, args=(coroutine,), name="fumehood-live", daemon=True).start()


class BlockingLink(Threaded):
    """To a supervisor."""

    def __init__(self, path: str) -> None:
        self._wire = _Wire(connect_socket(path))
        # The reader holds the wire alone, so that a link that nobody holds ends.
        self._finalizer = weakref.finalize(self, _Wire.shut, self._wire)
        threading.Thread(target=self._wire.read, name="fumehood-live", daemon=True).start()

    def open(self, words: Mapping[str, Any]) -> BlockingStream:
        return BlockingStream(self, self._wire, self._wire.start(words))

    async def close(self) -> None:
        self._finalizer()


class _Open:
    """What the reader knows of a stream."""

    def __init__(self, number: int) -> None:
        self.state = StreamState(number)
        self.came: deque[Incoming] = deque()
        self.changed = threading.Condition()
        self.lost: FumehoodError | None = None

    def take(self, frame: Frame) -> bool:
        """Whether it is over."""
        with self.changed:
            incoming = self.state.take(frame)
            if incoming is not None:
                self.came.append(incoming)
            self.changed.notify_all()
            return self.state.closed

    def lose(self, why: FumehoodError) -> None:
        with self.changed:
            self.lost = why
            self.changed.notify_all()


class _Wire:
    """The socket and the table of what is open."""

    def __init__(self, made: socket.socket) -> None:
        # Blocking, but for a bound on sending that needs no second mode of the socket.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_TIMEOUT, 0))
        self._socket = made
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._open: dict[int, _Open] = {}
        self._last = 0
        self._gone: FumehoodError | None = None

    def start(self, words: Mapping[str, Any]) -> _Open:
        with self._lock:
            self._check()
            if len(self._open) >= MAX_STREAMS:
                raise TooManyException(f"{MAX_STREAMS} requests are open on this connection", code="too_many")
            self._last = self._last % 0xFFFFFFFF + 1
            while self._last in self._open:
                self._last = self._last % 0xFFFFFFFF + 1
            number = self._last
            frame = encode_words(Kind.OPEN, number, words)
            opened = self._open[number] = _Open(number)
        try:
            self.write(frame)
        except FumehoodError:
            with self._lock:
                self._open.pop(number, None)
            raise
        return opened

    def write(self, frame: bytes) -> None:
        with self._write_lock:
            self._check()
            try:
                self._socket.sendall(frame)
            except OSError as error:
                # Part of a frame may have gone out: nothing can follow it.
                why = self._lose(_gone(f"the supervisor takes nothing any more: {error.strerror}"))
                self.shut()
                raise why from error

    def read(self) -> None:
        decoder = Decoder()
        why: FumehoodError
        try:
            while data := self._socket.recv(_CHUNK):
                for frame in decoder.feed(data):
                    self._take(frame)
            torn = " within a frame" if decoder.torn else ""
            why = _gone(f"the connection to the supervisor ended{torn}: the sandbox is gone")
        except OSError as error:
            why = _gone(f"the connection to the supervisor broke: {error.strerror}")
        except FumehoodError as error:
            why = error
        self._lose(why)
        self._socket.close()

    def _take(self, frame: Frame) -> None:
        with self._lock:
            opened = self._open.get(frame.stream)
        if opened is None:
            raise ProtocolError(f"a frame for stream {frame.stream}, which is not open")
        if opened.take(frame):
            with self._lock:
                self._open.pop(frame.stream, None)

    def _lose(self, why: FumehoodError) -> FumehoodError:
        with self._lock:
            why = self._gone = self._gone or why
            lost, self._open = list(self._open.values()), {}
        for opened in lost:
            opened.lose(why)
        return why

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise ConnectionLost("a Sandbox does not survive a fork: connect in each process", code="fork")
        if self._gone is not None:
            raise self._gone

    def shut(self) -> None:
        if os.getpid() != self._pid:
            return
        self._lose(SandboxNotRunningException("this connection is closed", code="closed"))
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # It was gone already.


def _gone(message: str) -> SandboxNotRunningException:
    return SandboxNotRunningException(message, code="ended")


class BlockingStream(Stream):
    """A request of a :class:`BlockingLink`."""

    def __init__(self, link: BlockingLink, wire: _Wire, opened: _Open) -> None:
        self._link, self._wire, self._opened = link, wire, opened

    @property
    def ended(self) -> bool:
        return self._opened.state.ended or self._opened.lost is not None

    async def next(self, timeout: float | None) -> Incoming:
        opened = self._opened
        with opened.changed:
            if not opened.changed.wait_for(lambda: opened.came or opened.lost or opened.state.ended, timeout):
                raise Expired
            if not opened.came:
                raise opened.lost or ProtocolError("nothing comes after the end")
            incoming = opened.came.popleft()
        self._taken(incoming)
        return incoming

    def _taken(self, incoming: Incoming) -> None:
        with self._opened.changed:
            credit = self._opened.state.taken(incoming)
        if credit:
            self._put(encode_credit(self._opened.state.number, credit))

    async def send(self, data: bytes | memoryview, timeout: float | None) -> bool:
        rest = memoryview(data)
        until = None if timeout is None else time.monotonic() + timeout
        while rest:
            count = self._allowed(min(len(rest), MAX_DATA - 1), until)
            if count == 0:
                return False
            self._wire.write(encode_data(self._opened.state.number, rest[:count]))
            rest = rest[count:]
        return not self.ended

    def _allowed(self, wanted: int, until: float | None) -> int:
        opened = self._opened
        left = None if until is None else max(0.0, until - time.monotonic())
        with opened.changed:
            if not opened.changed.wait_for(lambda: opened.state.credit or self.ended, left):
                raise TimeoutException("the sandbox takes no more of what is sent to it")
            if self.ended:
                return 0
            count = min(wanted, opened.state.credit)
            opened.state.credit -= count
            return count

    async def finish(self) -> None:
        self._put(encode(Kind.EOF, self._opened.state.number))

    def drop(self) -> None:
        with self._opened.changed:
            self._opened.state.dropped = True
            self._opened.came.clear()
        self._put(encode(Kind.CANCEL, self._opened.state.number))

    def _put(self, frame: bytes) -> None:
        if self._opened.state.closed or self._opened.lost is not None:
            return
        try:
            self._wire.write(frame)
        except FumehoodError:
            pass  # The next look at the stream tells it.
