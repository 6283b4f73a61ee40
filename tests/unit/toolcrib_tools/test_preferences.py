"""The settings of the desktop: the page of a permission, opened by the desktop's own program after a yes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rig.wait import eventually
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.crib.session import Session
from toolcrib.testing import RecordingApprover
from toolcrib_tools import system
from unit.toolcrib_tools.telling import told


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of the path: what is put there is what the desktop has."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    return programs


def install(programs: Path, name: str, script: str) -> None:
    (programs / name).write_text(f"#!/bin/sh\n{script}\n")
    (programs / name).chmod(0o755)


@asynccontextmanager
async def opened(**options: Any) -> AsyncGenerator[tuple[Session, RecordingApprover]]:
    approver = RecordingApprover("yes")
    given: dict[str, Any] = {"profile": "flat", "mode": "autonomous", "approver": approver, **options}
    async with Toolcrib(bare(), memory=True) as crib, crib.session(**given) as session:
        crib.add(system)
        yield session, approver


@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "permission", "words"),
    [
        ("gnome-control-center", "camera", "privacy"),
        ("gnome-control-center", "notifications", "notifications"),
        ("gnome-control-center", "full_disk_access", ""),
        ("systemsettings", "accessibility", "kcm_access"),
        ("xfce4-settings-manager", "camera", ""),
    ],
)
async def test_the_page_is_opened_by_the_desktop_and_the_user_is_asked(
    program: str, permission: str, words: str, desktop: Path, tmp_path: Path
) -> None:
    install(desktop, program, f'printf "%s" "$*" > "{tmp_path}/words"')
    install(desktop, "sleep", f'until [ -s "{tmp_path}/words" ] || [ -z "{words}" ]; do :; done')
    async with opened() as (session, approver):
        opening = await told(session, "open_system_preferences", permission=permission)

    await eventually((tmp_path / "words").exists)
    assert opening == {"permission": permission, "opened": f"{program} {words}".strip(), "page": bool(words)}
    assert (tmp_path / "words").read_text() == words
    assert [question.arguments for question in approver.questions] == [{"permission": permission}]


@pytest.mark.process
async def test_a_program_that_fails_at_once_is_told(desktop: Path) -> None:
    """The time that it has is as long as it takes here: until the shell that started it has no other child."""
    alone = 'until read -r children < "/proc/$PPID/task/$PPID/children"; set -- $children; [ $# -eq 1 ]; do :; done'
    install(desktop, "sleep", alone)
    install(desktop, "systemsettings", "exit 7")
    async with opened() as (session, _):
        failed = await session.call("open_system_preferences", {"permission": "camera"})

    assert failed.error is not None
    assert failed.error.message == "systemsettings did not open: exit status 7"


@pytest.mark.process
async def test_a_program_that_stays_open_is_left_alone(desktop: Path, tmp_path: Path) -> None:
    install(desktop, "sleep", f'until [ -e "{tmp_path}/begun" ]; do :; done')
    stays = f': > "{tmp_path}/begun"; until [ -e "{tmp_path}/over" ]; do /bin/sleep 0.1; done; : > "{tmp_path}/ended"'
    install(desktop, "systemsettings", stays)
    async with opened() as (session, _):
        await told(session, "open_system_preferences", permission="camera")
    was_open = not (tmp_path / "ended").exists()
    (tmp_path / "over").touch()
    await eventually((tmp_path / "ended").exists)

    assert was_open


async def test_without_a_desktop_or_for_a_client_nothing_is_opened(desktop: Path, tmp_path: Path) -> None:
    async with opened() as (session, _):
        nothing = await session.call("open_system_preferences", {"permission": "camera"})
        unknown = await session.call("open_system_preferences", {"permission": "the moon"})
    install(desktop, "systemsettings", f': > "{tmp_path}/opened"')
    async with opened(principal="guest") as (session, _):
        stranger = await session.call("open_system_preferences", {"permission": "camera"})
    async with opened(approver=RecordingApprover("no")) as (session, _):
        refused = await session.call("open_system_preferences", {"permission": "camera"})

    codes = [result.error.code for result in (nothing, unknown, stranger, refused) if result.error is not None]
    assert codes == ["unavailable", "invalid_arguments", "denied", "denied"]
    assert not (tmp_path / "opened").exists()
