"""A shop that describes itself: what the tests of services call, and how."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from peers.api import described
from toolcrib_tools import services
from unit.toolcrib_tools.online import Online, online

ORDER = {
    "type": "object",
    "required": ["item"],
    "properties": {"item": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
    "additionalProperties": False,
}
PATHS: dict[str, Any] = {
    "/orders/{id}": {
        "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
        "get": {
            "operationId": "getOrder",
            "summary": "Show an order",
            "tags": ["orders"],
            "parameters": [
                {"name": "full", "in": "query", "schema": {"type": "boolean"}},
                {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
            ],
            "responses": {
                "200": {
                    "description": "The order",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}},
                }
            },
        },
        "delete": {"operationId": "dropOrder", "tags": ["orders"], "responses": {}},
    },
    "/orders": {
        "post": {
            "operationId": "createOrder",
            "summary": "Place an order",
            "tags": ["orders"],
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}},
            },
            "responses": {},
        }
    },
    "/orders/latest": {"get": {"operationId": "latestOrder", "responses": {}}},
    "/files/{path}": {
        "get": {
            "operationId": "getFile",
            "parameters": [{"name": "path", "in": "path", "required": True, "x-multi-segment": True, "schema": {}}],
            "responses": {},
        }
    },
    "/broken": {"get": {"operationId": "broken", "parameters": [{"$ref": "#/components/parameters/Gone"}]}},
}
KEY = {"type": "apiKey", "in": "header", "name": "X-Key"}
CLIENT: dict[str, Any] = {
    "type": "oauth2",
    "flows": {"clientCredentials": {"tokenUrl": "{origin}/token", "scopes": {}}},
}
CREDENTIALS: dict[str, Any] = {
    "shop": {"secret": "sesame-open-1", "username": "ann", "url": "{origin}"},
    "inner": {"secret": "sesame-open-2", "url": ["{origin}/v1/inner"]},
    "else": {"secret": "sesame-open-3", "url": "https://other.example"},
    "bad": {"secret": "sesame-open-4"},
}


def shop(origin: str, **more: Any) -> dict[str, Any]:
    """A description of a shop that is served at an origin."""
    schemes = json.loads(json.dumps({"key": KEY, "client": CLIENT}).replace("{origin}", origin))
    components = {"schemas": {"Order": ORDER}, "securitySchemes": schemes}
    return {**described(PATHS, components=components, servers=[{"url": f"{origin}/v1"}]), **more}


@asynccontextmanager
async def known(folder: Path, **options: Any) -> AsyncGenerator[Online]:
    settings = {"services": {"credentials": CREDENTIALS}}
    async with online(services, tools=settings, workspace=folder, **options) as opened:
        (folder / "shop.json").write_text(json.dumps(shop(opened.server.origin)))
        if options.get("mode", "autonomous") == "autonomous":
            await told(opened, "discover_service", source="shop.json", alias="shop")
        yield opened


async def told(at: Online, name: str, /, **arguments: Any) -> Any:
    return json.loads(await at.said(name, **arguments))


async def sent(at: Online, **arguments: Any) -> Mapping[str, Any]:
    """Call the shop and return what arrived there."""
    result = await at.session.call("call_service", {"service": "shop", **arguments})
    assert result.error is None, result.text
    return at.server.received[-1]
