"""Values as OpenAPI wants them in paths, queries, headers and cookies (`style` and `explode`).

Everything that a value holds is percent-encoded, so that no value becomes another parameter or another path. What
cannot be sent without meaning something else is a `ToolFailure("invalid_arguments")` that names the argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from ...core.json import dumps
from ...errors import ToolFailure
from .operation import Encoding, Parameter

__all__ = ["cookie_value", "form_pairs", "header_value", "path_value", "query_pairs", "text_of"]

_RESERVED: Final = ":/?@!$'()*,[]"
"""What `allowReserved` leaves as it is; `&`, `=`, `#`, `+`, `;` and `%` would end the value or change it."""
_DELIMITERS: Final = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}
_MAX_DEPTH: Final = 16

_Pair = tuple[str, str]


def path_value(parameter: Parameter, value: Any) -> str:
    """Return what replaces `{name}` in the path. Raises `ToolFailure` for what would make it another path."""
    safe = "/" if parameter.multi else ""
    prefix, delimiter = {"label": (".", "."), "matrix": (";", ";")}.get(parameter.style, ("", ","))
    if not parameter.explode:
        delimiter = ","

    def encoded(item: Any) -> str:
        return quote(text_of(item), safe=safe)

    name = quote(parameter.name, safe="")
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        joint = "=" if parameter.explode else ","
        inner = delimiter.join(f"{quote(key, safe='')}{joint}{encoded(item)}" for key, item in pairs)
        shown = f"{name}={inner}" if parameter.style == "matrix" and not parameter.explode else inner
    elif isinstance(value, list | tuple):
        items = [encoded(item) for item in cast("Sequence[Any]", value)]
        if parameter.style == "matrix":
            shown = ";".join(f"{name}={item}" for item in items) if parameter.explode else f"{name}={','.join(items)}"
        else:
            shown = delimiter.join(items)
    else:
        shown = f"{name}={encoded(value)}" if parameter.style == "matrix" else encoded(value)
    if not shown:
        raise _refused(parameter, "must not be empty: the path would be another one")
    return f"{prefix}{shown}"


def query_pairs(parameter: Parameter, value: Any) -> list[str]:
    """Return the `name=value` parts of the query, encoded."""
    if value is None:
        return []
    safe = _RESERVED if parameter.reserved else ""
    if parameter.as_json:
        return [_pair(parameter.name, dumps(value).decode(), safe)]
    encoding = Encoding(style=parameter.style, explode=parameter.explode)
    return [f"{name}={text}" for name, text in _form(parameter.name, value, encoding, safe)]


def form_pairs(name: str, value: Any, encoding: Encoding) -> list[str]:
    """Return the `name=value` parts of a form for one property, encoded."""
    if value is None:
        return []
    if encoding.media_type.startswith("application/json"):
        return [_pair(name, dumps(value).decode())]
    return [f"{key}={text}" for key, text in _form(name, value, encoding, "")]


def header_value(parameter: Parameter, value: Any) -> str:
    """Return the header's value. Raises `ToolFailure` for what no header can hold."""
    if parameter.as_json:
        shown = dumps(value).decode()
    elif isinstance(value, Mapping):
        joint = "=" if parameter.explode else ","
        shown = ",".join(f"{key}{joint}{text_of(item)}" for key, item in cast("Mapping[str, Any]", value).items())
    elif isinstance(value, list | tuple):
        shown = ",".join(text_of(item) for item in cast("Sequence[Any]", value))
    else:
        shown = text_of(value)
    if not shown.isascii() or not (shown.isprintable() or shown.replace("\t", " ").isprintable()):
        raise _refused(parameter, "can only hold printable ASCII: it travels as a header")
    return shown


def cookie_value(parameter: Parameter, value: Any) -> list[str]:
    """Return the `name=value` parts of the cookie header, encoded."""
    return query_pairs(parameter, value)


def text_of(value: Any) -> str:
    """Return one value as text; what is no plain value is JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else dumps(value).decode()


def _form(name: str, value: Any, encoding: Encoding, safe: str) -> Iterator[_Pair]:
    """Yield encoded names and values."""
    key = _encoded(name)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        if encoding.style == "deepObject":
            yield from _deep(key, members, safe, 0)
        elif encoding.explode:
            for inner, item in members.items():
                yield _encoded(inner), quote(text_of(item), safe=safe)
        else:
            flat = [part for inner, item in members.items() for part in (inner, text_of(item))]
            yield key, _DELIMITERS[encoding.style].join(quote(part, safe=safe) for part in flat)
    elif isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        if encoding.style == "deepObject":
            yield from _deep(key, items, safe, 0)
        elif encoding.explode:
            for item in items:
                yield key, quote(text_of(item), safe=safe)
        else:
            yield key, _DELIMITERS[encoding.style].join(quote(text_of(item), safe=safe) for item in items)
    else:
        yield key, quote(text_of(value), safe=safe)


def _deep(key: str, value: Any, safe: str, depth: int) -> Iterator[_Pair]:
    """Yield `a[b][0][c]=…`: OpenAPI defines one level, the servers that take it take all."""
    if depth > _MAX_DEPTH:
        raise ToolFailure("invalid_arguments", f"{unquote(key)[:60]} is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        for inner, item in cast("Mapping[str, Any]", value).items():
            yield from _deep(f"{key}%5B{_encoded(inner)}%5D", item, safe, depth + 1)
    elif isinstance(value, list | tuple):
        for place, item in enumerate(cast("Sequence[Any]", value)):
            yield from _deep(f"{key}%5B{place}%5D", item, safe, depth + 1)
    elif value is not None:
        yield key, quote(text_of(value), safe=safe)


def _pair(name: str, text: str, safe: str = "") -> str:
    return f"{_encoded(name)}={quote(text, safe=safe)}"


def _encoded(name: str) -> str:
    return quote(name, safe="[]$" if name.isascii() and "[" in name else "$")


def _refused(parameter: Parameter, why: str) -> ToolFailure:
    return ToolFailure("invalid_arguments", f"{parameter.argument}: {why}", details={"argument": parameter.argument})
