"""Definitions that were reviewed, and what to do with those that were not.

A pin is a hash over everything that a model or a rule sees of one tool. A tool that never was pinned, or is not what
was pinned, exists but is withheld until somebody accepts it (security.md T1, T2). Pure: the store keeps the pins.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import yaml

from ..core.events import Problem
from ..core.hidden import escape
from ..core.json import canonical, loads
from ..core.tool import Tool
from .preflight import findings

__all__ = ["Review", "difference", "pin_of", "review", "seen_of"]

_TOLD: Final = 3
"""So many findings of one definition are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What a comparison with the pins says of one listing."""

    tools: tuple[Tool, ...]
    """Those that may be called."""
    withheld: Mapping[str, Problem]
    """Those that may not, by local name."""
    accepted: tuple[Tool, ...]
    """Tools that were taken as reviewed just now: their pins are to be written down."""
    unreviewed: tuple[Problem, ...] = ()
    """What would withhold tools that may be called all the same, because nothing is withheld."""


def seen_of(tool: Tool) -> dict[str, Any]:
    """Return what the source says of `tool`; the name that we gave it plays no part."""
    return {**tool.definition, "name": tool.local_name}


def pin_of(tool: Tool) -> bytes:
    """Return the SHA-256 over what the source says of `tool`."""
    return hashlib.sha256(canonical(seen_of(tool))).digest()


def difference(reviewed: Mapping[str, Any], listed: Mapping[str, Any]) -> str:
    """Return how a definition differs from the one that was reviewed: a unified diff, empty when it does not.

    Every line of it is safe to look at: what is invisible stands there as an escape.
    """
    before, after = (_lines(definition) for definition in (reviewed, listed))
    return "\n".join(difflib.unified_diff(before, after, "reviewed", "listed now", lineterm=""))


def _lines(definition: Mapping[str, Any]) -> list[str]:
    """Return a definition as lines of YAML: keys in one order, long text by its own lines and sentences."""
    plain = loads(canonical(definition))
    text = yaml.safe_dump(_readable(plain), allow_unicode=True, sort_keys=True, width=100)
    return [escape(line) for line in text.split("\n")[:-1]]


def _readable(value: Any) -> Any:
    """Return JSON with text of several lines as a list of them: a diff then shows the line that changed, whole."""
    if isinstance(value, dict):
        return {escape(key): _readable(inner) for key, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_readable(inner) for inner in cast("list[Any]", value)]
    if isinstance(value, str) and "\n" in value:
        return [escape(line) for line in value.split("\n")]
    return escape(value) if isinstance(value, str) else value


def review(
    source: str,
    tools: Iterable[Tool],
    pins: Mapping[str, bytes],
    *,
    accept: bool,
    how: str = "",
    withhold: bool = True,
) -> Review:
    """Sort the listed `tools` of `source` by its `pins` (local name → pin).

    `accept` takes tools without a pin as reviewed; one that differs from its pin is withheld all the same, and so is
    one that somebody should look at (`preflight`). `how` says what takes it as reviewed, where that is not `accept`.
    Without `withhold` such tools may be called, and each is reported.
    """
    passed: list[Tool] = []
    withheld: dict[str, Problem] = {}
    accepted: list[Tool] = []
    unreviewed: list[Problem] = []
    for tool in tools:
        known = pins.get(tool.local_name)
        if known is not None and known == pin_of(tool):
            passed.append(tool)
            continue
        flagged = findings(tool)
        if known is None and accept and not flagged:
            passed.append(tool)
            accepted.append(tool)
        elif withhold:
            code = "quarantined" if known is None else "definition_changed"
            withheld[tool.local_name] = _problem(source, tool, flagged, code=code, changed=known is not None, how=how)
        else:
            passed.append(tool)
            code = "unreviewed" if known is None else "unreviewed_change"
            unreviewed.append(_problem(source, tool, flagged, code=code, changed=known is not None, how=how))
    return Review(tools=tuple(passed), withheld=withheld, accepted=tuple(accepted), unreviewed=tuple(unreviewed))


def _problem(source: str, tool: Tool, flagged: Sequence[str], *, code: str, changed: bool, how: str) -> Problem:
    state = "in use (guard is off)" if code.startswith("unreviewed") else "withheld"
    what = "its definition is not the one that was reviewed" if changed else "nobody has reviewed its definition"
    what = "; ".join((what, *flagged[:_TOLD]))
    return Problem(
        source=source,
        tool=tool.local_name,
        code=code,
        message=f"{tool.local_name} of {source} is {state}: {what}",
        hint=f"read it with `toolcrib show {source}/{tool.local_name}`, then {how or f'`toolcrib accept {source}`'}",
    )
