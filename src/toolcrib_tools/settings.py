"""User configuration: read without secrets; harmless keys can be changed, each time with the user's approval.

What decides what is allowed, who reaches what and where things go is for the user alone; see `config.keys`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from toolcrib.plugin import Context, tool

__all__ = ["get_config", "get_setting", "switch_backend", "update_setting"]

_OF_SESSION: Final = ("mode", "profile")
"""Keys that a session may have another value of than the configuration."""
_Key = Annotated[str, Field(min_length=1, max_length=200)]


@tool(
    op="x.config.get",
    category="system",
    kind="read",
    open_world=False,
    idempotent=False,
    tags=["configuration", "settings", "options", "list"],
    examples=[{}, {"section": "results"}],
    policy={"edge_cases": ["Keys that hold secrets are left out: tokens, the store, settings of single tools."]},
)
async def get_config(ctx: Context, section: Annotated[str, Field(max_length=200)] = "") -> dict[str, Any]:
    """Show the configuration that Toolcrib works with now, defaults included and secrets left out.

    Args:
        section: One key, such as "results"; everything when empty.
    """
    configuration = ctx.lent.configuration(ctx.principal)
    return {section: configuration.get(section).value} if section else dict(configuration.all())


@tool(
    op="x.setting.get",
    category="settings",
    kind="read",
    open_world=False,
    idempotent=False,
    tags=["configuration", "option", "preference", "show"],
    examples=[{"key": "profile"}, {"key": "results.keep"}, {"key": "jobs.retries.attempts"}],
    policy={"edge_cases": ["What update_setting has changed is the value from the next start on; this is today's."]},
)
async def get_setting(key: _Key, ctx: Context) -> dict[str, Any]:
    """Tell the value of one setting, and whether update_setting can change it.

    Args:
        key: Its dotted name, such as "profile", "mode" or "results.keep".
    """
    setting = ctx.lent.configuration(ctx.principal).get(key)
    answer: dict[str, Any] = {"key": setting.key, "value": setting.value, "can_be_changed": not setting.fixed}
    if key in _OF_SESSION:
        here = (await ctx.lent.insight(ctx.principal, ctx.session_key).status())["session"][key]
        answer |= {"value": here, "configured": setting.value}
    return {**answer, "why_not": setting.fixed} if setting.fixed else answer


@tool(
    op="x.setting.update",
    category="settings",
    kind="write",
    open_world=False,
    approval="always",
    tags=["configuration", "option", "preference", "change", "set"],
    examples=[{"key": "profile", "value": "tiered"}, {"key": "results.keep", "value": "30d"}],
    policy={
        "do": ["get_setting first: it says whether the setting can be changed at all."],
        "dont": ["Use it to be allowed more: rules, modes, limits, tokens and servers are the user's alone."],
        "edge_cases": ["It holds from the next start on; comments and order of the file stay."],
    },
)
async def update_setting(key: _Key, value: str | int | float | bool, ctx: Context) -> dict[str, Any]:
    """Change one setting in the user's configuration file. The user is asked every time.

    Args:
        key: Its dotted name; get_setting says whether it can be changed.
        value: The new value: a text such as "30d", a number, or true or false.
    """
    changed = await ctx.lent.configuration(ctx.principal).update(key, value)
    return {
        "key": changed.key,
        "before": changed.before,
        "after": changed.value,
        "file": changed.file,
        "note": "it holds from the next start of Toolcrib on",
    }


@tool(
    op="x.setting.switch_backend",
    category="settings",
    kind="write",
    open_world=False,
    approval="always",
    tags=["model", "provider", "backend", "llm", "change"],
    examples=[{"profile": "local"}],
    policy={"edge_cases": ["Only models can be chosen that the operator has listed; a wrong name tells which."]},
)
async def switch_backend(profile: Annotated[str, Field(min_length=1, max_length=200)], ctx: Context) -> dict[str, Any]:
    """Let the chat ask another model from its next start on. The user is asked every time.

    Args:
        profile: One of the backends that are listed in the configuration.
    """
    changed = await ctx.lent.configuration(ctx.principal).switch(profile)
    return {
        "backend": profile,
        "model": changed.value,
        "before": changed.before,
        "file": changed.file,
        "note": "`toolcrib chat` asks it from its next start on",
    }
