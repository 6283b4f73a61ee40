"""The usual names of a document's text, and its title from the first heading: the same at every door."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import httpx2
import pytest

from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.server.request_checks import Authority, RequestLimits
from toolcrib.server.rest import GuestResources

OPS = {
    "create_onto_document": "onto.document.create",
    "update_onto_document": "onto.document.update",
    "create_task_document": "onto.task.docs.create_or_attach",
    "create_onto_project": "onto.project.create",
    "get_onto_project_details": "onto.project.get",
}
TEXT = "intro\n\n## The plan ##\nmore"

Call = Callable[..., Awaitable[Any]]


def door(crib: Toolcrib, name: str) -> Call:
    profile = "gateway" if name in ("tool_exec", "tool_batch") else name
    session = crib.session(key=name, principal="local", profile=profile, mode="autonomous")

    async def call(tool: str, **args: Any) -> Any:
        ops = {"op": OPS[tool], "args": args}
        if name == "tool_exec":
            told: Any = (await session.call("tool_exec", ops)).structured_content
        elif name == "tool_batch":
            batch: Any = (await session.call("tool_batch", {"ops": [ops]})).structured_content
            told = batch["results"][0]
        else:
            return json.loads((await session.call(tool, args)).text)
        return told["result"]

    return call


@pytest.mark.parametrize("name", ["tool_exec", "tool_batch", "flat", "adaptive"])
async def test_a_text_under_any_usual_name_is_the_content_and_its_heading_the_title(crib: Toolcrib, name: str) -> None:
    call = door(crib, name)
    given = {"name": "Launch", "type_key": "project.business.launch"}
    for word in ("content", "body", "markdown", "text", "body_markdown"):
        entities = [
            {"temp_id": "t", "kind": "task", "title": "Write"},
            {"temp_id": "d", "kind": "document", "name": "Named", word: TEXT},
        ]
        context = {word: TEXT}
        made = await call(
            "create_onto_project", project=given, entities=entities, relationships=[], context_document=context
        )
        project = await call("get_onto_project_details", project_id=made["project_id"])
        created = await call("create_onto_document", project_id=made["project_id"], **{word: TEXT})
        changed = await call("update_onto_document", document_id=made["entities"]["d"], **{word: "changed"})
        of_task = await call("create_task_document", task_id=made["entities"]["t"], **{word: TEXT})
        found = [project["context_document"], *(one["document"] for one in (created, changed, of_task))]

        assert [(one["title"], one["content"]) for one in found] == [
            ("The plan", TEXT),
            ("The plan", TEXT),
            ("Named", "changed"),
            ("The plan", TEXT),
        ]


async def test_two_names_of_one_text_are_refused(crib: Toolcrib) -> None:
    session = crib.session(principal="local", profile="flat", mode="autonomous")
    told = await session.call("create_onto_document", {"project_id": "x", "body": "# a", "text": "# b"})

    assert told.error is not None
    assert [one["path"] for one in told.error.details["field_errors"]] == ["content", "body", "text"]


async def test_a_document_comes_in_over_rest_under_a_usual_name() -> None:
    given = {"name": "Launch", "type_key": "project.business.launch"}
    async with Toolcrib(bare().with_values(builtins=("onto",), mode="autonomous"), memory=True) as crib:
        made = await door(crib, "flat")("create_onto_project", project=given, entities=[], relationships=[])
        edge = RequestLimits(Authority("", host="127.0.0.1", admin_token=""), host="127.0.0.1")
        transport = httpx2.ASGITransport(app=cast("Any", GuestResources(crib, edge, patience=5.0)))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = await client.post(f"/v1/projects/{made['project_id']}/documents", json={"markdown": TEXT})

    assert (answer.status_code, answer.json()["document"]["title"]) == (201, "The plan")
