"""Messages and tools of other packages; the real ones where they are installed, else skipped by name."""

import asyncio
import json
from types import SimpleNamespace
from typing import Literal

import pytest
from conftest import allow

from fumehood.tools import Denied, Gateway
from fumehood.tools.adapters import (
    anthropic_aanswer,
    anthropic_answer,
    anthropic_tools,
    guard_langchain,
    guard_smolagents,
    langchain_tools,
    openai_aanswer,
    openai_answer,
    openai_tools,
    smolagents_tools,
)


@pytest.fixture
def gate():
    with Gateway(allow("mail.send", "fails")) as gate:
        gate.ran = []

        @gate.tool("mail.send")
        def send(to: Literal["ann", "bob"], text: str = "") -> str:
            """Send a mail."""
            gate.ran.append((to, text))
            return f"sent to {to}"

        @gate.tool
        def fails(n: int) -> str:
            """Always fails."""
            raise ValueError("broken")

        @gate.tool
        def hidden(n: int) -> str:
            gate.ran.append("hidden")
            return "never"

        yield gate


def calls(*pairs):
    return [{"id": f"c{i}", "type": "function", "function": {"name": n, "arguments": a}} for i, (n, a) in enumerate(pairs)]


def test_openai_messages(gate):
    shown = openai_tools(gate)
    assert shown[0]["function"]["name"] == "mail__send" and shown[0]["function"]["parameters"]["additionalProperties"] is False
    message = {
        "role": "assistant",
        "tool_calls": calls(
            ("mail__send", '{"to": "ann"}'),
            ("mail__send", '{"to": "eve"}'),
            ("mail__send", '{"to": "ann", "to": "eve"}'),
            ("hidden", '{"n": 1}'),
            ("unheard", "{}"),
            ("fails", '{"n": 1}'),
            ("mail__send", "not json"),
        ),
    }
    answers = openai_answer(gate, message)
    assert [a["tool_call_id"] for a in answers] == [f"c{i}" for i in range(7)] and {a["role"] for a in answers} == {"tool"}
    assert answers[0]["content"] == "sent to ann"
    for index in (1, 2, 3, 4, 6):
        said = json.loads(answers[index]["content"])
        assert said["denied"] and said["reasons"][0]["why"], index
    assert "broken" in answers[5]["content"]
    assert gate.ran == [("ann", "")]
    assert openai_answer(gate, {"role": "assistant", "content": "hello"}) == []


def test_openai_objects_and_the_responses_api(gate):
    function = SimpleNamespace(name="mail__send", arguments='{"to": "bob"}')
    message = SimpleNamespace(tool_calls=[SimpleNamespace(id="x", type="function", function=function)])
    assert openai_answer(gate, message)[0]["content"] == "sent to bob"
    output = [{"type": "message"}, {"type": "function_call", "call_id": "y", "name": "mail__send", "arguments": '{"to": "ann"}'}]
    assert openai_answer(gate, output) == [{"type": "function_call_output", "call_id": "y", "output": "sent to ann"}]
    assert asyncio.run(openai_aanswer(gate, output))[0]["output"] == "sent to ann"
    assert openai_tools(gate, responses=True)[0]["name"] == "mail__send"


def test_openai_package(gate):
    openai = pytest.importorskip("openai", reason="openai is not installed")
    from openai.types.chat import ChatCompletionMessage

    message = ChatCompletionMessage.model_validate({"role": "assistant", "tool_calls": calls(("mail__send", '{"to": "ann"}'))})
    assert openai_answer(gate, message)[0]["content"] == "sent to ann" and openai.__version__


def test_anthropic_blocks(gate):
    assert anthropic_tools(gate)[0]["input_schema"]["properties"]["to"] == {"enum": ["ann", "bob"]}
    content = [
        {"type": "text", "text": "I will"},
        {"type": "tool_use", "id": "a", "name": "mail__send", "input": {"to": "ann"}},
        {"type": "tool_use", "id": "b", "name": "mail__send", "input": {"to": "eve"}},
        {"type": "server_tool_use", "id": "c", "name": "web_search", "input": {}},
    ]
    first, second = anthropic_answer(gate, {"role": "assistant", "content": content})
    assert first == {"type": "tool_result", "tool_use_id": "a", "content": "sent to ann"}
    assert second["is_error"] and json.loads(second["content"])["denied"]
    assert asyncio.run(anthropic_aanswer(gate, content))[0] == first
    assert gate.ran == [("ann", "")] * 2


