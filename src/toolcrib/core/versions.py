"""Versions of one tool: their order, the migration of older arguments, and the deprecation notice.

Of several tools that a source calls by one name and that differ in version, one has the name: the newest that is not
deprecated. It holds the others (`Tool.older`), so that sessions that pinned one of them can have it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from msgspec import Struct, field
from msgspec.structs import replace

from .patterns import regex
from .tool import Tool

_RELEASE: Final = regex(r"v?(\d+(?:[._-]\d+)*)?[._-]?(.*)", re.DOTALL)
_PARTS: Final = regex(r"\d+|[a-z]+")
_KEYS: Final = ("rename", "set", "drop")


class Migration(Struct, frozen=True, kw_only=True):
    """Translation of an older version's arguments into the present ones. Lives as long as its tool.

        Migration(rename={"file": "path"}, set={"mode": "text"}, drop=("encoding",))
        {"file": "a", "encoding": "x"}  →  {"path": "a", "mode": "text"}

    Renamed first, then dropped, then set.
    """

    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its name then → its name now."""
    set: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values for new arguments, if the caller gives none."""
    drop: tuple[str, ...] = ()
    """Arguments that do not exist any more."""
    function: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None
    """Takes a copy of the arguments and returns the new ones, instead of all this."""

    def to_json(self) -> list[Any]:
        """Return the fields that a digest covers."""
        return [self.rename, self.set, self.drop, getattr(self.function, "__qualname__", "")]

    def __call__(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the present arguments and a note for each change; present names stay unchanged."""
        given = dict(arguments)
        if self.function is not None:
            made = dict(self.function(dict(given)))
            return made, ("arguments",) if made != given else ()
        notes: list[str] = []
        for old, new in self.rename.items():
            if old in given and new not in given:
                given[new] = given.pop(old)
                notes.append(f"{old} is {new} now")
        for name in (name for name in self.drop if name in given):
            del given[name]
            notes.append(f"{name} is gone")
        for name, value in self.set.items():
            if name not in given:
                given[name] = value
                notes.append(f"{name} was set")
        return given, tuple(notes)


def read_migrations(given: Any, schema: Mapping[str, Any]) -> Mapping[str, Migration]:
    """Return the migrations by the version from which they lead; raises `ValueError` for an inconsistent one.

    They are checked against the present schema: a renamed or dropped argument must be absent from it, a new name
    present.
    """
    if not isinstance(given, Mapping):
        raise ValueError("migrations are a mapping of a version to rename, set and drop")
    known = schema.get("properties", {})
    return {
        str(version): _read(f"migrations.{version}", migration, known)
        for version, migration in cast("Mapping[Any, Any]", given).items()
    }


def _read(where: str, raw: Any, known: Mapping[str, Any]) -> Migration:
    if callable(raw):
        return Migration(function=cast("Callable[[dict[str, Any]], Mapping[str, Any]]", raw))
    if not isinstance(raw, Mapping):
        raise ValueError(f"{where} is neither a mapping of {', '.join(_KEYS)} nor a function")
    parts = cast("Mapping[Any, Any]", raw)
    if unknown := [key for key in parts if key not in _KEYS]:
        raise ValueError(f"{where}: unknown key {unknown[0]!r} (known: {', '.join(_KEYS)})")
    renamed: Any = parts.get("rename") or {}
    fixed: Any = parts.get("set") or {}
    dropped: Any = parts.get("drop") or ()
    if not isinstance(renamed, Mapping) or not isinstance(fixed, Mapping) or isinstance(dropped, str | Mapping):
        raise ValueError(f"{where}: rename and set are mappings, drop is a list of names")
    made = Migration(
        rename=cast("Mapping[str, str]", renamed), set=cast("Mapping[str, Any]", fixed), drop=tuple(dropped)
    )
    if wrong := [name for name in (*made.rename, *made.drop) if name in known]:
        raise ValueError(f"{where}: {wrong[0]} is still an argument; only removed ones are renamed or dropped")
    if wrong := [name for name in (*made.rename.values(), *made.set) if name not in known]:
        raise ValueError(f"{where}: unknown argument {wrong[0]!r} (known: {', '.join(known) or 'none'})")
    return made


def order(version: str) -> tuple[Any, ...]:
    """Return a sort key for versions in the usual order: 1.9 before 1.10, 2.0rc1 before 2.0, which equals 2."""
    release, rest = cast("re.Match[str]", _RELEASE.match(version.lower().partition("+")[0])).groups()
    numbers = [int(part) for part in _PARTS.findall(release or "")]
    while numbers and not numbers[-1]:
        numbers.pop()
    parts = tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in _PARTS.findall(rest))
    rank = 1 if not parts else 2 if rest.startswith("post") else 0
    return (tuple(numbers), rank, parts)


def stacked(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """Return one tool for each name, in the order in which the names come first; see the module's docstring."""
    by_name: dict[str, list[Tool]] = {}
    for tool in tools:
        by_name.setdefault(tool.local_name, []).append(tool)
    return tuple(same[0] if len(same) == 1 else _head(same) for same in by_name.values())


def _head(same: list[Tool]) -> Tool:
    newest = sorted(same, key=lambda tool: (not tool.deprecated, order(tool.version)), reverse=True)
    return replace(newest[0], version_info=replace(newest[0].version_info, older=tuple(newest[1:])))


def pin_of_session(versions: Mapping[str, str], tool: Tool) -> str:
    """Return the version of `tool` that a session pins, by one of its names; empty when it follows the newest."""
    if not versions:
        return ""
    return next((versions[name] for name in (tool.name, tool.local_name, *tool.aliases) if name in versions), "")


def migrate(tool: Tool, version: str, arguments: Any) -> tuple[Any, tuple[str, ...]]:
    """Return arguments of `version` in the form that `tool` takes, and notes on the changes.

    A custom migration may raise any exception.

    Arguments of a version without a migration come back unchanged, and are validated by the present schema.
    """
    migration = tool.migrations.get(version)
    if migration is None or version == tool.version or not isinstance(arguments, Mapping):
        return arguments, ()
    made, notes = migration(cast("Mapping[str, Any]", arguments))
    return made, tuple(f"version {version}: {note}" for note in notes)


def retiring(description: str, deprecated: str, replaced_by: str) -> str:
    """Return a description that begins by saying that the tool is deprecated, and ends with why; else as it was."""
    if not deprecated:
        return description
    use = f", use {replaced_by}" if replaced_by else ""
    return f"(Deprecated{use}) {description}\n\nDeprecated: {deprecated}".strip()
