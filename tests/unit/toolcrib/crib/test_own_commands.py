"""Commands in hints: those of a gateway with files of its own name these files."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from toolcrib import Toolcrib
from toolcrib.cli.main import app
from toolcrib.config import load
from toolcrib.core.own_commands import TAKE_FILES
from toolcrib.crib.problem_summaries import summaries
from unit.toolcrib.cli.conftest import NOTES_SERVER


@pytest.mark.process
async def test_every_command_that_a_gateway_names_has_the_files_that_it_was_started_with(tmp_path: Path) -> None:
    file = tmp_path / "my servers.json"
    servers = {"notes": {"command": sys.executable, "args": [NOTES_SERVER]}, "gone": {"command": "no-such-program"}}
    file.write_text(json.dumps({"mcpServers": servers}))

    settings = load(
        [file], {"builtins": False, "rules": {"ask": ["*"]}, "approval_wait": 0.01}, {"HOME": str(tmp_path)}
    )
    async with Toolcrib(settings) as crib, crib.session(for_client=True) as session:
        await crib.tools.wait_ready(30)
        results = [await session.call(name) for name in ("notes__search_notes", "gone__x")]
        results += [await session.call("search_tools", {"query": "gone"})]
        await crib.tools.accept("notes")
        held = await session.call("notes__search_notes", {"query": "a"})
        texts = [*(text for _, text in summaries(crib.problems, crib.settings.file_options)), str(crib.tools.sources)]
        texts += [f"{problem.message} {problem.hint}" for problem in crib.problems]
        texts += [result.text for result in (*results, held)]

        remote = crib.session(for_client=True, principal="ada")
        sent = [await remote.call(name) for name in ("notes__delete_note", "gone__x")]
        sent += [await remote.call("search_tools", {"query": "gone"})]
        sent += [await remote.call("notes__search_notes", {"query": "a"})]

    assert held.error is not None and held.error.details["command"].endswith(f" -c '{file}'")
    named = list(_commands(texts))
    assert {"accept", "approvals", "doctor", "show"} <= {command.split()[1] for command in named}
    assert [command for command in named if re.findall(r" -c (.*?\.json')", command) != [f"'{file}'"]] == []
    assert sent[-1].error is not None and sent[-1].error.code == "approval_pending"
    assert [result.text for result in sent if str(file) in str(result)] == []


LISTS = ("approvals", "jobs", "log", "pending", "profile", "results", "schedule")


@pytest.mark.parametrize("name", TAKE_FILES)
def test_a_command_that_hints_name_with_files_takes_them(name: str) -> None:
    missing = "/no/such/file.yaml"
    argument = {"show": ["x"], "why": ["x"], "find": ["x"], "login": ["x"], "logout": ["x"]}.get(name, [])
    actions = ["list"] if name in LISTS else []

    result = CliRunner().invoke(app, [name, *actions, *argument, "-c", missing])

    assert (missing in str(result.exception or "") + result.output, "No such option" in result.output) == (True, False)


def _commands(texts: list[str]) -> Iterator[str]:
    for text in texts:
        for command in re.findall(r"`(toolcrib [^`]+)`", text):
            if command.split()[1] in TAKE_FILES:
                yield command
