"""The decision on one call: rules, then what the session remembers, then the mode. Whatever breaks denies."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from ..core.permission import Decision
from ..core.session import SessionState
from ..core.tool import Tool
from ..errors import UsageError
from .modes import MODES, Mode
from .rules import Rules

__all__ = ["Policy", "approved_as"]

_LOG: Final = logging.getLogger(__name__)


def approved_as(tool: Tool) -> str:
    """Return the key of an `always`: it speaks for this definition, not for another one under the same name."""
    return f"{tool.name} {tool.digest.hex()}"


class Policy:
    """Who may do what. One for a crib; immutable, so that a decision depends on nothing but the call."""

    def __init__(self, rules: Rules | None = None, modes: Mapping[str, Mode] = MODES) -> None:
        """`modes` are those that a session may name."""
        self._rules = rules or Rules()
        self._modes = dict(modes)

    def mode(self, name: str) -> Mode:
        """Return a mode by its name; raises `UsageError` with the nearest one."""
        if name not in self._modes:
            near = get_close_matches(name, self._modes, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"there is no mode {name!r}, only {', '.join(sorted(self._modes))}{meant}")
        return self._modes[name]

    def decide(self, tool: Tool, arguments: Mapping[str, Any], session: SessionState) -> Decision:
        """Return the decision on this tool with these arguments. Never raises: what cannot be decided is denied.

        A deny, from a rule or remembered, comes first; then what a rule says; then a remembered `always`, which does
        not speak for a tool that asks always; then the mode.
        """
        try:
            return self._decide(tool, arguments, session)
        except Exception:  # noqa: BLE001 - the gate stays shut when it breaks
            _LOG.exception("the policy could not decide on %s", tool.name)
            return Decision(effect="deny", rule="the policy, which could not decide (see the log)")

    def _decide(self, tool: Tool, arguments: Mapping[str, Any], session: SessionState) -> Decision:
        ruled = self._rules.decide(tool, arguments)
        refused = session.remembered.get(tool.name) == "deny"
        if refused and (ruled is None or ruled.effect != "deny"):
            return Decision(effect="deny", rule=f"the answer 'never' for {tool.name} in this session")
        if ruled is not None:
            return ruled
        if session.remembered and session.remembered.get(approved_as(tool)) == "allow" and tool.approval != "always":
            return Decision(effect="allow", rule=f"the answer 'always' for {tool.name} in this session")
        return self.mode(session.mode).decide(tool)
