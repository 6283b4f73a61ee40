"""A session with notebooks in a folder, and the shortest ways to run a cell."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.config.settings import WorkspaceSpec
from toolcrib.crib.session import Session
from unit.toolcrib_tools.telling import text_of


@asynccontextmanager
async def session_of(folder: Path, *, mode: str = "autonomous", **settings: Any) -> AsyncGenerator[Session]:
    rules = settings.pop("rules", {})
    settings = {"builtins": True, "workspace": WorkspaceSpec(roots=(folder,)), **settings}
    async with (
        Toolcrib(bare().with_values(**settings), memory=True) as crib,
        crib.session(profile="flat", mode=mode, rules=rules) as session,
    ):
        yield session


async def cell(session: Session, code: str, **arguments: Any) -> str:
    return await text_of(session, "notebook_execute", code=code, **arguments)
