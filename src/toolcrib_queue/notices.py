"""Notices to people: a question or a result that waits for a person goes to the channel of its project.

`edit_project` names the channel (`discord_channel_id`), `tools: {messaging: …}` of the configuration has its address. A
notice is a call of `send_message` under the rules of the session. Where it cannot be sent, all else is as it was.
"""

from __future__ import annotations

from typing import Any, Final

from toolcrib.plugin import Context

from .operations import storage_of

_SHOWN: Final = 2000


async def send_notice(ctx: Context, project_id: str, title: str, text: str) -> dict[str, Any]:
    """Send a notice to the channel of a project; return what a result says about it, nothing without a channel."""
    project = await storage_of(ctx).read(lambda rows: rows.find("projects", project_id))
    channel = project["discord_channel_id"] if project else None
    if not channel:
        return {}
    message = {"channel_id": channel, "title": title[:200], "content": text[:_SHOWN], "level": "warning"}
    sent = await ctx.call("send_message", message)
    if sent.error is None:
        return {"notified": channel}
    return {"notified": None, "warning": f"channel {channel}: {sent.error.message}"}
