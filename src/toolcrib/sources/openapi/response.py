"""HTTP response of an API as the result of a call, with the arguments of its next page."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urljoin, urlsplit

from ...core.json import as_mapping, dumps, read_json
from ...core.patterns import regex
from ...core.result import ToolResult
from ...core.services.host import Page
from ...errors import ToolFailure
from .request import Operation
from .schemas import prose

_LINK: Final = regex(r"<([^<>]{1,4000})>\s*((?:;[^,<]{0,200}){0,8})")
_NEXT: Final = regex(r';\s*rel\s*=\s*"?(?:[^";]*\s)?next(?:\s[^";]*)?"?\s*(?:;|$)', re.IGNORECASE)
_TOKENS: Final = ("next_page_token", "nextPageToken", "next_cursor", "nextCursor")
"""Members of an answer that hold the next value of a parameter …"""
_TAKES: Final = ("page_token", "pageToken", "cursor", "after", "starting_after")
"""… and the parameters that take it."""

_EXCERPT: Final = 500
"""Characters of an error's body that the message quotes."""
_LOOKED_AT: Final = 8_000
"""Characters of an error page that are looked through for its words."""
_DETAIL_BYTES: Final = 4096
"""Up to this size an error's JSON body is handed on as it is."""
_TEXTS: Final = ("xml", "yaml", "javascript", "graphql", "x-www-form-urlencoded", "csv", "ndjson", "x-ndjson")
_CHARSET: Final = regex(r"charset\s*=\s*\"?([\w.:-]{1,40})", re.IGNORECASE)
_MARKUP: Final = regex(r"<(script|style)\b.{0,4000}?</\1\s{0,20}>|<[^<>]{0,500}>", re.IGNORECASE | re.DOTALL)
"""With bounds everywhere: the loop waits while it looks through an answer that was made to take long."""
_WORDS: Final = ("message", "detail", "error_description", "error", "title", "msg", "reason")


def next_arguments(
    operation: Operation, arguments: Mapping[str, Any], url: str, link: str, body: object
) -> Mapping[str, Any] | None:
    """Return the changed arguments for the next page; None for the last page, or if it cannot be determined.

    `link` is the `Link` header (RFC 8288); `url` the address of the answer.
    """
    query = {one.name: one.argument for one in operation.parameters if one.place == "query"}
    for target, attributes in _LINK.findall(link):
        if _NEXT.search(attributes):
            return _changed(query, arguments, urljoin(url, target))
    members = as_mapping(body)
    for name in ("next", "next_page", "@odata.nextLink"):
        target = members.get(name)
        if isinstance(target, str) and target.startswith(("http://", "https://", "/", "?")):
            return _changed(query, arguments, urljoin(url, target))
    for holder in (
        members,
        *(as_mapping(members.get(name)) for name in ("meta", "paging", "pagination", "response_metadata")),
    ):
        token = next((holder[name] for name in _TOKENS if isinstance(holder.get(name), str) and holder[name]), "")
        taking = next((query[name] for name in _TAKES if name in query), "")
        if token and taking:
            return {taking: token}
    return None


def _changed(query: Mapping[str, str], arguments: Mapping[str, Any], target: str) -> Mapping[str, Any] | None:
    """Return the arguments that `target`'s query changes; None when it needs an unknown parameter."""
    changed: dict[str, Any] = {}
    for name, value in parse_qsl(urlsplit(target).query):
        argument = query.get(name)
        if argument is None or str(arguments.get(argument)) == value:
            continue
        changed[argument] = int(value) if value.isdecimal() and len(value) < 16 else value
    return changed or None


def result_of(answer: Page, operation: Operation, arguments: Mapping[str, Any]) -> ToolResult:
    """Return the result that `answer` means; raises `ToolFailure` for every status but success."""
    if not 200 <= answer.status < 300:
        raise _failure(answer, operation)
    meta = {"http_status": answer.status}
    if not answer.body:
        return ToolResult.of_text(f"HTTP {answer.status} {_phrase(answer.status)}: done, nothing to show").with_meta(
            **meta
        )
    if _is_json(answer):
        try:
            value = read_json(answer.body, limit=len(answer.body))
        except ValueError:
            return ToolResult.of_text(_text(answer)).with_meta(**meta)
        return _of_json(value, answer, operation, arguments).with_meta(**meta)
    if _is_text(answer):
        return ToolResult.of_text(_text(answer)).with_meta(**meta)
    return ToolResult(content=(_block(answer),), meta=meta)


