"""Pages that somebody wanted to keep: read again in later conversations without asking their servers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from toolcrib.plugin import Context, Page, ToolFailure

from .._http import is_text, text_of
from .._records import date_of

__all__ = ["keep_page", "kept_page"]

_COLLECTION: Final = "web_pages"
_MOST: Final = 200
"""Pages of one owner; the one that was kept longest ago goes first."""
_MOST_CHARACTERS: Final = 250_000
"""Of one page: a record has room for 1 MiB."""


async def keep_page(ctx: Context, target: str, sent: Mapping[str, str], page: Page) -> str:
    """Keep a page as it is now; return a note of what came of it."""
    if not is_text(page):
        return "it is not kept: it is no text"
    text = text_of(page)
    if len(text) > _MOST_CHARACTERS:
        return f"it is not kept: it has more than {_MOST_CHARACTERS:,} characters"
    records = ctx.records(_COLLECTION)
    value = {"url": page.url, "type": page.media_type, "text": text}
    await records.put(_key(target, sent), value, group=target[:500])
    for old in (await records.list(limit=_MOST + 20))[_MOST:]:
        await records.remove(old.id)
    return "it is kept for later conversations"


async def kept_page(ctx: Context, target: str, sent: Mapping[str, str]) -> tuple[Page, str] | None:
    """Return a page that was kept, and a note of when; None where there is none."""
    try:
        found = await ctx.records(_COLLECTION).get(_key(target, sent))
    except ToolFailure as failure:
        if failure.code != "storage":
            raise
        return None  # the web is still there
    if found is None:
        return None
    kind = f"{found.value['type'] or 'text/html'}; charset=utf-8"
    body = str(found.value["text"]).encode("utf-8", "replace")
    page = Page(status=200, url=str(found.value["url"]), headers={"content-type": kind}, body=body)
    return page, f"as it was kept on {date_of(found.updated)}; no_cache=true fetches it anew"


def _key(target: str, sent: Mapping[str, str]) -> str:
    """Name a page by all that decides what a server answers; headers may be secrets, and go in through the hash."""
    return hashlib.sha256(json.dumps([target, sorted(sent.items())]).encode()).hexdigest()
