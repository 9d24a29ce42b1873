"""The gate where other people's agents call tools: messages of OpenAI and Anthropic, tools of LangChain and smolagents.

Nothing here imports the package that it is for until it is needed; messages are read from dictionaries and from the packages'
own objects alike. What the model wrote as arguments goes to the gate as it was written (text is not parsed here), and a
denial goes back to the model as the tool's answer, so that it can do what is allowed instead.

Clients of models allow only ``[A-Za-z0-9_-]{1,64}`` in names: ``mail.send`` is shown as ``mail__send``. Two tools that would
be shown under one name are refused.
"""

from __future__ import annotations

import asyncio
import json
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ._gateway import Gateway, ToolFailed
from ._pipe import GatewayError
from ._tool import Tool
from ._verdict import Denied

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

_PUBLIC = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class Shown(NamedTuple):
    """A tool as a model sees it: a function of ours, or a tool of an MCP server that the gate runs."""

    name: str
    description: str
    schema: Mapping[str, Any]
    is_async: bool


class Names:
    """The names that a model sees, one to one with those behind the gate. With ``fresh`` the servers are asked what they have."""

    def __init__(self, gateway: Gateway, *, fresh: bool = False) -> None:
        self._public: dict[str, Shown] = {}
        for name, tool in gateway.tools.items():
            self._add(_public_of(name), Shown(name, tool.description, tool.schema, tool.is_async))
        for one in gateway._of_servers(fresh):
            schema = one.get("schema") or {"type": "object"}
            try:
                shown = Shown(one["name"], one.get("description") or "", schema, False)
                self._add(_public_of(one["name"]), shown)
            except ValueError as error:
                # Somebody else's name must not take all other tools away.
                warnings.warn(f"a tool is left out: {error}", stacklevel=3)

    def _add(self, public: str, tool: Shown) -> None:
        if public in self._public:
            raise ValueError(f"{tool.name} and {self._public[public].name} would both be shown as {public}")
        self._public[public] = tool

    def inner(self, shown: str) -> str:
        """The tool behind a name. What no tool has goes to the gate as it is, which denies and records it."""
        tool = self._public.get(shown)
        return tool.name if tool else shown

    def items(self) -> Iterable[tuple[str, Shown]]:
        return self._public.items()


def _public_of(name: str) -> str:
    shown = name.replace(".", "__").replace("/", "__")
    if not _PUBLIC.match(shown):
        raise ValueError(f"{name} cannot be shown to a model: 64 letters, digits, `_` and `-` are the most")
    return shown


def openai_tools(gateway: Gateway, *, responses: bool = False) -> list[dict[str, Any]]:
    """The ``tools`` parameter of Chat Completions, or of the Responses API: functions, and tools of the policy's MCP servers."""
    out = []
    for shown, tool in Names(gateway, fresh=True).items():
        about = {"name": shown, "description": tool.description, "parameters": tool.schema}
        out.append({"type": "function", **about} if responses else {"type": "function", "function": about})
    return out


def openai_answer(gateway: Gateway, message: Any) -> list[dict[str, Any]]:
    """Makes the calls of an assistant message (or of a response's ``output``): the messages that answer them, in order."""
    names = Names(gateway)
    calls = _get(message, "tool_calls") if not isinstance(message, list) else message
    return [_openai_one(gateway, names, call) for call in calls or () if _get(call, "type") in ("function", "function_call")]


async def openai_aanswer(gateway: Gateway, message: Any) -> list[dict[str, Any]]:
    """As :func:`openai_answer`, for event loops; tools may be async functions."""
    names = await asyncio.to_thread(Names, gateway)
    calls = _get(message, "tool_calls") if not isinstance(message, list) else message
    wanted = [call for call in calls or () if _get(call, "type") in ("function", "function_call")]
    return [_openai_wrap(call, (await _amade(gateway, names, *_openai_call(call)))[0]) for call in wanted]


def _openai_call(call: Any) -> tuple[str, Any]:
    inner = _get(call, "function") or call
    return _get(inner, "name"), _get(inner, "arguments") or "{}"


def _openai_one(gateway: Gateway, names: Names, call: Any) -> dict[str, Any]:
    text, _ = _made(gateway, names, *_openai_call(call))
    return _openai_wrap(call, text)


def _openai_wrap(call: Any, text: str) -> dict[str, Any]:
    if _get(call, "type") == "function_call":
        return {"type": "function_call_output", "call_id": _get(call, "call_id"), "output": text}
    return {"role": "tool", "tool_call_id": _get(call, "id"), "content": text}


def anthropic_tools(gateway: Gateway) -> list[dict[str, Any]]:
    """The ``tools`` parameter of the Messages API."""
    out = []
    for shown, tool in Names(gateway, fresh=True).items():
        out.append({"name": shown, "description": tool.description, "input_schema": tool.schema})
    return out


def anthropic_answer(gateway: Gateway, message: Any) -> list[dict[str, Any]]:
    """Makes the ``tool_use`` blocks of a message: the ``tool_result`` blocks of the user message that follows."""
    names = Names(gateway)
    return [_anthropic_wrap(block, *_made(gateway, names, _get(block, "name"), _get(block, "input"))) for block in _uses(message)]


async def anthropic_aanswer(gateway: Gateway, message: Any) -> list[dict[str, Any]]:
    """As :func:`anthropic_answer`, for event loops."""
    names = await asyncio.to_thread(Names, gateway)
    out = []
    for block in _uses(message):
        out.append(_anthropic_wrap(block, *await _amade(gateway, names, _get(block, "name"), _get(block, "input"))))
    return out


