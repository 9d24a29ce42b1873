"""Names of files inside. A name is bytes: callers have it as text in the way of ``os.fsdecode`` (PEP 383), or as bytes; requests
have it as `crates/agent/src/path_text.rs` writes it, where each byte that is part of no UTF-8 is a zero and two digits.
"""

from __future__ import annotations

import os
import re
from typing import Union

from .errors import InvalidArgumentException

#: A path, as callers say it.
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

_BYTE = re.compile("\0([0-9a-f]{2})")


def utf8(text: str, argument: str) -> bytes:
    """Text as bytes; ``argument`` is what its caller calls it."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _lone(argument, error) from None


def word(text: str, argument: str) -> str:
    """A word of a command line, as ``os.fsdecode`` has it: bytes that are no text are in it as surrogates, others are not."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise _lone(argument, error) from None
    return text


def _lone(argument: str, error: UnicodeEncodeError) -> InvalidArgumentException:
    what = f"{argument!r} has a lone surrogate at position {error.start}, which is no character: give text without it"
    return InvalidArgumentException(what, code="invalid")


def raw(path: Path) -> bytes:
    """The bytes of a path; names inside are UTF-8 whatever the locale here is."""
    name = os.fspath(path)
    try:
        data = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else bytes(name)
    except UnicodeEncodeError as error:
        raise InvalidArgumentException(f"a path of what is no character: {error}", code="invalid") from error
    if not data or b"\0" in data:
        raise InvalidArgumentException("a path is not empty, and has no NUL in it", code="invalid")
    return data


def told(path: Path) -> str:
    """A path as a request has it."""
    return "".join(
        f"\0{ord(letter) - 0xDC00:02x}" if "\udc80" <= letter <= "\udcff" else letter for letter in shown(path)
    )


def shown(path: Path) -> str:
    """A path as a caller is given it."""
    return raw(path).decode("utf-8", "surrogateescape")


def read(text: str) -> str:
    """The same, of an answer."""
    return _BYTE.sub(lambda found: chr(0xDC00 + int(found[1], 16)), text) if "\0" in text else text
