"""Guarded functions against the real gate."""

import asyncio
import json
import os
import subprocess
import threading
import time
from typing import Annotated, Literal

import pytest
from conftest import allow

from fumehood.tools import Bounds, Denied, Gateway, GatewayError, ToolFailed, tool


def test_an_allowed_call_runs_with_its_values_and_a_denied_one_does_not():
    ran = []
    with Gateway(allow("add")) as gate:

        @gate.tool(effect="read")
        def add(a: int, b: int = 1) -> int:
            ran.append((a, b))
            return a + b

        @gate.tool
        def other(a: int) -> int:
            ran.append("other")
            return a

        assert add(1, 2) == 3 and add(a=4) == 5 and gate.call("add", {"a": 1}) == 2
        with pytest.raises(Denied) as denied:
            other(1)
        assert denied.value.id == "tools.entry/none" and "other" in str(denied.value)
        assert gate.check("add", {"a": 1}).allowed and not gate.check("other", {"a": 1}).allowed
    assert ran == [(1, 2), (4, 1), (1, 1)]


def test_the_hints_are_enforced_before_the_function_sees_anything():
    ran = []
    with Gateway(allow("pay")) as gate:

        @gate.tool
        def pay(to: Literal["ann", "bob"], amount: Annotated[int, Bounds(ge=1, le=100)]) -> str:
            ran.append((to, amount))
            return "paid"

        assert pay("ann", 100) == "paid"
        bad = [
            {"to": "eve", "amount": 1},
            {"to": "ann", "amount": 101},
            {"to": "ann", "amount": "1"},
            {"to": "ann", "amount": True},
            {"to": "ann"},
            {"to": "ann", "amount": 1, "more": 1},
            {"to": ["ann"], "amount": 1},
        ]
        for args in bad:
            with pytest.raises(Denied):
                gate.call("pay", args)
    assert ran == [("ann", 100)]


def test_json_of_a_model_is_read_once_and_by_the_gate():
    ran = []
    with Gateway(allow("f")) as gate:

        @gate.tool
        def f(a: int) -> int:
            ran.append(a)
            return a

        assert gate.call("f", '{"a": 7}') == 7
        for text in ('{"a": 1, "a": 2}', '{"a": 1} {}', '{"a": NaN}', "{'a': 1}", "", '{"a": 9007199254740993}', '{"\\u0061": 1, "a": 2}'):
            with pytest.raises(Denied):
                gate.call("f", text)
    assert ran == [7]


def test_a_number_that_json_cannot_carry_is_denied_at_once_and_a_denial_says_nothing_in_favour():
    with Gateway(allow("count")) as gate:

        @gate.tool("count", effect="write")
        def count(n: int) -> int:
            return 2**60 if n else 0

        assert count(n=0) == 0
        with pytest.raises(Denied) as denied:
            count(n=2**60)
        assert denied.value.id == "tools.json/number"
        # What ran and cannot be passed on is a failure of the tool, and not a call that never ends.
        with pytest.raises(ToolFailed) as failed:
            count(n=1)
        assert "cannot be passed on" in str(failed.value)
        with pytest.raises(Denied) as denied:
            gate.call("count", {"n": "x"})
        assert "the policy allows it" not in str(denied.value) and "a whole number" in str(denied.value)


def test_what_the_function_raises_is_raised_and_what_it_returns_is_json():
    with Gateway(allow("f", "g", "h")) as gate:

        @gate.tool
        def f(a: int) -> int:
            raise KeyError("lost")

        @gate.tool
        def g(a: int) -> dict:
            return {"set": {a}, "tuple": (1, "x")}

        @gate.tool
        def h(a: int) -> object:
            return object()

        with pytest.raises(KeyError, match="lost"):
            f(1)
        assert g(1) == {"set": [1], "tuple": [1, "x"]}
        with pytest.raises(TypeError):
            h(1)
        assert g(2)["set"] == [2], "and the gate lives on"


