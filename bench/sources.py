"""GitHub's own OpenAPI description as tools: ours beside FastMCP's `from_openapi`, in one run.

Claims (issue 5): added in less than 5 s, reloaded in less than 0.3 s, "create an issue" and "merge a pull request"
found first. Ours is a crib, from opening it until its tools can be called: the description read, converted, reviewed,
named and published; reloaded from the conversion that was kept. FastMCP's is `FastMCP.from_openapi` of the description
and its tools listed once; it keeps nothing.

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
from collections.abc import Awaitable, Callable
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


async def timed(action: Callable[[], Awaitable[Any]]) -> tuple[float, Any]:
    """Return how many seconds `action` took, and what it gave."""
    start = time.perf_counter()
    result = await action()
    return time.perf_counter() - start, result


def crib_of(file: Path, home: Path) -> Toolcrib:
    """Return a crib with this one API, as a configuration file would make it."""
    spec = OpenApiSpec(name="github", spec=str(file), settings=ApiSettings(base_url="https://api.github.com"))
    directories = Directories.of({"HOME": str(home)})
    return Toolcrib(Settings(directories=directories, openapi=(spec,), accept=True, builtins=False))


async def ours(file: Path, home: Path) -> dict[str, Any]:
    """Measure opening a crib until its tools can be called: at first, and again."""

    async def opened() -> dict[str, Any]:
        began = time.perf_counter()
        async with crib_of(file, home) as crib:
            await crib.settled(120)
            catalog = crib.catalog
            took = time.perf_counter() - began
            start = time.perf_counter()
            first = {query: catalog.search(query, 1)[0].name for query in QUERIES}
            indexed = time.perf_counter() - start
            tools = [tool for tool in catalog.tools.values() if tool.source == "github"]
            return {
                "took": took,
                "first": first,
                "index_s": indexed,
                "tools": len(tools),
                "problems": len(crib.problems),
            }

    added = await opened()
    again = min([await opened() for _ in range(3)], key=lambda one: one["took"])
    found = sum(added["first"][query] == name for query, name in QUERIES.items())
    return {
        "add_s": round(added["took"], 3),
        "reload_s": round(again["took"], 3),
        "index_s": round(added["index_s"], 3),
        "tools": added["tools"],
        "problems": added["problems"],
        "found_first": f"{found}/{len(QUERIES)}",
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


async def fastmcp(file: Path) -> dict[str, Any]:
    """Measure the peer: it is given the parsed description, so reading it is counted too."""

    async def added() -> int:
        parsed = json.loads(await anyio.Path(file).read_bytes())
        async with httpx2.AsyncClient(base_url="https://api.github.com") as client:
            return len(await FastMCP.from_openapi(parsed, client=client, name="github").list_tools())

    try:
        took, tools = await timed(added)
    except Exception as error:  # noqa: BLE001 - a peer that fails is a figure too
        return {"failed": f"{type(error).__name__}: {error}"[:200]}
    return {"add_s": round(took, 3), "tools": tools}


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
    for name in ("add_s", "reload_s", "index_s", "tools", "problems", "found_first"):
        print(f"{name:24}{mine[name]!s:>12}{peer.get(name, '-')!s:>18}")
    print(json.dumps({"bench": "sources", "ours": mine, "fastmcp": peer, "missed": missed}))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
