"""`web_post`: data sent to an address of the web."""

from __future__ import annotations

import json
from typing import Any, Final, Literal, cast
from urllib.parse import urlencode

from anyio import to_thread

from toolcrib.plugin import Context, ToolFailure, tool

from .._http import Headers, Seconds, address, checked_headers, failure_of, status_of
from .fetch import readable_text

__all__ = ["Encoding", "content_of", "web_post"]

Encoding = Literal["auto", "json", "form", "text"]

_MOST: Final = 1_000_000
"""Bytes of a body."""


@tool(
    op="x.web.post",
    category="web",
    kind="write",
    open_world=True,
    idempotent=False,
    traits=["untrusted", "outbound"],
    aliases=["fetch_url_post"],
    tags=["http", "post", "submit", "form", "webhook", "json"],
    timeout=150,
    examples=[
        {"url": "https://example.org/api/orders", "data": {"item": "rope", "count": 2}},
        {"url": "https://example.org/search", "data": {"q": "boats"}, "encoding": "form"},
    ],
    policy={
        "dont": ["Do not send secrets or private data unless the user asked for exactly that."],
        "edge_cases": [
            "A redirect is followed to the same site only.",
            "A failure status (400 and above) is an error that quotes the server's answer.",
        ],
    },
)
async def web_post(
    url: str,
    data: dict[str, Any] | list[Any] | str,
    ctx: Context,
    encoding: Encoding = "auto",
    headers: Headers | None = None,
    timeout_seconds: Seconds = 30,
) -> str:
    """Send data to a web address with POST, and return the answer as text.

    Args:
        url: Where to send it.
        data: What to send: an object or a list, or text that is sent as it is.
        encoding: How: json, form (fields of an object), or text; auto sends text as text and all else as JSON.
        headers: HTTP headers to send.
        timeout_seconds: How long the server may take.
    """
    target, sent = address(url), checked_headers(headers)
    kind, content = content_of(data, encoding)
    page = await ctx.lent.web.send(
        "POST", target, headers={"content-type": kind, **sent}, content=content, seconds=timeout_seconds
    )
    readable = await to_thread.run_sync(readable_text, page, abandon_on_cancel=True)
    if page.status >= 400:
        raise failure_of(page, readable.text)
    notes = [f"[{'; '.join(readable.notes)}]"] if readable.notes else []
    return "\n\n".join([f"{page.url} answered {status_of(page)}", *([readable.text] if readable.text else []), *notes])


def content_of(data: object, encoding: Encoding, where: str = "data") -> tuple[str, bytes]:
    """Return the content type and the bytes of a body. Raises `ToolFailure` for what cannot be sent that way."""
    is_text = isinstance(data, str)
    if encoding == "form":
        if not isinstance(data, dict):
            raise ToolFailure("invalid_arguments", f"{where}: a form is an object of fields")
        fields = cast("dict[str, Any]", data)
        pairs = [(name, _field(item)) for name, value in fields.items() for item in _items(value)]
        kind, text = "application/x-www-form-urlencoded", urlencode(pairs)
    elif encoding == "text" or (encoding == "auto" and is_text):
        if not is_text:
            raise ToolFailure("invalid_arguments", f"{where}: with encoding=text it is a text")
        kind, text = "text/plain; charset=utf-8", str(data)
    else:
        kind, text = "application/json", json.dumps(data, ensure_ascii=False)
    content = text.encode("utf-8", "replace")
    if len(content) > _MOST:
        raise ToolFailure("too_large", f"{where}: {len(content):,} bytes; at most {_MOST:,} are sent")
    return kind, content


def _items(value: Any) -> list[Any]:
    """A field that has several values is sent several times."""
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _field(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
