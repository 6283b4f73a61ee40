"""`typing.TypedDict` on Python 3.11, where pydantic takes only that of typing_extensions: the same type, made anew."""

from __future__ import annotations

import types
import typing
from typing import Annotated, Any, Union, cast

import typing_extensions

__all__ = ["portable"]


def portable(annotation: Any, known: dict[Any, Any] | None = None) -> Any:
    """Return `annotation` with every `typing.TypedDict` in it replaced; itself when there is none."""
    known = {} if known is None else known
    if isinstance(annotation, list):  # the parameters of a Callable
        return cast("Any", annotation)
    if typing.is_typeddict(annotation):
        return known[annotation] if annotation in known else _made_anew(annotation, known)
    old = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        inner = portable(old[0], known)
        return annotation if inner is old[0] else Annotated[(inner, *old[1:])]
    new: tuple[Any, ...] = tuple(portable(argument, known) for argument in old)
    if all(a is b for a, b in zip(old, new, strict=True)):
        return annotation
    if origin in (Union, types.UnionType):
        return Union[new]  # noqa: UP007 - made of values, which `|` of two types cannot say
    copy_with = getattr(annotation, "copy_with", None)
    return copy_with(new) if copy_with is not None else origin[new]


def _made_anew(old: Any, known: dict[Any, Any]) -> Any:
    known[old] = old
    hints = typing.get_type_hints(old, include_extras=True)
    required = old.__required_keys__
    fields = {
        name: typing_extensions.Required[portable(hint, known)]
        if name in required
        else typing_extensions.NotRequired[portable(hint, known)]
        for name, hint in hints.items()
    }
    made = cast("Any", typing_extensions).TypedDict(old.__name__, fields)
    made.__doc__ = old.__doc__
    made.__module__ = old.__module__
    known[old] = made
    return made
