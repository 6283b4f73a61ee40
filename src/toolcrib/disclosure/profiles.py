"""Profiles from YAML: the built-in ones and the user's own.

A profile that says something unknown is refused when it is loaded, with the nearest names; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, cast

import yaml

from ..catalog.naming import nearest
from ..errors import ConfigError
from .adaptive import adaptive
from .base import Profile, Strategy
from .flat import flat
from .verbs import VERBS

__all__ = ["BUILT_IN", "STRATEGIES", "load", "parse"]

STRATEGIES: Final[Mapping[str, Strategy]] = MappingProxyType({"adaptive": adaptive, "flat": flat})
"""THE list: a strategy is one file and one line here."""

BUILT_IN: Final = ("adaptive", "flat")

_KEYS = tuple(entry.name for entry in fields(Profile))


def load(name: str) -> Profile:
    """Return the built-in profile `name`; raises `ConfigError` with the nearest names for another."""
    if name not in BUILT_IN:
        raise ConfigError(_unknown("profile", name, BUILT_IN))
    text = resources.files("toolcrib.disclosure").joinpath("profiles", f"{name}.yaml").read_text("utf-8")
    return parse(text, file=f"{name}.yaml")


def parse(text: str, *, file: str) -> Profile:
    """Return the profile that the YAML `text` describes; raises `ConfigError` naming the file and the key."""
    data: Any = yaml.safe_load(text)
    if not isinstance(data, dict):
        raise ConfigError("a profile is a mapping of keys to values", file=file)
    given = cast("dict[str, Any]", data)
    for key in given:
        if key not in _KEYS:
            raise ConfigError(_unknown("key", key, _KEYS), file=file, key=key)
    _check_name(given, "strategy", STRATEGIES, file)
    _check_types(given, file)
    for verb in given.get("verbs", {}):
        if verb not in VERBS:
            raise ConfigError(_unknown("verb", verb, VERBS), file=file, key=f"verbs.{verb}")
    given["core"] = tuple(given.get("core", ()))
    return Profile(**given)


def _check_name(given: Mapping[str, Any], key: str, known: Iterable[str], file: str) -> None:
    if "name" not in given:
        raise ConfigError("a profile needs a name", file=file, key="name")
    if str(given.get(key)) not in known:
        raise ConfigError(_unknown(key, str(given.get(key)), known), file=file, key=key)


def _check_types(given: Mapping[str, Any], file: str) -> None:
    wanted: dict[str, type | tuple[type, ...]] = {
        "name": str,
        "description": str,
        "instructions": str,
        "verbs": dict,
        "core": list,
        "budget_tokens": int,
        "shown_tokens": int,
    }
    for key, kind in wanted.items():
        if key in given and not isinstance(given[key], kind):
            raise ConfigError(f"takes {getattr(kind, '__name__', kind)}, not {given[key]!r}", file=file, key=key)


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    close = nearest(name, known) or sorted(known)
    return f"unknown {what} {name!r}; did you mean {', '.join(close)}?"
