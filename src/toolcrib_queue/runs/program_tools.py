"""Tools of a program at work: those of Toolcrib over MCP, where they can take the place of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from toolcrib.plugin import Context

from .programs import AgentProgram, Setup

_CATEGORIES: Final = ("code", "files", "search", "shell")
"""Work in a folder. A program reaches nothing else of its caller's: no queue, no memory, no service."""
_READ_ONLY: Final = ("git",)
"""The queue commits by itself."""
_MODE: Final = "autonomous"
_PLAN: Final = "plan"
"""The mode of a profile whose programs read only."""
_NEEDED: Final = frozenset({"edit_file", "run_command"})
"""Without these a program could not do its work: it keeps its own tools."""


@asynccontextmanager
async def tools_for(ctx: Context, program: AgentProgram, setup: Setup, folder: Path) -> AsyncGenerator[Setup]:
    """Give the setup of a run with the tools that are served to its program in the folder of its task, if any."""
    if not program.takes_ours(setup):
        yield setup
        return
    plans = setup.permission_mode == _PLAN
    serving = ctx.lent.serve(
        ctx,
        folder,
        categories=() if plans else _CATEGORIES,
        read_only=(*_READ_ONLY, *_CATEGORIES) if plans else _READ_ONLY,
        mode=_MODE,
    )
    async with serving as served:
        is_enough = served is not None and ("read_file" in served.names if plans else _NEEDED.issubset(served.names))
        yield replace(setup, served=served) if is_enough else setup
