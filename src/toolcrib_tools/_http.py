"""HTTP helpers of the tools: addresses, headers, answer text, failures by status."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final, cast
from urllib.parse import urlencode, urlsplit

from pydantic import Field

from toolcrib.plugin import Context, Page, ToolFailure

HTML: Final = ("text/html", "application/xhtml+xml")
MOST_SECONDS: Final = 120
_MOST_HEADERS: Final = 30
_WRITTEN_BY_US: Final = frozenset(
    "accept-encoding connection content-length expect host keep-alive te trailer transfer-encoding upgrade".split()
)
"""Headers that say how the request travels: they must fit what is sent."""
_OTHER_METHOD: Final = frozenset(
    "x-http-method x-http-method-override x-method-override x-original-method x-original-url x-rewrite-url".split()
)
"""Headers by which some servers override the request's method or path, which were the ones that were approved."""
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_TEXT_TYPES: Final = re.compile(
    r"text/.*|application/(.*\+)?(json|xml|yaml|toml|graphql)|application/(x-)?(javascript|ecmascript|ndjson|yaml"
    r"|www-form-urlencoded|jsonl|json-lines|sh|httpd-php|sql)|image/svg\+xml|multipart/.*"
)
_META: Final = re.compile(rb"""<(?:meta[^>]+charset|\?xml[^>]+encoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_META_WITHIN: Final = 2048
"""Bytes; HTML requires the encoding declaration within the first 1,024."""
_BOMS: Final = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_MOST_SENT: Final = 1_000_000
"""Bytes of a body."""
_EXCERPT: Final = 1_000
"""Characters of an answer that says no."""

Headers = Annotated[dict[str, str], Field(max_length=_MOST_HEADERS)]
Seconds = Annotated[float, Field(gt=0, le=MOST_SECONDS)]


def address(url: str, *, is_given: bool = True) -> str:
    """Return `url` with a scheme and without a fragment. Raises `ToolFailure` for what no page can be had from.

    `is_given`: the caller gave it, and no answer of a server.
    """
    written = url.strip()
    if "://" not in written and not re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:(?!\d)", written):
        written = f"https://{written.removeprefix('//')}"
    try:
        parts = urlsplit(written)
        host = parts.hostname
    except ValueError as error:
        raise _no_address(f"url: {url!r} is not a URL: {error}", is_given) from None
    if parts.scheme not in ("http", "https") or not host:
        message = f"url: {url!r} is not a web address; it begins with https:// or http:// and a host"
        raise _no_address(message, is_given)
    return parts._replace(fragment="").geturl()


async def check_url(arguments: Mapping[str, Any], ctx: Context) -> None:
    """Raise the failure of a `url` that is never reached, before anyone is asked about it."""
    if url := str(arguments.get("url") or "").strip():
        await ctx.lent.web.check(address(url))


def _no_address(message: str, is_given: bool) -> ToolFailure:
    failure = ToolFailure("invalid_arguments", message)
    failure.sent = not is_given
    return failure


def origin_of(url: str) -> str:
    """Return scheme, host and port."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def checked_headers(headers: Mapping[str, str] | None, where: str = "headers") -> dict[str, str]:
    """Return headers by lower-case names. Raises `ToolFailure` for what no header can be, or is ours to write."""
    checked: dict[str, str] = {}
    for name, value in (headers or {}).items():
        lowered = name.strip().lower()
        if not _TOKEN.fullmatch(lowered):
            raise ToolFailure("invalid_arguments", f"{where}: {name!r} is not a header name")
        if lowered in _WRITTEN_BY_US:
            raise ToolFailure("invalid_arguments", f"{where}: {name} is written by the client itself; leave it out")
        if lowered.replace("_", "-") in _OTHER_METHOD:  # to some servers `_` is `-`
            message = f"{where}: {name} makes it another request"
            raise ToolFailure("invalid_arguments", message, hint="give that as the method, or in the address")
        if any(ord(mark) < 32 and mark != "\t" for mark in value) or "\x7f" in value:
            raise ToolFailure("invalid_arguments", f"{where}.{name}: a header has no line breaks or control characters")
        try:
            value.encode("latin-1")
        except UnicodeEncodeError:
            raise ToolFailure("invalid_arguments", f"{where}.{name}: a header is Latin-1 only") from None
        checked[lowered] = value.strip()
    return checked


def body_of(body: object) -> tuple[str, bytes]:
    """Return the content type and the bytes of a body: text as it is, all else as JSON; two empty ones for None.

    Raises `ToolFailure("too_large")`.
    """
    if body is None:
        return "", b""
    is_words = isinstance(body, str)
    content = (body if is_words else json.dumps(body, ensure_ascii=False)).encode("utf-8", "replace")
    if len(content) > _MOST_SENT:
        raise ToolFailure("too_large", f"body: {len(content):,} bytes; at most {_MOST_SENT:,} are sent")
    return ("text/plain; charset=utf-8" if is_words else "application/json"), content


def with_query(url: str, query: Mapping[str, Any]) -> str:
    """Return an address with parameters; those of a list are sent several times, None is not sent."""
    pairs = [
        (name, item if isinstance(item, str) else json.dumps(item, ensure_ascii=False))
        for name, value in query.items()
        for item in (cast("list[Any]", value) if isinstance(value, list) else [value])
        if item is not None
    ]
    return f"{url}{'&' if '?' in url else '?'}{urlencode(pairs)}" if pairs else url


def is_text(page: Page) -> bool:
    """True if the body is text, by its content type, else by its bytes."""
    if page.media_type and page.media_type != "application/octet-stream":
        return bool(_TEXT_TYPES.fullmatch(page.media_type))
    try:
        page.body.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in page.body


def text_of(page: Page) -> str:
    """Return the body as text: by its mark, its header, what it says of itself, else UTF-8 or Windows-1252."""
    body = page.body
    for mark, encoding in _BOMS:
        if body.startswith(mark):
            return body.decode(encoding, "replace")
    header = re.search(r"charset\s*=\s*[\"']?([\w.:-]+)", page.headers.get("content-type", ""), re.IGNORECASE)
    meta = _META.search(body[:_META_WITHIN])
    for name in (header and header[1], meta and meta[1].decode("latin-1"), "utf-8"):
        try:
            if name:
                return body.decode(name)
        except (LookupError, ValueError):
            continue
    return body.decode("cp1252", "replace")


def status_of(page: Page) -> str:
    """Return the status and its words: `404 Not Found`."""
    try:
        return f"{page.status} {HTTPStatus(page.status).phrase}"
    except ValueError:
        return str(page.status)


def failure_of(page: Page, readable: str = "") -> ToolFailure:
    """Return the failure for a refusing answer; `readable` is its text."""
    text = " ".join(readable.split())[:_EXCERPT]
    hints = {
        401: "it wants a login",
        403: "it does not let programs in, or wants a login",
        404: "search for the right address instead of guessing another",
        410: "it is gone; search for another address",
        429: "it was asked too often: wait, or use another source",
    }
    hint = hints.get(page.status, "it may work later" if page.status >= 500 else "")
    code = {404: "not_found", 410: "not_found", 429: "overloaded", 408: "timeout", 503: "unavailable"}.get(
        page.status, "tool_error"
    )
    message = f"{page.url} answered {status_of(page)}{f': {text}' if text else ''}"
    return ToolFailure(code, message, hint=hint, details={"status": page.status})


def window(text: str, offset: int, limit: int, room: int) -> tuple[str, int]:
    """Return the characters of `text` from `offset` on, at most `limit` of them and `room` bytes, and where they end.

    The end is moved back to a line end or a blank where one is near, so that the next page begins with a whole word.
    """
    piece = text[offset : offset + limit].encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
    end = offset + len(piece)
    if end < len(text):
        for mark in ("\n", " "):
            at = piece.rfind(mark)
            if at > len(piece) * 3 // 4:
                return piece[: at + 1], offset + at + 1
    return piece, end
