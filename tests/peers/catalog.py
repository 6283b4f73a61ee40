"""A catalog in a folder, opened; and calls of what it lists."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from rig import PATIENCE, eventually
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Tool
from toolcrib.sources.source import Listing
from toolcrib.sources.yaml.document import YamlOptions
from toolcrib.sources.yaml.source import YamlSource

KIND = """\
- name: echo
  implementation: {command: [printf, "%s", "{text}"]}
- name: fail
  implementation: {command: [sh, -c, "echo no way >&2; exit 1"]}
- name: hang
  implementation: {command: [sleep, "100000"]}
"""
"""The three tools of every kind in the contract suite; a process a call."""


def context(seconds: float = 60.0) -> Context:
    return Context(call_id="c", session_key="s1", principal="ann", instance="i1", deadline=time.monotonic() + seconds)


class Opened:
    """An open catalog and what it published."""

    def __init__(self, source: YamlSource, path: Path) -> None:
        self.source = source
        self.path = path
        self.listings: list[Listing] = []

    @property
    def listing(self) -> Listing:
        return self.listings[-1]

    @property
    def problems(self) -> list[tuple[str, str]]:
        return [(problem.code, problem.tool) for problem in self.listing.problems]

    def tool(self, name: str) -> Tool:
        return next(tool for tool in self.listing.tools if tool.name == name)

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        return await self.source.call(self.tool(name), arguments, context())

    async def write(self, text: str) -> Listing:
        """Change the file, and return what is published then."""
        count = len(self.listings)
        self.path.write_text(text, encoding="utf-8")
        await eventually(lambda: len(self.listings) > count)
        return self.listing


@asynccontextmanager
async def opened(folder: Path, text: str, **options: Any) -> AsyncGenerator[Opened]:
    path = folder / "capabilities.yaml"
    path.write_text(text, encoding="utf-8")
    source = YamlSource("cat", path, YamlOptions(poll_seconds=0.05, **options))
    one = Opened(source, path)
    await source.open(one.listings.append)
    try:
        with anyio.fail_after(PATIENCE):
            await source.ready()
        yield one
    finally:
        await source.close()
