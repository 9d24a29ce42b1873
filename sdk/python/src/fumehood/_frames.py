"""Frames of a supervisor's protocol (`crates/agent/src/frame.rs`), and what one stream may do. No input, no output."""

from __future__ import annotations

import json
import struct
from enum import IntEnum
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

from .errors import ConnectionLost, TooManyException, of_failure

#: Version of the protocol.
VERSION = 1
#: Longest payload of a data frame with its lane, and of any other frame, bytes.
MAX_DATA = 64 * 1024
MAX_WORDS = 256 * 1024
#: Bytes of data on the way in one direction of a stream before the first credit.
WINDOW = 256 * 1024
#: Streams that are open at once.
MAX_STREAMS = 1024
#: Bytes of events of one stream that wait to be taken.
MAX_UNREAD = 64 << 20
#: Data is acknowledged when so much of it was taken.
ACKNOWLEDGE = WINDOW // 4

_HEADER = struct.Struct("<IBI")
_NUMBER = struct.Struct("<I")


class Kind(IntEnum):
    """What a frame is."""

    OPEN = 1
    REPLY = 2
    EVENT = 3
    DATA = 4
    EOF = 5
    CONTROL = 6
    CREDIT = 7
    CANCEL = 8
    END = 9


_LONGEST = {
    Kind.OPEN: MAX_WORDS,
    Kind.REPLY: MAX_WORDS,
    Kind.EVENT: MAX_WORDS,
    Kind.DATA: MAX_DATA,
    Kind.EOF: 0,
    Kind.CONTROL: MAX_WORDS,
    Kind.CREDIT: 4,
    Kind.CANCEL: 0,
    Kind.END: MAX_WORDS,
}
_SHORTEST = {Kind.DATA: 1, Kind.CREDIT: 4}

LANE_IN, LANE_OUT, LANE_ERR = 0, 1, 2


class Frame(NamedTuple):
    kind: Kind
    stream: int
    payload: bytes


class ProtocolError(ConnectionLost):
    """What came is not what the protocol says; the connection is of no use any more."""

    def __init__(self, message: str) -> None:
        super().__init__(f"the supervisor answered what it should not: {message}", code="protocol")


def encode(kind: Kind, stream: int, payload: bytes = b"") -> bytes:
    """A frame, as bytes."""
    if len(payload) > _LONGEST[kind]:
        raise TooManyException(f"what is asked is longer than {_LONGEST[kind]} bytes", code="too_many")
    return _HEADER.pack(len(payload) + 5, kind, stream) + payload


def encode_words(kind: Kind, stream: int, words: Mapping[str, Any]) -> bytes:
    """A frame of JSON."""
    return encode(kind, stream, encode_json(words))


