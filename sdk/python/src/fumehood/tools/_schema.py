"""Type hints as JSON Schema, and judged JSON back as the values that the hints promise.

Both directions are written side by side, kind by kind, so that what the schema lets through is what can be built. A hint
that says nothing a schema can hold (a callable, a file, ``Any`` for a parameter that is not meant to be anything) is an
error when the tool is made, not a hole when it is called.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import types
import typing
from collections import abc
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any, Callable, Literal, Mapping, Union, get_args, get_origin
from uuid import UUID

Json = dict[str, Any]
Build = Callable[[Any], Any]

_SCALARS: dict[type, tuple[Json, Build]] = {
    str: ({"type": "string"}, str),
    bool: ({"type": "boolean"}, bool),
    int: ({"type": "integer"}, int),
    float: ({"type": "number"}, float),
    type(None): ({"type": "null"}, lambda _: None),
    UUID: ({"type": "string", "pattern": "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"}, UUID),
    date: ({"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}, date.fromisoformat),
    time: ({"type": "string", "pattern": "^[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?$"}, time.fromisoformat),
    datetime: (
        {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?([+-][0-9]{2}:[0-9]{2})?$"},
        datetime.fromisoformat,
    ),
    Decimal: ({"type": "string", "pattern": "^-?[0-9]{1,40}([.][0-9]{1,40})?$"}, Decimal),
    Path: ({"type": "string", "minLength": 1, "maxLength": 4096}, Path),
    PurePath: ({"type": "string", "minLength": 1, "maxLength": 4096}, PurePath),
}

#: Attribute of a constraint (``annotated_types``, pydantic's ``Field``, :class:`Bounds`) -> keyword of the schema.
_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
}


class Unfit(TypeError):
    """A hint that no schema can hold; the tool is not made."""


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Bounds for ``Annotated``, where neither ``annotated_types`` nor pydantic is installed."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    description: str | None = None


class Made(typing.NamedTuple):
    """A schema, and what makes a value of what it lets through."""

    schema: Json
    build: Build
    #: Of a function's parameters: what it gets where nothing is given, as JSON.
    defaults: Json = {}


def schema_of(function: Callable[..., Any]) -> Json:
    """The JSON Schema of a function's arguments."""
    return arguments(function).schema


