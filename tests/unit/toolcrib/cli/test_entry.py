"""The console script, before the command line is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rig import PATIENCE

pytestmark = pytest.mark.process


def test_ctrl_c_while_the_command_line_is_loaded_ends_it_without_a_traceback(tmp_path: Path) -> None:
    """What it imports first is interrupted."""
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    start = [sys.executable, "-c", "from toolcrib.cli.entry import main; main()"]

    ended = subprocess.run(
        start, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=PATIENCE
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_an_error_on_the_first_screen_is_one_line_without_a_traceback(tmp_path: Path) -> None:
    """A home folder whose name is not UTF-8 has entries of clients that no hash is made of."""
    home = tmp_path / os.fsdecode(b"h\xe9")
    (home / ".cursor").mkdir(parents=True)
    entry = {"command": "x", "envFile": str(home / ".env")}
    (home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": entry}}))

    ended = subprocess.run(
        [sys.executable, "-m", "toolcrib"], env={**os.environ, "HOME": str(home)}, capture_output=True, timeout=PATIENCE
    )

    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (70, b"", 1)


def test_python_m_toolcrib_is_the_command_line() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "toolcrib", "--version"], capture_output=True, text=True, timeout=PATIENCE
    )

    assert (ended.returncode, ended.stdout.split()[0], ended.stderr) == (0, "toolcrib", "")
