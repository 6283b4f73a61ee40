"""Tools by REST: lists and definitions, calls with their options, and what is refused before there is a call."""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest

from rig import PATIENCE
from toolcrib import Toolcrib, tool
from toolcrib.config.settings import TokenSpec
from toolcrib.core.schema import compile_schema
from toolcrib.core.tool import Tool
from toolcrib.disclosure.settings import BY_CATALOG
from toolcrib.mcp.server.service import ServiceLimits
from toolcrib.registration import Registrations
from toolcrib.registration.rest import RestApi
from toolcrib.server.backend import CribBackend
from toolcrib.server.http import HttpOptions
from toolcrib.server.openapi import describe_tools
from toolcrib.sources.openapi.description import base_url_of
from unit.toolcrib.server.conftest import Serve
from unit.toolcrib.server.fake_backend import FakeBackend
from unit.toolcrib.server.wire_client import Site, serving

Refusal = tuple[str, str, Any, dict[str, str], tuple[int, str, list[str]]]
REFUSED: list[Refusal] = [
    ("GET", "/missing", None, {}, (404, "not_found", [])),
    ("GET", "?limit=0", None, {}, (422, "invalid_arguments", ["?limit"])),
    ("GET", "?limit=1001", None, {}, (422, "invalid_arguments", ["?limit"])),
    ("GET", "?limit=00000000019999", None, {}, (422, "invalid_arguments", ["?limit"])),
    ("GET", "/%2565cho", None, {}, (404, "not_found", [])),
    ("GET", "?limit=²", None, {}, (422, "invalid_arguments", ["?limit"])),
    ("GET", "?page=2", None, {}, (422, "invalid_arguments", ["?page"])),
    ("GET", "/echo?limit=1", None, {}, (422, "invalid_arguments", ["?limit"])),
    ("POST", "", {}, {}, (405, "refused", [])),
    ("POST", "/openapi.json", {}, {}, (405, "refused", [])),
    ("DELETE", "/echo", None, {}, (405, "refused", [])),
    ("POST", "/echo", b"[]", {}, (400, "invalid_arguments", [])),
    ("POST", "/echo", b'{"a":1,"a":2}', {}, (400, "invalid_arguments", [])),
    ("POST", "/echo", b"", {}, (400, "invalid_arguments", [])),
    ("POST", "/echo", {}, {"Content_Type": "text/plain"}, (415, "refused", [])),
    ("POST", "/echo", {}, {"Origin": "https://evil.example"}, (403, "denied", [])),
    ("POST", "/echo", {}, {"Host": "evil.example"}, (421, "refused", [])),
    ("POST", "/echo?timeout=nan", {}, {}, (422, "invalid_arguments", ["?timeout"])),
    ("POST", "/echo?timeout=1_0", {}, {}, (422, "invalid_arguments", ["?timeout"])),
    ("POST", "/echo?timeout=-1", {}, {}, (422, "invalid_arguments", ["?timeout"])),
    ("POST", "/echo?dry_run=yes", {}, {}, (422, "invalid_arguments", ["?dry_run"])),
    ("POST", "/echo?text=hello", {}, {}, (422, "invalid_arguments", ["?text"])),
    ("POST", "/echo?timeout=1&timeout=2", {}, {}, (422, "invalid_arguments", ["?timeout"])),
    ("POST", f"/echo?session={'a' * 256}", {}, {}, (422, "invalid_arguments", ["?session"])),
    ("POST", "/echo", {}, {"Idempotency_Key": "a" * 256}, (422, "invalid_arguments", ["Idempotency-Key"])),
    ("POST", "/echo", {}, {"Idempotency_Key": ""}, (422, "invalid_arguments", ["Idempotency-Key"])),
    ("POST", "/echo", {}, {"Idempotency_Key": '""'}, (422, "invalid_arguments", ["Idempotency-Key"])),
    ("POST", "/echo", {}, {"Idempotency_Key": '"k'}, (422, "invalid_arguments", ["Idempotency-Key"])),
]
"""Method, path, body and headers of a request; status, code and wrong paths of its answer."""


@dataclass
class Place:
    """A place, as it is referred to by an argument."""

    city: str
    parent: Place | None = None


OSLO: dict[str, Any] = {"city": "Oslo", "parent": {"city": "Norway"}}


