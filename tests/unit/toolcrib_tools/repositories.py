"""Repositories for tests of the git tools, sessions that work in them, and the user's own git beside."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.config.settings import WorkspaceSpec
from toolcrib.crib.session import Session

OWN = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.com",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.com",
}


def git(folder: Path, *arguments: str) -> str:
    """Ask the user's own git."""
    words = ["git", "-c", "init.defaultBranch=main", *arguments]
    done = subprocess.run(words, cwd=folder, env={**os.environ, **OWN}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n")


def made(folder: Path) -> Path:
    """Make a repository of a folder: one commit on main, by Ann. An empty one is a copy of the first that was made."""
    if any(folder.iterdir()):
        return _commit(folder)
    shutil.copytree(_template(), folder, dirs_exist_ok=True)
    return folder


@cache
def _template() -> Path:
    keeper = tempfile.TemporaryDirectory(prefix="toolcrib-test-")
    atexit.register(keeper.cleanup)
    return _commit(Path(keeper.name))


def _commit(folder: Path) -> Path:
    git(folder, "init", "--quiet")
    git(folder, "config", "user.name", "Ann")
    git(folder, "config", "user.email", "ann@example.com")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def without_sandbox(tmp_path: Path) -> dict[str, str]:
    """An environment in whose path there is no sandbox."""
    programs = tmp_path / "programs"
    programs.mkdir()
    return {**bare().environment, "PATH": str(programs)}


@asynccontextmanager
async def session_of(*roots: Path, mode: str = "autonomous", **settings: Any) -> AsyncGenerator[Session]:
    spec = WorkspaceSpec(roots=roots)
    async with (
        Toolcrib(bare().with_values(builtins=True, workspace=spec, **settings), memory=True) as crib,
        crib.session(profile="flat", mode=mode) as session,
    ):
        yield session


async def told(session: Session, name: str, /, **arguments: Any) -> Any:
    result = await session.call(name, arguments)
    assert result.error is None, result.text
    return json.loads(result.text) if result.text.startswith(("{", "[{")) else result.text
