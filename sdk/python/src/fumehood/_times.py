"""Times, as callers give them: seconds."""

from __future__ import annotations

import math

from .errors import InvalidArgumentException

#: Milliseconds in a field of the protocol, at most: 2^53, which every JSON carries as it is.
_MOST = 1 << 53


def milliseconds(seconds: float, what: str = "timeout") -> int:
    """The same in whole milliseconds.

    Raises :class:`InvalidArgumentException` for what is no time: a negative one, NaN, infinity. It must not be taken for 0, which
    ends things at once.
    """
    if not math.isfinite(seconds) or not 0 <= seconds * 1000 < _MOST:
        raise InvalidArgumentException(f"`{what}` is {seconds} seconds, which is no time: give a number from 0 on", code="invalid")
    return round(seconds * 1000)
