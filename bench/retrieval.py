"""How often the right tools are among the first found, on labelled sets that are not part of this repository.

Rows of one run: our index by words, our index by words and meaning, SQLite's FTS5 and tantivy (`bench/indexes.py`), and
FastMCP's BM25 search transform; then how often our index says that nothing fits: wrongly, of tools that it finds
otherwise, and rightly, in small catalogs that lack every labelled tool of the query and whatever resembles one. Last,
how often it says so of queries of another kind (those of `metatool` and `apimix` asked of the tools of `livemcp` and
`mcp_mid`, and the other way round, and `small_talk.txt` beside this file) and of the queries of the set itself; and of
the pairs in `opposites.jsonl`, in how many the tool comes before the one that does the opposite.

`build_lexical` and `build_hybrid` are the product's own index as such sets are scored: `(tools) -> search(query, k) ->
ids`. Matches too weak for an answer are among them: a model gets their names too, after "No tool fits …"; how often
that is wrong is counted apart. The folder of the sets holds a `run.py` with `load(set)`, `score(build, tools, queries)`
and `SETS`:

    python bench/retrieval.py FOLDER [SET ...] [--only lexical,hybrid,fts5,tantivy,fastmcp,refusals,foreign,opposites]

The variable TOOLCRIB_EVAL can name the folder instead.

`hybrid` needs the extra `embed` and its model. Vectors are kept between runs in TOOLCRIB_VECTORS, if that names a file:
making them takes some four minutes for ten thousand tools.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools.base import Tool
from indexes import Fts5Index, TantivyIndex

from toolcrib.catalog.embedding import open_meanings
from toolcrib.catalog.index import Index, IndexEntry

__all__ = ["build_fastmcp", "build_hybrid", "build_lexical"]

Search = Callable[[str, int], list[str]]
Build = Callable[[Sequence[dict[str, Any]]], Search]
Found = Callable[[str, int, bool], list[str]]
"""The names found for a query, `k` at most; the last argument asks for weak ones too."""

TRIALS = 25
"""Small catalogs drawn from each set."""
SOURCES = 10
"""Sources in each; where a set has none, tools four times as many."""
MOST_TOOLS = 800
APIS, SERVERS = ("metatool", "apimix"), ("livemcp", "mcp_mid")
MOST_FOREIGN = 1_000
"""Queries of other sets that are asked of one."""
MOST_WRONG, LEAST_RIGHT = 0.02, 0.5
"""Goals of "nothing fits": of a set's own queries, and of foreign ones and small talk."""
FOREIGN = 60
"""Queries asked of each that none of its tools is for."""


def build_lexical(tools: Sequence[dict[str, Any]]) -> Search:
    """Return the search of an index of `tools`, built: by words."""
    found = _by_words(tools)
    return lambda query, k: found(query, k, True)


def build_hybrid(tools: Sequence[dict[str, Any]]) -> Search:
    """Return the search of an index of `tools` by words and, with MiniLM, by meaning; all vectors made."""
    found = _by_meaning(tools)
    return lambda query, k: found(query, k, True)


def _by_words(tools: Sequence[dict[str, Any]]) -> Found:
    index = Index(_entry(tool) for tool in tools)
    index.build()
    return lambda query, k, weak: [hit.name for hit in index.search(query, k, weak=weak)]


def _by_meaning(tools: Sequence[dict[str, Any]]) -> Found:
    entries = [_entry(tool) for tool in tools]
    index = Index(entries)
    index.build()
    kept = os.environ.get("TOOLCRIB_VECTORS")
    meanings = open_meanings("minilm", Path(kept) if kept else None)
    for entry in entries:
        meanings.put(entry)
    meanings.fill()
    if entries and meanings.near("anything") is None:
        raise SystemExit("no vectors were made; install toolcrib[embed] and its model")
    return lambda query, k, weak: [hit.name for hit in index.search(query, k, near=meanings.near(query), weak=weak)]


def build_fastmcp(tools: Sequence[dict[str, Any]]) -> Search:
    """Return the search of FastMCP's BM25 transform: its own code, below its server.

    The transform hashes all tools at every query to see whether they changed, as it does in its server.
    """
    made = [Tool(name=t["id"], description=t["description"], parameters=t["input_schema"]) for t in tools]
    transform = BM25SearchTransform(max_results=10)

    async def found(query: str) -> Sequence[Tool]:
        return await transform._search(made, query)  # pyright: ignore[reportPrivateUsage]

    return lambda query, k: [tool.name for tool in anyio.run(found, query)][:k]


