"""Commands that cannot be taken back: what counts as one, in whatever clothes, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib.core.permission import Effect
from toolcrib.core.session import SessionState
from toolcrib.core.tool import Annotations, Tool
from toolcrib.policy.decision import Policy
from toolcrib.policy.destructive_commands import irrecoverable_effect
from toolcrib.policy.modes import MODES
from toolcrib.policy.rule_layers import RuleLayers
from toolcrib.policy.rules import parse_rules

LOST = {
    "rm -rf build": "rm -rf",
    "rm -fr build": "rm -rf",
    "rm -r -f build": "rm -rf",
    "rm --recursive --force build": "rm -rf",
    "rm -R build": "rm -r",
    "git push --force": "git push --force",
    "git push -f origin main": "git push --force",
    "git push origin main --force-with-lease": "git push --force-with-lease",
    "git push origin +main": "git push +ref",
    "git reset --hard HEAD~1": "git reset --hard",
    "git branch -D topic": "git branch -D",
    "git branch --delete --force topic": "git branch -D",
    "git clean -f": "git clean",
    "git clean -d": "git clean",
    "git clean -x": "git clean",
    "git clean -fdx": "git clean",
    'psql -c "DROP TABLE users"': "DROP TABLE",
    "sqlite3 a.db 'drop index i'": "DROP INDEX",
    "mysql -e 'truncate users'": "TRUNCATE",
    "echo 'TRUNCATE TABLE users' | psql": "TRUNCATE TABLE",
    "psql <<EOF\nDROP DATABASE main;\nEOF": "DROP DATABASE",
    "chmod -R 777 /": "chmod on /",
    "chmod -R 777 /*": "chmod on /*",
    "chown -R me ~": "chown on ~",
    "chown me $HOME": "chown on $HOME",
    'chown me "${HOME}"': "chown on ${HOME}",
    "toolcrib approvals yes abcd": "toolcrib approvals yes",
    "/usr/bin/toolcrib approvals edit abcd --args {}": "toolcrib approvals edit",
    "toolcrib guard off": "toolcrib guard off",
    "toolcrib guard accept AGENTS.md": "toolcrib guard accept",
    "toolcrib pending accept --all": "toolcrib pending accept",
    "toolcrib accept github": "toolcrib accept",
}
"""Seed 002's patterns → how they are named."""

CLOTHED = [
    "sudo rm -rf x",
    "sudo -u root rm -rf x",
    "env A=b rm -rf x",
    "A=b rm -rf x",
    "timeout 5 rm -rf x",
    "nohup nice -n 5 rm -rf x &",
    "/bin/rm -rf x",
    "r\\m -rf x",
    "'rm' -rf x",
    "rm -r\\\n -f x",
    "cd x && rm -rf y",
    "ls; rm -rf y",
    "ls\nrm -rf y",
    "ls | xargs -n 1 rm -rf",
    "find . -name x -exec rm -rf {} \\;",
    "if true; then rm -rf x; fi",
    "{ rm -rf x; }",
    "(rm -rf x)",
    "a=$(rm -rf x)",
    'echo "$(rm -rf x)"',
    "`rm -rf x`",
    "bash -c 'rm -rf x'",
    "sh -c \"bash -c 'rm -rf x'\"",
    "eval 'rm -rf x'",
    "ssh host 'rm -rf x'",
    "git -C /srv -c a=b push -f",
    "git pu''sh -\"f\"",
    "echo 'not closed; rm -rf x",
]

HARMLESS = [
    "toolcrib approvals",
    "toolcrib approvals show abcd",
    "toolcrib guard status",
    "",
    "ls -la",
    "rm notes.txt",
    "rm -f notes.txt",
    "echo rm -rf",
    "git push",
    "git push origin main",
    "git push --follow-tags",
    "git reset --soft HEAD~1",
    "git branch -d topic",
    "git branch --list",
    "git clean -n",
    "git clean --dry-run -d",
    "git checkout -b force",
    "git commit -m 'truncate long lines'",
    "grep -r 'DROP TABLE' .",
    "truncate -s 0 log",
    "chmod +x run.sh",
    "chmod -R u+w ./build",
    "chmod 755 /usr/local/bin/tool",
    "chown me notes.txt",
    "npm test",
]

SHELL = Tool(name="run_command", local_name="run_command", source="own", category="shell")


def effect_of(command: str) -> str:
    return irrecoverable_effect(SHELL, {"command": command})


@pytest.mark.parametrize(("command", "named"), LOST.items())
def test_a_command_that_cannot_be_taken_back_is_named(command: str, named: str) -> None:
    assert effect_of(command) == named


@pytest.mark.parametrize("command", CLOTHED)
def test_a_command_is_found_wherever_a_shell_would_run_it(command: str) -> None:
    assert effect_of(command) in ("rm -rf", "git push --force")


@pytest.mark.parametrize("command", HARMLESS)
def test_what_can_be_taken_back_is_left_alone(command: str) -> None:
    assert effect_of(command) == ""


def test_a_command_that_nobody_can_look_through_counts_as_irrecoverable() -> None:
    assert effect_of("x" * 32_001) == "a command of 32,001 characters"


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "rm -rf x"},
        {"cmd": "rm -rf x"},
        {"command": ["rm", "-rf", "x"]},
        {"command": ["bash", "-c", "rm -rf x"]},
        {"command": "rm", "args": ["-rf", "x"]},
        {"script": "set -e\nrm -rf x\n"},
    ],
)
def test_a_command_is_found_in_whichever_argument_it_stands(arguments: dict[str, Any]) -> None:
    assert irrecoverable_effect(SHELL, arguments) == "rm -rf"


@pytest.mark.parametrize(
    ("tool", "is_looked_at"),
    [
        (SHELL, True),
        (Tool(name="t", local_name="t", source="s", tags=("Shell",)), True),
        (Tool(name="Bash", local_name="Bash", source="s"), True),
        (Tool(name="t", local_name="t", source="s", aliases=("Bash",)), True),
        (Tool(name="write_file", local_name="write_file", source="s", category="fs"), False),
    ],
)
def test_only_tools_that_run_commands_are_looked_at(tool: Tool, is_looked_at: bool) -> None:
    assert bool(irrecoverable_effect(tool, {"command": "rm -rf x"})) is is_looked_at


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rules", [{}, {"allow": ["run_command"]}, {"allow": ["*"], "ask": ["run_command"]}])
def test_it_asks_in_every_mode_whatever_is_allowed(mode: str, rules: dict[Effect, list[str]]) -> None:
    tool = Tool(
        name="run_command",
        local_name="run_command",
        source="own",
        category="shell",
        approval="never",
        annotations=Annotations(read_only=True, destructive=False),
    )
    policy = Policy(RuleLayers(parse_rules(rules)), permissions={"run_command": "allow"})
    decision = policy.decide(tool, {"command": "rm -rf x"}, SessionState(key="k", mode=mode))
    assert (decision.effect, decision.rule) == ("ask", "irrecoverable: rm -rf asks in every mode")


def test_a_deny_comes_before_it() -> None:
    policy = Policy(RuleLayers(parse_rules({"deny": ["run_command"]})))
    assert policy.decide(SHELL, {"command": "rm -rf x"}, SessionState(key="k")).rule == "deny run_command (config)"
