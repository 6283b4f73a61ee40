"""Definitions that were reviewed, and what to do with those that were not.

A pin is a hash over everything that a model or a rule sees of one tool. A tool that never was pinned, or is not what
was pinned, exists but is withheld until somebody accepts it (security.md T1, T2). Pure: the store keeps the pins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.events import Problem
from ..core.json import canonical
from ..core.tool import Tool

__all__ = ["Review", "pin_of", "review", "seen_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What a comparison with the pins says of one listing."""

    tools: tuple[Tool, ...]
    """Those that may be called."""
    withheld: Mapping[str, Problem]
    """Those that may not, by local name."""
    accepted: tuple[Tool, ...]
    """Tools that were taken as reviewed just now: their pins are to be written down."""


def seen_of(tool: Tool) -> dict[str, Any]:
    """Return what the source says of `tool`; the name that we gave it plays no part."""
    return {**tool.definition, "name": tool.local_name}


def pin_of(tool: Tool) -> bytes:
    """Return the SHA-256 over what the source says of `tool`."""
    return hashlib.sha256(canonical(seen_of(tool))).digest()


def review(source: str, tools: Iterable[Tool], pins: Mapping[str, bytes], *, accept: bool) -> Review:
    """Sort the listed `tools` of `source` by its `pins` (local name → pin).

    `accept` takes tools without a pin as reviewed; one that differs from its pin is withheld all the same.
    """
    passed: list[Tool] = []
    withheld: dict[str, Problem] = {}
    accepted: list[Tool] = []
    for tool in tools:
        known = pins.get(tool.local_name)
        if known is None and accept:
            passed.append(tool)
            accepted.append(tool)
        elif known is not None and known == pin_of(tool):
            passed.append(tool)
        else:
            withheld[tool.local_name] = _withhold(source, tool, changed=known is not None)
    return Review(tools=tuple(passed), withheld=withheld, accepted=tuple(accepted))


def _withhold(source: str, tool: Tool, *, changed: bool) -> Problem:
    code = "definition_changed" if changed else "quarantined"
    what = "its definition is not the one that was reviewed" if changed else "nobody has reviewed its definition"
    return Problem(
        source=source,
        tool=tool.local_name,
        code=code,
        message=f"{tool.local_name} of {source} is withheld: {what}",
        hint=f"read it with `toolcrib show {source}/{tool.local_name}`, then `toolcrib accept {source}`",
    )
