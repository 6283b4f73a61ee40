"""A workspace, and commands in the sandbox of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rig.sandbox import SECRET, Outcome, Run, outcome_of
from toolcrib.core.sandbox import Command, Reach
from toolcrib.net.proxy import Proxy
from toolcrib.sandbox.bubblewrap import CommandLimits
from toolcrib.sandbox.detection import find_sandbox


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with what people have in theirs."""
    made = tmp_path / "home"
    (made / ".ssh").mkdir(parents=True)
    (made / ".ssh" / "id_ed25519").write_text(SECRET)
    (made / ".bashrc").write_text("# as it was\n")
    (made / ".aws").mkdir()
    (made / ".aws" / "credentials").write_text(SECRET)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def run(home: Path, folder: Path) -> Run:
    """Run a shell command in the workspace, as a process does that has secrets in its environment."""
    environ = {**os.environ, "HOME": str(home), "API_TOKEN": SECRET, "SSH_AUTH_SOCK": str(home / "agent.sock")}

    async def run(
        text: str, *, network: bool | Reach = False, bounds: CommandLimits | None = None, trusted: bool = False
    ) -> Outcome:
        sandbox, why = find_sandbox(environ, bounds=bounds, outlet=Proxy())
        assert sandbox is not None, why
        command = Command(argv=("/bin/sh", "-c", text), cwd=folder, folders=(folder,), network=network, trusted=trusted)
        return await outcome_of(sandbox, command)

    return run
