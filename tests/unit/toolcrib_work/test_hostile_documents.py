"""Documents and answers made to break a reader: each is refused with a place, or taken as text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Toolcrib
from toolcrib.plugin import Page, ToolFailure
from toolcrib_work.calendar.remote import Account, Remote
from unit.toolcrib_work.people import Person

pytestmark = pytest.mark.anyio

DEEP = "[" * 20_000 + "]" * 20_000
IN_FRONT = (*'[1]|{"a": 1}|true|NaN|1e999|"\\ud800"|"\\u0000"|"\\u202e"|-1|""'.split("|"), DEEP, "1" * 400)
NOTE = {"kind": '"document"', "id": '"a"', "title": '"A"', "parent": "null", "order": "0", "links": "[]", "props": "{}"}
VALUES: list[Any] = [[], {}, [1], {"a": 1}, True, math.inf, "\ud800", "\0", 10**400, -1, "", "a" * 100_000, 1.5, None]
TASK: Mapping[str, Any] = {"id": "a", "kind": "task", "title": "A", "priority": 1, "completed_at": "2026-12-01"}
ISSUE: Mapping[str, Any] = {
    "number": 1,
    "title": "T",
    "body": "b",
    "state": "CLOSED",
    "closedAt": "2026-12-01",
    "url": "u",
    "labels": [{"name": "a"}],
    "assignees": [{"login": "a"}],
    "milestone": {"title": "m", "dueOn": "2026-12-01"},
}


def exported(field: str, value: Any) -> dict[str, Any]:
    whole = {"format": "toolcrib.project", "version": 1, "project": {"name": "P", "type_key": "project.personal.a"}}
    given: dict[str, Any] = {**whole, "entities": [{**TASK, field: value}] if field in TASK else [TASK]}
    return given if field in TASK else {**given, field: value}


async def test_an_import_of_anything_is_valid_or_says_what_is_not(ada: Person) -> None:
    notes = ({**NOTE, field: text} for field in (*NOTE, "format", "state_key", "version") for text in IN_FRONT)
    texts = ("".join(f"{key}: {value}\n" for key, value in note.items()) for note in notes)
    documents: list[dict[str, Any]] = [
        *({"files": [{"path": "a.md", "content": f"---\n{text}---\nText\n"}]} for text in texts),
        *({"data": exported(field, value)} for field in (*TASK, "project", "edges", "tree") for value in VALUES),
        *({"data": [{**ISSUE, field: value}]} for field in ISSUE for value in VALUES),
    ]

    answers = [await ada.envelope("x.graph.import", **document) for document in documents]

    assert len(answers) > 300
    assert {answer["error"]["code"] for answer in answers if not answer["ok"]} == {"VALIDATION_ERROR"}


async def test_files_of_a_folder_are_imported_whatever_they_have_together_and_nothing_else(
    crib: Toolcrib, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("key", encoding="utf-8")
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("# A", encoding="utf-8")
    (notes / "b.md").symlink_to(tmp_path / "secret")
    (notes / "c.md").symlink_to("a.md")

    (notes / ".obsidian").mkdir()
    (notes / ".obsidian" / "d.md").write_text("# Deleted", encoding="utf-8")
    for name, text in {"deep": DEEP, "number": "NaN", "sign": '[{"number": 1, "title": "\\ud800"}]'}.items():
        (notes / f"{name}.json").write_text(text, encoding="utf-8")
    issues = [{**ISSUE, "number": number, "body": "b" * 65_536} for number in range(20)]
    (notes / "issues.json").write_text(json.dumps(issues), encoding="utf-8")
    (notes / "ours").mkdir()

    def session(**more: Any) -> Person:
        return Person(crib.session(principal="ada", profile="gateway", mode="autonomous", workspace=notes, **more))

    ada, bound = session(), session(rules={"deny": ["Read(ours/**)"]})

    folder = await ada.ok("x.graph.import", path=".")
    assert (folder["context_shift"]["entity_name"], folder["counts"]["documents"]) == ("notes", 1)
    assert (await ada.ok("x.graph.import", path="issues.json"))["counts"]["tasks"] == 20
    for name in ("empty", "wrong"):
        (notes / name).mkdir()
    (notes / "wrong" / "e.md").write_text("---\nkind: task\nid: t\ntitle: T\npriority: 6\n---\n", encoding="utf-8")
    assert await ada.refused("x.graph.import", path="wrong") == ("VALIDATION_ERROR", ["e.md.priority"])
    for name in ("deep.json", "number.json", "sign.json", "empty"):
        assert await ada.refused("x.graph.import", path=name) == ("VALIDATION_ERROR", ["path"])
    for one, path in ((ada, "../secret"), (bound, "ours")):  # rules about reading are about an import, too
        assert (await one.refused("x.graph.import", path=path))[0] == "PERMISSION_DENIED"
    assert (await ada.refused("x.graph.import", path="missing"))[0] == "NOT_FOUND"


class ScriptedWeb:
    """A web that gives one answer to everything."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.requests = 0

    async def check(self, url: str) -> None:
        """Refuse no address."""

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        seconds: float = 30.0,
        redirects: bool = True,
    ) -> Page:
        self.requests += 1
        body = self.body.replace(b"NUMBER", str(self.requests).encode())
        return Page(url=url, status=207, headers={}, body=body)


async def login() -> str:
    return ""


def remote(web: ScriptedWeb) -> Remote:
    account = Account(name="home", url="https://calendar.example/", principal="ada", login=login)
    return Remote(web, account)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
async def test_a_document_type_is_refused_wherever_it_stands_in_an_answer(encoding: str) -> None:
    head = f'<?xml version="1.0" encoding="{encoding}"?><!--{" " * 5_000}-->'
    bomb = '<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;">]><multistatus xmlns="DAV:">&c;</multistatus>'

    with pytest.raises(ToolFailure, match="document type") as raised:
        await remote(ScriptedWeb((head + bomb).encode(encoding))).changes("/home/", "1")
    assert raised.value.code == "tool_error"


async def test_a_list_of_changes_that_never_ends_is_given_up() -> None:
    cut = b'<multistatus xmlns="DAV:"><response><href>/home/</href><status>HTTP/1.1 507 x</status></response>'
    web = ScriptedWeb(cut + b"<sync-token>NUMBER</sync-token></multistatus>")

    with pytest.raises(ToolFailure) as raised:
        await remote(web).changes("/home/", "0")
    assert (raised.value.code, web.requests) == ("unavailable", 500)
