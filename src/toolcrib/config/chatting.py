"""What our own file says of `toolcrib chat`: which model it talks to, and how that is shown the tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .value import Value

__all__ = ["ChatSettings", "chat_key"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """The key `chat`. What is empty is looked for, or is as for everybody else."""

    model: str = ""
    """`provider:name`, such as `anthropic:claude-sonnet-5-5`, or `local:name@http://127.0.0.1:11434/v1`."""
    profile: str = ""
    mode: str = ""


def chat_key(value: Value) -> dict[str, Any]:
    """Read the key. Raises `ConfigError` naming what is wrong in it."""
    members = value.members(tuple(ChatSettings.__dataclass_fields__))
    return {"chat": {name: inner.text() for name, inner in members if inner.value is not None}}
