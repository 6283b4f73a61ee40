"""Memory ceiling of reads: a file of 100 MiB costs a process at most 16 MiB, and eight at once the same each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import asyncio, gc, pathlib, re, sys
from toolcrib import Toolcrib

def status(key):
    return int(re.search(key + r":\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) // 1024

async def main(folder, times):
    async with Toolcrib(mode="autonomous", workspace=folder, builtins=True) as crib:
        assert (await crib.session().call("read_file", {"path": "small.txt"})).error is None
        gc.collect()
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # begins the peak anew
        before = status("VmRSS")
        calls = (crib.session().call("read_file", {"path": "large.txt"}) for _ in range(times))
        assert not [result.error for result in await asyncio.gather(*calls) if result.error]
        print(status("VmHWM") - before)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.parametrize("times", [1, 8])
def test_a_large_file_costs_little_memory_and_several_at_once_too(tmp_path: Path, times: int) -> None:
    (tmp_path / "small.txt").write_text("small\n")
    (tmp_path / "large.txt").write_bytes((b"x" * 99 + b"\n") * (1 << 20))
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path), str(times)]
    risen = int(subprocess.run(command, capture_output=True, check=True, text=True, timeout=120).stdout)
    assert risen <= 16 * times