def _uses(message: Any) -> list[Any]:
    content = message if isinstance(message, list) else _get(message, "content")
    # Server tools run at the model's side, where no gate of ours stands; they are named otherwise.
    return [block for block in content if _get(block, "type") == "tool_use"] if isinstance(content, list) else []


def _anthropic_wrap(block: Any, text: str, failed: bool) -> dict[str, Any]:
    out = {"type": "tool_result", "tool_use_id": _get(block, "id"), "content": text}
    return {**out, "is_error": True} if failed else out


def langchain_tools(gateway: Gateway) -> list[BaseTool]:
    """The gate's own tools for LangChain and LangGraph. A denial is the tool's answer, with status ``error``."""
    from langchain_core.tools import StructuredTool, ToolException

    def one(shown: str, tool: Shown) -> BaseTool:
        def call(**values: Any) -> Any:
            try:
                return gateway.call(tool.name, values)
            except Denied as denied:
                raise ToolException(str(denied)) from denied

        async def acall(**values: Any) -> Any:
            try:
                return await gateway.acall(tool.name, values)
            except Denied as denied:
                raise ToolException(str(denied)) from denied

        return StructuredTool(
            name=shown,
            description=tool.description or shown,
            # The schema and no model: a model of LangChain's would coerce and drop before the gate sees anything.
            args_schema=dict(tool.schema),
            func=None if tool.is_async else call,
            coroutine=acall,
            handle_tool_error=True,
        )

    return [one(shown, tool) for shown, tool in Names(gateway, fresh=True).items()]


def guard_langchain(gateway: Gateway, tools: Iterable[BaseTool]) -> list[BaseTool]:
    """Puts tools that others wrote for LangChain behind the gate; use what comes back in place of them."""
    for inner in tools:
        gateway.add(_foreign_langchain(inner))
    return langchain_tools(gateway)


def _foreign_langchain(inner: BaseTool) -> Foreign:
    schema: Any = inner.tool_call_schema
    json_schema: Any = schema if isinstance(schema, dict) else schema.model_json_schema()
    return Foreign(inner.name, inner.description, dict(json_schema), lambda **values: inner.invoke(values))


def smolagents_tools(gateway: Gateway) -> list[Any]:
    """The gate's own tools for smolagents. A denial is raised in the agent's code, which sees its words."""
    from smolagents import Tool as Smol

    made = []
    for shown, tool in Names(gateway, fresh=True).items():
        properties = tool.schema.get("properties", {})
        required = set(tool.schema.get("required", ()))
        inputs = {key: _smol_input(key, part, key in required) for key, part in properties.items()}
        made.append(_smol(Smol, gateway, tool, shown, inputs))
    return made


def _smol(base: Any, gateway: Gateway, tool: Shown, shown: str, inputs: dict[str, Any]) -> Any:
    def forward(self: Any, **values: Any) -> Any:
        # smolagents fills what was left out with None, which is another value: it is left out again.
        optional = {key for key, part in inputs.items() if part.get("nullable")}
        given = {key: value for key, value in values.items() if value is not None or key not in optional}
        return gateway.call(tool.name, given)

    space = {
        "name": shown,
        "description": tool.description or shown,
        "inputs": inputs,
        "output_type": "any",
        "skip_forward_signature_validation": True,
        "forward": forward,
    }
    return type("Guarded", (base,), space)()


def _smol_input(name: str, schema: Mapping[str, Any], required: bool) -> dict[str, Any]:
    kinds = {"string", "boolean", "integer", "number", "object", "array", "null"}
    kind = schema.get("type")
    out: dict[str, Any] = {"type": kind if kind in kinds else "any", "description": schema.get("description") or name}
    if not required:
        out["nullable"] = True
    return out


def guard_smolagents(gateway: Gateway, tools: Iterable[Any]) -> list[Any]:
    """Puts tools that others wrote for smolagents behind the gate; use what comes back in place of them."""
    for inner in tools:
        schema: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
        required = []
        for name, about in inner.inputs.items():
            part = {"description": about.get("description", "")}
            kind = about.get("type")
            if kind in ("string", "boolean", "integer", "number", "object", "array", "null"):
                part["type"] = kind
            if not about.get("nullable"):
                required.append(name)
            schema["properties"][name] = part
        schema["required"] = required
        gateway.add(Foreign(inner.name, inner.description, schema, lambda inner=inner, **values: inner(**values)))
    return smolagents_tools(gateway)


class Foreign(Tool[..., Any]):
    """A tool that was written for another package: its schema is that package's word, which the gate may only tighten."""

    def __init__(self, name: str, description: str, schema: dict[str, Any], function: Any) -> None:
        def none() -> None: ...

        super().__init__(none, name, description=description or name)
        schema.setdefault("additionalProperties", False)
        self._function, self.schema, self.build, self.is_async = function, schema, dict, False


def _made(gateway: Gateway, names: Names, shown: str, args: Any) -> tuple[str, bool]:
    """The answer to a model, and whether it is an error."""
    try:
        return _text(gateway.call(names.inner(shown), args)), False
    except Exception as error:
        return _failed(error)


async def _amade(gateway: Gateway, names: Names, shown: str, args: Any) -> tuple[str, bool]:
    try:
        return _text(await gateway.acall(names.inner(shown), args)), False
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> tuple[str, bool]:
    if isinstance(error, GatewayError):
        # Not the model's business: without the gate the agent must stop.
        raise error
    if isinstance(error, Denied):
        return error.to_json(), True
    if isinstance(error, ToolFailed):
        return str(error), True
    # As the gate bounded and redacted it, not as the function raised it.
    said = getattr(error, "fumehood_failure", None)
    return (said if isinstance(said, str) else type(error).__name__), True


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _get(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)
