"""Documents of every kind in which one place holds something else: an error that says so, or a problem."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import pytest

from toolcrib.config import load, servers_in
from toolcrib.errors import ConfigError, ToolFailure, UsageError
from toolcrib.mcp.client.handshake import Era
from toolcrib.mcp.client.session import RawListing
from toolcrib.mcp.client.spec import McpLimits, ServerSpec
from toolcrib.sources.mcp.tool_list import build_listing
from toolcrib.sources.openapi.convert import Picks, convert
from toolcrib.sources.openapi.description import base_url_of, parse
from toolcrib.sources.openapi.parameters import Sent
from toolcrib.sources.skill_folder import read_skill
from toolcrib.sources.yaml.document import YamlOptions, read_catalog
from unit.toolcrib.sources.openapi.test_swagger import OLD

VALUES: list[Any] = [
    [],
    {"a": 1},
    "http://[",
    None,
    True,
    -1,
    "",
    "\0",
    "x" * 70_000,
    [[]],
    {},
    10**400,
    {"$ref": "#/paths"},
]
TEXT, ITEM = {"type": "string"}, {"$ref": "#/components/schemas/A"}
API: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "servers": [{"url": "https://{h}.x/", "variables": {"h": {"default": "a", "enum": ["a"]}}}],
    "security": [{"k": []}],
    "paths": {
        "/a/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": TEXT}],
            "get": {
                "operationId": "g",
                "tags": ["a"],
                "parameters": [
                    {"name": "q", "in": "query", "style": "deepObject", "schema": {"type": "object"}},
                    {"$ref": "#/components/parameters/P"},
                ],
                "responses": {"200": {"description": "ok", "content": {"application/json": {"schema": ITEM}}}},
            },
            "post": {
                "requestBody": {"content": {"application/json": {"schema": {"allOf": [ITEM, {"required": ["b"]}]}}}},
                "responses": {"default": {"description": "x"}},
            },
        }
    },
    "components": {
        "parameters": {"P": {"name": "p", "in": "cookie", "schema": {"type": "string", "pattern": "a"}}},
        "schemas": {"A": {"type": "object", "properties": {"a": ITEM, "n": {"type": "number", "minimum": 1}}}},
        "securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "X"}},
    },
}
CATALOG: dict[str, Any] = {
    "tools": [
        {
            "name": "a",
            "description": "d",
            "category": "c",
            "tags": ["t"],
            "kind": "read",
            "timeout": 3,
            "command": ["echo", "{x}", ["--n", "{n}"]],
            "env": {"A": "b"},
            "examples": [{"x": "a", "n": 1}],
            "parameters": {"x": {"type": "string", "default": "a", "enum": ["a"]}, "n": {"type": "integer"}},
            "annotations": {"readOnlyHint": True},
        },
        {
            "name": "e",
            "description": "d",
            "input_schema": {"type": "object", "properties": {"x": TEXT}},
            "endpoint": {"method": "POST", "url": "https://a/{x}", "headers": {"a": "{x}"}, "query": {"q": "{x}"}},
        },
    ],
    "skill_groups": {"g": {"description": "d", "skills": ["a"]}},
}
DEFINITION: dict[str, Any] = {
    "name": "a",
    "title": "T",
    "description": "d",
    "outputSchema": {"type": "object"},
    "_meta": {"k": 1},
    "inputSchema": {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "null"}}},
    "annotations": {"title": "x", "readOnlyHint": True},
    "icons": [{"src": "https://x/y.png", "mimeType": "image/png", "sizes": ["1x1"]}],
}
CONFIGURATION: dict[str, Any] = {
    "servers": {
        "git": {"command": "uvx", "args": ["a"], "env": {"A": "b"}, "cwd": "w", "timeout": 3, "env_file": "x"},
        "web": {"url": "https://m.x/mcp", "headers": {"A": "b"}, "auth": {"client_id": "x", "scopes": ["a"]}},
    },
    "modes": {"m": {"read": "allow", "write": "ask", "destructive": "deny"}},
    "rules": {"deny": ["Bash(rm:*)"], "ask": ["a(b=c*)"], "allow": ["git__*"]},
    "limits": {"timeout": 20, "calls_per_tool": {"a": 3}},
    "approvals": {"timeout": 3, "webhook": {"url": "https://x"}},
    "workspace": {"roots": ["."]},
}
CLIENT: dict[str, Any] = {
    "mcpServers": {
        "a": {"type": "stdio", "command": "x", "args": ["a"], "env": {"K": "1"}, "timeout": 3, "envFile": ".env"},
        "b": {"type": "http", "url": "https://a.b/c?d=e", "headers": {"A": "b"}, "oauth": {"clientId": "x"}},
    },
}
SKILL: dict[str, Any] = {"name": "s", "description": "d", "metadata": {"a": "b"}, "allowed-tools": "Bash(git:*) Read"}


def mutated(document: Any, count: int) -> Iterator[Any]:
    """Yield a document with some of `VALUES` at each place, the next ones at the next place."""
    values = itertools.cycle(VALUES)
    for way in ways(document):
        for value in itertools.islice(values, count):
            changed = [deepcopy(document)]
            inner: Any = changed
            for step in (0, *way)[:-1]:
                inner = inner[step]
            inner[(0, *way)[-1]] = value
            yield changed[0]


def ways(value: Any, way: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield way
    if isinstance(value, list):
        for place, one in enumerate(cast("list[Any]", value)):
            yield from ways(one, (*way, place))
    elif isinstance(value, dict):
        for name, one in cast("dict[str, Any]", value).items():
            yield from ways(one, (*way, name))


def read_api(document: Any, folder: Path) -> None:
    base_url_of(convert(parse(json.dumps(document).encode(), ""), Picks(), Sent()).servers, "https://a.example/b")


def _as_it_is(text: str, _: bool) -> str:
    return text


def read_tools(document: Any, folder: Path) -> None:
    read_catalog("s", folder / "c.yaml", json.dumps(document).encode(), YamlOptions(), _as_it_is)


def read_folder(document: Any, folder: Path) -> None:
    (folder / "SKILL.md").write_text(f"---\n{json.dumps(document)}\n---\nText\n", encoding="utf-8")
    read_skill(folder)


def read_server(document: Any, folder: Path) -> None:
    server = ServerSpec(name="s", transport="stdio", command="x")
    build_listing(RawListing(tools=[document, DEFINITION]), server, McpLimits(), Era(version="2025-11-25"))


def read_configuration(document: Any, folder: Path) -> None:
    (folder / "config.yaml").write_text(json.dumps(document), encoding="utf-8")
    load([folder / "config.yaml"], environ={"HOME": str(folder)}, cwd=folder)


def read_client(document: Any, folder: Path) -> None:
    if isinstance(document, dict):
        servers_in(cast("dict[str, Any]", document), {"HOME": str(folder)}, cwd=folder)


@pytest.mark.long
@pytest.mark.parametrize(
    ("document", "read"),
    [
        *((API, read_api), (OLD, read_api), (CATALOG, read_tools), (SKILL, read_folder)),
        *((DEFINITION, read_server), (CONFIGURATION, read_configuration), (CLIENT, read_client)),
    ],
    ids=["openapi", "swagger", "catalog", "skill", "definition", "configuration", "client"],
)
def test_a_document_with_something_else_at_one_place_is_read_or_refused(
    document: Any, read: Callable[[Any, Path], None], tmp_path: Path, full_size: bool
) -> None:
    for changed in mutated(document, len(VALUES) if full_size else 3):
        try:
            read(changed, tmp_path)
        except (ConfigError, ToolFailure, UsageError):
            continue
        except Exception as error:
            error.add_note(json.dumps(changed)[:500])
            raise
