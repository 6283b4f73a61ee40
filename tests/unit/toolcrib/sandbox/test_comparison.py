"""The comparison around a command: other calls go on while it reads and moves files."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from threading import get_ident

import pytest

from toolcrib.core.sandbox import Command
from toolcrib.sandbox.detection import Unsandboxed


@pytest.mark.process
async def test_files_that_a_command_left_are_read_and_moved_outside_of_the_event_loop(tmp_path: Path) -> None:
    loop, seen = get_ident(), dict[str, set[int]]()

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("open", "os.rename") and str(arguments[0]) == str(tmp_path / "AGENTS.md"):
            seen.setdefault(event, set()).add(get_ident())

    sys.addaudithook(note)  # stays until the process ends: it looks for a file of this test alone
    argv = ("/bin/sh", "-c", "echo obey > AGENTS.md")
    async with Unsandboxed(environ=os.environ).open(Command(argv=argv, cwd=tmp_path, folders=(tmp_path,))) as running:
        await running.wait()

    assert list(running.aside) == [str(tmp_path / "AGENTS.md.aside")]
    assert (sorted(seen), loop in seen["open"] | seen["os.rename"]) == (["open", "os.rename"], False)
