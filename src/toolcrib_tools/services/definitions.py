"""Services: discovered from their own description, or defined by hand, endpoint by endpoint; and their list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict, cast

from pydantic import Field

from toolcrib.plugin import Context, Described, ToolFailure, tool

from .._http import check_url
from .._records import finds
from .._workspace.place import file_at, workspace_of
from .collection import Alias, Service, ServiceName, base_of, forget, keep, records_of, saved_of, schemas_of, service_of

_MOST: Final = 500
"""Endpoints of one service that are described by hand."""
_PLACE: Final = re.compile(r"\{([^{}/]+)\}")
_OF_A_PARAMETER: Final = ("name", "in", "required", "description", "schema", "style", "explode", "example")
_WHERE: Final = ("path", "query", "header", "cookie")

_Objects = Annotated[list[dict[str, Any]], Field(max_length=200)]

_DISCOVERY_MOST: Final = 64 << 20
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


class EndpointSchema(TypedDict):
    """Parameters, body and response of an endpoint."""

    method: Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]
    path: Annotated[str, Field(pattern=r"^/[^?#\s]*$", max_length=500, description='With {places}: "/users/{id}".')]
    base_url: NotRequired[
        Annotated[str, Field(max_length=2_000, description="Address of the service, where it is a new one.")]
    ]
    summary: NotRequired[Annotated[str, Field(max_length=200, description="What it is for.")]]
    description: NotRequired[Annotated[str, Field(max_length=2_000)]]
    parameters: NotRequired[
        Annotated[_Objects, Field(description="Each {name, in: path|query|header|cookie, required, type or schema}.")]
    ]
    request_body: NotRequired[
        Annotated[dict[str, Any], Field(description="{content_type, required, schema}, the schema in JSON Schema.")]
    ]
    responses: NotRequired[
        Annotated[dict[str, Any], Field(description="By status: {description, schema}, the schema in JSON Schema.")]
    ]
    tags: NotRequired[Annotated[list[str], Field(max_length=20)]]


@tool(
    op="x.service.schema.save",
    category="api",
    kind="write",
    open_world=False,
    idempotent=True,
    tags=["endpoint", "rest", "http", "describe", "openapi"],
    examples=[
        {
            "service": "shop",
            "name": "get-order",
            "schema": {
                "method": "GET",
                "path": "/orders/{id}",
                "base_url": "https://shop.example.org",
                "parameters": [{"name": "id", "in": "path", "required": True, "type": "integer"}],
            },
        }
    ],
    policy={
        "edge_cases": [
            "The same name again replaces the endpoint.",
            "What was saved by hand comes before what a description says of the same endpoint.",
        ]
    },
)
async def save_schema(
    service: Alias,
    name: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^/\x00-\x1f]+$")],
    schema: EndpointSchema,
    ctx: Context,
) -> dict[str, Any]:
    """Describe an endpoint of a service by hand, for APIs without a description; kept for later conversations.

    Args:
        service: Alias of the service; a new one needs base_url in the schema.
        name: What to call the endpoint, such as "get-order".
        schema: The endpoint.
    """
    home = await _home(ctx, service, schema)
    records = schemas_of(ctx)
    others = [record for record in await records.list(group=home.name) if record.id != f"{home.name}/{name}"]
    if len(others) >= _MOST:
        raise ToolFailure("too_large", f"{home.name} has {_MOST} endpoints that were saved by hand already")
    value = {"name": name, "method": schema["method"], "path": schema["path"], "operation": _operation(name, schema)}
    for other in others:
        if (other.value["method"], other.value["path"]) == (value["method"], value["path"]):
            there = f"{value['method']} {value['path']} is saved as {other.value['name']!r} already"
            raise ToolFailure("conflict", there, hint="save it under that name to replace it")
    entries = [*(record.value for record in others), value]

    def check(described: Described) -> None:
        if len(described.endpoints) < len(entries):
            raise ToolFailure("invalid_arguments", f"schema: {'; '.join(described.problems[:3])}")

    await ctx.lent.apis.put(ctx.principal, saved_of(home.name), _document(home, entries), check)
    await keep(ctx, home)
    await records.put(f"{home.name}/{name}", value, group=home.name)
    return {"service": home.name, "base_url": home.base_url, "saved": name, "saved_by_hand": len(entries)}


@tool(
    op="x.service.schema.list",
    category="api",
    kind="read",
    open_world=False,
    traits=["untrusted"],
    tags=["services", "endpoint", "rest", "http", "which"],
    examples=[{}, {"service": "shop"}],
)
async def list_schemas(ctx: Context, service: Annotated[str, Field(max_length=100)] = "") -> dict[str, Any]:
    """List the services that are known: address, login, number of endpoints, and the endpoints that were saved by hand.

    Args:
        service: Only this service.
    """
    if service.strip():
        found = [await service_of(ctx, service)]
    else:
        names = sorted(record.id for record in await records_of(ctx).list())
        found = [await service_of(ctx, name) for name in names]
    return {"services": [await _summary_of(ctx, one) for one in found]}


@tool(
    check=finds(lambda given, ctx: service_of(ctx, given["service"])),
    op="x.service.remove",
    category="api",
    kind="destructive",
    open_world=False,
    idempotent=True,
    tags=["services", "forget", "delete"],
    examples=[{"service": "shop"}],
)
async def remove_service(service: ServiceName, ctx: Context) -> dict[str, Any]:
    """Forget a service: its description, its login and the endpoints that were saved by hand. The API is not touched.

    Args:
        service: Alias of the service.
    """
    found = await service_of(ctx, service)
    saved = await forget(ctx, found)
    return {"removed": found.name, "endpoints": found.endpoints, "saved_by_hand": saved}


async def _home(ctx: Context, name: str, schema: EndpointSchema) -> Service:
    """Return the service of an endpoint, a new one if it does not exist."""
    given = schema.get("base_url", "")
    if await records_of(ctx).get(name) is None:
        if not given.strip():
            raise ToolFailure("invalid_arguments", "schema.base_url: a new service needs its address")
        return Service(name=name, base_url=base_of(given, (), ""), source="saved by hand")
    found = await service_of(ctx, name)
    if given.strip() and base_of(given, (), "") != found.base_url:
        raise ToolFailure(
            "invalid_arguments",
            f"schema.base_url: {name} is at {found.base_url}",
            hint="leave it out, or save the endpoint under another service",
        )
    return found


async def _summary_of(ctx: Context, service: Service) -> dict[str, Any]:
    saved = await schemas_of(ctx).list(group=service.name)
    summary: dict[str, Any] = {"service": service.name, "base_url": service.base_url, "source": service.source}
    summary |= {"title": service.title} if service.title else {}
    summary |= {"endpoints": service.endpoints, "login": service.auth.get("type", "none")}
    summary |= {"credential": service.auth["credential"]} if service.auth else {}
    if saved:
        values = sorted((record.value for record in saved), key=lambda value: str(value["name"]))
        summary["saved"] = [{key: value[key] for key in ("name", "method", "path")} for value in values]
    return summary


def _document(home: Service, entries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the description that endpoints make together."""
    paths: dict[str, dict[str, Any]] = {}
    for entry in entries:
        paths.setdefault(str(entry["path"]), {})[str(entry["method"]).lower()] = entry["operation"]
    info = {"title": home.title or home.name, "version": "1"}
    return {"openapi": "3.1.0", "info": info, "servers": [{"url": home.base_url}], "paths": paths}


