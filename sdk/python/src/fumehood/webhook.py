"""The receiving side of ``fumehood tools serve --webhook``: is this delivery genuine and fresh?"""

from __future__ import annotations

import hashlib
import hmac
import time

#: How old a delivery may be, in seconds.
WINDOW = 300


def verify(secret: bytes, timestamp: str, signature: str, body: bytes, *, now: float | None = None) -> bool:
    """Whether ``body`` came with these ``Fumehood-Timestamp`` and ``Fumehood-Signature`` headers from the holder of ``secret``.

    Deliveries are tried again, so remember ``Fumehood-Delivery`` for ``WINDOW`` seconds if a second one would do harm.
    """
    if not (timestamp.isascii() and timestamp.isdigit()) or not signature.isascii():
        return False
    wanted = "v1=" + hmac.new(secret, b"v1." + timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    fresh = abs((time.time() if now is None else now) - int(timestamp)) <= WINDOW
    return hmac.compare_digest(wanted, signature) and fresh
