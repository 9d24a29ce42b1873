"""Hints become schemas, and judged JSON becomes what the hints promise."""

import dataclasses
import enum
import sys
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, TypedDict, Union

import pytest

from fumehood.tools import Bounds, Unfit, schema_of
from fumehood.tools._schema import arguments, plain


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict, total=False):
    deep: bool


def test_parameters_are_a_closed_object():
    def f(a: int, b: str = "x", *, c: Optional[float] = None) -> None: ...

    assert schema_of(f) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "string"},
            "c": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


def test_choices_bounds_and_nested_values():
    def f(
        to: Literal["ann@company.com", "bob@company.com"],
        colour: Colour,
        count: Annotated[int, Bounds(ge=1, le=10)],
        name: Annotated[str, Bounds(min_length=1, max_length=5, pattern="^[a-z]+$"), "whose"],
        tags: Annotated[list[str], Bounds(max_length=3)],
        point: Point,
        options: Options,
        pair: tuple[int, str],
        by_name: dict[str, int],
        when: date,
    ) -> None: ...

    made = arguments(f)
    part = made.schema["properties"]
    assert part["to"] == {"enum": ["ann@company.com", "bob@company.com"]}
    assert part["colour"] == {"enum": ["red", "blue"]}
    assert part["count"] == {"type": "integer", "minimum": 1, "maximum": 10}
    assert part["name"] == {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^[a-z]+$", "description": "whose"}
    assert part["tags"] == {"type": "array", "items": {"type": "string"}, "maxItems": 3}
    assert part["point"]["required"] == ["x"] and part["point"]["additionalProperties"] is False
    assert part["options"]["additionalProperties"] is False and "required" not in part["options"]
    assert part["pair"]["items"] is False and part["pair"]["minItems"] == 2
    values = made.build({"colour": "blue", "point": {"x": 1}, "pair": [1, "a"], "when": "2026-11-22", "options": {"deep": True}})
    assert values == {"colour": Colour.BLUE, "point": Point(1, 0), "pair": (1, "a"), "when": date(2026, 11, 22), "options": {"deep": True}}


def test_literals_are_told_apart_by_type():
    def f(a: Literal[1, True, "1"]) -> None: ...

    build = arguments(f).build
    assert [type(build({"a": value})["a"]) for value in (1, True, "1")] == [int, bool, str]


def test_a_union_builds_the_part_that_fits():
    def f(a: Union[Point, list[int], str, None]) -> None: ...

    build = arguments(f).build
    assert [build({"a": value})["a"] for value in ({"x": 1}, [1], "s", None)] == [Point(1), [1], "s", None]


@pytest.mark.parametrize("hint", [Any, object, Path.__call__, list, dict[int, str], bytes, type, "Point | Unheard"])
def test_a_hint_that_no_schema_holds_is_an_error_when_the_tool_is_made(hint):
    def f(a): ...

    f.__annotations__["a"] = hint
    with pytest.raises(Unfit):
        schema_of(f)


def test_parameters_without_names_or_hints_are_errors():
    def no_hint(a): ...
    def star(*args: int): ...
    def star_star(**kwargs: int): ...

    for function in (no_hint, star, star_star):
        with pytest.raises(Unfit):
            schema_of(function)


def test_pydantic_models_are_closed_and_built():
    pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")

    class Line(pydantic.BaseModel):
        item: str = pydantic.Field(min_length=1, max_length=20)
        amount: int = pydantic.Field(ge=1, le=100)

    class Order(pydantic.BaseModel):
        lines: list[Line] = pydantic.Field(min_length=1)
        note: Optional[str] = None

    def f(order: Order, limit: Annotated[int, pydantic.Field(gt=0, description="most")]) -> None: ...

    f.__annotations__.update(order=Order, limit=Annotated[int, pydantic.Field(gt=0, description="most")])
    made = arguments(f)
    order = made.schema["properties"]["order"]
    assert "$ref" not in str(made.schema) and order["additionalProperties"] is False
    inner = order["properties"]["lines"]["items"]
    assert inner["additionalProperties"] is False and inner["properties"]["amount"]["maximum"] == 100
    assert made.schema["properties"]["limit"] == {"type": "integer", "exclusiveMinimum": 0, "description": "most"}
    built = made.build({"order": {"lines": [{"item": "a", "amount": 1}]}, "limit": 1})
    assert isinstance(built["order"], Order) and built["order"].lines[0].amount == 1


def test_a_model_that_contains_itself_is_refused():
    pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")

    class Node(pydantic.BaseModel):
        below: "list[Node]" = []

    Node.model_rebuild(_types_namespace={"Node": Node})

    def f(node: int) -> None: ...

    f.__annotations__["node"] = Node
    with pytest.raises(Unfit):
        schema_of(f)


def test_results_are_json_or_an_error():
    assert plain({"a": [Point(1), Colour.RED, (1, 2), {3}, None, Path("/x")]}) == {"a": [{"x": 1, "y": 0}, "red", [1, 2], [3], None, "/x"]}
    for odd in (b"bytes", object(), {1: 2}, sys):
        with pytest.raises(TypeError):
            plain(odd)
