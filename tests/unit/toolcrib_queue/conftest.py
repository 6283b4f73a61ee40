"""A crib with the queue and what it works with, and two people in it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rig.postgres import on_both_stores, open_on
from toolcrib import Toolcrib
from toolcrib.crib.session import Session
from toolcrib.testing import RecordingApprover

CATEGORIES = ("agent", "hooks", "playbooks", "project", "queue", "tasks", "files", "git", "shell")


class Person:
    """One principal's calls of tools."""

    def __init__(self, session: Session) -> None:
        self.session = session

    async def ok(self, name: str, /, **arguments: Any) -> Any:
        result = await self.session.call(name, arguments)
        assert not result.is_error, f"{name}: {result.text}"
        return result.structured_content

    async def refused(self, name: str, /, **arguments: Any) -> Any:
        result = await self.session.call(name, arguments)
        assert result.error is not None, result.text
        return result.error

    async def status(self, task_id: str) -> str:
        return str((await self.ok("get_task", task_id=task_id))["status"])

    async def task(self, title: str = "One", **more: Any) -> str:
        return str((await self.ok("create_task", title=title, **more))["created"])

    async def agent(self, name: str = "Ann") -> str:
        return str((await self.ok("create_agent", name=name))["created"])

    async def claimed(self, agent_id: str, **more: Any) -> Mapping[str, Any]:
        """Claim the next task; return the arguments that name the claim."""
        found = await self.ok("claim_task", agent_id=agent_id, **more)
        return {"task_id": found["task"]["id"], "generation": found["generation"]}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    on_both_stores(metafunc, "test_tools")


@pytest.fixture
async def crib(request: pytest.FixtureRequest) -> AsyncGenerator[Toolcrib]:
    async with open_on(request, *CATEGORIES) as opened:
        yield opened


def person(crib: Toolcrib, name: str, folder: Path) -> Person:
    approver = RecordingApprover("yes")
    return Person(
        crib.session(key=name, principal=name, profile="flat", mode="autonomous", workspace=folder, approver=approver)
    )


@pytest.fixture
def ada(crib: Toolcrib, tmp_path: Path) -> Person:
    return person(crib, "ada", tmp_path)


@pytest.fixture
def eve(crib: Toolcrib, tmp_path: Path) -> Person:
    return person(crib, "eve", tmp_path)
