"""The right to run: minted for an allowed call, asked for where the decision is ask."""

from __future__ import annotations

from ...core.call import Call
from ...policy.approval import Approvals, Revise
from ...policy.grant import mint

__all__ = ["Approve"]


class Approve:
    """The last step before the execution."""

    def __init__(self, approvals: Approvals, revise: Revise) -> None:
        """`approvals` asks whoever may decide; `revise` validates and decides anew where he changed the arguments."""
        self._approvals = approvals
        self._revise = revise

    async def __call__(self, call: Call) -> Call:
        """Return the call with its grant; raises `ToolFailure` when nobody grants it.

        An approval that was given before is used up even where a rule allows the call by now.
        """
        decision = call.decision
        if decision is not None and decision.effect == "allow" and not call.approval:
            return call.evolve(grant=mint(call.id, call.target, call.arguments, decision.rule))
        return await self._approvals.ask(call, self._revise)
