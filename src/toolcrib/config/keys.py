"""The keys of our configuration file besides the servers: what each takes, and how two files are put together."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Final, cast

from ..core.permission import Effect
from ..core.session import Limits
from ..core.tree import Path
from ..errors import ConfigError
from ..jobs.job import JobLimits
from ..policy.modes import Mode
from ..policy.permissions import read_permissions
from ..policy.rules import parse_rule
from .expand import expand
from .profiles import GivenProfile, together
from .servers import did_you_mean

__all__ = ["KEYS", "Where", "check", "merge"]

Where = Callable[[Path], str]
"""Says `file:line` of a path inside the document."""

_EFFECTS: Final[tuple[Effect, ...]] = ("deny", "ask", "allow")
_LIMITS: Final = tuple(entry.name for entry in fields(Limits))
_JOB_LIMITS: Final = tuple(entry.name for entry in fields(JobLimits))
_ADDED: Final = (*_EFFECTS, "catalogs", "redact")
"""Lists that add up over files, first file first."""


def check(values: Mapping[str, Any], environ: Mapping[str, str], where: Where = lambda path: "") -> dict[str, Any]:
    """Return `values` of our keys checked, expanded and with `rules` taken apart. Raises `ConfigError`.

    An unknown key is an error with the nearest one.
    """
    checked: dict[str, Any] = {}
    for key, value in values.items():
        if key not in KEYS:
            known = (*KEYS, "servers", "mcpServers")
            raise ConfigError(f"unknown key{did_you_mean(key, known)}", file=where((key,)), key=key)
        if value is not None:
            checked |= KEYS[key](_Value(value, (key,), where, environ))
    return checked


def merge(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Put checked values together: later ones win, limits, modes and profiles one by one; rules and the like add up."""
    merged: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            if key in _ADDED:
                merged[key] = (*merged.get(key, ()), *value)
            elif key == "profiles":
                merged[key] = together(merged.get(key, {}), value)
            elif key in ("jobs", "limits", "modes", "tool_permissions"):
                merged[key] = {**merged.get(key, {}), **value}
            else:
                merged[key] = value
    return merged


class _Value:
    """One value on its way into the settings, with where it stands."""

    __slots__ = ("environ", "path", "value", "where")

    def __init__(self, value: Any, path: Path, where: Where, environ: Mapping[str, str]) -> None:
        self.value: Any = value
        self.path = path
        self.where = where
        self.environ = environ

    def wrong(self, expected: str) -> ConfigError:
        return ConfigError(f"{expected} was expected", file=self.where(self.path), key=self.key)

    @property
    def key(self) -> str:
        return ".".join(str(step) for step in self.path)

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value.strip():
            raise self.wrong("a string")
        return expand(self.value, self.environ, file=self.where(self.path), key=self.key)

    def inner(self, step: str | int, value: Any) -> _Value:
        return _Value(value, (*self.path, step), self.where, self.environ)

    def members(self, known: Iterable[str] | None = None) -> list[tuple[str, _Value]]:
        given = self.value
        if not isinstance(given, Mapping):
            raise self.wrong("a mapping")
        members = [(key, self.inner(key, value)) for key, value in cast("Mapping[str, Any]", given).items()]
        for key, value in members:
            if known is not None and key not in known:
                raise ConfigError(f"unknown key{did_you_mean(key, known)}", file=self.where(value.path), key=value.key)
        return members

    def texts(self) -> tuple[str, ...]:
        items = self.value
        if not isinstance(items, list | tuple):
            raise self.wrong("a list of strings")
        return tuple(self.inner(place, item).text() for place, item in enumerate(cast("list[Any]", items)))

    def number(self, *, whole: bool) -> float:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise self.wrong("a whole number" if whole else "a number")
        if not (math.isfinite(value) and value > 0):
            raise self.wrong("a number above 0")
        return value


def _text(value: _Value) -> dict[str, Any]:
    return {value.key: value.text()}


def _flag(value: _Value) -> dict[str, Any]:
    if not isinstance(value.value, bool):
        raise value.wrong("true or false")
    return {value.key: value.value}


def _seconds(value: _Value) -> dict[str, Any]:
    return {value.key: value.number(whole=False)}


def _profiles(value: _Value) -> dict[str, Any]:
    """What a profile may say is known to whoever builds it."""
    given: dict[str, GivenProfile] = {}
    for name, inner in value.members():
        said: Any = inner.value
        if not isinstance(said, Mapping):
            raise inner.wrong("a mapping of a profile's keys")
        keys = cast("Mapping[str, Any]", said)
        given[name] = GivenProfile(name=name, values=keys, file=value.where(inner.path))
    return {"profiles": given}


