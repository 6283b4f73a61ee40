"""APIs are called with the operator's login, which goes nowhere else; jobs are waited for and streams read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolcrib.core.context import Output, Progress
from toolcrib_tools import api
from unit.toolcrib_tools.online import Online, gives, online

LOGIN = {"Authorization": "Bearer secret-token-1"}
TOOLS: dict[str, Any] = {"api": {"weather": {"url": "{origin}/v2", "headers": LOGIN}, "plain": {"url": "{origin}"}}}


def answer(text: str) -> Any:
    """What the server saw, out of an answer that repeats it."""
    return json.loads(text.partition("\n\n")[2])


async def test_a_named_api_is_called_below_its_address_with_its_login() -> None:
    async with online(api, tools=TOOLS) as at:
        text = await at.said(
            "api_calling",
            api_name="weather",
            path="/forecast?unit=c",
            query={"city": "Tallinn", "days": [1, 2], "now": True, "none": None},
            headers={"X-Mine": "1"},
        )

    seen = answer(text)
    assert text.startswith("200 OK\n\n")
    assert (seen["method"], seen["path"]) == ("GET", "/v2/forecast")
    assert seen["query"] == "unit=c&city=Tallinn&days=1&days=2&now=true"
    [arrived] = at.server.received
    assert (arrived["headers"]["authorization"], arrived["headers"]["x-mine"]) == ("Bearer secret-token-1", "1")


@pytest.mark.parametrize(
    ("method", "body", "kind", "sent"),
    [
        ("POST", {"count": 2}, "application/json", '{"count": 2}'),
        ("PUT", [1], "application/json", "[1]"),
        ("PATCH", "words", "text/plain; charset=utf-8", "words"),
        ("DELETE", None, None, ""),
    ],
)
async def test_any_address_is_called_without_a_login(method: str, body: object, kind: str | None, sent: str) -> None:
    async with online(api, tools=TOOLS) as at:
        arguments = {"url": f"{at.server.origin}/items", "path": "7", "method": method}
        seen = answer(await at.said("api_calling", **arguments, **({} if body is None else {"body": body})))

    assert (seen["method"], seen["path"], seen["body"]) == (method, "/items/7", sent)
    assert (seen["headers"].get("content-type"), "authorization" in seen["headers"]) == (kind, False)


@pytest.mark.parametrize(
    "path",
    [
        *(
            "../admin",
            "a/../../admin",
            "%2e%2e/admin",
            "%252e%252e/admin",
            "..%2fadmin",
            "a\\b",
            "a%00",
            "./a",
            "..;/admin",
        ),
        *("https://evil.example/", "//evil.example/"),
    ],
)
async def test_a_path_that_leads_out_of_the_api_is_refused(path: str) -> None:
    async with online(api, tools=TOOLS) as at:
        refused = await at.refused("api_calling", api_name="weather", path=path)

    assert (refused.code, refused.message[:5], at.server.received) == ("invalid_arguments", "path:", [])


async def test_the_login_does_not_follow_a_redirect_to_another_host() -> None:
    async with online(api) as other:
        hosts = [other.server.origin, "{origin}"]
        async with online(api, tools={**TOOLS, "web": {"private_hosts": hosts}}) as at:
            at.server.handlers["GET /v2/away"] = gives("", status=307, location=f"{other.server.origin}/taken")
            await at.said("api_calling", api_name="weather", path="away")

    [seen] = other.server.received
    assert (seen["path"], "authorization" in seen["headers"]) == ("/taken", False)


async def test_what_is_missing_or_said_twice_is_refused() -> None:
    async with online(api, tools=TOOLS) as at:
        neither = await at.refused("api_calling")
        both = await at.refused("api_calling", api_name="weather", url="https://example.org")
        unknown = await at.refused("api_calling", api_name="wether")
        taken = await at.refused("api_calling", api_name="weather", headers={"authorization": "mine"})
        idle = await at.refused("api_calling", api_name="weather", poll_config={"seconds": 1})

        assert at.server.received == []
    assert neither.hint == both.hint == "names: weather, plain"
    assert unknown.message == "api_name: there is no 'wether'; did you mean 'weather'?"
    assert taken.message == "headers: authorization is set by the operator; leave it out"
    assert idle.message == "poll_config: it is for mode=async_poll"


@pytest.mark.parametrize(
    "said", ["https://x", {"url": 7}, {"url": "https://x?a=b"}, {"url": "https://x", "headers": 1}]
)
async def test_a_setting_that_cannot_be_taken_is_named(said: object) -> None:
    async with online(api, tools={"api": {"odd": said}}) as at:
        assert (await at.refused("api_calling", api_name="odd")).message.startswith("the setting tools.api.odd is no")


async def test_a_refusal_is_told_with_what_the_server_said() -> None:
    async with online(api, tools=TOOLS) as at:
        at.server.handlers["POST /v2/x"] = gives('{"error": "count is missing"}', "application/json", 400)
        refused = await at.refused("api_calling", api_name="weather", path="x", method="POST", body={})

    assert refused.message.endswith('/v2/x answered 400 Bad Request: {"error": "count is missing"}')


async def test_events_of_a_stream_are_collected_and_told() -> None:
    told: list[str] = []

    def hear(update: Progress | Output) -> None:
        if isinstance(update, Output):
            told.append(update.chunk)

    stream = 'event: a\ndata: {"n": 1}\n\n: note\n\ndata: one\ndata: two\n\ndata: [DONE]\n\n'
    async with online(api, tools=TOOLS) as at:
        at.server.handlers["GET /events"] = gives(stream, "text/event-stream")
        at.server.handlers["GET /lines"] = gives('{"n": 1}\n\n{"n": 2}\n', "application/x-ndjson")
        call = {"api_name": "plain", "path": "events", "mode": "stream"}
        result = await at.session.call("api_calling", call, listener=hear)
        lines = await at.said("api_calling", api_name="plain", path="lines", mode="stream")

    assert result.text == '200 OK, 2 events\n\n{"n": 1}\none\ntwo'
    assert "".join(told) == '{"n": 1}\none\ntwo\n'
    assert lines == '200 OK, 2 events\n\n{"n": 1}\n{"n": 2}'


def a_job(at: Online, states: list[str], **first: Any) -> None:
    """Have the server begin a job that goes through `states`."""

    async def begin(request: Request) -> Response:
        return JSONResponse({"id": "j1", "status": "queued", **first.get("body", {})}, 202, first.get("headers"))

    async def told(request: Request) -> Response:
        return JSONResponse({"id": "j1", "status": states.pop(0), "result": "a boat"})

    at.server.handlers["POST /v2/jobs"] = begin
    at.server.handlers["GET /v2/jobs/j1"] = told


@pytest.mark.parametrize("way", ["path", "header", "field"])
async def test_a_job_is_waited_for_until_it_is_finished(way: str) -> None:
    async with online(api, tools=TOOLS) as at:
        place = f"{at.server.origin}/v2/jobs/j1"
        first = {"header": {"headers": {"Location": "/v2/jobs/j1"}}, "field": {"body": {"status_url": place}}}
        a_job(at, ["running", "Succeeded"], **first.get(way, {}))
        config: dict[str, Any] = {"interval": 0.01} | ({"path": "jobs/{id}"} if way == "path" else {})
        begun = {"api_name": "weather", "path": "jobs", "method": "POST", "body": "x", "mode": "async_poll"}
        text = await at.said("api_calling", **begun, poll_config=config)

    assert answer(text) == {"id": "j1", "status": "Succeeded", "result": "a boat"}
    assert [seen["headers"]["authorization"] for seen in at.server.received] == ["Bearer secret-token-1"] * 3


async def test_a_job_that_fails_or_takes_too_long_is_told() -> None:
    begun = {"api_name": "weather", "path": "jobs", "method": "POST", "mode": "async_poll"}
    config = {"path": "jobs/{id}", "interval": 0.01}
    async with online(api, tools=TOOLS) as at:
        a_job(at, ["broken"])
        failed = await at.refused("api_calling", **begun, poll_config={**config, "failed": ["broken"]})
        a_job(at, ["running"] * 1_000)
        late = await at.refused("api_calling", **begun, poll_config={**config, "seconds": 0.1})
        lost = await at.refused("api_calling", **begun, poll_config={"path": "jobs/{name}"})
        unsaid = await at.refused("api_calling", **begun)

    assert failed.message.startswith("the job ended as broken: 200 OK")
    assert (late.code, late.message) == ("timeout", "the job was not finished within 0.1 s; its state is running")
    assert lost.message.startswith("the answer has no name for poll_config.path")
    assert (unsaid.message[:60], unsaid.hint) == (
        "the answer does not say where to ask how far the job is: 202",
        "name it with poll_config.path",
    )


async def test_the_login_does_not_go_where_a_job_says_unless_it_is_the_apis_own() -> None:
    async with online(api, tools=TOOLS) as at:
        a_job(at, [], headers={"Location": "/elsewhere"})
        at.server.handlers["GET /elsewhere"] = gives('{"status": "done"}', "application/json")
        begun = {"api_name": "weather", "path": "jobs", "method": "POST", "mode": "async_poll"}
        await at.said("api_calling", **begun, poll_config={"interval": 0.01})

    assert "authorization" not in at.server.received[-1]["headers"]
