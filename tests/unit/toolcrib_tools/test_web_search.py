"""The web is searched by the service that the operator configured; the fakes answer in the services' real formats."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

import pytest

from toolcrib.policy.taint import Taint
from toolcrib_tools import web
from unit.toolcrib_tools.online import gives, online

BRAVE = {
    "type": "search",
    "query": {"original": "harbour fees"},
    "web": {
        "type": "search",
        "results": [
            {
                "title": "Harbour <strong>fees</strong> &amp; dues",
                "url": "https://port.example/fees",
                "description": "What a <strong>berth</strong> costs.",
                "age": "March 3, 2026",
                "profile": {"name": "port.example"},
            },
            {"title": "Berths", "url": "https://berths.example/", "description": ""},
        ],
    },
}
TAVILY = {
    "query": "harbour fees",
    "answer": None,
    "images": [],
    "results": [
        {
            "title": "Fees",
            "url": "https://port.example/fees",
            "content": "A berth costs 30. " * 30,
            "score": 0.9,
        }
    ],
    "response_time": 0.8,
}
SEARXNG = {
    "query": "harbour fees",
    "number_of_results": 0,
    "results": [
        {
            "url": "https://port.example/fees",
            "title": "Fees",
            "content": "What a berth costs",
            "publishedDate": "2026-03-03T00:00:00",
            "engine": "duckduckgo",
            "parsed_url": ["https", "port.example", "/fees", "", "", ""],
        },
        {"url": "https://b.example/", "title": "Second", "content": ""},
        {"url": "https://c.example/", "title": "Third", "content": ""},
    ],
    "unresponsive_engines": [],
}


def as_json(value: Any) -> Any:
    return gives(json.dumps(value), "application/json")


def searching(**said: str) -> dict[str, Any]:
    return {"web": {"search": said}}


async def test_brave_is_asked_with_its_key_and_its_marks_are_taken_out() -> None:
    async with online(web, tools=searching(brave_key="secret-key-1", brave_url="{origin}/res/v1/web/search")) as at:
        at.server.handlers["GET /res/v1/web/search"] = as_json(BRAVE)
        text = await at.said("web_search", query=" harbour fees ", max_results=7, age="week")

    [seen] = at.server.received
    assert seen["query"] == "q=harbour+fees&count=7&text_decorations=false&freshness=pw"
    assert seen["headers"]["x-subscription-token"] == "secret-key-1"
    assert text == (
        "1. Harbour fees & dues\n   https://port.example/fees\n   March 3, 2026\n   What a berth costs.\n\n"
        "2. Berths\n   https://berths.example/"
    )


async def test_tavily_is_asked_with_its_key_and_long_texts_are_cut() -> None:
    async with online(web, tools=searching(tavily_key="secret-key-2", tavily_url="{origin}/search")) as at:
        at.server.handlers["POST /search"] = as_json(TAVILY)
        text = await at.said("web_search", query="harbour fees", age="year")

    [seen] = at.server.received
    assert json.loads(seen["body"]) == {"query": "harbour fees", "max_results": 5, "time_range": "year"}
    assert seen["headers"]["authorization"] == "Bearer secret-key-2"
    assert text.startswith("1. Fees\n   https://port.example/fees\n   A berth costs 30. A berth")
    assert (len(text) < 460, text.endswith("…")) == (True, True)


@pytest.mark.parametrize("suffix", ["", "/", "/search"])
async def test_a_searxng_is_asked_for_json_and_no_more_is_shown_than_wanted(suffix: str) -> None:
    async with online(web, tools=searching(searxng_url=f"{{origin}}/sx{suffix}")) as at:
        at.server.handlers["GET /sx/search"] = as_json(SEARXNG)
        text = await at.said("web_search", query="harbour fees", max_results=2, age="month")

    assert at.server.received[0]["query"] == "q=harbour+fees&format=json&time_range=month"
    assert text == (
        "1. Fees\n   https://port.example/fees\n   2026-03-03T00:00:00\n   What a berth costs\n\n"
        "2. Second\n   https://b.example/"
    )


async def test_nothing_found_is_said() -> None:
    async with online(web, tools=searching(searxng_url="{origin}")) as at:
        at.server.handlers["GET /search"] = as_json({"results": []})

        assert (await at.said("web_search", query="qqq")).startswith("Nothing was found for 'qqq'.")


async def test_without_a_service_the_settings_are_named() -> None:
    async with online(web) as at:
        refused = await at.refused("web_search", query="harbour fees")

    needs = "the setting tools.web.search (brave_key, tavily_key, searxng_url)"
    assert (refused.code, refused.details) == ("unavailable", {"needs": needs})


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("brave", "the setting tools.web.search is not a mapping"),
        ({"brave": "x"}, "the setting tools.web.search.brave is unknown"),
        ({"brave_key": 7}, "the setting tools.web.search.brave_key is not text"),
        ({"brave_key": ""}, "no search service is configured"),
    ],
)
async def test_a_setting_that_cannot_be_taken_is_named(search: object, message: str) -> None:
    async with online(web, tools={"web": {"search": search}}) as at:
        assert (await at.refused("web_search", query="x")).message.startswith(message)


@pytest.mark.parametrize(
    ("status", "body", "code", "message", "hint"),
    [
        (401, "bad key", "unavailable", "refuses us (status 401)", "correct tools.web.search.tavily_key"),
        (429, "slow down", "overloaded", "429 Too Many Requests: slow down", "wait"),
        (500, "oh", "tool_error", "500 Internal Server Error: oh", "later"),
        (200, "<html>", "unavailable", "check tools.web.search.tavily_key", ""),
        (200, "[1]", "unavailable", "without search results", ""),
    ],
)
async def test_a_service_that_fails_is_told_without_its_key(
    status: int, body: str, code: str, message: str, hint: str
) -> None:
    async with online(web, tools=searching(tavily_key="secret-key-2", tavily_url="{origin}/search")) as at:
        at.server.handlers["POST /search"] = gives(body, "text/plain", status)
        refused = await at.refused("web_search", query="x")

    assert (refused.code, message in refused.message, hint in refused.hint) == (code, True, True)
    assert "secret-key-2" not in f"{refused}"


async def test_a_searxng_that_gives_no_json_says_what_to_change_there() -> None:
    async with online(web, tools=searching(searxng_url="{origin}")) as at:
        at.server.handlers["GET /search"] = gives("Forbidden", "text/html", 403)

        assert "search.formats" in (await at.refused("web_search", query="x")).hint


@pytest.mark.parametrize("query", ["", "   ", "x" * 401])
async def test_a_query_that_is_none_is_refused_before_anybody_is_asked(query: str) -> None:
    async with online(web, tools=searching(searxng_url="{origin}")) as at:
        assert (await at.refused("web_search", query=query)).code == "invalid_arguments"
        assert at.server.received == []


async def test_a_result_may_be_opened_though_the_session_is_tainted_by_the_search() -> None:
    async with online(web, tools=searching(searxng_url="{origin}"), untrusted=Taint()) as at:
        found = {"results": [{"title": "Page", "url": f"{at.server.origin}/page", "content": ""}]}
        at.server.handlers["GET /search"] = as_json(found)
        at.server.handlers["GET /page"] = gives("words", "text/plain")
        await at.said("web_search", query="x")

        assert at.session.state.taint.source == "web_search"
        assert (await at.said("web_fetch", url=f"{at.server.origin}/page")).endswith("words")


# Depth, answers and sites


MANY: dict[str, Any] = {
    "answer": "A berth costs <b>30</b>.",
    "results": [
        {"title": "One", "url": "https://port.example/a", "content": "one " * 300},
        {"title": "Two", "url": "https://sub.port.example/b", "content": "two"},
        {"title": "Three", "url": "https://support.example/c", "content": "three"},
    ],
}
SITES = {"include_domains": ["https://Port.example/fees", "*.other.example"], "exclude_domains": ["sub.port.example"]}


async def test_tavily_is_told_depth_answer_and_sites_and_its_answer_comes_first() -> None:
    async with online(web, tools=searching(tavily_key="secret-key-2", tavily_url="{origin}/search")) as at:
        at.server.handlers["POST /search"] = as_json(MANY)
        text = await at.said("web_search", query="fees", search_depth="advanced", include_answer=True, **SITES)

    [seen] = at.server.received
    assert json.loads(seen["body"]) == {
        "query": "fees",
        "max_results": 5,
        "search_depth": "advanced",
        "include_answer": True,
        "include_domains": ["port.example", "other.example"],
        "exclude_domains": ["sub.port.example"],
    }
    assert text.startswith("Answer of the service: A berth costs 30.\n\n1. One\n   https://port.example/a\n   one one")
    assert len(text) > 1_200
    assert "Two" not in text
    assert "Three" not in text


async def test_other_services_get_sites_in_the_query_and_what_does_not_fit_is_left_out() -> None:
    async with online(web, tools=searching(brave_key="secret-key-1", brave_url="{origin}/search")) as at:
        found = [{**one, "description": one["content"], "extra_snippets": ["more", "more"]} for one in MANY["results"]]
        at.server.handlers["GET /search"] = as_json({"web": {"results": found}})
        text = await at.said("web_search", query="fees", search_depth="advanced", include_answer=True, **SITES)

    [seen] = at.server.received
    assert dict(parse_qsl(seen["query"])) == {
        "q": "fees (site:port.example OR site:other.example) -site:sub.port.example",
        "count": "20",
        "text_decorations": "false",
        "extra_snippets": "true",
    }
    assert text.startswith("This service gives no answers.\n\n1. One\n")
    assert text.count("more") == 1
    assert "2. " not in text


async def test_the_answer_of_a_searxng_is_told() -> None:
    async with online(web, tools=searching(searxng_url="{origin}")) as at:
        at.server.handlers["GET /search"] = as_json({"results": [], "answers": [{"answer": "42"}, "or 43"]})
        with_answer = await at.said("web_search", query="x", include_answer=True)
        at.server.handlers["GET /search"] = as_json({"results": [], "answers": []})
        without = await at.said("web_search", query="x", include_answer=True)

    assert with_answer.startswith("Answer of the service: 42 or 43\n\nNothing was found")
    assert without.startswith("The service gives no answer of its own.\n\nNothing was found")


@pytest.mark.parametrize("domain", ["port", "a b.example", "https://", "x.example:80", "..", "-"])
async def test_a_site_that_is_none_is_refused_before_anybody_is_asked(domain: str) -> None:
    async with online(web, tools=searching(searxng_url="{origin}")) as at:
        refused = await at.refused("web_search", query="x", exclude_domains=[domain])

    assert (refused.code, refused.message[:16], at.server.received) == ("invalid_arguments", "exclude_domains:", [])
