"""Reading and searching a tree of 50,000 files: our tools as a session calls them, beside plain ripgrep.

Claims: grep and find_references take at most three times as long as ripgrep on the same tree, and a question to the
project index, once it is made, a second; a changed file is in the next answer; a page of a file of 100 MiB, or its
description, raises the process's peak memory by at most 16 MiB. Times are wall times, the
median of some calls: ripgrep is a process with threads of its own. Each call is a whole one, with permission, record
and result. The tree is made up, the same at every run: small Python modules in folders of a hundred, every 250th of
which calls the function that is looked for.

    python bench/tools.py [FILES]
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

from toolcrib import Toolcrib
from toolcrib.crib.session import Session
from toolcrib_tools import code, search
from toolcrib_tools import files as files_tools

FILES = 50_000
IN_A_FOLDER = 100
CALLS = 5
EVERY = 250
"""One file in so many holds what is looked for."""
LARGE = "large.log"
LARGE_BYTES = 100 << 20

MODULE = '''\
"""Module {number} of the shop."""

LIMIT_{number} = {number}


class Order{number}:
    """What a customer of branch {number} has ordered."""

    def total_{number}(self, items):
        """Add up the prices of all items."""
        return sum(item.price for item in items)

    def is_full(self, items):
        return len(items) >= LIMIT_{number}


def ship_{number}(order):
    parcel = order.total_{number}([])
    return {call}(parcel)
'''


def plant(folder: Path, files: int) -> None:
    """Make the tree."""
    for number in range(files):
        place = folder / f"branch_{number // (IN_A_FOLDER * 100)}" / f"part_{number // IN_A_FOLDER}"
        if number % IN_A_FOLDER == 0:
            place.mkdir(parents=True)
        call = "round_to_cents" if number % EVERY == 0 else "print"
        (place / f"module_{number}.py").write_text(MODULE.format(number=number, call=call))
    (folder / "money.py").write_text("def round_to_cents(amount):\n    return round(amount, 2)\n")


async def seconds(action: Callable[[], Awaitable[object]], calls: int = CALLS) -> float:
    """Return how long `action` takes: the median of some calls."""
    times: list[float] = []
    for _ in range(calls):
        start = time.perf_counter()
        await action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


async def measured(session: Session, folder: Path, files: int) -> dict[str, float]:
    """Return the seconds of every kind of question."""

    async def call(name: str, **arguments: Any) -> str:
        result = await session.call(name, arguments)
        if result.error is not None:
            raise SystemExit(f"{name} failed: {result.text}")
        return result.text

    async def ripgrep(*arguments: str) -> None:
        await anyio.run_process(["rg", *arguments, "./"], cwd=folder, stdin=subprocess.DEVNULL)

    async def references() -> None:
        found = await call("find_references", symbol="round_to_cents", max_results=1_000)
        if f"1 definition, {len(range(0, files, EVERY))} calls" not in found:
            raise SystemExit(f"find_references found something else: {found[-300:]}")

    async def change() -> None:
        module = folder / "money.py"
        module.write_text(module.read_text() + f"\n\ndef spare_{time.time_ns()}(): ...\n")
        if "[no symbol" in await call("symbols", query=module.read_text().rpartition("def ")[2].partition("(")[0]):
            raise SystemExit("a change is not in the index")

    async def large() -> dict[str, float]:
        block = b"one line of a log of a hundred mebibytes\n" * 1024
        with (folder / LARGE).open("wb") as file:
            for _ in range(LARGE_BYTES // len(block)):
                file.write(block)
        await call("file_info", path="money.py")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        took = {
            "read_end_of_100_mib": await seconds(lambda: call("read_file", path=LARGE, offset=-20), 3),
            "file_info_of_100_mib": await seconds(lambda: call("file_info", path=LARGE), 3),
        }
        took["growth_mib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        (folder / LARGE).unlink()
        return took

    in_windows = await large()  # first: what comes later makes the process larger, which would hide its growth
    await ripgrep("--line-number", "round_to_cents")  # the disk's cache is warm for both sides
    one = "branch_0/part_0/module_1.py"
    took = {
        "read": await seconds(lambda: call("read_file", path=one), 50),
        "rg_word": await seconds(lambda: ripgrep("--line-number", "--word-regexp", "round_to_cents")),
        "grep": await seconds(lambda: call("grep", pattern=r"\bround_to_cents\b", max_results=500)),
        "find_references": await seconds(references),
        "rg_files": await seconds(lambda: ripgrep("--files")),
        "search_files": await seconds(lambda: call("search_files", pattern="module_4711")),
        "index_made": await seconds(lambda: call("symbols", query="ship_1"), 1),
        "symbols": await seconds(lambda: call("symbols", query="total_4711")),
        "symbols_after_change": await seconds(change, 3),
        "project_knowledge_search": await seconds(
            lambda: call("project_knowledge_search", query="add up the prices", depth=0), 3
        ),
    }
    return took | in_windows


async def main(files: int) -> None:
    """Print one JSON line and a table."""
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    if shutil.which("rg") is None:
        raise SystemExit("ripgrep is not on the path: pip install ripgrep, or put the folder of rg on it")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "tree"
        folder.mkdir()
        plant(folder, files)
        async with Toolcrib(memory=True) as crib:
            crib.add(code, files_tools, search)
            took = await measured(crib.session(profile="flat", mode="autonomous", workspace=folder), folder, files)
    row: dict[str, float] = {"files": files, **took}
    row["grep_over_rg"] = took["grep"] / took["rg_word"]
    row["find_references_over_rg"] = took["find_references"] / took["rg_word"]
    print(json.dumps({"bench": "tools", "rows": [{name: round(value, 4) for name, value in row.items()}]}))
    print(f"\n{files:,} files")
    growth = took.pop("growth_mib")
    for name, value in took.items():
        print(f"{name:>26} {value * 1e3:>10.1f} ms")
    print(f"{'peak memory of 100 MiB':>26} {growth:>+10.1f} MiB")
    print(f"{'':>26} grep {row['grep_over_rg']:.1f} x, find_references {row['find_references_over_rg']:.1f} x ripgrep")


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else FILES)
