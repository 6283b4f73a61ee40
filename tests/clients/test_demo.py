"""`toolcrib demo`, which is `make run`: it serves, proves itself, prints where it is, and ends cleanly."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

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
    assert not subprocess.run(["git", "status", "--short", ".toolcrib"], cwd=folder, capture_output=True).stdout


def test_two_run_side_by_side_each_on_its_own_port_until_they_are_interrupted(folder: Path) -> None:
    with demo("--folder", str(folder)) as one, demo("--folder", str(folder)) as other:
        told = [Hearing(process.stdout).until(b"ending with Ctrl-C").decode() for process in (one, other)]
        urls = {re.findall(r"serving MCP at (http://127\.0\.0\.1:\d+/mcp)", text)[0] for text in told}
        for process in (one, other):
            process.send_signal(signal.SIGINT)
        assert [process.wait(PATIENCE) for process in (one, other)] == [0, 0]

    assert len(urls) == 2


def test_a_run_that_reads_its_servers_while_another_starts_reads_the_whole_of_them(folder: Path) -> None:
    servers = folder / ".toolcrib" / "demo" / "mcp.json"
    servers.parent.mkdir(parents=True)
    servers.write_text('{"mcpServers": {}}')

    with servers.open() as read_by_the_other:
        subprocess.run([*DEMO, "--once", "--folder", str(folder)], capture_output=True, timeout=PATIENCE, check=True)
        seen = read_by_the_other.read()

    assert seen == '{"mcpServers": {}}'
    assert "mcp_server_git" in servers.read_text()
