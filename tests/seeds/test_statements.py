"""The seed documents by sentence: each row of statements.yaml names a test on a real tool, or what is open."""

from __future__ import annotations

import ast
import os
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from rig import ROOT
from seeds.inventory import cases_of

_SEEDS: Final[dict[str, Any]] = yaml.load(
    (Path(__file__).parent / "statements.yaml").read_text("utf-8"), yaml.CSafeLoader
)
_SHARED: Final = Path(os.environ.get("TOOLCRIB_SHARED", ROOT.parent / "shared")) / "seeds"
_OPEN: Final[dict[str, int]] = {}
"""Rows without a test, by the part that closes them. A number may only fall."""
_FIXTURES: Final = {"crib", "other", "session", "shared"}

Row = tuple[int, str, Any]


def rows(seed: str) -> Iterator[Row]:
    for line, words, proof in _SEEDS[seed]["rows"]:
        yield int(line), str(words), proof


ROWS: Final = [(seed, *row) for seed in _SEEDS for row in rows(seed)]


_PROOFS: Final = sorted({proof for _, _, _, proof in ROWS if isinstance(proof, str)})
_DEPARTURES: Final = [proof for _, _, _, proof in ROWS if not isinstance(proof, str) and "departs" in proof]


def test_each_seed_is_here_and_no_sentence_twice() -> None:
    assert [*_SEEDS] == ["000", "001", "002", "003", "004"]
    counts = Counter((seed, line, words) for seed, line, words, _ in ROWS)
    assert [row for row, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("seed", _SEEDS if _SHARED.is_dir() else ())  # the documents lie beside the repository
def test_each_row_quotes_its_line_and_each_line_has_a_row_or_is_no_sentence(seed: str) -> None:
    lines = (_SHARED / _SEEDS[seed]["document"]).read_text("utf-8").split("\n")
    wrong = [(line, words) for line, words, _ in rows(seed) if words not in "".join(lines[line - 1 : line])]
    assert wrong == []
    stated = {line for line, _, _ in rows(seed)}
    passed = {line for first, last, _ in _SEEDS[seed]["passed_over"] for line in range(first, last + 1)}
    assert sorted(stated & passed) == []
    assert [
        (number, text) for number, text in enumerate(lines, 1) if text.strip() and number not in stated | passed
    ] == []


@pytest.mark.parametrize("path", sorted({proof.partition("::")[0] for proof in _PROOFS}))
def test_each_proof_is_a_test_on_a_real_tool(path: str) -> None:
    for proof in _PROOFS:
        if proof.startswith(f"{path}::"):
            _check_proof(proof)


def _check_proof(proof: str) -> None:
    path, _, name = proof.partition("::")
    name, _, variant = name.removesuffix("]").partition("[")
    text, functions = _module(path)
    assert name in functions, f"{path} has no test {name}"
    if variant and path.endswith("test_builtin_inventories.py") and "-" in variant:
        seed, _, case = variant.partition("-")
        assert case in {one.name for one in cases_of(seed)}
    elif variant:
        assert re.search(rf'"{re.escape(variant)}"', text), f"{path} has no case {variant}"
    assert not _stands_in(text, functions[name]), f"{name} runs on the stand-in world of a seed"


def test_rows_without_a_test_are_those_that_are_known_to_be_open() -> None:
    waiting = Counter(proof["until"] for _, _, _, proof in ROWS if "until" in proof and not isinstance(proof, str))
    assert dict(waiting) == _OPEN


@pytest.mark.parametrize("proof", _DEPARTURES)
def test_where_toolcrib_departs_from_a_seed_a_document_says_so(proof: dict[str, str]) -> None:
    assert proof["says"] in (ROOT / proof["departs"]).read_text("utf-8")


@cache
def _module(path: str) -> tuple[str, dict[str, ast.AsyncFunctionDef | ast.FunctionDef]]:
    """Return the text of a test module, and its tests by name."""
    text = (ROOT / path).read_text("utf-8")
    found = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef))
    return text, {node.name: node for node in found if node.name.startswith("test_")}


def _stands_in(text: str, test: ast.AsyncFunctionDef | ast.FunctionDef) -> bool:
    """Whether a test runs on tools that a file of this folder makes up for a seed."""
    if "seeded(" not in text:
        return False
    uses = {argument.arg for argument in test.args.args} & _FIXTURES
    return bool(uses) or "seeded(" in (ast.get_source_segment(text, test) or "")