async def send(site: Site, method: str, path: str = "", body: Any = None, **headers: str) -> httpx2.Response:
    """Send one request below `/v1/tools`; header names take `_` for `-`."""
    shown = {name.replace("_", "-"): value for name, value in headers.items()}
    content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    if content is not None:
        shown.setdefault("Content-Type", "application/json")
    url = f"http://127.0.0.1:{site.port}/v1/tools{path}"
    return await site.client.request(method, url, content=content, headers=shown)


def problem(response: httpx2.Response) -> tuple[int, str, list[str]]:
    """The status of problem details, their code, and the paths that are wrong."""
    assert response.headers["content-type"] == "application/problem+json"
    told: Mapping[str, Any] = response.json()
    assert told["status"] == response.status_code
    return response.status_code, told["code"], [error["path"] for error in told.get("errors", [])]


async def test_lists_come_in_pages_by_name_and_each_definition_by_itself(site: Site, backend: FakeBackend) -> None:
    page = (await send(site, "GET", "?limit=4")).json()
    names = [tool["name"] for tool in page["tools"]]
    while "after" in page:
        page = (await send(site, "GET", f"?limit=4&after={page['after']}")).json()
        names += [tool["name"] for tool in page["tools"]]
    one = await send(site, "GET", "/echo")
    by_catalog = await send(site, "GET", "/fake__echo")

    assert names == sorted(backend.tools)
    assert page["total"] == len(backend.tools)
    assert one.json() == by_catalog.json() == json.loads(json.dumps(backend.tools["echo"].listed))


async def test_a_call_carries_its_options_to_the_tool(site: Site, backend: FakeBackend) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    answer = await send(
        site,
        "POST",
        "/echo?timeout=2.5&dry_run=true&version=2&session=work",
        {"text": "hello"},
        Idempotency_Key='"k1"',
        Traceparent=trace,
        User_Agent="nightly/1",
    )
    await send(site, "POST", "/echo", {})
    seen, plain = backend.seen

    assert (answer.status_code, answer.json()) == (
        200,
        {"content": [{"type": "text", "text": "hello"}], "isError": False, "_meta": {"call_id": "c1"}},
    )
    call = seen.call
    assert (call.timeout, call.dry_run, call.version, call.idempotency_key) == (2.5, True, "2", "k1")
    assert (call.client, call.meta, call.arguments) == ("nightly/1", {"traceparent": trace}, {"text": "hello"})
    assert (seen.profile, seen.is_stateless) == (BY_CATALOG, True)
    assert seen.key != plain.key


@pytest.mark.parametrize(("method", "path", "body", "headers", "expected"), REFUSED)
async def test_what_is_no_call_is_refused_with_problem_details_and_reaches_no_tool(
    site: Site,
    backend: FakeBackend,
    method: str,
    path: str,
    body: Any,
    headers: dict[str, str],
    expected: tuple[int, str, list[str]],
) -> None:
    assert problem(await send(site, method, path, body, **headers)) == expected
    assert backend.seen == []


async def test_what_a_tool_asks_its_caller_is_an_error_that_names_another_way(site: Site) -> None:
    asks = [await send(site, "POST", f"/{name}", {}) for name in ("ask", "wants_input")]

    assert [(one.status_code, one.json()["error"]["code"]) for one in asks] == [(503, "unavailable")] * 2


async def test_a_result_that_is_no_json_is_an_internal_error_in_problem_details(site: Site) -> None:
    assert problem(await send(site, "POST", "/no_json", {})) == (500, "internal", [])


async def test_a_key_given_twice_is_refused(site: Site, backend: FakeBackend) -> None:
    lines = [
        "POST /v1/tools/echo HTTP/1.1",
        f"Host: 127.0.0.1:{site.port}",
        "Content-Type: application/json",
        "Content-Length: 2",
        "Idempotency-Key: a",
        "Idempotency-Key: b",
        "Connection: close",
    ]
    answer = await site.raw("\r\n".join([*lines, "", "{}"]).encode())

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert backend.seen == []


async def test_a_caller_that_goes_away_cancels_its_call(site: Site, backend: FakeBackend) -> None:
    async def wait() -> None:
        await send(site, "POST", "/wait", {})

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await backend.waiting.wait()
            tasks.cancel_scope.cancel()
        await backend.cancelled.wait()