def arguments(function: Callable[..., Any]) -> Made:
    """All parameters as one closed object."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise Unfit(f"{_name(function)}: {error}; hints must be names that the module knows") from error
    parts: dict[str, Made] = {}
    required: list[str] = []
    defaults: Json = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise Unfit(f"{_name(function)}: `{parameter}` takes arguments that no schema names")
        if name not in hints:
            raise Unfit(f"{_name(function)}: `{name}` has no type hint")
        made = convert(hints[name], f"{_name(function)}: `{name}`")
        if parameter.default is parameter.empty:
            required.append(name)
        else:
            defaults[name] = _default(parameter.default, made, f"{_name(function)}: the default of `{name}`")
        parts[name] = made
    return _object(parts, required, lambda values: values)._replace(defaults=defaults)


def _default(value: Any, made: Made, where: str) -> Any:
    """A default as the gate judges it: where nothing is given it is what the function gets."""
    try:
        shown = plain(value)
    except TypeError as error:
        raise Unfit(f"{where} cannot be judged: {error}") from error
    if not fits(made.schema, shown):
        hint = " (for None write `... | None`)" if value is None else ""
        raise Unfit(f"{where} does not fit its hint{hint}")
    return shown


def convert(hint: Any, where: str) -> Made:
    """One hint."""
    made = _scalar(hint) or _structured(hint, where) or _generic(hint, where)
    if made is None:
        raise Unfit(f"{where} is {hint!r}, which no schema can hold")
    return made


def _scalar(hint: Any) -> Made | None:
    if isinstance(hint, type) and hint in _SCALARS:
        schema, build = _SCALARS[hint]
        return Made(dict(schema), build)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        values = [member.value for member in hint]
        return Made(_choices(values, repr(hint)), hint)
    if get_origin(hint) is Literal:
        values = list(get_args(hint))
        plain = [value.value if isinstance(value, enum.Enum) else value for value in values]
        pairs = list(zip(plain, values))
        # By type as well: `1`, `1.0` and `True` are equal in Python and three values in JSON.
        return Made(_choices(plain, repr(hint)), lambda got: next(v for p, v in pairs if p == got and type(p) is type(got)))
    return None


def _choices(values: list[Any], hint: str) -> Json:
    if not values or any(not isinstance(value, (str, int, bool, type(None))) for value in values):
        raise Unfit(f"{hint} has values that are no JSON")
    return {"enum": values}


def _structured(hint: Any, where: str) -> Made | None:
    if _is_model(hint):
        return _model(hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        fields = [field for field in dataclasses.fields(hint) if field.init]
        parts = {field.name: convert(hints[field.name], f"{where}.{field.name}") for field in fields}
        missing = dataclasses.MISSING
        required = [f.name for f in fields if f.default is missing and f.default_factory is missing]
        return _object(parts, required, lambda values: hint(**values))
    if typing.is_typeddict(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        parts = {name: convert(_bare(inner), f"{where}.{name}") for name, inner in hints.items()}
        return _object(parts, sorted(hint.__required_keys__), lambda values: values)
    return None


#: ``Required`` and ``NotRequired`` of a ``TypedDict``; Python 3.10 has neither.
_MARKS = tuple(mark for name in ("Required", "NotRequired") if (mark := getattr(typing, name, None)) is not None)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) in _MARKS else hint


def _object(parts: Mapping[str, Made], required: list[str], finish: Build) -> Made:
    schema: Json = {
        "type": "object",
        "properties": {name: made.schema for name, made in parts.items()},
        "additionalProperties": False,
    }
    if required:
        schema["required"] = required
    return Made(schema, lambda got: finish({name: parts[name].build(value) for name, value in got.items()}))


def _generic(hint: Any, where: str) -> Made | None:
    origin, args = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        return _annotated(convert(args[0], where), hint.__metadata__, where)
    if origin is Union or origin is getattr(types, "UnionType", None):
        return _union([convert(arg, where) for arg in args])
    if hint is list or origin in (list, abc.Sequence):
        return _list(args, where, list)
    if hint in (set, frozenset) or origin in (set, frozenset, abc.Set):
        made = _list(args, where, frozenset if hint is frozenset or origin is frozenset else set)
        return Made({**made.schema, "uniqueItems": True}, made.build)
    if origin is tuple:
        return _tuple(args, where)
    if hint is dict or origin in (dict, abc.Mapping):
        return _dict(args, where)
    return None


def _list(args: tuple[Any, ...], where: str, finish: Build) -> Made:
    if not args:
        raise Unfit(f"{where} does not say what it holds: write list[str]")
    item = convert(args[0], f"{where}[]")
    return Made({"type": "array", "items": item.schema}, lambda got: finish(item.build(one) for one in got))


def _tuple(args: tuple[Any, ...], where: str) -> Made:
    if len(args) == 2 and args[1] is Ellipsis:
        return _list(args[:1], where, tuple)
    parts = [convert(arg, f"{where}[{index}]") for index, arg in enumerate(args)]
    schema = {"type": "array", "prefixItems": [part.schema for part in parts], "items": False, "minItems": len(parts)}
    return Made(schema, lambda got: tuple(part.build(one) for part, one in zip(parts, got)))


def _dict(args: tuple[Any, ...], where: str) -> Made:
    if len(args) != 2 or args[0] is not str:
        raise Unfit(f"{where} is no dict[str, ...]: names of JSON are text")
    value = convert(args[1], f"{where}{{}}")
    return Made(
        {"type": "object", "additionalProperties": value.schema},
        lambda got: {name: value.build(one) for name, one in got.items()},
    )


def _union(parts: list[Made]) -> Made:
    def build(got: Any) -> Any:
        for part in parts:
            if fits(part.schema, got):
                try:
                    return part.build(got)
                except (TypeError, ValueError):
                    continue
        raise ValueError(f"{got!r} fits no part of the hint")

    return Made({"anyOf": [part.schema for part in parts]}, build)


def fits(schema: Json, got: Any) -> bool:
    """Enough of JSON Schema to tell the parts of a union apart; the gate has judged the whole."""
    if "anyOf" in schema:
        return any(fits(part, got) for part in schema["anyOf"])
    if "enum" in schema:
        return any(type(value) is type(got) and value == got for value in schema["enum"])
    kind = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    wanted, found = schema.get("type"), kind.get(type(got))
    if wanted is not None and wanted != found and not (wanted == "number" and found == "integer"):
        return False
    if found == "object" and "properties" in schema:
        named = schema["properties"]
        closed = schema.get("additionalProperties") is not False or set(got) <= set(named)
        return closed and set(schema.get("required", ())) <= set(got)
    return "pattern" not in schema or re.search(schema["pattern"], got) is not None


def _annotated(made: Made, metadata: tuple[Any, ...], where: str) -> Made:
    schema = dict(made.schema)
    for note in _flat(metadata):
        if isinstance(note, str):
            schema.setdefault("description", note)
            continue
        for attribute, keyword in _BOUNDS.items():
            value = getattr(note, attribute, None)
            if value is not None:
                schema[keyword] = getattr(value, "pattern", value)
        for attribute, keywords in (("min_length", ("minLength", "minItems")), ("max_length", ("maxLength", "maxItems"))):
            value = getattr(note, attribute, None)
            if value is not None:
                schema[keywords[schema.get("type") == "array"]] = value
        description = getattr(note, "description", None)
        if isinstance(description, str):
            schema["description"] = description
        if getattr(note, "strict", None) or callable(getattr(note, "func", None)):
            # A validator in Python is no part of a schema; pydantic models run theirs when the value is built.
            raise Unfit(f"{where} has a check that no schema can hold: put it into a model, or into the policy's rules")
    return Made(schema, made.build)


def _flat(metadata: tuple[Any, ...]) -> list[Any]:
    """pydantic's ``Field`` keeps its constraints in a list of their own."""
    notes: list[Any] = []
    for note in metadata:
        notes.append(note)
        notes.extend(getattr(note, "metadata", None) or ())
    return notes


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and callable(getattr(hint, "model_json_schema", None))


