"""A delivery as the product signs it, and what is not one."""

import hashlib
import hmac

from fumehood.webhook import verify


def test_only_a_fresh_and_genuine_delivery_is_one():
    secret, body, now = b"0123456789abcdef", b'{"event":"approval.asked"}', 1_800_000_000
    good = "v1=" + hmac.new(secret, b"v1.%d." % now + body, hashlib.sha256).hexdigest()
    assert verify(secret, str(now), good, body, now=now + 300)
    assert not verify(secret, str(now), good, body, now=now + 301)
    assert not verify(secret, str(now), good, body, now=now - 301)
    assert not verify(secret, str(now + 1), good, body, now=now)
    assert not verify(secret, str(now), good, body + b" ", now=now)
    assert not verify(b"another secret!!", str(now), good, body, now=now)
    for odd in ("", "v1=", "v2=" + good[3:], good.upper(), "v1=é"):
        assert not verify(secret, str(now), odd, body, now=now)
    for odd in ("", "x", "-1", "1e9", "١٢٣"):
        assert not verify(secret, odd, good, body, now=now)
