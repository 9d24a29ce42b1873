"""A function behind the gate."""

from __future__ import annotations

import functools
import inspect
import re
from typing import TYPE_CHECKING, Any, Callable, Generic, Literal, ParamSpec, TypeVar, cast, overload

from . import _schema

if TYPE_CHECKING:
    from ._gateway import Gateway

P = ParamSpec("P")
R = TypeVar("R")
Effect = Literal["read", "write"]

_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}\Z")


class Tool(Generic[P, R]):
    """A function that runs only when its gateway says so. Calls take names or positions, as the function does.

    What comes back is what may be seen: bounded, redacted, and as JSON (a dataclass or model comes back as a ``dict``).
    The function of an ``async def`` is awaited; calling the tool then gives an awaitable.
    """

    def __init__(
        self,
        function: Callable[P, R],
        name: str | None = None,
        *,
        description: str | None = None,
        effect: Effect | None = None,
        gateway: Gateway | None = None,
    ) -> None:
        self._function = function
        self.name: str = name or str(getattr(function, "__name__", ""))
        if not _NAME.match(self.name):
            raise ValueError(f"{self.name!r} is no name of a tool: ASCII letters, digits and `_./-`")
        self.description = inspect.cleandoc(description or inspect.getdoc(function) or "")
        self.effect = effect
        made = _schema.arguments(function)
        self.schema: dict[str, Any] = made.schema
        self.build = made.build
        self.defaults: dict[str, Any] = made.defaults
        self.is_async = inspect.iscoroutinefunction(function)
        self.gateway: Gateway | None = None
        functools.update_wrapper(self, function)
        # What wraps a function says where it is, and whoever follows that (decorators, frameworks) would go around the gate.
        del self.__wrapped__
        self.__signature__ = inspect.signature(function)
        if gateway is not None:
            gateway.add(self)

    def arguments(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """A call's arguments as they were given. Defaults the gate fills in itself, wherever the policy looks at them."""
        bound = self.__signature__.bind(*args, **kwargs)
        return {name: _schema.plain(value) for name, value in bound.arguments.items()}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.gateway is None:
            raise RuntimeError(f"{self.name} belongs to no Gateway, so nothing may run it: `gateway.add({self.__name__})`")
        values = self.arguments(*args, **kwargs)
        if self.is_async:
            return cast(R, self.gateway.acall(self.name, values))
        return cast(R, self.gateway.call(self.name, values))

    def __get__(self, instance: object, owner: type | None = None) -> Tool[P, R]:
        if instance is not None:
            raise TypeError(f"{self.name} is a method: guard a function, so that `self` is nothing that a model fills in")
        return self

    def __repr__(self) -> str:
        return f"<tool {self.name} {'guarded' if self.gateway else 'of no gateway'}>"

    __name__: str
    __wrapped__: Any


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    name: str | None = None,
    /,
    *,
    description: str | None = None,
    effect: Effect | None = None,
    gateway: Gateway | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Any = None,
    /,
    *,
    description: str | None = None,
    effect: Effect | None = None,
    gateway: Gateway | None = None,
) -> Any:
    """Makes a function a tool: ``@tool``, ``@tool("mail.send", effect="write")``, ``@tool(gateway=gate)``.

    Until it is added to a gateway the tool refuses to run.
    """
    if callable(function):
        return Tool(function)

    def make(inner: Callable[P, R]) -> Tool[P, R]:
        return Tool(inner, function, description=description, effect=effect, gateway=gateway)

    return make
