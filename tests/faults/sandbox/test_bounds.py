"""What a command must not use up, and what must not outlive it: R17 of the security goals, the part about bombs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import anyio

from rig import PATIENCE, eventually
from rig.sandbox import Run, needs_groups, needs_sandbox, stands_still
from toolcrib.sandbox.bubblewrap import CommandLimits

pytestmark = needs_sandbox


async def test_a_fork_bomb_ends(run: Run) -> None:
    outcome = await run("bomb() { bomb | bomb & }; bomb; sleep 600", bounds=CommandLimits(processes=200))

    assert outcome.finished.status != 0
    if os.geteuid() == 0:
        assert outcome.finished.stopped == "more than 200 processes at a time (setting `shell.processes`)"


@needs_groups
async def test_a_fork_bomb_gets_no_further_than_its_bound_where_control_groups_count(run: Run, folder: Path) -> None:
    (folder / "bomb.py").write_text(
        textwrap.dedent("""
        import os, signal
        for made in range(500):
            try:
                if os.fork() == 0:
                    signal.pause()
            except OSError:
                break
        print(made, flush=True)
        signal.pause()
        """)
    )

    outcome = await run("exec python3 bomb.py", bounds=CommandLimits(processes=20))

    assert (outcome.text, outcome.finished.stopped) == (
        "19\n",
        "more than 20 processes at a time (setting `shell.processes`)",
    )


async def test_memory_has_an_end_for_one_process_and_for_all(run: Run) -> None:
    bounds = CommandLimits(memory=200 << 20)
    one = await run("python3 -c 'x = bytearray(300 << 20)'", bounds=bounds)
    part = "python3 -c 'import time; x = bytearray(b\"x\" * (90 << 20)); time.sleep(600)' & "
    together = await run(f"{part * 4} wait", bounds=bounds)

    assert ("MemoryError" in one.text, one.finished.status) == (True, 1)
    assert together.finished.stopped == "more than 200 MiB of memory (setting `shell.memory_mb`)"


async def test_disks_have_an_end(run: Run, folder: Path) -> None:
    bounds = CommandLimits(memory=64 << 20, file=1 << 20)

    outcome = await run(
        "head -c 4m /dev/zero > big; stat -c %s big; for i in $(seq 100); do head -c 1m /dev/zero > /tmp/f$i || break;"
        " done; du -sm /tmp | cut -f1; head -c 999m /dev/zero >> ~/f; df -m ~ | tail -1 | awk '{print $2}'",
        bounds=bounds,
    )
    size, in_tmp, in_home = (int(word) for word in outcome.text.split("\n") if word.isdecimal())

    assert (size, (folder / "big").stat().st_size) == (1 << 20, 1 << 20)
    assert in_tmp < 70
    assert in_home <= 64


async def test_nothing_but_its_own_places_takes_what_it_writes(run: Run) -> None:
    """The folders that hold the mounts are in memory, and nobody counts that."""
    bounds = CommandLimits(memory=64 << 20)

    outcome = await run(
        "for place in / /dev /etc /run /usr /proc /home /var; do (echo x > $place/f) 2>/dev/null && echo $place; done;"
        " for i in $(seq 40); do head -c 1m /dev/zero > /dev/shm/f$i || break; done 2>/dev/null;"
        " du -sm /dev/shm | cut -f1",
        bounds=bounds,
    )

    assert outcome.text == "16\n"


async def test_a_disk_that_is_nearly_full_ends_what_writes_there(run: Run) -> None:
    outcome = await run("while :; do echo x > f; done", bounds=CommandLimits(free=1 << 60))

    assert outcome.finished.stopped == f"less than {1 << 40} MiB are left on the disk"


async def test_nothing_of_it_survives_its_end(run: Run, folder: Path) -> None:
    """A process that left the group and the session, and hears no signal, still ends with the command."""
    await run(
        "(trap '' HUP TERM INT; setsid sh -c 'trap \"\" HUP TERM; while :; do date +%s.%N > alive; sleep 0.05; done'"
        " >/dev/null 2>&1 &); until test -s alive; do sleep 0.05; done"
    )

    await stands_still(folder / "alive")


async def test_it_dies_with_us_even_when_we_are_killed(folder: Path) -> None:
    script = textwrap.dedent("""
        import os, sys, anyio
        from pathlib import Path
        from toolcrib.core.sandbox import Command
        from toolcrib.sandbox.detection import find_sandbox

        async def main():
            sandbox, _ = find_sandbox(os.environ)
            folder = Path(sys.argv[1])
            text = "trap '' TERM HUP; while :; do date +%s.%N > alive; sleep 0.05; done"
            async with sandbox.open(Command(argv=("/bin/sh", "-c", text), cwd=folder, folders=(folder,))) as running:
                await running.wait()

        anyio.run(main)
    """)
    alive = folder / "alive"
    with subprocess.Popen([sys.executable, "-c", script, str(folder)]) as process:
        await eventually(lambda: alive.exists() and alive.stat().st_size > 0)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)

    await stands_still(alive)


async def test_it_ends_when_nobody_waits_for_it_any_more(run: Run, folder: Path) -> None:
    with anyio.move_on_after(PATIENCE) as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(run, "trap '' TERM; while :; do date +%s.%N > alive; sleep 0.05; done")
            await eventually((folder / "alive").exists)
            group.cancel_scope.cancel()

    assert not scope.cancelled_caught
    await stands_still(folder / "alive")
