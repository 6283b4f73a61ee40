"""Services are learnt from descriptions, looked through, previewed and called as their descriptions say."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from peers.api import described
from unit.toolcrib_tools.online import Online, gives
from unit.toolcrib_tools.serving import KEY, ORDER, known, sent, shop, told


@pytest.fixture
async def at(tmp_path: Path) -> AsyncGenerator[Online]:
    """A session that knows the service `shop`, of a description in its workspace."""
    async with known(tmp_path) as opened:
        yield opened


# Learning a service


async def test_a_service_is_learnt_from_a_file_and_what_is_broken_hides_nothing_else(tmp_path: Path) -> None:
    async with known(tmp_path) as at:
        learnt = await told(at, "discover_service", source="shop.json", alias="again")

    assert learnt == {
        "service": "again",
        "title": "Workshop",
        "base_url": f"{at.server.origin}/v1",
        "endpoints": 5,
        "tags": ["orders"],
        "logins": {"key": "api_key, header X-Key", "client": "oauth2: clientCredentials"},
        "login": "none: configure_service_auth sets one up",
        "problems": ["GET /broken: not offered: #/components/parameters/Gone points to nothing"],
    }


async def test_a_service_is_learnt_from_an_address_and_called_where_that_is(tmp_path: Path) -> None:
    async with known(tmp_path) as at:
        yaml = (
            "openapi: 3.0.3\ninfo: {title: Birds, version: '1'}\nservers: [{url: /api}]\npaths: {/birds: {get: {}}}\n"
        )
        at.server.handlers["GET /openapi.yaml"] = gives(yaml, "application/yaml")
        learnt = await told(at, "discover_service", source=f"{at.server.origin}/openapi.yaml", alias="birds")
        await at.session.call("call_service", {"service": "birds", "method": "GET", "path": "/birds"})

    assert (learnt["base_url"], learnt["endpoints"]) == (f"{at.server.origin}/api", 1)
    assert at.server.received[-1]["path"] == "/api/birds"


async def test_a_description_of_swagger_2_is_read_too(at: Online, tmp_path: Path) -> None:
    old = {
        "swagger": "2.0",
        "info": {"title": "Old", "version": "1"},
        "host": at.server.origin.removeprefix("http://"),
        "basePath": "/old",
        "schemes": ["http"],
        "securityDefinitions": {"key": KEY},
        "definitions": {"Order": ORDER},
        "paths": {
            "/orders": {
                "post": {
                    "operationId": "place",
                    "parameters": [
                        {"name": "dry", "in": "query", "type": "boolean"},
                        {"name": "order", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Order"}},
                    ],
                    "responses": {"200": {"description": "ok", "schema": {"$ref": "#/definitions/Order"}}},
                }
            }
        },
    }
    (tmp_path / "old.json").write_text(json.dumps(old))
    learnt = await told(at, "discover_service", source="old.json", alias="old")
    schema = await told(at, "get_endpoint_schema", service="old", method="POST", path="/orders")
    request = {"method": "POST", "path": "/orders", "query": {"dry": True}, "body": {"item": "rope", "count": 2}}
    await at.session.call("call_service", {"service": "old", **request})

    assert (learnt["base_url"], learnt["logins"]) == (f"{at.server.origin}/old", {"key": "api_key, header X-Key"})
    assert schema["body"]["schema"]["required"] == ["item"]
    seen = at.server.received[-1]
    assert (seen["path"], seen["query"], json.loads(seen["body"])) == (
        "/old/orders",
        "dry=true",
        {"item": "rope", "count": 2},
    )


NO_DESCRIPTION: list[tuple[str, str]] = [
    ("type Query { birds: [Bird] }", "is a GraphQL schema, which is not read"),
    ('{"data": {"__schema": {}}}', "is a GraphQL schema, which is not read"),
    ('syntax = "proto3";\nservice Birds {}', "is a gRPC description (protobuf), which is not read"),
    ('{"info": {"_postman_id": "1"}, "item": []}', "is a Postman collection, which is not read"),
    ("<!DOCTYPE html><html><body>Swagger UI</body></html>", "is a web page, which is not read"),
    ("<wsdl:definitions xmlns='x'></wsdl:definitions>", "is a WSDL description, which is not read"),
    ('{"openapi": "4.0.0", "paths": {}}', "OpenAPI 3.0, 3.1 and 3.2 are read, not version 4.0.0"),
    ('{"openapi": "3.0.0", "paths": {}}', "describes no endpoint"),
    ("{", "unexpected end of data"),
]


async def test_what_is_no_description_is_refused_by_what_it_is(at: Online, tmp_path: Path) -> None:
    for content, what in NO_DESCRIPTION:
        (tmp_path / "odd").write_text(content)
        refused = await at.refused("discover_service", source="odd", alias="odd")
        assert refused.code == "invalid_arguments"
        assert refused.message.startswith("source: odd")
        assert what in refused.message
        assert (await at.refused("list_endpoints", service="odd")).code == "not_found"


async def test_a_source_that_cannot_be_had_is_told(at: Online) -> None:
    missing = await at.refused("discover_service", source="shopp.json", alias="x")
    grpc = await at.refused("discover_service", source="grpc://127.0.0.1:9", alias="x")
    private = await at.refused("discover_service", source="http://127.0.0.1:9/openapi.json", alias="x")
    at.server.handlers["GET /gone"] = gives("gone", status=404)
    gone = await at.refused("discover_service", source=f"{at.server.origin}/gone", alias="x")

    assert (missing.message, missing.hint) == ("there is no 'shopp.json'", "did you mean shop.json?")
    assert "gRPC services are not read" in grpc.message
    assert private.code == "denied"
    assert "`tools: {web: {private_hosts: [127.0.0.1:9]}}`" in private.hint
    assert gone.message == f"{at.server.origin}/gone answers HTTP 404, not with a description"


async def test_an_address_that_the_description_does_not_say_must_be_given(at: Online, tmp_path: Path) -> None:
    (tmp_path / "bare.json").write_text(json.dumps(described({"/x": {"get": {}}}, servers=[{"url": "/api"}])))

    refused = await at.refused("discover_service", source="bare.json", alias="bare")
    learnt = await told(at, "discover_service", source="bare.json", alias="bare", base_url=f"{at.server.origin}/here/")

    again = await at.refused("discover_service", source="bare.json", alias="shop")
    seen = await sent(at, method="GET", path="/orders/7")

    assert again.message == refused.message
    assert seen["path"] == "/v1/orders/7"
    assert refused.message == "base_url: the description does not say where the service is (it says '/api')"
    assert learnt["base_url"] == f"{at.server.origin}/here"


async def test_the_address_of_a_service_is_guarded_like_every_other(at: Online, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(json.dumps(shop("http://127.0.0.1:9")))
    await told(at, "discover_service", source="in.json", alias="inside")

    refused = await at.refused("call_service", service="inside", method="GET", path="/orders/latest")

    assert refused.code == "denied"
    assert "`tools: {web: {private_hosts: [127.0.0.1:9]}}`" in refused.hint


# Looking through it


async def test_endpoints_are_listed_filtered_and_found_by_words(at: Online) -> None:
    every = await told(at, "list_endpoints", service="shop")
    deletes = await told(at, "list_endpoints", service="shop", filter_method="delete")
    below = await told(at, "list_endpoints", service="shop", filter_path="/files/*")
    tagged = await told(at, "list_endpoints", service="shop", filter_tag="Orders", limit=2)
    rest = await told(at, "list_endpoints", service="shop", filter_tag="orders", offset=2)
    found = await told(at, "list_endpoints", service="shop", query="place an order", limit=1)

    assert [one["path"] for one in every["endpoints"]] == [
        *("/orders/{id}", "/orders/{id}", "/orders", "/orders/latest", "/files/{path}")
    ]
    assert deletes["endpoints"] == [
        {"method": "DELETE", "path": "/orders/{id}", "name": "dropOrder", "tags": ["orders"]}
    ]
    assert [one["name"] for one in below["endpoints"]] == ["getFile"]
    assert (tagged["total"], len(tagged["endpoints"]), tagged["next_offset"]) == (3, 2, 2)
    assert ([one["name"] for one in rest["endpoints"]], "next_offset" in rest) == (["createOrder"], False)
    assert found["endpoints"][0]["name"] == "createOrder"


async def test_filters_that_nothing_fits_say_what_there_is(at: Online) -> None:
    refused = await at.refused("list_endpoints", service="shop", filter_tag="order")

    assert (refused.code, refused.message) == ("not_found", "none of the 5 endpoints of shop fits the filters")
    assert refused.hint == "methods: DELETE, GET, POST; tags: orders"


async def test_one_endpoint_is_told_with_its_parameters_body_and_answers(at: Online) -> None:
    get = await told(at, "get_endpoint_schema", service="shop", method="get", path="/orders/7")
    post = await told(at, "get_endpoint_schema", service="shop", method="POST", path="createOrder")

    assert get["parameters"] == [
        {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}},
        {"name": "full", "in": "query", "required": False, "schema": {"type": "boolean"}},
        {"name": "X-Trace", "in": "header", "required": False, "schema": {"type": "string"}},
    ]
    answer = get["answers"]["200"]
    assert (answer["description"], answer["media_type"]) == ("The order", "application/json")
    assert "item" in json.dumps(answer["schema"])
    assert (post["body"]["required"], post["body"]["schema"]["required"]) == (True, ["item"])
    assert set(post["body"]["schema"]["properties"]) == {"item", "count"}


async def test_what_is_not_there_is_refused_with_what_is_near(at: Online) -> None:
    service = await at.refused("list_endpoints", service="shopp")
    path = await at.refused("get_endpoint_schema", service="shop", method="GET", path="/order/latest")
    method = await at.refused("call_service", service="shop", method="PUT", path="/orders/7")

    assert service.message == "there is no service 'shopp'; did you mean 'shop'?"
    assert (path.code, path.hint[:28]) == ("not_found", "did you mean /orders/latest,")
    assert (method.code, method.message) == ("not_found", "/orders/7 has no PUT; it has DELETE, GET")
    assert at.server.received == []


# Calling it


@pytest.mark.parametrize(
    "request_",
    [
        {"path": "/orders/7", "query": {"full": True}, "headers": {"x-trace": "t1", "X-More": "m"}},
        {"path": "/orders/{id}", "query": {"id": 7, "full": True}, "headers": {"X-TRACE": "t1", "X-More": "m"}},
        {"path": "getOrder", "query": {"id": 7, "full": True}, "headers": {"X-Trace": "t1", "X-More": "m"}},
    ],
)
async def test_a_request_arrives_as_it_is_described_however_its_path_is_written(
    at: Online, request_: dict[str, Any]
) -> None:
    seen = await sent(at, method="get", **request_)

    assert (seen["method"], seen["path"], seen["query"]) == ("GET", "/v1/orders/7", "full=true")
    assert (seen["headers"]["x-trace"], seen["headers"]["x-more"]) == ("t1", "m")


async def test_a_description_with_paths_that_can_be_read_in_countless_ways_holds_nothing_up(
    at: Online, tmp_path: Path
) -> None:
    """Tried one after the other, the ways to fill in the first of them would outlast everybody."""
    many = "".join(f"{{p{place}}}" for place in range(30))
    several: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "x-multi-segment": True, "schema": {}} for name in "abc"
    ]
    paths: dict[str, Any] = {
        f"/{many}!": {"get": {"responses": {}}},
        "/{a}/x/{b}/x/{c}/!": {"get": {"parameters": several, "responses": {}}},
        "/v/{one}.{two}": {"get": {"operationId": "plain", "responses": {}}},
    }
    (tmp_path / "slow.json").write_text(json.dumps(shop(at.server.origin, paths=paths)))
    await told(at, "discover_service", source="slow.json", alias="shop")

    for path in ("/" + "a" * 90, "/" + "x/" * 900):
        result = await at.session.call("call_service", {"service": "shop", "method": "GET", "path": path})
        assert result.error is not None and result.error.code == "not_found"
    seen = await sent(at, method="GET", path="/v/a.b")

    assert seen["path"] == "/v1/v/a.b"


async def test_a_fixed_path_comes_before_one_with_places_and_a_place_may_have_slashes(at: Online) -> None:
    latest = await at.session.call("call_service", {"service": "shop", "method": "GET", "path": "/orders/latest"})
    file = await sent(at, method="GET", path="/files/src/a b.py")

    assert (latest.error, file["path"]) == (None, "/v1/files/src/a%20b.py")


@pytest.mark.parametrize("body", [{"item": "rope", "count": 2}, '{"item": "rope", "count": 2}'])
async def test_a_body_is_sent_as_the_description_has_it(at: Online, body: object) -> None:
    seen = await sent(at, method="POST", path="/orders", body=body)

    assert (seen["headers"]["content-type"], json.loads(seen["body"])) == (
        "application/json",
        {"item": "rope", "count": 2},
    )


UNFIT: list[tuple[dict[str, Any], str]] = [
    (
        {"method": "POST", "path": "/orders", "body": {"count": 0}},
        "POST /orders was not sent: body.count: must be at least 1; body.item: is required",
    ),
    ({"method": "POST", "path": "/orders", "body": {"itm": "x"}}, "body.itm is not known; did you mean 'item'?"),
    ({"method": "POST", "path": "/orders", "body": ["x"]}, "body: an object is needed, with item, count"),
    ({"method": "POST", "path": "/orders", "body": "{"}, "body: not JSON: "),
    ({"method": "GET", "path": "/orders/7", "body": {}}, "body: GET /orders/{id} takes none"),
    ({"method": "GET", "path": "/orders/seven"}, "GET /orders/{id} was not sent: {id} in path: must be integer"),
    ({"method": "GET", "path": "/orders/7", "query": {"ful": 1}}, "query.ful is not known; did you mean 'full'?"),
    ({"method": "GET", "path": "/orders/7?full=1"}, "path: '/orders/7?full=1' has a `?` or `#`"),
    ({"method": "GET", "path": ""}, "path: which endpoint of the service?"),
    ({"method": "GET", "path": "/files/.."}, "path: '..' would make the path another one"),
    ({"method": "GET", "path": "/orders/7", "headers": {"Host": "x"}}, "headers: Host is written by the client"),
]


@pytest.mark.slow
async def test_a_request_that_does_not_fit_is_refused_before_anything_is_sent(at: Online) -> None:
    for request, message in UNFIT:
        refused = await at.refused("call_service", service="shop", **request)
        assert (refused.code, refused.message[: len(message)]) == ("invalid_arguments", message)
    assert at.server.received == []


async def test_a_place_of_the_path_that_is_left_open_is_told_with_where_its_value_may_stand(at: Online) -> None:
    refused = await at.refused("call_service", service="shop", method="GET", path="/orders/{id}")

    assert refused.message == "GET /orders/{id} was not sent: {id} in path: is required"
    assert (
        refused.hint
        == "values for {places} are in the path itself or in query; get_endpoint_schema shows its parameters"
    )


async def test_an_answer_is_told_with_its_status_and_a_refusal_with_what_the_service_said(at: Online) -> None:
    at.server.handlers["GET /v1/orders/7"] = gives('{"item": "rope"}', "application/json")
    at.server.handlers["GET /v1/orders/8"] = gives('{"message": "no such order"}', "application/json", 404)
    good = await at.session.call("call_service", {"service": "shop", "method": "GET", "path": "/orders/7"})
    bad = await at.refused("call_service", service="shop", method="GET", path="/orders/8")

    assert (good.structured_content, good.meta["http_status"]) == ({"item": "rope"}, 200)
    assert (bad.code, bad.message) == ("tool_error", "HTTP 404 Not Found: no such order")


async def test_a_service_that_does_not_answer_in_time_is_told_and_a_write_may_have_been_done(at: Online) -> None:
    async def hang(request: Request) -> Response:
        while not await request.is_disconnected():
            await request.receive()
        return Response()

    at.server.handlers["POST /v1/orders"] = hang
    refused = await at.refused(
        "call_service", service="shop", method="POST", path="/orders", body={"item": "x"}, timeout_seconds=0.3
    )

    assert (refused.code, refused.details["outcome"]) == ("timeout", "unknown")


async def test_any_address_is_called_without_a_service_and_without_a_login(at: Online) -> None:
    url = f"{at.server.origin}/free"
    result = await at.session.call(
        "call_service", {"method": "PUT", "url": url, "query": {"a": [1, 2]}, "body": {"b": 1}}
    )
    both = await at.refused("call_service", method="GET", url=url, service="shop")
    neither = await at.refused("call_service", method="GET")
    pathed = await at.refused("call_service", method="GET", url=url, path="/x")

    [seen] = at.server.received
    assert (seen["method"], seen["path"], seen["query"], seen["body"]) == ("PUT", "/free", "a=1&a=2", '{"b": 1}')
    assert result.text.startswith("200 OK\n\n{")
    assert both.message == neither.message == "give service and path, or url: one of the two"
    assert pathed.message.startswith("path: it is for a service")


# Previews


async def test_a_preview_is_the_request_that_would_go_out_and_sends_nothing(at: Online) -> None:
    shown = await told(
        at,
        "preview_request",
        service="shop",
        method="POST",
        path="/orders",
        body={"item": "rope"},
        headers={"x-more": "1"},
    )
    free = await told(
        at,
        "preview_request",
        method="get",
        url="https://example.org/a",
        query={"b": "c d"},
        headers={"Authorization": "Bearer mine"},
    )
    refused = await at.refused("preview_request", service="shop", method="POST", path="/orders", body={})

    assert shown["curl"] == (
        f"curl -X POST {at.server.origin}/v1/orders -H 'accept: application/json' -H 'x-more: 1'"
        " -H 'content-type: application/json' --data-binary '{\"item\":\"rope\"}'"
    )
    assert free["curl"] == (
        "curl 'https://example.org/a?b=c+d' -H 'accept: application/json, */*;q=0.5' -H 'authorization: ***'"
    )
    assert (refused.message, at.server.received) == ("POST /orders was not sent: body.item: is required", [])