async def test_a_call_with_a_key_runs_on_when_its_caller_goes_away(site: Site, backend: FakeBackend) -> None:
    async def wait() -> None:
        await send(site, "POST", "/wait", {}, Idempotency_Key="k1")

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await backend.waiting.wait()
            tasks.cancel_scope.cancel()
        await send(site, "POST", "/echo", {})
        backend.release.set()
        while backend.running:
            await anyio.lowlevel.checkpoint()

    assert not backend.cancelled.is_set()


async def test_a_call_whose_body_ends_after_the_stop_began_does_not_run(serve: Serve, backend: FakeBackend) -> None:
    answers: list[httpx2.Response] = []
    async with serve(HttpOptions(limits=ServiceLimits(drain=PATIENCE))) as site:

        async def body() -> AsyncGenerator[bytes]:
            yield b"{"
            site.stop.set()
            while (await site.client.get(f"http://127.0.0.1:{site.port}/readyz")).status_code == 200:
                pass
            yield b"}"

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send, site, "POST", "/wait", b"{}")
            await backend.waiting.wait()
            url, headers = f"http://127.0.0.1:{site.port}/v1/tools/echo", {"Content-Type": "application/json"}
            answers.append(await site.client.post(url, content=body(), headers=headers))
            backend.release.set()

    assert problem(answers[0]) == (503, "unavailable", [])
    assert [seen.call.name for seen in backend.seen] == ["wait"]


async def test_calls_share_the_turns_and_the_end_of_those_over_mcp(serve: Serve, backend: FakeBackend) -> None:
    answers: list[httpx2.Response] = []
    limits = ServiceLimits(running=1, queue=0, drain=0.1)
    async with serve(HttpOptions(limits=limits)) as site:

        async def wait() -> None:
            answers.append(await send(site, "POST", "/wait", {}))

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await backend.waiting.wait()
                answers.append(await send(site, "POST", "/echo", {"text": "a"}))
                site.stop.set()

    refused, stopped = answers
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "overloaded")
    assert refused.headers["retry-after"] == "1"
    assert problem(stopped) == (503, "unavailable", [])


async def test_a_token_decides_who_calls_and_its_mode_what_may_run(caplog: pytest.LogCaptureFixture) -> None:
    @tool(kind="write")
    async def pay(amount: int) -> dict[str, int]:
        """Pay an amount."""
        return {"paid": amount}

    tokens = (TokenSpec(token="ada-token-0001", principal="ada"), TokenSpec(token="bob-token-0001", principal="bob"))
    options = HttpOptions(tokens=tokens, identities={"ada": ("", "autonomous"), "bob": ("", "plan"), "bbo": ("", "")})
    async with Toolcrib() as crib, serving(CribBackend(crib), options) as site:
        crib.add(pay)
        nobody = await send(site, "POST", "/pay", {"amount": 2})
        foreign = await send(
            site, "GET", "", None, Authorization="Bearer ada-token-0001", Toolcrib_Instance="elsewhere"
        )
        ada, bob = [
            await send(site, "POST", "/pay", {"amount": 2}, Authorization=f"Bearer {one.token}") for one in tokens
        ]

    assert (problem(nobody), nobody.headers["www-authenticate"]) == ((401, "denied", []), 'Bearer realm="toolcrib"')
    assert problem(foreign) == (403, "denied", [])
    assert (ada.status_code, ada.json()["structuredContent"]) == (200, {"paid": 2})
    assert bob.json()["isError"] is True
    assert bob.status_code in (403, 404)
    [misspelt] = [one.getMessage() for one in caplog.records if one.name == "toolcrib.server.http"]
    assert misspelt.startswith("identities.bbo: ")


async def test_a_call_beyond_its_rate_is_answered_with_the_seconds_until_the_next_one() -> None:
    @tool(kind="read")
    async def rate() -> str:
        """Return the rate."""
        return "1"

    async with Toolcrib(budgets={"identity": {"calls_per_minute": 2}}) as crib:
        crib.add(rate)
        async with serving(CribBackend(crib), HttpOptions()) as site:
            *_, refused = [await send(site, "POST", "/rate", {}) for _ in range(3)]

    wait = refused.json()["error"]["details"]["retry_after"]
    assert (refused.status_code, refused.headers["retry-after"]) == (429, str(math.ceil(wait)))
    assert wait > 20


