"""Mail to `@company.com`: the guard parses one address and compares the whole domain."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from held import HERE, denied, passes_naive, shown

from fumehood.tools import Gateway

sent = []
TWO = "eve@evil.example, ann@company.com"
HEADER = "ann@company.com\r\nBcc: eve@evil.example\r\nX: ann@company.com"
PREFIX = "ann@company.com.evil.example"


def naive_suffix(to: str) -> bool:
    return to.endswith("@company.com")


def naive_pattern(to: str) -> bool:
    return re.match(r"[\w.]+@company.com", to) is not None


passes_naive("two addresses, by their end", naive_suffix(TWO))
passes_naive("a line break with a Bcc, by its end", naive_suffix(HEADER))
passes_naive("`company.com.evil.example`, by a pattern", naive_pattern(PREFIX))

with Gateway(HERE / "policy.toml") as gate:

    @gate.tool(effect="write")
    def send_mail(to: str, body: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    shown("mail to ann@company.com is sent", send_mail("ann@company.com", "hello") == "sent to ann@company.com")
    attacks = [TWO, HEADER, PREFIX, "ann@company.com@evil.example", "ann@evil-company.com", "ann@соmpany.com",
               '"x"@company.com', "Ann <eve@evil.example>", "ann@company.com\n", "ann%evil.example@company.com,eve@evil.example"]
    for to in attacks:
        denied(repr(to), lambda to=to: send_mail(to, "hello"))
    shown("one mail was sent", sent == ["ann@company.com"])
