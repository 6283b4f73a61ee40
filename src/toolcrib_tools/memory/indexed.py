"""Templates that stand in files of the workspace, as an index names them.

An index is JSON or YAML: `{"templates": {"handler.py": {"source_path": "templates/handler.py.tpl"}}}`. An entry may
also say `description`, `variables` and `syntax`; `generated_at`, `template_count`, `name` and `origin`, which other
programs write, are taken too. Paths begin at the workspace's root. Whoever has the workspace has its templates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, cast

from toolcrib.plugin import Context, ToolFailure, Workspace

from .._workspace.data import data_at
from .filling import CONTENT, variables_of

__all__ = ["PLACES", "Checked", "Indexed", "checked_at", "indexed", "unfillable"]

PLACES: Final = (".toolcrib/templates/index.json", ".toolcrib/templates/index.yaml")
"""Where an index is looked for, unless the configuration says where: `tools: {templates: {index: PATH}}`."""
_SYNTAXES: Final = ("places", "mustache", "jinja2")
_ORIGINS: Final = ("standalone", "embedded")
_KEYS: Final = ("name", "source_path", "syntax", "variables", "origin", "description")
_TOP: Final = ("generated_at", "template_count", "templates")
_MOST: Final = 500
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,99}")
_STATEMENT: Final = re.compile(r"\{%[^%]{0,200}%\}|\{\{\s{0,20}[#/^>&!{.][^}]{0,200}\}\}")
_FILTER: Final = re.compile(r"\{\{[^{}|]{0,200}\|[^{}]{0,200}\}\}")
"""Bounded, so that no text takes longer than its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """A template in a file."""

    name: str
    path: str
    """Its file."""
    description: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What an index holds, and what is wrong with it."""

    path: str
    templates: Mapping[str, Indexed]
    """Those that can be used."""
    errors: Sequence[str]
    warnings: Sequence[str]


async def indexed(ctx: Context) -> Checked | None:
    """Return the index of the session's workspace; None where there is none. One that is broken has no templates."""
    if ctx.workspace is None:
        return None
    said = ctx.lent.setting("templates")
    index = cast("Mapping[str, Any]", said).get("index") if isinstance(said, Mapping) else None
    if index is not None and not isinstance(index, str):
        return Checked(path="", templates={}, errors=["tools.templates.index is no path"], warnings=())
    for path in [index] if index else PLACES:
        if await ctx.workspace.stat(path) is None and not index:
            continue
        try:
            return await checked_at(ctx.workspace, path)
        except ToolFailure as failure:
            return Checked(path=path, templates={}, errors=[failure.message.removeprefix(path)], warnings=())
    return None


async def checked_at(workspace: Workspace, path: str) -> Checked:
    """Read an index and the templates that it names; each thing that is wrong is told with its place.

    Raises `ToolFailure` for a file that is not there, or neither JSON nor YAML.
    """
    data = await data_at(workspace, path)
    errors: list[str] = []
    warnings: list[str] = []
    found: dict[str, Indexed] = {}
    entries = _entries(data, errors, warnings)
    for name, entry in entries.items():
        where = f"templates.{name}"
        wrong = _wrong(name, entry, where, warnings)
        if not wrong:
            try:
                content = (await workspace.read(entry["source_path"], limit=CONTENT)).decode()
            except ToolFailure as failure:
                wrong = [f"{where}.source_path: {failure.message}"]
            except UnicodeDecodeError:
                wrong = [f"{where}.source_path: {entry['source_path']} is not UTF-8"]
            else:
                wrong = _against(entry, content, where)
                if not wrong:
                    found[name] = Indexed(
                        name=name, path=entry["source_path"], description=entry.get("description", ""), content=content
                    )
        errors += wrong
    return Checked(path=path, templates=found, errors=errors, warnings=warnings)


def unfillable(content: str, syntax: str) -> str:
    """Return what a template of a syntax has that is not filled in here; empty where everything is."""
    statement = None if syntax == "places" else _STATEMENT.search(content)
    if statement is None and syntax == "jinja2":
        statement = _FILTER.search(content)
    return "" if statement is None else statement[0]


def _entries(data: Any, errors: list[str], warnings: list[str]) -> dict[str, Any]:
    if not isinstance(data, dict):
        errors.append("an index is a mapping with `templates`")
        return {}
    top = cast("dict[str, Any]", data)
    warnings += [f"{key}: nothing is known of this key{_near(key, _TOP)}" for key in top if key not in _TOP]
    listed = top.get("templates")
    if not isinstance(listed, dict):
        errors.append("templates: is missing" if listed is None else "templates: is no mapping of names to templates")
        return {}
    entries = cast("dict[str, Any]", listed)
    if len(entries) > _MOST:
        errors.append(f"templates: an index has at most {_MOST}, this one has {len(entries):,}")
        return {}
    count = top.get("template_count", len(entries))
    if count != len(entries):
        warnings.append(f"template_count: says {count}, there are {len(entries)}")
    return entries


def _wrong(name: str, entry: Any, where: str, warnings: list[str]) -> list[str]:
    """Return what is wrong with an entry by itself."""
    if not isinstance(entry, dict):
        return [f"{where}: is no mapping with source_path"]
    said = cast("dict[str, Any]", entry)
    warnings += [f"{where}.{key}: nothing is known of this key{_near(key, _KEYS)}" for key in said if key not in _KEYS]
    wrong = [] if _NAME.fullmatch(name) else [f"{where}: a name has letters, digits, `_`, `.`, `-` and blanks"]
    if not isinstance(said.get("source_path"), str) or not said["source_path"]:
        wrong.append(f"{where}.source_path: {'is missing' if 'source_path' not in said else 'is no path'}")
    for key, allowed in (("syntax", _SYNTAXES), ("origin", _ORIGINS)):
        if key in said and said[key] not in allowed:
            wrong.append(f"{where}.{key}: is one of {', '.join(allowed)}, not {said[key]!r}")
    wrong += [f"{where}.{key}: is no text" for key in ("name", "description") if not isinstance(said.get(key, ""), str)]
    if said.get("name", name) != name:
        warnings.append(f"{where}.name: says {said['name']!r}, the template is called {name!r}")
    variables = said.get("variables", [])
    if not isinstance(variables, list) or not all(isinstance(one, str) for one in cast("list[Any]", variables)):
        wrong.append(f"{where}.variables: is no list of names")
    return wrong


def _against(entry: Mapping[str, Any], content: str, where: str) -> list[str]:
    """Return where an entry says something else than its file."""
    path = entry["source_path"]
    if strange := unfillable(content, entry.get("syntax", "places")):
        return [f"{where}: {path} has {strange}, which is not filled in: only {{{{name}}}} and its like are"]
    if "variables" not in entry:
        return []
    there = [place["name"] for place in variables_of(content)]
    wrong = [f"{where}.variables: {path} has no {one!r}" for one in entry["variables"] if one not in there]
    return [*wrong, *(f"{where}.variables: lacks {one!r} of {path}" for one in there if one not in entry["variables"])]


def _near(key: str, known: Sequence[str]) -> str:
    near = get_close_matches(key, known, n=1)
    return f"; is {near[0]} meant?" if near else ""
