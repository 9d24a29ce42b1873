"""Above 100 somebody must agree: to a hash of these arguments, once."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from held import HERE, denied, passes_naive, shown

from fumehood.tools import Gateway

paid = []


class NaiveApproval:
    """As agents' frameworks have it: the question is about a tool, and the answer is kept."""

    def __init__(self) -> None:
        self.agreed: set[str] = set()

    def ask(self, tool: str, args: dict) -> None:
        self.agreed.add(tool)

    def allows(self, tool: str, args: dict) -> bool:
        return tool in self.agreed


naive = NaiveApproval()
naive.ask("pay", {"to": "ann", "amount": 150})
passes_naive("other arguments than those that were shown", naive.allows("pay", {"to": "eve", "amount": 9000}))

asked = []


def person(call):
    asked.append(call["args"])
    return (call["args"] == {"to": "ann", "amount": 150}, "only what I was told of")


with Gateway(HERE / "policy.toml", answers=person) as gate:

    @gate.tool(effect="write")
    def pay(to: str, amount: int) -> str:
        paid.append((to, amount))
        return "paid"

    shown("100 is paid without a question", pay("ann", 100) == "paid" and asked == [])
    shown("150 is paid after one", pay("ann", 150) == "paid" and len(asked) == 1)
    denied("9000 to eve", lambda: pay("eve", 9000))
    pay("ann", 150)
    shown("an answer is for one call: the second asks again", len(asked) == 3)
    shown("nothing else was paid", paid == [("ann", 100), ("ann", 150), ("ann", 150)])
    before = len(asked)
    denied("eve again", lambda: pay("eve", 9000))
    shown("and nobody is asked twice about what was refused", len(asked) == before)
