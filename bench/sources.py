"""GitHub's own OpenAPI description as tools: ours beside FastMCP's `from_openapi`, in one run.

Claims (issue 5): added in less than 5 s, reloaded in less than 0.3 s, "create an issue" and "merge a pull request"
found first. Ours is a crib, from opening it until its tools can be called: the description read, converted, reviewed,
named and published; reloaded from the conversion that was kept. FastMCP's is `FastMCP.from_openapi` of the description
and its tools listed once; it keeps nothing. Goals are held against CPU times, of all threads: the machine may be
shared. `_wall` is what a clock on the wall says.

The description is not ours to copy: it is the file `generated/api.github.com.json` of the npm package
`@octokit/openapi`. Without a FILE it is fetched with `npm pack` into a temporary folder.

    python bench/sources.py [FILE]
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
import httpx2
from fastmcp import FastMCP

from toolcrib.config.directories import Directories
from toolcrib.config.settings import Settings
from toolcrib.crib import Toolcrib
from toolcrib.sources.openapi.spec import ApiSettings, OpenApiSpec

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
GOALS = {"add_s": 5.0, "reload_s": 0.3}


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


def crib_of(file: Path, home: Path) -> Toolcrib:
    """Return a crib with this one API, as a configuration file would make it."""
    spec = OpenApiSpec(name="github", spec=str(file), settings=ApiSettings(base_url="https://api.github.com"))
    directories = Directories.of({"HOME": str(home)})
    return Toolcrib(Settings(directories=directories, openapi=(spec,), accept=True, builtins=False))


async def ours(file: Path, home: Path) -> dict[str, Any]:
    """Measure opening a crib until its tools can be called: at first, and again."""

    async def opened(name: str) -> tuple[dict[str, float], dict[str, Any]]:
        watch = Watch()
        async with crib_of(file, home) as crib:
            await crib.settled(120)
            catalog = crib.catalog
            took = watch.read(name)
            watch = Watch()
            found = sum(catalog.search(query, 1)[0].name == tool for query, tool in QUERIES.items())
            took |= watch.read("index")
            tools, problems = len(crib.listed("github")), len(crib.problems)
        return took, {"tools": tools, "problems": problems, "found_first": f"{found}/{len(QUERIES)}"}

    added, seen = await opened("add")
    again = min([(await opened("reload"))[0] for _ in range(3)], key=lambda one: one["reload_s"])
    again = {name: again[name] for name in ("reload_s", "reload_wall_s")}
    return added | again | seen | {"rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}


async def fastmcp(file: Path) -> dict[str, Any]:
    """Measure the peer: it is given the parsed description, so reading it is counted too."""

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


def main() -> None:
    """Print a table and one line of JSON; exit 1 when a goal is missed."""
    with tempfile.TemporaryDirectory() as folder:
        file = description(Path(folder))
        mine = anyio.run(ours, file, Path(folder) / "home")
        peer = anyio.run(fastmcp, file)
    missed = [name for name, goal in GOALS.items() if mine[name] > goal]
    if mine["found_first"] != f"{len(QUERIES)}/{len(QUERIES)}":
        missed.append("found_first")
    print(f"{'':24}{'toolcrib':>12}{'fastmcp ' + version('fastmcp'):>18}")
    for name in mine:
        print(f"{name:24}{mine[name]!s:>12}{peer.get(name, '-')!s:>18}")
    print(json.dumps({"bench": "sources", "ours": mine, "fastmcp": peer, "missed": missed}))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
