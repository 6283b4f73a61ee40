"""What servers list beside tools: every entry is checked by itself, and no list costs another one."""

from collections.abc import Mapping
from typing import Any

import pytest

from toolcrib.core.sanitize import Icons
from toolcrib.core.server_features import ServerFeatures
from toolcrib.errors import ToolFailure
from toolcrib.mcp.client.session import RawFeatures, build_features, list_features
from toolcrib.mcp.client.spec import McpLimits
from toolcrib.mcp.jsonrpc import METHOD_NOT_FOUND, RpcError


def built(limits: McpLimits | None = None, **lists: list[Any]) -> tuple[ServerFeatures, list[tuple[str, str]]]:
    problems: list[tuple[str, str]] = []
    raw = RawFeatures(lists=lists, missing={}, reads=True)
    limits = limits or McpLimits()
    icons = Icons(limits.icon_bytes, limits.icons_bytes)
    offer = build_features(raw, limits, lambda code, message: problems.append((code, message)), icons)
    return offer, problems


def test_a_good_entry_is_passed_on_and_what_is_unknown_or_of_a_wrong_type_is_not() -> None:
    entry = {"uri": "x:1", "name": "One", "mimeType": "text/plain", "size": "big", "wild": 1, "_meta": {"a": 1}}

    offer, problems = built(resources=[entry])

    assert offer.resources == ({"uri": "x:1", "name": "One", "mimeType": "text/plain", "_meta": {"a": 1}},)
    assert problems == []


def test_what_the_sdk_of_typescript_refuses_in_annotations_and_icons_is_left_out() -> None:
    bad = {"audience": ["robot"], "priority": 7, "lastModified": "2026-01-01T00:00:00"}
    good = {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z", "x": 1}
    icon = {"src": "https://icons.example/a.png"}

    offer, problems = built(
        resources=[{"uri": f"x:{number}", "annotations": one} for number, one in enumerate((bad, good))],
        prompts=[{"name": "p", "icons": [{**icon, "sizes": "48x48", "mimeType": None}]}],
    )

    assert [entry["annotations"] for entry in offer.resources] == [{}, good]
    assert offer.prompts == ({"name": "p", "icons": (icon,)},)
    assert problems == []


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("text", "its uri is not a text"),
        ({"name": "no uri"}, "its uri is not a text"),
        ({"uri": "no scheme"}, "its uri is not a URI"),
        ({"uri": "x:\u200b1"}, "its uri holds invisible"),
        ({"uri": "x:\n1"}, "its uri holds invisible"),
        ({"uri": "x:" + "1" * 3000}, "its uri is not a text"),
        ({"uri": "x:2", "_meta": {"a": "b" * 20_000}}, "allowed"),
    ],
)
def test_a_bad_entry_is_a_problem_and_hides_no_good_one(entry: Any, reason: str) -> None:
    offer, problems = built(resources=[entry, {"uri": "x:1", "name": "One"}])

    assert offer.resources == ({"uri": "x:1", "name": "One"},)
    assert [(code, reason in message) for code, message in problems] == [("bad_entry", True)]


def test_words_that_nobody_sees_are_removed_and_long_ones_are_cut() -> None:
    prompt = {
        "name": "p",
        "description": "a\u200bb" + "c" * 9000,
        "arguments": [{"name": "x", "description": "d\u202e"}, {"name": ""}, 7],
    }

    offer, _ = built(McpLimits(description_bytes=10), prompts=[prompt])

    assert offer.prompts == (
        {"name": "p", "description": "abccccc…", "arguments": [{"name": "x", "description": "d", "required": False}]},
    )


def test_the_second_of_a_name_and_what_is_too_much_are_problems() -> None:
    entries = [{"uri": f"x:{number % 3}"} for number in range(5)]

    offer, problems = built(McpLimits(tools=4), resources=entries)

    assert [entry["uri"] for entry in offer.resources] == ["x:0", "x:1", "x:2"]
    assert [code for code, _ in problems] == ["too_many", "duplicate"]


async def test_a_list_that_cannot_be_had_costs_no_other_one() -> None:
    async def ask(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if method == "resources/list":
            raise ToolFailure("unavailable", "it broke")
        if method == "resources/templates/list":
            raise RpcError(METHOD_NOT_FOUND, "what?")
        page = int(params.get("cursor", "0"))
        return {"prompts": [{"name": f"p{page}"}], **({"nextCursor": str(page + 1)} if page < 2 else {})}

    raw = await list_features(ask, {"resources": {}, "prompts": {}}, McpLimits())

    assert raw == RawFeatures(
        lists={"resourceTemplates": (), "prompts": [{"name": "p0"}, {"name": "p1"}, {"name": "p2"}]},
        missing={"resources": "it broke"},
        reads=True,
    )


async def test_a_server_that_declares_nothing_is_asked_for_nothing() -> None:
    async def ask(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        raise AssertionError(method)

    assert await list_features(ask, {"tools": {}}, McpLimits()) == RawFeatures(lists={}, missing={}, reads=False)
