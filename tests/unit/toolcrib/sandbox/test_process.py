"""The start of a command: what is handed to it is let go where it cannot start."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from toolcrib.core.sandbox import Command, Sandbox
from toolcrib.errors import ToolFailure
from toolcrib.sandbox.bubblewrap import CommandLimits, CommandLine, CommandLineMaker
from toolcrib.sandbox.comparison import check
from toolcrib.sandbox.detection import Bubblewrap
from toolcrib.sandbox.landlock import Landlock
from toolcrib.sandbox.process import HeldResources, start


async def test_without_a_free_terminal_a_command_fails_and_its_descriptors_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left() -> tuple[int, int]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.openpty", none_left)
    ours, theirs = os.pipe()
    line = CommandLine(argv=("/bin/true",), environment={})
    with pytest.raises(ToolFailure, match="cannot run /bin/true: No space left on device"):
        async with start(line, None, terminal=(24, 80), held=HeldResources(descriptors=(theirs,))):
            pass
    assert os.read(ours, 1) == b""  # the end of the pipe: nothing holds the other one
    os.close(ours)


@pytest.mark.parametrize(
    "sandbox",
    [Bubblewrap(maker=CommandLineMaker(program="/bin/true", environ={}, bounds=CommandLimits())), Landlock(environ={})],
)
async def test_a_command_for_which_too_few_descriptors_are_left_leaves_none_open(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    command = Command(argv=("/bin/true",), cwd=tmp_path, folders=(tmp_path,))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = os.listdir("/proc/self/fd")
    for left in range(8):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, before)) + 20, limits[1]))
        taken: list[int] = []
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(left):
            os.close(taken.pop())
        try:
            with pytest.raises((OSError, ToolFailure)):
                async with sandbox.open(command):
                    pass
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for one in taken:
                os.close(one)
        assert (left, os.listdir("/proc/self/fd")) == (left, before)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cwd": Path("/w2")}, "denied"),
        ({"argv": ("echo", "a\0b")}, "invalid_arguments"),
        ({"environment": {"A": "a\0b", "B": "b"}}, "invalid_arguments"),
        ({"argv": ("echo", "x" * (128 << 10))}, "too_large"),
    ],
)
def test_a_command_that_no_sandbox_runs_is_refused(changes: dict[str, Any], code: str) -> None:
    command = Command(argv=("echo", "a"), folders=(Path("/other"), Path("/w")), cwd=Path("/w/a"))
    check(command)
    with pytest.raises(ToolFailure) as failure:
        check(replace(command, **changes))
    assert failure.value.code == code
