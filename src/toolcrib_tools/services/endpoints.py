"""Endpoints of a service, and their parameters."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

from anyio import to_thread
from pydantic import Field

from toolcrib.plugin import Context, Endpoint, ToolFailure, tool

from .collection import Service, ServiceName, of_first, places_of, service_of

__all__ = ["Method", "get_endpoint_schema", "list_endpoints"]

Method = Annotated[str, Field(pattern=r"(?i)^\s*(get|head|options|post|put|patch|delete)\s*$")]
_LINE: Final = 160
"""Bytes that an endpoint takes in a list, at most."""
_TITLE: Final = 80


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
