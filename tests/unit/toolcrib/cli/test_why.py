"""`toolcrib why`: what it prints, and that it ends as the call would."""

import pytest

from toolcrib.errors import CODES

from .conftest import User

pytestmark = pytest.mark.process


def test_a_tool_that_would_be_asked_for_is_told_as_such_and_nothing_runs(owner: User) -> None:
    result = owner.types("why", "notes__delete_note")

    assert result.exit_code == 0, result.output
    assert "verdict:    asks" in result.stdout
    assert "mode cautious" in result.stdout
    assert not (owner.home / "journal").exists()


def test_the_mode_and_the_rules_of_the_files_count(owner: User) -> None:
    config = owner.config.read_text()
    owner.config.write_text(f"{config}rules: {{deny: [notes__shout]}}\n")

    free = owner.reads("why", "notes/delete_note", "--mode", "autonomous")
    denied = owner.types("why", "notes__shout", "--json")

    assert (free["tool"], free["verdict"], free["stopped_by"]) == ("notes__delete_note", "runs", "")
    assert denied.exit_code == CODES["denied"].exit
    assert '"stopped_by": "rule"' in denied.stdout
    assert "deny notes__shout" in denied.stdout


def test_a_name_that_no_tool_has_ends_as_the_call_would(owner: User) -> None:
    result = owner.types("why", "notes__delete_notes_all")

    assert result.exit_code == CODES["not_found"].exit
    assert "stopped by: name" in result.stdout
