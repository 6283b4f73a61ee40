"""Scheduled task of an agent: run without a person, with the model of the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anyio import to_thread

from toolcrib import Session, Settings, ToolResult
from toolcrib.errors import ToolFailure, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic_ai.models import Model

    from .agent import Agent

_INSTRUCTIONS: Final = (
    "You do a scheduled task. No person is there to answer or to approve: do it alone, and answer with what you did,"
    " what you found, and what you could not do."
)


async def run_task(session: Session, prompt: str, *, model: Model | str = "") -> ToolResult:
    """Run an agent in a session of its own with the rights of `session`. The target of an entry point.

    `model` is used instead of that of the configuration. Raises `ToolFailure("unavailable")` if there is none, or
    it cannot be used.
    """
    named = model or await configured_model(session.parts.settings)
    try:
        loaded_model, agent_type, child_of = await to_thread.run_sync(_load_agent, named)
        async with child_of(session) as child:
            child.state.scope.contexts -= {"schedule"}  # the tool that brought it here is not for it
            child.state.audience.is_client = True  # a call that asks waits in the store
            outcome = await agent_type(loaded_model, child, instructions=_INSTRUCTIONS).run(prompt)
    except (ImportError, UsageError) as error:
        raise ToolFailure("unavailable", f"the model cannot be used: {error}") from error
    return outcome.result()


async def configured_model(settings: Settings) -> str:
    """Return the name of the model that the configuration chooses. Raises `ToolFailure("unavailable")` without one."""
    from .chat.model_discovery import find_model  # a chat's choice; what it imports is not needed before

    choice = await find_model(settings)
    if choice is None:
        hint = "set chat.model in the configuration, or the variable of an API's key"
        raise ToolFailure("unavailable", "there is no model for the task", hint=hint)
    return choice.model


def _load_agent(named: Model | str) -> tuple[Model, type[Agent], Callable[[Session], Session]]:
    """Return the model and what runs it. Their imports take seconds: call it in a thread."""
    from toolcrib.agents import child_of

    from .agent import Agent
    from .models import model_of

    return model_of(named), Agent, child_of