def _operation(name: str, schema: EndpointSchema) -> dict[str, Any]:
    """Return an endpoint in the words of OpenAPI. Raises `ToolFailure` for what it cannot have."""
    made: dict[str, Any] = {"operationId": name, "summary": schema.get("summary", name)}
    made |= {key: value for key, value in schema.items() if key in ("description", "tags")}
    given = schema.get("parameters", [])
    made["parameters"] = [_parameter(one, place) for place, one in enumerate(given)]
    unplaced = [
        one["name"]
        for one in made["parameters"]
        if one["in"] == "path" and one["name"] not in _PLACE.findall(schema["path"])
    ]
    if unplaced:
        raise ToolFailure("invalid_arguments", f"schema.path: it has no place {{{unplaced[0]}}}")
    if body := schema.get("request_body"):
        made["requestBody"] = _body(body)
    made["responses"] = {str(status): _answer(one) for status, one in schema.get("responses", {}).items()}
    return made


def _parameter(given: Mapping[str, Any], place: int) -> dict[str, Any]:
    name, where = given.get("name"), given.get("in", "query")
    if not isinstance(name, str) or not name or where not in _WHERE:
        raise ToolFailure(
            "invalid_arguments", f"schema.parameters[{place}]: a name, and `in` as one of {', '.join(_WHERE)}"
        )
    schema = given.get("schema")
    if not isinstance(schema, Mapping):
        schema = {key: given[key] for key in ("type", "enum", "default", "format", "items") if key in given}
    kept = {key: given[key] for key in _OF_A_PARAMETER if key in given}
    return {**kept, "in": where, "required": where == "path" or given.get("required") is True, "schema": schema}


def _body(given: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(given.get("content"), Mapping):
        return dict(given)
    kind = str(given.get("content_type", "application/json"))
    content = {
        kind: {"schema": given.get("schema", {}), **({"example": given["example"]} if "example" in given else {})}
    }
    return {"required": given.get("required") is True, "content": content}


def _answer(given: object) -> dict[str, Any]:
    fields = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {"description": str(given)}
    if "content" in fields or "schema" not in fields:
        return {"description": "", **fields}
    kind = str(fields.get("content_type", "application/json"))
    return {"description": fields.get("description", ""), "content": {kind: {"schema": fields["schema"]}}}


async def _check_source(arguments: Mapping[str, Any], ctx: Context) -> None:
    """Raise the failure of an address that is never reached, before anyone is asked about it."""
    source = str(arguments.get("source") or "").strip()
    if re.match(r"https?://", source, re.IGNORECASE):
        await check_url({"url": source}, ctx)


@tool(
    check=_check_source,
    op="x.service.discover",
    category="api",
    kind="write",
    open_world=True,
    idempotent=True,
    traits=["untrusted", "outbound", "file_reader"],
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
    return await workspace.read(source, limit=_DISCOVERY_MOST), source


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
