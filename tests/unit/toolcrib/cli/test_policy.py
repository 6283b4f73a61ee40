"""`toolcrib policy`: rules tried on commands and calls, listed, and taken over from Claude Code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rig.sandbox import needs_sandbox

from .conftest import User

RULES = {"rules": {"deny": ["Bash(rm:*)"], "allow": ["Bash(touch *)"]}, "mode": "cautious"}
SETTINGS = {
    "permissions": {
        "allow": ["Bash(npm test:*)", "mcp__github", "Task", "Task(x)"],
        "deny": ["Read(./.env)", 3],
        "ask": ["Bash(git push:*)"],
    }
}
OWN = "# mine\nrules:\n  deny:\n    - rm_all  # why\n  ask: [other]\nmode: cautious\n"
AFTER = (
    '# mine\nrules:\n  deny:\n    - rm_all  # why\n    - "Read(./.env)"\n  ask: [other, "Bash(git push:*)"]\n'
    "  allow:\n  - Bash(npm test:*)\n  - mcp__github\n  - Task\nmode: cautious\n"
)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["Bash(git push:*)", "--", "git", "push", "origin"], 0, "matches:    yes\ncommand:    git push origin\n"),
        (["Bash(git push:*)", "--", "git", "status"], 1, "matches:    no\ncommand:    git status\n"),
        (
            ["Bash(git push:*)", "--", "sudo git -C x push; $X"],
            0,
            (
                "matches:    yes\ncommand:    sudo git -C x push\n  runs:     git -C x push\ncommand:    …\n"
                "unclear:    a command whose name only the shell will know\n"
            ),
        ),
        (
            ["Bash(git push:*)", "--", "$X push"],
            10,
            (
                "matches:    undecidable: a deny asks, an allow does not allow\ncommand:    … push\n"
                "unclear:    a command whose name only the shell will know\n"
            ),
        ),
        (
            ["--effect", "allow", "Bash(touch *)", "--", "touch a > b"],
            1,
            "matches:    no\ncommand:    touch a\neffect:     writes a file\n",
        ),
    ],
)
def test_a_rule_is_tried_on_a_command(user: User, words: list[str], status: int, said: str) -> None:
    result = user.types("policy", "test", *words)

    assert (result.exit_code, result.stdout) == (status, said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["Bash(git push:*", "--", "git", "push"], "the bracket is not closed"),
        (["Read(.env)", "--", "cat", ".env"], "Read(.env) is not a rule for commands"),
        (["pay(amount>100)", "--tool", "pay"], "'pay(amount>100)' has no place beside it"),
    ],
)
def test_a_rule_that_cannot_be_tried_is_never_taken_for_a_command(user: User, words: list[str], said: str) -> None:
    result = user.types("policy", "test", *words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


@pytest.mark.parametrize(
    ("command", "status", "rule"),
    [
        ("touch a", 0, "allow Bash(touch *) (config toolcrib/config.yaml:1)"),
        ("touch a; /bin/rm b", 5, "deny Bash(rm:*) (config toolcrib/config.yaml:1)"),
        ("make", 10, "mode cautious: a destructive tool is asked for"),
        ("ls", 0, "mode cautious: a command that only reads is allowed"),
    ],
)
def test_a_command_is_decided_as_the_configuration_says(user: User, command: str, status: int, rule: str) -> None:
    user.has(".config/toolcrib/config.yaml", json.dumps(RULES))
    result = user.types("policy", "--json", "test", "--", command)

    told = json.loads(result.stdout)
    assert (result.exit_code, told["rule"]) == (status, rule)


@pytest.mark.process
def test_a_call_is_decided_as_its_session_would(owner: User) -> None:
    allowed = owner.types(
        "policy", "test", "--tool", "notes__search_notes", "--args", '{"query": "a"}', "--mode", "autonomous"
    )
    asked = owner.types(
        "policy", "test", "--tool", "notes__search_notes", "--args", '{"query": "a"}', "--mode", "manual"
    )
    unknown = owner.types("policy", "test", "--tool", "notes__serch")

    assert (allowed.exit_code, asked.exit_code, unknown.exit_code) == (0, 10, 2)
    assert "rule:       mode manual: a" in asked.stdout


@pytest.mark.parametrize("more", [{}, {"args": None, "timeout": None, "background": False, "working_dir": ""}])
@pytest.mark.parametrize(
    ("command", "status", "rule"),
    [
        ("echo hi", 0, "mode cautious: a command that only reads is allowed"),
        ("touch a", 0, "allow Bash(touch *) (config toolcrib/config.yaml:1)"),
        ("make", 10, "mode cautious: a destructive tool is asked for"),
        ("rm a", 5, "deny Bash(rm:*) (config toolcrib/config.yaml:1)"),
    ],
)
@needs_sandbox
@pytest.mark.slow
def test_a_call_is_decided_alike_with_its_defaults_in_and_out(
    user: User, command: str, status: int, rule: str, more: dict[str, Any]
) -> None:
    user.has(".config/toolcrib/config.yaml", json.dumps({**RULES, "workspace": str(user.project)}))
    user.project.mkdir(exist_ok=True)
    arguments = json.dumps({"command": command, **more})

    tried = user.types("policy", "--json", "test", "--tool", "run_command", "--args", arguments)
    why = user.types("why", "--json", "run_command", "--args", arguments)

    assert (tried.exit_code, json.loads(tried.stdout)["rule"]) == (status, rule)
    assert rule in json.loads(why.stdout)["reason"]


def test_the_rules_are_listed_with_their_layers_and_lines(user: User) -> None:
    user.has(
        ".config/toolcrib/config.yaml",
        "rules:\n  allow:\n    - a\n  deny:\n    - b\nidentities:\n  eve:\n    rules:\n      deny:\n        - c\n",
    )
    listed = user.reads("policy", "list", "--principal", "eve")

    assert listed == [
        {"effect": "deny", "rule": "b", "layer": "config toolcrib/config.yaml:5"},
        {"effect": "deny", "rule": "c", "layer": "identity eve toolcrib/config.yaml:10"},
        {"effect": "allow", "rule": "a", "layer": "config toolcrib/config.yaml:3"},
    ]


def test_claude_codes_rules_are_taken_over_and_every_other_line_stays(user: User) -> None:
    user.has(".claude/settings.json", SETTINGS)
    user.has(".config/toolcrib/config.yaml", OWN)
    tried = user.reads("policy", "import", "--dry-run")
    assert user.config.read_text() == OWN
    result = user.types("policy", "import")

    assert [entry["text"] for entry in tried if not entry["taken"]] == ["3", "Task(x)"]
    assert user.config.read_text() == AFTER
    assert "kept; nothing here is Task" in result.stdout
    assert "5 of 7 rules are now in" in result.stderr
    assert user.types("policy", "import").exit_code == 0
    assert user.config.read_text() == AFTER


def test_what_a_project_allows_is_taken_only_when_its_user_says_so(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    user.has("project/.claude/settings.local.json", SETTINGS)
    monkeypatch.chdir(user.project)
    wary = user.reads("policy", "import", "--dry-run")
    trusting = user.reads("policy", "import", "--dry-run", "--trust")

    assert {entry["effect"] for entry in wary if entry["taken"]} == {"deny", "ask"}
    assert {entry["effect"] for entry in trusting if entry["taken"]} == {"deny", "ask", "allow"}


def test_a_settings_file_that_cannot_be_read_hides_no_other(user: User) -> None:
    broken = user.has("broken.json", "{")
    good = user.has("good.json", SETTINGS)
    result = user.types("policy", "import", "--dry-run", str(broken), str(good))

    assert result.exit_code == 0
    assert "broken.json" in result.stderr
    assert "Bash(npm test:*)" in result.stdout
