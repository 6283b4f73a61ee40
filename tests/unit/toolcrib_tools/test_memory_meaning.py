"""With an embedder, what is remembered is found by what it means; without one, or when it fails, by its words."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from rig import PATIENCE
from toolcrib import Toolcrib
from toolcrib.config.directories import Directories
from toolcrib.config.loader import bare
from toolcrib.crib.session import Session
from toolcrib_tools import code, memory
from unit.toolcrib_tools.embedding import BROKEN, CONCEPTS, offer_concepts
from unit.toolcrib_tools.telling import told


@pytest.fixture(autouse=True)
def embedders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer_concepts(tmp_path / "packages", monkeypatch)


def crib_with(embedder: str, **more: Any) -> Toolcrib:
    return Toolcrib(bare().with_values(ranking={"embedder": embedder}, **more), memory=True)


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with crib_with(CONCEPTS) as opened:
        opened.add(memory, code)
        yield opened


async def store(session: Session, description: str, content: str, **more: Any) -> None:
    await told(session, "store_memory", description=description, content=content, tags=["t"], **more)


async def found(session: Session, query: str, **more: Any) -> list[str]:
    return [hit["title"] for hit in (await told(session, "memory_search", query=query, **more))["results"]]


async def test_what_means_the_same_is_found_though_no_word_is_shared(session: Session) -> None:
    await store(session, "Outlook", "weather of tomorrow")
    await told(session, "write_note", title="Funds", content="balance")
    await told(session, "edit_project_profile", content="post a recipient")

    assert await found(session, "umbrella?") == ["Outlook"]
    assert await found(session, "a coin") == ["Funds"]
    assert await found(session, "letter") == ["profile"]
    assert await found(session, "knitting") == []


async def test_words_and_meaning_together_come_first(session: Session) -> None:
    await store(session, "Nearest", "rain sky weather")
    await store(session, "Both", "umbrella rain")
    await store(session, "Word", "umbrella coin money bank")

    assert (await found(session, "umbrella"))[0] == "Both"
    assert set(await found(session, "umbrella")) == {"Nearest", "Both", "Word"}
    assert await found(session, "umbrella", top_k=1) == ["Both"]


async def test_a_meaning_far_down_in_a_note_is_found(session: Session) -> None:
    filler = "\n\n".join(f"Paragraph {number} says nothing of interest at all. " * 8 for number in range(8))
    await told(session, "write_note", title="Long", content=f"{filler}\n\nmoney in the bank\n")

    (hit,) = (await told(session, "memory_search", query="coin"))["results"]
    (whole,) = (await told(session, "memory_search", query="coin", mode="full"))["results"]
    assert (hit["title"], whole["text"]) == ("Long", f"{filler}\n\nmoney in the bank\n")
    assert hit["text"].endswith("money in the bank …")
    assert len(hit["text"]) < 400


async def test_a_change_changes_what_it_means(session: Session) -> None:
    await told(session, "write_note", title="Note", content="rain")
    assert await found(session, "umbrella") == ["Note"]

    await told(session, "write_note", title="Note", content="balance")
    assert (await found(session, "umbrella"), await found(session, "coin")) == ([], ["Note"])
    assert (await session.call("delete_note", {"title": "Note"})).error is None
    assert await found(session, "coin") == []


async def test_what_is_global_is_found_beside_what_the_project_has(session: Session) -> None:
    await store(session, "Here", "rain")
    await store(session, "Everywhere", "weather sky rain", scope="global")
    await store(session, "Elsewhere", "rain", project_id="other")

    assert sorted(await found(session, "umbrella")) == ["Everywhere", "Here"]


async def test_what_is_older_than_the_embedder_is_told_and_found_once_it_is_indexed_anew(
    folder: Path, tmp_path: Path
) -> None:
    home = Directories.of({"HOME": str(tmp_path / "home")})
    async with Toolcrib(bare().with_values(directories=home)) as crib:
        crib.add(memory)
        session = crib.session(profile="flat", mode="autonomous", workspace=folder)
        await store(session, "Outlook", "weather")
        await told(session, "write_note", title="Funds", content="balance")
        assert await found(session, "umbrella") == []
    async with Toolcrib(bare().with_values(directories=home, ranking={"embedder": CONCEPTS})) as crib:
        crib.add(memory)
        session = crib.session(profile="flat", mode="autonomous", workspace=folder)
        before = await told(session, "memory_stats")
        assert await found(session, "umbrella") == []
        assert await found(session, "weather") == ["Outlook"]
        indexed = await told(session, "memory_reindex")
        after = await told(session, "memory_stats")
        assert await found(session, "umbrella") == ["Outlook"]

    assert (before["search"], before["without_meaning"]) == ("words and meaning", 2)
    assert (indexed, after["without_meaning"]) == ({"indexed": 2, "meant": 2}, 0)


async def test_an_embedder_that_fails_is_reported_once_and_takes_nothing_away(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with crib_with(BROKEN) as crib:
        crib.add(memory)
        session = crib.session(profile="flat", mode="autonomous", workspace=folder)
        await store(session, "Outlook", "weather of tomorrow")
        await store(session, "Funds", "balance")

        assert (await found(session, "umbrella"), await found(session, "weather")) == ([], ["Outlook"])
        assert (await told(session, "memory_stats"))["search"] == "words"
    mine = [record for record in caplog.records if "finding by meaning is off" in record.message]
    assert [record.levelno for record in mine] == [logging.ERROR]


@pytest.mark.process
async def test_documents_are_found_by_their_meaning(session: Session, folder: Path) -> None:
    (folder / "handbook.md").write_text("# Sky\n\nThe forecast.\n\n# Purse\n\nThe balance of all.\n")
    (folder / "notes.txt").write_text("Nothing here.\n")

    by_meaning = await session.call("knowledge_search", {"query": "umbrella"})
    by_both = await session.call("knowledge_search", {"query": "forecast of money", "limit": 2})
    nothing = await session.call("knowledge_search", {"query": "knitting"})
    assert by_meaning.text.startswith("handbook.md:1: Sky")
    assert "Purse" not in by_meaning.text
    assert by_both.text.index("Sky") < by_both.text.index("Purse")
    assert nothing.text.startswith("[no document")
    (folder / "handbook.md").write_text("# Sky\n\nA letter.\n")
    assert "Sky" not in (await session.call("knowledge_search", {"query": "coin"})).text


@pytest.mark.process
async def test_documents_that_nobody_has_read_yet_are_read_beside_other_work(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.crib.services.records._SECONDS", 0.0)
    (folder / "handbook.md").write_text("# Sky\n\nThe forecast.\n")

    first = await session.call("knowledge_search", {"query": "umbrella forecast"})
    assert "1 sections are found by their words only so far" in first.text

    with anyio.fail_after(PATIENCE):
        while not (await session.call("knowledge_search", {"query": "umbrella"})).text.startswith("handbook.md:1: Sky"):
            await anyio.lowlevel.checkpoint()
