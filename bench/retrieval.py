"""How often the right tools are among the first found, on labelled sets that are not part of this repository.

`build_lexical` is the product's own index as such sets are scored: `(tools) -> search(query, k) -> ids`.
The folder of the sets holds a `run.py` with `load(set)`, `score(build, tools, queries)` and `SETS`:

    python bench/retrieval.py FOLDER [SET ...]          or with the folder in TOOLCRIB_EVAL
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from toolcrib.catalog.index import Entry, Index

__all__ = ["build_lexical"]

Search = Callable[[str, int], list[str]]


def build_lexical(tools: Sequence[dict[str, Any]]) -> Search:
    """Return the search of an index of `tools`, built."""
    index = Index(_entry(tool) for tool in tools)
    index.build()
    return lambda query, k: [hit.name for hit in index.search(query, k)]


def _entry(tool: dict[str, Any]) -> Entry:
    return Entry(
        name=tool["id"],
        leaf=tool["name"],
        source=tool["server"],
        source_title=tool["server_name"],
        source_description=tool["server_desc"],
        description=tool["description"],
        schema=tool["input_schema"],
    )


def _scorer(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("labelled_sets", folder / "run.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"{folder} holds no run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(arguments: Sequence[str]) -> None:
    """Print one JSON line and a table."""
    arguments = [*filter(None, [os.environ.get("TOOLCRIB_EVAL")]), *arguments]
    if not arguments:
        raise SystemExit("say where the labelled sets are: python bench/retrieval.py FOLDER, or TOOLCRIB_EVAL=FOLDER")
    scorer = _scorer(Path(arguments[0]))
    rows = [{"set": name} | scorer.score(build_lexical, *scorer.load(name)) for name in arguments[1:] or scorer.SETS]
    print(json.dumps({"bench": "retrieval", "rows": rows}))
    print(f"\n{'set':12}{'queries':>8}{'tools':>8}{'hit@1':>8}{'rec@5':>8}{'ndcg@10':>9}{'p50 ms':>8}{'build s':>9}")
    for row in rows:
        print(
            f"{row['set']:12}{row['n']:>8,}{row['tools']:>8,}{row['hit1']:>8.3f}{row['r5']:>8.3f}{row['ndcg']:>9.3f}"
            f"{row['p50_ms']:>8.2f}{row['build_s']:>9.2f}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
