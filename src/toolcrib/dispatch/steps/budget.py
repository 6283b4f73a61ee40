"""How much a session may still use: calls in all and by tool. Counted when a call passes, whatever becomes of it."""

from __future__ import annotations

from ...core.call import Call
from ...core.session import SessionState
from ...errors import ToolFailure

__all__ = ["check_budget", "check_left"]


async def check_budget(call: Call) -> Call:
    """Return the call; raises `ToolFailure` with what else could be done when a budget is used up."""
    check_left(call.session, call.target.name)
    call.session.spent[call.target.name] += 1
    return call


def check_left(session: SessionState, name: str) -> None:
    """Raise `ToolFailure` when the budget has no further call of the tool; counts nothing."""
    limits, spent = session.limits, session.spent
    if limits.calls is not None and spent.total() >= limits.calls:
        raise ToolFailure(
            "budget_exceeded",
            f"this session has used its {limits.calls} calls",
            hint="answer with what you have, or ask the user for more",
        )
    ceiling = limits.calls_per_tool.get(name)
    if ceiling is not None and spent[name] >= ceiling:
        raise ToolFailure(
            "budget_exceeded",
            f"{name} was called {spent[name]} times, its budget in this session is {ceiling}",
            hint="try another tool or ask the user",
        )