def build_fts5(tools: Sequence[dict[str, Any]]) -> Search:
    """Return the search of SQLite's FTS5."""
    return Fts5Index(_entry(tool) for tool in tools).search


def build_tantivy(tools: Sequence[dict[str, Any]]) -> Search:
    """Return the search of tantivy."""
    return TantivyIndex(_entry(tool) for tool in tools).search


BUILDS: Mapping[str, Build] = {
    "lexical": build_lexical,
    "hybrid": build_hybrid,
    "fts5": build_fts5,
    "tantivy": build_tantivy,
    "fastmcp": build_fastmcp,
}
REFUSING = {"lexical": _by_words, "hybrid": _by_meaning}


OTHER_KIND = {"livemcp": APIS, "mcp_mid": APIS, "metatool": SERVERS, "apimix": SERVERS}
"""Sets of which the queries are foreign to a set's tools."""
SMALL_TALK = Path(__file__).with_name("small_talk.txt")


def foreign(
    build: Callable[[Sequence[dict[str, Any]]], Found],
    tools: Sequence[dict[str, Any]],
    asked: Sequence[dict[str, Any]],
    others: Sequence[str],
) -> dict[str, float]:
    """Return how often nothing is said to fit: of a set's own queries, of foreign ones, and of small talk."""
    search = build(tools)

    def refused(queries: Sequence[str]) -> float:
        return sum(not search(query, 5, False) for query in queries) / max(1, len(queries))

    own = [query["query"] for query in asked]
    return {"wrong": refused(own), "foreign": refused(others), "small_talk": refused(_small_talk())}


def _small_talk() -> list[str]:
    return SMALL_TALK.read_text("utf-8").splitlines()


PAIRS = Path(__file__).with_name("opposites.jsonl")


def opposites(build: Build) -> dict[str, Any]:
    """Return in how many of the pairs the tool stands before its opposite, in one catalog of all of them."""
    pairs = [json.loads(line) for line in PAIRS.read_text("utf-8").splitlines()]
    empty = {"server_name": "", "server_desc": "", "input_schema": {"type": "object", "properties": {}}}
    tools = {
        _id(pair, side): {**empty, **pair[side], "id": _id(pair, side), "server": pair["server"]}
        for pair in pairs
        for side in ("right", "wrong")
    }
    search, missed = build(list(tools.values())), list[str]()
    for pair in pairs:
        found = search(pair["query"], 10)
        before = [name for name in found if name in (_id(pair, "right"), _id(pair, "wrong"))]
        if before[:1] != [_id(pair, "right")]:
            missed.append(pair["query"])
    return {"n": len(pairs), "right": len(pairs) - len(missed), "missed": missed}


def _id(pair: dict[str, Any], side: str) -> str:
    return f"{pair['server']}__{pair[side]['name']}"


def _entry(tool: dict[str, Any]) -> IndexEntry:
    return IndexEntry(
        name=tool["id"],
        leaf=tool["name"],
        source=tool["server"],
        source_title=tool["server_name"],
        source_description=tool["server_desc"],
        description=tool["description"],
        schema=tool["input_schema"],
    )


def refusals(
    build: Callable[[Sequence[dict[str, Any]]], Found], tools: Sequence[dict[str, Any]], asked: Sequence[dict[str, Any]]
) -> dict[str, float]:
    """Return how often nothing is said to fit: of queries whose tool comes in the first five, and of foreign ones."""
    chance = random.Random(5)
    kinds: dict[str, list[dict[str, Any]]] = {}
    for at, tool in enumerate(tools):
        kinds.setdefault(tool["server"] or f"{at % (len(tools) // 4)}", []).append(tool)
    home = {tool["id"]: kind for kind, own in kinds.items() for tool in own}
    wanted = sorted({home[name] for query in asked for name in query["relevant"] if name in home})
    words = {tool["id"]: _words(tool) for tool in tools}
    hits = refused = foreign = rightly = 0
    for _ in range(TRIALS):
        chosen = [tool for kind in chance.sample(wanted, SOURCES) for tool in kinds[kind]][:MOST_TOOLS]
        search, names = build(chosen), {tool["id"] for tool in chosen}
        for query in [query for query in asked if names.intersection(query["relevant"])][: 4 * FOREIGN]:
            if set(query["relevant"]).intersection(search(query["query"], 5, True)):
                hits += 1
                refused += not search(query["query"], 5, False)
        for query in _foreign(chance, asked, names, words):
            foreign += 1
            rightly += not search(query["query"], 5, False)
    return {"false": refused / max(1, hits), "true": rightly / max(1, foreign), "n": hits, "n_foreign": foreign}


