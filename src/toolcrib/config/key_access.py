"""Keys of our file that a tool may show and change, and their display values.

Three tables, derived from the settings models: `CHANGEABLE` (`changed_by="tool"`; a person approves each change),
`FIXED` (displayed, changed by hand alone: the default of a new key), `SECRET` (not displayed).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, cast

from ..core.settings import Section, info_of, keys_of
from ..errors import ConfigError
from .settings import FILE_KEYS, Settings
from .validation import did_you_mean

__all__ = ["CHANGEABLE", "FIXED", "MODEL", "SECRET", "fixed_by", "shown", "steps_of", "value_of"]

MODEL: Final = "chat.model"
"""What `switch_backend` changes, to what the operator has listed and nothing else."""


def _changeable() -> Iterator[str]:
    yield from (name for name, key in FILE_KEYS.items() if key.info.changed_by == "tool" and name != "versions")
    yield "versions.*"
    for name, key in FILE_KEYS.items():
        if isinstance(key.annotation, type) and issubclass(key.annotation, Section):
            yield from (f"{name}.{path}" for path, info in keys_of(key.annotation) if info.changed_by == "tool")


CHANGEABLE: Final = tuple(sorted(_changeable()))
"""Single values, by key or pattern. None of them widens what is allowed, or who may do it."""

FIXED: Final[Mapping[str, str]] = {name: key.info.why for name, key in FILE_KEYS.items() if key.info.why}
"""Reasons why only the user may change a key, in addition to `CHANGEABLE`."""

SECRET: Final = frozenset({"mcpServers", "redact", *(name for name, key in FILE_KEYS.items() if key.info.secret)})
"""Hold keys, passwords or tokens, or may."""


def shown() -> tuple[str, ...]:
    """Return the keys that may be shown, in their order."""
    return tuple(sorted({*FIXED, *(key.partition(".")[0] for key in CHANGEABLE)}))


def steps_of(key: str) -> tuple[str, ...]:
    """Return the way to a dotted key; what follows `versions.` is one name of a tool, dots or not."""
    return tuple(key.split(".", 1) if key.startswith("versions.") else key.split("."))


def fixed_by(key: str) -> str:
    """Return why a tool may not change a key; empty where it may. Raises `ConfigError` for an unknown key."""
    top = _known(key)
    if top in SECRET:
        return "it holds secrets"
    if any(fnmatchcase(key, pattern) for pattern in CHANGEABLE):
        return ""
    return FIXED.get(top, "it holds several values: name one of them")


def value_of(settings: Settings, key: str) -> Any:
    """Return the configured value of a key, as JSON, defaults included; a part that may be secret is left out.

    Raises `ConfigError` for an unknown key, and for one that is not shown.
    """
    top = _known(key)
    if top in SECRET:
        raise ConfigError("holds secrets, and is not shown", key=key)
    value = _configured(settings, top)
    steps = steps_of(key)
    for place, step in enumerate(steps[1:], 1):
        members = _members(value)
        if top == "versions" and step not in members:
            return None
        if step not in members:
            key = _spelt(".".join(steps[: place + 1]))
            raise ConfigError(f"there is no such key{did_you_mean(step, members)}", key=key)
        value = members[step]
    return value


def _known(key: str) -> str:
    top = key.partition(".")[0]
    if top not in SECRET and top not in shown():
        raise ConfigError(f"there is no such key{did_you_mean(top, shown())}", key=_spelt(key))
    return top


def _spelt(key: str) -> str:
    """Return a key for display: invisible characters and terminal controls are escaped."""
    return key if key.isprintable() else ascii(key)


def _configured(settings: Settings, top: str) -> Any:
    value = settings.value(top)
    if FILE_KEYS[top].info.names_only:
        return sorted(_members(value)) if isinstance(value, Mapping) else sorted(one.name for one in value)
    return _plain(value)


def _members(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        given = ((name, info_of(field)) for name, field in type(value).model_fields.items())
        return {name: _plain(getattr(value, name)) for name, info in given if not (info.hidden or info.in_code)}
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in _members(value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in cast("list[Any]", value)]
    return str(value) if isinstance(value, Path) else value
