"""Where tools come from, at size: GitHub's own OpenAPI description, and tools registered one by one; beside FastMCP's.

Claims (issue 5; performance.md "Registry"):

* The description is added in less than 5 s, reloaded in less than 0.3 s, and "create an issue" and "merge a pull
  request" are found first. Ours is a crib, from opening it until its tools can be called: the description read,
  converted, reviewed, named and published; reloaded from the conversion that was kept. FastMCP's is
  `FastMCP.from_openapi` of the description and its tools listed once; it keeps nothing.
* 100,000 tools are registered in at most 4 s, at most 3 kB a tool, and a tool costs the same whether it is the first or
  the hundred-thousandth. A tool is made of a name, a description and a schema, and is registered, one after the other;
  the catalog is asked for once at the end; then each is unregistered. Each measurement is a process of its own. FastMCP
  gets such tools too (`Tool` objects without a function behind them, `add_tool`, `remove_tool`), up to the number that
  it takes in reasonable time.

Goals are held against CPU times, of all threads: the machine may be shared. `_wall` is what a clock on the wall says.

The description is not ours to copy: it is the file `generated/api.github.com.json` of the npm package
`@octokit/openapi`. Without a FILE it is fetched with `npm pack` into a temporary folder.

    python bench/sources.py [FILE]
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio

PACKAGE = "@octokit/openapi"
MEMBER = "package/generated/api.github.com.json"
QUERIES = {
    "create an issue": "github__issues_create",
    "merge a pull request": "github__pulls_merge",
    "list repository issues": "github__issues_list-for-repo",
    "create a pull request": "github__pulls_create",
    "add labels to an issue": "github__issues_add-labels",
    "create a release": "github__repos_create-release",
}
ADDING_GOALS = {"add_s": 5.0, "reload_s": 0.3}

REGISTERED = {"toolcrib": (10_000, 100_000), "fastmcp": (2_500, 10_000)}
REGISTERING_GOALS = {"add_s": 4.0, "bytes_a_tool": 3_000.0}
GROWTH = 1.8
"""How much more a tool may cost at ten times as many: the processor's caches, and nothing that grows."""
_CHILD = "--registered"


def description(folder: Path) -> Path:
    """Return the file, fetched if it was not named."""
    if len(sys.argv) > 1:
        return Path(sys.argv[1])
    subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extract(MEMBER, folder, filter="data")
    return folder / MEMBER


