"""What the rules and the mode say of this call. A deny ends here, naming the rule; nobody is asked."""

from __future__ import annotations

from ...core.call import Call
from ...errors import ToolFailure
from ...policy.decide import Policy
from ..pipeline import Refused

__all__ = ["Decide"]


class Decide:
    """Attach the decision to the call."""

    def __init__(self, policy: Policy) -> None:
        """`policy` holds the rules and the modes."""
        self._policy = policy

    async def __call__(self, call: Call) -> Call:
        """Return the call with its decision; raises `ToolFailure` when it is a deny."""
        decision = self._policy.decide(call.target, call.arguments, call.session)
        if decision.effect == "deny":
            failure = ToolFailure(
                "denied",
                f"{call.name} is denied by {decision.rule}",
                hint="do not try another way to the same effect; ask the user",
                details={"rule": decision.rule},
            )
            raise Refused(failure, call.evolve(decision=decision))  # so that the record names who denied it
        return call.evolve(decision=decision)
