"""One server floods, sends 30 MB or hangs: the callers of another one keep their pace."""

import sys
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
import pytest

from faults.harness import Harness
from rig import eventually
from toolcrib import Toolcrib
from toolcrib.testing import RecordingPeer

LONGEST = 0.25 + 0.5
"""Seconds: the goal is 250 ms; the rest is for a shared machine."""

FLOODING: Final = """
import json, pathlib, sys
def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()
for line in sys.stdin:
    asked = json.loads(line)
    answer = {"tools": [{"name": "flood", "inputSchema": {"type": "object"}}]}
    if asked["method"] == "initialize":
        answer = {"capabilities": {"tools": {}}, "serverInfo": {"name": "f", "version": "1"}}
        answer["protocolVersion"] = asked["params"]["protocolVersion"]
    elif asked["method"] == "tools/call":
        number = 0
        while not pathlib.Path(sys.argv[1]).exists():
            for number in range(number + 1, number + 101):
                send({"method": "notifications/message", "params": {"level": "info", "data": number}})
        answer = {"content": [{"type": "text", "text": "enough"}]}
    if "id" in asked:
        send({"id": asked["id"], "result": answer})
"""
"""A server that sends numbered notifications, some 80 bytes each, until the file that it is given is there."""

OF_ONE_READ: Final = 256 * 1024 // 80
"""Notifications that one read of a pipe can bring."""


@pytest.fixture(scope="module")
def _seen() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize("flood", ["big", "never_newline", "hang"])
def test_calls_to_a_neighbour_keep_their_pace(harness: Harness, _seen: dict[str, Any], flood: str) -> None:
    if not _seen:
        _seen.update(harness.gw_faults("neighbour"))
    found = _seen[flood]
    if found["max_s"] > LONGEST:  # one of few samples, in which the machine may have stood still: ours comes again
        found = harness.gw_faults("neighbour")[flood]

    assert found["failed"] == 0
    # The harness rounds to 10 ms and may take three samples only: below a tenth of a second a ratio says nothing.
    assert found["median_s"] <= max(1.5 * found["baseline_s"], 0.1)
    assert found["max_s"] <= LONGEST


def test_no_call_to_a_neighbour_fails_in_a_flood_of_notifications(harness: Harness, _seen: dict[str, Any]) -> None:
    if not _seen:
        _seen.update(harness.gw_faults("neighbour"))

    assert _seen["notify_flood"]["failed"] == 0


async def test_a_turn_of_the_event_loop_takes_no_more_of_a_flood_of_notifications_than_one_read_brings(
    tmp_path: Path,
) -> None:
    """A call of a neighbour waits for a few turns: this holds however slow the machine is."""
    program, enough = tmp_path / "flooding.py", tmp_path / "enough"
    program.write_text(FLOODING)
    peer, answers, taken = RecordingPeer(), list[str](), list[int]()

    def newest() -> int:
        return int(peer.notifications[-1][1]["data"])

    async with Toolcrib(mode="autonomous", accept=True) as crib, anyio.create_task_group() as group:
        await crib.mount({"mcpServers": {"f": {"command": sys.executable, "args": [str(program), str(enough)]}}})

        async def flood() -> None:
            answers.append((await crib.session().call("f__flood", peer=peer)).text)

        group.start_soon(flood)
        await eventually(lambda: peer.notifications)
        while newest() < 50_000:
            before = newest()
            await anyio.lowlevel.checkpoint()
            taken.append(newest() - before)
        enough.touch()

    assert max(taken) <= OF_ONE_READ
    assert "enough" in answers[0]
