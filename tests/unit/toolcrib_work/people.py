"""A principal's calls of operations, as the gateway answers them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolcrib import Toolcrib
from toolcrib.crib.session import Session


class Person:
    """One principal's calls of operations."""

    def __init__(self, session: Session) -> None:
        self.session = session

    async def envelope(self, op: str, /, **args: Any) -> Any:
        return (await self.session.call("tool_exec", {"op": op, "args": args})).structured_content

    async def ok(self, op: str, /, **args: Any) -> Any:
        told = await self.envelope(op, **args)
        assert told["ok"], told
        return told["result"]

    async def refused(self, op: str, /, **args: Any) -> tuple[str, list[str]]:
        """Return the code of an error, and the paths of its arguments."""
        told = await self.envelope(op, **args)
        assert not told["ok"], told
        errors = told["error"].get("details", {}).get("field_errors", [])
        return told["error"]["code"], [error["path"] for error in errors]

    async def project(self, name: str = "Launch", **more: Any) -> str:
        given: dict[str, Any] = {"name": name, "type_key": "project.business.launch"}
        made = await self.ok("onto.project.create", **{"project": given, "entities": [], "relationships": [], **more})
        return str(made["project_id"])

    async def made(self, kind: str, project_id: str, label: str, **more: Any) -> str:
        name = {"task": "title", "document": "title"}.get(kind, "name")
        content = {"content": ""} if kind == "document" else {}
        fields = {"project_id": project_id, name: label, **content, **more}
        return str((await self.ok(f"onto.{kind}.create", **fields))[kind]["id"])

    async def edges(self, id: str) -> set[tuple[str, str, str]]:
        found = await self.ok("onto.entity.relationships.get", entity_id=id)
        return {(edge["src_id"], edge["rel"], edge["dst_id"]) for edge in found["relationships"]}


def person(crib: Toolcrib, name: str, context: Mapping[str, Any] | None = None) -> Person:
    return Person(crib.session(key=name, principal=name, profile="gateway", mode="autonomous", context=context or {}))


def without_ids(told: Any, ids: Mapping[str, str]) -> str:
    """Return an answer as JSON with the kinds of these ids in their places."""
    text = json.dumps(told)
    for kind, id in ids.items():
        text = text.replace(id, f"<{kind}>")
    return text
