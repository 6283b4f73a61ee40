"""References of a session: from the configuration, and from files of the workspace.

    tools:
      references:
        sources:
          - {id: style, name: Style guide, description: How we write code, path: docs/style.md, tags: [style]}
        folders: [docs/references]          # beside .toolcrib/references, which no tool writes

A file holds one reference, or several under `sources`, as JSON or YAML. Paths begin at the workspace's root. An
invalid entry is reported with its place and hides no other; of two with one id, the configuration's wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, Literal, cast

from toolcrib.plugin import Context, ToolFailure

from .._workspace.file_text import ENDINGS, data_at

__all__ = ["FOLDER", "Mode", "Reference", "References", "Type", "check_entry", "references_of", "sources_in"]

Type = Literal["local", "url", "inline", "mcp"]
Mode = Literal["auto", "selectable"]

FOLDER: Final = ".toolcrib/references"
_MOST: Final = 500
_FILES: Final = 500
_CONTENT: Final = 200_000
"""Characters of a reference that is written in the configuration."""
_NEEDED: Final[dict[Type, tuple[str, ...]]] = {
    "local": ("path",),
    "url": ("url",),
    "inline": ("content",),
    "mcp": ("server", "tool"),
}
_TEXTS: Final = ("id", "name", "description", "fetch_hint", "path", "url", "content", "server", "tool")
_KEYS: Final = (*_TEXTS, "type", "mode", "tags", "args")
_OTHERS: Final = ("contents", "embedding", "version")
"""Further names of the fields, from other programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One document, or where it is to be had."""

    id: str
    name: str
    type: Type
    description: str = ""
    mode: Mode = "selectable"
    tags: tuple[str, ...] = ()
    place: str = ""
    """The path, the address, or server and tool."""
    content: str = ""
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fetch_hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """All that a session has."""

    all: Mapping[str, Reference]
    problems: Sequence[str]
    """Problems of the other entries, each with its place."""


async def references_of(ctx: Context) -> References:
    """Return the references of a session."""
    config = ctx.lent.setting("references")
    settings: Mapping[str, Any] = cast("Mapping[str, Any]", config) if isinstance(config, Mapping) else {}
    problems = [] if config is None or isinstance(config, Mapping) else ["tools.references: is not a mapping"]
    given: list[tuple[str, Any]] = []
    for number, one in enumerate(_list(settings, "sources", problems)):
        given.append((f"tools.references.sources[{number}]", one))
    for folder in [*_list(settings, "folders", problems), FOLDER]:
        given += await _in_folder(ctx, str(folder), problems)
    found: dict[str, Reference] = {}
    for where, one in given:
        reference, errors, _ = check_entry(one, where)
        problems += errors
        if reference is None:
            continue
        if reference.id in found:
            problems.append(f"{where}: there is a reference {reference.id!r} already")
        elif len(found) >= _MOST:
            problems.append(f"{where}: there are {_MOST} references already")
        else:
            found[reference.id] = reference
    return References(all=found, problems=problems)


def sources_in(data: Any, where: str) -> list[tuple[str, Any]]:
    """Return the references that a file holds, unchecked, each with its place: the file itself, or its `sources`."""
    listed = cast("Mapping[str, Any]", data).get("sources") if isinstance(data, Mapping) else None
    if not isinstance(listed, list):
        return [(where, data)]
    return [(f"{where}: sources[{number}]", one) for number, one in enumerate(cast("list[Any]", listed))]


def check_entry(data: Any, where: str) -> tuple[Reference | None, list[str], list[str]]:
    """Return a reference, what is wrong with it (it is None then), and what is only strange."""
    if not isinstance(data, Mapping):
        return None, [f"{where}: a reference is a mapping with id, name and one of path, url, content, server"], []
    fields = cast("Mapping[str, Any]", data)
    strange = [
        f"{where}: {key}: nothing is known of this key{_near(key, _KEYS)}" for key in fields if not _is_known(key)
    ]
    kind: Any = fields.get("type") or _type_of(fields)
    errors = _wrong(fields, kind)
    if errors:
        return None, [f"{where}: {error}" for error in errors], strange
    place = f"{fields['server']}: {fields['tool']}" if kind == "mcp" else fields.get("path") or fields.get("url") or ""
    reference = Reference(
        id=fields["id"].strip(),
        name=fields["name"],
        type=kind,
        description=fields.get("description", ""),
        mode=fields.get("mode", "selectable"),
        tags=tuple(fields.get("tags", ())),
        place=place,
        content=fields.get("content", "") if kind == "inline" else "",
        args=fields.get("args", {}),
        fetch_hint=fields.get("fetch_hint", ""),
    )
    return reference, [], strange


def _wrong(fields: Mapping[str, Any], kind: Any) -> list[str]:
    errors = [f"{key}: is missing" for key in ("id", "name") if key not in fields]
    errors += [f"{key}: is not text" for key in _TEXTS if key in fields and not isinstance(fields[key], str)]
    errors += [
        f"{key}: is empty" for key in ("id", "name") if isinstance(fields.get(key), str) and not fields[key].strip()
    ]
    if not isinstance(kind, str) or kind not in _NEEDED:
        errors.append(f"type: is one of {', '.join(_NEEDED)}, not {kind!r}")
    else:
        errors += [f"{key}: is missing; type {kind} needs it" for key in _NEEDED[kind] if not fields.get(key)]
    if fields.get("mode", "selectable") not in ("auto", "selectable"):
        errors.append(f"mode: is auto or selectable, not {fields['mode']!r}")
    tags = fields.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in cast("list[Any]", tags)):
        errors.append("tags: is not a list of words")
    if not isinstance(fields.get("args", {}), Mapping):
        errors.append("args: is not a mapping")
    if isinstance(fields.get("content"), str) and len(fields["content"]) > _CONTENT:
        errors.append(f"content: has {len(fields['content']):,} characters, {_CONTENT:,} is the most; put it in a file")
    if kind == "url" and isinstance(fields.get("url"), str) and not fields["url"].startswith(("http://", "https://")):
        errors.append(f"url: is not an address of the web: {fields['url']!r}")
    return errors


def _type_of(fields: Mapping[str, Any]) -> Type:
    """Infer the type of an entry that names none."""
    kinds: list[Type] = [kind for kind, needed in _NEEDED.items() if needed[0] in fields]
    return kinds[0] if kinds else "local"


def _is_known(key: str) -> bool:
    return key in _KEYS or key in _OTHERS


def _near(key: str, known: Sequence[str]) -> str:
    near = get_close_matches(key, known, n=1)
    return f"; is {near[0]} meant?" if near else ""


def _list(settings: Mapping[str, Any], key: str, problems: list[str]) -> list[Any]:
    value = settings.get(key, [])
    if isinstance(value, list):
        return cast("list[Any]", value)
    problems.append(f"tools.references.{key}: is not a list")
    return []


async def _in_folder(ctx: Context, folder: str, problems: list[str]) -> list[tuple[str, Any]]:
    """Return what the files of a folder hold; the usual folder need not be there."""
    if ctx.workspace is None:
        return []
    try:
        entry = await ctx.workspace.stat(folder)
        if entry is None or entry.kind != "folder":
            if folder != FOLDER:
                problems.append(f"tools.references.folders: there is no folder {folder!r}")
            return []
        listed = await ctx.workspace.list(folder)
    except ToolFailure as failure:
        problems.append(f"{folder}: {failure.message}")
        return []
    files = [one.path for one in listed if one.kind == "file" and one.path.endswith(ENDINGS)]
    found: list[tuple[str, Any]] = []
    for path in files[:_FILES]:
        try:
            found += sources_in(await data_at(ctx.workspace, path), path)
        except ToolFailure as failure:
            problems.append(failure.message if path in failure.message else f"{path}: {failure.message}")
    return found
