"""Discovery of functions in the objects that a user adds: functions, modules, objects, lists of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

from ...errors import UsageError
from .declaration import Declaration, declaration_of

__all__ = ["FoundFunction", "find"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFunction:
    """A function that is to become a tool."""

    function: Callable[..., Any]
    declaration: Declaration
    origin: str
    """Module and qualified name, for messages."""

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.declaration.options.get("name") or getattr(self.function, "__name__", "")


def find(thing: object) -> list[FoundFunction]:
    """Return the functions in `thing`; raises `UsageError` listing the supported kinds when it has none."""
    if isinstance(thing, ModuleType):
        return _in_module(thing)
    if isinstance(thing, list | tuple | set | frozenset):
        return [found for item in cast("Iterable[object]", thing) for found in find(item)]
    if inspect.isclass(thing):
        raise UsageError(f"{thing.__qualname__} is a class; add an instance of it whose methods are marked with @tool")
    if inspect.isroutine(thing):
        return [_found(cast("Callable[..., Any]", thing))]
    return _in_object(thing)


def _in_module(module: ModuleType) -> list[FoundFunction]:
    functions = [value for value in vars(module).values() if inspect.isfunction(value)]
    marked = [value for value in functions if declaration_of(value) and value.__module__ == module.__name__]
    if not marked:
        public: Iterable[str] = getattr(module, "__all__", ())
        values = [getattr(module, name, None) for name in public]
        marked = [value for value in values if inspect.isfunction(value)]
    if not marked:
        raise UsageError(f"module {module.__name__} has no function marked with @tool and none in __all__")
    return [_found(value) for value in _distinct(marked)]


def _in_object(thing: object) -> list[FoundFunction]:
    marked = [
        cast("Callable[..., Any]", getattr(thing, name))
        for name in dir(type(thing))
        if not name.startswith("__") and _is_marked(inspect.getattr_static(type(thing), name))
    ]
    if callable(thing) and not marked:
        return [_found(thing)]
    if not marked:
        raise UsageError(
            f"{type(thing).__name__} is not a tool:"
            " add functions, modules, lists of them, or objects with @tool methods"
        )
    return [_found(value) for value in marked]


def _is_marked(attribute: Any) -> bool:
    return declaration_of(getattr(attribute, "__func__", attribute)) is not None


def _found(function: Callable[..., Any]) -> FoundFunction:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    declared = declaration_of(function) or Declaration()
    return FoundFunction(
        function=function, declaration=declared, origin=f"{getattr(function, '__module__', '?')}.{name}"
    )


def _distinct(functions: Iterable[Callable[..., Any]]) -> Iterator[Callable[..., Any]]:
    seen = set[int]()
    for function in functions:
        if id(function) not in seen:
            seen.add(id(function))
            yield function