def test_anthropic_package(gate):
    anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed")
    from anthropic.types import Message

    block = {"type": "tool_use", "id": "a", "name": "mail__send", "input": {"to": "ann"}}
    message = Message.model_validate(
        {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [block], "stop_reason": "tool_use",
         "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    )
    assert anthropic_answer(gate, message)[0]["content"] == "sent to ann" and anthropic.__version__


def test_two_tools_under_one_shown_name_are_refused(gate):
    with pytest.raises((ValueError, Denied)):

        @gate.tool("mail__send")
        def two(n: int) -> None: ...

        openai_tools(gate)


def test_langchain_tools(gate):
    pytest.importorskip("langchain_core", reason="langchain-core is not installed")
    by_name = {tool.name: tool for tool in langchain_tools(gate)}
    send = by_name["mail__send"]
    assert send.invoke({"to": "ann"}) == "sent to ann"
    assert "denied" in send.invoke({"to": "eve"})
    message = send.invoke({"type": "tool_call", "id": "x", "name": "mail__send", "args": {"to": "eve"}})
    assert message.status == "error" and "denied" in message.content
    # Nothing of LangChain's drops what the schema does not name before the gate has seen it.
    assert "denied" in send.invoke({"to": "ann", "bcc": "eve"})
    assert "denied" in by_name["hidden"].invoke({"n": 1})
    assert asyncio.run(send.ainvoke({"to": "bob"})) == "sent to bob"
    assert gate.ran == [("ann", ""), ("bob", "")]


def test_langchain_tools_of_others_are_guarded():
    pytest.importorskip("langchain_core", reason="langchain-core is not installed")
    from langchain_core.tools import tool

    ran = []

    @tool
    def multiply(a: int, b: int) -> int:
        """Multiply."""
        ran.append((a, b))
        return a * b

    @tool
    def remove(path: str) -> str:
        """Remove a file."""
        ran.append(path)
        return "gone"

    with Gateway(allow("multiply")) as gate:
        by_name = {tool.name: tool for tool in guard_langchain(gate, [multiply, remove])}
        assert by_name["multiply"].invoke({"a": 2, "b": 3}) == 6
        assert "denied" in by_name["remove"].invoke({"path": "/"})
        assert "denied" in by_name["multiply"].invoke({"a": "2", "b": 3}), "no coercion on the way to the gate"
    assert ran == [(2, 3)]


def test_smolagents_tools(gate):
    pytest.importorskip("smolagents", reason="smolagents is not installed")
    by_name = {tool.name: tool for tool in smolagents_tools(gate)}
    assert by_name["mail__send"](to="ann") == "sent to ann"
    with pytest.raises(Denied):
        by_name["mail__send"](to="eve")
    with pytest.raises(Denied):
        by_name["hidden"](n=1)
    assert gate.ran == [("ann", "")]


def test_smolagents_tools_of_others_are_guarded():
    smolagents = pytest.importorskip("smolagents", reason="smolagents is not installed")
    ran = []

    class Remove(smolagents.Tool):
        name = "remove"
        description = "Removes a file"
        inputs = {"path": {"type": "string", "description": "which"}}
        output_type = "string"

        def forward(self, path: str) -> str:
            ran.append(path)
            return "gone"

    with Gateway(allow("remove")) as gate:
        guarded = guard_smolagents(gate, [Remove()])[0]
        assert guarded(path="/x") == "gone"
        with pytest.raises(Denied):
            guarded(path=1)
    assert ran == ["/x"]


SERVER = """
import json, sys
for line in sys.stdin:
    m = json.loads(line); i, p = m.get("id"), m.get("params") or {}
    said = {"code": -32601, "message": "no"}
    result = None
    if m.get("method") == "initialize": result = {"protocolVersion": p["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    elif m.get("method") == "tools/list": result = {"tools": [{"name": n, "description": "reads " + n, "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}}} for n in ("read", "other")]}
    elif m.get("method") == "tools/call": result = {"content": [{"type": "text", "text": "read " + str(p["arguments"].get("x"))}]}
    if i is not None: print(json.dumps({"jsonrpc": "2.0", "id": i, **({"error": said} if result is None else {"result": result})}), flush=True)
"""


def test_tools_of_mcp_servers_are_listed_and_called_like_functions(tmp_path):
    # Not the folder in which the test's state lies: that is granted to nobody.
    folder = tmp_path / "notes"
    folder.mkdir()
    script = folder / "server.py"
    script.write_text(SERVER)
    sandbox = tmp_path / "sandbox.toml"
    sandbox.write_text(f'version = 1\nextends = "python"\n[fs]\nread = ["{folder}"]\n')
    policy = {
        "tools": {"tool": [{"name": n, "decision": "allow", "effect": "read"} for n in ("notes.read", "own")]},
        "mcp": {"servers": {"notes": {"command": "/usr/bin/python3", "args": [str(script)], "policy": str(sandbox)}}},
    }
    with Gateway(policy) as gate:

        @gate.tool(effect="read")
        def own(x: str) -> str:
            """Own."""
            return "own " + x

        shown = {one["function"]["name"]: one["function"] for one in openai_tools(gate)}
        assert set(shown) == {"own", "notes__read"}, "and not what the policy does not name"
        assert shown["notes__read"]["description"] == "reads read"
        assert {one["name"] for one in anthropic_tools(gate)} == {"own", "notes__read"}
        message = {"role": "assistant", "tool_calls": calls(("notes__read", '{"x": "a"}'), ("own", '{"x": "b"}'), ("notes__other", "{}"))}
        answers = openai_answer(gate, message)
        assert "read a" in answers[0]["content"] and answers[1]["content"] == "own b"
        assert json.loads(answers[2]["content"])["denied"]
