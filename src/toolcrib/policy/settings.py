"""Settings of the policy: modes, rules, identities, permissions of single tools, and content from strangers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

from ..core.permission import Effect
from ..core.session import Limits
from ..core.settings import POLICY, Number, Section, Text, Texts, expected, setting
from .modes import MODES, Mode, Permissions
from .rules import RuleTexts
from .taint import Taint

__all__ = ["EFFECTS", "Identity", "PolicySettings", "RuleSettings"]

EFFECTS: Final[tuple[Effect, ...]] = ("deny", "ask", "allow")
"""Effects in the order in which rules are applied."""


def _guard(value: Any) -> bool:
    """`on` and `off` are also text: JSON and the command line have no other way to write them."""
    words = {True: True, False: False, "on": True, "off": False}
    if not isinstance(value, bool | str) or value not in words:
        raise expected("on or off")
    return words[value]


class RuleSettings(Section):
    """The key `rules`: rules as they are written, by effect."""

    lists_add_up = True

    deny: Texts = ()
    """Calls that are denied."""
    ask: Texts = ()
    """Calls that a person is asked about."""
    allow: Texts = ()
    """Calls that run unasked."""
    broken: tuple[str, ...] = setting((), in_code=True, in_digest=True)
    """Errors of rules that could not be read; while there are any, only local reads are not denied."""


class Identity(Section):
    """Settings of every session of one principal."""

    profile: Text = ""
    """Profile of a session that names none; empty takes the configuration's."""
    mode: Text = ""
    """Likewise."""
    rules: RuleTexts = setting({})
    """Rules beside those of the configuration."""
    limits: Limits = setting(Limits.model_construct())
    """Limits in the place of the configuration's, as far as they are set."""
    allowed_tools: Texts | None = None
    """The most that its sessions may have; what a session names itself can only be less."""
    broken: tuple[str, ...] = setting((), in_code=True, in_digest=True)
    """Errors of its rules that could not be read."""
    file: str = setting("", in_code=True)
    """Where it stands: `file:line`."""


class PolicySettings(Section):
    """The keys of a file that decide what is allowed."""

    mode: Text = setting("cautious", why=POLICY)
    """Mode of sessions that name none."""
    modes: Mapping[str, Mode] = setting(MODES, why=POLICY, names_only=True)
    """Modes of the user, and changes to the built-in ones."""
    rules: RuleSettings = setting(RuleSettings.model_construct(), why=POLICY)
    """Rules of every session."""
    identities: Mapping[str, Identity] = setting({}, why=POLICY, names_only=True)
    """Profile, mode, rules and limits of a principal's sessions, by its name."""
    tool_permissions: Permissions = setting({}, why=POLICY)
    """allow, ask or deny by a tool's name or pattern, in every mode that does not name the tool."""
    approval_wait: Number = setting(25.0, why=POLICY)
    """Seconds that a call waits for an answer from elsewhere, before it ends as `approval_pending`."""
    untrusted: Taint = setting(Taint.model_construct(), why=POLICY)
    """What counts as content of strangers, and whether a session that read some asks before it acts."""
    guard: Annotated[bool, BeforeValidator(_guard)] = setting(True, why=POLICY)
    """`off` behind a client that guards its user itself: definitions that were not reviewed are reported and used, only
    the user's own tools are declared, and results carry no fence. Other defaults change with it. In a file `off` has no
    effect: it is an option of `serve`."""

    @property
    def broken_rules(self) -> tuple[str, ...]:
        """Errors of all rules that could not be read."""
        return (*self.rules.broken, *(error for one in self.identities.values() for error in one.broken))
