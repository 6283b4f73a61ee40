"""The request that an operation and its arguments are, before anybody's credentials are put in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from ...errors import ToolFailure
from .body import encode
from .operation import Operation
from .serialize import cookie_value, header_value, path_value, query_pairs

__all__ = ["Draft", "draft"]

_PLACEHOLDER: Final = re.compile(r"\{([^{}/]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A request in its parts; query and cookies are encoded already."""

    method: str
    url: str
    """Without query."""
    query: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Lower-case names."""
    cookies: tuple[str, ...] = ()
    content: bytes = b""
    parts: tuple[str, ...] = ()
    """Of a multipart body, for people."""


def draft(operation: Operation, arguments: Mapping[str, Any], base_url: str) -> Draft:
    """Return the request. Raises `ToolFailure("invalid_arguments")` for values that would make it another one."""
    values: dict[str, str] = {}
    query: list[str] = []
    headers = {"accept": operation.accept}
    cookies: list[str] = []
    for one in operation.parameters:
        if one.argument not in arguments and not one.sent:
            continue
        value = arguments.get(one.argument, one.sent)
        if one.place == "path":
            values[one.name] = path_value(one, value)
        elif value is None:
            continue
        elif one.place == "query":
            query += query_pairs(one, value)
        elif one.place == "header":
            headers[one.name.lower()] = header_value(one, value)
        else:
            cookies += cookie_value(one, value)
    body = encode(operation.body, arguments) if operation.body else None
    if body is not None:
        headers["content-type"] = body.media_type
    return Draft(
        method=operation.method,
        url=base_url.rstrip("/") + _path(operation.path, values),
        query=tuple(query),
        headers=headers,
        cookies=tuple(cookies),
        content=body.content if body else b"",
        parts=body.parts if body else (),
    )


def _path(template: str, values: Mapping[str, str]) -> str:
    """Fill the template in. `.` and `..` would climb out of it, and an empty segment names another resource."""

    def filled(match: re.Match[str]) -> str:
        return values[match[1]] if match[1] in values else match[0]

    segments: list[str] = []
    for segment in template.split("/"):
        made = _PLACEHOLDER.sub(filled, segment)
        for part in made.split("/") if made != segment else ():
            if unquote(part) in ("", ".", ".."):
                name = ", ".join(_PLACEHOLDER.findall(segment))
                raise ToolFailure(
                    "invalid_arguments",
                    f"{name}: {unquote(made)!r} would make the path another one",
                    details={"argument": name},
                )
        segments.append(made)
    return "/".join(segments)
