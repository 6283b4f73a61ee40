"""Permissions of the sessions of a crib: its policy, and the terms of an identity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ..config import Settings
from ..config.guard_switch import GuardSwitch
from ..core.permission import Effect
from ..core.session import Scope, SessionState
from ..core.tool import Tool
from ..errors import ConfigError, UsageError
from ..policy.decision import Policy
from ..policy.rule_layers import RuleLayers
from ..policy.rules import check_rules, parse_rules
from ..sources.source import Source
from .options import SessionOptions
from .profiles import ProfileRegistry


def policy_of(settings: Settings, profiles: ProfileRegistry, sources: Mapping[str, Source]) -> Policy:
    """Return the policy of these settings and of the rules of profiles. Raises `ConfigError` for a rule.

    `sources` are the mounted ones, which know the folders of their files.
    """

    def file_of(tool: Tool, arguments: Mapping[str, Any]) -> str:
        find = getattr(sources.get(tool.source), "file_of", None)
        return "" if find is None else find(tool, arguments)

    home = str(settings.directories.home)
    rules = parse_rules(
        {"deny": settings.policy.rules.deny, "ask": settings.policy.rules.ask, "allow": settings.policy.rules.allow},
        home=home,
    )
    layers = RuleLayers(
        rules,
        profiles=lambda name: profiles.get_or_load(name).session.rules,
        modes={name: mode.rules for name, mode in settings.policy.modes.items()},
        identities={name: identity.rules for name, identity in settings.policy.identities.items()},
        home=home,
    )
    broken = settings.policy.broken_rules[0] if settings.policy.broken_rules else ""
    return Policy(
        layers,
        settings.policy.modes,
        settings.policy.tool_permissions,
        settings.policy.untrusted,
        broken,
        behind_client=not settings.policy.guard,
        file_of=file_of,
        **({} if settings.policy.guard else {"is_strict": GuardSwitch(settings.directories).is_on}),
    )


def identity_terms(settings: Settings, principal: str, disabled: Mapping[str, None]) -> Mapping[str, Any]:
    """Return the initial options of a session of `principal`."""
    identity = settings.policy.identities.get(principal)
    if identity is None:
        scope = Scope(disabled_for_all=disabled, versions=settings.disclosure.versions)
        return {
            "profile": settings.disclosure.profile,
            "mode": settings.policy.mode,
            "limits": settings.limits,
            "scope": scope,
        }
    allowed = None if identity.allowed_tools is None else frozenset(identity.allowed_tools)
    return {
        "profile": identity.profile or settings.disclosure.profile,
        "mode": identity.mode or settings.policy.mode,
        "limits": identity.limits.over(settings.limits),
        "scope": Scope(allowed=allowed, disabled_for_all=disabled, versions=settings.disclosure.versions),
    }


def session_rules(options: SessionOptions) -> tuple[tuple[Effect, tuple[str, ...]], ...] | None:
    """Return the rules that the options of a session name; None where they name none.

    Raises `UsageError` for a rule that cannot be read.
    """
    if "rules" not in options:
        return None
    given = options["rules"]
    try:
        check_rules(cast("Any", given), layer="session")
    except ConfigError as error:
        raise UsageError(str(error)) from None
    return tuple((effect, tuple(texts)) for effect, texts in given.items())


def apply_rules(
    state: SessionState, rules: tuple[tuple[Effect, tuple[str, ...]], ...] | None, settings: Settings
) -> None:
    """Give a session its rules, if it is to get others, and keep its scope inside what its identity may have."""
    identity = settings.policy.identities.get(state.principal)
    if identity is not None and identity.allowed_tools is not None:
        most = frozenset(identity.allowed_tools)
        state.scope.allowed = most if state.scope.allowed is None else state.scope.allowed & most
    if rules is not None:
        state.rules = rules