async def test_calls_are_recorded_as_those_of_rest_and_a_missing_version_names_those_that_there_are() -> None:
    @tool(kind="read", version="1.0")
    async def rate(currency: str) -> str:
        """Return the rate of a currency."""
        return f"{currency} 1"

    async with Toolcrib() as crib, serving(CribBackend(crib), HttpOptions()) as site:
        crib.add(rate)
        await send(site, "POST", "/rate", {"currency": "NOK"})
        missing = await send(site, "POST", "/rate?version=2", {"currency": "NOK"})
        rows = await crib.store.calls.list(limit=2)

    assert ("1.0" in missing.text, "Unknown tool" in missing.text) == (True, False)
    assert [row.origin for row in rows] == ["rest", "rest"]


async def test_another_crib_reads_the_description_and_calls_through_it() -> None:
    @tool(kind="read")
    async def forecast(places: list[Place], days: int = 3) -> dict[str, str]:
        """Weather forecast of places."""
        return {place.city: f"sun for {days} days" for place in places}

    async with Toolcrib() as crib, serving(CribBackend(crib), HttpOptions()) as site:
        crib.add(forecast)
        document = (await send(site, "GET", "/openapi.json")).json()
        direct = (await send(site, "POST", "/forecast", {"places": [OSLO]})).json()
        api = {"spec": f"http://127.0.0.1:{site.port}/v1/tools/openapi.json", "allow_private": True}
        async with Toolcrib(sources={"openapi": {"far": api}}, accept=True, mode="autonomous") as other:
            await other.tools.wait_ready(PATIENCE)
            through = await other.session(profile="flat").call("far__forecast", {"places": [OSLO], "days": 2})

    operation = document["paths"]["/forecast"]["post"]
    arguments = operation["requestBody"]["content"]["application/json"]["schema"]
    schema = operation["responses"]["200"]["content"]["application/json"]
    whole = compile_schema({**schema["schema"], "components": document["components"]})
    assert not whole.check(direct)
    assert whole.check({**direct, "structuredContent": {"Oslo": 3}})
    assert arguments["properties"]["places"]["items"] == {"$ref": "#/components/schemas/forecast.arguments.Place"}
    assert document["components"]["schemas"]["forecast.arguments.Place"]["required"] == ["city"]
    assert base_url_of([one["url"] for one in document["servers"]], "https://b.example/x/v1/tools/openapi.json") == (
        "https://b.example/x/v1/tools"
    ), "behind a proxy with a prefix"
    assert json.loads(through.text)["structuredContent"] == {"Oslo": "sun for 2 days"}


def test_every_reference_of_a_described_schema_leads_to_a_component_or_an_id() -> None:
    copied = "https://schemas.example/tag"
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"tree": {"$ref": "#"}, "tag": {"$ref": copied}, "size": {"$ref": "#/$defs/size"}},
        "$defs": {
            copied: {"$id": copied, "type": "string"},
            "size": {"$ref": "#/$defs/number"},
            "number": {"minimum": 1},
        },
    }
    document = describe_tools("tools", [Tool(name="grow", source="s", local_name="grow", input_schema=schema)])
    components = document["components"]["schemas"]
    body = document["paths"]["/grow"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    compiled = compile_schema({**body, "components": {"schemas": components}})

    assert {name for name in components if name.startswith("grow")} == {
        "grow.arguments",
        "grow.arguments.number",
        "grow.arguments.size",
    }
    assert not compiled.check({"tree": {"tag": "a", "size": 2}})
    wrong = [{"tree": {"tag": 1}}, {"tree": {"size": 0}}, {"tag": 1}]
    assert [[error.path for error in compiled.check(one)] for one in wrong] == [["tree.tag"], ["tree.size"], ["tag"]]


async def test_the_page_for_models_is_public_and_its_links_are_served(backend: FakeBackend) -> None:
    async with Toolcrib() as crib:
        routes = [partial(RestApi, crib.slice(Registrations))]
        async with serving(backend, HttpOptions(token="a-token-0001"), routes) as site:
            page = await site.client.get(f"http://127.0.0.1:{site.port}/llms.txt")
            links = re.findall(r"^- \[.*?\]\((.*?)\)", page.text, re.MULTILINE)
            answers = {
                link: (await site.client.get(f"http://127.0.0.1:{site.port}/{link}")).status_code for link in links
            }

    assert page.headers["content-type"] == "text/plain; charset=utf-8"
    assert answers == {
        "mcp": 401,
        "v1/tools": 401,
        "v1/tools/openapi.json": 401,
        "openapi.json": 401,
        "healthz": 200,
        "readyz": 200,
    }
