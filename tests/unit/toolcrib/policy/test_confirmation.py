"""The word that approves a destructive call at a terminal."""

from __future__ import annotations

import pytest

from toolcrib.policy.questions import confirmation_word

MODE = "mode cautious: a destructive tool is asked for"


@pytest.mark.parametrize(
    ("tool", "kind", "rule", "arguments", "word"),
    [
        ("write_note", "write", MODE, {}, ""),
        ("read_note", "read", MODE, {"command": "rm -rf /"}, ""),
        ("notes__delete_note", "destructive", MODE, {"id": 7}, "delete_note"),
        ("db.tables/drop", "destructive", MODE, {}, "drop"),
        ("run_command", "destructive", MODE, {"command": "/usr/bin/npm install"}, "npm"),
        ("run_command", "destructive", MODE, {"command": "$TOOL x"}, "run_command"),
        ("run_command", "destructive", MODE, {"command": ["npm"]}, "run_command"),
        ("run_command", "destructive", "irrecoverable: rm -rf asks in every mode", {"command": "y; rm -rf /"}, "rm"),
        ("terminal", "write", "irrecoverable: DROP TABLE asks in every mode", {}, "drop"),
        ("terminal", "write", "irrecoverable: a command of 90,000 characters asks in every mode", {}, "terminal"),
        ("terminal", "write", "irrecoverable: commands inside 9 commands asks in every mode", {}, "terminal"),
        ("run_command", "destructive", MODE, {"command": "y"}, "run_command"),
        ("run_command", "destructive", MODE, {"command": "yes | x"}, "run_command"),
        ("files__edit", "destructive", MODE, {}, "files__edit"),
        ("x", "destructive", MODE, {}, "confirm"),
    ],
)
def test_the_word_names_the_command_or_the_tool_and_is_never_a_key_or_another_answer(
    tool: str, kind: str, rule: str, arguments: dict[str, object], word: str
) -> None:
    assert confirmation_word(tool, kind, rule, arguments) == word
