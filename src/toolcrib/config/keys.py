"""The keys of our configuration file besides the servers: what each takes, and how two files are put together."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Final, cast

from ..core.permission import Effect
from ..core.session import Limits
from ..core.settings import Flag, Section
from ..errors import ConfigError
from ..policy.modes import Mode, read_permissions
from .guests import TOOL_KEYS, known_settings
from .profiles import GivenProfile, together
from .ruling import EFFECTS, Identity, read_rules
from .sections import collected, read_setting
from .servers import did_you_mean
from .settings import MODELS
from .value import Value, Where
from .workflows import GivenWorkflow

__all__ = ["KEYS", "Where", "check", "merge"]

_IDENTITY: Final = tuple(entry.name for entry in fields(Identity))
_ADDED: Final = (*EFFECTS, "broken_rules", "catalogs", "redact")
"""Lists that add up over files, first file first."""
_ONE_BY_ONE: Final = ("identities", "modes", "tool_permissions", "tools", "versions", "workflows")
"""Mappings of which a later file replaces single entries."""


def check(values: Mapping[str, Any], environ: Mapping[str, str], where: Where = lambda path: "") -> dict[str, Any]:
    """Return `values` of our keys checked, expanded and with `rules` taken apart.

    Raises `ConfigError`, or `ConfigErrors` with every error of the file in its order.
    """
    checked: dict[str, Any] = {}
    errors: list[ConfigError] = []
    for key, value in values.items():
        if key not in KEYS:
            known = (*KEYS, "servers", "mcpServers")
            errors.append(ConfigError(f"unknown key{did_you_mean(key, known)}", file=where((key,)), key=key))
        elif value is not None:
            try:
                checked |= KEYS[key](Value(value, (key,), where, environ))
            except ConfigError as error:
                errors.append(error)
    if errors:
        raise collected(errors)
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
            elif isinstance(value, Section):
                merged[key] = value.over(merged.get(key))
            elif key in _ONE_BY_ONE:
                merged[key] = {**merged.get(key, {}), **value}
            else:
                merged[key] = value
    return merged


def _guard(value: Value) -> dict[str, Any]:
    """`on` and `off` are also text: JSON and the command line have no other way to write them."""
    words: Any = {True: True, False: False, "on": True, "off": False}
    if not isinstance(value.value, bool | str) or value.value not in words:
        raise value.wrong("on or off")
    return {value.key: words[value.value]}


def _profiles(value: Value) -> dict[str, Any]:
    """The code that builds a profile checks its keys."""
    given: dict[str, GivenProfile] = {}
    for name, inner in value.members():
        said: Any = inner.value
        if not isinstance(said, Mapping):
            raise inner.wrong("a mapping of a profile's keys")
        keys = cast("Mapping[str, Any]", said)
        given[name] = GivenProfile(name=name, values=keys, file=value.where(inner.path))
    return {"profiles": given}


def _versions(value: Value) -> dict[str, Any]:
    return {"versions": {name: inner.text() for name, inner in value.members()}}


def _tools(value: Value) -> dict[str, Any]:
    """Settings of tools by category; those of the built-in ones have keys that are known."""
    said: dict[str, Any] = {}
    for name, inner in value.members():
        if not isinstance(inner.value, Mapping):
            raise inner.wrong("a mapping")
        if name not in TOOL_KEYS and (meant := did_you_mean(name, TOOL_KEYS)):
            raise ConfigError(f"unknown category{meant}", file=inner.where(inner.path), key=inner.key)
        _check_settings(inner)
        said[name] = inner.expanded()
    return {"tools": said}


def _check_settings(value: Value) -> None:
    """Raise `ConfigError` for a key that no built-in tool reads. A wrong type where a mapping belongs is theirs."""
    for _, inner in value.members(known_settings([str(step) for step in value.path[1:]])):
        if isinstance(inner.value, Mapping):
            _check_settings(inner)


def _workflows(value: Value) -> dict[str, Any]:
    """The code that runs a workflow checks its keys."""
    return {
        "workflows": {
            name: GivenWorkflow(name=name, values=inner.value, file=value.where(inner.path))
            for name, inner in value.members()
        }
    }


def _redact(value: Value) -> dict[str, Any]:
    return {"redact": value.texts()}


def _rules(value: Value) -> dict[str, Any]:
    rules, broken = _read_rules(value)
    said: dict[str, Any] = {effect: rules[effect] for effect in rules}
    return {**said, "broken_rules": broken} if broken else said


def _read_rules(value: Value) -> tuple[dict[Effect, tuple[str, ...]], tuple[str, ...]]:
    given = {key: inner.texts() for key, inner in value.members(EFFECTS) if inner.value is not None}
    home = value.environ.get("HOME", "")
    return read_rules(given, lambda effect, place: value.where((*value.path, effect, place)), home)


def _identities(value: Value) -> dict[str, Any]:
    identities: dict[str, Identity] = {}
    broken: tuple[str, ...] = ()
    for name, inner in value.members():
        said: dict[str, Any] = {}
        for key, one in inner.members(_IDENTITY):
            if key == "rules":
                said[key], more = _read_rules(one)
                broken += more
            elif key == "limits":
                said[key] = read_setting(Limits, one)
            else:
                said[key] = one.texts() if key == "allowed_tools" else one.text()
        identities[name] = Identity(**said)
    return {"identities": identities, "broken_rules": broken} if broken else {"identities": identities}


def _modes(value: Value) -> dict[str, Any]:
    """What each says is checked here, for its line; what it extends may stand in another file (`resolve_modes`)."""
    modes: dict[str, dict[str, Any]] = {}
    for name, inner in value.members():
        said = {key: one.value for key, one in inner.members() if one.value is not None}
        with _located(value.where(inner.path)):
            Mode.from_mapping(name, {key: one for key, one in said.items() if key != "extends"})
        modes[name] = said
    return {"modes": modes}


@contextmanager
def _located(where: str) -> Generator[None]:
    """Put file and line before the message of an error that has neither."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(str(error), file="" if str(error).startswith(where) else where) from error


