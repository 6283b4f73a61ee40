"""`toolcrib why`: what it prints, and that it ends as the call would."""

import json

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


def test_a_principal_that_the_configuration_does_not_know_is_named(owner: User) -> None:
    owner.config.write_text(f"{owner.config.read_text()}identities: {{alice: {{mode: manual}}}}\n")

    known, stranger = (owner.types("why", "notes__shout", "--principal", name) for name in ("alice", "alcie"))

    assert known.stderr == ""
    assert stranger.stderr == "no identity and no token has the principal 'alcie'; did you mean 'alice'?\n"


def test_a_name_that_no_tool_has_ends_as_the_call_would(owner: User) -> None:
    result = owner.types("why", "notes__delete_notes_all")

    assert result.exit_code == CODES["not_found"].exit
    assert "stopped by: name" in result.stdout


@pytest.mark.parametrize(
    ("tool", "verdict", "reason"),
    [
        ("notes__search_notes", "runs", "mode connected-cursor"),
        ("notes__delete_note", "asks", "ask notes__delete_note"),
        ("notes__shout", "refused", "deny notes__shout"),
    ],
)
def test_for_a_connected_client_it_counts_the_rules_that_came_from_its_own_settings(
    owner: User, tool: str, verdict: str, reason: str
) -> None:
    rules = "rules: {ask: [notes__delete_note], deny: [notes__shout]}"
    text = f"{owner.config.read_text()}modes: {{connected-cursor: {{extends: autonomous, {rules}}}}}\n"
    owner.config.write_text(text)
    args = ["serve", "--profile", "flat", "--guard", "off", "--mode", "connected-cursor"]
    owner.has(".cursor/mcp.json", {"mcpServers": {"toolcrib": {"command": "/x/toolcrib", "args": args}}})

    answer = json.loads(owner.types("why", tool, "--client", "cursor", "--json").stdout)

    assert (answer["verdict"], reason in answer["reason"]) == (verdict, True), answer


def test_for_a_client_that_does_not_list_the_tool_it_counts_the_way_through_call_tool(owner: User) -> None:
    args = ["serve", "--profile", "small", "--guard", "off"]
    owner.config.write_text(f"{owner.config.read_text()}profiles: {{small: {{extends: adaptive, budget_tokens: 1}}}}\n")
    owner.has(".cursor/mcp.json", {"mcpServers": {"toolcrib": {"command": "/x/toolcrib", "args": args}}})

    write, read = (
        owner.reads("why", tool, "--client", "cursor") for tool in ("notes__delete_note", "notes__search_notes")
    )

    assert (write["verdict"], write["reason"].startswith("call_tool:")) == ("asks", True)
    assert (read["verdict"], read["reason"].startswith("mode autonomous")) == ("runs", True)


def test_a_client_that_is_not_connected_has_no_answer(owner: User) -> None:
    assert owner.types("why", "notes__shout", "--client", "cursor").exit_code == 2


def test_a_person_who_asks_about_an_unknown_tool_gets_commands_and_no_meta_tool(user: User) -> None:
    hint = json.loads(user.types("why", "--json", "calculatr").stdout)["hint"]

    assert "calculate" in hint
    assert ("toolcrib find" in hint, "search_tools" in hint) == (True, False)
