"""Robots exclusion of a site: its robots.txt (RFC 9309), read by Protego (extra `web`).

The default is to warn the model and go on: a user asked for the page, as with a browser. With
`tools: {web: {robots: obey}}` a page that a site closes to programs is not fetched; `ignore` does not even ask.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Final, Literal, get_args

from toolcrib.plugin import Context, ToolFailure, as_mapping

from .._extras import optional
from .._http import origin_of, text_of

_Manner = Literal["state", "obey", "ignore"]
_AGENT: Final = "toolcrib"
_SECONDS: Final = 5.0
_MOST: Final = 500 * 1024
"""Bytes of a robots.txt that are read: what RFC 9309 wants at least."""
_KEPT: Final = 200
"""Sites that a session remembers."""
_RUNTIME: Final = "robots@toolcrib_tools"


def settings_of(ctx: Context) -> Mapping[str, Any]:
    """Return the configuration under `tools: {web: …}`."""
    return as_mapping(ctx.lent.setting("web"))


async def robots_note(ctx: Context, url: str) -> str:
    """Return a sentence about the site's rules, for the model; empty if they allow the page.

    Raises `ToolFailure("denied")` if that is to be obeyed and the site says no, or does not say what it wants.
    """
    manner = settings_of(ctx).get("robots", "state")
    if manner not in get_args(_Manner):
        raise ToolFailure("unavailable", f"the setting tools.web.robots is {manner!r}; it is state, obey or ignore")
    if manner == "ignore":
        return ""
    sites: MutableMapping[str, Any] = ctx.runtime.setdefault(_RUNTIME, {})
    origin = origin_of(url)
    if origin not in sites:
        if len(sites) >= _KEPT:
            sites.clear()
        sites[origin] = await _read(ctx, origin, is_needed=manner == "obey")
    rules = sites[origin]
    if rules == "":
        return ""
    if rules is None:
        reason = f"{origin}/robots.txt could not be read: what the site wants of programs is not known"
    elif not rules.can_fetch(url, _AGENT):
        reason = f"{origin}/robots.txt asks programs not to fetch this page"
    else:
        return ""
    if manner == "obey":
        raise ToolFailure("denied", reason, hint="use another source; the operator's setting is tools.web.robots")
    return reason


async def _read(ctx: Context, origin: str, *, is_needed: bool) -> Any:
    """Return the site's rules; an empty text if it has none, None if they are unknown.

    Without the library that reads them nothing is known of any site: that is a failure only where they are needed.
    """
    try:
        protego = optional("protego", "web")
    except ToolFailure:
        if is_needed:
            raise
        return ""
    try:
        page = await ctx.lent.web.send("GET", f"{origin}/robots.txt", seconds=_SECONDS)
    except ToolFailure:
        return None
    if page.status >= 500:
        return None
    if page.status >= 400 or not page.body:
        return ""
    return protego.Protego.parse(text_of(page)[:_MOST])