def _port(value: _Value) -> dict[str, Any]:
    port = value.value
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise value.wrong("a port from 0 (any free one) to 65535")
    return {value.key: port}


def _texts(value: _Value) -> dict[str, Any]:
    return {value.key: value.texts()}


def _rules(value: _Value) -> dict[str, Any]:
    """Every rule is read once here, so that a broken one is named with its line."""
    found = {key: inner.texts() for key, inner in value.members(_EFFECTS) if inner.value is not None}
    for effect in _EFFECTS:
        for place, text in enumerate(found.get(effect, ())):
            with _located(value.where((*value.path, effect, place))):
                parse_rule(effect, text)
    return found


def _modes(value: _Value) -> dict[str, Any]:
    modes: dict[str, Mode] = {}
    for name, inner in value.members():
        with _located(value.where(inner.path)):
            modes[name] = Mode.from_mapping(name, {kind: effect.value for kind, effect in inner.members()})
    return {"modes": modes}


@contextmanager
def _located(where: str) -> Generator[None]:
    """Put file and line before what somebody says who knows neither."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(str(error), file="" if str(error).startswith(where) else where) from error


def _permissions(value: _Value) -> dict[str, Any]:
    with _located(value.where(value.path)):
        return {value.key: read_permissions(value.value, key=value.key)}


def _jobs(value: _Value) -> dict[str, Any]:
    given = [(key, inner) for key, inner in value.members(_JOB_LIMITS) if inner.value is not None]
    return {"jobs": {key: inner.number(whole=key not in ("age", "seconds")) for key, inner in given}}


def _ranking(value: _Value) -> dict[str, Any]:
    return {key: inner.text() for key, inner in value.members(("embedder",)) if inner.value is not None}


def _limits(value: _Value) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for key, inner in value.members(_LIMITS):
        if key == "calls_per_tool":
            limits[key] = {tool: count.number(whole=True) for tool, count in inner.members()}
        elif inner.value is not None:
            limits[key] = inner.number(whole=key not in ("timeout", "max_timeout"))
    return {"limits": limits}


def _catalogs(value: _Value) -> dict[str, Any]:
    """Each is a file, or a mapping with `file`, `name` and `code`: false, or folders that modules may come from."""
    items: Any = value.value
    if not isinstance(items, list | tuple):
        raise value.wrong("a list of files")
    catalogs: list[dict[str, Any]] = []
    for place, item in enumerate(cast("list[Any]", items)):
        inner = value.inner(place, item)
        if not isinstance(item, Mapping):
            catalogs.append({"file": inner.text()})
            continue
        said = dict(inner.members(("file", "name", "code")))
        if "file" not in said:
            raise inner.wrong("`file`")
        entry: dict[str, Any] = {key: said[key].text() for key in ("file", "name") if key in said}
        if "code" in said:
            entry["code"] = said["code"].value if isinstance(said["code"].value, bool) else said["code"].texts()
        catalogs.append(entry)
    return {"catalogs": tuple(catalogs)}


def _skills(value: _Value) -> dict[str, Any]:
    """True is the project's and the user's; a list is folders; a mapping says which of them."""
    given: Any = value.value
    if isinstance(given, bool):
        return {"skills": {"project": given, "user": given}}
    if isinstance(given, list):
        return {"skills": {"paths": value.texts()}}
    said: dict[str, Any] = {}
    for key, inner in value.members(("project", "user", "paths", "groups")):
        if key in ("project", "user"):
            said[key] = _flag(inner)[inner.key]
        else:
            said[key] = inner.texts() if key == "paths" else inner.text()
    return {"skills": said}


KEYS: Final[Mapping[str, Callable[[_Value], dict[str, Any]]]] = {
    "profile": _text,
    "profiles": _profiles,
    "mode": _text,
    "modes": _modes,
    "rules": _rules,
    "limits": _limits,
    "approval_timeout": _seconds,
    "jobs": _jobs,
    "tool_permissions": _permissions,
    "token": _text,
    "host": _text,
    "port": _port,
    "no_prefix": _flag,
    "accept": _flag,
    "builtins": _flag,
    "redact": _texts,
    "catalogs": _catalogs,
    "skills": _skills,
    "ranking": _ranking,
}
"""Every key of our file besides `servers` (or `mcpServers`), and what reads it."""
