"""Loader of the chat's agent and model, run after the first screen is drawn (imports take 2 to 5 s, measured)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anyio import to_thread

from toolcrib.errors import UsageError

from .chat_session import ChatAgent, ChatSession
from .model_discovery import local_models

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from ..agent import Agent

__all__ = ["load_agent"]

_LOCAL: Final = ("local:", "ollama:")
"""Models that delegate nothing to one on this machine: they are there themselves."""


async def load_agent(chat: ChatSession) -> ChatAgent:
    """Make an agent for the session and the model of `chat`. Raises `UsageError` if there can be none."""
    if chat.choice is None:
        raise UsageError("there is no model")
    named = chat.choice.model

    def load() -> tuple[Model, type[Agent]]:
        # Pydantic AI and the model's client take seconds to import: in a thread, so that the first screen stays alive.
        from ..agent import Agent
        from ..models import model_of

        return model_of(named), Agent

    try:
        model, agent_type = await to_thread.run_sync(load)
    except UsageError:
        raise
    except ImportError as error:
        raise UsageError(f"what talks to models is not installed ({error}): install the extra `chat`") from error
    except Exception as error:  # what a model's client makes of its variables is its own business
        raise UsageError(f"model {named!r} cannot be used: {error}") from error
    local = [] if named.startswith(_LOCAL) else await local_models(chat.settings.environment)
    agent: ChatAgent = agent_type(model, chat.session, local=local[0].model if local else None)
    return agent
