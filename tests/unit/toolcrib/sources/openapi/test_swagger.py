"""Descriptions of version 2.0 are read as what they say in the words of version 3."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peers.api import api, open_api
from toolcrib.sources.openapi.description import parse
from toolcrib.sources.openapi.swagger import upgraded

OLD: dict[str, Any] = {
    "swagger": "2.0",
    "info": {"title": "Old", "version": "1"},
    "basePath": "/v1/",
    "consumes": ["application/json"],
    "produces": ["application/json", "text/csv"],
    "parameters": {
        "Limit": {"name": "limit", "in": "query", "type": "integer", "maximum": 50, "default": 10},
        "Item": {"name": "item", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Item"}},
    },
    "responses": {"Gone": {"description": "gone", "schema": {"$ref": "#/definitions/Item"}}},
    "definitions": {
        "Item": {
            "type": "object",
            "required": ["name"],
            "discriminator": "kind",
            "properties": {"name": {"type": "string", "x-nullable": True}, "kind": {"type": "string"}},
        },
    },
    "securityDefinitions": {
        "basic": {"type": "basic"},
        "key": {"type": "apiKey", "in": "query", "name": "k"},
        "app": {"type": "oauth2", "flow": "application", "tokenUrl": "https://x.example/t", "scopes": {"r": "read"}},
    },
    "security": [{"basic": []}],
    "paths": {
        "/items": {
            "parameters": [{"$ref": "#/parameters/Limit"}, {"name": "q", "in": "query", "type": "string"}],
            "get": {
                "operationId": "list",
                "parameters": [
                    {"name": "q", "in": "query", "type": "string", "required": True},
                    {"name": "ids", "in": "query", "type": "array", "items": {"type": "integer"}},
                    {
                        "name": "tags",
                        "in": "query",
                        "type": "array",
                        "items": {"type": "string"},
                        "collectionFormat": "multi",
                    },
                ],
                "responses": {"200": {"$ref": "#/responses/Gone"}},
            },
            "post": {"operationId": "add", "parameters": [{"$ref": "#/parameters/Item"}], "responses": {}},
        },
        "/files": {
            "post": {
                "operationId": "upload",
                "consumes": ["multipart/form-data"],
                "parameters": [
                    {"name": "file", "in": "formData", "type": "file", "required": True},
                    {"name": "note", "in": "formData", "type": "string"},
                ],
                "responses": {"200": {"description": "ok", "schema": {"type": "file"}}},
            }
        },
        "/login": {
            "post": {
                "operationId": "login",
                "security": [],
                "parameters": [{"name": "user", "in": "formData", "type": "string", "required": True}],
                "responses": {},
            }
        },
    },
}


async def test_its_operations_are_called_as_it_describes_them() -> None:
    async with api() as server, open_api({**OLD, "host": server.origin[7:], "schemes": ["http"]}) as opened:
        await opened.call("list", q="a", ids=[1, 2], tags=["x", "y"])
        await opened.call("add", name="rope")
        await opened.call("upload", file={"text": "hello", "filename": "a.txt"}, note="n")
        await opened.call("login", user="ann b")
        schema = opened.tools["list"].input_schema

    got, added, uploaded, login = server.received
    assert (got["path"], got["query"]) == ("/v1/items", "q=a&ids=1,2&tags=x&tags=y")
    assert (added["headers"]["content-type"], json.loads(added["body"])) == ("application/json", {"name": "rope"})
    assert ('name="file"; filename="a.txt"' in uploaded["body"], 'name="note"' in uploaded["body"]) == (True, True)
    assert (login["headers"]["content-type"], login["body"]) == ("application/x-www-form-urlencoded", "user=ann%20b")
    assert schema["required"] == ["q"]
    assert schema["properties"]["limit"]["maximum"] == 50


def test_what_it_says_of_logins_and_answers_is_kept() -> None:
    made = upgraded(OLD)

    assert made["components"]["securitySchemes"] == {
        "basic": {"type": "http", "scheme": "basic"},
        "key": {"type": "apiKey", "in": "query", "name": "k"},
        "app": {
            "type": "oauth2",
            "flows": {"clientCredentials": {"tokenUrl": "https://x.example/t", "scopes": {"r": "read"}}},
        },
    }
    item = made["components"]["schemas"]["Item"]
    assert (item["discriminator"], item["properties"]["name"]["nullable"]) == ({"propertyName": "kind"}, True)
    answer = made["components"]["responses"]["Gone"]
    assert answer["content"]["text/csv"] == {"schema": {"$ref": "#/components/schemas/Item"}}
    assert made["paths"]["/files"]["post"]["responses"]["200"]["content"] == {"application/json": {}, "text/csv": {}}
    assert made["servers"] == [{"url": "/v1/"}]


@pytest.mark.parametrize(
    "broken",
    [
        {"paths": {"/x": None}},
        {"paths": {"/x": {"get": 7}}},
        {"paths": {"/x": {"get": {"parameters": [7, {"$ref": "#/parameters/No"}], "responses": {"200": 7}}}}},
        {"definitions": 7, "parameters": [], "securityDefinitions": {"a": 7}, "schemes": "https", "host": 7},
        {"paths": {"/x": {"post": {"parameters": [{"in": "formData"}], "responses": []}}}},
    ],
)
def test_what_is_wrong_in_it_is_left_to_whoever_reads_it(broken: dict[str, Any]) -> None:
    document = parse({"swagger": "2.0", "paths": {}, **broken}, "old")

    assert document.root["openapi"] == "3.0.3"