def _model(model: Any) -> Made:
    """A pydantic model: its own schema, closed, and with what it refers to written in place."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    return Made(_closed(schema, definitions, ()), model.model_validate)


def _closed(schema: Any, definitions: Mapping[str, Any], above: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        return [_closed(part, definitions, above) for part in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if reference is not None:
        name = reference.removeprefix("#/$defs/")
        if name in above:
            raise Unfit(f"{name} contains itself: a schema of bounded depth cannot hold it")
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return {**_closed(definitions[name], definitions, (*above, name)), **_closed(rest, definitions, above)}
    out = {key: _inner(key, value, definitions, above) for key, value in schema.items() if key != "discriminator"}
    if out.get("type") == "object" and "properties" in out:
        out["additionalProperties"] = False
    return out


def _inner(key: str, value: Any, definitions: Mapping[str, Any], above: tuple[str, ...]) -> Any:
    if key == "properties":
        return {name: _closed(part, definitions, above) for name, part in value.items()}
    if key in ("enum", "const", "default", "examples", "required"):
        return value
    return _closed(value, definitions, above)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", repr(function))


def plain(value: Any) -> Any:
    """What a function returned, as JSON; an error for what has no one form."""
    if value is None or isinstance(value, (str, bool, int, float)) and not isinstance(value, enum.Enum):
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if callable(getattr(value, "model_dump", None)):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise TypeError("a mapping whose names are no text is no JSON")
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(inner) for inner in value), key=repr)
    if isinstance(value, (date, time, datetime)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal, PurePath)):
        return str(value)
    raise TypeError(f"{type(value).__name__} is no JSON: return text, numbers, lists, mappings, dataclasses or models")
