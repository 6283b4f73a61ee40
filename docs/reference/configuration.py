"""The table "All keys" of the page of configuration keys, from the settings models.

python docs/reference/configuration.py    writes it anew into configuration.md beside this file
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args, get_origin

from toolcrib.config.keys import KEYS
from toolcrib.config.servers import ServerEntry
from toolcrib.config.settings import FILE_KEYS, GROUPS, Settings
from toolcrib.config.sources import ApiEntry
from toolcrib.config.validation import parts_of
from toolcrib.core.settings import ChangedBy, Section, info_of, meaning_of
from toolcrib.sources.settings import KINDS

__all__ = ["PAGE", "key_table", "rewritten"]

PAGE: Final = Path(__file__).with_suffix(".md")

HEADING: Final = "## All keys"
"""Begins the last section of the page: all that follows is generated."""

_INTRODUCTION: Final = (
    "One line a key with its default. Keys marked with `*` may be changed by the tool `update_setting`,\n"
    "and a person approves each change; all others by hand alone."
)
_SPELLED: Final[Mapping[str, str]] = {"openapi": "sources.openapi"}
"""Keys that stand in the file under another name than their field."""
_ENTRIES: Final = {"servers": Mapping[str, ServerEntry], "openapi": Mapping[str, ApiEntry]}
"""Types of keys whose entries are read one by one."""
_KINDS: Final[Mapping[Any, str]] = {
    Any: "any value",
    bool: "true or false",
    bytes: "text",
    float: "number",
    int: "whole number",
    str: "text",
    tuple: "list",
    Path: "text",
}


def rewritten(page: str) -> str:
    """Return the page with its generated section anew."""
    return f"{page.partition(HEADING)[0].rstrip()}\n\n{HEADING}\n\n{_INTRODUCTION}\n\n{key_table()}"


def key_table() -> str:
    """Return the Markdown table of every key of our file that the models describe."""
    described = {name: text for model in (Settings, *GROUPS.values()) for name, text in _docstrings(model).items()}
    rows: list[str] = []
    for name, key in FILE_KEYS.items():
        form = _ENTRIES.get(name) or KEYS[name]
        section, star = _inner(form)
        if section is not None:
            rows += _rows(section, _SPELLED.get(name, name) + star)
            continue
        default = "" if star else _written(key.default)
        rows.append(_row(_SPELLED.get(name, name), _kind(form), default, key.info.changed_by, described.get(name, "")))
    for name, kind in KINDS.items():
        rows += _rows(kind.settings, f"sources.{name}.*")
    return "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _rows(model: type[Section], base: str) -> Iterator[str]:
    described = _docstrings(model)
    for name, field in model.model_fields.items():
        info = info_of(field)
        if info.in_code:
            continue
        inner, star = _inner(field.annotation)
        if inner is not None:
            yield from _rows(inner, f"{base}.{name}{star}")
            continue
        default = "" if field.is_required() else _written(field.get_default(call_default_factory=True))
        kind = meaning_of(field) or _kind(field.annotation)
        yield _row(f"{base}.{name}", kind, default, info.changed_by, described.get(name, ""))


def _row(key: str, kind: str, default: str, changed_by: ChangedBy, text: str) -> str:
    mark = " *" if changed_by == "tool" else ""
    return f"| `{key}`{mark} | {kind} | {default} | {' '.join(text.split()).replace('|', chr(92) + '|')} |"


def _inner(annotation: Any) -> tuple[type[Section] | None, str]:
    """Return the model inside of an annotation, and what stands in a path for the names or places of its values."""
    for part in parts_of(annotation):
        if isinstance(part, type) and issubclass(part, Section):
            return part, ""
        for one in get_args(part):
            if isinstance(one, type) and issubclass(one, Section):
                return one, ".*"
    return None, ""


def _kind(annotation: Any) -> str:
    words = [word for part in parts_of(annotation) if get_origin(part) is Literal for word in get_args(part)]
    if words:
        return ", ".join(f"`{word}`" for word in words if word)
    known = (_KINDS.get(get_origin(part) or part) for part in parts_of(annotation))
    return " or ".join(dict.fromkeys(kind for kind in known if kind)) or "mapping"


def _written(value: Any) -> str:
    if value in (None, "", b"", ()) or isinstance(value, Mapping):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"`{value:g}`" if isinstance(value, float) and value < 1e6 else f"`{value}`"


def _docstrings(cls: type) -> Mapping[str, str]:
    """Return the docstrings below the fields of a class, by field."""
    found: dict[str, str] = {}
    for base in cls.__bases__:
        found |= _docstrings(base) if issubclass(base, Section) and base is not Section else {}
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    body = cast("ast.ClassDef", tree.body[0]).body
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[cast("ast.Name", field.target).id] = str(text.value.value)
    return found


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text("utf-8")), "utf-8")
