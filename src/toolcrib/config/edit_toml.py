"""Editor of one table in TOML text: every other line stays; checked by parsing the outcome."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from ..errors import ConfigError
from .edit_check import checked
from .files import parse_toml

__all__ = ["insert_toml", "remove_toml"]

_HEADER: Final = re.compile(
    r"^[ \t]*\[\[?(?P<name>[^\]\n]+)\]\]?[ \t]*(?:#[^\n]*)?\r?$"
    r"|\"{3}(?:\\.|[^\\])*?\"{3}|'{3}.*?'{3}|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'|#[^\n]*",
    re.MULTILINE | re.DOTALL,
)
"""A table's header; strings and comments are matched too, so that their content is not taken for one."""
_PART: Final = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)\s*(?:\.|$)""")


def insert_toml(text: str, path: tuple[str, ...], name: str, value: Mapping[str, Any], file: str = "") -> str:
    """Return `text` with the table `name` at the end; mappings inside it become inline tables.

    Raises `ConfigError` when it exists or the text leaves no room for it (an inline table).
    """
    table = _find(_data(text, file), path)
    if name in table:
        raise ConfigError("is there already", file=file, key=".".join((*path, name)))
    newline = "\r\n" if "\r\n" in text else "\n"
    header = ".".join(_key(part) for part in (*path, name))
    lines = [f"[{header}]", *(f"{_key(key)} = {_value(item)}" for key, item in value.items()), ""]
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    return _checked(text, text + gap + newline.join(lines), (*path, name), file)


def remove_toml(text: str, path: tuple[str, ...], name: str, file: str = "") -> str:
    """Return `text` without the table `name` and the tables inside it; raises `ConfigError` when it is not there."""
    wanted = (*path, name)
    if name not in _find(_data(text, file), path):
        raise ConfigError("is not there", file=file, key=".".join(wanted))
    headers = [(match.start(), _parts(match["name"])) for match in _HEADER.finditer(text) if match["name"]]
    changed, place = "", 0
    for (start, parts), (following, next_parts) in zip(headers, [*headers[1:], (len(text), ())], strict=True):
        if parts[: len(wanted)] == wanted:
            changed += text[place:start]
            inside = next_parts[: len(wanted)] == wanted or following == len(text)
            place = following if inside else _end(text, following)
    changed += text[place:]
    if place == len(text):
        changed = changed.rstrip() + ("\n" if changed.strip() else "")
    return _checked(text, changed, wanted, file)


def _end(text: str, place: int) -> int:
    """Where the lines before `place` that say nothing, and the comments of what follows, begin."""
    lines = text[:place].splitlines(keepends=True)
    while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        place -= len(lines.pop())
    return place


def _data(text: str, file: str) -> Mapping[str, Any]:
    return parse_toml(text.encode(), file)


def _find(data: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    for step in path:
        data = data.get(step, {})
    return data


def _key(part: str) -> str:
    return part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part)


def _value(item: Any) -> str:
    """JSON strings, numbers, booleans and lists of them are TOML too."""
    if isinstance(item, Mapping):
        inner = cast("Mapping[str, Any]", item)
        return f"{{ {', '.join(f'{_key(key)} = {_value(value)}' for key, value in inner.items())} }}"
    return json.dumps(item, ensure_ascii=False)


def _parts(header: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(header))


def _checked(before: str, after: str, path: tuple[str, ...], file: str) -> str:
    return checked(before, after, path, file, lambda text: _data(text, file))