def test_a_tool_of_no_gateway_and_a_tool_of_a_closed_one_run_nothing():
    ran = []

    @tool("mail.send", effect="write")
    def send(to: str) -> None:
        ran.append(to)

    with pytest.raises(RuntimeError, match="no Gateway"):
        send("a")
    with Gateway(allow("mail.send")) as gate:
        gate.add(send)
        send("b")
    with pytest.raises(GatewayError):
        send("c")
    assert ran == ["b"]


def test_a_gate_that_dies_runs_nothing():
    ran = []
    gate = Gateway(allow("f"))

    @gate.tool
    def f(a: int) -> None:
        ran.append(a)

    f(1)
    gate._pipe._process.kill()
    gate._pipe._process.wait()
    with pytest.raises(GatewayError):
        f(2)
    assert ran == [1]
    gate.close()


def test_a_policy_with_a_mistake_is_told_with_its_place():
    with pytest.raises(GatewayError) as error:
        Gateway({"tools": {"default": "allow"}})
    assert "tools.default" in str(error.value)
    with pytest.raises(GatewayError, match="cannot be started"):
        Gateway("strict", program="/nonexistent/fumehood")


def test_a_gateway_does_not_survive_a_fork():
    with Gateway(allow("f")) as gate:

        @gate.tool
        def f(a: int) -> int:
            return a

        child = os.fork()
        if child == 0:
            try:
                f(1)
            except GatewayError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert f(2) == 2


