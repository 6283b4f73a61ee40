"""The right to run: minted for an allowed call, asked for where the decision is ask."""

from __future__ import annotations

from ...core.call import Call
from ...policy.approval import Approvals
from ...policy.grant import mint

__all__ = ["Approve"]


class Approve:
    """The last step before the execution."""

    def __init__(self, approvals: Approvals) -> None:
        """`approvals` asks whoever may decide."""
        self._approvals = approvals

    async def __call__(self, call: Call) -> Call:
        """Return the call with its grant; raises `ToolFailure` when nobody grants it."""
        decision = call.decision
        if decision is not None and decision.effect == "allow":
            return call.evolve(grant=mint(call.id, call.target, call.arguments, decision.rule))
        return call.evolve(grant=await self._approvals.ask(call))
