"""The console script, before the command line is there."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from rig import PATIENCE
from toolcrib.config import Directories
from toolcrib.errors import CODES

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


@pytest.mark.parametrize(
    ("words", "stream", "status", "lines"),
    [
        ("version", ">/dev/full", CODES["storage"].exit, 1),
        ("--help", ">/dev/full", CODES["storage"].exit, 1),
        ("version", ">&-", 0, 0),
        ("tools --no-such", ">&- <&-", 2, 4),
    ],
)
def test_an_output_that_is_full_or_closed_ends_the_command_without_a_traceback(
    tmp_path: Path, words: str, stream: str, status: int, lines: int
) -> None:
    ended = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m toolcrib {words} {stream}"],
        env={**os.environ, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert (ended.returncode, len(ended.stderr.splitlines())) == (status, lines), ended.stderr


def test_a_reader_that_has_gone_ends_the_command_in_silence(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "toolcrib", "version"],
        env={**os.environ, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=PATIENCE,
    )
    os.close(writer)

    assert (ended.returncode, ended.stderr) == (1, b"")


def test_json_keeps_what_the_encoding_of_the_output_lacks(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "toolcrib", "policy", "test", "--json", "--", "echo", "é\U0001f600"],
        env={**os.environ, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=PATIENCE,
    )

    assert json.loads(ended.stdout.decode("ascii"))["command"] == "echo 'é\U0001f600'"