def _permissions(value: Value) -> dict[str, Any]:
    with _located(value.where(value.path)):
        return {value.key: read_permissions(value.value, key=value.key)}


def _ranking(value: Value) -> dict[str, Any]:
    return {key: inner.text() for key, inner in value.members(("embedder",)) if inner.value is not None}


def _catalogs(value: Value) -> dict[str, Any]:
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


def _skills(value: Value) -> dict[str, Any]:
    """True is the project's and the user's; a list is folders; a mapping says which of them."""
    given: Any = value.value
    if isinstance(given, bool):
        return {"skills": {"project": given, "user": given}}
    if isinstance(given, list):
        return {"skills": {"paths": value.texts()}}
    said: dict[str, Any] = {}
    for key, inner in value.members(("project", "user", "paths", "groups")):
        if key in ("project", "user"):
            said[key] = read_setting(Flag, inner)
        else:
            said[key] = inner.texts() if key == "paths" else inner.text()
    return {"skills": said}


_READERS: Final[Mapping[str, Callable[[Value], dict[str, Any]]]] = {
    "profiles": _profiles,
    "modes": _modes,
    "rules": _rules,
    "identities": _identities,
    "tool_permissions": _permissions,
    "guard": _guard,
    "redact": _redact,
    "catalogs": _catalogs,
    "skills": _skills,
    "ranking": _ranking,
    "tools": _tools,
    "workflows": _workflows,
    "versions": _versions,
}
"""Keys whose values other files or features complete: what reads each."""


def _model_reader(name: str) -> Callable[[Value], dict[str, Any]]:
    return lambda value: {name: read_setting(MODELS[name], value)}


KEYS: Final[Mapping[str, Callable[[Value], dict[str, Any]]]] = {
    **{name: _model_reader(name) for name in MODELS},
    **_READERS,
}
"""Every key of our file besides `servers` (or `mcpServers`), and what reads it."""
