"""Rules and identities of configuration files: validation, and the effect of a broken rule.

A rule that cannot be read is reported with file and line and leaves the others as they are; but as long as there is
one, everything that does more than read on this machine is denied (security.md T28): its purpose is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..core.events import Problem
from ..core.permission import Effect
from ..core.session import Limits
from ..errors import ConfigError
from ..policy.rules import Written, parse_rule

__all__ = ["EFFECTS", "Identity", "check_identity_modes", "problems_of", "read_rules"]

EFFECTS: Final[tuple[Effect, ...]] = ("deny", "ask", "allow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What holds for every session of one principal."""

    profile: str = ""
    """Of a session that names none; empty takes the configuration's."""
    mode: str = ""
    """Likewise."""
    rules: Mapping[Effect, tuple[str, ...]] = field(default_factory=dict[Effect, tuple[str, ...]])
    limits: Limits = field(default_factory=Limits)
    """Limits in the place of the configuration's, as far as they are set."""
    allowed_tools: tuple[str, ...] | None = None
    """The most that its sessions may have; what a session names itself can only be less."""


def read_rules(
    given: Mapping[str, Sequence[str]], where: Callable[[Effect, int], str], home: str
) -> tuple[dict[Effect, tuple[str, ...]], tuple[str, ...]]:
    """Return the rules that can be read, each with where it stands, and what is wrong with the others."""
    rules: dict[Effect, tuple[str, ...]] = {}
    broken: list[str] = []
    for effect in EFFECTS:
        good: list[str] = []
        for place, text in enumerate(given.get(effect, ())):
            written = Written.at(text, where(effect, place))
            try:
                parse_rule(effect, written, home=home)
            except ConfigError as error:
                broken.append(str(error))
            else:
                good.append(written)
        if effect in given:
            rules[effect] = tuple(good)
    return rules, tuple(broken)


def problems_of(broken: Sequence[str]) -> list[Problem]:
    """Return the problems of rules that cannot be read."""
    hint = "until it is mended, everything but tools of this machine that only read is denied"
    return [Problem(source="rules", code="bad_config", message=message, hint=hint) for message in broken]


def check_identity_modes(identities: Mapping[str, Identity], modes: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for an identity with an undefined mode."""
    for name, identity in identities.items():
        if identity.mode and identity.mode not in modes:
            message = f"there is no mode {identity.mode!r}, only {', '.join(modes)}"
            raise ConfigError(message, key=f"identities.{name}.mode")
