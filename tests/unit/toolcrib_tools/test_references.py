"""Documents that the user chose: listed, selected by id, tag or matter, told with their text or how to have it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Toolcrib
from toolcrib.config.loader import bare
from toolcrib.crib.session import Session
from toolcrib_tools import references
from unit.toolcrib_tools.embedding import CONCEPTS, offer_concepts
from unit.toolcrib_tools.telling import refused, told

SOURCES = [
    {
        "id": "style",
        "name": "Style guide",
        "description": "How we write code",
        "path": "docs/style.md",
        "mode": "auto",
        "tags": ["Style", "python"],
    },
    {"id": "rules", "name": "Rules", "content": "Follow style and api-spec; restyle nothing.", "tags": ["process"]},
    {"id": "api-spec", "name": "API", "type": "url", "url": "https://example.org/api.md", "tags": ["api"]},
    {
        "id": "auth",
        "name": "Login",
        "server": "wiki",
        "tool": "get_page",
        "args": {"page": 7},
        "tags": ["api"],
        "fetch_hint": "only its second section",
    },
    {"id": "decisions", "name": "Decisions", "path": "docs/adr"},
]


def crib_with(said: Any, **more: Any) -> Toolcrib:
    return Toolcrib(bare().with_values(tools={"references": said}, **more), memory=True)


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with crib_with({"sources": SOURCES, "folders": ["more"]}) as opened:
        opened.add(references)
        yield opened


@pytest.fixture
def session(crib: Toolcrib, folder: Path) -> Session:
    for name, text in {
        "docs/style.md": "Line length is 120.\r\n",
        "docs/adr/1.md": "SQLite",
        "docs/adr/2.md": "anyio",
        ".toolcrib/references/tests.yaml": "id: tests\nname: Tests\ncontent: Test names are sentences.\n",
        "more/two.json": json.dumps({"version": "1.0", "sources": [{"id": "a", "name": "A", "content": "x"}]}),
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    return crib.session(profile="flat", mode="autonomous", workspace=folder)


async def ids(session: Session, **asked: Any) -> list[str]:
    return [one["id"] for one in (await told(session, "list_references", **asked))["references"]]


async def select(session: Session, **asked: Any) -> dict[str, Any]:
    return {one["id"]: one for one in (await told(session, "select_references", **asked))["references"]}


async def test_what_the_configuration_and_the_workspace_offer_is_listed(session: Session) -> None:
    listed = await told(session, "list_references")

    assert [one["id"] for one in listed["references"]] == [
        "a",
        "api-spec",
        "auth",
        "decisions",
        "rules",
        "style",
        "tests",
    ]
    assert listed["references"][5] == {
        "id": "style",
        "name": "Style guide",
        "description": "How we write code",
        "type": "local",
        "mode": "auto",
        "tags": ["Style", "python"],
        "place": "docs/style.md",
        "selected": False,
    }
    assert (listed["total"], listed["tags"]) == (7, ["Style", "api", "process", "python"])
    assert "problems" not in listed


async def test_lists_are_narrowed_by_tag_and_mode(session: Session) -> None:
    assert await ids(session, tags=["style", "process"]) == ["rules", "style"]
    assert await ids(session, mode="auto") == ["style"]
    assert await ids(session, tags=["api"], mode="auto") == []


async def test_a_reference_is_told_with_its_text_or_how_to_have_it(session: Session) -> None:
    found = await select(session, ids=["rules", " style "], tags=["API"])

    assert found["style"] == {
        "id": "style",
        "name": "Style guide",
        "description": "How we write code",
        "content": "Line length is 120.\n",
        "mentions": [],
    }
    assert found["rules"]["content"] == "Follow style and api-spec; restyle nothing."
    assert found["rules"]["mentions"] == ["style", "api-spec"]
    assert found["api-spec"]["how"] == "read it with web_fetch: https://example.org/api.md"
    assert found["auth"]["how"] == (
        'call the tool get_page of the server wiki with {"page": 7}; only its second section'
    )
    folder = (await select(session, ids=["decisions"]))["decisions"]
    assert (folder["files"], folder["how"]) == (["docs/adr/1.md", "docs/adr/2.md"], "read_file reads each of the files")


async def test_what_was_selected_is_known_for_the_session(crib: Toolcrib, session: Session, folder: Path) -> None:
    await select(session, ids=["rules"])
    await select(session, tags=["python"])

    listed = await told(session, "list_references")
    assert [one["id"] for one in listed["references"] if one["selected"]] == ["rules", "style"]
    other = await told(crib.session(profile="flat", mode="autonomous", workspace=folder), "list_references")
    assert not any(one["selected"] for one in other["references"])


async def test_without_a_wish_those_to_be_read_first_are_selected(session: Session) -> None:
    assert list(await select(session)) == ["style"]


async def test_a_reference_is_found_by_the_words_of_its_matter(session: Session) -> None:
    assert next(iter(await select(session, query="how to write code"))) == "style"
    assert len(await select(session, query="style rules api login", limit=2)) == 2


async def test_a_reference_is_found_by_its_meaning(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_concepts(tmp_path / "packages", monkeypatch)
    sources = [
        {"id": "sky", "name": "Sky", "content": "weather forecast"},
        {"id": "post", "name": "Post", "content": "letter to a recipient"},
    ]
    async with crib_with({"sources": sources}, ranking={"embedder": CONCEPTS}) as crib:
        crib.add(references)
        session = crib.session(profile="flat", mode="autonomous", workspace=folder)

        assert list(await select(session, query="umbrella?")) == ["sky"]
        text = await told(session, "compute_embedding", input="rain rain")
        by_reference = await told(session, "compute_embedding", reference="sky")
        (folder / "a.txt").write_text("rain rain")
        assert await told(session, "compute_embedding", file="a.txt") == text
        assert (text["model"], text["dimensions"], len(text["embedding"])) == ("concepts-1", 4, 4)
        assert sum(number**2 for number in text["embedding"]) == pytest.approx(1.0, abs=1e-4)
        near = sum(a * b for a, b in zip(text["embedding"], by_reference["embedding"], strict=True))
        assert near > 0.9
        for given in ({}, {"input": "x", "file": "a.txt"}, {"input": "  "}):
            assert "give one of input, file, reference" in await refused(session, "compute_embedding", **given)
        assert "there is no reference 'nothing'" in await refused(session, "compute_embedding", reference="nothing")
        (folder / "empty.txt").write_text(" \n")
        assert "has no text" in await refused(session, "compute_embedding", file="empty.txt")


async def test_without_an_embedder_its_setting_is_named(session: Session) -> None:
    text = await refused(session, "compute_embedding", input="x")
    assert "there is no embedder here" in text
    assert "ranking: {embedder: minilm}" in text


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"ids": ["styl"]}, "there is no reference 'styl'\ndid you mean style?"),
        ({"ids": ["style", "x", "y"]}, "there is no reference 'x', 'y'\nthere are "),
        ({"tags": ["nothing"]}, "no reference fits"),
        ({"query": "zebra"}, "no reference fits"),
    ],
)
async def test_what_there_is_not_is_refused_with_what_there_is(
    session: Session, given: dict[str, Any], reason: str
) -> None:
    assert reason in await refused(session, "select_references", **given)


async def test_a_reference_that_cannot_be_read_says_why(crib: Toolcrib, session: Session, folder: Path) -> None:
    (folder / "docs/style.md").unlink()
    assert (await select(session, ids=["style"]))["style"]["how"] == "docs/style.md is not there: tell the user"
    (folder / "docs/style.md").write_bytes(b"\0\1\2" * 50)
    assert "not text" in (await select(session, ids=["style"]))["style"]["how"]
    (folder / "docs/style.md").write_bytes(b"x" * ((1 << 20) + 1))
    assert "read_file reads docs/style.md in pages" in (await select(session, ids=["style"]))["style"]["how"]
    nowhere = crib.session(profile="flat", mode="autonomous")
    assert "no workspace" in (await select(nowhere, ids=["style"]))["style"]["how"]


async def test_one_that_is_wrong_is_told_with_its_place_and_hides_no_other(folder: Path) -> None:
    kept = folder / ".toolcrib/references"
    kept.mkdir(parents=True)
    (kept / "a.json").write_text('{"id": "a",\n "name": }')
    (kept / "b.yaml").write_text("id: style\nname: B\ncontent: x\n")
    (kept / "c.yaml").write_text("just words")
    (kept / "d.md").write_text("no reference")
    sources = [
        SOURCES[0],
        {"id": "x"},
        {"id": "y", "name": "Y", "type": ["url"]},
        {"id": "z", "name": "Z", "type": "url", "url": "ftp://x", "mode": "always", "tags": "one"},
        {"id": "out", "name": "Out", "path": "../outside.md"},
        7,
    ]
    async with crib_with({"sources": sources, "folders": ["nowhere"]}) as crib:
        crib.add(references)
        session = crib.session(profile="flat", mode="autonomous", workspace=folder)
        listed = await told(session, "list_references")
        outside = (await select(session, ids=["out"]))["out"]

    assert [one["id"] for one in listed["references"]] == ["out", "style"]
    assert listed["problems"] == [
        "tools.references.folders: there is no folder 'nowhere'",
        ".toolcrib/references/a.json:2: this is not JSON: Expecting value",
        "tools.references.sources[1]: name: is missing",
        "tools.references.sources[1]: path: is missing; type local needs it",
        "tools.references.sources[2]: type: is one of local, url, inline, mcp, not ['url']",
        "tools.references.sources[3]: mode: is auto or selectable, not 'always'",
        "tools.references.sources[3]: tags: is not a list of words",
        "tools.references.sources[3]: url: is not an address of the web: 'ftp://x'",
        "tools.references.sources[5]: a reference is a mapping with id, name and one of path, url, content, server",
        ".toolcrib/references/b.yaml: there is a reference 'style' already",
        ".toolcrib/references/c.yaml: a reference is a mapping with id, name and one of path, url, content, server",
    ]
    assert "it cannot be read here" in outside["how"]


@pytest.mark.parametrize("said", [["style"], {"sources": {}, "folders": "docs"}])
async def test_settings_that_are_no_references_are_told(said: Any, folder: Path) -> None:
    async with crib_with(said) as crib:
        crib.add(references)
        listed = await told(crib.session(profile="flat", mode="autonomous", workspace=folder), "list_references")

    assert listed["references"] == []
    assert all(problem.startswith("tools.references") for problem in listed["problems"])


async def test_a_file_of_references_is_validated(session: Session, folder: Path) -> None:
    (folder / "refs.yaml").write_text(
        "sources:\n"
        "  - {id: a, name: A, path: docs/style.md}\n"
        "  - {id: b, name: B, path: docs/nothing.md, tag: [x]}\n"
        "  - {id: a, name: Again, content: x}\n"
        "  - {name: C, url: 'https://example.org'}\n"
    )
    assert await told(session, "validate_reference", path="refs.yaml") == {
        "path": "refs.yaml",
        "valid": False,
        "references": ["a", "b"],
        "errors": ["refs.yaml: sources[2]: there is a reference 'a' already", "refs.yaml: sources[3]: id: is missing"],
        "warnings": [
            "refs.yaml: sources[1]: tag: nothing is known of this key; did you mean 'tags'?",
            "refs.yaml: sources[1]: path: there is no 'docs/nothing.md'",
        ],
    }
    single = await told(session, "validate_reference", path=".toolcrib/references/tests.yaml")
    assert (single["valid"], single["references"], single["errors"]) == (True, ["tests"], [])


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.json", '{"id": 1', "a.json:1: this is not JSON"),
        ("a.yaml", "id: a\nid: b\n", "'id' stands here a second time"),
        ("a.yaml", "- [\n", "a.yaml:"),
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.json", "1" * 100_000, "a.json cannot be read"),
        ("a.json", b"\xff\xfe", "a.json is not UTF-8"),
        ("a.toml", "id = 1", "is not a file of .json, .yaml, .yml"),
    ],
)
async def test_a_file_that_is_broken_is_refused_with_its_place(
    session: Session, folder: Path, name: str, content: str | bytes, reason: str
) -> None:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    assert reason in await refused(session, "validate_reference", path=name)