def _of_json(value: Any, answer: Page, operation: Operation, arguments: Mapping[str, Any]) -> ToolResult:
    structured: Any = value if answer.body.lstrip()[:1] in (b"{", b"[") else None
    result = ToolResult.of_text(dumps(value).decode(), structured_content=structured)
    following = next_arguments(operation, arguments, answer.url, answer.headers.get("link", ""), value)
    if following is None:
        return result
    note = f"[toolcrib: there are more. The next page: the same call with {dumps(following).decode()}]"
    content = (*result.content, {"type": "text", "text": note})
    return ToolResult(content=content, structured_content=structured, meta={"next": following})


def _failure(answer: Page, operation: Operation) -> ToolFailure:
    status = answer.status
    details: dict[str, Any] = {"status": status}
    reason = _reason(answer, details)
    message = f"HTTP {status} {_phrase(status)}" + (f": {reason}" if reason else "")
    if (seconds := _retry_after(answer.headers.get("retry-after", ""))) is not None:
        details["retry_after"] = seconds
    wait = f"Try again in {seconds:g} s." if seconds is not None else "Try again later."
    is_limited = status == 403 and (seconds is not None or answer.headers.get("x-ratelimit-remaining") == "0")
    if status in (408, 429, 503) or is_limited:
        return ToolFailure("unavailable", message, hint=wait, details=details)
    if status in (401, 403):
        hint = "The operator must check the credentials of this API." if status == 401 else ""
        return ToolFailure("denied", message, hint=hint, details=details)
    if status in (502, 504) and operation.method not in ("GET", "HEAD", "OPTIONS"):
        hint = "It may have been done all the same: look before you repeat it."
        return ToolFailure("outcome_unknown", message, hint=hint, details=details)
    if status in (502, 504):
        return ToolFailure("unavailable", message, hint=wait, details=details)
    if 300 <= status < 400:
        target = answer.headers.get("location", "")[:300]
        message = f"{message}: redirects to {target}, which is not followed" if target else message
    return ToolFailure("tool_error", message, details=details)


def _reason(answer: Page, details: dict[str, Any]) -> str:
    """The API's own words; its JSON goes into `details` when it is small."""
    if _is_json(answer):
        try:
            value = read_json(answer.body, limit=len(answer.body))
        except ValueError:
            value = None
        if value is not None:
            if len(answer.body) <= _DETAIL_BYTES:
                details["body"] = value
            return _sentence(value) or dumps(value).decode()[:_EXCERPT]
    if not _is_text(answer):
        return ""
    return prose(_MARKUP.sub(" ", _text(answer)[:_LOOKED_AT]), _EXCERPT)


def _sentence(value: Any) -> str:
    """The members of an error body that people write for people, at most three."""
    found: list[str] = []
    for members in (as_mapping(value), as_mapping(as_mapping(value).get("error"))):
        for name in _WORDS:
            text = members.get(name)
            if isinstance(text, str) and text.strip() and text.strip() not in found:
                found.append(text.strip())
    errors = as_mapping(value).get("errors")
    if errors and len(shown := dumps(errors).decode()) <= _EXCERPT:
        found.append(shown)
    return prose("; ".join(found[:3]), _EXCERPT)


def _retry_after(value: str) -> float | None:
    """Seconds from now: the header is a number of them, or a date."""
    if value.strip().isdecimal():
        return float(min(int(value), 10**9))
    try:
        at = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return float(max(0, round((at - datetime.now(UTC)).total_seconds())))


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "unknown status"


def _is_json(answer: Page) -> bool:
    kind = answer.media_type
    if kind:
        return kind.endswith(("/json", "+json"))
    return answer.body[:64].lstrip()[:1] in (b"{", b"[")


def _is_text(answer: Page) -> bool:
    kind = answer.media_type
    if kind.startswith("text/") or kind.endswith(("/json", "+json")) or kind.rpartition("/")[2] in _TEXTS:
        return True
    if kind.endswith("+xml") and not kind.startswith("image/"):
        return True
    if kind:
        return False
    try:
        answer.body.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in answer.body


def _text(answer: Page) -> str:
    named = _CHARSET.search(answer.headers.get("content-type", ""))
    try:
        return answer.body.decode(named[1] if named else "utf-8", "replace")
    except LookupError:
        return answer.body.decode("utf-8", "replace")


def _block(answer: Page) -> Mapping[str, Any]:
    """Bytes as the MCP content that fits them."""
    kind = answer.media_type or "application/octet-stream"
    data = base64.b64encode(answer.body).decode()
    if kind.startswith(("image/", "audio/")):
        return {"type": kind.partition("/")[0], "data": data, "mimeType": kind}
    parts = urlsplit(answer.url)
    uri = parts._replace(query="", fragment="").geturl()
    return cast("Mapping[str, Any]", {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "blob": data}})
