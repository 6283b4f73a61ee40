"""The console script, before the command line is there."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from rig import PATIENCE
from toolcrib.config import Directories

pytestmark = pytest.mark.process


def test_ctrl_c_while_the_command_line_is_loaded_ends_it_without_a_traceback(tmp_path: Path) -> None:
    """What it imports first is interrupted."""
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    start = [sys.executable, "-c", "from toolcrib.cli.entry import main; main()"]

    ended = subprocess.run(
        start, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=PATIENCE
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


@pytest.mark.parametrize("home", ["relative", os.fsdecode(b"/tmp/h\xe9")], ids=ascii)
def test_a_home_that_no_file_can_be_in_is_refused_in_one_line_by_every_command(home: str) -> None:
    for words in ([], ["tools"], ["serve"]):
        ended = subprocess.run(
            [sys.executable, "-m", "toolcrib", *words],
            env={**os.environ, "HOME": home},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
        )

        assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (2, b"", 1)
        assert b"HOME" in ended.stderr


def test_without_a_home_folder_in_the_environment_it_is_that_of_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "")
    account = Path(pwd.getpwuid(os.getuid()).pw_dir)

    assert {Directories.of(environ).home for environ in ({"HOME": ""}, {})} == {account}


def test_python_m_toolcrib_is_the_command_line() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "toolcrib", "--version"], capture_output=True, text=True, timeout=PATIENCE
    )

    assert (ended.returncode, ended.stdout.split()[0], ended.stderr) == (0, "toolcrib", "")
