"""Questions to a project: the symbols and sections that fit, what is connected with them, and only what may be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolcrib import Toolcrib
from toolcrib.crib.session import Session
from toolcrib_tools import code, files
from unit.toolcrib_tools.telling import lines_of

pytestmark = pytest.mark.process

UPLOAD = '''\
class Uploader:
    """Sends files to the archive."""

    def send_file(self, path):
        """Upload one file; tries again when the network fails."""
        return retry(lambda: put(path))


def retry(action):
    """Do something again, with a growing pause."""
    return wait_before(action)


def wait_before(action):
    return action()


def put(path):
    pass
'''
CLI = "def main():\n    Uploader().send_file('a')\n\n\ndef parse_options(): ...\n"
GUIDE = "# Guide\n\n## Opening hours\n\nThe shop opens at nine.\n\n## Returns\n\nGoods come back within 14 days.\n"


GUESTS = (code, files)


@pytest.fixture
def session(crib: Toolcrib, folder: Path) -> Session:
    for name, text in {
        "src/upload.py": UPLOAD,
        "src/cli.py": CLI,
        "docs/guide.md": GUIDE,
        "docs/hours.txt": "Opening hours of the workshop: from seven.\n",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return crib.session(profile="flat", mode="autonomous", workspace=folder)


async def found(session: Session, query: str, **arguments: Any) -> list[str]:
    """Return the symbols of an answer, the related ones with what connects them."""
    lines = await lines_of(session, "project_knowledge_search", query=query, **arguments)
    hits = [line for line in lines if line[0] not in " ["]
    names = [line.partition("] ")[2].partition(":")[0] for line in hits]
    return [
        f"{name} ({line.rpartition(' (')[2]}" if line[:8] == "related:" else name
        for name, line in zip(names, hits, strict=True)
    ]


async def test_a_question_finds_the_symbols_that_are_about_it_with_what_is_said_of_them(session: Session) -> None:
    assert await lines_of(
        session, "project_knowledge_search", query="upload a file again when it fails", depth=0, max_hits=1
    ) == [
        "src/upload.py:4: [method] Uploader.send_file: def send_file(self, path):",
        "    Upload one file; tries again when the network fails.",
    ]


async def test_what_the_hits_use_and_what_uses_them_is_shown_to_a_depth(session: Session) -> None:
    async def related(**arguments: Any) -> list[str]:
        return await found(session, "send file", max_hits=1, **arguments)

    assert await related(depth=0) == ["Uploader.send_file"]
    assert await related(max_related=0) == ["Uploader.send_file"]
    assert await related() == [
        "Uploader.send_file",
        "retry (used by Uploader.send_file)",
        "put (used by Uploader.send_file)",
        "main (uses Uploader.send_file)",
    ]
    assert await related(max_related=1) == (await related())[:2]
    assert (await related(depth=2))[4:] == ["wait_before (used by retry)", "Uploader (used by main)"]


async def test_hits_can_be_narrowed_to_kinds_and_a_folder(session: Session, folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "more.py").write_text("def upload_all(): ...\n")

    assert await found(session, "upload", path="other", depth=0) == ["upload_all"]
    assert await found(session, "files of the archive", kinds=["class"], depth=0) == ["Uploader"]
    assert await lines_of(
        session, "project_knowledge_search", query="opening hours", kinds=["section"], depth=0, max_hits=1
    ) == [
        "docs/guide.md:3: [section] Opening hours",
        "    ## Opening hours The shop opens at nine.",
    ]
    assert await lines_of(session, "project_knowledge_search", query="zebra") == [
        "[nothing in the project below '.' has to do with 'zebra'; grep searches every text]"
    ]


async def test_documents_are_found_by_section(session: Session) -> None:
    assert await lines_of(session, "knowledge_search", query="when do goods come back", limit=1) == [
        "docs/guide.md:7: Returns",
        "    ## Returns",
        "    ",
        "    Goods come back within 14 days.",
    ]
    places = [line for line in await lines_of(session, "knowledge_search", query="opening hours") if line[0] != " "]
    assert sorted(places) == ["docs/guide.md:3: Opening hours", "docs/hours.txt:1: hours.txt"]
    only = await lines_of(session, "knowledge_search", query="opening hours", file_type="txt")
    assert only == ["docs/hours.txt:1: hours.txt", "    Opening hours of the workshop: from seven."]
    assert await lines_of(session, "knowledge_search", query="opening hours", path="src") == [
        "[no document below 'src' says anything of 'opening hours']"
    ]


async def test_a_type_that_is_no_document_and_a_folder_that_is_none_are_refused(session: Session) -> None:
    typed = await session.call("knowledge_search", {"query": "x", "file_type": "exe"})
    placed = await session.call("project_knowledge_search", {"query": "x", "path": "src/cli.py"})

    assert typed.error is not None
    assert placed.error is not None
    assert (typed.error.message, placed.error.message) == (
        "there are no documents of type 'exe'",
        "'src/cli.py' is not a folder",
    )


async def test_what_waits_for_review_is_found_and_what_it_takes_away_is_not(
    crib: Toolcrib, session: Session, folder: Path
) -> None:
    review = crib.session(profile="flat", mode="review", workspace=folder)
    await review.call("write_file", {"path": "docs/new.md", "content": "# Parking\n\nBehind the house.\n"})
    await review.call("remove_file", {"path": "docs/hours.txt"})

    parking = await lines_of(review, "knowledge_search", query="parking")
    hours = await lines_of(review, "knowledge_search", query="opening hours workshop")

    assert parking[0] == "docs/new.md:1: Parking"
    assert [line for line in hours if "hours.txt" in line] == []
    assert await lines_of(session, "knowledge_search", query="parking") == [
        "[no document below '.' says anything of 'parking']"
    ]


@pytest.mark.parametrize("tool", ["knowledge_search", "project_knowledge_search"])
@pytest.mark.parametrize("where", [{}, {"path": "."}, {"path": "docs"}])
async def test_a_search_above_a_denied_file_asks(crib: Toolcrib, folder: Path, tool: str, where: Any) -> None:
    (folder / "docs").mkdir()
    (folder / "docs" / "hours.md").write_text("# Opening hours\n\nFrom seven.\n")
    session = crib.session(mode="autonomous", workspace=folder, rules={"deny": ["Read(docs/hours.md)"]})
    result = await session.call(tool, {"query": "opening hours", **where})
    assert (result.error and result.error.code, "seven" in result.text) == ("denied", False)
