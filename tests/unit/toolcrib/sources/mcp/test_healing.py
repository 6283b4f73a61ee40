"""What a server does to itself, and what becomes of the calls meanwhile."""

import os
import re
import signal
import sys
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from peers import scripted
from peers.journal import Journal, gone
from peers.opened import open_source
from rig import PATIENCE, eventually
from toolcrib.core.tool import Tool
from toolcrib.errors import ToolFailure
from toolcrib.mcp.client.spec import McpLimits, ServerSpec
from toolcrib.sources.source import Listing

pytestmark = pytest.mark.process


HOUR = 3600.0
"""Longer than any test: what begins after it does not begin."""


async def test_a_call_that_may_have_run_is_never_sent_twice(tmp_path: Path, journal: Journal) -> None:
    async with open_source(scripted(journal.path), tmp_path) as peer:
        failure = await peer.failing("effect", id="a", die=True)
        await peer.call("effect", id="b")

    assert failure.code == "outcome_unknown"
    assert failure.message.startswith("server 'peer' exited with status 9")
    assert [entry["id"] for entry in journal.of("effect")] == ["a", "b"]


async def test_a_read_is_repeated_once_when_the_server_died_under_it(tmp_path: Path, journal: Journal) -> None:
    async with open_source(scripted(journal.path), tmp_path) as peer:
        assert (await peer.call("die_once")).text == "survived"

    assert len(journal.of("die_once")) == 2


async def test_a_killed_server_is_back_at_once(tmp_path: Path, journal: Journal) -> None:
    async with open_source(scripted(journal.path), tmp_path) as peer:
        for _ in range(5):
            pid = journal.of("start")[-1]["pid"]
            os.kill(pid, signal.SIGKILL)
            await gone(pid)
            with anyio.fail_after(PATIENCE):
                assert (await peer.call("effect", id="x")).text == "done x"


async def test_a_server_that_cannot_start_says_why_and_opens_the_breaker(tmp_path: Path, journal: Journal) -> None:
    limits = McpLimits(backoff=0.01, breaker_window=HOUR, breaker_open=HOUR)
    async with open_source(scripted(journal.path, "exit"), tmp_path, limits=limits) as peer:
        listing = await peer.until(lambda one: bool(one.problems))
        await journal.until("start", 5)

    assert listing.tools == ()
    assert [(one.code, one.message) for one in listing.problems] == [("unavailable", "exited with status 3")]
    assert len(journal.of("start")) == 5


async def test_while_the_breaker_is_open_calls_fail_at_once_and_say_when_it_is_tried_again(tmp_path: Path) -> None:
    limits = McpLimits(breaker_failures=1, breaker_window=HOUR, breaker_open=HOUR)
    gone_server = ServerSpec(name="peer", transport="stdio", command="/nonexistent/server")
    async with open_source(gone_server, tmp_path, limits=limits) as peer:
        peer.publish(Listing(tools=(Tool(name="echo", source="peer", local_name="echo"),)))
        with anyio.fail_after(PATIENCE):
            failure = await peer.failing("echo")

    assert failure.code == "unavailable"
    assert "the command '/nonexistent/server' was not found" in failure.message
    wait = re.search(r"tried again in (\d+) s", failure.hint)
    assert wait and HOUR - PATIENCE < int(wait[1]) <= HOUR


async def test_a_server_that_stays_silent_after_a_call_is_ended_and_what_it_did_not_read_runs_on_the_next(
    tmp_path: Path, journal: Journal
) -> None:
    async with open_source(scripted(journal.path), tmp_path, limits=McpLimits(silence=0.2)) as peer:
        assert (await peer.failing("freeze", 0.2)).code == "timeout"
        with anyio.fail_after(PATIENCE):
            assert (await peer.call("effect", id="a")).text == "done a"

    assert len(journal.of("start")) == 2
    assert [entry["id"] for entry in journal.of("effect")] == ["a"]


async def test_a_server_that_gives_a_sign_of_life_keeps_running_and_so_does_one_with_an_older_call(
    tmp_path: Path, journal: Journal
) -> None:
    async with open_source(scripted(journal.path), tmp_path, limits=McpLimits(silence=0.05)) as peer:
        assert (await peer.failing("hang", 0.2)).code == "timeout"  # and answers `ping`
        async with anyio.create_task_group() as group:
            group.start_soon(peer.call, "freeze")
            await journal.until("frozen")
            assert (await peer.failing("echo", 0.5)).code == "timeout"
            await eventually(lambda: "has not answered anything" in peer.source.state.detail)
            os.kill(journal.of("start")[-1]["pid"], signal.SIGCONT)
    assert len(journal.of("start")) == 1


async def test_a_call_has_a_server_tried_that_is_not_tried_without_one(tmp_path: Path, journal: Journal) -> None:
    limits = McpLimits(breaker_failures=1, breaker_window=HOUR, breaker_open=1e-6, breaker_open_max=HOUR)
    server = tmp_path / "server"
    spec = replace(scripted(journal.path), command=str(server))
    async with open_source(spec, tmp_path, limits=limits) as peer:
        echo = Tool(name="echo", source="peer", local_name="echo")
        for _ in range(40):  # each doubles the time after which it would be tried without a call
            with pytest.raises(ToolFailure, match="peer is down"):
                await peer.call_as(echo)
        server.symlink_to(sys.executable)
        with anyio.fail_after(PATIENCE):
            with pytest.raises(ToolFailure, match="describes 'echo' otherwise"):  # it is there
                await peer.call_as(echo)
    assert len(journal.of("start")) == 1


@pytest.mark.parametrize("mode", ["hang-initialize", "hang-list"])
async def test_a_server_that_hangs_at_start_is_given_up_and_started_again(
    tmp_path: Path, journal: Journal, mode: str
) -> None:
    limits = McpLimits(start_timeout=0.5, backoff=0.01)
    async with open_source(scripted(journal.path, mode), tmp_path, limits=limits) as peer:
        assert peer.source.state.state == "failed"
        assert "did not get ready within 0.5 s" in peer.source.state.detail


async def test_a_known_server_that_is_gone_stays_listed_as_stale(tmp_path: Path, journal: Journal) -> None:
    server = tmp_path / "server"
    server.symlink_to(sys.executable)
    spec = replace(scripted(journal.path), command=str(server))
    async with open_source(spec, tmp_path, cache=True) as peer:
        tools = peer.listings[-1].tools
    server.unlink()
    async with open_source(spec, tmp_path, cache=True) as peer:
        assert peer.source.state.state == "stale"
        assert peer.listings[0].tools == tools
        assert (peer.listings[-1].tools, [one.code for one in peer.listings[-1].problems]) == (tools, ["unavailable"])


async def test_a_server_that_keeps_exiting_is_not_restarted_without_pause(tmp_path: Path, journal: Journal) -> None:
    limits = McpLimits(backoff=0.01, breaker_window=HOUR, breaker_open=HOUR)
    async with open_source(scripted(journal.path, "short-lived"), tmp_path, limits=limits) as peer:
        await peer.until(lambda listing: bool(listing.problems))

    assert len(journal.of("start")) == 5