def _foreign(
    chance: random.Random, asked: Sequence[dict[str, Any]], names: set[str], words: Mapping[str, set[str]]
) -> Iterator[dict[str, Any]]:
    """Yield queries none of whose labelled tools is there, nor one that shares half the words of one."""
    found = 0
    for query in chance.sample(list(asked), len(asked)):
        relevant = [words[name] for name in query["relevant"] if name in words]
        if not relevant or names.intersection(query["relevant"]):
            continue
        if any(len(one & words[name]) > 0.25 * len(one | words[name]) for one in relevant for name in names):
            continue
        yield query
        found += 1
        if found == FOREIGN:
            return


def _words(tool: dict[str, Any]) -> set[str]:
    return set(re.findall(r"[a-z]{3,}", f"{tool['name']} {tool['description'][:400]}".lower().replace("_", " ")))


def _scorer(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("labelled_sets", folder / "run.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"{folder} holds no run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help="the folder of the sets, unless TOOLCRIB_EVAL names it; then sets")
    parser.add_argument("--only", default="lexical,hybrid,fts5,tantivy,fastmcp,refusals,foreign,opposites")
    said = parser.parse_args()
    said.what = [*filter(None, [os.environ.get("TOOLCRIB_EVAL")]), *said.what]
    if not said.what:
        parser.error("say where the labelled sets are: the folder, or TOOLCRIB_EVAL=FOLDER")
    return said


def main() -> None:
    """Print one JSON line and two tables."""
    said = _arguments()
    scorer = _scorer(Path(said.what[0]))
    names, only = said.what[1:] or scorer.SETS, said.only.split(",")
    rows: list[dict[str, Any]] = []
    said_no: list[dict[str, Any]] = []
    for name in names:
        tools, asked = scorer.load(name)
        for kind in (kind for kind in BUILDS if kind in only):
            rows.append({"set": name, "by": kind} | scorer.score(BUILDS[kind], tools, asked))
            if "refusals" in only and kind in REFUSING:
                said_no.append({"set": name, "by": kind} | refusals(REFUSING[kind], tools, asked))
    unlike: list[dict[str, Any]] = []
    chance = random.Random(7)
    for name in (name for name in OTHER_KIND if name in names and "foreign" in only):
        tools, asked = scorer.load(name)
        others = [query["query"] for other in OTHER_KIND[name] for query in scorer.load(other)[1]]
        others = chance.sample(others, min(MOST_FOREIGN, len(others)))
        unlike += [
            {"set": name, "by": kind} | foreign(build, tools, asked, others)
            for kind, build in REFUSING.items()
            if kind in only
        ]
    pairs = {kind: opposites(BUILDS[kind]) for kind in BUILDS if kind in only and "opposites" in only}
    print(json.dumps({"bench": "retrieval", "rows": rows, "refusals": said_no, "foreign": unlike, "opposites": pairs}))
    titles = ("queries", "tools", "hit@1", "rec@5", "ndcg@10", "p50 ms", "build s")
    print(f"\n{'set':12}{'by':9}" + "".join(f"{title:>9}" for title in titles))
    for row in rows:
        print(
            f"{row['set']:12}{row['by']:9}{row['n']:>9,}{row['tools']:>9,}{row['hit1']:>9.3f}{row['r5']:>9.3f}"
            f"{row['ndcg']:>9.3f}{row['p50_ms']:>9.2f}{row['build_s']:>9.2f}"
        )
    for row in said_no:
        print(
            f"{row['set']:12}{row['by']:9}nothing fits: {row['false']:.3f} of {row['n']:,} that it finds,"
            f" {row['true']:.3f} of {row['n_foreign']:,} foreign queries"
        )
    for row in unlike:
        held = row["wrong"] <= MOST_WRONG and min(row["foreign"], row["small_talk"]) >= LEAST_RIGHT
        print(
            f"{row['set']:12}{row['by']:9}nothing fits: {row['wrong']:.3f} of its own queries (goal .02),"
            f" {row['foreign']:.3f} of foreign ones (goal .50), {row['small_talk']:.3f} of small talk (goal .50):"
            f" {'held' if held else 'missed'}"
        )
    for kind, counted in pairs.items():
        print(
            f"{'opposites':12}{kind:9}{counted['right']} of {counted['n']} tools before the one that does the opposite"
        )


if __name__ == "__main__":
    main()
