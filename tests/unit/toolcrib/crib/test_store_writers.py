"""Tools that change nothing but the store: their intent is recorded with what they change there."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from toolcrib import Toolcrib
from toolcrib.plugin import Context, Schema, Table, tool

SCHEMA: Final = Schema(name="lists", tables=(Table(name="items", noun="item", columns={"title": "TEXT NOT NULL"}),))


@pytest.mark.parametrize("kept_in", ["storage", "records"])
async def test_the_intent_of_a_tool_that_changes_the_store_alone_is_recorded_with_its_first_change(
    tmp_path: Path, kept_in: str
) -> None:
    began: list[str] = []

    @tool(kind="write", traits=["store_writer"])
    async def keep(ctx: Context, title: str) -> str:
        """Keep a title."""
        began.append(await crib.store.calls.began(ctx.call_id))
        if kept_in == "records":
            await ctx.records("kept").put("one", {"title": title})
        else:
            storage = ctx.storage(SCHEMA)
            await storage.write(lambda rows: rows.create_project("p1"))
            await storage.write(lambda rows: rows.insert("items", {"project_id": "p1", "title": title}))
        began.append(await crib.store.calls.began(ctx.call_id))
        return "kept"

    async with Toolcrib(mode="autonomous", store=tmp_path / "store.db") as crib:
        crib.add(keep)
        async with crib.session() as session:
            result = await session.call("keep", {"title": "milk"})
        row = await crib.store.calls.get(str(result.meta["call_id"]))

    assert (result.text, began) == ("kept", ["", "outcome_unknown"])
    assert row and row.outcome == "ok"


async def test_a_tool_that_changes_the_store_alone_and_fails_before_leaves_no_intent(tmp_path: Path) -> None:
    @tool(kind="write", traits=["store_writer"])
    async def keep(ctx: Context) -> str:
        """Keep a title of a project that is not there."""
        await ctx.storage(SCHEMA).write(lambda rows: rows.insert("items", {"project_id": "p1", "title": "milk"}))
        return "kept"

    async with Toolcrib(mode="autonomous", store=tmp_path / "store.db") as crib:
        crib.add(keep)
        async with crib.session() as session:
            result = await session.call("keep", {})
        row = await crib.store.calls.get(str(result.meta["call_id"]))

    assert row and row.outcome == "not_found"
