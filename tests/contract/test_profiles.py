"""The same call gives the same outcome in every profile, each in its own words: F4 of the seeds' shared cases.

One table of calls, made as a model of each profile makes them, through the library and over MCP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from contract.seats import PROFILES, WAYS_IN, Reply, Seat, Way, at
from contract.workshop import IMITATION, opened
from toolcrib.crib import Toolcrib
from toolcrib.errors import CODES

RULES = {"rules": {"deny": ("erase_note(path=plan)",)}}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A call, the code and the value that come of it, and what of it reaches the tool; None is nothing."""

    tool: str
    arguments: Any = None
    code: str = "ok"
    value: Any = None
    reaches: dict[str, Any] | None = None


def written(path: str, text: str = "", owner: str | None = "nobody") -> dict[str, Any]:
    return {"path": path, "text": text, "owner": owner}


PLAN = {"path": "plan", "text": "one", "owner": "ann"}
LOOKED = {"path": "plan", "lines": 3}

TABLE = {
    "a success": Row(tool="read_note", arguments={"path": "plan"}, value=PLAN, reaches=LOOKED),
    "plain text": Row(tool="greet", arguments={"name": "Bo"}, value="Hello, Bo", reaches={"name": "Bo"}),
    "defaults are filled": Row(
        tool="write_note",
        arguments={"path": "a"},
        value={"path": "a", "length": 0, "owner": "nobody"},
        reaches=written("a"),
    ),
    "null clears": Row(
        tool="write_note",
        arguments={"path": "a", "text": "x", "owner": None},
        value={"path": "a", "length": 1, "owner": None},
        reaches=written("a", "x", None),
    ),
    "what was cleared": Row(
        tool="read_note",
        arguments={"path": "a"},
        value={"path": "a", "text": "x", "owner": None},
        reaches={"path": "a", "lines": 3},
    ),
    "an alias": Row(
        tool="jot",
        arguments={"path": "b", "text": "yy"},
        value={"path": "b", "length": 2, "owner": "nobody"},
        reaches=written("b", "yy"),
    ),
    "another spelling": Row(tool="ReadNote", arguments={"path": "plan"}, value=PLAN, reaches=LOOKED),
    "upper case": Row(tool="READ_NOTE", arguments={"path": "plan"}, value=PLAN, reaches=LOOKED),
    "erased": Row(tool="erase_note", arguments={"path": "b"}, value={"erased": "b"}, reaches={"path": "b"}),
    "an unknown name": Row(tool="zzqx", code="not_found"),
    "a near miss": Row(tool="write_nott", arguments={"path": "c"}, code="not_found"),
    "a required argument is missing": Row(tool="write_note", arguments={"text": "x"}, code="invalid_arguments"),
    "an argument too many": Row(tool="write_note", arguments={"path": "c", "colour": "red"}, code="invalid_arguments"),
    "a wrong type": Row(tool="write_note", arguments={"path": "c", "text": {"a": 1}}, code="invalid_arguments"),
    "null where none may be": Row(tool="write_note", arguments={"path": None}, code="invalid_arguments"),
    "denied by a rule": Row(tool="erase_note", arguments={"path": "plan"}, code="denied"),
    "denied by a rule, in another spelling": Row(tool="EraseNote", arguments={"path": "plan"}, code="denied"),
    "nobody to ask": Row(tool="erase_everything", code="denied"),
    "wrong, and to be asked for": Row(tool="erase_everything", arguments={"a": 1}, code="invalid_arguments"),
    "switched off": Row(tool="open_drawer_7", code="disabled"),
    "the tool raises": Row(tool="stumble", code="tool_error", reaches={"over": "a step"}),
    "orders in the text": Row(tool="imitate", value=IMITATION, reaches={}),
}
"""Runs from the top, in one session each; nobody can be asked there."""


def expected(row: Row, profile: str) -> dict[str, Any]:
    """Return what the shape of a profile must say of a failure, by the one table of codes."""
    code = CODES[row.code]
    if profile == "gateway":
        return {"code": code.gateway}
    if profile == "selection":
        return {"success": False, "error_type": code.selection}
    return {}