def test_threads_share_a_gate_and_each_gets_its_own_answer():
    with Gateway(allow("echo")) as gate:

        @gate.tool
        def echo(n: int) -> int:
            return n

        wrong = []

        def work(base: int) -> None:
            wrong.extend(n for n in range(base, base + 50) if echo(n) != n)

        threads = [threading.Thread(target=work, args=(base,)) for base in range(0, 800, 50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_async_functions_are_awaited_and_cancelling_takes_the_call_back():
    async def main() -> None:
        with Gateway(allow("slow", "quick")) as gate:

            @gate.tool
            async def slow(n: int) -> int:
                await asyncio.sleep(n)
                return n

            @gate.tool
            def quick(n: int) -> int:
                return n

            assert await slow(0) == 0 and await gate.acall("quick", {"n": 3}) == 3
            with pytest.raises(TypeError):
                gate.call("slow", {"n": 0})
            begun = time.monotonic()
            many = await asyncio.gather(*(gate.acall("quick", {"n": n}) for n in range(100)))
            assert many == list(range(100)) and time.monotonic() - begun < 30
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(slow(60), 0.2)
            with pytest.raises(Denied):
                await gate.acall("other", {})
            assert await slow(0) == 0

    asyncio.run(main())


def test_two_tools_of_one_name_and_names_that_are_none_are_refused():
    with Gateway(allow("f")) as gate:

        @gate.tool("f")
        def one(a: int) -> None: ...

        with pytest.raises(ValueError):

            @gate.tool("f")
            def two(a: int) -> None: ...

        for name in ("a b", "ｆ", "f\n", "", "x" * 200):
            with pytest.raises((ValueError, Denied)):
                tool(name or " ")(lambda: None)


def test_a_method_is_no_tool():
    class House:
        @tool
        def f(self: int) -> None: ...

    with pytest.raises(TypeError):
        House().f(1)


def test_a_program_is_a_tool_of_its_own_in_a_sandbox(tmp_path):
    script = tmp_path / "shout.py"
    script.write_text("import json, sys\nprint(json.dumps({'said': json.load(sys.stdin)['text'].upper()}))\n")
    broken = tmp_path / "broken.py"
    broken.write_text("import sys\nsys.exit('no')\n")
    flags = ["--tool", f"shout={script}", "--tool", f"broken={broken}", "--sandbox", "python"]
    with Gateway(allow("shout", "broken", "nothing"), arguments=flags) as gate:
        assert gate.call("shout", {"text": "hi"}) == {"said": "HI"}
        with pytest.raises(ToolFailed, match="no"):
            gate.call("broken", {})
        with pytest.raises(Denied) as denied:
            gate.call("nothing", {})
        assert denied.value.id == "tools.http/no-implementation"
        assert {tool["name"]: tool["implemented"] for tool in gate.listed()} == {"shout": True, "broken": True, "nothing": False}


def asks(name, **more):
    return {"tools": {"default": "deny", "tool": [{"name": name, "decision": "ask", "effect": "write", **more}]}}


ANYONE = {"approval": {"by": "anyone"}}


def test_a_person_is_asked_and_answers_from_the_command_line(house):
    ran = []
    with Gateway(asks("f")) as gate:

        @gate.tool
        def f(to: str) -> str:
            ran.append(to)
            return "done"

        def answer(*words: str) -> None:
            env = dict(os.environ)
            for _ in range(2000):
                listed = subprocess.run([env["FUMEHOOD_BIN"], "approvals", "ls", "--json"], capture_output=True, text=True)
                import json

                calls = json.loads(listed.stdout)["calls"]
                if calls:
                    subprocess.run([env["FUMEHOOD_BIN"], "approvals", words[0], calls[0]["id"], *words[1:]], check=True)
                    return
                time.sleep(0.05)

        thread = threading.Thread(target=answer, args=("approve",))
        thread.start()
        assert f("ann") == "done"
        thread.join()
        thread = threading.Thread(target=answer, args=("deny", "--why", "not bob"))
        thread.start()
        with pytest.raises(Denied, match="not bob"):
            f("bob")
        thread.join()
    assert ran == ["ann"]


def test_an_embedding_program_asks_its_own_person():
    asked = []

    def answers(call):
        asked.append((call["tool"], call["args"]))
        return (True, "") if call["args"]["to"] == "ann" else (False, "not them")

    with Gateway(asks("f", **ANYONE), answers=answers) as gate:

        @gate.tool
        def f(to: str) -> str:
            return "done"

        assert f("ann") == "done"
        with pytest.raises(Denied, match="not them"):
            f("bob")
    assert asked == [("f", {"to": "ann"}), ("f", {"to": "bob"})]


def test_a_program_does_not_answer_for_a_person(house):
    asked = []

    def answers(call):
        asked.append(call["id"])
        return True

    with Gateway(asks("f"), answers=answers) as gate:

        @gate.tool
        def f(to: str) -> None: ...

        def deny():
            approvals = [os.environ["FUMEHOOD_BIN"], "approvals"]
            for _ in range(3000):
                listed = subprocess.run([*approvals, "ls", "--json"], capture_output=True, text=True)
                for call in json.loads(listed.stdout)["calls"]:
                    subprocess.run([*approvals, "deny", call["id"]], capture_output=True)
                    return
                time.sleep(0.02)

        thread = threading.Thread(target=deny)
        thread.start()
        with pytest.raises(Denied):
            f("ann")
        thread.join()
    assert asked == []


def test_a_truthy_answer_is_no_agreement():
    with Gateway(asks("f", **ANYONE), answers=lambda call: "yes") as gate:  # type: ignore[arg-type,return-value]

        @gate.tool
        def f(to: str) -> None: ...

        with pytest.raises(Denied):
            f("ann")


def test_what_waits_survives_a_kill_and_its_answer_is_for_one_call_of_that_session(house):
    """GW-18: the gateway dies while a person is asked; the answer comes after it, and is found by the same call alone."""
    import json

    ran = []

    def make(gate):
        @gate.tool
        def f(to: str) -> str:
            ran.append(to)
            return "done"

        return f

    def approvals(*words):
        return subprocess.run([os.environ["FUMEHOOD_BIN"], "approvals", *words], capture_output=True, text=True)

    def waiting():
        return json.loads(approvals("ls", "--json").stdout)["calls"]

    # One policy at one place: an approval belongs to it.
    policy = house / "policy.json"
    policy.write_text(json.dumps({"version": 1, **asks("f")}))
    first = Gateway(policy)
    f = make(first)
    failed = []

    def call():
        with first.session("talk"):
            try:
                f("ann")
            except GatewayError as error:
                failed.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    while not waiting():
        time.sleep(0.02)
    first._pipe._process.kill()
    thread.join()
    assert len(failed) == 1 and ran == []
    (call_id,) = [one["id"] for one in waiting()]
    assert approvals("approve", call_id).returncode == 0

    with Gateway(policy) as again:
        f = make(again)

        def is_asked_about(session, to):
            """Nobody answers this one, so it waits: it was not let through by the answer to another."""
            before = len(waiting())

            def inside():
                with again.session(session):  # A thread does not inherit the session of another.
                    try:
                        again.call("f", {"to": to})
                    except (Denied, GatewayError):
                        pass

            threading.Thread(target=inside, daemon=True).start()
            for _ in range(3000):
                if len(waiting()) > before:
                    return True
                time.sleep(0.02)
            return False

        assert is_asked_about("another", "ann"), "another session's call is asked about"
        assert is_asked_about("talk", "eve"), "other arguments are asked about"
        with again.session("talk"):
            assert f("ann") == "done"
        assert ran == ["ann"]
        assert is_asked_about("talk", "ann"), "and the answer was good for one call"
    assert ran == ["ann"]


def test_a_conversation_that_ended_is_counted_anew_and_no_other():
    rules = [{"when": "counters.tool >= 2", "message": "two are enough"}]
    with Gateway(allow("look", rules=rules)) as gate:

        @gate.tool
        def look(n: int) -> int:
            return n

        def made(session):
            with gate.session(session):
                try:
                    return look(1) == 1
                except Denied:
                    return False

        assert [made("a"), made("a"), made("a")] == [True, True, False]
        assert [made("b"), made("b")] == [True, True]
        gate.end_session("a")
        assert made("a") and not made("b"), "only what ended begins anew"
        with pytest.raises(Denied):
            gate.end_session("")


def test_nothing_of_a_tool_leads_around_the_gate():
    import inspect

    ran = []
    with Gateway(allow("other")) as gate:

        @gate.tool
        def pay(amount: int = 1) -> int:
            """Pays."""
            ran.append(amount)
            return amount

        assert not hasattr(pay, "__wrapped__") and not hasattr(pay, "function")
        assert inspect.unwrap(pay) is pay and list(inspect.signature(pay).parameters) == ["amount"]
        assert (pay.__name__, pay.__doc__) == ("pay", "Pays.")
        for way in (pay, inspect.unwrap(pay), lambda: pay(2)):
            with pytest.raises(Denied):
                way()
    assert ran == []


def test_defaults_are_judged_where_the_policy_looks_at_them():
    ran = []
    guarded = allow("send", guards={"to": {"kind": "email", "domains": ["company.com"]}})
    with Gateway(guarded) as gate:

        @gate.tool("send")
        def send(to: str = "boss@evil.example", note: str | None = None) -> str:
            ran.append((to, note))
            return to

        for args in ({}, "{}", {"note": "x"}):
            with pytest.raises(Denied) as denied:
                gate.call("send", args)
            assert denied.value.id.startswith("tools.guard"), denied.value
        with pytest.raises(Denied):
            send()
        assert send(to="ann@company.com") == "ann@company.com"
    assert ran == [("ann@company.com", None)]
    with Gateway(allow("send")) as gate:

        @gate.tool("send")
        def unguarded(to: str = "boss@evil.example") -> str:
            return to

        assert unguarded() == "boss@evil.example"


def test_a_guard_of_an_argument_that_the_function_does_not_have_denies_every_call():
    ran = []
    guarded = allow("send", guards={"to": {"kind": "email", "domains": ["company.com"]}})
    with Gateway(guarded) as gate:

        @gate.tool("send")
        def send(recipient: str, body: str = "") -> str:
            ran.append(recipient)
            return recipient

        for recipient in ("eve@evil.example", "ann@company.com"):
            with pytest.raises(Denied) as denied:
                send(recipient=recipient)
            assert denied.value.id == "tools.guard/no-argument", denied.value
    assert ran == []


def test_a_default_that_cannot_be_judged_is_an_error_when_the_tool_is_made():
    from fumehood.tools import Unfit

    def odd(to: str = object()) -> str:  # type: ignore[assignment]
        return str(to)

    def misfit(to: int = None) -> str:  # type: ignore[assignment]
        return str(to)

    with pytest.raises(Unfit, match="cannot be judged"):
        tool(odd)
    with pytest.raises(Unfit, match="write `... . None`"):
        tool(misfit)
