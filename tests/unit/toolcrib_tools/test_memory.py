"""What outlasts a conversation: kept for its owner and project, found again, never lost to somebody who writes too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcrib import Toolcrib
from toolcrib.config.loader import bare
from toolcrib.core.result import ToolResult
from toolcrib.crib.session import Session
from toolcrib_tools import memory
from toolcrib_tools.memory import project_records
from unit.toolcrib_tools.telling import told

GUESTS = (memory,)


async def refused(session: Session, name: str, /, **arguments: Any) -> ToolResult:
    result = await session.call(name, arguments)
    assert result.error is not None, result.text
    return result


async def kept(crib: Toolcrib, id: str, owner: str) -> Mapping[str, Any] | None:
    record = await crib.store.records.get((owner, "memory"), id)
    return None if record is None else record.value


# Memories


@pytest.mark.slow
async def test_a_memory_is_kept_and_recalled_by_its_tags_those_with_most_tags_and_the_surest_first(
    session: Session,
) -> None:
    async def store(content: str, tags: list[str], **more: Any) -> None:
        await told(session, "store_memory", content=content, description=f"on {content}", tags=tags, **more)

    await store("a", ["Release"], confidence=0.9)
    await store("b", ["release", " The  Process "], confidence=0.1, evidence="the user said so")
    await store("c", ["release"], confidence=0.95)
    await store("d", ["other"])

    found = await told(session, "retrieve_memories", tags=["RELEASE", "the process"], limit=2)
    assert [one["content"] for one in found["memories"]] == ["b", "c"]
    assert found["total"] == 3
    first = found["memories"][0]
    assert first.pop("stored").startswith("20")
    assert first == {
        "id": "2",
        "description": "on b",
        "content": "b",
        "tags": ["release", "the process"],
        "confidence": 0.1,
        "evidence": "the user said so",
        "scope": "project",
    }
    assert await told(session, "list_memory_tags") == [
        {"tag": "release", "count": 3},
        {"tag": "other", "count": 1},
        {"tag": "the process", "count": 1},
    ]


async def test_the_same_content_again_is_one_memory_that_knows_more(session: Session) -> None:
    await told(
        session, "store_memory", content="Day: Thursday", description="x", tags=["a"], confidence=0.8, evidence="e"
    )
    again = await told(session, "store_memory", content="day:  thursday", description="y", tags=["b"], confidence=0.2)

    found = (await told(session, "retrieve_memories", tags=["a"]))["memories"]
    assert again == {"id": "1", "status": "merged", "tags": ["a", "b"], "confidence": 0.8}
    assert [(one["description"], one["evidence"], one["confidence"]) for one in found] == [("y", "e", 0.8)]


async def test_a_project_has_its_own_memories_and_what_is_global_is_found_in_every_one(
    crib: Toolcrib, session: Session, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    elsewhere = crib.session(profile="flat", mode="autonomous", workspace=tmp_path / "other")
    nowhere = crib.session(profile="flat", mode="autonomous")
    await told(session, "store_memory", content="here", description="d", tags=["t"])
    await told(session, "store_memory", content="everywhere", description="d", tags=["t"], scope="global")
    await told(session, "store_memory", content="named", description="d", tags=["t"], project_id="shop")

    async def recalled(of: Session, **more: Any) -> list[str]:
        return sorted(one["content"] for one in (await told(of, "retrieve_memories", tags=["t"], **more))["memories"])

    assert await recalled(session) == ["everywhere", "here"]
    assert await recalled(elsewhere) == ["everywhere"]
    assert await recalled(nowhere) == ["everywhere"]
    assert await recalled(elsewhere, project_id="shop") == ["everywhere", "named"]
    search = await told(elsewhere, "memory_search", query="here named everywhere", project_id="shop")
    assert {(hit["text"], hit["scope"]) for hit in search["results"]} == {
        ("named", "project"),
        ("everywhere", "global"),
    }


async def test_nobody_sees_what_another_principal_keeps(crib: Toolcrib) -> None:
    ada = crib.session(profile="flat", mode="autonomous", principal="ada")
    bob = crib.session(profile="flat", mode="autonomous", principal="bob")
    await told(ada, "store_memory", content="hers", description="d", tags=["t"])
    await told(ada, "write_note", title="Hers", content="text")

    assert (await told(bob, "retrieve_memories", tags=["t"]))["memories"] == []
    assert (await told(bob, "memory_search", query="hers text"))["results"] == []
    assert (await told(bob, "list_notes"))["notes"] == []
    assert (await refused(bob, "delete_memory", memory_id="1")).text.startswith("there is no memory '1'")
    assert await kept(crib, "1", "ada") is not None


async def test_a_memory_that_was_deleted_is_gone_and_a_note_cannot_be_deleted_as_one(
    crib: Toolcrib, session: Session
) -> None:
    await told(session, "store_memory", content="x", description="the day", tags=["t"])
    await told(session, "write_note", title="N", content="text")
    (note,) = [
        one.id
        for one in await crib.store.records.list((session.state.principal, "memory"), group=None, limit=9)
        if one.value["of"] == "note"
    ]

    done = await session.call("delete_memory", {"memory_id": "1"})
    assert done.text == "forgotten: the day"
    assert await kept(crib, "1", session.state.principal) is None
    assert "there is no memory" in (await refused(session, "delete_memory", memory_id=note)).text
    assert "there is no memory '1'" in (await refused(session, "delete_memory", memory_id="1")).text


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"content": "", "description": "d", "tags": ["t"]}, "content"),
        ({"content": "c", "description": "d", "tags": []}, "tags"),
        ({"content": "c", "description": "d", "tags": [" "]}, "tags"),
        ({"content": "c", "description": "d", "tags": ["t"], "confidence": 1.5}, "confidence"),
        ({"content": "c", "description": "d", "tags": ["t"], "scope": "world"}, "scope"),
    ],
)
async def test_what_cannot_be_remembered_is_refused_by_the_name_of_the_argument(
    session: Session, arguments: dict[str, Any], where: str
) -> None:
    failure = await refused(session, "store_memory", **arguments)

    assert failure.error is not None
    assert (failure.error.code, where in failure.text) == ("invalid_arguments", True)
    assert (await told(session, "memory_stats"))["memories"] == 0


# Search


async def test_a_search_finds_memories_notes_and_the_profile_and_shows_the_place_that_fits(session: Session) -> None:
    await told(session, "store_memory", content="Deploys need two approvals", description="deploying", tags=["ops"])
    await told(session, "write_note", title="Deploy", content="x " * 400 + "the canary comes first " + "y " * 400)
    await told(session, "edit_project_profile", content="A shop. Its canary is called Bo.")

    deploy = (await told(session, "memory_search", query="deploy"))["results"]
    assert [(hit["of"], hit["id"]) for hit in deploy] == [("memory", "1"), ("note", "Deploy")]
    canary = (await told(session, "memory_search", query="canary"))["results"]
    assert [(hit["of"], hit["title"]) for hit in canary] == [("profile", "profile"), ("note", "Deploy")]
    piece = canary[1]["text"]
    assert "the canary comes first" in piece
    assert (piece[:2], piece[-2:], len(piece) < 310) == ("… ", " …", True)
    whole = (await told(session, "memory_search", query="canary", mode="full", top_k=2))["results"]
    assert whole[1]["text"] == "x " * 400 + "the canary comes first " + "y " * 400
    assert len((await told(session, "memory_search", query="canary", top_k=1))["results"]) == 1


# Notes


async def test_a_note_is_written_appended_to_and_read_whatever_the_case_of_its_title(
    crib: Toolcrib, session: Session
) -> None:
    first = await told(session, "write_note", title="How we Deploy", content="make release\n")
    more = await told(session, "append_note", title="how we deploy", content="tell the channel")
    made = await told(session, "append_note", title="New", content="made by appending")

    assert first == {"title": "How we Deploy", "status": "created", "size": 13}
    assert more == {"title": "How we Deploy", "status": "updated", "size": 29}
    assert made["status"] == "created"
    note = await told(session, "read_note", title="HOW WE DEPLOY")
    assert (note["title"], note["content"]) == ("How we Deploy", "make release\ntell the channel")
    replaced = await told(session, "write_note", title="How we deploy", content="nothing")
    assert (replaced["status"], (await told(session, "read_note", title="how we deploy"))["content"]) == (
        "updated",
        "nothing",
    )
    listed = await told(session, "list_notes")
    assert [(one["title"], one["size"]) for one in listed["notes"]] == [("How we Deploy", 7), ("New", 17)]


async def test_a_note_that_is_not_there_is_refused_with_those_that_are(session: Session) -> None:
    nothing = await refused(session, "read_note", title="X")
    await told(session, "write_note", title="Deploy", content="x")
    deleted = await session.call("delete_note", {"title": "deploy"})
    await told(session, "write_note", title="Release", content="x")

    assert nothing.text == "there is no note 'X'\nthere are none yet"
    assert deleted.text == "deleted: Deploy"
    for name in ("read_note", "delete_note", "promote_note"):
        assert (await refused(session, name, title="Deploy")).text == "there is no note 'Deploy'\nthere are Release"


async def test_a_note_does_not_grow_beyond_its_limit_and_nothing_is_appended_by_halves(session: Session) -> None:
    await told(session, "write_note", title="Long", content="x" * (project_records.NOTE_CHARACTERS - 5))

    failure = await refused(session, "append_note", title="Long", content="123456")
    empty = await refused(session, "append_note", title="Long", content=" ")
    assert "at most 100,000 characters, this one would have 100,002" in failure.text
    assert empty.text == "there is nothing to add: content is empty"
    assert (await told(session, "memory_stats"))["characters"] == project_records.NOTE_CHARACTERS - 5


async def test_two_who_append_at_once_lose_nothing(crib: Toolcrib) -> None:
    sessions = [crib.session(profile="flat", mode="autonomous", principal="ada", key=f"s{n}") for n in range(4)]

    async with anyio.create_task_group() as group:
        for number in range(12):
            group.start_soon(
                sessions[number % 4].call,
                "append_note",
                {"title": f"{'L' if number % 2 else 'l'}og", "content": f"{number}"},
            )

    note = await told(sessions[0], "read_note", title="log")
    assert sorted(map(int, note["content"].split())) == list(range(12))


async def test_a_project_that_is_full_says_what_makes_room(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_records, "MOST_ENTRIES", 2)
    await told(session, "write_note", title="1", content="x")
    await told(session, "write_note", title="2", content="x")

    for name, arguments in (
        ("write_note", {"title": "3", "content": "x"}),
        ("store_memory", {"content": "c", "description": "d", "tags": ["t"]}),
    ):
        failure = await refused(session, name, **arguments)
        assert failure.text.startswith("this project has 2 memories and notes already\ncompact_memory drops")
    assert (await told(session, "append_note", title="1", content="more"))["status"] == "updated"


async def test_notes_and_specifications_are_compared_by_their_names(session: Session, folder: Path) -> None:
    (folder / "docs/specs/deep").mkdir(parents=True)
    (folder / "docs/specs/task-queue.md").write_text("x")
    (folder / "docs/specs/deep/billing.rst").write_text("x")
    (folder / "docs/specs/logo.png").write_text("x")
    await told(session, "write_note", title="Task queue", content="x")
    await told(session, "write_note", title="Open questions", content="x")

    assert await told(session, "compare_specs_notes", specs_path="docs/specs") == {
        "only_in_specs": ["docs/specs/deep/billing.rst"],
        "only_in_notes": ["Open questions"],
        "both": ["Task queue"],
    }
    assert (await refused(session, "compare_specs_notes")).text.startswith("there is no 'specs'")


# The profile of a project


async def test_the_profile_is_made_of_files_notes_and_memories_and_keeps_what_somebody_wrote(
    session: Session, folder: Path
) -> None:
    (folder / "README.md").write_text("# Shop\n\n[![build](x)](y)\n\nSells boats\nto everybody.\n\nMore.\n")
    (folder / "a.py").write_text("x")
    (folder / "b.py").write_text("x")
    await told(session, "edit_project_profile", content="Written \\1 by hand.\n")
    await told(session, "write_note", title="Deploy", content="# make release\nrest")
    await told(session, "store_memory", content="on Thursdays", description="Releases", tags=["t"])
    await told(session, "store_memory", content="perhaps", description="Unsure", tags=["t"], confidence=0.4)

    made = (await told(session, "regenerate_profile"))["profile"]
    assert made == (
        "<!-- from memory: begin -->\n## About\n\nSells boats to everybody.\n\n## Files\n\n- 2 × .py\n- 1 × .md\n\n"
        "## What is remembered\n\n- Releases: on Thursdays\n\n## Notes\n\n- Deploy: make release\n\n"
        "<!-- from memory: end -->\n\nWritten \\1 by hand.\n"
    )
    await told(session, "write_note", title="Deploy", content="C:\\new")
    again = (await told(session, "regenerate_profile"))["profile"]
    assert again == made.replace("Deploy: make release", "Deploy: C:\\new")
    assert (await told(session, "view_profile"))["profile"] == again


async def test_a_note_is_promoted_into_one_section_however_often(session: Session) -> None:
    await told(session, "edit_project_profile", content="# Shop\n")
    await told(session, "write_note", title="Deploy (2)", content="one")
    await told(session, "promote_note", title="deploy (2)")
    await told(session, "write_note", title="Deploy (2)", content="two")
    profile = (await told(session, "promote_note", title="deploy (2)"))["profile"]

    assert profile == "# Shop\n\n<!-- note: Deploy (2) -->\n## Deploy (2)\n\ntwo\n<!-- end of note -->\n"
    assert (await told(session, "read_note", title="Deploy (2)"))["content"] == "two"


async def test_there_is_no_profile_of_nothing(session: Session) -> None:
    assert await told(session, "view_profile") == {"profile": ""}
    assert (await refused(session, "regenerate_profile", project_id="empty")).text.startswith(
        "there is nothing to make a profile of"
    )


# Keeping order


async def test_compaction_drops_what_is_there_twice_unsure_or_empty_and_shows_it_before(
    crib: Toolcrib, session: Session, folder: Path
) -> None:
    for tag, content, confidence in (("a", "Same", 0.5), ("b", "same ", 0.9), ("c", "unsure", 0.1), ("d", "kept", 0.6)):
        value = {"of": "memory", "content": content, "description": content, "tags": [tag], "confidence": confidence}
        value |= {"evidence": "", "changed": 1.0}
        await crib.store.records.add((session.state.principal, "memory"), value, group=str(folder), text=content)
    await told(session, "write_note", title="Empty", content=" ")

    wanted = {"merged": 1, "unsure": 1, "empty_notes": 1, "removed": ["same ", "unsure", "Empty"]}
    dry = await told(session, "compact_memory", min_confidence=0.2, dry_run=True)
    before = await told(session, "memory_stats")
    done = await told(session, "compact_memory", min_confidence=0.2)
    after = await told(session, "memory_stats")

    assert (dry, done) == ({**wanted, "dry_run": True}, {**wanted, "dry_run": False})
    assert (before["memories"], before["notes"], after["memories"], after["notes"]) == (4, 1, 2, 0)
    (merged,) = (await told(session, "retrieve_memories", tags=["b"]))["memories"]
    assert (merged["id"], merged["tags"], merged["confidence"]) == ("1", ["a", "b"], 0.9)
    assert (await told(session, "compact_memory"))["removed"] == []


async def test_what_a_search_lost_is_found_once_it_is_indexed_anew(crib: Toolcrib, session: Session) -> None:
    await told(session, "write_note", title="Deploy", content="canary")
    (record,) = await crib.store.records.list((session.state.principal, "memory"), group=None, limit=9)
    await crib.store.records.put(
        (session.state.principal, "memory"), record.id, record.value, group=record.group, text="", revision=None
    )

    lost = (await told(session, "memory_search", query="canary"))["results"]
    indexed = await told(session, "memory_reindex")
    found = (await told(session, "memory_search", query="canary"))["results"]
    assert (lost, indexed, [hit["title"] for hit in found]) == ([], {"indexed": 1, "meant": 0}, ["Deploy"])


async def test_the_statistics_say_what_there_is(session: Session) -> None:
    empty = await told(session, "memory_stats")
    await told(session, "store_memory", content="four", description="d", tags=["a", "b"])
    await told(session, "edit_project_profile", content="five!")

    full = await told(session, "memory_stats")
    assert full.pop("last_changed").startswith("20")
    assert empty == {
        "memories": 0,
        "notes": 0,
        "has_profile": False,
        "characters": 0,
        "tags": 0,
        "last_changed": None,
        "room": 5000,
        "search": "words",
        "without_meaning": 0,
    }
    assert full == {
        "memories": 1,
        "notes": 0,
        "has_profile": True,
        "characters": 9,
        "tags": 2,
        "room": 4998,
        "search": "words",
        "without_meaning": 0,
    }


async def test_the_seeds_names_stand_for_the_same_memory() -> None:
    async with Toolcrib(bare().with_values(builtins=True), memory=True) as crib:
        session = crib.session(profile="flat", mode="autonomous")
        await told(session, "store_memory", content="likes tea", description="drinks", tags=["user"], scope="global")
        await told(session, "store_memory", content="tea at four", description="time", tags=["user"], scope="global")
        selected = crib.session(profile="selection", mode="autonomous", intent={"complexity": "simple"})

        found = await selected.call("memory_recall", {"query": "tea", "limit": 1, "mode": "full"})
        names = [tool.name for tool in selected.tools]
    assert "memory_recall" in names
    assert "memory_search" not in names
    assert len(json.loads(found.text)["results"]) == 1
