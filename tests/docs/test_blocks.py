"""Every block of code in a document is run, and does what the document says."""

from __future__ import annotations

import dataclasses
import json
import os
import runpy
import shlex
import subprocess
import sys
import warnings
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path

import pytest
from typer.testing import CliRunner

from docs.documents import EXAMPLES, SERVERS, blocks, commands, newcomer
from peers import LEDGER
from rig import ROOT
from rig.sandbox import needs_sandbox
from toolcrib.cli.main import app

EXAMPLE_FILES = sorted(path.name for path in EXAMPLES.glob("*.py"))

IN_A_PROCESS = {"jobs.py"}
"""Examples whose engine is one for a process: they get one of their own. The others run in this one."""

IN_THE_SANDBOX = {"task_queue.py": (needs_sandbox, pytest.mark.process, pytest.mark.long)}
"""Examples that start programs of agents."""

IN_CI = {
    "make run": "run ONCE=1",
    "make test": "test",
    "make eval MODEL=scripted PROFILES=adaptive": "MODEL=scripted PROFILES=adaptive",
}
"""Commands that CI runs on a fresh clone, and how."""


def test_every_block_is_of_a_kind_that_is_run_or_read() -> None:
    assert {block.language for block in blocks()} <= {"python", "sh", "text", "yaml"}


def test_every_python_block_is_a_file_and_every_file_is_in_a_document() -> None:
    files = {path.read_text("utf-8"): path.name for path in EXAMPLES.glob("*.py")}

    shown = {str(block): files.get(block.text) for block in blocks("python")}
    assert [where for where, file in shown.items() if file is None] == [], "not a file of docs/examples, word by word"
    assert sorted(map(str, shown.values())) == sorted(files.values())


