"""Agent that no person waits for: a task of a schedule, with the model of the configuration."""

from __future__ import annotations

from toolcrib.core.result import ToolResult
from toolcrib.crib import Session
from toolcrib.errors import ToolFailure, UsageError

__all__ = ["run_task"]

_INSTRUCTIONS = (
    "You do a scheduled task. No person is there to answer or to approve: do it alone, and answer with what you did,"
    " what you found, and what you could not do."
)


async def run_task(session: Session, prompt: str) -> ToolResult:
    """Run an agent in a session of its own with the rights of `session`. The target of an entry point.

    Raises `ToolFailure("unavailable")` where no model is configured or it cannot be used.
    """
    from .chat.model_discovery import find_model  # with the agent, which takes seconds to load: few processes need it

    choice = await find_model(session.parts.settings)
    if choice is None:
        hint = "set chat.model in the configuration, or the variable of an API's key"
        raise ToolFailure("unavailable", "there is no model for the task", hint=hint)
    try:
        from .agent import Agent
        from .session_agent import child_of

        async with child_of(session) as child:
            child.state.scope.contexts -= {"schedule"}  # the tool that brought it here is not for it
            child.state.audience.is_client = True  # a call that asks waits in the store
            outcome = await Agent(choice.model, child, instructions=_INSTRUCTIONS).run(prompt)
    except (ImportError, UsageError) as error:
        raise ToolFailure("unavailable", f"model {choice.model!r} cannot be used: {error}") from error
    if outcome.stopped == "failed":
        raise ToolFailure("unavailable", outcome.text)
    note = "" if outcome.is_complete else f"\n[The agent did not come to an end by itself: {outcome.reason}.]"
    return ToolResult.of_text(f"{outcome.text}{note}")