def encode_json(words: Mapping[str, Any]) -> bytes:
    """What is asked, as JSON; what is no text (an argument of ``os.fsdecode``) is an error here, and not another text there."""
    try:
        return json.dumps(words, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError as error:
        what = f"this cannot be asked: {_lone(words)!r} has a lone surrogate, which is no character"
        raise of_failure("invalid", what) from error
    except (ValueError, TypeError) as error:
        raise of_failure("invalid", f"this cannot be asked: {error}") from error


def _lone(words: object, name: str = "") -> str:
    """The name of what holds text that is none, in words that hold some."""
    if isinstance(words, str):
        return name if any("\ud800" <= letter <= "\udfff" for letter in words) else ""
    within: Iterable[tuple[str, object]]
    if isinstance(words, Mapping):
        within = ((f"{name}.{key}".strip("."), (str(key), one)) for key, one in words.items())
    elif isinstance(words, Sequence):
        within = ((name, one) for one in words)
    else:
        return ""
    return next((found for at, one in within if (found := _lone(one, at))), "")


def encode_data(stream: int, chunk: bytes | memoryview) -> bytes:
    """A frame of data to what was opened; at most ``MAX_DATA - 1`` bytes."""
    return b"".join((_HEADER.pack(len(chunk) + 6, Kind.DATA, stream), b"\0", chunk))


def encode_credit(stream: int, count: int) -> bytes:
    """A frame that lets the other side send more."""
    return encode(Kind.CREDIT, stream, _NUMBER.pack(count))


class Decoder:
    """Bytes in, frames out; never holds more than one frame that is not whole."""

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def torn(self) -> bool:
        """Whether part of a frame waits for its end."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[Frame]:
        """All frames that are whole now; raises :class:`ProtocolError` as soon as a header tells."""
        rest = self._rest
        rest += data
        frames: list[Frame] = []
        at, end = 0, len(rest)
        while end - at >= _HEADER.size:
            kind, stream, payload = _header(*_HEADER.unpack_from(rest, at))
            begin = at + _HEADER.size
            if end - begin < payload:
                break
            at = begin + payload
            frames.append(Frame(kind, stream, bytes(rest[begin:at])))
        del rest[:at]
        return frames


def _header(length: int, number: int, stream: int) -> tuple[Kind, int, int]:
    """Kind, stream and length of the payload."""
    if not 1 <= number <= 9:
        raise ProtocolError(f"a frame is of kind {number}, which does not exist")
    kind = Kind(number)
    payload = length - 5
    if not _SHORTEST.get(kind, 0) <= payload <= _LONGEST[kind]:
        raise ProtocolError(f"a frame states a length of {length} bytes")
    if stream == 0:
        raise ProtocolError("a frame names stream 0")
    return kind, stream, payload


class Failure(NamedTuple):
    """Why something was not done, as the supervisor or the agent says it."""

    code: str
    message: str


class Incoming(NamedTuple):
    """What came on a stream: ``value`` is JSON for replies, events and ends, bytes for data."""

    kind: Kind
    value: Any
    #: Of data: ``LANE_OUT`` or ``LANE_ERR``.
    lane: int = LANE_OUT
    #: Of events: bytes of JSON.
    size: int = 0


class StreamState:
    """What one stream may still do. Feed it the frames of its number; it says what they mean."""

    def __init__(self, number: int) -> None:
        self.number = number
        #: Bytes that we may send.
        self.credit = WINDOW
        #: Set when nothing more is told of it.
        self.ended = False
        #: Set when the other side has ended it: the number is free.
        self.closed = False
        #: Set when nobody wants to hear any more of it.
        self.dropped = False
        self._replied = False
        self._begun = False
        self._window = WINDOW
        self._owed = 0
        self._unread = 0

    def take(self, frame: Frame) -> Incoming | None:
        """What a frame brings; ``None`` for what is only kept here."""
        if frame.kind is Kind.DATA:
            return self._data(frame.payload)
        if frame.kind is Kind.CREDIT:
            self.credit += _NUMBER.unpack(frame.payload)[0]
            if self.credit > 1 << 40:
                raise ProtocolError("more credit than anybody can use")
            return None
        if frame.kind is Kind.EOF:
            return None
        if frame.kind in (Kind.OPEN, Kind.CONTROL, Kind.CANCEL):
            raise ProtocolError(f"{frame.kind.name} from the side that answers")
        if self.dropped and frame.kind is not Kind.END:
            return None
        value: Any = _json(frame.payload)
        if frame.kind is Kind.REPLY:
            if self._replied or self._begun:
                raise ProtocolError("a reply that comes too late")
            self._replied = True
        if frame.kind is Kind.EVENT:
            self._begun = True
            self._unread += len(frame.payload)
            if self._unread > MAX_UNREAD:
                self.ended = self.dropped = True
                return Incoming(Kind.END, Failure("too_many", "64 MiB of events wait to be read"))
        if frame.kind is Kind.END:
            self.closed = True
            value = _ended(value)
            if self.ended:
                return None
            self.ended = True
        return Incoming(frame.kind, value, size=len(frame.payload))

    def _data(self, payload: bytes) -> Incoming | None:
        self._begun = True
        lane = payload[0]
        if lane not in (LANE_OUT, LANE_ERR):
            raise ProtocolError(f"data on lane {lane}")
        self._window -= len(payload) - 1
        if self._window < 0:
            raise ProtocolError("more data than there was credit for")
        return None if self.dropped else Incoming(Kind.DATA, payload[1:], lane)

    def taken(self, incoming: Incoming) -> int:
        """Says that somebody took it; how many bytes of credit to send now."""
        if incoming.kind is Kind.EVENT:
            self._unread -= incoming.size
            return 0
        if incoming.kind is not Kind.DATA:
            return 0
        self._owed += len(incoming.value)
        if self._owed < ACKNOWLEDGE or self.ended:
            return 0
        owed, self._owed = self._owed, 0
        self._window += owed
        return owed


def _json(payload: bytes) -> dict[str, Any]:
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"words that are no JSON: {error}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ProtocolError("words that are no object")
    return value


def _ended(value: dict[str, Any]) -> dict[str, Any] | Failure:
    if isinstance(value.get("error"), dict):
        failure = value["error"]
        return Failure(str(failure.get("code") or "failed"), str(failure.get("message") or "it failed"))
    if "ok" not in value:
        raise ProtocolError("an end without a result")
    ok = value["ok"]
    return ok if isinstance(ok, dict) else {}
