"""Discovery of a service from its own description."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, cast

from pydantic import Field

from toolcrib.plugin import Context, Described, ToolFailure, tool

from .._workspace.place import file_at, workspace_of
from .collection import Alias, Service, base_of, keep

__all__ = ["discover_service", "summary_of"]

_MOST: Final = 64 << 20
"""Bytes; the largest public description has 14 MB."""
_PROBLEMS: Final = 10
_TAGS: Final = 30
_LOOKED_AT: Final = 4_000
"""Characters that tell what a file is that is not an OpenAPI description."""
_OTHERS: Final = (
    (re.compile(r'"__schema"|^\s*(?:schema\s*\{|type\s+Query\b|"""|extend\s+type\s)', re.MULTILINE), "GraphQL schema"),
    (re.compile(r'^\s*syntax\s*=\s*"proto[23]"', re.MULTILINE), "gRPC description (protobuf)"),
    (re.compile(r"schema\.getpostman\.com|\"_postman_id\""), "Postman collection"),
    (re.compile(r"<(?:\w+:)?definitions\b|schemas\.xmlsoap\.org/wsdl"), "WSDL description"),
    (re.compile(r"^#%RAML", re.MULTILINE), "RAML description"),
    (re.compile(r"^\s*asyncapi\s*:|\"asyncapi\"", re.MULTILINE), "AsyncAPI description"),
    (re.compile(r"^\s*opencollection\s*:", re.MULTILINE), "OpenCollection"),
    (re.compile(r"<!doctype html|<html\b", re.IGNORECASE), "web page"),
)
_INSTEAD: Final[Mapping[str, str]] = {
    "GraphQL schema": "send its queries with web_post",
    "Postman collection": "export it as OpenAPI, or describe its endpoints with save_schema",
    "web page": "give the address of the description itself: often /openapi.json, /swagger.json or /v3/api-docs",
}


@tool(
    op="x.service.discover",
    category="api",
    kind="write",
    open_world=True,
    idempotent=True,
    traits=["untrusted", "outbound"],
    tags=["openapi", "swagger", "rest", "http", "spec", "endpoint"],
    timeout=180,
    examples=[
        {"source": "https://petstore3.swagger.io/api/v3/openapi.json", "alias": "petstore"},
        {"source": "docs/openapi.yaml", "alias": "shop", "base_url": "https://shop.example.org/api"},
    ],
    policy={
        "do": ["Look through what it has with list_endpoints afterwards."],
        "edge_cases": [
            "GraphQL, gRPC and SOAP services are not read.",
            "The same alias again replaces the description; a login stays while the address stays the same.",
        ],
    },
)
async def discover_service(
    source: Annotated[str, Field(min_length=1, max_length=2_000)],
    alias: Alias,
    ctx: Context,
    base_url: Annotated[str, Field(max_length=2_000)] = "",
) -> dict[str, Any]:
    """Learn an HTTP API from its OpenAPI or Swagger description, a file or a URL, to call it by name afterwards.

    It is kept for later conversations. Returns its title, its address, how many endpoints it has and which logins.

    Args:
        source: Path of a file in the workspace, or URL: OpenAPI 3.0, 3.1 or 3.2, or Swagger 2.0, as JSON or YAML.
        alias: Short name to call it by, such as "github".
        base_url: Address of the service, where the description does not say it or another one is meant.
    """
    data, where = await _read(ctx, source.strip())
    address: list[str] = []

    def check(described: Described) -> None:
        if not described.endpoints:
            why = "; ".join(described.problems[:3])
            raise ToolFailure("invalid_arguments", f"{alias}: it describes no endpoint{f'; {why}' if why else ''}")
        address.append(base_of(base_url, described.servers, where))

    try:
        described = await ctx.lent.apis.put(ctx.principal, alias, data, check)
    except ToolFailure as failure:
        raise _better(failure, data, (alias, where)) from failure
    service = Service(name=alias, base_url=address[0], source=where)
    return summary_of(await keep(ctx, service, described), described)


def summary_of(service: Service, described: Described) -> dict[str, Any]:
    """Return the summary of a new service."""
    tags = sorted({tag for endpoint in described.endpoints for tag in endpoint.tags})
    summary: dict[str, Any] = {"service": service.name, "title": described.title, "base_url": service.base_url}
    summary |= {"description": described.description} if described.description else {}
    summary["endpoints"] = len(described.endpoints)
    summary |= {"tags": tags[:_TAGS]} if tags else {}
    if described.schemes:
        summary["logins"] = {name: _login(scheme) for name, scheme in service.schemes.items()}
        summary["login"] = service.auth.get("type", "none: configure_service_auth sets one up")
    if described.problems:
        summary["problems"] = list(described.problems[:_PROBLEMS])
        summary |= {"more_problems": len(described.problems) - _PROBLEMS} if len(described.problems) > _PROBLEMS else {}
    return summary


async def _read(ctx: Context, source: str) -> tuple[bytes, str]:
    """Return a description and where it came from. Raises `ToolFailure`."""
    if re.match(r"https?://", source, re.IGNORECASE):
        return await ctx.lent.apis.fetch(source), source
    scheme = re.match(r"([a-z][a-z0-9+.-]+)://", source, re.IGNORECASE)
    if scheme:
        what = "gRPC services are not read" if scheme[1].lower().startswith("grpc") else "it is not a web address"
        raise ToolFailure("invalid_arguments", f"source: {source!r}: {what}; give an http(s) URL or a path")
    workspace = workspace_of(ctx)
    await file_at(workspace, source)
    return await workspace.read(source, limit=_MOST), source


def _better(failure: ToolFailure, data: bytes, named: tuple[str, str]) -> ToolFailure:
    """Return a clearer failure for a file that is not a supported description; `named` is alias and source."""
    alias, where = named
    if not failure.message.startswith(f"{alias}: "):
        return failure
    text = data[:_LOOKED_AT].decode("utf-8", "replace")
    for pattern, what in _OTHERS:
        if pattern.search(text):
            hint = _INSTEAD.get(what, "its endpoints can be described with save_schema")
            return ToolFailure("invalid_arguments", f"source: {where} is a {what}, which is not read", hint=hint)
    return ToolFailure(
        failure.code, f"source: {where}: {failure.message.removeprefix(f'{alias}: ')}", hint=failure.hint
    )


def _login(scheme: Any) -> str:
    """Return a security scheme in a few words."""
    given = cast("Mapping[str, Any]", scheme)
    match given.get("type"):
        case "apiKey":
            return f"api_key, {given.get('in', '')} {given.get('name', '')}".strip()
        case "http":
            return str(given.get("scheme", "http")).lower()
        case "oauth2":
            flows = given.get("flows")
            return f"oauth2: {', '.join(cast('Mapping[str, Any]', flows) if isinstance(flows, Mapping) else ())}"
        case other:
            return json.dumps(other)
