"""ask_user: the one question that is not about a permission."""

from __future__ import annotations

from toolcrib.sources.yaml.run_code import ToolContext

__all__ = ["ask_user"]

_SHOWN = 5


async def ask_user(question: str, options: list[str], context: ToolContext, allow_custom: bool = True) -> str:
    return await context.call.clarify(question, tuple(options[:_SHOWN]), allow_custom=allow_custom)
