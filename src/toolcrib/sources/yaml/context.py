"""What a class of a catalog is given beside its arguments: seed 004's tool context."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.context import Context

__all__ = ["ToolContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Who calls, and from where. Lives as long as one call."""

    session_id: str
    conversation_id: str
    """The same as the session: a conversation is what a session stands for here."""
    user_id: str
    """Whom the conversation serves, as the session says it, else the principal."""
    instance_id: str
    """Empty for a session without an instance."""
    call: Context
    """The rest: the deadline, progress, the client at the far end."""

    @classmethod
    def of(cls, context: Context) -> ToolContext:
        """Return what `context` is for a class of a catalog."""
        return cls(
            session_id=context.session_key,
            conversation_id=context.session_key,
            user_id=context.user or context.principal,
            instance_id=context.instance,
            call=context,
        )
