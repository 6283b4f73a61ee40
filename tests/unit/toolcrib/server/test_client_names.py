"""The record names the client of each call, as it declared itself in either era of the protocol."""

from __future__ import annotations

import pytest

from toolcrib.config import bare
from toolcrib.crib import Toolcrib
from toolcrib.mcp.server.calls import client_name
from toolcrib.plugin import tool
from toolcrib.server.backend import CribBackend
from toolcrib.server.http import HttpOptions
from unit.toolcrib.server.wire_client import call, serving


@tool(kind="read")
def hello() -> str:
    """Say hello."""
    return "hello"


async def test_a_call_of_either_era_is_recorded_with_its_client_and_its_coming_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with Toolcrib(bare().with_values(profile="flat"), memory=True) as crib:
        crib.add(hello)
        async with serving(CribBackend(crib), HttpOptions(profile="flat")) as site:
            stateless = [await site.ask(call("hello")) for _ in range(2)][-1]
            session = await site.post(call("hello", id=2), **await site.open())
        rows = await crib.store.calls.list()

    assert (stateless.status_code, session.status_code) == (200, 200)
    assert [(row.tool, row.origin, row.client) for row in rows] == [("hello", "mcp", "test/1")] * 3
    logged = [line for line in caplog.messages if line.startswith("client ")]
    assert logged == ["client test/1 calls, for local", "client test/1 connected, for local", "client test/1 left"]


def test_what_is_no_name_is_left_out_and_a_long_one_cut() -> None:
    given: list[object] = [
        None,
        "x",
        {},
        {"name": 1},
        {"name": "zed"},
        {"name": "zed", "version": 2},
        {"name": "z" * 200},
    ]

    assert [client_name(info) for info in given] == ["", "", "", "", "zed", "zed", "z" * 100]
