"""Addresses that lead back to this machine and answers that are made to hurt (security.md T19, T20)."""

from __future__ import annotations

import json
import resource
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

import toolcrib_tools.api
from peers.api import described
from toolcrib.sources.openapi.source import OpenApiSource
from toolcrib.sources.yaml.source import YamlSource
from toolcrib.testing import RecordingApprover
from toolcrib_tools import services, web
from unit.toolcrib_tools.online import Online, gives, online

MEBIBYTE = 1 << 20
MOST_GROWTH = 64 * MEBIBYTE
PATIENCE = 35.0
"""Seconds in which an answer made to hurt must be over: 30 that a request has, and some."""

HERE = [
    *("127.0.0.1", "localhost", "LOCALHOST.", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0.0.0.0", "[::1]"),
    *("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:0:0:1]", "127.0.0.1.", "[::]", "%31%32%37.0.0.1"),
]
"""This machine, however it is written; each with the port of a server that listens there."""
ELSEWHERE = [
    *(
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "[64:ff9b::a9fe:a9fe]",
    ),
    *("metadata.google.internal", "100.100.100.200", "224.0.0.1", "[2002:7f00:1::]", "255.255.255.255"),
]


@pytest.fixture
async def shut() -> AsyncGenerator[Online]:
    """A session whose tools may reach nothing private; the server is there all the same."""
    async with online(web, tools={"web": {"private_hosts": [], "robots": "state"}}) as opened:
        yield opened


@pytest.fixture
async def at() -> AsyncGenerator[Online]:
    async with online(web) as opened:
        yield opened


@pytest.mark.parametrize(("name", "more"), [("web_fetch", {}), ("web_post", {"data": "x"})])
async def test_this_machine_is_refused_however_it_is_written(shut: Online, name: str, more: dict[str, Any]) -> None:
    port = shut.server.origin.rpartition(":")[2]

    for host in HERE:
        refused = await shut.refused(name, url=f"http://{host}:{port}/secret", **more)

        assert refused.code in ("denied", "unavailable", "invalid_arguments"), (host, refused)
        assert shut.server.received == [], host


async def test_what_is_not_public_is_refused_without_asking_anybody(shut: Online) -> None:
    for host in ELSEWHERE:
        refused = await shut.refused("web_fetch", url=f"http://{host}/latest/meta-data/")
        assert (host, refused.code, shut.session.state.taint.source) == (host, "denied", "")


async def test_no_person_is_asked_about_an_address_that_is_never_reached(tmp_path: Path) -> None:
    here = "http://127.0.0.1:9"
    endpoint = {"name": "send", "kind": "write", "description": "Send.", "implementation": {"endpoint": {"url": here}}}
    catalog = tmp_path / "catalog.yaml"
    catalog.write_text(json.dumps({"capabilities": [endpoint]}), encoding="utf-8")
    description = described({"/things": {"post": {"operationId": "make"}}}, servers=[{"url": here}])
    sources = (YamlSource("local", catalog), OpenApiSource("shop", description))
    approver = RecordingApprover("no")
    calls: dict[str, dict[str, Any]] = {
        "web_post": {"url": here, "data": "x"},
        "web_fetch": {"url": here},
        "api_calling": {"url": here, "method": "POST"},
        "call_service": {"url": here, "method": "POST"},
        "discover_service": {"source": here, "alias": "shop"},
        "send": {},
        "shop__make": {},
    }
    parts = (web, toolcrib_tools.api, services)
    async with online(*parts, tools={"web": {"private_hosts": []}}, mode="manual", approver=approver) as at:
        for source in sources:
            await at.crib.tools.mount_source(source)
        await at.crib.tools.wait_ready(10)
        codes = {name: (await at.refused(name, **arguments)).code for name, arguments in calls.items()}

        assert codes == dict.fromkeys(calls, "denied")
        assert approver.questions == []


async def test_no_name_is_looked_up_before_a_person_agrees_because_the_name_itself_may_carry_a_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names: list[str] = []

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        names.append(host)
        raise OSError("no such host")

    monkeypatch.setattr(anyio, "getaddrinfo", getaddrinfo)
    url = "http://hunter2.collector.example/"
    calls: dict[str, dict[str, Any]] = {
        "web_post": {"url": url, "data": "x"},
        "web_fetch": {"url": url},
        "api_calling": {"url": url, "method": "POST"},
        "call_service": {"url": url, "method": "POST"},
        "discover_service": {"source": url, "alias": "shop"},
    }
    async with online(web, toolcrib_tools.api, services, mode="manual", approver=RecordingApprover("no")) as at:
        codes = {name: (await at.refused(name, **arguments)).code for name, arguments in calls.items()}

    assert (codes, names) == (dict.fromkeys(calls, "denied"), [])


@pytest.mark.parametrize("scheme", ["file", "ftp", "gopher", "data", "javascript", "jar", "unix"])
async def test_only_the_web_is_fetched(shut: Online, scheme: str) -> None:
    refused = await shut.refused("web_fetch", url=f"{scheme}:///etc/passwd")

    assert (refused.code, shut.session.state.taint.source) == ("invalid_arguments", "")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_this_machine_is_refused_at_every_hop(at: Online, status: int) -> None:
    async with online(web) as inside:
        target = f"{inside.server.origin}/secret"
        at.server.handlers["GET /one"] = gives("", status=status, location="/two")
        at.server.handlers["GET /two"] = gives("", status=status, location=target)

        refused = await at.refused("web_fetch", url=f"{at.server.origin}/one")

        assert (refused.code, inside.server.received) == ("denied", [])
    assert at.session.state.taint.source == "web_fetch"  # the address came from a server
    assert [seen["path"] for seen in at.server.received] == ["/one", "/two"]


@pytest.mark.parametrize("url", ["http://user:pass@{host}/", "http://{host}@10.0.0.1/", "http://10.0.0.1#@{host}/"])
async def test_a_login_in_an_address_hides_no_host(at: Online, url: str) -> None:
    refused = await at.refused("web_fetch", url=url.replace("{host}", at.server.origin.removeprefix("http://")))

    assert (refused.code, at.server.received) == ("denied", [])


async def pieces(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // MEBIBYTE):
        yield b"x" * MEBIBYTE


async def drops() -> AsyncIterator[bytes]:
    while True:
        yield b"."
        await anyio.sleep(0.05)


@cache
def packed() -> bytes:
    """200 MiB of nothing, packed piece by piece: nobody here ever holds them."""
    packer = zlib.compressobj(9, wbits=31)
    return b"".join([*(packer.compress(b"\0" * MEBIBYTE) for _ in range(200)), packer.flush()])


async def bomb(request: Request) -> Response:
    return Response(packed(), headers={"content-encoding": "gzip"}, media_type="text/plain")


async def endless(request: Request) -> Response:
    return StreamingResponse(pieces(300 * MEBIBYTE), media_type="text/plain")


async def announced(request: Request) -> Response:
    headers = {"content-length": str(300 * MEBIBYTE)}
    return StreamingResponse(pieces(300 * MEBIBYTE), headers=headers, media_type="text/plain")


async def dripping(request: Request) -> Response:
    return StreamingResponse(drops(), media_type="text/plain")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("handler", "code", "seconds"),
    [(bomb, "too_large", 10), (endless, "too_large", 10), (announced, "too_large", 10), (dripping, "timeout", 1)],
    ids=["bomb", "endless", "announced", "dripping"],
)
async def test_an_answer_that_is_made_to_hurt_is_over_in_time_and_takes_no_memory(
    at: Online, handler: Any, code: str, seconds: int
) -> None:
    at.server.handlers["GET /hurt"] = handler
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()

    refused = await at.refused("web_fetch", url=f"{at.server.origin}/hurt", timeout_seconds=seconds)

    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert refused.code == code
    assert time.monotonic() - started < PATIENCE
    assert grown <= MOST_GROWTH
