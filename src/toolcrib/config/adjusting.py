"""Which keys of our file a tool may show and change, and what they say in a configuration that was read.

Every key is in one of three tables, so that a new one is shown and changed by nobody before somebody has thought of it:
`CHANGEABLE` (a person is asked each time), `FIXED` (shown, changed by hand alone), `SECRET` (not even shown).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, cast

from ..errors import ConfigError
from .servers import did_you_mean
from .settings import Settings

__all__ = ["CHANGEABLE", "FIXED", "MODEL", "SECRET", "fixed_by", "shown", "steps_of", "value_of"]

MODEL: Final = "chat.model"
"""What `switch_backend` changes, to what the operator has listed and nothing else."""

CHANGEABLE: Final = (
    "chat.profile",
    "jobs.age",
    "jobs.engine",
    "jobs.kept",
    "jobs.output",
    "jobs.retries.attempts",
    "jobs.retries.backoff",
    "jobs.seconds",
    "jobs.work",
    "profile",
    "results.each",
    "results.keep",
    "results.pass_whole",
    "results.quota",
    "versions.*",
)
"""Single values, by key or pattern. None of them widens what is allowed, or says who may do it."""

_POLICY: Final = "it decides what is allowed"
_LIMIT: Final = "it limits what may be used"
_REACH: Final = "it says which tools there are, and what they may reach"
_RECORD: Final = "it says what is written down, and where that goes"
_WORDS: Final = "it says which instructions a model is given"

FIXED: Final[Mapping[str, str]] = {
    "accept": _POLICY,
    "approval_timeout": _POLICY,
    "approvals": _POLICY,
    "budgets": _LIMIT,
    "builtins": _REACH,
    "catalogs": _REACH,
    "chat": "it says which model is asked, and what is allowed there",
    "guard": _POLICY,
    "host": "it says who can reach this program",
    "identities": _POLICY,
    "jobs": _LIMIT,
    "limits": _LIMIT,
    "lock": _POLICY,
    "mode": _POLICY,
    "modes": _POLICY,
    "no_prefix": "rules go by the names of tools, and it changes them",
    "openapi": _REACH,
    "plugins": _REACH,
    "port": "it says who can reach this program",
    "profiles": _WORDS,
    "ranking": "it loads a model or a program",
    "records": _RECORD,
    "rules": _POLICY,
    "servers": _REACH,
    "shell": _POLICY,
    "skills": _WORDS,
    "telemetry": _RECORD,
    "tool_permissions": _POLICY,
    "untrusted": _POLICY,
    "workflows": _REACH,
    "workspace": _REACH,
}
"""Why nobody but the user changes a key, beside what `CHANGEABLE` has of it."""

SECRET: Final = frozenset({"admin_token", "mcpServers", "redact", "registration", "store", "token", "tokens", "tools"})
"""Hold keys, passwords or tokens, or may."""

_NAMES_ONLY: Final = ("identities", "modes", "openapi", "profiles", "servers", "workflows")
"""Of these the names are shown: what stands under them may hold secrets, or is long."""
_LEFT_OUT: Final[Mapping[str, tuple[str, ...]]] = {
    "approvals": ("webhook",),
    "plugins": ("config",),
    "telemetry": ("otlp", "tracers", "meters"),
}
"""Parts that may hold a secret."""


def shown() -> tuple[str, ...]:
    """Return the keys that may be shown, in their order."""
    return tuple(sorted({*FIXED, *(key.partition(".")[0] for key in CHANGEABLE)}))


def steps_of(key: str) -> tuple[str, ...]:
    """Return the way to a dotted key; what follows `versions.` is one name of a tool, dots or not."""
    return tuple(key.split(".", 1) if key.startswith("versions.") else key.split("."))


def fixed_by(key: str) -> str:
    """Return why a tool may not change a key; empty where it may. Raises `ConfigError` for what is no key."""
    top = _known(key)
    if top in SECRET:
        return "it holds secrets"
    if any(fnmatchcase(key, pattern) for pattern in CHANGEABLE):
        return ""
    return FIXED.get(top, "it holds several values: name one of them")


def value_of(settings: Settings, key: str) -> Any:
    """Return what a configuration says of a key, as JSON, defaults included; a part that may be secret is left out.

    Raises `ConfigError` for what is no key, and for one that is not shown.
    """
    top = _known(key)
    if top in SECRET:
        raise ConfigError("holds secrets, and is not shown", key=key)
    value = _said(settings, top)
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
    """Return a key as it is told: with escapes for what nobody would see, or a terminal would obey."""
    return key if key.isprintable() else ascii(key)


def _said(settings: Settings, top: str) -> Any:
    if top == "rules":
        return {effect: list(getattr(settings, effect)) for effect in ("deny", "ask", "allow")}
    if top == "ranking":
        return {"embedder": settings.embedder}
    if top == "jobs":
        jobs = _plain(settings.jobs)
        return {**jobs, "retries": {name: jobs.pop(name) for name in ("attempts", "backoff")}}
    value: Any = getattr(settings, top)
    if top in _NAMES_ONLY:
        return sorted(_members(value)) if isinstance(value, Mapping) else sorted(one.name for one in value)
    plain = _plain(value)
    for name in _LEFT_OUT.get(top, ()):
        plain.pop(name, None)
    return plain


def _members(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in _members(value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in cast("list[Any]", value)]
    return str(value) if isinstance(value, Path) else value
