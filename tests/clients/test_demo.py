"""`toolcrib demo`, which is `make run`: it serves, proves itself, prints where it is, and ends cleanly."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rig import PATIENCE, ROOT, Hearing

DEMO = [str(Path(sys.executable).with_name("toolcrib")), "demo"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small repository of its own, so that runs beside the clone's do not meet."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / "file").write_text("hello")
    return tmp_path


@contextmanager
def demo(*options: str) -> Generator[subprocess.Popen[bytes]]:
    command = [*DEMO, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def test_once_finds_a_tool_calls_it_and_ends_with_success(folder: Path) -> None:
    done = subprocess.run([*DEMO, "--once", "--folder", str(folder)], capture_output=True, text=True, timeout=PATIENCE)

    assert done.returncode == 0, done.stderr
    assert '> search_tools "show the working tree status of the repository"' in done.stdout
    assert re.search(r"> call_tool git__git_status .*\n  <tool_output .*\n  .*\n  Repository status:\n", done.stdout)
    assert "Untracked files" in done.stdout
    rows = dict(line.split(maxsplit=1) for line in done.stderr.splitlines() if line[:1].isalpha())
    assert {"fetch", "git", "time", "total"} <= rows.keys()
    assert re.fullmatch(r"\d+ +[\d,]+ +tokens: o200k", rows["total"])
    assert sorted(path.name for path in folder.iterdir()) == [".git", "file"]


def test_the_proof_can_be_read_by_a_program_and_leaves_nothing(folder: Path, tmp_path_factory: Any) -> None:
    kept = tmp_path_factory.mktemp("temporary")
    done = subprocess.run(
        [*DEMO, "--once", "--json", "--folder", str(folder)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "TMPDIR": str(kept)},
    )

    assert done.returncode == 0, done.stderr
    proof = json.loads(done.stdout)
    assert proof.keys() == {"folder", "url", "listed", "query", "found", "tool", "arguments", "result"}
    assert (proof["tool"], proof["arguments"]) == ("git__git_status", {"repo_path": str(folder)})
    assert "Untracked files" in proof["result"]
    assert list(kept.iterdir()) == []


def test_a_reader_that_has_gone_ends_it_without_a_traceback() -> None:
    with demo("--once") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read().decode()

        assert (process.wait(PATIENCE), "Traceback" in errors) == (1, False), errors


def test_two_run_side_by_side_each_on_its_own_port_until_they_are_interrupted(folder: Path) -> None:
    with demo("--folder", str(folder)) as one, demo("--folder", str(folder)) as other:
        told = [Hearing(process.stdout).until(b"ending with Ctrl-C").decode() for process in (one, other)]
        urls = {re.findall(r"serving MCP at (http://127\.0\.0\.1:\d+/mcp)", text)[0] for text in told}
        for process in (one, other):
            process.send_signal(signal.SIGINT)
        assert [process.wait(PATIENCE) for process in (one, other)] == [0, 0]

    assert len(urls) == 2
