"""The decision on one call. Whatever breaks denies. The first of these that speaks decides, and is named:

    1  a deny: of a written rule, of the permissions of single tools, remembered from a `never`
    2  the tool asks always (seed 002: `alwaysRequireApproval`)
    3  the command cannot be taken back
    4  an ask, then an allow: of a written rule or of the permissions, among which the mode's replace the global ones
    5  an `always` that was answered in this session
    6  the mode, by the kind of the tool

What is allowed here still runs only with the `Grant` that the `approve` step mints.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

from ..core.permission import Decision, Effect
from ..core.session import SessionState
from ..core.tool import Tool
from ..errors import UsageError
from .irrecoverable import irrecoverable
from .modes import MODES, Mode
from .permissions import permitted
from .rules import Rules

__all__ = ["Policy", "approved_as"]

_LOG: Final = logging.getLogger(__name__)
_NONE: Final[Mapping[str, Effect]] = MappingProxyType({})
_STRICTEST_FIRST: Final = ("deny", "ask", "allow")


def approved_as(tool: Tool) -> str:
    """Return the key of an `always`: it speaks for this definition, not for another one under the same name."""
    return f"{tool.name} {tool.digest.hex()}"


class Policy:
    """Who may do what. One for a crib; immutable, so that a decision depends on nothing but the call."""

    def __init__(
        self,
        rules: Rules | None = None,
        modes: Mapping[str, Mode] = MODES,
        permissions: Mapping[str, Effect] = _NONE,
    ) -> None:
        """`modes` are those that a session may name; `permissions` those of single tools in every mode."""
        self._rules = rules or Rules()
        self._modes = dict(modes)
        self._permissions = permissions

    def mode(self, name: str) -> Mode:
        """Return a mode by its name; raises `UsageError` with the nearest one."""
        if name not in self._modes:
            near = get_close_matches(name, self._modes, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"there is no mode {name!r}, only {', '.join(sorted(self._modes))}{meant}")
        return self._modes[name]

    def decide(self, tool: Tool, arguments: Mapping[str, Any], session: SessionState) -> Decision:
        """Return the decision on this tool with these arguments. Never raises: what cannot be decided is denied."""
        try:
            return self._decide(tool, arguments, session)
        except Exception:  # noqa: BLE001 - the gate stays shut when it breaks
            _LOG.exception("the policy could not decide on %s", tool.name)
            return Decision(effect="deny", rule="the policy, which could not decide (see the log)")

    def permissions(self, session: SessionState) -> Mapping[str, Effect]:
        """Return what the session's mode says of single tools."""
        return self.mode(session.mode).tools

    def _decide(self, tool: Tool, arguments: Mapping[str, Any], session: SessionState) -> Decision:
        mode = self.mode(session.mode)
        ruled = self._ruled(tool, arguments, mode)
        if ruled is not None and ruled.effect == "deny":
            return ruled
        if session.remembered.get(tool.name) == "deny":
            return Decision(effect="deny", rule=f"the answer 'never' for {tool.name} in this session")
        if tool.approval == "always":
            return Decision(effect="ask", rule=f"approval always: {tool.name} asks in every mode")
        if lost := irrecoverable(tool, arguments):
            return Decision(effect="ask", rule=f"irrecoverable: {lost} asks in every mode")
        if ruled is not None:
            return ruled
        if session.remembered and session.remembered.get(approved_as(tool)) == "allow":
            return Decision(effect="allow", rule=f"the answer 'always' for {tool.name} in this session")
        return mode.decide(tool, wary=tool.origin in session.wary)

    def _ruled(self, tool: Tool, arguments: Mapping[str, Any], mode: Mode) -> Decision | None:
        """Return the strictest of what the written rules and the permissions say; a written rule is named first."""
        written = self._rules.decide(tool, arguments)
        if not mode.tools and not self._permissions:
            return written
        entered = permitted(tool, mode.tools, self._permissions, mode.name)
        said = [decision for decision in (written, entered) if decision is not None]
        return min(said, key=lambda decision: _STRICTEST_FIRST.index(decision.effect), default=None)
