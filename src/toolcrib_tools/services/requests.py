"""Requests to services: previewed and sent."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from toolcrib.plugin import ApiRequest, Context, ToolFailure, ToolResult, tool

from .._http import (
    MOST_SECONDS,
    Headers,
    Seconds,
    address,
    body_of,
    checked_headers,
    failure_of,
    is_text,
    status_of,
    text_of,
    with_query,
)
from .collection import of_first, places_of, service_of
from .endpoints import Method

__all__ = ["call_service", "preview_request"]

_MASK: Final = "***"
_SECRET: Final = ("authorization", "cookie", "key", "secret", "token", "password")

_Path = Annotated[str, Field(max_length=4_000)]
_Query = dict[str, Any]
_Body = dict[str, Any] | list[Any] | str


@tool(
    op="x.service.call",
    category="api",
    kind="destructive",
    open_world=True,
    idempotent=False,
    traits=["by_method", "outbound", "untrusted"],
    tags=["http", "rest", "request", "endpoint", "openapi"],
    timeout=MOST_SECONDS + 30,
    examples=[
        {"service": "github", "method": "GET", "path": "/repos/psf/black/issues", "query": {"state": "open"}},
        {"service": "shop", "method": "POST", "path": "/orders", "body": {"item": "rope", "count": 2}},
    ],
    policy={
        "do": ["Look at get_endpoint_schema first where you do not know what an endpoint takes."],
        "dont": ["Do not write keys or passwords into headers, query or body: configure_service_auth sets up a login."],
        "edge_cases": [
            "GET, HEAD and OPTIONS count as reading, POST, PUT and PATCH as writing, DELETE as destroying.",
            "A request that does not fit the description is refused before anything is sent.",
            "After a failure of a write that is `outcome_unknown` or a timeout, look before you repeat it.",
        ],
    },
)
async def call_service(
    method: Method,
    ctx: Context,
    service: Annotated[str, Field(max_length=100)] = "",
    path: _Path = "",
    url: Annotated[str, Field(max_length=8_000)] = "",
    query: _Query | None = None,
    headers: Headers | None = None,
    body: _Body | None = None,
    timeout_seconds: Seconds = 30,
) -> ToolResult:
    """Call an endpoint of a service that was discovered, with its login, or send a request to any public address.

    Args:
        method: HTTP method.
        service: Alias of the service; else give url.
        path: Path of the endpoint, with the places filled in or as list_endpoints shows it, or the endpoint's name.
        url: Whole address, where there is no service. No login goes along.
        query: Parameters of the query, and values for {places} in the path.
        headers: HTTP headers to send.
        body: What to send: an object or a list as the endpoint takes it, or text.
        timeout_seconds: How long the request may take.
    """
    target = _target(service, url, path)
    if target:
        return await _send(ctx, method, target, (query, headers, body), timeout_seconds)
    request, apis = _request(method, path, (query, headers, body)), ctx.lent.apis
    places = await places_of(ctx, await service_of(ctx, service))
    return await of_first(places, lambda place: apis.call(place, request, timeout_seconds))


@tool(
    op="x.service.preview",
    category="api",
    kind="read",
    open_world=False,
    tags=["http", "rest", "curl", "dry run", "request"],
    examples=[{"service": "shop", "method": "POST", "path": "/orders", "body": {"item": "rope", "count": 2}}],
)
async def preview_request(
    method: Method,
    ctx: Context,
    service: Annotated[str, Field(max_length=100)] = "",
    path: _Path = "",
    url: Annotated[str, Field(max_length=8_000)] = "",
    query: _Query | None = None,
    headers: Headers | None = None,
    body: _Body | None = None,
) -> dict[str, Any]:
    """Show the request that call_service would send, as a curl line with secrets masked; nothing is sent.

    Args:
        method: HTTP method.
        service: Alias of the service; else give url.
        path: Path of the endpoint, with the places filled in or as list_endpoints shows it, or the endpoint's name.
        url: Whole address, where there is no service.
        query: Parameters of the query, and values for {places} in the path.
        headers: HTTP headers to send.
        body: What to send.
    """
    target = _target(service, url, path)
    if target:
        sent, content = _raw(headers, body)
        return {"curl": _line(method.strip().upper(), with_query(target, query or {}), sent, content)}
    request, apis = _request(method, path, (query, headers, body)), ctx.lent.apis
    places = await places_of(ctx, await service_of(ctx, service))
    return {"service": service, "curl": await of_first(places, lambda place: apis.preview(place, request))}


_Parts = tuple[_Query | None, Mapping[str, str] | None, _Body | None]
"""Query, headers and body, as they were given."""


def _target(service: str, url: str, path: str) -> str:
    """Return the address of a request without a service; empty for one with it. Raises `ToolFailure`."""
    if bool(service.strip()) == bool(url.strip()):
        raise ToolFailure("invalid_arguments", "give service and path, or url: one of the two")
    if service.strip() and not path.strip():
        raise ToolFailure("invalid_arguments", "path: which endpoint of the service? list_endpoints shows them")
    if url.strip() and path.strip():
        raise ToolFailure("invalid_arguments", "path: it is for a service; with url, write the whole address there")
    return address(url) if url.strip() else ""


def _request(method: str, path: str, parts: _Parts) -> ApiRequest:
    query, headers, body = parts
    return ApiRequest(
        method=method.strip().upper(), path=path, query=query or {}, headers=checked_headers(headers), body=body
    )


async def _send(ctx: Context, method: str, target: str, parts: _Parts, seconds: float) -> ToolResult:
    """Send a request that no description says anything of."""
    query, headers, body = parts
    sent, content = _raw(headers, body)
    page = await ctx.lent.web.send(
        method.strip(), with_query(target, query or {}), headers=sent, content=content, seconds=seconds
    )
    text = text_of(page) if is_text(page) else ""
    if page.status >= 400:
        raise failure_of(page, text)
    kind = page.media_type or "binary data"
    shown = text or (f"{kind}, {len(page.body):,} bytes, which is not text" if page.body else "")
    return ToolResult.of_text(f"{status_of(page)}\n\n{shown}".strip()).with_meta(http_status=page.status)


def _raw(headers: Mapping[str, str] | None, body: object) -> tuple[dict[str, str], bytes]:
    kind, content = body_of(body)
    typed = {"content-type": kind} if kind else {}
    return {"accept": "application/json, */*;q=0.5", **typed, **checked_headers(headers)}, content


def _line(method: str, url: str, headers: Mapping[str, str], content: bytes) -> str:
    words = ["curl", *(["-X", method] if method != "GET" else []), shlex.quote(url)]
    for name, value in headers.items():
        shown = _MASK if any(part in name for part in _SECRET) else value
        words += ["-H", shlex.quote(f"{name}: {shown}")]
    if content:
        words += ["--data-binary", shlex.quote(content.decode("utf-8", "replace"))]
    return " ".join(words)
