"""Cells of notebooks before the rules for commands: what they hand to a shell is seen, and none is a mere command."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from toolcrib.core.permission import Decision, Effect
from toolcrib.core.session import SessionState
from toolcrib.core.tool import Tool
from toolcrib.policy.decision import Policy
from toolcrib.policy.rule_layers import RuleLayers
from toolcrib.policy.rules import parse_rules

CELL = Tool(
    name="notebook_execute",
    source="builtin",
    local_name="notebook_execute",
    category="notebook",
    origin="python",
    input_schema={"type": "object", "properties": {"code": {"type": "string"}}},
)


def decide(code: str, mode: str = "autonomous", **rules: list[str]) -> Decision:
    policy = Policy(RuleLayers(parse_rules(cast("Mapping[Effect, list[str]]", rules))))
    return policy.decide(CELL, {"code": code}, SessionState(key="k", mode=mode))


@pytest.mark.parametrize(
    "code",
    [
        "!rm -rf data",
        "x = 1\n    !rm -rf data",
        "!!rm -rf data",
        "out = !rm -rf data",
        "%time !rm -rf data",
        "%sx rm -rf data",
        "out = %system rm -rf data",
        "%%bash\nls\nrm -rf data",
        "\n%%time\n%%sh\nrm -rf data",
        "%%script bash -e\nrm -rf data",
        "!ls; sudo rm \\\n -rf data",
        "rm -rf data",
        "%rm -rf data",
        "import os\nos.system('rm -rf data')",
        'subprocess.run("rm -rf data", shell=True)',
        "subprocess.run('''\n  rm -rf data\n''', shell=True)",
        'subprocess.run(args=f"""ls; rm -rf {data}""", shell=True)',
        "subprocess.run(['rm', '-rf', 'data'])",
        "subprocess.check_output([\n  'rm',\n  \"-rf\",\n 'data'])",
        "get_ipython().system(f'rm -rf {folder}')",
    ],
)
def test_a_cell_that_hands_a_shell_what_cannot_be_taken_back_asks_in_every_mode(code: str) -> None:
    assert decide(code) == Decision(effect="ask", rule="irrecoverable: rm -rf asks in every mode")
    assert decide(code, allow=["Bash"]).effect == "ask"


@pytest.mark.parametrize(
    "code", ["1 + 1", "if a != b:\n    print('rm')", "x = 'git push'", "rm = 3", "os.system('ls')", "a = b\n# rm x"]
)
def test_a_cell_that_does_nothing_of_the_kind_is_decided_on_by_its_mode(code: str) -> None:
    assert decide(code).effect == "allow"
    assert decide(code, mode="cautious") == Decision(
        effect="ask", rule="mode cautious: a destructive tool is asked for"
    )


@pytest.mark.parametrize(
    "code", ["ls", "ls = f\"{__import__('os').remove('x')}\"", "!ls", "%%bash\nls", "os.system('ls')"]
)
def test_no_cell_counts_as_a_command_that_only_reads(code: str) -> None:
    assert decide(code, mode="cautious").effect == "ask"


def test_what_is_denied_to_commands_is_denied_to_the_commands_of_a_cell() -> None:
    deny = ["Bash(git push:*)"]

    assert decide("!git push origin", deny=deny).effect == "deny"
    assert decide("os.system('git push')", deny=deny).effect == "deny"
    assert decide("print('hello')", deny=deny).effect == "allow"
    assert decide("name = 'git'", deny=deny).effect == "ask", "a program could be made of it"
    assert decide("print('hello')", deny=["Bash"]).effect == "deny"


def test_what_is_allowed_to_commands_allows_a_cell_only_if_it_means_python() -> None:
    assert decide("!ls -l", allow=["Bash(ls:*)"], mode="cautious").effect == "ask"
    assert decide("1 + 1", allow=["Bash(python3:*)"], mode="cautious").effect == "allow"
    assert decide("!make", allow=["Bash(python3:*)"], mode="cautious").effect == "ask"
    assert decide("!make", allow=["Bash(python3:*)", "Bash(make)"], mode="cautious").effect == "allow"
    assert decide("!make", allow=["Bash"], mode="cautious").effect == "allow"
    assert decide("1 + 1", allow=["Bash(1 + 1)"], mode="cautious").effect == "ask"


def test_a_file_that_is_denied_is_seen_in_the_commands_of_a_cell() -> None:
    assert decide("!cat .env", deny=["Read(.env)"]).effect == "ask"
    assert decide("!cat notes", deny=["Read(.env)"]).effect == "allow"


def test_conditions_on_the_code_itself_mean_what_was_sent() -> None:
    assert decide("import socket", deny=["notebook_execute(code=*socket*)"]).effect == "deny"
    assert decide("import json", deny=["notebook_execute(code=*socket*)"]).effect == "allow"


def test_a_tool_of_a_server_is_no_notebook_of_ours() -> None:
    theirs = Tool(
        name="their__run",
        source="their",
        local_name="run",
        category="notebook",
        origin="mcp",
        input_schema=CELL.input_schema,
    )

    decision = Policy().decide(theirs, {"code": "!rm -rf data"}, SessionState(key="k", mode="autonomous"))

    assert decision.effect == "allow"


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", ["!", "%", "= !", "run(['", "run('", 'system("', "\\\n", "%%bash\n", "rm ", " ", "=   %sx "]
)
def test_a_cell_made_to_hurt_is_decided_on_at_once(piece: str) -> None:
    started = time.process_time()

    decide(piece * (200_000 // len(piece)))

    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "code",
    [
        "%run a.py",
        "x = 1\n%run -i a.py one",
        "get_ipython().run_line_magic('run', 'a.py')",
        "from sub import a",
        "from sub import (\n    b,\n    a,\n)",
        "from sub import b; import a",
    ],
)
def test_a_file_that_a_cell_runs_or_imports_is_read(code: str, tmp_path: Path) -> None:
    for name in ("a.py", "sub/a.py"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("import os\nos.system('rm x')\n")
    policy = Policy(RuleLayers(parse_rules({"allow": ["Bash"], "deny": ["Bash(rm:*)"]})))
    session = SessionState(key="k", mode="autonomous")
    session.files.cwd = tmp_path

    assert policy.decide(CELL, {"code": code}, session).effect == "ask"
    assert policy.decide(CELL, {"code": "from json import dumps\n%time x = 1"}, session).effect == "allow"
