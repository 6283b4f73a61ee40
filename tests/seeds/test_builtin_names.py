"""What a name of a seed means for the tools that come with us: what is shown, asked, refused and told of it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from rig.sandbox import needs_sandbox
from seeds.rigging import said
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.core.json import dumps
from toolcrib.core.tool import Tool
from toolcrib.crib import Session
from toolcrib.testing import RecordingApprover, ScriptedSource


@pytest.fixture(scope="module")
async def crib() -> AsyncGenerator[Toolcrib]:
    async with Toolcrib(bare().with_values(builtins=True), memory=True) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


def session_of(crib: Toolcrib, profile: str, folder: Path, **options: Any) -> Session:
    known: dict[str, Any] = {"mode": "autonomous", "workspace": folder, "key": str(folder), **options}
    return crib.session(profile=profile, **known)


def names(session: Session) -> list[str]:
    return [tool.name for tool in session.tools]


async def activate(session: Session, *names: str) -> list[str]:
    told = await session.call("get_tool_schemas", {"names": list(names)})
    return told.structured_content["activated"]


async def test_one_name_of_a_tool_is_activated_without_its_others(crib: Toolcrib, folder: Path) -> None:
    session = session_of(crib, "introspection", folder)

    assert await activate(session, "renameFile") == ["renameFile"]
    assert ("renameFile" in names(session), "moveFile" in names(session)) == (True, False)
    assert await activate(session, "moveFile", "renameFile") == ["moveFile"]


async def test_a_call_that_comes_too_early_names_what_activates_it(crib: Toolcrib, folder: Path) -> None:
    session = session_of(crib, "introspection", folder)
    labels, declared = session.visible.aliases, set(names(session))
    early = [labels.names(tool) for tool in session.visible.offered() if declared.isdisjoint(labels.names(tool))]
    calls: list[tuple[str, dict[str, Any]]] = [(name, {}) for one in early for name in one]
    calls += [("updateFile", {"path": "a.txt", "new_content": "x"})]

    for name, arguments in calls:
        result = await session.call(name, arguments)
        assert result.error is not None
        assert (result.error.code, f'{{"names": ["{name}"]}}' in result.error.hint) == ("not_loaded", True), name


async def test_the_two_verbs_have_schemas_like_any_core_tool(crib: Toolcrib, folder: Path) -> None:
    session = session_of(crib, "introspection", folder)
    wanted = ["list_tools", "get_tool_schemas", "readFile"]
    told = (await session.call("get_tool_schemas", {"names": wanted})).structured_content

    assert [(one["name"], one["plugin_source"]) for one in told["schemas"]] == [
        ("list_tools", "introspection"),
        ("get_tool_schemas", "introspection"),
        ("readFile", "file_edit"),
    ]
    assert {"not_found", "activated"} & told.keys() == set()


async def test_what_is_shown_at_first_comes_from_the_plugins_that_the_seed_names(crib: Toolcrib, folder: Path) -> None:
    session = session_of(crib, "introspection", folder)
    told = (await session.call("get_tool_schemas", {"names": names(session)})).structured_content

    plugins = {one["plugin_source"] for one in told["schemas"]}
    assert (
        {"introspection", "file_edit", "environment", "todo"}
        <= plugins
        <= {"introspection", "file_edit", "environment", "todo", "cli"}
    )


async def test_suggestions_have_the_name_as_a_word_before_names_that_only_contain_it(
    crib: Toolcrib, folder: Path
) -> None:
    session = session_of(crib, "introspection", folder)
    told = (await session.call("get_tool_schemas", {"names": ["file", "fil"]})).structured_content

    for close in told["suggestions"].values():
        assert [name for name in close if "profile" in name] == []


@needs_sandbox
async def test_another_name_of_a_core_tool_is_to_be_activated_like_any(crib: Toolcrib, folder: Path) -> None:
    session = session_of(crib, "introspection", folder)

    assert "cli_based_tool" not in names(session)
    assert await activate(session, "run", "cli_based_tool") == ["cli_based_tool"]


async def test_a_name_that_may_mean_two_tools_runs_the_one_that_its_arguments_mean(
    crib: Toolcrib, folder: Path
) -> None:
    (folder / "a.txt").write_text("one\n")
    session = session_of(crib, "introspection", folder)
    await activate(session, "updateFile")
    ran: list[str] = []
    end = crib.calls.on_finished(lambda finished: ran.append(finished.tool))
    try:
        await session.call("updateFile", {"path": "a.txt", "old": "one", "new": "two"})
        await session.call("updateFile", {"path": "a.txt", "new_content": "three\n"})
    finally:
        end()

    assert (ran, (folder / "a.txt").read_text()) == (["edit_file", "write_file"], "three\n")


async def test_rules_speak_of_the_tool_that_a_name_means(crib: Toolcrib, folder: Path) -> None:
    (folder / "a.txt").write_text("one\n")
    session = session_of(crib, "introspection", folder, rules={"deny": ["write_file"]})
    await activate(session, "updateFile")

    part = await session.call("updateFile", {"path": "a.txt", "old": "one", "new": "two"})
    whole = await session.call("updateFile", {"path": "a.txt", "new_content": "three\n"})

    assert (part.is_error, whole.is_error, (folder / "a.txt").read_text()) == (False, True, "two\n")
    assert crib.explainer.why("updateFile", session, {"path": "a.txt", "new_content": ""}).tool == "write_file"


async def test_the_user_is_asked_about_the_arguments_that_will_run(crib: Toolcrib, folder: Path) -> None:
    (folder / "a.txt").write_text("one\n")
    approver = RecordingApprover("no")
    session = session_of(crib, "introspection", folder, mode="manual", approver=approver)
    await activate(session, "updateFile")
    await session.call("updateFile", {"path": "a.txt", "old": "one", "new": "two"})

    asked = [(question.tool.name, question.arguments) for question in approver.questions]
    assert asked[-1][0] == "edit_file"
    assert {"search": "one", "replace": "two"}.items() <= asked[-1][1].items()


@pytest.mark.parametrize(
    ("profile", "name", "given", "message"),
    [
        ("introspection", "updateFile", {"path": "a.txt", "new": "x"}, "updateFile did not run: old: is required"),
        ("introspection", "updateFile", {"new_content": "x"}, "updateFile did not run: path: is required"),
        (
            "introspection",
            "multiFileEdit",
            {"operations": [{"path": "a", "action": "destroy"}]},
            "multiFileEdit did not run: operations[0].action: must be one of",
        ),
        ("tiered", "edit_file", {"path": "a.txt", "old_string": "x"}, "edit_file did not run: new_string: is required"),
        ("tiered", "read_file", {"path": "a", "max_lines": 0}, "read_file did not run: max_lines: must be"),
        ("tiered", "git_create_branch", {}, "branch_name: is required"),
        ("tiered", "search_files", {"pattern": "x", "mode": "bogus"}, 'mode: must be one of "grep", "find"'),
        ("flat", "project_knowledge_search", {"query": "x", "maxHits": "many"}, "maxHits: must be integer, not string"),
    ],
)
async def test_what_is_wrong_is_said_in_the_words_of_the_profile(
    crib: Toolcrib, folder: Path, profile: str, name: str, given: dict[str, Any], message: str
) -> None:
    (folder / "a.txt").write_text("one\n")
    session = session_of(crib, profile, folder)
    if profile == "introspection":
        await activate(session, name)

    result = await session.call(name, given)

    assert result.error is not None
    assert message in result.error.message
    assert name in result.error.hint or '"schema' not in result.error.hint


async def test_an_argument_that_means_nothing_here_is_taken_and_that_is_told(crib: Toolcrib, folder: Path) -> None:
    session = session_of(crib, "tiered", folder)

    told = await session.call("list_directory", {"workspace": "shop", "path": "."})
    silent = await session.call("list_directory", {"path": "."})

    assert told.content[-1]["text"] == "[workspace has no effect here: name it with path]"
    assert "no effect" not in silent.text


async def test_examples_are_in_the_words_of_the_profile_and_valid(crib: Toolcrib, folder: Path) -> None:
    for profile in ("tiered", "introspection", "flat", "selection"):
        visible = session_of(crib, profile, folder, key=profile).visible
        for tool in visible.offered():
            for face in visible.presentations(tool):
                declared = face.input_schema.get("properties", {}).keys()
                assert [example for example in face.guidance.examples if not example.keys() <= declared] == [], (
                    face.name
                )


async def test_no_definition_has_a_null_in_an_enum_or_an_array_without_items(crib: Toolcrib, folder: Path) -> None:
    """Model APIs refuse both, and with them every other tool of the request."""
    for profile in ("tiered", "introspection", "flat", "selection"):
        visible = session_of(crib, profile, folder, key=profile).visible
        shown = {face.name: face.input_schema for tool in visible.offered() for face in visible.presentations(tool)}
        refused = [(name, node) for name, schema in shown.items() for node in _nodes(schema) if _is_refused(node)]
        assert refused == []


def _nodes(schema: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(schema, Mapping):
        yield (node := cast("Mapping[str, Any]", schema))
        schema = [*node.values()]
    for inner in cast("list[Any]", schema) if isinstance(schema, list) else ():
        yield from _nodes(inner)


def _is_refused(node: Mapping[str, Any]) -> bool:
    kinds = node.get("type")
    is_array = kinds == "array" or (isinstance(kinds, list) and "array" in kinds)
    words = node.get("enum")
    return (is_array and "items" not in node) or (isinstance(words, list) and None in words)


async def test_a_tool_of_somebody_else_keeps_its_name_beside_a_seeds_name_of_ours(folder: Path) -> None:
    theirs = Tool(name="readFile", local_name="readFile", source="theirs", description="Read it from afar.")
    async with Toolcrib(bare().with_values(builtins=True), memory=True) as crib:
        await crib.tools.mount_source(
            ScriptedSource("theirs", {"readFile": said}, listed=[theirs]), prefix=False, trusted=True
        )
        session = session_of(crib, "introspection", folder)

        shown = [(tool.name, tool.source) for tool in session.visible.catalog.tools.values() if tool.name == "readFile"]
        assert shown == [("readFile", "theirs")]
        assert session.visible.aliases.rename_of("readFile") is None
        assert session.visible.find("readFile") == session.visible.catalog.tools["readFile"]
        assert session.visible.find("read_file") is not None


async def test_without_a_workspace_a_name_says_what_is_missing(crib: Toolcrib) -> None:
    why = crib.explainer.why("readFile", crib.session(profile="introspection", key="none"), {"path": "a"})

    assert (why.stopped_by, why.tool) == ("need", "read_file")


SENT = {"introspection": 3_000, "tiered": 2_400, "selection": 3_200}
"""Estimated tokens of names, descriptions and arguments, as an API is sent them: they may only get fewer."""


@pytest.mark.parametrize("profile", SENT)
async def test_what_is_shown_at_first_stays_below_its_ceiling(crib: Toolcrib, folder: Path, profile: str) -> None:
    session = session_of(crib, profile, folder)
    sent = sum(len(dumps([tool.name, tool.description, tool.input_schema])) // 4 for tool in session.tools)

    assert sent <= SENT[profile]
    everything = session_of(crib, "flat", folder, key="flat").tools
    assert sent * 10 < sum(len(json.dumps(tool.definition)) // 4 for tool in everything)
