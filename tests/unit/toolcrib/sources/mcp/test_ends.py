"""No process of a server outlives what it was started for."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from peers import scripted
from peers.journal import Journal, gone
from peers.opened import open_source
from rig import PATIENCE
from toolcrib.mcp.client.server_process import Child
from toolcrib.mcp.client.spec import McpLimits
from toolcrib.system.child_processes import Reaper, shared_reaper

pytestmark = pytest.mark.process


_HOST = """
import anyio, os, sys
from pathlib import Path
from peers import scripted
from peers.journal import Journal, gone
from peers.opened import open_source

async def main():
    folder = Path(sys.argv[1])
    async with open_source(scripted(Path(sys.argv[2]), "stubborn"), folder) as peer:
        child = (await peer.call("child")).text
        print(f"{child} {peer.source._connection.live.link.pid}", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


async def test_closing_ends_a_stubborn_server_and_its_children(tmp_path: Path, journal: Journal) -> None:
    limits = McpLimits(stop_grace=0.2)
    async with open_source(scripted(journal.path, "stubborn"), tmp_path, limits=limits) as peer:
        child = int((await peer.call("child")).text)
        with anyio.fail_after(PATIENCE):
            await peer.source.close()
        await gone(child)
    assert shared_reaper().pid is None


async def test_a_crashed_server_takes_its_children_with_it(tmp_path: Path, journal: Journal) -> None:
    async with open_source(scripted(journal.path), tmp_path) as peer:
        child = int((await peer.call("child")).text)
        await peer.failing("die")
        await gone(child)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_nothing_is_left_after_we_were_killed(tmp_path: Path, journal: Journal, how: signal.Signals) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    command = [sys.executable, "-c", _HOST, str(tmp_path), str(journal.path)]
    async with await anyio.open_process(command, stdout=subprocess.PIPE, stderr=None, env=environment) as host:
        assert host.stdout is not None
        pids = [int(one) for one in (await host.stdout.receive()).split()]
        host.send_signal(how)

    assert len(pids) == 2
    await gone(*pids)


async def test_a_start_that_is_given_up_is_finished_so_that_all_it_started_can_be_ended() -> None:
    started: list[Child] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        started.append(await Child.start(["sleep", "600"], os.environ, ""))
    (child,) = started
    await child.end(0)
    child.close_pipes()

    assert child.ending == "was killed by SIGKILL"
    assert shared_reaper().pid is None


def test_the_helper_runs_only_while_there_is_something_to_watch() -> None:
    reaper = Reaper()
    one = subprocess.Popen(["sleep", "60"], start_new_session=True)
    reaper.watch(one.pid)
    helper = reaper.pid
    one.kill()
    one.wait()
    reaper.forget(one.pid)

    assert helper is not None
    assert reaper.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(helper, 0)


def test_a_held_helper_stays_for_the_next_server() -> None:
    reaper = Reaper()
    reaper.hold()
    reaper.watch(999_999_999)
    helper = reaper.pid
    reaper.forget(999_999_999)

    assert helper is not None
    assert reaper.pid == helper
    reaper.release()
    assert reaper.pid is None
