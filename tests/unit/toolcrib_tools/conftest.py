"""A folder, and the surroundings of a call that works in it."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest

from toolcrib import Session, Toolcrib
from toolcrib.core.context import Context
from toolcrib.workspace.disk import DiskWorkspace
from unit.toolcrib_tools.repositories import git, made

PROGRAMS = Path(sys.executable).parent
"""Where the wheel of ripgrep puts it: a test peer like any other."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
async def crib(request: pytest.FixtureRequest) -> AsyncGenerator[Toolcrib]:
    """A crib with the tools that the test module names as its `GUESTS`."""
    async with Toolcrib(memory=True) as opened:
        opened.add(*cast("Any", request).module.GUESTS)
        yield opened


@pytest.fixture
def session(crib: Toolcrib, folder: Path) -> Session:
    return crib.session(profile="flat", mode="autonomous", workspace=folder)


@pytest.fixture
def ctx(folder: Path) -> Context:
    return Context(call_id="call_1", session_key="s", principal="p", workspace=DiskWorkspace(folder))


@pytest.fixture(params=["ripgrep", "python"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Search with ripgrep, or as where there is none."""
    assert (PROGRAMS / "rg").exists(), "the tests need ripgrep: install the extra test-peers"
    programs = tmp_path / "programs"
    programs.mkdir()
    if request.param == "ripgrep":
        (programs / "rg").symlink_to(PROGRAMS / "rg")
    monkeypatch.setenv("PATH", str(programs))
    return str(request.param)


@pytest.fixture
def repo(folder: Path) -> Path:
    """A repository with one commit on main, by Ann."""
    return made(folder)


@pytest.fixture
def origin(repo: Path, tmp_path: Path) -> Path:
    """A bare remote of it that has main."""
    place = tmp_path / "origin.git"
    git(tmp_path, "init", "--quiet", "--bare", str(place))
    git(repo, "remote", "add", "origin", str(place))
    git(repo, "push", "--quiet", "origin", "main")
    return place
