"""What the golden suites stand on: a crib with the tools of one seed, over its world."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolcrib.config import bare
from toolcrib.core.result import ToolResult
from toolcrib.crib import Session, Toolcrib
from toolcrib.sources.yaml.source import YamlSource

__all__ = ["SEEDS", "answer_of", "names", "seeded"]

SEEDS = Path(__file__).parent


@asynccontextmanager
async def seeded(seed: str, **settings: Any) -> AsyncGenerator[Toolcrib]:
    """Open a crib with the tools of `<seed>.yaml`, under their own names; nobody is asked for anything."""
    async with Toolcrib(replace(bare(), **{"mode": "autonomous", **settings}), memory=True) as crib:
        source = YamlSource(seed, SEEDS / f"{seed}.yaml")
        await crib.mount_source(source, prefix=False, trusted=True)
        await source.ready()
        yield crib


def names(session: Session) -> list[str]:
    """Return the names of the tools that the session's model sees, in order."""
    return [tool.name for tool in session.tools]


def answer_of(result: ToolResult) -> Any:
    """Return what the model reads as JSON: the structured content."""
    return result.structured_content
