"""The reference page, held against the package: every public name with its parameters and fields, docstrings, and both halves."""

import dataclasses
import importlib
import inspect
import pathlib
import re

import pytest

import fumehood
import fumehood.tools
import fumehood.webhook
from fumehood import _async_commands, _async_files, _sync_commands, _sync_files

PAGE = (pathlib.Path(__file__).resolve().parents[3] / "docs" / "reference" / "python.md").read_text()
#: Words that stand in code, in the text or in a block.
CODE = set(re.findall(r"\w+", " ".join(re.findall(r"```.*?```|`[^`\n]+`", PAGE, re.DOTALL))))
#: Classes that are reached by an attribute and not by import.
PARTS = [
    _sync_commands.Commands, _sync_commands.Pty, _sync_files.Filesystem, _async_commands.AsyncCommands, _async_commands.AsyncPty,
    _async_files.AsyncFilesystem,
]
TWINS = [
    (fumehood.Sandbox, fumehood.AsyncSandbox), (_sync_commands.Commands, _async_commands.AsyncCommands),
    (_sync_commands.Pty, _async_commands.AsyncPty), (_sync_files.Filesystem, _async_files.AsyncFilesystem),
    (fumehood.CommandHandle, fumehood.AsyncCommandHandle), (fumehood.WatchHandle, fumehood.AsyncWatchHandle),
]
#: What only one half has: callbacks of its own kind.
OF_ONE_HALF = {"on_event", "on_exit", "on_pty", "on_stdout", "on_stderr"}


def exported():
    for module in (fumehood, fumehood.tools):
        for name in module.__all__:
            yield name, getattr(module, name)


def members(owner):
    """The public methods, properties and fields that a class of this package defines."""
    found = {}
    for base in reversed(owner.__mro__):
        if base.__module__.startswith("fumehood"):
            found |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
            found |= {name: None for name in getattr(base, "__annotations__", {}) if not name.startswith("_")}
    if dataclasses.is_dataclass(owner):
        found |= {field.name: None for field in dataclasses.fields(owner)}
    # How the package itself reads an answer.
    return {name: value for name, value in found.items() if name not in ("of", "of_problem")}


def function_of(value):
    value = getattr(value, "__func__", value)
    return value.fget if isinstance(value, property) else value if inspect.isfunction(value) else None


def parameters(function):
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls", "_")]


def names():
    """Everything that the page must have, as it is reached."""
    for name, value in exported():
        yield name, name
        if inspect.isclass(value):
            for member, inner in members(value).items():
                yield f"{name}.{member}", member
                if (function := function_of(inner)) is not None:
                    yield from ((f"{name}.{member}({parameter})", parameter) for parameter in parameters(function))
            if name in ("Sandbox", "AsyncSandbox", "Gateway"):
                yield from ((f"{name}({parameter})", parameter) for parameter in parameters(value.__init__))
        elif inspect.isfunction(value):
            yield from ((f"{name}({parameter})", parameter) for parameter in parameters(value))
    for owner in PARTS:
        for member, inner in members(owner).items():
            yield f"{owner.__name__}.{member}", member
            yield from ((f"{owner.__name__}.{member}({parameter})", parameter) for parameter in parameters(function_of(inner)))
    for word in ("anthropic", "openai_agents", "langchain", "smolagents", "inspect_ai", "webhook", "verify"):
        yield word, word


def test_every_public_name_is_on_the_page():
    missing = sorted({path for path, word in names() if word not in CODE})
    assert missing == []


def test_a_name_that_is_not_there_would_be_missed():
    assert len({path for path, _ in names()}) > 300 and "no_such_method" not in CODE


def documented():
    for _, value in exported():
        if inspect.isclass(value):
            yield from ((value, name, function_of(inner)) for name, inner in members(value).items())
        elif inspect.isfunction(value):
            yield None, value.__name__, value
    for owner in PARTS:
        yield from ((owner, name, function_of(inner)) for name, inner in members(owner).items())


def said(owner, function):
    """What the docstring of a function and of its class say; that of an asynchronous half also what the other half says."""
    twin = next((one for one, other in TWINS if other is owner), None)
    inner = function_of(vars(twin).get(function.__name__)) if twin else None
    return " ".join(inspect.getdoc(one) or "" for one in (function, owner, inner, twin) if one is not None)


def test_every_function_says_what_it_does_and_in_which_units():
    wrong = []
    for owner, name, function in documented():
        if function is None:
            continue
        where = f"{owner.__name__ if owner else ''}.{name}"
        if not (inspect.getdoc(function) or "").strip():
            wrong.append(f"{where}: no docstring")
        units = {"timeout": "second", "idle": "second", "request_timeout": "second", "max_bytes": "byte", "max_output": "byte"}
        for parameter in parameters(function):
            if parameter in units and units[parameter] not in said(owner, function):
                wrong.append(f"{where}: `{parameter}` in which unit?")
    assert wrong == []


def test_whoever_asks_a_sandbox_is_told_what_may_be_raised():
    wrong = []
    for owner, name, function in documented():
        asks = owner in PARTS or owner in (fumehood.Sandbox, fumehood.AsyncSandbox, fumehood.CommandHandle, fumehood.AsyncCommandHandle)
        if asks and function is not None and "aise" not in said(owner, function):
            wrong.append(f"{owner.__name__}.{name}")
    assert wrong == []


@pytest.mark.parametrize("one, other", TWINS, ids=lambda twin: twin.__name__)
def test_both_halves_have_the_same(one, other):
    assert set(members(one)) == set(members(other))
    for name, inner in members(one).items():
        function, twin = function_of(inner), function_of(members(other)[name])
        if function is not None:
            assert set(parameters(function)) - OF_ONE_HALF == set(parameters(twin)) - OF_ONE_HALF, name
            defaults = [{name: it.default for name, it in inspect.signature(each).parameters.items()} for each in (function, twin)]
            assert all(defaults[1][name] == default for name, default in defaults[0].items() if name in defaults[1]), name


def test_the_adapters_are_where_the_page_says():
    for line in re.findall(r"from (fumehood[.\w]+) import ([\w, ]+)", PAGE):
        try:
            module = importlib.import_module(line[0])
        except ImportError as error:
            if "fumehood" in str(error):
                raise
            continue  # What it is over is not installed.
        for name in line[1].split(","):
            assert hasattr(module, name.strip()), line
