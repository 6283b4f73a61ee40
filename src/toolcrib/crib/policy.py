"""Permissions of the sessions of a crib: its policy, the terms of an identity, and planning.

A session that plans has one tool more, by which the model submits its plan. It is a tool like any: the approver of
calls approves the plan by the same channel, may change it, or refuse it with a word to the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from ..config import Settings
from ..config.guard_switch import GuardSwitch
from ..core.context import Context
from ..core.result import ToolResult
from ..core.session import Scope, SessionState, SessionTable
from ..core.tool import Annotations, Availability, Guidance, Tool
from ..errors import ConfigError, ToolFailure, UsageError
from ..policy.decision import Policy
from ..policy.rules import Layers, check_rules, parse_rules
from ..sources.source import OwnTools
from .options import SessionOptions
from .profiles import ProfileRegistry

__all__ = ["SUBMIT", "Plans", "end_planning", "hold", "identified", "policy_of"]

_SOURCE: Final = "plan"
_NEED: Final = "plan"
SUBMIT: Final = "submit_plan"
"""The tool's name."""
_TOOL: Final = Tool(
    name=SUBMIT,
    source=_SOURCE,
    local_name=SUBMIT,
    op="x.plan.submit",
    description="Submit your plan for approval. Once it is approved all tools are there, and you work through it.",
    input_schema={
        "type": "object",
        "properties": {
            "plan": {
                "type": "string",
                "minLength": 1,
                "description": "Numbered steps: what is done, with which tools, and what could go wrong.",
            }
        },
        "required": ["plan"],
        "additionalProperties": False,
    },
    annotations=Annotations(read_only=True, destructive=False, open_world=False),
    approval="always",
    traits=("asks_user",),
    availability=Availability(needs=(_NEED,)),
    guidance=Guidance(examples=({"plan": "1. Read src/app.py.\n2. Rename `load` to `open`.\n3. Run the tests."},)),
)


def policy_of(settings: Settings, profiles: ProfileRegistry) -> Policy:
    """Return the policy of these settings and of the rules of profiles. Raises `ConfigError` for a rule."""
    home = str(settings.directories.home)
    rules = parse_rules(
        {"deny": settings.policy.rules.deny, "ask": settings.policy.rules.ask, "allow": settings.policy.rules.allow},
        home=home,
    )
    layers = Layers(
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
        **({} if settings.policy.guard else {"is_strict": GuardSwitch(settings.directories).is_on}),
    )


def identified(settings: Settings, principal: str, disabled: Mapping[str, None]) -> Mapping[str, Any]:
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


def hold(state: SessionState, options: SessionOptions, settings: Settings) -> None:
    """Set the rules of a session, and keep its scope inside what its identity may have.

    Raises `UsageError` for a rule that cannot be read.
    """
    identity = settings.policy.identities.get(state.principal)
    if identity is not None and identity.allowed_tools is not None:
        most = frozenset(identity.allowed_tools)
        state.scope.allowed = most if state.scope.allowed is None else state.scope.allowed & most
    if "rules" not in options:
        return
    given = options["rules"]
    try:
        check_rules(cast("Any", given), layer="session")
    except ConfigError as error:
        raise UsageError(str(error)) from None
    state.rules = tuple((effect, tuple(texts)) for effect, texts in given.items())


class Plans(OwnTools):
    """A source of one tool. One for a crib."""

    def __init__(self, sessions: SessionTable) -> None:
        """`sessions` has the session that a call belongs to."""
        super().__init__(_SOURCE, "plan")
        self._sessions = sessions

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Let the session work: this call was approved."""
        state = self._sessions.find(context.principal, context.session_key)
        if state is None:
            raise ToolFailure("unavailable", "the session of this plan is gone")
        end_planning(state)
        return ToolResult.of_text(f"The plan is approved. Work through it:\n\n{arguments['plan']}")

    def begin(self, state: SessionState) -> None:
        """Let the session plan: nothing runs until a plan is approved."""
        self.offer(_TOOL)
        state.scope.planning = True
        state.scope.provided |= {_NEED}


def end_planning(state: SessionState) -> None:
    """Let the session work."""
    state.scope.planning = False
    state.scope.provided -= {_NEED}
