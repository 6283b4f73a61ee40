"""Endpoints of a service, their parameters, and requests to them: previewed and sent."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

from anyio import to_thread
from pydantic import Field

from toolcrib.plugin import ApiRequest, Context, Endpoint, ToolFailure, ToolResult, tool

from .._http import (
    MOST_SECONDS,
    Headers,
    Seconds,
    address,
    body_of,
    check_url,
    checked_headers,
    failure_of,
    is_text,
    status_of,
    text_of,
    with_query,
)
from .collection import Service, ServiceName, of_first, places_of, service_of

Method = Annotated[str, Field(pattern=r"(?i)^\s*(get|head|options|post|put|patch|delete)\s*$")]
_LINE: Final = 160
"""Bytes that an endpoint takes in a list, at most."""
_TITLE: Final = 80

_MASK: Final = "***"
_SECRET: Final = ("authorization", "cookie", "key", "secret", "token", "password")

_Path = Annotated[str, Field(max_length=4_000)]
_Query = dict[str, Any]
_Body = dict[str, Any] | list[Any] | str

_Parts = tuple[_Query | None, Mapping[str, str] | None, _Body | None]
"""Query, headers and body, as they were given."""


@tool(
    op="x.service.endpoint.list",
    category="api",
    kind="read",
    open_world=False,
    traits=["untrusted"],
    tags=["openapi", "rest", "http", "service", "operations"],
    examples=[{"service": "github", "query": "create issue"}, {"service": "github", "filter_tag": "pulls"}],
    policy={"do": ["Narrow it down with query or a filter where a service has hundreds."]},
)
async def list_endpoints(
    service: ServiceName,
    ctx: Context,
    query: Annotated[str, Field(max_length=200)] = "",
    filter_method: Annotated[str, Field(max_length=10)] = "",
    filter_path: Annotated[str, Field(max_length=300)] = "",
    filter_tag: Annotated[str, Field(max_length=100)] = "",
    offset: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=500)] = 50,
) -> dict[str, Any]:
    """List the endpoints of a service: method, path, what each is for, its name and tags.

    Args:
        service: Alias of the service.
        query: Words that say what is wanted; the best come first.
        filter_method: Only this HTTP method.
        filter_path: Only paths that fit, with * for anything, such as "/users/*".
        filter_tag: Only those with this tag.
        offset: How many to pass over.
        limit: How many to return at most.
    """
    found = await service_of(ctx, service)
    parts = [await ctx.lent.apis.described(place) for place in await places_of(ctx, found)]
    endpoints = [endpoint for part in parts for endpoint in part.endpoints]
    fitting = [one for one in endpoints if _fits(one, filter_method.strip(), filter_path.strip(), filter_tag.strip())]
    if query.strip():
        fitting = await to_thread.run_sync(_ranked, ctx, fitting, query.strip())
    if not fitting and not query.strip():
        raise _none(found, endpoints)
    page = fitting[offset : offset + min(limit, max(1, ctx.result_bytes // _LINE))]
    answer: dict[str, Any] = {"service": found.name, "base_url": found.base_url, "total": len(fitting)}
    answer["endpoints"] = [_summary_of(endpoint) for endpoint in page]
    return answer | ({"next_offset": offset + len(page)} if offset + len(page) < len(fitting) else {})


@tool(
    op="x.service.endpoint.get",
    category="api",
    kind="read",
    open_world=False,
    traits=["untrusted"],
    tags=["openapi", "rest", "http", "service", "parameters"],
    examples=[{"service": "github", "method": "GET", "path": "/repos/{owner}/{repo}/issues"}],
)
async def get_endpoint_schema(
    service: ServiceName, method: Method, path: Annotated[str, Field(max_length=2_000)], ctx: Context
) -> dict[str, Any]:
    """Tell what one endpoint of a service takes and answers: parameters, body and answers with their JSON Schemas.

    Args:
        service: Alias of the service.
        method: HTTP method.
        path: Path as list_endpoints shows it, or with the places filled in.
    """
    found = await service_of(ctx, service)
    apis = ctx.lent.apis
    schema = await of_first(await places_of(ctx, found), lambda place: apis.schema(place, method.strip(), path))
    return {"service": found.name, "base_url": found.base_url, **schema}


def _fits(endpoint: Endpoint, method: str, path: str, tag: str) -> bool:
    return (
        (not method or endpoint.method == method.upper())
        and (not path or fnmatchcase(endpoint.path.lower(), path.lower()))
        and (not tag or tag.lower() in (one.lower() for one in endpoint.tags))
    )


def _ranked(ctx: Context, endpoints: list[Endpoint], query: str) -> list[Endpoint]:
    """Return those that fit the words, best first. Blocks: some ms a hundred endpoints."""
    texts = {
        str(place): (one.name, f"{one.description[:500]}\n{' '.join(one.tags)}") for place, one in enumerate(endpoints)
    }
    return [endpoints[int(key)] for key in ctx.lent.rank(query, texts, len(endpoints))]


def _summary_of(endpoint: Endpoint) -> dict[str, Any]:
    summary: dict[str, Any] = {"method": endpoint.method, "path": endpoint.path, "name": endpoint.name}
    summary |= {"title": endpoint.title[:_TITLE]} if endpoint.title else {}
    return summary | ({"tags": list(endpoint.tags)} if endpoint.tags else {})


def _none(service: Service, endpoints: list[Endpoint]) -> ToolFailure:
    tags = sorted({tag for one in endpoints for tag in one.tags})[:40]
    methods = sorted({one.method for one in endpoints})
    hint = f"methods: {', '.join(methods)}" + (f"; tags: {', '.join(tags)}" if tags else "")
    return ToolFailure(
        "not_found", f"none of the {len(endpoints)} endpoints of {service.name} fits the filters", hint=hint
    )


async def _check_call(arguments: Mapping[str, Any], ctx: Context) -> None:
    """Raise the failure of an address that is never reached, before anyone is asked about it."""
    service = str(arguments.get("service") or "")
    await check_url({"url": (await service_of(ctx, service)).base_url} if service else arguments, ctx)


@tool(
    check=_check_call,
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
        url: Whole address, if there is no service. No login goes along.
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
        url: Whole address, if there is no service.
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
