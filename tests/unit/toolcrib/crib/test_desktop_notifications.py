"""A held call is announced on the desktop, where there is one; the call waits for nothing of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rig import eventually
from toolcrib.config import bare
from toolcrib.config.directories import Directories
from toolcrib.core.result import ToolResult
from toolcrib.crib import Toolcrib
from toolcrib.crib.approval_channels import DesktopNotifier
from toolcrib.testing import ScriptedSource
from unit.toolcrib.store.test_approvals import question


def desktop(folder: Path, program: str, script: str) -> Mapping[str, str]:
    """Return the environment of a desktop whose notifier is `script`."""
    file = folder / program
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere", "SECRET": "x"}


@pytest.mark.process
@pytest.mark.parametrize(("program", "platform"), [("notify-send", "linux"), ("osascript", "darwin")])
async def test_the_notification_names_the_tool_and_the_command_and_no_argument(
    tmp_path: Path, program: str, platform: str
) -> None:
    shown = tmp_path / "shown"
    environ = desktop(tmp_path, program, f'printf "%s\\n" "$@" > {shown}; env | grep -c SECRET >> {shown}')

    await DesktopNotifier(environ, platform).show(question(tool="fs__<b>write"))

    *_, title, text, secrets = shown.read_text().splitlines()
    name = "fs__<b>write" if platform == "darwin" else "fs__&lt;b&gt;write"
    assert (text, secrets) == (f"{name}: toolcrib approvals show approval_1", "0")
    assert title == "Toolcrib: a call waits for approval"


@pytest.mark.parametrize(
    "environ",
    [{}, {"DISPLAY": ":0", "PATH": "/nowhere"}, {"PATH": "/usr/bin"}],
    ids=["nothing", "no program", "server"],
)
async def test_without_a_desktop_nothing_is_started(environ: Mapping[str, str]) -> None:
    await DesktopNotifier(environ, "linux").show(question())


@pytest.mark.process
async def test_a_notifier_that_cannot_run_is_no_failure(tmp_path: Path) -> None:
    environ = desktop(tmp_path, "notify-send", "exit 1")
    (tmp_path / "notify-send").write_bytes(b"\x7fELF no program")

    await DesktopNotifier(environ, "linux").show(question())


@pytest.mark.process
@pytest.mark.parametrize("notify", [True, False])
async def test_a_held_call_of_a_client_is_announced_unless_that_is_switched_off(tmp_path: Path, notify: bool) -> None:
    shown = tmp_path / "shown"
    environ = {**desktop(tmp_path, "notify-send", f"echo >> {shown}; sleep 60"), "HOME": str(tmp_path)}
    settings = replace(
        bare().with_values(approval_wait=0.5, approvals={"notify": notify}),
        directories=Directories.of(environ),
        environment=environ,
    )

    async def show(arguments: Mapping[str, Any], context: Any) -> ToolResult:
        return ToolResult.of_text("done")

    async with Toolcrib(settings) as crib:
        await crib.tools.mount_source(ScriptedSource("fs", {"write": show}))
        result = await crib.session(for_client=True).call("fs__write", {})
        if notify:
            await eventually(lambda: shown.exists())

    assert result.error is not None
    assert (result.error.code, shown.exists()) == ("approval_pending", notify)
