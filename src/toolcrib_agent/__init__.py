"""Agent: a model that works with the tools of a session until it has an answer.

    outcome = await Agent("anthropic:claude-sonnet-5-5", session).run("Which tests cover the parser?")

The names below load when they are first used: Pydantic AI takes a second, and a screen can be drawn before (`events`
and `limits` load nothing of it). Needs the extra `agent`.
"""

# pyright: reportUnsupportedDunderAll=false
# The names are typed in `__init__.pyi`; here they appear when they are asked for.

from importlib import import_module
from typing import Any

from toolcrib.core.extras import needs_extra

_MODULE_OF_NAME = {
    "Agent": "agent",
    "AgentLimits": "limits",
    "Outcome": "events",
    "Stream": "agent",
    "Usage": "limits",
    "dump": "messages",
    "load": "messages",
    "model_of": "models",
}

__all__ = list(_MODULE_OF_NAME)


def __getattr__(name: str) -> Any:
    """Load a public name from where it lives."""
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module 'toolcrib_agent' has no attribute {name!r}")
    with needs_extra("agent"):
        value = getattr(import_module(f".{_MODULE_OF_NAME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
