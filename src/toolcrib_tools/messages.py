"""Messages to people: Discord, Slack, mail, webhooks and the other services of Apprise (extra `messaging`).

    tools:
      messaging:
        channels: {team: "${TEAM_URL}", ann: ["mailto://…", "slack://…"]}     # addresses as Apprise writes them
        default: team

The model knows channels by their names. Their addresses are secrets: they are in no result and in no log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal, cast

from anyio import to_thread
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, as_mapping, did_you_mean, tool

from ._extras import lacks_any, lacks_library, lacks_setting, optional

__all__ = ["send_message"]

_SETTING: Final = "tools.messaging"
_CONTENT: Final = 40_000
_TITLE: Final = 200
_HOW_TO: Final = (
    'the operator can name one: `tools: {messaging: {channels: {team: "discord://…"}}}`, with an address of Apprise'
)


@tool(
    lacks=lacks_any(lacks_setting("messaging", "channels"), lacks_library("apprise", "messaging")),
    op="x.message.send",
    category="messaging",
    kind="write",
    open_world=True,
    idempotent=False,
    traits=["outbound"],
    tags=["notify", "discord", "slack", "email", "chat", "webhook", "post"],
    timeout=120,
    examples=[
        {"content": "The build is green again."},
        {"channel_id": "team", "title": "Release", "content": "**2.1** is out.", "format": "markdown"},
    ],
    policy={
        "do": ["Say in the first line what it is about; the reader has not seen this conversation."],
        "dont": ["Do not send again because no answer came: answers do not arrive here.", "Do not send secrets."],
        "edge_cases": ["When one of several addresses of a channel fails, the failure says which were sent."],
    },
)
async def send_message(
    content: Annotated[str, Field(min_length=1, max_length=_CONTENT)],
    ctx: Context,
    channel_id: str = "",
    title: Annotated[str, Field(max_length=_TITLE)] = "",
    format: Literal["text", "markdown", "html"] = "text",
    level: Literal["info", "success", "warning", "failure"] = "info",
) -> str:
    """Send a message to a channel that the operator has set up: Discord, Slack, mail, a webhook …

    Args:
        content: The message.
        channel_id: Name of the channel; the default one when not given.
        title: Title, or the subject of a mail.
        format: How the message is written.
        level: What kind of news it is; some channels show it as a colour or a sign.
    """
    if not content.strip():
        raise ToolFailure("invalid_arguments", "content: it is blank")
    name, addresses = _channel(ctx, channel_id.strip())
    message = {"body": content, "title": title, "body_format": format, "notify_type": level}
    done = await to_thread.run_sync(partial(_send, name, addresses, message), abandon_on_cancel=True)
    sent = [service for service, was_sent in done if was_sent]
    lost = [service for service, was_sent in done if not was_sent]
    if lost:
        but = f"; it was sent through {', '.join(sent)}" if sent else ""
        raise ToolFailure(
            "tool_error",
            f"{name}: {', '.join(lost)} did not take the message{but}",
            hint="tell the user; the operator can look at the address in the configuration",
            details={"sent": sent, "failed": lost},
        )
    return f"sent to {name} through {', '.join(sent)}"


def _channel(ctx: Context, wanted: str) -> tuple[str, Sequence[str]]:
    """Return the name and the addresses of a channel. Raises `ToolFailure`; an address is never quoted."""
    given = as_mapping(ctx.lent.setting("messaging"))
    found: Any = given.get("channels") or {}
    if not isinstance(found, Mapping):
        raise ToolFailure("unavailable", f"the setting {_SETTING}.channels is not a mapping of names to addresses")
    channels = {str(name): value for name, value in cast("Mapping[Any, Any]", found).items()}
    if not channels:
        raise ToolFailure("unavailable", "no channel is configured", hint=_HOW_TO)
    name = wanted or str(given.get("default") or (next(iter(channels)) if len(channels) == 1 else ""))
    if not name:
        raise ToolFailure("invalid_arguments", "channel_id: there are several", hint=f"one of {', '.join(channels)}")
    if name not in channels:
        message = f"channel_id: there is no {name!r}{did_you_mean(name, channels)}"
        raise ToolFailure("not_found", message, hint=f"there are {', '.join(channels)}")
    value = channels[name]
    addresses = cast("list[Any]", value) if isinstance(value, list) else [value]
    if not addresses or not all(isinstance(address, str) and address for address in addresses):
        raise ToolFailure(
            "unavailable", f"the setting {_SETTING}.channels.{name} is not an address, or list of addresses"
        )
    return name, cast("Sequence[str]", addresses)


def _send(name: str, addresses: Sequence[str], message: Mapping[str, str]) -> list[tuple[str, bool]]:
    """Send to each address; return the names of the services, and whether they took it. Call in a thread.

    Long messages become several where the service has a limit, unless the address says otherwise (`overflow=`).
    """
    apprise = optional("apprise", "messaging")
    asset = apprise.AppriseAsset(async_mode=False, storage_mode=apprise.PersistentStoreMode.MEMORY)
    targets: list[Any] = []
    for number, address in enumerate(addresses, 1):
        target = apprise.Apprise.instantiate(address, asset=asset)
        if target is None:
            which = f"{_SETTING}.channels.{name}" + (f"[{number - 1}]" if len(addresses) > 1 else "")
            raise ToolFailure(
                "unavailable", f"the setting {which} is not an address that Apprise understands", hint=_HOW_TO
            )
        if "overflow=" not in address:
            target.overflow_mode = apprise.OverflowMode.SPLIT
        targets.append(target)
    done: list[tuple[str, bool]] = []
    for target in targets:
        outbox = apprise.Apprise(asset=asset)
        outbox.add(target)
        done.append((str(target.service_name), bool(outbox.notify(**message))))
    return done
