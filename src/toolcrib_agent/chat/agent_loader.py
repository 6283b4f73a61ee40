"""Loader of the chat's agent and model, run after the first screen is drawn (imports take 2 to 5 s, measured)."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from anyio import to_thread

from toolcrib.errors import UsageError

from .chat_session import ChatAgent, ChatSession
from .model_discovery import local_models

__all__ = ["load_agent"]

_LOCAL: Final = ("local:", "ollama:")
"""Models that delegate nothing to one on this machine: they are there themselves."""


async def load_agent(chat: ChatSession) -> ChatAgent:
    """Make an agent for the session and the model of `chat`. Raises `UsageError` if there can be none."""
    if chat.choice is None:
        raise UsageError("there is no model")
    named = chat.choice.model

    def made() -> Any:
        return import_module("toolcrib_agent.models").model_of(named)

    try:
        model = await to_thread.run_sync(made)
        module: Any = await to_thread.run_sync(import_module, "toolcrib_agent.agent")
    except UsageError:
        raise
    except ImportError as error:
        raise UsageError(f"what talks to models is not installed ({error}): pip install 'toolcrib[chat]'") from error
    except Exception as error:  # what a model's client makes of its variables is its own business
        raise UsageError(f"model {named!r} cannot be used: {error}") from error
    local = [] if named.startswith(_LOCAL) else await local_models(chat.settings.environment)
    agent: ChatAgent = module.Agent(model, chat.session, local=local[0].model if local else None)
    return agent