KEYS = {
    "adaptive": set[str](),
    "flat": set[str](),
    "gateway": {"code", "message", "details", "help_path"},
    "introspection": {"error", "hint", "_permission"},
    "selection": {"success", "error", "error_type", "recovery_hint", "retry_after_seconds"},
    "tiered": {"error"},
}
"""All that the shape of a failure may say."""

NEEDED = {
    "gateway": {"code", "message", "help_path"},
    "introspection": {"error"},
    "selection": {"success", "error", "error_type"},
    "tiered": {"error"},
}
"""What it always says."""


async def made(seat: Seat) -> dict[str, Reply]:
    return {name: await seat.use(row.tool, row.arguments) for name, row in TABLE.items()}


async def prepared(crib: Toolcrib) -> None:
    """Switch a tool off, and name what an agent of `selection` has over MCP, where no intent can be said."""
    crib.tools.disable("open_drawer_7")
    named = ["read_note", "write_note", "erase_note", "erase_everything", "greet", "stumble", "imitate"]
    crib.profiles.add({"name": "selection", "core": [*named, "open_drawer_7"]})


@pytest.mark.parametrize("way", WAYS_IN)
@pytest.mark.parametrize("profile", PROFILES)
async def test_the_same_calls_have_the_same_outcomes_in_every_profile_each_in_its_words(profile: str, way: Way) -> None:
    async with opened(**RULES) as (crib, world):
        await prepared(crib)
        async with at(crib, profile, way) as seat:
            replies = await made(seat)

        assert {name: reply.code for name, reply in replies.items()} == {name: row.code for name, row in TABLE.items()}
        assert {name: reply.value for name, reply in replies.items()} == {
            name: row.value for name, row in TABLE.items()
        }
        assert world.ledger == [(_tool(row), row.reaches) for row in TABLE.values() if row.reaches is not None]
        _check_words({name: reply for name, reply in replies.items() if reply.is_error}, profile)


def _tool(row: Row) -> str:
    return {"jot": "write_note", "ReadNote": "read_note", "READ_NOTE": "read_note"}.get(row.tool, row.tool)


def _check_words(failed: dict[str, Reply], profile: str) -> None:
    """A failure has the form of the profile and the words of the one table."""
    assert set(failed) == {name for name, row in TABLE.items() if row.code != "ok"}
    for name, reply in failed.items():
        assert set(reply.told) <= KEYS[profile], name
        assert set(reply.told) >= NEEDED.get(profile, set()), name
        wanted = expected(TABLE[name], profile)
        assert {key: reply.told[key] for key in wanted} == wanted, name
        assert ("_permission" in reply.told) is (profile == "introspection" and reply.code == "denied"), name
    if profile == "adaptive":
        assert [name for name, reply in failed.items() if not reply.text.startswith(f"{reply.code}: ")] == []
    if profile in ("adaptive", "flat"):
        assert [name for name, reply in failed.items() if reply.structured is not None] == []


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
async def test_a_batch_that_the_model_makes_has_the_outcomes_of_single_calls(mode: str) -> None:
    async with opened(**RULES) as (crib, world):
        await prepared(crib)
        async with at(crib, "gateway") as seat:
            rows = {name: row for name, row in TABLE.items() if row.reaches is None or row.tool == "read_note"}
            ops: list[dict[str, Any]] = [
                {"type": "exec", "op": seat.op(row.tool), "args": row.arguments or {}} for row in rows.values()
            ]
            batch = await seat.ask("tool_batch", {"ops": ops, "mode": mode})
            single = [await seat.use(row.tool, row.arguments) for row in rows.values()]
            results = batch.structured["results"]

        assert [result["op"] for result in results] == [op["op"] for op in ops]
        assert [result.get("error") for result in results] == [reply.told or None for reply in single]
        assert [result.get("result") for result in results] == [reply.value for reply in single]
        assert set(world.reached) == {"read_note"}
