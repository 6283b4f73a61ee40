"""Whether there is budget left for this call, and whether the turns lead anywhere. Refused before anybody is asked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from ...core.budget import NO_LOOPS
from ...core.call import Call
from ...core.json import canonical
from ...core.session import SessionState
from ...disclosure.base import Profile
from ...errors import ToolFailure
from ...jobs.tools import SOURCE as JOBS
from ..spending import Spending

__all__ = ["CheckBudget"]


class CheckBudget:
    """The step that counts."""

    def __init__(self, spending: Spending, profile_of: Callable[[SessionState], Profile]) -> None:
        """`spending` knows what was used; the profile says when a model goes round in circles."""
        self._spending = spending
        self._profile_of = profile_of

    async def __call__(self, call: Call) -> Call:
        """Return the call with its share taken; raises `ToolFailure` with what else could be done."""
        if call.job_seconds is not None:  # a job that is made anew: it took its share when it was accepted
            return call
        if call.place:
            self._check_loops(call)
        return await self._spending.take(call)

    def _check_loops(self, call: Call) -> None:
        """Look at the turns of a model: what is sent one by one is no turn."""
        loops = self._profile_of(call.session).loops
        if loops is NO_LOOPS or call.target.source == JOBS:  # to ask for a job again and again is to wait for it
            return
        if loops.burst is not None and call.place > loops.burst:
            raise ToolFailure(
                "budget_exceeded",
                f"one turn may make {loops.burst} calls, this was number {call.place}; it did not run",
                hint="read the results of the others first, then make the calls that are still needed",
            )
        session = call.session
        if call.place == 1:
            session.turn.clear()
        made = hashlib.blake2b(canonical([call.target.name, call.arguments]), digest_size=16).digest()
        if made in session.turn:  # twice in one turn is no circle: the model has seen no result between
            return
        circle = loops.found(session.turns, made)
        if circle:
            raise ToolFailure(
                "budget_exceeded",
                f"{call.name} did not run: {circle}",
                hint="its results are above; try another tool or other arguments, or ask the user",
            )
        session.turn.add(made)
        session.turns.append(made)
        while len(session.turns) >= loops.window:
            session.turns.popleft()
