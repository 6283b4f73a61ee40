"""settings: of the assistant itself, in the runtime of the session."""

from __future__ import annotations

from typing import Any

from toolcrib import ToolFailure
from toolcrib.core.context import Context
from toolcrib.sources.yaml.run_code import ToolContext

__all__ = ["DENIED", "PROFILES", "get_setting", "switch_backend", "update_setting"]

PROFILES = ("local-ollama", "anthropic", "openai")
DENIED = frozenset(
    "apiKey fallbackApiKey huggingfaceToken baseUrl provider fallbackBaseUrl toolPermissions hooks scheduledTasks"
    " customTools customModes mcpServers outboundAllowlist systemPrompt delegateTask.enabled"
    " delegateTask.maxIterations delegateTask.workerBaseUrl delegateTask.workerModel".split()
)
"""Settings that no tool changes: secrets, who is talked to, permissions, and what runs by itself."""
_SECRETS = ("apiKey", "fallbackApiKey", "huggingfaceToken")
_DEFAULTS: dict[str, Any] = {"agentMode": "cautious", "model": "qwen3-coder:30b", "maxToolResultTokens": 4000}


def _settings(call: Context) -> dict[str, Any]:
    return call.runtime.setdefault("settings", dict(_DEFAULTS))


def get_setting(key: str, context: ToolContext) -> str:
    if key in _SECRETS:
        raise ToolFailure("tool_error", f"{key} is a secret and is not shown")
    settings = _settings(context.call)
    if key not in settings:
        raise ToolFailure("tool_error", f"there is no setting {key}", hint=f"there are {', '.join(sorted(settings))}")
    return f"{key} = {settings[key]}"


def update_setting(key: str, value: str | float | bool, context: ToolContext) -> str:
    if key in DENIED:
        raise ToolFailure("tool_error", f"{key} can only be changed by the user, in the settings")
    settings = _settings(context.call)
    before = settings.get(key)
    settings[key] = value
    return f"{key}: {before} -> {value}"


def switch_backend(profile: str, context: ToolContext) -> str:
    if profile not in PROFILES:
        raise ToolFailure("tool_error", f"there is no profile {profile}", hint=f"there are {', '.join(PROFILES)}")
    _settings(context.call)["backend"] = profile
    return f"Switched to {profile}."