class Watch:
    """Two clocks, started together."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def read(self, name: str) -> dict[str, float]:
        """Return the seconds of both."""
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        return {f"{name}_s": round(cpu, 3), f"{name}_wall_s": round(wall, 3)}


async def ours(file: Path, home: Path) -> dict[str, Any]:
    """Measure opening a crib until its tools can be called, as a configuration makes it: at first, and again."""
    # Before the clocks begin; and the processes that register need none of it.
    from toolcrib.config.directories import Directories
    from toolcrib.config.settings import Settings
    from toolcrib.crib import Toolcrib
    from toolcrib.sources.openapi.spec import ApiSettings, OpenApiSpec

    spec = OpenApiSpec(name="github", spec=str(file), settings=ApiSettings(base_url="https://api.github.com"))
    directories = Directories.of({"HOME": str(home)})
    import_module("toolcrib.sources.openapi.source")  # what a crib loads where there is an API
    settings = Settings.of(directories, openapi=(spec,), accept=True, builtins=False)

    async def opened(name: str) -> tuple[dict[str, float], dict[str, Any]]:
        watch = Watch()
        async with Toolcrib(settings) as crib:
            await crib.tools.wait_ready(120)
            catalog = crib.catalog
            took = watch.read(name)
            watch = Watch()
            found = sum(catalog.search(query, 1)[0].name == tool for query, tool in QUERIES.items())
            took |= watch.read("index")
            tools, problems = len(crib.tools.listed("github")), len(crib.problems)
        return took, {"tools": tools, "problems": problems, "found_first": f"{found}/{len(QUERIES)}"}

    added, seen = await opened("add")
    again = min([(await opened("reload"))[0] for _ in range(3)], key=lambda one: one["reload_s"])
    again = {name: again[name] for name in ("reload_s", "reload_wall_s")}
    return added | again | seen | {"rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}


async def fastmcp(file: Path) -> dict[str, Any]:
    """Measure the peer: it is given the parsed description, so reading it is counted too."""
    import httpx2
    from fastmcp import FastMCP

    async def added() -> int:
        parsed = json.loads(await anyio.Path(file).read_bytes())
        async with httpx2.AsyncClient(base_url="https://api.github.com") as client:
            return len(await FastMCP.from_openapi(parsed, client=client, name="github").list_tools())

    try:
        watch = Watch()
        tools = await added()
    except Exception as error:  # noqa: BLE001 - a peer that fails is a figure too
        return {"failed": f"{type(error).__name__}: {error}"[:200]}
    return watch.read("add") | {"tools": tools}


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


def registered_here(count: int) -> dict[str, Any]:
    """Measure our registry; that the catalog holds what was registered is checked."""
    from toolcrib.catalog.registry import Registry
    from toolcrib.core.tool import Tool

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


def registered_there(count: int) -> dict[str, Any]:
    """Measure the peer in the same way."""
    from fastmcp import FastMCP
    from fastmcp.tools import Tool

    server = FastMCP("bench")

    def add(number: int) -> None:
        name, description, schema = parts(number)
        server.add_tool(Tool(name=name, description=description, parameters=schema))

    return measured(count, add, lambda number: server.local_provider.remove_tool(f"tool_{number}"))


def in_a_process(who: str, count: int) -> dict[str, Any]:
    """Measure in a fresh process; what fails there is a figure too."""
    ran = subprocess.run(
        [sys.executable, __file__, _CHILD, who, str(count)], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        return {"tools": count, "failed": ran.stderr.strip().splitlines()[-1][:200]}
    return json.loads(ran.stdout)


def registering_missed(ours: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the names of the goals that are not met."""
    first, last = ours
    yield from (f"registered.{name}" for name, goal in REGISTERING_GOALS.items() if last.get(name, float("inf")) > goal)
    if "failed" in first or "failed" in last or last["add_us_a_tool"] > GROWTH * first["add_us_a_tool"]:
        yield "registered.linear"


def openapi(file: Path, home: Path) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Measure both with the description; return the figures, and the goals that are not met."""
    mine, peer = anyio.run(ours, file, home), anyio.run(fastmcp, file)
    missed = [name for name, goal in ADDING_GOALS.items() if mine[name] > goal]
    if mine["found_first"] != f"{len(QUERIES)}/{len(QUERIES)}":
        missed.append("found_first")
    return mine, peer, missed


def table(columns: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Print figures beside each other, named at the top."""
    shown = list(columns)
    print(f"{'':20}" + "".join(f"{who + (f' {version(who)}' if who != 'toolcrib' else ''):>16}" for who, _ in shown))
    for name in dict.fromkeys(name for _, figures in shown for name in figures):
        print(f"{name:20}" + "".join(f"{figures.get(name, '-')!s:>16}" for _, figures in shown))
    print()


def main() -> None:
    """Print two tables and one line of JSON; exit 1 when a goal is missed."""
    if sys.argv[1:2] == [_CHILD]:
        print(json.dumps({"toolcrib": registered_here, "fastmcp": registered_there}[sys.argv[2]](int(sys.argv[3]))))
        return
    with tempfile.TemporaryDirectory() as folder:
        mine, peer, missed = openapi(description(Path(folder)), Path(folder) / "home")
    table([("toolcrib", mine), ("fastmcp", peer)])
    found = {who: [in_a_process(who, count) for count in sizes] for who, sizes in REGISTERED.items()}
    table((who, figures) for who, measurements in found.items() for figures in measurements)
    missed += registering_missed(found["toolcrib"])
    figures = {"ours": mine, "fastmcp": peer, "registered": found}
    print(json.dumps({"bench": "sources", **figures, "missed": missed}))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
