"""Messages of exceptions, for whoever has this package and no shell."""

import re

from fumehood import FumehoodError, Refused, Sandbox
from fumehood.errors import _CALLS, Reason


def test_a_message_names_the_call_beside_the_command():
    assert str(FumehoodError("`fumehood ps` lists them")) == "`fumehood ps` (here `Sandbox.list()`) lists them"
    assert str(FumehoodError("`fumehood kill abc`, and then again")) == "`fumehood kill abc` (here `box.kill()`), and then again"
    for same in ("`fumehood keys add` makes one", "`fumehood` ended with 3", "fumehood ps", "it is `fumehood psx`"):
        assert str(FumehoodError(same)) == same
    once = str(FumehoodError("see `fumehood diff R`"))
    assert str(FumehoodError(once)) == once, "twice is once"


def test_a_refusal_does_so_and_its_reasons_stay_as_they_were_told():
    reason = Reason("a/b", "it is not made", "", "two are there", "`fumehood kill abc` first")
    assert "fix: `fumehood kill abc` (here `box.kill()`) first" in str(Refused([reason]))
    assert Refused([reason]).refused[0].fix == "`fumehood kill abc` first"


def test_every_call_that_is_named_is_there():
    methods = [found for call in _CALLS.values() if (found := re.match(r"(?:box|Sandbox)\.(\w+)\(", call))]
    assert len(methods) >= 10
    assert all(hasattr(Sandbox, found[1]) for found in methods if found[1] != "commands"), methods
