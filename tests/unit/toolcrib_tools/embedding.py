"""A small embedder that arrives as others do, by entry point: a text is how many of its words belong to each matter."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from toolcrib.catalog.embedding.embedder import GROUP

CONCEPTS = "concepts"
BROKEN = "broken-concepts"
"""One that fails as soon as it is asked."""

_MODULE = """
MATTERS = (
    {"umbrella", "rain", "weather", "forecast", "sky"},
    {"letter", "mail", "send", "recipient", "post"},
    {"coin", "money", "bank", "balance", "broke"},
    {"file", "disk", "folder", "read", "path"},
)


class Concepts:
    id = "concepts-1"
    dim = 4

    def encode(self, texts):
        words = [[word.strip(".,:?()") for word in text.lower().split()] for text in texts]
        return [[float(sum(word in matter for word in text)) for matter in MATTERS] for text in words]


class Broken(Concepts):
    def encode(self, texts):
        raise RuntimeError("out of memory")
"""


def offer_concepts(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the distribution with these embedders into a folder that Python finds packages in."""
    info = site / "toolcrib_concepts-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "toolcrib_concepts.py").write_text(_MODULE, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toolcrib-concepts\nVersion: 1.0\n", encoding="utf-8")
    points = f"{CONCEPTS} = toolcrib_concepts:Concepts\n{BROKEN} = toolcrib_concepts:Broken\n"
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{points}", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    importlib.invalidate_caches()