@pytest.mark.parametrize("name", [pytest.param(one, marks=IN_THE_SANDBOX.get(one, ())) for one in EXAMPLE_FILES])
def test_an_example_prints_what_its_document_shows(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    environ = newcomer(os.environ, tmp_path)

    if name in IN_A_PROCESS:
        command = [sys.executable, "-W", "error", str(EXAMPLES / name)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300, check=True
        )
        printed, errors = done.stdout, done.stderr.splitlines()
    else:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
        become(environ, monkeypatch)
        with warnings.catch_warnings(), caplog.at_level("WARNING"):
            warnings.simplefilter("error")
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        sys.modules.pop("office", None)  # it keeps records
        out = capsys.readouterr()
        printed, errors = out.out, [*out.err.splitlines(), *caplog.messages]

    # Frameworks import parts of themselves in the first call: on a slow machine the watchdog of the loop reports that.
    errors = [line for line in errors if not line.startswith("the event loop stood still")]
    assert (printed, errors) == (shown_output(name), [])


def shown_output(name: str) -> str:
    """Return the block of text that follows an example in its document; empty where it has none."""
    source = (EXAMPLES / name).read_text("utf-8")
    listed = blocks()
    place = next(number for number, block in enumerate(listed) if block.text == source)
    example, *after = listed[place : place + 2]
    return "".join(block.text for block in after if (block.file, block.language) == (example.file, "text"))


def test_ci_runs_the_two_commands_of_the_readme_on_a_fresh_clone(tmp_path: Path) -> None:
    make = tmp_path / "make"
    make.write_text(f'#!/bin/sh\nshift\necho "$@" >> {tmp_path}/made\n')
    make.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run([ROOT / ".ci" / "run"], env={**os.environ, "PATH": path}, check=True, capture_output=True)

    made = (tmp_path / "made").read_text()
    assert [command for command in IN_CI.values() if command not in made] == []


def test_a_newcomer_types_every_command_in_order_and_each_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [block for block in blocks("sh") if block.file != SERVERS]
    typed = [line for block in documents for line in commands(block) if line not in IN_CI]
    environ, project = newcomer(os.environ, tmp_path), tmp_path / "project"
    become(environ, monkeypatch)
    client = tmp_path / ".cursor" / "mcp.json"
    client.parent.mkdir()
    server = {"command": sys.executable, "args": ["-IS", LEDGER, str(tmp_path / "ledger")]}
    client.write_text(json.dumps({"mcpServers": {"mine": server}}, indent=4))
    before = client.read_bytes()
    typed_in(tmp_path, environ, _REPOSITORY)

    printed = {line.partition("#")[0].strip(): typed_in(project, environ, line) for line in typed}
    connected = client.read_bytes()
    typed_in(project, environ, "toolcrib disconnect --all")
    typed_in(project, environ, "toolcrib daemon stop")

    assert (connected != before, client.read_bytes() == before) == (True, True)
    assert {words for words, said in _SAYS.items() if said not in printed[words]} == set()


def become(environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this process the environment of a newcomer."""
    for key in os.environ.keys() - environ.keys():
        monkeypatch.delenv(key)
    for key, value in environ.items():
        monkeypatch.setenv(key, value)


def typed_in(folder: Path, environ: Mapping[str, str], line: str) -> str:
    """Type a command into a shell and return what it prints; it must succeed."""
    status, printed = typed(folder, environ, line)
    assert status == 0, f"{line}\n{printed}"
    return printed


def typed(folder: Path, environ: Mapping[str, str], line: str) -> tuple[int, str]:
    """Type a command and return its status and what it prints.

    A plain command of ours runs in this process, in the environment that `become` made: its start costs more than its
    work.
    """
    words = shlex.split(line, comments=True)
    if words[:1] == ["toolcrib"] and len(words) > 1 and not any(sign in line for sign in ("|", "$(", "<")):
        with chdir(folder):
            result = CliRunner().invoke(app, [word.replace("$PWD", str(folder)) for word in words[1:]])
        return result.exit_code, result.output
    done = subprocess.run(
        line, shell=True, cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


_REPOSITORY = (
    "git init --quiet project && cd project && echo hello > file && git add file && "
    "git -c user.name=Ada -c user.email=ada@localhost commit --quiet --message 'The first word'"
)
_SAYS = {
    "toolcrib": "Cursor",
    "toolcrib connect --all --replace": "Cursor: Toolcrib is in ",
    "toolcrib add git -- mcp-server-git": ": ready\n",
    "toolcrib tools": "mine__look",
    'toolcrib find "show the commit log"': "git__git_log",
    "toolcrib call git__git_log repo_path=$PWD max_count=3": "The first word",
    "toolcrib log": "git__git_log",
    "toolcrib why git__git_commit": "asks\nsource:     git\n",
    "toolcrib doctor": "server git",
}
"""A piece of what some of the commands print."""


def test_the_tutorial_of_twelve_servers_is_typed_from_its_beginning_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "practice"
    environ = {**newcomer(os.environ, home), "XDG_RUNTIME_DIR": str(tmp_path)}
    (added,) = [block for block in blocks("yaml") if block.file == SERVERS]
    lines = [(block.line, line) for block in blocks("sh") if block.file == SERVERS for line in commands(block)]
    path, practice, *moves = [line for _, line in lines[:4]]
    assert (path, moves) == ("export PATH=$PWD/.venv/bin:$PATH", ["export HOME=/tmp/practice", "cd"])
    typed_in(ROOT, environ, practice.replace("/tmp/practice", str(home)))
    become(environ, monkeypatch)

    printed: dict[str, tuple[int, str]] = {}
    for number, line in lines[4:]:
        if number > added.line and added.text:
            with (home / ".config" / "toolcrib" / "config.yaml").open("a") as file:
                file.write(added.text)
            added = dataclasses.replace(added, text="")
        printed[line] = typed(home, environ, line)

    assert {line for line, (status, _) in printed.items() if status != 0} == _REFUSED
    assert {line for line, piece in _TUTORIAL.items() if piece not in printed[line][1]} == set()
    assert "toolcrib" not in (home / ".cursor" / "mcp.json").read_text()


_REFUSED = {
    "toolcrib call rooms__create_reservation name=Blue details=10:00/11:00",  # asks at a terminal; see first_minute.py
    "toolcrib call rooms__delete_reservation number=1",
    "toolcrib why rooms__delete_reservation",
}
"""Commands of the tutorial that end with another status than 0: calls that are denied, and the reason of one."""
_TUTORIAL = {
    "toolcrib": "Cursor                12",
    "toolcrib import --dry-run": "rooms",
    "toolcrib connect cursor --replace": "6,496 tokens before, 522 after",
    'toolcrib find "book a room for a meeting"': "rooms__create_reservation",
    "toolcrib log": "rooms__list_reservations",
    "toolcrib call rooms__create_reservation name=Red": "Red",
    "toolcrib why rooms__delete_reservation": "deny *__delete_*",
    "toolcrib disconnect --all": "is as it was",
}
"""A piece of what commands of the tutorial print."""
