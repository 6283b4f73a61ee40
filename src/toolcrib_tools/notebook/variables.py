"""Code inside a Python kernel that describes its variables without calling code of their classes.

A value may belong to a class that was written to hurt: no `__repr__`, `__len__`, `__class__` or property of it is used,
only what Python itself has of a class, and what the well-known classes of tables and arrays are known to be.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

_MOST: Final = 200
"""Variables in a report; the newest."""
_LONGEST: Final = 120
"""Characters of a value."""
_ITEMS: Final = 5
_DEPTH: Final = 2
_BITS: Final = 400
"""Bits of an integer that is written out."""
_SIZED: Final = (str, bytes, bytearray, list, tuple, set, frozenset, dict, range)
_WRITTEN: Final = (type(None), bool, float, complex, range)
_SHAPED: Final = {
    "numpy": ("ndarray",),
    "pandas": ("DataFrame", "Series"),
    "polars": ("DataFrame", "Series"),
    "torch": ("Tensor",),
}
_BRACKETS: Final[Mapping[type, str]] = {list: "[]", tuple: "()", set: "{}", frozenset: "{}"}


def tell() -> None:
    """Show the variables of the kernel that this runs in, in a format of our own."""
    # By name: IPython belongs to the kernel that runs this file, not to this installation.
    shell: Any = import_module("IPython").get_ipython()
    hidden: Mapping[str, Any] = shell.user_ns_hidden
    names = [
        name
        for name, value in list(shell.user_ns.items())
        if type(name) is str and not name.startswith("_") and not (name in hidden and hidden[name] is value)
    ]
    rows = [described(name, shell.user_ns.get(name)) for name in names[-_MOST:]]
    report = {"variables": rows, "more": max(0, len(names) - _MOST)}
    shell.display_pub.publish({"application/vnd.toolcrib.variables+json": report})


def described(name: str, value: Any) -> dict[str, Any]:
    """Return name, type, value and size of a variable."""
    kind = _class(value)
    row: dict[str, Any] = {"name": name[:_LONGEST], "type": _name(kind), "value": _cut(_preview(value, 0))}
    if kind in _SIZED:
        row["size"] = len(value)
    elif shape := _shape(value):
        row["size"] = shape
    return row


def _class(value: object) -> type[object]:
    """Return the class of a value, regardless of its `__class__`."""
    return type(value)


def _name(kind: Any) -> str:
    """Return the name of a class, regardless of its metaclass."""
    return str(type.__dict__["__name__"].__get__(kind))[:_LONGEST]


def _shape(value: Any) -> str:
    """The shape of an array or a table; empty for anything else."""
    kind = _class(value)
    for module, names in _SHAPED.items():
        known = sys.modules.get(module)
        if known is not None and any(vars(known).get(name) is kind for name in names):
            return " × ".join(str(int(side)) for side in value.shape)
    return ""


def _preview(value: Any, depth: int) -> str:
    kind = _class(value)
    if kind is int:
        return repr(value) if value.bit_length() <= _BITS else f"an integer of {value.bit_length():,} bits"
    if kind in _WRITTEN:
        return repr(value)
    if kind in (str, bytes, bytearray):
        return repr(value[:_LONGEST]) + ("…" if len(value) > _LONGEST else "")
    if kind is dict:
        return _mapping(value, depth)
    if kind in _BRACKETS:
        return _sequence(value, depth)
    return _object(value)


def _sequence(value: Any, depth: int) -> str:
    kind = _class(value)
    first, last = _BRACKETS[kind]
    if depth >= _DEPTH:
        return f"{first}…{last}"
    items = [_preview(item, depth + 1) for item in _first(value)]
    comma = "," if kind is tuple and len(value) == 1 else ""
    return f"{first}{', '.join(items)}{comma}{', …' if len(value) > _ITEMS else ''}{last}"


def _mapping(value: dict[Any, Any], depth: int) -> str:
    if depth >= _DEPTH:
        return "{…}"
    items = [f"{_preview(key, depth + 1)}: {_preview(item, depth + 1)}" for key, item in _first(value.items())]
    return f"{{{', '.join(items)}{', …' if len(value) > _ITEMS else ''}}}"


def _first(items: Any) -> list[Any]:
    try:
        return [item for item, _ in zip(items, range(_ITEMS), strict=False)]
    except RuntimeError:  # a thread of the cell changes it meanwhile
        return []


def _object(value: Any) -> str:
    kind = _class(value)
    if kind in (FunctionType, BuiltinFunctionType):
        return f"function {value.__name__}"
    if kind is ModuleType:
        return f"module {_preview(value.__dict__.get('__name__'), _DEPTH)}"
    if issubclass(kind, type):
        return f"class {_name(value)}"
    if _shape(value) and hasattr(value, "dtype"):
        return f"{_name(kind)} of {value.dtype}"
    return f"<{_name(kind)}>"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


if __name__ == "__main__":
    tell()
