"""Settings of `toolcrib chat`: the model, and how its tools are presented."""

from __future__ import annotations

from ..core.settings import Section, Text, setting

__all__ = ["ChatSettings"]


class ChatSettings(Section):
    """The key `chat`. A key without a value takes the setting of all sessions."""

    model: Text = ""
    """`provider:name`, such as `anthropic:claude-sonnet-5-5`, or `local:name@http://127.0.0.1:11434/v1`."""
    profile: Text = setting("", changed_by="tool")
    """Profile of the chat's session."""
    mode: Text = ""
    """Mode of the chat's session."""
