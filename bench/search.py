"""Finding a tool among 1,000, 10,000 and 100,000: our index, FTS5, tantivy and FastMCP's BM25 search transform.

Claims (performance.md): at most 1, 3 and 15 ms a query; at least 20 times faster than FastMCP at 10,000; 100,000 tools
indexed in 5 s; a tool added or removed in 2 ms; an index on disk opened in 100 ms. Each side is asked through its own
call: ours is `Index.search`, FastMCP's is its server's `search_tools`, the libraries are used as in `bench/indexes.py`.
Times are CPU times of one process, and the machine may be shared. The catalogs are made up, the same at every run: some
35 words a tool in its name, description and two to four parameters; half the queries have 3 or 4 words, half 7 to 10.

    python bench/search.py [SIZE ...]
"""

from __future__ import annotations

import gc
import json
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
from fastmcp import FastMCP
from fastmcp.server.providers.base import Provider
from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools.base import Tool
from indexes import Fts5Index, TantivyIndex

from toolcrib.catalog.index import Index, IndexEntry

SIZES = (1_000, 10_000, 100_000)
QUERIES = 300
CHANGES = 200
PEER_SECONDS = 20.0
"""The peer is asked for about this long at each size, three times at least."""

VERBS = """
create get list update delete search send fetch read write archive restore export import upload download copy
move rename merge split publish schedule cancel approve reject assign close open lock sync validate convert
count summarize
""".split()
OBJECTS = """
issue ticket invoice customer order payment refund message channel thread email calendar event meeting file
folder document page comment label branch commit release pipeline job deployment container image volume network
dashboard metric alert incident report table row column query index user group role policy token secret contact
lead deal campaign product price cart shipment warehouse employee payslip course lesson quiz song playlist video
photo map route flight hotel booking weather recipe patient prescription sensor device contract
""".split()
QUALIFIERS = """
pending archived monthly shared public private draft nested recurring overdue external internal primary
secondary regional temporary linked recent favourite scheduled encrypted
""".split()
FILLERS = """
account workspace project organization region status owner date filter limit cursor format language priority
version title name identifier address amount currency
""".split()


def catalog(size: int) -> list[IndexEntry]:
    """Return made-up tools: sources of 40, names that repeat between sources as real ones do."""
    chance = random.Random(size)
    return [_entry(chance, number) for number in range(size)]


def _entry(chance: random.Random, number: int) -> IndexEntry:
    source = f"{OBJECTS[number // 40 % len(OBJECTS)]}{number // 40}"
    verb, thing, kind = chance.choice(VERBS), chance.choice(OBJECTS), chance.choice(QUALIFIERS)
    others = chance.sample(FILLERS, 4)
    leaf = f"{verb}_{kind}_{thing}" if chance.random() < 0.5 else f"{verb}_{thing}_{number % 97}"
    properties = {
        f"{thing}_{name}": {"type": "string", "description": f"The {name}"} for name in others[: chance.randint(2, 4)]
    }
    return IndexEntry(
        name=f"{source}__{leaf}_{number}",
        leaf=leaf,
        source=source,
        description=f"{verb.capitalize()} the {kind} {thing} of a {others[0]} and return its {others[1]}. "
        f"Use it when the {chance.choice(OBJECTS)} needs a {chance.choice(QUALIFIERS)} {thing}.",
        schema={"type": "object", "properties": properties},
    )


def queries(entries: Sequence[IndexEntry]) -> list[tuple[str, str]]:
    """Return (query, the tool it was made from)."""
    chance = random.Random(len(entries))
    made: list[tuple[str, str]] = []
    for number in range(QUERIES):
        entry = chance.choice(entries)
        words = [word for word in entry.leaf.split("_") if not word.isdecimal()]
        words += chance.sample(
            entry.description.lower().replace(",", "").replace(".", "").split(), 1 if number % 2 else 6
        )
        made.append((" ".join(words), entry.name))
    return made


