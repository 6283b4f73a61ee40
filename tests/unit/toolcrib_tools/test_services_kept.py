"""Logins go where the operator lets them, methods decide who asks, and what was learnt outlasts a restart."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.core.permission import Verdict
from toolcrib.policy.modes import Mode
from toolcrib.policy.taint import Taint
from toolcrib.testing import RecordingApprover
from toolcrib_tools import services
from unit.toolcrib_tools.online import Online, online
from unit.toolcrib_tools.serving import known, sent, shop, told


@pytest.fixture
async def at(tmp_path: Path) -> AsyncGenerator[Online]:
    """A session that knows the service `shop`, of a description in its workspace."""
    async with known(tmp_path) as opened:
        yield opened


# Logins


def approving(folder: Path, *answers: Verdict) -> AbstractAsyncContextManager[Online]:
    return known(folder, approver=RecordingApprover(*answers))


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ({"type": "bearer", "credential": "shop"}, "authorization", "Bearer sesame-open-1"),
        ({"type": "basic", "credential": "shop"}, "authorization", "Basic YW5uOnNlc2FtZS1vcGVuLTE="),
        ({"type": "api_key", "credential": "shop"}, "x-key", "sesame-open-1"),
        ({"type": "api_key", "credential": "shop", "name": "X-Other"}, "x-other", "sesame-open-1"),
        ({"type": "api_key", "credential": "shop", "name": "s", "place": "cookie"}, "cookie", "s=sesame-open-1"),
    ],
)
async def test_a_login_goes_along_and_is_never_shown(
    tmp_path: Path, auth: dict[str, Any], header: str, value: str
) -> None:
    async with approving(tmp_path) as at:
        set_up = await told(at, "configure_service_auth", service="shop", auth=auth)
        shown = await at.said("preview_request", service="shop", method="GET", path="/orders/7")
        answer = await at.said("call_service", service="shop", method="GET", path="/orders/7")
        listed = await at.said("list_schemas")

    [seen] = at.server.received
    assert (set_up["login"]["credential"], set_up["goes_to"]) == ("shop", f"{at.server.origin}/v1")
    assert set_up["note"] == "the login travels in clear: the service has no https address"
    assert seen["headers"][header] == value
    assert ("***" in shown, "***" in answer) == (True, True)
    assert not [text for text in (json.dumps(set_up), shown, answer, listed) if "sesame" in text or "YW5uOn" in text]


async def test_a_key_in_the_query_goes_along_too(tmp_path: Path) -> None:
    async with approving(tmp_path) as at:
        auth = {"type": "api_key", "credential": "shop", "name": "key", "place": "query"}
        await at.said("configure_service_auth", service="shop", auth=auth)
        seen = await sent(at, method="GET", path="/orders/7")

    assert seen["query"] == "key=sesame-open-1"


async def test_a_token_of_oauth_is_fetched_once_and_again_when_it_is_refused(tmp_path: Path) -> None:
    tokens = ["first-token", "second-token"]

    async def token(request: Request) -> Response:
        return JSONResponse({"access_token": tokens[0], "expires_in": 3600})

    async def orders(request: Request) -> Response:
        good = request.headers["authorization"] == f"Bearer {tokens[0]}"
        return JSONResponse({"ok": good}, 200 if good else 401)

    async with approving(tmp_path) as at:
        at.server.handlers |= {"POST /token": token, "GET /v1/orders/7": orders}
        auth = {"type": "oauth2", "credential": "shop", "scopes": ["read"]}
        await at.said("configure_service_auth", service="shop", auth=auth)
        for _ in range(2):
            await sent(at, method="GET", path="/orders/7")
        tokens.pop(0)
        await sent(at, method="GET", path="/orders/7")

    asked = [seen for seen in at.server.received if seen["path"] == "/token"]
    assert [seen["body"] for seen in asked] == ["grant_type=client_credentials&scope=read"] * 2
    assert asked[0]["headers"]["authorization"] == "Basic YW5uOnNlc2FtZS1vcGVuLTE="


async def test_a_login_is_asked_for_in_every_mode_with_the_name_of_the_credential(tmp_path: Path) -> None:
    async with approving(tmp_path, "no") as at:
        auth = {"type": "bearer", "credential": "shop"}
        refused = await at.refused("configure_service_auth", service="shop", auth=auth)
        seen = await sent(at, method="GET", path="/orders/7")

    assert (refused.code, "authorization" in seen["headers"]) == ("denied", False)


BAD_LOGINS: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "bearer"}, "invalid_arguments", "auth.credential: the name of a credential is needed"),
    ({"type": "bearer", "credential": "shp"}, "not_found", "there is no credential 'shp'; did you mean 'shop'?"),
    ({"type": "bearer", "credential": "bad"}, "unavailable", "the setting tools.services.credentials.bad needs"),
    (
        {"type": "basic", "credential": "inner"},
        "unavailable",
        "the setting tools.services.credentials.inner has no",
    ),
    ({"type": "bearer", "credential": "else"}, "denied", "the service's address is http://"),
    ({"type": "bearer", "credential": "inner"}, "denied", "the service's address is http://"),
    (
        {"type": "bearer", "credential": "shop", "name": "x"},
        "invalid_arguments",
        "auth.name: it is not for the type",
    ),
    ({"type": "none", "credential": "shop"}, "invalid_arguments", "auth.credential: it is not for the type none"),
    (
        {"type": "api_key", "credential": "shop", "name": "a b"},
        "invalid_arguments",
        "auth.name: 'a b' is not a header name",
    ),
    (
        {"type": "oauth2", "credential": "shop", "token_url": "https://thief.example/token"},
        "denied",
        "auth.token_url is https://thief.example/token, and the credential shop goes to",
    ),
]


async def test_a_login_that_cannot_be_is_refused(tmp_path: Path) -> None:
    async with approving(tmp_path) as at:
        for auth, code, message in BAD_LOGINS:
            refused = await at.refused("configure_service_auth", service="shop", auth=auth)
            assert (refused.code, refused.message[: len(message)]) == (code, message)


async def test_a_path_that_is_saved_by_hand_does_not_lead_a_login_out_of_where_it_may_go(tmp_path: Path) -> None:
    async with approving(tmp_path) as at:
        auth = {"type": "bearer", "credential": "inner"}
        there = {"method": "GET", "path": "/a", "base_url": f"{at.server.origin}/v1/inner"}
        await at.said("save_schema", service="inner", name="good", schema=there)
        await at.said("configure_service_auth", service="inner", auth=auth)
        climbs = {"method": "GET", "path": "/../../admin"}
        result = await at.session.call("save_schema", {"service": "inner", "name": "bad", "schema": climbs})
        await at.session.call("call_service", {"service": "inner", "method": "GET", "path": "/../../admin"})

    assert (result.error and result.error.code, at.server.received) == ("invalid_arguments", [])


@pytest.mark.parametrize("step", ["..%2fadmin", "%2e%2e/admin", "..;/admin", "x%5c..%5cadmin", "%252e%252e/admin"])
async def test_an_address_that_climbs_is_not_where_a_login_may_go(tmp_path: Path, step: str) -> None:
    async with approving(tmp_path) as at:
        there = {"method": "GET", "path": "/a", "base_url": f"{at.server.origin}/v1/inner/{step}"}
        await at.said("save_schema", service="inner", name="good", schema=there)
        auth = {"type": "bearer", "credential": "inner"}
        failure = await at.refused("configure_service_auth", service="inner", auth=auth)

    assert failure.code == "denied"


async def test_a_login_does_not_go_to_where_a_service_moved_and_is_taken_away_on_demand(tmp_path: Path) -> None:
    async with approving(tmp_path) as at, online() as other:
        auth = {"type": "bearer", "credential": "shop"}
        await at.said("configure_service_auth", service="shop", auth=auth)
        same = await told(at, "discover_service", source="shop.json", alias="shop")
        moved = await told(
            at, "discover_service", source="shop.json", alias="shop", base_url=f"{other.server.origin}/v1"
        )
        back = await told(at, "discover_service", source="shop.json", alias="shop")
        await at.said("configure_service_auth", service="shop", auth=auth)
        await at.said("configure_service_auth", service="shop", auth={"type": "none"})
        seen = await sent(at, method="GET", path="/orders/7")

    assert (same["login"], moved["login"][:4], back["login"][:4]) == ("bearer", "none", "none")
    assert "authorization" not in seen["headers"]


# Who may do what


@pytest.mark.parametrize(
    ("request_", "asked"),
    [
        ({"method": "GET", "path": "/orders/7"}, False),
        ({"method": "DELETE", "path": "/orders/7"}, True),
        ({"method": "POST", "path": "/orders", "body": {"item": "x"}}, True),
    ],
)
async def test_what_a_call_may_do_goes_by_its_method(tmp_path: Path, request_: dict[str, Any], asked: bool) -> None:
    approver = RecordingApprover()
    async with known(tmp_path, mode="cautious", approver=approver) as at:
        await at.said("discover_service", source="shop.json", alias="shop")
        before = len(approver.questions)
        await sent(at, **request_)

    assert [question.tool.name for question in approver.questions[before:]] == ["call_service"] * asked


@pytest.mark.parametrize("name", ["X-HTTP-Method-Override", "x_http_method", "X-Original-URL"])
@pytest.mark.parametrize("where", [{"service": "shop", "path": "/orders/7"}, {"url": "{origin}/v1/orders/7"}])
async def test_no_header_makes_another_method_of_the_one_that_was_decided_on(
    at: Online, name: str, where: dict[str, str]
) -> None:
    place = {key: value.replace("{origin}", at.server.origin) for key, value in where.items()}

    result = await at.session.call("call_service", {"method": "GET", **place, "headers": {name: "DELETE"}})

    assert (result.error and result.error.code, at.server.received) == ("invalid_arguments", [])


async def test_a_header_that_a_description_sends_by_itself_makes_no_other_method_either(
    at: Online, tmp_path: Path
) -> None:
    header = {"name": "X-HTTP-Method-Override", "in": "header", "schema": {"type": "string"}, "x-send": "DELETE"}
    document = shop(at.server.origin, paths={"/x": {"get": {"parameters": [header], "responses": {}}}})
    (tmp_path / "sly.json").write_text(json.dumps(document))
    await told(at, "discover_service", source="sly.json", alias="shop")

    seen = await sent(at, method="GET", path="/x")

    assert "x-http-method-override" not in seen["headers"]


async def test_a_mode_that_lets_write_and_not_destroy_tells_them_apart(tmp_path: Path) -> None:
    settings = bare().with_values(
        modes={"writer": Mode(name="writer", read="allow", write="allow", destructive="deny")}
    )
    async with Toolcrib(settings, memory=True) as crib:
        crib.add(services)
        decide = crib.policy.decide
        tool = crib.catalog.tools["call_service"]
        state = crib.session(profile="flat", mode="writer").state
        effects = [decide(tool, {"method": method}, state).effect for method in ("GET", "post", "PUT", "DELETE", "X")]

    assert effects == ["allow", "allow", "allow", "deny", "deny"]


async def test_a_rule_by_the_method_holds(tmp_path: Path) -> None:
    rules = {"deny": ["call_service(method=DELETE)"]}
    async with known(tmp_path, rules=rules) as at:
        refused = await at.refused("call_service", service="shop", method="DELETE", path="/orders/7")
        await sent(at, method="GET", path="/orders/7")

    assert refused.code == "denied"


# By hand, and over restarts


async def test_an_endpoint_is_described_by_hand_and_called(at: Online) -> None:
    schema = {
        "method": "POST",
        "path": "/birds/{kind}",
        "base_url": f"{at.server.origin}/b",
        "summary": "Count birds",
        "tags": ["birds"],
        "parameters": [
            {"name": "kind", "in": "path", "type": "string", "enum": ["kestrel", "owl"]},
            {"name": "day", "required": True, "type": "string", "description": "ISO 8601"},
            {"name": "X-Who", "in": "header", "schema": {"type": "string"}},
        ],
        "request_body": {"schema": {"type": "object", "properties": {"count": {"type": "integer"}}}, "required": True},
        "responses": {"200": {"description": "Counted", "schema": {"type": "object"}}},
    }
    saved = await told(at, "save_schema", service="birds", name="count-birds", schema=schema)
    await told(at, "save_schema", service="birds", name="see", schema={"method": "GET", "path": "/birds"})
    shown = await told(at, "get_endpoint_schema", service="birds", method="POST", path="/birds/owl")
    request = {"method": "POST", "path": "/birds/owl", "query": {"day": "2026-11-21"}, "body": {"count": 3}}
    request["headers"] = {"x-who": "ann"}
    await at.session.call("call_service", {"service": "birds", **request})
    wrong = await at.refused("call_service", service="birds", method="POST", path="/birds/gull", body={"count": "x"})

    seen = at.server.received[-1]
    assert saved == {
        "service": "birds",
        "base_url": f"{at.server.origin}/b",
        "saved": "count-birds",
        "saved_by_hand": 1,
    }
    assert (shown["answers"]["200"]["description"], len(shown["parameters"])) == ("Counted", 3)
    assert (seen["path"], seen["query"], seen["body"], seen["headers"]["x-who"]) == (
        *("/b/birds/owl", "day=2026-11-21", '{"count":3}', "ann"),
    )
    assert wrong.message.startswith("POST /birds/{kind} was not sent: query.day: is required; ") or (
        "query.day: is required" in wrong.message and "query.kind" in wrong.message and "body.count" in wrong.message
    )


async def test_what_is_saved_by_hand_comes_before_the_description_and_beside_it(at: Online) -> None:
    schema = {"method": "GET", "path": "/orders/latest", "parameters": [{"name": "since", "type": "string"}]}
    await told(at, "save_schema", service="shop", name="latest", schema=schema)
    seen = await sent(at, method="GET", path="/orders/latest", query={"since": "may"})
    other = await sent(at, method="GET", path="/orders/7")
    listed = await told(at, "list_schemas", service="shop")

    assert (seen["query"], other["path"]) == ("since=may", "/v1/orders/7")
    [service] = listed["services"]
    assert service["saved"] == [{"name": "latest", "method": "GET", "path": "/orders/latest"}]
    assert (service["endpoints"], service["login"], service["source"]) == (5, "none", "shop.json")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"method": "GET", "path": "/x"}, "schema.base_url: a new service needs its address"),
        (
            {"method": "GET", "path": "/x", "base_url": "ftp://h", "parameters": []},
            "base_url: 'ftp://h' is not a web address",
        ),
        (
            {"method": "GET", "path": "/x", "base_url": "https://h.example", "parameters": [{"in": "path"}]},
            "schema.parameters[0]: a name, and `in` as one of path, query, header, cookie",
        ),
        (
            {
                "method": "GET",
                "path": "/x",
                "base_url": "https://h.example",
                "parameters": [{"name": "a", "in": "path"}],
            },
            "schema.path: it has no place {a}",
        ),
        (
            {
                "method": "POST",
                "path": "/x",
                "base_url": "https://h.example",
                "request_body": {"schema": {"$ref": "#/components/schemas/No"}},
            },
            "schema: POST /x: not offered: #/components/schemas/No points to nothing",
        ),
    ],
)
async def test_an_endpoint_that_cannot_be_is_refused_and_nothing_is_kept(
    at: Online, schema: dict[str, Any], message: str
) -> None:
    refused = await at.refused("save_schema", service="new", name="x", schema=schema)

    assert (refused.code, refused.message[: len(message)]) == ("invalid_arguments", message)
    assert [one["service"] for one in (await told(at, "list_schemas"))["services"]] == ["shop"]


async def test_an_endpoint_is_saved_once_and_a_bad_one_leaves_the_others_alone(at: Online) -> None:
    schema = {"method": "GET", "path": "/extra", "parameters": [{"name": "a", "type": "string"}]}
    await told(at, "save_schema", service="shop", name="extra", schema=schema)
    twice = await at.refused("save_schema", service="shop", name="other", schema=schema)
    bad = {"method": "PUT", "path": "/extra", "request_body": {"schema": {"$ref": "#/no"}}}
    await at.refused("save_schema", service="shop", name="bad", schema=bad)
    seen = await sent(at, method="GET", path="/extra", query={"a": "1"})

    assert (twice.code, twice.message) == ("conflict", "GET /extra is saved as 'extra' already")
    assert seen["query"] == "a=1"


async def test_a_service_that_is_removed_is_gone_with_all_that_was_kept_of_it(at: Online) -> None:
    await told(at, "save_schema", service="shop", name="extra", schema={"method": "GET", "path": "/extra"})
    removed = await told(at, "remove_service", service="shop")

    assert removed == {"removed": "shop", "endpoints": 5, "saved_by_hand": 1}
    assert (await at.refused("call_service", service="shop", method="GET", path="/extra")).code == "not_found"
    assert await told(at, "list_schemas") == {"services": []}


async def test_services_are_each_principals_own(at: Online) -> None:
    bob = at.crib.session(profile="flat", mode="autonomous", principal="bob")
    theirs = await bob.call("list_schemas", {})
    refused = await bob.call("list_endpoints", {"service": "shop"})

    assert (theirs.structured_content, refused.error and refused.error.code) == ({"services": []}, "not_found")


@pytest.mark.slow
async def test_many_services_are_called_at_once_and_each_reaches_its_own(at: Online, tmp_path: Path) -> None:
    names = [f"shop-{number}" for number in range(12)]
    for name in names:
        base = f"{at.server.origin}/{name}"
        await told(at, "discover_service", source="shop.json", alias=name, base_url=base)

    async def call(name: str) -> None:
        for number in range(3):
            path = f"/orders/{number}"
            result = await at.session.call("call_service", {"service": name, "method": "GET", "path": path})
            assert result.error is None, result.text

    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(call, name)

    arrived = sorted(seen["path"] for seen in at.server.received)
    assert arrived == sorted(f"/{name}/orders/{number}" for name in names for number in range(3))


async def test_a_description_that_is_learnt_anew_holds_from_then_on(at: Online, tmp_path: Path) -> None:
    await sent(at, method="GET", path="/orders/7")
    paths = {"/boats": {"get": {"operationId": "boats"}}}
    fresh = {"openapi": "3.1.0", "info": {}, "servers": [{"url": f"{at.server.origin}/v2"}], "paths": paths}
    (tmp_path / "fresh.json").write_text(json.dumps(fresh))
    await told(at, "discover_service", source="fresh.json", alias="shop")
    seen = await sent(at, method="GET", path="/boats")
    refused = await at.refused("call_service", service="shop", method="GET", path="/orders/7")

    assert (seen["path"], refused.code) == ("/v2/boats", "not_found")


async def test_services_outlast_a_restart(tmp_path: Path, at: Online) -> None:
    home = tmp_path / "home"
    directories = bare().directories._replace(data=home / "data", cache=home / "cache")
    tools = {"web": {"private_hosts": [at.server.origin]}}
    settings = bare().with_values(tools=tools, directories=directories, untrusted=Taint(ask=False))
    for attempt in range(2):
        async with Toolcrib(settings) as crib:
            crib.add(services)
            session = crib.session(profile="flat", mode="autonomous", workspace=tmp_path)
            if attempt == 0:
                await session.call("discover_service", {"source": "shop.json", "alias": "kept"})
            result = await session.call("call_service", {"service": "kept", "method": "GET", "path": "/orders/7"})
            assert result.error is None, result.text

    assert [seen["path"] for seen in at.server.received] == ["/v1/orders/7"] * 2
    kept = [file for file in (home / "data").rglob("*.json") if "apis" in file.parts]
    assert [file.stat().st_mode & 0o777 for file in kept] == [0o600]
