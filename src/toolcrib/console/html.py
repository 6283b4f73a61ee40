"""HTML of the console's pages: Jinja templates, with every value escaped and invisible characters named."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final

import anyio.lowlevel
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..core.json import loads
from ..core.sanitize import cut, escape

_PIECE: Final = 16 << 10
"""Characters of a long text that are escaped in one go."""
_TURN_SECONDS: Final = 0.002


async def render(template: str, values: Mapping[str, Any]) -> str:
    """Return the page `template` with these values. Others take their turns while a long page is made.

    A thread would not help: most of the time goes into calls that keep the interpreter.
    """
    parts: list[str] = []
    begun = time.monotonic()
    for part in _environment().get_template(f"{template}.html").generate(**values, now=time.time(), zone=_zone()):
        parts.append(part)
        if time.monotonic() - begun > _TURN_SECONDS:
            await anyio.lowlevel.checkpoint()
            begun = time.monotonic()
    return "".join(parts)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader(__package__ or "", "templates"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = made.filters
    filters.update(age=_age, beginning=_beginning, indented=_indented, moment=_moment, pieces=_pieces)
    return made


def _shown(value: Any) -> Any:
    """Return a value as it is printed; Jinja escapes what HTML means something by."""
    if value is None:
        return ""
    return escape(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value


def _moment(seconds: float | None) -> str:
    """Return a time in seconds since 1970 as date and time of this machine's zone."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S") if seconds else ""


def _zone() -> str:
    """Return the distance of this machine's zone from UTC."""
    return f"UTC{datetime.now().astimezone().isoformat()[-6:]}"


def _age(seconds: float) -> str:
    """Return the age of a time, in the largest unit that fits."""
    passed = max(0.0, time.time() - seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if passed >= size:
            return f"{passed // size:.0f} {unit}"
    return f"{passed:.0f} s"


def _beginning(text: str) -> str:
    """Return as much of a text as a cell of a table has room for."""
    return cut(text, 300)


def _pieces(text: str) -> list[str]:
    """Return a text in parts."""
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def _indented(value: Any) -> str:
    """Return JSON, given as a text or a value, with one member a line; what is not JSON as it is."""
    try:
        parsed = loads(value) if isinstance(value, str) else value
        return json.dumps(parsed, indent=2, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(value)