def milliseconds(action: Callable[[], object]) -> float:
    """Return how long `action` takes."""
    start = time.process_time()
    action()
    return (time.process_time() - start) * 1e3


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the values lie."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def resident() -> float:
    """Return the process's memory in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def ours(entries: Sequence[IndexEntry], asked: Sequence[tuple[str, str]], folder: Path) -> dict[str, float]:
    """Measure our index."""
    gc.collect()
    before = resident()
    index = Index(entries)
    build = milliseconds(index.build) / 1e3
    memory = resident() - before
    index.search("warm up")
    times = [milliseconds(lambda query=query: index.search(query)) for query, _ in asked]
    found = sum(name in [hit.name for hit in index.search(query)] for query, name in asked)
    some = random.Random(1).sample(list(entries), CHANGES)
    removing = [milliseconds(lambda entry=entry: index.remove(entry.name)) for entry in some]
    adding = [milliseconds(lambda entry=entry: index.add(entry)) for entry in some]
    path = folder / f"{len(entries)}.index"
    saving = milliseconds(lambda: index.save(path, "bench")) / 1e3
    opened = Index(path=path, stamp="bench")
    return {
        "p50_ms": statistics.median(times),
        "p95_ms": percentile(times, 0.95),
        "in_first_10": found / len(asked),
        "build_s": build,
        "memory_mb": memory,
        "add_ms": statistics.median(adding),
        "add_p95_ms": percentile(adding, 0.95),
        "remove_ms": statistics.median(removing),
        "remove_p95_ms": percentile(removing, 0.95),
        "save_s": saving,
        "open_ms": milliseconds(opened.build),
        "disk_mb": path.stat().st_size / 1e6,
    }


def library(
    kind: type[Fts5Index | TantivyIndex], entries: Sequence[IndexEntry], asked: Sequence[tuple[str, str]]
) -> dict[str, float]:
    """Measure a full-text library."""
    gc.collect()
    before = resident()
    start = time.process_time()
    index = kind(entries)
    build = time.process_time() - start
    memory = resident() - before
    index.search("warm up")
    times = [milliseconds(lambda query=query: index.search(query)) for query, _ in asked]
    found = sum(name in index.search(query) for query, name in asked)
    adding = [milliseconds(lambda entry=entry: index.add(entry)) for entry in catalog(CHANGES // 10)]
    return {
        "p50_ms": statistics.median(times),
        "p95_ms": percentile(times, 0.95),
        "in_first_10": found / len(asked),
        "build_s": build,
        "memory_mb": memory,
        "add_ms": statistics.median(adding),
    }


class Listed(Provider):
    """Tools that are there already: registering 100,000 of them with FastMCP takes longer than this whole bench."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__()
        self._tools = tools

    async def _list_tools(self) -> Sequence[Tool]:
        return self._tools


async def peer(entries: Sequence[IndexEntry], asked: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Measure FastMCP's search transform."""
    tools = [Tool(name=entry.name, description=entry.description, parameters=dict(entry.schema)) for entry in entries]
    server = FastMCP("peer", providers=[Listed(tools)], transforms=[BM25SearchTransform(max_results=10)])
    gc.collect()
    before = resident()
    start = time.process_time()
    await server.call_tool("search_tools", {"query": "warm up"})
    build = time.process_time() - start
    memory = resident() - before
    times: list[float] = []
    found = 0
    for query, name in asked:
        start = time.process_time()
        result = await server.call_tool("search_tools", {"query": query})
        times.append((time.process_time() - start) * 1e3)
        found += name in json.dumps(result.structured_content, default=str)
        if len(times) >= 3 and sum(times) > PEER_SECONDS * 1e3:
            break
    return {
        "p50_ms": statistics.median(times),
        "p95_ms": percentile(times, 0.95),
        "in_first_10": found / len(times),
        "build_s": build,
        "memory_mb": memory,
        "queries": len(times),
    }


async def main(sizes: Sequence[int]) -> None:
    """Print one JSON line and a table."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            entries = catalog(size)
            asked = queries(entries)
            row: dict[str, Any] = {"tools": size, "toolcrib": ours(entries, asked, Path(folder))}
            row["fts5"] = library(Fts5Index, entries, asked)
            row["tantivy"] = library(TantivyIndex, entries, asked)
            row["fastmcp_bm25"] = await peer(entries, asked)
            row["times_faster"] = row["fastmcp_bm25"]["p50_ms"] / row["toolcrib"]["p50_ms"]
            rows.append(row)
    print(json.dumps({"bench": "search", "rows": rows}, default=lambda value: round(value, 3)))
    print(f"\n{'tools':>8} {'':14}{'p50 ms':>9}{'p95 ms':>9}{'in 10':>7}{'build s':>9}{'MB':>8}")
    for row in rows:
        for side in ("toolcrib", "fts5", "tantivy", "fastmcp_bm25"):
            one = row[side]
            print(
                f"{row['tools']:>8,} {side:14}{one['p50_ms']:>9.2f}{one['p95_ms']:>9.2f}{one['in_first_10']:>7.2f}"
                f"{one['build_s']:>9.2f}{one['memory_mb']:>8.1f}"
            )
        one = row["toolcrib"]
        print(
            f"{'':9}{row['times_faster']:.0f} times faster than FastMCP · add {one['add_ms']:.2f} ms"
            f" · remove {one['remove_ms']:.2f} ms · open {one['open_ms']:.0f} ms · {one['disk_mb']:.1f} MB on disk"
        )


if __name__ == "__main__":
    anyio.run(main, tuple(map(int, sys.argv[1:])) or SIZES)
