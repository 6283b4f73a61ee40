"""Pinned versions of tools, met by MCP clients of both eras: what the configuration pins, and what one call does."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Toolcrib, tool
from toolcrib.config import load
from toolcrib.server.backend import CribBackend
from toolcrib.server.http import HttpOptions
from unit.toolcrib.server.wire_client import Site, call, serving

VERSION = "io.toolcrib/version"


@tool(name="weather", version="1", kind="read")
def weather_1(city: str) -> str:
    """Tell the weather of a city."""
    return f"1: {city}"


@tool(name="weather", version="2", kind="read", migrations={"0": {"rename": {"town": "place"}}})
def weather_2(place: str) -> str:
    """Tell the weather of a place."""
    return f"2: {place}"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[Site]:
    """A server whose configuration pins the older of two versions."""
    file = tmp_path / "toolcrib.yaml"
    file.write_text("versions: {weather: '1'}\nbuiltins: false\n")
    async with Toolcrib(load([file], environ={"HOME": str(tmp_path)}), memory=True) as crib:
        crib.add(weather_1, weather_2)
        async with serving(CribBackend(crib), HttpOptions(profile="flat")) as site:
            yield site


@pytest.fixture(params=["2025-11-25", "2026-07-28"])
async def headers(request: pytest.FixtureRequest, site: Site) -> dict[str, str] | None:
    return await site.open() if request.param == "2025-11-25" else None


async def _ask(site: Site, headers: dict[str, str] | None, message: dict[str, Any]) -> dict[str, Any]:
    sent = await (site.post(message, **headers) if headers else site.ask(message))
    return sent.json()


async def test_a_client_is_shown_and_runs_the_version_that_the_configuration_pins(
    site: Site, headers: dict[str, str] | None
) -> None:
    listed = await _ask(site, headers, {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})
    ran = await _ask(site, headers, call("weather", {"city": "Oslo"}))
    refused = await _ask(site, headers, call("weather", {"place": "Oslo"}))

    [shown] = [one for one in listed["result"]["tools"] if one["name"] == "weather"]
    assert list(shown["inputSchema"]["properties"]) == ["city"]
    assert ran["result"]["content"] == [{"type": "text", "text": "1: Oslo"}]
    assert refused["result"]["_meta"]["io.toolcrib/error"]["code"] == "invalid_arguments"


async def test_a_call_says_in_its_meta_which_version_it_means(site: Site, headers: dict[str, str] | None) -> None:
    answers = [
        await _ask(site, headers, call("weather", arguments, _meta={VERSION: version}))
        for version, arguments in (("2", {"place": "Oslo"}), ("0", {"town": "Oslo"}), ("7", {"city": "Oslo"}))
    ]
    follows = await _ask(site, headers, call("weather", {"city": "Rome"}))
    broken = await _ask(site, headers, call("weather", {"city": "Rome"}, _meta={VERSION: 2}))

    assert [answer["result"]["content"][0]["text"] for answer in (*answers[:2], follows)] == [
        "2: Oslo",
        "2: Oslo",
        "1: Rome",
    ]
    assert answers[1]["result"]["_meta"]["io.toolcrib/version"] == {"ran": "2", "migrated_from": "0"}
    assert answers[2]["result"]["_meta"]["io.toolcrib/error"]["code"] == "not_found"
    assert (broken["error"]["code"], VERSION in broken["error"]["message"]) == (-32602, True)
