"""Tools registered and unregistered one by one, and what one takes of memory: ours beside FastMCP's, in one run.

Claims (issue 5, performance.md "Registry"): 100,000 tools in at most 4 s, at most 3 kB a tool, and a tool costs the
same whether it is the first or the hundred-thousandth. A tool is made of a name, a description and a schema, and is
registered, one after the other; the catalog is asked for once at the end. Each measurement is a process of its own.
FastMCP gets such tools too (`Tool` objects without a function behind them, `add_tool`, `remove_tool`), up to the number
that it takes in reasonable time. Goals are held against CPU times: the machine may be shared.

    python bench/register.py
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

SIZES = {"toolcrib": (10_000, 100_000), "fastmcp": (2_500, 10_000)}
GOALS = {"add_s": 4.0, "bytes_a_tool": 3_000.0}
GROWTH = 1.8
"""How much more a tool may cost at ten times as many: the processor's caches, and nothing that grows."""


def parts(number: int) -> tuple[str, str, dict[str, Any]]:
    """Return name, description and schema of a tool; every one has its own."""
    schema = {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "Where."}, "limit": {"type": "integer"}},
        "required": ["path"],
        "additionalProperties": False,
    }
    return f"tool_{number}", f"Do the thing number {number} with care.", schema


def resident() -> int:
    """Return the bytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def measured(count: int, add: Callable[[int], None], remove: Callable[[int], None]) -> dict[str, Any]:
    """Register and unregister `count` tools one by one."""
    gc.collect()
    before, begun = resident(), time.process_time()
    for number in range(count):
        add(number)
    took, memory = time.process_time() - begun, resident() - before
    begun = time.process_time()
    for number in range(count):
        remove(number)
    gone = time.process_time() - begun
    return {
        "tools": count,
        "add_s": round(took, 3),
        "remove_s": round(gone, 3),
        "add_us_a_tool": round(took / count * 1e6, 1),
        "bytes_a_tool": round(memory / count),
    }


def toolcrib(count: int) -> dict[str, Any]:
    """Measure our registry; that the catalog holds what was registered is checked."""
    from toolcrib.catalog.registry import Registry  # noqa: PLC0415 - the other process needs none of it
    from toolcrib.core.tool import Tool  # noqa: PLC0415

    registry = Registry()
    took: dict[str, float] = {}

    def add(number: int) -> None:
        name, description, schema = parts(number)
        registry.amend(
            "s", [Tool(name=name, local_name=name, source="s", description=description, input_schema=schema)]
        )
        if number == count - 1:
            begun = time.process_time()
            if len(registry.catalog) != count:
                raise RuntimeError(f"{len(registry.catalog)} tools, not {count}")
            took["catalog_s"] = round(time.process_time() - begun, 3)

    figures = measured(count, add, lambda number: _removed(registry.amend("s", removed=[f"tool_{number}"])))
    return figures | took


def _removed(changed: bool) -> None:
    if not changed:
        raise RuntimeError("nothing was removed")


def fastmcp(count: int) -> dict[str, Any]:
    """Measure the peer in the same way."""
    from fastmcp import FastMCP  # noqa: PLC0415
    from fastmcp.tools import Tool  # noqa: PLC0415

    server = FastMCP("bench")

    def add(number: int) -> None:
        name, description, schema = parts(number)
        server.add_tool(Tool(name=name, description=description, parameters=schema))

    return measured(count, add, lambda number: server.local_provider.remove_tool(f"tool_{number}"))


def in_a_process(who: str, count: int) -> dict[str, Any]:
    """Measure in a fresh process; what fails there is a figure too."""
    ran = subprocess.run([sys.executable, __file__, who, str(count)], capture_output=True, text=True, check=False)
    if ran.returncode:
        return {"tools": count, "failed": ran.stderr.strip().splitlines()[-1][:200]}
    return json.loads(ran.stdout)


def missed(ours: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the names of the goals that are not met."""
    first, last = ours
    yield from (name for name, goal in GOALS.items() if last.get(name, float("inf")) > goal)
    if "failed" in first or "failed" in last or last["add_us_a_tool"] > GROWTH * first["add_us_a_tool"]:
        yield "linear"


def main() -> None:
    """Print a table and one line of JSON; exit 1 when a goal is missed."""
    if len(sys.argv) > 1:
        print(json.dumps({"toolcrib": toolcrib, "fastmcp": fastmcp}[sys.argv[1]](int(sys.argv[2]))))
        return
    found = {who: [in_a_process(who, count) for count in sizes] for who, sizes in SIZES.items()}
    columns = [(who, figures) for who in found for figures in found[who]]
    print(f"{'':16}" + "".join(f"{who + (' ' + version(who) if who != 'toolcrib' else ''):>16}" for who, _ in columns))
    for name in dict.fromkeys(name for _, figures in columns for name in figures):
        print(f"{name:16}" + "".join(f"{figures.get(name, '-')!s:>16}" for _, figures in columns))
    failed = list(missed(found["toolcrib"]))
    print(json.dumps({"bench": "register", "ours": found["toolcrib"], "fastmcp": found["fastmcp"], "missed": failed}))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
