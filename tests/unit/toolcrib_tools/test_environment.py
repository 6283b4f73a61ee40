"""Where the session works: what is told agrees with the machine, the folder, git and the session itself."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rig.sandbox import needs_sandbox
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.config.settings import WorkspaceSpec
from toolcrib.core.context import Context
from toolcrib.crib.session import Session
from toolcrib.errors import ToolFailure
from toolcrib_tools.system import get_environment
from unit.toolcrib_tools.telling import told

ASPECTS = [
    *("os", "arch", "shell", "cwd", "workspace", "git", "toolchains", "network", "sandbox", "datetime", "session"),
    "context",
]


@asynccontextmanager
async def opened(folder: Path, **options: Any) -> AsyncGenerator[Session]:
    given: dict[str, Any] = {"profile": "flat", "mode": "autonomous", **options}
    settings = bare().with_values(builtins=True, workspace=WorkspaceSpec(roots=(folder,)))
    async with Toolcrib(settings, memory=True) as crib, crib.session(**given) as session:
        yield session


def git(folder: Path, *words: str) -> str:
    names = [f"{key}={value}" for key, value in (("user.name", "Ada"), ("user.email", "ada@example.com"))]
    given = ["git", *(word for name in names for word in ("-c", name)), *words]
    return subprocess.run(given, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.process
async def test_everything_is_told_and_one_aspect_alone_is_the_same(folder: Path) -> None:
    async with opened(folder) as session:
        everything = await told(session, "get_environment")
        single = [await told(session, "get_environment", aspect=aspect) for aspect in ("os", "arch", "cwd", "sandbox")]
        unknown = await session.call("get_environment", {"aspect": "secrets"})

    assert list(everything) == ASPECTS
    assert single == [{aspect: everything[aspect]} for aspect in ("os", "arch", "cwd", "sandbox")]
    assert (everything["os"]["system"], everything["os"]["release"]) == (platform.system(), platform.release())
    assert (everything["arch"]["machine"], everything["arch"]["cores"]) == (platform.machine(), os.cpu_count())
    assert (everything["cwd"], everything["workspace"]) == (
        str(folder),
        {"root": str(folder), "folders": [str(folder)]},
    )
    assert unknown.error is not None
    assert unknown.error.code == "invalid_arguments"


async def test_the_date_is_that_of_now_in_the_zone_of_the_machine(folder: Path) -> None:
    async with opened(folder) as session:
        date = (await told(session, "get_environment", aspect="datetime"))["datetime"]

    local, utc = datetime.fromisoformat(date["local"]), datetime.fromisoformat(date["utc"])
    assert (local == utc, utc.utcoffset(), date["weekday"]) == (True, timedelta(0), local.strftime("%A"))
    assert abs(datetime.now(UTC) - utc) < timedelta(minutes=5)
    assert local.utcoffset() == datetime.now().astimezone().utcoffset()


@pytest.mark.process
async def test_the_repository_is_told_with_its_branch_its_commit_and_what_has_changed(folder: Path) -> None:
    async with opened(folder) as session:
        none = (await told(session, "get_environment", aspect="git"))["git"]
        git(folder, "init", "--initial-branch", "trunk")
        empty = (await told(session, "get_environment", aspect="git"))["git"]
        (folder / "a.txt").write_text("a")
        git(folder, "add", ".")
        git(folder, "commit", "-m", "First")
        (folder / "a.txt").rename(folder / "b.txt")
        made = (await told(session, "get_environment", aspect="git"))["git"]

    assert (none["repository"], "is in no git repository" in none["why"]) == (None, True)
    assert empty == {"repository": str(folder), "branch": "trunk", "commit": None, "changed_files": 0}
    commit = git(folder, "rev-parse", "--short", "HEAD")
    assert made == {"repository": str(folder), "branch": "trunk", "commit": commit, "changed_files": 2}


async def test_what_waits_for_review_is_told(folder: Path) -> None:
    async with opened(folder, mode="review") as session:
        await session.call("write_file", {"path": "new.txt", "content": "new"})
        waiting = (await told(session, "get_environment", aspect="workspace"))["workspace"]

    assert waiting["waiting_for_review"] == ["new.txt"]


@pytest.mark.process
@needs_sandbox
async def test_toolchains_are_those_that_commands_find_with_their_versions_and_asked_once(folder: Path) -> None:
    async with opened(folder) as session:
        told_first = (await told(session, "get_environment", aspect="toolchains"))["toolchains"]
        told_again = (await told(session, "get_environment", aspect="toolchains"))["toolchains"]
        by_command = await session.call("run_command", {"command": "command -v go git rg java; git --version"})
        shell = (await told(session, "get_environment", aspect="shell"))["shell"]
        asked = await session.call("run_command", {"command": "readlink /proc/$$/exe; true"})

    *paths, version = by_command.text.splitlines()
    assert told_first["git"] in (version, None)  # None where the machine is too busy to answer in time
    assert {Path(path).name for path in paths} == told_first.keys() & {"go", "git", "rg", "java"}
    assert told_again == told_first
    assert Path(shell["program"]).resolve() == Path(asked.text.strip()).resolve()


async def test_without_a_sandbox_programs_are_named_and_none_is_started(
    folder: Path, ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("node", "go", "other"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert await get_environment(ctx, "toolchains") == {"toolchains": {"node": None, "go": None}}
    assert (await get_environment(ctx, "shell"))["shell"]["program"] is None
    assert await get_environment(ctx, "network") == {"network": {"commands": False}}
    assert not (tmp_path / "started").exists()


async def test_session_and_context_are_those_of_the_caller(folder: Path) -> None:
    async with opened(folder, mode="autonomous") as session:
        await told(session, "session_describe", description="Fix the  \x1b[31mlogin\n\u202eredirect")
        about = (await told(session, "get_environment", aspect="session"))["session"]
        context = (await told(session, "get_environment", aspect="context"))["context"]
        usage = await told(session, "get_token_usage")

    assert (about["profile"], about["mode"], about["description"]) == (
        "flat",
        "autonomous",
        "Fix the [31mlogin redirect",
    )
    assert context["tokens_of_definitions"] == usage["definitions"]["tokens"] > 1000
    assert 0 < context["tokens_of_results"] <= usage["session"]["tokens"]
    assert context["left"] == usage["left"]


async def test_what_cannot_be_told_hides_nothing_else(ctx: Context, folder: Path) -> None:
    everything = await get_environment(ctx)

    assert list(everything) == ASPECTS
    assert "runs in no Toolcrib" in everything["session"]["unavailable"]
    assert everything["cwd"] == str(folder)
    with pytest.raises(ToolFailure):
        await get_environment(ctx, "session")


async def test_a_session_is_described_once_more_and_no_other_with_it(folder: Path) -> None:
    settings = bare().with_values(builtins=True)
    async with Toolcrib(settings, memory=True) as crib:
        session, other, guest = (crib.session(profile="flat", principal=name) for name in ("local", "local", "guest"))
        first = await told(session, "session_describe", description="Login")
        second = await told(session, "session_describe", description="Login and logout")
        blank, unseen = [await session.call("session_describe", {"description": text}) for text in ("  ", "\x1b\u202e")]
        described = [(await told(one, "get_status"))["session"]["description"] for one in (session, other, guest)]

    assert (first, second) == (
        {"description": "Login", "before": None},
        {"description": "Login and logout", "before": "Login"},
    )
    assert [result.error and result.error.code for result in (blank, unseen)] == ["invalid_arguments"] * 2
    assert described == ["Login and logout", None, None]
